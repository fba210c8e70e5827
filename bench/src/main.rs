//! Measures a release build of Tidegate from outside, as its clients see it. `README.md` lists the scenarios.

mod machine;
mod readers;
mod server;

use std::process::ExitCode;

const USAGE: &str = "\
Usage: cargo run --release -- <scenario> [options]

Scenarios:
  readers   200 gRPC readers at once over a year of records";

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let outcome = match arguments.next().as_deref() {
        Some("readers") => readers::run(arguments.collect()).await,
        Some("help" | "--help" | "-h") => {
            println!("{USAGE}");
            Ok(true)
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

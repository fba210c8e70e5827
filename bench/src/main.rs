//! Measures a release build of Tidegate from outside, as its clients see it, and its fetch engine beside other clients.
//! `README.md` lists the scenarios.

mod child;
mod fetch;
mod link;
mod machine;
mod peer;
mod readers;
mod server;

use std::process::ExitCode;

const USAGE: &str = "\
Usage: cargo run --release -- <scenario> [options]

Scenarios:
  readers   200 gRPC readers at once over a year of records
  fetch     reading a backlog, beside other clients, near and far";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next();
    let arguments: Vec<String> = arguments.collect();
    let outcome = match command.as_deref() {
        Some("readers") => runtime().and_then(|runtime| runtime.block_on(readers::run(arguments))),
        Some("fetch") => fetch::run(&arguments),
        // What `fetch` starts: a client as a process of its own.
        Some("peer") => peer::run(&arguments),
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

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

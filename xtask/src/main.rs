//! `cargo xtask`: what a developer or a CI machine does with the workspace as a whole.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool")]

mod cargo;
mod ci;
mod fuzz;
mod kafka;
mod libtest;
mod step;
mod summary;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "Developer tasks of Tidegate")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Build and run the tests, with a real Apache Kafka beside them; count what passed, failed and was skipped
    Test(test::TestArguments),
    /// Everything that must hold before a change is merged: format, lints, docs, tests with none skipped, fuzzing
    Ci(ci::CiArguments),
    /// Run the fuzz targets, each for some seconds
    Fuzz(fuzz::FuzzArguments),
    /// Start a real Apache Kafka, print its address and keep it until ctrl-c
    Kafka(kafka::KafkaArguments),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().task {
        Task::Test(arguments) => test::run(&arguments),
        Task::Ci(arguments) => ci::run(&arguments),
        Task::Fuzz(arguments) => fuzz::run(&arguments),
        Task::Kafka(arguments) => kafka::run(&arguments),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

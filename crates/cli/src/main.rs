//! The one binary, `tidegate`: a time range of a Kafka topic over gRPC and REST, provably complete.
//!
//! Records and tables go to standard output, talk goes to standard error. Each command is one file under `commands` and a
//! thin caller of the engine, in this process (`--brokers`) or behind a server (`--server`).

mod args;
mod commands;
mod config;
mod exit;
mod input;
mod output;
mod signals;
mod stack;
mod target;
mod units;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use crate::args::{Cli, Command};
use crate::exit::{Exit, Failure};
use crate::output::talk;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let exit = match run(cli) {
        Ok(exit) => exit,
        // Nobody is there to read it, and nothing went wrong: `tidegate read … | head` is a way to use it.
        Err(failure) if failure.exit == Exit::OutputClosed => failure.exit,
        Err(failure) => {
            talk::fail(&failure);
            failure.exit
        }
    };
    ExitCode::from(exit.code())
}

fn run(cli: Cli) -> Result<Exit, Failure> {
    log(cli.log.as_deref(), cli.command.default_log())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed("cannot start the runtime", &error))?;
    let result = runtime.block_on(async {
        match cli.command {
            Command::Demo(args) => commands::demo::run(args).await,
            Command::Serve(args) => commands::serve::run(args).await,
            Command::Read(args) => commands::read::run(args).await,
            Command::Publish(args) => commands::publish::run(args).await,
            Command::Topics(args) => commands::topics::run(args).await,
        }
    });
    // Not a plain drop: a thread that waits in a read of standard input, or in a write to a full pipe, would keep the
    // process alive after the outcome is known.
    runtime.shutdown_background();
    result
}

/// Sends the log to standard error, as `--log`, else TIDEGATE_LOG, else the command's default says.
fn log(flag: Option<&str>, default: &str) -> Result<(), Failure> {
    let environment = std::env::var("TIDEGATE_LOG").ok().filter(|filter| !filter.is_empty());
    let (filter, source) = match (flag, &environment) {
        (Some(filter), _) => (filter, "--log"),
        (None, Some(filter)) => (filter.as_str(), "TIDEGATE_LOG"),
        (None, None) => (default, "the default"),
    };
    let filter = EnvFilter::try_new(filter).map_err(|error| {
        Failure::usage(format_args!("{source} {filter:?} is not a log filter: {error}"))
            .hint("write for example info, or warn,tidegate_client=debug")
    })?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    Ok(())
}

//! The command line as a whole. Each command's own arguments stand with the command.

use clap::{Parser, Subcommand};

use crate::commands::{demo::DemoArgs, publish::PublishArgs, read::ReadArgs, serve::ServeArgs, topics::TopicsArgs};
use crate::exit::EXIT_CODES;

/// A time range of a Kafka topic over gRPC and REST, provably complete.
///
/// Tidegate turns a topic and a time range into partitions and offsets, streams the records, and says at the end, per
/// partition, whether the answer is complete. Late records are found, not hoped for.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, after_help = EXIT_CODES, disable_help_subcommand = true, max_term_width = 120)]
pub(crate) struct Cli {
    /// What to log on standard error, such as info or warn,tidegate_client=debug [environment: TIDEGATE_LOG]
    #[arg(long, global = true, value_name = "FILTER")]
    pub(crate) log: Option<String>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(DemoArgs),
    Serve(ServeArgs),
    Read(ReadArgs),
    Publish(PublishArgs),
    Topics(TopicsArgs),
}

impl Command {
    /// The log filter when the user gave none. A server's log is part of its use; a tool's would only disturb.
    pub(crate) fn default_log(&self) -> &'static str {
        match self {
            Self::Serve(_) => "info",
            Self::Demo(_) | Self::Read(_) | Self::Publish(_) | Self::Topics(_) => "warn",
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed_and_every_command_shows_examples_and_exit_codes() {
        let cli = Cli::command();
        cli.clone().debug_assert();
        for command in cli.get_subcommands() {
            let help = command.clone().render_long_help().to_string();
            assert!(help.contains("Examples:"), "{}", command.get_name());
            assert!(help.contains("Exit codes:"), "{}", command.get_name());
        }
    }
}

//! Exit codes: the one table that all commands use, and the error that carries one.

use std::fmt;

/// How a run of `tidegate` ended, as its exit code says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All was done.
    Done = 0,
    /// It failed, and none of the reasons below names why.
    Failed = 1,
    /// The command line or the configuration is wrong. clap uses the same number.
    Usage = 2,
    /// Records were read or published, but not all of them.
    Incomplete = 3,
    /// The server or the cluster refused the request.
    Refused = 4,
    /// The server or the cluster could not be reached, or is not able to answer now.
    Unavailable = 5,
    /// Stopped by SIGINT, as a shell would report it.
    Interrupted = 130,
    /// Whoever read standard output went away (128 + SIGPIPE).
    OutputClosed = 141,
}

/// The table as `--help` prints it. A test compares it with [`Exit`].
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
    0  done
    1  failed
    2  the command line, the configuration or the input cannot be used
    3  incomplete: what came out (or went in) is only a part
    4  the server or the cluster refused the request
    5  the server or the cluster cannot be reached or cannot answer now; trying again may help
  130  interrupted
  141  the reader of standard output went away";

impl Exit {
    /// The number for the operating system.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }
}

/// A command's failure: what the user reads on standard error, and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) exit: Exit,
    /// What happened, one line.
    pub(crate) message: String,
    /// What to do about it, when there is something to do.
    pub(crate) hint: Option<String>,
}

impl Failure {
    /// A failure with its message.
    pub(crate) fn new(exit: Exit, message: impl fmt::Display) -> Self {
        Self { exit, message: message.to_string(), hint: None }
    }

    /// [`Exit::Failed`] from an error and all its sources, on one line.
    pub(crate) fn failed(context: &str, error: &dyn std::error::Error) -> Self {
        Self::new(Exit::Failed, format_args!("{context}: {}", chain(error)))
    }

    /// [`Exit::Failed`] with its message.
    pub(crate) fn failed_plain(message: impl fmt::Display) -> Self {
        Self::new(Exit::Failed, message)
    }

    /// [`Exit::Usage`] with its message.
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Adds what to do.
    pub(crate) fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }
}

/// An error and its sources, joined with colons; a source whose text the error already repeats is left out.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_lists_every_exit_code_once() {
        let all = [
            Exit::Done,
            Exit::Failed,
            Exit::Usage,
            Exit::Incomplete,
            Exit::Refused,
            Exit::Unavailable,
            Exit::Interrupted,
            Exit::OutputClosed,
        ];
        let listed: Vec<u8> =
            EXIT_CODES.lines().skip(1).map(|line| line.split_whitespace().next().unwrap().parse().unwrap()).collect();
        assert_eq!(listed, all.map(Exit::code));
    }

    #[test]
    fn a_chain_says_nothing_twice() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer: inner")]
        struct Repeats(#[source] std::io::Error);
        let error = Repeats(std::io::Error::other("inner"));
        assert_eq!(chain(&error), "outer: inner");
    }
}

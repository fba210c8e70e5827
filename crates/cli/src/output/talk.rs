//! Lines for people, on standard error. A standard error that is closed is nobody's problem.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use crate::exit::Failure;

/// One line of talk.
pub(crate) fn say(line: impl fmt::Display) {
    let mut out = String::new();
    // One write a line, so that lines of several threads do not mix.
    if fmt::Write::write_fmt(&mut out, format_args!("{line}\n")).is_ok() {
        let _ = io::stderr().write_all(out.as_bytes());
    }
}

/// A warning: something went on, but not as the user may think.
pub(crate) fn warn(line: impl fmt::Display) {
    say(format_args!("{} {line}", paint("33;1", "warning:")));
}

/// A failure with its hint.
pub(crate) fn fail(failure: &Failure) {
    say(format_args!("{} {}", paint("31;1", "error:"), failure.message));
    if let Some(hint) = &failure.hint {
        say(format_args!("{} {hint}", paint("36;1", "hint:")));
    }
}

/// `text` in a colour of the terminal, when standard error is one and nobody asked for none (<https://no-color.org>).
fn paint(code: &str, text: &str) -> String {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if plain || !io::stderr().is_terminal() { text.to_owned() } else { format!("\x1b[{code}m{text}\x1b[0m") }
}

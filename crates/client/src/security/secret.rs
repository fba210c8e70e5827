//! Text that nobody but the peer may see.

use std::fmt;
use std::sync::Arc;

/// A password, key or token. It shows itself in no log, error or `Debug` output; [`Secret::expose`] is the one way to it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Takes the text over.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into().into())
    }

    /// The text itself. For the peer alone.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// `text`, which somebody else wrote, with this secret taken out of it wherever it stands.
    pub(crate) fn hide_in(&self, text: &str) -> String {
        // A secret of a letter or two would turn any text into stars, and tell itself by that.
        if self.0.len() < 4 { text.to_owned() } else { text.replace(&*self.0, "***") }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// What a stranger says, as it may stand in an error: of bounded length, on one line.
pub(crate) fn quoted(text: &str) -> String {
    const LONGEST: usize = 500;
    let mut shown: String = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST).collect();
    if text.trim().chars().nth(LONGEST).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_shows_itself_nowhere() {
        let secret = Secret::new("hunter22");
        assert_eq!(format!("{secret:?}"), "***");
        assert_eq!(secret.hide_in("no hunter22 here"), "no *** here");
        assert_eq!(secret.expose(), "hunter22");
    }

    #[test]
    fn strangers_words_are_cut_and_kept_on_one_line() {
        assert_eq!(quoted(" a\nb\u{1b}[31m "), "a b [31m");
        let long = quoted(&"x".repeat(10_000));
        assert!(long.len() < 600 && long.ends_with('…'));
    }
}

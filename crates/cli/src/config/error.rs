//! What is wrong with a configuration file, with the place and, for a key that nobody knows, what may have been meant.

use std::path::{Path, PathBuf};

use super::kafka::instead_of;
use crate::exit::Failure;

/// Why a configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// A key that does not exist.
    #[error("{}{place}: unknown key {key:?}{}", path.display(), inside(section))]
    UnknownKey {
        path: PathBuf,
        place: Place,
        /// The keys that lead there, joined with dots; empty at the top.
        section: String,
        key: String,
        known: Vec<String>,
    },
    /// The YAML or one of its values is wrong.
    #[error("{}{place}: {message}", path.display())]
    Value { path: PathBuf, place: Place, message: String },
    /// The values do not go together.
    #[error("{}: {message}", path.display())]
    Invalid { path: PathBuf, message: String },
}

/// Line and column, as editors count them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(Option<(usize, usize)>);

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.map_or(Ok(()), |(line, column)| write!(f, ":{line}:{column}"))
    }
}

fn inside(section: &str) -> String {
    if section.is_empty() { String::new() } else { format!(" in {section}") }
}

impl ConfigError {
    /// From the YAML reader's error. It tells the path of keys, the unknown key and the known ones only as text, in the
    /// form that serde's `unknown_field` gives it; the tests beside this module hold that form.
    pub(super) fn from_yaml(path: &Path, error: &serde_yaml_ng::Error) -> Self {
        let place = Place(error.location().map(|at| (at.line(), at.column())));
        let text = error.to_string();
        let message = match text.rfind(" at line ") {
            Some(at) if place.0.is_some() => &text[..at],
            _ => text.as_str(),
        };
        if let Some((section, rest)) = message.split_once("unknown field `")
            && let Some((key, known)) = rest.split_once('`')
        {
            return Self::UnknownKey {
                path: path.to_owned(),
                place,
                section: section.trim_end_matches(": ").to_owned(),
                key: key.to_owned(),
                // Every second piece stands between backquotes.
                known: known.split('`').skip(1).step_by(2).map(str::to_owned).collect(),
            };
        }
        Self::Value { path: path.to_owned(), place, message: message.to_owned() }
    }

    /// What to do about it, where there is something to say.
    pub(crate) fn hint(&self) -> Option<String> {
        let Self::UnknownKey { key, known, .. } = self else { return None };
        // Only in a section that knows others of its kind.
        if let Some(instead) = instead_of(key).filter(|_| known.iter().any(|known| known == "sasl.mechanism")) {
            return Some(instead.to_owned());
        }
        let all = known.join(", ");
        Some(match nearest(key, known) {
            Some(nearest) => format!("did you mean {nearest}? The keys here are {all}"),
            None => format!("the keys here are {all}"),
        })
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        let failure = Self::usage(&error);
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

/// The known key that `key` was most likely meant to be.
fn nearest<'a>(key: &str, known: &'a [String]) -> Option<&'a str> {
    // Case, and the choice between dots, dashes and underscores, are the commonest slips.
    let plain = |text: &str| text.to_ascii_lowercase().replace(['.', '-'], "_");
    let score = |known: &str| strsim::jaro_winkler(&plain(key), &plain(known));
    let best = known.iter().max_by(|a, b| score(a).total_cmp(&score(b)))?;
    (score(best) > 0.8).then_some(best)
}

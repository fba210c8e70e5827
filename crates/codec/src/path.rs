//! The path of a value in a JSON document, as errors name it: `$.es[1]`.

use std::borrow::Cow;
use std::fmt::Write as _;

/// A key that is longer is cut in the text of a path: an error must not be as large as its document.
const MAX_KEY_CHARACTERS: usize = 64;

/// One step from a value to a value inside it.
#[derive(Clone, Debug)]
pub(crate) enum Step<'a> {
    Key(Cow<'a, str>),
    Index(usize),
}

/// The path as text. `$` is the document itself.
pub(crate) fn path_text(steps: &[Step<'_>]) -> String {
    let mut text = String::from("$");
    for step in steps {
        // Writing to a string does not fail.
        let _ = match step {
            Step::Index(index) => write!(text, "[{index}]"),
            Step::Key(key) => {
                let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '@');
                let key = cut(key);
                if !key.is_empty() && key.chars().all(plain) {
                    write!(text, ".{key}")
                } else {
                    write!(text, "[{key:?}]")
                }
            }
        };
    }
    text
}

/// `text`, or its beginning with an ellipsis.
pub(crate) fn cut(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(MAX_KEY_CHARACTERS) {
        None => Cow::Borrowed(text),
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_reads_like_the_way_into_the_document() {
        let key = |text| Step::Key(Cow::Borrowed(text));
        assert_eq!(path_text(&[]), "$");
        assert_eq!(path_text(&[key("es"), Step::Index(1), key("a b"), key("")]), "$.es[1][\"a b\"][\"\"]");
        assert_eq!(path_text(&[key(&"x".repeat(70))]), format!("$[\"{}…\"]", "x".repeat(64)));
    }
}

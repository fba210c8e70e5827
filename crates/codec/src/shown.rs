//! How arbitrary bytes are shown in JSON output.

use std::borrow::Cow;

/// The best way to show some bytes inside a JSON document.
///
/// Nothing is lost in any of the three: a document keeps the text of its numbers and strings, text is escaped, and anything
/// else is base64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonValue<'a> {
    /// One JSON document, on one line: it can be embedded as it is.
    Document(Cow<'a, str>),
    /// UTF-8 text that is not a JSON document: a JSON string, see [`write_json_string`].
    Text(&'a str),
    /// Anything else: base64, see [`write_json_base64`].
    Binary(&'a [u8]),
}

impl<'a> JsonValue<'a> {
    /// Decides for `bytes`.
    pub fn of(bytes: &'a [u8]) -> Self {
        match Self::document(bytes) {
            Some(document) => Self::Document(document),
            None => Self::text(bytes),
        }
    }

    /// As [`JsonValue::of`], without looking for a document: for keys, and wherever a string is wanted.
    pub fn text(bytes: &'a [u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text),
            Err(_) => Self::Binary(bytes),
        }
    }

    /// `bytes` as one JSON document on one line, ready to be embedded; `None` when it is not one.
    pub fn document(bytes: &'a [u8]) -> Option<Cow<'a, str>> {
        todo!("{bytes:?}")
    }
}

/// Appends `text` as a JSON string, with its quotes.
pub fn write_json_string(text: &str, out: &mut Vec<u8>) {
    todo!("{text} {out:?}")
}

/// Appends `bytes` as a JSON string of standard base64 with padding, with its quotes.
pub fn write_json_base64(bytes: &[u8], out: &mut Vec<u8>) {
    todo!("{bytes:?} {out:?}")
}

//! How arbitrary bytes are shown in JSON output.

use std::borrow::Cow;

use crate::json::Reader;

/// The best way to show some bytes inside a JSON document.
///
/// Nothing is lost in any of the three: a document keeps the text of its numbers and strings, text is escaped, and anything
/// else is base64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonValue<'a> {
    /// One JSON document on one line: it can be embedded as it is.
    Document(Cow<'a, str>),
    /// UTF-8 text that is no such document: a JSON string, see [`write_json_string`](crate::write_json_string).
    Text(&'a str),
    /// Anything else: base64, see [`write_json_base64`](crate::write_json_base64).
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

    /// As [`JsonValue::of`], but without looking for a document: for keys, and wherever a string is wanted.
    pub fn text(bytes: &'a [u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text),
            Err(_) => Self::Binary(bytes),
        }
    }

    /// `bytes` as one JSON document on one line, ready to be embedded; `None` when they are not one.
    ///
    /// Whitespace around the document goes; so does all whitespace between its tokens, if and only if the document spans
    /// lines. Everything else, such as the text of every number and string, stays as it is.
    ///
    /// Two kinds of bytes that the grammar of JSON allows are not taken for a document, since embedding them would break the
    /// readers of the whole output: a string with half a surrogate pair (`"\ud800"`), which stands for no text, and arrays
    /// and objects that nest deeper than 100.
    pub fn document(bytes: &'a [u8]) -> Option<Cow<'a, str>> {
        let mut reader = Reader::new(bytes).ok()?;
        reader.skip_value().ok()?;
        reader.end().ok()?;
        let text = std::str::from_utf8(bytes).ok()?.trim_matches([' ', '\t', '\n', '\r']);
        // In a string a line break is escaped, so each one that stands in the text stands between two tokens.
        if text.bytes().any(|byte| matches!(byte, b'\n' | b'\r')) {
            Some(Cow::Owned(compact(text)))
        } else {
            Some(Cow::Borrowed(text))
        }
    }
}

/// A valid document without the whitespace between its tokens.
fn compact(text: &str) -> String {
    let mut compacted = String::with_capacity(text.len());
    let mut in_string = false;
    let mut escaped = false;
    for character in text.chars() {
        if in_string {
            in_string = escaped || character != '"';
            escaped = !escaped && character == '\\';
        } else if matches!(character, ' ' | '\t' | '\n' | '\r') {
            continue;
        } else {
            in_string = character == '"';
        }
        compacted.push(character);
    }
    compacted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_document_on_one_line_keeps_its_text() {
        let cases = [
            r#"{"id":9007199254740993,"seq":18446744073709551615,"big":123456789012345678901234567890,"f":9007199254740991.0,"p":1.10}"#,
            r#"{ "a" : 1e400 , "a" : -0.0 }"#,
            "\"\u{2028}\u{2029}\u{85}\\r\\u0000\"",
            "null",
            "-0",
            r#""\ud83d\ude01""#,
        ];
        for text in cases {
            assert_eq!(JsonValue::of(text.as_bytes()), JsonValue::Document(Cow::Borrowed(text)));
            let framed = format!(" {text}\r\n");
            assert_eq!(JsonValue::of(framed.as_bytes()), JsonValue::Document(Cow::Borrowed(text)));
        }
    }

    #[test]
    fn a_document_on_several_lines_is_put_on_one_and_its_strings_stay() {
        let text = "{\r\n  \"a b\": [1.10,\n\t\"x \\\" \\\\\", \"\\n\"],\n  \"c\": {}\n}\n";
        let expected = r#"{"a b":[1.10,"x \" \\","\n"],"c":{}}"#;
        assert_eq!(JsonValue::document(text.as_bytes()), Some(Cow::Owned(expected.to_owned())));
    }

    #[test]
    fn what_is_no_document_is_text_or_binary() {
        for text in ["", " ", "abc", "{\"a\":1} {\"b\":2}", "{\"m\":\"\\ud800\"}", "[1,]", "\u{feff}{}", "NaN"] {
            assert_eq!(JsonValue::of(text.as_bytes()), JsonValue::Text(text));
        }
        for bytes in [&b"{\"m\":\"\xff\"}"[..], b"\xff\xfe\x00", b"\x92\x01\x02\xff\xfe"] {
            assert_eq!(JsonValue::of(bytes), JsonValue::Binary(bytes));
        }
        let bomb = "[".repeat(1_000_000);
        assert_eq!(JsonValue::of(bomb.as_bytes()), JsonValue::Text(&bomb));
        let deep = format!("{}{}", "[".repeat(101), "]".repeat(101));
        assert_eq!(JsonValue::of(deep.as_bytes()), JsonValue::Text(&deep));
    }

    fn documents() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<String>().prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
                prop::collection::btree_map(any::<String>(), inner, 0..4)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_pretty_document_comes_out_as_the_compact_one(document in documents()) {
            let pretty = serde_json::to_string_pretty(&document).unwrap();
            let shown = JsonValue::document(pretty.as_bytes()).unwrap();
            prop_assert!(!shown.contains(['\n', '\r']));
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), document);
        }

        #[test]
        fn every_document_is_one_that_serde_json_reads(bytes in prop::collection::vec(any::<u8>(), 0..32)) {
            if let Some(document) = JsonValue::document(&bytes) {
                prop_assert!(serde_json::from_str::<&serde_json::value::RawValue>(&document).is_ok());
            }
        }
    }
}

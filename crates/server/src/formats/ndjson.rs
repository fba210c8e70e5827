//! One JSON object a record, one record a line.
//!
//! Every line is valid UTF-8 JSON whatever the record holds, and what JSON cannot show is in base64 under a name that says
//! so. `\n` is written behind a line and nowhere else. A line can be published again as it is.

use tidegate_api::rest::EndLine;
use tidegate_model::{Header, TimestampType};
use tidegate_plan::EndStatement;

use super::end::statement;
use super::text::{write_base64, write_i64, write_string, write_time};

/// A record's value as a line shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineValue<'a> {
    /// No value: `"value":null`.
    Null,
    /// JSON text, which the caller has checked: `"value":…`. The text `null` alone is shown as stored, since
    /// `"value":null` says that there is no value.
    Json(&'a [u8]),
    /// Bytes without a JSON form: `"value_base64":"…"`, with `"value_error":"…"` where there is something to say.
    AsStored {
        /// The bytes.
        bytes: &'a [u8],
        /// Why they have no JSON form.
        error: Option<&'a str>,
    },
}

/// What a line shows of a record, apart from its value and headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineHead<'a> {
    /// The partition.
    pub partition: i32,
    /// The offset.
    pub offset: i64,
    /// The timestamp in ms since 1970; negative: none.
    pub timestamp_ms: i64,
    /// Who set it.
    pub timestamp_type: TimestampType,
    /// The key.
    pub key: Option<&'a [u8]>,
}

/// Appends one record and the line's end.
pub fn write_record<'a>(
    out: &mut Vec<u8>,
    head: &LineHead<'a>,
    value: LineValue<'a>,
    headers: impl IntoIterator<Item = Header<'a>>,
) {
    write_object(out, head, |out| write_value(out, value), headers);
    out.push(b'\n');
}

/// Appends the last line of a complete answer: `{"end":{…}}`.
pub fn write_end(out: &mut Vec<u8>, end: &EndStatement) {
    write_end_line(out, &EndLine { end: statement(end) });
}

/// Appends the last line of a complete answer from the statement as REST shows it.
pub fn write_end_line(out: &mut Vec<u8>, end: &EndLine) {
    write_json(out, end);
    out.push(b'\n');
}

/// Appends the last line of an answer that failed after its first byte: `{"error":{…}}`.
pub fn write_error(out: &mut Vec<u8>, error: &tidegate_api::ApiError) {
    write_json(out, &error.body());
    out.push(b'\n');
}

/// Appends the JSON of one of the API's types. These hold strings, numbers and maps with string keys, so writing them to
/// memory cannot fail; were one to, nothing of it is left behind and the answer lacks its last line, which clients take
/// for what it is.
pub(super) fn write_json(out: &mut Vec<u8>, value: &impl serde::Serialize) {
    let before = out.len();
    if let Err(error) = serde_json::to_writer(&mut *out, value) {
        tracing::error!(%error, "a value of the API has no JSON form");
        out.truncate(before);
    }
}

/// Appends one record as an object; `write_value` writes its value's member or members.
pub(super) fn write_object<'a>(
    out: &mut Vec<u8>,
    head: &LineHead<'a>,
    write_value: impl FnOnce(&mut Vec<u8>),
    headers: impl IntoIterator<Item = Header<'a>>,
) {
    out.extend_from_slice(b"{\"partition\":");
    write_i64(out, i64::from(head.partition));
    out.extend_from_slice(b",\"offset\":");
    write_i64(out, head.offset);
    out.extend_from_slice(b",\"timestamp\":");
    write_time(out, head.timestamp_ms);
    out.extend_from_slice(b",\"timestamp_type\":\"");
    out.extend_from_slice(head.timestamp_type.name().as_bytes());
    out.extend_from_slice(b"\",");
    write_bytes(out, "key", head.key);
    out.push(b',');
    write_value(out);
    out.extend_from_slice(b",\"headers\":[");
    for (at, header) in headers.into_iter().enumerate() {
        out.extend_from_slice(if at == 0 { b"{" } else { b",{" });
        write_bytes(out, "name", Some(header.name));
        out.push(b',');
        write_bytes(out, "value", header.value);
        out.push(b'}');
    }
    out.extend_from_slice(b"]}");
}

/// Appends the member or members of a value.
pub(super) fn write_value(out: &mut Vec<u8>, value: LineValue<'_>) {
    match value {
        LineValue::Null => out.extend_from_slice(b"\"value\":null"),
        LineValue::Json(text) if is_null(text) => write_as_stored(out, text, None),
        LineValue::Json(text) => {
            out.extend_from_slice(b"\"value\":");
            let from = out.len();
            out.extend_from_slice(text);
            make_one_line(&mut out[from..]);
        }
        LineValue::AsStored { bytes, error } => write_as_stored(out, bytes, error),
    }
}

pub(super) fn write_as_stored(out: &mut Vec<u8>, bytes: &[u8], error: Option<&str>) {
    out.extend_from_slice(b"\"value_base64\":");
    write_base64(out, bytes);
    if let Some(error) = error {
        out.extend_from_slice(b",\"value_error\":");
        write_string(out, error);
    }
}

/// Whether JSON text is `null`, white space aside.
pub(super) fn is_null(text: &[u8]) -> bool {
    text.len() >= 4 && text.trim_ascii() == b"null"
}

/// JSON text may hold line ends between its tokens (inside strings it may not): there a space says the same.
pub(super) fn make_one_line(text: &mut [u8]) {
    for byte in text {
        if matches!(*byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
}

/// `"name":"text"`, `"name":null`, or `"name_base64":"…"`.
fn write_bytes(out: &mut Vec<u8>, name: &str, bytes: Option<&[u8]>) {
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    match bytes.map(|bytes| std::str::from_utf8(bytes).map_err(|_| bytes)) {
        None => out.extend_from_slice(b"\":null"),
        Some(Ok(text)) => {
            out.extend_from_slice(b"\":");
            write_string(out, text);
        }
        Some(Err(bytes)) => {
            out.extend_from_slice(b"_base64\":");
            write_base64(out, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidegate_api::rest::Record;

    use super::*;

    const HEAD: LineHead<'_> = LineHead {
        partition: 3,
        offset: 41,
        timestamp_ms: 1_359_713_700_000,
        timestamp_type: TimestampType::CreateTime,
        key: None,
    };

    fn line(head: &LineHead<'_>, value: LineValue<'_>, headers: &[Header<'_>]) -> String {
        let mut out = Vec::new();
        write_record(&mut out, head, value, headers.iter().copied());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_line_shows_every_field_in_the_documented_order() {
        let headers = [
            Header { name: b"trace", value: Some(b"a") },
            Header { name: b"trace", value: Some(b"b") },
            Header { name: b"\xff", value: None },
            Header { name: b"", value: Some(b"\xfe") },
        ];
        let head = LineHead { key: Some(b"UA \"1545\""), ..HEAD };
        assert_eq!(
            line(&head, LineValue::Json(br#"{"a":1.10}"#), &headers),
            concat!(
                r#"{"partition":3,"offset":41,"timestamp":"2013-02-01T10:15:00.000Z","timestamp_type":"CreateTime","#,
                r#""key":"UA \"1545\"","value":{"a":1.10},"headers":[{"name":"trace","value":"a"},"#,
                r#"{"name":"trace","value":"b"},{"name_base64":"/w==","value":null},{"name":"","value_base64":"/g=="}]}"#,
                "\n"
            )
        );
    }

    #[test]
    fn null_empty_and_binary_keys_are_told_apart() {
        let key_of = |key: Option<&[u8]>| -> serde_json::Value {
            let line = line(&LineHead { key, ..HEAD }, LineValue::Null, &[]);
            let mut object: serde_json::Map<_, _> = serde_json::from_str(&line).unwrap();
            object.retain(|name, _| name.starts_with("key"));
            object.into()
        };
        assert_eq!(key_of(None), json!({"key": null}));
        assert_eq!(key_of(Some(b"")), json!({"key": ""}));
        assert_eq!(key_of(Some(b"\xff\xfe\x00")), json!({"key_base64": "//4A"}));
    }

    #[test]
    fn null_empty_and_the_text_null_are_told_apart() {
        let value_of = |value: LineValue<'_>| -> serde_json::Value {
            let mut object: serde_json::Map<_, _> = serde_json::from_str(&line(&HEAD, value, &[])).unwrap();
            object.retain(|name, _| name.starts_with("value"));
            object.into()
        };
        assert_eq!(value_of(LineValue::Null), json!({"value": null}));
        assert_eq!(value_of(LineValue::AsStored { bytes: b"", error: None }), json!({"value_base64": ""}));
        assert_eq!(value_of(LineValue::Json(b"null")), json!({"value_base64": "bnVsbA=="}));
        assert_eq!(value_of(LineValue::Json(b" null\n")), json!({"value_base64": "IG51bGwK"}));
        assert_eq!(
            value_of(LineValue::AsStored { bytes: b"\xff", error: Some("no \"JSON\"") }),
            json!({"value_base64": "/w==", "value_error": "no \"JSON\""})
        );
    }

    #[test]
    fn a_value_of_several_lines_becomes_one_line_and_stays_the_same_value() {
        let pretty = "{\r\n  \"a\": [1,\n 2],\r\n  \"b\": \"x\\ny\u{2028}\"\r\n}";
        let line = line(&HEAD, LineValue::Json(pretty.as_bytes()), &[]);
        assert_eq!(line.matches('\n').count(), 1, "{line}");
        assert!(line.ends_with('\n') && !line.contains('\r'));
        let record: Record = serde_json::from_str(&line).unwrap();
        assert_eq!(record.value.unwrap(), serde_json::from_str::<serde_json::Value>(pretty).unwrap());
    }

    #[test]
    fn a_line_has_exactly_the_documented_fields() {
        let headers = [Header { name: b"n", value: None }, Header { name: b"\xff", value: Some(b"\xff") }];
        let values = [
            LineValue::Null,
            LineValue::Json(b"[]"),
            LineValue::AsStored { bytes: b"\xff", error: None },
            LineValue::AsStored { bytes: b"\xff", error: Some("why") },
        ];
        for key in [None, Some(&b"k"[..]), Some(b"\xff")] {
            for timestamp_ms in [-1, 0, i64::MAX] {
                for value in values {
                    // `Record` refuses unknown fields and missing ones.
                    let head = LineHead { key, timestamp_ms, ..HEAD };
                    let record: Record = serde_json::from_str(&line(&head, value, &headers)).unwrap();
                    assert_eq!((record.partition, record.offset), (3, 41));
                }
            }
        }
    }
}

//! Records from lines, in groups: a thread reads, unpacks and checks while the other side sends.

use std::ops::Range;

use bytes::Bytes;
use tidegate_server::engine::TopicPayload;
use tidegate_server::rest::incoming::{self, IncomingError};
use tokio::sync::mpsc;

use super::fields::{FieldPath, pick};
use super::lines::{LineError, Lines};
use super::open::Input;
use super::timestamp::{self, TimestampError, Unit};

/// A group goes over at this size at the latest.
const GROUP_BYTES: usize = 256 << 10;

/// Groups between the two sides.
const GROUPS_AHEAD: usize = 4;

/// How lines become records.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) shape: Shape,
    /// What the topic's values are: JSON is converted to it.
    pub(crate) payload: TopicPayload,
    /// The partition of every record, whatever it says itself.
    pub(crate) partition: Option<i32>,
    pub(crate) max_line_bytes: usize,
}

/// What a line is.
#[derive(Debug, Clone)]
pub(crate) enum Shape {
    /// The record's value, one JSON value; `null` is no value (a tombstone).
    Values { key_field: Option<FieldPath>, timestamp_field: Option<FieldPath>, timestamp_unit: Option<Unit> },
    /// An object with the record's key, value, headers, timestamp and partition, as `read` writes it.
    Ndjson,
}

/// Records that stand one behind the other in the input.
#[derive(Debug)]
pub(crate) struct Group {
    bytes: Bytes,
    records: Vec<Entry>,
    headers: Vec<(Range<usize>, Option<Range<usize>>)>,
}

/// A [`Group`] in the making.
#[derive(Debug, Default)]
struct Builder {
    bytes: Vec<u8>,
    records: Vec<Entry>,
    headers: Vec<(Range<usize>, Option<Range<usize>>)>,
}

#[derive(Debug)]
struct Entry {
    key: Option<Range<usize>>,
    value: Option<Range<usize>>,
    headers: Range<usize>,
    timestamp_ms: Option<i64>,
    partition: Option<i32>,
}

/// One record of a [`Group`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InputRecord<'a> {
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) headers: Vec<(&'a [u8], Option<&'a [u8]>)>,
    pub(crate) timestamp_ms: Option<i64>,
    pub(crate) partition: Option<i32>,
}

impl Group {
    /// The records, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = InputRecord<'_>> {
        let part = |range: &Range<usize>| &self.bytes[range.clone()];
        self.records.iter().map(move |entry| InputRecord {
            key: entry.key.as_ref().map(part),
            value: entry.value.as_ref().map(part),
            headers: self.headers[entry.headers.clone()]
                .iter()
                .map(|(name, value)| (part(name), value.as_ref().map(part)))
                .collect(),
            timestamp_ms: entry.timestamp_ms,
            partition: entry.partition,
        })
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// A part of one of its records as owned bytes, without copying.
    pub(crate) fn share(&self, part: &[u8]) -> Bytes {
        self.bytes.slice_ref(part)
    }
}

impl Builder {
    /// The group, and an empty builder in place of this one.
    fn build(&mut self) -> Group {
        let Self { bytes, records, headers } = std::mem::take(self);
        Group { bytes: bytes.into(), records, headers }
    }

    fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    fn put(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }
}

/// Why the input cannot be published.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InputError {
    #[error(transparent)]
    Line(#[from] LineError),
    #[error("line {line}: {reason}")]
    Json { line: u64, reason: String },
    #[error("line {line}: {source}")]
    Record { line: u64, source: IncomingError },
    #[error("line {line}: the field {field} is missing or null, and --timestamp-field takes the timestamp from it")]
    NoTimestamp { line: u64, field: FieldPath },
    #[error("line {line}: the field {field}: {source}")]
    Timestamp { line: u64, field: FieldPath, source: TimestampError },
    #[error("line {line}: the field {field} holds {kind}; --key-field takes a text, a number, true or false")]
    Key { line: u64, field: FieldPath, kind: &'static str },
}

/// Reads `input` on a thread of its own. The last item is an error or nothing is wrong.
///
/// A group goes over when it is full, and also before the thread waits for more input: what somebody types or `tail -f`
/// prints is not held back.
pub(crate) fn read(input: Box<dyn Input>, rules: Rules) -> mpsc::Receiver<Result<Group, InputError>> {
    let (out, groups) = mpsc::channel(GROUPS_AHEAD);
    tokio::task::spawn_blocking(move || {
        let mut lines = Lines::new(input, rules.max_line_bytes);
        let mut group = Builder::default();
        let failed = loop {
            match lines.next() {
                Ok(None) => break None,
                Ok(Some((number, line))) => {
                    if let Err(error) = add(&mut group, &rules, number, line) {
                        break Some(error);
                    }
                }
                Err(error) => break Some(error.into()),
            }
            if group.bytes.len() >= GROUP_BYTES || (!lines.has_line() && !group.is_empty()) {
                // Nobody takes them any more: the other side knows why.
                if out.blocking_send(Ok(group.build())).is_err() {
                    return;
                }
            }
        };
        if !group.is_empty() && out.blocking_send(Ok(group.build())).is_err() {
            return;
        }
        if let Some(error) = failed {
            let _ = out.blocking_send(Err(error));
        }
    });
    groups
}

/// Adds the record of one line. A line that is refused leaves nothing behind.
fn add(group: &mut Builder, rules: &Rules, line: u64, text: &[u8]) -> Result<(), InputError> {
    let (shape, field_key, field_timestamp_ms) = match &rules.shape {
        Shape::Ndjson => (incoming::Shape::Records, None, None),
        Shape::Values { key_field, timestamp_field, timestamp_unit } => {
            let [key, timestamp] = fields(line, text, [key_field.as_ref(), timestamp_field.as_ref()])?;
            let timestamp_ms = match timestamp_field {
                None => None,
                Some(field) => Some(timestamp_of(line, field, timestamp, *timestamp_unit)?),
            };
            let key = match (key_field, key) {
                (Some(field), Some(json)) => {
                    key_text(json).map_err(|kind| InputError::Key { line, field: field.clone(), kind })?
                }
                _ => None,
            };
            (incoming::Shape::Values, key, timestamp_ms)
        }
    };
    let record = incoming::read(text, shape, &rules.payload).map_err(|source| InputError::Record { line, source })?;
    // The end statement of a read is no record.
    let Some(record) = record else { return Ok(()) };
    let headers = record.headers();
    let record = record.to_send(&headers);
    let first_header = group.headers.len();
    for (name, value) in record.headers {
        let header = (group.put(name), value.map(|value| group.put(value)));
        group.headers.push(header);
    }
    let entry = Entry {
        key: record.key.or(field_key.as_ref().map(|key| key.as_bytes())).map(|key| group.put(key)),
        value: record.value.map(|value| group.put(value)),
        headers: first_header..group.headers.len(),
        timestamp_ms: record.timestamp_ms.or(field_timestamp_ms),
        partition: rules.partition.or(record.partition),
    };
    group.records.push(entry);
    Ok(())
}

/// Takes the fields that key and timestamp come from, where there are such.
fn fields<'a>(line: u64, text: &'a [u8], paths: [Option<&FieldPath>; 2]) -> Result<[Option<&'a str>; 2], InputError> {
    if paths.iter().all(Option::is_none) {
        return Ok([None; 2]);
    }
    let text = std::str::from_utf8(text)
        .map_err(|error| InputError::Json { line, reason: format!("it is not UTF-8: {error}") })?;
    pick(text, paths).map_err(|error| InputError::Json { line, reason: not_json(&error) })
}

fn timestamp_of(line: u64, field: &FieldPath, json: Option<&str>, unit: Option<Unit>) -> Result<i64, InputError> {
    match json {
        None | Some("null") => Err(InputError::NoTimestamp { line, field: field.clone() }),
        Some(json) => timestamp::from_json(json, unit).map_err(|source| InputError::Timestamp {
            line,
            field: field.clone(),
            source,
        }),
    }
}

/// The key that a field's JSON stands for: the characters of a text, the digits of a number. Null is no key.
fn key_text(json: &str) -> Result<Option<std::borrow::Cow<'_, str>>, &'static str> {
    match json.as_bytes().first() {
        Some(b'{') => Err("an object"),
        Some(b'[') => Err("an array"),
        Some(b'"') => match json.get(1..json.len() - 1) {
            Some(plain) if !plain.contains('\\') => Ok(Some(plain.into())),
            _ => serde_json::from_str::<String>(json)
                .map(|text| Some(text.into()))
                .map_err(|_| "a text that is not Unicode"),
        },
        _ if json == "null" => Ok(None),
        _ => Ok(Some(json.into())),
    }
}

/// What serde says, with the commonest cause in the words that [`IncomingError`] has for it.
fn not_json(error: &serde_json::Error) -> String {
    let text = error.to_string();
    // The line that it names is 1, always; the true number is told already.
    match text.rsplit_once(" at line 1 column ") {
        Some(("trailing characters", _)) => IncomingError::MoreThanOne.to_string(),
        Some((what, column)) => format!("{what} at column {column}"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use tidegate_codec::Schema;

    use super::*;

    fn values(key: Option<&str>, timestamp: Option<&str>) -> Rules {
        let shape = Shape::Values {
            key_field: key.map(|path| path.parse().unwrap()),
            timestamp_field: timestamp.map(|path| path.parse().unwrap()),
            timestamp_unit: None,
        };
        Rules { shape, payload: TopicPayload::Bytes, partition: None, max_line_bytes: 1 << 20 }
    }

    async fn all(input: &'static str, rules: Rules) -> (Vec<(Option<String>, String, Option<i64>)>, Option<String>) {
        let mut groups = read(Box::new(std::io::BufReader::new(input.as_bytes())), rules);
        let mut records = Vec::new();
        while let Some(group) = groups.recv().await {
            match group {
                Err(error) => return (records, Some(error.to_string())),
                Ok(group) => records.extend(group.iter().map(|record| {
                    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                    (record.key.map(text), text(record.value.unwrap()), record.timestamp_ms)
                })),
            }
        }
        (records, None)
    }

    #[tokio::test]
    async fn values_keep_their_text_and_fields_give_key_and_timestamp() {
        let input = concat!(
            r#"{"id":"a\"b","t":"1970-01-01T00:00:01Z","n":1.10}"#,
            "\n",
            r#" {"id":7,"t":"2s"} "#,
            "\n",
            r#"{"id":null,"t":"1970-01-01T00:00:00.5Z"}"#,
            "\n",
            r#"{"t":"4000ms"}"#
        );
        let (records, error) = all(input, values(Some("id"), Some("t"))).await;
        assert_eq!(error, None);
        let expected = [
            (Some("a\"b".to_owned()), r#"{"id":"a\"b","t":"1970-01-01T00:00:01Z","n":1.10}"#, Some(1_000)),
            (Some("7".to_owned()), r#"{"id":7,"t":"2s"}"#, Some(2_000)),
            (None, r#"{"id":null,"t":"1970-01-01T00:00:00.5Z"}"#, Some(500)),
            (None, r#"{"t":"4000ms"}"#, Some(4_000)),
        ];
        assert_eq!(records, expected.map(|(key, value, at)| (key, value.to_owned(), at)));
    }

    #[tokio::test]
    async fn a_line_that_is_refused_is_named_and_the_records_before_it_come_through() {
        for (line, says) in [
            (r#"{"a":1} {"b":2}"#, "line 3: more than one value; each line is one record"),
            (r#"{"a":"#, "line 3: EOF while parsing"),
            (r#"{"a":1}"#, "line 3: the field t is missing"),
            (r#"{"t":null}"#, "line 3: the field t is missing"),
            (r#"{"t":1714521600}"#, "--timestamp-unit"),
            (r#"{"t":"1s","id":[1]}"#, "line 3: the field id holds an array"),
        ] {
            let input: &'static str = format!("{{\"t\":\"1s\"}}\n\n{line}\n{{\"t\":\"1s\"}}\n").leak();
            let (records, error) = all(input, values(Some("id"), Some("t"))).await;
            assert_eq!(records.len(), 1, "{line}");
            let error = error.unwrap();
            assert!(error.contains(says), "{line}: {error}");
        }
    }

    #[tokio::test]
    async fn values_are_converted_when_there_is_a_message() {
        let schema = Schema::from_proto_source("m.proto", "syntax = \"proto3\"; message M { int32 n = 2; }").unwrap();
        let message = schema.message("M").unwrap();
        let mut rules = values(None, None);
        rules.payload = TopicPayload::Protobuf(message);
        let (records, error) = all("{\"n\":5}\n{\"n\":5,\"zzz\":1}", rules.clone()).await;
        assert_eq!(records, [(None, "\x10\x05".to_owned(), None)]);
        let error = error.unwrap();
        assert!(error.starts_with("line 2: ") && error.contains("zzz"), "{error}");
    }

    #[tokio::test]
    async fn records_come_back_from_what_a_read_wrote() {
        let input = concat!(
            r#"{"partition":0,"offset":7,"timestamp":"1970-01-01T00:00:01.000Z","timestamp_type":"CreateTime","#,
            r#""key":"k","value":{"n": 1.10},"headers":[]}"#,
            "\n",
            r#"{"end":{"records_sent":1}}"#,
            "\n"
        );
        let mut rules = values(None, None);
        rules.shape = Shape::Ndjson;
        let (records, error) = all(input, rules.clone()).await;
        assert_eq!((records, error), (vec![(Some("k".to_owned()), r#"{"n": 1.10}"#.to_owned(), Some(1_000))], None));
        let (_, error) = all(r#"{"error":{"code":"DATA_LOSS"}}"#, rules).await;
        assert!(error.unwrap().starts_with("line 1: the read that wrote this input failed"));
    }

    #[tokio::test]
    async fn what_is_typed_is_not_held_back() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let mut groups = read(Box::new(std::io::BufReader::new(reader)), values(None, None));
        // The input stays open, and the third line is not whole: nothing but the lines themselves can make the first two
        // come through.
        std::io::Write::write_all(&mut writer, b"1\n2\n3").unwrap();
        let mut records = 0;
        while records < 2 {
            records += groups.recv().await.unwrap().unwrap().len();
        }
        drop(writer);
        assert_eq!(groups.recv().await.unwrap().unwrap().len(), 1, "the last line needs no end");
        assert!(groups.recv().await.is_none());
    }
}

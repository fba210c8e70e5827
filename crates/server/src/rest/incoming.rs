//! One record of a request body: JSON text in, what is to be sent out.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use tidegate_client::RecordToSend;
use tidegate_codec::registry::WriteError;
use tidegate_codec::{JsonValue, UnknownMode};

use crate::engine::TopicPayload;

/// How deep [`JsonValue::document`] lets arrays and objects nest.
const MAX_DEPTH: usize = 100;

/// What the lines or elements of a body are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Objects with key, value, headers, timestamp, partition.
    Records,
    /// The values alone.
    Values,
}

/// A header as the producer wants it: its name, and its value if it has one.
type HeaderBytes<'a> = (Cow<'a, [u8]>, Option<Cow<'a, [u8]>>);

/// A record, ready to be sent.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Incoming<'a> {
    partition: Option<i32>,
    timestamp_ms: Option<i64>,
    key: Option<Cow<'a, [u8]>>,
    value: Option<Cow<'a, [u8]>>,
    headers: Vec<HeaderBytes<'a>>,
}

impl Incoming<'_> {
    /// Its headers as [`Incoming::to_send`] wants them.
    pub fn headers(&self) -> Vec<(&[u8], Option<&[u8]>)> {
        self.headers.iter().map(|(name, value)| (&**name, value.as_deref())).collect()
    }

    /// The record for the producer.
    pub fn to_send<'s>(&'s self, headers: &'s [(&'s [u8], Option<&'s [u8]>)]) -> RecordToSend<'s> {
        RecordToSend {
            partition: self.partition,
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            headers,
            timestamp_ms: self.timestamp_ms,
        }
    }
}

/// Why a record cannot be read. Columns count from 1 in the record's own text.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum IncomingError {
    /// The text is not JSON, or not of the form that a record has.
    #[error("{reason}")]
    Json {
        /// What the parser says.
        reason: String,
        /// The line, from 1, within the record's own text.
        line_in_record: u64,
        /// The column there.
        column: u64,
    },
    /// Something follows the value.
    #[error("more than one value; each line is one record")]
    MoreThanOne,
    /// An end statement among the fields of a record, or one that is no object.
    #[error("the field end is no record's; a read's end statement is an object with that field alone")]
    End,
    /// The last line of a read that failed.
    #[error("the read that wrote this input failed, and its answer is incomplete: {error}")]
    FailedRead {
        /// Its error, as JSON.
        error: String,
    },
    /// A field comes both as it is and in base64.
    #[error("{field} and {field}_base64 are both given; give one")]
    Both {
        /// Which one.
        field: &'static str,
    },
    /// A field in base64 is not base64.
    #[error("{field}_base64 is not standard base64 with padding: {reason}")]
    Base64 {
        /// Which one.
        field: &'static str,
        /// Why not.
        reason: String,
    },
    /// The key is a JSON string that is no Unicode text.
    #[error("the key is not text: {reason}")]
    Key {
        /// Why not.
        reason: String,
    },
    /// A header without a name.
    #[error("header {index}: it has no name")]
    HeaderName {
        /// Which header, from 0.
        index: usize,
    },
    /// A timestamp in no form that a record can have.
    #[error(
        "the timestamp {text:?} is not RFC 3339 with an offset, such as 2013-02-01T10:15:00.000Z, nor of the form 1714521600000ms"
    )]
    Timestamp {
        /// What was given.
        text: String,
    },
    /// A time before 1970.
    #[error("the timestamp {text:?} lies before 1970, which a record cannot carry")]
    TimestampBefore1970 {
        /// What was given.
        text: String,
    },
    /// A negative partition.
    #[error("the partition {partition} is negative")]
    Partition {
        /// What was given.
        partition: i32,
    },
    /// JSON that most readers refuse.
    #[error("the value holds half a surrogate pair, which most readers of JSON refuse; give its bytes as value_base64")]
    HalfSurrogate,
    /// JSON that nests deeper than reads show as JSON.
    #[error("the value nests deeper than {limit}, the most that reads show as JSON; give its bytes as value_base64")]
    Nesting {
        /// How many arrays and objects may stand in one another.
        limit: usize,
    },
    /// JSON that is no value of the topic's schema.
    #[error(transparent)]
    Schema(#[from] WriteError),
    /// The topic's schema is not known.
    #[error("the schema of the topic's values was not asked for")]
    NoSchema,
    /// JSON that cannot become the topic's message.
    #[error("the value is no {message}: {reason}")]
    Transcode {
        /// The message's full name.
        message: String,
        /// Why not, with the path.
        reason: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Object<'a> {
    #[serde(borrow)]
    key: Option<&'a RawValue>,
    #[serde(borrow)]
    key_base64: Option<Cow<'a, str>>,
    #[serde(borrow)]
    value: Option<&'a RawValue>,
    #[serde(borrow)]
    value_base64: Option<Cow<'a, str>>,
    #[serde(borrow)]
    headers: Option<Vec<ObjectOnly<ObjectHeader<'a>>>>,
    #[serde(borrow)]
    timestamp: Option<Cow<'a, str>>,
    partition: Option<i32>,
    // Where a record came from: said by a read's output, of no use here.
    #[serde(rename = "offset")]
    _offset: Option<i64>,
    #[serde(borrow, rename = "timestamp_type")]
    _timestamp_type: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "value_error")]
    _value_error: Option<Cow<'a, str>>,
    // The last line of a read's output; null is something too.
    #[serde(default, borrow, deserialize_with = "present")]
    end: Option<&'a RawValue>,
    #[serde(default, borrow, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ObjectHeader<'a> {
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    name_base64: Option<Cow<'a, str>>,
    #[serde(borrow)]
    value: Option<Cow<'a, str>>,
    #[serde(borrow)]
    value_base64: Option<Cow<'a, str>>,
}

/// A field that is there, even if it is null.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// An end statement as a read writes it: nothing stands beside it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EndLine<'a> {
    #[serde(borrow)]
    end: &'a RawValue,
}

/// What is read from a JSON object, and how that is said to whoever sends something else.
trait FromObject {
    const EXPECTED: &'static str;
}

impl FromObject for Object<'_> {
    const EXPECTED: &'static str = "an object: a record is a JSON object";
}

impl FromObject for ObjectHeader<'_> {
    const EXPECTED: &'static str = "an object: a header is a JSON object";
}

/// A `T` from an object alone. What serde derives would also take an array, its elements for the fields in their order.
struct ObjectOnly<T>(T);

impl<'de, T: FromObject + Deserialize<'de>> Deserialize<'de> for ObjectOnly<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: FromObject + Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = ObjectOnly<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(T::EXPECTED)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(ObjectOnly)
    }
}

/// Reads one record. `None`: the text is the end statement of a read, which is no record.
pub fn read<'a>(text: &'a [u8], shape: Shape, payload: &TopicPayload) -> Result<Option<Incoming<'a>>, IncomingError> {
    match shape {
        Shape::Values => {
            let value: &RawValue = parse(text)?;
            Ok(Some(Incoming { value: stored_value(value, payload)?, ..Incoming::default() }))
        }
        Shape::Records => {
            let ObjectOnly(object) = parse::<ObjectOnly<Object<'a>>>(text)?;
            if object.end.is_none() || object.error.is_some() {
                return read_object(object, payload).map(Some);
            }
            // Beside other fields it would make a record vanish.
            match serde_json::from_slice::<EndLine<'_>>(text) {
                Ok(line) if line.end.get().starts_with('{') => Ok(None),
                _ => Err(IncomingError::End),
            }
        }
    }
}

fn read_object<'a>(object: Object<'a>, payload: &TopicPayload) -> Result<Incoming<'a>, IncomingError> {
    if let Some(error) = object.error {
        return Err(IncomingError::FailedRead { error: error.get().to_owned() });
    }
    let key = match (object.key, object.key_base64) {
        (Some(_), Some(_)) => return Err(IncomingError::Both { field: "key" }),
        (Some(key), None) => Some(stored_key(key)?),
        (None, Some(base64)) => Some(decode_base64("key", &base64)?),
        (None, None) => None,
    };
    let value = match (object.value, object.value_base64) {
        (Some(_), Some(_)) => return Err(IncomingError::Both { field: "value" }),
        (Some(value), None) => stored_value(value, payload)?,
        (None, Some(base64)) => Some(decode_base64("value", &base64)?),
        (None, None) => None,
    };
    let headers = object.headers.unwrap_or_default().into_iter().enumerate().map(read_header);
    Ok(Incoming {
        partition: match object.partition {
            Some(partition @ ..0) => return Err(IncomingError::Partition { partition }),
            partition => partition,
        },
        timestamp_ms: object.timestamp.map(|text| timestamp_ms(&text)).transpose()?,
        key,
        value,
        headers: headers.collect::<Result<_, _>>()?,
    })
}

fn read_header<'a>(
    (index, ObjectOnly(header)): (usize, ObjectOnly<ObjectHeader<'a>>),
) -> Result<HeaderBytes<'a>, IncomingError> {
    let name = match (header.name, header.name_base64) {
        (Some(_), Some(_)) => return Err(IncomingError::Both { field: "name" }),
        (Some(name), None) => into_bytes(name),
        (None, Some(base64)) => decode_base64("name", &base64)?,
        (None, None) => return Err(IncomingError::HeaderName { index }),
    };
    let value = match (header.value, header.value_base64) {
        (Some(_), Some(_)) => return Err(IncomingError::Both { field: "value" }),
        (Some(value), None) => Some(into_bytes(value)),
        (None, Some(base64)) => Some(decode_base64("value", &base64)?),
        (None, None) => None,
    };
    Ok((name, value))
}

/// Reads exactly one JSON value.
fn parse<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, IncomingError> {
    let mut values = serde_json::Deserializer::from_slice(text).into_iter::<T>();
    let json_error = |error: &serde_json::Error| {
        let message = error.to_string();
        // The place is given apart: in the body, not in this record.
        let place = format!(" at line {} column {}", error.line(), error.column());
        let reason = message.strip_suffix(&place).unwrap_or(&message).to_owned();
        IncomingError::Json { reason, line_in_record: error.line() as u64, column: error.column() as u64 }
    };
    let value = match values.next() {
        Some(Ok(value)) => value,
        Some(Err(error)) => return Err(json_error(&error)),
        None => {
            return Err(IncomingError::Json { reason: "there is no value".to_owned(), line_in_record: 1, column: 1 });
        }
    };
    let rest = text.get(values.byte_offset()..).unwrap_or_default();
    if rest.trim_ascii().is_empty() { Ok(value) } else { Err(IncomingError::MoreThanOne) }
}

/// A string is stored as its text, anything else as its JSON text.
fn stored_key(key: &RawValue) -> Result<Cow<'_, [u8]>, IncomingError> {
    if !key.get().starts_with('"') {
        return Ok(Cow::Borrowed(key.get().as_bytes()));
    }
    let text: String = parse_string(key)?;
    Ok(Cow::Owned(text.into_bytes()))
}

fn parse_string<T: DeserializeOwned>(text: &RawValue) -> Result<T, IncomingError> {
    serde_json::from_str(text.get()).map_err(|error| IncomingError::Key { reason: error.to_string() })
}

/// A JSON value as the topic stores it: the message's bytes on a `protobuf` topic, what the schema makes of it on a
/// `registry` topic, elsewhere the text exactly as sent.
/// `null` is no value.
fn stored_value<'a>(value: &'a RawValue, payload: &TopicPayload) -> Result<Option<Cow<'a, [u8]>>, IncomingError> {
    let text = value.get();
    if text == "null" {
        return Ok(None);
    }
    match payload {
        TopicPayload::Bytes | TopicPayload::Json => {
            // The parser has checked all but this, and a read would have to show such a value as bytes.
            if JsonValue::document(text.as_bytes()).is_none() {
                return Err(match nests_deeper(text, MAX_DEPTH) {
                    true => IncomingError::Nesting { limit: MAX_DEPTH },
                    false => IncomingError::HalfSurrogate,
                });
            }
            Ok(Some(Cow::Borrowed(text.as_bytes())))
        }
        TopicPayload::Registry(payload) => {
            let writer = payload.writer().ok_or(IncomingError::NoSchema)?;
            let mut bytes = Vec::with_capacity(text.len() / 2);
            writer.write(text.as_bytes(), &mut bytes)?;
            Ok(Some(Cow::Owned(bytes)))
        }
        TopicPayload::Protobuf(message) => {
            let mut bytes = Vec::with_capacity(text.len() / 2);
            match message.json_to_protobuf(text.as_bytes(), UnknownMode::Strict, &mut bytes) {
                Ok(()) => Ok(Some(Cow::Owned(bytes))),
                Err(error) => {
                    Err(IncomingError::Transcode { message: message.full_name().to_owned(), reason: error.to_string() })
                }
            }
        }
    }
}

/// Whether more than `limit` arrays and objects stand in one another in `json`, which is valid.
fn nests_deeper(json: &str, limit: usize) -> bool {
    let (mut depth, mut string, mut escaped) = (0_usize, false, false);
    for byte in json.bytes() {
        match byte {
            _ if string => {
                string = escaped || byte != b'"';
                escaped = !escaped && byte == b'\\';
            }
            b'"' => string = true,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > limit {
            return true;
        }
    }
    false
}

fn decode_base64(field: &'static str, text: &str) -> Result<Cow<'static, [u8]>, IncomingError> {
    let decoded = STANDARD.decode(text);
    decoded.map(Cow::Owned).map_err(|error| IncomingError::Base64 { field, reason: error.to_string() })
}

fn into_bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// RFC 3339 with an offset, what is finer than a millisecond cut off; or `1714521600000ms`, as reads write what lies at
/// the end of the year 9999 and later.
fn timestamp_ms(text: &str) -> Result<i64, IncomingError> {
    let error = || IncomingError::Timestamp { text: text.to_owned() };
    if let Some(digits) = text.strip_suffix("ms") {
        let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        return plain.then(|| digits.parse().ok()).flatten().ok_or_else(error);
    }
    // jiff reads more than RFC 3339; the rest of its forms would only be accepted by accident.
    let date_and_time = matches!(text.as_bytes().get(10), Some(b'T' | b't' | b' '));
    if !date_and_time || text.contains('[') {
        return Err(error());
    }
    let at: jiff::Timestamp = text.parse().map_err(|_| error())?;
    match at.as_millisecond() {
        ms @ 0.. if at >= jiff::Timestamp::UNIX_EPOCH => Ok(ms),
        _ => Err(IncomingError::TimestampBefore1970 { text: text.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use tidegate_codec::Schema;
    use tidegate_model::{Header, TimestampType};

    use super::*;
    use crate::formats::ndjson::{LineHead, LineValue, write_record};

    fn read_as(shape: Shape, text: &str) -> Result<Option<Incoming<'_>>, IncomingError> {
        read(text.as_bytes(), shape, &TopicPayload::Json)
    }

    fn record(text: &str) -> Result<Incoming<'_>, IncomingError> {
        read_as(Shape::Records, text).map(|record| record.expect("a record"))
    }

    #[test]
    fn everything_may_be_left_out() {
        assert_eq!(record("{}"), Ok(Incoming::default()));
        let nulls = r#"{"key":null,"value":null,"headers":null,"timestamp":null,"partition":null}"#;
        assert_eq!(record(nulls), Ok(Incoming::default()));
    }

    #[test]
    fn a_value_is_stored_as_its_text_exactly_as_sent() {
        for text in
            [r#"{"id":9007199254740993, "p":1.10,"big":123456789012345678901234567890}"#, "\"x\"", "1e400", "[ ]"]
        {
            let line = format!("{{\"value\":{text}}}");
            assert_eq!(record(&line).unwrap().value.as_deref(), Some(text.as_bytes()));
            assert_eq!(read_as(Shape::Values, text).unwrap().unwrap().value.as_deref(), Some(text.as_bytes()));
        }
        assert_eq!(read_as(Shape::Values, " null ").unwrap().unwrap().value, None);
        assert_eq!(read_as(Shape::Values, " 1\t").unwrap().unwrap().value.as_deref(), Some(b"1".as_slice()));
    }

    #[test]
    fn a_key_is_stored_as_its_text_or_its_json() {
        let key = |text: &str| record(text).unwrap().key.map(Cow::into_owned);
        assert_eq!(key(r#"{"key":"a\"b"}"#).as_deref(), Some(b"a\"b".as_slice()));
        assert_eq!(key(r#"{"key":""}"#).as_deref(), Some(b"".as_slice()));
        assert_eq!(key(r#"{"key":{"id": 1}}"#).as_deref(), Some(b"{\"id\": 1}".as_slice()));
        assert_eq!(key(r#"{"key_base64":"//4A"}"#).as_deref(), Some(b"\xff\xfe\x00".as_slice()));
    }

    #[test]
    fn what_a_read_writes_can_be_published_as_it_is() {
        let headers = [
            Header { name: b"n", value: Some(b"v") },
            Header { name: b"n", value: None },
            Header { name: b"\xff", value: Some(b"\xfe") },
            Header { name: b"", value: Some(b"") },
        ];
        let values = [
            (LineValue::Null, None),
            (LineValue::Json(b"{\"a\":1.10}"), Some(b"{\"a\":1.10}".as_slice())),
            (LineValue::Json(b"null"), Some(b"null")),
            (LineValue::AsStored { bytes: b"", error: None }, Some(b"")),
            (LineValue::AsStored { bytes: b"\xff", error: Some("why") }, Some(b"\xff")),
        ];
        for key in [None, Some(b"".as_slice()), Some(b"k"), Some(b"\xff")] {
            for (value, expected) in values {
                for timestamp_ms in [-1, 1, 253_402_207_199_999, 253_402_207_200_000, i64::MAX] {
                    let head = LineHead {
                        partition: 2,
                        offset: 7,
                        timestamp_ms,
                        timestamp_type: TimestampType::LogAppendTime,
                        key,
                    };
                    let mut line = Vec::new();
                    write_record(&mut line, &head, value, headers);
                    let read = read(&line, Shape::Records, &TopicPayload::Bytes).unwrap().unwrap();
                    assert_eq!(read.partition, Some(2));
                    assert_eq!(read.key.as_deref(), key);
                    assert_eq!(read.value.as_deref(), expected);
                    assert_eq!(read.timestamp_ms, (timestamp_ms > 0).then_some(timestamp_ms));
                    let pairs: Vec<_> = headers.iter().map(|header| (header.name, header.value)).collect();
                    assert_eq!(read.headers(), pairs);
                }
            }
        }
    }

    #[test]
    fn the_end_of_a_read_is_no_record_and_a_failed_read_is_refused() {
        assert_eq!(read_as(Shape::Records, r#"{"end":{"records_sent":3}}"#), Ok(None));
        let error = read_as(Shape::Records, r#"{"error":{"code":"DATA_LOSS"}}"#).unwrap_err();
        assert_eq!(error, IncomingError::FailedRead { error: r#"{"code":"DATA_LOSS"}"#.to_owned() });
    }

    #[test]
    fn an_end_statement_stands_alone_or_is_refused() {
        for line in [
            r#"{"value":1,"end":{}}"#,
            r#"{"end":{},"key":null}"#,
            r#"{"end":{},"offset":1}"#,
            r#"{"end":null}"#,
            r#"{"end":7}"#,
        ] {
            assert_eq!(read_as(Shape::Records, line), Err(IncomingError::End), "{line}");
        }
        assert_eq!(read_as(Shape::Records, " {\"end\": {} } "), Ok(None));
        let failed = |line| matches!(read_as(Shape::Records, line), Err(IncomingError::FailedRead { .. }));
        assert!(failed(r#"{"value":1,"error":{}}"#) && failed(r#"{"error":null}"#));
        assert!(failed(r#"{"end":{},"error":{}}"#));
    }

    #[test]
    fn a_record_or_header_that_is_no_object_is_refused() {
        let message = |line: &str| record(line).unwrap_err().to_string();
        for line in [r#"["k",null,1]"#, "[]", "7", "null", "\"x\""] {
            assert!(message(line).ends_with("a record is a JSON object"), "{line}: {}", message(line));
        }
        for header in [r#"["a",null,"v",null]"#, "null", "\"a\""] {
            let line = format!("{{\"headers\":[{header}]}}");
            assert!(message(&line).ends_with("a header is a JSON object"), "{line}: {}", message(&line));
        }
    }

    #[test]
    fn a_value_that_nests_too_deep_is_refused_for_that() {
        let nested =
            |depth: usize, inside: &str| format!("{{\"value\":{}{inside}{}}}", "[".repeat(depth), "]".repeat(depth));
        assert!(record(&nested(MAX_DEPTH, "")).is_ok());
        assert!(record(&nested(MAX_DEPTH, r#""\"[[""#)).is_ok());
        let error = record(&nested(MAX_DEPTH + 1, "")).unwrap_err();
        assert_eq!(error, IncomingError::Nesting { limit: MAX_DEPTH });
        assert!(error.to_string().starts_with("the value nests deeper than 100"));
        assert_eq!(record(&nested(MAX_DEPTH, r#""[\ud800""#)), Err(IncomingError::HalfSurrogate));
    }

    #[test]
    fn two_values_on_one_line_are_refused() {
        for line in [r#"{"value":1} {"value":2}"#, r#"{"value":1}{"value":2}"#, "{}x", "{},"] {
            assert_eq!(record(line), Err(IncomingError::MoreThanOne), "{line}");
        }
        assert_eq!(read_as(Shape::Values, "1 2"), Err(IncomingError::MoreThanOne));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let message = |line: &str| record(line).unwrap_err().to_string();
        assert_eq!(message(r#"{"key":"a","key_base64":"YQ=="}"#), "key and key_base64 are both given; give one");
        assert!(message(r#"{"valeu":1}"#).starts_with("unknown field `valeu`, expected one of `key`"));
        assert_eq!(message(r#"{"value":1,"value":2}"#), "duplicate field `value`");
        assert!(message(r#"{"value_base64":"YQ"}"#).starts_with("value_base64 is not standard base64 with padding"));
        assert_eq!(message(r#"{"headers":[{"value":"x"}]}"#), "header 0: it has no name");
        assert_eq!(message(r#"{"partition":-1}"#), "the partition -1 is negative");
        assert!(matches!(record("7").unwrap_err(), IncomingError::Json { line_in_record: 1, .. }));
        assert!(matches!(record("{\"value\":\n\n tru}").unwrap_err(), IncomingError::Json { line_in_record: 3, .. }));
        assert!(read(b"{\"value\":\"\xff\"}", Shape::Records, &TopicPayload::Json).is_err());
        assert_eq!(record(r#"{"value":{"m":"\ud800"}}"#), Err(IncomingError::HalfSurrogate));
        assert!(record(r#"{"key":"\ud800"}"#).is_err());
        assert!(record(r#"{"value":{"m":"\ud83d\ude01"}}"#).is_ok());
    }

    #[test]
    fn a_timestamp_has_an_offset_or_a_unit() {
        let ms = |text: &str| timestamp_ms(text).ok();
        assert_eq!(ms("2013-02-01T10:15:00.000Z"), Some(1_359_713_700_000));
        assert_eq!(ms("2013-02-01T11:15:00.0019+01:00"), Some(1_359_713_700_001));
        assert_eq!(ms("253402300800000ms"), Some(253_402_300_800_000));
        assert_eq!(ms("9223372036854775807ms"), Some(i64::MAX));
        assert_eq!(ms("1970-01-01T00:00:00Z"), Some(0));
        for refused in [
            "",
            "ms",
            "-1ms",
            "+1ms",
            "9223372036854775808ms",
            "1714521600",
            "1714521600s",
            "now",
            "-48h",
            "2013-02-01",
            "2013-02-01T10:15:00",
            "2013-02-01T10:15:00Z[UTC]",
            "20130201T101500Z",
            "1969-12-31T23:59:59.9999Z",
        ] {
            assert_eq!(ms(refused), None, "{refused}");
        }
    }

    #[test]
    fn json_for_a_protobuf_topic_becomes_the_message_and_errors_have_a_path() {
        let source =
            "syntax = \"proto3\"; package t; message M { int32 n = 1; N inner = 2; message N { string s = 1; } }";
        let message = Schema::from_proto_source("t.proto", source).unwrap().message("t.M").unwrap();
        let payload = TopicPayload::Protobuf(message);
        let value = |text: &str| {
            let line = format!("{{\"value\":{text}}}");
            read(line.as_bytes(), Shape::Records, &payload).map(|record| record.unwrap().value.map(Cow::into_owned))
        };
        assert_eq!(value(r#"{"n":5,"inner":{"s":"x"}}"#).unwrap().unwrap(), b"\x08\x05\x12\x03\x0a\x01x");
        assert_eq!(value("{}").unwrap().unwrap(), b"");
        assert_eq!(value("null").unwrap(), None);
        let error = value(r#"{"inner":{"zzz":1}}"#).unwrap_err().to_string();
        assert!(error.starts_with("the value is no t.M: ") && error.contains("inner"), "{error}");
        // Bytes that are given as bytes are the caller's business, as in gRPC.
        let raw = read(br#"{"value_base64":"/w=="}"#, Shape::Records, &payload).unwrap().unwrap();
        assert_eq!(raw.value.as_deref(), Some(b"\xff".as_slice()));
    }
}

//! The encoder of all formats: records in, frames of 256 KiB to 1 MiB out.

use bytes::Bytes;
use tidegate_api::rest;
use tidegate_codec::registry::SchemaKey;
use tidegate_model::{Header, Headers, Record};
use tidegate_plan::EndStatement;

use super::Format;
use super::end::{statement, trailer};
use super::ndjson::{self, LineHead, LineValue};
use crate::engine::{Encode, EncodeError, EngineLimits, Resolved, TopicPayload, ValueDecoder};

/// The longest end statement that stands apart. HTTP clients limit header sections, many to 16 KiB, some to 8.
const MAX_END_APART_BYTES: usize = 8 << 10;

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Bytes of the body, at most [`EngineLimits::MAX_CHUNK_BYTES`].
    Data(Bytes),
    /// The answer is complete. An answer whose parts end without this one was cut.
    End {
        /// The end statement of a format that has it apart: compact JSON, ASCII. The other formats have written it.
        apart: Option<Bytes>,
    },
}

/// Writes records in one [`Format`].
#[derive(Debug)]
pub struct Encoder {
    format: Format,
    values: ValueDecoder,
    frame_bytes: usize,
    pending: Vec<u8>,
    begun: bool,
    not_converted: u64,
}

impl Encoder {
    /// An encoder that emits a frame when `frame_bytes` have come together; `values` says what JSON form values have.
    pub fn new(format: Format, values: ValueDecoder, frame_bytes: usize) -> Self {
        let frame_bytes = frame_bytes.clamp(1, EngineLimits::MAX_CHUNK_BYTES);
        Self { format, values, frame_bytes, pending: Vec::new(), begun: false, not_converted: 0 }
    }

    /// Adds a record whose value was converted elsewhere: what a client of the gRPC face has. The bytes are those that
    /// [`Encode::push`] would write for the record itself. `protobuf` takes the bytes of either kind of value.
    ///
    /// # Errors
    /// As [`Encode::push`].
    pub fn push_converted<'a>(
        &mut self,
        head: &LineHead<'a>,
        value: LineValue<'a>,
        headers: impl IntoIterator<Item = Header<'a>>,
        out: &mut Vec<Part>,
    ) -> Result<(), EncodeError> {
        match (self.format, value) {
            (Format::Protobuf, LineValue::Null) => return Err(no_value(head.partition, head.offset)),
            (Format::Protobuf, LineValue::Json(bytes) | LineValue::AsStored { bytes, .. }) => {
                self.begin_record();
                self.push_delimited(bytes);
            }
            (Format::Ndjson | Format::Json, value) => {
                self.begin_record();
                self.not_converted += u64::from(match value {
                    LineValue::Null => false,
                    LineValue::Json(text) => ndjson::is_null(text),
                    LineValue::AsStored { .. } => true,
                });
                ndjson::write_object(&mut self.pending, head, |out| ndjson::write_value(out, value), headers);
                if self.format == Format::Ndjson {
                    self.pending.push(b'\n');
                }
            }
            (Format::Values, value) => {
                self.begin_record();
                match value {
                    LineValue::Null => self.pending.extend_from_slice(b"null"),
                    LineValue::Json(text) => {
                        let from = self.pending.len();
                        self.pending.extend_from_slice(text);
                        ndjson::make_one_line(&mut self.pending[from..]);
                    }
                    LineValue::AsStored { bytes, error } => {
                        self.pending.push(b'{');
                        ndjson::write_as_stored(&mut self.pending, bytes, error);
                        self.pending.push(b'}');
                        self.not_converted += 1;
                    }
                }
                self.pending.push(b'\n');
            }
        }
        if self.pending.len() >= self.frame_bytes {
            self.emit(out);
        }
        Ok(())
    }

    /// Emits what is pending and then the end statement, from REST's form of it.
    pub fn finish_converted(&mut self, end: &rest::EndStatement, out: &mut Vec<Part>) {
        match self.format {
            Format::Ndjson => ndjson::write_end_line(&mut self.pending, &rest::EndLine { end: end.clone() }),
            Format::Json => {
                self.pending.extend_from_slice(if self.begun { b"\n],\"end\":" } else { b"{\"records\":[],\"end\":" });
                ndjson::write_json(&mut self.pending, end);
                self.pending.extend_from_slice(b"}\n");
            }
            Format::Values | Format::Protobuf => {}
        }
        self.emit(out);
        let apart = self.format.has_end_apart().then(|| trailer(end, MAX_END_APART_BYTES).into());
        out.push(Part::End { apart });
    }

    /// `json` opens its document before the first record; the others have nothing to open.
    fn begin_record(&mut self) {
        if self.pending.capacity() == 0 {
            // Room for the record that fills the frame, if it is of a usual size.
            self.pending.reserve(self.frame_bytes + self.frame_bytes / 16);
        }
        if self.format == Format::Json {
            self.pending.extend_from_slice(if self.begun { b",\n" } else { b"{\"records\":[\n" });
        }
        self.begun = true;
    }

    fn push_delimited(&mut self, value: &[u8]) {
        write_length(&mut self.pending, value.len());
        self.pending.extend_from_slice(value);
    }

    fn push_object(&mut self, partition: i32, record: &Record<'_>) {
        let Self { values, pending, not_converted, .. } = self;
        let head = LineHead {
            partition,
            offset: record.offset,
            timestamp_ms: record.timestamp_ms,
            timestamp_type: record.timestamp_type,
            key: record.key,
        };
        let write_value = |out: &mut Vec<u8>| match record.value {
            None => ndjson::write_value(out, LineValue::Null),
            Some(value) => *not_converted += u64::from(!write_decoded(out, values, value, record.headers)),
        };
        ndjson::write_object(pending, &head, write_value, record.headers);
    }

    fn push_bare_value(&mut self, record: &Record<'_>) {
        match record.value {
            None => self.pending.extend_from_slice(b"null"),
            Some(value) => {
                if let Err(error) = self.values.to_json(value, record.headers, &mut self.pending) {
                    self.pending.push(b'{');
                    ndjson::write_as_stored(&mut self.pending, value, error_to_show(&self.values, &error));
                    self.pending.push(b'}');
                    self.not_converted += 1;
                }
            }
        }
        self.pending.push(b'\n');
    }

    /// Moves what is pending into frames.
    fn emit(&mut self, out: &mut Vec<Part>) {
        if self.pending.is_empty() {
            return;
        }
        let mut bytes = if self.pending.len() * 4 < self.pending.capacity() {
            // A frame that waits in a socket's queue must not hold a buffer many times its size.
            let copy = Bytes::copy_from_slice(&self.pending);
            self.pending.clear();
            copy
        } else {
            Bytes::from(std::mem::take(&mut self.pending))
        };
        while bytes.len() > EngineLimits::MAX_CHUNK_BYTES {
            out.push(Part::Data(bytes.split_to(EngineLimits::MAX_CHUNK_BYTES)));
        }
        out.push(Part::Data(bytes));
    }
}

impl Encode for Encoder {
    type Frame = Part;

    fn needs(&self, record: &Record<'_>) -> Option<SchemaKey> {
        match self.format {
            Format::Protobuf => None,
            Format::Ndjson | Format::Json | Format::Values => self.values.needs(record),
        }
    }

    fn learn(&mut self, key: SchemaKey, schema: Resolved) {
        self.values.learn(key, schema);
    }

    fn push(&mut self, partition: i32, record: &Record<'_>, out: &mut Vec<Part>) -> Result<(), EncodeError> {
        match (self.format, record.value) {
            (Format::Protobuf, None) => return Err(no_value(partition, record.offset)),
            (Format::Protobuf, Some(value)) => {
                self.begin_record();
                self.push_delimited(value);
            }
            (Format::Ndjson, _) => {
                self.begin_record();
                self.push_object(partition, record);
                self.pending.push(b'\n');
            }
            (Format::Json, _) => {
                self.begin_record();
                self.push_object(partition, record);
            }
            (Format::Values, _) => {
                self.begin_record();
                self.push_bare_value(record);
            }
        }
        if self.pending.len() >= self.frame_bytes {
            self.emit(out);
        }
        Ok(())
    }

    fn flush(&mut self, out: &mut Vec<Part>) {
        self.emit(out);
    }

    fn finish(&mut self, end: &EndStatement, out: &mut Vec<Part>) -> Result<(), EncodeError> {
        self.finish_converted(&statement(end), out);
        Ok(())
    }

    fn values_not_converted(&self) -> u64 {
        self.not_converted
    }
}

fn no_value(partition: i32, offset: i64) -> EncodeError {
    let reason = "the record has no value, which format=protobuf cannot say (an empty message is another thing); ask for \
                  format=ndjson";
    EncodeError::Value { partition, offset, reason: reason.to_owned() }
}

/// Writes a value's member or members. Whether the value has a JSON form.
fn write_decoded(out: &mut Vec<u8>, values: &ValueDecoder, value: &[u8], headers: Headers<'_>) -> bool {
    let before = out.len();
    out.extend_from_slice(b"\"value\":");
    let from = out.len();
    match values.to_json(value, headers, out) {
        Ok(()) if !ndjson::is_null(&out[from..]) => true,
        Ok(()) => {
            out.truncate(before);
            ndjson::write_as_stored(out, value, None);
            false
        }
        Err(error) => {
            out.truncate(before);
            ndjson::write_as_stored(out, value, error_to_show(values, &error));
            false
        }
    }
}

/// That a value of a topic about which nothing was declared is not JSON is no error.
fn error_to_show<'a>(values: &ValueDecoder, error: &'a str) -> Option<&'a str> {
    match values.payload() {
        TopicPayload::Bytes => None,
        TopicPayload::Json | TopicPayload::Protobuf(_) | TopicPayload::Registry(_) => Some(error),
    }
}

/// A length as Protobuf's delimited streams have it: a base-128 varint.
fn write_length(out: &mut Vec<u8>, len: usize) {
    let mut rest = len;
    while rest >= 0x80 {
        out.push(rest.to_le_bytes()[0] | 0x80);
        rest >>= 7;
    }
    out.push(rest.to_le_bytes()[0]);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tidegate_api::rest;
    use tidegate_model::{Isolation, OffsetRange, TimeRange, TimestampType};
    use tidegate_plan::{LogEnd, PartitionEnd, Proof};

    use super::*;

    fn record<'a>(offset: i64, value: Option<&'a [u8]>) -> Record<'a> {
        Record {
            offset,
            timestamp_ms: 1_359_713_700_000,
            timestamp_type: TimestampType::LogAppendTime,
            key: None,
            value,
            headers: Headers::EMPTY,
        }
    }

    fn end(records_sent: u64, values_not_converted: u64) -> EndStatement {
        let partition = PartitionEnd {
            partition: 0,
            read: OffsetRange::new(0, 9),
            noted_end_offset: 9,
            log_end: LogEnd::of(9),
            undecided_offsets: 0,
            records_scanned: records_sent,
            records_sent,
            late_records: 0,
            untimed_records: 0,
            proof: Proof::Offsets,
            exhaustive: true,
            lost_offsets: Vec::new(),
            first_offset_at_or_after_until: None,
        };
        EndStatement::new(vec![partition], Isolation::ReadCommitted, TimeRange::ALL, values_not_converted)
    }

    /// All data, and what stands apart.
    fn encode(encoder: &mut Encoder, values: &[Option<&[u8]>]) -> Result<(Vec<u8>, Option<Bytes>), EncodeError> {
        let mut parts = Vec::new();
        for (offset, value) in (0..).zip(values) {
            encoder.push(0, &record(offset, *value), &mut parts)?;
        }
        let end = end(values.len() as u64, encoder.values_not_converted());
        encoder.finish(&end, &mut parts)?;
        let Some(Part::End { apart }) = parts.pop() else { panic!("the last part is the end") };
        let mut data = Vec::new();
        for part in parts {
            let Part::Data(bytes) = part else { panic!("the end comes once") };
            data.extend_from_slice(&bytes);
        }
        Ok((data, apart))
    }

    fn encoder(format: Format, payload: TopicPayload) -> Encoder {
        Encoder::new(format, ValueDecoder::new(payload), EngineLimits::MIN_CHUNK_BYTES)
    }

    const MIXED: [Option<&[u8]>; 6] =
        [Some(b"{\"a\":1.10}"), None, Some(b""), Some(b"\xff"), Some(b"null"), Some(b"{\n}")];

    #[test]
    fn ndjson_ends_with_the_end_statement_and_every_line_is_json() {
        let mut encoder = encoder(Format::Ndjson, TopicPayload::Bytes);
        let (data, apart) = encode(&mut encoder, &MIXED).unwrap();
        assert_eq!(apart, None);
        let text = String::from_utf8(data).unwrap();
        let lines: Vec<&str> = text.split_terminator('\n').collect();
        let (last, records) = lines.split_last().unwrap();
        let values: Vec<(Option<Value>, Option<String>)> = records
            .iter()
            .map(|line| serde_json::from_str::<rest::Record>(line).unwrap())
            .map(|record| (record.value, record.value_base64))
            .collect();
        let base64 = |text: &str| (None, Some(text.to_owned()));
        let expected = [
            (Some(json!({"a": 1.10})), None),
            (None, None),
            base64(""),
            base64("/w=="),
            base64("bnVsbA=="),
            (Some(json!({})), None),
        ];
        assert_eq!(values, expected);
        assert!(lines[0].contains(r#""value":{"a":1.10},"#), "the text of a number must stay: {}", lines[0]);
        let end: rest::EndLine = serde_json::from_str(last).unwrap();
        assert_eq!((end.end.records_sent, end.end.values_not_converted), (6, 3));
    }

    #[test]
    fn json_is_one_document_with_and_without_records() {
        for values in [&MIXED[..], &[]] {
            let (data, apart) = encode(&mut encoder(Format::Json, TopicPayload::Bytes), values).unwrap();
            assert_eq!(apart, None);
            let list: rest::RecordList = serde_json::from_slice(&data).unwrap();
            assert_eq!(list.records.len(), values.len());
            assert_eq!(list.end.records_sent, values.len() as u64);
        }
    }

    #[test]
    fn values_are_bare_one_a_line_with_the_statement_apart() {
        let (data, apart) = encode(&mut encoder(Format::Values, TopicPayload::Bytes), &MIXED).unwrap();
        let lines = "{\"a\":1.10}\nnull\n{\"value_base64\":\"\"}\n{\"value_base64\":\"/w==\"}\nnull\n{}\n";
        assert_eq!(String::from_utf8(data).unwrap(), lines);
        let end: rest::EndStatement = serde_json::from_slice(&apart.unwrap()).unwrap();
        assert_eq!((end.records_sent, end.values_not_converted), (6, 2));
    }

    #[test]
    fn protobuf_is_the_stored_bytes_behind_their_lengths() {
        let long = vec![7_u8; 300];
        let values: [Option<&[u8]>; 3] = [Some(b"\x0a\x01a"), Some(b""), Some(&long)];
        let (data, apart) = encode(&mut encoder(Format::Protobuf, TopicPayload::Bytes), &values).unwrap();
        let expected = [b"\x03\x0a\x01a\x00\xac\x02".as_slice(), &long].concat();
        assert_eq!(data, expected);
        assert!(apart.is_some());
    }

    #[test]
    fn a_value_converted_elsewhere_comes_out_as_if_it_was_converted_here() {
        for payload in [TopicPayload::Bytes, TopicPayload::Json] {
            let values = ValueDecoder::new(payload.clone());
            for format in Format::ALL {
                let given: Vec<Option<&[u8]>> = if format == Format::Protobuf {
                    MIXED.iter().copied().flatten().map(Some).collect()
                } else {
                    MIXED.into()
                };
                let here = encode(&mut encoder(format, payload.clone()), &given).unwrap();

                let mut elsewhere = encoder(format, TopicPayload::Bytes);
                let mut parts = Vec::new();
                for (offset, value) in (0..).zip(&given) {
                    let record = record(offset, *value);
                    let mut json = Vec::new();
                    let why;
                    let value = match value {
                        None => LineValue::Null,
                        Some(bytes) if format == Format::Protobuf => LineValue::AsStored { bytes, error: None },
                        Some(bytes) => match values.to_json(bytes, Headers::EMPTY, &mut json) {
                            Ok(()) => LineValue::Json(&json),
                            Err(error) => {
                                why = error_to_show(&values, &error).map(str::to_owned);
                                LineValue::AsStored { bytes, error: why.as_deref() }
                            }
                        },
                    };
                    let head = LineHead {
                        partition: 0,
                        offset,
                        timestamp_ms: record.timestamp_ms,
                        timestamp_type: record.timestamp_type,
                        key: record.key,
                    };
                    elsewhere.push_converted(&head, value, record.headers, &mut parts).unwrap();
                }
                let end = statement(&end(given.len() as u64, elsewhere.values_not_converted()));
                elsewhere.finish_converted(&end, &mut parts);
                let mut data = Vec::new();
                let mut apart = None;
                for part in parts {
                    match part {
                        Part::Data(bytes) => data.extend_from_slice(&bytes),
                        Part::End { apart: text } => apart = text,
                    }
                }
                assert_eq!((data, apart), here, "{}", format.name());
            }
        }
    }

    #[test]
    fn protobuf_refuses_a_null_value_by_name_and_keeps_what_came_before() {
        let mut encoder = encoder(Format::Protobuf, TopicPayload::Bytes);
        let mut parts = Vec::new();
        encoder.push(4, &record(0, Some(b"x")), &mut parts).unwrap();
        let error = encoder.push(4, &record(1, None), &mut parts).unwrap_err();
        assert!(error.to_string().starts_with("partition 4, offset 1: the record has no value"), "{error}");
        encoder.flush(&mut parts);
        assert_eq!(parts, [Part::Data(Bytes::from_static(b"\x01x"))]);
    }

    #[test]
    fn a_value_that_its_topic_promised_to_be_json_says_why_it_is_not() {
        let mut encoder = encoder(Format::Ndjson, TopicPayload::Json);
        let (data, _) = encode(&mut encoder, &[Some(b"{"), Some(b"{}")]).unwrap();
        let text = String::from_utf8(data).unwrap();
        let first: rest::Record = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!(first.value_base64.as_deref(), Some("ew=="));
        assert!(first.value_error.is_some());
        assert_eq!(encoder.values_not_converted(), 1);
    }

    #[test]
    fn half_a_surrogate_pair_is_not_passed_on_as_json() {
        let mut encoder = encoder(Format::Ndjson, TopicPayload::Bytes);
        let (data, _) = encode(&mut encoder, &[Some(br#"{"m":"\ud800"}"#), Some(br#"{"m":"\ud83d\ude01"}"#)]).unwrap();
        let text = String::from_utf8(data).unwrap();
        let records: Vec<rest::Record> = text.lines().take(2).map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(records[0].value_base64.as_deref(), Some("eyJtIjoiXHVkODAwIn0="));
        assert_eq!(records[1].value, Some(json!({"m": "😁"})));
    }

    #[test]
    fn frames_are_full_but_for_the_last_and_never_over_a_mebibyte() {
        let value = format!("\"{}\"", "x".repeat(998));
        let huge = format!("\"{}\"", "y".repeat(3 << 20));
        for format in Format::ALL {
            let mut encoder = encoder(format, TopicPayload::Json);
            let mut parts = Vec::new();
            for offset in 0..2_000 {
                encoder.push(0, &record(offset, Some(value.as_bytes())), &mut parts).unwrap();
            }
            let full = parts.len();
            encoder.push(0, &record(2_000, Some(huge.as_bytes())), &mut parts).unwrap();
            encoder.finish(&end(2_001, 0), &mut parts).unwrap();
            let sizes: Vec<usize> = parts
                .iter()
                .map(|part| match part {
                    Part::Data(bytes) => bytes.len(),
                    Part::End { apart } => apart.as_ref().map_or(0, Bytes::len),
                })
                .collect();
            assert!(full >= 4, "{sizes:?}");
            let in_bounds = EngineLimits::MIN_CHUNK_BYTES..=EngineLimits::MAX_CHUNK_BYTES;
            assert!(sizes[..full].iter().all(|size| in_bounds.contains(size)), "{sizes:?}");
            assert!(sizes.iter().all(|size| *size <= EngineLimits::MAX_CHUNK_BYTES), "{sizes:?}");
        }
    }

    #[test]
    fn a_flush_emits_what_is_pending_and_nothing_twice() {
        let mut encoder = encoder(Format::Values, TopicPayload::Json);
        let mut parts = Vec::new();
        encoder.flush(&mut parts);
        assert_eq!(parts, []);
        encoder.push(0, &record(0, Some(b"1")), &mut parts).unwrap();
        assert_eq!(parts, []);
        encoder.flush(&mut parts);
        encoder.flush(&mut parts);
        encoder.push(0, &record(1, Some(b"2")), &mut parts).unwrap();
        encoder.flush(&mut parts);
        assert_eq!(parts, [Part::Data(Bytes::from_static(b"1\n")), Part::Data(Bytes::from_static(b"2\n"))]);
    }
}

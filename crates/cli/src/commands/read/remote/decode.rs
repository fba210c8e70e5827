//! Records out of both layouts of a `ReadRangeResponse`. The lengths in a message are checked against what it holds.

use bytes::Bytes;
use tidegate_api::v1::{self, read_range_response::Message};
use tidegate_model::{Header, TimestampType};
use tidegate_server::formats::ndjson::{LineHead, LineValue};

/// The records of one message.
pub(super) enum Records {
    Rows(v1::Rows),
    Columns(Box<Columns>),
}

/// Checked: every array has an entry a record, and the lengths add up to what the blobs hold.
pub(super) struct Columns {
    columns: v1::Columns,
    timestamp_type: TimestampType,
}

/// What is wrong with a message.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    #[error("{what} has {found} entries for {records} records")]
    Entries { what: &'static str, found: usize, records: usize },
    #[error("the lengths of the {what} add up to {lengths} bytes, but there are {found}")]
    Lengths { what: &'static str, lengths: u64, found: usize },
    #[error("the header counts add up to {counts}, but there are {found} headers")]
    Headers { counts: u64, found: usize },
    #[error("a value error for record {index} of {records} is out of place")]
    ValueError { index: u32, records: usize },
    #[error("a record has the unknown timestamp type {0}")]
    TimestampType(i32),
    #[error("it holds no records")]
    NoRecords,
}

/// One record.
pub(super) struct Decoded<'a> {
    pub(super) head: LineHead<'a>,
    pub(super) value: LineValue<'a>,
    pub(super) headers: Vec<Header<'a>>,
}

impl Records {
    /// The records of a message that is not the end statement.
    pub(super) fn new(message: Message) -> Result<Self, Malformed> {
        match message {
            Message::Rows(rows) => Ok(Self::Rows(rows)),
            Message::Columns(columns) => Columns::new(columns).map(|columns| Self::Columns(Box::new(columns))),
            Message::End(_) => Err(Malformed::NoRecords),
        }
    }

    /// Whether a value comes as stored although JSON was asked for.
    pub(super) fn has_value_errors(&self) -> bool {
        match self {
            Self::Rows(rows) => rows.rows.iter().any(|row| !row.value_error.is_empty()),
            Self::Columns(columns) => !columns.columns.value_errors.is_empty(),
        }
    }

    /// The records, in order.
    pub(super) fn iter(&self) -> Box<dyn Iterator<Item = Result<Decoded<'_>, Malformed>> + Send + '_> {
        match self {
            Self::Rows(rows) => Box::new(rows.rows.iter().map(|row| decode_row(rows.partition, row))),
            Self::Columns(columns) => Box::new(columns.iter().map(Ok)),
        }
    }
}

fn decode_row(partition: i32, row: &v1::Row) -> Result<Decoded<'_>, Malformed> {
    let head = LineHead {
        partition,
        offset: row.offset,
        timestamp_ms: row.timestamp_ms,
        timestamp_type: timestamp_type(row.timestamp_type)?,
        key: row.key.as_deref(),
    };
    let value = line_value(row.value.as_deref(), Some(row.value_error.as_str()).filter(|error| !error.is_empty()));
    Ok(Decoded { head, value, headers: row.headers.iter().map(header).collect() })
}

/// A value with an error comes as stored, one without is JSON; the encoder of `protobuf` takes either as bytes.
fn line_value<'a>(value: Option<&'a [u8]>, error: Option<&'a str>) -> LineValue<'a> {
    match (value, error) {
        (None, _) => LineValue::Null,
        (Some(bytes), Some(error)) => LineValue::AsStored { bytes, error: Some(error) },
        (Some(text), None) => LineValue::Json(text),
    }
}

fn header(header: &v1::Header) -> Header<'_> {
    Header { name: &header.name, value: header.value.as_deref() }
}

fn timestamp_type(number: i32) -> Result<TimestampType, Malformed> {
    match v1::TimestampType::try_from(number) {
        Ok(v1::TimestampType::CreateTime) => Ok(TimestampType::CreateTime),
        Ok(v1::TimestampType::LogAppendTime) => Ok(TimestampType::LogAppendTime),
        Ok(v1::TimestampType::Unspecified) | Err(_) => Err(Malformed::TimestampType(number)),
    }
}

impl Columns {
    fn new(columns: v1::Columns) -> Result<Self, Malformed> {
        let records = columns.offset_deltas.len();
        for (what, found) in [
            ("timestamp_deltas", columns.timestamp_deltas.len()),
            ("key_lengths", columns.key_lengths.len()),
            ("value_lengths", columns.value_lengths.len()),
        ] {
            if found != records {
                return Err(Malformed::Entries { what, found, records });
            }
        }
        if !columns.header_counts.is_empty() && columns.header_counts.len() != records {
            return Err(Malformed::Entries { what: "header_counts", found: columns.header_counts.len(), records });
        }
        let blobs =
            [("keys", &columns.key_lengths, &columns.keys), ("values", &columns.value_lengths, &columns.values)];
        for (what, lengths, blob) in blobs {
            let lengths = lengths.iter().map(|length| u64::from(length.saturating_sub(1))).sum();
            if lengths != blob.len() as u64 {
                return Err(Malformed::Lengths { what, lengths, found: blob.len() });
            }
        }
        let counts = columns.header_counts.iter().copied().map(u64::from).sum();
        if counts != columns.headers.len() as u64 {
            return Err(Malformed::Headers { counts, found: columns.headers.len() });
        }
        let mut least = 0;
        for error in &columns.value_errors {
            if error.index < least || error.index as usize >= records {
                return Err(Malformed::ValueError { index: error.index, records });
            }
            least = error.index + 1;
        }
        // A message without records has no timestamp type either.
        let timestamp_type = match records {
            0 => TimestampType::CreateTime,
            _ => timestamp_type(columns.timestamp_type)?,
        };
        Ok(Self { columns, timestamp_type })
    }

    fn iter(&self) -> impl Iterator<Item = Decoded<'_>> {
        let columns = &self.columns;
        let mut offset = 0_i64;
        let mut timestamp_ms = 0_i64;
        let mut keys = Cut { blob: &columns.keys, at: 0 };
        let mut values = Cut { blob: &columns.values, at: 0 };
        let mut errors = columns.value_errors.iter().peekable();
        let mut headers = columns.headers.iter();
        (0..columns.offset_deltas.len()).map(move |index| {
            offset = offset.wrapping_add(columns.offset_deltas[index]);
            timestamp_ms = timestamp_ms.wrapping_add(columns.timestamp_deltas[index]);
            let head = LineHead {
                partition: columns.partition,
                offset,
                timestamp_ms,
                timestamp_type: self.timestamp_type,
                key: keys.next(columns.key_lengths[index]),
            };
            let error = errors.next_if(|error| error.index as usize == index).map(|error| error.error.as_str());
            let value = line_value(values.next(columns.value_lengths[index]), error);
            let count = columns.header_counts.get(index).copied().unwrap_or_default() as usize;
            Decoded { head, value, headers: headers.by_ref().take(count).map(header).collect() }
        })
    }
}

/// Takes pieces off a blob, one behind the other.
struct Cut<'a> {
    blob: &'a Bytes,
    at: usize,
}

impl<'a> Cut<'a> {
    /// The next piece; `length` is its length plus one, and 0 is null. The lengths were checked to add up.
    fn next(&mut self, length: u32) -> Option<&'a [u8]> {
        let start = self.at;
        self.at += length.checked_sub(1)? as usize;
        self.blob.get(start..self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> v1::Columns {
        v1::Columns {
            partition: 3,
            offset_deltas: vec![100, 1, 5],
            timestamp_deltas: vec![1_000, -10, 0],
            timestamp_type: v1::TimestampType::CreateTime.into(),
            key_lengths: vec![0, 1, 3],
            value_lengths: vec![2, 0, 1],
            keys: Bytes::from_static(b"ab"),
            values: Bytes::from_static(b"1"),
            header_counts: vec![0, 2, 0],
            headers: vec![
                v1::Header { name: Bytes::from_static(b"h"), value: None },
                v1::Header { name: Bytes::from_static(b"h"), value: Some(Bytes::new()) },
            ],
            value_errors: vec![v1::ValueError { index: 2, error: "why".to_owned() }],
        }
    }

    fn check(columns: v1::Columns) -> Result<(), Malformed> {
        Columns::new(columns).map(|_| ())
    }

    #[test]
    fn columns_come_apart_into_their_records() {
        let records = Records::new(Message::Columns(columns())).unwrap();
        assert!(records.has_value_errors());
        let records: Vec<_> = records
            .iter()
            .map(|record| {
                let record = record.unwrap();
                let value = match record.value {
                    LineValue::Null => None,
                    LineValue::Json(text) => Some((text.to_vec(), None)),
                    LineValue::AsStored { bytes, error } => Some((bytes.to_vec(), error.map(str::to_owned))),
                };
                let key = record.head.key.map(<[u8]>::to_vec);
                (record.head.offset, record.head.timestamp_ms, key, value, record.headers.len())
            })
            .collect();
        let why = Some("why".to_owned());
        assert_eq!(
            records,
            [
                (100, 1_000, None, Some((b"1".to_vec(), None)), 0),
                (101, 990, Some(Vec::new()), None, 2),
                (106, 990, Some(b"ab".to_vec()), Some((Vec::new(), why)), 0),
            ]
        );
    }

    #[test]
    fn a_message_whose_numbers_do_not_agree_is_refused() {
        assert_eq!(check(columns()), Ok(()));
        assert_eq!(check(v1::Columns::default()), Ok(()));
        let entries = |what, found| Err(Malformed::Entries { what, found, records: 3 });
        assert_eq!(check(v1::Columns { timestamp_deltas: vec![1], ..columns() }), entries("timestamp_deltas", 1));
        assert_eq!(check(v1::Columns { key_lengths: vec![], ..columns() }), entries("key_lengths", 0));
        assert_eq!(check(v1::Columns { header_counts: vec![2], ..columns() }), entries("header_counts", 1));
        let lying = v1::Columns { value_lengths: vec![u32::MAX, u32::MAX, 1], ..columns() };
        let lengths = 2 * u64::from(u32::MAX - 1);
        assert_eq!(check(lying), Err(Malformed::Lengths { what: "values", lengths, found: 1 }));
        let short = v1::Columns { keys: Bytes::from_static(b"abc"), ..columns() };
        assert_eq!(check(short), Err(Malformed::Lengths { what: "keys", lengths: 2, found: 3 }));
        let headers = v1::Columns { header_counts: vec![0, 0, u32::MAX], ..columns() };
        assert!(matches!(check(headers), Err(Malformed::Headers { found: 2, .. })));
        let error = |index| v1::ValueError { index, error: "why".to_owned() };
        let beyond = v1::Columns { value_errors: vec![error(3)], ..columns() };
        assert_eq!(check(beyond), Err(Malformed::ValueError { index: 3, records: 3 }));
        let disordered = v1::Columns { value_errors: vec![error(2), error(2)], ..columns() };
        assert_eq!(check(disordered), Err(Malformed::ValueError { index: 2, records: 3 }));
        assert_eq!(check(v1::Columns { timestamp_type: 0, ..columns() }), Err(Malformed::TimestampType(0)));
    }
}

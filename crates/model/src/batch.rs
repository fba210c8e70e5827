//! The record batch (message format v2) as it stands in memory: the header as values, the records read in place.
//!
//! Source: Kafka's "Message Format" chapter and KIP-98; `org.apache.kafka.common.record.DefaultRecordBatch`. Checking the
//! CRC and decompressing happen before, in `tidegate-wire`.

use bytes::Bytes;

use crate::time::TimestampType;
use crate::varint::{VarintError, read_varint, read_varlong};

/// How the records of a batch are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// gzip.
    Gzip,
    /// snappy, raw or in one of the two Java framings.
    Snappy,
    /// An lz4 frame.
    Lz4,
    /// One or more zstd frames.
    Zstd,
}

impl Compression {
    /// Kafka's name for it, as in `compression.type`.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

/// The attributes of a record batch, 16 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BatchAttributes(pub i16);

impl BatchAttributes {
    /// Bits 0 to 2. `Err` holds a codec number that Kafka does not define.
    ///
    /// # Errors
    /// The codec number, when it is 5, 6 or 7.
    pub fn compression(self) -> Result<Compression, u8> {
        match self.0.to_be_bytes()[1] & 0x07 {
            0 => Ok(Compression::None),
            1 => Ok(Compression::Gzip),
            2 => Ok(Compression::Snappy),
            3 => Ok(Compression::Lz4),
            4 => Ok(Compression::Zstd),
            unknown => Err(unknown),
        }
    }

    /// Bit 3: who set the timestamps.
    pub fn timestamp_type(self) -> TimestampType {
        if self.0 & 0x08 == 0 { TimestampType::CreateTime } else { TimestampType::LogAppendTime }
    }

    /// Bit 4: the batch belongs to a transaction.
    pub fn is_transactional(self) -> bool {
        self.0 & 0x10 != 0
    }

    /// Bit 5: the batch holds control records (transaction markers), which are never delivered.
    pub fn is_control(self) -> bool {
        self.0 & 0x20 != 0
    }

    /// Bit 6: the base timestamp is the delete horizon (KIP-534). Timestamp deltas still count from it.
    pub fn has_delete_horizon(self) -> bool {
        self.0 & 0x40 != 0
    }
}

/// The header of a record batch, all fields as they stand on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchHeader {
    /// The offset of the first record that the batch once held.
    pub base_offset: i64,
    /// Bytes after this field: the batch's total length less 12.
    pub batch_length: i32,
    /// The epoch of the leader that appended it.
    pub partition_leader_epoch: i32,
    /// The CRC-32C of everything from the attributes on.
    pub crc: u32,
    /// Compression, timestamp type, transaction and control marks.
    pub attributes: BatchAttributes,
    /// The last offset of the batch less the base offset. It stays when compaction removes records.
    pub last_offset_delta: i32,
    /// What the records' timestamp deltas count from, in ms.
    pub base_timestamp: i64,
    /// The largest timestamp of the batch, in ms; under LogAppendTime the timestamp of every record.
    pub max_timestamp: i64,
    /// The idempotent producer's id, or -1.
    pub producer_id: i64,
    /// Its epoch, or -1.
    pub producer_epoch: i16,
    /// The sequence number of the first record, or -1.
    pub base_sequence: i32,
    /// How many records the batch holds now. 0 after compaction emptied it.
    pub record_count: i32,
}

impl BatchHeader {
    /// The offset of the last record that the batch once held.
    pub fn last_offset(&self) -> i64 {
        self.base_offset.saturating_add(i64::from(self.last_offset_delta))
    }

    /// The offset after it: where a reader stands when it has passed the batch, whatever it still holds.
    pub fn next_offset(&self) -> i64 {
        self.last_offset().saturating_add(1)
    }
}

/// A record batch with its records uncompressed. Cheap to clone; records are views into [`RecordBatch::body`].
#[derive(Clone, Debug)]
pub struct RecordBatch {
    header: BatchHeader,
    body: Bytes,
}

impl RecordBatch {
    /// A batch from its header and its uncompressed records. The records are checked while they are read.
    pub fn new(header: BatchHeader, body: Bytes) -> Self {
        Self { header, body }
    }

    /// The header.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The uncompressed records, as bytes.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The records in order. The iterator ends after the first error.
    pub fn records(&self) -> Records<'_> {
        Records { header: &self.header, rest: &self.body, read: 0, failed: false }
    }

    /// A part of the body as owned bytes, without copying: for a key or value that outlives the batch's borrow.
    ///
    /// # Panics
    /// When `part` is not a slice of this batch's body.
    pub fn slice(&self, part: &[u8]) -> Bytes {
        self.body.slice_ref(part)
    }
}

/// One record, borrowed from its batch.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Its offset.
    pub offset: i64,
    /// Its timestamp in ms, or -1. Under LogAppendTime that of the batch.
    pub timestamp_ms: i64,
    /// Who set the timestamp.
    pub timestamp_type: TimestampType,
    /// The key; null (`None`) is not the empty key.
    pub key: Option<&'a [u8]>,
    /// The value; null (`None`) is not the empty value.
    pub value: Option<&'a [u8]>,
    /// The headers, in order, repeats kept.
    pub headers: Headers<'a>,
}

/// One header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// Its name, as bytes: nothing makes a producer write UTF-8.
    pub name: &'a [u8],
    /// Its value; null (`None`) is not the empty value.
    pub value: Option<&'a [u8]>,
}

/// The headers of one record. They were checked when the record was read, so the iterator yields plain items.
#[derive(Clone, Copy, Debug)]
pub struct Headers<'a> {
    rest: &'a [u8],
    left: usize,
}

impl Headers<'_> {
    /// No headers.
    pub const EMPTY: Headers<'static> = Headers { rest: &[], left: 0 };
}

impl<'a> Iterator for Headers<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Header<'a>> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        read_header(&mut self.rest).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Headers<'_> {}

/// Why a record could not be read. `index` counts the batch's records from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The batch ends inside the record.
    #[error("record {index} is cut off")]
    Truncated {
        /// Which record.
        index: i32,
    },
    /// A length or number of the record is out of its range.
    #[error("record {index}: its {field} is {value}")]
    Field {
        /// Which record.
        index: i32,
        /// Which field.
        field: &'static str,
        /// What it says.
        value: i64,
    },
    /// A varint is too long for its type.
    #[error("record {index}: a number is too long for its type")]
    Overlong {
        /// Which record.
        index: i32,
    },
    /// The record's fields end before its length says.
    #[error("record {index}: {bytes} bytes are left over after its last field")]
    LeftOver {
        /// Which record.
        index: i32,
        /// How many bytes.
        bytes: usize,
    },
    /// Bytes follow the last record.
    #[error("the batch says it holds {count} records, but {bytes} bytes follow the last one")]
    Trailing {
        /// The batch's record count.
        count: i32,
        /// How many bytes follow.
        bytes: usize,
    },
    /// The record count is negative.
    #[error("the batch says it holds {count} records")]
    Count {
        /// The batch's record count.
        count: i32,
    },
}

/// The records of a batch, read in place. See [`RecordBatch::records`].
#[derive(Clone, Debug)]
pub struct Records<'a> {
    header: &'a BatchHeader,
    rest: &'a [u8],
    read: i32,
    failed: bool,
}

impl<'a> Records<'a> {
    fn read_next(&mut self) -> Result<Option<Record<'a>>, RecordError> {
        let index = self.read;
        if index >= self.header.record_count {
            return match (self.header.record_count, self.rest.len()) {
                (count @ ..0, _) => Err(RecordError::Count { count }),
                (_, 0) => Ok(None),
                (count, bytes) => Err(RecordError::Trailing { count, bytes }),
            };
        }
        let cut = |error: VarintError| match error {
            VarintError::Truncated => RecordError::Truncated { index },
            VarintError::Overlong => RecordError::Overlong { index },
        };
        let length = read_varint(&mut self.rest).map_err(cut)?;
        let field = |field, value: i32| RecordError::Field { index, field, value: i64::from(value) };
        let length_bytes = usize::try_from(length).map_err(|_| field("length", length))?;
        let (mut fields, after) = self.rest.split_at_checked(length_bytes).ok_or(RecordError::Truncated { index })?;
        self.rest = after;

        // The record's attributes; no bit of them is in use.
        fields = fields.get(1..).ok_or(RecordError::Truncated { index })?;
        let timestamp_delta = read_varlong(&mut fields).map_err(cut)?;
        let offset_delta = read_varint(&mut fields).map_err(cut)?;
        if offset_delta < 0 || offset_delta > self.header.last_offset_delta {
            return Err(field("offset delta", offset_delta));
        }
        let bytes_error = |what| {
            move |error| match error {
                BytesError::Varint(error) => cut(error),
                BytesError::Length(value) => field(what, value),
                BytesError::Short => RecordError::Truncated { index },
            }
        };
        let key = read_bytes(&mut fields).map_err(bytes_error("key length"))?;
        let value = read_bytes(&mut fields).map_err(bytes_error("value length"))?;
        let header_count = read_varint(&mut fields).map_err(cut)?;
        let headers = Headers {
            rest: fields,
            left: usize::try_from(header_count).map_err(|_| field("header count", header_count))?,
        };
        // Walked once here, so that whoever iterates the headers has no error left to meet. A lying count ends with the
        // bytes: every header takes at least two.
        for _ in 0..header_count {
            read_header(&mut fields).map_err(bytes_error("header length"))?;
        }
        if !fields.is_empty() {
            return Err(RecordError::LeftOver { index, bytes: fields.len() });
        }
        self.read += 1;

        let timestamp_type = self.header.attributes.timestamp_type();
        let timestamp_ms = match timestamp_type {
            TimestampType::CreateTime => self.header.base_timestamp.saturating_add(timestamp_delta),
            TimestampType::LogAppendTime => self.header.max_timestamp,
        };
        let offset = self.header.base_offset.saturating_add(i64::from(offset_delta));
        Ok(Some(Record { offset, timestamp_ms, timestamp_type, key, value, headers }))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let item = self.read_next().transpose();
        self.failed = !matches!(item, Some(Ok(_)));
        item
    }
}

enum BytesError {
    Varint(VarintError),
    Length(i32),
    Short,
}

/// Reads a length and as many bytes; the length -1 is null, any other negative one an error.
#[inline]
fn read_bytes<'a>(fields: &mut &'a [u8]) -> Result<Option<&'a [u8]>, BytesError> {
    let length = read_varint(fields).map_err(BytesError::Varint)?;
    if length == -1 {
        return Ok(None);
    }
    let length = usize::try_from(length).map_err(|_| BytesError::Length(length))?;
    let (bytes, after) = fields.split_at_checked(length).ok_or(BytesError::Short)?;
    *fields = after;
    Ok(Some(bytes))
}

fn read_header<'a>(fields: &mut &'a [u8]) -> Result<Header<'a>, BytesError> {
    let name = read_bytes(fields)?.ok_or(BytesError::Length(-1))?;
    let value = read_bytes(fields)?;
    Ok(Header { name, value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::varint::{write_varint, write_varlong};

    fn bytes_field(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
        match bytes {
            None => write_varint(out, -1),
            Some(bytes) => {
                write_varint(out, i32::try_from(bytes.len()).unwrap());
                out.extend_from_slice(bytes);
            }
        }
    }

    type Named<'a> = (&'a [u8], Option<&'a [u8]>);

    fn record(delta: (i64, i32), key: Option<&[u8]>, value: Option<&[u8]>, headers: &[Named<'_>]) -> Vec<u8> {
        let mut fields = vec![0];
        write_varlong(&mut fields, delta.0);
        write_varint(&mut fields, delta.1);
        bytes_field(&mut fields, key);
        bytes_field(&mut fields, value);
        write_varint(&mut fields, i32::try_from(headers.len()).unwrap());
        for (name, value) in headers {
            bytes_field(&mut fields, Some(name));
            bytes_field(&mut fields, *value);
        }
        let mut out = Vec::new();
        bytes_field(&mut out, Some(&fields));
        out
    }

    fn batch(count: i32, body: Vec<u8>) -> RecordBatch {
        let header = BatchHeader {
            base_offset: 100,
            last_offset_delta: 9,
            base_timestamp: 1_000,
            max_timestamp: 5_000,
            record_count: count,
            ..BatchHeader::default()
        };
        RecordBatch::new(header, body.into())
    }

    #[test]
    fn every_field_of_a_record_is_kept() {
        let headers: [Named<'_>; 3] = [(b"a", Some(b"1")), (b"\xff", None), (b"a", Some(b""))];
        let mut body = record((-3, 0), None, Some(b""), &headers);
        body.extend(record((7, 9), Some(b""), None, &[]));
        let batch = batch(2, body);
        let records: Vec<_> = batch.records().collect::<Result<_, _>>().unwrap();
        assert_eq!((records[0].offset, records[0].timestamp_ms), (100, 997));
        assert_eq!((records[0].key, records[0].value), (None, Some(&b""[..])));
        let seen: Vec<_> = records[0].headers.map(|h| (h.name, h.value)).collect();
        assert_eq!(seen, headers);
        assert_eq!((records[1].offset, records[1].timestamp_ms), (109, 1_007));
        assert_eq!((records[1].key, records[1].value), (Some(&b""[..]), None));
        assert_eq!(batch.slice(records[0].value.unwrap()).len(), 0);
    }

    #[test]
    fn log_append_time_overrides_the_records_own() {
        let mut header = *batch(1, vec![]).header();
        header.attributes = BatchAttributes(0x08);
        let batch = RecordBatch::new(header, record((7, 0), None, None, &[]).into());
        let first = batch.records().next().unwrap().unwrap();
        assert_eq!((first.timestamp_ms, first.timestamp_type), (5_000, TimestampType::LogAppendTime));
    }

    #[test]
    fn every_cut_of_a_record_is_an_error_and_ends_the_iterator() {
        let whole = record((1, 1), Some(b"key"), Some(b"value"), &[(b"h", Some(b"v"))]);
        for cut in 0..whole.len() {
            let batch = batch(1, whole[..cut].to_vec());
            let mut records = batch.records();
            assert!(records.next().unwrap().is_err(), "cut at {cut}");
            assert!(records.next().is_none());
        }
    }

    #[test]
    fn lying_counts_and_lengths_are_errors() {
        let one = record((0, 0), None, None, &[]);
        assert_eq!(batch(-1, one.clone()).records().next(), Some(Err(RecordError::Count { count: -1 })));
        let trailing = batch(0, one.clone());
        assert!(matches!(trailing.records().next(), Some(Err(RecordError::Trailing { .. }))));
        let missing = batch(2, one);
        assert!(matches!(missing.records().nth(1), Some(Err(RecordError::Truncated { index: 1 }))));
        let far = batch(1, record((0, 10), None, None, &[]));
        assert!(matches!(far.records().next(), Some(Err(RecordError::Field { field: "offset delta", .. }))));
        // A header count of two billion over no bytes.
        let mut fields = vec![0, 0, 0, 1, 1];
        write_varint(&mut fields, i32::MAX);
        let mut body = Vec::new();
        bytes_field(&mut body, Some(&fields));
        assert!(matches!(batch(1, body).records().next(), Some(Err(RecordError::Truncated { .. }))));
    }

    impl PartialEq for Record<'_> {
        fn eq(&self, other: &Self) -> bool {
            (self.offset, self.timestamp_ms, self.key, self.value)
                == (other.offset, other.timestamp_ms, other.key, other.value)
        }
    }
}

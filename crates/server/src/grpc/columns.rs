//! The layout COLUMNS: packed arrays and one blob.

use std::ops::Add;

use tidegate_api::encoded::EncodedReadRangeResponse;
use tidegate_model::TimestampType;

use super::encoder::{Message, Row, timestamp_type_number};
use super::field::{implicit_len, int_len, len_field, put_implicit, put_int, put_len, put_varint, varint_len, zigzag};
use super::header::{headers_len, put_headers};

/// `ReadRangeResponse.columns`.
const COLUMNS: u8 = 2;

mod columns_field {
    pub(super) const PARTITION: u8 = 1;
    pub(super) const OFFSET_DELTAS: u8 = 2;
    pub(super) const TIMESTAMP_DELTAS: u8 = 3;
    pub(super) const TIMESTAMP_TYPE: u8 = 4;
    pub(super) const KEY_LENGTHS: u8 = 5;
    pub(super) const VALUE_LENGTHS: u8 = 6;
    pub(super) const KEYS: u8 = 7;
    pub(super) const VALUES: u8 = 8;
    pub(super) const HEADER_COUNTS: u8 = 9;
    pub(super) const HEADERS: u8 = 10;
    pub(super) const VALUE_ERRORS: u8 = 11;
}

mod value_error_field {
    pub(super) const INDEX: u8 = 1;
    pub(super) const ERROR: u8 = 2;
}

/// A `Columns` message under construction.
pub(super) struct Columns {
    partition: i32,
    records: u32,
    last_offset: i64,
    last_timestamp_ms: i64,
    timestamp_type: TimestampType,
    offset_deltas: Vec<u8>,
    timestamp_deltas: Vec<u8>,
    key_lengths: Vec<u8>,
    value_lengths: Vec<u8>,
    keys: Vec<u8>,
    values: Vec<u8>,
    /// Empty until a record has a header.
    header_counts: Vec<u8>,
    /// Encoded as the repeated field.
    headers: Vec<u8>,
    /// Encoded as the repeated field.
    value_errors: Vec<u8>,
    /// How large the values of the message before were: what to reserve for this one.
    reserve: usize,
}

/// The bytes of each column.
#[derive(Clone, Copy)]
struct Lens {
    offset_deltas: usize,
    timestamp_deltas: usize,
    key_lengths: usize,
    value_lengths: usize,
    keys: usize,
    values: usize,
    header_counts: usize,
    headers: usize,
    value_errors: usize,
}

impl Add for Lens {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            offset_deltas: self.offset_deltas + other.offset_deltas,
            timestamp_deltas: self.timestamp_deltas + other.timestamp_deltas,
            key_lengths: self.key_lengths + other.key_lengths,
            value_lengths: self.value_lengths + other.value_lengths,
            keys: self.keys + other.keys,
            values: self.values + other.values,
            header_counts: self.header_counts + other.header_counts,
            headers: self.headers + other.headers,
            value_errors: self.value_errors + other.value_errors,
        }
    }
}

impl Lens {
    /// The size of everything inside the envelope.
    fn inner(&self, partition: i32, timestamp_type: TimestampType) -> usize {
        int_len(i64::from(partition))
            + implicit_len(self.offset_deltas)
            + implicit_len(self.timestamp_deltas)
            + int_len(timestamp_type_number(timestamp_type))
            + implicit_len(self.key_lengths)
            + implicit_len(self.value_lengths)
            + implicit_len(self.keys)
            + implicit_len(self.values)
            + implicit_len(self.header_counts)
            // Encoded with their keys and lengths already.
            + self.headers
            + self.value_errors
    }
}

/// Null is 0, and every length is one more than it is.
fn length_plus_one(bytes: Option<&[u8]>) -> u64 {
    bytes.map_or(0, |bytes| bytes.len() as u64 + 1)
}

fn value_error_len(index: u32, error: &str) -> usize {
    int_len(i64::from(index)) + implicit_len(error.len())
}

impl Columns {
    fn lens(&self) -> Lens {
        Lens {
            offset_deltas: self.offset_deltas.len(),
            timestamp_deltas: self.timestamp_deltas.len(),
            key_lengths: self.key_lengths.len(),
            value_lengths: self.value_lengths.len(),
            keys: self.keys.len(),
            values: self.values.len(),
            header_counts: self.header_counts.len(),
            headers: self.headers.len(),
            value_errors: self.value_errors.len(),
        }
    }

    /// What the row adds to each column.
    fn lens_of(&self, row: &Row<'_>) -> Lens {
        let header_count = row.headers.len();
        let header_counts = match (header_count, self.header_counts.is_empty()) {
            (0, true) => 0,
            // The first record with headers brings a zero for each one before it.
            (_, true) => self.records as usize + varint_len(header_count as u64),
            (_, false) => varint_len(header_count as u64),
        };
        Lens {
            offset_deltas: varint_len(zigzag(row.offset.wrapping_sub(self.last_offset))),
            timestamp_deltas: varint_len(zigzag(row.timestamp_ms.wrapping_sub(self.last_timestamp_ms))),
            key_lengths: varint_len(length_plus_one(row.key)),
            value_lengths: varint_len(length_plus_one(row.value)),
            keys: row.key.map_or(0, <[u8]>::len),
            values: row.value.map_or(0, <[u8]>::len),
            header_counts,
            headers: headers_len(row.headers),
            value_errors: match row.value_error {
                "" => 0,
                error => len_field(value_error_len(self.records, error)),
            },
        }
    }
}

impl Message for Columns {
    fn new(partition: i32) -> Self {
        Self {
            partition,
            records: 0,
            last_offset: 0,
            last_timestamp_ms: 0,
            timestamp_type: TimestampType::CreateTime,
            offset_deltas: Vec::new(),
            timestamp_deltas: Vec::new(),
            key_lengths: Vec::new(),
            value_lengths: Vec::new(),
            keys: Vec::new(),
            values: Vec::new(),
            header_counts: Vec::new(),
            headers: Vec::new(),
            value_errors: Vec::new(),
            reserve: 0,
        }
    }

    fn partition(&self) -> i32 {
        self.partition
    }

    fn is_empty(&self) -> bool {
        self.records == 0
    }

    fn suits(&self, row: &Row<'_>) -> bool {
        self.timestamp_type == row.timestamp_type
    }

    fn len_with(&self, row: &Row<'_>) -> usize {
        len_field((self.lens() + self.lens_of(row)).inner(self.partition, row.timestamp_type))
    }

    fn add(&mut self, row: &Row<'_>) {
        if self.records == 0 {
            self.values.reserve(self.reserve);
            self.timestamp_type = row.timestamp_type;
        }
        put_varint(&mut self.offset_deltas, zigzag(row.offset.wrapping_sub(self.last_offset)));
        put_varint(&mut self.timestamp_deltas, zigzag(row.timestamp_ms.wrapping_sub(self.last_timestamp_ms)));
        put_varint(&mut self.key_lengths, length_plus_one(row.key));
        put_varint(&mut self.value_lengths, length_plus_one(row.value));
        self.keys.extend_from_slice(row.key.unwrap_or_default());
        self.values.extend_from_slice(row.value.unwrap_or_default());

        let header_count = row.headers.len();
        if header_count > 0 && self.header_counts.is_empty() {
            self.header_counts.resize(self.records as usize, 0);
        }
        // Once one record has headers, every record has a count.
        if header_count > 0 || !self.header_counts.is_empty() {
            put_varint(&mut self.header_counts, header_count as u64);
        }
        put_headers(&mut self.headers, columns_field::HEADERS, row.headers);

        if !row.value_error.is_empty() {
            let out = &mut self.value_errors;
            put_len(out, columns_field::VALUE_ERRORS, value_error_len(self.records, row.value_error));
            put_int(out, value_error_field::INDEX, i64::from(self.records));
            put_implicit(out, value_error_field::ERROR, row.value_error.as_bytes());
        }
        self.records += 1;
        self.last_offset = row.offset;
        self.last_timestamp_ms = row.timestamp_ms;
    }

    fn take(&mut self) -> EncodedReadRangeResponse {
        let reserve = self.values.len();
        let message = std::mem::replace(self, Self { reserve, ..Self::new(self.partition) });
        let lens = message.lens();

        let mut head = Vec::with_capacity(64 + lens.offset_deltas + lens.timestamp_deltas + lens.key_lengths);
        put_len(&mut head, COLUMNS, lens.inner(message.partition, message.timestamp_type));
        put_int(&mut head, columns_field::PARTITION, i64::from(message.partition));
        put_implicit(&mut head, columns_field::OFFSET_DELTAS, &message.offset_deltas);
        put_implicit(&mut head, columns_field::TIMESTAMP_DELTAS, &message.timestamp_deltas);
        put_int(&mut head, columns_field::TIMESTAMP_TYPE, timestamp_type_number(message.timestamp_type));
        put_implicit(&mut head, columns_field::KEY_LENGTHS, &message.key_lengths);
        put_implicit(&mut head, columns_field::VALUE_LENGTHS, &message.value_lengths);
        put_implicit(&mut head, columns_field::KEYS, &message.keys);
        if !message.values.is_empty() {
            put_len(&mut head, columns_field::VALUES, message.values.len());
        }
        // The values are most of the message: they go out as they stand.
        let mut tail = Vec::new();
        put_implicit(&mut tail, columns_field::HEADER_COUNTS, &message.header_counts);
        tail.extend_from_slice(&message.headers);
        tail.extend_from_slice(&message.value_errors);
        EncodedReadRangeResponse::new(vec![head.into(), message.values.into(), tail.into()])
    }
}

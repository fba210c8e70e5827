//! The layout ROWS: one `tidegate.v1.Row` a record.

use tidegate_api::encoded::EncodedReadRangeResponse;

use super::encoder::{Message, Row, timestamp_type_number};
use super::field::{implicit_len, int_len, len_field, optional_len, put_implicit, put_int, put_len, put_optional};
use super::header::{headers_len, put_headers};

/// `ReadRangeResponse.rows`.
const ROWS: u8 = 1;

mod rows_field {
    pub(super) const PARTITION: u8 = 1;
    pub(super) const ROWS: u8 = 2;
}

mod row_field {
    pub(super) const OFFSET: u8 = 1;
    pub(super) const TIMESTAMP_MS: u8 = 2;
    pub(super) const TIMESTAMP_TYPE: u8 = 3;
    pub(super) const KEY: u8 = 4;
    pub(super) const VALUE: u8 = 5;
    pub(super) const HEADERS: u8 = 6;
    pub(super) const VALUE_ERROR: u8 = 7;
}

/// A `Rows` message under construction.
pub(super) struct Rows {
    partition: i32,
    /// The rows, encoded as the repeated field.
    rows: Vec<u8>,
    /// How large the message before was: what to reserve for this one.
    reserve: usize,
}

impl Rows {
    /// The size of everything inside the envelope, with `rows` bytes of rows.
    fn inner_len(&self, rows: usize) -> usize {
        int_len(i64::from(self.partition)) + rows
    }
}

fn row_len(row: &Row<'_>) -> usize {
    int_len(row.offset)
        + int_len(row.timestamp_ms)
        + int_len(timestamp_type_number(row.timestamp_type))
        + optional_len(row.key)
        + optional_len(row.value)
        + headers_len(row.headers)
        + implicit_len(row.value_error.len())
}

impl Message for Rows {
    fn new(partition: i32) -> Self {
        Self { partition, rows: Vec::new(), reserve: 0 }
    }

    fn partition(&self) -> i32 {
        self.partition
    }

    fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn suits(&self, _row: &Row<'_>) -> bool {
        true
    }

    fn len_with(&self, row: &Row<'_>) -> usize {
        len_field(self.inner_len(self.rows.len() + len_field(row_len(row))))
    }

    fn add(&mut self, row: &Row<'_>) {
        let out = &mut self.rows;
        if out.is_empty() {
            out.reserve(self.reserve);
        }
        put_len(out, rows_field::ROWS, row_len(row));
        put_int(out, row_field::OFFSET, row.offset);
        put_int(out, row_field::TIMESTAMP_MS, row.timestamp_ms);
        put_int(out, row_field::TIMESTAMP_TYPE, timestamp_type_number(row.timestamp_type));
        put_optional(out, row_field::KEY, row.key);
        put_optional(out, row_field::VALUE, row.value);
        put_headers(out, row_field::HEADERS, row.headers);
        put_implicit(out, row_field::VALUE_ERROR, row.value_error.as_bytes());
    }

    fn take(&mut self) -> EncodedReadRangeResponse {
        let rows = std::mem::take(&mut self.rows);
        self.reserve = rows.len();
        let mut envelope = Vec::new();
        put_len(&mut envelope, ROWS, self.inner_len(rows.len()));
        put_int(&mut envelope, rows_field::PARTITION, i64::from(self.partition));
        EncodedReadRangeResponse::new(vec![envelope.into(), rows.into()])
    }
}

//! Writing a record batch.

use bytes::Bytes;
use tidegate_model::{
    BatchAttributes, BatchHeader, Compression, Header, RecordBatch, varint_len, write_varint, write_varlong,
};

use super::append::{LOG_APPEND_TIME_BIT, renew_crc};
use super::header::{HEADER_BYTES, LENGTH_PREFIX_BYTES, write_fields};
use crate::compression::{self, CompressError};

/// The facts of a batch that do not come from its records. The default is what a plain producer writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchOptions {
    /// How the records are compressed.
    pub compression: Compression,
    /// The offset of the first record. A producer writes 0, the broker sets it.
    pub base_offset: i64,
    /// The epoch of the leader that appends the batch; -1 from a producer.
    pub leader_epoch: i32,
    /// Set: the timestamp type is LogAppendTime, and this is the time in ms.
    pub log_append_time_ms: Option<i64>,
    /// The idempotent producer's id, or -1.
    pub producer_id: i64,
    /// Its epoch, or -1.
    pub producer_epoch: i16,
    /// The sequence number of the first record, or -1.
    pub base_sequence: i32,
    /// The batch belongs to a transaction.
    pub transactional: bool,
    /// The records are control records.
    pub control: bool,
}

impl Default for BatchOptions {
    fn default() -> Self {
        Self {
            compression: Compression::None,
            base_offset: 0,
            leader_epoch: -1,
            log_append_time_ms: None,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            transactional: false,
            control: false,
        }
    }
}

impl BatchOptions {
    fn attributes(&self) -> BatchAttributes {
        let codec: i16 = match self.compression {
            Compression::None => 0,
            Compression::Gzip => 1,
            Compression::Snappy => 2,
            Compression::Lz4 => 3,
            Compression::Zstd => 4,
        };
        let bit = |set: bool, bit: i16| if set { bit } else { 0 };
        let append_time = bit(self.log_append_time_ms.is_some(), LOG_APPEND_TIME_BIT);
        BatchAttributes(codec | append_time | bit(self.transactional, 0x10) | bit(self.control, 0x20))
    }
}

/// Why a batch or a record cannot be written. A refused record leaves the batch as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// A key, value, header, record or batch is longer than the format's 31 bits.
    #[error("the {what} takes {bytes} bytes, more than a record batch can hold")]
    TooLong {
        /// Which part.
        what: &'static str,
        /// Its length.
        bytes: usize,
    },
    /// A timestamp that is negative and not -1, or too far from the batch's first.
    #[error("the timestamp {timestamp_ms} cannot be written after a first one of {base_timestamp_ms}")]
    Timestamp {
        /// The timestamp in ms.
        timestamp_ms: i64,
        /// The batch's first timestamp in ms.
        base_timestamp_ms: i64,
    },
    /// The batch's offsets begin below 0 or end beyond their range.
    #[error("the batch's offsets leave their range")]
    Offsets,
    /// The batch covers no offset: nothing was pushed or skipped.
    #[error("the batch covers no offset")]
    Empty,
    /// The records cannot be compressed.
    #[error(transparent)]
    Compress(#[from] CompressError),
}

/// Writes one record batch of format v2.
///
/// ```
/// use tidegate_model::Header;
/// use tidegate_wire::{BatchLimits, BatchOptions, BatchWriter, split_batches};
///
/// let mut writer = BatchWriter::new(BatchOptions::default());
/// let headers = [Header { name: b"a", value: Some(b"1") }, Header { name: b"a", value: None }];
/// writer.push(1_714_521_600_000, Some(b"key"), None, headers)?;
/// let batch = split_batches(writer.finish()?).next().ok_or("no batch")??;
/// assert_eq!(batch.open(&BatchLimits::default())?.records().count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct BatchWriter {
    options: BatchOptions,
    /// Room for the header, then the records: an uncompressed batch is finished without a copy.
    buffer: Vec<u8>,
    base_timestamp_ms: Option<i64>,
    max_timestamp_ms: i64,
    next_delta: i32,
    record_count: i32,
}

impl BatchWriter {
    /// A batch without records.
    pub fn new(options: BatchOptions) -> Self {
        Self::with_capacity(options, 0)
    }

    /// A batch without records, with room for so many bytes of them.
    pub(crate) fn with_capacity(options: BatchOptions, records_bytes: usize) -> Self {
        let mut buffer = Vec::with_capacity(HEADER_BYTES.saturating_add(records_bytes));
        buffer.resize(HEADER_BYTES, 0);
        Self { options, buffer, base_timestamp_ms: None, max_timestamp_ms: -1, next_delta: 0, record_count: 0 }
    }

    /// How many records were pushed.
    pub fn record_count(&self) -> i32 {
        self.record_count
    }

    /// The size of the batch if it were finished now without compression, header included.
    pub fn bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Appends a record at the next offset. A `None` key or value is null, which is not the empty one.
    ///
    /// # Errors
    /// [`WriteError`] for a timestamp below -1, for lengths beyond 31 bits, and when the offsets run out.
    pub fn push<'a, H>(
        &mut self,
        timestamp_ms: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: H,
    ) -> Result<(), WriteError>
    where
        H: IntoIterator<Item = Header<'a>, IntoIter: Clone>,
    {
        if timestamp_ms < -1 {
            let base_timestamp_ms = self.base_timestamp_ms.unwrap_or(timestamp_ms);
            return Err(WriteError::Timestamp { timestamp_ms, base_timestamp_ms });
        }
        self.append(timestamp_ms, key, value, headers)
    }

    /// As [`BatchWriter::push`], with any timestamp: what stands in a log is kept as it is.
    pub(crate) fn append<'a, H>(
        &mut self,
        timestamp_ms: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: H,
    ) -> Result<(), WriteError>
    where
        H: IntoIterator<Item = Header<'a>, IntoIter: Clone>,
    {
        let base_timestamp_ms = self.base_timestamp_ms.unwrap_or(timestamp_ms);
        let refused = WriteError::Timestamp { timestamp_ms, base_timestamp_ms };
        let timestamp_delta = timestamp_ms.checked_sub(base_timestamp_ms).ok_or(refused)?;
        let next_delta = self.next_delta.checked_add(1).ok_or(WriteError::Offsets)?;
        let record_count = self.record_count.checked_add(1).ok_or(WriteError::Offsets)?;

        let headers = headers.into_iter();
        let mut header_count = 0_i32;
        let mut header_bytes = 0_usize;
        for header in headers.clone() {
            header_count = header_count.checked_add(1).ok_or(too_long("record", usize::MAX))?;
            let name = field_len("header name", Some(header.name))?;
            let value = field_len("header value", header.value)?;
            header_bytes = header_bytes.saturating_add(name).saturating_add(value);
        }
        let length = 1_usize
            .saturating_add(varint_len(timestamp_delta))
            .saturating_add(varint_len(i64::from(self.next_delta)))
            .saturating_add(field_len("key", key)?)
            .saturating_add(field_len("value", value)?)
            .saturating_add(varint_len(i64::from(header_count)))
            .saturating_add(header_bytes);
        let length_field = i32::try_from(length).map_err(|_| too_long("record", length))?;
        let total = self.buffer.len().saturating_add(length).saturating_add(varint_len(i64::from(length_field)));
        if i32::try_from(total).is_err() {
            return Err(too_long("batch", total));
        }

        let out = &mut self.buffer;
        out.reserve(total - out.len());
        write_varint(out, length_field);
        // The record's attributes; no bit of them is in use.
        out.push(0);
        write_varlong(out, timestamp_delta);
        write_varint(out, self.next_delta);
        write_field(out, key);
        write_field(out, value);
        write_varint(out, header_count);
        for header in headers {
            write_field(out, Some(header.name));
            write_field(out, header.value);
        }
        debug_assert_eq!(out.len(), total);
        self.base_timestamp_ms = Some(base_timestamp_ms);
        self.max_timestamp_ms = self.max_timestamp_ms.max(timestamp_ms);
        self.next_delta = next_delta;
        self.record_count = record_count;
        Ok(())
    }

    /// Leaves out `offsets` offsets, as compaction does: before the next record, or at the end of the batch. A batch of
    /// skipped offsets alone is an emptied one, which still moves a reader on.
    ///
    /// # Errors
    /// [`WriteError::Offsets`] when the offsets run out.
    pub fn skip(&mut self, offsets: u32) -> Result<(), WriteError> {
        self.next_delta = self.next_delta.checked_add_unsigned(offsets).ok_or(WriteError::Offsets)?;
        Ok(())
    }

    /// The finished batch, with a valid CRC.
    ///
    /// # Errors
    /// [`WriteError::Empty`] when nothing was pushed or skipped, [`WriteError::Offsets`] when they leave the range from 0
    /// to 2^63 - 2, [`WriteError::Compress`] when the codec fails, and [`WriteError::TooLong`] when the compressed batch is
    /// beyond 31 bits.
    pub fn finish(self) -> Result<Bytes, WriteError> {
        let mut header = self.header()?;
        let mut batch = self.buffer;
        if self.options.compression != Compression::None {
            let records = batch.get(HEADER_BYTES..).unwrap_or_default();
            let compressed = compression::compress(self.options.compression, records)?;
            batch.truncate(HEADER_BYTES);
            batch.extend_from_slice(&compressed);
        }
        header.batch_length = length_field(batch.len())?;
        if let Some(place) = batch.first_chunk_mut() {
            write_fields(&header, place);
        }
        renew_crc(&mut batch);
        Ok(batch.into())
    }

    /// The batch as a reader holds it, uncompressed and without a CRC.
    ///
    /// # Errors
    /// As [`BatchWriter::finish`].
    pub(crate) fn into_record_batch(self) -> Result<RecordBatch, WriteError> {
        let header = BatchHeader { batch_length: length_field(self.buffer.len())?, ..self.header()? };
        let bytes = compression::into_bytes(self.buffer);
        Ok(RecordBatch::new(header, bytes.slice(HEADER_BYTES.min(bytes.len())..)))
    }

    /// The header, but for length and CRC.
    fn header(&self) -> Result<BatchHeader, WriteError> {
        if self.next_delta == 0 {
            return Err(WriteError::Empty);
        }
        // A reader's next position, the offset after the last one, must exist too.
        let base_offset = self.options.base_offset;
        if base_offset < 0 || base_offset.checked_add(i64::from(self.next_delta)).is_none() {
            return Err(WriteError::Offsets);
        }
        Ok(BatchHeader {
            base_offset,
            batch_length: 0,
            partition_leader_epoch: self.options.leader_epoch,
            crc: 0,
            attributes: self.options.attributes(),
            last_offset_delta: self.next_delta - 1,
            base_timestamp: self.base_timestamp_ms.unwrap_or(-1),
            max_timestamp: self.options.log_append_time_ms.unwrap_or(self.max_timestamp_ms),
            producer_id: self.options.producer_id,
            producer_epoch: self.options.producer_epoch,
            base_sequence: self.options.base_sequence,
            record_count: self.record_count,
        })
    }
}

/// The length field of a batch of `bytes`.
fn length_field(bytes: usize) -> Result<i32, WriteError> {
    i32::try_from(bytes.saturating_sub(LENGTH_PREFIX_BYTES)).map_err(|_| too_long("batch", bytes))
}

fn too_long(what: &'static str, bytes: usize) -> WriteError {
    WriteError::TooLong { what, bytes }
}

/// How many bytes a nullable field takes with its length.
fn field_len(what: &'static str, field: Option<&[u8]>) -> Result<usize, WriteError> {
    let Some(field) = field else { return Ok(1) };
    let length = i32::try_from(field.len()).map_err(|_| too_long(what, field.len()))?;
    Ok(field.len() + varint_len(i64::from(length)))
}

/// Writes a nullable field. Its length was checked by [`field_len`].
fn write_field(out: &mut Vec<u8>, field: Option<&[u8]>) {
    match field {
        None => write_varint(out, -1),
        Some(field) => {
            write_varlong(out, i64::try_from(field.len()).unwrap_or(i64::MAX));
            out.extend_from_slice(field);
        }
    }
}

//! What a broker checks before it appends a producer's batch.
//!
//! Source: `org.apache.kafka.storage.internals.log.LogValidator`, `ProduceRequest.validateRecords`, and the append path of
//! `UnifiedLog`. A log that held a batch breaking these rules could not be read back by offset.

use bytes::Bytes;
use tidegate_model::{RecordBatch, TimestampType};

use super::error::{BatchError, BatchSpan};
use super::raw::{BatchLimits, RawBatch};
use super::split::split_batches;
use super::timestamps::{TimestampIndex, TimestampOffset};

/// A producer's batch that passed [`check_produced`].
#[derive(Clone, Debug)]
pub struct ProducedBatch {
    /// As received.
    pub raw: RawBatch,
    /// Its records, uncompressed.
    pub records: RecordBatch,
    /// The timestamps that its records really have, the offset of the largest counted from the batch's own base offset.
    /// Where the maximum differs from the header's, append [`super::with_max_timestamp`] of it.
    pub timestamps: TimestampIndex,
    /// The first record without a key, counted from 0: a compacted topic takes none.
    pub first_null_key: Option<i32>,
}

/// Why a producer's record set is refused. Kafka's error code is named with each variant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProduceBatchError {
    /// The record set cannot be read: CORRUPT_MESSAGE; UNSUPPORTED_FOR_MESSAGE_FORMAT for another format.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The record set holds no batch, several, or one that is cut off: INVALID_RECORD.
    #[error("the record set holds {batches} whole record batches and {left_over} bytes beside them, not one batch")]
    NotOneBatch {
        /// How many whole ones; counting stops at 2.
        batches: usize,
        /// How many bytes are not part of a whole one.
        left_over: usize,
    },
    /// A client must not write control records: INVALID_RECORD.
    #[error("a producer must not write control records")]
    Control,
    /// A producer counts its offsets from 0: INVALID_RECORD.
    #[error("a producer's base offset is 0, not {base_offset}")]
    BaseOffset {
        /// What it says.
        base_offset: i64,
    },
    /// Record count and offsets do not fit, or there is no record: INVALID_RECORD.
    #[error("the batch states {record_count} records and a last offset delta of {last_offset_delta}")]
    Count {
        /// How many records it states.
        record_count: i32,
        /// Its last offset delta.
        last_offset_delta: i32,
    },
    /// A record's offset delta is not its place in the batch: INVALID_RECORD.
    #[error("record {index} of the batch has offset delta {offset_delta}")]
    OffsetDelta {
        /// Which record, from 0.
        index: i32,
        /// Its offset delta.
        offset_delta: i64,
    },
    /// A producer with an id states no sequence or epoch, or a transaction has no producer: INVALID_RECORD.
    #[error("producer id {producer_id}, epoch {producer_epoch} and base sequence {base_sequence} do not fit together")]
    Producer {
        /// The producer's id.
        producer_id: i64,
        /// Its epoch.
        producer_epoch: i16,
        /// The first sequence number.
        base_sequence: i32,
    },
    /// Only the broker sets LogAppendTime: INVALID_TIMESTAMP.
    #[error("a producer must not set the timestamp type to LogAppendTime")]
    LogAppendTime,
}

/// Checks the record set of one partition of a produce request: exactly one batch of format v2, with a right CRC whatever
/// `limits` say, whose records decompress within the limits and whose counts, offsets and lengths agree with each other.
///
/// Not checked, for want of the topic's configuration and the producer's history: size, compaction's need of keys
/// ([`ProducedBatch::first_null_key`]), timestamp bounds, sequence numbers.
///
/// # Errors
/// [`ProduceBatchError`] names the first rule that is broken.
pub fn check_produced(record_set: Bytes, limits: &BatchLimits) -> Result<ProducedBatch, ProduceBatchError> {
    let raw = only_batch(record_set)?;
    raw.verify_crc()?;
    check_header(&raw)?;
    let records = raw.open(&BatchLimits { check_crcs: false, ..*limits })?;
    check_records(raw, records)
}

fn only_batch(record_set: Bytes) -> Result<RawBatch, ProduceBatchError> {
    let bytes = record_set.len();
    let mut batches = split_batches(record_set);
    let first = batches.next().transpose()?;
    match first {
        Some(batch) if batch.bytes().len() == bytes => Ok(batch),
        Some(batch) => {
            let left_over = bytes.saturating_sub(batch.bytes().len());
            match batches.next().transpose()? {
                Some(second) => {
                    let left_over = left_over.saturating_sub(second.bytes().len());
                    Err(ProduceBatchError::NotOneBatch { batches: 2, left_over })
                }
                None => Err(ProduceBatchError::NotOneBatch { batches: 1, left_over }),
            }
        }
        None => Err(ProduceBatchError::NotOneBatch { batches: 0, left_over: bytes }),
    }
}

fn check_header(raw: &RawBatch) -> Result<(), ProduceBatchError> {
    let header = raw.header();
    if header.attributes.is_control() {
        return Err(ProduceBatchError::Control);
    }
    if header.attributes.timestamp_type() == TimestampType::LogAppendTime {
        return Err(ProduceBatchError::LogAppendTime);
    }
    if header.base_offset != 0 {
        return Err(ProduceBatchError::BaseOffset { base_offset: header.base_offset });
    }
    if header.record_count < 1 || header.last_offset_delta != header.record_count - 1 {
        return Err(ProduceBatchError::Count {
            record_count: header.record_count,
            last_offset_delta: header.last_offset_delta,
        });
    }
    let has_producer = header.producer_id >= 0;
    let lacks_marks = header.producer_epoch < 0 || header.base_sequence < 0;
    if (has_producer && lacks_marks) || (!has_producer && header.attributes.is_transactional()) {
        return Err(ProduceBatchError::Producer {
            producer_id: header.producer_id,
            producer_epoch: header.producer_epoch,
            base_sequence: header.base_sequence,
        });
    }
    Ok(())
}

fn check_records(raw: RawBatch, records: RecordBatch) -> Result<ProducedBatch, ProduceBatchError> {
    let header = raw.header();
    let unreadable = |source| BatchError::Record { at: BatchSpan::of(header), source };
    let mut timestamps = TimestampIndex::EMPTY;
    let mut first_null_key = None;
    // A batch states at most 2^31 - 1 records, so the zip does not end before them.
    for (index, record) in (0_i32..=i32::MAX).zip(records.records()) {
        let record = record.map_err(unreadable)?;
        if record.offset != i64::from(index) {
            return Err(ProduceBatchError::OffsetDelta { index, offset_delta: record.offset });
        }
        timestamps.observe(TimestampOffset { timestamp_ms: record.timestamp_ms, offset: record.offset });
        if record.key.is_none() && first_null_key.is_none() {
            first_null_key = Some(index);
        }
    }
    Ok(ProducedBatch { raw, records, timestamps, first_null_key })
}

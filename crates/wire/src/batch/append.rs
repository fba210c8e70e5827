//! What a broker changes in a batch when it appends it to the log.

use bytes::Bytes;
use tidegate_model::BatchHeader;

use super::header::{ATTRIBUTES_AT, CRC_AT, CRC_START, HEADER_BYTES, LEADER_EPOCH_AT, MAX_TIMESTAMP_AT};
use super::raw::RawBatch;

/// The batch as it goes into the log at `base_offset`, in the epoch `leader_epoch`.
///
/// Base offset and leader epoch lie outside the CRC and are all that changes under CreateTime. Under LogAppendTime (the
/// append's time in ms given) the timestamp type bit and the max timestamp change too, and with them the CRC; the records'
/// own timestamps stay and are overridden when they are read.
///
/// The batch must have been checked before ([`RawBatch::verify_crc`], [`super::check_produced`]): a new CRC over damaged
/// bytes would hide the damage.
pub fn rewrite_for_append(
    raw: &RawBatch,
    base_offset: i64,
    leader_epoch: i32,
    log_append_time_ms: Option<i64>,
) -> Bytes {
    let mut batch = raw.bytes().to_vec();
    put(&mut batch, 0, &base_offset.to_be_bytes());
    put(&mut batch, LEADER_EPOCH_AT, &leader_epoch.to_be_bytes());
    if let Some(time_ms) = log_append_time_ms {
        let attributes = raw.header().attributes.0 | LOG_APPEND_TIME_BIT;
        put(&mut batch, ATTRIBUTES_AT, &attributes.to_be_bytes());
        put(&mut batch, MAX_TIMESTAMP_AT, &time_ms.to_be_bytes());
        renew_crc(&mut batch);
    }
    batch.into()
}

/// The batch with another max timestamp and a new CRC: for a producer that states one which its records do not have
/// ([`super::ProducedBatch::timestamps`]). Kafka's log validator corrects it silently too, since the time index rests on it.
///
/// As with [`rewrite_for_append`], the batch must have been checked before.
#[must_use]
pub fn with_max_timestamp(raw: &RawBatch, max_timestamp_ms: i64) -> RawBatch {
    let mut batch = raw.bytes().to_vec();
    put(&mut batch, MAX_TIMESTAMP_AT, &max_timestamp_ms.to_be_bytes());
    let crc = renew_crc(&mut batch);
    let header = BatchHeader { max_timestamp: max_timestamp_ms, crc, ..*raw.header() };
    RawBatch::from_parts(header, batch.into())
}

pub(crate) const LOG_APPEND_TIME_BIT: i16 = 0x08;

/// Writes `field` at one of the header's offsets; a [`RawBatch`] is never shorter than its header.
fn put(batch: &mut [u8], at: usize, field: &[u8]) {
    debug_assert!(at + field.len() <= HEADER_BYTES);
    if let Some(place) = batch.get_mut(at..at + field.len()) {
        place.copy_from_slice(field);
    }
}

/// Computes the CRC of a whole batch, header included, and writes it in.
pub(crate) fn renew_crc(batch: &mut [u8]) -> u32 {
    let crc = crate::crc32c(batch.get(CRC_START..).unwrap_or_default());
    put(batch, CRC_AT, &crc.to_be_bytes());
    crc
}

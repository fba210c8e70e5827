//! Offsets by time: the first record in offset order whose timestamp is at or after a given one, exactly.
//!
//! Within a segment the running maximum of the timestamps never falls, so the first batch whose running maximum reaches the
//! time is the first one that holds such a record; inside it the records are read one by one, decompressed if need be.

use std::io;
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use tidegate_model::{NO_TIMESTAMP, RecordBatch};
use tidegate_wire::{BatchError, BatchLimits, TimestampOffset, split_batches};

use super::index::{Index, IndexEntry};
use super::segment::{FilePool, SegmentFiles, Stretch};
use super::view::View;

/// Why a time could not be looked up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LookupError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Batch(#[from] BatchError),
}

/// The first record at or after the view's log start whose timestamp is `timestamp_ms` or later.
pub(crate) fn first_at_or_after(
    view: &View,
    pool: &FilePool,
    timestamp_ms: i64,
    limits: &BatchLimits,
) -> Result<Option<TimestampOffset>, LookupError> {
    let start = view.log_start_offset;
    for Stretch { segment, extent } in view.stretches_from(start) {
        if extent.entries == 0 || extent.max_timestamp < timestamp_ms {
            continue;
        }
        let files = pool.open(segment)?;
        let index = Index::new(&files.index, extent.entries);
        let first = index.partition_point(|entry| entry.running_max < timestamp_ms)?;
        // The maximum can come from records that were deleted; then the search goes on from those that were not.
        let first = if segment.base_offset() < start {
            first.max(index.partition_point(|entry| entry.last_offset < start)?)
        } else {
            first
        };
        for number in first..index.len() {
            let entry = index.get(number)?;
            if entry.max_timestamp < timestamp_ms {
                continue;
            }
            let batch = read_batch(&files, &entry, limits)?;
            if let Some(found) = first_in_batch(&batch, start, timestamp_ms)? {
                return Ok(Some(found));
            }
        }
    }
    Ok(None)
}

/// The first record with the largest timestamp at or after the view's log start; `None` when no record has a timestamp.
pub(crate) fn max_timestamp(
    view: &View,
    pool: &FilePool,
    limits: &BatchLimits,
) -> Result<Option<TimestampOffset>, LookupError> {
    let start = view.log_start_offset;
    let mut max = NO_TIMESTAMP;
    for Stretch { segment, extent } in view.stretches_from(start) {
        if extent.entries == 0 {
            continue;
        }
        if segment.base_offset() >= start {
            max = max.max(extent.max_timestamp);
            continue;
        }
        // A part of this segment was deleted: its own maximum may be gone.
        let files = pool.open(segment)?;
        let index = Index::new(&files.index, extent.entries);
        for number in index.partition_point(|entry| entry.last_offset < start)?..index.len() {
            let entry = index.get(number)?;
            if entry.base_offset >= start {
                max = max.max(entry.max_timestamp);
                continue;
            }
            for record in read_batch(&files, &entry, limits)?.records() {
                let record = record.map_err(|error| damaged(&error))?;
                if record.offset >= start {
                    max = max.max(record.timestamp_ms);
                }
            }
        }
    }
    if max < 0 { Ok(None) } else { first_at_or_after(view, pool, max, limits) }
}

fn first_in_batch(batch: &RecordBatch, start: i64, timestamp_ms: i64) -> Result<Option<TimestampOffset>, LookupError> {
    for record in batch.records() {
        let record = record.map_err(|error| damaged(&error))?;
        if record.offset >= start && record.timestamp_ms >= timestamp_ms {
            return Ok(Some(TimestampOffset { timestamp_ms: record.timestamp_ms, offset: record.offset }));
        }
    }
    Ok(None)
}

fn read_batch(files: &SegmentFiles, entry: &IndexEntry, limits: &BatchLimits) -> Result<RecordBatch, LookupError> {
    let mut bytes = vec![0; entry.size as usize];
    files.log.read_exact_at(&mut bytes, u64::from(entry.position))?;
    entry.check(&bytes)?;
    let batch = split_batches(Bytes::from(bytes)).next();
    let batch = batch.ok_or_else(|| damaged(&"the index points at no batch"))??;
    Ok(batch.open(limits)?)
}

fn damaged(reason: &dyn std::fmt::Display) -> LookupError {
    LookupError::Io(io::Error::new(io::ErrorKind::InvalidData, reason.to_string()))
}

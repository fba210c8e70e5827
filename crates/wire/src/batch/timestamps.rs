//! Exact timestamps of a batch, for a broker's time index and time lookups.

use tidegate_model::{RecordBatch, RecordError};

/// One record's timestamp and offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampOffset {
    /// The timestamp in ms.
    pub timestamp_ms: i64,
    /// The offset of the record that carries it.
    pub offset: i64,
}

/// The timestamps of a batch's records as they are, whatever its header states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampIndex {
    /// How many records the batch holds.
    pub records: u32,
    /// The largest timestamp, at the first record that carries it; `None` for a batch without records.
    pub max: Option<TimestampOffset>,
    /// The smallest timestamp; `None` for a batch without records. -1 counts: it is below every time.
    pub min_timestamp_ms: Option<i64>,
}

impl TimestampIndex {
    pub(crate) const EMPTY: Self = Self { records: 0, max: None, min_timestamp_ms: None };

    pub(crate) fn observe(&mut self, record: TimestampOffset) {
        self.records = self.records.saturating_add(1);
        if self.max.is_none_or(|max| max.timestamp_ms < record.timestamp_ms) {
            self.max = Some(record);
        }
        let min = self.min_timestamp_ms.map_or(record.timestamp_ms, |min| min.min(record.timestamp_ms));
        self.min_timestamp_ms = Some(min);
    }
}

/// Reads every record of the batch for its timestamps.
///
/// # Errors
/// [`RecordError`] when a record cannot be read.
pub fn index_timestamps(batch: &RecordBatch) -> Result<TimestampIndex, RecordError> {
    let mut index = TimestampIndex::EMPTY;
    for record in batch.records() {
        let record = record?;
        index.observe(TimestampOffset { timestamp_ms: record.timestamp_ms, offset: record.offset });
    }
    Ok(index)
}

/// The first record of the batch, in offset order, whose timestamp is `timestamp_ms` or later.
///
/// # Errors
/// [`RecordError`] when a record before it cannot be read.
pub fn first_at_or_after(batch: &RecordBatch, timestamp_ms: i64) -> Result<Option<TimestampOffset>, RecordError> {
    for record in batch.records() {
        let record = record?;
        if record.timestamp_ms >= timestamp_ms {
            return Ok(Some(TimestampOffset { timestamp_ms: record.timestamp_ms, offset: record.offset }));
        }
    }
    Ok(None)
}

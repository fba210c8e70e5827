//! The exact start of the newest N records of a partition.
//!
//! Offsets are no count: markers, aborted transactions and compaction leave gaps. So records are counted, from the end
//! towards the log start, stretch by stretch:
//!
//! ```text
//!            log start                                       end
//!            |       [ stretch 3 ) [ stretch 2 ) [ stretch 1 )
//! records              40            3             5            N = 20: 12 of stretch 3 are wanted, 28 are not
//! ```
//!
//! The first stretch has N offsets, which is all there is to do in a topic without gaps; each further one is at least twice
//! as long as the one before, so a sparse log takes few steps. Only the stretch that holds the start is read once more, up to
//! the start.

use tidegate_client::{Cluster, ReadError, ReaderOptions, Slice};
use tidegate_model::{OffsetRange, RecordBatch, TopicPartition};

use super::ReadRangeError;

/// The offset from which exactly `count` records can be delivered up to the end of `log`; its start when it holds fewer.
pub(super) async fn start_of_last(
    cluster: &Cluster,
    topic_partition: &TopicPartition,
    log: OffsetRange,
    count: u64,
    options: &ReaderOptions,
) -> Result<i64, ReadRangeError> {
    let mut log = log;
    let mut stretch = OffsetRange::new(log.end, log.end);
    let mut wanted = count;
    while wanted > 0 && stretch.start > log.start {
        stretch = stretch_before(&stretch, log.start, wanted);
        let found = match count_records(cluster, topic_partition, stretch, u64::MAX, options).await {
            Ok(counted) => counted.records,
            // Retention overtook us: the log now starts here, and the stretch is counted again from there.
            Err(ReadRangeError::Read(ReadError::OffsetOutOfRange { requested, log_start_offset, .. }))
                if log_start_offset > requested =>
            {
                log = OffsetRange::new(log_start_offset, log.end);
                let counted_end = stretch.end.max(log.start);
                stretch = OffsetRange::new(counted_end, counted_end);
                continue;
            }
            Err(error) => return Err(error),
        };
        if found > wanted {
            let surplus = count_records(cluster, topic_partition, stretch, found - wanted, options).await?;
            return Ok(surplus.next_offset);
        }
        wanted -= found;
    }
    Ok(stretch.start)
}

/// The next stretch towards the log start.
fn stretch_before(counted: &OffsetRange, log_start: i64, wanted: u64) -> OffsetRange {
    let offsets = wanted.max(counted.len().saturating_mul(2));
    let offsets = i64::try_from(offsets).unwrap_or(i64::MAX);
    OffsetRange { start: counted.start.saturating_sub(offsets).max(log_start), end: counted.start }
}

struct Counted {
    records: u64,
    /// The offset after the last record that was counted.
    next_offset: i64,
}

/// Counts the records of a range, and stops at `at_most`.
async fn count_records(
    cluster: &Cluster,
    topic_partition: &TopicPartition,
    range: OffsetRange,
    at_most: u64,
    options: &ReaderOptions,
) -> Result<Counted, ReadRangeError> {
    let mut counted = Counted { records: 0, next_offset: range.start };
    let slice = Slice { topic_partition: topic_partition.clone(), range };
    let mut reader = cluster.read(slice, options.clone());
    while let Some(chunk) = reader.next().await {
        for batch in &chunk?.batches {
            count_batch(&mut counted, batch, &range, at_most).map_err(|source| ReadRangeError::Record {
                topic_partition: topic_partition.clone(),
                offsets: offsets_of(batch),
                source,
            })?;
            if counted.records >= at_most {
                return Ok(counted);
            }
        }
    }
    Ok(counted)
}

fn count_batch(
    counted: &mut Counted,
    batch: &RecordBatch,
    range: &OffsetRange,
    at_most: u64,
) -> Result<(), tidegate_model::RecordError> {
    for record in batch.records() {
        let offset = record?.offset;
        if range.contains(offset) {
            counted.records += 1;
            counted.next_offset = offset.saturating_add(1);
            if counted.records >= at_most {
                break;
            }
        }
    }
    Ok(())
}

/// The offsets that a batch takes.
pub(super) fn offsets_of(batch: &RecordBatch) -> OffsetRange {
    OffsetRange::new(batch.header().base_offset, batch.header().next_offset())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_stretch_has_as_many_offsets_as_records_are_wanted() {
        let none = OffsetRange::new(100, 100);
        assert_eq!(stretch_before(&none, 0, 10), OffsetRange::new(90, 100));
        assert_eq!(stretch_before(&none, 95, 10), OffsetRange::new(95, 100));
        assert_eq!(stretch_before(&none, 0, u64::MAX), OffsetRange::new(0, 100));
    }

    #[test]
    fn each_further_stretch_is_at_least_twice_as_long() {
        let counted = OffsetRange::new(90, 100);
        assert_eq!(stretch_before(&counted, 0, 1), OffsetRange::new(70, 90));
        assert_eq!(stretch_before(&counted, 0, 50), OffsetRange::new(40, 90));
    }
}

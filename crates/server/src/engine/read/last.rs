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

use tidegate_client::{Fetcher, ReadError, ReaderOptions, Slice};
use tidegate_model::{OffsetRange, RecordBatch, RecordError, TopicPartition};

use super::ReadRangeError;

/// Counts the records of stretches of a log.
pub(super) trait Count: Sync {
    /// Counts the records of `stretch` from its start, and stops at `at_most`.
    fn count(&self, stretch: OffsetRange, at_most: u64)
    -> impl Future<Output = Result<Counted, ReadRangeError>> + Send;
}

/// What was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    records: u64,
    /// The offset after the last record that was counted.
    next_offset: i64,
}

/// The offset from which exactly `wanted` records can be delivered up to the end of `log`; its start when it holds fewer.
pub(super) async fn start_of_last(
    log: OffsetRange,
    wanted: u64,
    log_records: &impl Count,
) -> Result<i64, ReadRangeError> {
    let mut log_start = log.start;
    let mut wanted = wanted;
    let mut counted = OffsetRange::new(log.end, log.end);
    while wanted > 0 && counted.start > log_start {
        let stretch = stretch_before(&counted, log_start, wanted);
        match look(stretch, wanted, log_records).await {
            Ok(Found::Start(start)) => return Ok(start),
            Ok(Found::TooFew(records)) => {
                wanted -= records;
                counted = stretch;
            }
            // Retention overtook us: the stretch is counted again from where the log starts now.
            Err(error) => match moved_log_start(&error) {
                Some(moved) if moved > stretch.start => log_start = moved.min(counted.start),
                _ => return Err(error),
            },
        }
    }
    Ok(counted.start)
}

/// Where the log starts, when that is why its records could not be counted.
fn moved_log_start(error: &ReadRangeError) -> Option<i64> {
    match error {
        ReadRangeError::Read(error) => match **error {
            ReadError::OffsetOutOfRange { log_start_offset, .. } => Some(log_start_offset),
            _ => None,
        },
        _ => None,
    }
}

enum Found {
    Start(i64),
    TooFew(u64),
}

/// Looks for the start in one stretch.
async fn look(stretch: OffsetRange, wanted: u64, log_records: &impl Count) -> Result<Found, ReadRangeError> {
    let records = log_records.count(stretch, u64::MAX).await?.records;
    match records.checked_sub(wanted) {
        None => Ok(Found::TooFew(records)),
        Some(0) => Ok(Found::Start(stretch.start)),
        Some(surplus) => Ok(Found::Start(log_records.count(stretch, surplus).await?.next_offset)),
    }
}

/// The next stretch towards the log start.
fn stretch_before(counted: &OffsetRange, log_start: i64, wanted: u64) -> OffsetRange {
    let offsets = wanted.max(counted.len().saturating_mul(2));
    let offsets = i64::try_from(offsets).unwrap_or(i64::MAX);
    OffsetRange { start: counted.start.saturating_sub(offsets).max(log_start), end: counted.start }
}

/// A partition's log, counted by reading it.
pub(super) struct Log<'a> {
    pub(super) fetcher: &'a Fetcher,
    pub(super) topic_partition: TopicPartition,
    pub(super) options: ReaderOptions,
}

impl Count for Log<'_> {
    async fn count(&self, stretch: OffsetRange, at_most: u64) -> Result<Counted, ReadRangeError> {
        let mut counted = Counted { records: 0, next_offset: stretch.start };
        let slice = Slice { topic_partition: self.topic_partition.clone(), range: stretch };
        let mut reader = self.fetcher.read(slice, self.options.clone());
        while let Some(chunk) = reader.next().await {
            for batch in &chunk?.batches {
                counted.add(batch, &stretch, at_most).map_err(|source| ReadRangeError::Record {
                    topic_partition: self.topic_partition.clone(),
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
}

impl Counted {
    fn add(&mut self, batch: &RecordBatch, stretch: &OffsetRange, at_most: u64) -> Result<(), RecordError> {
        for record in batch.records() {
            let offset = record?.offset;
            if self.records >= at_most {
                break;
            }
            if stretch.contains(offset) {
                self.records += 1;
                self.next_offset = offset.saturating_add(1);
            }
        }
        Ok(())
    }
}

/// The offsets that a batch takes.
pub(super) fn offsets_of(batch: &RecordBatch) -> OffsetRange {
    OffsetRange::new(batch.header().base_offset, batch.header().next_offset())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    use proptest::collection::btree_set;
    use proptest::prelude::*;
    use tidegate_model::TopicName;

    use super::*;

    /// A log in memory: the offsets that hold a record, and where the log starts. Counting may move the start.
    struct Fake {
        records: BTreeSet<i64>,
        log_start: Mutex<i64>,
        /// Where the log starts after the first count.
        log_start_later: i64,
        stretches: Mutex<Vec<OffsetRange>>,
    }

    impl Count for Fake {
        async fn count(&self, stretch: OffsetRange, at_most: u64) -> Result<Counted, ReadRangeError> {
            let log_start_offset = *self.log_start.lock().unwrap();
            if stretch.start < log_start_offset {
                return Err(ReadRangeError::from(ReadError::OffsetOutOfRange {
                    topic_partition: TopicPartition::new(TopicName::new("t").unwrap(), 0),
                    requested: stretch.start,
                    log_start_offset,
                    high_watermark: i64::MAX,
                }));
            }
            self.stretches.lock().unwrap().push(stretch);
            *self.log_start.lock().unwrap() = self.log_start_later;
            let mut counted = Counted { records: 0, next_offset: stretch.start };
            for offset in
                self.records.range(stretch.start..stretch.end).take(usize::try_from(at_most).unwrap_or(usize::MAX))
            {
                counted = Counted { records: counted.records + 1, next_offset: offset + 1 };
            }
            Ok(counted)
        }
    }

    fn search(fake: &Fake, log: OffsetRange, wanted: u64) -> i64 {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(start_of_last(log, wanted, fake)).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn exactly_the_wanted_records_lie_behind_the_start_whatever_the_gaps(
            records in btree_set(0_i64..2_000, 0..300),
            start in 0_i64..500,
            length in 0_i64..1_500,
            wanted in 0_u64..400,
            retention in prop_oneof![Just(0_i64), 0_i64..2_000],
        ) {
            let log = OffsetRange::new(start, start + length);
            let fake = Fake {
                records,
                log_start: Mutex::new(start),
                log_start_later: start.max(retention),
                stretches: Mutex::default(),
            };
            let found = search(&fake, log, wanted);
            prop_assert!(log.start <= found && found <= log.end);
            let log_start = *fake.log_start.lock().unwrap();
            let behind = fake.records.range(found..log.end).count() as u64;
            // Fewer only where the log holds no more.
            prop_assert!(behind == wanted || behind < wanted && found <= log_start, "{found}: {behind}");
        }
    }

    #[test]
    fn a_log_without_gaps_takes_one_count() {
        let fake = Fake {
            records: (0..1_000).collect(),
            log_start: Mutex::new(0),
            log_start_later: 0,
            stretches: Mutex::default(),
        };
        assert_eq!(search(&fake, OffsetRange::new(0, 1_000), 10), 990);
        assert_eq!(*fake.stretches.lock().unwrap(), [OffsetRange::new(990, 1_000)]);
    }

    #[test]
    fn a_sparse_log_takes_few_counts_and_none_twice() {
        let fake = Fake {
            records: [3, 1_000_000].into(),
            log_start: Mutex::new(0),
            log_start_later: 0,
            stretches: Mutex::default(),
        };
        assert_eq!(search(&fake, OffsetRange::new(0, 2_000_000), 2), 0);
        let stretches = fake.stretches.lock().unwrap();
        assert!(stretches.len() < 25, "{}", stretches.len());
        assert!(stretches.windows(2).all(|pair| pair[1].end == pair[0].start));
    }

    #[test]
    fn the_first_stretch_has_as_many_offsets_as_records_are_wanted() {
        let none = OffsetRange::new(100, 100);
        assert_eq!(stretch_before(&none, 0, 10), OffsetRange::new(90, 100));
        assert_eq!(stretch_before(&none, 95, 10), OffsetRange::new(95, 100));
        assert_eq!(stretch_before(&none, 0, u64::MAX), OffsetRange::new(0, 100));
    }
}

//! What a partition remembers of its idempotent producers, to tell a repeated batch from a new one.
//!
//! Source: KIP-98; `org.apache.kafka.storage.internals.log.ProducerStateManager` and `ProducerAppendInfo`. Five batches a
//! producer are remembered, as many as an idempotent producer may have in flight.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tidegate_model::BatchHeader;

use super::segment::{file_name, offset_of};
use super::text::{self, TextKind};

/// The ending of a snapshot's file; its name is the offset up to which the log is accounted for.
pub(crate) const SNAPSHOT: &str = "producers";

const KIND: TextKind = TextKind { name: "tidegate-producers", version: 1 };
const REMEMBERED_BATCHES: usize = 5;

/// Snapshots that are kept. The one before the last serves when the last is damaged.
const KEPT_SNAPSHOTS: usize = 2;

/// The producers of one partition.
#[derive(Clone, Debug)]
pub(crate) struct Producers {
    known: HashMap<i64, Producer>,
    most: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Producer {
    epoch: i16,
    last_seen_ms: i64,
    /// The last batches, oldest first; never empty.
    batches: VecDeque<SequencedBatch>,
}

/// One appended batch of an idempotent producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SequencedBatch {
    first_sequence: i32,
    last_sequence: i32,
    pub(crate) base_offset: i64,
    /// The batch's max timestamp: the append time under LogAppendTime.
    pub(crate) max_timestamp: i64,
}

/// What a batch is to the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Novelty {
    /// Not seen before.
    New,
    /// Appended before, there.
    Duplicate(SequencedBatch),
}

/// Why a batch of an idempotent producer is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SequenceError {
    #[error("producer {producer_id} sent sequence {found} in epoch {epoch}, expected was {expected}")]
    OutOfOrder { producer_id: i64, epoch: i16, expected: i32, found: i32 },
    #[error("producer {producer_id} sent epoch {found}, the current one is {current}")]
    Fenced { producer_id: i64, current: i16, found: i16 },
}

impl Producers {
    /// Nobody, and room for `most`.
    pub(crate) fn new(most: usize) -> Self {
        Self { known: HashMap::new(), most: most.max(1) }
    }

    /// Checks a batch's producer id, epoch and sequence. A batch without a producer id is always new.
    pub(crate) fn check(&self, header: &BatchHeader) -> Result<Novelty, SequenceError> {
        let (producer_id, epoch, found) = (header.producer_id, header.producer_epoch, header.base_sequence);
        if producer_id < 0 {
            return Ok(Novelty::New);
        }
        // An unknown producer may begin anywhere: its records may be gone by retention, or it was forgotten.
        let Some(producer) = self.known.get(&producer_id) else { return Ok(Novelty::New) };
        if epoch < producer.epoch {
            return Err(SequenceError::Fenced { producer_id, current: producer.epoch, found: epoch });
        }
        let expected = if epoch > producer.epoch {
            0
        } else {
            let last_sequence = last_sequence(header);
            let seen = |b: &&SequencedBatch| b.first_sequence == found && b.last_sequence == last_sequence;
            if let Some(batch) = producer.batches.iter().find(seen) {
                return Ok(Novelty::Duplicate(*batch));
            }
            producer.batches.back().map_or(0, |last| sequence_after(last.last_sequence, 1))
        };
        if found != expected {
            return Err(SequenceError::OutOfOrder { producer_id, epoch, expected, found });
        }
        Ok(Novelty::New)
    }

    /// Notes an appended batch. `header` is the one in the log, with its offset; `now_ms` counts for the expiry.
    pub(crate) fn record(&mut self, header: &BatchHeader, now_ms: i64) {
        if header.producer_id < 0 {
            return;
        }
        let batch = SequencedBatch {
            first_sequence: header.base_sequence,
            last_sequence: last_sequence(header),
            base_offset: header.base_offset,
            max_timestamp: header.max_timestamp,
        };
        let producer = self.known.entry(header.producer_id).or_insert_with(|| Producer {
            epoch: header.producer_epoch,
            last_seen_ms: now_ms,
            batches: VecDeque::with_capacity(REMEMBERED_BATCHES),
        });
        if producer.epoch != header.producer_epoch {
            producer.epoch = header.producer_epoch;
            producer.batches.clear();
        }
        if producer.batches.len() == REMEMBERED_BATCHES {
            producer.batches.pop_front();
        }
        producer.batches.push_back(batch);
        producer.last_seen_ms = now_ms;
        if self.known.len() > self.most {
            self.forget_oldest();
        }
    }

    /// Forgets those that were last seen before `before_ms`.
    pub(crate) fn expire(&mut self, before_ms: i64) {
        self.known.retain(|_, producer| producer.last_seen_ms >= before_ms);
    }

    /// Makes room for a tenth more at a time, so that the search for the oldest is not paid by every newcomer.
    fn forget_oldest(&mut self) {
        let mut seen: Vec<(i64, i64)> = self.known.iter().map(|(id, p)| (p.last_seen_ms, *id)).collect();
        seen.sort_unstable();
        let surplus = self.known.len() - self.most;
        for (_, id) in seen.into_iter().take(surplus.max(self.most / 10)) {
            self.known.remove(&id);
        }
    }

    /// Writes what is known at `offset`, and removes snapshots that are no longer needed.
    pub(crate) fn write_snapshot(&self, folder: &Path, offset: i64, durable: bool) -> io::Result<()> {
        let mut lines: Vec<(&str, String)> = Vec::with_capacity(self.known.len());
        for (id, producer) in &self.known {
            let mut line = format!("{id} {} {}", producer.epoch, producer.last_seen_ms);
            for b in &producer.batches {
                line += &format!(" {},{},{},{}", b.first_sequence, b.last_sequence, b.base_offset, b.max_timestamp);
            }
            lines.push(("producer", line));
        }
        text::write(&folder.join(file_name(offset, SNAPSHOT)), KIND, &lines, durable)?;
        for (_, path) in snapshots(folder)?.into_iter().rev().skip(KEPT_SNAPSHOTS) {
            fs::remove_file(path)?;
        }
        Ok(())
    }

    /// The newest snapshot that is whole and not beyond `log_end`, with its offset; nobody from `log_start` on when there
    /// is none. Snapshots beyond the log's end are removed: the log will grow past them with other records.
    pub(crate) fn load_snapshot(folder: &Path, most: usize, log_start: i64, log_end: i64) -> io::Result<(Self, i64)> {
        for (offset, path) in snapshots(folder)?.into_iter().rev() {
            if offset > log_end {
                fs::remove_file(path)?;
            } else if let Ok(Some(lines)) = text::read(&path, KIND)
                && let Some(known) = lines.iter().map(|(_, line)| parse(line)).collect::<Option<HashMap<_, _>>>()
            {
                return Ok((Self { known, most: most.max(1) }, offset));
            } else {
                tracing::warn!(path = %path.display(), "a producer snapshot is damaged and left aside");
            }
        }
        Ok((Self::new(most), log_start))
    }
}

/// The snapshots of a folder, by offset.
fn snapshots(folder: &Path) -> io::Result<Vec<(i64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if let Some(offset) = offset_of(&path, SNAPSHOT) {
            found.push((offset, path));
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn parse(line: &str) -> Option<(i64, Producer)> {
    let mut words = line.split(' ');
    let id = words.next()?.parse().ok()?;
    let epoch = words.next()?.parse().ok()?;
    let last_seen_ms = words.next()?.parse().ok()?;
    let batches: VecDeque<_> = words.map(parse_batch).collect::<Option<_>>()?;
    let right_size = (1..=REMEMBERED_BATCHES).contains(&batches.len());
    right_size.then_some((id, Producer { epoch, last_seen_ms, batches }))
}

fn parse_batch(word: &str) -> Option<SequencedBatch> {
    let mut numbers = word.split(',');
    let batch = SequencedBatch {
        first_sequence: numbers.next()?.parse().ok()?,
        last_sequence: numbers.next()?.parse().ok()?,
        base_offset: numbers.next()?.parse().ok()?,
        max_timestamp: numbers.next()?.parse().ok()?,
    };
    numbers.next().is_none().then_some(batch)
}

fn last_sequence(header: &BatchHeader) -> i32 {
    sequence_after(header.base_sequence, header.last_offset_delta)
}

/// Sequence numbers go from 0 to `i32::MAX` and round again.
fn sequence_after(sequence: i32, steps: i32) -> i32 {
    let sum = i64::from(sequence) + i64::from(steps);
    i32::try_from(sum.rem_euclid(1 << 31)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(producer_id: i64, epoch: i16, sequence: i32, records: i32, base_offset: i64) -> BatchHeader {
        BatchHeader {
            base_offset,
            producer_id,
            producer_epoch: epoch,
            base_sequence: sequence,
            last_offset_delta: records - 1,
            record_count: records,
            max_timestamp: base_offset * 10,
            ..BatchHeader::default()
        }
    }

    /// Checks and notes batches one after another at growing offsets.
    fn append(producers: &mut Producers, batches: &[(i64, i16, i32, i32)]) {
        let mut offset = 1_000;
        for &(id, epoch, sequence, records) in batches {
            let header = batch(id, epoch, sequence, records, offset);
            assert_eq!(producers.check(&header), Ok(Novelty::New), "{sequence}");
            producers.record(&header, offset);
            offset += i64::from(records);
        }
    }

    #[test]
    fn each_of_the_last_five_batches_is_known_again_at_its_offset() {
        let mut producers = Producers::new(10);
        append(&mut producers, &[(1, 0, 0, 2), (1, 0, 2, 2), (1, 0, 4, 2), (1, 0, 6, 2), (1, 0, 8, 2), (1, 0, 10, 2)]);
        for sequence in [2, 4, 6, 8, 10] {
            match producers.check(&batch(1, 0, sequence, 2, 0)) {
                Ok(Novelty::Duplicate(found)) => assert_eq!(found.base_offset, 1_000 + i64::from(sequence)),
                other => panic!("{sequence}: {other:?}"),
            }
        }
        let forgotten = producers.check(&batch(1, 0, 0, 2, 0));
        assert_eq!(forgotten, Err(SequenceError::OutOfOrder { producer_id: 1, epoch: 0, expected: 12, found: 0 }));
    }

    #[test]
    fn a_gap_is_refused_and_so_is_the_same_start_with_another_length() {
        let mut producers = Producers::new(10);
        append(&mut producers, &[(1, 0, 0, 3)]);
        for (sequence, records) in [(4, 1), (0, 2), (2, 1)] {
            let error = producers.check(&batch(1, 0, sequence, records, 0)).unwrap_err();
            assert!(matches!(error, SequenceError::OutOfOrder { expected: 3, .. }), "{error}");
        }
    }

    #[test]
    fn a_new_epoch_begins_at_zero_and_fences_the_old_one() {
        let mut producers = Producers::new(10);
        append(&mut producers, &[(1, 4, 0, 3)]);
        let error = producers.check(&batch(1, 5, 3, 1, 0)).unwrap_err();
        assert!(matches!(error, SequenceError::OutOfOrder { epoch: 5, expected: 0, .. }));
        append(&mut producers, &[(1, 5, 0, 1)]);
        let old = producers.check(&batch(1, 4, 3, 1, 0));
        assert_eq!(old, Err(SequenceError::Fenced { producer_id: 1, current: 5, found: 4 }));
    }

    #[test]
    fn sequences_go_round_after_the_largest() {
        let mut producers = Producers::new(10);
        // Sequences MAX - 1, MAX and 0.
        append(&mut producers, &[(1, 0, i32::MAX - 1, 3), (1, 0, 1, 1)]);
        assert!(matches!(producers.check(&batch(1, 0, i32::MAX - 1, 3, 0)), Ok(Novelty::Duplicate(_))));
    }

    #[test]
    fn a_producer_that_nobody_knows_may_begin_anywhere_and_one_without_an_id_is_not_checked() {
        let mut producers = Producers::new(10);
        append(&mut producers, &[(1, 3, 77, 1), (1, 3, 78, 1)]);
        let plain = batch(-1, -1, -1, 1, 0);
        producers.record(&plain, 0);
        assert_eq!(producers.check(&plain), Ok(Novelty::New));
        assert_eq!(producers.known.len(), 1);
    }

    #[test]
    fn those_silent_for_longest_are_forgotten_beyond_the_limit() {
        let mut producers = Producers::new(20);
        for id in 0..50 {
            producers.record(&batch(id, 0, 0, 1, id), id);
            assert!(producers.known.len() <= 20);
            assert!(producers.known.contains_key(&id));
        }
        producers.expire(49);
        assert_eq!(producers.known.len(), 1);
    }

    #[test]
    fn a_snapshot_restores_everything_and_a_damaged_one_gives_way_to_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let mut producers = Producers::new(10);
        append(&mut producers, &[(1, 0, 0, 2), (7, 2, 5, 1)]);
        producers.write_snapshot(dir.path(), 1_003, false).unwrap();
        let first = producers.known.clone();
        append(&mut producers, &[(1, 0, 2, 1)]);
        producers.write_snapshot(dir.path(), 1_004, true).unwrap();

        let (loaded, offset) = Producers::load_snapshot(dir.path(), 10, 0, 2_000).unwrap();
        assert_eq!((loaded.known, offset), (producers.known.clone(), 1_004));

        fs::write(dir.path().join(file_name(1_004, SNAPSHOT)), b"tidegate-producers 1\n").unwrap();
        let (loaded, offset) = Producers::load_snapshot(dir.path(), 10, 0, 2_000).unwrap();
        assert_eq!((loaded.known, offset), (first, 1_003));

        let (loaded, offset) = Producers::load_snapshot(dir.path(), 10, 500, 1_002).unwrap();
        assert!(loaded.known.is_empty());
        assert_eq!(offset, 500);
        assert!(snapshots(dir.path()).unwrap().is_empty(), "snapshots beyond the log's end are removed");
    }

    #[test]
    fn two_snapshots_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        for offset in [5, 100, 20, 3] {
            Producers::new(1).write_snapshot(dir.path(), offset, false).unwrap();
        }
        let kept: Vec<_> = snapshots(dir.path()).unwrap().into_iter().map(|(offset, _)| offset).collect();
        assert_eq!(kept, [20, 100]);
    }
}

//! What a consumer has read so far.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// The line that a peer prints at its end.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Records.
    pub records: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// From the making of the consumer to the last record.
    pub seconds: f64,
    /// From the making of the consumer to the first records.
    #[serde(default)]
    pub first_seconds: Option<f64>,
    /// The sum of the CRC-32 of every value, modulo 2^64: the same in whatever order they came. With `--hash` alone.
    pub hash: Option<String>,
    /// Whether each partition's offsets followed each other without a gap. With `--hash` alone.
    pub contiguous: Option<bool>,
    /// Whether everything was read, rather than as much as the time allowed.
    pub complete: bool,
    /// The longest wait for records after a pause of the consumer. With `--pauses` alone.
    #[serde(default)]
    pub longest_gap_ms: Option<f64>,
    /// What else the client says of itself.
    #[serde(default)]
    pub note: Option<String>,
}

/// Counts the records of one consumer.
#[derive(Clone, Debug)]
pub struct Tally {
    records: u64,
    bytes: u64,
    timestamps: i64,
    hash: Option<u64>,
    contiguous: bool,
    /// By partition: the next offset, the end.
    partitions: Vec<(i64, i64)>,
    open: usize,
    begun: Instant,
    first: Option<Instant>,
    last: Instant,
}

impl Tally {
    /// Nothing read yet; `ends` as in the task.
    pub fn new(ends: &[(i32, i64)], hash: bool, begun: Instant) -> Self {
        let partitions = ends.iter().map(|&(partition, _)| partition as usize + 1).max().unwrap_or(0);
        let mut tally = Self {
            records: 0,
            bytes: 0,
            timestamps: 0,
            hash: hash.then_some(0),
            contiguous: true,
            partitions: vec![(0, 0); partitions],
            open: ends.iter().filter(|(_, end)| *end > 0).count(),
            begun,
            first: None,
            last: begun,
        };
        for &(partition, end) in ends {
            tally.partitions[partition as usize].1 = end;
        }
        tally
    }

    /// One more record. Those at or after their partition's end are not counted.
    #[inline]
    pub fn record(&mut self, partition: i32, offset: i64, timestamp_ms: i64, value: &[u8]) {
        let Some((next, end)) = self.partitions.get_mut(partition as usize) else { return };
        if offset >= *end {
            return;
        }
        self.contiguous &= offset == *next;
        *next = offset + 1;
        self.records += 1;
        self.bytes += value.len() as u64;
        self.timestamps ^= timestamp_ms;
        if *next == *end {
            self.open -= 1;
        }
        if let Some(hash) = &mut self.hash {
            *hash = hash.wrapping_add(crc32fast::hash(value).into());
        }
    }

    /// Notes that records have just been counted.
    pub fn now(&mut self) {
        self.last = Instant::now();
        self.first.get_or_insert(self.last);
    }

    /// Whether every partition has reached its end.
    pub fn complete(&self) -> bool {
        self.open == 0
    }

    /// Whether the time is up: so long after the first records, or without any for too long.
    pub fn expired(&self, limit: Duration) -> bool {
        match self.first {
            Some(first) => first.elapsed() >= limit,
            None => self.begun.elapsed() >= super::FIRST_RECORD,
        }
    }

    /// The records of several tallies, which began together.
    pub fn merge(tallies: Vec<Self>) -> Outcome {
        let mut outcome = Outcome { complete: true, ..Outcome::default() };
        let mut timestamps = 0;
        for tally in tallies {
            outcome.records += tally.records;
            outcome.bytes += tally.bytes;
            outcome.seconds = outcome.seconds.max((tally.last - tally.begun).as_secs_f64());
            let first = tally.first.map(|first| (first - tally.begun).as_secs_f64());
            outcome.first_seconds = match (outcome.first_seconds, first) {
                (Some(one), Some(two)) => Some(one.min(two)),
                (one, two) => one.or(two),
            };
            outcome.complete &= tally.complete();
            timestamps ^= tally.timestamps;
            if let Some(hash) = tally.hash {
                let sum = outcome.hash.as_deref().and_then(|hash| hash.parse::<u64>().ok()).unwrap_or(0);
                outcome.hash = Some(sum.wrapping_add(hash).to_string());
                outcome.contiguous = Some(tally.contiguous && outcome.contiguous != Some(false));
            }
        }
        // So that the compiler cannot leave the timestamps unread.
        std::hint::black_box(timestamps);
        outcome
    }
}

/// When a pausing consumer pauses, and how long it waits afterwards.
#[derive(Debug)]
pub struct Pauses {
    on: bool,
    resumed: Instant,
    paused: bool,
    longest: Duration,
}

impl Pauses {
    /// Begins to read now.
    pub fn new(on: bool) -> Self {
        Self { on, resumed: Instant::now(), paused: false, longest: Duration::ZERO }
    }

    /// Whether it is time to stand still for [`super::PAUSE_FOR`].
    pub fn due(&mut self) -> bool {
        self.on && self.resumed.elapsed() >= super::PAUSE_EVERY
    }

    /// The pause is over.
    pub fn resume(&mut self) {
        self.resumed = Instant::now();
        self.paused = true;
    }

    /// Records came after a wait.
    pub fn waited(&mut self, wait: Duration) {
        if self.paused {
            self.longest = self.longest.max(wait);
        }
    }

    /// The longest wait after the first pause, in milliseconds.
    pub fn longest_gap_ms(&self) -> Option<f64> {
        self.paused.then_some(self.longest.as_secs_f64() * 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_is_complete_at_every_end_and_counts_nothing_behind_it() {
        let mut tally = Tally::new(&[(0, 2), (2, 1), (1, 0)], true, Instant::now());
        tally.record(0, 0, 5, b"a");
        tally.record(2, 0, 5, b"bc");
        assert!(!tally.complete());
        tally.record(0, 1, 5, b"d");
        assert!(tally.complete());
        tally.record(0, 2, 5, b"behind");
        let outcome = Tally::merge(vec![tally]);
        assert_eq!((outcome.records, outcome.bytes, outcome.complete, outcome.contiguous), (3, 4, true, Some(true)));
    }

    #[test]
    fn a_gap_in_the_offsets_is_seen() {
        let mut tally = Tally::new(&[(0, 3)], true, Instant::now());
        tally.record(0, 0, 5, b"a");
        tally.record(0, 2, 5, b"a");
        assert_eq!(Tally::merge(vec![tally]).contiguous, Some(false));
    }
}

//! The end statement: what was read, and what that proves.

use tidegate_model::{Isolation, OffsetRange, TimeRange};

/// How the end of the read was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Proof {
    /// Everything up to the end noted at the start was read. Assumes nothing.
    FullScan,
    /// The caller named the offsets.
    Offsets,
}

impl Proof {
    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::FullScan => "full_scan",
            Self::Offsets => "offsets",
        }
    }
}

/// What a leader said of a partition's end when the request began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// The offset after the last record that every in-sync replica has.
    pub high_watermark: i64,
    /// The offset before which every transaction is decided. `None`: nobody asked, since it bounds nothing under
    /// read_uncommitted.
    pub last_stable_offset: Option<i64>,
    /// The offsets from the first one of an open transaction to the high watermark, still undecided after both were noted.
    /// They hold records of open transactions, and decided ones behind those.
    pub undecided: OffsetRange,
}

impl LogEnd {
    /// An end that no transaction keeps back.
    pub fn of(high_watermark: i64) -> Self {
        let undecided = OffsetRange::new(high_watermark, high_watermark);
        Self { high_watermark, last_stable_offset: None, undecided }
    }

    /// Where a read ends: the last stable offset if that bounds it, else the high watermark. Never below 0.
    pub fn noted(&self) -> i64 {
        self.last_stable_offset.unwrap_or(self.high_watermark).max(0)
    }
}

/// What was read of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionEnd {
    /// The partition.
    pub partition: i32,
    /// The offsets that were read, `[start, end)`; the end is where the read stood when it ended.
    pub read: OffsetRange,
    /// The end of the partition noted when the request began.
    pub noted_end_offset: i64,
    /// What that end comes from.
    pub log_end: LogEnd,
    /// Offsets above the last stable offset that the range may reach into and that were not considered, because a
    /// transaction was open.
    pub undecided_offsets: u64,
    /// Records looked at.
    pub records_scanned: u64,
    /// Records of the range.
    pub records_sent: u64,
    /// Records of the range at or after [`PartitionEnd::first_offset_at_or_after_until`]: what a read that stops there
    /// misses.
    pub late_records: u64,
    /// Records without a timestamp, which the range, having bounds, does not hold: those that were scanned, and those at
    /// the head of the log in front of the read, counted by their offsets.
    pub untimed_records: u64,
    /// How the end was found.
    pub proof: Proof,
    /// Every record of the range below the noted end was considered. It says nothing of what lies above: later records, and
    /// [`PartitionEnd::undecided_offsets`].
    pub exhaustive: bool,
    /// Offsets of the range that the log no longer held.
    pub lost_offsets: Vec<OffsetRange>,
    /// The first offset whose record's timestamp is at or after `until`, as seen while reading.
    pub first_offset_at_or_after_until: Option<i64>,
}

/// What was read of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndStatement {
    /// One entry a partition that was asked for, in partition order.
    pub partitions: Vec<PartitionEnd>,
    /// Records sent over all partitions.
    pub records_sent: u64,
    /// Whether every partition is exhaustive.
    pub exhaustive: bool,
    /// Which records of transactions were seen.
    pub isolation: Isolation,
    /// The time range as it was understood.
    pub range: TimeRange,
    /// Values that could not be converted and were sent as stored.
    pub values_not_converted: u64,
}

impl EndStatement {
    /// Puts the partitions' ends together.
    pub fn new(
        mut partitions: Vec<PartitionEnd>,
        isolation: Isolation,
        range: TimeRange,
        values_not_converted: u64,
    ) -> Self {
        partitions.sort_by_key(|end| end.partition);
        let records_sent = partitions.iter().map(|end| end.records_sent).sum();
        let exhaustive = partitions.iter().all(|end| end.exhaustive);
        Self { partitions, records_sent, exhaustive, isolation, range, values_not_converted }
    }

    /// Late records over all partitions.
    pub fn late_records(&self) -> u64 {
        self.partitions.iter().map(|end| end.late_records).sum()
    }

    /// Offsets that open transactions kept out, over all partitions.
    pub fn undecided_offsets(&self) -> u64 {
        self.partitions.iter().map(|end| end.undecided_offsets).sum()
    }

    /// Records looked at, over all partitions.
    pub fn records_scanned(&self) -> u64 {
        self.partitions.iter().map(|end| end.records_scanned).sum()
    }
}

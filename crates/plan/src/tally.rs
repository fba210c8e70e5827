//! Record by record: what belongs to the range, what is late, and where the read stands.

use tidegate_model::{OffsetRange, TimeRange};

use crate::end::PartitionEnd;
use crate::range::PartitionPlan;

/// What becomes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It belongs to the range.
    Send,
    /// It does not.
    Skip,
}

/// The account of one partition's read. Records must be shown in offset order.
#[derive(Clone, Debug)]
pub struct PartitionTally {
    plan: PartitionPlan,
    range: TimeRange,
    position: i64,
    scanned: u64,
    sent: u64,
    late: u64,
    untimed: u64,
    lost: Vec<OffsetRange>,
    first_at_or_after_until: Option<i64>,
}

impl PartitionTally {
    /// Opens the account of a plan. `range` filters on both sides; [`TimeRange::ALL`] lets every record pass.
    pub fn new(plan: PartitionPlan, range: TimeRange) -> Self {
        Self {
            position: plan.read.start,
            lost: plan.lost.into_iter().collect(),
            range,
            scanned: 0,
            sent: 0,
            late: 0,
            untimed: plan.untimed_before,
            plan,
            first_at_or_after_until: None,
        }
    }

    /// Judges one record. Records outside the planned offsets (a broker answers with whole batches) are skipped without
    /// being counted.
    #[inline]
    pub fn observe(&mut self, offset: i64, timestamp_ms: i64) -> Verdict {
        if offset < self.position || offset >= self.plan.read.end {
            return Verdict::Skip;
        }
        self.position = offset + 1;
        self.scanned += 1;
        if self.range.contains(timestamp_ms) {
            self.sent += 1;
            self.late += u64::from(self.first_at_or_after_until.is_some());
            return Verdict::Send;
        }
        if timestamp_ms < 0 {
            self.untimed += 1;
        } else if self.first_at_or_after_until.is_none()
            && self.range.until_ms.is_some_and(|until| timestamp_ms >= until)
        {
            self.first_at_or_after_until = Some(offset);
        }
        Verdict::Skip
    }

    /// Moves the position over offsets that hold nothing to deliver: markers, aborted or compacted records.
    pub fn advance(&mut self, next_offset: i64) {
        self.position = self.position.max(next_offset.min(self.plan.read.end));
    }

    /// Notes that the log lost the offsets from the position up to `log_start_offset`, and goes on behind them.
    pub fn lose_until(&mut self, log_start_offset: i64) {
        let lost = OffsetRange::new(self.position, log_start_offset.min(self.plan.read.end));
        if !lost.is_empty() {
            self.position = lost.end;
            self.lost.push(lost);
        }
    }

    /// Where the read stands: all planned offsets before it have been considered.
    pub fn position(&self) -> i64 {
        self.position
    }

    /// What is left to read.
    pub fn remaining(&self) -> OffsetRange {
        OffsetRange::new(self.position, self.plan.read.end)
    }

    /// Whether all planned offsets have been considered.
    pub fn is_finished(&self) -> bool {
        self.position >= self.plan.read.end
    }

    /// Closes the account.
    pub fn finish(self) -> PartitionEnd {
        PartitionEnd {
            partition: self.plan.partition,
            read: OffsetRange::new(self.plan.read.start, self.position),
            noted_end_offset: self.plan.noted_end_offset,
            log_end: self.plan.log_end,
            undecided_offsets: self.plan.undecided_offsets,
            records_scanned: self.scanned,
            records_sent: self.sent,
            late_records: self.late,
            untimed_records: self.untimed,
            proof: self.plan.proof,
            exhaustive: self.is_finished() && self.lost.is_empty(),
            lost_offsets: self.lost,
            first_offset_at_or_after_until: self.first_at_or_after_until,
        }
    }
}

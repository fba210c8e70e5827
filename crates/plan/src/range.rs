//! From a range and a partition's facts to the offsets that must be read.
//!
//! The start of a time range is exact: every record before the first one whose timestamp is at or after `from` is too old.
//! The end is not: late records of the range may stand anywhere behind the first record at or after `until`. Here the end
//! is found by reading to the end noted at the start (`full_scan`).

use tidegate_model::{OffsetRange, TimeRange};

use crate::end::{LogEnd, Proof};

/// What a broker said about a partition when the request began. Hints, to be checked against what is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionFacts {
    /// The partition.
    pub partition: i32,
    /// The first offset that the log still holds.
    pub log_start_offset: i64,
    /// Where it ends.
    pub log_end: LogEnd,
    /// The first offset whose record has a timestamp at or after the range's `from`; `None`: no such record (or no `from`).
    pub from_offset: Option<i64>,
    /// The first offset whose record has a timestamp at all; `None`: no record has one (or nobody asked). Only a range with
    /// a `from` needs it.
    pub first_timed_offset: Option<i64>,
}

/// What to read of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionPlan {
    /// The partition.
    pub partition: i32,
    /// The offsets to read. Never negative, never beyond the noted end.
    pub read: OffsetRange,
    /// The end of the partition noted when the request began.
    pub noted_end_offset: i64,
    /// What that end comes from.
    pub log_end: LogEnd,
    /// Offsets of open transactions that the range may reach into.
    pub undecided_offsets: u64,
    /// Offsets that were asked for and that the log no longer holds.
    pub lost: Option<OffsetRange>,
    /// Offsets in front of `read` whose records have no timestamp: the range, having bounds, does not hold them, and nobody
    /// reads them to find that out.
    pub untimed_before: u64,
    /// How the end was found.
    pub proof: Proof,
}

/// An offset range as a caller gives it: either side may be open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffsetBounds {
    /// The first offset; `None`: the log start.
    pub start: Option<i64>,
    /// The first offset after the range; `None`: the end noted at the start.
    pub end: Option<i64>,
}

/// Why an offset range is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanOffsetsError {
    /// An offset is negative. -1 and -2 are protocol codes and no offsets.
    #[error("{field} is {offset}; offsets count from 0 (leave it out for the log start or the end)")]
    Negative {
        /// `start` or `end`.
        field: &'static str,
        /// What it says.
        offset: i64,
    },
    /// The end lies before the start.
    #[error("the end offset {end} lies before the start offset {start}")]
    EndBeforeStart {
        /// The start.
        start: i64,
        /// The end.
        end: i64,
    },
}

impl OffsetBounds {
    /// Checks what can be checked without a partition.
    ///
    /// # Errors
    /// [`PlanOffsetsError`] names the side and what is wrong with it.
    pub fn check(&self) -> Result<(), PlanOffsetsError> {
        for (field, side) in [("start", self.start), ("end", self.end)] {
            if let Some(offset @ ..0) = side {
                return Err(PlanOffsetsError::Negative { field, offset });
            }
        }
        match (self.start, self.end) {
            (Some(start), Some(end)) if end < start => Err(PlanOffsetsError::EndBeforeStart { start, end }),
            _ => Ok(()),
        }
    }
}

/// The offsets to read for a time range.
pub fn plan_time(facts: &PartitionFacts, range: &TimeRange) -> PartitionPlan {
    let end = facts.log_end.noted();
    let log_start = facts.log_start_offset.clamp(0, end);
    let start = match (range.from_ms, facts.from_offset) {
        _ if range.is_empty() => end,
        (None, _) => log_start,
        // A record appended since the end was noted may be the first of the range: it lies beyond what is read.
        (Some(_), Some(offset)) => offset.clamp(log_start, end),
        (Some(_), None) => end,
    };
    let untimed_before = match range.from_ms {
        Some(_) => OffsetRange::new(log_start, facts.first_timed_offset.unwrap_or(end).min(start)).len(),
        None => 0,
    };
    PartitionPlan {
        partition: facts.partition,
        read: OffsetRange::new(start, end),
        noted_end_offset: end,
        log_end: facts.log_end,
        // Nobody knows their timestamps yet.
        undecided_offsets: if range.is_empty() { 0 } else { facts.log_end.undecided.len() },
        lost: None,
        untimed_before,
        proof: Proof::FullScan,
    }
}

/// The offsets to read for an offset range. A start below the log start is a loss to report; an end beyond the noted end
/// is cut to it; a start beyond it reads nothing.
///
/// # Errors
/// As [`OffsetBounds::check`].
pub fn plan_offsets(facts: &PartitionFacts, bounds: OffsetBounds) -> Result<PartitionPlan, PlanOffsetsError> {
    bounds.check()?;
    let noted_end = facts.log_end.noted();
    let log_start = facts.log_start_offset.clamp(0, noted_end);
    let end = bounds.end.unwrap_or(noted_end).min(noted_end);
    let asked = bounds.start.unwrap_or(log_start).min(end);
    // An open start asks for what there is: nothing is lost. An end below the log start leaves nothing to read.
    let lost = (asked < log_start && bounds.start.is_some()).then(|| OffsetRange::new(asked, log_start.min(end)));
    let start = asked.max(log_start.min(end));
    Ok(PartitionPlan {
        partition: facts.partition,
        read: OffsetRange::new(start, end),
        noted_end_offset: noted_end,
        log_end: facts.log_end,
        undecided_offsets: undecided_between(&facts.log_end, bounds),
        lost: lost.filter(|lost| !lost.is_empty()),
        untimed_before: 0,
        proof: Proof::Offsets,
    })
}

/// The undecided offsets among those that a caller named.
fn undecided_between(log_end: &LogEnd, bounds: OffsetBounds) -> u64 {
    let undecided = log_end.undecided;
    let start = undecided.start.max(bounds.start.unwrap_or(0));
    OffsetRange::new(start, undecided.end.min(bounds.end.unwrap_or(i64::MAX))).len()
}

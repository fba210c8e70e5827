//! The account of a read, against its definition.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use tidegate_model::{Isolation, OffsetRange, TimeRange};
use tidegate_plan::{EndStatement, LogEnd, PartitionFacts, PartitionTally, Verdict, plan_time};

fn facts(end: i64, from_offset: Option<i64>) -> PartitionFacts {
    PartitionFacts {
        partition: 0,
        log_start_offset: 0,
        log_end: LogEnd::of(end),
        from_offset,
        first_timed_offset: Some(0),
    }
}

/// A log of timestamps, read as the engine reads it.
fn read(times: &[i64], range: TimeRange) -> (Vec<i64>, tidegate_plan::PartitionEnd) {
    let end = i64::try_from(times.len()).unwrap();
    let first_at = |bound: i64| times.iter().position(|at| *at >= bound).map(|at| i64::try_from(at).unwrap());
    let mut tally = PartitionTally::new(plan_time(&facts(end, range.from_ms.and_then(first_at)), &range), range);
    let mut sent = Vec::new();
    for (offset, time) in (0..).zip(times) {
        if tally.observe(offset, *time) == Verdict::Send {
            sent.push(offset);
        }
    }
    tally.advance(end);
    (sent, tally.finish())
}

proptest! {
    #[test]
    fn a_plan_covers_every_record_of_the_range_and_counts_the_late_ones(
        times in prop::collection::vec(-1_i64..200, 0..200),
        from in 0_i64..200,
        length in 0_i64..200,
    ) {
        let until = from + length;
        let (sent, end) = read(&times, TimeRange::between(from, until));
        let matching: Vec<i64> = (0_i64..).zip(&times).filter(|(_, at)| (from..until).contains(*at)).map(|(offset, _)| offset).collect();
        prop_assert_eq!(&sent, &matching);
        let first_after = (0_i64..).zip(&times).find(|(_, at)| **at >= until).map(|(offset, _)| offset);
        let late = matching.iter().filter(|offset| first_after.is_some_and(|first| **offset >= first)).count();
        prop_assert_eq!(end.late_records, late as u64);
        prop_assert_eq!(end.records_sent, matching.len() as u64);
        prop_assert!(end.exhaustive);
        if length > 0 && times.iter().any(|at| *at >= from) {
            prop_assert_eq!(end.first_offset_at_or_after_until, first_after);
        }
    }
}

#[test]
fn the_start_is_inside_the_end_is_not_and_untimed_records_are_counted_apart() {
    let (sent, end) = read(&[10, 19, 20, -1], TimeRange::between(10, 20));
    assert_eq!(sent, [0, 1]);
    assert_eq!((end.records_scanned, end.untimed_records, end.late_records), (4, 1, 0));
}

#[test]
fn records_outside_the_planned_offsets_are_not_counted() {
    let plan = plan_time(&facts(10, Some(5)), &TimeRange::between(0, 100));
    let mut tally = PartitionTally::new(plan, TimeRange::between(0, 100));
    assert_eq!(tally.observe(4, 50), Verdict::Skip);
    assert_eq!(tally.observe(5, 50), Verdict::Send);
    assert_eq!(tally.observe(5, 50), Verdict::Skip, "a repeated offset is not sent twice");
    assert_eq!(tally.observe(10, 50), Verdict::Skip);
    assert_eq!(tally.finish().records_scanned, 1);
}

#[test]
fn a_read_that_stops_early_is_not_exhaustive() {
    let mut tally = PartitionTally::new(plan_time(&facts(10, Some(0)), &TimeRange::between(0, 100)), TimeRange::ALL);
    tally.observe(0, 1);
    assert_eq!(tally.remaining(), OffsetRange::new(1, 10));
    let end = tally.finish();
    assert!(!end.exhaustive);
    assert_eq!(end.read, OffsetRange::new(0, 1));
    assert!(!EndStatement::new(vec![end], Isolation::ReadCommitted, TimeRange::ALL, 0).exhaustive);
}

#[test]
fn markers_behind_the_last_record_still_finish_the_read() {
    let mut tally = PartitionTally::new(plan_time(&facts(3, None), &TimeRange::ALL), TimeRange::ALL);
    tally.observe(0, 1);
    tally.observe(1, 1);
    assert!(!tally.is_finished());
    tally.advance(3);
    assert!(tally.is_finished());
    let end = tally.finish();
    assert_eq!((end.records_sent, end.read.end, end.exhaustive), (2, 3, true));
}

#[test]
fn offsets_that_the_log_lost_are_named_and_the_read_is_not_exhaustive() {
    let mut tally = PartitionTally::new(plan_time(&facts(1_000, None), &TimeRange::ALL), TimeRange::ALL);
    for offset in 0..120 {
        tally.observe(offset, 1);
    }
    tally.lose_until(500);
    assert_eq!(tally.position(), 500);
    tally.advance(1_000);
    let end = tally.finish();
    assert_eq!(end.lost_offsets, [OffsetRange::new(120, 500)]);
    assert!(!end.exhaustive);
}

#[test]
fn the_end_statement_adds_up_in_partition_order() {
    let end = |partition, records_sent, late_records| tidegate_plan::PartitionEnd {
        partition,
        records_sent,
        late_records,
        ..PartitionTally::new(plan_time(&facts(0, None), &TimeRange::ALL), TimeRange::ALL).finish()
    };
    let statement = EndStatement::new(vec![end(1, 2, 1), end(0, 3, 0)], Isolation::ReadCommitted, TimeRange::ALL, 0);
    assert_eq!(statement.records_sent, 5);
    assert_eq!(statement.late_records(), 1);
    assert_eq!(statement.partitions.iter().map(|end| end.partition).collect::<Vec<_>>(), [0, 1]);
    assert!(statement.exhaustive);
}

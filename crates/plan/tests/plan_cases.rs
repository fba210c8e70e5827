//! The planner's cases, as text.
#![allow(clippy::unwrap_used, clippy::panic)]

use tidegate_model::{OffsetRange, TimeRange};
use tidegate_plan::{LogEnd, OffsetBounds, PartitionFacts, PlanOffsetsError, plan_offsets, plan_time};

fn sides(text: &str) -> (Option<i64>, Option<i64>) {
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(')')).unwrap_or_else(|| panic!("{text}"));
    let (start, end) = inner.split_once(',').unwrap();
    let side = |text: &str| (text != "_").then(|| text.parse().unwrap());
    (side(start), side(end))
}

fn offsets(text: &str) -> OffsetRange {
    let (start, end) = sides(text);
    OffsetRange::new(start.unwrap(), end.unwrap())
}

#[test]
fn every_plan_is_as_its_case_says() {
    let mut cases = 0;
    for line in include_str!("cases/plans.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        cases += 1;
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let [log, range, found, read, lost] = cells[..] else { panic!("five cells: {line}") };
        let (start, end) = log.split_once("..").unwrap();
        let facts = PartitionFacts {
            partition: 0,
            log_start_offset: start.parse().unwrap(),
            log_end: LogEnd::of(end.parse().unwrap()),
            from_offset: (!found.is_empty()).then(|| found.parse().unwrap()),
            first_timed_offset: Some(0),
        };
        let plan = match range.strip_prefix('@') {
            Some(bounds) => {
                let (start, end) = sides(bounds);
                plan_offsets(&facts, OffsetBounds { start, end }).unwrap()
            }
            None => {
                let (from_ms, until_ms) = sides(range);
                plan_time(&facts, &TimeRange { from_ms, until_ms, untimed: false })
            }
        };
        assert_eq!(plan.read, offsets(read), "{line}");
        assert_eq!(plan.lost, (!lost.is_empty()).then(|| offsets(lost)), "{line}");
    }
    assert!(cases > 15, "only {cases} cases were read");
}

#[test]
fn untimed_records_in_front_of_the_read_are_counted_by_their_offsets() {
    let untimed = |from_offset, first_timed_offset| {
        let facts = PartitionFacts { log_start_offset: 3, from_offset, first_timed_offset, ..facts(LogEnd::of(10)) };
        plan_time(&facts, &TimeRange::between(50, 60)).untimed_before
    };
    assert_eq!(untimed(Some(7), Some(3)), 0);
    assert_eq!(untimed(Some(7), Some(5)), 2);
    assert_eq!(untimed(Some(5), Some(5)), 2);
    // No record of the log has a timestamp.
    assert_eq!(untimed(None, None), 7);
}

#[test]
fn protocol_codes_are_no_offsets() {
    let check = |start, end| OffsetBounds { start, end }.check();
    assert_eq!(check(Some(-1), None), Err(PlanOffsetsError::Negative { field: "start", offset: -1 }));
    assert_eq!(check(None, Some(-2)), Err(PlanOffsetsError::Negative { field: "end", offset: -2 }));
    assert_eq!(check(Some(5), Some(4)), Err(PlanOffsetsError::EndBeforeStart { start: 5, end: 4 }));
    assert_eq!(check(Some(5), Some(5)), Ok(()));
}

fn facts(log_end: LogEnd) -> PartitionFacts {
    PartitionFacts { partition: 0, log_start_offset: 0, log_end, from_offset: Some(0), first_timed_offset: Some(0) }
}

#[test]
fn an_open_transaction_ends_the_read_and_its_offsets_are_counted_as_far_as_the_range_may_hold_them() {
    let facts = facts(LogEnd {
        high_watermark: 100,
        last_stable_offset: Some(60),
        // The transaction that was open at 60 is decided by now, another is not.
        undecided: OffsetRange::new(70, 100),
    });
    let plan = plan_time(&facts, &TimeRange::between(50, 60));
    assert_eq!((plan.read, plan.noted_end_offset, plan.undecided_offsets), (OffsetRange::new(0, 60), 60, 30));
    assert_eq!(plan_time(&facts, &TimeRange::between(50, 50)).undecided_offsets, 0);
    let offsets = |start, end| plan_offsets(&facts, OffsetBounds { start, end }).unwrap();
    assert_eq!(offsets(None, None).undecided_offsets, 30);
    assert_eq!(offsets(Some(10), Some(60)).undecided_offsets, 0);
    assert_eq!(offsets(Some(10), Some(75)).undecided_offsets, 5);
    assert_eq!(offsets(Some(80), Some(500)).undecided_offsets, 20);
    assert_eq!(offsets(Some(10), Some(75)).read, OffsetRange::new(10, 60));
}

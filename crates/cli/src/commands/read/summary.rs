//! What a read's end statement means, for people.

use std::time::Duration;

use tidegate_api::rest::{EndStatement, Proof};

use crate::units::{bytes, count, counted, per_second, span};

/// The lines that go to standard error after a read with an end statement.
pub(super) fn lines(end: &EndStatement, limit: Option<u64>, written: u64, elapsed: Duration) -> Vec<String> {
    let partitions = end.partitions.as_deref().unwrap_or_default();
    let scanned: u64 = partitions.iter().map(|partition| partition.records_scanned).sum();
    let late: u64 = partitions.iter().map(|partition| partition.late_records).sum();
    let untimed: u64 = partitions.iter().map(|partition| partition.untimed_records).sum();
    let mut lines = Vec::new();

    let records = counted(end.records_sent, "record");
    let of = counted(partitions.len() as u64, "partition");
    if end.exhaustive {
        let how = match partitions.iter().all(|partition| partition.proof == Proof::FullScan) {
            true => format!("{of} read to the end noted at the start"),
            false => format!("all offsets asked for of {of} read"),
        };
        lines.push(format!("{records}, complete: {how}, {} considered", counted(scanned, "record")));
    } else {
        let lost = partitions.iter().any(|partition| !partition.lost_offsets.is_empty());
        let why = match limit {
            Some(limit) if end.records_sent >= limit => format!("--limit {limit} ended it"),
            _ if lost => "the log no longer holds all of the range".to_owned(),
            _ => "see the end statement".to_owned(),
        };
        lines.push(format!("{records}, NOT complete: {why}"));
    }
    for partition in partitions {
        for lost in &partition.lost_offsets {
            let number = partition.partition;
            lines.push(format!(
                "lost: offsets [{}, {}) of partition {number} are gone from the log",
                lost.start, lost.end
            ));
        }
    }
    for partition in partitions.iter().filter(|partition| partition.undecided_offsets > 0) {
        let (stable, high) =
            (partition.last_stable_offset.unwrap_or(partition.noted_end_offset), partition.high_watermark);
        lines.push(format!(
            "undecided: {} of partition {} between the last stable offset {stable} and the high watermark {high} not \
             considered: a transaction is open",
            counted(partition.undecided_offsets, "offset"),
            partition.partition,
        ));
    }
    if late > 0 {
        lines.push(format!(
            "late: {} of them stand behind a record from after the range; a read that stops there misses them",
            count(late)
        ));
    }
    if untimed > 0 {
        lines.push(format!("untimed: {} without a timestamp, which no time range holds", counted(untimed, "record")));
    }
    if end.values_not_converted > 0 {
        lines.push(format!(
            "not converted: {} without a JSON form, given as stored (base64)",
            counted(end.values_not_converted, "value")
        ));
    }
    let rate = count(per_second(end.records_sent, elapsed));
    lines.push(format!("{} written in {}, {rate} records/s", bytes(written), span(elapsed)));
    lines
}

#[cfg(test)]
mod tests {
    use tidegate_api::rest::{Isolation, LostOffsets, PartitionEnd};

    use super::*;

    fn end(exhaustive: bool, late: u64, lost: Vec<LostOffsets>) -> EndStatement {
        EndStatement {
            records_sent: 24_980,
            exhaustive,
            isolation: Isolation::ReadCommitted,
            from: None,
            until: None,
            values_not_converted: 0,
            undecided_offsets: 0,
            partitions: Some(vec![PartitionEnd {
                partition: 0,
                start_offset: 26_661,
                end_offset: 336_776,
                noted_end_offset: 336_776,
                records_scanned: 310_115,
                records_sent: 24_980,
                late_records: late,
                untimed_records: 0,
                proof: Proof::FullScan,
                exhaustive,
                lost_offsets: lost,
                first_offset_at_or_after_until: Some(51_693),
                high_watermark: 336_776,
                last_stable_offset: Some(336_776),
                undecided_offsets: 0,
            }]),
            partitions_left_out: None,
        }
    }

    #[test]
    fn a_complete_read_says_on_what_it_rests() {
        let lines = lines(&end(true, 107, Vec::new()), None, 9_700_000, Duration::from_millis(500));
        assert_eq!(
            lines,
            [
                "24,980 records, complete: 1 partition read to the end noted at the start, 310,115 records considered",
                "late: 107 of them stand behind a record from after the range; a read that stops there misses them",
                "9.7 MB written in 500 ms, 49,960 records/s",
            ]
        );
    }

    #[test]
    fn an_open_transaction_is_told_with_its_offsets() {
        let mut end = end(true, 0, Vec::new());
        for partition in end.partitions.iter_mut().flatten() {
            partition.high_watermark += 7;
            partition.undecided_offsets = 5;
        }
        let lines = lines(&end, None, 1, Duration::ZERO);
        assert_eq!(
            lines[1],
            "undecided: 5 offsets of partition 0 between the last stable offset 336776 and the high watermark 336783 not \
             considered: a transaction is open"
        );
    }

    #[test]
    fn a_read_that_is_not_complete_says_why() {
        let limited = lines(&end(false, 0, Vec::new()), Some(24_980), 1, Duration::ZERO);
        assert_eq!(limited[0], "24,980 records, NOT complete: --limit 24980 ended it");
        let lost = lines(&end(false, 0, vec![LostOffsets { start: 120, end: 500 }]), None, 1, Duration::ZERO);
        assert_eq!(lost[0], "24,980 records, NOT complete: the log no longer holds all of the range");
        assert_eq!(lost[1], "lost: offsets [120, 500) of partition 0 are gone from the log");
    }
}

//! The end statement as REST shows it: as the last line, as the `end` of a document, as a trailer.

use tidegate_api::{rest, v1};
use tidegate_model::Isolation;
use tidegate_plan::{EndStatement, Proof};

use super::ndjson::write_json;
use super::text::time_text;

/// The end statement in REST's words.
pub fn statement(end: &EndStatement) -> rest::EndStatement {
    rest::EndStatement {
        records_sent: end.records_sent,
        exhaustive: end.exhaustive,
        isolation: isolation(end.isolation),
        from: end.range.from_ms.and_then(time_text),
        until: end.range.until_ms.and_then(time_text),
        values_not_converted: end.values_not_converted,
        undecided_offsets: end.undecided_offsets(),
        partitions: Some(end.partitions.iter().map(partition).collect()),
        partitions_left_out: None,
    }
}

/// The same from the message of a gRPC stream, for a client that reads over gRPC and shows what REST would show.
pub fn statement_from_grpc(end: &v1::EndStatement) -> rest::EndStatement {
    rest::EndStatement {
        records_sent: end.records_sent,
        exhaustive: end.exhaustive,
        isolation: match end.isolation() {
            v1::Isolation::ReadUncommitted => rest::Isolation::ReadUncommitted,
            v1::Isolation::ReadCommitted | v1::Isolation::Unspecified => rest::Isolation::ReadCommitted,
        },
        from: end.from_ms.and_then(time_text),
        until: end.until_ms.and_then(time_text),
        values_not_converted: end.values_not_converted,
        undecided_offsets: end.undecided_offsets,
        partitions: Some(end.partitions.iter().map(partition_from_grpc).collect()),
        partitions_left_out: None,
    }
}

/// The end statement as the value of an HTTP trailer: compact JSON in at most `max_bytes`, for which it gives up the
/// partitions and says how many there were. HTTP clients limit their header sections, some to 8 or 16 KiB.
pub fn trailer(end: &rest::EndStatement, max_bytes: usize) -> Vec<u8> {
    let mut text = Vec::new();
    write_json(&mut text, end);
    if text.len() > max_bytes {
        let mut statement = end.clone();
        statement.partitions_left_out = statement.partitions.take().map(|partitions| partitions.len() as u64);
        text.clear();
        write_json(&mut text, &statement);
    }
    text
}

fn isolation(isolation: Isolation) -> rest::Isolation {
    match isolation {
        Isolation::ReadCommitted => rest::Isolation::ReadCommitted,
        Isolation::ReadUncommitted => rest::Isolation::ReadUncommitted,
    }
}

fn partition(end: &tidegate_plan::PartitionEnd) -> rest::PartitionEnd {
    rest::PartitionEnd {
        partition: end.partition,
        start_offset: end.read.start,
        end_offset: end.read.end,
        noted_end_offset: end.noted_end_offset,
        records_scanned: end.records_scanned,
        records_sent: end.records_sent,
        late_records: end.late_records,
        untimed_records: end.untimed_records,
        proof: match end.proof {
            Proof::FullScan => rest::Proof::FullScan,
            Proof::Offsets => rest::Proof::Offsets,
        },
        exhaustive: end.exhaustive,
        lost_offsets: end
            .lost_offsets
            .iter()
            .map(|lost| rest::LostOffsets { start: lost.start, end: lost.end })
            .collect(),
        first_offset_at_or_after_until: end.first_offset_at_or_after_until,
        high_watermark: end.log_end.high_watermark,
        last_stable_offset: end.log_end.last_stable_offset,
        undecided_offsets: end.undecided_offsets,
    }
}

fn partition_from_grpc(end: &v1::PartitionEnd) -> rest::PartitionEnd {
    rest::PartitionEnd {
        partition: end.partition,
        start_offset: end.start_offset,
        end_offset: end.end_offset,
        noted_end_offset: end.noted_end_offset,
        records_scanned: end.records_scanned,
        records_sent: end.records_sent,
        late_records: end.late_records,
        untimed_records: end.untimed_records,
        proof: match end.proof() {
            v1::Proof::Offsets => rest::Proof::Offsets,
            v1::Proof::FullScan => rest::Proof::FullScan,
            // What an older client sees of a newer server's proof. It must not be taken for one that it is not.
            v1::Proof::Unspecified => rest::Proof::Unknown,
        },
        exhaustive: end.exhaustive,
        lost_offsets: end
            .lost_offsets
            .iter()
            .map(|lost| rest::LostOffsets { start: lost.start, end: lost.end })
            .collect(),
        first_offset_at_or_after_until: end.first_offset_at_or_after_until,
        high_watermark: end.high_watermark,
        last_stable_offset: end.last_stable_offset,
        undecided_offsets: end.undecided_offsets,
    }
}

#[cfg(test)]
mod tests {
    use tidegate_model::{OffsetRange, TimeRange};
    use tidegate_plan::LogEnd;

    use super::*;

    pub(crate) fn sample(partitions: i32) -> EndStatement {
        let partitions = (0..partitions).map(|partition| tidegate_plan::PartitionEnd {
            partition,
            read: OffsetRange::new(26_661, 60_000),
            noted_end_offset: 60_000,
            log_end: LogEnd {
                last_stable_offset: Some(60_000),
                undecided: OffsetRange::new(60_002, 60_010),
                ..LogEnd::of(60_010)
            },
            undecided_offsets: 8,
            records_scanned: 33_339,
            records_sent: 24_980,
            late_records: 107,
            untimed_records: 0,
            proof: Proof::FullScan,
            exhaustive: true,
            lost_offsets: vec![OffsetRange::new(3, 5)],
            first_offset_at_or_after_until: Some(51_693),
        });
        let range = TimeRange::between(1_359_676_800_000, 1_362_096_000_000);
        EndStatement::new(partitions.collect(), Isolation::ReadCommitted, range, 0)
    }

    #[test]
    fn the_statement_says_what_it_says_in_the_documented_words() {
        let mut text = Vec::new();
        super::super::ndjson::write_end(&mut text, &sample(1));
        assert_eq!(
            String::from_utf8(text).unwrap(),
            concat!(
                r#"{"end":{"records_sent":24980,"exhaustive":true,"isolation":"read_committed","#,
                r#""from":"2013-02-01T00:00:00.000Z","until":"2013-03-01T00:00:00.000Z","values_not_converted":0,"#,
                r#""undecided_offsets":8,"#,
                r#""partitions":[{"partition":0,"start_offset":26661,"end_offset":60000,"noted_end_offset":60000,"#,
                r#""records_scanned":33339,"records_sent":24980,"late_records":107,"untimed_records":0,"#,
                r#""proof":"full_scan","exhaustive":true,"lost_offsets":[{"start":3,"end":5}],"#,
                r#""first_offset_at_or_after_until":51693,"high_watermark":60010,"last_stable_offset":60000,"#,
                r#""undecided_offsets":8}]}}"#,
                "\n"
            )
        );
    }

    #[test]
    fn a_long_trailer_gives_up_its_partitions_and_says_so() {
        let whole: rest::EndStatement = serde_json::from_slice(&trailer(&statement(&sample(3)), 8_192)).unwrap();
        assert_eq!(whole.partitions.unwrap().len(), 3);

        let long = trailer(&statement(&sample(1_000)), 8_192);
        assert!(long.len() <= 8_192, "{}", long.len());
        let short: rest::EndStatement = serde_json::from_slice(&long).unwrap();
        assert_eq!((short.partitions, short.partitions_left_out), (None, Some(1_000)));
        assert_eq!(short.records_sent, 24_980_000);
    }
}

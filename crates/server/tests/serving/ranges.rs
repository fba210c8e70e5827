//! Which records a range holds, and what is said of it at the end.

use tidegate_api::Code;
use tidegate_model::{Isolation, OffsetRange};
use tidegate_plan::Proof;
use tidegate_server::engine::{OnDataLoss, ReadRequest};

use crate::support::{DAY_MS, Setup, World, by_partition, detail, last, name, offsets, places, soon, time};

const HOUR_MS: i64 = 3_600_000;

#[tokio::test]
async fn each_partition_gives_its_records_of_the_window_and_the_others_end_at_once_and_empty() {
    let world = World::start().await;
    world.create("events", 5).await;
    let end_ms = DAY_MS + HOUR_MS;
    world.append("events", 0, &[(DAY_MS, b"a"), (end_ms - 1, b"b"), (end_ms, b"c")]).await;
    world.append("events", 1, &[(1_714_500_000_000, b"old")]).await;
    world.append("events", 3, &[(DAY_MS, b"x"); 7]).await;
    world.broker.delete_records_before(&name("events"), 3, 7).await.unwrap();
    world.append("events", 4, &[(-1, b"untimed")]).await;

    let request = time("events", "1714521600000ms", "1714525200000ms");
    let (records, end) = soon("the end of the window", world.read(request)).await;
    assert_eq!(places(&records), [(0, 0), (0, 1)]);
    assert_eq!((end.records_sent, end.exhaustive), (2, true));
    assert_eq!((end.range.from_ms, end.range.until_ms), (Some(DAY_MS), Some(end_ms)));
    assert_eq!(end.isolation, Isolation::ReadCommitted);

    let ends = by_partition(&end);
    assert_eq!(ends.len(), 5);
    for (partition, noted_end, sent) in [(0, 3, 2), (1, 1, 0), (2, 0, 0), (3, 7, 0), (4, 1, 0)] {
        let end = ends[&partition];
        assert_eq!((end.noted_end_offset, end.records_sent), (noted_end, sent), "partition {partition}");
        assert_eq!((end.read.end, end.exhaustive), (noted_end, true), "partition {partition}");
        assert_eq!((end.proof, end.late_records), (Proof::FullScan, 0), "partition {partition}");
        assert_eq!(end.untimed_records, u64::from(partition == 4), "partition {partition}");
        assert!(end.read.start >= 0 && end.lost_offsets.is_empty());
    }
    assert_eq!(ends[&0].first_offset_at_or_after_until, Some(2));
}

#[tokio::test]
async fn a_record_without_a_timestamp_is_counted_and_matches_no_window_but_comes_with_everything() {
    let world = World::start().await;
    world.create("events", 1).await;
    world.append("events", 0, &[(DAY_MS, &b"a"[..]), (-1, b"untimed"), (DAY_MS + 1, b"b")]).await;
    let (records, end) = world.read(time("events", "2024-05-01", "2024-05-02")).await;
    assert_eq!(places(&records), [(0, 0), (0, 2)]);
    assert_eq!((end.partitions[0].untimed_records, end.partitions[0].records_scanned), (1, 3));
    assert!(end.exhaustive);
    let (records, end) = world.read(ReadRequest::new("events")).await;
    assert_eq!((records.len(), end.partitions[0].untimed_records), (3, 0));
}

#[tokio::test]
async fn a_window_wholly_in_the_future_ends_at_once_and_empty() {
    let world = World::start().await;
    world.create("events", 2).await;
    world.append("events", 0, &[(DAY_MS, b"a")]).await;
    for (from, until) in [("9000-01-01", "9000-01-02"), ("9000-01-01", ""), ("9000-01-01", "+1h")] {
        let (records, end) = soon("the end", world.read(time("events", from, until))).await;
        assert_eq!((records.len(), end.exhaustive), (0, true), "{from} {until}");
        assert_eq!(end.partitions[0].read, OffsetRange::new(1, 1));
    }
    assert_eq!(world.proxy.fetches_so_far(), 0, "there was nothing to fetch");
}

#[tokio::test]
async fn only_times_with_their_unit_are_taken() {
    let world = World::start().await;
    world.create("events", 1).await;
    for (bare, hint) in [
        ("1714521600", "1714521600s"),
        ("1714521600000", "1714521600000ms"),
        ("1714521600000000", "microseconds"),
        ("133589952000000000", "FILETIME"),
        ("-1", "protocol code"),
        ("-2", "protocol code"),
        ("0", "0"),
    ] {
        for (from, until, field) in [(bare, "", "from"), ("", bare, "until")] {
            let error = world.refusal(time("events", from, until)).await;
            assert_eq!(error.code, Code::InvalidTime, "{error}");
            assert!(error.message.contains(hint), "{error}");
            assert_eq!((detail(&error, "field"), detail(&error, "text")), (field, bare));
        }
    }
    let (_, end) = world.read(time("events", "0ms", "1ms")).await;
    assert_eq!((end.range.from_ms, end.range.until_ms), (Some(0), Some(1)));
}

#[tokio::test]
async fn a_range_may_be_empty_but_not_reversed_and_a_duration_counts_from_its_start() {
    let world = World::with(Setup { clock_ms: Some(DAY_MS), ..Setup::default() }).await;
    world.create("events", 1).await;
    world.append("events", 0, &[(DAY_MS, b"a")]).await;

    let (records, end) = world.read(time("events", "2024-05-01", "2024-05-01T00:00:00Z")).await;
    assert_eq!((records.len(), end.exhaustive), (0, true));
    let error = world.refusal(time("events", "2024-05-02", "2024-05-01")).await;
    assert_eq!(error.code, Code::InvalidRange, "{error}");

    let (_, end) = world.read(time("events", "2022-02-14T00:00:00Z", "+1h")).await;
    assert_eq!((end.range.from_ms, end.range.until_ms), (Some(1_644_796_800_000), Some(1_644_800_400_000)));
    let (_, end) = world.read(time("events", "-1h", "now")).await;
    assert_eq!((end.range.from_ms, end.range.until_ms), (Some(DAY_MS - HOUR_MS), Some(DAY_MS)));
}

#[tokio::test]
async fn late_records_are_found_and_counted() {
    let world = World::start().await;
    world.create("events", 1).await;
    let until_ms = DAY_MS + HOUR_MS;
    let late = [(DAY_MS, b"in"), (until_ms, b"up"), (DAY_MS + 5, b"la"), (until_ms + 9, b"up"), (DAY_MS + 1, b"la")];
    world.append("events", 0, &late).await;
    let (records, end) = world.read(time("events", "2024-05-01", "+1h")).await;
    assert_eq!(places(&records), [(0, 0), (0, 2), (0, 4)]);
    let end = &end.partitions[0];
    assert_eq!((end.late_records, end.first_offset_at_or_after_until), (2, Some(1)));
    assert_eq!((end.records_scanned, end.records_sent, end.exhaustive), (5, 3, true));
}

#[tokio::test]
async fn a_range_of_offsets_ends_at_what_exists_and_names_no_negative_offset() {
    let world = World::start().await;
    world.create("events", 1).await;
    world.append("events", 0, &[(DAY_MS, b"v"); 3]).await;
    for (start, end, expected) in [
        (Some(0), Some(10), vec![0, 1, 2]),
        (Some(1), Some(2), vec![1]),
        (None, None, vec![0, 1, 2]),
        (Some(2), Some(2), vec![]),
        (Some(50), Some(60), vec![]),
        (Some(50), None, vec![]),
    ] {
        let (records, statement) = soon("the end", world.read(offsets("events", start, end))).await;
        let seen: Vec<_> = records.iter().map(|record| record.offset).collect();
        assert_eq!((seen, statement.exhaustive), (expected, true), "{start:?} {end:?}");
        assert_eq!((statement.partitions[0].proof, statement.partitions[0].noted_end_offset), (Proof::Offsets, 3));
    }
    for (start, end) in [(Some(-1), None), (None, Some(-2)), (Some(2), Some(1))] {
        let error = world.refusal(offsets("events", start, end)).await;
        assert_eq!(error.code, Code::InvalidRange, "{error}");
    }
}

#[tokio::test]
async fn offsets_before_the_log_start_are_refused_or_reported_as_the_caller_wants() {
    let world = World::start().await;
    world.create("events", 1).await;
    world.append("events", 0, &[(DAY_MS, b"v"); 10]).await;
    world.broker.delete_records_before(&name("events"), 0, 4).await.unwrap();
    let request = offsets("events", Some(1), Some(8));
    let error = world.refusal(request.clone()).await;
    assert_eq!(error.code, Code::OffsetOutOfRange);
    let detail = |name| detail(&error, name);
    assert_eq!((detail("lost_start_offset"), detail("lost_end_offset")), ("1", "4"));
    assert_eq!((detail("topic"), detail("partition"), detail("log_start_offset")), ("events", "0", "4"));

    let (records, end) = world.read(ReadRequest { on_data_loss: OnDataLoss::Report, ..request }).await;
    assert_eq!(records.iter().map(|record| record.offset).collect::<Vec<_>>(), [4, 5, 6, 7]);
    assert_eq!((end.exhaustive, &end.partitions[0].lost_offsets[..]), (false, &[OffsetRange::new(1, 4)][..]));
    // A start that was left open asks for what there is.
    let (records, end) = world.read(offsets("events", None, None)).await;
    assert_eq!((records.len(), end.exhaustive), (6, true));
}

#[tokio::test]
async fn the_last_records_of_each_partition_are_exact() {
    let world = World::start().await;
    world.create("events", 3).await;
    world.append("events", 0, &[(DAY_MS, b"v"); 20]).await;
    world.append("events", 1, &[(DAY_MS, b"v"); 2]).await;
    for batch in 0..7 {
        world.append("events", 2, &[(DAY_MS + batch, b"v"); 3]).await;
    }
    world.broker.delete_records_before(&name("events"), 2, 18).await.unwrap();
    for (count, expected) in [(0, [0, 0, 0]), (1, [1, 1, 1]), (5, [5, 2, 3]), (u64::MAX, [20, 2, 3])] {
        let (records, end) = world.read(last("events", count)).await;
        let sent: Vec<_> = end.partitions.iter().map(|end| end.records_sent).collect();
        assert_eq!((sent.as_slice(), end.exhaustive), (&expected[..], true), "last {count}");
        assert_eq!(records.len() as u64, expected.iter().sum::<u64>());
        assert!(
            end.partitions.iter().all(|end| end.read.len() == end.records_sent && end.read.end == end.noted_end_offset)
        );
    }
}

#[tokio::test]
async fn a_limit_ends_a_read_early_and_the_statement_says_so() {
    let world = World::start().await;
    world.create("events", 2).await;
    world.append("events", 0, &[(DAY_MS, b"v"); 50]).await;
    world.append("events", 1, &[(DAY_MS, b"v"); 50]).await;
    for (limit, sent, exhaustive) in [(1, 1, false), (7, 7, false), (99, 99, false), (101, 100, true)] {
        let request = ReadRequest { limit: Some(limit), ..ReadRequest::new("events") };
        let (records, end) = soon("the end", world.read(request)).await;
        assert_eq!((records.len(), end.records_sent, end.exhaustive), (sent, sent as u64, exhaustive), "{limit}");
        assert_eq!(end.partitions.iter().map(|end| end.records_sent).sum::<u64>(), limit.min(100));
    }
    // Order is kept within a partition.
    let request = ReadRequest { limit: Some(10), partitions: vec![1], ..ReadRequest::new("events") };
    let (records, end) = world.read(request).await;
    assert_eq!(places(&records), (0..10).map(|offset| (1, offset)).collect::<Vec<_>>());
    assert_eq!(end.partitions[0].read, OffsetRange::new(0, 10));
}

#[tokio::test]
async fn only_the_partitions_asked_for_are_read_and_unknown_ones_are_named() {
    let world = World::start().await;
    world.create("events", 3).await;
    for partition in 0..3 {
        world.append("events", partition, &[(DAY_MS, b"v")]).await;
    }
    let request = ReadRequest { partitions: vec![2, 0, 2], ..ReadRequest::new("events") };
    let (mut records, end) = world.read(request).await;
    records.sort();
    assert_eq!(places(&records), [(0, 0), (2, 0)]);
    assert_eq!(end.partitions.iter().map(|end| end.partition).collect::<Vec<_>>(), [0, 2]);
    for partition in [3, -1, i32::MAX] {
        let request = ReadRequest { partitions: vec![0, partition], ..ReadRequest::new("events") };
        let error = world.refusal(request).await;
        assert_eq!(error.code, Code::UnknownPartition);
        assert_eq!((detail(&error, "partition"), detail(&error, "partitions")), (&*partition.to_string(), "3"));
    }
}

#[tokio::test]
async fn unknown_and_impossible_topics_are_told_apart_and_never_created() {
    let world = World::start().await;
    for topic in ["missing", "missing"] {
        let error = world.refusal(ReadRequest::new(topic)).await;
        assert_eq!((error.code, detail(&error, "topic")), (Code::UnknownTopic, "missing"));
        let error = tidegate_api::ApiError::from(world.engine.describe_topic(topic).await.unwrap_err());
        assert_eq!(error.code, Code::UnknownTopic);
    }
    for topic in ["", "a/b", ".."] {
        let error = world.refusal(ReadRequest::new(topic)).await;
        assert_eq!((error.code, detail(&error, "field")), (Code::InvalidArgument, "topic"));
    }
    assert!(world.engine.list_topics(true).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_topic_is_described_with_its_ends_and_times() {
    let world = World::start().await;
    world.create("events", 3).await;
    world.append("events", 0, &[(DAY_MS + 5, b"v"), (DAY_MS + 9, b"v"), (DAY_MS, b"v"), (DAY_MS + 7, b"v")]).await;
    world.append("events", 1, &[(-1, b"v")]).await;
    world.broker.delete_records_before(&name("events"), 0, 2).await.unwrap();
    let topic = world.engine.describe_topic("events").await.unwrap();
    assert_eq!(topic.timestamp_type.map(|kind| kind.name()), Some("CreateTime"));
    let facts: Vec<_> = topic
        .partitions
        .iter()
        .map(|p| {
            (p.log_start_offset, p.high_watermark, p.last_stable_offset, p.first_timestamp_ms, p.last_timestamp_ms)
        })
        .collect();
    let expected = [(2, 4, 4, Some(DAY_MS), Some(DAY_MS + 7)), (0, 1, 1, None, None), (0, 0, 0, None, None)];
    // What the largest timestamp is when its record was deleted is the broker's affair: it may answer by batch.
    assert_eq!(facts[1..], expected[1..]);
    assert_eq!((facts[0].0, facts[0].1, facts[0].2, facts[0].3), (2, 4, 4, Some(DAY_MS)));
    assert!(topic.partitions.iter().all(|partition| partition.leader.is_some()));
    let listed = world.engine.list_topics(false).await.unwrap();
    assert_eq!((listed.len(), listed[0].name.as_str(), listed[0].partitions), (1, "events", 3));
}

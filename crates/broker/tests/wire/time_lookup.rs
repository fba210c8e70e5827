use kafka_protocol::ResponseError;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tidegate_model::Compression;

use crate::common::*;
use crate::protocol::delete_records_request;

const CODECS: [Compression; 5] =
    [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

#[derive(Clone, Debug)]
struct Log {
    batches: Vec<(usize, Vec<i64>)>,
    /// Before which offset records are deleted, in percent of all.
    deleted_percent: i64,
}

fn logs() -> impl Strategy<Value = Log> {
    // Mostly growing with late ones among them, as in life; some without a timestamp; many equal ones.
    let timestamp = prop_oneof![4 => 0..40_i64, 1 => Just(-1_i64), 1 => 0..1_000_i64];
    let batch = (0..CODECS.len(), prop::collection::vec(timestamp, 1..12), 0..300_i64);
    let batches = prop::collection::vec(batch, 0..60).prop_map(|batches| {
        let base = |number: usize| i64::try_from(number).unwrap() * 10;
        let lift =
            |number: usize, times: Vec<i64>| times.into_iter().map(move |t| if t < 0 { t } else { t + base(number) });
        batches.into_iter().enumerate().map(|(n, (codec, times, _))| (codec, lift(n, times).collect())).collect()
    });
    (batches, prop_oneof![Just(0_i64), 0..=100_i64])
        .prop_map(|(batches, deleted_percent)| Log { batches, deleted_percent })
}

#[test]
fn a_time_is_found_where_a_scan_of_all_records_finds_it() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (broker, mut client) = runtime.block_on(async {
        let broker = start(dir.path()).await;
        let client = Client::connect(broker.addr()).await;
        (broker, client)
    });
    let mut number = 0;
    let mut runner = TestRunner::new(Config { cases: 40, failure_persistence: None, ..Config::default() });
    let client = std::cell::RefCell::new(&mut client);
    let number = std::cell::RefCell::new(&mut number);
    runner
        .run(&logs(), |log| {
            **number.borrow_mut() += 1;
            let topic = format!("t{}", **number.borrow());
            runtime.block_on(check(*client.borrow_mut(), &topic, &log))
        })
        .unwrap();
    runtime.block_on(broker.shutdown()).unwrap();
}

async fn check(client: &mut Client, topic: &str, log: &Log) -> Result<(), TestCaseError> {
    client.create_topic(topic, 1, &[("segment.bytes", "1024"), ("retention.ms", "-1")]).await;
    let mut all: Vec<(i64, i64)> = Vec::new();
    for (codec, times) in &log.batches {
        let answer = client.produce(topic, 0, compressed(CODECS[*codec], times)).await;
        prop_assert_eq!(answer.error_code, 0);
        all.extend((answer.base_offset..).zip(times.iter().copied()));
    }
    let start = i64::try_from(all.len()).unwrap() * log.deleted_percent / 100;
    client.call(&delete_records_request(topic, 0, start), 2).await;
    let live = || all.iter().filter(|(offset, _)| *offset >= start);

    let mut times: Vec<i64> = all.iter().flat_map(|(_, time)| [*time, time + 1]).filter(|time| *time >= 0).collect();
    times.extend([0, 1, 2_000, i64::MAX]);
    times.sort_unstable();
    times.dedup();
    for time in times {
        let expected = live().find(|(_, t)| *t >= time).copied().unwrap_or((-1, -1));
        let found = client.list_offset(topic, 0, time).await;
        prop_assert_eq!(found.error_code, 0);
        prop_assert_eq!((found.offset, found.timestamp), expected, "time {}", time);
    }
    let largest = live().map(|(_, time)| *time).max().filter(|time| *time >= 0);
    let expected = largest.and_then(|largest| live().find(|(_, time)| *time == largest)).copied();
    let found = client.list_offset(topic, 0, -3).await;
    prop_assert_eq!((found.offset, found.timestamp), expected.unwrap_or((-1, -1)), "the largest");
    let earliest = client.list_offset(topic, 0, -2).await;
    prop_assert_eq!((earliest.offset, earliest.timestamp), (start, -1));
    let latest = client.list_offset(topic, 0, -1).await;
    prop_assert_eq!(latest.offset, i64::try_from(all.len()).unwrap());
    Ok(())
}

#[tokio::test]
async fn partitions_without_a_match_answer_minus_one_and_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 5, &[]).await;
    let from = 1_714_521_600_000;
    client.produce("t", 0, batch(&[from, from + 3_599_999, from + 3_600_000])).await;
    client.produce("t", 1, batch(&[1_714_500_000_000])).await;
    client.produce("t", 3, batch(&[from; 7])).await;
    client.call(&delete_records_request("t", 3, -1), 2).await;
    client.produce("t", 4, batch(&[-1])).await;
    let mut offsets = Vec::new();
    for partition in 0..5 {
        let found = client.list_offset("t", partition, from).await;
        assert_eq!(found.error_code, 0);
        offsets.push((found.offset, found.timestamp));
    }
    assert_eq!(offsets, [(0, from), (-1, -1), (-1, -1), (-1, -1), (-1, -1)]);
    let deleted = client.list_offset("t", 3, -2).await;
    assert_eq!((deleted.offset, client.end_offset("t", 3).await), (7, 7));
    let unknown = client.list_offset("t", 9, from).await;
    assert_eq!(unknown.error_code, ResponseError::UnknownTopicOrPartition.code());
    let nonsense = client.list_offset("t", 0, -99).await;
    assert_eq!(nonsense.error_code, ResponseError::UnsupportedVersion.code());
}

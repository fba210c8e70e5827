//! One partition read in pieces, over several connections at once: the records come once and in order, whatever the pieces.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::ApiKey;
use tidegate_broker::testing::{Fault, Moment, Rule, Setup};
use tidegate_client::{
    Cluster, ClusterConfig, Fetcher, FetcherOptions, NewTopic, PaceReason, ReadError, Reader, ReaderOptions,
};
use tidegate_wire::{BatchOptions, BatchWriter};
use tokio::net::TcpStream;

use crate::stage::{Stage, quick, write};
use crate::support::{drain, name, slice};

const LOG: &str = "log";

/// A batch of `count` records of `bytes` bytes each.
fn batch(count: i64, bytes: usize) -> Bytes {
    let mut writer = BatchWriter::new(BatchOptions::default());
    let value = vec![b'v'; bytes];
    for at in 0..count {
        writer.push(1_000 + at, None, Some(&value), []).unwrap();
    }
    writer.finish().unwrap()
}

/// A stage with a further topic of one partition with these batches (records, bytes each). Its end offset.
async fn stage(setup: Setup, batches: impl IntoIterator<Item = (i64, usize)>) -> (Stage, i64) {
    let stage = Stage::set(setup).await;
    let admin = Cluster::connect(ClusterConfig::new([stage.upstream().to_string()])).await.unwrap();
    let config = [("retention.ms".to_owned(), "-1".to_owned())].into();
    let topic = NewTopic { name: name(LOG), partitions: 1, replication_factor: 1, config };
    admin.create_topic(&topic).await.unwrap();
    let mut stream = TcpStream::connect(stage.upstream()).await.unwrap();
    let mut end = 0;
    for (count, bytes) in batches {
        write(&mut stream, LOG, 0, batch(count, bytes)).await;
        end += count;
    }
    (stage, end)
}

fn fetching(client: &Cluster, fetches_in_flight: Option<usize>) -> Fetcher {
    Fetcher::new(client, FetcherOptions { fetches_in_flight, ..FetcherOptions::default() })
}

/// The offsets that a reader yields until it ends, how it ends, and the most pieces that it fetched at once. When it has
/// ended it may have let go of the broker, and with it of that number.
async fn drain_in_pieces(reader: &mut Reader) -> (Vec<i64>, Result<(), ReadError>, usize) {
    let (mut offsets, mut most) = (Vec::new(), 0);
    while let Some(chunk) = reader.next().await {
        most = most.max(reader.facts().pieces_at_once);
        match chunk {
            Ok(chunk) => {
                let records = chunk.batches.iter().flat_map(|batch| batch.records());
                offsets.extend(records.map(|record| record.unwrap().offset));
            }
            Err(error) => return (offsets, Err(error), most),
        }
    }
    (offsets, Ok(()), most)
}

/// Settings that wait for a broker that is only slow.
fn patient(stage: &Stage) -> ClusterConfig {
    ClusterConfig {
        request_timeout: Duration::from_secs(30),
        max_response_bytes: 16 << 20,
        ..quick(stage.cluster.bootstrap())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_connections_are_used_and_next_to_nothing_comes_twice() {
    // 16 MiB in batches of 8 KiB; each answer takes a while, as over a long way.
    let (stage, end) = stage(Setup::default(), (0..2_048).map(|_| (16, 500))).await;
    stage.cluster.rule(Rule::new(Fault::Delay(Duration::from_millis(5))).on(ApiKey::Fetch));
    let client = Cluster::connect(patient(&stage)).await.unwrap();
    let before = stage.cluster.connections();
    // How many pay is a question of time, which no test can ask; so it is set for one reader and found out by the other.
    for fetches_in_flight in [Some(8), None] {
        let options = ReaderOptions { max_partition_fetch_bytes: Some(256 << 10), ..ReaderOptions::default() };
        let fetcher = fetching(&client, fetches_in_flight);
        let mut reader = fetcher.read(slice(LOG, 0, 0, end), options);
        let mut choice = None;
        let mut next = 0;
        while let Some(chunk) = reader.next().await {
            choice = reader.facts().broker.or(choice);
            for record in chunk.unwrap().batches.iter().flat_map(|batch| batch.records()) {
                assert_eq!(record.unwrap().offset, next);
                next += 1;
            }
        }
        assert_eq!(next, end);
        let stored = 2_048 * batch(16, 500).len() as u64;
        let received = reader.totals().received;
        assert!(received * 100 <= stored * 105, "{received} bytes came for {stored}");
        let choice = choice.unwrap();
        match fetches_in_flight {
            Some(_) => {
                assert!(stage.cluster.connections() - before >= 8);
                assert_eq!((choice.fetches_in_flight, choice.reason), (8, PaceReason::Set));
            }
            None => assert_ne!(choice.reason, PaceReason::Set),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pieces_of_any_width_and_batches_of_any_size_make_the_whole() {
    // Small and large batches by turns, so that no estimate of where a piece ends is right.
    let sizes = [(1, 10), (40, 30), (3, 900), (200, 5), (1, 7_000), (7, 30)];
    let (stage, end) = stage(Setup::default(), sizes.into_iter().cycle().take(600)).await;
    let client = Cluster::connect(patient(&stage)).await.unwrap();
    for (width, bytes) in [(1, 1), (2, 1), (2, 50_000), (3, 4_000), (8, 100_000), (32, 20_000)] {
        for range in [(0, end), (1, end - 1), (end / 3, end / 2), (end - 1, end)] {
            let options = ReaderOptions { max_partition_fetch_bytes: Some(bytes), ..ReaderOptions::default() };
            let mut reader = fetching(&client, Some(width)).read(slice(LOG, 0, range.0, range.1), options);
            let (offsets, result) = drain(&mut reader).await;
            result.unwrap();
            assert_eq!(offsets, (range.0..range.1).collect::<Vec<_>>(), "width {width}, {bytes} bytes, {range:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_in_the_middle_of_pieces_lose_and_double_nothing() {
    let moments = [Moment::BeforeRequest, Moment::BeforeAnswer, Moment::InsideAnswer, Moment::AfterAnswer];
    let mut faults: Vec<Fault> = moments.map(Fault::Cut).into();
    faults.extend([Fault::Error(6), Fault::Error(75), Fault::Empty { throttle: Duration::from_millis(2) }]);
    let sizes = [(2, 100), (1, 600), (3, 50)];
    let setup = || Setup { brokers: 2, ..Setup::default() };
    let (stage, end) = stage(setup(), sizes.into_iter().cycle().take(900)).await;
    for (seed, fault) in faults.into_iter().enumerate() {
        let rule = stage.cluster.rule(Rule::new(fault).on(ApiKey::Fetch).after(seed as u64).times(6).chance(0.5));
        let client = Cluster::connect(patient(&stage)).await.unwrap();
        let options = ReaderOptions {
            max_partition_fetch_bytes: Some(30_000),
            fetch_max_wait: Duration::from_millis(20),
            ..ReaderOptions::default()
        };
        let mut reader = fetching(&client, Some(6)).read(slice(LOG, 0, 0, end), options);
        let (offsets, result, pieces) = drain_in_pieces(&mut reader).await;
        result.unwrap();
        assert_eq!(offsets, (0..end).collect::<Vec<_>>(), "fault {seed}");
        assert_eq!(pieces, 6);
        assert!(stage.cluster.fired(rule) > 0, "fault {seed} did not happen");
        stage.cluster.end_faults();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn however_many_pieces_there_are_they_hold_the_budget_and_no_more() {
    let (stage, end) = stage(Setup::default(), (0..8_000).map(|_| (1, 450))).await;
    let client = Cluster::connect(patient(&stage)).await.unwrap();
    let budget = tidegate_client::ByteBudget::new(1 << 20);
    let options = ReaderOptions {
        max_partition_fetch_bytes: Some(128 << 10),
        budget: budget.clone(),
        ..ReaderOptions::default()
    };
    let mut reader = fetching(&client, Some(16)).read(slice(LOG, 0, 0, end), options);
    let mut held = Vec::new();
    let (mut most, mut pieces) = (0, 0);
    while let Some(chunk) = reader.next().await {
        // A consumer that keeps some of what it got for a while.
        held.push(chunk.unwrap());
        most = most.max(budget.used());
        pieces = pieces.max(reader.facts().pieces_at_once);
        if held.len() == 4 {
            held.clear();
        }
    }
    assert_eq!(pieces, 16);
    // The budget, and one fetch for each time that the consumer waited while it kept what it had.
    assert!(most <= (1 << 20) + 4 * (128 << 10), "{most}");
    drop((held, reader));
    crate::support::eventually("everything given back", || budget.used() == 0).await;
}

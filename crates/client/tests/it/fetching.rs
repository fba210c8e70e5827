//! What readers share: connections, waits at the ends of logs; and what can be told of them.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use kafka_protocol::messages::ApiKey;
use tidegate_broker::testing::{Fault, Rule, Setup};
use tidegate_client::{
    Cluster, ClusterConfig, Fetcher, FetcherOptions, NewTopic, PaceReason, Reader, ReaderOptions, Slice,
};
use tidegate_model::TopicPartition;
use tidegate_wire::{BatchOptions, BatchWriter};
use tokio::net::TcpStream;

use crate::stage::{RECORDS, Stage, TOPIC, all_offsets, append, small_fetches, whole, write};
use crate::support::{drain, eventually, name, slice};

const MANY: &str = "many";
const PARTITIONS: i32 = 40;

fn batch(values: &[&str]) -> Bytes {
    let mut writer = BatchWriter::new(BatchOptions::default());
    for value in values {
        writer.push(1_000, None, Some(value.as_bytes()), []).unwrap();
    }
    writer.finish().unwrap()
}

/// A stage with a further topic of many partitions with ten records each.
async fn stage() -> (Stage, Cluster) {
    let stage = Stage::set(Setup::default()).await;
    let admin = Cluster::connect(ClusterConfig::new([stage.upstream().to_string()])).await.unwrap();
    let config = [("retention.ms".to_owned(), "-1".to_owned())].into();
    let topic = NewTopic { name: name(MANY), partitions: PARTITIONS, replication_factor: 1, config };
    admin.create_topic(&topic).await.unwrap();
    let mut stream = TcpStream::connect(stage.upstream()).await.unwrap();
    for partition in 0..PARTITIONS {
        for _ in 0..5 {
            write(&mut stream, MANY, partition, batch(&["a", "b"])).await;
        }
    }
    let client = stage.patient_client().await;
    (stage, client)
}

fn asked(stage: &Stage) -> u64 {
    stage.cluster.asked(ApiKey::Fetch).values().sum()
}

/// The offsets of the next chunk.
async fn next(reader: &mut Reader) -> Vec<i64> {
    let chunk = reader.next().await.unwrap().unwrap();
    chunk.batches.iter().flat_map(|batch| batch.records()).map(|record| record.unwrap().offset).collect()
}

/// Reads until the offset before `end` came.
async fn read_up_to(reader: &mut Reader, end: i64) -> Vec<i64> {
    let mut offsets = Vec::new();
    while reader.position() < end {
        offsets.extend(next(reader).await);
    }
    offsets
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn however_many_readers_there_are_they_share_the_connections_that_are_allowed() {
    let (stage, client) = stage().await;
    let before = stage.cluster.connections();
    let fetcher = Fetcher::new(&client, FetcherOptions { connections_per_broker: 3, ..FetcherOptions::default() });
    // As long as one reader lives, the connections do.
    let mut first = fetcher.read(slice(MANY, 0, 0, 10), small_fetches());
    next(&mut first).await;
    let reads = (1..PARTITIONS).map(|partition| {
        let mut reader = fetcher.read(slice(MANY, partition, 0, 10), small_fetches());
        async move { drain(&mut reader).await }
    });
    for (offsets, result) in join_all(reads).await {
        result.unwrap();
        assert_eq!(offsets, (0..10).collect::<Vec<_>>());
    }
    drain(&mut first).await.1.unwrap();
    let opened = stage.cluster.connections() - before;
    // One may be given up and made again when a third did not pay.
    assert!((1..=4).contains(&opened), "{opened}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_at_the_ends_of_their_logs_wait_together_and_new_records_come_at_once() {
    let (stage, client) = stage().await;
    let fetcher = Fetcher::new(&client, FetcherOptions::default());
    // A wait that no test outlasts: what comes comes because it is there.
    let options = ReaderOptions { fetch_max_wait: Duration::from_secs(25), ..ReaderOptions::default() };
    let mut readers: Vec<_> = (0..PARTITIONS)
        .map(|partition| fetcher.read(Slice::from(TopicPartition::new(name(MANY), partition), 0), options.clone()))
        .collect();
    for reader in &mut readers {
        assert_eq!(read_up_to(reader, 10).await, (0..10).collect::<Vec<_>>());
    }
    let settled = || readers.iter().all(|reader| reader.facts().known_end == Some(10));
    assert!(settled());
    let (before, connections, begun) = (asked(&stage), stage.cluster.connections(), Instant::now());
    let mut stream = TcpStream::connect(stage.upstream()).await.unwrap();
    for (at, partition) in [7, 7, 31, 7].into_iter().enumerate() {
        write(&mut stream, MANY, partition, batch(&["new"])).await;
        let reader = &mut readers[usize::try_from(partition).unwrap()];
        let new = next(reader).await;
        assert_eq!((at, new.len()), (at, 1));
    }
    // Less than one for each partition, over two connections more at most: a few for what came, and on each of the two
    // connections one in 50 ms while nothing does.
    let asked = asked(&stage) - before;
    let waits = u64::try_from(begun.elapsed().as_millis()).unwrap() / 50;
    assert!(asked < u64::try_from(PARTITIONS).unwrap() / 2 + 2 * waits, "{asked}");
    assert!(stage.cluster.connections() - connections <= 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slice_without_an_end_goes_on_with_what_is_written_later_and_never_stalls() {
    let stage = Stage::set(Setup::default()).await;
    let client = stage.client().await;
    let options = ReaderOptions { stall_timeout: Duration::from_millis(1), ..small_fetches() };
    let mut reader = client.read(Slice::from(TopicPartition::new(name(TOPIC), 1), 5), options);
    assert_eq!(read_up_to(&mut reader, RECORDS).await, (5..RECORDS).collect::<Vec<_>>());
    // Long enough for many empty answers, all of which the consumer waits for.
    let mut ahead = Box::pin(reader.next());
    assert!(tokio::time::timeout(Duration::from_millis(1), &mut ahead).await.is_err());
    let fetches = asked(&stage);
    tokio::select! {
        nothing = &mut ahead => panic!("{nothing:?}"),
        () = eventually("empty answers", || asked(&stage) > fetches + 5) => {}
    }
    drop(ahead);
    append(stage.upstream(), 1, 7).await;
    assert_eq!(read_up_to(&mut reader, RECORDS + 7).await, (RECORDS..RECORDS + 7).collect::<Vec<_>>());
    // Five of them were waited for to the end.
    let times = reader.facts().times;
    assert!(times.no_data >= Duration::from_millis(50), "{times:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_times_of_a_reader_add_up_to_its_life_and_tell_a_busy_consumer() {
    let stage = Stage::set(Setup::default()).await;
    let client = stage.client().await;
    let before = Instant::now();
    let mut reader = client.read(whole(0), small_fetches());
    let begun = Instant::now();
    let mut offsets = next(&mut reader).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    offsets.extend(drain(&mut reader).await.0);
    let least = begun.elapsed();
    let facts = reader.facts();
    assert_eq!(offsets, all_offsets());
    assert!(least <= facts.times.total() && facts.times.total() <= before.elapsed(), "{facts:?}");
    assert!(facts.times.consumer_busy >= Duration::from_millis(300), "{facts:?}");
    assert_eq!((facts.position, facts.known_end, facts.restarts), (RECORDS, Some(RECORDS), 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_gets_nothing_although_there_is_more_begins_anew_and_loses_nothing() {
    let stage = Stage::set(Setup::default()).await;
    let client = stage.patient_client().await;
    let options = ReaderOptions { watchdog: Duration::from_millis(100), ..small_fetches() };
    // One answer never comes, one in the middle.
    let silence = Rule::new(Fault::Delay(Duration::from_secs(25))).on(ApiKey::Fetch).after(2).times(1);
    let silence = stage.cluster.rule(silence);
    let mut reader = client.read(whole(2), options);
    let (offsets, result) = drain(&mut reader).await;
    result.unwrap();
    assert_eq!(offsets, all_offsets());
    assert_eq!(stage.cluster.fired(silence), 1);
    assert!(reader.facts().restarts >= 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cap_that_is_reached_names_the_setting_to_raise() {
    let (stage, client) = stage().await;
    stage.cluster.rule(Rule::new(Fault::Delay(Duration::from_millis(10))).on(ApiKey::Fetch));
    let mut stream = TcpStream::connect(stage.upstream()).await.unwrap();
    for _ in 0..1_500 {
        write(&mut stream, MANY, 0, batch(&["x"; 20])).await;
    }
    let fetcher = Fetcher::new(&client, FetcherOptions { connections_per_broker: 1, ..FetcherOptions::default() });
    let options = ReaderOptions { max_partition_fetch_bytes: Some(10_000), ..ReaderOptions::default() };
    let mut reader = fetcher.read(slice(MANY, 0, 0, 30_010), options);
    // It is told when enough time has passed, and something else when the consumer was the slow one for a while.
    let mut told = Vec::new();
    while let Some(chunk) = reader.next().await {
        chunk.unwrap();
        told.extend(reader.facts().broker);
    }
    assert!(told.iter().all(|told| told.connections == 1), "{told:?}");
    let at_limit = told.iter().find(|told| told.reason == PaceReason::AtLimit).expect("the limit is told");
    assert!(at_limit.reason.to_string().contains("connections.per.broker"));
}

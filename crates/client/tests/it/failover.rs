//! A real Apache Kafka of three nodes that are killed one after another, while records are written and read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_client::{
    Cluster, ClusterConfig, Fetcher, FetcherOptions, NewTopic, Producer, ProducerSettings, Reader, ReaderOptions,
    RecordToSend, RetryLimits, Slice, TopicInfo,
};
use tidegate_model::{Chunk, TopicName, TopicPartition};
use tidegate_testkit::kafka::{KafkaCluster, KafkaConfig};
use tidegate_testkit::unique_topic;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::support::{name, slice};

const PARTITIONS: i32 = 6;
const KILLS: usize = 5;

/// How many records of a partition are sent before their acknowledgements are waited for.
const ROUND: i64 = 20;

/// The most records that a slice with an end has.
const BOUNDED: i64 = 20_000;

/// A machine that runs other tests meanwhile may need this long to elect a leader or to catch up with one.
const PATIENCE: Duration = Duration::from_secs(90);

/// So long after a new leader has acknowledged a record its reader has it: a look at the metadata and the longest pause
/// between two attempts, with room for a machine that runs other tests.
const RESUMED: Duration = Duration::from_secs(60);

/// How far the records of one partition are.
struct Progress {
    acknowledged: watch::Sender<i64>,
    read: watch::Sender<i64>,
}

type Shared = Arc<Vec<Progress>>;

/// The value of the record at an offset, so long that a slice takes many fetches.
fn value(offset: i64) -> String {
    format!("{offset:0200}")
}

/// Writes to one partition until it shall stop. Nobody else does, so offsets are known beforehand.
async fn write(producer: Producer, topic: TopicName, partition: i32, progress: Shared, stop: Arc<AtomicBool>) {
    let acknowledged = &progress[index(partition)].acknowledged;
    let mut next = 0;
    while !stop.load(Ordering::SeqCst) {
        let mut session = producer.session(&topic);
        for offset in next..next + ROUND {
            let value = value(offset);
            let record =
                RecordToSend { partition: Some(partition), value: Some(value.as_bytes()), ..RecordToSend::default() };
            session.send(record).await.unwrap();
        }
        session.finish().await.unwrap();
        next += ROUND;
        acknowledged.send_replace(next);
    }
}

fn index(partition: i32) -> usize {
    usize::try_from(partition).unwrap()
}

/// The records of a chunk must be those that come next.
fn check(chunk: &Chunk, next: &mut i64) {
    for record in chunk.batches.iter().flat_map(|batch| batch.records()).map(Result::unwrap) {
        assert_eq!(record.offset, *next, "{}", chunk.topic_partition);
        assert_eq!(record.value, Some(value(*next).as_bytes()), "{} at {next}", chunk.topic_partition);
        *next += 1;
    }
    assert_eq!(chunk.next_offset, *next, "{}", chunk.topic_partition);
}

/// Reads what is written for as long as the test lasts.
async fn follow(mut reader: Reader, progress: Shared) {
    let mut next = 0;
    while let Some(chunk) = reader.next().await {
        check(&chunk.unwrap(), &mut next);
        progress[index(reader.topic_partition().partition)].read.send_replace(next);
    }
    panic!("a slice without an end has ended");
}

/// Reads what was acknowledged up to now, of one partition after another, until it shall stop.
async fn read_again(fetcher: Fetcher, topic: TopicName, progress: Shared, stop: Arc<AtomicBool>) {
    for partition in (0..PARTITIONS).cycle() {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let mut acknowledged = progress[index(partition)].acknowledged.subscribe();
        let end = *acknowledged.wait_for(|end| *end > 0).await.unwrap();
        read_slice(&fetcher, &topic, partition, end - end.min(BOUNDED), end).await;
    }
}

async fn read_slice(fetcher: &Fetcher, topic: &TopicName, partition: i32, start: i64, end: i64) {
    let mut reader = fetcher.read(slice(topic.as_str(), partition, start, end), small_fetches());
    let mut next = start;
    while let Some(chunk) = reader.next().await {
        check(&chunk.unwrap(), &mut next);
    }
    assert_eq!(next, end, "{topic}-{partition}");
}

fn small_fetches() -> ReaderOptions {
    ReaderOptions { max_partition_fetch_bytes: Some(64 << 10), ..ReaderOptions::default() }
}

/// Waits until the metadata of the topic are so. No broker tells by itself that they have changed.
async fn shown(cluster: &Cluster, topic: &TopicName, what: &str, holds: impl Fn(&TopicInfo) -> bool) {
    let looking = async {
        while !holds(&cluster.topic(topic).await.unwrap()) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, looking).await.unwrap_or_else(|_| panic!("never shown: {what}"));
}

async fn all_in_sync(cluster: &Cluster, topic: &TopicName) {
    let holds = |info: &TopicInfo| info.partitions.iter().all(|partition| partition.isr.len() == 3);
    shown(cluster, topic, "all replicas in sync", holds).await;
}

/// Waits until something was written to each partition that was not yet. The ends.
async fn written_anew(progress: &Shared) -> Vec<i64> {
    let mut ends = Vec::new();
    for Progress { acknowledged, .. } in &**progress {
        let mut acknowledged = acknowledged.subscribe();
        let before = *acknowledged.borrow_and_update();
        let end = timeout(PATIENCE, acknowledged.wait_for(|end| *end > before)).await;
        ends.push(*end.expect("nothing is acknowledged any more").unwrap());
    }
    ends
}

/// Waits until everything up to `ends` was read.
async fn read_up_to(progress: &Shared, ends: &[i64]) {
    let begun = Instant::now();
    for (partition, (Progress { read, .. }, end)) in progress.iter().zip(ends).enumerate() {
        let mut read = read.subscribe();
        let reading = read.wait_for(|read| read >= end);
        let came = tokio::time::timeout_at(begun + RESUMED, reading).await.is_ok();
        assert!(came, "partition {partition} is not read up to {end} after {RESUMED:?}");
    }
}

/// Kills one node after the other while the rest works.
async fn kill_and_restart(
    mut kafka: KafkaCluster,
    cluster: Cluster,
    topic: TopicName,
    progress: Shared,
) -> KafkaCluster {
    let mut kills: BTreeMap<_, usize> = kafka.ids().map(|id| (id, 0)).collect();
    for _ in 0..KILLS {
        all_in_sync(&cluster, &topic).await;
        // The one that was killed least often of those that lead something that could be lost. On a starved machine the
        // controller may have taken the lead from one that was only slow.
        let info = cluster.topic(&topic).await.unwrap();
        let leads = |id: i32| info.partitions.iter().any(|partition| partition.leader == Some(id));
        let leading = kills.iter_mut().filter(|(id, _)| leads(**id));
        let (&id, killed) = leading.min_by_key(|(_, killed)| **killed).expect("a node leads something");
        *killed += 1;
        written_anew(&progress).await;
        kafka.kill(id);
        let others_lead = |info: &TopicInfo| {
            info.partitions.iter().all(|partition| partition.leader.is_some_and(|leader| leader != id))
        };
        shown(&cluster, &topic, "other leaders", others_lead).await;
        let ends = written_anew(&progress).await;
        read_up_to(&progress, &ends).await;
        kafka = tokio::task::spawn_blocking(move || {
            kafka.restart(id);
            kafka
        })
        .await
        .unwrap();
    }
    all_in_sync(&cluster, &topic).await;
    kafka
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whichever_broker_is_killed_each_acknowledged_record_comes_once_in_order_and_no_reader_ends() {
    // A dead broker is given up after 4 s and not after 9: with the election of another controller that would come near to the
    // time for which a reader tries again, and the test would take twice as long.
    let config =
        KafkaConfig::default().with("broker.session.timeout.ms", 4_000).with("broker.heartbeat.interval.ms", 1_000);
    let start = move || KafkaCluster::start_or_skip("killed brokers", &config);
    let Some(kafka) = tokio::task::spawn_blocking(start).await.unwrap() else { return };
    // An election on a busy machine may take longer than a read with an end waits by default.
    let retry = RetryLimits { attempts: 100, deadline: PATIENCE, ..RetryLimits::default() };
    let config = ClusterConfig { retry, ..ClusterConfig::new(kafka.bootstrap().split(',')) };
    let cluster = Cluster::connect(config.clone()).await.unwrap();
    let topic = name(&unique_topic("failover"));
    let new = NewTopic { name: topic.clone(), partitions: PARTITIONS, replication_factor: 3, config: [].into() };
    cluster.create_topic(&new).await.unwrap();
    all_in_sync(&cluster, &topic).await;

    let new_progress = |_| Progress { acknowledged: watch::Sender::new(0), read: watch::Sender::new(0) };
    let progress: Shared = Arc::new((0..PARTITIONS).map(new_progress).collect());
    let stop = Arc::new(AtomicBool::new(false));
    let settings = ProducerSettings { linger: Duration::from_millis(20), ..ProducerSettings::default() };
    let producer = Producer::new(&config, settings).unwrap();
    let fetcher = Fetcher::new(&cluster, FetcherOptions::default());
    let (mut workers, mut followers) = (JoinSet::new(), JoinSet::new());
    for partition in 0..PARTITIONS {
        workers.spawn(write(producer.clone(), topic.clone(), partition, Arc::clone(&progress), Arc::clone(&stop)));
        let following = Slice::from(TopicPartition::new(topic.clone(), partition), 0);
        followers.spawn(follow(fetcher.read(following, small_fetches()), Arc::clone(&progress)));
    }
    workers.spawn(read_again(fetcher.clone(), topic.clone(), Arc::clone(&progress), Arc::clone(&stop)));

    let chaos = kill_and_restart(kafka, cluster.clone(), topic.clone(), Arc::clone(&progress));
    // None of the others ends before, if not by a panic.
    let kafka = tokio::select! {
        kafka = chaos => kafka,
        ended = workers.join_next() => panic!("{ended:?}"),
        ended = followers.join_next() => panic!("{ended:?}"),
    };
    stop.store(true, Ordering::SeqCst);
    while let Some(ended) = workers.join_next().await {
        ended.unwrap();
    }
    let ends: Vec<_> = progress.iter().map(|progress| *progress.acknowledged.borrow()).collect();
    tokio::select! {
        () = read_up_to(&progress, &ends) => {}
        ended = followers.join_next() => panic!("{ended:?}"),
    }
    // The whole, once more, from whoever leads at last.
    for (partition, end) in (0..).zip(&ends) {
        read_slice(&fetcher, &topic, partition, 0, *end).await;
    }
    producer.close().await.unwrap();
    drop(kafka);
}

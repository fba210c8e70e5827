//! The broker is killed under other people's clients: idempotent producers of librdkafka, and a group of its consumers.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kafka_protocol::messages::OffsetFetchRequest;
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::protocol::StrBytes;
use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::common::*;
use super::{CHILD_DIR, ChildBroker, PARTITIONS, Random};

const KILLS: usize = 50;
const PRODUCERS: usize = 3;
const CONSUMERS: usize = 3;
/// How long the clients may take to end their work once nobody is killed any more.
const END: Duration = Duration::from_secs(60);

/// What was acknowledged to the producers: where each record is, and what went wrong.
#[derive(Default)]
struct Delivered {
    records: Vec<(i32, i64, String)>,
    failures: Vec<String>,
}

struct Deliveries(Arc<Mutex<Delivered>>);

impl ClientContext for Deliveries {
    /// A killed broker is what this test is about.
    fn error(&self, _error: KafkaError, _reason: &str) {}
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let mut delivered = self.0.lock().unwrap();
        match result {
            Ok(message) => {
                let value = String::from_utf8(message.payload().unwrap().to_vec()).unwrap();
                delivered.records.push((message.partition(), message.offset(), value));
            }
            Err((error, _)) => delivered.failures.push(error.to_string()),
        }
    }
}

/// What the group has read and committed, by all its members.
#[derive(Default)]
struct Consumed {
    values: HashSet<String>,
    /// The largest offset whose commit was acknowledged, a partition.
    committed: BTreeMap<i32, i64>,
}

/// The offsets that a member has read up to and not committed yet.
#[derive(Default)]
struct Positions(Mutex<HashMap<i32, i64>>);

impl ClientContext for Positions {
    fn error(&self, _error: KafkaError, _reason: &str) {}
}

impl ConsumerContext for Positions {
    /// What was read of a partition that is somebody else's now is not this member's to commit.
    fn pre_rebalance(&self, _consumer: &BaseConsumer<Self>, _rebalance: &Rebalance<'_>) {
        self.0.lock().unwrap().clear();
    }
}

fn settings(addr: SocketAddr) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", addr.to_string())
        .set("reconnect.backoff.ms", "10")
        .set("reconnect.backoff.max.ms", "100")
        .set("retry.backoff.ms", "20")
        .set("log_level", "2");
    config
}

fn publish(addr: SocketAddr, number: usize, delivered: Arc<Mutex<Delivered>>, stop: Arc<AtomicBool>) {
    let producer: ThreadedProducer<Deliveries> = settings(addr)
        .set("enable.idempotence", "true")
        .set("linger.ms", "2")
        .set("queue.buffering.max.messages", "2000")
        .set("message.timeout.ms", "300000")
        .create_with_context(Deliveries(Arc::clone(&delivered)))
        .unwrap();
    let mut next = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let value = format!("{number}:{next}:{}", "x".repeat(usize::try_from(next % 500).unwrap()));
        let partition = i32::try_from(next % PARTITIONS as u64).unwrap();
        match producer.send(BaseRecord::<(), _>::to("t").partition(partition).payload(&value)) {
            Ok(()) => next += 1,
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {}
            Err((error, _)) => panic!("{error}"),
        }
        // A rate, so that the log stays small enough to be compared with what was acknowledged.
        std::thread::sleep(Duration::from_millis(2));
    }
    producer.flush(END).unwrap();
    assert_eq!(producer.client().fatal_error(), None);
    assert_eq!(delivered.lock().unwrap().failures, Vec::<String>::new());
    assert_eq!(delivered.lock().unwrap().records.len() as u64, next, "all that was sent was acknowledged once");
}

fn consume(addr: SocketAddr, consumed: Arc<Mutex<Consumed>>, stop: Arc<AtomicBool>) {
    let consumer: BaseConsumer<Positions> = settings(addr)
        .set("group.id", "g")
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .set("session.timeout.ms", "6000")
        .set("heartbeat.interval.ms", "100")
        .set("fetch.wait.max.ms", "20")
        .create_with_context(Positions::default())
        .unwrap();
    consumer.subscribe(&["t"]).unwrap();
    let mut since = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        // Errors come and go with the broker.
        if let Some(Ok(message)) = consumer.poll(Duration::from_millis(20)) {
            let value = String::from_utf8(message.payload().unwrap().to_vec()).unwrap();
            consumed.lock().unwrap().values.insert(value);
            consumer.context().0.lock().unwrap().insert(message.partition(), message.offset() + 1);
        }
        if since.elapsed() > Duration::from_millis(30) {
            commit(&consumer, &consumed);
            since = Instant::now();
        }
    }
}

fn commit(consumer: &BaseConsumer<Positions>, consumed: &Mutex<Consumed>) {
    let positions = std::mem::take(&mut *consumer.context().0.lock().unwrap());
    let mut offsets = TopicPartitionList::new();
    for (partition, offset) in &positions {
        offsets.add_partition_offset("t", *partition, Offset::Offset(*offset)).unwrap();
    }
    if positions.is_empty() || consumer.commit(&offsets, CommitMode::Sync).is_err() {
        return;
    }
    let mut consumed = consumed.lock().unwrap();
    for (partition, offset) in positions {
        let known = consumed.committed.entry(partition).or_default();
        *known = offset.max(*known);
    }
}

/// What the broker says is committed.
async fn committed(client: &mut Client) -> BTreeMap<i32, i64> {
    let topic =
        OffsetFetchRequestTopic::default().with_name(name("t")).with_partition_indexes((0..PARTITIONS).collect());
    let request = OffsetFetchRequest::default()
        .with_group_id(StrBytes::from_static_str("g").into())
        .with_topics(Some(vec![topic]));
    let response = client.call(&request, 7).await;
    response.topics[0].partitions.iter().map(|p| (p.partition_index, p.committed_offset)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_kills_under_idempotent_producers_and_a_group_lose_and_double_nothing_acknowledged() {
    if std::env::var(CHILD_DIR).is_ok() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random(u64::from(std::process::id()) << 20);
    let mut broker = ChildBroker::start(dir.path(), "never");
    let addr = broker.addr;
    Client::connect(addr)
        .await
        .create_topic("t", PARTITIONS, &[("segment.bytes", "200000"), ("retention.ms", "-1")])
        .await;
    let (producing, consuming) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let consumed = Arc::new(Mutex::new(Consumed::default()));
    let delivered: Vec<_> = (0..PRODUCERS).map(|_| Arc::new(Mutex::new(Delivered::default()))).collect();
    let producers: Vec<JoinHandle<()>> = delivered
        .iter()
        .enumerate()
        .map(|(number, delivered)| {
            let (delivered, stop) = (Arc::clone(delivered), Arc::clone(&producing));
            std::thread::spawn(move || publish(addr, number, delivered, stop))
        })
        .collect();
    let consumers: Vec<JoinHandle<()>> = (0..CONSUMERS)
        .map(|_| {
            let (consumed, stop) = (Arc::clone(&consumed), Arc::clone(&consuming));
            std::thread::spawn(move || consume(addr, consumed, stop))
        })
        .collect();

    let mut kills_amid_commits = 0;
    let mut before: BTreeMap<i32, i64> = BTreeMap::new();
    for kill in 0..KILLS {
        // The moment is what varies. Every third time it is one at which the group is at work again.
        if kill % 3 == 0 {
            let since = Instant::now();
            while consumed.lock().unwrap().committed == before && since.elapsed() < END {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        tokio::time::sleep(Duration::from_micros(100_000 + random.next() % 900_000)).await;
        drop(broker);
        broker = ChildBroker::start_at(dir.path(), ["never", "interval", "always"][kill % 3], addr);
        let acknowledged = consumed.lock().unwrap().committed.clone();
        kills_amid_commits += usize::from(acknowledged != before);
        let found = committed(&mut Client::connect(addr).await).await;
        for (partition, offset) in &acknowledged {
            assert!(found[partition] >= *offset, "kill {kill}: {found:?} after {acknowledged:?} was acknowledged");
        }
        before = acknowledged;
    }
    assert!(kills_amid_commits >= KILLS / 3, "the group worked between {kills_amid_commits} kills only");

    producing.store(true, Ordering::Relaxed);
    for producer in producers {
        producer.join().unwrap();
    }
    let mut client = Client::connect(addr).await;
    let mut logs = BTreeMap::new();
    for partition in 0..PARTITIONS {
        // Checks the CRC of every batch.
        let records = client.read_all("t", partition, 0).await;
        assert!((0..).zip(&records).all(|(offset, record)| record.offset == offset), "offsets without gap");
        logs.insert(partition, records);
    }
    let mut acknowledged = 0;
    for (partition, offset, value) in delivered.iter().flat_map(|of| std::mem::take(&mut of.lock().unwrap().records)) {
        let found = logs[&partition].get(usize::try_from(offset).unwrap()).map(|record| &record.value[..]);
        assert_eq!(found, Some(value.as_bytes()), "partition {partition}, offset {offset}");
        acknowledged += 1;
    }
    let stored: usize = logs.values().map(Vec::len).sum();
    let distinct: HashSet<&[u8]> = logs.values().flatten().map(|record| &record.value[..]).collect();
    assert_eq!((distinct.len(), stored), (acknowledged, acknowledged), "each record once");

    let ends: BTreeMap<i32, i64> = logs.iter().map(|(partition, records)| (*partition, records.len() as i64)).collect();
    let caught_up = async {
        while committed(&mut client).await != ends {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(END, caught_up).await.expect("the group reads to the end once nobody is killed");
    consuming.store(true, Ordering::Relaxed);
    for consumer in consumers {
        consumer.join().unwrap();
    }
    let consumed = consumed.lock().unwrap();
    assert_eq!(consumed.values.len(), acknowledged, "the group has read every record");
    println!("{acknowledged} records, {kills_amid_commits} of {KILLS} kills amid commits");
}

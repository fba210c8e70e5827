//! What only a real Apache Kafka can show: transactions written by another client, and answers that end within a batch.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use tidegate_client::{ByteBudget, Cluster, ClusterConfig, NewTopic, OffsetQuery, ReaderOptions, Reserve};
use tidegate_model::{Isolation, TopicName};
use tidegate_testkit::kafka::{Kafka, KafkaConfig};
use tidegate_testkit::{kafka, unique_topic};
use tidegate_wire::{BatchOptions, BatchWriter};

use crate::stage::write;
use crate::support::{drain, name, options, slice};

async fn topic(bootstrap: &str, partitions: i32) -> (Cluster, TopicName) {
    let cluster = Cluster::connect(ClusterConfig::new([bootstrap])).await.unwrap();
    let topic = name(&unique_topic("transactions"));
    let new = NewTopic { name: topic.clone(), partitions, replication_factor: 1, config: BTreeMap::new() };
    cluster.create_topic(&new).await.unwrap();
    (cluster, topic)
}

const PATIENCE: Duration = Duration::from_secs(60);

/// A transactional producer of librdkafka; its calls block, so the tests run them apart.
struct Transactions {
    producer: BaseProducer,
    topic: TopicName,
}

impl Transactions {
    fn new(bootstrap: &str, topic: &TopicName) -> Self {
        let producer: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", bootstrap)
            .set("transactional.id", unique_topic("id"))
            .create()
            .unwrap();
        producer.init_transactions(PATIENCE).unwrap();
        Self { producer, topic: topic.clone() }
    }

    fn begin(&self, records: &[(i32, usize)]) {
        self.producer.begin_transaction().unwrap();
        for (partition, count) in records {
            for _ in 0..*count {
                let record = BaseRecord::<(), str>::to(self.topic.as_str()).partition(*partition).payload("v");
                self.producer.send(record).map_err(|(error, _)| error).unwrap();
            }
        }
        self.producer.flush(PATIENCE).unwrap();
    }

    fn commit(&self) {
        self.producer.commit_transaction(PATIENCE).unwrap();
    }

    fn abort(&self) {
        self.producer.abort_transaction(PATIENCE).unwrap();
    }
}

async fn latest(cluster: &Cluster, topic: &TopicName, partition: i32, isolation: Isolation) -> i64 {
    let answers = cluster.list_offsets(topic, &[(partition, OffsetQuery::Latest)], isolation).await.unwrap();
    answers[0].found.unwrap().offset
}

/// Waits until everything up to `offset` is decided: a commit or abort is acknowledged before its markers are written.
async fn decided(cluster: &Cluster, topic: &TopicName, partition: i32, offset: i64) {
    for _ in 0..2_000 {
        if latest(cluster, topic, partition, Isolation::ReadCommitted).await == offset {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the last stable offset of {topic}-{partition} does not become {offset}");
}

async fn read(cluster: &Cluster, topic: &TopicName, partition: i32, end: i64, isolation: Isolation) -> Vec<i64> {
    // One fetch for all, then one for each batch.
    let mut both = Vec::new();
    for max_partition_fetch_bytes in [1 << 20, 1] {
        let options =
            ReaderOptions { isolation, max_partition_fetch_bytes: Some(max_partition_fetch_bytes), ..options() };
        let mut reader = cluster.read(slice(topic.as_str(), partition, 0, end), options);
        let (offsets, result) = drain(&mut reader).await;
        result.unwrap();
        assert_eq!(reader.position(), end);
        both.push(offsets);
    }
    assert_eq!(both[0], both[1]);
    both.remove(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_whose_last_offset_is_a_commit_marker_ends_and_so_does_one_of_markers_alone() {
    let Some(bootstrap) = kafka::shared("commit markers") else { return };
    let (cluster, topic) = topic(&bootstrap, 2).await;
    let written = topic.clone();
    tokio::task::spawn_blocking(move || {
        let transactions = Transactions::new(&bootstrap, &written);
        transactions.begin(&[(0, 2), (1, 1)]);
        transactions.commit();
    })
    .await
    .unwrap();
    decided(&cluster, &topic, 0, 3).await;
    assert_eq!(read(&cluster, &topic, 0, 3, Isolation::ReadCommitted).await, [0, 1]);
    // Only the marker is left.
    decided(&cluster, &topic, 1, 2).await;
    cluster.delete_records(&topic, &[(1, 1)]).await.unwrap();
    let mut reader = cluster.read(slice(topic.as_str(), 1, 1, 2), options());
    let (offsets, result) = drain(&mut reader).await;
    result.unwrap();
    assert_eq!((offsets, reader.position()), (vec![], 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aborted_records_are_read_only_by_who_asks_for_uncommitted_ones() {
    let Some(bootstrap) = kafka::shared("abort markers") else { return };
    let (cluster, topic) = topic(&bootstrap, 1).await;
    let written = topic.clone();
    tokio::task::spawn_blocking(move || {
        let (one, other) = (Transactions::new(&bootstrap, &written), Transactions::new(&bootstrap, &written));
        // Offsets 0 1 are one's, 2 the other's, 3 its commit, 4 one's abort, 5 6 one's again, 7 its commit, 8 one's, 9 its
        // abort.
        one.begin(&[(0, 2)]);
        other.begin(&[(0, 1)]);
        other.commit();
        one.abort();
        one.begin(&[(0, 2)]);
        one.commit();
        one.begin(&[(0, 1)]);
        one.abort();
    })
    .await
    .unwrap();
    decided(&cluster, &topic, 0, 10).await;
    assert_eq!(read(&cluster, &topic, 0, 10, Isolation::ReadCommitted).await, [2, 5, 6]);
    assert_eq!(read(&cluster, &topic, 0, 10, Isolation::ReadUncommitted).await, [0, 1, 2, 5, 6, 8]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_transaction_bounds_what_is_committed_and_reading_goes_on_when_it_ends() {
    let Some(bootstrap) = kafka::shared("open transactions") else { return };
    let (cluster, topic) = topic(&bootstrap, 1).await;
    let written = topic.clone();
    let transactions = tokio::task::spawn_blocking(move || {
        let transactions = Transactions::new(&bootstrap, &written);
        transactions.begin(&[(0, 2)]);
        transactions.commit();
        transactions.begin(&[(0, 3)]);
        transactions
    })
    .await
    .unwrap();
    decided(&cluster, &topic, 0, 3).await;
    assert_eq!(latest(&cluster, &topic, 0, Isolation::ReadUncommitted).await, 6);
    assert_eq!(read(&cluster, &topic, 0, 3, Isolation::ReadCommitted).await, [0, 1]);
    assert_eq!(read(&cluster, &topic, 0, 6, Isolation::ReadUncommitted).await, [0, 1, 3, 4, 5]);
    // A reader that waits for the rest gets it, once the transaction has ended.
    let mut reader = cluster.read(slice(topic.as_str(), 0, 0, 7), options());
    let first = reader.next().await.unwrap().unwrap();
    assert_eq!(first.next_offset, 3);
    assert!(tokio::time::timeout(Duration::from_millis(100), reader.next()).await.is_err());
    tokio::task::spawn_blocking(move || transactions.commit()).await.unwrap();
    let (rest, result) = drain(&mut reader).await;
    result.unwrap();
    assert_eq!((rest, reader.position()), (vec![3, 4, 5], 7));
}

/// What stands at each key at last.
type Latest = BTreeMap<String, String>;

/// Writes transactions of two records each, every third one aborted; the keys come again and again.
fn overwrite(producer: &BaseProducer, topic: &TopicName, rounds: std::ops::Range<usize>, latest: &mut Latest) {
    for round in rounds {
        producer.begin_transaction().unwrap();
        let mut written = Vec::new();
        for key in [round % 5, (round + 2) % 5] {
            let (key, value) = (format!("k{key}"), format!("v{round}"));
            let record = BaseRecord::to(topic.as_str()).partition(0).key(&key).payload(&value);
            producer.send(record).map_err(|(error, _)| error).unwrap();
            written.push((key, value));
        }
        if round % 3 == 2 {
            producer.flush(PATIENCE).unwrap();
            producer.abort_transaction(PATIENCE).unwrap();
        } else {
            producer.commit_transaction(PATIENCE).unwrap();
            latest.extend(written);
        }
    }
}

/// All that is committed, as key and value in offset order, by large fetches and by small ones.
async fn committed(cluster: &Cluster, topic: &TopicName) -> Vec<(String, String)> {
    let end = latest(cluster, topic, 0, Isolation::ReadCommitted).await;
    let mut records = Vec::new();
    for max_partition_fetch_bytes in [1, 1 << 20] {
        records.clear();
        let options = ReaderOptions { max_partition_fetch_bytes: Some(max_partition_fetch_bytes), ..options() };
        let mut reader = cluster.read(slice(topic.as_str(), 0, 0, end), options);
        let mut before = -1;
        while let Some(chunk) = reader.next().await {
            for batch in chunk.unwrap().batches {
                for record in batch.records().map(Result::unwrap) {
                    assert!(record.offset > before, "{} after {before}", record.offset);
                    before = record.offset;
                    let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap().to_vec()).unwrap();
                    records.push((text(record.key), text(record.value)));
                }
            }
        }
        assert_eq!(reader.position(), end, "the read ends, whatever the cleaner left");
    }
    records
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_is_read_rightly_while_it_is_compacted_and_after() {
    // Its cleaner looks again after 100 ms and not after 15 s.
    let config = KafkaConfig::default().with("log.cleaner.backoff.ms", 100);
    let start = move || Kafka::start_or_skip("compaction", config);
    let Some(kafka) = tokio::task::spawn_blocking(start).await.unwrap() else { return };
    let bootstrap = kafka.bootstrap();
    let cluster = Cluster::connect(ClusterConfig::new([bootstrap.as_str()])).await.unwrap();
    let topic = name(&unique_topic("compacted"));
    let config = [
        ("cleanup.policy", "compact"),
        ("segment.ms", "200"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("delete.retention.ms", "0"),
    ];
    let config = config.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let new = NewTopic { name: topic.clone(), partitions: 1, replication_factor: 1, config };
    cluster.create_topic(&new).await.unwrap();

    let mut transactions = tokio::task::spawn_blocking({
        let (bootstrap, topic) = (bootstrap.clone(), topic.clone());
        move || Transactions::new(&bootstrap, &topic)
    })
    .await
    .unwrap();
    let mut expected = Latest::new();
    let mut seen = usize::MAX;
    for step in 0..300 {
        // Only a new record closes a segment, and only closed ones are compacted. The first steps write what is overwritten,
        // the later ones leave a key of their own.
        let written = topic.clone();
        (transactions, expected) = tokio::task::spawn_blocking(move || {
            if step < 6 {
                overwrite(&transactions.producer, &written, step * 10..step * 10 + 10, &mut expected);
            } else {
                transactions.producer.begin_transaction().unwrap();
                let value = step.to_string();
                let record = BaseRecord::to(written.as_str()).partition(0).key("tick").payload(&value);
                transactions.producer.send(record).map_err(|(error, _)| error).unwrap();
                transactions.commit();
                expected.insert("tick".to_owned(), value);
            }
            (transactions, expected)
        })
        .await
        .unwrap();
        let records = committed(&cluster, &topic).await;
        // What is committed a moment ago may not be decided yet: its marker is written behind the answer.
        let last: Latest = records.iter().cloned().collect();
        for (key, value) in expected.iter().filter(|(key, _)| step >= 7 && *key != "tick") {
            assert_eq!(last.get(key), Some(value), "the last value of each key is never lost");
        }
        seen = records.iter().filter(|(key, _)| key != "tick").count();
        if step >= 7 && seen == 5 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(seen, 5, "one record of each key is left of 120");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_large_batches_next_to_nothing_comes_twice() {
    let Some(bootstrap) = kafka::shared("large batches") else { return };
    let (cluster, topic) = topic(&bootstrap, 1).await;
    let mut stream = tokio::net::TcpStream::connect(&bootstrap).await.unwrap();
    // 200 to 900 KB, so that no fetch ends with a batch but by chance.
    let bytes = |at: usize| 200_000 + at * 390_001 % 700_000;
    let topic_name: &'static str = topic.as_str().to_owned().leak();
    for at in 0..100 {
        let mut writer = BatchWriter::new(BatchOptions::default());
        writer.push(1_000, None, Some(&vec![b'v'; bytes(at)]), []).unwrap();
        write(&mut stream, topic_name, 0, writer.finish().unwrap()).await;
    }
    // What a program has, and what a read of the server may have.
    let budgets = [ByteBudget::new(64 << 20), ByteBudget::with_reserve(4 << 20, &Reserve::new(64 << 20), 64 << 20)];
    for budget in budgets {
        let options = ReaderOptions { budget, ..ReaderOptions::default() };
        let mut reader = cluster.read(slice(topic.as_str(), 0, 0, 100), options);
        let (offsets, result) = drain(&mut reader).await;
        result.unwrap();
        assert_eq!(offsets, (0..100).collect::<Vec<_>>());
        let totals = reader.totals();
        assert!(totals.received * 100 <= totals.used * 106, "{totals:?}");
    }
}

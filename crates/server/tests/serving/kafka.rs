//! What only a real Apache Kafka can show: transactions of another client, and the flights in its log.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use tidegate_client::{Cluster, ClusterConfig, NewTopic, OffsetQuery, Producer, ProducerSettings};
use tidegate_model::{Isolation, OffsetRange};
use tidegate_plan::{EndStatement, LogEnd};
use tidegate_server::engine::{Engine, EngineLimits, Payloads, ReadRequest};
use tidegate_testkit::{kafka, unique_topic};

use crate::flights;
use crate::support::{Each, Seen, complete, last, name, soon};

const PATIENCE: Duration = Duration::from_secs(60);

pub struct Subject {
    pub engine: Engine,
    pub cluster: Cluster,
    pub topic: String,
}

pub async fn subject(bootstrap: &str, partitions: i32) -> Subject {
    let config = ClusterConfig::new([bootstrap]);
    let producer = Producer::new(&config, ProducerSettings::default()).unwrap();
    let cluster = Cluster::connect(config).await.unwrap();
    let topic = unique_topic("serving");
    let config = BTreeMap::from([("retention.ms".to_owned(), "-1".to_owned())]);
    cluster.create_topic(&NewTopic { name: name(&topic), partitions, replication_factor: 1, config }).await.unwrap();
    let engine = Engine::new(cluster.clone(), producer, Payloads::default(), EngineLimits::default());
    Subject { engine, cluster, topic }
}

impl Subject {
    pub async fn read(&self, request: ReadRequest) -> (Vec<i64>, EndStatement) {
        let (records, end) = self.read_records(request).await;
        (records.iter().map(|record| record.offset).collect(), end)
    }

    pub async fn read_records(&self, request: ReadRequest) -> (Vec<Seen>, EndStatement) {
        let read = self.engine.plan_read(request).await.unwrap();
        soon("the end", complete(read.stream(Each))).await.unwrap()
    }

    /// Waits until everything up to `offset` is decided: a commit or abort is acknowledged before its markers are written.
    async fn decided(&self, offset: i64) {
        loop {
            let query = [(0, OffsetQuery::Latest)];
            let answers =
                self.cluster.list_offsets(&name(&self.topic), &query, Isolation::ReadCommitted).await.unwrap();
            if answers[0].found.unwrap().offset == offset {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Three records committed, four aborted, two committed, one open:
///
/// ```text
/// offset  0 1 2 3        4 5 6 7 8       9 10 11       12
///         c c c (commit) a a a a (abort) c c  (commit) open
/// ```
fn write(bootstrap: &str, topic: &str) -> BaseProducer {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap).set("transactional.id", unique_topic("id"));
    let producer: BaseProducer = config.create().unwrap();
    producer.init_transactions(PATIENCE).unwrap();
    for (records, commits) in [(3, true), (4, false), (2, true)] {
        begin(&producer, topic, records);
        if commits {
            producer.commit_transaction(PATIENCE).unwrap();
        } else {
            producer.abort_transaction(PATIENCE).unwrap();
        }
    }
    begin(&producer, topic, 1);
    producer
}

fn begin(producer: &BaseProducer, topic: &str, records: usize) {
    producer.begin_transaction().unwrap();
    for _ in 0..records {
        producer.send(BaseRecord::<(), str>::to(topic).partition(0).payload("v")).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(PATIENCE).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn markers_and_aborted_records_are_no_records_and_no_reason_to_wait() {
    let Some(bootstrap) = kafka::shared("transactions through the engine") else { return };
    let subject = subject(&bootstrap, 1).await;
    let topic = subject.topic.clone();
    let open = tokio::task::spawn_blocking(move || write(&bootstrap, &topic)).await.unwrap();
    soon("the decision", subject.decided(12)).await;

    let committed = [0, 1, 2, 9, 10];
    let (offsets, end) = subject.read(ReadRequest::new(&subject.topic)).await;
    assert_eq!((offsets.as_slice(), end.exhaustive), (&committed[..], true));
    // The last offsets are markers, and the read has passed them; the open transaction lies behind the noted end.
    let ended = &end.partitions[0];
    assert_eq!((ended.read, ended.noted_end_offset, ended.undecided_offsets), (OffsetRange::new(0, 12), 12, 1));
    let expected = LogEnd { high_watermark: 13, last_stable_offset: Some(12), undecided: OffsetRange::new(12, 13) };
    assert_eq!((ended.log_end, end.undecided_offsets()), (expected, 1));
    for count in 0..=6 {
        let (offsets, end) = subject.read(last(&subject.topic, count)).await;
        let expected = &committed[committed.len().saturating_sub(usize::try_from(count).unwrap())..];
        assert_eq!((offsets.as_slice(), end.exhaustive), (expected, true), "last {count}");
    }

    let uncommitted = ReadRequest { isolation: Isolation::ReadUncommitted, ..last(&subject.topic, 3) };
    let (offsets, end) = subject.read(uncommitted).await;
    assert_eq!((offsets.as_slice(), end.undecided_offsets()), (&[9, 10, 12][..], 0));
    assert_eq!(end.partitions[0].log_end, LogEnd::of(13));
    let described = &subject.engine.describe_topic(&subject.topic).await.unwrap().partitions[0];
    assert_eq!((described.last_stable_offset, described.high_watermark), (12, 13));
    tokio::task::spawn_blocking(move || open.abort_transaction(PATIENCE).unwrap()).await.unwrap();
    soon("the decision", subject.decided(14)).await;
    let (offsets, end) = subject.read(ReadRequest::new(&subject.topic)).await;
    assert_eq!((offsets.as_slice(), end.undecided_offsets()), (&committed[..], 0));
    assert_eq!(end.partitions[0].read, OffsetRange::new(0, 14));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_range_of_a_year_is_complete_from_apache_kafka() {
    let Some(bootstrap) = kafka::shared("flights from Apache Kafka") else { return };
    for partitions in [1, 6] {
        let subject = subject(&bootstrap, partitions).await;
        flights::check(&subject.engine, &subject.topic, partitions).await;
    }
}

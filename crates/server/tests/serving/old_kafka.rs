//! An Apache Kafka of 2.8, which stores message formats v0 and v1 and speaks older protocol versions.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use tidegate_client::{ListOffsetsError, OffsetQuery};
use tidegate_model::Isolation;
use tidegate_server::engine::{RangeSpec, ReadRequest};
use tidegate_testkit::kafka::{Kafka, KafkaConfig, Release};

use crate::kafka::{Subject, subject};
use crate::support::{DAY_MS, name};

const PATIENCE: Duration = Duration::from_secs(60);

/// How many records each piece of the log has.
const PIECE: i64 = 25;

/// Sends a piece of the log as one or a few batches. The values are the offsets; each second one has a key. Ten records a
/// second, from [`DAY_MS`] on.
fn send(bootstrap: &str, topic: &str, codec: &str, first: i64) {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("compression.type", codec)
        .set("linger.ms", "100")
        .set("acks", "all")
        .create()
        .unwrap();
    for offset in first..first + PIECE {
        let (key, value) = (format!("k{offset}"), offset.to_string());
        let record = BaseRecord::to(topic).partition(0).payload(&value).timestamp(DAY_MS + 100 * offset);
        let record = if offset % 2 == 0 { record } else { record.key(&key) };
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(PATIENCE).unwrap();
}

async fn set_format(bootstrap: &str, topic: &str, version: &str) {
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", bootstrap).create().unwrap();
    let config = AlterConfig::new(ResourceSpecifier::Topic(topic))
        .set("message.format.version", version)
        .set("retention.ms", "-1");
    for result in admin.alter_configs(&[config], &AdminOptions::new()).await.unwrap() {
        result.unwrap();
    }
}

/// v0 in four codecs, v1 in four, v2: 225 records.
async fn upgraded(bootstrap: &str) -> Subject {
    let subject = subject(bootstrap, 1).await;
    let mut first = 0;
    for version in ["0.9.0", "0.10.2", "2.8"] {
        set_format(bootstrap, &subject.topic, version).await;
        let codecs = if version == "2.8" { &["zstd"][..] } else { &["none", "gzip", "snappy", "lz4"] };
        for codec in codecs {
            let (bootstrap, topic) = (bootstrap.to_owned(), subject.topic.clone());
            tokio::task::spawn_blocking(move || send(&bootstrap, &topic, codec, first)).await.unwrap();
            first += PIECE;
        }
    }
    assert_eq!(first, 225);
    subject
}

fn between(topic: &str, from_ms: i64, until_ms: i64) -> ReadRequest {
    let range = RangeSpec::Time { from: Some(format!("{from_ms}ms")), until: Some(format!("{until_ms}ms")) };
    ReadRequest { range, ..ReadRequest::new(topic) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_lived_through_three_message_formats_is_read_from_an_old_kafka() {
    let config = KafkaConfig { release: Release::Old, ..KafkaConfig::default() };
    let test = "old message formats from Apache Kafka 2.8";
    let Some(kafka) = tokio::task::spawn_blocking(move || Kafka::start_or_skip(test, config)).await.unwrap() else {
        return;
    };
    let bootstrap = kafka.bootstrap();
    let subject = upgraded(&bootstrap).await;

    // Every record, whatever its format and codec; v0 kept no timestamps.
    let (records, end) = subject.read_records(ReadRequest::new(&subject.topic)).await;
    assert_eq!(records.len(), 225);
    for (offset, record) in (0..).zip(&records) {
        assert_eq!((record.offset, record.value.as_deref()), (offset, Some(offset.to_string().as_bytes())));
        let timestamp_ms = if offset < 100 { -1 } else { DAY_MS + 100 * offset };
        assert_eq!(record.timestamp_ms, timestamp_ms, "{offset}");
    }
    assert!(end.exhaustive);

    // Time ranges: across v1 and v2; the untimed ones are told.
    let (offsets, end) = subject.read(between(&subject.topic, DAY_MS + 19_000, DAY_MS + 21_000)).await;
    assert_eq!(offsets, (190..210).collect::<Vec<_>>());
    assert!(end.exhaustive);
    let (offsets, end) = subject.read(between(&subject.topic, DAY_MS, DAY_MS + 12_000)).await;
    assert_eq!(offsets, (100..120).collect::<Vec<_>>());
    assert_eq!(end.partitions[0].untimed_records, 100);

    // Offsets inside of wrappers, and the newest records.
    for (start, end) in [(30, 31), (37, 160), (99, 101), (199, 225)] {
        let range = RangeSpec::Offsets { start: Some(start), end: Some(end) };
        let (offsets, _) = subject.read(ReadRequest { range, ..ReadRequest::new(&subject.topic) }).await;
        assert_eq!(offsets, (start..end).collect::<Vec<_>>());
    }

    // A topic that is v0 today has no times to look up: it is read whole, and says that nothing in it has a time.
    set_format(&bootstrap, &subject.topic, "0.9.0").await;
    let query = [(0, OffsetQuery::AtOrAfter(DAY_MS))];
    let refused = subject.cluster.list_offsets(&name(&subject.topic), &query, Isolation::ReadCommitted).await;
    assert!(matches!(refused, Err(ListOffsetsError::NoTimestamps { .. })), "{refused:?}");
    let (offsets, end) = subject.read(between(&subject.topic, DAY_MS + 19_000, DAY_MS + 21_000)).await;
    assert_eq!(offsets, (190..210).collect::<Vec<_>>());
    assert_eq!((end.partitions[0].untimed_records, end.exhaustive), (100, true));
}

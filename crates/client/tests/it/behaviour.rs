//! What must hold against any broker, on the embedded one and on a real Apache Kafka.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_client::{
    Cluster, ClusterConfig, CreateTopicError, DeleteRecordsError, DeleteTopicError, DescribeConfigsError,
    MetadataError, NewTopic, OffsetQuery, ProduceError, ProduceSummary, Producer, ProducerSettings, ReadError,
    ReaderOptions, RecordToSend,
};
use tidegate_model::{Compression, Isolation, TopicName};
use tidegate_testkit::unique_topic;

use crate::support::{drain, name, options, slice};

macro_rules! on_both_brokers {
    ($($behaviour:ident)+) => {
        mod embedded {
            use tidegate_broker::{Broker, BrokerConfig};

            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $behaviour() {
                    let folder = tempfile::tempdir().unwrap();
                    let broker = Broker::start(BrokerConfig::new(folder.path())).await.unwrap();
                    super::$behaviour(&super::connect(broker.addr().to_string()).await).await;
                    broker.shutdown().await.unwrap();
                }
            )+
        }

        mod apache_kafka {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $behaviour() {
                    if let Some(bootstrap) = tidegate_testkit::kafka::shared(stringify!($behaviour)) {
                        super::$behaviour(&super::connect(bootstrap).await).await;
                    }
                }
            )+
        }
    };
}

on_both_brokers! {
    a_topic_is_created_described_and_deleted
    what_is_produced_is_read_back_byte_for_byte
    keys_land_where_java_puts_them
    a_time_lookup_finds_the_first_record_at_or_after_or_nothing
    the_log_has_bounds_and_a_largest_timestamp
    a_record_larger_than_the_fetch_limit_is_read
    records_deleted_ahead_of_the_reader_are_named_as_lost
    a_slice_is_the_same_whatever_the_fetch_size
    a_record_that_cannot_be_written_fails_its_session_with_its_ordinal
    a_small_queue_slows_the_sender_down_and_keeps_the_order
    sessions_of_one_producer_are_counted_apart
}

async fn connect(bootstrap: String) -> Cluster {
    Cluster::connect(ClusterConfig::new([bootstrap])).await.unwrap()
}

async fn create(cluster: &Cluster, partitions: i32, config: &[(&str, &str)]) -> TopicName {
    let topic = name(&unique_topic("client"));
    // The records of some tests are years old by their timestamps, and are to outlive a test that takes long.
    let config = [("retention.ms", "-1")].iter().chain(config);
    let config = config.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let new = NewTopic { name: topic.clone(), partitions, replication_factor: 1, config };
    cluster.create_topic(&new).await.unwrap();
    topic
}

fn producer(cluster: &Cluster, settings: ProducerSettings) -> Producer {
    Producer::new(cluster.config(), ProducerSettings { linger: Duration::from_millis(1), ..settings }).unwrap()
}

async fn publish(cluster: &Cluster, topic: &TopicName, records: &[RecordToSend<'_>]) -> ProduceSummary {
    let mut session = producer(cluster, ProducerSettings::default()).session(topic);
    for record in records {
        session.send(*record).await.unwrap();
    }
    session.finish().await.unwrap()
}

fn at(partition: i32, timestamp_ms: i64) -> RecordToSend<'static> {
    RecordToSend {
        partition: Some(partition),
        value: Some(b"v"),
        timestamp_ms: Some(timestamp_ms),
        ..RecordToSend::default()
    }
}

async fn a_topic_is_created_described_and_deleted(cluster: &Cluster) {
    let topic = create(cluster, 3, &[("retention.ms", "-1")]).await;
    let info = cluster.topic(&topic).await.unwrap();
    assert_eq!(info.name, topic);
    assert_eq!(info.partitions.iter().map(|p| p.partition).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(info.partitions.iter().all(|p| p.leader.is_some() && p.replicas.len() == 1 && p.isr == p.replicas));
    assert!(info.id.is_some() && !info.internal);

    let topics = cluster.topics().await.unwrap();
    assert!(topics.windows(2).all(|pair| pair[0].name < pair[1].name));
    assert!(topics.contains(&info));

    let config = cluster.topic_config(&topic).await.unwrap();
    assert_eq!((config["retention.ms"].value.as_deref(), config["retention.ms"].is_default), (Some("-1"), false));
    assert!(config["max.message.bytes"].is_default);

    let again = NewTopic { name: topic.clone(), partitions: 1, replication_factor: 1, config: BTreeMap::new() };
    assert!(matches!(cluster.create_topic(&again).await, Err(CreateTopicError::Exists { .. })));
    let none = NewTopic { name: name(&unique_topic("none")), partitions: 0, ..again.clone() };
    let refused = cluster.create_topic(&none).await.unwrap_err();
    assert!(matches!(refused, CreateTopicError::Refused { .. }), "{refused}");
    let config = BTreeMap::from([("retention.ms".to_owned(), "soon".to_owned())]);
    let wrong = NewTopic { name: name(&unique_topic("wrong")), config, ..again };
    let refused = cluster.create_topic(&wrong).await.unwrap_err();
    assert!(matches!(refused, CreateTopicError::Refused { .. }), "{refused}");

    cluster.delete_topic(&topic).await.unwrap();
    assert!(matches!(cluster.topic(&topic).await, Err(MetadataError::UnknownTopic { .. })));
    let gone = cluster.delete_topic(&topic).await.unwrap_err();
    assert!(matches!(gone, DeleteTopicError::UnknownTopic { .. }), "{gone}");
    let gone = cluster.topic_config(&topic).await.unwrap_err();
    assert!(matches!(gone, DescribeConfigsError::UnknownTopic { .. }), "{gone}");
    let gone = cluster.delete_records(&topic, &[(0, 0)]).await.unwrap_err();
    assert!(matches!(gone, DeleteRecordsError::Metadata(MetadataError::UnknownTopic { .. })), "{gone}");
}

async fn what_is_produced_is_read_back_byte_for_byte(cluster: &Cluster) {
    type Headers = [(&'static [u8], Option<&'static [u8]>)];
    type KeyValueHeaders<'a> = (Option<&'a [u8]>, Option<&'a [u8]>, &'a Headers);
    let headers: &Headers =
        &[(b"a", Some(b"1")), (b"a", None), (b"", Some(b"")), ("\u{e9}\0".as_bytes(), Some(b"\xff"))];
    let binary: Vec<u8> = (0..=255).cycle().take(5_000).collect();
    let records: Vec<KeyValueHeaders<'_>> = vec![
        (None, None, &[]),
        (Some(b""), Some(b""), &[]),
        (Some(b"\xff\xfe\0"), Some(&binary), headers),
        (Some(b"key"), None, &[]),
    ];
    for compression in [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd]
    {
        let topic = create(cluster, 1, &[]).await;
        let producer = producer(cluster, ProducerSettings { compression, ..ProducerSettings::default() });
        let mut session = producer.session(&topic);
        for (index, (key, value, headers)) in (0..).zip(&records) {
            let timestamp_ms = Some(1_714_521_600_000 + index);
            session
                .send(RecordToSend { partition: None, key: *key, value: *value, headers, timestamp_ms })
                .await
                .unwrap();
        }
        let summary = session.finish().await.unwrap();
        assert_eq!((summary.records, summary.partitions[&0].records), (4, 4));
        assert_eq!((summary.partitions[&0].first_offset, summary.partitions[&0].last_offset), (0, 3));

        let mut reader = cluster.read(slice(topic.as_str(), 0, 0, 4), options());
        let mut index = 0;
        while let Some(chunk) = reader.next().await {
            for batch in chunk.unwrap().batches {
                for record in batch.records() {
                    let record = record.unwrap();
                    let (key, value, headers) = records[index];
                    assert_eq!((record.key, record.value), (key, value));
                    assert_eq!(record.headers.map(|h| (h.name, h.value)).collect::<Vec<_>>(), headers);
                    assert_eq!(record.timestamp_ms, 1_714_521_600_000 + i64::try_from(index).unwrap());
                    index += 1;
                }
            }
        }
        assert_eq!(index, 4, "{}", compression.name());
    }
}

/// `org.apache.kafka.common.utils.Utils.murmur2`.
fn murmur2(data: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = 0x9747_b28c ^ u32::try_from(data.len()).unwrap();
    let mut words = data.chunks_exact(4);
    for word in &mut words {
        let mut k = u32::from_le_bytes(word.try_into().unwrap()).wrapping_mul(M);
        k = (k ^ (k >> 24)).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ k;
    }
    let rest = words.remainder();
    for (at, byte) in rest.iter().enumerate().rev() {
        hash ^= u32::from(*byte) << (8 * at);
    }
    if !rest.is_empty() {
        hash = hash.wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}

async fn keys_land_where_java_puts_them(cluster: &Cluster) {
    // From UtilsTest.testMurmur2 of Apache Kafka.
    assert_eq!(murmur2(b"21").cast_signed(), -973_932_308);
    assert_eq!(murmur2(b"foobar").cast_signed(), -790_332_482);
    assert_eq!(murmur2(b"a-little-bit-long-string").cast_signed(), -985_981_536);

    let topic = create(cluster, 7, &[]).await;
    let keys: Vec<String> = (0..200).map(|n| "k".repeat(n % 9) + &n.to_string()).collect();
    let records: Vec<_> = keys
        .iter()
        .map(|key| RecordToSend { key: Some(key.as_bytes()), value: Some(b"v"), ..RecordToSend::default() })
        .collect();
    let summary = publish(cluster, &topic, &records).await;
    let mut expected = BTreeMap::<i32, u64>::new();
    for key in &keys {
        let partition = (murmur2(key.as_bytes()) & 0x7fff_ffff) % 7;
        *expected.entry(partition.cast_signed()).or_default() += 1;
    }
    let got: BTreeMap<i32, u64> = summary.partitions.iter().map(|(p, produced)| (*p, produced.records)).collect();
    assert_eq!(got, expected);
    for partition in 0..7 {
        let end = i64::try_from(expected[&partition]).unwrap();
        let mut reader = cluster.read(slice(topic.as_str(), partition, 0, end), options());
        while let Some(chunk) = reader.next().await {
            for record in chunk.unwrap().batches.iter().flat_map(|batch| batch.records()) {
                let key = record.unwrap().key.unwrap();
                assert_eq!((murmur2(key) & 0x7fff_ffff) % 7, partition.cast_unsigned());
            }
        }
    }
}

async fn a_time_lookup_finds_the_first_record_at_or_after_or_nothing(cluster: &Cluster) {
    const FROM: i64 = 1_714_521_600_000;
    const UNTIL: i64 = 1_714_525_200_000;
    let topic = create(cluster, 4, &[]).await;
    // 0: around the window; 1: before it; 2: never written; 3: all records deleted.
    let mut records = vec![at(0, FROM), at(0, UNTIL - 1), at(0, UNTIL), at(1, FROM - 21_600_000)];
    records.extend((0..7).map(|n| at(3, FROM + n)));
    publish(cluster, &topic, &records).await;
    cluster.delete_records(&topic, &[(3, -1)]).await.unwrap();

    let queries: Vec<_> = (0..4).flat_map(|p| [FROM, UNTIL].map(|t| (p, OffsetQuery::AtOrAfter(t)))).collect();
    for isolation in [Isolation::ReadCommitted, Isolation::ReadUncommitted] {
        let answers = cluster.list_offsets(&topic, &queries, isolation).await.unwrap();
        let found: Vec<_> =
            answers.iter().map(|answer| answer.found.map(|found| (found.offset, found.timestamp_ms))).collect();
        assert_eq!(answers.iter().map(|a| a.partition).collect::<Vec<_>>(), [0, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!(found, [Some((0, FROM)), Some((2, UNTIL)), None, None, None, None, None, None]);
    }
    let bounds = [(3, OffsetQuery::Earliest), (3, OffsetQuery::Latest), (2, OffsetQuery::Latest)];
    let answers = cluster.list_offsets(&topic, &bounds, Isolation::ReadCommitted).await.unwrap();
    assert_eq!(answers.iter().map(|a| a.found.unwrap().offset).collect::<Vec<_>>(), [7, 7, 0]);
}

async fn the_log_has_bounds_and_a_largest_timestamp(cluster: &Cluster) {
    let topic = create(cluster, 2, &[]).await;
    publish(cluster, &topic, &[at(0, 5_000), at(0, 9_000), at(0, 7_000)]).await;
    let queries = [
        (0, OffsetQuery::Earliest),
        (0, OffsetQuery::Latest),
        (0, OffsetQuery::MaxTimestamp),
        (1, OffsetQuery::MaxTimestamp),
        (0, OffsetQuery::AtOrAfter(i64::MIN)),
        (0, OffsetQuery::AtOrAfter(i64::MAX)),
    ];
    let answers = cluster.list_offsets(&topic, &queries, Isolation::ReadCommitted).await.unwrap();
    let found: Vec<_> = answers.iter().map(|a| a.found.map(|found| (found.offset, found.timestamp_ms))).collect();
    assert_eq!(found, [Some((0, -1)), Some((3, -1)), Some((1, 9_000)), None, Some((0, 5_000)), None]);
}

async fn a_record_larger_than_the_fetch_limit_is_read(cluster: &Cluster) {
    let topic = create(cluster, 1, &[]).await;
    let (small, large) = (vec![b's'; 100], vec![b'l'; 40 << 10]);
    for offset in 0..10 {
        // Each in a batch of its own.
        let value = if offset == 5 { &large } else { &small };
        publish(cluster, &topic, &[RecordToSend { value: Some(value), ..at(0, 1_000) }]).await;
    }
    let small = ReaderOptions { max_partition_fetch_bytes: Some(1_024), ..options() };
    let (read, result) = drain(&mut cluster.read(slice(topic.as_str(), 0, 0, 10), small)).await;
    result.unwrap();
    assert_eq!(read, (0..10).collect::<Vec<_>>());
}

async fn records_deleted_ahead_of_the_reader_are_named_as_lost(cluster: &Cluster) {
    let topic = create(cluster, 1, &[]).await;
    // A hundred batches of ten.
    let producer = producer(cluster, ProducerSettings::default());
    for _ in 0..100 {
        let mut session = producer.session(&topic);
        for _ in 0..10 {
            session.send(at(0, 1_000)).await.unwrap();
        }
        session.finish().await.unwrap();
    }
    for deleted in [500, 1_000] {
        // As little ahead as possible, so that the deletion comes before the reader.
        let options = ReaderOptions {
            max_partition_fetch_bytes: Some(1),
            budget: tidegate_client::ByteBudget::new(1),
            ..options()
        };
        let start = if deleted == 500 { 0 } else { 500 };
        let mut reader = cluster.read(slice(topic.as_str(), 0, start, 1_000), options);
        let first = reader.next().await.unwrap().unwrap();
        assert!(first.next_offset < start + 120);
        cluster.delete_records(&topic, &[(0, deleted)]).await.unwrap();
        let (read, result) = drain(&mut reader).await;
        // What was on its way already may still come, in order and without a jump.
        let position = reader.position();
        assert!(position < start + 200);
        assert_eq!(read, (first.next_offset..position).collect::<Vec<_>>());
        match result {
            Err(ReadError::OffsetOutOfRange { requested, log_start_offset, high_watermark, .. }) => {
                assert_eq!((requested, log_start_offset, high_watermark), (position, deleted, 1_000));
            }
            other => panic!("{other:?}"),
        }
    }
    let beyond = cluster.delete_records(&topic, &[(0, 5_000)]).await.unwrap_err();
    assert!(matches!(beyond, DeleteRecordsError::OffsetOutOfRange { offset: 5_000, .. }), "{beyond}");
}

async fn a_slice_is_the_same_whatever_the_fetch_size(cluster: &Cluster) {
    let topic = create(cluster, 1, &[]).await;
    let values: Vec<Vec<u8>> = (0..3_000_u32).map(|n| n.to_be_bytes().repeat(1 + n as usize % 50)).collect();
    let producer = producer(cluster, ProducerSettings { batch_bytes: 8_192, ..ProducerSettings::default() });
    let mut session = producer.session(&topic);
    for value in &values {
        session.send(RecordToSend { value: Some(value), ..at(0, 1_000) }).await.unwrap();
    }
    session.finish().await.unwrap();
    for max_partition_fetch_bytes in [1, 10_000, 1 << 20] {
        for (start, end) in [(0, 3_000), (17, 2_999), (1_500, 1_501)] {
            let options = ReaderOptions { max_partition_fetch_bytes: Some(max_partition_fetch_bytes), ..options() };
            let mut reader = cluster.read(slice(topic.as_str(), 0, start, end), options);
            let mut next = start;
            while let Some(chunk) = reader.next().await {
                for record in chunk.unwrap().batches.iter().flat_map(|batch| batch.records()) {
                    let record = record.unwrap();
                    assert_eq!(record.offset, next);
                    assert_eq!(record.value.unwrap(), values[usize::try_from(next).unwrap()]);
                    next += 1;
                }
            }
            assert_eq!((next, reader.position()), (end, end));
        }
    }
}

async fn a_record_that_cannot_be_written_fails_its_session_with_its_ordinal(cluster: &Cluster) {
    let topic = create(cluster, 1, &[("max.message.bytes", "10000")]).await;
    let settings = ProducerSettings {
        compression: Compression::None,
        message_max_bytes: 50_000,
        delivery_timeout: Duration::from_secs(30),
        ..ProducerSettings::default()
    };
    let producer = producer(cluster, settings.clone());
    let value = vec![b'x'; 100_000];
    let of = |bytes| RecordToSend { value: Some(&value[..bytes]), ..RecordToSend::default() };

    let mut session = producer.session(&topic);
    session.send(of(10)).await.unwrap();
    let error = session.send(of(60_000)).await.unwrap_err();
    assert!(matches!(error, ProduceError::TooLarge { ordinal: 1, bytes: 60_000, limit: Some(50_000), .. }), "{error}");
    assert!(session.send(of(10)).await.is_err(), "the session is failed for good");
    assert_eq!(session.finish().await.unwrap_err().ordinal(), 1);

    let mut session = producer.session(&topic);
    session.send(of(20_000)).await.unwrap();
    let error = session.finish().await.unwrap_err();
    assert!(matches!(error, ProduceError::TooLarge { ordinal: 0, bytes: 20_000, limit: None, .. }), "{error}");

    let mut session = producer.session(&topic);
    let sent = session.send(RecordToSend { partition: Some(9), ..of(1) }).await;
    let error = match sent {
        Ok(()) => session.finish().await.unwrap_err(),
        Err(error) => error,
    };
    assert!(matches!(error, ProduceError::UnknownPartition { ordinal: 0, partition: 9, .. }), "{error}");
    let error = producer.session(&topic).send(RecordToSend { partition: Some(-1), ..of(1) }).await.unwrap_err();
    assert!(matches!(error, ProduceError::UnknownPartition { partition: -1, .. }), "{error}");

    for record in
        [RecordToSend { timestamp_ms: Some(0), ..of(1) }, RecordToSend { headers: &[(b"caf\xe9", None)], ..of(1) }]
    {
        let error = producer.session(&topic).send(record).await.unwrap_err();
        assert!(matches!(error, ProduceError::Record { ordinal: 0, .. }), "{error}");
    }

    // A topic is unknown for good after half of the time.
    let short = self::producer(cluster, ProducerSettings { delivery_timeout: Duration::from_secs(10), ..settings });
    let unknown = name(&unique_topic("unknown"));
    let mut session = short.session(&unknown);
    session.send(of(1)).await.unwrap();
    let error = session.finish().await.unwrap_err();
    assert!(matches!(error, ProduceError::UnknownTopic { ordinal: 0, .. }), "{error}");
    assert!(
        matches!(cluster.topic(&unknown).await, Err(MetadataError::UnknownTopic { .. })),
        "nothing creates a topic"
    );

    // The producer is none the worse for all that.
    let mut session = producer.session(&topic);
    session.send(of(10)).await.unwrap();
    assert_eq!(session.finish().await.unwrap().records, 1);
}

async fn a_small_queue_slows_the_sender_down_and_keeps_the_order(cluster: &Cluster) {
    let topic = create(cluster, 3, &[]).await;
    let settings = ProducerSettings { queue_bytes: 5_000, ..ProducerSettings::default() };
    let producer = producer(cluster, settings);
    let mut session = producer.session(&topic);
    let large = vec![b'x'; 20_000];
    for n in 0..600_u32 {
        // One is larger than the whole queue.
        let value = if n == 300 { [&n.to_be_bytes()[..], &large].concat() } else { n.to_be_bytes().to_vec() };
        let partition = i32::try_from(n % 3).unwrap();
        session.send(RecordToSend { value: Some(&value), ..at(partition, 1_000) }).await.unwrap();
    }
    let summary = session.finish().await.unwrap();
    assert_eq!(summary.records, 600);
    producer.flush().await.unwrap();
    for partition in 0..3 {
        let mut reader = cluster.read(slice(topic.as_str(), partition, 0, 200), options());
        let mut next = partition.cast_unsigned();
        while let Some(chunk) = reader.next().await {
            for record in chunk.unwrap().batches.iter().flat_map(|batch| batch.records()) {
                assert_eq!(record.unwrap().value.unwrap()[..4], next.to_be_bytes());
                next += 3;
            }
        }
        assert_eq!(next, 600 + partition.cast_unsigned());
    }
}

async fn sessions_of_one_producer_are_counted_apart(cluster: &Cluster) {
    let topic = create(cluster, 1, &[]).await;
    let producer = producer(cluster, ProducerSettings::default());
    let (mut first, mut second) = (producer.session(&topic), producer.session(&topic));
    for n in 0..10 {
        first.send(at(0, 1_000)).await.unwrap();
        if n % 2 == 0 {
            second.send(at(0, 1_000)).await.unwrap();
        }
    }
    assert_eq!((first.sent(), second.sent()), (10, 5));
    // One that is dropped is written all the same.
    let mut dropped = producer.session(&topic);
    dropped.send(at(0, 1_000)).await.unwrap();
    drop(dropped);
    assert_eq!(first.finish().await.unwrap().records, 10);
    assert_eq!(second.finish().await.unwrap().partitions[&0].records, 5);
    assert_eq!(producer.session(&topic).finish().await.unwrap(), ProduceSummary::default());
    producer.flush().await.unwrap();
    let latest = cluster.list_offsets(&topic, &[(0, OffsetQuery::Latest)], Isolation::ReadCommitted).await.unwrap();
    assert_eq!(latest[0].found.unwrap().offset, 16);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_that_nobody_acknowledges_time_out_with_their_ordinal_and_flushing_says_how_many() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let settings = ProducerSettings { delivery_timeout: Duration::from_millis(300), ..ProducerSettings::default() };
    let producer = Producer::new(&ClusterConfig::new([free.to_string()]), settings).unwrap();
    let mut session = producer.session(&name("t"));
    session.send(RecordToSend { value: Some(b"v"), ..RecordToSend::default() }).await.unwrap();
    session.send(RecordToSend { value: Some(b"v"), ..RecordToSend::default() }).await.unwrap();
    let error = session.finish().await.unwrap_err();
    assert!(matches!(error, ProduceError::TimedOut { ordinal: 0 | 1, .. }), "{error}");
    // Whether or not the second has failed by now, a flush ends.
    let _ = producer.flush().await;
}

#[test]
fn settings_that_librdkafka_refuses_are_an_error() {
    let cluster = ClusterConfig::new(["localhost:9092"]);
    let settings = ProducerSettings { message_max_bytes: 1, ..ProducerSettings::default() };
    assert!(Producer::new(&cluster, settings).is_err());
}

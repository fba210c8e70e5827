//! An embedded broker with a topic in it, behind stand-in brokers that misbehave.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{ApiKey, ProduceRequest, ProduceResponse, RequestHeader, TopicName};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use tempfile::TempDir;
use tidegate_broker::testing::{Flavour, Setup, TestCluster};
use tidegate_broker::{Broker, BrokerConfig};
use tidegate_client::{Cluster, ClusterConfig, NewTopic, ReadError, ReaderOptions, RetryLimits, Slice};
use tidegate_wire::{BatchOptions, BatchWriter};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{drain, name, slice};

pub(crate) const TOPIC: &str = "t";
pub(crate) const PARTITIONS: i32 = 3;
/// Records in each partition, in batches of one to five.
pub(crate) const RECORDS: i64 = 60;

/// How long a request may take here before it is given up.
pub(crate) const PATIENCE: Duration = Duration::from_millis(400);

/// The same where no broker is silent.
pub(crate) const AT_LEISURE: Duration = Duration::from_secs(30);

/// How long a read waits here for what does not come.
pub(crate) const STALL: Duration = Duration::from_millis(500);

pub(crate) struct Stage {
    pub(crate) cluster: TestCluster,
    pub(crate) broker: Broker,
    pub(crate) _folder: TempDir,
}

impl Stage {
    /// A filled topic behind brokers of this kind.
    pub(crate) async fn set(setup: Setup) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let retention_interval = Duration::from_secs(86_400);
        let broker =
            Broker::start(BrokerConfig { retention_interval, ..BrokerConfig::new(folder.path()) }).await.unwrap();
        let admin = Cluster::connect(ClusterConfig::new([broker.addr().to_string()])).await.unwrap();
        let config = [("retention.ms".to_owned(), "-1".to_owned())].into();
        let topic = NewTopic { name: name(TOPIC), partitions: PARTITIONS, replication_factor: 1, config };
        admin.create_topic(&topic).await.unwrap();
        let mut stream = TcpStream::connect(broker.addr()).await.unwrap();
        for partition in 0..PARTITIONS {
            let mut next = 0;
            for size in (1..=5).cycle() {
                let size = size.min(RECORDS - next);
                write(&mut stream, TOPIC, partition, produced(next, size)).await;
                next += size;
                if next == RECORDS {
                    break;
                }
            }
        }
        let cluster = TestCluster::start(broker.addr(), setup).await.unwrap();
        Self { cluster, broker, _folder: folder }
    }

    pub(crate) async fn of(flavour: Flavour) -> Self {
        Self::set(Setup { flavour, ..Setup::default() }).await
    }

    /// A client of the stand-in brokers that gives up a silent one soon.
    pub(crate) async fn client(&self) -> Cluster {
        self.client_with(PATIENCE).await
    }

    /// One that waits for a broker that is only slow: for whatever must not be asked for twice.
    pub(crate) async fn patient_client(&self) -> Cluster {
        self.client_with(AT_LEISURE).await
    }

    /// How long a request of it may take is for what the test does. That the brokers are there takes as long as it takes.
    pub(crate) async fn client_with(&self, request_timeout: Duration) -> Cluster {
        let config = ClusterConfig { request_timeout, ..quick(self.cluster.bootstrap()) };
        let cluster = Cluster::new(config).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while let Err(error) = cluster.check().await {
            assert!(Instant::now() < deadline, "{error}");
        }
        cluster
    }

    pub(crate) fn upstream(&self) -> SocketAddr {
        self.broker.addr()
    }
}

/// Settings that give up a silent broker soon and try often.
pub(crate) fn quick(bootstrap: String) -> ClusterConfig {
    ClusterConfig {
        connect_timeout: Duration::from_secs(5),
        request_timeout: PATIENCE,
        retry: RetryLimits {
            attempts: 8,
            backoff: Duration::from_millis(1),
            backoff_max: Duration::from_millis(20),
            deadline: Duration::from_secs(20),
        },
        max_response_bytes: 1 << 20,
        ..ClusterConfig::new([bootstrap])
    }
}

/// Fetches of two or three batches, so that a partition takes many. A read that stalls is told so late that no busy machine
/// makes one.
pub(crate) fn small_fetches() -> ReaderOptions {
    ReaderOptions {
        max_partition_fetch_bytes: Some(250),
        fetch_max_wait: Duration::from_millis(10),
        stall_timeout: Duration::from_secs(10),
        ..ReaderOptions::default()
    }
}

pub(crate) fn whole(partition: i32) -> Slice {
    slice(TOPIC, partition, 0, RECORDS)
}

pub(crate) fn all_offsets() -> Vec<i64> {
    (0..RECORDS).collect()
}

/// The same, and a read that stalls is told so soon.
pub(crate) fn small_fetches_that_stall() -> ReaderOptions {
    ReaderOptions { stall_timeout: STALL, ..small_fetches() }
}

/// Reads a partition to its end, with a new reader after each error, as a caller does that resumes. The offsets that came
/// out, and the errors.
pub(crate) async fn read_resuming(
    cluster: &Cluster,
    partition: i32,
    resumes: usize,
    options: ReaderOptions,
) -> (Vec<i64>, Vec<ReadError>) {
    let (mut offsets, mut errors) = (Vec::new(), Vec::new());
    let mut from = 0;
    for _ in 0..=resumes {
        let mut reader = cluster.read(slice(TOPIC, partition, from, RECORDS), options.clone());
        let (found, end) = drain(&mut reader).await;
        offsets.extend(found);
        from = reader.position();
        match end {
            Ok(()) => break,
            Err(error) => errors.push(error),
        }
    }
    (offsets, errors)
}

/// A batch as a producer sends it, of the records that will have these offsets: their values say them, their times too.
fn produced(first: i64, count: i64) -> Bytes {
    let mut writer = BatchWriter::new(BatchOptions::default());
    for offset in first..first + count {
        writer.push(1_000 + offset, None, Some(offset.to_string().as_bytes()), []).unwrap();
    }
    writer.finish().unwrap()
}

/// Produces a batch, past the stand-in brokers.
pub(crate) async fn write(stream: &mut TcpStream, topic: &'static str, partition: i32, records: Bytes) {
    const VERSION: i16 = 7;
    let data = PartitionProduceData::default().with_index(partition).with_records(Some(records));
    let topic = TopicName(StrBytes::from_static_str(topic));
    let topic = TopicProduceData::default().with_name(topic).with_partition_data(vec![data]);
    let request = ProduceRequest::default().with_acks(-1).with_timeout_ms(10_000).with_topic_data(vec![topic]);
    let mut bytes = BytesMut::new();
    bytes.put_i32(0);
    let header =
        RequestHeader::default().with_request_api_key(ApiKey::Produce as i16).with_request_api_version(VERSION);
    header.encode(&mut bytes, 1).unwrap();
    request.encode(&mut bytes, VERSION).unwrap();
    let size = i32::try_from(bytes.len() - 4).unwrap();
    bytes[..4].copy_from_slice(&size.to_be_bytes());
    stream.write_all(&bytes).await.unwrap();
    let mut answer = vec![0; usize::try_from(stream.read_i32().await.unwrap()).unwrap()];
    stream.read_exact(&mut answer).await.unwrap();
    let answer = ProduceResponse::decode(&mut Bytes::from(answer).slice(4..), VERSION).unwrap();
    assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
}

/// Adds records behind those that are there.
pub(crate) async fn append(broker: SocketAddr, partition: i32, count: i64) {
    write(&mut TcpStream::connect(broker).await.unwrap(), TOPIC, partition, produced(RECORDS, count)).await;
}

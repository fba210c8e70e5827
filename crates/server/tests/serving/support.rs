//! A broker, an engine and a server of a test's own.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::StreamExt as _;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{ApiKey, ProduceRequest, ProduceResponse, RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable as _, Encodable as _, HeaderVersion as _, StrBytes};
use tidegate_api::v1::tidegate_client::TidegateClient;
use tidegate_api::{ApiError, Code};
use tidegate_broker::{Broker, BrokerConfig};
use tidegate_client::{Cluster, ClusterConfig, NewTopic, Producer, ProducerSettings, RetryLimits};
use tidegate_codec::registry::SchemaKey;
use tidegate_model::{Record, TopicName};
use tidegate_plan::EndStatement;
use tidegate_server::engine::{
    Encode, EncodeError, Engine, EngineLimits, Payloads, RangeSpec, RangeStream, ReadRangeError, ReadRequest, Resolved,
};
use tidegate_server::{Server, ServerConfig};
use tidegate_wire::{BatchOptions, BatchWriter};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::transport::Channel;

use crate::proxy::BrokerProxy;

/// 2024-05-01T00:00:00Z.
pub const DAY_MS: i64 = 1_714_521_600_000;

/// Everything that a request meets.
pub struct World {
    pub broker: Broker,
    /// Between the client and the broker.
    pub proxy: BrokerProxy,
    pub cluster: Cluster,
    pub engine: Engine,
    pub server: Server,
    _data: tempfile::TempDir,
}

/// What differs from the defaults.
#[derive(Default)]
pub struct Setup {
    pub limits: EngineLimits,
    pub server: ServerConfig,
    pub payloads: Payloads,
    pub clock_ms: Option<i64>,
}

impl World {
    pub async fn start() -> Self {
        Self::with(Setup::default()).await
    }

    pub async fn with(setup: Setup) -> Self {
        let data = tempfile::tempdir().unwrap();
        let proxy = BrokerProxy::start().await;
        let mut config = BrokerConfig::new(data.path());
        config.advertised = Some((proxy.addr.ip().to_string(), proxy.addr.port()));
        let broker = Broker::start(config).await.unwrap();
        proxy.set_target(broker.addr());

        let mut config = ClusterConfig::new([proxy.addr.to_string()]);
        config.retry = RetryLimits { attempts: 2, ..RetryLimits::default() };
        let producer = Producer::new(&config, ProducerSettings::default()).unwrap();
        let cluster = Cluster::connect(config).await.unwrap();
        let Setup { limits, mut server, payloads, clock_ms } = setup;
        let engine = match clock_ms {
            None => Engine::new(cluster.clone(), producer, payloads, limits),
            Some(now) => Engine::with_clock(cluster.clone(), producer, payloads, limits, move || now),
        };
        server.listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = Server::start(server, engine.clone()).await.unwrap();
        Self { broker, proxy, cluster, engine, server, _data: data }
    }

    pub async fn grpc(&self) -> TidegateClient<Channel> {
        TidegateClient::connect(format!("http://{}", self.server.addr())).await.unwrap()
    }

    pub async fn create(&self, topic: &str, partitions: i32) {
        self.create_with(topic, partitions, &[]).await;
    }

    pub async fn create_with(&self, topic: &str, partitions: i32, config: &[(&str, &str)]) {
        let keep_all = [("retention.ms", "-1")];
        let config = keep_all.iter().chain(config).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let topic = NewTopic { name: name(topic), partitions, replication_factor: 1, config: config.collect() };
        self.cluster.create_topic(&topic).await.unwrap();
    }

    /// Appends one record batch as it is: also what no producer library would write.
    pub async fn append(&self, topic: &str, partition: i32, records: &[(i64, impl AsRef<[u8]>)]) {
        let mut writer = BatchWriter::new(BatchOptions::default());
        for (timestamp_ms, value) in records {
            writer.push(*timestamp_ms, None, Some(value.as_ref()), []).unwrap();
        }
        let data = PartitionProduceData::default().with_index(partition).with_records(Some(writer.finish().unwrap()));
        let topic = TopicProduceData::default()
            .with_name(StrBytes::from_string(topic.to_owned()).into())
            .with_partition_data(vec![data]);
        let request = ProduceRequest::default().with_acks(-1).with_timeout_ms(30_000).with_topic_data(vec![topic]);
        produce(self.broker.addr(), &request).await;
    }

    /// Appends `count` values of `bytes` bytes to partition 0, ten a batch, one a second from [`DAY_MS`] on.
    pub async fn fill(&self, topic: &str, count: i64, bytes: usize) {
        let value = vec![b'v'; bytes];
        for first in (0..count).step_by(10) {
            let batch: Vec<_> =
                (first..count.min(first + 10)).map(|n| (DAY_MS + n * 1_000, value.as_slice())).collect();
            self.append(topic, 0, &batch).await;
        }
    }

    /// Reads to the end.
    pub async fn read(&self, request: ReadRequest) -> (Vec<Seen>, EndStatement) {
        let read = self.engine.plan_read(request).await.unwrap();
        complete(read.stream(Each)).await.unwrap()
    }

    /// The public error of a read that fails before its first byte.
    pub async fn refusal(&self, request: ReadRequest) -> ApiError {
        ApiError::from(self.engine.plan_read(request).await.unwrap_err())
    }
}

/// The last version of Produce that is not flexible.
const PRODUCE_VERSION: i16 = 8;

async fn produce(broker: SocketAddr, request: &ProduceRequest) {
    let header = RequestHeader::default()
        .with_request_api_key(ApiKey::Produce as i16)
        .with_request_api_version(PRODUCE_VERSION)
        .with_correlation_id(1);
    let mut frame = bytes::BytesMut::new();
    header.encode(&mut frame, ProduceRequest::header_version(PRODUCE_VERSION)).unwrap();
    request.encode(&mut frame, PRODUCE_VERSION).unwrap();
    let mut stream = TcpStream::connect(broker).await.unwrap();
    stream.write_i32(i32::try_from(frame.len()).unwrap()).await.unwrap();
    stream.write_all(&frame).await.unwrap();

    let len = usize::try_from(stream.read_i32().await.unwrap()).unwrap();
    let mut answer = vec![0; len];
    stream.read_exact(&mut answer).await.unwrap();
    let mut answer = bytes::Bytes::from(answer);
    ResponseHeader::decode(&mut answer, ProduceResponse::header_version(PRODUCE_VERSION)).unwrap();
    let response = ProduceResponse::decode(&mut answer, PRODUCE_VERSION).unwrap();
    let partition = &response.responses[0].partition_responses[0];
    assert_eq!(partition.error_code, 0, "{:?}", partition.error_message);
}

pub fn name(topic: &str) -> TopicName {
    TopicName::new(topic).unwrap()
}

/// A record as a test compares it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seen {
    pub partition: i32,
    pub offset: i64,
    pub timestamp_ms: i64,
    pub value: Option<Vec<u8>>,
}

/// A frame of the test encoders.
#[derive(Debug)]
pub enum Frame {
    Record(Seen),
    End(EndStatement),
}

/// Gives every record out at once.
pub struct Each;

/// Gives records out only when it is asked to.
#[derive(Default)]
pub struct OnFlush(Vec<Frame>);

impl Encode for Each {
    type Frame = Frame;

    fn needs(&self, _record: &Record<'_>) -> Option<SchemaKey> {
        None
    }

    fn learn(&mut self, _key: SchemaKey, _schema: Resolved) {}

    fn push(&mut self, partition: i32, record: &Record<'_>, out: &mut Vec<Frame>) -> Result<(), EncodeError> {
        out.push(seen(partition, record));
        Ok(())
    }

    fn flush(&mut self, _out: &mut Vec<Frame>) {}

    fn finish(&mut self, end: &EndStatement, out: &mut Vec<Frame>) -> Result<(), EncodeError> {
        out.push(Frame::End(end.clone()));
        Ok(())
    }

    fn values_not_converted(&self) -> u64 {
        0
    }
}

impl Encode for OnFlush {
    type Frame = Frame;

    fn needs(&self, _record: &Record<'_>) -> Option<SchemaKey> {
        None
    }

    fn learn(&mut self, _key: SchemaKey, _schema: Resolved) {}

    fn push(&mut self, partition: i32, record: &Record<'_>, _out: &mut Vec<Frame>) -> Result<(), EncodeError> {
        self.0.push(seen(partition, record));
        Ok(())
    }

    fn flush(&mut self, out: &mut Vec<Frame>) {
        out.append(&mut self.0);
    }

    fn finish(&mut self, end: &EndStatement, out: &mut Vec<Frame>) -> Result<(), EncodeError> {
        self.flush(out);
        out.push(Frame::End(end.clone()));
        Ok(())
    }

    fn values_not_converted(&self) -> u64 {
        0
    }
}

fn seen(partition: i32, record: &Record<'_>) -> Frame {
    Frame::Record(Seen {
        partition,
        offset: record.offset,
        timestamp_ms: record.timestamp_ms,
        value: record.value.map(<[u8]>::to_vec),
    })
}

/// Takes `count` records from the front of a stream.
pub async fn take(stream: &mut RangeStream<Frame>, count: usize) -> Vec<Seen> {
    let mut records = Vec::new();
    while records.len() < count {
        match stream.next().await {
            Some(Ok(Frame::Record(record))) => records.push(record),
            other => panic!("after {} records: {other:?}", records.len()),
        }
    }
    records
}

/// What a stream still holds, when it ends with its statement and nothing behind.
pub async fn complete(mut stream: RangeStream<Frame>) -> Result<(Vec<Seen>, EndStatement), ReadRangeError> {
    let mut records = Vec::new();
    loop {
        match stream.next().await.expect("a stream ends with its statement or an error") {
            Ok(Frame::Record(record)) => records.push(record),
            Ok(Frame::End(end)) => {
                assert!(stream.next().await.is_none());
                return Ok((records, end));
            }
            Err(error) => {
                assert!(stream.next().await.is_none());
                return Err(error);
            }
        }
    }
}

pub fn time(topic: &str, from: &str, until: &str) -> ReadRequest {
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    ReadRequest { range: RangeSpec::Time { from: given(from), until: given(until) }, ..ReadRequest::new(topic) }
}

pub fn offsets(topic: &str, start: Option<i64>, end: Option<i64>) -> ReadRequest {
    ReadRequest { range: RangeSpec::Offsets { start, end }, ..ReadRequest::new(topic) }
}

pub fn last(topic: &str, count: u64) -> ReadRequest {
    ReadRequest { range: RangeSpec::Last { count }, ..ReadRequest::new(topic) }
}

pub fn places(records: &[Seen]) -> Vec<(i32, i64)> {
    records.iter().map(|record| (record.partition, record.offset)).collect()
}

/// One of the details of an error.
pub fn detail<'a>(error: &'a ApiError, name: &str) -> &'a str {
    error.details.get(name).unwrap_or_else(|| panic!("no {name} in {error:?}"))
}

/// The public error in a status.
pub fn api_error(status: &tonic::Status) -> ApiError {
    ApiError::from_status(status).unwrap_or_else(|| panic!("not an error of ours: {status:?}"))
}

/// The code of a status.
pub fn code(status: &tonic::Status) -> Code {
    api_error(status).code
}

/// Fails instead of hanging: nothing that a test waits for takes so long.
pub async fn soon<T>(what: &str, waited_for: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(60), waited_for).await {
        Ok(came) => came,
        Err(_) => panic!("{what} did not come"),
    }
}

pub fn by_partition(end: &EndStatement) -> BTreeMap<i32, &tidegate_plan::PartitionEnd> {
    end.partitions.iter().map(|end| (end.partition, end)).collect()
}

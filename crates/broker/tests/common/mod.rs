//! A tiny client for the broker's own tests: frames over a socket through the codec, nothing clever.

use std::net::SocketAddr;
use std::path::Path;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::list_offsets_response::ListOffsetsPartitionResponse;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{
    CreateTopicsRequest, FetchRequest, ListOffsetsRequest, ProduceRequest, RequestHeader, ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use tidegate_broker::{Broker, BrokerConfig, FsyncPolicy};
use tidegate_model::Compression;
use tidegate_wire::{BatchLimits, BatchOptions, BatchWriter, split_batches};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub const PRODUCE: i16 = 9;
pub const FETCH: i16 = 12;
pub const LIST_OFFSETS: i16 = 8;
pub const CREATE_TOPICS: i16 = 7;

pub struct Client {
    stream: TcpStream,
    next_id: i32,
}

impl Client {
    pub async fn connect(addr: SocketAddr) -> Self {
        Self::over(TcpStream::connect(addr).await.unwrap())
    }

    pub fn over(stream: TcpStream) -> Self {
        Self { stream, next_id: 1 }
    }

    pub fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Sends a request and waits for the answer. An I/O error when the broker hangs up.
    pub async fn try_call<R: Request>(&mut self, request: &R, version: i16) -> std::io::Result<R::Response> {
        let id = self.send(request, version).await?;
        let mut bytes = self.read_frame().await?;
        let header = ResponseHeader::decode(&mut bytes, R::Response::header_version(version)).unwrap();
        assert_eq!(header.correlation_id, id);
        let response = R::Response::decode(&mut bytes, version).unwrap();
        assert!(bytes.is_empty(), "{} bytes behind the answer", bytes.len());
        Ok(response)
    }

    pub async fn call<R: Request>(&mut self, request: &R, version: i16) -> R::Response {
        self.try_call(request, version).await.unwrap()
    }

    pub async fn send<R: Request>(&mut self, request: &R, version: i16) -> std::io::Result<i32> {
        let id = self.next_id;
        self.next_id += 1;
        self.stream.write_all(&encode(request, version, id)).await?;
        Ok(id)
    }

    pub async fn read_frame(&mut self) -> std::io::Result<Bytes> {
        let size = self.stream.read_i32().await?;
        let mut bytes = vec![0; usize::try_from(size).unwrap()];
        self.stream.read_exact(&mut bytes).await?;
        Ok(bytes.into())
    }

    pub async fn create_topic(&mut self, topic: &str, partitions: i32, config: &[(&str, &str)]) {
        let response = self.call(&create_request(topic, partitions, config), CREATE_TOPICS).await;
        assert_eq!(response.topics[0].error_code, 0, "{:?}", response.topics[0]);
    }

    pub async fn produce(&mut self, topic: &str, partition: i32, batch: Bytes) -> PartitionProduceResponse {
        self.try_produce(topic, partition, batch).await.unwrap()
    }

    pub async fn try_produce(
        &mut self,
        topic: &str,
        partition: i32,
        batch: Bytes,
    ) -> std::io::Result<PartitionProduceResponse> {
        let response = self.try_call(&produce_request(topic, partition, batch, -1), PRODUCE).await?;
        Ok(response.responses[0].partition_responses[0].clone())
    }

    pub async fn fetch(&mut self, topic: &str, partition: i32, offset: i64) -> PartitionData {
        let response = self.call(&fetch_request(topic, partition, offset, 1 << 20, 0, 0), FETCH).await;
        assert_eq!(response.error_code, 0);
        response.responses[0].partitions[0].clone()
    }

    pub async fn list_offset(&mut self, topic: &str, partition: i32, timestamp: i64) -> ListOffsetsPartitionResponse {
        let partition = ListOffsetsPartition::default()
            .with_partition_index(partition)
            .with_current_leader_epoch(-1)
            .with_timestamp(timestamp);
        let topic = ListOffsetsTopic::default().with_name(name(topic)).with_partitions(vec![partition]);
        let request = ListOffsetsRequest::default().with_replica_id((-1).into()).with_topics(vec![topic]);
        self.call(&request, LIST_OFFSETS).await.topics[0].partitions[0].clone()
    }

    pub async fn end_offset(&mut self, topic: &str, partition: i32) -> i64 {
        self.list_offset(topic, partition, -1).await.offset
    }

    /// All records of a partition from `offset` to its end, as stored.
    pub async fn read_all(&mut self, topic: &str, partition: i32, mut offset: i64) -> Vec<Stored> {
        let mut all = Vec::new();
        loop {
            let found = self.fetch(topic, partition, offset).await;
            assert_eq!(found.error_code, 0, "at {offset}");
            if offset == found.high_watermark {
                return all;
            }
            let records = stored(found.records.unwrap());
            assert!(!records.is_empty(), "an empty answer below the high watermark");
            let from = offset;
            all.extend(records.into_iter().filter(|record| record.offset >= from));
            offset = all.last().unwrap().offset + 1;
        }
    }
}

/// A record, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub offset: i64,
    pub timestamp: i64,
    pub value: Bytes,
}

/// The records of whole batches; their CRCs are checked.
pub fn stored(records: Bytes) -> Vec<Stored> {
    let mut splitter = split_batches(records);
    let mut all = Vec::new();
    for batch in &mut splitter {
        let batch = batch.unwrap().open(&BatchLimits::default()).unwrap();
        for record in batch.records() {
            let record = record.unwrap();
            let value = Bytes::copy_from_slice(record.value.unwrap_or_default());
            all.push(Stored { offset: record.offset, timestamp: record.timestamp_ms, value });
        }
    }
    assert_eq!(splitter.leftover(), None, "the broker sends whole batches");
    all
}

pub fn name(topic: &str) -> TopicName {
    StrBytes::from_string(topic.to_owned()).into()
}

pub fn encode<R: Request>(request: &R, version: i16, correlation_id: i32) -> Bytes {
    let header = RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(correlation_id)
        .with_client_id(Some(StrBytes::from_static_str("test")));
    let mut bytes = BytesMut::new();
    bytes.put_i32(0);
    header.encode(&mut bytes, R::header_version(version)).unwrap();
    request.encode(&mut bytes, version).unwrap();
    let size = i32::try_from(bytes.len() - 4).unwrap();
    bytes[..4].copy_from_slice(&size.to_be_bytes());
    bytes.freeze()
}

pub fn create_request(topic: &str, partitions: i32, config: &[(&str, &str)]) -> CreateTopicsRequest {
    let text = |text: &str| StrBytes::from_string(text.to_owned());
    let configs = config
        .iter()
        .map(|(key, value)| CreatableTopicConfig::default().with_name(text(key)).with_value(Some(text(value))));
    let topic = CreatableTopic::default()
        .with_name(name(topic))
        .with_num_partitions(partitions)
        .with_replication_factor(1)
        .with_configs(configs.collect());
    CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(10_000)
}

pub fn produce_request(topic: &str, partition: i32, batch: Bytes, acks: i16) -> ProduceRequest {
    let data = PartitionProduceData::default().with_index(partition).with_records(Some(batch));
    let topic = TopicProduceData::default().with_name(name(topic)).with_partition_data(vec![data]);
    ProduceRequest::default().with_acks(acks).with_timeout_ms(10_000).with_topic_data(vec![topic])
}

pub fn fetch_request(
    topic: &str,
    partition: i32,
    offset: i64,
    most_bytes: i32,
    least_bytes: i32,
    wait_ms: i32,
) -> FetchRequest {
    let partition = FetchPartition::default()
        .with_partition(partition)
        .with_current_leader_epoch(-1)
        .with_fetch_offset(offset)
        .with_partition_max_bytes(most_bytes);
    let topic = FetchTopic::default().with_topic(name(topic)).with_partitions(vec![partition]);
    FetchRequest::default()
        .with_replica_id((-1).into())
        .with_max_wait_ms(wait_ms)
        .with_min_bytes(least_bytes)
        .with_max_bytes(most_bytes)
        .with_session_epoch(-1)
        .with_topics(vec![topic])
}

/// A batch of records with these timestamps; each value names its timestamp.
pub fn batch(timestamps: &[i64]) -> Bytes {
    batch_with(BatchOptions::default(), timestamps)
}

pub fn compressed(compression: Compression, timestamps: &[i64]) -> Bytes {
    batch_with(BatchOptions { compression, ..BatchOptions::default() }, timestamps)
}

pub fn sequenced(producer_id: i64, producer_epoch: i16, base_sequence: i32, timestamps: &[i64]) -> Bytes {
    batch_with(BatchOptions { producer_id, producer_epoch, base_sequence, ..BatchOptions::default() }, timestamps)
}

pub fn batch_with(options: BatchOptions, timestamps: &[i64]) -> Bytes {
    let mut writer = BatchWriter::new(options);
    for timestamp in timestamps {
        writer.push(*timestamp, None, Some(timestamp.to_string().as_bytes()), []).unwrap();
    }
    writer.finish().unwrap()
}

/// A batch of one record with this value.
pub fn batch_of_value(value: &[u8]) -> Bytes {
    let mut writer = BatchWriter::new(BatchOptions::default());
    writer.push(1, None, Some(value), []).unwrap();
    writer.finish().unwrap()
}

/// No retention during a test, beyond that of the start: most of them use timestamps from long ago. A busy machine comes to
/// the first one late, so topics of several segments need a `retention.ms` of -1.
pub fn config(dir: &Path) -> BrokerConfig {
    let retention_interval = std::time::Duration::from_secs(86_400);
    BrokerConfig { fsync: FsyncPolicy::Never, retention_interval, ..BrokerConfig::new(dir) }
}

pub async fn start(dir: &Path) -> Broker {
    Broker::start(config(dir)).await.unwrap()
}

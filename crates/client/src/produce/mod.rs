//! Producing, through librdkafka.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_model::{Compression, TopicName};

use crate::config::ClusterConfig;

/// How to produce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerSettings {
    /// How batches are compressed. Kafka's `compression.type`. Default: lz4.
    pub compression: Compression,
    /// How long a batch may wait for more records. Kafka's `linger.ms`. Default: 5 ms.
    pub linger: Duration,
    /// The size of a batch before compression. Kafka's `batch.size`. Default: 1 MiB.
    pub batch_bytes: usize,
    /// The bytes of records that may wait for their acknowledgement, over all sessions; beyond it sending waits. Kafka's
    /// `buffer.memory`. Default: 32 MiB.
    pub queue_bytes: usize,
    /// How long a record may wait for its acknowledgement, retries included. Kafka's `delivery.timeout.ms`. Default: 2 min.
    pub delivery_timeout: Duration,
    /// The largest record, with its overhead. Kafka's `max.request.size`. Default: 1,000,000 bytes.
    pub message_max_bytes: usize,
}

impl Default for ProducerSettings {
    fn default() -> Self {
        Self {
            compression: Compression::Lz4,
            linger: Duration::from_millis(5),
            batch_bytes: 1 << 20,
            queue_bytes: 32 << 20,
            delivery_timeout: Duration::from_secs(120),
            message_max_bytes: 1_000_000,
        }
    }
}

/// The producer could not be made, or not be flushed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProducerError {
    /// librdkafka refuses a setting.
    #[error("the producer cannot be made: {reason}")]
    Setting {
        /// Its words.
        reason: String,
    },
    /// Records were still unacknowledged when the delivery timeout had passed.
    #[error("{unacknowledged} records are not acknowledged after {after:?}")]
    Flush {
        /// How many.
        unacknowledged: u64,
        /// The limit.
        after: Duration,
    },
}

/// A record was not written. Every variant names the record by its ordinal in the session, from 0.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProduceError {
    /// The record is larger than the producer or the topic allows.
    #[error("record {ordinal} for topic {topic} is too large: {bytes} bytes; the limit is {limit}", limit = limit.map_or_else(|| "the topic's".to_owned(), |l| l.to_string()))]
    TooLarge {
        /// Which record.
        ordinal: u64,
        /// The topic.
        topic: TopicName,
        /// The partition, where it is known.
        partition: Option<i32>,
        /// The record's size: key, value and headers.
        bytes: usize,
        /// This producer's limit; `None`: the broker's, which the topic's `max.message.bytes` sets.
        limit: Option<usize>,
    },
    /// The topic has no such partition.
    #[error("record {ordinal}: topic {topic} has no partition {partition}")]
    UnknownPartition {
        /// Which record.
        ordinal: u64,
        /// The topic.
        topic: TopicName,
        /// The partition asked for.
        partition: i32,
    },
    /// The cluster has no such topic.
    #[error("record {ordinal}: there is no topic {topic}")]
    UnknownTopic {
        /// Which record.
        ordinal: u64,
        /// The topic.
        topic: TopicName,
    },
    /// The cluster does not let this client write to the topic.
    #[error("record {ordinal}: not authorized to write to topic {topic}")]
    NotAuthorized {
        /// Which record.
        ordinal: u64,
        /// The topic.
        topic: TopicName,
    },
    /// The record cannot be sent as it is.
    #[error("record {ordinal} for topic {topic} cannot be sent: {reason}")]
    Record {
        /// Which record.
        ordinal: u64,
        /// The topic.
        topic: TopicName,
        /// Why not.
        reason: String,
    },
    /// The cluster did not acknowledge the record in time. It may have been written.
    #[error("record {ordinal} for topic {topic} was not acknowledged within {after:?}")]
    TimedOut {
        /// Which record.
        ordinal: u64,
        /// The topic.
        topic: TopicName,
        /// The partition, where it is known.
        partition: Option<i32>,
        /// The limit.
        after: Duration,
    },
    /// The cluster refused the record, or librdkafka gave it up.
    #[error("record {ordinal} for topic {topic} was not written: {reason}")]
    Refused {
        /// Which record.
        ordinal: u64,
        /// The topic.
        topic: TopicName,
        /// The partition, where it is known.
        partition: Option<i32>,
        /// librdkafka's words.
        reason: String,
    },
}

/// One record to write.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordToSend<'a> {
    /// The partition; `None`: chosen by the key as Java's producer would (murmur2), at random without a key.
    pub partition: Option<i32>,
    /// The key; `None` is null.
    pub key: Option<&'a [u8]>,
    /// The value; `None` is null, a tombstone.
    pub value: Option<&'a [u8]>,
    /// The headers in order, repeats kept. A name must be UTF-8; a value of `None` is null.
    pub headers: &'a [(&'a [u8], Option<&'a [u8]>)],
    /// The timestamp in ms; `None`: now. Must be at least 1: librdkafka takes 0 for "now".
    pub timestamp_ms: Option<i64>,
}

/// What one partition got in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducedPartition {
    /// How many records.
    pub records: u64,
    /// The offset of the first. Others may have written in between.
    pub first_offset: i64,
    /// The offset of the last.
    pub last_offset: i64,
}

/// What a session wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProduceSummary {
    /// How many records were acknowledged.
    pub records: u64,
    /// By partition.
    pub partitions: BTreeMap<i32, ProducedPartition>,
}

/// A producer: idempotent, `acks=all`, keys land where Java's producer puts them. Cheap to clone.
#[derive(Clone)]
pub struct Producer {}

impl Producer {
    /// Makes a producer. It connects when the first record is sent.
    ///
    /// # Errors
    /// [`ProducerError::Setting`].
    pub fn new(cluster: &ClusterConfig, settings: ProducerSettings) -> Result<Self, ProducerError> {
        let _ = (cluster, settings);
        todo!()
    }

    /// Starts counting the records of one caller. The topic must exist: look it up with `Cluster::topic` first.
    pub fn session(&self, topic: &TopicName) -> ProduceSession {
        let _ = topic;
        todo!()
    }

    /// Waits until every record sent so far is acknowledged or has failed.
    ///
    /// # Errors
    /// [`ProducerError::Flush`] when that takes longer than the delivery timeout.
    pub async fn flush(&self) -> Result<(), ProducerError> {
        todo!()
    }
}

/// The records of one caller to one topic, sent in order and counted.
pub struct ProduceSession {}

impl ProduceSession {
    /// Hands a record to the producer. Waits while the producer's queue is full.
    ///
    /// # Errors
    /// The failure of this record or of any before it; the session is then failed for good.
    pub async fn send(&mut self, record: RecordToSend<'_>) -> Result<(), ProduceError> {
        let _ = record;
        todo!()
    }

    /// Waits until every record is acknowledged.
    ///
    /// # Errors
    /// The failure of the first record that was not written.
    pub async fn finish(self) -> Result<ProduceSummary, ProduceError> {
        todo!()
    }
}

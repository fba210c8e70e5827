//! Offset lookup: ListOffsets by time and the special questions.

use tidegate_model::{Isolation, TopicName, TopicPartition};

use crate::cluster::{Cluster, MetadataError};
use crate::error::{KafkaCode, RequestError};

/// What to look up in one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetQuery {
    /// The log start offset.
    Earliest,
    /// The high watermark; under read_committed the last stable offset.
    Latest,
    /// The first record with the largest timestamp (KIP-734; ListOffsets version 7, Apache Kafka 3.0).
    MaxTimestamp,
    /// The first record whose timestamp is at or after this, in ms. A negative time is taken as 0: the protocol gives
    /// negative numbers other meanings.
    AtOrAfter(i64),
}

/// The answer for one query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetAnswer {
    /// The partition of the query.
    pub partition: i32,
    /// `None`: the partition holds no record at or after the time (or none at all, for [`OffsetQuery::MaxTimestamp`]).
    pub found: Option<OffsetAndTimestamp>,
}

/// An offset as a broker found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetAndTimestamp {
    /// The offset.
    pub offset: i64,
    /// The timestamp of the record there, in ms; -1 for [`OffsetQuery::Earliest`] and [`OffsetQuery::Latest`].
    pub timestamp_ms: i64,
    /// The leader epoch of the record there, if the broker tells.
    pub leader_epoch: Option<i32>,
}

/// Offsets could not be looked up.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ListOffsetsError {
    /// The topic has no such partition.
    #[error("there is no partition {topic_partition}")]
    UnknownPartition {
        /// What was asked for.
        topic_partition: TopicPartition,
    },
    /// The partition has no leader, and got none while this client tried again.
    #[error("partition {topic_partition} has no leader")]
    NoLeader {
        /// The partition.
        topic_partition: TopicPartition,
    },
    /// The cluster does not let this client read the topic.
    #[error("not authorized to read topic {topic}")]
    NotAuthorized {
        /// The topic.
        topic: TopicName,
    },
    /// The broker cannot look up the largest timestamp.
    #[error(
        "the broker {broker} cannot look up the largest timestamp: it speaks ListOffsets up to version {version}, 7 is \
         needed"
    )]
    MaxTimestampUnsupported {
        /// The broker's address.
        broker: String,
        /// The version agreed on.
        version: i16,
    },
    /// The broker answered with an error.
    #[error("offsets of partition {topic_partition}: {code}")]
    Refused {
        /// The partition.
        topic_partition: TopicPartition,
        /// The broker's error.
        code: KafkaCode,
    },
    /// The leader did not answer.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The leader could not be found out; an unknown topic is among the reasons.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
}

impl Cluster {
    /// Looks offsets up at the partitions' leaders. The answers come in the order of the queries; a partition may be asked
    /// several questions.
    ///
    /// # Errors
    /// [`ListOffsetsError`]; the answers of other partitions are then lost too.
    pub async fn list_offsets(
        &self,
        topic: &TopicName,
        queries: &[(i32, OffsetQuery)],
        isolation: Isolation,
    ) -> Result<Vec<OffsetAnswer>, ListOffsetsError> {
        let _ = (topic, queries, isolation);
        todo!()
    }
}

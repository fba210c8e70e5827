//! List and describe topics.

use tidegate_client::{DescribeConfigsError, ListOffsetsError, MetadataError, OffsetAndTimestamp, OffsetQuery};
use tidegate_model::{Isolation, PayloadKind, TimestampType, TopicName, TopicNameError};
use uuid::Uuid;

use super::Engine;
use super::ends::EndsError;

/// One topic of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicSummary {
    /// Its name.
    pub name: TopicName,
    /// How many partitions it has.
    pub partitions: usize,
    /// Whether the cluster keeps it for itself.
    pub internal: bool,
    /// What its values are.
    pub payload: PayloadKind,
}

/// One topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicDescription {
    /// Its name.
    pub name: TopicName,
    /// Its id, where the cluster has topic ids.
    pub id: Option<Uuid>,
    /// Its partitions, by number.
    pub partitions: Vec<PartitionDescription>,
    /// Its present `message.timestamp.type`, where the cluster says it. It says nothing of records already written.
    pub timestamp_type: Option<TimestampType>,
    /// What its values are.
    pub payload: PayloadKind,
}

/// One partition of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionDescription {
    /// Its number, from 0.
    pub partition: i32,
    /// The first offset that the log still holds.
    pub log_start_offset: i64,
    /// The offset after the last record that is safe on all in-sync replicas.
    pub high_watermark: i64,
    /// The end of what a read_committed reader can see.
    pub last_stable_offset: i64,
    /// The timestamp, in ms, of the first record that has one; `None`: there is no such record.
    pub first_timestamp_ms: Option<i64>,
    /// The largest timestamp, in ms; `None`: no record has one, or the cluster cannot say.
    pub last_timestamp_ms: Option<i64>,
    /// The leader's node id, when there is one.
    pub leader: Option<i32>,
}

/// Why the topics cannot be listed.
#[derive(Debug, thiserror::Error)]
pub enum ListTopicsError {
    /// The cluster did not say.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
}

/// Why a topic cannot be described.
#[derive(Debug, thiserror::Error)]
pub enum DescribeTopicError {
    /// The name is none that a topic can have.
    #[error(transparent)]
    TopicName(#[from] TopicNameError),
    /// There is no such topic, or the cluster did not say.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// The ends of its partitions could not be found.
    #[error(transparent)]
    Ends(#[from] EndsError),
    /// Its configuration could not be read.
    #[error(transparent)]
    Configs(#[from] DescribeConfigsError),
}

impl Engine {
    /// The topics of the cluster, sorted by name.
    ///
    /// # Errors
    /// [`ListTopicsError`] when the cluster does not answer.
    pub async fn list_topics(&self, include_internal: bool) -> Result<Vec<TopicSummary>, ListTopicsError> {
        let topics = self.inner.cluster.topics().await?;
        Ok(topics
            .into_iter()
            .filter(|topic| include_internal || !topic.internal)
            .map(|topic| TopicSummary {
                partitions: topic.partitions.len(),
                internal: topic.internal,
                payload: self.inner.payloads.get(&topic.name).kind(),
                name: topic.name,
            })
            .collect())
    }

    /// One topic: its partitions with their ends and times, its timestamp type and payload.
    ///
    /// # Errors
    /// [`DescribeTopicError`]; an unknown topic is [`MetadataError::UnknownTopic`].
    pub async fn describe_topic(&self, topic: &str) -> Result<TopicDescription, DescribeTopicError> {
        let name = TopicName::new(topic)?;
        let info = self.inner.cluster.topic(&name).await?;
        let numbers: Vec<i32> = info.partitions.iter().map(|partition| partition.partition).collect();
        let (starts, high_watermarks, stable_ends, firsts, lasts, timestamp_type) = tokio::try_join!(
            async { Ok(self.log_starts(&name, &numbers).await?) },
            async { Ok(self.log_ends(&name, &numbers, Isolation::ReadUncommitted).await?) },
            async { Ok(self.log_ends(&name, &numbers, Isolation::ReadCommitted).await?) },
            self.first_timestamps(&name, &numbers),
            self.last_timestamps(&name, &numbers),
            self.timestamp_type(&name),
        )?;
        let ends = starts.into_iter().zip(high_watermarks).zip(stable_ends);
        let partitions = info.partitions.iter().zip(ends).zip(firsts.into_iter().zip(lasts)).map(
            |((partition, ((log_start_offset, high_watermark), last_stable_offset)), (first, last))| {
                PartitionDescription {
                    partition: partition.partition,
                    log_start_offset,
                    high_watermark,
                    last_stable_offset,
                    first_timestamp_ms: first,
                    // Apache Kafka answers from its segments, which hold deleted records for a while.
                    last_timestamp_ms: timestamp(last.filter(|last| last.offset >= log_start_offset)),
                    leader: partition.leader,
                }
            },
        );
        Ok(TopicDescription {
            partitions: partitions.collect(),
            id: info.id,
            timestamp_type,
            payload: self.inner.payloads.get(&name).kind(),
            name,
        })
    }

    async fn first_timestamps(
        &self,
        topic: &TopicName,
        partitions: &[i32],
    ) -> Result<Vec<Option<i64>>, DescribeTopicError> {
        // Time 0 and not "earliest": that one answers with an offset and no timestamp.
        let found = self.ask(topic, partitions, OffsetQuery::AtOrAfter(0), Isolation::ReadUncommitted).await;
        if let Err(ListOffsetsError::NoTimestamps { .. }) = found {
            return Ok(vec![None; partitions.len()]);
        }
        Ok(found.map_err(EndsError::from)?.into_iter().map(timestamp).collect())
    }

    async fn last_timestamps(
        &self,
        topic: &TopicName,
        partitions: &[i32],
    ) -> Result<Vec<Option<OffsetAndTimestamp>>, DescribeTopicError> {
        match self.ask(topic, partitions, OffsetQuery::MaxTimestamp, Isolation::ReadUncommitted).await {
            Ok(found) => Ok(found),
            // Brokers before Apache Kafka 3.0, and Event Hubs; a topic in message format v0. It has a description without it.
            Err(ListOffsetsError::MaxTimestampUnsupported { .. } | ListOffsetsError::NoTimestamps { .. }) => {
                Ok(vec![None; partitions.len()])
            }
            Err(error) => Err(EndsError::from(error).into()),
        }
    }

    /// The topic's `message.timestamp.type`; `None` where the cluster does not let us see it.
    async fn timestamp_type(&self, topic: &TopicName) -> Result<Option<TimestampType>, DescribeTopicError> {
        let config = match self.inner.cluster.topic_config(topic).await {
            Ok(config) => config,
            Err(DescribeConfigsError::NotAuthorized { .. } | DescribeConfigsError::Refused { .. }) => return Ok(None),
            Err(error @ (DescribeConfigsError::UnknownTopic { .. } | DescribeConfigsError::Request(_))) => {
                return Err(error.into());
            }
        };
        let value = config.get("message.timestamp.type").and_then(|entry| entry.value.as_deref());
        Ok([TimestampType::CreateTime, TimestampType::LogAppendTime]
            .into_iter()
            .find(|known| value == Some(known.name())))
    }
}

fn timestamp(found: Option<OffsetAndTimestamp>) -> Option<i64> {
    found.map(|found| found.timestamp_ms).filter(|timestamp| *timestamp >= 0)
}

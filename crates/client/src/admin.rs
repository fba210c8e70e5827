//! Topics: create, delete, describe their configuration, delete records.

use std::collections::BTreeMap;

use tidegate_model::{TopicName, TopicPartition};

use crate::cluster::{Cluster, MetadataError};
use crate::error::{KafkaCode, RequestError};

/// A topic to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTopic {
    /// Its name.
    pub name: TopicName,
    /// How many partitions; -1: the cluster's default.
    pub partitions: i32,
    /// How many replicas; -1: the cluster's default.
    pub replication_factor: i16,
    /// Settings of its own, by Kafka's names.
    pub config: BTreeMap<String, String>,
}

/// One setting of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicConfigEntry {
    /// Its value; `None` where it is null or secret.
    pub value: Option<String>,
    /// Whether the topic leaves it to the cluster.
    pub is_default: bool,
}

/// A topic could not be created.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CreateTopicError {
    /// There is one of that name.
    #[error("topic {topic} exists already")]
    Exists {
        /// The topic.
        topic: TopicName,
    },
    /// The cluster does not let this client create it.
    #[error("not authorized to create topic {topic}")]
    NotAuthorized {
        /// The topic.
        topic: TopicName,
    },
    /// The cluster refused.
    #[error("topic {topic} was not created: {code}{}", suffix(message))]
    Refused {
        /// The topic.
        topic: TopicName,
        /// The cluster's error.
        code: KafkaCode,
        /// The cluster's words, if it gave any.
        message: Option<String>,
    },
    /// The cluster took the request, but the topic did not appear with a leader for each partition while this client
    /// looked.
    #[error("topic {topic} was created, but its partitions have no leaders yet")]
    NotReady {
        /// The topic.
        topic: TopicName,
    },
    /// The cluster did not answer. The topic may have been created.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The cluster's metadata could not be had.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
}

/// A topic could not be deleted.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DeleteTopicError {
    /// There is none of that name.
    #[error("there is no topic {topic}")]
    UnknownTopic {
        /// The topic.
        topic: TopicName,
    },
    /// The cluster does not let this client delete it.
    #[error("not authorized to delete topic {topic}")]
    NotAuthorized {
        /// The topic.
        topic: TopicName,
    },
    /// The cluster refused.
    #[error("topic {topic} was not deleted: {code}{}", suffix(message))]
    Refused {
        /// The topic.
        topic: TopicName,
        /// The cluster's error.
        code: KafkaCode,
        /// The cluster's words, if it gave any.
        message: Option<String>,
    },
    /// The cluster took the request, but still showed the topic when this client gave up looking.
    #[error("topic {topic} is being deleted, but is still there")]
    StillThere {
        /// The topic.
        topic: TopicName,
    },
    /// The cluster did not answer. The topic may have been deleted.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The cluster's metadata could not be had.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
}

/// Records could not be deleted.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DeleteRecordsError {
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
    /// The offset lies beyond the high watermark.
    #[error("offset {offset} of partition {topic_partition} is out of range")]
    OffsetOutOfRange {
        /// The partition.
        topic_partition: TopicPartition,
        /// The offset asked for.
        offset: i64,
    },
    /// The cluster does not let this client delete records.
    #[error("not authorized to delete records of topic {topic}")]
    NotAuthorized {
        /// The topic.
        topic: TopicName,
    },
    /// The leader refused.
    #[error("records of partition {topic_partition} were not deleted: {code}")]
    Refused {
        /// The partition.
        topic_partition: TopicPartition,
        /// The leader's error.
        code: KafkaCode,
    },
    /// The leader did not answer.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The leader could not be found out; an unknown topic is among the reasons.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
}

/// A topic's configuration could not be had.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DescribeConfigsError {
    /// There is no such topic.
    #[error("there is no topic {topic}")]
    UnknownTopic {
        /// The topic.
        topic: TopicName,
    },
    /// The cluster does not let this client see it.
    #[error("not authorized to see the configuration of topic {topic}")]
    NotAuthorized {
        /// The topic.
        topic: TopicName,
    },
    /// The cluster refused.
    #[error("configuration of topic {topic}: {code}{}", suffix(message))]
    Refused {
        /// The topic.
        topic: TopicName,
        /// The cluster's error.
        code: KafkaCode,
        /// The cluster's words, if it gave any.
        message: Option<String>,
    },
    /// The cluster did not answer.
    #[error(transparent)]
    Request(#[from] RequestError),
}

fn suffix(message: &Option<String>) -> String {
    message.as_ref().map_or_else(String::new, |message| format!(": {message}"))
}

impl Cluster {
    /// Creates a topic and waits until the cluster shows it with a leader for each partition.
    ///
    /// # Errors
    /// [`CreateTopicError`].
    pub async fn create_topic(&self, topic: &NewTopic) -> Result<(), CreateTopicError> {
        let _ = topic;
        todo!()
    }

    /// Deletes a topic and waits until the cluster shows it no more.
    ///
    /// # Errors
    /// [`DeleteTopicError`].
    pub async fn delete_topic(&self, topic: &TopicName) -> Result<(), DeleteTopicError> {
        let _ = topic;
        todo!()
    }

    /// Deletes the records before an offset, per partition. -1 means the high watermark.
    ///
    /// # Errors
    /// [`DeleteRecordsError`]; other partitions of the call may have been dealt with.
    pub async fn delete_records(&self, topic: &TopicName, before: &[(i32, i64)]) -> Result<(), DeleteRecordsError> {
        let _ = (topic, before);
        todo!()
    }

    /// A topic's settings, by Kafka's names.
    ///
    /// # Errors
    /// [`DescribeConfigsError`].
    pub async fn topic_config(
        &self,
        topic: &TopicName,
    ) -> Result<BTreeMap<String, TopicConfigEntry>, DescribeConfigsError> {
        let _ = topic;
        todo!()
    }
}

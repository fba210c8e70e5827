//! Topics: create, delete, describe their configuration, delete records.

mod requests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::messages::{
    CreateTopicsRequest, DeleteRecordsRequest, DeleteTopicsRequest, DescribeConfigsRequest,
};
use tidegate_model::{TopicName, TopicPartition};
use tokio::time::Instant;

use crate::cluster::{Cluster, LeaderError, MetadataError, TopicInfo};
use crate::conn::{Connection, Spoken};
use crate::error::{KafkaCode, RequestError, code};
use crate::retry::Retry;
use requests::Refusal;

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
        let patience = self.patience();
        let (connection, response) = self
            .administer(
                |_| requests::create(topic, patience),
                |response| requests::created(response, &topic.name).is_ok_and(|answer| answer.is_not_controller()),
            )
            .await?;
        let answer = requests::created(&response, &topic.name)
            .map_err(|what| connection.garbage::<CreateTopicsRequest>(what))?;
        let name = topic.name.clone();
        match answer.code {
            code::NONE => {}
            code::TOPIC_ALREADY_EXISTS => return Err(CreateTopicError::Exists { topic: name }),
            code::TOPIC_AUTHORIZATION_FAILED | code::CLUSTER_AUTHORIZATION_FAILED => {
                return Err(CreateTopicError::NotAuthorized { topic: name });
            }
            refused => {
                let (code, message) = (KafkaCode(refused), answer.message);
                return Err(CreateTopicError::Refused { topic: name, code, message });
            }
        }
        // The controller answers before every broker knows: a caller that goes on to use the topic must find it.
        let mut retry = Retry::new(self.config().retry);
        loop {
            match self.topic(&topic.name).await {
                Ok(info) if is_ready(&info, topic.partitions) => return Ok(()),
                Ok(_) | Err(MetadataError::UnknownTopic { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            if !retry.pause().await {
                return Err(CreateTopicError::NotReady { topic: topic.name.clone() });
            }
        }
    }

    /// Deletes a topic and waits until the cluster shows it no more.
    ///
    /// # Errors
    /// [`DeleteTopicError`].
    pub async fn delete_topic(&self, topic: &TopicName) -> Result<(), DeleteTopicError> {
        let patience = self.patience();
        let (connection, response) = self
            .administer(
                |_| requests::delete(topic, patience),
                |response| requests::deleted(response, topic).is_ok_and(|answer| answer.is_not_controller()),
            )
            .await?;
        let answer =
            requests::deleted(&response, topic).map_err(|what| connection.garbage::<DeleteTopicsRequest>(what))?;
        let name = topic.clone();
        match answer.code {
            code::NONE => {}
            code::UNKNOWN_TOPIC_OR_PARTITION => return Err(DeleteTopicError::UnknownTopic { topic: name }),
            code::TOPIC_AUTHORIZATION_FAILED | code::CLUSTER_AUTHORIZATION_FAILED => {
                return Err(DeleteTopicError::NotAuthorized { topic: name });
            }
            refused => {
                let (code, message) = (KafkaCode(refused), answer.message);
                return Err(DeleteTopicError::Refused { topic: name, code, message });
            }
        }
        let mut retry = Retry::new(self.config().retry);
        loop {
            match self.topic(topic).await {
                Err(MetadataError::UnknownTopic { .. }) => return Ok(()),
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
            if !retry.pause().await {
                return Err(DeleteTopicError::StillThere { topic: topic.clone() });
            }
        }
    }

    /// Deletes the records before an offset, per partition. -1 means the high watermark.
    ///
    /// # Errors
    /// [`DeleteRecordsError`]; other partitions of the call may have been dealt with.
    pub async fn delete_records(&self, topic: &TopicName, before: &[(i32, i64)]) -> Result<(), DeleteRecordsError> {
        let mut retry = Retry::new(self.config().retry);
        let mut open = before.to_vec();
        let mut stale = None;
        while !open.is_empty() {
            let asked_at = Instant::now();
            let mut setback = None;
            let mut left = Vec::new();
            for (address, asked) in self.deletions(topic, &open, stale, &mut left, &mut setback).await? {
                match self.ask_deletion(topic, &address, &asked).await {
                    Ok(codes) => {
                        for (deletion, code) in asked.into_iter().zip(codes) {
                            if code == code::NONE {
                                continue;
                            }
                            let refused = deletion_refusal(topic, deletion, code);
                            if !code::concerns_leader(code) {
                                return Err(refused);
                            }
                            left.push(deletion);
                            setback = Some(refused);
                        }
                    }
                    Err(failure) if failure.is_transient() => {
                        left.extend(asked);
                        setback = Some(failure.into());
                    }
                    Err(failure) => return Err(failure.into()),
                }
            }
            let Some(setback) = setback else { break };
            tracing::debug!(%topic, %setback, "deleting records is tried again");
            (open, stale) = (left, Some(asked_at));
            if !retry.pause().await {
                return Err(setback);
            }
        }
        Ok(())
    }

    /// The open deletions by leader. A partition without a leader is a setback, and left for the next attempt.
    async fn deletions(
        &self,
        topic: &TopicName,
        open: &[(i32, i64)],
        stale: Option<Instant>,
        left: &mut Vec<(i32, i64)>,
        setback: &mut Option<DeleteRecordsError>,
    ) -> Result<BTreeMap<Arc<str>, Vec<(i32, i64)>>, DeleteRecordsError> {
        let partitions: Vec<i32> = open.iter().map(|(partition, _)| *partition).collect();
        let leaders = self.leaders(topic, &partitions, stale).await?;
        let mut by_leader = BTreeMap::<Arc<str>, Vec<(i32, i64)>>::new();
        for (&deletion, leader) in open.iter().zip(leaders) {
            let topic_partition = TopicPartition::new(topic.clone(), deletion.0);
            match leader {
                Ok(leader) => by_leader.entry(leader.address).or_default().push(deletion),
                Err(LeaderError::NoLeader) => {
                    left.push(deletion);
                    *setback = Some(DeleteRecordsError::NoLeader { topic_partition });
                }
                Err(LeaderError::UnknownPartition) => {
                    return Err(DeleteRecordsError::UnknownPartition { topic_partition });
                }
            }
        }
        Ok(by_leader)
    }

    async fn ask_deletion(
        &self,
        topic: &TopicName,
        address: &str,
        asked: &[(i32, i64)],
    ) -> Result<Vec<i16>, RequestError> {
        let connection = self.own_connection(address).await?;
        let version = connection.version::<DeleteRecordsRequest>()?;
        let request = requests::delete_records(topic, asked, self.patience());
        let response = connection.call(version, &request, self.config().request_timeout).await?;
        requests::deleted_records(&response, topic, asked)
            .map_err(|what| connection.garbage::<DeleteRecordsRequest>(what))
    }

    /// A topic's settings, by Kafka's names.
    ///
    /// # Errors
    /// [`DescribeConfigsError`].
    pub async fn topic_config(
        &self,
        topic: &TopicName,
    ) -> Result<BTreeMap<String, TopicConfigEntry>, DescribeConfigsError> {
        let mut retry = Retry::new(self.config().retry);
        let mut attempt = 0;
        loop {
            let asked = match self.any_connection(attempt).await {
                Ok(connection) => self.ask_config(&connection, topic).await,
                Err(failure) => Err(failure.into()),
            };
            match asked {
                Err(DescribeConfigsError::Request(failure)) if failure.is_transient() => {
                    if !retry.pause().await {
                        return Err(failure.into());
                    }
                    attempt += 1;
                }
                settled => return settled,
            }
        }
    }

    async fn ask_config(
        &self,
        connection: &Connection,
        topic: &TopicName,
    ) -> Result<BTreeMap<String, TopicConfigEntry>, DescribeConfigsError> {
        let version = connection.version::<DescribeConfigsRequest>()?;
        let request = requests::describe(topic);
        let response = connection.call(version, &request, self.config().request_timeout).await?;
        let described =
            requests::described(response, topic).map_err(|what| connection.garbage::<DescribeConfigsRequest>(what))?;
        described.map_err(|Refusal { code, message }| match code {
            code::UNKNOWN_TOPIC_OR_PARTITION => DescribeConfigsError::UnknownTopic { topic: topic.clone() },
            code::TOPIC_AUTHORIZATION_FAILED => DescribeConfigsError::NotAuthorized { topic: topic.clone() },
            code => DescribeConfigsError::Refused { topic: topic.clone(), code: KafkaCode(code), message },
        })
    }

    /// Sends a request to the controller, on a connection of its own: administration may take its time. What was once
    /// sent is not sent again, unless the broker says that it is not the controller.
    async fn administer<R: Spoken>(
        &self,
        build: impl Fn(i16) -> R,
        is_not_controller: impl Fn(&R::Response) -> bool,
    ) -> Result<(Connection, R::Response), RequestError> {
        let mut retry = Retry::new(self.config().retry);
        loop {
            let connection = match self.own_connection(&self.controller_address()).await {
                Ok(connection) => connection,
                Err(failure) => {
                    if !failure.is_transient() || !retry.pause().await {
                        return Err(failure);
                    }
                    self.refresh_brokers().await?;
                    continue;
                }
            };
            let version = connection.version::<R>()?;
            let response = connection.call(version, &build(version), self.config().request_timeout).await?;
            if is_not_controller(&response) && retry.pause().await {
                self.refresh_brokers().await?;
                continue;
            }
            return Ok((connection, response));
        }
    }

    /// How long a broker may take over administration: less than we wait for its answer, so that it is the one to say that
    /// time ran out.
    fn patience(&self) -> Duration {
        self.config().request_timeout.mul_f32(0.75)
    }
}

fn is_ready(info: &TopicInfo, partitions: i32) -> bool {
    let enough =
        usize::try_from(partitions).map_or(!info.partitions.is_empty(), |asked| info.partitions.len() >= asked);
    enough && info.partitions.iter().all(|partition| partition.leader.is_some())
}

fn deletion_refusal(topic: &TopicName, (partition, offset): (i32, i64), code: i16) -> DeleteRecordsError {
    let topic_partition = TopicPartition::new(topic.clone(), partition);
    match code {
        code::OFFSET_OUT_OF_RANGE => DeleteRecordsError::OffsetOutOfRange { topic_partition, offset },
        code::TOPIC_AUTHORIZATION_FAILED => DeleteRecordsError::NotAuthorized { topic: topic.clone() },
        code => DeleteRecordsError::Refused { topic_partition, code: KafkaCode(code) },
    }
}

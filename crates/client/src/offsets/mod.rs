//! Offset lookup: ListOffsets by time and the special questions.

mod lookup;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use kafka_protocol::messages::ListOffsetsRequest;
use tidegate_model::{Isolation, TopicName, TopicPartition};
use tokio::time::Instant;

use crate::cluster::{Cluster, Leader, LeaderError, MetadataError};
use crate::error::{KafkaCode, RequestError, code};
use crate::retry::Retry;
use lookup::Question;
pub(crate) use lookup::isolation_level;

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
    /// The topic is kept in message format v0, which has no timestamps to look up.
    #[error("partition {topic_partition} is kept in message format v0, which has no timestamps")]
    NoTimestamps {
        /// The partition.
        topic_partition: TopicPartition,
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

impl ListOffsetsError {
    /// Whether another attempt, after a while, may do better.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Request(source) => source.is_transient(),
            Self::Metadata(source) => source.is_transient(),
            Self::NoLeader { .. } => true,
            Self::Refused { code, .. } => code::concerns_leader(code.0),
            Self::UnknownPartition { .. }
            | Self::NotAuthorized { .. }
            | Self::MaxTimestampUnsupported { .. }
            | Self::NoTimestamps { .. } => false,
        }
    }

    /// The partition that it concerns, where it is one.
    pub fn topic_partition(&self) -> Option<&TopicPartition> {
        match self {
            Self::UnknownPartition { topic_partition }
            | Self::NoLeader { topic_partition }
            | Self::NoTimestamps { topic_partition }
            | Self::Refused { topic_partition, .. } => Some(topic_partition),
            Self::NotAuthorized { .. }
            | Self::MaxTimestampUnsupported { .. }
            | Self::Request(_)
            | Self::Metadata(_) => None,
        }
    }
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
        let mut retry = Retry::new(self.config().retry);
        let mut stale = None;
        let mut answers = vec![None; queries.len()];
        loop {
            let asked_at = Instant::now();
            let open: Vec<usize> = (0..queries.len()).filter(|index| answers[*index].is_none()).collect();
            let mut setback = None;
            let mut requests = Vec::new();
            for request in self.requests(topic, queries, &open, stale, &mut setback).await? {
                requests.push(self.ask_offsets(topic, request, isolation));
            }
            for result in join_all(requests).await {
                match result {
                    Ok(found) => {
                        for (index, found) in found {
                            let topic_partition = || TopicPartition::new(topic.clone(), queries[index].0);
                            match found {
                                Ok(found) => {
                                    answers[index] = Some(OffsetAnswer { partition: queries[index].0, found });
                                }
                                Err(code) => {
                                    let refused = refusal(topic_partition(), code);
                                    if !code::concerns_leader(code.0) {
                                        return Err(refused);
                                    }
                                    setback = Some(refused);
                                }
                            }
                        }
                    }
                    Err(ListOffsetsError::Request(failure)) if failure.is_transient() => {
                        setback = Some(failure.into());
                    }
                    Err(error) => return Err(error),
                }
            }
            let Some(setback) = setback else { break };
            tracing::debug!(%topic, %setback, "offset lookup is tried again");
            stale = Some(asked_at);
            if !retry.pause().await {
                return Err(setback);
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// The open queries as requests to the partitions' leaders. A partition without a leader is a setback.
    async fn requests(
        &self,
        topic: &TopicName,
        queries: &[(i32, OffsetQuery)],
        open: &[usize],
        stale: Option<Instant>,
        setback: &mut Option<ListOffsetsError>,
    ) -> Result<Vec<LeaderRequest>, ListOffsetsError> {
        let partitions: Vec<i32> = open.iter().map(|index| queries[*index].0).collect();
        let leaders = self.leaders(topic, &partitions, stale).await?;
        let mut by_leader = BTreeMap::<Arc<str>, Vec<(usize, Question)>>::new();
        for (&index, leader) in open.iter().zip(leaders) {
            let (partition, query) = queries[index];
            let topic_partition = TopicPartition::new(topic.clone(), partition);
            match leader {
                Ok(Leader { address, epoch }) => {
                    let question = Question { partition, leader_epoch: epoch, query };
                    by_leader.entry(address).or_default().push((index, question));
                }
                Err(LeaderError::NoLeader) => *setback = Some(ListOffsetsError::NoLeader { topic_partition }),
                Err(LeaderError::UnknownPartition) => {
                    return Err(ListOffsetsError::UnknownPartition { topic_partition });
                }
            }
        }
        let mut requests = Vec::new();
        for (address, asked) in by_leader {
            for round in lookup::rounds(asked.iter().map(|(_, question)| question.partition)) {
                let questions = round.into_iter().map(|at| asked[at]).collect();
                requests.push(LeaderRequest { address: Arc::clone(&address), questions });
            }
        }
        Ok(requests)
    }

    async fn ask_offsets(
        &self,
        topic: &TopicName,
        request: LeaderRequest,
        isolation: Isolation,
    ) -> Result<Vec<(usize, Result<Option<OffsetAndTimestamp>, KafkaCode>)>, ListOffsetsError> {
        let connection = self.shared_connection(&request.address).await?;
        let version = connection.version::<ListOffsetsRequest>()?;
        let (indexes, questions): (Vec<usize>, Vec<Question>) = request.questions.into_iter().unzip();
        let wants_max = questions.iter().any(|question| question.query == OffsetQuery::MaxTimestamp);
        if wants_max && version < lookup::MAX_TIMESTAMP_VERSION {
            let broker = connection.address().to_owned();
            return Err(ListOffsetsError::MaxTimestampUnsupported { broker, version });
        }
        let built = lookup::build(version, topic, &questions, isolation);
        let response = connection.call(version, &built, self.config().request_timeout).await?;
        let answers = lookup::check(response, topic, &questions)
            .map_err(|what| connection.garbage::<ListOffsetsRequest>(what))?;
        Ok(indexes.into_iter().zip(answers).collect())
    }
}

/// One request to one leader; each question with its query's index.
struct LeaderRequest {
    address: Arc<str>,
    questions: Vec<(usize, Question)>,
}

fn refusal(topic_partition: TopicPartition, code: KafkaCode) -> ListOffsetsError {
    match code.0 {
        code::TOPIC_AUTHORIZATION_FAILED => ListOffsetsError::NotAuthorized { topic: topic_partition.topic },
        code::UNSUPPORTED_FOR_MESSAGE_FORMAT => ListOffsetsError::NoTimestamps { topic_partition },
        _ => ListOffsetsError::Refused { topic_partition, code },
    }
}

//! Why records were not written.

use std::time::Duration;

use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tidegate_model::TopicName;

/// A record was not written. Every variant names the record by its ordinal in the session, from 0.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProduceError {
    /// The record is larger than the producer or the topic allows.
    #[error("record {ordinal} for topic {topic} is too large: {bytes} bytes; {}", limit_text(*limit))]
    TooLarge {
        /// Which record.
        ordinal: u64,
        /// The topic.
        topic: TopicName,
        /// The partition, where it is known.
        partition: Option<i32>,
        /// The record's size: key, value and headers.
        bytes: usize,
        /// This producer's limit, `message_max_bytes`; `None`: the broker's, which the topic's `max.message.bytes` sets for
        /// a whole batch as it is stored.
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
    /// The brokers do not let librdkafka in. The record was not written.
    #[error("record {ordinal} for topic {topic} was not written: the brokers do not let us in: {reason}")]
    ShutOut {
        /// Which record.
        ordinal: u64,
        /// The topic.
        topic: TopicName,
        /// librdkafka's words.
        reason: String,
    },
    /// librdkafka cannot connect with these settings, although our own connections can.
    #[error("record {ordinal} for topic {topic} cannot be published: {reason}")]
    Unsupported {
        /// Which record.
        ordinal: u64,
        /// The topic.
        topic: TopicName,
        /// Which setting it is, and what to do.
        reason: String,
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

fn limit_text(limit: Option<usize>) -> String {
    match limit {
        Some(limit) => format!("the producer's message_max_bytes is {limit}"),
        None => "the topic's max.message.bytes is less than its batch".to_owned(),
    }
}

impl ProduceError {
    /// The ordinal of the record in its session, from 0.
    pub fn ordinal(&self) -> u64 {
        match self {
            Self::TooLarge { ordinal, .. }
            | Self::UnknownPartition { ordinal, .. }
            | Self::UnknownTopic { ordinal, .. }
            | Self::NotAuthorized { ordinal, .. }
            | Self::Record { ordinal, .. }
            | Self::TimedOut { ordinal, .. }
            | Self::ShutOut { ordinal, .. }
            | Self::Unsupported { ordinal, .. }
            | Self::Refused { ordinal, .. } => *ordinal,
        }
    }
}

/// What is known of a record that failed.
#[derive(Clone, Debug)]
pub(super) struct Failed<'a> {
    pub(super) ordinal: u64,
    pub(super) topic: &'a TopicName,
    /// `None` where none was chosen yet.
    pub(super) partition: Option<i32>,
    pub(super) bytes: usize,
    /// Set when the producer refused it before it was queued: its own limit.
    pub(super) local_limit: Option<usize>,
    pub(super) delivery_timeout: Duration,
    /// Why brokers do not let librdkafka in, if they do not.
    pub(super) shut_out: Option<String>,
}

/// The error that librdkafka's stands for.
pub(super) fn produce_error(failed: Failed<'_>, error: &KafkaError) -> ProduceError {
    let Failed { ordinal, topic, partition, bytes, local_limit, delivery_timeout, shut_out } = failed;
    let topic = topic.clone();
    match (error.rdkafka_error_code(), partition) {
        (Some(RDKafkaErrorCode::MessageSizeTooLarge), _) => {
            ProduceError::TooLarge { ordinal, topic, partition, bytes, limit: local_limit }
        }
        (Some(RDKafkaErrorCode::UnknownPartition), Some(partition)) => {
            ProduceError::UnknownPartition { ordinal, topic, partition }
        }
        (Some(RDKafkaErrorCode::UnknownTopic | RDKafkaErrorCode::UnknownTopicOrPartition), _) => {
            ProduceError::UnknownTopic { ordinal, topic }
        }
        (Some(RDKafkaErrorCode::TopicAuthorizationFailed | RDKafkaErrorCode::ClusterAuthorizationFailed), _) => {
            ProduceError::NotAuthorized { ordinal, topic }
        }
        (Some(RDKafkaErrorCode::MessageTimedOut), _) if shut_out.is_some() => {
            ProduceError::ShutOut { ordinal, topic, reason: shut_out.unwrap_or_default() }
        }
        (Some(RDKafkaErrorCode::MessageTimedOut), _) => {
            ProduceError::TimedOut { ordinal, topic, partition, after: delivery_timeout }
        }
        _ => ProduceError::Refused { ordinal, topic, partition, reason: error.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_its_name_with_the_facts() {
        let topic = TopicName::new("orders").unwrap();
        let of = |code, partition, local_limit| {
            let failed = Failed {
                ordinal: 7,
                topic: &topic,
                partition,
                bytes: 2_000_000,
                local_limit,
                delivery_timeout: Duration::from_secs(3),
                shut_out: None,
            };
            produce_error(failed, &KafkaError::MessageProduction(code)).to_string()
        };
        let text = of(RDKafkaErrorCode::MessageSizeTooLarge, Some(1), Some(1_000_000));
        assert!(text.contains("record 7") && text.contains("2000000") && text.contains("1000000"), "{text}");
        let text = of(RDKafkaErrorCode::MessageSizeTooLarge, Some(1), None);
        assert!(text.contains("max.message.bytes"), "{text}");
        assert_eq!(of(RDKafkaErrorCode::UnknownPartition, Some(9), None), "record 7: topic orders has no partition 9");
        assert_eq!(of(RDKafkaErrorCode::UnknownTopicOrPartition, Some(0), None), "record 7: there is no topic orders");
        assert!(of(RDKafkaErrorCode::MessageTimedOut, None, None).contains("within 3s"));
        assert!(of(RDKafkaErrorCode::InvalidRecord, Some(0), None).contains("was not written"));
    }
}

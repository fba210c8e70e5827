//! Why a group source ended.

use std::time::Duration;

use tidegate_model::TopicPartition;

use crate::error::ConnectError;
use crate::fetch::ReadError;
use crate::offsets::ListOffsetsError;
use crate::security::SecurityError;

/// A group source could not join, or ended. What may pass (brokers that come and go, leaders that move, rebalances) is not
/// among these: the source waits for it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum GroupError {
    /// The settings cannot work.
    #[error("the group source cannot be made: {reason}")]
    Setting {
        /// Which setting it is.
        reason: String,
    },
    /// TLS or SASL cannot be used as they are set.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// No broker answered when joining.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Our own connections get in, librdkafka's do not.
    #[error("group {group}: the brokers do not let librdkafka in: {reason}")]
    ShutOut {
        /// Kafka's `group.id`.
        group: String,
        /// librdkafka's words.
        reason: String,
    },
    /// The cluster does not let this client into the group, or to a topic of it.
    #[error("group {group}: not authorized: {reason}")]
    NotAuthorized {
        /// Kafka's `group.id`.
        group: String,
        /// librdkafka's words.
        reason: String,
    },
    /// Another member has taken over this `group.instance.id`.
    #[error("group {group}: another member came with the same group.instance.id, {instance:?}")]
    Fenced {
        /// Kafka's `group.id`.
        group: String,
        /// The `group.instance.id` that both have.
        instance: String,
    },
    /// The coordinator or librdkafka refuses this member for good.
    #[error("group {group}: {reason}")]
    Refused {
        /// Kafka's `group.id`.
        group: String,
        /// Its words.
        reason: String,
    },
    /// The group's committed offset, or the position that was reached, is not in the log. Below the log start offset:
    /// `[offset, log_start_offset)` is lost. Above the high watermark: the log was truncated, or the topic made anew.
    #[error(
        "offset {offset} of partition {topic_partition}, {}, is out of range: the log holds {log_start_offset} to \
         {high_watermark}; {}",
        if *committed { "which the group has committed" } else { "which is to be read next" },
        loss(*offset, *log_start_offset)
    )]
    OutOfRange {
        /// The partition.
        topic_partition: TopicPartition,
        /// The offset that was to be read next.
        offset: i64,
        /// Whether it is the group's committed one, or a position that was reached since.
        committed: bool,
        /// The first offset that the log holds.
        log_start_offset: i64,
        /// The offset after the last that the log holds.
        high_watermark: i64,
    },
    /// The group has committed no offset for a partition, and `auto.offset.reset` is none.
    #[error("the group has committed no offset for partition {topic_partition}, and auto.offset.reset is none")]
    NoCommittedOffset {
        /// The partition.
        topic_partition: TopicPartition,
    },
    /// The committed offset of a partition cannot be had, or its metadata cannot be read.
    #[error("the committed offset of partition {topic_partition}: {reason}")]
    Committed {
        /// The partition.
        topic_partition: TopicPartition,
        /// Why not.
        reason: String,
    },
    /// The log's bounds could not be looked up.
    #[error(transparent)]
    Offsets(Box<ListOffsetsError>),
    /// A partition cannot be read further.
    #[error(transparent)]
    Read(Box<ReadError>),
    /// The coordinator refuses a commit for good; its metadata being too large is among the reasons.
    #[error("the commit of {} was refused: {reason}", list(partitions))]
    CommitRefused {
        /// The partitions that were committed together; at least one was refused.
        partitions: Vec<TopicPartition>,
        /// librdkafka's words.
        reason: String,
    },
    /// The last commits were not acknowledged in time. They may have been written.
    #[error("the last commit of {} was not acknowledged within {after:?}", list(partitions))]
    CommitUnfinished {
        /// The partitions with a commit that is not acknowledged.
        partitions: Vec<TopicPartition>,
        /// The limit.
        after: Duration,
    },
    /// The task of the source is gone, because its runtime shuts down or because it failed.
    #[error("the task of the group source ended")]
    TaskEnded,
}

impl From<ListOffsetsError> for GroupError {
    fn from(error: ListOffsetsError) -> Self {
        Self::Offsets(Box::new(error))
    }
}

impl From<ReadError> for GroupError {
    fn from(error: ReadError) -> Self {
        Self::Read(Box::new(error))
    }
}

fn loss(offset: i64, log_start_offset: i64) -> String {
    match log_start_offset.checked_sub(offset) {
        Some(lost) if lost > 0 => format!("{lost} offsets are lost"),
        _ => "the log was truncated, or the topic made anew".to_owned(),
    }
}

fn list(partitions: &[TopicPartition]) -> String {
    let mut text: Vec<String> = partitions.iter().take(10).map(ToString::to_string).collect();
    if partitions.len() > text.len() {
        text.push(format!("{} more", partitions.len() - text.len()));
    }
    text.join(", ")
}

//! Why reading a slice ended early.

use std::time::Duration;

use tidegate_model::{OffsetRange, TopicName, TopicPartition};
use tidegate_wire::{BatchError, ControlRecordError};

use crate::cluster::MetadataError;
use crate::error::{KafkaCode, RequestError};
use crate::offsets::ListOffsetsError;

/// Reading ended before the end of the slice.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    /// The position lies outside the log. Below the log start offset: `[requested, log_start_offset)` is lost. Above the
    /// high watermark: the log was truncated.
    #[error(
        "offset {requested} of partition {topic_partition} is out of range: the log holds {log_start_offset} to \
         {high_watermark}"
    )]
    OffsetOutOfRange {
        /// The partition.
        topic_partition: TopicPartition,
        /// The reader's position.
        requested: i64,
        /// The first offset that the log holds.
        log_start_offset: i64,
        /// The offset after the last that the log holds.
        high_watermark: i64,
    },
    /// The log was truncated before the position and written anew: a replica that lacked records was elected (unclean leader
    /// election). What was read from `end_offset` on is lost, at some of these offsets the log may hold other records, and to
    /// go on at the position would leave out others. Reading anew from `end_offset` gives the log as it is now.
    #[error(
        "partition {topic_partition} was truncated: what was read up to offset {position} was written under leader epoch \
         {leader_epoch}, which now ends at offset {end_offset}"
    )]
    Truncated {
        /// The partition.
        topic_partition: TopicPartition,
        /// The offset behind the last batch that was fetched; the reader may not have handed all of it on.
        position: i64,
        /// Where the log as it is now parts from what was read, or before.
        end_offset: i64,
        /// The leader epoch of the last batch that was fetched.
        leader_epoch: i32,
    },
    /// The slice starts at a negative offset.
    #[error("the range {range} of partition {topic_partition} starts at a negative offset")]
    NegativeOffset {
        /// The partition.
        topic_partition: TopicPartition,
        /// The range.
        range: OffsetRange,
    },
    /// The topic has no such partition.
    #[error("there is no partition {topic_partition}")]
    UnknownPartition {
        /// The partition.
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
    /// A batch cannot be read. `source` says which offsets it covers; a new reader can be started behind it.
    #[error("partition {topic_partition}: {source}")]
    Batch {
        /// The partition.
        topic_partition: TopicPartition,
        /// What is wrong with the batch.
        source: BatchError,
    },
    /// A control record does not tell whether it ends an aborted transaction.
    #[error("partition {topic_partition}: {source}")]
    Marker {
        /// The partition.
        topic_partition: TopicPartition,
        /// What is wrong with the record.
        source: ControlRecordError,
    },
    /// A whole batch lies before the end of the batch in front of it: one of the two has a wrong base offset, and records would
    /// be lost in silence.
    #[error(
        "partition {topic_partition}: a batch with base offset {base_offset} stands behind one that ends before offset \
         {before}: the log is damaged"
    )]
    OutOfOrder {
        /// The partition.
        topic_partition: TopicPartition,
        /// The base offset of the batch behind.
        base_offset: i64,
        /// The offset after the batch in front.
        before: i64,
    },
    /// A batch lies beyond the end of the log: its base offset is wrong, and records would be lost in silence.
    #[error(
        "partition {topic_partition}: a batch has base offset {base_offset}, but the log ends at {high_watermark}: it is \
         damaged"
    )]
    BeyondEnd {
        /// The partition.
        topic_partition: TopicPartition,
        /// The batch's base offset.
        base_offset: i64,
        /// Where the log ends.
        high_watermark: i64,
    },
    /// One batch needs a larger response than the limits allow.
    #[error(
        "a batch of {bytes} bytes at offset {offset} of partition {topic_partition} is larger than the fetch limit of \
         {limit} bytes"
    )]
    BatchTooLarge {
        /// The partition.
        topic_partition: TopicPartition,
        /// The reader's position.
        offset: i64,
        /// The size of the batch, as far as it is known.
        bytes: u64,
        /// The limit that it breaks.
        limit: usize,
    },
    /// No fetch brought progress for too long although the end was not reached.
    #[error(
        "no progress at offset {offset} of partition {topic_partition} within {waited:?} (last stable offset \
         {last_stable_offset}, high watermark {high_watermark})"
    )]
    Stalled {
        /// The partition.
        topic_partition: TopicPartition,
        /// The reader's position.
        offset: i64,
        /// How long it stood there.
        waited: Duration,
        /// The last stable offset that the broker told last.
        last_stable_offset: i64,
        /// The high watermark that the broker told last.
        high_watermark: i64,
    },
    /// The leader refused.
    #[error("fetch at offset {offset} of partition {topic_partition}: {code}")]
    Refused {
        /// The partition.
        topic_partition: TopicPartition,
        /// The reader's position.
        offset: i64,
        /// The leader's error.
        code: KafkaCode,
    },
    /// The leader did not answer, or answered garbage.
    #[error("fetch from partition {topic_partition}: {source}")]
    Request {
        /// The partition.
        topic_partition: TopicPartition,
        /// What happened.
        source: RequestError,
    },
    /// The leader could not be found out; an unknown topic is among the reasons.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// The log's bounds could not be looked up after an offset was out of range.
    #[error(
        "offset {requested} of partition {topic_partition} is out of range, and the log's bounds are not known: {source}"
    )]
    Bounds {
        /// The partition.
        topic_partition: TopicPartition,
        /// The reader's position.
        requested: i64,
        /// What happened.
        source: ListOffsetsError,
    },
    /// The reader's task is gone, because its runtime shuts down or because it failed.
    #[error("the task that reads partition {topic_partition} ended at offset {offset}")]
    TaskEnded {
        /// The partition.
        topic_partition: TopicPartition,
        /// The reader's position.
        offset: i64,
    },
}

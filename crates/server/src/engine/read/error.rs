//! Why a range cannot be read, or not to its end.

use tidegate_client::{MetadataError, ReadError};
use tidegate_model::{OffsetRange, RecordError, TopicName, TopicNameError, TopicPartition};
use tidegate_plan::{PlanOffsetsError, RangeError};

use crate::engine::{EncodeError, EndsError, SchemaFetchError};

/// Why a range cannot be read, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum ReadRangeError {
    /// The name is none that a topic can have.
    #[error(transparent)]
    TopicName(#[from] TopicNameError),
    /// A time is none, or the range ends before it starts.
    #[error(transparent)]
    Time(#[from] RangeError),
    /// The offsets are no range.
    #[error(transparent)]
    Offsets(#[from] PlanOffsetsError),
    /// The topic has no such partition.
    #[error("topic {topic} has no partition {partition}; it has {count}, numbered from 0")]
    UnknownPartition {
        /// The topic.
        topic: TopicName,
        /// The partition asked for.
        partition: i32,
        /// How many there are.
        count: usize,
    },
    /// The request names offsets that the log no longer holds.
    #[error(
        "the log of partition {topic_partition} starts at offset {log_start_offset}: the offsets {lost} that were asked \
         for are gone (on_data_loss=report reads what is left)"
    )]
    OffsetsGone {
        /// The partition.
        topic_partition: TopicPartition,
        /// The offsets that are gone.
        lost: OffsetRange,
        /// The first offset that the log holds.
        log_start_offset: i64,
        /// The end noted when the request began.
        noted_end_offset: i64,
    },
    /// The schema that a value names could not be fetched.
    #[error("partition {topic_partition}, offset {offset}: the schema that the value names is needed: {source}")]
    Schema {
        /// The partition.
        topic_partition: TopicPartition,
        /// The record's offset.
        offset: i64,
        /// Why not.
        source: SchemaFetchError,
    },
    /// Records of the range vanished while it was read.
    #[error(
        "the offsets {lost} of partition {topic_partition} vanished from the log while it was read; it holds \
         [{log_start_offset}, {high_watermark}) (on_data_loss=report reads what is left)"
    )]
    DataLoss {
        /// The partition.
        topic_partition: TopicPartition,
        /// The offsets that vanished.
        lost: OffsetRange,
        /// The first offset that the log holds now.
        log_start_offset: i64,
        /// The offset after the last that it holds now.
        high_watermark: i64,
    },
    /// As many reads as allowed are in progress.
    #[error("{limit} reads are in progress, and this server allows no more at once; try again later")]
    TooManyReads {
        /// The limit.
        limit: usize,
    },
    /// The server goes away.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// The topic's metadata could not be had; an unknown topic is among the reasons.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// The partitions' ends could not be found.
    #[error(transparent)]
    Ends(#[from] EndsError),
    /// Fetching failed.
    #[error(transparent)]
    Read(Box<ReadError>),
    /// A record batch cannot be read through.
    #[error("the record batch at offsets {offsets} of partition {topic_partition}: {source}")]
    Record {
        /// The partition.
        topic_partition: TopicPartition,
        /// The batch's offsets.
        offsets: OffsetRange,
        /// What is wrong with it.
        source: RecordError,
    },
    /// The output format cannot hold a record.
    #[error("topic {topic}, {source}")]
    Encode {
        /// The topic.
        topic: TopicName,
        /// Which record, and why.
        source: EncodeError,
    },
}

impl From<ReadError> for ReadRangeError {
    fn from(error: ReadError) -> Self {
        Self::Read(Box::new(error))
    }
}

//! Every error of the engine as a public one. No match here has a catch-all: a new error does not compile until somebody
//! has decided what callers see.

use std::fmt::Display;

use tidegate_api::{ApiError, Code};
use tidegate_client::{
    DescribeConfigsError, ListOffsetsError, MetadataError, ProduceError, ReadError, RegistryError, RequestError,
    RequestFailure,
};
use tidegate_model::{TopicName, TopicNameError, TopicPartition};
use tidegate_plan::{PlanOffsetsError, RangeError, TimeExprError};
use tidegate_wire::BatchError;
use tidegate_wire::compression::DecompressError;

use crate::engine::{
    ClusterError, DescribeTopicError, EncodeError, EndsError, ListTopicsError, PublishError, ReadRangeError,
    SchemaFetchError, WriterSetupError,
};

/// An error of the engine that callers see. Its message is the error as it shows itself.
trait Public: Display {
    /// The code, and the details for programs.
    fn code(&self) -> Coded;
}

macro_rules! public {
    ($($error:ty),+) => {
        $(
            impl From<&$error> for ApiError {
                fn from(error: &$error) -> Self {
                    let Coded { code, details } = error.code();
                    details
                        .into_iter()
                        .fold(Self::new(code, error.to_string()), |error, (name, value)| error.with(name, value))
                }
            }

            impl From<$error> for ApiError {
                fn from(error: $error) -> Self {
                    Self::from(&error)
                }
            }
        )+
    };
}

public!(ClusterError, ListTopicsError, DescribeTopicError, ReadRangeError, PublishError);

/// The error of a publish, with how many records of the request were written all the same.
pub(crate) fn with_records_written(error: ApiError, records: u64) -> ApiError {
    let message = match records {
        0 => format!("{}; no record was written", error.message),
        1 => format!("{}; 1 record of the request was written", error.message),
        _ => format!("{}; {records} records of the request were written", error.message),
    };
    ApiError { message, ..error.with("records_written", records) }
}

/// A code with its details.
struct Coded {
    code: Code,
    details: Vec<(&'static str, String)>,
}

impl From<Code> for Coded {
    fn from(code: Code) -> Self {
        Self { code, details: Vec::new() }
    }
}

impl Coded {
    fn with(mut self, name: &'static str, value: impl Display) -> Self {
        self.details.push((name, value.to_string()));
        self
    }

    fn topic(self, topic: &TopicName) -> Self {
        self.with("topic", topic)
    }

    fn at(self, topic_partition: &TopicPartition) -> Self {
        self.topic(&topic_partition.topic).with("partition", topic_partition.partition)
    }

    /// Which record of a publish: its ordinal, from 0, and its partition where it is known.
    fn record(self, ordinal: u64, partition: Option<i32>) -> Self {
        let coded = self.with("record", ordinal);
        match partition {
            Some(partition) => coded.with("partition", partition),
            None => coded,
        }
    }
}

impl Public for ClusterError {
    fn code(&self) -> Coded {
        match self {
            Self::Unknown { name, known } => {
                Coded::from(Code::UnknownCluster).with("cluster", name).with("clusters", known.join(","))
            }
            Self::Unnamed { known } => {
                Coded::from(Code::InvalidArgument).with("field", "cluster").with("clusters", known.join(","))
            }
        }
    }
}

impl Public for ListTopicsError {
    fn code(&self) -> Coded {
        match self {
            Self::Metadata(error) => metadata(error),
        }
    }
}

impl Public for DescribeTopicError {
    fn code(&self) -> Coded {
        match self {
            Self::TopicName(error) => topic_name(error),
            Self::Metadata(error) => metadata(error),
            Self::Ends(error) => ends(error),
            Self::Configs(error) => configs(error),
        }
    }
}

impl Public for ReadRangeError {
    fn code(&self) -> Coded {
        match self {
            Self::TopicName(error) => topic_name(error),
            Self::Time(error) => time_range(error),
            Self::Offsets(error) => offset_range(error),
            Self::UnknownPartition { topic, partition, count } => {
                Coded::from(Code::UnknownPartition).topic(topic).with("partition", partition).with("partitions", count)
            }
            Self::Schema { topic_partition, offset, source } => {
                schema_fetch(source).at(topic_partition).with("offset", offset)
            }
            Self::OffsetsGone { topic_partition, lost, log_start_offset, noted_end_offset } => {
                Coded::from(Code::OffsetOutOfRange)
                    .at(topic_partition)
                    .with("lost_start_offset", lost.start)
                    .with("lost_end_offset", lost.end)
                    .with("log_start_offset", log_start_offset)
                    .with("noted_end_offset", noted_end_offset)
            }
            Self::DataLoss { topic_partition, lost, log_start_offset, high_watermark } => Coded::from(Code::DataLoss)
                .at(topic_partition)
                .with("lost_start_offset", lost.start)
                .with("lost_end_offset", lost.end)
                .with("log_start_offset", log_start_offset)
                .with("high_watermark", high_watermark),
            Self::TooManyReads { limit } => Coded::from(Code::TooManyReads).with("limit", limit),
            Self::ShuttingDown => Code::ShuttingDown.into(),
            Self::Metadata(error) => metadata(error),
            Self::Ends(error) => ends(error),
            Self::Read(error) => read(error),
            Self::Record { topic_partition, offsets, source: _ } => Coded::from(Code::BatchUnreadable)
                .at(topic_partition)
                .with("first_offset", offsets.start)
                .with("last_offset", offsets.end.saturating_sub(1)),
            Self::Encode { topic, source } => encode(source).topic(topic),
        }
    }
}

impl Public for PublishError {
    fn code(&self) -> Coded {
        match self {
            Self::TopicName(error) => topic_name(error),
            Self::Metadata(error) => metadata(error),
            Self::TooManyPublishes { limit } => Coded::from(Code::TooManyPublishes).with("limit", limit),
            Self::Schema { topic, source } => writer(source).topic(topic),
            Self::Produce(error) => produce(error),
        }
    }
}

fn topic_name(error: &TopicNameError) -> Coded {
    match error {
        TopicNameError::Empty
        | TopicNameError::TooLong { .. }
        | TopicNameError::Dots { .. }
        | TopicNameError::Character { .. } => Coded::from(Code::InvalidArgument).with("field", "topic"),
    }
}

fn time_range(error: &RangeError) -> Coded {
    match error {
        RangeError::From(error) => time(error).with("field", "from"),
        RangeError::Until(error) => time(error).with("field", "until"),
        RangeError::EndBeforeStart { from, until } => {
            Coded::from(Code::InvalidRange).with("from", from).with("until", until)
        }
    }
}

fn time(error: &TimeExprError) -> Coded {
    let coded = Coded::from(Code::InvalidTime);
    match error {
        TimeExprError::Empty => coded,
        TimeExprError::NoUnit { text, .. }
        | TimeExprError::TooFar { text, .. }
        | TimeExprError::NoOffset { text }
        | TimeExprError::SpaceForPlus { text }
        | TimeExprError::Duration { text }
        | TimeExprError::NothingToCountFrom { text }
        | TimeExprError::Unknown { text, .. } => coded.with("text", text),
    }
}

fn offset_range(error: &PlanOffsetsError) -> Coded {
    let coded = Coded::from(Code::InvalidRange);
    match error {
        PlanOffsetsError::Negative { field, offset } => coded.with("field", field).with("offset", offset),
        PlanOffsetsError::EndBeforeStart { start, end } => coded.with("start_offset", start).with("end_offset", end),
    }
}

fn encode(error: &EncodeError) -> Coded {
    match error {
        EncodeError::RecordTooLarge { partition, offset, needed_bytes, allowed_bytes, field } => {
            Coded::from(Code::MessageTooLarge)
                .with("partition", partition)
                .with("offset", offset)
                .with("needed_bytes", needed_bytes)
                .with("allowed_bytes", allowed_bytes)
                .with("field", field)
        }
        EncodeError::EndTooLarge { needed_bytes, allowed_bytes, field } => Coded::from(Code::MessageTooLarge)
            .with("needed_bytes", needed_bytes)
            .with("allowed_bytes", allowed_bytes)
            .with("field", field),
        EncodeError::Value { partition, offset, reason: _ } => {
            Coded::from(Code::ValueUnreadable).with("partition", partition).with("offset", offset)
        }
    }
}

fn ends(error: &EndsError) -> Coded {
    match error {
        EndsError::ListOffsets(error) => list_offsets(error),
        EndsError::NoEnd { topic_partition, side: _ } => Coded::from(Code::ClusterProtocol).at(topic_partition),
    }
}

fn request(error: &RequestError) -> Coded {
    let code = match &error.failure {
        RequestFailure::Connect(_)
        | RequestFailure::ConnectTimeout { .. }
        | RequestFailure::Io(_)
        | RequestFailure::Closed
        | RequestFailure::ClosedAtOnce { .. } => Code::ClusterUnavailable,
        RequestFailure::Token(error) if error.is_transient() => Code::ClusterUnavailable,
        RequestFailure::Token(_) | RequestFailure::Tls { .. } | RequestFailure::Authentication(_) => {
            Code::ClusterRefused
        }
        RequestFailure::Timeout { .. } => Code::ClusterTimeout,
        RequestFailure::Garbage { .. } | RequestFailure::TooLarge { .. } | RequestFailure::Version { .. } => {
            Code::ClusterProtocol
        }
        RequestFailure::Encode { .. } => Code::Internal,
    };
    Coded::from(code).with("broker", &error.broker).with("request", error.request)
}

fn metadata(error: &MetadataError) -> Coded {
    match error {
        MetadataError::UnknownTopic { topic } => Coded::from(Code::UnknownTopic).topic(topic),
        MetadataError::NotAuthorized { topic } => Coded::from(Code::NotAuthorized).topic(topic),
        MetadataError::Refused { topic, code } => {
            Coded::from(Code::ClusterRefused).topic(topic).with("kafka_error", code)
        }
        MetadataError::Request(error) => request(error),
    }
}

fn list_offsets(error: &ListOffsetsError) -> Coded {
    match error {
        ListOffsetsError::UnknownPartition { topic_partition } => {
            Coded::from(Code::UnknownPartition).at(topic_partition)
        }
        ListOffsetsError::NoLeader { topic_partition } => Coded::from(Code::ClusterUnavailable).at(topic_partition),
        ListOffsetsError::NotAuthorized { topic } => Coded::from(Code::NotAuthorized).topic(topic),
        ListOffsetsError::MaxTimestampUnsupported { broker, version: _ } => {
            Coded::from(Code::ClusterProtocol).with("broker", broker)
        }
        ListOffsetsError::NoTimestamps { topic_partition } => Coded::from(Code::ClusterRefused).at(topic_partition),
        ListOffsetsError::Refused { topic_partition, code } => {
            Coded::from(Code::ClusterRefused).at(topic_partition).with("kafka_error", code)
        }
        ListOffsetsError::Request(error) => request(error),
        ListOffsetsError::Metadata(error) => metadata(error),
    }
}

fn configs(error: &DescribeConfigsError) -> Coded {
    match error {
        DescribeConfigsError::UnknownTopic { topic } => Coded::from(Code::UnknownTopic).topic(topic),
        DescribeConfigsError::NotAuthorized { topic } => Coded::from(Code::NotAuthorized).topic(topic),
        DescribeConfigsError::Refused { topic, code, message: _ } => {
            Coded::from(Code::ClusterRefused).topic(topic).with("kafka_error", code)
        }
        DescribeConfigsError::Request(error) => request(error),
    }
}

fn read(error: &ReadError) -> Coded {
    match error {
        ReadError::OffsetOutOfRange { topic_partition, requested, log_start_offset, high_watermark } => {
            Coded::from(Code::DataLoss)
                .at(topic_partition)
                .with("requested_offset", requested)
                .with("log_start_offset", log_start_offset)
                .with("high_watermark", high_watermark)
        }
        ReadError::Truncated { topic_partition, position, end_offset, leader_epoch } => Coded::from(Code::DataLoss)
            .at(topic_partition)
            .with("position", position)
            .with("end_offset", end_offset)
            .with("leader_epoch", leader_epoch),
        ReadError::NegativeOffset { topic_partition, range: _ } => Coded::from(Code::Internal).at(topic_partition),
        ReadError::UnknownPartition { topic_partition } => Coded::from(Code::UnknownPartition).at(topic_partition),
        ReadError::NoLeader { topic_partition } => Coded::from(Code::ClusterUnavailable).at(topic_partition),
        ReadError::NotAuthorized { topic } => Coded::from(Code::NotAuthorized).topic(topic),
        ReadError::Batch { topic_partition, source } => batch(source).at(topic_partition),
        ReadError::Marker { topic_partition, source: _ } => Coded::from(Code::BatchUnreadable).at(topic_partition),
        ReadError::OutOfOrder { topic_partition, base_offset, before: _ } => {
            Coded::from(Code::BatchUnreadable).at(topic_partition).with("base_offset", base_offset)
        }
        ReadError::BeyondEnd { topic_partition, base_offset, high_watermark } => Coded::from(Code::BatchUnreadable)
            .at(topic_partition)
            .with("base_offset", base_offset)
            .with("high_watermark", high_watermark),
        ReadError::BatchTooLarge { topic_partition, offset, bytes, limit } => Coded::from(Code::BatchTooLarge)
            .at(topic_partition)
            .with("offset", offset)
            .with("bytes", bytes)
            .with("limit", limit),
        ReadError::Stalled { topic_partition, offset, waited: _, last_stable_offset, high_watermark } => {
            Coded::from(Code::ClusterTimeout)
                .at(topic_partition)
                .with("offset", offset)
                .with("last_stable_offset", last_stable_offset)
                .with("high_watermark", high_watermark)
        }
        ReadError::Refused { topic_partition, offset, code } => {
            Coded::from(Code::ClusterRefused).at(topic_partition).with("offset", offset).with("kafka_error", code)
        }
        ReadError::Request { topic_partition, source } => request(source).at(topic_partition),
        ReadError::Metadata(error) => metadata(error),
        ReadError::Bounds { topic_partition, requested, source } => {
            list_offsets(source).at(topic_partition).with("requested_offset", requested)
        }
        ReadError::TaskEnded { topic_partition, offset } => {
            Coded::from(Code::Internal).at(topic_partition).with("offset", offset)
        }
    }
}

fn batch(error: &BatchError) -> Coded {
    let code = match error {
        BatchError::UnsupportedMagic { .. } => Code::BatchUnsupported,
        BatchError::Decompress { source: DecompressError::TooLarge { .. }, .. } => Code::BatchTooLarge,
        BatchError::Length { .. }
        | BatchError::Header { .. }
        | BatchError::Crc { .. }
        | BatchError::UnknownCodec { .. }
        | BatchError::Decompress { .. }
        | BatchError::Record { .. }
        | BatchError::Message { .. } => Code::BatchUnreadable,
    };
    let at = error.at();
    let coded = Coded::from(code).with("first_offset", at.base_offset);
    match at.last_offset {
        Some(last) => coded.with("last_offset", last),
        None => coded,
    }
}

fn schema_fetch(error: &SchemaFetchError) -> Coded {
    match error {
        SchemaFetchError::Registry(RegistryError::Unavailable { request, attempts, last: _ }) => {
            Coded::from(Code::RegistryUnavailable).with("request", request).with("attempts", attempts)
        }
        SchemaFetchError::Registry(RegistryError::Refused { request, status, code: _, message: _ }) => {
            Coded::from(Code::RegistryRefused).with("request", request).with("status", status.as_u16())
        }
        SchemaFetchError::Registry(RegistryError::Request { request, reason: _ }) => {
            Coded::from(Code::RegistryRefused).with("request", request)
        }
        SchemaFetchError::Registry(RegistryError::AnswerTooLarge { request, limit }) => {
            Coded::from(Code::RegistryRefused).with("request", request).with("limit", limit)
        }
        SchemaFetchError::Registry(RegistryError::NotFound { code, message: _ }) => {
            Coded::from(Code::RegistryRefused).with("registry_error", code)
        }
        SchemaFetchError::Answer { what, source: _ } => Coded::from(Code::RegistryRefused).with("schema", what),
        SchemaFetchError::Compiler { what, reason: _ } => Coded::from(Code::Internal).with("schema", what),
    }
}

fn writer(error: &WriterSetupError) -> Coded {
    match error {
        WriterSetupError::Fetch(error) => schema_fetch(error),
        WriterSetupError::NoSchema { subject, reason: _ } | WriterSetupError::Unusable { subject, reason: _ } => {
            Coded::from(Code::SchemaUnusable).with("subject", subject)
        }
        WriterSetupError::NoSubject | WriterSetupError::Message(_) => Coded::from(Code::SchemaUnusable),
    }
}

fn produce(error: &ProduceError) -> Coded {
    match error {
        ProduceError::TooLarge { ordinal, topic, partition, bytes, limit } => {
            let coded =
                Coded::from(Code::RecordTooLarge).topic(topic).record(*ordinal, *partition).with("bytes", bytes);
            match limit {
                Some(limit) => coded.with("limit", limit),
                None => coded,
            }
        }
        ProduceError::UnknownPartition { ordinal, topic, partition } => {
            Coded::from(Code::UnknownPartition).topic(topic).record(*ordinal, Some(*partition))
        }
        ProduceError::UnknownTopic { ordinal, topic } => {
            Coded::from(Code::UnknownTopic).topic(topic).record(*ordinal, None)
        }
        ProduceError::NotAuthorized { ordinal, topic } => {
            Coded::from(Code::NotAuthorized).topic(topic).record(*ordinal, None)
        }
        ProduceError::Record { ordinal, topic, reason: _ } => {
            Coded::from(Code::InvalidRecord).topic(topic).record(*ordinal, None)
        }
        ProduceError::TimedOut { ordinal, topic, partition, after: _ } => {
            Coded::from(Code::PublishUnconfirmed).topic(topic).record(*ordinal, *partition)
        }
        ProduceError::ShutOut { ordinal, topic, reason: _ }
        | ProduceError::Unsupported { ordinal, topic, reason: _ } => {
            Coded::from(Code::PublishRefused).topic(topic).record(*ordinal, None)
        }
        ProduceError::Refused { ordinal, topic, partition, reason: _ } => {
            Coded::from(Code::PublishRefused).topic(topic).record(*ordinal, *partition)
        }
    }
}

//! Between the engine's values and the messages of `tidegate.v1`.

use tidegate_api::v1;
use tidegate_api::{ApiError, Code};
use tidegate_client::ProduceSummary;
use tidegate_model::{Isolation, PayloadKind, TimestampType};
use tidegate_plan::{EndStatement, PartitionEnd, Proof};

use crate::engine::{
    OnDataLoss, PartitionDescription, PublishWarning, RangeSpec, ReadRequest, TopicDescription, TopicSummary,
};

/// How the records of a read go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    Rows,
    Columns,
}

/// Understands a request to read; its message limit is for the caller to look at.
pub(super) fn read_request(request: v1::ReadRangeRequest) -> Result<(ReadRequest, Layout, ValueEncoding), ApiError> {
    let layout = match known::<v1::Layout>("layout", request.layout)? {
        v1::Layout::Unspecified | v1::Layout::Rows => Layout::Rows,
        v1::Layout::Columns => Layout::Columns,
    };
    let encoding = match known::<v1::ValueEncoding>("value_encoding", request.value_encoding)? {
        v1::ValueEncoding::Unspecified | v1::ValueEncoding::AsStored => ValueEncoding::AsStored,
        v1::ValueEncoding::Json => ValueEncoding::Json,
    };
    let isolation = match known::<v1::Isolation>("isolation", request.isolation)? {
        v1::Isolation::Unspecified | v1::Isolation::ReadCommitted => Isolation::ReadCommitted,
        v1::Isolation::ReadUncommitted => Isolation::ReadUncommitted,
    };
    let on_data_loss = match known::<v1::OnDataLoss>("on_data_loss", request.on_data_loss)? {
        v1::OnDataLoss::Unspecified | v1::OnDataLoss::Fail => OnDataLoss::Fail,
        v1::OnDataLoss::Report => OnDataLoss::Report,
    };
    let request = ReadRequest {
        topic: request.topic,
        range: range(request.range),
        partitions: request.partitions,
        limit: (request.limit > 0).then_some(request.limit),
        isolation,
        on_data_loss,
    };
    Ok((request, layout, encoding))
}

/// How the values of a read go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueEncoding {
    AsStored,
    Json,
}

fn known<E: TryFrom<i32>>(field: &'static str, number: i32) -> Result<E, ApiError> {
    E::try_from(number).map_err(|_| {
        let message = format!("{field} is {number}, which this server does not know");
        ApiError::new(Code::InvalidArgument, message).with("field", field)
    })
}

fn range(range: Option<v1::read_range_request::Range>) -> RangeSpec {
    use v1::read_range_request::Range;
    let given = |text: String| (!text.is_empty()).then_some(text);
    match range {
        None => RangeSpec::Time { from: None, until: None },
        Some(Range::Time(time)) => RangeSpec::Time { from: given(time.from), until: given(time.until) },
        Some(Range::Offsets(offsets)) => RangeSpec::Offsets { start: offsets.start, end: offsets.end },
        Some(Range::Last(last)) => RangeSpec::Last { count: last.count },
    }
}

fn payload(payload: PayloadKind) -> (v1::PayloadKind, String) {
    match payload {
        PayloadKind::Bytes => (v1::PayloadKind::Bytes, String::new()),
        PayloadKind::Json => (v1::PayloadKind::Json, String::new()),
        PayloadKind::Protobuf { message } => (v1::PayloadKind::Protobuf, message),
        PayloadKind::Registry => (v1::PayloadKind::Registry, String::new()),
    }
}

/// The timestamp type as a number of the contract.
pub(super) const fn timestamp_type(timestamp_type: TimestampType) -> v1::TimestampType {
    match timestamp_type {
        TimestampType::CreateTime => v1::TimestampType::CreateTime,
        TimestampType::LogAppendTime => v1::TimestampType::LogAppendTime,
    }
}

pub(super) fn topic_summary(topic: TopicSummary) -> v1::TopicSummary {
    let (payload_kind, message) = payload(topic.payload);
    v1::TopicSummary {
        name: topic.name.to_string(),
        // A topic cannot have more partitions than fit: their numbers are of this type.
        partitions: i32::try_from(topic.partitions).unwrap_or(i32::MAX),
        internal: topic.internal,
        payload_kind: payload_kind.into(),
        message,
    }
}

pub(super) fn topic_description(topic: TopicDescription) -> v1::DescribeTopicResponse {
    let (payload_kind, message) = payload(topic.payload);
    v1::DescribeTopicResponse {
        name: topic.name.to_string(),
        topic_id: topic.id.map(|id| id.to_string()).unwrap_or_default(),
        partitions: topic.partitions.into_iter().map(partition_description).collect(),
        timestamp_type: topic.timestamp_type.map_or(v1::TimestampType::Unspecified, timestamp_type).into(),
        payload_kind: payload_kind.into(),
        message,
    }
}

fn partition_description(partition: PartitionDescription) -> v1::PartitionDescription {
    v1::PartitionDescription {
        partition: partition.partition,
        log_start_offset: partition.log_start_offset,
        high_watermark: partition.high_watermark,
        last_stable_offset: partition.last_stable_offset,
        first_timestamp_ms: partition.first_timestamp_ms,
        last_timestamp_ms: partition.last_timestamp_ms,
        leader: partition.leader.unwrap_or(-1),
    }
}

/// The message that holds the end statement.
pub(super) fn end_message(end: &EndStatement) -> v1::ReadRangeResponse {
    let end = v1::EndStatement {
        partitions: end.partitions.iter().map(partition_end).collect(),
        records_sent: end.records_sent,
        exhaustive: end.exhaustive,
        isolation: match end.isolation {
            Isolation::ReadCommitted => v1::Isolation::ReadCommitted,
            Isolation::ReadUncommitted => v1::Isolation::ReadUncommitted,
        }
        .into(),
        from_ms: end.range.from_ms,
        until_ms: end.range.until_ms,
        values_not_converted: end.values_not_converted,
        undecided_offsets: end.undecided_offsets(),
    };
    v1::ReadRangeResponse { message: Some(v1::read_range_response::Message::End(end)) }
}

fn partition_end(end: &PartitionEnd) -> v1::PartitionEnd {
    v1::PartitionEnd {
        partition: end.partition,
        start_offset: end.read.start,
        end_offset: end.read.end,
        noted_end_offset: end.noted_end_offset,
        records_scanned: end.records_scanned,
        records_sent: end.records_sent,
        late_records: end.late_records,
        untimed_records: end.untimed_records,
        proof: match end.proof {
            Proof::FullScan => v1::Proof::FullScan,
            Proof::Offsets => v1::Proof::Offsets,
        }
        .into(),
        exhaustive: end.exhaustive,
        lost_offsets: end
            .lost_offsets
            .iter()
            .map(|lost| v1::LostOffsets { start: lost.start, end: lost.end })
            .collect(),
        first_offset_at_or_after_until: end.first_offset_at_or_after_until,
        high_watermark: end.log_end.high_watermark,
        last_stable_offset: end.log_end.last_stable_offset,
        undecided_offsets: end.undecided_offsets,
    }
}

/// No end statement of a read of `partitions` partitions that loses nothing takes more bytes than this.
pub(super) fn end_message_bound(partitions: usize) -> usize {
    // Fourteen numbers of a partition of at most 11 bytes each with their keys, its own envelope, and as much again for the
    // statement as a whole.
    const PARTITION: usize = 14 * 11 + 4;
    PARTITION * (partitions + 1)
}

pub(super) fn publish_response(summary: &ProduceSummary, warnings: &[PublishWarning]) -> v1::PublishResponse {
    v1::PublishResponse {
        records: summary.records,
        partitions: summary
            .partitions
            .iter()
            .map(|(partition, produced)| v1::PublishedPartition {
                partition: *partition,
                records: produced.records,
                first_offset: produced.first_offset,
                last_offset: produced.last_offset,
            })
            .collect(),
        warnings: warnings.iter().map(ToString::to_string).collect(),
    }
}

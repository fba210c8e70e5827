//! `GET /v1/topics` and `GET /v1/topics/{topic}`.

use std::sync::LazyLock;

use axum::Json;
use axum::extract::{RawQuery, State};
use tidegate_api::rest;
use tidegate_model::{PayloadKind, TimestampType};
use utoipa::IntoParams;

use super::error::RestError;
use super::openapi::{Failures, names};
use super::query::Query;
use super::{ClusterParameter, Rest, Topic, TopicPath};
use crate::engine::{PartitionDescription, TopicDescription, TopicSummary};
use crate::formats::time_text;

/// The parameters of the list.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "the fields are there to be described")]
pub(super) struct ListParameters {
    /// Also the topics that the cluster keeps for itself, such as `__consumer_offsets`. Default: false.
    include_internal: Option<bool>,
}

static LIST_NAMES: LazyLock<Vec<String>> =
    LazyLock::new(|| [names::<ListParameters>(), names::<ClusterParameter>()].concat());

static DESCRIBE_NAMES: LazyLock<Vec<String>> = LazyLock::new(names::<ClusterParameter>);

/// List the topics of the cluster.
#[utoipa::path(
    get,
    path = "/v1/topics",
    operation_id = "list_topics",
    tag = "topics",
    params(ListParameters, ClusterParameter),
    responses((status = 200, description = "The topics, by name.", body = rest::TopicList), Failures),
)]
pub(super) async fn list_topics(
    State(rest): State<Rest>,
    RawQuery(query): RawQuery,
) -> Result<Json<rest::TopicList>, RestError> {
    let query = Query::parse(query.as_deref(), &LIST_NAMES)?;
    let include_internal = query.word("include_internal", &[("true", true), ("false", false)])?.unwrap_or(false);
    let topics = rest.engine(&query)?.list_topics(include_internal).await?;
    Ok(Json(rest::TopicList { topics: topics.into_iter().map(summary).collect() }))
}

/// Describe one topic: its partitions with their ends and times.
#[utoipa::path(
    get,
    path = "/v1/topics/{topic}",
    operation_id = "describe_topic",
    tag = "topics",
    params(TopicPath, ClusterParameter),
    responses((status = 200, description = "The topic.", body = rest::TopicDescription), Failures),
)]
pub(super) async fn describe_topic(
    State(rest): State<Rest>,
    Topic(topic): Topic,
    RawQuery(query): RawQuery,
) -> Result<Json<rest::TopicDescription>, RestError> {
    let query = Query::parse(query.as_deref(), &DESCRIBE_NAMES)?;
    Ok(Json(description(rest.engine(&query)?.describe_topic(&topic).await?)))
}

fn summary(topic: TopicSummary) -> rest::TopicSummary {
    let (payload_kind, message) = payload(topic.payload);
    rest::TopicSummary {
        name: topic.name.to_string(),
        partitions: u32::try_from(topic.partitions).unwrap_or(u32::MAX),
        internal: topic.internal,
        payload_kind,
        message,
    }
}

fn description(topic: TopicDescription) -> rest::TopicDescription {
    let (payload_kind, message) = payload(topic.payload);
    rest::TopicDescription {
        name: topic.name.to_string(),
        topic_id: topic.id.map(|id| id.to_string()),
        partitions: topic.partitions.iter().map(partition).collect(),
        timestamp_type: topic.timestamp_type.map(|timestamp_type| match timestamp_type {
            TimestampType::CreateTime => rest::TimestampType::CreateTime,
            TimestampType::LogAppendTime => rest::TimestampType::LogAppendTime,
        }),
        payload_kind,
        message,
    }
}

fn partition(partition: &PartitionDescription) -> rest::PartitionDescription {
    rest::PartitionDescription {
        partition: partition.partition,
        log_start_offset: partition.log_start_offset,
        high_watermark: partition.high_watermark,
        last_stable_offset: partition.last_stable_offset,
        first_timestamp: partition.first_timestamp_ms.and_then(time_text),
        last_timestamp: partition.last_timestamp_ms.and_then(time_text),
        leader: partition.leader,
    }
}

fn payload(kind: PayloadKind) -> (rest::PayloadKind, Option<String>) {
    match kind {
        PayloadKind::Bytes => (rest::PayloadKind::Bytes, None),
        PayloadKind::Json => (rest::PayloadKind::Json, None),
        PayloadKind::Protobuf { message } => (rest::PayloadKind::Protobuf, Some(message)),
        PayloadKind::Registry => (rest::PayloadKind::Registry, None),
    }
}

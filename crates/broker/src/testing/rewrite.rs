//! The answers of the broker behind as the stand-in brokers give them: who is there and who leads, and refusals.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::metadata_response::{MetadataResponseBroker, MetadataResponseTopic};
use kafka_protocol::messages::{
    ApiKey, DescribeClusterResponse, FetchResponse, FindCoordinatorResponse, HeartbeatResponse, InitProducerIdResponse,
    JoinGroupResponse, LeaveGroupResponse, MetadataResponse, ProduceResponse, SyncGroupResponse,
};
use kafka_protocol::messages::{fetch_response, produce_response};
use kafka_protocol::protocol::StrBytes;

use super::State;
use super::message::{Body, Incoming, Undecodable, answer_frame, decode_answer};

/// The versions from which on an answer says where the current leader is (KIP-951).
const FETCH_WITH_ENDPOINTS: i16 = 16;
const PRODUCE_WITH_ENDPOINTS: i16 = 10;

fn host(state: &State, node: i32) -> (StrBytes, i32) {
    state.addr(node).map_or_else(
        || (StrBytes::new(), -1),
        |addr| (StrBytes::from_string(addr.ip().to_string()), i32::from(addr.port())),
    )
}

/// Metadata, FindCoordinator and DescribeCluster tell of these brokers in place of the one behind.
pub(super) fn as_seen_here(state: &State, node: i32, request: &Incoming, frame: Bytes) -> Result<Bytes, Undecodable> {
    let (version, id, body) = (request.version, request.correlation_id(), frame.slice(4..));
    let nodes = || state.leaders.lock().nodes();
    match request.api {
        ApiKey::Metadata => {
            let mut response: MetadataResponse = decode_answer(&body, version)?;
            response.brokers = nodes()
                .map(|node| {
                    let (host, port) = host(state, node);
                    MetadataResponseBroker::default().with_node_id(node.into()).with_host(host).with_port(port)
                })
                .collect();
            if version >= 1 {
                response.controller_id = 1.into();
            }
            response.topics.iter_mut().for_each(|topic| with_leaders(state, version, topic));
            answer_frame(id, version, &response)
        }
        ApiKey::DescribeCluster => {
            let mut response: DescribeClusterResponse = decode_answer(&body, version)?;
            if response.error_code == 0 {
                response.controller_id = 1.into();
                response.brokers = nodes()
                    .map(|node| {
                        let (host, port) = host(state, node);
                        DescribeClusterBroker::default().with_broker_id(node.into()).with_host(host).with_port(port)
                    })
                    .collect();
            }
            answer_frame(id, version, &response)
        }
        ApiKey::FindCoordinator => {
            let mut response: FindCoordinatorResponse = decode_answer(&body, version)?;
            let (host, port) = host(state, node);
            for coordinator in response.coordinators.iter_mut().filter(|found| found.error_code == 0) {
                (coordinator.node_id, coordinator.host, coordinator.port) = (node.into(), host.clone(), port);
            }
            if version < 4 && response.error_code == 0 {
                (response.node_id, response.host, response.port) = (node.into(), host, port);
            }
            answer_frame(id, version, &response)
        }
        _ => Ok(frame),
    }
}

fn with_leaders(state: &State, version: i16, topic: &mut MetadataResponseTopic) {
    let name = topic.name.as_ref().map(|name| name.as_str().to_owned()).unwrap_or_default();
    if !topic.topic_id.is_nil() && !name.is_empty() {
        state.names.lock().insert(topic.topic_id, name.clone());
    }
    let mut leaders = state.leaders.lock();
    let all: Vec<_> = leaders.nodes().map(Into::into).collect();
    for partition in &mut topic.partitions {
        let lead = leaders.shown(&name, partition.partition_index);
        partition.leader_id = lead.node.unwrap_or(-1).into();
        if lead.node.is_none() {
            partition.error_code = ResponseError::LeaderNotAvailable.code();
        }
        if version >= 7 {
            partition.leader_epoch = lead.epoch;
        }
        partition.replica_nodes.clone_from(&all);
        partition.isr_nodes.clone_from(&all);
    }
}

/// Where the leaders are that a refusal names, in those versions that say it.
pub(super) fn with_endpoints(state: &State, request: &Incoming, frame: Bytes) -> Result<Bytes, Undecodable> {
    let (version, id, body) = (request.version, request.correlation_id(), frame.slice(4..));
    match request.api {
        ApiKey::Fetch if version >= FETCH_WITH_ENDPOINTS => {
            let mut response: FetchResponse = decode_answer(&body, version)?;
            let named = response.responses.iter().flat_map(|topic| &topic.partitions);
            let nodes = nodes(named.map(|part| part.current_leader.leader_id.0));
            let endpoint = |node| {
                let (host, port) = host(state, node);
                fetch_response::NodeEndpoint::default().with_node_id(node.into()).with_host(host).with_port(port)
            };
            response.node_endpoints = nodes.into_iter().map(endpoint).collect();
            answer_frame(id, version, &response)
        }
        ApiKey::Produce if version >= PRODUCE_WITH_ENDPOINTS => {
            let mut response: ProduceResponse = decode_answer(&body, version)?;
            let named = response.responses.iter().flat_map(|topic| &topic.partition_responses);
            let nodes = nodes(named.map(|part| part.current_leader.leader_id.0));
            let endpoint = |node| {
                let (host, port) = host(state, node);
                produce_response::NodeEndpoint::default().with_node_id(node.into()).with_host(host).with_port(port)
            };
            response.node_endpoints = nodes.into_iter().map(endpoint).collect();
            answer_frame(id, version, &response)
        }
        _ => Ok(frame),
    }
}

/// The brokers among these leaders, each once.
fn nodes(leaders: impl Iterator<Item = i32>) -> BTreeSet<i32> {
    leaders.filter(|node| *node >= 0).collect()
}

/// A refusal of a request that names no partitions; `None` when its answer has no place for one.
pub(super) fn refused(request: &Incoming, code: i16) -> Result<Option<Bytes>, Undecodable> {
    let (version, id) = (request.version, request.correlation_id());
    let refused = match request.api {
        ApiKey::Metadata => {
            let Body::Metadata(body) = &request.body else { return Ok(None) };
            let Some(topics) = body.topics.as_ref().filter(|topics| !topics.is_empty()) else { return Ok(None) };
            let refuse = |topic: &kafka_protocol::messages::metadata_request::MetadataRequestTopic| {
                MetadataResponseTopic::default()
                    .with_name(topic.name.clone())
                    .with_topic_id(topic.topic_id)
                    .with_error_code(code)
            };
            let topics = topics.iter().map(refuse).collect();
            answer_frame(id, version, &MetadataResponse::default().with_topics(topics))?
        }
        ApiKey::FindCoordinator if version < 4 => {
            answer_frame(id, version, &FindCoordinatorResponse::default().with_error_code(code))?
        }
        ApiKey::JoinGroup => answer_frame(id, version, &JoinGroupResponse::default().with_error_code(code))?,
        ApiKey::SyncGroup => answer_frame(id, version, &SyncGroupResponse::default().with_error_code(code))?,
        ApiKey::Heartbeat => answer_frame(id, version, &HeartbeatResponse::default().with_error_code(code))?,
        ApiKey::LeaveGroup => answer_frame(id, version, &LeaveGroupResponse::default().with_error_code(code))?,
        ApiKey::InitProducerId => answer_frame(id, version, &InitProducerIdResponse::default().with_error_code(code))?,
        _ => return Ok(None),
    };
    Ok(Some(refused))
}

/// A fetch answer without its records; `None` when it has none. One that tells of throttling names no topic either, as
/// Kafka's does for a fetch without a session (KIP-219).
pub(super) fn emptied(request: &Incoming, frame: &Bytes, throttle: Duration) -> Result<Option<Bytes>, Undecodable> {
    if request.api != ApiKey::Fetch {
        return Ok(None);
    }
    let mut response: FetchResponse = decode_answer(&frame.slice(4..), request.version)?;
    let mut changed = false;
    for part in response.responses.iter_mut().flat_map(|topic| &mut topic.partitions) {
        changed |= part.records.as_ref().is_some_and(|records| !records.is_empty());
        part.records = Some(Bytes::new());
    }
    if !throttle.is_zero() {
        response.responses.clear();
    }
    response.throttle_time_ms = i32::try_from(throttle.as_millis()).unwrap_or(i32::MAX);
    changed.then(|| answer_frame(request.correlation_id(), request.version, &response)).transpose()
}

//! What the broker answers to each request. One file an API.

mod alter_configs;
mod answer;
mod committed;
mod coordinator;
mod create_partitions;
mod create_topics;
mod delete_records;
mod delete_topics;
mod describe;
mod describe_configs;
mod describe_groups;
mod fetch;
mod fetch_response;
mod kafkas_business;
mod list_offsets;
mod membership;
mod metadata;
mod produce;
mod refusals;

use std::net::SocketAddr;
use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::{self, InitProducerIdRequest, InitProducerIdResponse};
use kafka_protocol::protocol::{Encodable, HeaderVersion, StrBytes};
use parking_lot::Mutex;
use tidegate_model::TopicName;
use tokio::net::TcpStream;
use uuid::Uuid;

use crate::memory::Lease;
use crate::request::{DecodedRequest, RequestBody, RequestError};
use crate::shared::{NotCarriedOut, Shared};
use crate::storage::Topic;
use crate::storage::log::LEADER_EPOCH;
pub(crate) use answer::Answer;
use answer::encode;

/// Who asks.
#[derive(Debug)]
pub(crate) struct Peer<'a> {
    /// The address at which the peer reached the broker.
    pub(crate) local: SocketAddr,
    pub(crate) stream: &'a TcpStream,
    /// What its request holds of the memory for requests.
    pub(crate) leases: Mutex<Option<[Lease; 2]>>,
}

impl Peer<'_> {
    /// Gives back the memory of the request, of which nothing must be left.
    pub(crate) fn release(&self) {
        *self.leases.lock() = None;
    }
}

/// What becomes of a request.
#[derive(Debug)]
pub(crate) enum Reply {
    Answer(Answer),
    /// The client expects no answer.
    Nothing,
    /// The connection cannot go on; why.
    Close(String),
}

/// The facts of a request that its answer depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) version: i16,
    pub(crate) correlation_id: i32,
}

/// A refusal: Kafka's error code, and words for those versions of an answer that carry some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) error: ResponseError,
    pub(crate) message: Option<String>,
}

impl Refusal {
    pub(crate) fn new(error: ResponseError, message: impl std::fmt::Display) -> Self {
        Self { error, message: Some(message.to_string()) }
    }

    pub(crate) fn text(&self) -> Option<StrBytes> {
        self.message.clone().map(StrBytes::from_string)
    }
}

impl From<ResponseError> for Refusal {
    fn from(error: ResponseError) -> Self {
        Self { error, message: None }
    }
}

impl From<NotCarriedOut> for Refusal {
    fn from(error: NotCarriedOut) -> Self {
        Self::new(ResponseError::UnknownServerError, error)
    }
}

/// Answers a request.
pub(crate) async fn answer(shared: &Arc<Shared>, request: DecodedRequest, peer: &Peer<'_>) -> Reply {
    let facts = Facts { version: request.version, correlation_id: request.correlation_id };
    // Only a join looks at it. Elsewhere it would keep the whole frame in memory for as long as the request waits.
    let client_id = request.client_id.filter(|_| matches!(request.body, RequestBody::JoinGroup(_)));
    match request.body {
        RequestBody::AddOffsetsToTxn => reply(facts, &kafkas_business::add_offsets_to_txn()),
        RequestBody::AddPartitionsToTxn(body) => reply(facts, &kafkas_business::add_partitions_to_txn(body, facts)),
        RequestBody::AlterConfigs(body) => reply(facts, &alter_configs::alter_configs(shared, body).await),
        RequestBody::ApiVersions => reply(facts, &refusals::api_versions(None)),
        RequestBody::CreateAcls(body) => reply(facts, &kafkas_business::create_acls(&body)),
        RequestBody::CreatePartitions(body) => reply(facts, &create_partitions::create_partitions(shared, body).await),
        RequestBody::CreateTopics(body) => reply(facts, &create_topics::create_topics(shared, body, facts).await),
        RequestBody::DeleteAcls(body) => reply(facts, &kafkas_business::delete_acls(&body)),
        RequestBody::DeleteRecords(body) => reply(facts, &delete_records::delete_records(shared, body).await),
        RequestBody::DeleteTopics(body) => reply(facts, &delete_topics::delete_topics(shared, body, facts).await),
        RequestBody::DescribeAcls => reply(facts, &kafkas_business::describe_acls()),
        RequestBody::DescribeCluster(body) => reply(facts, &describe::describe_cluster(shared, &body, peer, facts)),
        RequestBody::DeleteGroups(body) => reply(facts, &describe_groups::delete_groups(shared, body).await),
        RequestBody::DescribeConfigs(body) => reply(facts, &describe_configs::describe_configs(shared, &body, facts)),
        RequestBody::DescribeGroups(body) => reply(facts, &describe_groups::describe_groups(shared, body, facts)),
        RequestBody::DescribeLogDirs(body) => reply(facts, &describe::describe_log_dirs(shared, body)),
        RequestBody::EndTxn => reply(facts, &kafkas_business::end_txn()),
        RequestBody::Fetch(body) => fetch::fetch(shared, body, facts, peer).await,
        RequestBody::FindCoordinator(body) => reply(facts, &coordinator::find_coordinator(shared, body, peer, facts)),
        RequestBody::Heartbeat(body) => reply(facts, &membership::heartbeat(shared, &body)),
        RequestBody::IncrementalAlterConfigs(body) => {
            reply(facts, &alter_configs::incremental_alter_configs(shared, body).await)
        }
        RequestBody::InitProducerId(body) => reply(facts, &init_producer_id(shared, &body).await),
        RequestBody::JoinGroup(body) => membership::join_group(shared, body, client_id, peer, facts).await,
        RequestBody::LeaveGroup(body) => reply(facts, &membership::leave_group(shared, body, facts)),
        RequestBody::ListGroups(body) => reply(facts, &describe_groups::list_groups(shared, &body)),
        RequestBody::ListOffsets(body) => reply(facts, &list_offsets::list_offsets(shared, body, facts).await),
        RequestBody::Metadata(body) => reply(facts, &metadata::metadata(shared, body, peer, facts).await),
        RequestBody::OffsetCommit(body) => reply(facts, &committed::offset_commit(shared, body).await),
        RequestBody::OffsetDelete(body) => reply(facts, &committed::offset_delete(shared, body).await),
        RequestBody::ConsumerGroupHeartbeat => reply(facts, &kafkas_business::consumer_group_heartbeat()),
        RequestBody::OffsetFetch(body) => reply(facts, &committed::offset_fetch(shared, body, facts)),
        RequestBody::OffsetForLeaderEpoch(body) => reply(facts, &describe::offset_for_leader_epoch(shared, &body)),
        RequestBody::Produce(body) => produce::produce(shared, body, facts).await,
        RequestBody::SyncGroup(body) => membership::sync_group(shared, body, peer, facts).await,
        RequestBody::TxnOffsetCommit(body) => reply(facts, &kafkas_business::txn_offset_commit(body)),
    }
}

/// What becomes of a frame that is not a request.
pub(crate) fn refuse(error: RequestError) -> Reply {
    match error {
        // KIP-511: a client that asks in a version from the future is told, in version 0, which ones there are.
        RequestError::UnsupportedVersion { api_key, correlation_id, .. }
            if api_key == messages::ApiKey::ApiVersions as i16 =>
        {
            let facts = Facts { version: 0, correlation_id };
            reply(facts, &refusals::api_versions(Some(ResponseError::UnsupportedVersion)))
        }
        // As Kafka does: there is no answer that a client of an unknown version could read.
        error => Reply::Close(error.to_string()),
    }
}

fn reply<R: Encodable + HeaderVersion>(facts: Facts, response: &R) -> Reply {
    match encode(facts, response) {
        Ok(answer) => Reply::Answer(answer),
        Err(error) => {
            tracing::error!(%error, "a bug: closing the connection for want of an answer");
            Reply::Close(error.to_string())
        }
    }
}

/// KIP-98, without transactions: a new id for each who asks, in epoch 0.
async fn init_producer_id(shared: &Arc<Shared>, request: &InitProducerIdRequest) -> InitProducerIdResponse {
    let refused = |error: ResponseError| {
        InitProducerIdResponse::default()
            .with_error_code(error.code())
            .with_producer_id((-1).into())
            .with_producer_epoch(-1)
    };
    if request.transactional_id.is_some() {
        return refused(refusals::transactions("InitProducerId").error);
    }
    match shared.writing(|shared| shared.storage.next_producer_id()).await {
        Ok(Ok(id)) => InitProducerIdResponse::default().with_producer_id(id.into()).with_producer_epoch(0),
        Ok(Err(error)) => {
            tracing::error!(%error, "cannot reserve producer ids");
            refused(ResponseError::KafkaStorageError)
        }
        Err(NotCarriedOut) => refused(ResponseError::UnknownServerError),
    }
}

/// The topic that a request names; newer versions name it by id.
fn find_topic(shared: &Shared, name: &messages::TopicName, id: Uuid, by_id: bool) -> Result<Arc<Topic>, ResponseError> {
    if by_id {
        return shared.storage.topic_by_id(id).ok_or(ResponseError::UnknownTopicId);
    }
    let name = TopicName::new(name).map_err(|_| ResponseError::UnknownTopicOrPartition)?;
    shared.storage.topic(&name).ok_or(ResponseError::UnknownTopicOrPartition)
}

/// KIP-320: the epoch that the client takes for the current one; -1 when it has no opinion.
fn check_leader_epoch(epoch: i32) -> Result<(), ResponseError> {
    match epoch {
        -1 | LEADER_EPOCH => Ok(()),
        ..LEADER_EPOCH => Err(ResponseError::FencedLeaderEpoch),
        _ => Err(ResponseError::UnknownLeaderEpoch),
    }
}

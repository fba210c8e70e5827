//! Metadata: the one broker, and topics with their partitions.

use std::collections::HashSet;
use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{MetadataRequest, MetadataResponse};
use kafka_protocol::protocol::StrBytes;
use tidegate_model::TopicName;
use uuid::Uuid;

use super::{Facts, Peer};
use crate::shared::{NODE_ID, Shared};
use crate::storage::topic_config::TopicConfig;
use crate::storage::{CreateError, Topic};

pub(super) async fn metadata(
    shared: &Arc<Shared>,
    request: MetadataRequest,
    peer: &Peer<'_>,
    facts: Facts,
) -> MetadataResponse {
    // Version 0 asks for all topics with an empty list, the later ones with none.
    let wanted = request.topics.filter(|topics| facts.version > 0 || !topics.is_empty());
    let topics = match wanted {
        None => shared.storage.topics().iter().map(|topic| describe(topic)).collect(),
        Some(wanted) => {
            let create = shared.config.auto_create_topics && (facts.version < 4 || request.allow_auto_topic_creation);
            let mut topics = Vec::with_capacity(wanted.len());
            // A topic is described once, however often it is asked for: an answer must not outgrow its request.
            let mut seen = HashSet::new();
            for topic in wanted {
                if seen.insert((topic.topic_id, topic.name.clone())) {
                    topics.push(one_topic(shared, topic, create, facts).await);
                }
            }
            topics
        }
    };
    let (host, port) = shared.advertised(peer.local);
    let broker = MetadataResponseBroker::default()
        .with_node_id(NODE_ID.into())
        .with_host(StrBytes::from_string(host))
        .with_port(i32::from(port));
    MetadataResponse::default()
        .with_brokers(vec![broker])
        .with_cluster_id(Some(StrBytes::from_string(shared.storage.cluster_id().to_owned())))
        .with_controller_id(NODE_ID.into())
        .with_topics(topics)
}

async fn one_topic(
    shared: &Arc<Shared>,
    wanted: MetadataRequestTopic,
    create: bool,
    facts: Facts,
) -> MetadataResponseTopic {
    let id = wanted.topic_id;
    let Some(asked_name) = wanted.name else {
        // From version 10 on a topic can be asked for by its id alone.
        return match shared.storage.topic_by_id(id) {
            Some(topic) => describe(&topic),
            None => MetadataResponseTopic::default()
                .with_topic_id(id)
                .with_name((facts.version < 12).then(Default::default))
                .with_error_code(ResponseError::UnknownTopicId.code()),
        };
    };
    let failed = |error: ResponseError| {
        MetadataResponseTopic::default().with_name(Some(asked_name.clone())).with_error_code(error.code())
    };
    let Ok(name) = TopicName::new(&asked_name) else { return failed(ResponseError::InvalidTopicException) };
    if let Some(topic) = shared.storage.topic(&name) {
        return describe(&topic);
    }
    if !create {
        return failed(ResponseError::UnknownTopicOrPartition);
    }
    match auto_create(shared, name).await {
        Ok(topic) => describe(&topic),
        Err(error) => failed(error),
    }
}

async fn auto_create(shared: &Arc<Shared>, name: TopicName) -> Result<Arc<Topic>, ResponseError> {
    let create = move |shared: &Shared| {
        let config = TopicConfig::parse([], shared.config.limits.max_produce_bytes);
        let config = config.map_err(|_| ResponseError::InvalidConfig)?;
        match shared.storage.create_topic(&name, shared.config.default_partitions, config) {
            Ok(topic) => Ok(topic),
            Err(CreateError::Exists) => shared.storage.topic(&name).ok_or(ResponseError::UnknownTopicOrPartition),
            Err(CreateError::TooManyPartitions(_)) => Err(ResponseError::PolicyViolation),
            Err(error @ CreateError::Storage(_)) => {
                tracing::error!(topic = %name, %error, "cannot create a topic");
                Err(ResponseError::KafkaStorageError)
            }
        }
    };
    shared.writing(create).await.unwrap_or(Err(ResponseError::UnknownServerError))
}

fn describe(topic: &Topic) -> MetadataResponseTopic {
    let partitions = (0_i32..).zip(&topic.partitions).map(|(partition, _)| {
        MetadataResponsePartition::default()
            .with_partition_index(partition)
            .with_leader_id(NODE_ID.into())
            .with_leader_epoch(crate::storage::log::LEADER_EPOCH)
            .with_replica_nodes(vec![NODE_ID.into()])
            .with_isr_nodes(vec![NODE_ID.into()])
    });
    MetadataResponseTopic::default()
        .with_name(Some(wire_name(&topic.name)))
        .with_topic_id(topic.id)
        .with_partitions(partitions.collect())
}

/// Our name for a topic as the codec's.
pub(super) fn wire_name(name: &TopicName) -> kafka_protocol::messages::TopicName {
    StrBytes::from_string(name.to_string()).into()
}

/// The nil id stands for none.
pub(super) fn given_id(id: Uuid) -> Option<Uuid> {
    (!id.is_nil()).then_some(id)
}

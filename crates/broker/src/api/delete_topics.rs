//! DeleteTopics.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse};
use tidegate_model::TopicName;

use super::metadata::{given_id, wire_name};
use super::{Facts, Refusal};
use crate::shared::Shared;
use crate::storage::DeleteError;

pub(super) async fn delete_topics(
    shared: &Arc<Shared>,
    request: DeleteTopicsRequest,
    facts: Facts,
) -> DeleteTopicsResponse {
    // From version 6 on a topic is named by its name or by its id.
    let by_name = |name| DeleteTopicState::default().with_name(Some(name));
    let wanted: Vec<DeleteTopicState> =
        if facts.version >= 6 { request.topics } else { request.topic_names.into_iter().map(by_name).collect() };
    let mut responses = Vec::with_capacity(wanted.len());
    for topic in wanted {
        responses.push(delete(shared, topic, facts).await);
    }
    DeleteTopicsResponse::default().with_responses(responses)
}

async fn delete(shared: &Arc<Shared>, wanted: DeleteTopicState, facts: Facts) -> DeletableTopicResult {
    let mut result = DeletableTopicResult::default().with_name(wanted.name.clone()).with_topic_id(wanted.topic_id);
    let found = match (&wanted.name, given_id(wanted.topic_id)) {
        (Some(name), None) => {
            TopicName::new(name).map_err(|error| Refusal::new(ResponseError::UnknownTopicOrPartition, error))
        }
        (None, Some(id)) => match shared.storage.topic_by_id(id) {
            Some(topic) => Ok(topic.name.clone()),
            None => Err(ResponseError::UnknownTopicId.into()),
        },
        _ => Err(Refusal::new(ResponseError::InvalidRequest, "give either the topic's name or its id")),
    };
    let deleted = match found {
        Ok(name) => {
            result.name = Some(wire_name(&name));
            result.topic_id = shared.storage.topic(&name).map_or(wanted.topic_id, |topic| topic.id);
            delete_by_name(shared, name).await
        }
        Err(refusal) => Err(refusal),
    };
    if let Err(refusal) = deleted {
        result.error_code = refusal.error.code();
        if facts.version >= 5 {
            result.error_message = refusal.text();
        }
    }
    result
}

async fn delete_by_name(shared: &Arc<Shared>, name: TopicName) -> Result<(), Refusal> {
    let deleted = shared.writing(move |shared| shared.storage.delete_topic(&name)).await?;
    deleted.map_err(|error| match error {
        DeleteError::Unknown => Refusal::new(ResponseError::UnknownTopicOrPartition, error),
        DeleteError::Io(_) => {
            tracing::error!(%error, "cannot delete a topic");
            Refusal::new(ResponseError::KafkaStorageError, error)
        }
    })
}

//! CreatePartitions (KIP-195).

use std::collections::HashMap;
use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use kafka_protocol::messages::{CreatePartitionsRequest, CreatePartitionsResponse};
use tidegate_model::TopicName;

use super::Refusal;
use crate::shared::{NODE_ID, Shared};
use crate::storage::AddError;

pub(super) async fn create_partitions(
    shared: &Arc<Shared>,
    request: CreatePartitionsRequest,
) -> CreatePartitionsResponse {
    let mut times: HashMap<String, u32> = HashMap::new();
    for topic in &request.topics {
        *times.entry(topic.name.to_string()).or_default() += 1;
    }
    let mut results = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let name = topic.name.clone();
        let created = if times.get(name.as_str()).is_some_and(|times| *times > 1) {
            Err(Refusal::new(ResponseError::InvalidRequest, "the request names the topic twice"))
        } else {
            create(shared, topic, request.validate_only).await
        };
        let result = CreatePartitionsTopicResult::default().with_name(name);
        results.push(match created {
            Ok(()) => result,
            Err(refusal) => result.with_error_code(refusal.error.code()).with_error_message(refusal.text()),
        });
    }
    CreatePartitionsResponse::default().with_results(results)
}

async fn create(shared: &Arc<Shared>, wanted: CreatePartitionsTopic, only_check: bool) -> Result<(), Refusal> {
    let unknown = || Refusal::new(ResponseError::UnknownTopicOrPartition, AddError::Unknown);
    let name = TopicName::new(&wanted.name).map_err(|_| unknown())?;
    let present = shared.storage.topic(&name).ok_or_else(unknown)?.partitions.len();
    if let Some(assignments) = &wanted.assignments {
        let added = usize::try_from(wanted.count).unwrap_or(0).saturating_sub(present);
        let here = assignments.iter().all(|a| matches!(a.broker_ids[..], [id] if id == NODE_ID));
        if assignments.len() != added || !here {
            let text = format!("{added} partitions are added, each must be assigned to broker {NODE_ID} alone");
            return Err(Refusal::new(ResponseError::InvalidReplicaAssignment, text));
        }
    }
    let count = wanted.count;
    let added = shared.writing(move |shared| shared.storage.add_partitions(&name, count, only_check)).await?;
    added.map_err(|error| match error {
        AddError::Unknown => unknown(),
        AddError::NotMore { .. } => Refusal::new(ResponseError::InvalidPartitions, error),
        AddError::TooMany(_) => Refusal::new(ResponseError::PolicyViolation, error),
        AddError::Storage(error) => {
            tracing::error!(topic = wanted.name.as_str(), %error, "cannot add partitions");
            Refusal::new(ResponseError::KafkaStorageError, error)
        }
    })
}

//! CreateTopics.

use std::collections::HashMap;
use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_topics_request::{CreatableReplicaAssignment, CreatableTopic};
use kafka_protocol::messages::create_topics_response::{CreatableTopicConfigs, CreatableTopicResult};
use kafka_protocol::messages::{CreateTopicsRequest, CreateTopicsResponse};
use kafka_protocol::protocol::StrBytes;
use tidegate_model::TopicName;
use uuid::Uuid;

use super::describe_configs::source;
use super::{Facts, Refusal};
use crate::shared::{NODE_ID, Shared};
use crate::storage::CreateError;
use crate::storage::topic_config::{KEYS, TopicConfig};

pub(super) async fn create_topics(
    shared: &Arc<Shared>,
    request: CreateTopicsRequest,
    facts: Facts,
) -> CreateTopicsResponse {
    let mut times: HashMap<String, u32> = HashMap::new();
    for topic in &request.topics {
        *times.entry(topic.name.to_string()).or_default() += 1;
    }
    let mut results = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let name = topic.name.clone();
        let repeated = times.get(name.as_str()).is_some_and(|times| *times > 1);
        let created = if repeated {
            Err(Refusal::new(ResponseError::InvalidRequest, "the request names the topic twice"))
        } else {
            create(shared, topic, request.validate_only).await
        };
        results.push(match created {
            Ok(created) => created.describe(name, facts),
            Err(refusal) => {
                let text = refusal.text();
                let failed = CreatableTopicResult::default().with_name(name).with_error_code(refusal.error.code());
                let failed = failed.with_error_message(text);
                if facts.version >= 5 {
                    failed.with_num_partitions(-1).with_replication_factor(-1).with_configs(Some(Vec::new()))
                } else {
                    failed
                }
            }
        });
    }
    CreateTopicsResponse::default().with_topics(results)
}

struct Created {
    id: Uuid,
    partitions: i32,
    config: TopicConfig,
}

impl Created {
    fn describe(&self, name: kafka_protocol::messages::TopicName, facts: Facts) -> CreatableTopicResult {
        let result = CreatableTopicResult::default().with_name(name).with_topic_id(self.id);
        if facts.version < 5 {
            return result;
        }
        let configs = KEYS.iter().map(|spec| {
            let (value, set) = self.config.value(spec);
            CreatableTopicConfigs::default()
                .with_name(StrBytes::from_static_str(spec.name))
                .with_value(Some(StrBytes::from_string(value.to_owned())))
                .with_config_source(source(set))
        });
        result.with_num_partitions(self.partitions).with_replication_factor(1).with_configs(Some(configs.collect()))
    }
}

async fn create(shared: &Arc<Shared>, topic: CreatableTopic, validate_only: bool) -> Result<Created, Refusal> {
    let name =
        TopicName::new(&topic.name).map_err(|error| Refusal::new(ResponseError::InvalidTopicException, error))?;
    let partitions = partition_count(&topic, shared.config.default_partitions)?;
    let given = topic.configs.iter().map(|config| (config.name.as_str(), config.value.as_deref()));
    let config = TopicConfig::parse(given, shared.config.limits.max_produce_bytes)
        .map_err(|error| Refusal::new(ResponseError::InvalidConfig, error))?;
    let make = move |shared: &Shared| -> Result<Created, CreateError> {
        let id = if validate_only {
            shared.storage.check_create(&name, partitions)?;
            Uuid::nil()
        } else {
            shared.storage.create_topic(&name, partitions, config.clone())?.id
        };
        Ok(Created { id, partitions, config })
    };
    shared.writing(make).await?.map_err(|error| match error {
        CreateError::Exists => Refusal::new(ResponseError::TopicAlreadyExists, error),
        CreateError::TooManyPartitions(_) => Refusal::new(ResponseError::PolicyViolation, error),
        CreateError::Storage(error) => {
            tracing::error!(topic = %topic.name.as_str(), %error, "cannot create a topic");
            Refusal::new(ResponseError::KafkaStorageError, error)
        }
    })
}

/// How many partitions the topic gets, if it can have what is asked for.
fn partition_count(topic: &CreatableTopic, default: i32) -> Result<i32, Refusal> {
    if !topic.assignments.is_empty() {
        return assigned_count(topic);
    }
    if !matches!(topic.replication_factor, 1 | -1) {
        let text = format!(
            "the replication factor {} is not possible with one broker; use Apache Kafka for replicas",
            topic.replication_factor
        );
        return Err(Refusal::new(ResponseError::InvalidReplicationFactor, text));
    }
    match topic.num_partitions {
        -1 => Ok(default),
        1.. => Ok(topic.num_partitions),
        count => {
            let text = format!("{count} partitions are not possible; give 1 or more, or -1 for the default");
            Err(Refusal::new(ResponseError::InvalidPartitions, text))
        }
    }
}

/// With explicit assignments the partitions must be numbered from 0 and each must live here alone.
fn assigned_count(topic: &CreatableTopic) -> Result<i32, Refusal> {
    if topic.num_partitions != -1 || topic.replication_factor != -1 {
        let text = "with an assignment, the number of partitions and the replication factor must both be -1";
        return Err(Refusal::new(ResponseError::InvalidRequest, text));
    }
    let mut assignments: Vec<&CreatableReplicaAssignment> = topic.assignments.iter().collect();
    assignments.sort_unstable_by_key(|assignment| assignment.partition_index);
    let here = |assignment: &CreatableReplicaAssignment| matches!(assignment.broker_ids[..], [id] if id == NODE_ID);
    let fits = (0_i32..).zip(&assignments).all(|(index, a)| a.partition_index == index && here(a));
    match i32::try_from(assignments.len()) {
        Ok(count) if fits => Ok(count),
        _ => {
            let text = format!("partitions must be assigned from 0 on, each to broker {NODE_ID} alone");
            Err(Refusal::new(ResponseError::InvalidReplicaAssignment, text))
        }
    }
}

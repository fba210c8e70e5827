//! DescribeConfigs, for topics and for this broker.

use std::collections::HashSet;
use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::{DescribeConfigsRequest, DescribeConfigsResponse};
use kafka_protocol::protocol::StrBytes;
use tidegate_model::TopicName;

use super::{Facts, Refusal};
use crate::shared::{NODE_ID, Shared};
use crate::storage::topic_config::{BOOLEAN, INT, KEYS, KeySpec, LIST, LONG, STRING, TopicConfig};

pub(super) const TOPIC: i8 = 2;
pub(super) const BROKER: i8 = 4;

/// Where a value comes from, in Kafka's numbers: from the topic's own configuration or from the defaults.
pub(super) fn source(set: bool) -> i8 {
    const DYNAMIC_TOPIC_CONFIG: i8 = 1;
    const DEFAULT_CONFIG: i8 = 5;
    if set { DYNAMIC_TOPIC_CONFIG } else { DEFAULT_CONFIG }
}

pub(super) fn describe_configs(
    shared: &Shared,
    request: &DescribeConfigsRequest,
    facts: Facts,
) -> DescribeConfigsResponse {
    // A resource is described once, however often it is asked for: an answer must not outgrow its request.
    let mut seen = HashSet::new();
    let resources = request.resources.iter();
    let resources = resources.filter(|resource| seen.insert((resource.resource_type, resource.resource_name.clone())));
    let results = resources.map(|resource| {
        let result = DescribeConfigsResult::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        // No list and an empty one ask for all, as in Kafka's `ConfigHelper`.
        let keys = resource.configuration_keys.as_ref().filter(|keys| !keys.is_empty());
        let asked = |name: &str| keys.is_none_or(|keys| keys.iter().any(|key| key.as_str() == name));
        let described = match resource.resource_type {
            TOPIC => topic_config(shared, resource).map(|config| {
                let specs = KEYS.iter().filter(|spec| asked(spec.name));
                specs.map(|spec| describe(spec, &config, request, facts)).collect()
            }),
            BROKER => check_broker(resource).map(|()| {
                let settings = broker_settings(shared).into_iter().filter(|(name, ..)| asked(name));
                settings.map(|setting| describe_setting(setting, request, facts)).collect()
            }),
            other => {
                let text =
                    format!("the embedded broker describes topics (2) and itself (4), no resources of type {other}");
                Err(Refusal::new(ResponseError::InvalidRequest, text))
            }
        };
        match described {
            Ok(entries) => result.with_configs(entries),
            Err(refusal) => result.with_error_code(refusal.error.code()).with_error_message(refusal.text()),
        }
    });
    DescribeConfigsResponse::default().with_results(results.collect())
}

fn topic_config(shared: &Shared, resource: &DescribeConfigsResource) -> Result<Arc<TopicConfig>, Refusal> {
    let name = TopicName::new(&resource.resource_name)
        .map_err(|error| Refusal::new(ResponseError::InvalidTopicException, error))?;
    let topic = shared.storage.topic(&name).ok_or(ResponseError::UnknownTopicOrPartition)?;
    Ok(topic.config.get())
}

fn check_broker(resource: &DescribeConfigsResource) -> Result<(), Refusal> {
    if resource.resource_name.is_empty() || *resource.resource_name == *NODE_ID.to_string() {
        return Ok(());
    }
    let text = format!("this is broker {NODE_ID}, not {:?}", resource.resource_name.as_str());
    Err(Refusal::new(ResponseError::InvalidRequest, text))
}

/// The broker's settings under Kafka's names: name, value, type.
fn broker_settings(shared: &Shared) -> Vec<(&'static str, String, i8)> {
    let config = &shared.config;
    let limits = &config.limits;
    let millis = |duration: std::time::Duration| duration.as_millis().to_string();
    let topic = |name: &str| KeySpec::of(name).map(|spec| spec.default.to_owned()).unwrap_or_default();
    vec![
        ("auto.create.topics.enable", config.auto_create_topics.to_string(), BOOLEAN),
        ("broker.id", NODE_ID.to_string(), INT),
        ("default.replication.factor", "1".to_owned(), INT),
        ("delete.topic.enable", "true".to_owned(), BOOLEAN),
        ("group.initial.rebalance.delay.ms", millis(config.group_initial_rebalance_delay), INT),
        ("group.max.session.timeout.ms", millis(limits.max_session_timeout), INT),
        ("group.max.size", limits.max_group_members.to_string(), INT),
        ("group.min.session.timeout.ms", millis(limits.min_session_timeout), INT),
        ("log.cleanup.policy", topic("cleanup.policy"), LIST),
        ("log.dirs", config.data_dir.display().to_string(), STRING),
        ("log.message.timestamp.after.max.ms", topic("message.timestamp.after.max.ms"), LONG),
        ("log.message.timestamp.before.max.ms", topic("message.timestamp.before.max.ms"), LONG),
        ("log.message.timestamp.type", topic("message.timestamp.type"), STRING),
        ("log.retention.bytes", topic("retention.bytes"), LONG),
        ("log.retention.check.interval.ms", millis(config.retention_interval), LONG),
        ("log.retention.ms", topic("retention.ms"), LONG),
        ("log.roll.ms", topic("segment.ms"), LONG),
        ("log.segment.bytes", topic("segment.bytes"), INT),
        ("message.max.bytes", topic("max.message.bytes"), INT),
        ("min.insync.replicas", "1".to_owned(), INT),
        ("num.partitions", config.default_partitions.to_string(), INT),
        ("offset.metadata.max.bytes", limits.max_offset_metadata_bytes.to_string(), INT),
        ("producer.id.expiration.ms", millis(limits.producer_expiry), INT),
    ]
}

fn describe_setting(
    (name, value, config_type): (&'static str, String, i8),
    request: &DescribeConfigsRequest,
    facts: Facts,
) -> DescribeConfigsResourceResult {
    const STATIC_BROKER_CONFIG: i8 = 4;
    let value = Some(StrBytes::from_string(value));
    let name = StrBytes::from_static_str(name);
    let synonym = DescribeConfigsSynonym::default().with_name(name.clone()).with_value(value.clone());
    let synonyms = if request.include_synonyms { vec![synonym.with_source(STATIC_BROKER_CONFIG)] } else { Vec::new() };
    let result = DescribeConfigsResourceResult::default()
        .with_name(name)
        .with_value(value)
        .with_read_only(true)
        .with_config_source(STATIC_BROKER_CONFIG)
        .with_synonyms(synonyms);
    if facts.version >= 3 { result.with_config_type(config_type) } else { result }
}

fn describe(
    spec: &KeySpec,
    config: &TopicConfig,
    request: &DescribeConfigsRequest,
    facts: Facts,
) -> DescribeConfigsResourceResult {
    let text = |value: &str| Some(StrBytes::from_string(value.to_owned()));
    let (value, set) = config.value(spec);
    let synonym = |value: &str, set| {
        DescribeConfigsSynonym::default()
            .with_name(StrBytes::from_static_str(spec.name))
            .with_value(text(value))
            .with_source(source(set))
    };
    let synonyms = match (request.include_synonyms, set) {
        (false, _) => Vec::new(),
        (true, true) => vec![synonym(value, true), synonym(spec.default, false)],
        (true, false) => vec![synonym(spec.default, false)],
    };
    let result = DescribeConfigsResourceResult::default()
        .with_name(StrBytes::from_static_str(spec.name))
        .with_value(text(value))
        .with_config_source(source(set))
        .with_synonyms(synonyms);
    if facts.version < 3 {
        return result;
    }
    let documentation = if request.include_documentation { text(spec.documentation) } else { None };
    result.with_config_type(spec.config_type).with_documentation(documentation)
}

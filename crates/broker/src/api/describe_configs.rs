//! DescribeConfigs, for topics.

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
use crate::shared::Shared;
use crate::storage::topic_config::{KEYS, KeySpec, TopicConfig};

const TOPIC: i8 = 2;

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
        match topic_config(shared, resource) {
            Ok(config) => {
                // No list and an empty one ask for all, as in Kafka's `ConfigHelper`.
                let keys = resource.configuration_keys.as_ref().filter(|keys| !keys.is_empty());
                let asked = |spec: &&KeySpec| keys.is_none_or(|keys| keys.iter().any(|key| &**key == spec.name));
                let entries = KEYS.iter().filter(asked).map(|spec| describe(spec, &config, request, facts));
                result.with_configs(entries.collect())
            }
            Err(refusal) => result.with_error_code(refusal.error.code()).with_error_message(refusal.text()),
        }
    });
    DescribeConfigsResponse::default().with_results(results.collect())
}

fn topic_config(shared: &Shared, resource: &DescribeConfigsResource) -> Result<Arc<TopicConfig>, Refusal> {
    if resource.resource_type != TOPIC {
        let text = "the embedded broker describes the configuration of topics only";
        return Err(Refusal::new(ResponseError::InvalidRequest, text));
    }
    let name = TopicName::new(&resource.resource_name)
        .map_err(|error| Refusal::new(ResponseError::InvalidTopicException, error))?;
    let topic = shared.storage.topic(&name).ok_or(ResponseError::UnknownTopicOrPartition)?;
    Ok(Arc::clone(&topic.config))
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

//! AlterConfigs and IncrementalAlterConfigs (KIP-339), for topics.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
    alter_configs_response, incremental_alter_configs_response,
};
use kafka_protocol::protocol::StrBytes;
use tidegate_model::TopicName;

use super::Refusal;
use super::describe_configs::{BROKER, TOPIC};
use crate::shared::Shared;
use crate::storage::ChangeError;
use crate::storage::topic_config::{KeySpec, TopicConfig, TopicConfigError};

/// What is to become of one key.
#[derive(Clone, Debug)]
struct Operation {
    key: String,
    kind: i8,
    value: Option<String>,
}

const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

/// Sets the configuration of topics as a whole: a key that is not named goes back to its default.
pub(super) async fn alter_configs(shared: &Arc<Shared>, request: AlterConfigsRequest) -> AlterConfigsResponse {
    let mut responses = Vec::with_capacity(request.resources.len());
    let mut seen = HashSet::new();
    for resource in request.resources {
        let operations = resource.configs.iter().map(|config| Operation {
            key: config.name.to_string(),
            kind: SET,
            value: config.value.as_ref().map(ToString::to_string),
        });
        let target = (resource.resource_type, resource.resource_name.clone());
        let first = seen.insert(target.clone());
        let altered = alter(shared, target, operations.collect(), true, request.validate_only, first).await;
        let (code, text) = told(altered);
        responses.push(
            alter_configs_response::AlterConfigsResourceResponse::default()
                .with_resource_type(resource.resource_type)
                .with_resource_name(resource.resource_name)
                .with_error_code(code)
                .with_error_message(text),
        );
    }
    AlterConfigsResponse::default().with_responses(responses)
}

/// Changes the named keys alone.
pub(super) async fn incremental_alter_configs(
    shared: &Arc<Shared>,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let mut responses = Vec::with_capacity(request.resources.len());
    let mut seen = HashSet::new();
    for resource in request.resources {
        let operations = resource.configs.iter().map(|config| Operation {
            key: config.name.to_string(),
            kind: config.config_operation,
            value: config.value.as_ref().map(ToString::to_string),
        });
        let target = (resource.resource_type, resource.resource_name.clone());
        let first = seen.insert(target.clone());
        let altered = alter(shared, target, operations.collect(), false, request.validate_only, first).await;
        let (code, text) = told(altered);
        responses.push(
            incremental_alter_configs_response::AlterConfigsResourceResponse::default()
                .with_resource_type(resource.resource_type)
                .with_resource_name(resource.resource_name)
                .with_error_code(code)
                .with_error_message(text),
        );
    }
    IncrementalAlterConfigsResponse::default().with_responses(responses)
}

fn told(altered: Result<(), Refusal>) -> (i16, Option<StrBytes>) {
    altered.map_or_else(|refusal| (refusal.error.code(), refusal.text()), |()| (0, None))
}

async fn alter(
    shared: &Arc<Shared>,
    (resource_type, resource_name): (i8, StrBytes),
    operations: Vec<Operation>,
    whole: bool,
    only_check: bool,
    first: bool,
) -> Result<(), Refusal> {
    if !first {
        return Err(Refusal::new(ResponseError::InvalidRequest, "the request names the resource twice"));
    }
    match resource_type {
        TOPIC => {}
        BROKER => {
            let text = "the embedded broker's own settings are given at its start and stay as they are";
            return Err(Refusal::new(ResponseError::InvalidRequest, text));
        }
        other => {
            let text =
                format!("the embedded broker has no settings for resources of type {other}, only for topics (2)");
            return Err(Refusal::new(ResponseError::InvalidRequest, text));
        }
    }
    let name =
        TopicName::new(&resource_name).map_err(|error| Refusal::new(ResponseError::InvalidTopicException, error))?;
    let mut keys = HashSet::new();
    if let Some(twice) = operations.iter().find(|operation| !keys.insert(operation.key.as_str())) {
        let text = format!("the request names the key {} twice", twice.key);
        return Err(Refusal::new(ResponseError::InvalidRequest, text));
    }
    let most_message_bytes = shared.config.limits.max_produce_bytes;
    let change = move |present: &TopicConfig| changed(present, &operations, whole, most_message_bytes);
    let done = shared.writing(move |shared| shared.storage.change_config(&name, only_check, change)).await?;
    done.map_err(|error| match error {
        ChangeError::Unknown => Refusal::new(ResponseError::UnknownTopicOrPartition, "there is no such topic"),
        ChangeError::Refused(refusal) => refusal,
        ChangeError::Io(error) => {
            tracing::error!(topic = resource_name.as_str(), %error, "cannot change the configuration of a topic");
            Refusal::new(ResponseError::KafkaStorageError, error)
        }
    })
}

/// The configuration with the operations done to it. Pure.
fn changed(
    present: &TopicConfig,
    operations: &[Operation],
    whole: bool,
    most_message_bytes: usize,
) -> Result<TopicConfig, Refusal> {
    let kept = present.set().filter(|_| !whole);
    let mut set: BTreeMap<String, String> = kept.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    for Operation { key, kind, value } in operations {
        let value = value.as_deref();
        let given = || {
            let missing = || Refusal::new(ResponseError::InvalidRequest, format!("the key {key} has no value"));
            value.ok_or_else(missing)
        };
        match *kind {
            SET => {
                set.insert(key.clone(), given()?.to_owned());
            }
            DELETE => {
                if KeySpec::of(key).is_none() {
                    let unknown = TopicConfigError::Unknown { key: key.clone() };
                    return Err(Refusal::new(ResponseError::InvalidConfig, unknown));
                }
                set.remove(key);
            }
            APPEND | SUBTRACT => {
                let value = given()?;
                let spec = KeySpec::of(key).filter(|spec| spec.is_list()).ok_or_else(|| {
                    let text =
                        format!("{key} is not a list: it can be set or deleted, not appended to or subtracted from");
                    Refusal::new(ResponseError::InvalidConfig, text)
                })?;
                let before = set.get(key).map_or(spec.default, String::as_str);
                let mut items: Vec<&str> = before.split(',').map(str::trim).filter(|item| !item.is_empty()).collect();
                for item in value.split(',').map(str::trim) {
                    match *kind {
                        APPEND if !items.contains(&item) => items.push(item),
                        APPEND => {}
                        _ => items.retain(|present| *present != item),
                    }
                }
                let joined = items.join(",");
                set.insert(key.clone(), joined);
            }
            other => {
                let text = format!("{other} is not an operation on a configuration; 0 to 3 are");
                return Err(Refusal::new(ResponseError::InvalidRequest, text));
            }
        }
    }
    let given = set.iter().map(|(key, value)| (key.as_str(), Some(value.as_str())));
    TopicConfig::parse(given, most_message_bytes).map_err(|error| Refusal::new(ResponseError::InvalidConfig, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(given: &[(&str, &str)]) -> TopicConfig {
        TopicConfig::parse(given.iter().map(|(k, v)| (*k, Some(*v))), usize::MAX).unwrap()
    }

    fn operation(key: &str, kind: i8, value: Option<&str>) -> Operation {
        Operation { key: key.to_owned(), kind, value: value.map(str::to_owned) }
    }

    #[test]
    fn named_keys_change_and_the_others_stay_unless_the_whole_is_set() {
        let present = config(&[("retention.ms", "5"), ("segment.bytes", "4096")]);
        let set = [operation("retention.bytes", SET, Some("7")), operation("retention.ms", DELETE, None)];
        let incremental = changed(&present, &set, false, usize::MAX).unwrap();
        assert_eq!(incremental, config(&[("retention.bytes", "7"), ("segment.bytes", "4096")]));
        let whole = changed(&present, &set[..1], true, usize::MAX).unwrap();
        assert_eq!(whole, config(&[("retention.bytes", "7")]));
    }

    #[test]
    fn a_list_is_appended_to_and_subtracted_from_and_nothing_else_is() {
        let present = config(&[]);
        let refused = |operations: &[Operation]| {
            let refusal = changed(&present, operations, false, usize::MAX).unwrap_err();
            (refusal.error, refusal.message.unwrap())
        };
        let (error, message) = refused(&[operation("cleanup.policy", APPEND, Some("compact"))]);
        assert_eq!(error, ResponseError::InvalidConfig);
        assert!(message.contains("delete,compact") && message.contains("does not compact"), "{message}");
        let same = changed(&present, &[operation("cleanup.policy", APPEND, Some("delete"))], false, usize::MAX);
        assert_eq!(same.unwrap(), config(&[("cleanup.policy", "delete")]));
        assert!(refused(&[operation("cleanup.policy", SUBTRACT, Some("delete"))]).1.contains("cleanup.policy"));
        assert!(refused(&[operation("retention.ms", APPEND, Some("1"))]).1.contains("not a list"));
        assert_eq!(refused(&[operation("retention.ms", SET, None)]).0, ResponseError::InvalidRequest);
        assert_eq!(refused(&[operation("retention.ms", 9, Some("1"))]).0, ResponseError::InvalidRequest);
        assert_eq!(refused(&[operation("no.such.key", DELETE, None)]).0, ResponseError::InvalidConfig);
    }
}

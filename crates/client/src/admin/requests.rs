//! The requests of administration built, their responses checked. Pure. An `Err(String)` says what is wrong with a
//! response; a [`Refusal`] is a proper answer.

use std::collections::BTreeMap;
use std::time::Duration;

use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::{
    CreateTopicsRequest, CreateTopicsResponse, DeleteRecordsRequest, DeleteRecordsResponse, DeleteTopicsRequest,
    DeleteTopicsResponse, DescribeConfigsRequest, DescribeConfigsResponse,
};
use kafka_protocol::protocol::StrBytes;
use tidegate_model::TopicName;

use super::{NewTopic, TopicConfigEntry};
use crate::error::code;

/// What a broker says to one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// Kafka's error code; 0: it was done.
    pub(super) code: i16,
    /// The broker's words.
    pub(super) message: Option<String>,
}

impl Refusal {
    fn new(code: i16, message: Option<&StrBytes>) -> Self {
        Self { code, message: message.map(|text| text.as_str().to_owned()).filter(|text| !text.is_empty()) }
    }

    pub(super) fn is_not_controller(&self) -> bool {
        self.code == code::NOT_CONTROLLER
    }
}

fn protocol_name(topic: &TopicName) -> kafka_protocol::messages::TopicName {
    kafka_protocol::messages::TopicName(StrBytes::from_string(topic.as_str().to_owned()))
}

fn millis(time: Duration) -> i32 {
    i32::try_from(time.as_millis()).unwrap_or(i32::MAX)
}

fn not_mentioned(topic: &TopicName) -> String {
    format!("it says nothing of topic {topic}")
}

pub(super) fn create(topic: &NewTopic, patience: Duration) -> CreateTopicsRequest {
    let configs = topic.config.iter().map(|(name, value)| {
        CreatableTopicConfig::default()
            .with_name(StrBytes::from_string(name.clone()))
            .with_value(Some(StrBytes::from_string(value.clone())))
    });
    let topic = CreatableTopic::default()
        .with_name(protocol_name(&topic.name))
        .with_num_partitions(topic.partitions)
        .with_replication_factor(topic.replication_factor)
        .with_configs(configs.collect());
    CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(millis(patience))
}

pub(super) fn created(response: &CreateTopicsResponse, topic: &TopicName) -> Result<Refusal, String> {
    let answer = response.topics.iter().find(|answer| answer.name.as_str() == topic.as_str());
    let answer = answer.ok_or_else(|| not_mentioned(topic))?;
    Ok(Refusal::new(answer.error_code, answer.error_message.as_ref()))
}

pub(super) fn delete(topic: &TopicName, patience: Duration) -> DeleteTopicsRequest {
    DeleteTopicsRequest::default().with_topic_names(vec![protocol_name(topic)]).with_timeout_ms(millis(patience))
}

pub(super) fn deleted(response: &DeleteTopicsResponse, topic: &TopicName) -> Result<Refusal, String> {
    let named = |name: &kafka_protocol::messages::TopicName| name.as_str() == topic.as_str();
    let answer = response.responses.iter().find(|answer| answer.name.as_ref().is_some_and(named));
    let answer = answer.ok_or_else(|| not_mentioned(topic))?;
    Ok(Refusal::new(answer.error_code, answer.error_message.as_ref()))
}

pub(super) fn delete_records(topic: &TopicName, before: &[(i32, i64)], patience: Duration) -> DeleteRecordsRequest {
    let partitions = before.iter().map(|(partition, offset)| {
        DeleteRecordsPartition::default().with_partition_index(*partition).with_offset(*offset)
    });
    let topic = DeleteRecordsTopic::default().with_name(protocol_name(topic)).with_partitions(partitions.collect());
    DeleteRecordsRequest::default().with_topics(vec![topic]).with_timeout_ms(millis(patience))
}

/// The error code of each deletion, in the order of `asked`.
pub(super) fn deleted_records(
    response: &DeleteRecordsResponse,
    topic: &TopicName,
    asked: &[(i32, i64)],
) -> Result<Vec<i16>, String> {
    let answers = response.topics.iter().filter(|answer| answer.name.as_str() == topic.as_str());
    let codes: BTreeMap<i32, i16> =
        answers.flat_map(|answer| &answer.partitions).map(|p| (p.partition_index, p.error_code)).collect();
    let code = |(partition, _): &(i32, i64)| {
        codes.get(partition).copied().ok_or_else(|| format!("it says nothing of partition {topic}-{partition}"))
    };
    asked.iter().map(code).collect()
}

/// The number that stands for a topic among the resources of DescribeConfigs.
const RESOURCE_TOPIC: i8 = 2;

/// `org.apache.kafka.common.requests.DescribeConfigsResponse.ConfigSource.TOPIC_CONFIG`.
const SOURCE_TOPIC: i8 = 1;

pub(super) fn describe(topic: &TopicName) -> DescribeConfigsRequest {
    let resource = DescribeConfigsResource::default()
        .with_resource_type(RESOURCE_TOPIC)
        .with_resource_name(StrBytes::from_string(topic.as_str().to_owned()))
        // Null asks for all.
        .with_configuration_keys(None);
    DescribeConfigsRequest::default().with_resources(vec![resource])
}

pub(super) fn described(
    response: DescribeConfigsResponse,
    topic: &TopicName,
) -> Result<Result<BTreeMap<String, TopicConfigEntry>, Refusal>, String> {
    let is_asked = |resource_type, name: &StrBytes| resource_type == RESOURCE_TOPIC && name.as_str() == topic.as_str();
    let answer = response.results.into_iter().find(|answer| is_asked(answer.resource_type, &answer.resource_name));
    let answer = answer.ok_or_else(|| not_mentioned(topic))?;
    if answer.error_code != code::NONE {
        return Ok(Err(Refusal::new(answer.error_code, answer.error_message.as_ref())));
    }
    let entries = answer.configs.into_iter().map(|config| {
        let value = config.value.filter(|_| !config.is_sensitive).map(|value| value.as_str().to_owned());
        let entry = TopicConfigEntry { value, is_default: config.config_source != SOURCE_TOPIC };
        (config.name.as_str().to_owned(), entry)
    });
    Ok(Ok(entries.collect()))
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::create_topics_response::CreatableTopicResult;
    use kafka_protocol::messages::delete_records_response::{DeleteRecordsPartitionResult, DeleteRecordsTopicResult};
    use kafka_protocol::messages::describe_configs_response::{DescribeConfigsResourceResult, DescribeConfigsResult};
    use kafka_protocol::protocol::Encodable;

    use super::*;
    use crate::conn::Spoken;

    fn topic() -> TopicName {
        TopicName::new("orders").unwrap()
    }

    fn encodes_in_every_version<R: Spoken + Encodable>(request: &R) {
        for version in R::SPOKEN.0..=R::SPOKEN.1 {
            request.encode(&mut bytes::BytesMut::new(), version).unwrap();
        }
    }

    #[test]
    fn every_request_encodes_in_every_version_that_is_spoken() {
        let config = BTreeMap::from([("retention.ms".to_owned(), "-1".to_owned())]);
        let new = NewTopic { name: topic(), partitions: 3, replication_factor: 1, config };
        encodes_in_every_version(&create(&new, Duration::from_secs(1)));
        encodes_in_every_version(&delete(&topic(), Duration::MAX));
        encodes_in_every_version(&delete_records(&topic(), &[(0, 5), (1, -1)], Duration::ZERO));
        encodes_in_every_version(&describe(&topic()));
    }

    #[test]
    fn an_answer_about_another_topic_is_no_answer() {
        let other = CreatableTopicResult::default().with_name(protocol_name(&TopicName::new("other").unwrap()));
        let response = CreateTopicsResponse::default().with_topics(vec![other]);
        assert!(created(&response, &topic()).is_err());
        assert!(deleted(&DeleteTopicsResponse::default(), &topic()).is_err());
        assert!(described(DescribeConfigsResponse::default(), &topic()).is_err());
    }

    #[test]
    fn the_code_of_each_partition_goes_to_its_deletion() {
        let partition =
            |index, code| DeleteRecordsPartitionResult::default().with_partition_index(index).with_error_code(code);
        let answer = DeleteRecordsTopicResult::default()
            .with_name(protocol_name(&topic()))
            .with_partitions(vec![partition(0, 0), partition(1, 6)]);
        let response = DeleteRecordsResponse::default().with_topics(vec![answer]);
        assert_eq!(deleted_records(&response, &topic(), &[(1, 9), (0, 9)]), Ok(vec![6, 0]));
        assert!(deleted_records(&response, &topic(), &[(2, 9)]).is_err());
    }

    #[test]
    fn a_setting_is_the_topics_own_only_when_its_source_says_so_and_secrets_have_no_value() {
        let config = |name: &'static str, source, sensitive| {
            DescribeConfigsResourceResult::default()
                .with_name(StrBytes::from_static_str(name))
                .with_value(Some(StrBytes::from_static_str("7")))
                .with_config_source(source)
                .with_is_sensitive(sensitive)
        };
        let answer = DescribeConfigsResult::default()
            .with_resource_type(RESOURCE_TOPIC)
            .with_resource_name(StrBytes::from_static_str("orders"))
            .with_configs(vec![config("own", 1, false), config("default", 5, false), config("secret", 1, true)]);
        let response = DescribeConfigsResponse::default().with_results(vec![answer]);
        let entries = described(response, &topic()).unwrap().unwrap();
        let entry = |value: Option<&str>, is_default| TopicConfigEntry { value: value.map(str::to_owned), is_default };
        assert_eq!(entries["own"], entry(Some("7"), false));
        assert_eq!(entries["default"], entry(Some("7"), true));
        assert_eq!(entries["secret"], entry(None, false));
    }
}

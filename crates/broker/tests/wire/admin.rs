use std::net::SocketAddr;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::add_partitions_to_txn_request::{AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction};
use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::create_partitions_request::{CreatePartitionsAssignment, CreatePartitionsTopic};
use kafka_protocol::messages::delete_acls_request::DeleteAclsFilter;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;

use crate::common::*;

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const SET: i8 = 0;
const DELETE: i8 = 1;

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn incremental(topic: &str, changes: &[(&str, i8, Option<&str>)]) -> IncrementalAlterConfigsRequest {
    use incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
    let configs = changes.iter().map(|(key, operation, value)| {
        AlterableConfig::default().with_name(text(key)).with_config_operation(*operation).with_value(value.map(text))
    });
    let resource = AlterConfigsResource::default()
        .with_resource_type(TOPIC)
        .with_resource_name(text(topic))
        .with_configs(configs.collect());
    IncrementalAlterConfigsRequest::default().with_resources(vec![resource])
}

fn whole(topic: &str, configs: &[(&str, &str)]) -> AlterConfigsRequest {
    use alter_configs_request::{AlterConfigsResource, AlterableConfig};
    let configs = configs
        .iter()
        .map(|(key, value)| AlterableConfig::default().with_name(text(key)).with_value(Some(text(value))));
    let resource = AlterConfigsResource::default()
        .with_resource_type(TOPIC)
        .with_resource_name(text(topic))
        .with_configs(configs.collect());
    AlterConfigsRequest::default().with_resources(vec![resource])
}

fn partitions(topic: &str, count: i32) -> CreatePartitionsRequest {
    let topic = CreatePartitionsTopic::default().with_name(name(topic)).with_count(count).with_assignments(None);
    CreatePartitionsRequest::default().with_topics(vec![topic]).with_timeout_ms(10_000)
}

/// The values that were set for a topic.
async fn set_for(client: &mut Client, topic: &str) -> Vec<(String, String)> {
    let resource = DescribeConfigsResource::default().with_resource_type(TOPIC).with_resource_name(text(topic));
    let response = client.call(&DescribeConfigsRequest::default().with_resources(vec![resource]), 4).await;
    let configs = response.results[0].configs.iter().filter(|config| config.config_source == 1);
    configs.map(|config| (config.name.to_string(), config.value.as_ref().unwrap().to_string())).collect()
}

/// One request of this API and version, and its answer looked at.
pub async fn check_version(addr: SocketAddr, api: ApiKey, version: i16) {
    let mut client = Client::connect(addr).await;
    let topic = format!("{api:?}-{version}");
    client.create_topic(&topic, 2, &[("retention.ms", "-1")]).await;
    let (transactions, acls) = (ResponseError::InvalidRequest.code(), ResponseError::SecurityDisabled.code());
    match api {
        ApiKey::AlterConfigs => {
            let response = client.call(&whole(&topic, &[("retention.bytes", "5000")]), version).await;
            assert_eq!(response.responses[0].error_code, 0);
            assert_eq!(set_for(&mut client, &topic).await, [("retention.bytes".to_owned(), "5000".to_owned())]);
            let response = client.call(&whole("none", &[]), version).await;
            assert_eq!(response.responses[0].error_code, ResponseError::UnknownTopicOrPartition.code());
        }
        ApiKey::IncrementalAlterConfigs => {
            let changes = [("segment.bytes", SET, Some("2048")), ("retention.ms", DELETE, None)];
            let response = client.call(&incremental(&topic, &changes), version).await;
            assert_eq!(response.responses[0].error_code, 0);
            assert_eq!(set_for(&mut client, &topic).await, [("segment.bytes".to_owned(), "2048".to_owned())]);
        }
        ApiKey::CreatePartitions => {
            let codes = async |client: &mut Client, request: CreatePartitionsRequest| {
                let result = client.call(&request, version).await.results[0].clone();
                (result.error_code, result.error_message.unwrap_or_default().to_string())
            };
            assert_eq!(codes(&mut client, partitions(&topic, 4)).await.0, 0);
            let (code, message) = codes(&mut client, partitions(&topic, 3)).await;
            assert_eq!(code, ResponseError::InvalidPartitions.code());
            assert!(message.contains("has 4 partitions"), "{message}");
        }
        ApiKey::DescribeLogDirs => {
            client.produce(&topic, 0, batch(&[1, 2])).await;
            let response = client.call(&DescribeLogDirsRequest::default().with_topics(None), version).await;
            let found = response.results[0].topics.iter().find(|found| found.name == name(&topic)).unwrap();
            assert_eq!((found.partitions.len(), found.partitions[1].partition_size), (2, 0));
            assert!(found.partitions[0].partition_size > 60);
        }
        ApiKey::OffsetDelete => {
            let partition = OffsetDeleteRequestPartition::default();
            let topic = OffsetDeleteRequestTopic::default().with_name(name(&topic)).with_partitions(vec![partition]);
            let request = OffsetDeleteRequest::default().with_group_id(text("nobody").into()).with_topics(vec![topic]);
            let response = client.call(&request, version).await;
            assert_eq!(response.error_code, ResponseError::GroupIdNotFound.code());
        }
        ApiKey::DescribeAcls => {
            let response = client.call(&DescribeAclsRequest::default(), version).await;
            assert_eq!(response.error_code, acls);
            assert!(response.error_message.unwrap().contains("Apache Kafka"));
        }
        ApiKey::CreateAcls => {
            let request = CreateAclsRequest::default().with_creations(vec![AclCreation::default()]);
            assert_eq!(client.call(&request, version).await.results[0].error_code, acls);
        }
        ApiKey::DeleteAcls => {
            let request = DeleteAclsRequest::default().with_filters(vec![DeleteAclsFilter::default()]);
            assert_eq!(client.call(&request, version).await.filter_results[0].error_code, acls);
        }
        ApiKey::AddPartitionsToTxn => {
            let topics = vec![AddPartitionsToTxnTopic::default().with_name(name(&topic)).with_partitions(vec![0])];
            let response = if version >= 4 {
                let transaction = AddPartitionsToTxnTransaction::default().with_topics(topics);
                client.call(&AddPartitionsToTxnRequest::default().with_transactions(vec![transaction]), version).await
            } else {
                client.call(&AddPartitionsToTxnRequest::default().with_v3_and_below_topics(topics), version).await
            };
            let of_transaction = response.results_by_transaction.first().map(|t| &t.topic_results);
            let results = of_transaction.unwrap_or(&response.results_by_topic_v3_and_below);
            assert_eq!(results[0].results_by_partition[0].partition_error_code, transactions);
        }
        ApiKey::AddOffsetsToTxn => {
            let response = client.call(&AddOffsetsToTxnRequest::default(), version).await;
            assert_eq!(response.error_code, transactions);
        }
        ApiKey::EndTxn => {
            assert_eq!(client.call(&EndTxnRequest::default(), version).await.error_code, transactions);
        }
        ApiKey::TxnOffsetCommit => {
            let partition = TxnOffsetCommitRequestPartition::default();
            let topic = TxnOffsetCommitRequestTopic::default().with_name(name(&topic)).with_partitions(vec![partition]);
            let response = client.call(&TxnOffsetCommitRequest::default().with_topics(vec![topic]), version).await;
            assert_eq!(response.topics[0].partitions[0].error_code, transactions);
        }
        other => panic!("{other:?} is no request of an admin client"),
    }
}

#[tokio::test]
async fn a_changed_configuration_counts_at_once_and_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 1, &[("retention.ms", "-1")]).await;
    let large = || batch_of_value(&[7; 5_000]);
    assert_eq!(client.produce("t", 0, large()).await.error_code, 0);
    let change = incremental("t", &[("max.message.bytes", SET, Some("1000"))]);
    let checked = client.call(&change.clone().with_validate_only(true), 1).await;
    assert_eq!(checked.responses[0].error_code, 0);
    assert_eq!(client.produce("t", 0, large()).await.error_code, 0, "only checked");
    assert_eq!(client.call(&change, 1).await.responses[0].error_code, 0);
    let too_large = ResponseError::MessageTooLarge.code();
    assert_eq!(client.produce("t", 0, large()).await.error_code, too_large);
    broker.abort().await;
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    assert_eq!(client.produce("t", 0, large()).await.error_code, too_large);
    let set = set_for(&mut client, "t").await;
    assert_eq!(set, [("max.message.bytes", "1000"), ("retention.ms", "-1")].map(|(k, v)| (k.into(), v.into())));
}

#[tokio::test]
async fn a_change_that_cannot_be_is_refused_with_the_reason_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 1, &[]).await;
    let mut refused = async |request: IncrementalAlterConfigsRequest| {
        let response = client.call(&request, 1).await.responses[0].clone();
        let message = response.error_message.unwrap_or_default().to_string();
        (ResponseError::try_from_code(response.error_code).unwrap(), message)
    };
    let both = [("retention.ms", SET, Some("5")), ("no.such.key", SET, Some("1"))];
    let (error, message) = refused(incremental("t", &both)).await;
    assert_eq!(error, ResponseError::InvalidConfig);
    assert!(message.contains("no.such.key") && message.contains("retention.ms"), "{message}");
    let (error, message) = refused(incremental("t", &[("cleanup.policy", SET, Some("compact"))])).await;
    assert_eq!(error, ResponseError::InvalidConfig);
    assert!(message.contains("Apache Kafka"), "{message}");
    let twice = [("retention.ms", SET, Some("5")), ("retention.ms", DELETE, None)];
    assert_eq!(refused(incremental("t", &twice)).await.0, ResponseError::InvalidRequest);
    let mut of_broker = incremental("1", &[("num.partitions", SET, Some("5"))]);
    of_broker.resources[0].resource_type = BROKER;
    let (error, message) = refused(of_broker).await;
    assert_eq!(error, ResponseError::InvalidRequest);
    assert!(message.contains("start"), "{message}");
    assert_eq!(set_for(&mut client, "t").await, []);
}

#[tokio::test]
async fn partitions_are_added_to_a_topic_in_use_and_stay() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 1, &[("retention.ms", "-1")]).await;
    client.produce("t", 0, batch(&[1, 2, 3])).await;
    let checked = client.call(&partitions("t", 3).with_validate_only(true), 3).await;
    assert_eq!(checked.results[0].error_code, 0);
    assert_eq!(client.produce("t", 2, batch(&[1])).await.error_code, 3);
    let mut assigned = partitions("t", 3);
    let to = |id: i32| CreatePartitionsAssignment::default().with_broker_ids(vec![id.into()]);
    assigned.topics[0].assignments = Some(vec![to(1), to(2)]);
    let refused = client.call(&assigned, 3).await.results[0].error_code;
    assert_eq!(refused, ResponseError::InvalidReplicaAssignment.code());
    assigned.topics[0].assignments = Some(vec![to(1), to(1)]);
    assert_eq!(client.call(&assigned, 3).await.results[0].error_code, 0);
    assert_eq!(client.produce("t", 2, batch(&[9])).await.error_code, 0);
    assert_eq!(client.produce("t", 0, batch(&[4])).await.base_offset, 3);
    assert_eq!(client.call(&partitions("none", 3), 3).await.results[0].error_code, 3);
    let most = client.call(&partitions("t", i32::MAX), 3).await.results[0].clone();
    assert_eq!(most.error_code, ResponseError::PolicyViolation.code());
    broker.abort().await;

    // What a crash left of an attempt does not stand in the way of the next.
    let of = |partition: i32| {
        let folders = std::fs::read_dir(dir.path().join("partitions")).unwrap().map(|entry| entry.unwrap().path());
        let ending = format!("-{partition}");
        folders.filter(move |path| path.to_str().unwrap().ends_with(&ending)).collect::<Vec<_>>()
    };
    let orphan = of(0)[0].to_str().unwrap().strip_suffix("-0").unwrap().to_owned() + "-3";
    std::fs::create_dir(&orphan).unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    assert_eq!(client.call(&partitions("t", 4), 3).await.results[0].error_code, 0);
    assert_eq!(client.produce("t", 3, batch(&[1])).await.error_code, 0);
    assert_eq!(client.read_all("t", 2, 0).await.len(), 1);
    broker.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_broker_describes_itself_under_kafkas_names() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    let of = |id: &str| DescribeConfigsResource::default().with_resource_type(BROKER).with_resource_name(text(id));
    let request = DescribeConfigsRequest::default()
        .with_resources(vec![of("1"), of("2"), of("").with_configuration_keys(Some(vec![text("num.partitions")]))])
        .with_include_synonyms(true);
    let results = client.call(&request, 4).await.results;
    let value = |key: &str| {
        results[0].configs.iter().find(|config| &*config.name == key).map(|config| config.value.clone().unwrap())
    };
    assert_eq!(value("offset.metadata.max.bytes").as_deref(), Some("4096"));
    assert_eq!(value("log.message.timestamp.after.max.ms").as_deref(), Some("3600000"));
    assert!(results[0].configs.iter().all(|config| config.read_only));
    assert_eq!(results[1].error_code, ResponseError::InvalidRequest.code());
    assert_eq!(results[2].configs.len(), 1);
}

#[tokio::test]
async fn offsets_of_a_group_without_members_can_be_deleted_one_by_one() {
    use offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 2, &[]).await;
    let partition =
        |index: i32| OffsetCommitRequestPartition::default().with_partition_index(index).with_committed_offset(5);
    let topic =
        OffsetCommitRequestTopic::default().with_name(name("t")).with_partitions(vec![partition(0), partition(1)]);
    let request = OffsetCommitRequest::default()
        .with_group_id(text("g").into())
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic]);
    client.call(&request, 8).await;
    let delete = |index: i32| OffsetDeleteRequestPartition::default().with_partition_index(index);
    let topic = OffsetDeleteRequestTopic::default().with_name(name("t")).with_partitions(vec![delete(0), delete(7)]);
    let request = OffsetDeleteRequest::default().with_group_id(text("g").into()).with_topics(vec![topic]);
    let response = client.call(&request, 0).await;
    let codes: Vec<_> = response.topics[0].partitions.iter().map(|p| p.error_code).collect();
    assert_eq!((response.error_code, codes), (0, vec![0, 3]));
    assert_eq!(crate::groups::committed(&mut client, "g").await, -1);
    let request = OffsetFetchRequest::default().with_group_id(text("g").into()).with_topics(None);
    assert_eq!(client.call(&request, 7).await.topics[0].partitions.len(), 1);
}

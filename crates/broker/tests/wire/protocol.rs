use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_topics_request::CreatableReplicaAssignment;
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Decodable, StrBytes};
use tidegate_broker::{Broker, BrokerConfig, StartError};

use crate::common::*;

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

#[tokio::test]
async fn every_advertised_version_of_every_api_is_answered_in_that_version() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 2, &[("retention.ms", "-1")]).await;
    client.produce("t", 0, batch(&[5, 6, 7])).await;
    let id = client.call(&MetadataRequest::default().with_topics(None), 12).await.topics[0].topic_id;

    let versions = client.call(&ApiVersionsRequest::default(), 3).await;
    assert_eq!(versions.error_code, 0);
    for api in versions.api_keys {
        let first = if api.api_key == 0 { 3 } else { api.min_version };
        for version in first..=api.max_version {
            match ApiKey::try_from(api.api_key).unwrap() {
                ApiKey::Produce => {
                    let mut request = produce_request("t", 1, batch(&[1]), 1);
                    if version >= 13 {
                        request.topic_data[0].topic_id = id;
                        request.topic_data[0].name = name("");
                    }
                    let response = client.call(&request, version).await;
                    assert_eq!(response.responses[0].partition_responses[0].error_code, 0, "version {version}");
                    let refused = client.call(&produce_request("none", 1, batch(&[1]), 1), version).await;
                    assert_ne!(refused.responses[0].partition_responses[0].error_code, 0);
                }
                ApiKey::Fetch => {
                    let mut request = fetch_request("t", 0, 0, 1000, 1, 0);
                    if version >= 13 {
                        request.topics[0].topic_id = id;
                    }
                    if version >= 15 {
                        request.replica_id = (-1).into();
                    }
                    let response = client.call(&request, version).await;
                    let partition = &response.responses[0].partitions[0];
                    assert_eq!((partition.error_code, partition.high_watermark), (0, 3), "version {version}");
                    assert_eq!(stored(partition.records.clone().unwrap()).len(), 3);
                }
                ApiKey::ListOffsets => {
                    let partition = list_offsets_request::ListOffsetsPartition::default()
                        .with_current_leader_epoch(-1)
                        .with_timestamp(6);
                    let topic = list_offsets_request::ListOffsetsTopic::default()
                        .with_name(name("t"))
                        .with_partitions(vec![partition]);
                    let request = ListOffsetsRequest::default().with_topics(vec![topic]);
                    let response = client.call(&request, version).await;
                    let found = &response.topics[0].partitions[0];
                    assert_eq!((found.error_code, found.offset, found.timestamp), (0, 1, 6));
                }
                ApiKey::Metadata => {
                    let topics = [Some("t"), Some("none"), Some("a/b")]
                        .map(|t| MetadataRequestTopic::default().with_name(t.map(name)));
                    let request = MetadataRequest::default().with_topics(Some(topics.into()));
                    let response = client.call(&request, version).await;
                    assert_eq!(response.brokers[0].port, i32::from(broker.addr().port()));
                    let codes: Vec<_> = response.topics.iter().map(|t| (t.error_code, t.partitions.len())).collect();
                    assert_eq!(codes, [(0, 2), (3, 0), (17, 0)], "version {version}");
                }
                ApiKey::ApiVersions => {
                    assert_eq!(client.call(&ApiVersionsRequest::default(), version).await.error_code, 0);
                }
                ApiKey::CreateTopics => {
                    let topic = format!("created-{version}");
                    client.call(&create_request(&topic, 1, &[]), version).await;
                    let again = client.call(&create_request(&topic, 1, &[]), version).await;
                    assert_eq!(again.topics[0].error_code, ResponseError::TopicAlreadyExists.code());
                }
                ApiKey::DeleteTopics => {
                    let topic = format!("deleted-{version}");
                    client.create_topic(&topic, 1, &[]).await;
                    let request = if version >= 6 {
                        let state = |t: &str| DeleteTopicState::default().with_name(Some(name(t)));
                        DeleteTopicsRequest::default().with_topics(vec![state(&topic), state("none")])
                    } else {
                        DeleteTopicsRequest::default().with_topic_names(vec![name(&topic), name("none")])
                    };
                    let response = client.call(&request, version).await;
                    let codes: Vec<_> = response.responses.iter().map(|r| r.error_code).collect();
                    assert_eq!(codes, [0, 3]);
                }
                ApiKey::DeleteRecords => {
                    let response = client.call(&delete_records_request("t", 1, 0), version).await;
                    assert_eq!(response.topics[0].partitions[0].error_code, 0);
                }
                ApiKey::InitProducerId => {
                    let response = client.call(&init_producer_id(), version).await;
                    assert_eq!((response.error_code, response.producer_epoch), (0, 0));
                    let transactional = InitProducerIdRequest::default().with_transactional_id(Some(text("tx").into()));
                    let refused = client.call(&transactional, version).await;
                    assert_eq!(refused.error_code, ResponseError::InvalidRequest.code());
                }
                ApiKey::OffsetForLeaderEpoch => {
                    let of = |epoch| OffsetForLeaderPartition::default().with_leader_epoch(epoch);
                    let topic = OffsetForLeaderTopic::default()
                        .with_topic(name("t"))
                        .with_partitions(vec![of(0).with_current_leader_epoch(-1), of(3).with_current_leader_epoch(0)]);
                    let request = OffsetForLeaderEpochRequest::default().with_topics(vec![topic]);
                    let response = client.call(&request, version).await;
                    let ends: Vec<_> = response.topics[0].partitions.iter().map(|p| p.end_offset).collect();
                    assert_eq!(ends, [3, -1]);
                }
                ApiKey::DescribeConfigs => {
                    let resource =
                        DescribeConfigsResource::default().with_resource_type(2).with_resource_name(text("t"));
                    let request = DescribeConfigsRequest::default()
                        .with_resources(vec![resource])
                        .with_include_synonyms(true)
                        .with_include_documentation(version >= 3);
                    let response = client.call(&request, version).await;
                    assert_eq!(response.results[0].error_code, 0);
                    assert_eq!(response.results[0].configs.len(), 11);
                }
                ApiKey::DescribeCluster => {
                    let response = client.call(&DescribeClusterRequest::default(), version).await;
                    assert_eq!((response.error_code, response.brokers.len()), (0, 1));
                }
                ApiKey::FindCoordinator => {
                    let mut request = FindCoordinatorRequest::default();
                    if version >= 4 {
                        request.coordinator_keys = vec![text("g"), text("h")];
                    } else {
                        request.key = text("g");
                    }
                    let response = client.call(&request, version).await;
                    let (code, node) = response
                        .coordinators
                        .first()
                        .map_or((response.error_code, response.node_id), |c| (c.error_code, c.node_id));
                    assert_eq!((code, node.0), (0, 1));
                }
                ApiKey::ConsumerGroupHeartbeat => {
                    let request = ConsumerGroupHeartbeatRequest::default().with_group_id(text("g").into());
                    let response = client.call(&request, version).await;
                    assert_eq!(response.error_code, ResponseError::UnsupportedVersion.code());
                    assert!(response.error_message.unwrap().contains("classic"));
                }
                group @ (ApiKey::JoinGroup
                | ApiKey::SyncGroup
                | ApiKey::Heartbeat
                | ApiKey::LeaveGroup
                | ApiKey::OffsetCommit
                | ApiKey::OffsetFetch
                | ApiKey::DescribeGroups
                | ApiKey::ListGroups
                | ApiKey::DeleteGroups) => crate::groups::check_version(broker.addr(), group, version).await,
                admin @ (ApiKey::AlterConfigs
                | ApiKey::IncrementalAlterConfigs
                | ApiKey::CreatePartitions
                | ApiKey::DescribeLogDirs
                | ApiKey::OffsetDelete
                | ApiKey::DescribeAcls
                | ApiKey::CreateAcls
                | ApiKey::DeleteAcls
                | ApiKey::AddPartitionsToTxn
                | ApiKey::AddOffsetsToTxn
                | ApiKey::EndTxn
                | ApiKey::TxnOffsetCommit) => crate::admin::check_version(broker.addr(), admin, version).await,
                other => panic!("{other:?} is advertised and not tested"),
            }
        }
    }
    broker.shutdown().await.unwrap();
}

/// The codec's default is an empty transactional id, which is not none.
pub fn init_producer_id() -> InitProducerIdRequest {
    InitProducerIdRequest::default().with_transactional_id(None)
}

pub fn delete_records_request(topic: &str, partition: i32, offset: i64) -> DeleteRecordsRequest {
    let partition =
        delete_records_request::DeleteRecordsPartition::default().with_partition_index(partition).with_offset(offset);
    let topic =
        delete_records_request::DeleteRecordsTopic::default().with_name(name(topic)).with_partitions(vec![partition]);
    DeleteRecordsRequest::default().with_topics(vec![topic]).with_timeout_ms(10_000)
}

#[tokio::test]
async fn api_versions_from_the_future_is_answered_in_version_0_and_the_connection_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    // Version 9 does not exist; its header is that of version 4.
    let mut bytes = encode(&ApiVersionsRequest::default(), 4, 55).to_vec();
    bytes[6..8].copy_from_slice(&9_i16.to_be_bytes());
    tokio::io::AsyncWriteExt::write_all(client.stream(), &bytes).await.unwrap();
    let mut frame = client.read_frame().await.unwrap();
    let header = ResponseHeader::decode(&mut frame, 0).unwrap();
    let response = ApiVersionsResponse::decode(&mut frame, 0).unwrap();
    assert_eq!((header.correlation_id, response.error_code), (55, ResponseError::UnsupportedVersion.code()));
    let own = response.api_keys.iter().find(|api| api.api_key == 18).unwrap();
    assert_eq!((own.min_version, own.max_version), (0, 4));
    assert_eq!(client.call(&ApiVersionsRequest::default(), 4).await.error_code, 0);
}

#[tokio::test]
async fn a_topic_is_created_with_what_was_asked_and_described_so() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    let request = create_request("flights", 3, &[("retention.ms", "-1"), ("message.timestamp.type", "LogAppendTime")]);
    let created = client.call(&request, 7).await.topics[0].clone();
    assert_eq!((created.error_code, created.num_partitions, created.replication_factor), (0, 3, 1));
    assert!(!created.topic_id.is_nil());
    let configs = created.configs.unwrap();
    let retention = configs.iter().find(|c| &*c.name == "retention.ms").unwrap();
    assert_eq!((retention.value.as_deref(), retention.config_source), (Some("-1"), 1));
    let segment = configs.iter().find(|c| &*c.name == "segment.bytes").unwrap();
    assert_eq!((segment.value.as_deref(), segment.config_source), (Some("134217728"), 5));

    let resource = DescribeConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(text("flights"))
        .with_configuration_keys(Some(vec![text("retention.ms"), text("no.such.key")]));
    let request = DescribeConfigsRequest::default().with_resources(vec![resource.clone(), resource]);
    let response = client.call(&request.with_include_synonyms(true), 4).await;
    assert_eq!(response.results.len(), 1, "a resource is described once");
    let described = &response.results[0].configs;
    assert_eq!(described.len(), 1);
    assert_eq!((described[0].value.as_deref(), described[0].config_source), (Some("-1"), 1));
    let synonyms: Vec<_> = described[0].synonyms.iter().map(|s| (s.value.as_deref(), s.source)).collect();
    assert_eq!(synonyms, [(Some("-1"), 1), (Some("604800000"), 5)]);

    let by_id = MetadataRequestTopic::default().with_topic_id(created.topic_id).with_name(None);
    let metadata = client.call(&MetadataRequest::default().with_topics(Some(vec![by_id])), 12).await;
    assert_eq!(metadata.topics[0].name.as_ref().unwrap().as_str(), "flights");
    assert_eq!(metadata.topics[0].partitions.len(), 3);
}

#[tokio::test]
async fn what_cannot_be_created_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.limits.max_partitions = 10;
    let broker = Broker::start(config).await.unwrap();
    let mut client = Client::connect(broker.addr()).await;
    let mut refused = async |request: &CreateTopicsRequest| {
        let topic = client.call(request, 7).await.topics[0].clone();
        (ResponseError::try_from_code(topic.error_code).unwrap(), topic.error_message.unwrap_or_default().to_string())
    };
    let (error, message) = refused(&create_request("t", 1, &[("cleanup.policy", "compact")])).await;
    assert_eq!(error, ResponseError::InvalidConfig);
    assert!(message.contains("does not compact"), "{message}");
    let (error, message) = refused(&create_request("t", 1, &[("retension.ms", "1")])).await;
    assert_eq!(error, ResponseError::InvalidConfig);
    assert!(message.contains("retension.ms"), "{message}");
    assert_eq!(refused(&create_request("t", 0, &[])).await.0, ResponseError::InvalidPartitions);
    assert_eq!(refused(&create_request("t", 11, &[])).await.0, ResponseError::PolicyViolation);
    assert_eq!(refused(&create_request("t", i32::MAX, &[])).await.0, ResponseError::PolicyViolation);
    assert_eq!(refused(&create_request("a b", 1, &[])).await.0, ResponseError::InvalidTopicException);
    let mut request = create_request("t", 1, &[]);
    request.topics[0].replication_factor = 3;
    assert_eq!(refused(&request).await.0, ResponseError::InvalidReplicationFactor);
    let mut request = create_request("t", -1, &[]);
    request.topics[0].replication_factor = -1;
    request.topics[0].assignments =
        vec![CreatableReplicaAssignment::default().with_partition_index(0).with_broker_ids(vec![7.into()])];
    assert_eq!(refused(&request).await.0, ResponseError::InvalidReplicaAssignment);
    let mut twice = create_request("t", 1, &[]);
    twice.topics.push(twice.topics[0].clone());
    assert_eq!(refused(&twice).await.0, ResponseError::InvalidRequest);
    let only_checked = create_request("t", 1, &[]).with_validate_only(true);
    assert_eq!(client.call(&only_checked, 7).await.topics[0].error_code, 0);
    let metadata = client.call(&MetadataRequest::default().with_topics(None), 12).await;
    assert!(metadata.topics.is_empty(), "nothing was created");
}

#[tokio::test]
async fn a_topic_is_created_by_asking_for_it_only_where_both_sides_agree() {
    let dir = tempfile::tempdir().unwrap();
    let ask = |create| {
        let topic = MetadataRequestTopic::default().with_name(Some(name("t")));
        MetadataRequest::default().with_topics(Some(vec![topic])).with_allow_auto_topic_creation(create)
    };
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    assert_eq!(client.call(&ask(true), 12).await.topics[0].error_code, 3);
    broker.shutdown().await.unwrap();

    let config = BrokerConfig { auto_create_topics: true, default_partitions: 4, ..config(dir.path()) };
    let broker = Broker::start(config).await.unwrap();
    let mut client = Client::connect(broker.addr()).await;
    assert_eq!(client.call(&ask(false), 12).await.topics[0].error_code, 3);
    assert_eq!(client.call(&ask(true), 12).await.topics[0].partitions.len(), 4);
}

#[tokio::test]
async fn a_topic_made_again_under_its_name_is_another_topic() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    let all = MetadataRequest::default().with_topics(None);
    client.create_topic("t", 1, &[]).await;
    client.produce("t", 0, batch(&[1, 2, 3])).await;
    let first = client.call(&all, 12).await.topics[0].topic_id;
    let delete = DeleteTopicState::default().with_topic_id(first).with_name(None);
    let deleted = client.call(&DeleteTopicsRequest::default().with_topics(vec![delete]), 6).await;
    assert_eq!((deleted.responses[0].error_code, deleted.responses[0].topic_id), (0, first));
    client.create_topic("t", 1, &[]).await;
    let second = client.call(&all, 12).await.topics[0].topic_id;
    assert_ne!(first, second);
    assert_eq!(client.end_offset("t", 0).await, 0);
    let mut old = fetch_request("t", 0, 0, 1000, 0, 0);
    old.topics[0].topic_id = first;
    let response = client.call(&old, 13).await;
    assert_eq!(response.responses[0].partitions[0].error_code, ResponseError::UnknownTopicId.code());
}

#[tokio::test]
async fn requests_that_could_outgrow_a_record_of_the_offsets_file_are_not_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.limits.max_request_bytes = 32 << 20;
    Broker::start(config.clone()).await.unwrap().shutdown().await.unwrap();
    config.limits.max_request_bytes += 1;
    let error = Broker::start(config).await.unwrap_err();
    assert!(error.to_string().starts_with("limits.max_request_bytes: "), "{error}");
}

#[tokio::test]
async fn an_address_that_others_reach_needs_the_flag() {
    let dir = tempfile::tempdir().unwrap();
    let open = BrokerConfig { listen: "0.0.0.0:0".parse().unwrap(), ..config(dir.path()) };
    let error = Broker::start(open.clone()).await.unwrap_err();
    assert!(matches!(error, StartError::NotLoopback { .. }));
    let words = error.to_string();
    assert!(words.contains("0.0.0.0:0") && words.contains("--insecure"), "{words}");
    let broker = Broker::start(BrokerConfig { insecure: true, ..open }).await.unwrap();
    let mut client = Client::connect(([127, 0, 0, 1], broker.addr().port()).into()).await;
    let metadata = client.call(&MetadataRequest::default().with_topics(None), 12).await;
    assert_eq!(&*metadata.brokers[0].host, "127.0.0.1", "the address at which the client came");
}

#[tokio::test]
async fn the_advertised_address_is_what_clients_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let config = BrokerConfig { advertised: Some(("broker.example".to_owned(), 9999)), ..config(dir.path()) };
    let broker = Broker::start(config).await.unwrap();
    let mut client = Client::connect(broker.addr()).await;
    let metadata = client.call(&MetadataRequest::default().with_topics(None), 9).await;
    assert_eq!((&*metadata.brokers[0].host, metadata.brokers[0].port), ("broker.example", 9999));
}

#[tokio::test]
async fn a_transactions_coordinator_is_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    let request = FindCoordinatorRequest::default().with_key_type(1).with_coordinator_keys(vec![text("tx")]);
    let coordinator = client.call(&request, 4).await.coordinators[0].clone();
    assert_eq!(coordinator.error_code, ResponseError::InvalidRequest.code());
    assert!(coordinator.error_message.unwrap().contains("no transactions"));
    // Clients of the older form ask for ever unless they are told of an authorization.
    let older = FindCoordinatorRequest::default().with_key_type(1).with_key(text("tx"));
    let refused = client.call(&older, 2).await;
    assert_eq!(refused.error_code, ResponseError::TransactionalIdAuthorizationFailed.code());
    assert!(refused.error_message.unwrap().contains("no transactions"));
}

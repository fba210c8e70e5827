use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::{DescribeConfigsRequest, MetadataRequest};
use kafka_protocol::protocol::StrBytes;
use tidegate_broker::{Broker, BrokerConfig, FsyncPolicy, OpenError, StartError};

use crate::common::*;
use crate::protocol::init_producer_id;

#[tokio::test]
async fn a_restart_keeps_topics_configs_records_offsets_and_producers() {
    for (fsync, clean) in [
        (FsyncPolicy::Always, true),
        (FsyncPolicy::Always, false),
        (FsyncPolicy::Interval(std::time::Duration::from_millis(1)), true),
        (FsyncPolicy::Interval(std::time::Duration::from_secs(3600)), false),
        (FsyncPolicy::Never, true),
        (FsyncPolicy::Never, false),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let config = BrokerConfig { fsync, ..config(dir.path()) };
        let broker = Broker::start(config.clone()).await.unwrap();
        let mut client = Client::connect(broker.addr()).await;
        client.create_topic("a", 2, &[("segment.bytes", "1024"), ("retention.ms", "-1")]).await;
        client.create_topic("b", 1, &[("message.timestamp.type", "LogAppendTime")]).await;
        let id = client.call(&init_producer_id(), 4).await.producer_id.0;
        for sequence in 0..60 {
            let answer = client.produce("a", 0, sequenced(id, 3, sequence, &[i64::from(sequence) * 10])).await;
            assert_eq!(answer.error_code, 0);
        }
        client.produce("b", 0, batch(&[1, 2, 3])).await;
        let all = MetadataRequest::default().with_topics(None);
        let before = client.call(&all, 12).await;
        let records = client.read_all("a", 0, 0).await;
        let records_b = client.read_all("b", 0, 0).await;
        if clean {
            broker.shutdown().await.unwrap();
        } else {
            broker.abort().await;
        }

        let broker = Broker::start(config.clone()).await.unwrap();
        let mut client = Client::connect(broker.addr()).await;
        let after = client.call(&all, 12).await;
        assert_eq!((after.cluster_id, after.topics), (before.cluster_id, before.topics), "{fsync:?} {clean}");
        let resource = DescribeConfigsResource::default()
            .with_resource_type(2)
            .with_resource_name(StrBytes::from_static_str("a"))
            .with_configuration_keys(Some(vec![StrBytes::from_static_str("retention.ms")]));
        let described = client.call(&DescribeConfigsRequest::default().with_resources(vec![resource]), 4).await;
        assert_eq!(described.results[0].configs[0].value.as_deref(), Some("-1"));
        assert_eq!(client.read_all("a", 0, 0).await, records);
        assert_eq!(client.read_all("b", 0, 0).await, records_b);
        assert_eq!(client.list_offset("a", 0, 305).await.offset, 31);

        // The last five batches are known, the next is expected, an older epoch is not.
        for sequence in 55..60 {
            let again = client.produce("a", 0, sequenced(id, 3, sequence, &[i64::from(sequence) * 10])).await;
            assert_eq!((again.error_code, again.base_offset), (0, i64::from(sequence)), "{fsync:?} {clean}");
        }
        let gap = client.produce("a", 0, sequenced(id, 3, 61, &[1])).await;
        assert_eq!(gap.error_code, ResponseError::OutOfOrderSequenceNumber.code());
        let fenced = client.produce("a", 0, sequenced(id, 2, 60, &[1])).await;
        assert_eq!(fenced.error_code, ResponseError::InvalidProducerEpoch.code());
        assert_eq!(client.produce("a", 0, sequenced(id, 3, 60, &[1])).await.base_offset, 60);
        let other = client.call(&init_producer_id(), 4).await.producer_id.0;
        assert!(other > id, "no producer id is handed out twice");
        broker.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn two_brokers_do_not_share_a_folder_and_a_dropped_one_frees_it() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let error = Broker::start(config(dir.path())).await.unwrap_err();
    assert!(matches!(error, StartError::Storage(OpenError::InUse { .. })), "{error}");
    drop(broker);
    start(dir.path()).await.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_folder_that_holds_something_else_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("thesis.txt"), "years of work").unwrap();
    let error = Broker::start(config(dir.path())).await.unwrap_err();
    assert!(matches!(error, StartError::Storage(OpenError::NotADataDir { .. })), "{error}");
    assert!(dir.path().join("thesis.txt").exists());
}

#[tokio::test]
async fn a_folder_of_a_later_version_is_refused_by_its_version() {
    let dir = tempfile::tempdir().unwrap();
    start(dir.path()).await.shutdown().await.unwrap();
    let meta = std::fs::read_to_string(dir.path().join("meta")).unwrap();
    std::fs::write(dir.path().join("meta"), meta.replace("tidegate-data 1", "tidegate-data 2")).unwrap();
    let error = Broker::start(config(dir.path())).await.unwrap_err();
    match error {
        StartError::Storage(OpenError::FormatVersion { found, supported, .. }) => {
            assert_eq!((found.as_str(), supported), ("2", 1));
        }
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn folders_of_topics_that_are_not_there_are_cleared_away() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 1, &[]).await;
    broker.shutdown().await.unwrap();
    let orphan = dir.path().join("partitions").join("9b2f3c1e-0d3a-4f0e-9a51-0c1d2e3f4a5b-0");
    std::fs::create_dir(&orphan).unwrap();
    let broker = start(dir.path()).await;
    assert!(!orphan.exists());
    let mut client = Client::connect(broker.addr()).await;
    assert_eq!(client.produce("t", 0, batch(&[1])).await.error_code, 0);
}

#[tokio::test]
async fn no_acknowledged_record_waits_for_the_shutdown() {
    // The answer alone promises: whatever the policy, the bytes are in the file when it comes.
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 1, &[]).await;
    let sent = batch(&[1, 2, 3]);
    client.produce("t", 0, sent.clone()).await;
    let folder = std::fs::read_dir(dir.path().join("partitions")).unwrap().next().unwrap().unwrap().path();
    let log = std::fs::read(folder.join("00000000000000000000.log")).unwrap();
    assert_eq!(log[16..], sent[16..]);
}

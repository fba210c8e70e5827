//! DescribeCluster (KIP-700), DescribeLogDirs and OffsetForLeaderEpoch (KIP-320): trivial where one broker leads for ever.

use std::collections::{HashMap, HashSet};

use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use kafka_protocol::messages::offset_for_leader_epoch_request::OffsetForLeaderPartition;
use kafka_protocol::messages::offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult};
use kafka_protocol::messages::{
    DescribeClusterRequest, DescribeClusterResponse, DescribeLogDirsRequest, DescribeLogDirsResponse,
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::metadata::wire_name;
use super::{Facts, Peer, check_leader_epoch, find_topic};
use crate::shared::{NODE_ID, Shared};
use crate::storage::log::LEADER_EPOCH;

/// The endpoint type of brokers; the other one is that of controllers.
const BROKERS: i8 = 1;

pub(super) fn describe_cluster(
    shared: &Shared,
    request: &DescribeClusterRequest,
    peer: &Peer<'_>,
    facts: Facts,
) -> DescribeClusterResponse {
    if facts.version >= 1 && request.endpoint_type != BROKERS {
        return DescribeClusterResponse::default()
            .with_error_code(ResponseError::MismatchedEndpointType.code())
            .with_error_message(Some(StrBytes::from_static_str("this is a broker's endpoint")));
    }
    let (host, port) = shared.advertised(peer.local);
    let broker = DescribeClusterBroker::default()
        .with_broker_id(NODE_ID.into())
        .with_host(StrBytes::from_string(host))
        .with_port(i32::from(port));
    DescribeClusterResponse::default()
        .with_cluster_id(StrBytes::from_string(shared.storage.cluster_id().to_owned()))
        .with_controller_id(NODE_ID.into())
        .with_brokers(vec![broker])
}

pub(super) fn describe_log_dirs(shared: &Shared, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse {
    let wanted: Option<HashMap<String, HashSet<i32>>> = request.topics.map(|topics| {
        let mut wanted: HashMap<String, HashSet<i32>> = HashMap::new();
        for topic in topics {
            wanted.entry(topic.topic.to_string()).or_default().extend(topic.partitions);
        }
        wanted
    });
    let is_wanted = |topic: &str, partition| {
        wanted.as_ref().is_none_or(|wanted| wanted.get(topic).is_some_and(|of| of.contains(&partition)))
    };
    let topics = shared.storage.topics();
    let topics = topics.iter().map(|topic| {
        let logs = (0_i32..).zip(&topic.partitions).filter(|(partition, _)| is_wanted(topic.name.as_str(), *partition));
        let partitions = logs.map(|(partition, log)| {
            let bytes: u64 = log.view().stretches().map(|stretch| stretch.extent.bytes).sum();
            DescribeLogDirsPartition::default()
                .with_partition_index(partition)
                .with_partition_size(i64::try_from(bytes).unwrap_or(i64::MAX))
        });
        DescribeLogDirsTopic::default().with_name(wire_name(&topic.name)).with_partitions(partitions.collect())
    });
    let dir = DescribeLogDirsResult::default()
        .with_log_dir(StrBytes::from_string(shared.config.data_dir.display().to_string()))
        .with_topics(topics.filter(|topic| !topic.partitions.is_empty()).collect());
    DescribeLogDirsResponse::default().with_results(vec![dir])
}

pub(super) fn offset_for_leader_epoch(
    shared: &Shared,
    request: &OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let topics = request.topics.iter().map(|topic| {
        let found = find_topic(shared, &topic.topic, Uuid::nil(), false);
        let end = |wanted: &OffsetForLeaderPartition| -> Result<Option<i64>, ResponseError> {
            let log = found.as_ref().map_err(|error| *error)?.partition(wanted.partition);
            let log = log.ok_or(ResponseError::UnknownTopicOrPartition)?;
            check_leader_epoch(wanted.current_leader_epoch)?;
            Ok((wanted.leader_epoch == LEADER_EPOCH).then(|| log.view().high_watermark()))
        };
        let partitions = topic.partitions.iter().map(|wanted| {
            let result = EpochEndOffset::default().with_partition(wanted.partition);
            match end(wanted) {
                Ok(Some(end)) => result.with_leader_epoch(LEADER_EPOCH).with_end_offset(end),
                // An epoch that never was.
                Ok(None) => result.with_leader_epoch(-1).with_end_offset(-1),
                Err(error) => result.with_leader_epoch(-1).with_end_offset(-1).with_error_code(error.code()),
            }
        });
        OffsetForLeaderTopicResult::default().with_topic(topic.topic.clone()).with_partitions(partitions.collect())
    });
    OffsetForLeaderEpochResponse::default().with_topics(topics.collect())
}

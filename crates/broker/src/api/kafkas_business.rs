//! What the embedded broker leaves to Apache Kafka: transactions, ACLs and the group protocol of KIP-848. Each request is
//! answered, with a refusal in the field where a client shows it; a closed connection would tell nobody why.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResult, AddPartitionsToTxnTopicResult,
};
use kafka_protocol::messages::create_acls_response::AclCreationResult;
use kafka_protocol::messages::delete_acls_response::DeleteAclsFilterResult;
use kafka_protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;

use super::{Facts, Refusal, refusals};

pub(super) fn add_partitions_to_txn(request: AddPartitionsToTxnRequest, facts: Facts) -> AddPartitionsToTxnResponse {
    let code = refusals::transactions("AddPartitionsToTxn").error.code();
    let refuse = |topics: Vec<AddPartitionsToTxnTopic>| {
        let topics = topics.into_iter().map(|topic| {
            let partitions = topic.partitions.into_iter().map(|partition| {
                AddPartitionsToTxnPartitionResult::default()
                    .with_partition_index(partition)
                    .with_partition_error_code(code)
            });
            AddPartitionsToTxnTopicResult::default()
                .with_name(topic.name)
                .with_results_by_partition(partitions.collect())
        });
        topics.collect::<Vec<_>>()
    };
    if facts.version < 4 {
        let results = refuse(request.v3_and_below_topics);
        return AddPartitionsToTxnResponse::default().with_results_by_topic_v3_and_below(results);
    }
    let results = request.transactions.into_iter().map(|transaction| {
        AddPartitionsToTxnResult::default()
            .with_transactional_id(transaction.transactional_id)
            .with_topic_results(refuse(transaction.topics))
    });
    AddPartitionsToTxnResponse::default().with_error_code(code).with_results_by_transaction(results.collect())
}

pub(super) fn add_offsets_to_txn() -> AddOffsetsToTxnResponse {
    AddOffsetsToTxnResponse::default().with_error_code(refusals::transactions("AddOffsetsToTxn").error.code())
}

pub(super) fn end_txn() -> EndTxnResponse {
    EndTxnResponse::default().with_error_code(refusals::transactions("EndTxn").error.code())
}

pub(super) fn txn_offset_commit(request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse {
    let code = refusals::transactions("TxnOffsetCommit").error.code();
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter().map(|partition| {
            TxnOffsetCommitResponsePartition::default()
                .with_partition_index(partition.partition_index)
                .with_error_code(code)
        });
        TxnOffsetCommitResponseTopic::default().with_name(topic.name).with_partitions(partitions.collect())
    });
    TxnOffsetCommitResponse::default().with_topics(topics.collect())
}

/// The error is what Kafka answers without an authorizer.
fn acls() -> Refusal {
    let text = "the embedded broker has no authentication and no ACLs; use Apache Kafka for both";
    Refusal::new(ResponseError::SecurityDisabled, text)
}

pub(super) fn describe_acls() -> DescribeAclsResponse {
    let refusal = acls();
    DescribeAclsResponse::default().with_error_code(refusal.error.code()).with_error_message(refusal.text())
}

pub(super) fn create_acls(request: &CreateAclsRequest) -> CreateAclsResponse {
    let refusal = acls();
    let results = request
        .creations
        .iter()
        .map(|_| AclCreationResult::default().with_error_code(refusal.error.code()).with_error_message(refusal.text()));
    CreateAclsResponse::default().with_results(results.collect())
}

pub(super) fn delete_acls(request: &DeleteAclsRequest) -> DeleteAclsResponse {
    let refusal = acls();
    let results = request.filters.iter().map(|_| {
        DeleteAclsFilterResult::default().with_error_code(refusal.error.code()).with_error_message(refusal.text())
    });
    DeleteAclsResponse::default().with_filter_results(results.collect())
}

/// KIP-848. The error is what Kafka answers where the protocol is switched off; clients then end and say so.
pub(super) fn consumer_group_heartbeat() -> ConsumerGroupHeartbeatResponse {
    let text = "the embedded broker has the classic group protocol only: group.protocol=classic";
    ConsumerGroupHeartbeatResponse::default()
        .with_error_code(ResponseError::UnsupportedVersion.code())
        .with_error_message(Some(StrBytes::from_static_str(text)))
}

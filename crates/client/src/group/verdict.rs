//! What an error of librdkafka's means for the source. Pure.

use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use tidegate_model::TopicPartition;

use super::error::GroupError;
use super::options::GroupOptions;

/// Whether to go on.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It may pass, or librdkafka deals with it.
    Pass,
    /// The source is at its end.
    End(GroupError),
}

/// An error that librdkafka told its consumer. `was_assigned`: the group has given partitions to this member before.
pub(super) fn of_trouble(
    options: &GroupOptions,
    code: Option<Code>,
    fatal: bool,
    was_assigned: bool,
    words: String,
) -> Verdict {
    let group = options.group_id.clone();
    Verdict::End(match code {
        Some(Code::FencedInstanceId | Code::UnreleasedInstanceId) => fenced(options),
        Some(Code::GroupAuthorizationFailed | Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed) => {
            GroupError::NotAuthorized { group, reason: words }
        }
        // What brokers refuse once they may take later, as when a password is changed in two places.
        Some(Code::Authentication | Code::SaslAuthenticationFailed | Code::SSL) if !was_assigned => {
            GroupError::ShutOut { group, reason: words }
        }
        Some(
            Code::InconsistentGroupProtocol
            | Code::InvalidSessionTimeout
            | Code::InvalidGroupId
            | Code::GroupMaxSizeReached
            | Code::UnsupportedAssignor
            | Code::UnsupportedVersion
            | Code::UnsupportedFeature,
        ) => GroupError::Refused { group, reason: words },
        _ if fatal => GroupError::Refused { group, reason: words },
        _ => return Verdict::Pass,
    })
}

/// A commit of these partitions that failed.
pub(super) fn of_commit(options: &GroupOptions, partitions: Vec<TopicPartition>, error: &KafkaError) -> Verdict {
    Verdict::End(match error.rdkafka_error_code() {
        Some(Code::FencedInstanceId) => fenced(options),
        Some(
            Code::OffsetMetadataTooLarge
            | Code::InvalidCommitOffsetSize
            | Code::GroupAuthorizationFailed
            | Code::TopicAuthorizationFailed,
        ) => GroupError::CommitRefused { partitions, reason: error.to_string() },
        // A generation that is over is told as a rebalance; until then the marks wait.
        _ => return Verdict::Pass,
    })
}

/// Whether a commit failed because of a topic that the coordinator does not know: no other partition is to wait for it.
pub(super) fn is_of_an_unknown_topic(error: &KafkaError) -> bool {
    matches!(error.rdkafka_error_code(), Some(Code::UnknownTopicOrPartition | Code::UnknownTopicId))
}

/// A look-up of these partitions' committed offsets that failed.
pub(super) fn of_look_up(partitions: &[TopicPartition], error: &KafkaError) -> Verdict {
    let Some(at) = partitions.first() else { return Verdict::Pass };
    match error.rdkafka_error_code() {
        Some(Code::GroupAuthorizationFailed | Code::TopicAuthorizationFailed | Code::BadMessage) => {
            Verdict::End(GroupError::Committed { topic_partition: at.clone(), reason: error.to_string() })
        }
        _ => Verdict::Pass,
    }
}

fn fenced(options: &GroupOptions) -> GroupError {
    GroupError::Fenced {
        group: options.group_id.clone(),
        instance: options.group_instance_id.clone().unwrap_or_default(),
    }
}

//! OffsetCommit, OffsetFetch and OffsetDelete (KIP-496).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::offset_commit_request::OffsetCommitRequestPartition;
use kafka_protocol::messages::offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
use kafka_protocol::messages::offset_delete_response::{OffsetDeleteResponsePartition, OffsetDeleteResponseTopic};
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions, OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{
    OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest, OffsetDeleteResponse, OffsetFetchRequest,
    OffsetFetchResponse, TopicName as WireName,
};
use kafka_protocol::protocol::StrBytes;
use tidegate_model::{TopicName, TopicPartition};
use uuid::Uuid;

use super::membership::check_offsets_group_id;
use super::metadata::wire_name;
use super::{Facts, find_topic};
use crate::clock;
use crate::groups::machine::Group;
use crate::shared::{NotCarriedOut, Shared};
use crate::storage::Topic;
use crate::storage::offsets::{Change, ChangeKind, CommittedOffset, GroupOffsets, Queued};

/// The first version of OffsetFetch that asks for several groups (KIP-709).
const FIRST_WITH_GROUPS: i16 = 8;

/// As an offset: none was committed.
const NO_OFFSET: i64 = -1;

pub(super) async fn offset_commit(shared: &Arc<Shared>, request: OffsetCommitRequest) -> OffsetCommitResponse {
    let group = request.group_id.to_string();
    let now_ms = clock::now_ms();
    // The last one counts for a partition that is named again: the others would be written down for nothing.
    let mut offsets = BTreeMap::new();
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let found = find_topic(shared, &topic.name, Uuid::nil(), false);
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for partition in topic.partitions {
            let mut response = OffsetCommitResponsePartition::default().with_partition_index(partition.partition_index);
            match check_offset(shared, &found, &partition, now_ms) {
                Ok((at, offset)) => drop(offsets.insert(at, offset)),
                Err(error) => response.error_code = error.code(),
            }
            partitions.push(response);
        }
        topics.push(OffsetCommitResponseTopic::default().with_name(topic.name).with_partitions(partitions));
    }
    let member = Arc::from(request.member_id.as_str());
    let instance = request.group_instance_id.as_ref().map(|instance| Arc::from(instance.as_str()));
    let of = (&member, instance.as_ref(), request.generation_id_or_member_epoch);
    let offsets = offsets.into_iter().collect();
    let change = |protocol_type| Change { group: group.clone(), kind: ChangeKind::Commit { protocol_type, offsets } };
    let queued = check_offsets_group_id(&group)
        .and_then(|()| shared.groups.queue_commit(&group, of, shared.storage.offsets(), Instant::now(), change));
    let committed = match queued {
        Ok(queued) => write(shared, queued).await,
        Err(error) => Err(error),
    };
    if let Err(error) = committed {
        for partition in topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
            if partition.error_code == 0 {
                partition.error_code = error.code();
            }
        }
    }
    OffsetCommitResponse::default().with_topics(topics)
}

/// Writes a change that has its place in the order.
pub(super) async fn write(shared: &Arc<Shared>, queued: Queued) -> Result<(), ResponseError> {
    match shared.writing(move |shared| shared.storage.offsets().write_queued(&queued)).await {
        Ok(Ok(())) => Ok(()),
        // Clients look for the coordinator and try again: it may be a broker that has been started anew.
        Ok(Err(error)) => {
            tracing::error!(%error, "cannot write committed offsets");
            Err(ResponseError::CoordinatorNotAvailable)
        }
        Err(NotCarriedOut) => Err(ResponseError::UnknownServerError),
    }
}

fn check_offset(
    shared: &Shared,
    topic: &Result<Arc<Topic>, ResponseError>,
    partition: &OffsetCommitRequestPartition,
    now_ms: i64,
) -> Result<(TopicPartition, CommittedOffset), ResponseError> {
    let topic = topic.as_ref().map_err(|error| *error)?;
    topic.partition(partition.partition_index).ok_or(ResponseError::UnknownTopicOrPartition)?;
    let metadata = partition.committed_metadata.as_deref().unwrap_or_default();
    if metadata.len() > shared.config.limits.max_offset_metadata_bytes {
        return Err(ResponseError::OffsetMetadataTooLarge);
    }
    let committed = CommittedOffset {
        topic_id: topic.id,
        offset: partition.committed_offset,
        leader_epoch: partition.committed_leader_epoch,
        committed_ms: now_ms,
        metadata: metadata.to_owned(),
    };
    Ok((TopicPartition::new(topic.name.clone(), partition.partition_index), committed))
}

/// Topics with an answer for each partition.
type Fetched<T> = Vec<(WireName, Vec<T>)>;

pub(super) fn offset_fetch(shared: &Shared, request: OffsetFetchRequest, facts: Facts) -> OffsetFetchResponse {
    if facts.version < FIRST_WITH_GROUPS {
        let wanted = request.topics.map(|topics| topics.into_iter().map(|topic| (topic.name, topic.partition_indexes)));
        let found = fetch(shared, &request.group_id, wanted, |partition, found| {
            let (offset, epoch, metadata) = told(found);
            OffsetFetchResponsePartition::default()
                .with_partition_index(partition)
                .with_committed_offset(offset)
                .with_committed_leader_epoch(epoch)
                .with_metadata(Some(metadata))
        });
        let (found, code) = found.map_or_else(|error| (Vec::new(), error.code()), |found| (found, 0));
        let topics = found
            .into_iter()
            .map(|(name, partitions)| OffsetFetchResponseTopic::default().with_name(name).with_partitions(partitions));
        return OffsetFetchResponse::default().with_topics(topics.collect()).with_error_code(code);
    }
    // A group is answered for once, however often it is asked for: an answer must not outgrow its request.
    let mut seen = HashSet::new();
    let groups = request.groups.into_iter().filter(|group| seen.insert(group.group_id.clone()));
    let groups = groups.map(|group| {
        let wanted = group.topics.map(|topics| topics.into_iter().map(|topic| (topic.name, topic.partition_indexes)));
        let found = fetch(shared, &group.group_id, wanted, |partition, found| {
            let (offset, epoch, metadata) = told(found);
            OffsetFetchResponsePartitions::default()
                .with_partition_index(partition)
                .with_committed_offset(offset)
                .with_committed_leader_epoch(epoch)
                .with_metadata(Some(metadata))
        });
        let response = OffsetFetchResponseGroup::default().with_group_id(group.group_id);
        match found {
            Ok(found) => {
                let topics = found.into_iter().map(|(name, partitions)| {
                    OffsetFetchResponseTopics::default().with_name(name).with_partitions(partitions)
                });
                response.with_topics(topics.collect())
            }
            Err(error) => response.with_error_code(error.code()),
        }
    });
    OffsetFetchResponse::default().with_groups(groups.collect())
}

/// Offset, leader epoch and metadata, as they are told.
fn told(found: Option<&CommittedOffset>) -> (i64, i32, StrBytes) {
    match found {
        Some(found) => (found.offset, found.leader_epoch, StrBytes::from_string(found.metadata.clone())),
        None => (NO_OFFSET, -1, StrBytes::default()),
    }
}

/// What a group has committed for the wanted partitions, or for all when none are named. There are no transactions, so
/// every offset is stable.
fn fetch<T>(
    shared: &Shared,
    group: &str,
    wanted: Option<impl Iterator<Item = (WireName, Vec<i32>)>>,
    answer: impl Fn(i32, Option<&CommittedOffset>) -> T,
) -> Result<Fetched<T>, ResponseError> {
    check_offsets_group_id(group)?;
    let read = |of: Option<&GroupOffsets>| {
        let Some(wanted) = wanted else {
            let mut found: BTreeMap<&TopicName, Vec<T>> = BTreeMap::new();
            for (at, offset) in of.iter().flat_map(|of| &of.offsets) {
                if is_current(shared, &at.topic, offset) {
                    found.entry(&at.topic).or_default().push(answer(at.partition, Some(offset)));
                }
            }
            return found.into_iter().map(|(topic, answers)| (wire_name(topic), answers)).collect();
        };
        let mut seen: HashMap<WireName, HashSet<i32>> = HashMap::new();
        let of_topic = |(name, mut partitions): (WireName, Vec<i32>)| {
            // Each partition once.
            let seen = seen.entry(name.clone()).or_default();
            partitions.retain(|partition| seen.insert(*partition));
            let topic = TopicName::new(&name).ok();
            let answers = partitions.into_iter().map(|partition| {
                let offset = of.zip(topic.as_ref()).and_then(|(of, topic)| {
                    let offset = of.offsets.get(&TopicPartition::new(topic.clone(), partition))?;
                    is_current(shared, topic, offset).then_some(offset)
                });
                answer(partition, offset)
            });
            (name, answers.collect())
        };
        wanted.map(of_topic).collect()
    };
    Ok(shared.storage.offsets().read(group, read))
}

/// Whether an offset is of the topic that is there now. One that was committed while the topic was being deleted is not.
fn is_current(shared: &Shared, topic: &TopicName, offset: &CommittedOffset) -> bool {
    shared.storage.topic(topic).is_some_and(|topic| topic.id == offset.topic_id)
}

pub(super) async fn offset_delete(shared: &Arc<Shared>, request: OffsetDeleteRequest) -> OffsetDeleteResponse {
    let group = request.group_id.to_string();
    let store = shared.storage.offsets();
    if let Err(error) = check_offsets_group_id(&group) {
        return OffsetDeleteResponse::default().with_error_code(error.code());
    }
    if shared.groups.describe(&group).is_none() && store.group(&group, |_| ()).is_none() {
        return OffsetDeleteResponse::default().with_error_code(ResponseError::GroupIdNotFound.code());
    }
    let mut wanted = BTreeSet::new();
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let found = find_topic(shared, &topic.name, Uuid::nil(), false);
        let partitions = topic.partitions.into_iter().map(|partition| {
            let index = partition.partition_index;
            let response = OffsetDeleteResponsePartition::default().with_partition_index(index);
            match &found {
                Ok(topic) if topic.partition(index).is_some() => {
                    wanted.insert(TopicPartition::new(topic.name.clone(), index));
                    response
                }
                _ => response.with_error_code(ResponseError::UnknownTopicOrPartition.code()),
            }
        });
        let partitions = partitions.collect();
        topics.push(OffsetDeleteResponseTopic::default().with_name(topic.name).with_partitions(partitions));
    }
    // Whatever its members read, they would commit it again or be led astray. Kafka looks into their subscriptions, and lets
    // go of the topics that are not among them; here the group has to be empty.
    let allowed = |group: Option<&Group>| match group {
        Some(group) if group.has_members() => Err(ResponseError::GroupSubscribedToTopic),
        _ => Ok(()),
    };
    let change = Change { group, kind: ChangeKind::Remove(wanted.into_iter().collect()) };
    let removed = match shared.groups.queue_change(change, store, allowed) {
        Ok(queued) => write(shared, queued).await,
        Err(error) => Err(error),
    };
    if let Err(error) = removed {
        for partition in topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
            if partition.error_code == 0 {
                partition.error_code = error.code();
            }
        }
    }
    OffsetDeleteResponse::default().with_topics(topics)
}

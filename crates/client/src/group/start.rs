//! Where an assigned partition begins: the committed offset, checked against the log, or what the policies say.

use std::collections::BTreeMap;

use tidegate_model::{Isolation, TopicName, TopicPartition};

use super::error::GroupError;
use super::event::AssignedPartition;
use super::options::{OffsetReset, OnDataLoss};
use crate::cluster::Cluster;
use crate::offsets::{ListOffsetsError, OffsetAnswer, OffsetQuery};

/// What the group has committed for a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Committed {
    pub(super) topic_partition: TopicPartition,
    /// `None`: nothing.
    pub(super) offset: Option<i64>,
    /// Empty where there is none.
    pub(super) metadata: String,
}

/// A log's bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) log_start_offset: i64,
    pub(super) high_watermark: i64,
    /// The high watermark, or the last stable offset under read_committed.
    pub(super) latest: i64,
}

/// What is done where an offset is missing or not in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    pub(super) reset: OffsetReset,
    pub(super) on_data_loss: OnDataLoss,
}

/// Where reading begins, or goes on, for `offset`; `committed`: it is the group's, not a position reached since.
pub(super) fn decide(
    at: &TopicPartition,
    offset: Option<i64>,
    committed: bool,
    bounds: Bounds,
    policy: Policy,
) -> Result<i64, GroupError> {
    let Bounds { log_start_offset, high_watermark, latest } = bounds;
    let error = match offset {
        Some(offset) if (log_start_offset..=high_watermark).contains(&offset) => return Ok(offset),
        Some(offset) => {
            let topic_partition = at.clone();
            let error = GroupError::OutOfRange { topic_partition, offset, committed, log_start_offset, high_watermark };
            if policy.on_data_loss == OnDataLoss::Stop {
                return Err(error);
            }
            error
        }
        None => GroupError::NoCommittedOffset { topic_partition: at.clone() },
    };
    match policy.reset {
        OffsetReset::Earliest => Ok(log_start_offset),
        OffsetReset::Latest => Ok(latest),
        OffsetReset::None => Err(error),
    }
}

/// The bounds of some partitions of a topic.
pub(super) async fn bounds(
    cluster: &Cluster,
    topic: &TopicName,
    partitions: &[i32],
    isolation: Isolation,
) -> Result<BTreeMap<i32, Bounds>, ListOffsetsError> {
    let of = |query| partitions.iter().map(|partition| (*partition, query)).collect::<Vec<_>>();
    let mut queries = of(OffsetQuery::Earliest);
    queries.extend(of(OffsetQuery::Latest));
    let answers = cluster.list_offsets(topic, &queries, Isolation::ReadUncommitted).await?;
    let latest = match isolation {
        Isolation::ReadUncommitted => Vec::new(),
        Isolation::ReadCommitted => cluster.list_offsets(topic, &of(OffsetQuery::Latest), isolation).await?,
    };
    let offset = |answer: &OffsetAnswer| answer.found.map_or(0, |found| found.offset);
    let (starts, ends) = answers.split_at(partitions.len().min(answers.len()));
    let mut found = BTreeMap::new();
    for (index, (start, end)) in starts.iter().zip(ends).enumerate() {
        let (log_start_offset, high_watermark) = (offset(start), offset(end));
        let latest = latest.get(index).map_or(high_watermark, offset);
        found.insert(start.partition, Bounds { log_start_offset, high_watermark, latest });
    }
    Ok(found)
}

/// Where these partitions begin, sorted.
pub(super) async fn starts(
    cluster: &Cluster,
    committed: Vec<Committed>,
    isolation: Isolation,
    policy: Policy,
) -> Result<Vec<AssignedPartition>, GroupError> {
    let mut by_topic = BTreeMap::<TopicName, Vec<i32>>::new();
    for Committed { topic_partition, .. } in &committed {
        by_topic.entry(topic_partition.topic.clone()).or_default().push(topic_partition.partition);
    }
    let mut logs = BTreeMap::new();
    for (topic, partitions) in by_topic {
        for (partition, bounds) in bounds(cluster, &topic, &partitions, isolation).await? {
            logs.insert(TopicPartition::new(topic.clone(), partition), bounds);
        }
    }
    let mut starts = Vec::new();
    for Committed { topic_partition, offset, metadata } in committed {
        let Some(bounds) = logs.get(&topic_partition) else {
            return Err(ListOffsetsError::UnknownPartition { topic_partition }.into());
        };
        let start = decide(&topic_partition, offset, true, *bounds, policy)?;
        let metadata = Some(metadata).filter(|metadata| !metadata.is_empty());
        starts.push(AssignedPartition { topic_partition, start, committed: offset, metadata });
    }
    starts.sort();
    Ok(starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { log_start_offset: 100, high_watermark: 200, latest: 190 };

    fn decided(offset: Option<i64>, reset: OffsetReset, on_data_loss: OnDataLoss) -> Result<i64, String> {
        let at = TopicPartition::new(TopicName::new("t").unwrap(), 3);
        decide(&at, offset, true, BOUNDS, Policy { reset, on_data_loss }).map_err(|error| error.to_string())
    }

    #[test]
    fn a_committed_offset_inside_the_log_is_where_reading_begins_whatever_the_policies() {
        for offset in [100, 150, 195, 200] {
            for reset in [OffsetReset::Earliest, OffsetReset::Latest, OffsetReset::None] {
                for on_data_loss in [OnDataLoss::Stop, OnDataLoss::Reset] {
                    assert_eq!(decided(Some(offset), reset, on_data_loss), Ok(offset));
                }
            }
        }
    }

    #[test]
    fn without_a_committed_offset_the_reset_policy_decides() {
        for on_data_loss in [OnDataLoss::Stop, OnDataLoss::Reset] {
            assert_eq!(decided(None, OffsetReset::Earliest, on_data_loss), Ok(100));
            assert_eq!(decided(None, OffsetReset::Latest, on_data_loss), Ok(190));
            assert!(decided(None, OffsetReset::None, on_data_loss).unwrap_err().contains("t-3"));
        }
    }

    #[test]
    fn outside_of_the_log_is_an_error_with_both_offsets_unless_a_reset_is_wanted() {
        let lost = decided(Some(60), OffsetReset::Earliest, OnDataLoss::Stop).unwrap_err();
        assert!(lost.contains("offset 60") && lost.contains("100") && lost.contains("40 offsets are lost"), "{lost}");
        let truncated = decided(Some(201), OffsetReset::Earliest, OnDataLoss::Stop).unwrap_err();
        assert!(truncated.contains("201") && truncated.contains("200") && truncated.contains("truncated"));
        assert_eq!(decided(Some(60), OffsetReset::Earliest, OnDataLoss::Reset), Ok(100));
        assert_eq!(decided(Some(60), OffsetReset::Latest, OnDataLoss::Reset), Ok(190));
        assert!(decided(Some(60), OffsetReset::None, OnDataLoss::Reset).is_err());
    }
}

//! Whether a log still holds what was read of it (KIP-320).
//!
//! A replica that lacks records may be elected all the same (unclean leader election). It writes other records at the offsets
//! of the lost ones, and whoever goes on behind those reads two histories as one. Each batch names the epoch of the leader that
//! appended it, and a leader can tell where the batches of an epoch end in its log: before the position, if it lacks some.

use kafka_protocol::messages::offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use kafka_protocol::messages::{BrokerId, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};
use kafka_protocol::protocol::StrBytes;
use parking_lot::Mutex;
use tidegate_model::TopicPartition;

use crate::error::{KafkaCode, code};

/// Where what was read ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// The offset behind the last batch, or behind the part of it that was asked for.
    pub(super) position: i64,
    /// The leader that appended that batch.
    pub(super) epoch: i32,
    /// The leader in whose log it was seen last.
    pub(super) seen_under: i32,
}

/// The mark of a reader, which its pieces move.
#[derive(Debug, Default)]
pub(super) struct Lineage {
    mark: Mutex<Option<Mark>>,
}

impl Lineage {
    /// A batch was read. Older messages, which name no epoch, and leaders without one are not judged.
    pub(super) fn read(&self, new: Mark) {
        let mut mark = self.mark.lock();
        let is_known = new.epoch >= 0 && new.seen_under >= 0;
        // What came from an older leader, as an answer that was on its way, is still to be judged; else the furthest tells
        // of all in front of it.
        let tells_more = |old: Mark| (old.seen_under, new.position) > (new.seen_under, old.position);
        if is_known && mark.is_none_or(tells_more) {
            *mark = Some(new);
        }
    }

    /// What a leader of this epoch is to be asked after, before anything is fetched from it.
    pub(super) fn question(&self, leader_epoch: i32) -> Option<Mark> {
        (*self.mark.lock()).filter(|mark| mark.seen_under < leader_epoch)
    }

    /// The leader of this epoch has it too.
    pub(super) fn confirm(&self, confirmed: Mark, leader_epoch: i32) {
        if let Some(mark) = self.mark.lock().as_mut().filter(|mark| **mark == confirmed) {
            mark.seen_under = leader_epoch;
        }
    }
}

/// Asks the leader of `leader_epoch` where the batches of the mark's epoch end.
pub(super) fn build(at: &TopicPartition, mark: Mark, leader_epoch: i32) -> OffsetForLeaderEpochRequest {
    let partition = OffsetForLeaderPartition::default()
        .with_partition(at.partition)
        .with_current_leader_epoch(leader_epoch)
        .with_leader_epoch(mark.epoch);
    let topic = OffsetForLeaderTopic::default()
        .with_topic(kafka_protocol::messages::TopicName(StrBytes::from_string(at.topic.as_str().to_owned())))
        .with_partitions(vec![partition]);
    OffsetForLeaderEpochRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic])
}

/// Where they end; `None`, when the leader does not know. The outer `Err` says what is wrong with the response.
pub(super) fn check(
    response: OffsetForLeaderEpochResponse,
    at: &TopicPartition,
) -> Result<Result<Option<i64>, KafkaCode>, String> {
    let mut partitions =
        response.topics.into_iter().filter(|t| t.topic.as_str() == at.topic.as_str()).flat_map(|t| t.partitions);
    match partitions.find(|partition| partition.partition == at.partition) {
        Some(answer) if answer.error_code != code::NONE => Ok(Err(KafkaCode(answer.error_code))),
        Some(answer) => Ok(Ok(Some(answer.end_offset).filter(|end| *end >= 0))),
        None => Err(format!("it says nothing of partition {at}")),
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult};
    use kafka_protocol::protocol::Encodable as _;
    use tidegate_model::TopicName;

    use super::*;

    fn mark(position: i64, epoch: i32, seen_under: i32) -> Mark {
        Mark { position, epoch, seen_under }
    }

    fn at(partition: i32) -> TopicPartition {
        TopicPartition::new(TopicName::new("orders").unwrap(), partition)
    }

    #[test]
    fn only_a_newer_leader_is_asked_and_only_once() {
        let lineage = Lineage::default();
        assert_eq!(lineage.question(9), None, "nothing was read yet");
        lineage.read(mark(10, 2, 5));
        assert_eq!(lineage.question(5), None);
        assert_eq!(lineage.question(-1), None);
        let asked = lineage.question(6).unwrap();
        assert_eq!(asked, mark(10, 2, 5));
        lineage.confirm(asked, 6);
        assert_eq!(lineage.question(6), None);
        assert_eq!(lineage.question(7), Some(mark(10, 2, 6)));
    }

    #[test]
    fn the_furthest_batch_is_asked_after_whatever_the_order_of_the_pieces() {
        let lineage = Lineage::default();
        for position in [20, 10, 30, 25] {
            lineage.read(mark(position, 2, 5));
        }
        assert_eq!(lineage.question(6), Some(mark(30, 2, 5)));
    }

    #[test]
    fn an_answer_of_the_old_leader_that_comes_late_is_judged_by_the_new_one() {
        let lineage = Lineage::default();
        lineage.read(mark(30, 6, 6));
        lineage.read(mark(20, 5, 5));
        assert_eq!(lineage.question(6), Some(mark(20, 5, 5)));
        let late = lineage.question(6).unwrap();
        lineage.read(mark(25, 5, 5));
        lineage.confirm(late, 6);
        assert_eq!(lineage.question(6), Some(mark(25, 5, 5)), "another one was confirmed");
    }

    #[test]
    fn what_names_no_epoch_is_not_judged() {
        let lineage = Lineage::default();
        lineage.read(mark(10, -1, 5));
        lineage.read(mark(10, 2, -1));
        assert_eq!(lineage.question(9), None);
    }

    #[test]
    fn every_version_encodes_and_answers_are_told_apart() {
        for version in 2..=4 {
            build(&at(1), mark(10, 2, 5), 6).encode(&mut bytes::BytesMut::new(), version).unwrap();
        }
        let response = |error_code, end_offset| {
            let answer =
                EpochEndOffset::default().with_partition(1).with_error_code(error_code).with_end_offset(end_offset);
            let name = kafka_protocol::messages::TopicName(StrBytes::from_static_str("orders"));
            let topic = OffsetForLeaderTopicResult::default().with_topic(name).with_partitions(vec![answer]);
            OffsetForLeaderEpochResponse::default().with_topics(vec![topic])
        };
        assert_eq!(check(response(0, 7), &at(1)), Ok(Ok(Some(7))));
        assert_eq!(check(response(0, -1), &at(1)), Ok(Ok(None)));
        assert_eq!(check(response(74, -1), &at(1)), Ok(Err(KafkaCode(74))));
        assert!(check(response(0, 7), &at(0)).is_err());
    }
}

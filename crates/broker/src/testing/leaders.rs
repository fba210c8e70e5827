//! Who leads which partition, and what is shown of it. Pure.

use std::collections::HashMap;

use kafka_protocol::ResponseError;

use super::message::Refusal;

/// The leaders of all partitions. Those that were never moved are spread over the brokers, in epoch 0.
#[derive(Debug)]
pub(super) struct Leaders {
    brokers: i32,
    moved: HashMap<(String, i32), Moved>,
}

/// Who leads a partition, in which epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lead {
    pub(super) node: Option<i32>,
    pub(super) epoch: i32,
}

#[derive(Clone, Copy, Debug)]
struct Moved {
    now: Lead,
    before: Lead,
    /// How many metadata answers still show who led before.
    stale_answers: u32,
}

impl Leaders {
    pub(super) fn new(brokers: i32) -> Self {
        Self { brokers: brokers.max(1), moved: HashMap::new() }
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = i32> + use<> {
        1..=self.brokers
    }

    /// Who leads now.
    pub(super) fn of(&self, topic: &str, partition: i32) -> Lead {
        let moved = self.moved.get(&(topic.to_owned(), partition));
        let node = Some(1 + partition.rem_euclid(self.brokers));
        moved.map_or(Lead { node, epoch: 0 }, |moved| moved.now)
    }

    /// Whom the next metadata answer shows.
    pub(super) fn shown(&mut self, topic: &str, partition: i32) -> Lead {
        if let Some(moved) = self.moved.get_mut(&(topic.to_owned(), partition))
            && moved.stale_answers > 0
        {
            moved.stale_answers -= 1;
            return moved.before;
        }
        self.of(topic, partition)
    }

    /// Gives the lead to another broker, or to nobody; the epoch rises. The next `stale_answers` metadata answers do not
    /// know it yet.
    pub(super) fn set(&mut self, topic: &str, partition: i32, node: Option<i32>, stale_answers: u32) {
        let before = self.of(topic, partition);
        let now = Lead { node, epoch: before.epoch + 1 };
        self.moved.insert((topic.to_owned(), partition), Moved { now, before, stale_answers });
    }

    /// What `node` has to say to a client that takes it for the leader in `epoch` (-1: no opinion). KIP-320.
    pub(super) fn judge(&self, node: i32, topic: &str, partition: i32, epoch: i32) -> Option<Refusal> {
        let lead = self.of(topic, partition);
        if lead.node != Some(node) {
            let leader = lead.node.map(|node| (node, lead.epoch));
            return Some(Refusal { code: ResponseError::NotLeaderOrFollower.code(), leader });
        }
        let code = match epoch {
            -1 => return None,
            epoch if epoch < lead.epoch => ResponseError::FencedLeaderEpoch.code(),
            epoch if epoch > lead.epoch => ResponseError::UnknownLeaderEpoch.code(),
            _ => return None,
        };
        Some(Refusal { code, leader: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lead_that_moves_is_shown_late_and_its_epoch_rises() {
        let mut leaders = Leaders::new(3);
        assert_eq!(leaders.of("t", 4), Lead { node: Some(2), epoch: 0 });
        leaders.set("t", 4, Some(3), 1);
        assert_eq!(leaders.shown("t", 4), Lead { node: Some(2), epoch: 0 });
        assert_eq!(leaders.shown("t", 4), Lead { node: Some(3), epoch: 1 });
        leaders.set("t", 4, None, 0);
        assert_eq!(leaders.shown("t", 4), Lead { node: None, epoch: 2 });
        assert_eq!(leaders.of("t", 1), Lead { node: Some(2), epoch: 0 }, "others stay");
    }

    #[test]
    fn the_wrong_broker_and_the_wrong_epoch_are_told_apart() {
        let mut leaders = Leaders::new(2);
        leaders.set("t", 0, Some(2), 0);
        leaders.set("t", 0, Some(1), 0);
        let code = |node, epoch| leaders.judge(node, "t", 0, epoch).map(|refusal| refusal.code);
        assert_eq!((code(1, -1), code(1, 2)), (None, None));
        assert_eq!((code(2, 2), code(1, 1), code(1, 3)), (Some(6), Some(74), Some(75)));
        assert_eq!(leaders.judge(2, "t", 0, 2).unwrap().leader, Some((1, 2)));
    }
}

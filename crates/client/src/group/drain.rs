//! Giving partitions up in order. Pure: what is seen and the time come in as values.

use std::time::Duration;

use tidegate_model::TopicPartition;
use tokio::time::Instant;

/// How soon to look again during a drain whether the partitions were lost meanwhile.
pub(super) const LOOK: Duration = Duration::from_millis(50);

/// Partitions on their way out. All of them are given up together: librdkafka takes one answer to a rebalance.
#[derive(Debug)]
pub(super) struct Drain {
    /// Sorted.
    partitions: Vec<TopicPartition>,
    until: Instant,
    /// How long the last commit may take after the deadline.
    commit: Duration,
    hurry: bool,
}

/// What is seen of one partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Its task has not handed over yet.
    pub(super) fetching: bool,
    /// Some of it is ready and not handed out.
    pub(super) ready: bool,
    /// All that was handed out is committed.
    pub(super) settled: bool,
    /// All that was marked is committed.
    pub(super) clean: bool,
    /// The source has failed: nobody waits for its consumer.
    pub(super) failed: bool,
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Wait,
    /// The time is up: take back what is not handed out, and commit what is marked.
    Withdraw(Vec<TopicPartition>),
    GiveUp {
        partitions: Vec<TopicPartition>,
        /// Although something that is marked may not be committed.
        forced: bool,
    },
}

impl Drain {
    pub(super) fn new(mut partitions: Vec<TopicPartition>, until: Instant, commit: Duration) -> Self {
        partitions.sort();
        Self { partitions, until, commit, hurry: false }
    }

    pub(super) fn partitions(&self) -> &[TopicPartition] {
        &self.partitions
    }

    /// More partitions are on their way out, together with the others and within their time.
    pub(super) fn add(&mut self, partitions: Vec<TopicPartition>) {
        self.partitions.extend(partitions);
        self.partitions.sort();
        self.partitions.dedup();
        self.hurry = false;
    }

    /// The deadline.
    pub(super) fn until(&self) -> Instant {
        self.until
    }

    pub(super) fn into_partitions(self) -> Vec<TopicPartition> {
        self.partitions
    }

    pub(super) fn holds(&self, at: &TopicPartition) -> bool {
        self.partitions.binary_search(at).is_ok()
    }

    /// Whether the marks of all its partitions do not wait for their turn.
    pub(super) fn hurries(&self) -> bool {
        self.hurry
    }

    pub(super) fn next(&mut self, now: Instant, see: impl Fn(&TopicPartition) -> Seen) -> Next {
        let all = |holds: fn(Seen) -> bool| self.partitions.iter().all(|at| holds(see(at)));
        if all(|seen| !seen.fetching && !seen.ready && seen.settled) {
            return Next::GiveUp { partitions: self.partitions.clone(), forced: false };
        }
        if now < self.until && !all(|seen| seen.failed) {
            return Next::Wait;
        }
        if !self.hurry {
            self.hurry = true;
            return Next::Withdraw(self.partitions.clone());
        }
        let forced = now >= self.until + self.commit;
        if forced || all(|seen| seen.clean) {
            return Next::GiveUp { partitions: self.partitions.clone(), forced };
        }
        Next::Wait
    }
}

#[cfg(test)]
mod tests {
    use tidegate_model::TopicName;

    use super::*;

    const DONE: Seen = Seen { fetching: false, ready: false, settled: true, clean: true, failed: false };

    fn drain(now: Instant) -> Drain {
        let at = |partition| TopicPartition::new(TopicName::new("t").unwrap(), partition);
        Drain::new(vec![at(1), at(0)], now + Duration::from_secs(10), Duration::from_secs(5))
    }

    #[test]
    fn partitions_are_given_up_together_as_soon_as_all_are_handed_out_and_committed() {
        let now = Instant::now();
        for seen in [Seen { fetching: true, ..DONE }, Seen { ready: true, ..DONE }, Seen { settled: false, ..DONE }] {
            let mut drain = drain(now);
            assert_eq!(drain.next(now, |at| if at.partition == 1 { seen } else { DONE }), Next::Wait);
            let partitions = drain.partitions.clone();
            assert_eq!(drain.next(now, |_| DONE), Next::GiveUp { partitions, forced: false });
        }
    }

    #[test]
    fn at_the_deadline_only_what_is_marked_is_waited_for_and_that_not_for_ever() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut drain = drain(begin);
        let marked = |_: &TopicPartition| Seen { settled: false, clean: false, ready: true, ..DONE };
        let unmarked = |_: &TopicPartition| Seen { settled: false, ..DONE };
        assert_eq!(drain.next(at(9), marked), Next::Wait);
        assert!(matches!(drain.next(at(10), marked), Next::Withdraw(_)));
        assert!(drain.hurries());
        assert_eq!(drain.next(at(11), marked), Next::Wait);
        assert!(matches!(drain.next(at(15), marked), Next::GiveUp { forced: true, .. }));
        assert!(matches!(drain.next(at(11), unmarked), Next::GiveUp { forced: false, .. }));
    }

    #[test]
    fn a_source_that_has_failed_waits_for_nobody() {
        let now = Instant::now();
        let failed = |_: &TopicPartition| Seen { settled: false, failed: true, ..DONE };
        let mut drain = drain(now);
        assert!(matches!(drain.next(now, failed), Next::Withdraw(_)));
        assert!(matches!(drain.next(now, failed), Next::GiveUp { .. }));
    }

    #[test]
    fn what_is_added_goes_with_the_others_and_is_withdrawn_too() {
        let begin = Instant::now();
        let mut drain = drain(begin);
        let at = drain.partitions()[0].clone();
        let waits = |_: &TopicPartition| Seen { settled: false, clean: false, ..DONE };
        let late = begin + Duration::from_secs(10);
        assert!(matches!(drain.next(late, waits), Next::Withdraw(_)));
        drain.add(vec![TopicPartition { partition: 7, ..at.clone() }, at]);
        assert_eq!(drain.partitions().iter().map(|at| at.partition).collect::<Vec<_>>(), [0, 1, 7]);
        assert!(matches!(drain.next(late, waits), Next::Withdraw(all) if all.len() == 3));
        assert_eq!(drain.next(late, waits), Next::Wait);
        let Next::GiveUp { partitions, .. } = drain.next(late, |_| DONE) else { panic!() };
        assert_eq!(partitions, drain.into_partitions());
    }
}

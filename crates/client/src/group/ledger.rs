//! Which partitions are held, what of them was handed out, and what is to be committed. Pure: times come in as values.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_model::TopicPartition;
use tokio::time::Instant;

/// A partition is committed at most four times a second, but for when it is given up.
pub(super) const COMMIT_INTERVAL: Duration = Duration::from_millis(250);

/// A commit that failed is not tried again sooner.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// An offset to commit, with its metadata (empty: none).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) offset: i64,
    pub(super) metadata: String,
}

/// The partitions of one member.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: BTreeMap<TopicPartition, Entry>,
    /// What was sent and is not answered. One request at a time: two could overtake each other.
    in_flight: Option<BTreeMap<TopicPartition, Mark>>,
    /// Marks for partitions that are not held, or outside of what was handed out.
    refused: u64,
}

#[derive(Debug)]
struct Entry {
    /// Tells an assignment from an earlier one of the same partition.
    assignment: u64,
    /// Where it began.
    start: i64,
    /// The position after the last chunk that was handed out.
    handed: i64,
    mark: Option<Mark>,
    committed: Option<Mark>,
    /// No commit before, but for when it is given up.
    next_at: Option<Instant>,
    /// No commit before: the one before has failed.
    retry_at: Option<Instant>,
    /// Committed by itself: together with others it may be why they failed.
    apart: bool,
    /// Its topic is gone, until more of it is handed out.
    gone: bool,
}

/// What became of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Written,
    Failed,
    /// Because of one of the partitions, and nobody tells which.
    FailedForOne,
}

impl Entry {
    fn is_dirty(&self) -> bool {
        self.mark.is_some() && self.mark != self.committed
    }
}

impl Ledger {
    /// A partition is held from now on, from `start`.
    pub(super) fn hold(&mut self, at: &TopicPartition, assignment: u64, start: i64, committed: Option<Mark>) {
        let entry = Entry {
            assignment,
            start,
            handed: start,
            mark: None,
            committed,
            next_at: None,
            retry_at: None,
            apart: false,
            gone: false,
        };
        self.entries.insert(at.clone(), entry);
    }

    /// It is not held any more. A commit on its way is none of ours from now on.
    pub(super) fn release(&mut self, at: &TopicPartition) {
        self.entries.remove(at);
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.remove(at);
        }
    }

    /// Nothing is held any more.
    pub(super) fn clear(&mut self) {
        (self.entries, self.in_flight) = (BTreeMap::new(), None);
    }

    /// Whether this very assignment is held.
    pub(super) fn holds(&self, at: &TopicPartition, assignment: u64) -> bool {
        self.entries.get(at).is_some_and(|entry| entry.assignment == assignment)
    }

    /// A chunk that ends before `next_offset` was handed out.
    pub(super) fn handed(&mut self, at: &TopicPartition, next_offset: i64) {
        if let Some(entry) = self.entries.get_mut(at) {
            (entry.handed, entry.gone) = (next_offset, false);
        }
    }

    /// The partition goes on elsewhere.
    pub(super) fn moved(&mut self, at: &TopicPartition, to: i64) {
        if let Some(entry) = self.entries.get_mut(at) {
            (entry.start, entry.handed) = (entry.start.min(to), to);
            // It would be taken for what is read from here on.
            entry.mark = entry.mark.take().filter(|mark| mark.offset <= to);
        }
    }

    /// The topic of this assignment is gone, and with it what the group has committed. Whether a mark is dropped.
    pub(super) fn gone(&mut self, at: &TopicPartition, assignment: u64) -> bool {
        match self.entries.get_mut(at) {
            Some(entry) if entry.assignment == assignment => {
                entry.gone = true;
                entry.mark.take().is_some()
            }
            _ => false,
        }
    }

    /// Marks an offset to be committed; the latest mark of a partition counts. `None`: refused, because the partition is
    /// not held, or because this assignment has not handed that offset out: a mark from an earlier one would turn the group
    /// back, or skip what this one has to deliver. Else whether it may change what is due.
    pub(super) fn mark(&mut self, at: &TopicPartition, mark: Mark) -> Option<bool> {
        match self.entries.get_mut(at) {
            Some(entry) if !entry.gone && (entry.start..=entry.handed).contains(&mark.offset) => {
                let news = !entry.is_dirty() || mark.offset == entry.handed;
                entry.mark = Some(mark);
                Some(news)
            }
            _ => {
                self.refused += 1;
                None
            }
        }
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// What is to be sent now; it is on its way then. `flush`: the partitions that do not wait for their turn.
    pub(super) fn due(
        &mut self,
        now: Instant,
        flush: impl Fn(&TopicPartition) -> bool,
    ) -> BTreeMap<TopicPartition, Mark> {
        let mut due = BTreeMap::new();
        if self.in_flight.is_some() {
            return due;
        }
        for apart in [false, true] {
            for (at, entry) in self.entries.iter_mut().filter(|(_, entry)| entry.apart == apart) {
                if apart && !due.is_empty() {
                    break;
                }
                let turn = entry.next_at.is_none_or(|next| next <= now) || flush(at);
                let rested = entry.retry_at.is_none_or(|retry| retry <= now);
                if let Some(mark) = entry.mark.as_ref().filter(|_| entry.is_dirty() && turn && rested) {
                    due.insert(at.clone(), mark.clone());
                    entry.next_at = Some(now + COMMIT_INTERVAL);
                }
            }
        }
        if !due.is_empty() {
            self.in_flight = Some(due.clone());
        }
        due
    }

    /// When [`Ledger::due`] has something next; `None`: not before something happens.
    pub(super) fn due_at(&self) -> Option<Instant> {
        if self.in_flight.is_some() {
            return None;
        }
        self.entries
            .values()
            .filter(|entry| entry.is_dirty())
            .filter_map(|entry| entry.next_at.max(entry.retry_at))
            .min()
    }

    /// What was on its way is answered. What failed stays to be committed.
    pub(super) fn answered(&mut self, now: Instant, answer: Answer) {
        let in_flight = self.in_flight.take().unwrap_or_default();
        // Those that only went along are not to wait.
        let at_once = answer == Answer::FailedForOne && in_flight.len() > 1;
        for (at, mark) in in_flight {
            let Some(entry) = self.entries.get_mut(&at) else { continue };
            entry.apart = match answer {
                Answer::Written => false,
                Answer::Failed => entry.apart,
                Answer::FailedForOne => true,
            };
            match answer {
                Answer::Written => (entry.committed, entry.retry_at) = (Some(mark), None),
                _ if at_once => (entry.next_at, entry.retry_at) = (Some(now), None),
                _ => entry.retry_at = Some(now + RETRY_PAUSE),
            }
        }
    }

    /// Whether committing the mark would settle everything that was handed out.
    pub(super) fn would_settle(&self, at: &TopicPartition) -> bool {
        self.entries.get(at).is_some_and(|entry| entry.mark.as_ref().is_some_and(|mark| mark.offset == entry.handed))
    }

    /// Whether everything that was handed out is committed.
    pub(super) fn is_settled(&self, at: &TopicPartition) -> bool {
        self.entries.get(at).is_none_or(|entry| {
            // After a reset backwards the group's offset lies ahead, where the log may come again.
            let reached = entry.committed.as_ref().is_some_and(|committed| committed.offset == entry.handed);
            entry.gone || (!entry.is_dirty() && (reached || entry.handed == entry.start))
        })
    }

    /// Whether everything that was marked is committed.
    pub(super) fn is_clean(&self, at: &TopicPartition) -> bool {
        self.entries.get(at).is_none_or(|entry| !entry.is_dirty())
    }

    /// The partitions with a mark that is not committed.
    pub(super) fn unclean(&self) -> Vec<TopicPartition> {
        self.entries.iter().filter(|(_, entry)| entry.is_dirty()).map(|(at, _)| at.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use tidegate_model::TopicName;

    use super::*;

    fn at(partition: i32) -> TopicPartition {
        TopicPartition::new(TopicName::new("t").unwrap(), partition)
    }

    fn mark(offset: i64) -> Mark {
        Mark { offset, metadata: String::new() }
    }

    /// A ledger that holds partition 0 from 100 and has handed out up to 200.
    fn held() -> Ledger {
        let mut ledger = Ledger::default();
        ledger.hold(&at(0), 1, 100, Some(mark(100)));
        ledger.handed(&at(0), 200);
        ledger
    }

    const NOBODY: fn(&TopicPartition) -> bool = |_| false;

    #[test]
    fn the_latest_mark_goes_out_at_most_four_times_a_second_and_one_request_at_a_time() {
        let (mut ledger, begin) = (held(), Instant::now());
        let mut sent = Vec::new();
        for milli in 0..1_000 {
            let now = begin + Duration::from_millis(milli);
            assert!(ledger.mark(&at(0), mark(100 + i64::try_from(milli).unwrap() / 10)).is_some());
            if let Some(mark) = ledger.due(now, NOBODY).remove(&at(0)) {
                sent.push(mark.offset);
                assert!(ledger.due(now + COMMIT_INTERVAL, NOBODY).is_empty(), "one is on its way");
                ledger.answered(now, Answer::Written);
            }
        }
        // The first mark is the committed offset itself, which needs no commit.
        assert_eq!(sent, [101, 126, 151, 176]);
        assert!(ledger.due_at().is_some());
    }

    #[test]
    fn a_flush_does_not_wait_and_what_failed_is_sent_again() {
        let (mut ledger, now) = (held(), Instant::now());
        ledger.mark(&at(0), mark(150));
        assert_eq!(ledger.due(now, NOBODY)[&at(0)], mark(150));
        ledger.mark(&at(0), mark(200));
        ledger.answered(now, Answer::Failed);
        assert!(ledger.due(now, |_| true).is_empty(), "not in a circle");
        let later = now + RETRY_PAUSE;
        assert_eq!(ledger.due_at(), Some(now + COMMIT_INTERVAL));
        assert!(ledger.due(later, NOBODY).is_empty());
        assert_eq!(ledger.due(later, |_| true)[&at(0)], mark(200));
        assert!(!ledger.is_settled(&at(0)) && ledger.would_settle(&at(0)));
        ledger.answered(later, Answer::Written);
        assert!(ledger.is_settled(&at(0)) && ledger.is_clean(&at(0)) && ledger.due_at().is_none());
    }

    #[test]
    fn a_commit_that_failed_late_is_not_due_before_its_pause_is_over() {
        let (mut ledger, now) = (held(), Instant::now());
        ledger.mark(&at(0), mark(150));
        ledger.due(now, NOBODY);
        let failed = now + COMMIT_INTERVAL * 2;
        ledger.answered(failed, Answer::Failed);
        assert!(ledger.due(failed, NOBODY).is_empty());
        // Else its task would look again and again until then.
        assert_eq!(ledger.due_at(), Some(failed + RETRY_PAUSE));
    }

    #[test]
    fn a_partition_that_keeps_the_others_from_being_committed_is_committed_by_itself() {
        let now = Instant::now();
        let mut ledger = Ledger::default();
        for partition in 0..3 {
            ledger.hold(&at(partition), 1, 100, None);
            ledger.handed(&at(partition), 200);
            ledger.mark(&at(partition), mark(150));
        }
        // Partition 1 is that of a topic that is gone.
        let mut sent = Vec::new();
        for milli in 0..400 {
            let now = now + Duration::from_millis(milli);
            let due = ledger.due(now, NOBODY);
            if due.is_empty() {
                continue;
            }
            let answer = if due.contains_key(&at(1)) { Answer::FailedForOne } else { Answer::Written };
            sent.push(due.keys().map(|at| at.partition).collect::<Vec<_>>());
            ledger.answered(now, answer);
            if milli == 0 {
                ledger.mark(&at(2), mark(170));
            }
        }
        assert_eq!(sent, [vec![0, 1, 2], vec![0], vec![1], vec![2], vec![1]]);
        assert_eq!(ledger.unclean(), [at(1)]);
        assert!(!ledger.gone(&at(1), 7), "another assignment");
        assert!(ledger.gone(&at(1), 1));
        assert!(ledger.unclean().is_empty() && ledger.is_settled(&at(1)));
        assert!(ledger.mark(&at(1), mark(160)).is_none());
        ledger.handed(&at(1), 210);
        assert!(ledger.mark(&at(1), mark(160)).is_some(), "it is there after all");
    }

    #[test]
    fn the_same_offset_with_other_metadata_is_a_commit_and_with_the_same_is_none() {
        let (mut ledger, now) = (held(), Instant::now());
        ledger.mark(&at(0), mark(100));
        assert!(ledger.due(now, NOBODY).is_empty());
        ledger.mark(&at(0), Mark { metadata: "m".to_owned(), ..mark(100) });
        assert_eq!(ledger.due(now, NOBODY).len(), 1);
    }

    #[test]
    fn marks_that_this_assignment_cannot_have_are_refused_and_counted() {
        let mut ledger = held();
        assert!(ledger.mark(&at(1), mark(0)).is_none(), "not held");
        assert!(ledger.mark(&at(0), mark(99)).is_none(), "it would turn the group back");
        assert!(ledger.mark(&at(0), mark(201)).is_none(), "it would skip records");
        ledger.release(&at(0));
        assert!(ledger.mark(&at(0), mark(150)).is_none(), "given up");
        assert_eq!(ledger.refused(), 4);
    }

    #[test]
    fn the_answer_to_a_commit_of_an_earlier_assignment_says_nothing_about_this_one() {
        let (mut ledger, now) = (held(), Instant::now());
        ledger.mark(&at(0), mark(150));
        ledger.due(now, NOBODY);
        ledger.release(&at(0));
        ledger.hold(&at(0), 2, 120, Some(mark(120)));
        ledger.handed(&at(0), 150);
        ledger.mark(&at(0), mark(150));
        ledger.answered(now, Answer::Written);
        assert!(!ledger.is_clean(&at(0)));
        assert!(ledger.holds(&at(0), 2) && !ledger.holds(&at(0), 1));
        assert_eq!(ledger.unclean(), [at(0)]);
    }

    #[test]
    fn what_was_handed_out_and_not_committed_is_not_settled() {
        let mut ledger = Ledger::default();
        ledger.hold(&at(0), 1, 100, None);
        assert!(ledger.is_settled(&at(0)), "nothing was handed out");
        ledger.handed(&at(0), 110);
        assert!(!ledger.is_settled(&at(0)) && ledger.is_clean(&at(0)));
        ledger.moved(&at(0), 50);
        assert_eq!(ledger.mark(&at(0), mark(50)), Some(true));
    }

    #[test]
    fn after_a_reset_backwards_what_was_committed_or_marked_before_settles_nothing() {
        let (mut ledger, now) = (held(), Instant::now());
        ledger.mark(&at(0), mark(200));
        ledger.due(now, NOBODY);
        ledger.answered(now, Answer::Written);
        ledger.mark(&at(0), mark(180));
        ledger.moved(&at(0), 50);
        assert!(ledger.due(now + COMMIT_INTERVAL, NOBODY).is_empty(), "a mark of what is gone is not committed");
        ledger.handed(&at(0), 60);
        assert!(!ledger.is_settled(&at(0)) && !ledger.would_settle(&at(0)));
        ledger.mark(&at(0), mark(60));
        assert!(ledger.would_settle(&at(0)));
        ledger.due(now + COMMIT_INTERVAL, NOBODY);
        ledger.answered(now + COMMIT_INTERVAL, Answer::Written);
        assert!(ledger.is_settled(&at(0)));
    }
}

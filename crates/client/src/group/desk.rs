//! Where the tasks of a source and its consumer meet: what is ready to be handed out, and the ledger.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tidegate_model::{Chunk, TopicPartition};
use tokio::sync::{Notify, OwnedSemaphorePermit};

use super::error::GroupError;
use super::event::{AssignedPartition, GroupEvent};
use super::ledger::{Ledger, Mark};

/// What a group source counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupCounts {
    /// Marks that were refused: of partitions that are not held or whose topic is gone, or of offsets that this assignment has
    /// not handed out.
    pub commits_refused: u64,
    /// Marks that were taken and are not committed, because the topic is gone and what the group has committed there with it.
    pub commits_dropped: u64,
    /// Commit requests that were sent, each for all partitions that were due.
    pub commit_requests: u64,
    /// Chunks that were fetched and not handed out, because their partition was given up or lost. They are read again.
    pub chunks_dropped: u64,
    /// Messages that librdkafka fetched although it must not.
    pub stray_messages: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Desk {
    state: Mutex<State>,
    /// Something is ready for the consumer.
    pub(super) ready: Notify,
    /// The consumer took or marked something.
    pub(super) moved: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// What happened to partitions. It goes before the chunks, so no chunk comes before its partition's `Assigned`, and a
    /// partition's last chunks are gone when its `Revoked` is put here. Bounded: a rebalance begins when the one before is
    /// answered, and a consumer that takes nothing has at most the events of its partitions' comings and goings here.
    events: VecDeque<GroupEvent>,
    lines: VecDeque<Line>,
    failure: Option<GroupError>,
    /// The failure was told: nothing else is from now on.
    ended: bool,
    ledger: Ledger,
    counts: GroupCounts,
}

/// What is ready of the partitions' records, in order.
#[derive(Debug)]
enum Line {
    Chunk {
        chunk: Chunk,
        /// The partition's place among those that are ready; it fetches on when this is dropped.
        _place: Option<OwnedSemaphorePermit>,
    },
    Reset {
        topic_partition: TopicPartition,
        from: i64,
        to: i64,
    },
}

impl Line {
    fn at(&self) -> &TopicPartition {
        match self {
            Self::Chunk { chunk, .. } => &chunk.topic_partition,
            Self::Reset { topic_partition, .. } => topic_partition,
        }
    }
}

impl State {
    fn withdraw(&mut self, at: &TopicPartition) {
        let before = self.lines.len();
        self.lines.retain(|line| line.at() != at);
        self.counts.chunks_dropped += (before - self.lines.len()) as u64;
    }
}

impl Desk {
    /// What the consumer gets next; `None`: nothing is ready. Partitions come by turns, since each has only a few places.
    pub(super) fn take(&self) -> Option<Result<GroupEvent, GroupError>> {
        let mut state = self.state.lock();
        if state.ended {
            return state.failure.clone().map(Err);
        }
        if let Some(event) = state.events.pop_front() {
            return Some(Ok(event));
        }
        let Some(line) = state.lines.pop_front() else {
            state.ended = state.failure.is_some();
            return state.failure.clone().map(Err);
        };
        let event = match line {
            Line::Chunk { chunk, .. } => {
                state.ledger.handed(&chunk.topic_partition, chunk.next_offset);
                GroupEvent::Chunk(chunk)
            }
            Line::Reset { topic_partition, from, to } => {
                state.ledger.moved(&topic_partition, to);
                GroupEvent::Reset { topic_partition, from, to }
            }
        };
        drop(state);
        self.moved.notify_one();
        Some(Ok(event))
    }

    /// Partitions are held from now on, each with its assignment, and the consumer is told: in one step, so that a chunk
    /// can only be put behind it.
    pub(super) fn open(&self, taken: &[(u64, AssignedPartition)]) {
        let mut state = self.state.lock();
        for (assignment, partition) in taken {
            let metadata = partition.metadata.clone().unwrap_or_default();
            let committed = partition.committed.map(|offset| Mark { offset, metadata });
            state.ledger.hold(&partition.topic_partition, *assignment, partition.start, committed);
        }
        let partitions = taken.iter().map(|(_, partition)| partition.clone()).collect();
        state.events.push_back(GroupEvent::Assigned { partitions });
        drop(state);
        self.ready.notify_one();
    }

    /// Partitions are not held any more, and what is ready of them is taken back: in one step, so that nothing can be put, or
    /// marked, in between. `false`, and nothing is done: there are marks to commit, and they are not to be dropped.
    pub(super) fn release(&self, partitions: &[TopicPartition], drop_marks: bool) -> bool {
        let mut state = self.state.lock();
        if !drop_marks && !partitions.iter().all(|at| state.ledger.is_clean(at)) {
            return false;
        }
        for at in partitions {
            state.ledger.release(at);
            state.withdraw(at);
        }
        true
    }

    /// No mark is taken any more once there is none to commit; those that there are.
    pub(super) fn finish(&self) -> Vec<TopicPartition> {
        let mut state = self.state.lock();
        let unclean = state.ledger.unclean();
        if unclean.is_empty() {
            state.ledger.clear();
        }
        unclean
    }

    /// As [`Desk::fail`]; and no mark is taken any more.
    pub(super) fn close(&self, error: GroupError) {
        self.ledger(Ledger::clear);
        self.fail(error);
    }

    /// A partition of this assignment cannot be read: the source is at its end, unless the assignment is.
    pub(super) fn fail_at(&self, at: &TopicPartition, assignment: u64, error: GroupError) {
        let mut state = self.state.lock();
        if state.ledger.holds(at, assignment) {
            state.failure.get_or_insert(error);
        }
        drop(state);
        self.ready.notify_one();
    }

    pub(super) fn tell(&self, event: GroupEvent) {
        self.state.lock().events.push_back(event);
        self.ready.notify_one();
    }

    /// The source is at its end: after what is ready, the consumer gets this for ever.
    pub(super) fn fail(&self, error: GroupError) {
        let mut state = self.state.lock();
        state.failure.get_or_insert(error);
        drop(state);
        self.ready.notify_one();
    }

    pub(super) fn has_failed(&self) -> bool {
        self.state.lock().failure.is_some()
    }

    /// A chunk of this assignment is ready. It is dropped if the assignment is over.
    pub(super) fn put(&self, assignment: u64, chunk: Chunk, place: Option<OwnedSemaphorePermit>) {
        let mut state = self.state.lock();
        if state.ledger.holds(&chunk.topic_partition, assignment) {
            state.lines.push_back(Line::Chunk { chunk, _place: place });
            drop(state);
            self.ready.notify_one();
        } else {
            state.counts.chunks_dropped += 1;
        }
    }

    /// A partition goes on elsewhere.
    pub(super) fn reset(&self, assignment: u64, at: &TopicPartition, from: i64, to: i64) {
        let mut state = self.state.lock();
        if state.ledger.holds(at, assignment) {
            state.lines.push_back(Line::Reset { topic_partition: at.clone(), from, to });
            drop(state);
            self.ready.notify_one();
        }
    }

    /// Whether something of the partition is ready.
    pub(super) fn has_ready(&self, at: &TopicPartition) -> bool {
        self.state.lock().lines.iter().any(|line| line.at() == at)
    }

    /// Takes back what is ready of a partition.
    pub(super) fn withdraw(&self, at: &TopicPartition) {
        self.state.lock().withdraw(at);
    }

    /// Takes back all.
    pub(super) fn withdraw_all(&self) {
        let mut state = self.state.lock();
        state.counts.chunks_dropped += state.lines.len() as u64;
        state.lines.clear();
    }

    pub(super) fn mark(&self, at: &TopicPartition, offset: i64, metadata: Option<String>) -> bool {
        let mark = Mark { offset, metadata: metadata.unwrap_or_default() };
        let taken = self.state.lock().ledger.mark(at, mark);
        // Not at each of a million marks a second: the task knows already that there is something to commit.
        if taken == Some(true) {
            self.moved.notify_one();
        }
        taken.is_some()
    }

    pub(super) fn ledger<T>(&self, act: impl FnOnce(&mut Ledger) -> T) -> T {
        act(&mut self.state.lock().ledger)
    }

    pub(super) fn count(&self, act: impl FnOnce(&mut GroupCounts)) {
        act(&mut self.state.lock().counts);
    }

    pub(super) fn counts(&self) -> GroupCounts {
        let state = self.state.lock();
        GroupCounts { commits_refused: state.ledger.refused(), ..state.counts }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tidegate_model::TopicName;

    use super::super::ledger::Answer;
    use super::*;

    fn partition() -> AssignedPartition {
        let topic_partition = TopicPartition::new(TopicName::new("t").unwrap(), 0);
        AssignedPartition { topic_partition, start: 0, committed: None, metadata: None }
    }

    fn chunk() -> Chunk {
        let topic_partition = partition().topic_partition;
        Chunk { topic_partition, batches: Vec::new(), next_offset: 1, lease: None }
    }

    #[test]
    fn no_chunk_comes_before_its_partition_is_told_or_after_it_is_gone() {
        let (desk, done) = (Desk::default(), AtomicBool::new(false));
        let at = partition().topic_partition;
        std::thread::scope(|scope| {
            // A task that reads puts what it has whenever it likes.
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    desk.put(1, chunk(), None);
                    std::thread::yield_now();
                }
            });
            scope.spawn(|| {
                for _ in 0..2_000 {
                    desk.open(&[(1, partition())]);
                    std::thread::yield_now();
                    assert!(desk.release(std::slice::from_ref(&at), true));
                    desk.tell(GroupEvent::Lost { partitions: vec![at.clone()] });
                }
                done.store(true, Ordering::SeqCst);
            });
            let (mut held, mut chunks, mut lost) = (false, 0, 0);
            while lost < 2_000 {
                match desk.take().transpose().unwrap() {
                    None => std::thread::yield_now(),
                    Some(GroupEvent::Assigned { .. }) => held = true,
                    Some(GroupEvent::Lost { .. }) => (held, lost) = (false, lost + 1),
                    Some(GroupEvent::Chunk(_)) => {
                        assert!(held, "after {chunks} chunks and {lost} losses");
                        chunks += 1;
                    }
                    Some(other) => panic!("{other:?}"),
                }
            }
        });
        assert!(desk.take().is_none());
    }

    #[test]
    fn what_belongs_to_another_assignment_is_dropped_and_counted() {
        let desk = Desk::default();
        desk.put(1, chunk(), None);
        assert!(desk.take().is_none(), "it is not held yet");
        desk.open(&[(2, partition())]);
        desk.put(1, chunk(), None);
        desk.put(2, chunk(), None);
        desk.put(2, chunk(), None);
        assert!(matches!(desk.take(), Some(Ok(GroupEvent::Assigned { .. }))));
        assert!(matches!(desk.take(), Some(Ok(GroupEvent::Chunk(_)))));
        assert!(desk.release(&[partition().topic_partition], false));
        desk.put(2, chunk(), None);
        assert!(desk.take().is_none());
        assert_eq!(desk.counts().chunks_dropped, 4);
    }
    #[test]
    fn a_mark_that_was_taken_is_not_dropped_but_by_force() {
        let desk = Desk::default();
        let at = partition().topic_partition;
        desk.open(&[(1, partition())]);
        desk.put(1, chunk(), None);
        while desk.take().is_some() {}
        assert!(desk.mark(&at, 1, None));
        assert!(!desk.release(std::slice::from_ref(&at), false));
        assert_eq!(desk.finish(), std::slice::from_ref(&at));
        assert!(desk.mark(&at, 1, Some("m".to_owned())), "it is still held");
        assert!(desk.release(std::slice::from_ref(&at), true));
        assert!(!desk.mark(&at, 1, None));

        desk.open(&[(2, partition())]);
        assert!(desk.mark(&at, 0, None));
        desk.ledger(|ledger| {
            ledger.due(tokio::time::Instant::now(), |_| true);
            ledger.answered(tokio::time::Instant::now(), Answer::Written);
        });
        assert!(desk.finish().is_empty());
        assert!(!desk.mark(&at, 0, Some("m".to_owned())), "nobody would commit it");
    }

    #[test]
    fn after_the_error_nothing_else_comes() {
        let desk = Desk::default();
        let at = partition().topic_partition;
        desk.open(&[(1, partition())]);
        desk.put(1, chunk(), None);
        desk.fail_at(&at, 7, GroupError::TaskEnded);
        assert!(!desk.has_failed(), "another assignment's trouble");
        desk.fail_at(&at, 1, GroupError::TaskEnded);
        assert!(matches!(desk.take(), Some(Ok(GroupEvent::Assigned { .. }))));
        assert!(matches!(desk.take(), Some(Ok(GroupEvent::Chunk(_)))), "what was fetched before comes first");
        assert!(matches!(desk.take(), Some(Err(GroupError::TaskEnded))));
        desk.put(1, chunk(), None);
        desk.tell(GroupEvent::Lost { partitions: vec![at] });
        assert!(matches!(desk.take(), Some(Err(GroupError::TaskEnded))));
    }
}

//! Where the tasks of a source and its consumer meet: what is ready to be handed out, and the ledger.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tidegate_model::{Chunk, TopicPartition};
use tokio::sync::{Notify, OwnedSemaphorePermit};

use super::error::GroupError;
use super::event::GroupEvent;
use super::ledger::{Ledger, Mark};

/// What a group source counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupCounts {
    /// Marks that were refused: of partitions that are not held, or of offsets that this assignment has not handed out.
    pub commits_refused: u64,
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

impl Desk {
    /// What the consumer gets next; `None`: nothing is ready. Partitions come by turns, since each has only a few places.
    pub(super) fn take(&self) -> Option<Result<GroupEvent, GroupError>> {
        let mut state = self.state.lock();
        if let Some(event) = state.events.pop_front() {
            return Some(Ok(event));
        }
        let Some(line) = state.lines.pop_front() else { return state.failure.clone().map(Err) };
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
        let mut state = self.state.lock();
        let before = state.lines.len();
        state.lines.retain(|line| line.at() != at);
        state.counts.chunks_dropped += (before - state.lines.len()) as u64;
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

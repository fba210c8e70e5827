//! Whether the consumer of a reader waits with nothing left to take.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

/// Shared by a reader and its task. The reader says when it waits and what it took, the task what it sent.
///
/// A flag alone would not do:
/// 1. the consumer finds the queue empty and sets the flag;
/// 2. the task sends a chunk, and before the consumer has woken up looks at the flag: it would take it for a wish for more.
///
/// So the chunks are counted at both ends.
#[derive(Debug, Default)]
pub(super) struct Demand {
    waiting: AtomicBool,
    sent: AtomicU64,
    taken: AtomicU64,
    changed: Notify,
}

/// The consumer waits as long as this lives.
pub(super) struct Waiting<'a>(&'a Demand);

impl Demand {
    /// The consumer begins to wait, until [`Demand::end_waiting`].
    pub(super) fn begin_waiting(&self) {
        self.waiting.store(true, Ordering::SeqCst);
        self.changed.notify_one();
    }

    /// The consumer waits no more.
    pub(super) fn end_waiting(&self) {
        self.waiting.store(false, Ordering::SeqCst);
    }
}

impl Demand {
    /// The consumer waits as long as the returned value lives.
    pub(super) fn wait(&self) -> Waiting<'_> {
        self.begin_waiting();
        Waiting(self)
    }

    /// The consumer took a chunk.
    pub(super) fn taken(&self) {
        self.taken.fetch_add(1, Ordering::SeqCst);
    }

    /// The task is about to send a chunk.
    pub(super) fn sending(&self) {
        self.sent.fetch_add(1, Ordering::SeqCst);
    }

    fn is_urgent(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) && self.taken.load(Ordering::SeqCst) == self.sent.load(Ordering::SeqCst)
    }

    /// Waits until the consumer waits with nothing left to take.
    pub(super) async fn urgent(&self) {
        // The consumer always says that it waits after it said what it took, so no change is missed; `notify_one` keeps a
        // notice that nobody waits for yet.
        while !self.is_urgent() {
            self.changed.notified().await;
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.end_waiting();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn is_urgent(demand: &Demand) -> bool {
        pin!(demand.urgent()).as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn it_is_urgent_while_the_consumer_waits_for_an_empty_queue() {
        let demand = Demand::default();
        assert!(!is_urgent(&demand));
        let waiting = demand.wait();
        assert!(is_urgent(&demand));
        demand.sending();
        assert!(!is_urgent(&demand), "a chunk is on its way");
        drop(waiting);
        demand.taken();
        assert!(!is_urgent(&demand), "the consumer is busy");
        let waiting = demand.wait();
        assert!(is_urgent(&demand));
        drop(waiting);
        assert!(!is_urgent(&demand), "the consumer gave up");
    }

    #[tokio::test]
    async fn a_task_that_waits_is_woken() {
        let demand = std::sync::Arc::new(Demand::default());
        let task = tokio::spawn({
            let demand = std::sync::Arc::clone(&demand);
            async move { demand.urgent().await }
        });
        tokio::task::yield_now().await;
        let _waiting = demand.wait();
        task.await.unwrap();
    }
}

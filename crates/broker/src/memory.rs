//! The memory that connections share, and when one has to give its part back.
//!
//! A peer decides how fast it sends a request and how fast it takes an answer, and both lie in memory meanwhile. As long as
//! there is enough, it may take its time. When others wait for memory, whoever does not move bytes at a good pace loses its
//! connection, so that nobody holds the others up for longer than a moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::shared::NotCarriedOut;

/// A part of a budget.
pub(crate) type Lease = OwnedSemaphorePermit;

/// The memory for requests. Those with records have parts of their own, which no number of waiting fetches can use up, and
/// the large ones of them another than the small ones, which have not to queue behind them.
#[derive(Debug)]
pub(crate) struct RequestMemory {
    small: RequestClass,
    large: RequestClass,
    other: RequestClass,
}

/// The memory for one kind of requests: first for their bytes, then for what they are decoded into.
///
/// They are apart so that a request that is complete never waits for one that is not: whoever has its bytes together waits
/// only for such as are being answered.
#[derive(Debug)]
pub(crate) struct RequestClass {
    pub(crate) arriving: Budget,
    pub(crate) decoded: Budget,
}

/// Requests with records up to this size are small ones.
const SMALL_BYTES: usize = 256 << 10;

impl RequestMemory {
    pub(crate) fn new(bytes: usize) -> Self {
        let (other, produce) = (bytes / 4, bytes - bytes / 4);
        Self {
            small: RequestClass::new(produce / 2),
            large: RequestClass::new(produce / 2),
            other: RequestClass::new(other),
        }
    }

    /// The part that a request of `bytes` takes from.
    pub(crate) fn of(&self, is_produce: bool, bytes: usize) -> &RequestClass {
        match is_produce {
            false => &self.other,
            true if bytes <= SMALL_BYTES => &self.small,
            true => &self.large,
        }
    }
}

impl RequestClass {
    fn new(bytes: usize) -> Self {
        Self { arriving: Budget::new(bytes / 2), decoded: Budget::new(bytes / 2) }
    }
}

/// The memory for answers. Fetched records have the larger part, and cannot use up that of the other answers.
#[derive(Debug)]
pub(crate) struct ResponseMemory {
    pub(crate) fetched: Budget,
    pub(crate) other: Budget,
}

impl ResponseMemory {
    pub(crate) fn new(bytes: usize) -> Self {
        let other = bytes / 8;
        Self { fetched: Budget::new(bytes - other), other: Budget::new(other) }
    }
}

/// A number of bytes that connections share. Whoever does not fit waits, in order.
#[derive(Debug)]
pub(crate) struct Budget {
    units: Arc<Semaphore>,
    all: u32,
    waiting: AtomicUsize,
}

/// A permit is for this many bytes.
const UNIT_BYTES: usize = 1024;

/// The part of what is free that one may take at a time: whoever comes next finds something, however much the ones before
/// asked for.
const SHARE: usize = 4;
/// The least that a share is.
const LEAST_SHARE_BYTES: usize = 256 << 10;

impl Budget {
    pub(crate) fn new(bytes: usize) -> Self {
        let all = u32::try_from(bytes / UNIT_BYTES).unwrap_or(u32::MAX).max(1);
        let permits = usize::try_from(all).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Self { units: Arc::new(Semaphore::new(permits)), all, waiting: AtomicUsize::new(0) }
    }

    /// Waits for `bytes`. More than there is in all is granted when nobody else holds any.
    pub(crate) async fn take(&self, bytes: usize) -> Result<Lease, NotCarriedOut> {
        if let Some(lease) = self.try_take(bytes) {
            return Ok(lease);
        }
        let _waiting = Waiting::new(&self.waiting);
        Arc::clone(&self.units).acquire_many_owned(self.units_of(bytes)).await.map_err(|_| NotCarriedOut)
    }

    /// Takes `bytes` if they are there now.
    pub(crate) fn try_take(&self, bytes: usize) -> Option<Lease> {
        Arc::clone(&self.units).try_acquire_many_owned(self.units_of(bytes)).ok()
    }

    /// The bytes that one may take now.
    pub(crate) fn share(&self) -> usize {
        (self.units.available_permits().saturating_mul(UNIT_BYTES) / SHARE).max(LEAST_SHARE_BYTES)
    }

    /// How many wait for some.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether somebody does.
    pub(crate) fn is_short(&self) -> bool {
        self.waiting() > 0
    }

    fn units_of(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX).min(self.all)
    }
}

/// One that waits, until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How fast the bytes of a request or an answer move.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    all: usize,
    last: Instant,
    /// Since when is counted, and what has moved since.
    since: Instant,
    moved: usize,
}

/// How often a peer is looked at while others wait for the memory that it holds.
const LOOK: Duration = Duration::from_millis(250);
/// How fast all of it would have to move at the pace that is asked for then.
const WHOLE: Duration = Duration::from_secs(10);

impl Pace {
    /// How often to look at the pace of a peer that moves nothing.
    pub(crate) const LOOK: Duration = LOOK;

    /// `all` bytes begin to move.
    pub(crate) fn new(all: usize) -> Self {
        let now = Instant::now();
        Self { all, last: now, since: now, moved: 0 }
    }

    /// Some of them have moved.
    pub(crate) fn moved(&mut self, bytes: usize) {
        self.moved = self.moved.saturating_add(bytes);
        self.last = Instant::now();
    }

    /// How long none has.
    pub(crate) fn pause(&self) -> Duration {
        self.last.elapsed()
    }

    /// Whether that is too slow for others to wait for. Each look counts from the one before: what went fast at first buys
    /// no time for what trickles after it.
    pub(crate) fn is_slow(&mut self) -> bool {
        self.is_slow_at(Instant::now())
    }

    fn is_slow_at(&mut self, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.since);
        if elapsed < LOOK {
            return false;
        }
        let due = ((self.all as u128).saturating_mul(elapsed.as_millis()) / WHOLE.as_millis()).max(1);
        let slow = (self.moved as u128) < due;
        (self.since, self.moved) = (now, 0);
        slow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn more_than_the_whole_budget_passes_alone() {
        let budget = Budget::new(10 * UNIT_BYTES);
        let small = budget.try_take(1).unwrap();
        assert!(budget.try_take(usize::MAX).is_none());
        drop(small);
        let all = budget.take(usize::MAX).await.unwrap();
        assert!(budget.try_take(1).is_none());
        drop(all);
        assert!(budget.try_take(10 * UNIT_BYTES).is_some());
    }

    #[tokio::test]
    async fn it_is_short_as_long_as_somebody_waits() {
        let budget = Arc::new(Budget::new(10 * UNIT_BYTES));
        let all = budget.take(10 * UNIT_BYTES).await.unwrap();
        assert!(!budget.is_short());
        let waiting = tokio::spawn({
            let budget = Arc::clone(&budget);
            async move { budget.take(1).await.is_ok() }
        });
        while !budget.is_short() {
            tokio::task::yield_now().await;
        }
        drop(all);
        assert!(waiting.await.unwrap());
        assert!(!budget.is_short());
        let _all = budget.take(10 * UNIT_BYTES).await.unwrap();
        let given_up = tokio::time::timeout(Duration::from_millis(1), budget.take(1)).await;
        assert!(given_up.is_err() && !budget.is_short());
    }

    #[tokio::test]
    async fn those_who_take_all_they_may_leave_something_to_the_next() {
        let budget = Budget::new(64 << 20);
        let taken: Vec<_> = (0..15).map(|_| budget.try_take(budget.share()).unwrap()).collect();
        assert!(budget.share() >= LEAST_SHARE_BYTES && budget.try_take(LEAST_SHARE_BYTES).is_some());
        assert_eq!(taken.len(), 15);
    }

    #[test]
    fn a_peer_is_slow_when_it_pauses_and_when_it_trickles() {
        let mut pace = Pace::new(1_000);
        let begin = pace.since;
        let mut look = |moved, millis| {
            pace.moved(moved);
            pace.is_slow_at(begin + Duration::from_millis(millis))
        };
        assert!(!look(0, 249), "it has just begun");
        assert!(!look(500, 250), "half of it at once");
        assert!(!look(24, 499), "too early to say");
        assert!(!look(1, 500), "a tenth a second is enough");
        assert!(look(24, 750), "a trickle, whatever was before");
        assert!(look(0, 1_000), "a pause");
    }
}

//! The byte budget that readers share.

mod reserve;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

pub use reserve::Reserve;

/// A budget of bytes for what readers have fetched and nobody has consumed yet. Cheap to clone; clones are the same budget.
///
/// It bounds reading ahead. A reader whose consumer waits for it while it has nothing to give goes on whatever the others
/// hold: otherwise a consumer that takes one reader's chunks and leaves another's lying could wait for ever. So the readers
/// of a budget hold at most the budget and one fetch each, and a fetch asks for no more than the reader's share of the
/// budget (but for [`ByteBudget::LEAST_FETCH`] at least).
///
/// [`ByteBudget::with_reserve`] lets readers that need more go beyond it.
#[derive(Clone)]
pub struct ByteBudget {
    shared: Arc<Shared>,
}

/// Where bytes may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// The budget.
    Own,
    /// The budget, and then its reserve.
    Reserve,
}

struct Shared {
    limit: usize,
    /// And how much of it this budget may take.
    reserve: Option<(Reserve, usize)>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    used: usize,
    /// What of it is taken from the reserve.
    borrowed: usize,
    readers: usize,
    next_ticket: u64,
    waiting: VecDeque<Waiter>,
}

struct Waiter {
    ticket: u64,
    bytes: usize,
    room: Room,
    grant: oneshot::Sender<Held>,
}

impl ByteBudget {
    /// What a fetch may ask for however small its reader's share is, in bytes.
    pub const LEAST_FETCH: usize = 64 << 10;

    /// A budget of `bytes`.
    pub fn new(bytes: usize) -> Self {
        Self { shared: Arc::new(Shared { limit: bytes, reserve: None, state: Mutex::default() }) }
    }

    /// A budget of `bytes`, which readers that need more (see [`Reserve`]) may exceed by up to `most`, as long as `reserve`
    /// has them.
    pub fn with_reserve(bytes: usize, reserve: &Reserve, most: usize) -> Self {
        let reserve = Some((reserve.clone(), most));
        Self { shared: Arc::new(Shared { limit: bytes, reserve, state: Mutex::default() }) }
    }

    /// The budget without its reserve, in bytes.
    pub fn limit(&self) -> usize {
        self.shared.limit
    }

    /// The bytes that are held now. More than the limit where readers went on because their consumers waited, where a batch
    /// was larger than what had been asked for, and with a reserve.
    pub fn used(&self) -> usize {
        self.shared.state.lock().used
    }

    /// One more reader shares the budget, until the returned value is dropped.
    pub(crate) fn register(&self) -> Registration {
        self.shared.state.lock().readers += 1;
        Registration { shared: Arc::clone(&self.shared) }
    }

    /// What one reader may hold.
    pub(crate) fn share(&self, room: Room) -> usize {
        let state = self.shared.state.lock();
        let more = match &self.shared.reserve {
            Some((reserve, most)) if room == Room::Reserve => state.borrowed.saturating_add(reserve.left()).min(*most),
            _ => 0,
        };
        (self.shared.limit.saturating_add(more) / state.readers.max(1)).max(Self::LEAST_FETCH)
    }

    /// Takes `bytes` now, whatever others hold.
    pub(crate) fn force(&self, bytes: usize) -> Held {
        let mut state = self.shared.state.lock();
        state.used = state.used.saturating_add(bytes);
        Held { shared: Arc::clone(&self.shared), bytes }
    }

    /// Takes `bytes` if they are free now and nobody waits for others.
    pub(crate) fn try_acquire(&self, bytes: usize, room: Room) -> Option<Held> {
        let mut state = self.shared.state.lock();
        if !state.waiting.is_empty() || !self.shared.take(&mut state, bytes, room) {
            return None;
        }
        Some(Held { shared: Arc::clone(&self.shared), bytes })
    }

    /// Takes `bytes` when they are free, in the order of asking. More than the whole budget is given when nobody holds
    /// anything.
    ///
    /// Nobody waits for the reserve: there is room again when this budget's own bytes are given back.
    ///
    /// Dropping the future gives up the place in the queue.
    pub(crate) async fn acquire(&self, bytes: usize, room: Room) -> Held {
        let (grant, granted) = oneshot::channel();
        let ticket = {
            let mut state = self.shared.state.lock();
            if state.waiting.is_empty() && self.shared.take(&mut state, bytes, room) {
                return Held { shared: Arc::clone(&self.shared), bytes };
            }
            let ticket = state.next_ticket;
            state.next_ticket += 1;
            state.waiting.push_back(Waiter { ticket, bytes, room, grant });
            ticket
        };
        let _place = Place { shared: &self.shared, ticket };
        match granted.await {
            Ok(held) => held,
            // Only a place that was given up is dropped without a grant, and this one is waited for.
            Err(_) => self.force(bytes),
        }
    }
}

impl Default for ByteBudget {
    /// 64 MiB, and as much again for readers of such large batches that few fetches fit: 48 of 600 KB are one piece of 29 MB.
    fn default() -> Self {
        const BYTES: usize = 64 << 20;
        Self::with_reserve(BYTES, &Reserve::new(BYTES), BYTES)
    }
}

impl fmt::Debug for ByteBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByteBudget").field("limit", &self.shared.limit).field("used", &self.used()).finish()
    }
}

impl Shared {
    /// Counts `bytes` as held, if they are free. More than there is passes alone.
    fn take(&self, state: &mut State, bytes: usize, room: Room) -> bool {
        let used = state.used.saturating_add(bytes);
        if state.used > 0 && used > self.limit {
            let beyond = used - self.limit;
            let borrow = beyond.saturating_sub(state.borrowed);
            match &self.reserve {
                Some((reserve, most)) if room == Room::Reserve && beyond <= *most && reserve.take(borrow) => {
                    state.borrowed += borrow;
                }
                _ => return false,
            }
        }
        state.used = used;
        true
    }

    fn release(self: &Arc<Self>, bytes: usize) {
        let mut state = self.state.lock();
        state.used = state.used.saturating_sub(bytes);
        if let Some((reserve, _)) = &self.reserve {
            let keep = state.borrowed.min(state.used.saturating_sub(self.limit));
            reserve.give_back(state.borrowed - keep);
            state.borrowed = keep;
        }
        self.grant(state);
    }

    /// Serves the queue from its front.
    fn grant(self: &Arc<Self>, mut state: parking_lot::MutexGuard<'_, State>) {
        let mut granted = Vec::new();
        while let Some(waiter) = state.waiting.pop_front() {
            if waiter.grant.is_closed() {
                continue;
            }
            if !self.take(&mut state, waiter.bytes, waiter.room) {
                state.waiting.push_front(waiter);
                break;
            }
            granted.push(waiter);
        }
        // Without the lock: a grant that meets nobody comes back here as a release.
        drop(state);
        for Waiter { bytes, grant, .. } in granted {
            drop(grant.send(Held { shared: Arc::clone(self), bytes }));
        }
    }
}

/// A place in the queue; dropping it gives it up.
struct Place<'a> {
    shared: &'a Arc<Shared>,
    ticket: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        let at = state.waiting.iter().position(|waiter| waiter.ticket == self.ticket);
        if let Some(at) = at {
            state.waiting.remove(at);
            // Those behind it may fit where it did not.
            self.shared.grant(state);
        }
    }
}

/// Counts one reader of a budget.
#[derive(Debug)]
pub(crate) struct Registration {
    shared: Arc<Shared>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.shared.state.lock().readers -= 1;
    }
}

/// Bytes of a budget that are held; dropping it gives them back.
#[derive(Debug)]
pub(crate) struct Held {
    shared: Arc<Shared>,
    bytes: usize,
}

impl Held {
    /// Corrects the number of bytes to what they turned out to be. Never waits: what is more is there already.
    pub(crate) fn resize(&mut self, bytes: usize) {
        if bytes > self.bytes {
            let mut state = self.shared.state.lock();
            state.used = state.used.saturating_add(bytes - self.bytes);
        } else {
            self.shared.release(self.bytes - bytes);
        }
        self.bytes = bytes;
    }
}

impl Held {
    /// Makes one of two holdings of the same budget.
    pub(crate) fn absorb(&mut self, mut other: Self) {
        debug_assert!(Arc::ptr_eq(&self.shared, &other.shared), "two holdings of one budget");
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.release(self.bytes);
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("limit", &self.limit).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<T>(future: &mut std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    #[test]
    fn bytes_are_given_while_they_last_and_come_back_when_dropped() {
        let budget = ByteBudget::new(100);
        let first = poll(&mut pin!(budget.acquire(60, Room::Own))).unwrap();
        let mut waiting = pin!(budget.acquire(50, Room::Own));
        assert!(poll(&mut waiting).is_none());
        drop(first);
        let second = poll(&mut waiting).unwrap();
        assert_eq!(budget.used(), 50);
        drop(second);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn the_queue_keeps_its_order_and_a_small_request_does_not_overtake() {
        let budget = ByteBudget::new(100);
        let first = poll(&mut pin!(budget.acquire(60, Room::Own))).unwrap();
        let mut large = pin!(budget.acquire(90, Room::Own));
        let mut small = pin!(budget.acquire(10, Room::Own));
        assert!(poll(&mut large).is_none() && poll(&mut small).is_none());
        drop(first);
        let large = poll(&mut large).unwrap();
        let small = poll(&mut small).unwrap();
        assert_eq!(budget.used(), 100);
        drop((large, small));
    }

    #[test]
    fn more_than_the_whole_budget_passes_alone() {
        let budget = ByteBudget::new(100);
        let small = poll(&mut pin!(budget.acquire(1, Room::Own))).unwrap();
        let mut huge = pin!(budget.acquire(1_000, Room::Own));
        assert!(poll(&mut huge).is_none());
        drop(small);
        let huge = poll(&mut huge).unwrap();
        let mut next = pin!(budget.acquire(1, Room::Own));
        assert!(poll(&mut next).is_none());
        drop(huge);
        assert!(poll(&mut next).is_some());
    }

    #[test]
    fn giving_up_a_place_lets_those_behind_pass() {
        let budget = ByteBudget::new(100);
        let _first = poll(&mut pin!(budget.acquire(60, Room::Own))).unwrap();
        let mut behind = pin!(budget.acquire(10, Room::Own));
        {
            let mut large = pin!(budget.acquire(90, Room::Own));
            assert!(poll(&mut large).is_none() && poll(&mut behind).is_none());
        }
        let behind = poll(&mut behind).unwrap();
        assert_eq!(budget.used(), 70);
        drop(behind);
    }

    #[test]
    fn a_grant_that_nobody_takes_comes_back() {
        let budget = ByteBudget::new(100);
        let first = poll(&mut pin!(budget.acquire(60, Room::Own))).unwrap();
        {
            let mut waiting = pin!(budget.acquire(90, Room::Own));
            assert!(poll(&mut waiting).is_none());
            drop(first);
            assert_eq!(budget.used(), 90);
        }
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn force_and_resize_never_wait_and_are_counted() {
        let budget = ByteBudget::new(100);
        let mut held = budget.force(300);
        assert_eq!(budget.used(), 300);
        held.resize(50);
        assert_eq!(budget.used(), 50);
        held.resize(120);
        assert_eq!(budget.used(), 120);
        let mut waiting = pin!(budget.acquire(30, Room::Own));
        assert!(poll(&mut waiting).is_none());
        held.resize(70);
        assert!(poll(&mut waiting).is_some());
    }

    #[test]
    fn the_share_goes_down_with_the_readers_but_not_to_nothing() {
        let budget = ByteBudget::new(1 << 20);
        assert_eq!(budget.share(Room::Own), 1 << 20);
        let readers: Vec<_> = (0..4).map(|_| budget.register()).collect();
        assert_eq!(budget.share(Room::Own), 1 << 18);
        let more: Vec<_> = (0..100).map(|_| budget.register()).collect();
        assert_eq!(budget.share(Room::Own), ByteBudget::LEAST_FETCH);
        drop((readers, more));
        assert_eq!(budget.share(Room::Own), 1 << 20);
    }

    #[test]
    fn only_those_who_need_it_go_beyond_the_budget_and_only_so_far() {
        let reserve = Reserve::new(150);
        let budget = ByteBudget::with_reserve(100, &reserve, 120);
        let near = budget.try_acquire(80, Room::Own).unwrap();
        assert!(budget.try_acquire(30, Room::Own).is_none());
        assert_eq!(
            (budget.share(Room::Own), budget.share(Room::Reserve)),
            (ByteBudget::LEAST_FETCH, ByteBudget::LEAST_FETCH)
        );
        let far = budget.try_acquire(130, Room::Reserve).unwrap();
        assert_eq!((budget.used(), reserve.left()), (210, 40));
        assert!(budget.try_acquire(20, Room::Reserve).is_none(), "130 would be borrowed");
        drop(near);
        assert_eq!((budget.used(), reserve.left()), (130, 120), "what is held comes out of the budget first");
        drop(far);
        assert_eq!((budget.used(), reserve.left()), (0, 150));
    }

    #[test]
    fn a_reserve_is_shared_and_whoever_finds_it_empty_waits_for_its_own_budget() {
        let reserve = Reserve::new(1 << 20);
        let [one, two] = [(); 2].map(|()| ByteBudget::with_reserve(1 << 20, &reserve, 2 << 20));
        assert_eq!(one.share(Room::Reserve), 2 << 20);
        let first = one.try_acquire(2 << 20, Room::Reserve);
        assert!(first.is_some());
        let all = one.try_acquire(1, Room::Own);
        assert!(all.is_none());
        drop(first);
        let first = one.try_acquire(1 << 20, Room::Reserve).unwrap();
        let second = one.try_acquire(1 << 20, Room::Reserve).unwrap();
        assert_eq!((reserve.left(), one.share(Room::Reserve), two.share(Room::Reserve)), (0, 2 << 20, 1 << 20));
        let own = two.try_acquire(1 << 20, Room::Reserve).unwrap();
        let mut waiting = pin!(two.acquire(1, Room::Reserve));
        assert!(poll(&mut waiting).is_none());
        drop((first, second));
        assert!(poll(&mut waiting).is_none(), "nobody waits for the reserve");
        drop(own);
        assert!(poll(&mut waiting).is_some());
    }

    #[test]
    fn bytes_that_were_not_asked_for_take_nothing_from_the_reserve_and_leave_nothing_there() {
        let reserve = Reserve::new(100);
        let budget = ByteBudget::with_reserve(10, &reserve, 100);
        let forced = budget.force(60);
        assert_eq!(reserve.left(), 100);
        let mut held = budget.try_acquire(40, Room::Reserve).unwrap();
        assert_eq!(reserve.left(), 10);
        held.resize(400);
        drop(forced);
        drop(held);
        assert_eq!((budget.used(), reserve.left()), (0, 100));
    }
}

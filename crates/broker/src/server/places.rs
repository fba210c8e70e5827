//! The places that connections take, and which of them has to leave when there is none for one more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A number of places. A connection that has rested for long makes room for a new one: clients open a connection anew when
/// they need it, while those who find no place are shut out for as long as others care to rest.
#[derive(Debug)]
pub(super) struct Places {
    limit: usize,
    evict_after: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    taken: usize,
    next: u64,
    /// Those that rest, in the order in which they began to.
    resting: BTreeMap<u64, (Instant, CancellationToken)>,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(super) struct Place(Arc<Places>);

/// A connection that waits for its client to say something, until it is dropped.
pub(super) struct Rest<'a> {
    places: &'a Places,
    number: u64,
    evicted: CancellationToken,
}

impl Places {
    pub(super) fn new(limit: usize, evict_after: Duration) -> Arc<Self> {
        Arc::new(Self { limit, evict_after, state: Mutex::default() })
    }

    /// A place, if there is one or somebody has rested for long. Whoever has to leave takes a moment to; until then there
    /// is one connection more.
    pub(super) fn take(self: &Arc<Self>) -> Option<Place> {
        let mut state = self.state.lock();
        if state.taken >= self.limit {
            let longest = state.resting.first_entry().filter(|rest| rest.get().0.elapsed() >= self.evict_after)?;
            longest.remove().1.cancel();
        }
        state.taken += 1;
        Some(Place(Arc::clone(self)))
    }
}

impl Place {
    /// The connection begins to rest.
    pub(super) fn rest(&self) -> Rest<'_> {
        let evicted = CancellationToken::new();
        let mut state = self.0.state.lock();
        let number = state.next;
        state.next += 1;
        state.resting.insert(number, (Instant::now(), evicted.clone()));
        Rest { places: &self.0, number, evicted }
    }
}

impl Rest<'_> {
    /// Returns when the place is needed for another.
    pub(super) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }

    /// Ends the rest. `false`: too late, the place was given to another.
    pub(super) fn end(self) -> bool {
        self.places.state.lock().resting.remove(&self.number).is_some()
    }
}

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        self.places.state.lock().resting.remove(&self.number);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.state.lock().taken -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_one_that_has_rested_longest_makes_room_and_the_busy_stay() {
        let places = Places::new(3, Duration::ZERO);
        let taken: Vec<_> = (0..3).map(|_| places.take().unwrap()).collect();
        assert!(places.take().is_none(), "nobody rests");
        let (first, second) = (taken[2].rest(), taken[0].rest());
        let newcomer = places.take().unwrap();
        first.evicted().await;
        assert!(!second.evicted.is_cancelled());
        assert!(!first.end(), "whatever its client says now, it comes too late");
        assert!(second.end());
        assert!(places.take().is_none());
        drop((newcomer, taken));
        assert_eq!(places.state.lock().taken, 0);
        assert!(places.state.lock().resting.is_empty());
    }

    #[tokio::test]
    async fn who_has_just_begun_to_rest_stays() {
        let places = Places::new(1, Duration::from_secs(60));
        let taken = places.take().unwrap();
        let _rest = taken.rest();
        assert!(places.take().is_none());
    }
}

//! What a reader spends its time on. Every moment belongs to one thing, so the times add up to all of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::meter::Totals;
use super::pace::Choice;
use crate::conn::Arrivals;

/// What a reader waits for, or does, at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// For the network: a fetch of data that the broker has is on its way, or a connection is being made.
    Network,
    /// For new data: it stands at the end of the log.
    NoData,
    /// The broker throttles, or `max.rate` does.
    Throttled,
    /// The prefetch budget is full.
    BudgetFull,
    /// For its own decompression and checks.
    Decoding,
    /// For nothing: the consumer of the chunks is busy with the last one.
    ConsumerBusy,
}

impl Waits {
    /// All, in the order of [`Times`].
    pub const ALL: [Self; 6] =
        [Self::Network, Self::NoData, Self::Throttled, Self::BudgetFull, Self::Decoding, Self::ConsumerBusy];

    fn of(at: u8) -> Self {
        Self::ALL.get(usize::from(at)).copied().unwrap_or(Self::Network)
    }
}

/// How long a reader spent on each; the sum is the time since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// See [`Waits::Network`].
    pub network: Duration,
    /// See [`Waits::NoData`].
    pub no_data: Duration,
    /// See [`Waits::Throttled`].
    pub throttled: Duration,
    /// See [`Waits::BudgetFull`].
    pub budget_full: Duration,
    /// See [`Waits::Decoding`].
    pub decoding: Duration,
    /// See [`Waits::ConsumerBusy`].
    pub consumer_busy: Duration,
}

impl Times {
    /// All of it.
    pub fn total(&self) -> Duration {
        let Self { network, no_data, throttled, budget_full, decoding, consumer_busy } = *self;
        network + no_data + throttled + budget_full + decoding + consumer_busy
    }

    /// What takes the most time.
    pub fn longest(&self) -> Waits {
        let Self { network, no_data, throttled, budget_full, decoding, consumer_busy } = *self;
        let times = [network, no_data, throttled, budget_full, decoding, consumer_busy];
        Waits::ALL.into_iter().zip(times).max_by_key(|(_, time)| *time).map_or(Waits::Network, |(waits, _)| waits)
    }

    fn of(&mut self, waits: Waits) -> &mut Duration {
        match waits {
            Waits::Network => &mut self.network,
            Waits::NoData => &mut self.no_data,
            Waits::Throttled => &mut self.throttled,
            Waits::BudgetFull => &mut self.budget_full,
            Waits::Decoding => &mut self.decoding,
            Waits::ConsumerBusy => &mut self.consumer_busy,
        }
    }
}

/// What is known of a reader, for whoever asks why it is not faster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReaderFacts {
    /// On what it spent its time.
    pub times: Times,
    /// What its fetches brought.
    pub totals: Totals,
    /// The offset after what was handed on.
    pub position: i64,
    /// The end of what can be read, as the broker told it last: the last stable offset under read_committed, else the high
    /// watermark.
    pub known_end: Option<i64>,
    /// How many pieces of the partition may be fetched at once.
    pub pieces_at_once: usize,
    /// The broker that is fetched from, with all that is fetched from it; `None` while it is not known.
    pub broker: Option<Choice>,
    /// How often the watchdog began anew because nothing came although there was something.
    pub restarts: u64,
}

/// The clock of a reader.
#[derive(Debug)]
pub(super) struct Clock {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    consumer_busy: bool,
    head: Waits,
    since: Instant,
    times: Times,
}

impl Default for Clock {
    fn default() -> Self {
        let state = State { consumer_busy: true, head: Waits::Network, since: Instant::now(), times: Times::default() };
        Self { state: Mutex::new(state) }
    }
}

impl State {
    fn turn(&mut self, now: Instant) {
        let waits = if self.consumer_busy { Waits::ConsumerBusy } else { self.head };
        *self.times.of(waits) += now.saturating_duration_since(self.since);
        self.since = now;
    }
}

impl Clock {
    /// The consumer waits for the next chunk, or not.
    pub(super) fn consumer(&self, is_busy: bool) {
        let mut state = self.state.lock();
        state.turn(Instant::now());
        state.consumer_busy = is_busy;
    }

    fn head(&self, waits: Waits) {
        let mut state = self.state.lock();
        if state.head != waits {
            state.turn(Instant::now());
            state.head = waits;
        }
    }

    /// Up to now.
    pub(super) fn times(&self) -> Times {
        let mut state = self.state.lock();
        state.turn(Instant::now());
        state.times
    }
}

/// What one piece waits for. It counts while it is the piece in front: that is the one the consumer waits for.
#[derive(Debug)]
pub(super) struct Phase {
    clock: Arc<Clock>,
    is_head: AtomicBool,
    now: AtomicU8,
    /// The last attempt failed.
    fails: AtomicBool,
    /// Of the connection that was fetched over last.
    arrivals: Mutex<Option<Arrivals>>,
}

impl Phase {
    pub(super) fn new(clock: Arc<Clock>) -> Self {
        let now = AtomicU8::new(Waits::Network as u8);
        Self { clock, is_head: AtomicBool::new(false), now, fails: AtomicBool::new(false), arrivals: Mutex::default() }
    }

    /// From now on it waits for this.
    pub(super) fn enter(&self, waits: Waits) {
        self.now.store(waits as u8, Ordering::SeqCst);
        if self.is_head.load(Ordering::SeqCst) {
            self.clock.head(waits);
        }
    }

    /// It is in front now.
    pub(super) fn lead(&self) {
        if !self.is_head.swap(true, Ordering::SeqCst) {
            self.clock.head(Waits::of(self.now.load(Ordering::SeqCst)));
        }
    }

    pub(super) fn now(&self) -> Waits {
        Waits::of(self.now.load(Ordering::SeqCst))
    }

    /// An attempt failed, or came to its end well.
    pub(super) fn set_fails(&self, fails: bool) {
        self.fails.store(fails, Ordering::SeqCst);
    }

    /// A fetch goes out over this connection.
    pub(super) fn fetches_over(&self, arrivals: Arrivals) {
        *self.arrivals.lock() = Some(arrivals);
    }

    /// Whether it waits for something that nobody else puts an end to. What has failed is tried again within limits, which to
    /// begin anew would only lift; what still comes is slow, and would be as slow again.
    pub(super) fn is_stuck(&self, watchdog: Duration) -> bool {
        let comes = || self.arrivals.lock().as_ref().is_some_and(|arrivals| arrivals.last().elapsed() < watchdog);
        matches!(self.now(), Waits::Network | Waits::Decoding) && !self.fails.load(Ordering::SeqCst) && !comes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_moment_belongs_to_one_thing_and_all_of_them_make_the_whole() {
        let begun = Instant::now();
        let state = State { consumer_busy: true, head: Waits::Network, since: begun, times: Times::default() };
        let clock = Arc::new(Clock { state: Mutex::new(state) });
        let (head, other) = (Phase::new(Arc::clone(&clock)), Phase::new(Arc::clone(&clock)));
        head.lead();
        clock.consumer(false);
        head.enter(Waits::BudgetFull);
        other.enter(Waits::Throttled);
        head.enter(Waits::Decoding);
        clock.consumer(true);
        clock.consumer(false);
        other.lead();
        let times = clock.times();
        assert_eq!(times.total(), clock.state.lock().since - begun);
        assert!(times.no_data.is_zero() && times.decoding > Duration::ZERO && times.throttled > Duration::ZERO);
    }

    #[test]
    fn the_time_goes_to_what_was_waited_for_until_then() {
        let begun = Instant::now();
        let mut state = State { consumer_busy: true, head: Waits::Network, since: begun, times: Times::default() };
        let ms = Duration::from_millis;
        state.turn(begun + ms(3));
        state.consumer_busy = false;
        state.turn(begun + ms(23));
        state.head = Waits::Decoding;
        state.turn(begun + ms(30));
        let expected = Times { consumer_busy: ms(3), network: ms(20), decoding: ms(7), ..Times::default() };
        assert_eq!((state.times, state.times.total(), state.times.longest()), (expected, ms(30), Waits::Network));
    }
}

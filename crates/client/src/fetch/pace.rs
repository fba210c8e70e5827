//! How many connections to one broker are fetched over at once. Pure: it is told what happened in a stretch of time, and
//! decides.
//!
//! A broker answers the requests of one connection one after another, and a window of bytes goes over it in a round trip, so
//! one connection to a distant broker leaves the link idle most of the time. More connections help until the link, the broker
//! or the consumer is the limit; beyond that they cost memory and nothing is gained. Nobody can tell beforehand where that
//! is, so their number is doubled while doubling pays.

use std::fmt;
use std::time::Duration;

/// What a doubling must gain to be kept. Where windows are what holds the fetches back it gains twice as much; a near broker
/// has no such windows, and what seems to be a gain there is mostly noise.
const GAIN: f64 = 1.2;
const GAIN_NEAR: f64 = 1.35;

/// A consumer that waited less than this share of the time is not held back by fetching.
const STARVED: f64 = 0.10;

/// Stretches without another attempt after one that did not pay; each further one that does not doubles them, up to the
/// second.
const REST: (u32, u32) = (16, 256);

/// A broker with a shorter round trip is near.
const NEAR: Duration = STEPS[0];

/// How many connections are begun with: two, which keep a near broker's threads busy, doubled for each of these round trips
/// that it takes at least. The further away the broker is, the longer each doubling takes.
const STEPS: [Duration; 3] = [Duration::from_millis(2), Duration::from_millis(10), Duration::from_millis(50)];
const FIRST: usize = 2;

/// Where a connection brings less in a round trip, a window holds it back, as the broker's send buffer (100 KiB by default)
/// does: then four times as many are tried.
const WINDOW_BYTES: f64 = 256.0 * 1024.0;

/// What happened since the last decision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stretch {
    /// How long it was.
    pub(super) elapsed: Duration,
    /// Bytes of record batches that were wanted.
    pub(super) bytes: u64,
    /// The share of the time in which consumers waited with nothing to take, 0 to 1.
    pub(super) starved: f64,
    /// Whether the broker throttled.
    pub(super) throttled: bool,
    /// The round trip to the broker, as far as it is known.
    pub(super) round_trip: Option<Duration>,
}

/// Why there are as many connections as there are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PaceReason {
    /// It is what is begun with, by the round trip to the broker as far as it is known.
    Begun {
        /// The round trip.
        round_trip: Option<Duration>,
    },
    /// `fetches.in.flight` is set.
    Set,
    /// Consumers wait for fetches; more are tried.
    Trying,
    /// More brought this many times the bytes per second.
    Gained(f64),
    /// More brought only this many times the bytes per second, so it went back.
    NoGain(f64),
    /// The consumers are slower than the fetches.
    ConsumerBusy,
    /// The broker throttles.
    Throttled,
    /// Consumers wait, and more connections may help, but `connections.per.broker` allows no more.
    AtLimit,
}

/// How a broker is fetched from, and why so.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Over how many connections at most.
    pub connections: usize,
    /// How many fetches may be on their way at once, over all of them.
    pub fetches_in_flight: usize,
    /// Why it is so many connections.
    pub reason: PaceReason,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Pace {
    now: usize,
    reason: PaceReason,
    /// The number and the rate, in bytes per second, before the doubling that is being tried.
    trial: Option<(usize, f64)>,
    rest: u32,
    next_rest: u32,
    is_set: bool,
    /// Whether a round trip is next to nothing, as soon as it is known.
    is_near: Option<bool>,
}

impl Pace {
    pub(super) fn new() -> Self {
        let reason = PaceReason::Begun { round_trip: None };
        Self { now: FIRST, reason, trial: None, rest: 0, next_rest: REST.0, is_set: false, is_near: None }
    }

    /// A number that does not change.
    pub(super) fn set(connections: usize) -> Self {
        Self { now: connections.max(1), reason: PaceReason::Set, is_set: true, ..Self::new() }
    }

    /// How many connections, within `limit`.
    pub(super) fn connections(&self, limit: usize) -> usize {
        self.now.clamp(1, limit.max(1))
    }

    /// Why.
    pub(super) fn reason(&self) -> PaceReason {
        self.reason
    }

    /// Whether a round trip is known to be next to nothing.
    pub(super) fn is_near(&self) -> bool {
        self.is_near == Some(true)
    }

    /// Whether a round trip is known to be more than that.
    pub(super) fn is_far(&self) -> bool {
        self.is_near == Some(false)
    }

    /// The round trip is known: what is begun with follows from it.
    pub(super) fn begin(&mut self, round_trip: Duration) {
        self.is_near = Some(round_trip < NEAR);
        if matches!(self.reason, PaceReason::Begun { .. }) && self.trial.is_none() {
            self.now = FIRST << STEPS.iter().filter(|step| round_trip >= **step).count();
            self.reason = PaceReason::Begun { round_trip: Some(round_trip) };
        }
    }

    /// Decides anew. `limit` is how many are allowed.
    pub(super) fn decide(&mut self, stretch: &Stretch, limit: usize) {
        if self.is_set {
            return;
        }
        let limit = limit.max(1);
        self.now = self.now.min(limit);
        let seconds = stretch.elapsed.as_secs_f64().max(1e-6);
        let rate = stretch.bytes as f64 / seconds;
        if stretch.throttled {
            // Asking more often only makes the broker wait longer.
            (self.now, self.trial, self.rest) = ((self.now / 2).max(1), None, REST.0);
            self.reason = PaceReason::Throttled;
            return;
        }
        if let Some((before, was)) = self.trial.take() {
            let times = rate / was.max(1.0);
            if times < if self.is_near() { GAIN_NEAR } else { GAIN } {
                (self.now, self.rest) = (before, self.next_rest);
                self.next_rest = (self.next_rest * 2).min(REST.1);
                self.reason = PaceReason::NoGain(times);
                return;
            }
            self.next_rest = REST.0;
            self.reason = PaceReason::Gained(times);
        } else if self.rest > 0 {
            self.rest -= 1;
            return;
        }
        if stretch.starved < STARVED {
            if !matches!(self.reason, PaceReason::Gained(_)) {
                self.reason = PaceReason::ConsumerBusy;
            }
            return;
        }
        if self.now >= limit {
            self.reason = PaceReason::AtLimit;
            return;
        }
        let in_a_round_trip = rate / self.now as f64 * stretch.round_trip.unwrap_or_default().as_secs_f64();
        let is_held_back = !self.is_near() && in_a_round_trip > 0.0 && in_a_round_trip < WINDOW_BYTES;
        self.trial = Some((self.now, rate));
        self.now = (self.now * if is_held_back { 4 } else { 2 }).min(limit);
        if !matches!(self.reason, PaceReason::Gained(_)) {
            self.reason = PaceReason::Trying;
        }
    }
}

impl fmt::Display for PaceReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begun { round_trip: None } => f.write_str("begun with, the round trip is not known yet"),
            Self::Begun { round_trip: Some(time) } => write!(f, "begun with at a round trip of {time:.1?}"),
            Self::Set => f.write_str("fetches.in.flight is set"),
            Self::Trying => f.write_str("consumers wait for fetches, so more are tried"),
            Self::Gained(times) => write!(f, "more brought {times:.2} times the bytes per second"),
            Self::NoGain(times) => write!(f, "more brought only {times:.2} times the bytes per second"),
            Self::ConsumerBusy => f.write_str("the consumers are slower than the fetches"),
            Self::Throttled => f.write_str("the broker throttles"),
            Self::AtLimit => f.write_str("connections.per.broker allows no more: raise it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretch(bytes: u64, starved: f64) -> Stretch {
        Stretch { elapsed: Duration::from_millis(100), bytes, starved, throttled: false, round_trip: None }
    }

    /// The numbers after each of the stretches on a link that gives `each` bytes a stretch to each connection and `all` at
    /// most in all.
    fn run(each: u64, all: u64, limit: usize, stretches: usize) -> Vec<usize> {
        let mut pace = Pace::new();
        (0..stretches)
            .map(|_| {
                let bytes = (each * pace.connections(limit) as u64).min(all);
                pace.decide(&stretch(bytes, 0.9), limit);
                pace.connections(limit)
            })
            .collect()
    }

    #[test]
    fn a_distant_link_is_filled_in_a_few_stretches() {
        assert_eq!(run(1 << 20, 24 << 20, 32, 5), [4, 8, 16, 32, 32]);
    }

    #[test]
    fn what_is_begun_with_follows_from_the_round_trip() {
        for (round_trip, connections) in [(0, 2), (1, 2), (2, 4), (9, 4), (10, 8), (49, 8), (50, 16)] {
            let mut pace = Pace::new();
            pace.begin(Duration::from_millis(round_trip));
            assert_eq!((pace.connections(32), pace.connections(3)), (connections, connections.min(3)));
        }
        let mut pace = Pace::new();
        pace.decide(&stretch(1 << 20, 0.9), 32);
        pace.begin(Duration::from_millis(100));
        assert_eq!(pace.connections(32), 4, "what was found out since is worth more");
    }

    #[test]
    fn connections_that_a_window_holds_back_are_tried_four_times_as_many() {
        let round_trip = Some(Duration::from_millis(80));
        let mut pace = Pace::new();
        pace.begin(Duration::from_millis(80));
        // 100 KiB in a round trip each, over 100 ms.
        let bytes = |pace: &Pace| 128_000 * pace.connections(128) as u64;
        let mut numbers = Vec::new();
        for _ in 0..3 {
            pace.decide(&Stretch { round_trip, ..stretch(bytes(&pace), 0.9) }, 128);
            numbers.push(pace.connections(128));
        }
        assert_eq!(numbers, [64, 128, 128]);
    }

    #[test]
    fn it_stays_where_nothing_is_gained_and_tries_again_after_rests_that_grow() {
        let widths = run(1 << 20, 1 << 20, 32, 400);
        assert_eq!(widths[..3], [4, 2, 2]);
        let trials: Vec<_> = (0..400).filter(|at| widths[*at] == 4).collect();
        assert_eq!(trials, [0, 18, 52, 118, 248]);
    }

    #[test]
    fn the_limit_holds_and_is_told() {
        assert_eq!(run(1 << 20, u64::MAX, 6, 4), [4, 6, 6, 6]);
        let mut pace = Pace::new();
        for bytes in [1, 2, 4] {
            pace.decide(&stretch(bytes << 20, 0.9), 4);
        }
        assert_eq!((pace.connections(4), pace.reason()), (4, PaceReason::AtLimit));
        assert_eq!(pace.connections(0), 1, "one is always allowed");
    }

    #[test]
    fn consumers_that_are_busy_get_no_more() {
        let mut pace = Pace::new();
        pace.decide(&stretch(1 << 20, 0.05), 32);
        assert_eq!((pace.connections(32), pace.reason()), (2, PaceReason::ConsumerBusy));
    }

    #[test]
    fn what_is_set_stays() {
        let mut pace = Pace::set(5);
        pace.begin(Duration::from_secs(1));
        pace.decide(&Stretch { throttled: true, ..stretch(1, 0.9) }, 32);
        assert_eq!((pace.connections(32), pace.connections(3), pace.reason()), (5, 3, PaceReason::Set));
    }

    #[test]
    fn throttling_halves_it() {
        let mut pace = Pace::new();
        for bytes in [1, 2, 4] {
            pace.decide(&stretch(bytes << 20, 0.9), 32);
        }
        assert_eq!(pace.connections(32), 16);
        pace.decide(&Stretch { throttled: true, ..stretch(8 << 20, 0.9) }, 32);
        assert_eq!((pace.connections(32), pace.reason()), (8, PaceReason::Throttled));
        pace.decide(&stretch(8 << 20, 0.9), 32);
        assert_eq!(pace.connections(32), 8, "it rests");
    }
}

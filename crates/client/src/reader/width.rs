//! How many pieces of a partition are fetched at once. Pure: it is told what happened in a stretch of time, and decides.
//!
//! A fetch costs a round trip, and a broker answers the requests of one connection one after another, so on a distant
//! link one connection leaves the link idle most of the time. More connections help until the link, the broker or the
//! consumer is the limit; beyond that they cost memory and nothing is gained. Nobody can tell beforehand where that is,
//! so the width is doubled while doubling pays.

use std::fmt;
use std::time::Duration;

/// What a doubling must gain to be kept.
const GAIN: f64 = 1.10;

/// A consumer that waited less than this share of the time is not held back by fetching.
const STARVED: f64 = 0.10;

/// Stretches without another attempt after one that did not pay.
const REST: u32 = 16;

/// What happened since the last decision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stretch {
    /// How long it was.
    pub(super) elapsed: Duration,
    /// Bytes of record batches that were wanted.
    pub(super) bytes: u64,
    /// How long the consumer waited with nothing to take.
    pub(super) starved: Duration,
    /// Whether the broker throttled.
    pub(super) throttled: bool,
}

/// Why the width is what it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WidthReason {
    /// Every read begins with one fetch at a time.
    Begun,
    /// It is set: `fetches.in.flight`.
    Set,
    /// The consumer waits for fetches; twice as many are tried.
    Trying,
    /// Twice as many brought this many times the bytes per second.
    Gained(f64),
    /// Twice as many brought only this many times the bytes per second, so it went back.
    NoGain(f64),
    /// The consumer is the slower one.
    ConsumerBusy,
    /// The broker throttles.
    Throttled,
    /// No more are allowed: by `connections_per_broker`, or by the budget of bytes, which as many pieces must fit.
    AtLimit,
}

/// How many pieces of a partition a reader fetches at once, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// How many, each over a connection of its own.
    pub at_once: usize,
    /// Why it is so many.
    pub reason: WidthReason,
}

impl Default for Choice {
    fn default() -> Self {
        Self { at_once: 1, reason: WidthReason::Begun }
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Width {
    now: usize,
    reason: WidthReason,
    /// The width and the rate, in bytes per second, before the doubling that is being tried.
    trial: Option<(usize, f64)>,
    rest: u32,
    is_set: bool,
}

impl Width {
    pub(super) fn new() -> Self {
        Self { now: 1, reason: WidthReason::Begun, trial: None, rest: 0, is_set: false }
    }

    /// A width that does not change.
    pub(super) fn set(width: usize) -> Self {
        Self { now: width.max(1), reason: WidthReason::Set, is_set: true, ..Self::new() }
    }

    /// The width, within `limit`.
    pub(super) fn get(&self, limit: usize) -> usize {
        self.now.clamp(1, limit.max(1))
    }

    /// Why.
    pub(super) fn reason(&self) -> WidthReason {
        self.reason
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
            (self.now, self.trial, self.rest) = ((self.now / 2).max(1), None, REST);
            self.reason = WidthReason::Throttled;
            return;
        }
        if let Some((before, was)) = self.trial.take() {
            let times = rate / was.max(1.0);
            if times < GAIN {
                (self.now, self.rest) = (before, REST);
                self.reason = WidthReason::NoGain(times);
                return;
            }
            self.reason = WidthReason::Gained(times);
        } else if self.rest > 0 {
            self.rest -= 1;
            return;
        }
        if stretch.starved.as_secs_f64() < STARVED * seconds {
            if !matches!(self.reason, WidthReason::Gained(_)) {
                self.reason = WidthReason::ConsumerBusy;
            }
            return;
        }
        if self.now >= limit {
            self.reason = WidthReason::AtLimit;
            return;
        }
        self.trial = Some((self.now, rate));
        self.now = (self.now * 2).min(limit);
        if !matches!(self.reason, WidthReason::Gained(_)) {
            self.reason = WidthReason::Trying;
        }
    }
}

impl fmt::Display for WidthReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begun => f.write_str("every read begins with one fetch at a time"),
            Self::Set => f.write_str("fetches.in.flight sets it"),
            Self::Trying => f.write_str("the consumer waits for fetches, so twice as many are tried"),
            Self::Gained(times) => write!(f, "twice as many brought {times:.2} times the bytes per second"),
            Self::NoGain(times) => write!(f, "twice as many brought only {times:.2} times the bytes per second"),
            Self::ConsumerBusy => f.write_str("the consumer is slower than the fetches"),
            Self::Throttled => f.write_str("the broker throttles"),
            Self::AtLimit => f.write_str("the limit of connections per broker, or the budget of bytes, allows no more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretch(bytes: u64, starved_ms: u64) -> Stretch {
        Stretch {
            elapsed: Duration::from_millis(100),
            bytes,
            starved: Duration::from_millis(starved_ms),
            throttled: false,
        }
    }

    /// The widths after each of the stretches on a link that gives `per_fetch` bytes a stretch to each fetch and `all` at
    /// most in all.
    fn run(per_fetch: u64, all: u64, limit: usize, stretches: usize) -> Vec<usize> {
        let mut width = Width::new();
        (0..stretches)
            .map(|_| {
                let bytes = (per_fetch * width.get(limit) as u64).min(all);
                width.decide(&stretch(bytes, 90), limit);
                width.get(limit)
            })
            .collect()
    }

    #[test]
    fn a_distant_link_is_filled_in_a_few_stretches() {
        assert_eq!(run(1 << 20, 24 << 20, 32, 6), [2, 4, 8, 16, 32, 32]);
    }

    #[test]
    fn it_stays_where_nothing_is_gained_and_tries_again_after_a_rest() {
        let widths = run(1 << 20, 1 << 20, 32, 40);
        assert_eq!(widths[..3], [2, 1, 1]);
        assert_eq!(widths.iter().filter(|width| **width == 2).count(), 3, "{widths:?}");
        assert!(widths.iter().all(|width| *width <= 2));
    }

    #[test]
    fn the_limit_holds_and_is_told() {
        assert_eq!(run(1 << 20, u64::MAX, 6, 5), [2, 4, 6, 6, 6]);
        let mut width = Width::new();
        for bytes in [1, 2, 4] {
            width.decide(&stretch(bytes << 20, 90), 2);
        }
        assert_eq!((width.get(2), width.reason()), (2, WidthReason::AtLimit));
        assert_eq!(width.get(0), 1, "one is always allowed");
    }

    #[test]
    fn a_consumer_that_is_busy_gets_no_more() {
        let mut width = Width::new();
        width.decide(&stretch(1 << 20, 5), 32);
        assert_eq!((width.get(32), width.reason()), (1, WidthReason::ConsumerBusy));
    }

    #[test]
    fn what_is_set_stays() {
        let mut width = Width::set(5);
        width.decide(&Stretch { throttled: true, ..stretch(1, 90) }, 32);
        assert_eq!((width.get(32), width.get(3), width.reason()), (5, 3, WidthReason::Set));
    }

    #[test]
    fn throttling_halves_it() {
        let mut width = Width::new();
        for bytes in [1, 2, 4, 8] {
            width.decide(&stretch(bytes << 20, 90), 32);
        }
        assert_eq!(width.get(32), 16);
        width.decide(&Stretch { throttled: true, ..stretch(8 << 20, 90) }, 32);
        assert_eq!((width.get(32), width.reason()), (8, WidthReason::Throttled));
        width.decide(&stretch(8 << 20, 90), 32);
        assert_eq!(width.get(32), 8, "it rests");
    }
}

//! Counting the attempts of one operation.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use tokio::time::Instant;

use crate::config::RetryLimits;

/// However the limits are set. It also keeps the arithmetic of times inside its range.
const LONGEST_PAUSE: Duration = Duration::from_secs(3_600);

/// The attempts of one operation so far.
#[derive(Debug)]
pub(crate) struct Retry {
    limits: RetryLimits,
    failed: u32,
    /// When the first of them failed.
    since: Instant,
}

impl Retry {
    /// Nothing has failed yet.
    pub(crate) fn new(limits: RetryLimits) -> Self {
        Self { limits, failed: 0, since: Instant::now() }
    }

    /// The operation made progress: what comes counts anew.
    pub(crate) fn reset(&mut self) {
        self.failed = 0;
    }

    /// An attempt failed: waits until the next may begin. `false`: the limits are used up.
    pub(crate) async fn pause(&mut self) -> bool {
        if self.failed == 0 {
            self.since = Instant::now();
        }
        self.failed += 1;
        let Some(pause) = next_pause(&self.limits, self.failed, self.since.elapsed()) else { return false };
        tokio::time::sleep(pause.mul_f64(jitter())).await;
        true
    }
}

/// The pause after the `failed`-th failure in a row, `None` when the limits are used up.
fn next_pause(limits: &RetryLimits, failed: u32, elapsed: Duration) -> Option<Duration> {
    if failed >= limits.attempts.max(1) || elapsed >= limits.deadline {
        return None;
    }
    let doublings = (failed - 1).min(31);
    Some(limits.backoff.saturating_mul(1 << doublings).min(limits.backoff_max).min(LONGEST_PAUSE))
}

/// 0.8 to 1.2, so that clients that failed together do not come back together.
fn jitter() -> f64 {
    0.8 + 0.4 * fraction()
}

/// A random number from 0 to 1.
pub(crate) fn fraction() -> f64 {
    let random = RandomState::new().hash_one(0_u8);
    #[expect(clippy::cast_precision_loss, reason = "a random fraction needs no precision")]
    let fraction = random as f64 / u64::MAX as f64;
    fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: RetryLimits = RetryLimits {
        attempts: 4,
        backoff: Duration::from_millis(10),
        backoff_max: Duration::from_millis(25),
        deadline: Duration::from_secs(1),
    };

    #[test]
    fn pauses_double_up_to_their_limit_and_end_with_the_attempts() {
        let pauses: Vec<_> = (1..=4).map(|failed| next_pause(&LIMITS, failed, Duration::ZERO)).collect();
        let expected = [Some(10), Some(20), Some(25), None].map(|pause| pause.map(Duration::from_millis));
        assert_eq!(pauses, expected);
    }

    #[test]
    fn the_deadline_ends_them_too() {
        assert_eq!(next_pause(&LIMITS, 1, Duration::from_secs(1)), None);
    }

    #[test]
    fn any_number_of_attempts_is_counted_without_overflow() {
        let limits = RetryLimits { attempts: u32::MAX, ..LIMITS };
        assert_eq!(next_pause(&limits, u32::MAX - 1, Duration::ZERO), Some(limits.backoff_max));
        let endless = RetryLimits { backoff: Duration::MAX, backoff_max: Duration::MAX, ..LIMITS };
        assert_eq!(next_pause(&endless, 1, Duration::ZERO), Some(LONGEST_PAUSE));
        let none = RetryLimits { attempts: 0, ..LIMITS };
        assert_eq!(next_pause(&none, 1, Duration::ZERO), None);
    }

    #[test]
    fn jitter_stays_within_a_fifth() {
        assert!((0..1000).all(|_| (0.8..=1.2).contains(&jitter())));
    }
}

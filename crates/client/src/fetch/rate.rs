//! A cap on bytes per second, `max.rate`, so that catching up starves nobody else of the broker.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// What may go at once after a pause, as a part of a second's bytes.
const BURST: f64 = 0.1;

/// However slow the rate is: what did not come may be given back meanwhile.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Bytes per second, or no cap.
#[derive(Debug)]
pub(super) struct Rate {
    per_second: Option<f64>,
    state: Mutex<State>,
    /// Held by whoever waits in front, so that all pass in their order.
    turnstile: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State {
    /// What may be asked for now; less than nothing while what was asked for is being paid off.
    bytes: f64,
    at: Instant,
}

/// What a fetch asked for; what came is settled when this is dropped, nothing unless it is said.
pub(super) struct Pass<'a> {
    rate: &'a Rate,
    asked: usize,
    pub(super) received: usize,
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if self.rate.per_second.is_some() {
            self.rate.state.lock().bytes += self.asked as f64 - self.received as f64;
        }
    }
}

impl Rate {
    pub(super) fn new(bytes_per_second: Option<u64>) -> Self {
        let per_second = bytes_per_second.map(|rate| rate.max(1) as f64);
        let state = State { bytes: per_second.unwrap_or(0.0) * BURST, at: Instant::now() };
        Self { per_second, state: Mutex::new(state), turnstile: tokio::sync::Mutex::new(()) }
    }

    /// Whether there is a cap.
    pub(super) fn is_capped(&self) -> bool {
        self.per_second.is_some()
    }

    /// Waits until `bytes` may be asked for. Whoever comes when nothing is owed goes at once, and the next waits for what it
    /// took: a single fetch may be larger than what goes in a second.
    pub(super) async fn pass(&self, bytes: usize) -> Pass<'_> {
        if self.per_second.is_some() {
            let _in_turn = self.turnstile.lock().await;
            while let Some(pause) = self.take(bytes, Instant::now()) {
                tokio::time::sleep(pause).await;
            }
        }
        Pass { rate: self, asked: bytes, received: 0 }
    }

    /// Takes `bytes`, or says how long to wait before asking again.
    fn take(&self, bytes: usize, now: Instant) -> Option<Duration> {
        let per_second = self.per_second?;
        let mut state = self.state.lock();
        let earned = now.saturating_duration_since(state.at).as_secs_f64() * per_second;
        state.bytes = (state.bytes + earned).min(per_second * BURST);
        state.at = now;
        if state.bytes >= 0.0 {
            state.bytes -= bytes as f64;
            return None;
        }
        let pause = Duration::try_from_secs_f64(-state.bytes / per_second).unwrap_or(LONGEST_PAUSE);
        Some(pause.clamp(Duration::from_millis(1), LONGEST_PAUSE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_a_time_is_what_the_rate_allows_and_one_fetch() {
        let rate = Rate::new(Some(1_000_000));
        let begun = Instant::now();
        let mut now = begun;
        for _ in 0..20 {
            while let Some(pause) = rate.take(200_000, now) {
                now += pause;
            }
        }
        // 4 MB at 1 MB/s, of which the last fetch and what may go at once need not be waited for.
        let took = (now - begun).as_secs_f64();
        assert!((3.6..=4.0).contains(&took), "{took}");
        drop(Pass { rate: &rate, asked: 200_000, received: 0 });
        assert_eq!(rate.take(0, now), None, "what did not come is not paid for");
        drop(Pass { rate: &rate, asked: 0, received: 500_000 });
        assert!(rate.take(0, now).is_some(), "and what came beyond it is");
    }

    #[test]
    fn without_a_cap_nobody_waits() {
        let rate = Rate::new(None);
        assert!((0..1_000).all(|_| rate.take(usize::MAX, Instant::now()).is_none()));
    }
}

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
}

#[derive(Debug)]
struct State {
    /// What may be asked for now; less than nothing while what was asked for is being paid off.
    bytes: f64,
    at: Instant,
}

impl Rate {
    pub(super) fn new(bytes_per_second: Option<u64>) -> Self {
        let per_second = bytes_per_second.map(|rate| rate.max(1) as f64);
        Self { per_second, state: Mutex::new(State { bytes: per_second.unwrap_or(0.0) * BURST, at: Instant::now() }) }
    }

    /// Waits until `bytes` may be asked for. Whoever comes when nothing is owed goes at once, and the next waits for what it
    /// took: a single fetch may be larger than what goes in a second.
    pub(super) async fn pass(&self, bytes: usize) {
        while let Some(pause) = self.take(bytes, Instant::now()) {
            tokio::time::sleep(pause).await;
        }
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

    /// Of what was asked for, so much did not come.
    pub(super) fn give_back(&self, bytes: usize) {
        if self.per_second.is_some() {
            self.state.lock().bytes += bytes as f64;
        }
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
        rate.give_back(200_000);
        assert_eq!(rate.take(1, now), None, "what did not come is not paid for");
    }

    #[test]
    fn without_a_cap_nobody_waits() {
        let rate = Rate::new(None);
        assert!((0..1_000).all(|_| rate.take(usize::MAX, Instant::now()).is_none()));
    }
}

//! For how long the pieces of a reader have come upon nothing.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The time in which fetches came back without any progress. Time in which several of them stood still counts once, since one
/// refusal is met by all pieces that are on their way; time in which none was asked, as when the consumer is busy, not at all.
#[derive(Default)]
pub(super) struct Standing {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    time: Duration,
    /// Up to when it is counted.
    until: Option<Instant>,
}

impl Standing {
    /// A fetch stood still between these moments. For how long they have in all.
    pub(super) fn add(&self, from: Instant, until: Instant) -> Duration {
        let mut state = self.state.lock();
        let counted = state.until.unwrap_or(from);
        state.time = state.time.saturating_add(until.saturating_duration_since(from.max(counted)));
        state.until = Some(counted.max(until));
        state.time
    }

    /// Something came.
    pub(super) fn end(&self) {
        *self.state.lock() = State::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_once_however_many_stand_still_and_anew_after_progress() {
        let begun = Instant::now();
        let seconds = Duration::from_secs;
        let at = |after| begun + seconds(after);
        let standing = Standing::default();
        for _ in 0..31 {
            assert_eq!(standing.add(at(0), at(10)), seconds(10));
        }
        assert_eq!(standing.add(at(5), at(12)), seconds(12), "only what is beyond counts");
        assert_eq!(standing.add(at(3), at(8)), seconds(12));
        assert_eq!(standing.add(at(500), at(501)), seconds(13), "nobody asked in between");
        standing.end();
        assert_eq!(standing.add(at(499), at(502)), seconds(3));
    }
}

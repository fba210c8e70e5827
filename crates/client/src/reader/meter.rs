//! What the fetches of one reader have shown of the partition: how many bytes an offset takes, how large a batch is, and
//! how much of what came was wanted. Shared by the pieces of a reader.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::walk::Passed;

/// How much the newest fetch counts in an average.
const NEWEST: f64 = 0.4;

/// A fetch of fewer batches says little of the partition, once something is known: mostly it brings the rest of a piece.
const TELLING_BATCHES: usize = 4;

/// What a compressed byte is taken to become before one has been seen.
const FIRST_EXPANSION: usize = 4;

/// The fewest batches of a piece. Where two pieces meet they mostly cut through a batch, which both fetch, and what a fetch
/// asks for beyond its piece is lost too: one and a half batches a piece, which must stay below a twentieth of it.
const BATCHES_A_PIECE: f64 = 48.0;

/// What a fetch asks for beyond the offsets of its piece, in batches. Those that are cut through at both ends take one on
/// average; one more round trip for a few missing records is dearer than another half.
const MARGIN_BATCHES: f64 = 1.5;

/// One fetch that brought something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// The bytes of record batches that came.
    pub(super) received: usize,
    /// The batches that were wanted.
    pub(super) passed: Passed,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Meter {
    state: Mutex<State>,
    /// Bytes that a compressed byte became, as last seen.
    expansion: AtomicUsize,
}

impl Default for Meter {
    fn default() -> Self {
        Self { state: Mutex::default(), expansion: AtomicUsize::new(FIRST_EXPANSION) }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    bytes_per_offset: Option<f64>,
    batch_bytes: f64,
    fetches: u64,
    received: u64,
    used: u64,
    throttled: u64,
}

/// Sums over all fetches of a reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Fetches that brought something.
    pub fetches: u64,
    /// Bytes of record batches that came, as stored.
    pub received: u64,
    /// Those of them that were wanted. The rest came twice, or was cut off at the end of an answer.
    pub used: u64,
    /// Answers that told of throttling.
    pub throttled: u64,
}

impl Meter {
    /// Takes note of a fetch.
    pub(super) fn add(&self, sample: Sample) {
        let mut state = self.state.lock();
        state.fetches += 1;
        state.received += sample.received as u64;
        let Passed { bytes, batches, offsets } = sample.passed;
        state.used += bytes as u64;
        if offsets <= 0 || bytes == 0 || (batches < TELLING_BATCHES && state.bytes_per_offset.is_some()) {
            return;
        }
        let density = bytes as f64 / offsets as f64;
        let batch = bytes as f64 / batches.max(1) as f64;
        let mix = |old: f64, new: f64| old + NEWEST * (new - old);
        match state.bytes_per_offset {
            None => (state.bytes_per_offset, state.batch_bytes) = (Some(density), batch),
            Some(old) => {
                (state.bytes_per_offset, state.batch_bytes) = (Some(mix(old, density)), mix(state.batch_bytes, batch));
            }
        }
    }

    /// Takes note of an answer that told of throttling.
    pub(super) fn add_throttled(&self) {
        self.state.lock().throttled += 1;
    }

    /// Takes note of what a compressed batch became.
    pub(super) fn expanded(&self, stored: usize, bytes: usize) {
        self.expansion.store((bytes / stored.max(1)).saturating_add(1), Ordering::Relaxed);
    }

    /// Bytes that a compressed byte is expected to become.
    pub(super) fn expansion(&self) -> usize {
        self.expansion.load(Ordering::Relaxed)
    }

    /// The sums so far.
    pub(super) fn totals(&self) -> Totals {
        let State { fetches, received, used, throttled, .. } = *self.state.lock();
        Totals { fetches, received, used, throttled }
    }

    /// Where a piece of about `bytes` ends that begins at `start`; `None` while nothing is known. A remainder up to `end`
    /// that would be less than half a piece is taken along.
    pub(super) fn piece_end(&self, start: i64, end: i64, bytes: usize) -> Option<i64> {
        let state = *self.state.lock();
        let density = state.bytes_per_offset?;
        // One fetch of `bytes` brings it all.
        let bytes = (bytes as f64 - state.batch_bytes * MARGIN_BATCHES).max(state.batch_bytes * BATCHES_A_PIECE);
        let offsets = (bytes / density.max(f64::MIN_POSITIVE)).clamp(1.0, i64::MAX as f64) as i64;
        let cut = start.saturating_add(offsets);
        Some(if cut.saturating_add(offsets / 2) >= end { end } else { cut })
    }

    /// How many bytes the offsets `[start, end)` are expected to take, with what a fetch should ask for beyond that.
    /// `None` while nothing is known.
    pub(super) fn bytes_of(&self, start: i64, end: i64) -> Option<usize> {
        let state = *self.state.lock();
        let offsets = end.saturating_sub(start).max(0) as f64;
        let bytes = state.bytes_per_offset? * offsets + state.batch_bytes * MARGIN_BATCHES;
        Some(bytes.min(usize::MAX as f64) as usize)
    }

    /// The fewest bytes that a piece may have.
    pub(super) fn least_piece(&self) -> usize {
        (self.state.lock().batch_bytes * BATCHES_A_PIECE).min(usize::MAX as f64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(used: usize, offsets: i64, batches: usize) -> Sample {
        Sample { received: used, passed: Passed { bytes: used, batches, offsets } }
    }

    #[test]
    fn nothing_is_known_before_the_first_fetch() {
        let meter = Meter::default();
        assert_eq!((meter.piece_end(0, 100, 10), meter.bytes_of(0, 100)), (None, None));
        // What moved no position says nothing either.
        meter.add(sample(0, 10, 0));
        assert_eq!(meter.piece_end(0, 100, 10), None);
    }

    #[test]
    fn a_piece_holds_as_many_offsets_as_its_bytes_take() {
        let meter = Meter::default();
        meter.add(sample(100_000, 1_000, 10));
        assert_eq!(meter.piece_end(50, 1_000_000, 600_000), Some(5_900));
        assert_eq!(meter.piece_end(50, 8_800, 600_000), Some(8_800), "a small rest is taken along");
        assert_eq!(meter.piece_end(50, 1_000_000, 1), Some(4_850), "never less than so many batches");
        assert_eq!((meter.bytes_of(0, 1_000), meter.least_piece()), (Some(100_000 + 15_000), 480_000));
    }

    #[test]
    fn it_follows_a_partition_that_changes() {
        let meter = Meter::default();
        meter.add(sample(100_000, 1_000, 10));
        for _ in 0..20 {
            meter.add(sample(1_000_000, 1_000, 10));
        }
        let end = meter.piece_end(0, i64::MAX, 10_000_000).unwrap();
        assert!((9_700..=9_950).contains(&end), "{end}");
        assert_eq!(meter.totals(), Totals { fetches: 21, received: 20_100_000, used: 20_100_000, throttled: 0 });
    }

    #[test]
    fn absurd_densities_cut_within_the_range() {
        let meter = Meter::default();
        meter.add(sample(1, i64::MAX, 1));
        assert_eq!(meter.piece_end(5, i64::MAX, usize::MAX), Some(i64::MAX));
        let dense = Meter::default();
        dense.add(sample(usize::MAX, 1, 1));
        assert_eq!(dense.piece_end(5, 100, 1), Some(53));
        assert!(dense.bytes_of(0, i64::MAX).is_some());
    }
}

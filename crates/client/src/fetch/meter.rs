//! What the fetches of one reader have shown of the partition: how many bytes an offset takes, how large a batch is, and
//! how much of what came was wanted. Shared by the pieces of a reader.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::walk::Passed;

/// How much the newest fetch counts in an average.
const NEWEST: f64 = 0.4;

/// A fetch of fewer batches says little of the partition, once something is known: mostly it brings the rest of a piece.
const TELLING_BATCHES: usize = 4;

/// From fewer batches nobody can tell how large they are: pieces that are cut too small lose a batch each.
const KNOWN_BATCHES: usize = 6;

/// What a compressed byte is taken to become before one has been seen.
const FIRST_EXPANSION: usize = 4;

/// The fewest batches of a piece. Where two pieces meet they mostly cut through a batch, which both fetch, and what a fetch
/// asks for beyond its piece is lost too: one and a half batches a piece, which must stay below a twentieth of it.
const BATCHES_A_PIECE: f64 = 48.0;

/// What a fetch asks for beyond the offsets of its piece, in batches. Those that are cut through at both ends take one on
/// average; one more round trip for a few missing records is dearer than another half.
const MARGIN_BATCHES: f64 = 1.5;

/// The same where batches have as many records each, as full ones of records of one size do: there pieces begin and end with
/// batches, and nothing comes twice but what their sizes differ by.
const EVEN_BATCHES_A_PIECE: f64 = 6.0;
const EVEN_MARGIN_BATCHES: f64 = 0.03;

/// The fewest batches of a fetch. Most answers end within a batch, whose part that came is lost: half of one on average.
const BATCHES_A_FETCH: f64 = 24.0;

/// More bytes than so many of those that were wanted are too many, once so many have come.
const WASTE: f64 = 1.02;
const TELLING_BYTES: u64 = 1 << 20;

/// So many fetches in a row must have shown that the batches are even.
const EVEN_FETCHES: u32 = 2;

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
    /// The mean size of a batch, each counted by its size.
    batch_bytes: f64,
    /// Where a batch begins, and how many offsets each has, as far as they have as many.
    even: Option<(i64, i64)>,
    /// The fetches in a row that showed it.
    even_fetches: u32,
    /// How many were seen, up to what is needed.
    batches: usize,
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
        let Passed { bytes, wanted, batches, squares, offsets, last_base, each } = sample.passed;
        state.used += wanted as u64;
        state.see_batches(batches, last_base, each);
        state.batches = state.batches.saturating_add(batches).min(KNOWN_BATCHES);
        if offsets <= 0 || bytes == 0 || (batches < TELLING_BATCHES && state.density().is_some()) {
            return;
        }
        let density = bytes as f64 / offsets as f64;
        // The batch that an end of a piece or of an answer falls into, and of which a part is lost: the larger a batch is,
        // the likelier it is that one.
        let batch = squares as f64 / bytes as f64;
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

    /// While too little is known: what came so far, in bytes.
    pub(super) fn learning(&self) -> Option<usize> {
        let state = self.state.lock();
        state.density().is_none().then(|| usize::try_from(state.received).unwrap_or(usize::MAX))
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

    /// Where a piece of about `bytes` ends that begins at `start`; `None` while too little is known. A remainder up to `end`
    /// that would be less than half a piece is taken along.
    pub(super) fn piece_end(&self, start: i64, end: i64, bytes: usize) -> Option<i64> {
        let state = *self.state.lock();
        let density = state.density()?;
        // One fetch of `bytes` brings it all.
        let (least, margin) = state.piece();
        let bytes = (bytes as f64 - state.batch_bytes * margin).max(state.batch_bytes * least);
        let offsets = (bytes / density.max(f64::MIN_POSITIVE)).clamp(1.0, i64::MAX as f64) as i64;
        let cut = state.align(start, start.saturating_add(offsets));
        Some(if cut.saturating_add(offsets / 2) >= end { end } else { cut })
    }

    /// How many bytes the offsets `[start, end)` are expected to take, with what a fetch should ask for beyond that.
    /// `None` while nothing is known.
    pub(super) fn bytes_of(&self, start: i64, end: i64) -> Option<usize> {
        let state = *self.state.lock();
        let offsets = end.saturating_sub(start).max(0) as f64;
        let bytes = state.density()? * offsets + state.batch_bytes * state.piece().1;
        Some(bytes.min(usize::MAX as f64) as usize)
    }

    /// The fewest bytes that a fetch should ask for.
    pub(super) fn least_fetch(&self) -> usize {
        (self.state.lock().batch_bytes * BATCHES_A_FETCH).min(usize::MAX as f64) as usize
    }

    /// Whether much came that was not wanted.
    pub(super) fn is_wasteful(&self) -> bool {
        let state = self.state.lock();
        state.received >= TELLING_BYTES && state.received as f64 > state.used as f64 * WASTE
    }

    /// The fewest bytes that a piece may have.
    pub(super) fn least_piece(&self) -> usize {
        let state = *self.state.lock();
        (state.batch_bytes * state.piece().0).min(usize::MAX as f64) as usize
    }
}

impl State {
    /// The bytes of an offset, when enough is known.
    fn density(&self) -> Option<f64> {
        self.bytes_per_offset.filter(|_| self.batches >= KNOWN_BATCHES)
    }

    fn see_batches(&mut self, batches: usize, last_base: i64, each: Option<i64>) {
        if batches < 2 {
            // One batch is as long as it is, and no word against the others: at the end of a log or of a piece.
            return;
        }
        let known = self.even.map(|(_, each)| each);
        self.even_fetches = match each {
            Some(_) if each == known => self.even_fetches.saturating_add(1),
            Some(_) => 1,
            None => 0,
        };
        self.even = each.filter(|each| *each > 0).map(|each| (last_base, each));
    }

    fn is_even(&self) -> bool {
        self.even.is_some() && self.even_fetches >= EVEN_FETCHES
    }

    /// The fewest batches of a piece, and what its fetch asks for beyond it.
    fn piece(&self) -> (f64, f64) {
        if self.is_even() { (EVEN_BATCHES_A_PIECE, EVEN_MARGIN_BATCHES) } else { (BATCHES_A_PIECE, MARGIN_BATCHES) }
    }

    /// The last end of a batch at or before `cut`, where batches are even and there is one behind `start`.
    fn align(&self, start: i64, cut: i64) -> i64 {
        let Some((base, each)) = self.even.filter(|_| self.is_even()) else { return cut };
        let aligned = cut.saturating_sub(cut.saturating_sub(base).rem_euclid(each));
        if aligned > start { aligned } else { cut }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(used: usize, offsets: i64, batches: usize) -> Sample {
        let squares = (used as u128).pow(2) / batches.max(1) as u128;
        let passed = Passed { bytes: used, wanted: used, batches, squares, offsets, last_base: 0, each: None };
        Sample { received: used, passed }
    }

    #[test]
    fn nothing_is_known_before_the_first_fetch() {
        let meter = Meter::default();
        assert_eq!((meter.piece_end(0, 100, 10), meter.bytes_of(0, 100)), (None, None));
        // What moved no position says nothing either.
        meter.add(sample(0, 10, 0));
        assert_eq!(meter.piece_end(0, 100, 10), None);
        // Nor do a few batches.
        meter.add(sample(500, 5, 5));
        assert_eq!((meter.piece_end(0, 100, 10), meter.learning()), (None, Some(500)));
        meter.add(sample(300, 3, 3));
        assert_eq!((meter.piece_end(0, 100, 10), meter.learning()), (Some(48), None));
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
    fn pieces_of_even_batches_begin_and_end_with_batches_and_may_be_small() {
        let meter = Meter::default();
        // Batches of 10 offsets and 1,000 bytes that begin at 3, 13, 23 ...
        let even = |last_base| {
            let sample = sample(8_000, 80, 8);
            Sample { passed: Passed { last_base, each: Some(10), ..sample.passed }, ..sample }
        };
        meter.add(even(73));
        assert_eq!(meter.piece_end(83, 1_000_000, 1), Some(563), "once may be chance");
        meter.add(even(153));
        assert_eq!(meter.piece_end(163, 1_000_000, 9_000), Some(243));
        assert_eq!(meter.piece_end(163, 1_000_000, 1), Some(223));
        assert_eq!((meter.bytes_of(163, 243), meter.least_piece()), (Some(8_030), 6_000));
        // One that is cut short at the end of a log says nothing; uneven ones end it.
        meter.add(sample(300, 3, 1));
        assert_eq!(meter.least_piece(), 6_000);
        meter.add(sample(8_000, 80, 8));
        assert_eq!(meter.least_piece(), 48_000);
    }

    #[test]
    fn a_fetch_holds_so_many_batches_and_waste_is_noticed() {
        let meter = Meter::default();
        assert_eq!((meter.least_fetch(), meter.is_wasteful()), (0, false));
        meter.add(sample(100_000, 1_000, 10));
        assert_eq!(meter.least_fetch(), 240_000);
        meter.add(Sample { received: 2_000_000, ..sample(1_000_000, 10_000, 10) });
        assert!(meter.is_wasteful());
        meter.add(sample(90_000_000, 900_000, 900));
        assert!(!meter.is_wasteful(), "it was little after all");
    }

    #[test]
    fn of_uneven_batches_the_large_ones_count_more() {
        let meter = Meter::default();
        let even = sample(100_000, 1_000, 10);
        // Nine of 1,000 bytes and one of 91,000.
        let passed = Passed { squares: 9 * 1_000_000 + 8_281_000_000, ..even.passed };
        meter.add(Sample { passed, ..even });
        assert_eq!((meter.least_fetch(), meter.least_piece()), (24 * 82_900, 48 * 82_900));
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
        meter.add(sample(8, i64::MAX, 8));
        assert_eq!(meter.piece_end(5, i64::MAX, usize::MAX), Some(i64::MAX));
        let dense = Meter::default();
        dense.add(sample(usize::MAX, 8, 8));
        assert_eq!(dense.piece_end(5, 100, 1), Some(53));
        assert!(dense.bytes_of(0, i64::MAX).is_some());
    }
}

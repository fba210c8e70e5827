//! The growing output of a decompressor.

use bytes::Bytes;

/// The least that an output grows by.
const STEP: usize = 4 * 1024;

/// Makes room for `more` bytes after those that `out` holds, growing in proportion to what it holds already but never beyond
/// `cap`. The caller keeps `out.len() + more` within the cap.
///
/// The last step goes from half the cap at most: while it moves, the output is there twice, and takes 1.5 times the cap.
pub(super) fn reserve(out: &mut Vec<u8>, more: usize, cap: usize) {
    let needed = out.len().saturating_add(more);
    if needed <= out.capacity() {
        return;
    }
    let doubled = out.capacity().saturating_mul(2).max(STEP).max(needed);
    let roomy = if doubled > cap / 2 { cap.max(needed) } else { doubled };
    out.reserve_exact(roomy.saturating_sub(out.len()));
}

/// The finished output without the spare room, if that is more than a small part of it: a chunk is held for as long as its
/// slowest reader, and accounted by its length.
pub(crate) fn into_bytes(mut out: Vec<u8>) -> Bytes {
    if out.capacity() - out.len() > out.len() / 8 {
        out.shrink_to_fit();
    }
    out.into()
}

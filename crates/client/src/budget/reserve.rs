//! Bytes that several budgets may take beyond their own.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What readers may hold beyond their budgets, all of them together, where a budget is too little: over long ways, and of
/// large batches. Cheap to clone; clones are the same reserve.
///
/// With 4 MiB on the way at most and a round trip of 40 ms nobody reads more than 100 MB/s; and of each answer that ends
/// within a batch of 1 MB half a batch is lost. To give every reader as much as the longest way and the largest batches take
/// would bound nothing.
#[derive(Clone)]
pub struct Reserve {
    shared: Arc<Shared>,
}

struct Shared {
    limit: usize,
    left: AtomicUsize,
}

impl Reserve {
    /// A reserve of `bytes`.
    pub fn new(bytes: usize) -> Self {
        Self { shared: Arc::new(Shared { limit: bytes, left: AtomicUsize::new(bytes) }) }
    }

    /// The reserve, in bytes.
    pub fn limit(&self) -> usize {
        self.shared.limit
    }

    /// What nobody has taken of it.
    pub fn left(&self) -> usize {
        self.shared.left.load(Ordering::Relaxed)
    }

    /// Takes all of `bytes` or nothing.
    pub(crate) fn take(&self, bytes: usize) -> bool {
        // Only the number is shared: nothing is read that others have written before.
        let take = |left: usize| left.checked_sub(bytes);
        self.shared.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    pub(crate) fn give_back(&self, bytes: usize) {
        self.shared.left.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl fmt::Debug for Reserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reserve").field("limit", &self.limit()).field("left", &self.left()).finish()
    }
}

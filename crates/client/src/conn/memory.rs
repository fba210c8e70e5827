//! The memory of large answers, used again.
//!
//! An answer of megabytes whose memory comes fresh from the kernel costs a page fault for every 4 KiB of it, and what one
//! thread allocates and another frees goes back to the kernel soon. A few of them are kept instead, for the whole process,
//! as an allocator would.

use bytes::Bytes;
use parking_lot::Mutex;

/// Less is the allocator's business.
const LEAST_BYTES: usize = 256 << 10;

/// What is kept, at most.
const KEPT_BYTES: usize = 32 << 20;

static KEPT: Mutex<Kept> = Mutex::new(Kept { free: Vec::new(), bytes: 0 });

/// In the order in which they came back.
struct Kept {
    free: Vec<Vec<u8>>,
    bytes: usize,
}

impl Kept {
    /// The smallest that is large enough, and not much too large.
    fn take(&mut self, capacity: usize) -> Option<Vec<u8>> {
        let fits = self.free.iter().enumerate();
        let fits = fits.filter(|(_, free)| (capacity..=capacity.saturating_mul(2)).contains(&free.capacity()));
        let (at, _) = fits.min_by_key(|(_, free)| free.capacity())?;
        let free = self.free.remove(at);
        self.bytes -= free.capacity();
        Some(free)
    }

    /// Keeps it in place of those that were kept for longest. What goes is returned, to be freed without the lock.
    fn keep(&mut self, free: Vec<u8>) -> Vec<Vec<u8>> {
        if free.capacity() > KEPT_BYTES {
            return vec![free];
        }
        self.bytes += free.capacity();
        self.free.push(free);
        let (mut gone, mut left) = (0, self.bytes);
        while left > KEPT_BYTES {
            left -= self.free[gone].capacity();
            gone += 1;
        }
        self.bytes = left;
        self.free.drain(..gone).collect()
    }
}

/// Empty, with room for `capacity` bytes at least.
pub(super) fn take(capacity: usize) -> Vec<u8> {
    let kept = if capacity < LEAST_BYTES { None } else { KEPT.lock().take(capacity) };
    kept.unwrap_or_else(|| Vec::with_capacity(capacity))
}

/// The bytes, whose memory is kept when the last of them is dropped.
pub(super) fn share(bytes: Vec<u8>) -> Bytes {
    if bytes.capacity() < LEAST_BYTES { bytes.into() } else { Bytes::from_owner(Returned(bytes)) }
}

struct Returned(Vec<u8>);

impl AsRef<[u8]> for Returned {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Returned {
    fn drop(&mut self) {
        let mut free = std::mem::take(&mut self.0);
        free.clear();
        let gone = KEPT.lock().keep(free);
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(capacity: usize) -> Vec<u8> {
        Vec::with_capacity(capacity)
    }

    fn capacities(kept: &Kept) -> Vec<usize> {
        assert_eq!(kept.bytes, kept.free.iter().map(Vec::capacity).sum::<usize>());
        kept.free.iter().map(|free| free.capacity() >> 20).collect()
    }

    #[test]
    fn the_smallest_that_is_large_enough_is_used_again() {
        let mut kept = Kept { free: Vec::new(), bytes: 0 };
        for mib in [3, 2, 8] {
            assert!(kept.keep(of(mib << 20)).is_empty());
        }
        assert_eq!(kept.take(2 << 20).map(|free| free.capacity()), Some(2 << 20));
        assert_eq!(kept.take(2 << 20).map(|free| free.capacity()), Some(3 << 20));
        assert_eq!(kept.take(2 << 20), None, "8 MiB would be wasted on it");
        assert_eq!(capacities(&kept), [8]);
    }

    #[test]
    fn no_more_is_kept_than_is_allowed_and_the_oldest_goes_first() {
        let mut kept = Kept { free: Vec::new(), bytes: 0 };
        for mib in [10, 11, 9] {
            assert!(kept.keep(of(mib << 20)).is_empty());
        }
        let gone = kept.keep(of(12 << 20));
        assert_eq!(gone.iter().map(|free| free.capacity() >> 20).collect::<Vec<_>>(), [10]);
        assert_eq!(capacities(&kept), [11, 9, 12]);
        assert_eq!(kept.keep(of(40 << 20)).len(), 1, "too large to be kept");
        assert_eq!(capacities(&kept), [11, 9, 12]);
    }

    #[test]
    fn what_is_shared_stays_until_its_last_part_is_dropped() {
        let mut memory = take(1 << 20);
        memory.extend_from_slice(b"abc");
        let part = share(memory).slice(1..);
        assert_eq!(part, b"bc"[..]);
        assert!(take(1 << 20).is_empty(), "memory that comes back is empty");
    }
}

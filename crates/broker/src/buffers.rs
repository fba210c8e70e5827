//! Buffers that are read into from the disk and used again.
//!
//! A fresh megabyte costs 256 page faults and is zeroed twice, by the kernel and by us, which is dearer than reading it
//! from the page cache.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

/// Buffers that are kept while nobody uses them.
const KEPT: usize = 8;
/// A larger buffer is not kept.
const LARGEST_KEPT: usize = 4 << 20;
/// Sizes are rounded up to it, so that buffers fit the next use too.
const STEP: usize = 64 << 10;

/// A few buffers of some megabytes at most. Who takes one holds a lease for its size elsewhere.
#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    free: Mutex<Vec<Vec<u8>>>,
}

/// A buffer that goes back to its pool.
#[derive(Debug)]
pub(crate) struct Buffer {
    memory: Vec<u8>,
    used: usize,
    pool: Arc<BufferPool>,
}

impl BufferPool {
    /// A buffer of `bytes`, with whatever it held before in it.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Buffer {
        let kept = {
            let mut free = self.free.lock();
            free.iter().position(|memory| memory.len() >= bytes).map(|at| free.swap_remove(at))
        };
        let memory = kept.unwrap_or_else(|| vec![0; bytes.next_multiple_of(STEP)]);
        Buffer { memory, used: bytes, pool: Arc::clone(self) }
    }
}

impl Buffer {
    pub(crate) fn as_mut(&mut self) -> &mut [u8] {
        self.memory.get_mut(..self.used).unwrap_or_default()
    }

    /// The content, for good. The memory goes back when the last view of it is gone.
    pub(crate) fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self.memory.get(..self.used).unwrap_or_default()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        let mut free = self.pool.free.lock();
        if memory.len() <= LARGEST_KEPT && free.len() < KEPT {
            free.push(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_and_never_more_is_kept_than_allowed() {
        let pool = Arc::new(BufferPool::default());
        let mut first = pool.take(100_000);
        first.as_mut().fill(7);
        let place = first.as_ref().as_ptr();
        let view = first.freeze().slice(10..20);
        assert_eq!(&view[..], [7; 10]);
        assert!(pool.free.lock().is_empty(), "a view keeps it");
        drop(view);
        let again = pool.take(90_000);
        assert_eq!((again.as_ref().as_ptr(), again.as_ref().len()), (place, 90_000));
        let many: Vec<_> = (0..20).map(|_| pool.take(1)).collect();
        drop((many, again, pool.take(LARGEST_KEPT + 1)));
        let free = pool.free.lock();
        assert_eq!(free.len(), KEPT);
        assert!(free.iter().all(|memory| memory.len() <= LARGEST_KEPT));
    }
}

//! The memory cap of the fuzz targets.
//!
//! libFuzzer's own limits do not see it: `-malloc_limit_mb` needs a sanitizer's runtime, and `-rss_limit_mb` is far above what
//! a target may take. So the allocator itself counts, and ends the process when one input takes too much; libFuzzer then
//! stores that input.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Capped;

#[global_allocator]
static CAPPED: Capped = Capped;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static CAP: Cell<isize> = const { Cell::new(isize::MAX) };
}

fn count(bytes: isize) {
    // A thread that is ending has no cells any more, and runs no target.
    let live = LIVE.try_with(|live| {
        live.set(live.get().saturating_add(bytes));
        live.get()
    });
    let (Ok(live), Ok(cap)) = (live, CAP.try_with(Cell::get)) else { return };
    if live > cap {
        // Printing may allocate.
        CAP.set(isize::MAX);
        eprintln!("the input takes {live} bytes, more than its cap of {cap}; the last allocation was {bytes} bytes");
        std::process::abort();
    }
}

// SAFETY: every method forwards its arguments to `System` as they are, whose contract is the same. `count` neither unwinds
// nor, unless it ends the process, allocates.
unsafe impl GlobalAlloc for Capped {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // A block that moves is there twice for a moment.
        count(size.cast_signed());
        count(-layout.size().cast_signed());
        unsafe { System.realloc(block, layout, size) }
    }
}

/// Runs `work` and ends the process if it holds more than `bytes` at one time on this thread.
pub fn within<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    LIVE.set(0);
    CAP.set(isize::try_from(bytes).unwrap_or(isize::MAX));
    let result = work();
    CAP.set(isize::MAX);
    result
}

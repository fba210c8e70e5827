//! Enough randomness to keep test runs apart, without a dependency.

use std::hash::{BuildHasher, RandomState};

/// A random number: the standard library's hash keys come from the operating system.
pub(crate) fn u64() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// A random number below `bound`, which must not be 0.
pub(crate) fn below(bound: u64) -> u64 {
    u64() % bound
}

//! What the tests of every crate share: a real Apache Kafka, messages of old formats, skips that are counted, unique topic
//! names and the flights data with its expected answers.
//!
//! This crate is for tests only. It knows nothing of Tidegate's own crates, so that each of them can use it in its
//! tests, and it fails the way a test fails: by panicking with the facts.

#![allow(clippy::panic, reason = "a test helper that cannot do its work fails the test")]

#[cfg(feature = "flights")]
pub mod flights;
pub mod kafka;
pub mod old_messages;
mod random;
#[cfg(feature = "registry")]
pub mod registry;
mod skip;
#[cfg(feature = "secure")]
pub mod tls;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

pub use skip::{SKIP_LOG, skip};

/// A topic name that no other test uses, in this process, another or an earlier run: one Kafka serves them all.
///
/// `prefix` must be made of characters that a topic name allows; the name is `prefix` and about 20 characters more.
pub fn unique_topic(prefix: &str) -> String {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let ordinal = COUNTER.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}-{}-{ordinal}-{:08x}", std::process::id(), random::u64() as u32)
}

/// The root of the workspace that this crate was compiled in.
fn workspace_root() -> &'static Path {
    let manifest_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest_dir.ancestors().nth(2).unwrap_or(manifest_dir)
}

/// Where build products go: `$CARGO_TARGET_DIR`, else the workspace's `target`. What tests fetch is kept there too.
pub fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => workspace_root().join(dir),
        None => workspace_root().join("target"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_names_are_never_the_same_and_stay_legal() {
        let names: std::collections::BTreeSet<String> = (0..1000).map(|_| unique_topic("orders.v1")).collect();
        assert_eq!(names.len(), 1000);
        for name in names {
            assert!(name.len() <= 249, "{name}");
            assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)), "{name}");
        }
    }
}

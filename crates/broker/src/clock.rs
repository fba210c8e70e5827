//! The wall clock in Kafka's unit.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970; negative before.
pub(crate) fn millis(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |millis| -millis),
    }
}

/// Now, in milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    millis(SystemTime::now())
}

//! `limits:`, what requests may take.

use std::time::Duration;

use serde::Deserialize;
use tidegate_server::engine::EngineLimits;

use crate::units::{Size, Span};

/// The limits that a file may set; what it leaves out stays at its default.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitsSection {
    /// Reads in progress at once.
    pub(crate) max_concurrent_reads: Option<u32>,
    /// Fetched bytes that one read may hold.
    pub(crate) read_budget: Option<Size>,
    /// Partitions that one read fetches from at once.
    pub(crate) max_partitions_at_once: Option<u32>,
    /// The largest size of a record batch, uncompressed.
    pub(crate) max_batch: Option<Size>,
    /// How long a record may wait for its chunk to fill.
    pub(crate) flush_after: Option<Span>,
}

impl LimitsSection {
    pub(super) fn check(&self) -> Result<(), String> {
        let sizes = [("read_budget", self.read_budget), ("max_batch", self.max_batch)];
        for (key, size) in sizes {
            // What the machine cannot address is refused along with the absurdly small.
            if let Some(Size(bytes)) = size
                && !(1_024..=(1 << 40)).contains(&bytes)
            {
                return Err(format!("limits.{key} is {bytes} bytes; it must lie between 1KiB and 1TiB"));
            }
        }
        for (key, number) in [
            ("max_concurrent_reads", self.max_concurrent_reads),
            ("max_partitions_at_once", self.max_partitions_at_once),
        ] {
            if number == Some(0) {
                return Err(format!("limits.{key} must be at least 1"));
            }
        }
        if self.flush_after.is_some_and(|Span(after)| after > Duration::from_secs(10)) {
            return Err("limits.flush_after must be at most 10s".to_owned());
        }
        Ok(())
    }

    /// The engine's limits with these in place.
    pub(crate) fn engine(&self) -> EngineLimits {
        let mut limits = EngineLimits::default();
        let bytes = |Size(bytes): Size| usize::try_from(bytes).unwrap_or(usize::MAX);
        let number = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        if let Some(reads) = self.max_concurrent_reads {
            limits.max_concurrent_reads = number(reads);
        }
        if let Some(budget) = self.read_budget {
            limits.per_request_budget_bytes = bytes(budget);
        }
        if let Some(partitions) = self.max_partitions_at_once {
            limits.max_partitions_read_at_once = number(partitions);
        }
        if let Some(batch) = self.max_batch {
            limits.max_batch_bytes = bytes(batch);
        }
        if let Some(Span(after)) = self.flush_after {
            limits.flush_after = after;
        }
        limits
    }
}

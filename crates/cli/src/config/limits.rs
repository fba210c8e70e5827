//! `limits:`, what requests may take.

use std::time::Duration;

use serde::Deserialize;
use tidegate_server::ServerConfig;
use tidegate_server::engine::EngineLimits;

use crate::units::{Size, Span};

/// The limits that a file may set; what it leaves out stays at its default.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitsSection {
    /// Connections at once.
    max_connections: Option<u32>,
    /// Reads in progress at once.
    max_concurrent_reads: Option<u32>,
    /// Publishes in progress at once.
    max_concurrent_publishes: Option<u32>,
    /// Fetched bytes that one read may hold.
    read_budget: Option<Size>,
    /// Fetched bytes that all reads may hold beyond it where it is too little.
    read_reserve: Option<Size>,
    /// Partitions that one read fetches from at once.
    max_partitions_at_once: Option<u32>,
    /// The most that one fetch asks for of one partition.
    fetch: Option<Size>,
    /// The largest size of a record batch, uncompressed.
    max_batch: Option<Size>,
    /// The size at which a chunk of records goes out.
    chunk: Option<Size>,
    /// How long a record may wait for its chunk to fill.
    flush_after: Option<Span>,
    /// The body of a publish over REST.
    max_body: Option<Size>,
    /// One record of such a body.
    max_record: Option<Size>,
    /// One message of a publish over gRPC.
    max_request_message: Option<Size>,
}

impl LimitsSection {
    pub(super) fn check(&self) -> Result<(), String> {
        let chunks = EngineLimits::MIN_CHUNK_BYTES as u64..=EngineLimits::MAX_CHUNK_BYTES as u64;
        if let Some(Size(bytes)) = self.chunk
            && !chunks.contains(&bytes)
        {
            return Err(format!("limits.chunk is {bytes} bytes; it must lie between 256KiB and 1MiB"));
        }
        let sizes = [
            ("read_budget", self.read_budget),
            ("read_reserve", self.read_reserve),
            ("fetch", self.fetch),
            ("max_batch", self.max_batch),
            ("max_body", self.max_body),
            ("max_record", self.max_record),
            ("max_request_message", self.max_request_message),
        ];
        for (key, size) in sizes {
            // What nobody can mean: less than a record, or more than the wire's lengths of 31 bits can say. Bodies are not
            // held as a whole and may be larger.
            let most = if key == "max_body" { (1 << 50, "1024TiB") } else { (1 << 30, "1GiB") };
            if let Some(Size(bytes)) = size
                && !(1_024..=most.0).contains(&bytes)
            {
                return Err(format!("limits.{key} is {bytes} bytes; it must lie between 1KiB and {}", most.1));
            }
        }
        let numbers = [
            ("max_connections", self.max_connections),
            ("max_concurrent_reads", self.max_concurrent_reads),
            ("max_concurrent_publishes", self.max_concurrent_publishes),
            ("max_partitions_at_once", self.max_partitions_at_once),
        ];
        if let Some((key, _)) = numbers.iter().find(|(_, number)| *number == Some(0)) {
            return Err(format!("limits.{key} must be at least 1"));
        }
        if self.flush_after.is_some_and(|Span(after)| after > Duration::from_secs(10)) {
            return Err("limits.flush_after must be at most 10s".to_owned());
        }
        Ok(())
    }

    /// The engine's limits with these in place.
    pub(crate) fn engine(&self) -> EngineLimits {
        let default = EngineLimits::default();
        EngineLimits {
            per_request_budget_bytes: bytes(self.read_budget, default.per_request_budget_bytes),
            read_reserve_bytes: bytes(self.read_reserve, default.read_reserve_bytes),
            max_concurrent_reads: number(self.max_concurrent_reads, default.max_concurrent_reads),
            max_concurrent_publishes: number(self.max_concurrent_publishes, default.max_concurrent_publishes),
            max_partitions_read_at_once: number(self.max_partitions_at_once, default.max_partitions_read_at_once),
            flush_after: self.flush_after.map_or(default.flush_after, |Span(after)| after),
            chunk_target_bytes: bytes(self.chunk, default.chunk_target_bytes),
            max_partition_fetch_bytes: self.fetch.map(in_memory),
            max_batch_bytes: bytes(self.max_batch, default.max_batch_bytes),
        }
    }

    /// Puts the server's limits in place.
    pub(crate) fn server(&self, config: &mut ServerConfig) {
        config.max_connections = number(self.max_connections, config.max_connections);
        config.rest.max_body_bytes = self.max_body.map_or(config.rest.max_body_bytes, |Size(bytes)| bytes);
        config.rest.max_record_text_bytes = bytes(self.max_record, config.rest.max_record_text_bytes);
        config.grpc.max_request_message_bytes = bytes(self.max_request_message, config.grpc.max_request_message_bytes);
    }
}

fn bytes(size: Option<Size>, default: usize) -> usize {
    size.map_or(default, in_memory)
}

fn in_memory(Size(bytes): Size) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn number(number: Option<u32>, default: usize) -> usize {
    number.map_or(default, |number| usize::try_from(number).unwrap_or(usize::MAX))
}

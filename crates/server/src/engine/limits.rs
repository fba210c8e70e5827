//! What one request, and all of them together, may take.

use std::time::Duration;

/// The engine's limits.
///
/// A read holds at most `2 x per_request_budget_bytes + 12 x chunk_target_bytes`: its readers may go beyond the budget by one
/// fetch each, which are its equal shares, while they are waited for; up to eight frames are under construction (one where
/// one partition is read), and a few full ones stand between the encoder and the socket. With the defaults that is 11 MiB,
/// so 200 reads whose clients take nothing hold at most 2.2 GiB; reads that keep up hold a fraction. A record batch or record
/// that is larger than the budget still passes, alone. To that comes `read_reserve_bytes`, once for all reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineLimits {
    /// Fetched bytes that one read may hold, over all its partitions. Default: 4 MiB.
    pub per_request_budget_bytes: usize,
    /// Fetched bytes that all reads together, of all clusters, may hold beyond their budgets where these are too little (see
    /// [`Reserve`](tidegate_client::Reserve)): far from brokers, and of large batches. One read takes a quarter of it at most.
    /// Default: 256 MiB.
    pub read_reserve_bytes: usize,
    /// Reads in progress at once; one more is refused and may be retried. Default: 256.
    pub max_concurrent_reads: usize,
    /// Publishes in progress at once; one more is refused and may be retried. Default: 64.
    pub max_concurrent_publishes: usize,
    /// Partitions that one read fetches from at once; the others wait their turn. Default: 8.
    pub max_partitions_read_at_once: usize,
    /// How long a record may wait for its frame to fill. Default: 20 ms.
    pub flush_after: Duration,
    /// The size at which a frame goes out, between [`EngineLimits::MIN_CHUNK_BYTES`] and
    /// [`EngineLimits::MAX_CHUNK_BYTES`]. Default: 256 KiB.
    pub chunk_target_bytes: usize,
    /// The most that one fetch asks for of one partition. Default: as much as pays, within the read's budget; see
    /// [`ReaderOptions::max_partition_fetch_bytes`](tidegate_client::ReaderOptions::max_partition_fetch_bytes).
    pub max_partition_fetch_bytes: Option<usize>,
    /// The largest size that a record batch may have uncompressed. Default: 64 MiB.
    pub max_batch_bytes: usize,
}

impl EngineLimits {
    /// The smallest size of a full frame, 256 KiB. Smaller ones cost clients in slow languages more than they gain.
    pub const MIN_CHUNK_BYTES: usize = 256 << 10;
    /// The largest size of a full frame, 1 MiB.
    pub const MAX_CHUNK_BYTES: usize = 1 << 20;
}

impl Default for EngineLimits {
    fn default() -> Self {
        Self {
            per_request_budget_bytes: 4 << 20,
            read_reserve_bytes: 256 << 20,
            max_concurrent_reads: 256,
            max_concurrent_publishes: 64,
            max_partitions_read_at_once: 8,
            flush_after: Duration::from_millis(20),
            chunk_target_bytes: 256 << 10,
            max_partition_fetch_bytes: None,
            max_batch_bytes: 64 << 20,
        }
    }
}

impl EngineLimits {
    pub(super) fn chunk_target(&self) -> usize {
        self.chunk_target_bytes.clamp(Self::MIN_CHUNK_BYTES, Self::MAX_CHUNK_BYTES)
    }

    pub(super) fn readers_at_once(&self) -> usize {
        self.max_partitions_read_at_once.max(1)
    }
}

//! Read a range of a topic.
//!
//! [`Engine::plan_read`](super::Engine::plan_read) does everything that can fail before the first byte; the
//! [`PlannedRead`] then streams in one pass: fetch, filter, encode.
//!
//! - `plan`: the request and the partitions' ends give the offsets to read.
//! - `last`: the exact start of the newest N records.
//! - `pump`: the loop that fetches, filters and encodes.
//! - `stream`: the pump as a stream of frames.

mod error;
mod last;
mod plan;
mod pump;
mod stream;

use std::fmt;

use tidegate_client::{ByteBudget, ReaderOptions};
use tidegate_model::{Isolation, TimeRange, TopicName};
use tidegate_plan::PartitionPlan;
use tidegate_wire::BatchLimits;
use tokio::sync::OwnedSemaphorePermit;

use super::{Encode, Engine, ValueDecoder};

pub use error::ReadRangeError;
pub use stream::RangeStream;

/// What to read, as a caller says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The topic's name.
    pub topic: String,
    /// Which records.
    pub range: RangeSpec,
    /// Only these partitions; empty: all.
    pub partitions: Vec<i32>,
    /// At most so many records in all.
    pub limit: Option<u64>,
    /// Which records of transactions are seen.
    pub isolation: Isolation,
    /// What happens when records of the range are gone.
    pub on_data_loss: OnDataLoss,
}

impl ReadRequest {
    /// All records of a topic until now.
    pub fn new(topic: impl Into<String>) -> Self {
        Self {
            topic: topic.into(),
            range: RangeSpec::Time { from: None, until: None },
            partitions: Vec::new(),
            limit: None,
            isolation: Isolation::ReadCommitted,
            on_data_loss: OnDataLoss::Fail,
        }
    }
}

/// Which records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeSpec {
    /// Those with a timestamp in `[from, until)`, in the time grammar.
    Time {
        /// `None`: from the log start.
        from: Option<String>,
        /// `None`: until now.
        until: Option<String>,
    },
    /// Offsets `[start, end)` of each partition.
    Offsets {
        /// `None`: the log start.
        start: Option<i64>,
        /// `None`: the end noted when the request began. A larger end is cut to that.
        end: Option<i64>,
    },
    /// The newest records of each partition.
    Last {
        /// How many.
        count: u64,
    },
}

/// What happens when the log no longer holds records of the range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDataLoss {
    /// The read fails and names the lost offsets.
    #[default]
    Fail,
    /// The end statement names the lost offsets, and the read goes on behind them.
    Report,
}

/// A read that is ready to stream. It counts as a read in progress; dropping it ends that.
pub struct PlannedRead {
    engine: Engine,
    topic: TopicName,
    partitions: Vec<PartitionPlan>,
    range: TimeRange,
    limit: Option<u64>,
    isolation: Isolation,
    on_data_loss: OnDataLoss,
    _permit: OwnedSemaphorePermit,
}

impl PlannedRead {
    /// The topic.
    pub fn topic(&self) -> &TopicName {
        &self.topic
    }

    /// What is read of each partition that was asked for.
    pub fn partitions(&self) -> &[PartitionPlan] {
        &self.partitions
    }

    /// The time range as it was understood; without bounds for a range of offsets.
    pub fn range(&self) -> &TimeRange {
        &self.range
    }

    /// Which records of transactions are seen.
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// The way from the topic's values to JSON.
    pub fn values(&self) -> ValueDecoder {
        self.engine.inner.payloads.decoder(&self.topic)
    }

    /// The size at which an encoder's frame should go out.
    pub fn chunk_target_bytes(&self) -> usize {
        self.engine.limits().chunk_target()
    }

    /// Starts reading. The stream ends after the frames of the end statement; a stream that ends with an error, or that is
    /// cut, is incomplete. Dropping it stops all fetching at once.
    pub fn stream<E: Encode>(self, encoder: E) -> RangeStream<E::Frame> {
        RangeStream::new(|frames| pump::Pump::new(self, encoder, frames).run())
    }
}

impl fmt::Debug for PlannedRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlannedRead")
            .field("topic", &self.topic)
            .field("partitions", &self.partitions)
            .field("range", &self.range)
            .finish_non_exhaustive()
    }
}

/// One read takes this part of the reserve at most.
const RESERVE_PARTS: usize = 4;

/// How the readers of one request read; they share a budget.
fn reader_options(engine: &Engine, isolation: Isolation) -> ReaderOptions {
    let limits = engine.limits();
    let reserve = &engine.inner.gates.read_reserve;
    ReaderOptions {
        isolation,
        max_partition_fetch_bytes: limits.max_partition_fetch_bytes,
        batch_limits: BatchLimits { max_decompressed_bytes: limits.max_batch_bytes, ..BatchLimits::default() },
        budget: ByteBudget::with_reserve(limits.per_request_budget_bytes, reserve, reserve.limit() / RESERVE_PARTS),
        ..ReaderOptions::default()
    }
}

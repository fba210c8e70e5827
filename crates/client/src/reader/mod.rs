//! The bounded reader: one slice of a topic-partition, fetched in pieces over several connections at once where that
//! pays, within a byte budget, and handed on in order.

mod aborted;
mod assemble;
mod demand;
mod error;
mod lanes;
mod meter;
mod request;
mod task;
mod walk;
mod width;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_model::{Chunk, Isolation, OffsetRange, TopicPartition};
use tidegate_wire::BatchLimits;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::budget::ByteBudget;
use crate::cluster::Cluster;
use assemble::{Assembler, Shared};
use demand::Demand;
pub use error::ReadError;
use meter::Meter;
pub use meter::Totals;
pub use width::{Choice, WidthReason};

/// How many chunks wait for the consumer at most. Their bytes are bounded by the budget; this bounds the chunks that hold
/// next to nothing.
const QUEUED_CHUNKS: usize = 32;

/// What to read: offsets of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Where.
    pub topic_partition: TopicPartition,
    /// From which offset, up to which.
    pub range: OffsetRange,
}

/// How to read it.
#[derive(Clone, Debug)]
pub struct ReaderOptions {
    /// Which records of transactions are seen. Kafka's `isolation.level`. Default: read_committed.
    pub isolation: Isolation,
    /// The bytes one fetch asks for. A single larger batch still arrives. Kafka's `max.partition.fetch.bytes`.
    /// Default: 1 MiB.
    pub max_partition_fetch_bytes: usize,
    /// The bytes one response may hold. Kafka's `fetch.max.bytes`. Default: 50 MiB.
    pub fetch_max_bytes: usize,
    /// How long the broker waits for a record to return. Kafka's `fetch.max.wait.ms`. Default: 500 ms.
    pub fetch_max_wait: Duration,
    /// How large a batch may become when it is decompressed, and whether its CRC is checked (Kafka's `check.crcs`).
    /// Default: [`BatchLimits::default`].
    pub batch_limits: BatchLimits,
    /// How long fetches may come back without any progress before the reader gives up with [`ReadError::Stalled`].
    /// Default: 5 min.
    pub stall_timeout: Duration,
    /// How many connections to a partition's leader the readers that share a budget may open together; each has one at
    /// least. How many are used is found out by measuring. `connections.per.broker`. Default: 32.
    pub connections_per_broker: usize,
    /// How many pieces of the slice are fetched at once. `fetches.in.flight`. Default: as many as measuring shows to pay.
    pub fetches_in_flight: Option<usize>,
    /// What the reader may hold; readers may share it. Default: 16 MiB of its own.
    pub budget: ByteBudget,
}

impl Default for ReaderOptions {
    fn default() -> Self {
        Self {
            isolation: Isolation::ReadCommitted,
            max_partition_fetch_bytes: 1 << 20,
            fetch_max_bytes: 50 << 20,
            fetch_max_wait: Duration::from_millis(500),
            batch_limits: BatchLimits::default(),
            stall_timeout: Duration::from_secs(300),
            connections_per_broker: 32,
            fetches_in_flight: None,
            budget: ByteBudget::new(16 << 20),
        }
    }
}

/// Reads a [`Slice`]. A task of its own fetches ahead; dropping the reader stops it and closes its connection.
#[derive(Debug)]
pub struct Reader {
    topic_partition: TopicPartition,
    position: i64,
    end: i64,
    failed: bool,
    chunks: mpsc::Receiver<Result<Chunk, ReadError>>,
    demand: Arc<Demand>,
    chosen: Arc<Mutex<Choice>>,
    meter: Arc<Meter>,
    task: Option<AbortOnDrop>,
}

#[derive(Debug)]
struct AbortOnDrop(AbortHandle);

impl AbortOnDrop {
    fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(task).abort_handle())
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Reader {
    /// The next chunk; `None` when the position has reached the end of the slice. After an error: `None`.
    ///
    /// The chunks follow each other without a gap, and no offset is in two of them. Both edges of the slice are trimmed, so
    /// a chunk holds records of the slice alone; the last chunk's `next_offset` is the end of the slice.
    ///
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Result<Chunk, ReadError>> {
        if self.failed || self.position >= self.end {
            return None;
        }
        let next = match self.chunks.try_recv() {
            Ok(next) => Some(next),
            Err(_) => {
                let _waiting = self.demand.wait();
                self.chunks.recv().await
            }
        };
        let next = match next {
            Some(next) => {
                self.demand.taken();
                next
            }
            None => {
                let (topic_partition, offset) = (self.topic_partition.clone(), self.position);
                Err(ReadError::TaskEnded { topic_partition, offset })
            }
        };
        match &next {
            Ok(chunk) => self.position = chunk.next_offset,
            Err(_) => self.failed = true,
        }
        if self.failed || self.position >= self.end {
            // The connection is not needed any more, however long the reader is kept.
            self.task = None;
        }
        Some(next)
    }

    /// The offset after everything that [`Reader::next`] has returned.
    pub fn position(&self) -> i64 {
        self.position
    }

    /// What the fetches brought so far.
    pub fn totals(&self) -> Totals {
        self.meter.totals()
    }

    /// How many pieces of the slice are fetched at once, and why.
    pub fn choice(&self) -> Choice {
        *self.chosen.lock()
    }

    /// What is read.
    pub fn topic_partition(&self) -> &TopicPartition {
        &self.topic_partition
    }
}

impl Cluster {
    /// Starts to read a slice, in a task of the current tokio runtime.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn read(&self, slice: Slice, options: ReaderOptions) -> Reader {
        let Slice { topic_partition, range } = slice;
        let (sender, chunks) = mpsc::channel(QUEUED_CHUNKS);
        let demand = Arc::new(Demand::default());
        let chosen = Arc::<Mutex<Choice>>::default();
        let meter = Arc::<Meter>::default();
        let task = (!range.is_empty()).then(|| {
            let shared = Shared::new(self.clone(), topic_partition.clone(), options, Arc::clone(&meter));
            AbortOnDrop::spawn(Assembler::new(shared, range, sender, Arc::clone(&demand), Arc::clone(&chosen)).run())
        });
        Reader {
            topic_partition,
            position: range.start,
            end: range.end,
            failed: false,
            chunks,
            demand,
            chosen,
            meter,
            task,
        }
    }
}

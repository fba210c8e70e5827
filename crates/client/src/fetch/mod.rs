//! The fetch engine: slices of topic-partitions, fetched in pieces over several connections at once where that pays, within
//! a byte budget, and handed on in order.
//!
//! ```text
//!   Reader <-- assembler <-- pieces: fetch, check, decompress, trim      one reader a slice, a task each piece
//!                               |
//!                             lanes                                      connections to one broker, shared by all readers
//! ```

mod aborted;
mod assemble;
mod demand;
mod error;
mod facts;
mod lanes;
mod lead;
mod lineage;
mod meter;
mod pace;
mod polls;
mod rate;
mod request;
mod standing;
mod task;
mod walk;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
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
use facts::Clock;
pub use facts::{ReaderFacts, Times, Waits};
use lanes::{LaneLimits, Lanes};
pub use meter::Totals;
pub use pace::{Choice, PaceReason};
use rate::Rate;

/// How many chunks wait for the consumer at most. Their bytes are bounded by the budget; this bounds the chunks that hold
/// next to nothing.
const QUEUED_CHUNKS: usize = 32;

/// What to read: offsets of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Where.
    pub topic_partition: TopicPartition,
    /// From which offset, up to which. An end of [`Slice::NO_END`] follows the log for ever.
    pub range: OffsetRange,
}

impl Slice {
    /// The end of a slice that has none.
    pub const NO_END: i64 = i64::MAX;

    /// Everything from `start` on, also what is not written yet.
    pub fn from(topic_partition: TopicPartition, start: i64) -> Self {
        Self { topic_partition, range: OffsetRange { start, end: Self::NO_END } }
    }
}

/// How a slice is read.
#[derive(Clone, Debug)]
pub struct ReaderOptions {
    /// Which records of transactions are seen. Kafka's `isolation.level`. Default: read_committed.
    pub isolation: Isolation,
    /// The most bytes that one fetch asks for; less where the reader's share of the budget is smaller. A single larger batch
    /// still arrives. Kafka's `max.partition.fetch.bytes`. Default: auto, which is 4 MiB of a broker near by, 1 MiB of
    /// another, and more where batches are so large that an answer would hold few of them.
    pub max_partition_fetch_bytes: Option<usize>,
    /// The bytes one response may hold. Kafka's `fetch.max.bytes`. Default: 50 MiB.
    pub fetch_max_bytes: usize,
    /// How many bytes a broker waits for at the end of a log. Kafka's `fetch.min.bytes`. Default: 1.
    pub fetch_min_bytes: usize,
    /// How long the broker waits for them. Kafka's `fetch.max.wait.ms`. Default: 500 ms.
    pub fetch_max_wait: Duration,
    /// How large a batch may become when it is decompressed, and whether its CRC is checked (Kafka's `check.crcs`).
    /// Default: [`BatchLimits::default`].
    pub batch_limits: BatchLimits,
    /// How long fetches may come back without any progress before the reader gives up with [`ReadError::Stalled`]. A slice
    /// without an end never does at the end of the log, and may be without a leader, or without a broker that answers, for so
    /// long. Default: 5 min.
    pub stall_timeout: Duration,
    /// Nothing came for so long although the log holds more, and neither the broker's throttling nor the budget nor the
    /// consumer is the reason: the facts are logged, and the reader begins anew where it is. Not while a fetch that failed is
    /// tried again, which has limits of its own, nor while an answer arrives, however slowly. Default: 60 s.
    pub watchdog: Duration,
    /// The most bytes per second, as they are stored. `max.rate`. Default: no cap.
    pub max_rate: Option<u64>,
    /// What the reader may hold (`prefetch.max.bytes`); readers may share it. Default: [`ByteBudget::default`] of
    /// its own.
    pub budget: ByteBudget,
}

impl ReaderOptions {
    /// The most bytes that one fetch may ask for.
    fn most_of_a_fetch(&self) -> usize {
        self.max_partition_fetch_bytes.unwrap_or(usize::MAX).min(self.fetch_max_bytes)
    }
}

impl Default for ReaderOptions {
    fn default() -> Self {
        Self {
            isolation: Isolation::ReadCommitted,
            max_partition_fetch_bytes: None,
            fetch_max_bytes: 50 << 20,
            fetch_min_bytes: 1,
            fetch_max_wait: Duration::from_millis(500),
            batch_limits: BatchLimits::default(),
            stall_timeout: Duration::from_secs(300),
            watchdog: Duration::from_secs(60),
            max_rate: None,
            budget: ByteBudget::default(),
        }
    }
}

/// How all that one [`Fetcher`] reads is fetched.
#[derive(Clone, Debug)]
pub struct FetcherOptions {
    /// The most connections to one broker for fetching what is there; waiting at the ends of logs takes up to two more. How
    /// many are used is found out by measuring. `connections.per.broker`. Default: 32.
    pub connections_per_broker: usize,
    /// How many fetches are on their way to one broker at once, over all connections. `fetches.in.flight`. Default: as many
    /// as measuring shows to pay.
    pub fetches_in_flight: Option<usize>,
    /// The most bytes per second from the whole cluster, as they are stored, so that catching up starves nobody else.
    /// `max.rate`. Default: no cap.
    pub max_rate: Option<u64>,
    /// Where this client is: a broker that has a replica in the same rack is fetched from (KIP-392). Kafka's `client.rack`.
    /// Default: nowhere; leaders are fetched from.
    pub client_rack: Option<String>,
}

impl Default for FetcherOptions {
    fn default() -> Self {
        Self { connections_per_broker: 32, fetches_in_flight: None, max_rate: None, client_rack: None }
    }
}

/// Reads slices of one cluster, over connections that all of its readers share. Cheap to clone; clones are the same fetcher.
///
/// The connections to a broker close when the last reader that fetches from it is gone.
#[derive(Clone)]
pub struct Fetcher {
    inner: Arc<Inner>,
}

struct Inner {
    cluster: Cluster,
    options: FetcherOptions,
    rack: Arc<str>,
    rate: Rate,
    lanes: Mutex<HashMap<Arc<str>, Weak<Lanes>>>,
}

impl std::fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fetcher").field("options", &self.inner.options).finish_non_exhaustive()
    }
}

/// Reads a [`Slice`]. Tasks of its own fetch ahead; dropping the reader stops them.
#[derive(Debug)]
pub struct Reader {
    shared: Arc<Shared>,
    position: i64,
    end: i64,
    failed: bool,
    chunks: mpsc::Receiver<Result<Chunk, ReadError>>,
    demand: Arc<Demand>,
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
                let _starving = Starving::begin(&self.shared.clock);
                self.chunks.recv().await
            }
        };
        let next = match next {
            Some(next) => {
                self.demand.taken();
                next
            }
            None => {
                let (topic_partition, offset) = (self.shared.topic_partition.clone(), self.position);
                Err(ReadError::TaskEnded { topic_partition, offset })
            }
        };
        match &next {
            Ok(chunk) => self.position = chunk.next_offset,
            Err(_) => self.failed = true,
        }
        if self.failed || self.position >= self.end {
            // The connections are not needed any more, however long the reader is kept.
            self.task = None;
            self.shared.leads.forget();
        }
        Some(next)
    }

    /// The offset after everything that [`Reader::next`] has returned.
    pub fn position(&self) -> i64 {
        self.position
    }

    /// What the fetches brought so far.
    pub fn totals(&self) -> Totals {
        self.shared.meter.totals()
    }

    /// What is known of it so far. Cheap enough to be asked every second.
    pub fn facts(&self) -> ReaderFacts {
        self.shared.facts(self.position)
    }

    /// What is read.
    pub fn topic_partition(&self) -> &TopicPartition {
        &self.shared.topic_partition
    }
}

/// The consumer waits as long as this lives.
struct Starving<'a>(&'a Clock);

impl<'a> Starving<'a> {
    fn begin(clock: &'a Clock) -> Self {
        clock.consumer(false);
        Self(clock)
    }
}

impl Drop for Starving<'_> {
    fn drop(&mut self) {
        self.0.consumer(true);
    }
}

impl Fetcher {
    /// A fetcher with connections of its own.
    pub fn new(cluster: &Cluster, options: FetcherOptions) -> Self {
        let rack = options.client_rack.as_deref().unwrap_or_default().into();
        let rate = Rate::new(options.max_rate);
        Self { inner: Arc::new(Inner { cluster: cluster.clone(), options, rack, rate, lanes: Mutex::default() }) }
    }

    /// Starts to read a slice, in tasks of the current tokio runtime.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn read(&self, slice: Slice, options: ReaderOptions) -> Reader {
        let Slice { topic_partition, range } = slice;
        let (sender, chunks) = mpsc::channel(QUEUED_CHUNKS);
        let demand = Arc::new(Demand::default());
        let shared = Arc::new(Shared::new(self.clone(), topic_partition, range, options));
        let task = (!range.is_empty())
            .then(|| AbortOnDrop::spawn(Assembler::new(Arc::clone(&shared), range, sender, Arc::clone(&demand)).run()));
        Reader { shared, position: range.start, end: range.end, failed: false, chunks, demand, task }
    }

    /// How it fetches from each broker that it fetches from now, by address.
    pub fn choices(&self) -> Vec<(String, Choice)> {
        let lanes = self.inner.lanes.lock();
        let lanes = lanes.iter().filter_map(|(address, lanes)| Some((address, lanes.upgrade()?)));
        let mut choices: Vec<_> = lanes.map(|(address, lanes)| (address.to_string(), lanes.choice())).collect();
        choices.sort_by(|a, b| a.0.cmp(&b.0));
        choices
    }

    fn cluster(&self) -> &Cluster {
        &self.inner.cluster
    }

    /// The whole cluster's cap.
    fn rate(&self) -> &Rate {
        &self.inner.rate
    }

    fn rack(&self) -> &Arc<str> {
        &self.inner.rack
    }

    /// The connections to a broker.
    fn lanes(&self, address: &Arc<str>) -> Arc<Lanes> {
        let Inner { cluster, options, lanes, .. } = &*self.inner;
        let mut lanes = lanes.lock();
        if let Some(found) = lanes.get(address).and_then(Weak::upgrade) {
            return found;
        }
        lanes.retain(|_, lanes| lanes.strong_count() > 0);
        let limits =
            LaneLimits { connections: options.connections_per_broker.max(1), in_flight: options.fetches_in_flight };
        let new = Lanes::new(Arc::clone(address), cluster.clone(), limits);
        lanes.insert(Arc::clone(address), Arc::downgrade(&new));
        new
    }
}

impl Cluster {
    /// Starts to read a slice with a [`Fetcher`] of its own, with the options of the cluster's configuration, in tasks of the current tokio runtime. Whoever reads more than
    /// one at a time should have them share one.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn read(&self, slice: Slice, options: ReaderOptions) -> Reader {
        Fetcher::new(self, self.config().fetching.clone()).read(slice, options)
    }
}

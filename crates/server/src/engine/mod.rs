//! The use cases, free of any protocol: one file each.
//!
//! - [`clusters`]: which cluster a request means.
//! - [`topics`]: list and describe topics.
//! - [`read`]: read a range of a topic.
//! - [`publish`]: write records to a topic.
//! - [`encode`]: how records become the frames of an output format.
//! - [`payloads`]: what the values of each topic are.
//! - [`registry`]: the schemas that values name.
//! - [`limits`]: what a request may take.

pub mod clusters;
pub mod encode;
mod ends;
pub mod limits;
pub mod payloads;
pub mod publish;
pub mod read;
pub mod registry;
pub mod topics;

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use tidegate_client::{Cluster, Fetcher, Producer, Reserve};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub use clusters::{ClusterError, ClusterName, ClusterNameError, Clusters};
pub use encode::{Encode, EncodeError};
pub use ends::EndsError;
pub use limits::EngineLimits;
pub use payloads::{Payloads, RegistryPayload, TopicPayload, ValueDecoder};
pub use publish::{PublishError, PublishPlace, PublishWarning, Publishing};
pub use read::{OnDataLoss, PlannedRead, RangeSpec, RangeStream, ReadRangeError, ReadRequest};
pub use registry::{Registry, Resolved, SchemaFetchError, SchemaLimits, Subject, WriteSchema, WriterSetupError};
pub use topics::{DescribeTopicError, ListTopicsError, PartitionDescription, TopicDescription, TopicSummary};

/// The use cases over one cluster. Cheap to clone; clones share their limits.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    cluster: Cluster,
    /// Every read of this cluster, so that they share the connections to a broker.
    fetcher: Fetcher,
    producer: Producer,
    payloads: Payloads,
    limits: EngineLimits,
    clock: Clock,
    gates: Gates,
}

/// What the engines of one server share, whatever cluster they are over: its places, its memory and its end.
#[derive(Clone)]
struct Gates {
    reads: Arc<Semaphore>,
    publishes: Arc<Semaphore>,
    read_reserve: Reserve,
    stop: CancellationToken,
}

/// Tells the time in ms since 1970.
type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

impl Engine {
    /// An engine that reads from `cluster` and writes through `producer`.
    pub fn new(cluster: Cluster, producer: Producer, payloads: Payloads, limits: EngineLimits) -> Self {
        Self::with_clock(cluster, producer, payloads, limits, system_clock)
    }

    /// The same with a clock of the caller's, in ms since 1970: it says what `now` is in a request.
    pub fn with_clock(
        cluster: Cluster,
        producer: Producer,
        payloads: Payloads,
        limits: EngineLimits,
        clock: impl Fn() -> i64 + Send + Sync + 'static,
    ) -> Self {
        let places = |count: usize| Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)));
        let (reads, publishes) = (places(limits.max_concurrent_reads), places(limits.max_concurrent_publishes));
        let read_reserve = Reserve::new(limits.read_reserve_bytes);
        let gates = Gates { reads, publishes, read_reserve, stop: CancellationToken::new() };
        Self::over(cluster, producer, payloads, limits, Arc::new(clock), gates)
    }

    fn over(
        cluster: Cluster,
        producer: Producer,
        payloads: Payloads,
        limits: EngineLimits,
        clock: Clock,
        gates: Gates,
    ) -> Self {
        let fetcher = Fetcher::new(&cluster, cluster.config().fetching.clone());
        Self { inner: Arc::new(Inner { cluster, fetcher, producer, payloads, limits, clock, gates }) }
    }

    /// An engine over another cluster, with the limits, the places and the clock of this one.
    fn beside(&self, cluster: Cluster, producer: Producer, payloads: Payloads) -> Self {
        let Inner { limits, clock, gates, .. } = &*self.inner;
        let (limits, clock, gates) = (limits.clone(), Arc::clone(clock), gates.clone());
        Self::over(cluster, producer, payloads, limits, clock, gates)
    }

    /// The limits in force.
    pub fn limits(&self) -> &EngineLimits {
        &self.inner.limits
    }

    /// How many more reads may begin.
    pub fn available_reads(&self) -> usize {
        self.inner.gates.reads.available_permits()
    }

    /// Ends every read in progress with [`ReadRangeError::ShuttingDown`], and every later one before it begins.
    pub fn stop_reads(&self) {
        self.inner.gates.stop.cancel();
    }

    fn now_ms(&self) -> i64 {
        (self.inner.clock)()
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("limits", &self.inner.limits).finish_non_exhaustive()
    }
}

fn system_clock() -> i64 {
    // A clock before 1970 or after the year 292 million is no clock; either end keeps the arithmetic sound.
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        Err(_) => 0,
    }
}

//! What a broker is started with.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::error::StartError;

/// When written records are forced to the disk.
///
/// Under every policy a record is in the kernel's page cache before it is acknowledged: a killed process loses nothing
/// that it acknowledged. The policy decides what a machine that loses power may lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsyncPolicy {
    /// Before each acknowledgement. Nothing acknowledged is lost, and nothing is readable that could be.
    Always,
    /// In the background, this often. A power cut loses at most what was written in that time.
    Interval(Duration),
    /// Only at a clean shutdown; otherwise when the operating system sees fit.
    Never,
}

impl Default for FsyncPolicy {
    fn default() -> Self {
        Self::Interval(Duration::from_secs(1))
    }
}

/// The settings of an embedded broker. Start from [`BrokerConfig::new`] and change what differs.
#[derive(Clone, Debug)]
pub struct BrokerConfig {
    /// The folder that holds everything. Created when it is missing; one broker at a time may use it.
    pub data_dir: PathBuf,
    /// Where to listen. Port 0 takes a free one, see [`Broker::addr`](crate::Broker::addr).
    pub listen: SocketAddr,
    /// The host and port that clients are told to connect to. `None`: the address at which the client reached us.
    pub advertised: Option<(String, u16)>,
    /// Whether `listen` may be an address that other machines can reach. There is no authentication.
    pub insecure: bool,
    /// When written records are forced to the disk.
    pub fsync: FsyncPolicy,
    /// The partition count of a topic that is created without one.
    pub default_partitions: i32,
    /// Whether asking for the metadata of an unknown topic creates it, when the request allows that too.
    pub auto_create_topics: bool,
    /// How often the retention settings are applied.
    pub retention_interval: Duration,
    /// How long the first rebalance of an empty consumer group waits for more members. Kafka's
    /// `group.initial.rebalance.delay.ms`.
    pub group_initial_rebalance_delay: Duration,
    /// How long a shutdown waits for requests in progress.
    pub shutdown_grace: Duration,
    /// The limits.
    pub limits: BrokerLimits,
}

impl BrokerConfig {
    /// A broker on a free loopback port that keeps its data in `data_dir`: fsync once a second, one partition a topic, no
    /// automatic topic creation, retention applied every 30 s, no delay before a consumer group's first rebalance (what the
    /// `server.properties` that comes with Kafka sets too: a lone consumer begins at once, and further ones rebalance).
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            advertised: None,
            insecure: false,
            fsync: FsyncPolicy::default(),
            default_partitions: 1,
            auto_create_topics: false,
            retention_interval: Duration::from_secs(30),
            group_initial_rebalance_delay: Duration::ZERO,
            shutdown_grace: Duration::from_secs(5),
            limits: BrokerLimits::default(),
        }
    }

    /// Checks what can be checked before anything is opened.
    pub(crate) fn check(&self) -> Result<(), StartError> {
        if !self.listen.ip().is_loopback() && !self.insecure {
            return Err(StartError::NotLoopback { addr: self.listen });
        }
        let require = |holds: bool, setting: &'static str, reason: &str| {
            if holds { Ok(()) } else { Err(StartError::Config { setting, reason: reason.to_owned() }) }
        };
        let limits = &self.limits;
        require(self.default_partitions >= 1, "default_partitions", "it must be 1 or more")?;
        require(!self.retention_interval.is_zero(), "retention_interval", "it must not be zero")?;
        require(self.fsync != FsyncPolicy::Interval(Duration::ZERO), "fsync", "the interval must not be zero")?;
        require(limits.max_connections >= 1, "limits.max_connections", "it must be 1 or more")?;
        require(
            limits.max_request_bytes >= LEAST_REQUEST_LIMIT,
            "limits.max_request_bytes",
            "it must be 1024 or more",
        )?;
        require(
            limits.max_produce_bytes >= LEAST_REQUEST_LIMIT,
            "limits.max_produce_bytes",
            "it must be 1024 or more",
        )?;
        // Its length is two bytes in the file.
        require(
            limits.max_offset_metadata_bytes <= usize::from(u16::MAX),
            "limits.max_offset_metadata_bytes",
            "it must be 65535 or less",
        )?;
        require(
            limits.min_session_timeout <= limits.max_session_timeout,
            "limits.min_session_timeout",
            "it must not be above limits.max_session_timeout",
        )?;
        let largest = i32::MAX.unsigned_abs() as usize / 2;
        require(limits.max_produce_bytes <= largest, "limits.max_produce_bytes", "it must be 1 GiB or less")?;
        require(limits.max_fetch_bytes <= largest, "limits.max_fetch_bytes", "it must be 1 GiB or less")?;
        // A commit is one record of the offsets file, with all the texts of its request.
        require(limits.max_request_bytes <= MOST_REQUEST_LIMIT, "limits.max_request_bytes", "it must be 32 MiB or less")
    }
}

/// Below it not even an ordinary request would pass.
const LEAST_REQUEST_LIMIT: usize = 1024;
/// Half of what a record of the offsets file may take: the other half is for the names that a request says once.
const MOST_REQUEST_LIMIT: usize = 32 << 20;

/// The limits of a broker. Each bounds memory, files or time that a client could otherwise claim without end.
#[derive(Clone, Debug)]
pub struct BrokerLimits {
    /// Connections at a time; further ones are closed at once, unless one that rests makes room. Each takes a file
    /// descriptor.
    pub max_connections: usize,
    /// How long a connection must have rested to make room for another.
    pub evict_idle_after: Duration,
    /// The largest Produce request, in bytes. A topic's `max.message.bytes` must stay below it.
    pub max_produce_bytes: usize,
    /// The largest request of any other kind, in bytes: 32 MiB at most.
    pub max_request_bytes: usize,
    /// What all requests in progress may hold together, in bytes; a quarter of it is for those that carry no records. A
    /// request waits until it fits.
    pub request_memory_bytes: usize,
    /// What all fetched records on their way to clients may hold together, in bytes.
    pub response_memory_bytes: usize,
    /// The largest fetch response, in bytes, whatever the client asks for. One record batch always passes.
    pub max_fetch_bytes: usize,
    /// The longest time a fetch waits for records, whatever the client asks for.
    pub max_fetch_wait: Duration,
    /// How long a connection may stay silent between requests.
    pub idle_timeout: Duration,
    /// How long a request may take to arrive once its first byte is here.
    pub frame_timeout: Duration,
    /// How long the peer may leave an answer unread without taking a byte of it.
    pub write_timeout: Duration,
    /// Partitions of all topics together.
    pub max_partitions: usize,
    /// What one record batch may decompress to, in bytes.
    pub max_decompressed_bytes: usize,
    /// Disk operations at a time, for reading and for writing each. One may hold `max_decompressed_bytes` while it looks into
    /// a batch.
    pub io_threads: usize,
    /// Segments whose files are held open at a time (two files each).
    pub open_segments: usize,
    /// Idempotent producers remembered a partition; beyond it those silent for longest are forgotten.
    pub producers_per_partition: usize,
    /// How long a silent idempotent producer is remembered. Kafka's `producer.id.expiration.ms`.
    pub producer_expiry: Duration,
    /// Consumer groups with members at a time. Those that only have committed offsets do not count.
    pub max_groups: usize,
    /// Members of one consumer group. Kafka's `group.max.size`.
    pub max_group_members: usize,
    /// What the members of all groups may hold together, in bytes: ids, subscriptions, assignments.
    pub group_memory_bytes: usize,
    /// What all committed offsets may take together, in bytes.
    pub committed_offset_bytes: usize,
    /// The longest text that may go with a committed offset, in bytes. Kafka's `offset.metadata.max.bytes`.
    pub max_offset_metadata_bytes: usize,
    /// The shortest session timeout of a group's member. Kafka's `group.min.session.timeout.ms`.
    pub min_session_timeout: Duration,
    /// The longest. Kafka's `group.max.session.timeout.ms`.
    pub max_session_timeout: Duration,
}

impl Default for BrokerLimits {
    fn default() -> Self {
        const MIB: usize = 1 << 20;
        Self {
            max_connections: 4096,
            evict_idle_after: Duration::from_secs(10),
            max_produce_bytes: 64 * MIB,
            max_request_bytes: MIB / 2,
            request_memory_bytes: 256 * MIB,
            response_memory_bytes: 256 * MIB,
            max_fetch_bytes: 32 * MIB,
            max_fetch_wait: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(600),
            frame_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(60),
            max_partitions: 10_000,
            max_decompressed_bytes: 64 * MIB,
            io_threads: 4,
            open_segments: 256,
            producers_per_partition: 10_000,
            producer_expiry: Duration::from_secs(86_400),
            max_groups: 1_000,
            max_group_members: 1_000,
            group_memory_bytes: 64 * MIB,
            committed_offset_bytes: 64 * MIB,
            max_offset_metadata_bytes: 4096,
            min_session_timeout: Duration::from_secs(6),
            max_session_timeout: Duration::from_secs(1800),
        }
    }
}

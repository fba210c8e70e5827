//! How to reach a cluster, and the limits of every wait, retry and response.

use std::time::Duration;

use crate::fetch::FetcherOptions;
use crate::security::Security;

/// How often, and how fast, a request that may succeed later is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryLimits {
    /// How many times in a row one operation is tried, the first time included. At least 1 is taken.
    pub attempts: u32,
    /// The pause before the second attempt; each further one doubles it.
    pub backoff: Duration,
    /// The longest pause.
    pub backoff_max: Duration,
    /// No further attempt is begun when so much time has passed since the first failure: attempts that each wait for a
    /// timeout add up.
    pub deadline: Duration,
}

impl Default for RetryLimits {
    /// Twelve attempts, 50 ms to 2 s apart: about 13 s, the time in which a leader is elected anew. 60 s in all.
    fn default() -> Self {
        Self {
            attempts: 12,
            backoff: Duration::from_millis(50),
            backoff_max: Duration::from_secs(2),
            deadline: Duration::from_secs(60),
        }
    }
}

/// How to reach a cluster. The same settings feed our own connections and librdkafka's.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// Brokers to ask first, as `host:port`. Kafka's `bootstrap.servers`.
    pub bootstrap: Vec<String>,
    /// What the brokers log and count this client under. Kafka's `client.id`. Default: `tidegate`.
    pub client_id: String,
    /// TLS and SASL. Kafka's `security.protocol` and what belongs to it. Default: neither.
    pub security: Security,
    /// The longest wait until a connection can be used: name lookup, TCP, TLS, versions and SASL together. (A token is had
    /// before, within the limit of where it comes from.) Default: 10 s.
    pub connect_timeout: Duration,
    /// The longest wait for the answer to one request; a fetch may take its `fetch_max_wait` more. Default: 30 s.
    pub request_timeout: Duration,
    /// The limits of retrying.
    pub retry: RetryLimits,
    /// The largest response that is read, in bytes; a broker that announces a larger one is cut off. It must hold the
    /// largest record batch of any topic and the metadata of all topics. Default: 128 MiB.
    pub max_response_bytes: usize,
    /// How many requests may wait for their answers on one connection. Default: 64.
    pub max_in_flight: usize,
    /// A connection that was idle for longer is replaced before it is used again: Azure drops idle connections after 240 s
    /// without telling anybody. Kafka's `connections.max.idle.ms`. Default: 180 s.
    pub connection_max_idle: Duration,
    /// The receive buffer of a connection of our own, in bytes, set before it connects. Kafka's `receive.buffer.bytes`.
    ///
    /// Default: `None`, which leaves it to the kernel. To set it switches the kernel's autotuning off, which grows the buffer
    /// with rate and round trip, on Linux up to the last number of `net.ipv4.tcp_rmem`. It pays only where that is too little:
    /// one connection gets no more than the buffer in a round trip. Linux doubles what is asked for, for its bookkeeping, and
    /// gives at most `net.core.rmem_max` (before doubling); less than asked is logged as a warning. What is in force stands in
    /// [`TcpFacts::receive_buffer`](crate::TcpFacts::receive_buffer).
    pub receive_buffer_bytes: Option<usize>,
    /// How all that is read is fetched.
    pub fetching: FetcherOptions,
}

impl ClusterConfig {
    /// The defaults with these bootstrap brokers, each `host:port`.
    pub fn new(bootstrap: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            bootstrap: bootstrap.into_iter().map(Into::into).collect(),
            client_id: "tidegate".to_owned(),
            security: Security::default(),
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            retry: RetryLimits::default(),
            max_response_bytes: 128 << 20,
            max_in_flight: 64,
            connection_max_idle: Duration::from_secs(180),
            fetching: FetcherOptions::default(),
            receive_buffer_bytes: None,
        }
    }
}

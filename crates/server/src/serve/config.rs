//! How to serve.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::grpc::GrpcLimits;
use crate::rest::RestLimits;

/// How to serve.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where to listen; port 0 takes a free one. Default: 127.0.0.1:8642.
    pub listen: SocketAddr,
    /// Whether an address other than loopback is allowed, although nobody has to prove who they are. Default: no.
    pub insecure: bool,
    /// How long what is in progress may go on after a shutdown was asked for. Default: 10 s.
    pub grace: Duration,
    /// Connections at once; more wait in the system's queue. Default: 1024.
    pub max_connections: usize,
    /// Calls in progress at once on one HTTP/2 connection. Default: 256.
    pub max_streams_per_connection: u32,
    /// How long a client may take to send its first bytes, and the head of each HTTP/1.1 request; an idle HTTP/1.1
    /// connection ends after it too. Default: 30 s.
    pub header_read_timeout: Duration,
    /// How often a silent HTTP/2 connection is pinged: often enough for the address translators on the way, which forget
    /// silent connections after a few minutes. Default: 30 s.
    pub keepalive_interval: Duration,
    /// How long the answer to a ping may take before the connection counts as dead. Default: 20 s.
    pub keepalive_timeout: Duration,
    /// What the gRPC face accepts.
    pub grpc: GrpcLimits,
    /// What the REST face accepts.
    pub rest: RestLimits,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8642)),
            insecure: false,
            grace: Duration::from_secs(10),
            max_connections: 1024,
            max_streams_per_connection: 256,
            header_read_timeout: Duration::from_secs(30),
            keepalive_interval: Duration::from_secs(30),
            keepalive_timeout: Duration::from_secs(20),
            grpc: GrpcLimits::default(),
            rest: RestLimits::default(),
        }
    }
}

/// Why the server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address cannot be bound.
    #[error("cannot listen on {listen}: {source}")]
    Bind {
        /// The address.
        listen: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// The address is not loopback.
    #[error("{listen} can be reached from other machines, and nobody has to prove who they are: that takes --insecure")]
    NotLoopback {
        /// The address.
        listen: SocketAddr,
    },
    /// The service cannot describe itself.
    #[error("gRPC reflection: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
}

//! One port for REST and gRPC.

use std::net::SocketAddr;
use std::time::Duration;

use crate::engine::Engine;

/// How to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerConfig {
    /// Where to listen; port 0 takes a free one. Default: 127.0.0.1:8642.
    pub listen: SocketAddr,
    /// Whether an address other than loopback is allowed, although nobody has to prove who they are. Default: no.
    pub insecure: bool,
    /// How long streams may go on after a shutdown was asked for. Default: 10 s.
    pub grace: Duration,
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
    #[error("{listen} can be reached from other machines, and nobody has to prove who they are: that needs insecure")]
    NotLoopback {
        /// The address.
        listen: SocketAddr,
    },
}

/// A server that listens.
pub struct Server {
    addr: SocketAddr,
}

impl Server {
    /// Starts to serve.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(config: ServerConfig, engine: Engine) -> Result<Self, StartError> {
        let _ = engine;
        Ok(Self { addr: config.listen })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Stops: accepts nothing more, lets streams end within the grace period, and cuts those that have not.
    pub async fn shutdown(self) {}
}

//! One port for REST and gRPC: HTTP/1.1 and HTTP/2 without TLS, told apart by the first bytes of a connection; the faces by
//! the content type of a request.

mod config;
mod connection;
mod first_bytes;
mod linger;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::engine::Clusters;
use crate::{grpc, rest};
use connection::Connections;

pub use config::{ServerConfig, StartError};

/// How long the error of a stopped read may take to get out before the connection is cut: a second, and what the peer has to
/// read it.
const LAST_WORDS: Duration = linger::LINGER.saturating_add(Duration::from_secs(1));

/// How long the server rests when the system has no file descriptor for a connection.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// How many clients may wait to be accepted; the system may allow fewer. With the usual 128 some of a crowd that comes at once
/// would try again only after seconds.
const BACKLOG: u32 = 4096;

/// A server that listens. Dropping it cuts everything off; [`Server::shutdown`] is the graceful way.
#[derive(Debug)]
pub struct Server {
    addr: SocketAddr,
    clusters: Clusters,
    grace: Duration,
    accepting: JoinHandle<GracefulShutdown>,
    /// Ends accepting.
    stop: DropGuard,
    /// Ends connections, wherever they are.
    cut: DropGuard,
    tasks: TaskTracker,
    health: HealthReporter,
}

impl Server {
    /// Starts to serve one engine, or several clusters.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(config: ServerConfig, clusters: impl Into<Clusters>) -> Result<Self, StartError> {
        let clusters = clusters.into();
        let listen = config.listen;
        if !config.insecure && !listen.ip().is_loopback() {
            return Err(StartError::NotLoopback { listen });
        }
        let grpc = grpc::services(clusters.clone(), config.grpc).await?;
        let rest = rest::router(clusters.clone(), config.rest);

        let listener = self::listen(listen).map_err(|source| StartError::Bind { listen, source })?;
        let addr = listener.local_addr().map_err(|source| StartError::Bind { listen, source })?;

        let tasks = TaskTracker::new();
        let stop = CancellationToken::new();
        let cut = CancellationToken::new();
        let grace = config.grace;
        let permits = Arc::new(Semaphore::new(config.max_connections.clamp(1, Semaphore::MAX_PERMITS)));
        let connections = Connections::new(&config, rest, grpc.routes.into_axum_router(), tasks.clone(), cut.clone());
        let accepting = tokio::spawn(accept(listener, connections, permits, stop.clone()));
        tracing::info!(%addr, "serving");
        Ok(Self {
            addr,
            clusters,
            grace,
            accepting,
            stop: stop.drop_guard(),
            cut: cut.drop_guard(),
            tasks,
            health: grpc.health,
        })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Stops: accepts nothing more, and lets what is in progress end within the grace period. Reads that have not ended by
    /// then fail, with an error that says so, and connections that are still there are cut: no answer that was stopped
    /// looks complete.
    pub async fn shutdown(self) {
        let Self { clusters, grace, accepting, stop, cut, tasks, health, addr } = self;
        // The empty name stands for the server as a whole.
        for service in ["", tidegate_api::v1::tidegate_server::SERVICE_NAME] {
            health.set_service_status(service, ServingStatus::NotServing).await;
        }
        drop(stop);
        tasks.close();
        // It ends at once, and could only have failed by a panic.
        if let Ok(graceful) = accepting.await
            && timeout(grace, graceful.shutdown()).await.is_err()
        {
            clusters.stop_reads();
            if timeout(LAST_WORDS, tasks.wait()).await.is_err() {
                tracing::warn!(%addr, connections = tasks.len(), "cutting what did not end within the grace period");
            }
        }
        drop(cut);
        tasks.wait().await;
    }
}

/// Listens. As [`TcpListener::bind`] does it, with a longer queue.
fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restart gets its port back at once. Elsewhere than on Unix this would let two listen on one port.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

/// Accepts connections, no more at once than there are permits, until it is told to stop.
async fn accept(
    listener: TcpListener,
    connections: Connections,
    permits: Arc<Semaphore>,
    stop: CancellationToken,
) -> GracefulShutdown {
    let graceful = GracefulShutdown::new();
    let next = async || -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
        // Whoever comes when all are taken waits in the system's queue.
        let permit = Arc::clone(&permits).acquire_owned().await.ok()?;
        loop {
            match listener.accept().await {
                Ok((stream, _peer)) => return Some((stream, permit)),
                Err(error) => {
                    // The connection failed before it was ours, or there is no file descriptor: either passes.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_BACKOFF).await;
                }
            }
        }
    };
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => None,
            accepted = next() => accepted,
        };
        let Some((stream, permit)) = accepted else { return graceful };
        connections.serve(stream, permit, graceful.watcher());
    }
}

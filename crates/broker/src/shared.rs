//! What all connections of a broker share.

use std::net::SocketAddr;
use std::sync::Arc;

use tidegate_wire::BatchLimits;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::buffers::BufferPool;
use crate::config::BrokerConfig;
use crate::groups::Groups;
use crate::memory::{RequestMemory, ResponseMemory};
use crate::storage::Storage;

/// The id of the only broker.
pub(crate) const NODE_ID: i32 = 1;

/// The state behind all connections.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: BrokerConfig,
    pub(crate) storage: Storage,
    pub(crate) groups: Groups,
    pub(crate) request_memory: RequestMemory,
    pub(crate) response_memory: ResponseMemory,
    pub(crate) buffers: Arc<BufferPool>,
    read_threads: Arc<Semaphore>,
    write_threads: Arc<Semaphore>,
    /// Cancelled when the broker shuts down: nothing new is begun, and what waits stops waiting.
    pub(crate) stop: CancellationToken,
    /// Cancelled when the grace time is over: what is still there is dropped.
    pub(crate) kill: CancellationToken,
}

/// A blocking operation panicked or the runtime is going down.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the operation was not carried out")]
pub(crate) struct NotCarriedOut;

impl Shared {
    pub(crate) fn new(config: BrokerConfig, storage: Storage) -> Self {
        let threads = || Arc::new(Semaphore::new(config.limits.io_threads.max(1)));
        Self {
            storage,
            groups: Groups::new(&config),
            request_memory: RequestMemory::new(config.limits.request_memory_bytes),
            response_memory: ResponseMemory::new(config.limits.response_memory_bytes),
            buffers: Arc::default(),
            read_threads: threads(),
            write_threads: threads(),
            stop: CancellationToken::new(),
            kill: CancellationToken::new(),
            config,
        }
    }

    /// Runs something that reads from the disk on a blocking thread, a limited number at a time. Once begun, it runs to its
    /// end even if nobody waits for it any more.
    pub(crate) async fn reading<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, NotCarriedOut> {
        self.blocking(&self.read_threads, work).await
    }

    /// The same for what writes: a slow disk must not keep those from reading who find their records in memory.
    pub(crate) async fn writing<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, NotCarriedOut> {
        self.blocking(&self.write_threads, work).await
    }

    async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        threads: &Arc<Semaphore>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, NotCarriedOut> {
        let permit = Arc::clone(threads).acquire_owned().await.map_err(|_| NotCarriedOut)?;
        let shared = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work(&shared)
        });
        done.await.map_err(|error| {
            tracing::error!(%error, "a disk operation ended abnormally");
            NotCarriedOut
        })
    }

    /// The limits under which record batches are opened.
    pub(crate) fn batch_limits(&self) -> BatchLimits {
        BatchLimits { max_decompressed_bytes: self.config.limits.max_decompressed_bytes, check_crcs: true }
    }

    /// The host and port that a client is told, which reached the broker at `local`.
    pub(crate) fn advertised(&self, local: SocketAddr) -> (String, u16) {
        self.config.advertised.clone().unwrap_or_else(|| (local.ip().to_string(), local.port()))
    }
}

//! The embedded single-node broker: the default store of a laptop, and the double of a Kafka cluster in tests.
//!
//! It keeps record batches as they were received, in append-only segment files with an index entry per batch, and answers
//! the part of Kafka's protocol that producing, reading, looking up offsets and consumer groups need. It has no
//! replication, no transactions, no compaction and no authentication: beyond one machine, Kafka is the engine.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use tidegate_broker::{Broker, BrokerConfig};
//!
//! let broker = Broker::start(BrokerConfig::new("data")).await?;
//! println!("bootstrap.servers={}", broker.addr());
//! broker.shutdown().await?;
//! # Ok(())
//! # }
//! ```

mod api;
mod background;
mod buffers;
mod clock;
mod config;
mod error;
mod groups;
mod memory;
mod request;
mod server;
mod shared;
mod storage;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use config::{BrokerConfig, BrokerLimits, FsyncPolicy};
pub use error::{DeleteRecordsError, OpenError, ShutdownError, StartError};
pub use request::{DecodedRequest, RequestError, decode_request};

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_model::{TopicName, TopicPartition};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use shared::Shared;
use storage::log::{MoveStartError, NotOpen};
use storage::{Storage, StorageSettings};

/// A running broker. Dropping it stops its tasks without the flush that [`Broker::shutdown`] does; the next start then
/// recovers as after a crash.
#[derive(Debug)]
pub struct Broker {
    addr: SocketAddr,
    shared: Arc<Shared>,
    tasks: TaskTracker,
}

impl Broker {
    /// Opens the data folder, recovers what a crash left, and listens. Must be called within a tokio runtime, which then
    /// runs the broker's tasks.
    ///
    /// # Errors
    /// [`StartError`]; nothing runs then.
    pub async fn start(config: BrokerConfig) -> Result<Self, StartError> {
        config.check()?;
        let bind = |source| StartError::Bind { addr: config.listen, source };
        let listener = server::listen(config.listen).map_err(bind)?;
        let addr = listener.local_addr().map_err(bind)?;

        let data_dir = config.data_dir.clone();
        let settings = StorageSettings {
            fsync: config.fsync,
            open_segments: config.limits.open_segments,
            producers_per_partition: config.limits.producers_per_partition,
            max_partitions: config.limits.max_partitions,
            committed_offset_bytes: config.limits.committed_offset_bytes,
        };
        let opened = tokio::task::spawn_blocking(move || Storage::open(&data_dir, settings)).await;
        let storage = opened.map_err(|error| StartError::Config {
            setting: "data_dir",
            reason: format!("opening it ended abnormally: {error}"),
        })??;

        let shared = Arc::new(Shared::new(config, storage));
        let tasks = TaskTracker::new();
        tasks.spawn(server::accept(Arc::clone(&shared), listener, tasks.clone()));
        tasks.spawn(background::keep_synced(Arc::clone(&shared)));
        tasks.spawn(background::keep_retention(Arc::clone(&shared)));
        tasks.spawn(background::keep_offsets_synced(Arc::clone(&shared)));
        tasks.spawn(background::keep_groups(Arc::clone(&shared)));
        tracing::info!(%addr, data_dir = %shared.config.data_dir.display(), "the embedded broker is listening");
        Ok(Self { addr, shared, tasks })
    }

    /// The address that it listens on, with the port it got.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Deletes the records of a partition before `offset`, as DeleteRecords does. Answers the new log start offset.
    ///
    /// # Errors
    /// [`DeleteRecordsError`] for an unknown partition, an offset beyond the high watermark, or a disk error.
    pub async fn delete_records_before(
        &self,
        topic: &TopicName,
        partition: i32,
        offset: i64,
    ) -> Result<i64, DeleteRecordsError> {
        let found = self.shared.storage.topic(topic).and_then(|topic| topic.partition(partition).cloned());
        let unknown = || DeleteRecordsError::UnknownPartition { topic: topic.clone(), partition };
        let log = found.ok_or_else(unknown)?;
        let topic_partition = TopicPartition::new(topic.clone(), partition);
        let io = |source| DeleteRecordsError::Io { topic_partition: topic_partition.clone(), source };
        let deleted = self.shared.writing(move |_| log.delete_before(offset)).await;
        deleted.map_err(|error| io(io::Error::other(error)))?.map_err(|error| match error {
            MoveStartError::OutOfRange { high_watermark } => {
                DeleteRecordsError::OutOfRange { topic_partition: topic_partition.clone(), offset, high_watermark }
            }
            MoveStartError::NotOpen(NotOpen::Deleted) => unknown(),
            MoveStartError::NotOpen(error) => io(io::Error::other(error)),
            MoveStartError::Io(source) => io(source),
        })
    }

    /// Stops: ends requests in progress within the grace time, forces everything to the disk and notes that it did.
    ///
    /// # Errors
    /// [`ShutdownError`] when something could not be written. All tasks have ended then too.
    pub async fn shutdown(self) -> Result<(), ShutdownError> {
        self.stop_tasks(self.shared.config.shutdown_grace).await;
        let shared = Arc::clone(&self.shared);
        let closed = tokio::task::spawn_blocking(move || shared.storage.close()).await;
        closed.unwrap_or_else(|error| Err(ShutdownError::Abnormal { reason: error.to_string() }))
    }

    /// Stops at once, without flushing: what a killed process leaves behind.
    pub async fn abort(self) {
        self.stop_tasks(Duration::ZERO).await;
    }

    async fn stop_tasks(&self, grace: Duration) {
        self.shared.stop.cancel();
        self.tasks.close();
        if timeout(grace, self.tasks.wait()).await.is_err() {
            self.shared.kill.cancel();
            self.tasks.wait().await;
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.shared.stop.cancel();
        self.shared.kill.cancel();
        // Another broker can open the folder when this returns.
        self.shared.storage.abandon();
    }
}

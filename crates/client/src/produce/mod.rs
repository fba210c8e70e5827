//! Producing, through librdkafka.

mod error;
mod native;
mod session;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rdkafka::config::ClientConfig;
use tidegate_model::{Compression, TopicName};

use crate::config::ClusterConfig;
use crate::librdkafka::security::Unfit;
use crate::security::{Security, SecurityError};
pub use error::ProduceError;
use native::Native;
pub use session::ProduceSession;

/// How to produce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerSettings {
    /// How batches are compressed. Kafka's `compression.type`. Default: lz4.
    pub compression: Compression,
    /// How long a batch may wait for more records. Kafka's `linger.ms`. Default: 5 ms.
    pub linger: Duration,
    /// The size of a batch before compression. Kafka's `batch.size`. Default: 1 MiB.
    pub batch_bytes: usize,
    /// The bytes of records that may wait for their acknowledgement, over all sessions; beyond it sending waits. Kafka's
    /// `buffer.memory`. Default: 32 MiB.
    pub queue_bytes: usize,
    /// How long a record may wait for its acknowledgement, retries included. Kafka's `delivery.timeout.ms`. Default: 2 min.
    pub delivery_timeout: Duration,
    /// The largest record, with its overhead. Kafka's `max.request.size`. Default: 1,000,000 bytes.
    pub message_max_bytes: usize,
}

impl Default for ProducerSettings {
    fn default() -> Self {
        Self {
            compression: Compression::Lz4,
            linger: Duration::from_millis(5),
            batch_bytes: 1 << 20,
            queue_bytes: 32 << 20,
            delivery_timeout: Duration::from_secs(120),
            message_max_bytes: 1_000_000,
        }
    }
}

/// The producer could not be made, or not be flushed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProducerError {
    /// TLS or SASL cannot be used as they are set.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// librdkafka refuses a setting.
    #[error("the producer cannot be made: {reason}")]
    Setting {
        /// Its words.
        reason: String,
    },
    /// Records were still unacknowledged when the delivery timeout had passed.
    #[error("{unacknowledged} records are not acknowledged after {after:?}")]
    Flush {
        /// How many.
        unacknowledged: u64,
        /// The limit.
        after: Duration,
    },
}

/// One record to write.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordToSend<'a> {
    /// The partition; `None`: chosen by the key as Java's producer would (murmur2), at random without a key.
    pub partition: Option<i32>,
    /// The key; `None` is null.
    pub key: Option<&'a [u8]>,
    /// The value; `None` is null, a tombstone.
    pub value: Option<&'a [u8]>,
    /// The headers in order, repeats kept. A name must be UTF-8; a value of `None` is null.
    pub headers: &'a [(&'a [u8], Option<&'a [u8]>)],
    /// The timestamp in ms; `None`: now. Must be at least 1: librdkafka takes 0 for "now".
    pub timestamp_ms: Option<i64>,
}

/// What one partition got in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducedPartition {
    /// How many records.
    pub records: u64,
    /// The offset of the first. Others may have written in between. -1 where no broker told an offset, as happens when it
    /// recognises a batch as written before.
    pub first_offset: i64,
    /// The offset of the last; -1 as above.
    pub last_offset: i64,
}

/// What a session wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProduceSummary {
    /// How many records were acknowledged.
    pub records: u64,
    /// By partition.
    pub partitions: BTreeMap<i32, ProducedPartition>,
}

/// A producer: idempotent, `acks=all`, keys land where Java's producer puts them. Cheap to clone.
///
/// Records that are not acknowledged yet when the last clone and the last session are dropped are given up: see
/// [`Producer::flush`]. The queue is shared by all sessions, so a topic whose leader is away may slow the others down.
#[derive(Clone)]
pub struct Producer {
    inner: Arc<Inner>,
}

struct Inner {
    settings: ProducerSettings,
    /// `Err`: why librdkafka cannot connect with settings that our own connections can connect with. Reading needs no
    /// producer, so only who publishes is told.
    running: Result<Running, Arc<str>>,
}

struct Running {
    config: ClientConfig,
    security: Security,
    current: Mutex<Arc<Native>>,
}

impl Producer {
    /// Makes a producer. It connects by itself, now and whenever it must.
    ///
    /// With a setting that librdkafka does not have (`ssl.server.name`) it is made all the same, and every record that is
    /// sent fails with [`ProduceError::Unsupported`].
    ///
    /// # Errors
    /// [`ProducerError::Setting`] and [`ProducerError::Security`].
    pub fn new(cluster: &ClusterConfig, settings: ProducerSettings) -> Result<Self, ProducerError> {
        let running = match native::client_config(cluster, &settings) {
            Ok(config) => {
                let security = cluster.security.clone();
                let current = Mutex::new(Arc::new(Native::new(&config, &settings, &security)?));
                Ok(Running { config, security, current })
            }
            Err(Unfit::Refused(reason)) => {
                tracing::info!("publishing is not possible: {reason}");
                Err(reason.into())
            }
            Err(Unfit::Error(error)) => return Err(error.into()),
        };
        Ok(Self { inner: Arc::new(Inner { settings, running }) })
    }

    /// Starts counting the records of one caller. The topic must exist (look it up with `Cluster::topic` first): sending
    /// never creates one, and takes half a minute to find out that there is none.
    pub fn session(&self, topic: &TopicName) -> ProduceSession {
        ProduceSession::new(self.native(), topic.clone(), self.inner.settings.delivery_timeout)
    }

    /// Waits until every record sent so far is acknowledged or has failed; records that are sent meanwhile are waited for
    /// too.
    ///
    /// # Errors
    /// [`ProducerError::Flush`] when that takes longer than the delivery timeout.
    pub async fn flush(&self) -> Result<(), ProducerError> {
        let Ok(running) = &self.inner.running else { return Ok(()) };
        let native = Arc::clone(&running.current.lock());
        native.flush(self.inner.settings.delivery_timeout).await
    }

    /// [`Producer::flush`], and then, if this is the last clone and no session is left, the end of librdkafka's threads and
    /// connections. Who stops a broker of its own afterwards does not make librdkafka complain that it went away.
    ///
    /// # Errors
    /// As [`Producer::flush`].
    pub async fn close(self) -> Result<(), ProducerError> {
        let flushed = self.flush().await;
        let running = Arc::into_inner(self.inner).and_then(|inner| inner.running.ok());
        let native = running.map(|running| running.current.into_inner());
        if let Some(native) = native.and_then(Arc::into_inner) {
            native.end().await;
        }
        flushed
    }

    /// librdkafka's producer. One that has met a fatal error takes no record ever again, so a new one takes its place.
    fn native(&self) -> Result<Arc<Native>, Arc<str>> {
        let running = self.inner.running.as_ref().map_err(Arc::clone)?;
        let mut current = running.current.lock();
        if current.is_fatal() {
            match Native::new(&running.config, &self.inner.settings, &running.security) {
                Ok(native) => *current = Arc::new(native),
                // The sessions of the old one fail with its error.
                Err(error) => tracing::error!(%error, "no new producer can be made after a fatal error"),
            }
        }
        Ok(Arc::clone(&current))
    }
}

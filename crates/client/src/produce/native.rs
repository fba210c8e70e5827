//! librdkafka's producer: its settings, its thread, its delivery reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rdkafka::client::{ClientContext, OAuthToken};
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message as _;
use rdkafka::producer::{BaseRecord, DeliveryResult, ProducerContext, ThreadedProducer};
use tokio::sync::{Notify, Semaphore};

use super::session::Delivered;
use super::{ProducerError, ProducerSettings};
use crate::config::ClusterConfig;
use crate::librdkafka;
use crate::librdkafka::security::{Guard, Unfit};
use crate::security::Security;

/// What librdkafka and we keep for a record besides its bytes, roughly. It makes small records count.
pub(super) const RECORD_OVERHEAD: usize = 256;

/// librdkafka's own limit for a new topic to become known everywhere.
const PROPAGATION: Duration = Duration::from_secs(30);

/// The settings of librdkafka.
pub(super) fn client_config(cluster: &ClusterConfig, settings: &ProducerSettings) -> Result<ClientConfig, Unfit> {
    let millis = |time: Duration| time.as_millis().clamp(1, i32::MAX as u128).to_string();
    // Our own places bound the queue, and count more than librdkafka does (values alone): its limit is out of the way.
    let queue_kbytes = settings.queue_bytes.saturating_add(settings.message_max_bytes) / 1024 + 1;
    let mut config = librdkafka::client_config(cluster)?;
    config
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("partitioner", "murmur2_random")
        .set("compression.codec", settings.compression.name())
        .set("linger.ms", format!("{:.3}", settings.linger.as_secs_f64() * 1000.0))
        .set("batch.size", settings.batch_bytes.to_string())
        // Let bytes and time alone end a batch.
        .set("batch.num.messages", "1000000")
        .set("message.max.bytes", settings.message_max_bytes.to_string())
        .set("queue.buffering.max.kbytes", queue_kbytes.min(i32::MAX as usize).to_string())
        .set("queue.buffering.max.messages", "0")
        .set("message.timeout.ms", millis(settings.delivery_timeout))
        // How long a topic that no broker knows may be a new one: less than its records wait, so that they fail with that
        // cause and not with having waited.
        .set("topic.metadata.propagation.max.ms", millis(settings.delivery_timeout.min(PROPAGATION * 2) / 2));
    Ok(config)
}

/// A producer of librdkafka with the thread that polls it.
pub(super) struct Native {
    producer: Option<ThreadedProducer<Context>>,
    context: Arc<State>,
    pub(super) settings: ProducerSettings,
}

/// What the delivery reports act on.
struct State {
    /// The bytes of the queue that are free.
    places: Semaphore,
    in_flight: AtomicU64,
    drained: Notify,
    fatal: AtomicBool,
    /// Why brokers do not let librdkafka in, if they do not: its records only run out of time.
    shut_out: Mutex<Option<String>>,
    guard: Guard,
}

struct Context(Arc<State>);

/// A record on its way.
pub(super) struct InFlight {
    pub(super) delivered: Delivered,
    /// The places it takes in the queue.
    pub(super) places: u32,
}

impl Native {
    pub(super) fn new(
        config: &ClientConfig,
        settings: &ProducerSettings,
        security: &Security,
    ) -> Result<Self, ProducerError> {
        let guard = Guard::new(security).ok_or_else(|| ProducerError::Setting {
            reason: "OAUTHBEARER needs a tokio runtime to get tokens on, and there is none".to_owned(),
        })?;
        let state = Arc::new(State {
            places: Semaphore::new(queue_places(settings) as usize),
            in_flight: AtomicU64::new(0),
            drained: Notify::new(),
            fatal: AtomicBool::new(false),
            shut_out: Mutex::default(),
            guard,
        });
        let producer = config
            .create_with_context(Context(Arc::clone(&state)))
            .map_err(|error| ProducerError::Setting { reason: error.to_string() })?;
        Ok(Self { producer: Some(producer), context: state, settings: settings.clone() })
    }

    /// Waits for room in the queue, for a record of `bytes`, and takes it. One that is larger than the whole queue takes all
    /// of it.
    pub(super) async fn place(&self, bytes: usize) -> u32 {
        let places = u32::try_from(bytes.saturating_add(RECORD_OVERHEAD)).unwrap_or(u32::MAX);
        let places = places.min(queue_places(&self.settings));
        // The semaphore is never closed.
        if let Ok(permit) = self.context.places.acquire_many(places).await {
            permit.forget();
        }
        places
    }

    /// Hands a record over. Never blocks. Its places come back with its delivery report, or at once when it is refused.
    pub(super) fn send(&self, record: BaseRecord<'_, [u8], [u8], Box<InFlight>>) -> Result<(), KafkaError> {
        let Some(producer) = &self.producer else { return Err(KafkaError::Canceled) };
        self.context.in_flight.fetch_add(1, Ordering::SeqCst);
        producer.send(record).map_err(|(error, record)| {
            self.context.settle(record.delivery_opaque.places);
            self.context.note(&error);
            error
        })
    }

    pub(super) fn is_fatal(&self) -> bool {
        self.context.fatal.load(Ordering::SeqCst)
    }

    pub(super) async fn flush(&self, after: Duration) -> Result<(), ProducerError> {
        let drained = async {
            loop {
                let notified = self.context.drained.notified();
                if self.context.in_flight.load(Ordering::SeqCst) == 0 {
                    return;
                }
                notified.await;
            }
        };
        tokio::time::timeout(after, drained)
            .await
            .map_err(|_| ProducerError::Flush { unacknowledged: self.context.in_flight.load(Ordering::SeqCst), after })
    }

    /// Ends librdkafka and waits until it has: from then on no connection of it is left.
    pub(super) async fn end(mut self) {
        if let Some(producer) = self.producer.take()
            && let Err(error) = tokio::task::spawn_blocking(move || drop(producer)).await
        {
            tracing::warn!(%error, "a producer did not end in order");
        }
    }
}

fn queue_places(settings: &ProducerSettings) -> u32 {
    u32::try_from(settings.queue_bytes.min(Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX).max(1)
}

impl Drop for Native {
    fn drop(&mut self) {
        // Ending librdkafka takes its time (it waits for its threads), and this may be a runtime's thread.
        if let Some(producer) = self.producer.take() {
            let ending = std::thread::Builder::new().name("end producer".to_owned());
            if let Err(error) = ending.spawn(move || drop(producer)) {
                tracing::warn!(%error, "a producer was ended in place");
            }
        }
    }
}

impl State {
    /// A record is no longer on its way.
    fn settle(&self, places: u32) {
        self.places.add_permits(places as usize);
        if self.in_flight.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.drained.notify_waiters();
        }
    }

    fn note(&self, error: &KafkaError) {
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::Fatal) {
            self.fatal.store(true, Ordering::SeqCst);
        }
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = Box<InFlight>;

    fn delivery(&self, result: &DeliveryResult<'_>, in_flight: Box<InFlight>) {
        let InFlight { delivered, places } = *in_flight;
        match result {
            Ok(message) => {
                self.0.shut_out.lock().take();
                delivered.acknowledged(message.partition(), message.offset());
            }
            Err((error, message)) => {
                self.0.note(error);
                let shut_out = self.0.shut_out.lock().clone();
                delivered.failed(message.partition(), error, shut_out);
            }
        }
        self.0.settle(places);
    }
}

impl ClientContext for Context {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        librdkafka::log(&self.0.guard, level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.0.note(&error);
        let reason = self.0.guard.clean(reason);
        let code = error.rdkafka_error_code();
        // What ends a TLS connection after its handshake (a certificate that is missed, in TLS 1.3) comes as a broken one.
        if matches!(code, Some(RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SSL)) || reason.contains("SSL") {
            *self.0.shut_out.lock() = Some(reason.clone());
        }
        // Brokers that come and go are librdkafka's to handle; what concerns a record comes with its delivery report.
        tracing::warn!(target: "librdkafka", %error, "{reason}");
    }

    fn generate_oauth_token(&self, _config: Option<&str>) -> Result<OAuthToken, Box<dyn std::error::Error>> {
        // Without NUL characters, which the caller cannot hand on.
        self.0.guard.token().map_err(|reason| reason.replace('\0', " ").into())
    }
}

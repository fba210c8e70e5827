//! One connection to one broker.
//!
//! Each kind of wait has a connection of its own: quick questions (metadata, offsets) share one per broker, a reader's long
//! polls and slow administration have theirs.

mod auth;
mod codec;
mod connect;
mod facts;
mod link;
mod low_water;
mod memory;
mod metered;
mod session;
mod tcp;
mod transport;
mod versions;

use std::sync::atomic::{AtomicBool, AtomicI16, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use kafka_protocol::messages::ApiVersionsRequest;
use kafka_protocol::protocol::StrBytes;
use parking_lot::Mutex;
use tidegate_wire::frame::FrameLimit;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::config::ClusterConfig;
use crate::error::{ConnectStage, KafkaCode, RequestError, RequestFailure};
use crate::security::SecurityError;
use auth::{Authenticator, Prepared, Way};
use connect::ReceiveBuffer;
pub(crate) use facts::Arrivals;
pub use facts::{ConnectionFacts, FirstByte};
use link::Link;
use low_water::LowWater;
pub use tcp::TcpFacts;
use transport::{Tls, Transport};
pub(crate) use versions::Spoken;
use versions::{BrokerVersions, Handshake, NoCommonVersion, judge_handshake};

/// The first frame of a connection, for the fuzz targets.
pub(crate) async fn first_frame(
    read: &mut (impl tokio::io::AsyncRead + Unpin),
    limit: FrameLimit,
) -> Result<bytes::Bytes, RequestFailure> {
    link::read_frame(read, limit, true, &mut LowWater::none(), || 0).await
}

/// Opens connections with a cluster's settings.
#[derive(Debug)]
pub(crate) struct Dialer {
    config: ClusterConfig,
    client_id: StrBytes,
    tls: Option<Tls>,
    authenticator: Option<Arc<Authenticator>>,
    receive_buffer: Option<ReceiveBuffer>,
    /// Those it has opened, as long as they are there.
    opened: Mutex<Vec<Weak<Inner>>>,
    /// The version of ApiVersions to begin with: some brokers close the connection at one that they do not know, so what
    /// worked once is remembered.
    handshake: AtomicI16,
}

/// A connection whose broker has told its versions and knows who we are. Cheap to clone; the last clone's drop closes it.
#[derive(Clone)]
pub(crate) struct Connection {
    inner: Arc<Inner>,
}

/// What the clones of a connection share.
struct Inner {
    address: Arc<str>,
    client_id: StrBytes,
    link: Link,
    versions: BrokerVersions,
    round_trip: Duration,
    max_idle: Duration,
    receive_buffer_asked: Option<usize>,
    /// What a close before the first answer says: the broker may expect SASL.
    not_answered: AtomicBool,
    /// The task that keeps the session.
    session: Option<AbortHandle>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        tracing::debug!(facts = ?self.facts(), "a connection is given up");
        if let Some(session) = &self.session {
            session.abort();
        }
    }
}

impl Inner {
    fn facts(&self) -> ConnectionFacts {
        self.link.facts(Arc::clone(&self.address), self.receive_buffer_asked)
    }
}

/// The limits that a session needs.
#[derive(Clone, Copy, Debug)]
struct Limits {
    request_timeout: Duration,
}

/// How far a new connection has come.
struct Progress(Mutex<(&'static str, ConnectStage)>);

impl Progress {
    fn at(&self, request: &'static str, stage: ConnectStage) {
        *self.0.lock() = (request, stage);
    }
}

impl Dialer {
    /// Reads the files that the settings name.
    pub(crate) fn new(config: ClusterConfig) -> Result<Self, SecurityError> {
        let client_id = StrBytes::from_string(config.client_id.clone());
        let security = &config.security;
        let tls = security.tls.as_ref().map(Tls::new).transpose()?;
        let authenticator = match &security.sasl {
            Some(sasl) => {
                sasl.check().map_err(|what| SecurityError::Sasl { mechanism: sasl.mechanism(), what })?;
                Some(Authenticator::new(sasl.clone(), client_id.clone(), tls.is_some()))
            }
            None => None,
        };
        let handshake = AtomicI16::new(ApiVersionsRequest::SPOKEN.1);
        let receive_buffer = config.receive_buffer_bytes.map(ReceiveBuffer::new);
        Ok(Self { config, client_id, tls, authenticator, receive_buffer, opened: Mutex::default(), handshake })
    }

    pub(crate) fn config(&self) -> &ClusterConfig {
        &self.config
    }

    /// Connects to `address`, asks for the broker's versions and authenticates: all of it within the connect timeout, but
    /// for getting a token.
    pub(crate) async fn open(&self, address: &str) -> Result<Connection, RequestError> {
        let fail = |(request, failure)| RequestError { broker: address.to_owned(), request, failure };
        let prepared = match &self.authenticator {
            Some(authenticator) => Some(authenticator.prepare().await.map_err(|failure| fail(("connect", failure)))?),
            None => None,
        };
        let progress = Progress(Mutex::new(("connect", ConnectStage::Tcp)));
        let after = self.config.connect_timeout;
        match tokio::time::timeout(after, self.open_within(address, prepared.as_ref(), &progress)).await {
            Ok(opened) => opened.map_err(fail),
            Err(_) => {
                let (request, stage) = *progress.0.lock();
                Err(fail((request, RequestFailure::ConnectTimeout { after, stage })))
            }
        }
    }

    async fn open_within(
        &self,
        address: &str,
        prepared: Option<&Prepared>,
        progress: &Progress,
    ) -> Result<Connection, (&'static str, RequestFailure)> {
        let (link, versions, round_trip) = self.versions(address, progress).await?;
        let mut lifetime = None;
        if let (Some(authenticator), Some(prepared)) = (&self.authenticator, prepared) {
            progress.at("SASL", ConnectStage::Sasl);
            let way = Way::New(&link);
            let timeout = self.single_answer();
            lifetime = authenticator.authenticate(&way, &versions, prepared, timeout).await?;
        }
        let session = lifetime.zip(self.authenticator.clone());
        let limits = Limits { request_timeout: self.config.request_timeout };
        let inner = Arc::new_cyclic(|connection| Inner {
            address: address.into(),
            client_id: self.client_id.clone(),
            link,
            versions,
            round_trip,
            max_idle: self.config.connection_max_idle,
            receive_buffer_asked: self.config.receive_buffer_bytes,
            not_answered: AtomicBool::new(self.authenticator.is_none()),
            session: session.map(|(lifetime, authenticator)| {
                tokio::spawn(session::keep(connection.clone(), authenticator, lifetime, limits)).abort_handle()
            }),
        });
        let mut opened = self.opened.lock();
        opened.retain(|other| other.strong_count() > 0);
        opened.push(Arc::downgrade(&inner));
        drop(opened);
        Ok(Connection { inner })
    }

    /// The connections that are there, in the order in which they were opened.
    pub(crate) fn connections(&self) -> Vec<Connection> {
        self.opened.lock().iter().filter_map(Weak::upgrade).map(|inner| Connection { inner }).collect()
    }

    /// A connection whose broker has told its versions.
    async fn versions(
        &self,
        address: &str,
        progress: &Progress,
    ) -> Result<(Link, BrokerVersions, Duration), (&'static str, RequestFailure)> {
        let mut version = self.handshake.load(Ordering::Relaxed);
        let mut link = self.dial(address, progress).await.map_err(|failure| ("connect", failure))?;
        loop {
            let asked = Instant::now();
            let answer = self.ask_versions(&link, version).await;
            version = match answer {
                Ok(Handshake::Done(versions)) => {
                    self.handshake.store(version, Ordering::Relaxed);
                    return Ok((link, versions, asked.elapsed()));
                }
                Ok(Handshake::AskAgain(lower)) => lower,
                Ok(Handshake::Refused(code)) => {
                    let what = format!("it is {}", KafkaCode(code));
                    return Err((ApiVersionsRequest::NAME, RequestFailure::Garbage { what }));
                }
                // Azure and some proxies close the connection at a version that they do not know.
                Err(RequestFailure::Closed) if version > 0 => {
                    link = self.dial(address, progress).await.map_err(|failure| ("connect", failure))?;
                    0
                }
                Err(RequestFailure::Closed) if self.tls.is_none() => {
                    let advice = "if this port speaks TLS, set security.protocol to SSL or SASL_SSL";
                    return Err((ApiVersionsRequest::NAME, RequestFailure::ClosedAtOnce { advice }));
                }
                Err(failure) => return Err((ApiVersionsRequest::NAME, failure)),
            };
        }
    }

    async fn dial(&self, address: &str, progress: &Progress) -> Result<Link, RequestFailure> {
        progress.at("connect", ConnectStage::Tcp);
        let cannot = |error| RequestFailure::Connect(Arc::new(error));
        let stream = connect::connect(address, self.receive_buffer.as_ref()).await.map_err(cannot)?;
        // A request is one write; waiting for more to send with it only delays the answer.
        stream.set_nodelay(true).map_err(cannot)?;
        let transport = match &self.tls {
            None => {
                progress.at(ApiVersionsRequest::NAME, ConnectStage::Versions);
                Transport::Plain(stream)
            }
            Some(tls) => {
                progress.at("connect", ConnectStage::Tls);
                let transport = tls.shake_hands(address, stream).await?;
                progress.at(ApiVersionsRequest::NAME, ConnectStage::VersionsOverTls);
                transport
            }
        };
        Ok(Link::new(transport, FrameLimit::new(self.config.max_response_bytes), self.config.max_in_flight))
    }

    /// The limit of one answer on a new connection: never the one that is met, since the connect timeout stands around all of
    /// them and knows more to say.
    fn single_answer(&self) -> Duration {
        self.config.connect_timeout.saturating_mul(2)
    }

    async fn ask_versions(&self, link: &Link, version: i16) -> Result<Handshake, RequestFailure> {
        let mut request = ApiVersionsRequest::default();
        if version >= 3 {
            // The broker checks both against [a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])? (KIP-511).
            request = request
                .with_client_software_name(StrBytes::from_static_str("tidegate"))
                .with_client_software_version(StrBytes::from_static_str(env!("CARGO_PKG_VERSION")));
        }
        let encode = |correlation| codec::encode_frame(&request, version, correlation, &self.client_id);
        let frame = link.exchange(encode, self.single_answer()).await?;
        Ok(judge_handshake(version, &codec::decode_api_versions(frame, version)?))
    }
}

impl Connection {
    /// The broker's address, `host:port`.
    pub(crate) fn address(&self) -> &str {
        &self.inner.address
    }

    /// What it has spent its time on, and what the kernel knows of it. At any time, whatever it is doing.
    pub(crate) fn facts(&self) -> ConnectionFacts {
        self.inner.facts()
    }

    /// When bytes come over it.
    pub(crate) fn arrivals(&self) -> Arrivals {
        self.inner.link.arrivals()
    }

    /// How long the broker's first answer took, to a question that it need not think about: the round trip and little more.
    pub(crate) fn first_round_trip(&self) -> Duration {
        self.inner.round_trip
    }

    /// Whether it may be used for another request: it is neither broken nor was it idle for too long.
    pub(crate) fn is_usable(&self) -> bool {
        self.inner.link.is_open() && self.inner.link.idle() < self.inner.max_idle
    }

    /// The highest version of `R` that both sides speak.
    pub(crate) fn version<R: Spoken>(&self) -> Result<i16, RequestError> {
        self.inner.versions.negotiate::<R>().map_err(|NoCommonVersion { ours, theirs }| {
            let range = |(low, high): (i16, i16)| format!("{low} to {high}");
            let theirs = theirs.map_or_else(|| "none".to_owned(), range);
            self.fail::<R>(RequestFailure::Version { ours: range(ours), theirs })
        })
    }

    /// Sends a request in `version` and waits for its response. A broker that stays silent or answers garbage loses the
    /// connection.
    ///
    /// Dropping the future leaves the connection in order.
    pub(crate) async fn call<R: Spoken>(
        &self,
        version: i16,
        request: &R,
        timeout: Duration,
    ) -> Result<R::Response, RequestError> {
        self.call_expecting(version, request, 0, timeout).await
    }

    /// [`Self::call`] for a response that may well hold `expect` bytes: what a fetch asks for. That much memory is then taken at
    /// once when the response claims it, so a broker's word must never be the source of `expect`.
    pub(crate) async fn call_expecting<R: Spoken>(
        &self,
        version: i16,
        request: &R,
        expect: usize,
        timeout: Duration,
    ) -> Result<R::Response, RequestError> {
        let encode = |correlation| codec::encode_frame(request, version, correlation, &self.inner.client_id);
        let exchanged = self.inner.link.exchange_expecting(encode, expect, timeout).await;
        let decoded = exchanged.and_then(|frame| codec::decode_frame::<R>(frame, version));
        match decoded {
            Ok(response) => {
                self.inner.not_answered.store(false, Ordering::Relaxed);
                Ok(response)
            }
            // A broker lets everybody ask for its versions, and closes at the next request of one that it does not know.
            Err(RequestFailure::Closed) if self.inner.not_answered.load(Ordering::Relaxed) => {
                let advice = "if this port wants SASL, set security.protocol to SASL_PLAINTEXT or SASL_SSL, with \
                              sasl.mechanism and credentials";
                Err(self.fail::<R>(RequestFailure::ClosedAtOnce { advice }))
            }
            Err(failure) => Err(self.fail::<R>(failure)),
        }
    }

    /// A failure of a request of this connection. After garbage the connection is of no use; the other requests on it may be
    /// sent again over another.
    pub(crate) fn fail<R: Spoken>(&self, failure: RequestFailure) -> RequestError {
        if matches!(failure, RequestFailure::Garbage { .. }) {
            self.inner.link.close(RequestFailure::Closed);
        }
        RequestError { broker: self.address().to_owned(), request: R::NAME, failure }
    }

    /// [`RequestFailure::Garbage`] for an answer that decodes but does not answer the question.
    pub(crate) fn garbage<R: Spoken>(&self, what: impl Into<String>) -> RequestError {
        self.fail::<R>(RequestFailure::Garbage { what: what.into() })
    }
}

//! One connection to one broker.
//!
//! Each kind of wait has a connection of its own: quick questions (metadata, offsets) share one per broker, a reader's long
//! polls and slow administration have theirs.

mod codec;
mod link;
mod versions;

use std::sync::Arc;
use std::sync::atomic::{AtomicI16, Ordering};
use std::time::Duration;

use kafka_protocol::messages::ApiVersionsRequest;
use kafka_protocol::protocol::StrBytes;
use tidegate_wire::frame::FrameLimit;
use tokio::net::TcpStream;

use crate::config::ClusterConfig;
use crate::error::{KafkaCode, RequestError, RequestFailure};
use link::Link;
pub(crate) use versions::Spoken;
use versions::{BrokerVersions, Handshake, NoCommonVersion, judge_handshake};

/// Opens connections with a cluster's settings.
#[derive(Debug)]
pub(crate) struct Dialer {
    config: ClusterConfig,
    client_id: StrBytes,
    /// The version of ApiVersions to begin with: some brokers close the connection at one that they do not know, so what
    /// worked once is remembered.
    handshake: AtomicI16,
}

/// A connection whose broker has told its versions. Cheap to clone; the last clone's drop closes it.
#[derive(Clone)]
pub(crate) struct Connection {
    inner: Arc<Inner>,
}

struct Inner {
    address: Arc<str>,
    client_id: StrBytes,
    link: Link,
    versions: BrokerVersions,
    max_idle: Duration,
}

impl Dialer {
    pub(crate) fn new(config: ClusterConfig) -> Self {
        let client_id = StrBytes::from_string(config.client_id.clone());
        Self { config, client_id, handshake: AtomicI16::new(ApiVersionsRequest::SPOKEN.1) }
    }

    pub(crate) fn config(&self) -> &ClusterConfig {
        &self.config
    }

    /// Connects to `address` and asks for the broker's versions.
    pub(crate) async fn open(&self, address: &str) -> Result<Connection, RequestError> {
        let fail = |request, failure| RequestError { broker: address.to_owned(), request, failure };
        let mut version = self.handshake.load(Ordering::Relaxed);
        let mut link = self.dial(address).await.map_err(|failure| fail("connect", failure))?;
        loop {
            let answer = self.ask_versions(&link, version).await;
            version = match answer {
                Ok(Handshake::Done(versions)) => {
                    self.handshake.store(version, Ordering::Relaxed);
                    let client_id = self.client_id.clone();
                    let max_idle = self.config.connection_max_idle;
                    let inner = Inner { address: address.into(), client_id, link, versions, max_idle };
                    return Ok(Connection { inner: Arc::new(inner) });
                }
                Ok(Handshake::AskAgain(lower)) => lower,
                Ok(Handshake::Refused(code)) => {
                    let what = format!("it is {}", KafkaCode(code));
                    return Err(fail(ApiVersionsRequest::NAME, RequestFailure::Garbage { what }));
                }
                // Azure and some proxies close the connection at a version that they do not know.
                Err(RequestFailure::Closed) if version > 0 => {
                    link = self.dial(address).await.map_err(|failure| fail("connect", failure))?;
                    0
                }
                Err(failure) => return Err(fail(ApiVersionsRequest::NAME, failure)),
            };
        }
    }

    async fn dial(&self, address: &str) -> Result<Link, RequestFailure> {
        let after = self.config.connect_timeout;
        let stream = tokio::time::timeout(after, TcpStream::connect(address))
            .await
            .map_err(|_| RequestFailure::ConnectTimeout { after })?
            .map_err(|error| RequestFailure::Connect(Arc::new(error)))?;
        // A request is one write; waiting for more to send with it only delays the answer.
        stream.set_nodelay(true).map_err(|error| RequestFailure::Connect(Arc::new(error)))?;
        Ok(Link::new(stream, FrameLimit::new(self.config.max_response_bytes), self.config.max_in_flight))
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
        let frame = link.exchange(encode, self.config.connect_timeout).await?;
        Ok(judge_handshake(version, &codec::decode_api_versions(frame, version)?))
    }
}

impl Connection {
    /// The broker's address, `host:port`.
    pub(crate) fn address(&self) -> &str {
        &self.inner.address
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
        let encode = |correlation| codec::encode_frame(request, version, correlation, &self.inner.client_id);
        let exchanged = self.inner.link.exchange(encode, timeout).await;
        let decoded = exchanged.and_then(|frame| codec::decode_frame::<R>(frame, version));
        decoded.map_err(|failure| self.fail::<R>(failure))
    }

    /// A failure of a request of this connection. After garbage the connection is of no use.
    pub(crate) fn fail<R: Spoken>(&self, failure: RequestFailure) -> RequestError {
        if matches!(failure, RequestFailure::Garbage { .. }) {
            self.inner.link.close(failure.clone());
        }
        RequestError { broker: self.address().to_owned(), request: R::NAME, failure }
    }

    /// [`RequestFailure::Garbage`] for an answer that decodes but does not answer the question.
    pub(crate) fn garbage<R: Spoken>(&self, what: impl Into<String>) -> RequestError {
        self.fail::<R>(RequestFailure::Garbage { what: what.into() })
    }
}

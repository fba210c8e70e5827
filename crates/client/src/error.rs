//! What can go wrong between us and one broker, and Kafka's own error codes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::error::ParseResponseErrorCode as _;

use crate::security::{SaslProblem, SecurityError, TokenError};

/// An error code of the Kafka protocol, shown with its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KafkaCode(pub i16);

impl fmt::Display for KafkaCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.err() {
            None => f.write_str("no error (code 0)"),
            Some(known) => write!(f, "{known:?} (code {})", self.0),
        }
    }
}

impl fmt::Debug for KafkaCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The error codes that this client acts on.
pub(crate) mod code {
    pub(crate) const UNKNOWN_SERVER_ERROR: i16 = -1;
    pub(crate) const NONE: i16 = 0;
    pub(crate) const OFFSET_OUT_OF_RANGE: i16 = 1;
    pub(crate) const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
    pub(crate) const LEADER_NOT_AVAILABLE: i16 = 5;
    pub(crate) const NOT_LEADER_OR_FOLLOWER: i16 = 6;
    pub(crate) const REQUEST_TIMED_OUT: i16 = 7;
    pub(crate) const BROKER_NOT_AVAILABLE: i16 = 8;
    pub(crate) const REPLICA_NOT_AVAILABLE: i16 = 9;
    pub(crate) const NETWORK_EXCEPTION: i16 = 13;
    pub(crate) const TOPIC_AUTHORIZATION_FAILED: i16 = 29;
    pub(crate) const CLUSTER_AUTHORIZATION_FAILED: i16 = 31;
    pub(crate) const UNSUPPORTED_SASL_MECHANISM: i16 = 33;
    pub(crate) const ILLEGAL_SASL_STATE: i16 = 34;
    pub(crate) const TOPIC_ALREADY_EXISTS: i16 = 36;
    pub(crate) const NOT_CONTROLLER: i16 = 41;
    pub(crate) const UNSUPPORTED_FOR_MESSAGE_FORMAT: i16 = 43;
    pub(crate) const KAFKA_STORAGE_ERROR: i16 = 56;
    pub(crate) const LISTENER_NOT_FOUND: i16 = 72;
    pub(crate) const FENCED_LEADER_EPOCH: i16 = 74;
    pub(crate) const UNKNOWN_LEADER_EPOCH: i16 = 75;
    pub(crate) const OFFSET_NOT_AVAILABLE: i16 = 78;

    /// Whether a partition's leader may answer better soon, or another broker leads it by now.
    pub(crate) fn concerns_leader(code: i16) -> bool {
        matches!(
            code,
            UNKNOWN_TOPIC_OR_PARTITION
                | LEADER_NOT_AVAILABLE
                | NOT_LEADER_OR_FOLLOWER
                | REQUEST_TIMED_OUT
                | BROKER_NOT_AVAILABLE
                | REPLICA_NOT_AVAILABLE
                | NETWORK_EXCEPTION
                | KAFKA_STORAGE_ERROR
                | LISTENER_NOT_FOUND
                | FENCED_LEADER_EPOCH
                | UNKNOWN_LEADER_EPOCH
                | OFFSET_NOT_AVAILABLE
        )
    }
}

/// One request to one broker failed before there was an answer to look at.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{request} to {broker}: {failure}")]
pub struct RequestError {
    /// The broker's address, as `host:port`.
    pub broker: String,
    /// The request's name, such as `Fetch`, or `connect`.
    pub request: &'static str,
    /// What happened.
    #[source]
    pub failure: RequestFailure,
}

impl RequestError {
    /// Whether another attempt, over a new connection or to another broker, may do better. Garbage, disagreement about
    /// versions and a refusal of who we are stay as they are: trying again would only lock an account.
    pub fn is_transient(&self) -> bool {
        match &self.failure {
            RequestFailure::Connect(_)
            | RequestFailure::ConnectTimeout { .. }
            | RequestFailure::Timeout { .. }
            | RequestFailure::Io(_)
            | RequestFailure::Closed
            | RequestFailure::ClosedAtOnce { .. } => true,
            RequestFailure::Token(error) => error.is_transient(),
            RequestFailure::Garbage { .. }
            | RequestFailure::TooLarge { .. }
            | RequestFailure::Version { .. }
            | RequestFailure::Encode { .. }
            | RequestFailure::Tls { .. }
            | RequestFailure::Authentication(_) => false,
        }
    }
}

/// Why a request failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RequestFailure {
    /// No TCP connection could be made.
    #[error("cannot connect: {0}")]
    Connect(#[source] Arc<std::io::Error>),
    /// No connection came about in time: TCP, TLS, versions and SASL together.
    #[error("{}within {after:?}{}", stage.waited_for(), stage.advice())]
    ConnectTimeout {
        /// The limit.
        after: Duration,
        /// What was being waited for.
        stage: ConnectStage,
    },
    /// The broker did not answer in time.
    #[error("no answer within {after:?}")]
    Timeout {
        /// The limit.
        after: Duration,
    },
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Io(#[source] Arc<std::io::Error>),
    /// The broker closed the connection before it answered.
    #[error("the broker closed the connection")]
    Closed,
    /// The broker closed the connection at the first thing that it was asked, as one does that expects another protocol.
    #[error("the broker closed the connection at once; {advice}")]
    ClosedAtOnce {
        /// Which setting to look at.
        advice: &'static str,
    },
    /// The TLS handshake failed.
    #[error("TLS: {reason}")]
    Tls {
        /// Why, and what to do about it.
        reason: String,
    },
    /// There is no token to authenticate with.
    #[error(transparent)]
    Token(Box<TokenError>),
    /// The broker does not take us for who we say that we are. Not tried again.
    #[error(transparent)]
    Authentication(Box<AuthenticationError>),
    /// The broker's answer makes no sense; the connection was dropped.
    #[error("the answer makes no sense: {what}")]
    Garbage {
        /// What is wrong with it.
        what: String,
    },
    /// The broker announced a larger answer than the limit allows; the connection was dropped.
    #[error("the answer is {bytes} bytes long, more than max_response_bytes ({limit})")]
    TooLarge {
        /// The size announced.
        bytes: usize,
        /// The limit, `max_response_bytes` of the configuration.
        limit: usize,
    },
    /// The broker and this client have no version of the request in common.
    #[error("the broker speaks versions {theirs}, this client {ours}")]
    Version {
        /// The versions of this client, as `min to max`.
        ours: String,
        /// The versions of the broker, as `min to max`, or `none`.
        theirs: String,
    },
    /// The request could not be put into the negotiated version.
    #[error("the request cannot be encoded: {what}")]
    Encode {
        /// Why not.
        what: String,
    },
}

/// What a new connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectStage {
    /// The TCP connection, name lookup included.
    Tcp,
    /// The TLS handshake.
    Tls,
    /// The answer to ApiVersions, on a connection without TLS.
    Versions,
    /// The answer to ApiVersions, after a TLS handshake.
    VersionsOverTls,
    /// SASL.
    Sasl,
}

impl ConnectStage {
    fn waited_for(self) -> &'static str {
        match self {
            Self::Tcp => "no connection ",
            Self::Tls => "connected, but no answer to the TLS handshake ",
            Self::Versions | Self::VersionsOverTls => "connected, but no answer to ApiVersions ",
            Self::Sasl => "connected, but SASL came to no end ",
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Self::Tcp | Self::VersionsOverTls | Self::Sasl => "",
            Self::Tls => {
                "; if this port does not speak TLS, set security.protocol to PLAINTEXT or SASL_PLAINTEXT, or name the \
                 broker's TLS port"
            }
            Self::Versions => "; if this port speaks TLS, set security.protocol to SSL or SASL_SSL",
        }
    }
}

/// A broker does not take us for who we say that we are.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AuthenticationError {
    /// It refuses.
    #[error("authentication failed (SASL {mechanism}): {reason}")]
    Refused {
        /// The mechanism.
        mechanism: &'static str,
        /// The broker's words.
        reason: String,
    },
    /// It does not offer the mechanism.
    #[error(
        "the broker does not offer SASL {mechanism}; it offers {}: set sasl.mechanism to one of them",
        list(offered)
    )]
    Mechanism {
        /// Ours.
        mechanism: &'static str,
        /// The broker's.
        offered: Vec<String>,
    },
    /// It asks nobody who he is on this port.
    #[error("the broker does no SASL on this port: set security.protocol to {without}, or name its SASL port")]
    NoSasl {
        /// What `security.protocol` would be without SASL.
        without: &'static str,
    },
    /// It is too old.
    #[error(
        "the broker knows SASL only in the form before Kafka 1.0 (no SaslAuthenticate, KIP-152), which is not spoken"
    )]
    TooOld,
    /// What it says does not fit the mechanism.
    #[error("authentication failed (SASL {mechanism}): {problem}")]
    Conversation {
        /// The mechanism.
        mechanism: &'static str,
        /// What is wrong.
        problem: SaslProblem,
    },
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// No broker of the bootstrap list could be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConnectError {
    /// The bootstrap list is empty.
    #[error("no bootstrap broker is given")]
    NoBootstrap,
    /// An address of the bootstrap list is not `host:port`.
    #[error("the bootstrap address {address:?} is not host:port")]
    Address {
        /// The address.
        address: String,
    },
    /// TLS or SASL cannot be used as they are set.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// None of the brokers answered.
    #[error("no bootstrap broker answers: {}", join(failures))]
    Unreachable {
        /// The failure of each, in the order of the list.
        failures: Vec<RequestError>,
    },
}

fn join(failures: &[RequestError]) -> String {
    let mut text = String::new();
    for (index, failure) in failures.iter().enumerate() {
        if index > 0 {
            text.push_str("; ");
        }
        text.push_str(&failure.to_string());
    }
    text
}

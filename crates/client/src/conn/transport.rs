//! The bytes of a connection: TCP, or TLS over it.

use std::io;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio::io::BufReader;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::link::broken;
use crate::error::RequestFailure;
use crate::security::{SecurityError, TlsSettings};

/// How much is taken off the socket at once for TLS: rustls asks for 4 KiB at a time, a quarter of a record.
pub(super) const TLS_READ_BYTES: usize = 64 << 10;

/// A connection without its protocol.
pub(super) enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<BufReader<TcpStream>>>),
}

impl Transport {
    pub(super) fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    pub(super) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0.get_ref(),
        }
    }
}

/// TLS with a cluster's settings; its files have been read.
#[derive(Clone)]
pub(super) struct Tls {
    connector: TlsConnector,
    /// In place of the host name.
    name: Option<ServerName<'static>>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Tls {
    pub(super) fn new(settings: &TlsSettings) -> Result<Self, SecurityError> {
        let connector = TlsConnector::from(Arc::new(settings.brokers()?));
        Ok(Self { connector, name: settings.name()? })
    }

    /// The handshake with the broker at `address`.
    pub(super) async fn shake_hands(&self, address: &str, stream: TcpStream) -> Result<Transport, RequestFailure> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => server_name(address)?,
        };
        match self.connector.connect(name, BufReader::with_capacity(TLS_READ_BYTES, stream)).await {
            Ok(stream) => Ok(Transport::Tls(Box::new(stream))),
            Err(error) if is_end(&error) => Err(RequestFailure::ClosedAtOnce {
                advice: "it ended the TLS handshake without a word: if this port does not speak TLS, set \
                         security.protocol to PLAINTEXT or SASL_PLAINTEXT, or name the broker's TLS port",
            }),
            Err(error) => Err(broken(error)),
        }
    }
}

fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe)
}

/// The name that the certificate of the broker at `host:port` must have.
fn server_name(address: &str) -> Result<ServerName<'static>, RequestFailure> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(host.to_owned()).map_err(|_| RequestFailure::Tls {
        reason: format!("{host:?} is neither a host name nor an IP address, so no certificate can be made out to it"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_the_host_of_the_address() {
        for (address, name) in [("kafka.example:9093", "kafka.example"), ("10.0.0.1:1", "10.0.0.1"), ("[::1]:9", "::1")]
        {
            assert_eq!(server_name(address).unwrap().to_str(), name, "{address}");
        }
        assert!(matches!(server_name("a b:1"), Err(RequestFailure::Tls { .. })));
    }
}

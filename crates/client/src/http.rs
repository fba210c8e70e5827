//! A small HTTP/1.1 client: what a token endpoint and a schema registry need, and nothing else.
//!
//! One exchange takes at most its timeout and its answer at most its cap. A redirect is an answer like any other: where a
//! request carries credentials, following it would hand them to somebody else.

use std::fmt;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Method, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::security::{TlsSettingError, Trust, tls_hint};

/// The most that status line and headers of an answer may take.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// What one exchange may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpLimits {
    /// From the name lookup to the last byte of the answer. Default: 30 s.
    pub timeout: Duration,
    /// The body of an answer. Default: 1 MiB.
    pub max_body_bytes: usize,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(30), max_body_bytes: 1 << 20 }
    }
}

/// Sends requests over `https://`, and over `http://` to whom the caller allows that. Cheap to clone; clones share
/// connections.
#[derive(Clone)]
pub struct HttpClient {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    limits: HttpLimits,
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// An exchange did not come about.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{method} {url}: {failure}")]
pub struct HttpError {
    /// The request's method.
    pub method: Method,
    /// Its address, without what stands behind a `?`.
    pub url: String,
    /// What happened.
    #[source]
    pub failure: HttpFailure,
}

/// Why an exchange did not come about.
#[derive(Clone, Debug, thiserror::Error)]
pub enum HttpFailure {
    /// The address cannot be used.
    #[error("the address {what}")]
    Address {
        /// What is wrong with it.
        what: &'static str,
    },
    /// No connection could be made.
    #[error("cannot connect: {reason}")]
    Connect {
        /// Why not.
        reason: String,
    },
    /// The answer did not come in time.
    #[error("no answer within {after:?}")]
    Timeout {
        /// The limit.
        after: Duration,
    },
    /// The connection broke, or what came is not HTTP.
    #[error("the exchange broke: {reason}")]
    Broken {
        /// How.
        reason: String,
    },
    /// The answer is larger than the cap.
    #[error("the answer is longer than {limit} bytes")]
    TooLarge {
        /// The cap.
        limit: usize,
    },
}

impl HttpClient {
    /// Makes a client that believes these certificates. `setting` names the setting that a file of them came from.
    ///
    /// # Errors
    /// [`TlsSettingError`] when they cannot be read.
    pub fn new(trust: &Trust, setting: &'static str, limits: HttpLimits) -> Result<Self, TlsSettingError> {
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(trust.https(setting)?).https_or_http().enable_http1().build();
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(Duration::from_secs(60))
            .pool_max_idle_per_host(4)
            .pool_timer(TokioTimer::new())
            .http1_max_buf_size(MAX_HEAD_BYTES)
            .build(connector);
        Ok(Self { client, limits })
    }

    /// Sends a request and answers with what came, whatever its status.
    ///
    /// # Errors
    /// [`HttpError`] when nothing whole came.
    pub async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let method = request.method().clone();
        let url = shown(request.uri());
        let exchange = async {
            check(request.uri())?;
            let response = self.client.request(request.map(Full::new)).await.map_err(|error| {
                let reason = reasons(&error);
                if error.is_connect() { HttpFailure::Connect { reason } } else { HttpFailure::Broken { reason } }
            })?;
            let (head, mut body) = response.into_parts();
            let limit = self.limits.max_body_bytes;
            let mut bytes = BytesMut::new();
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| HttpFailure::Broken { reason: reasons(&error) })?;
                if let Ok(data) = frame.into_data() {
                    if bytes.len() + data.len() > limit {
                        return Err(HttpFailure::TooLarge { limit });
                    }
                    bytes.extend_from_slice(&data);
                }
            }
            Ok(Response::from_parts(head, bytes.freeze()))
        };
        let after = self.limits.timeout;
        let exchanged = tokio::time::timeout(after, exchange).await.unwrap_or(Err(HttpFailure::Timeout { after }));
        exchanged.map_err(|failure| HttpError { method, url, failure })
    }
}

fn check(uri: &Uri) -> Result<(), HttpFailure> {
    let bad = |what| Err(HttpFailure::Address { what });
    match (uri.scheme_str(), uri.authority()) {
        (Some("http" | "https"), Some(authority)) if authority.as_str().contains('@') => {
            bad("holds a user name or a password; credentials have settings of their own")
        }
        (Some("http" | "https"), Some(_)) => Ok(()),
        _ => bad("must begin with https:// or http://"),
    }
}

/// The address as it may be shown: what stands in front of an `@` or behind a `?` may be secret.
fn shown(uri: &Uri) -> String {
    let scheme = uri.scheme_str().map_or_else(String::new, |scheme| format!("{scheme}://"));
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}{host}{}", uri.path())
}

/// An error with its causes; each layer's own words only say that the next one failed.
fn reasons(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut hint = None;
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        hint = hint.or_else(|| tls_hint(error));
        cause = error.source();
    }
    match hint {
        Some(hint) => format!("{text}; {hint}"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_shows_neither_its_credentials_nor_its_query() {
        let uri: Uri = "https://user:pass@idp.example/token?client_secret=x".parse().unwrap();
        assert_eq!(shown(&uri), "https://idp.example/token");
        let Err(HttpFailure::Address { what }) = check(&uri) else { panic!("taken") };
        assert!(what.contains("password"), "{what}");
    }

    #[test]
    fn only_http_and_https_are_spoken() {
        for (address, good) in [("https://a/b", true), ("http://a", true), ("ftp://a/b", false), ("/b", false)] {
            assert_eq!(check(&address.parse().unwrap()).is_ok(), good, "{address}");
        }
    }
}

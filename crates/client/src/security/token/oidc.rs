//! Tokens from an OIDC token endpoint: OAuth's client credentials grant (RFC 6749, 4.4; KIP-768).

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Request, Uri};

use super::answer::refusal;
use super::{TokenFailure, TokenFuture, TokenSource, from_response};
use crate::http::{HttpClient, HttpLimits};
use crate::security::secret::Secret;
use crate::security::tls::Trust;

/// How to ask a token endpoint.
#[derive(Clone, Debug)]
pub struct OidcSettings {
    /// Kafka's `sasl.oauthbearer.token.endpoint.url`. `https://`, or `http://` to this machine.
    pub url: String,
    /// librdkafka's `sasl.oauthbearer.client.id`.
    pub client_id: String,
    /// librdkafka's `sasl.oauthbearer.client.secret`.
    pub client_secret: Secret,
    /// librdkafka's `sasl.oauthbearer.scope`.
    pub scope: Option<String>,
    /// Whether id and secret are URL-encoded in the `Authorization` header, as RFC 6749 (2.3.1) wants and not every endpoint
    /// does. Kafka's `sasl.oauthbearer.header.urlencode`. Default there: no.
    pub header_urlencode: bool,
    /// Whose certificates are believed. librdkafka's `https.ca.location`.
    pub trust: Trust,
    /// The longest wait for an answer.
    pub timeout: Duration,
}

/// Asks a token endpoint.
#[derive(Debug)]
pub struct OidcTokens {
    client: HttpClient,
    url: Uri,
    authorization: HeaderValue,
    body: Bytes,
    secret: Secret,
}

/// No answer with a token is larger.
const MAX_ANSWER_BYTES: usize = 512 << 10;

impl OidcTokens {
    /// Checks the settings and reads the certificates.
    ///
    /// # Errors
    /// [`TokenFailure::Setting`] or [`TokenFailure::Tls`].
    pub fn new(settings: &OidcSettings) -> Result<Self, TokenFailure> {
        let wrong = |what: String| TokenFailure::Setting { what };
        let url: Uri = settings.url.parse().map_err(|_| wrong("the endpoint's address is not a URL".to_owned()))?;
        match url.scheme_str() {
            Some("https") => {}
            Some("http") if is_here(&url) => {}
            Some("http") => {
                return Err(wrong("the endpoint's address must begin with https://: the secret goes there".to_owned()));
            }
            Some("file") => {
                return Err(wrong("a file with a token is sasl.oauthbearer.token.file here".to_owned()));
            }
            _ => return Err(wrong("the endpoint's address must begin with https://".to_owned())),
        }
        if url.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(wrong("the endpoint's address must not hold a user name or a password".to_owned()));
        }
        let limits = HttpLimits { timeout: settings.timeout, max_body_bytes: MAX_ANSWER_BYTES };
        let client = HttpClient::new(&settings.trust, "https.ca.location", limits).map_err(TokenFailure::Tls)?;
        let (id, secret) = (settings.client_id.as_str(), settings.client_secret.expose());
        let credentials = if settings.header_urlencode {
            format!("{}:{}", urlencoded(id), urlencoded(secret))
        } else {
            format!("{id}:{secret}")
        };
        let mut authorization = HeaderValue::try_from(format!("Basic {}", BASE64.encode(credentials)))
            .map_err(|_| wrong("client id and secret cannot be sent".to_owned()))?;
        authorization.set_sensitive(true);
        let mut body = "grant_type=client_credentials".to_owned();
        if let Some(scope) = &settings.scope {
            body.push_str("&scope=");
            body.push_str(&urlencoded(scope));
        }
        Ok(Self { client, url, authorization, body: body.into(), secret: settings.client_secret.clone() })
    }

    async fn ask(&self) -> Result<super::Token, TokenFailure> {
        let request = Request::post(&self.url)
            .header(AUTHORIZATION, &self.authorization)
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(ACCEPT, "application/json")
            .body(self.body.clone())
            .map_err(|error| TokenFailure::Setting { what: error.to_string() })?;
        let response = self.client.send(request).await.map_err(TokenFailure::Endpoint)?;
        let status = response.status();
        if status.is_success() {
            return from_response(response.body(), SystemTime::now()).map_err(TokenFailure::Answer);
        }
        let reason = if status.is_redirection() {
            "a redirect, which is not followed with credentials; give the address that it leads to".to_owned()
        } else {
            refusal(response.body(), &self.secret)
        };
        Err(TokenFailure::Refused { status: status.as_u16(), reason })
    }
}

impl TokenSource for OidcTokens {
    fn token(&self) -> TokenFuture<'_> {
        Box::pin(self.ask())
    }

    fn describe(&self) -> String {
        format!("the token endpoint at {}", self.url.host().unwrap_or_default())
    }
}

/// Whether an address is this machine's own: what is sent there passes no network.
fn is_here(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// `application/x-www-form-urlencoded`.
fn urlencoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'*' => encoded.push(byte.into()),
            b' ' => encoded.push('+'),
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(url: &str) -> OidcSettings {
        OidcSettings {
            url: url.to_owned(),
            client_id: "id".to_owned(),
            client_secret: Secret::new("hunter22"),
            scope: None,
            header_urlencode: false,
            trust: Trust::System,
            timeout: Duration::from_secs(5),
        }
    }

    #[test]
    fn secrets_go_over_https_or_nowhere_beyond_this_machine() {
        for url in ["http://idp.example/token", "ftp://x/", "not a url", "https://a:b@idp.example/", "file:///t"] {
            let error = OidcTokens::new(&settings(url)).unwrap_err();
            assert!(matches!(error, TokenFailure::Setting { .. }), "{url}: {error}");
        }
        for url in ["http://127.0.0.1:1/token", "http://[::1]:1/token", "http://localhost/token"] {
            assert!(is_here(&url.parse().unwrap()), "{url}");
        }
    }

    #[test]
    fn a_scope_is_encoded_for_a_form() {
        assert_eq!(
            urlencoded("https://ns.servicebus.windows.net/.default a~b"),
            "https%3A%2F%2Fns.servicebus.windows.net%2F.default+a%7Eb"
        );
    }

    #[test]
    fn debug_output_shows_no_secret() {
        let settings = settings("http://127.0.0.1:1/token");
        assert!(!format!("{settings:?}").contains("hunter22"));
        if let Ok(tokens) = OidcTokens::new(&settings) {
            let shown = format!("{tokens:?}");
            assert!(!shown.contains("hunter22") && !shown.contains(&BASE64.encode("id:hunter22")), "{shown}");
        }
    }
}

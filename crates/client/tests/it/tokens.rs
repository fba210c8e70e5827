//! Tokens from an endpoint, by a small server that says what it is told to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use parking_lot::Mutex;
use tidegate_client::{OidcSettings, OidcTokens, Secret, TokenFailure, Tokens, Trust};
use tidegate_testkit::tls::Authority;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

pub(crate) const CLIENT_SECRET: &str = "s3cret/of+the~client";

/// A token endpoint. Ends with its value.
pub(crate) struct Endpoint {
    pub(crate) addr: SocketAddr,
    /// The requests, head and body.
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
    _task: JoinSet<()>,
}

impl Endpoint {
    /// `answer` gives a status line and a body.
    pub(crate) async fn start(answer: impl Fn() -> (&'static str, String) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let noted = Arc::clone(&asked);
        let mut task = JoinSet::new();
        task.spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                let mut bytes = [0; 4_096];
                while !whole(&request) {
                    match stream.read(&mut bytes).await {
                        Ok(read) if read > 0 => request.extend_from_slice(&bytes[..read]),
                        _ => break,
                    }
                }
                noted.lock().push(String::from_utf8(request).unwrap());
                let (status, body) = answer();
                let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n", body.len());
                // A client may have seen enough.
                let _ = stream.write_all(format!("{head}\r\n{body}").as_bytes()).await;
            }
        });
        Self { addr, asked, _task: task }
    }

    pub(crate) fn settings(&self) -> OidcSettings {
        OidcSettings {
            url: format!("http://{}/oauth2/token?tenant=x", self.addr),
            client_id: "tidegate".to_owned(),
            client_secret: Secret::new(CLIENT_SECRET),
            scope: Some("kafka read".to_owned()),
            header_urlencode: false,
            // No TLS is spoken here, but the client wants to know whom it would trust; one's machine may trust nobody.
            trust: Trust::PemFile(authority().certificate().to_owned()),
            timeout: Duration::from_secs(20),
        }
    }

    pub(crate) fn tokens(&self) -> Tokens {
        Tokens::new(OidcTokens::new(&self.settings()).unwrap())
    }
}

fn authority() -> &'static Authority {
    static AUTHORITY: std::sync::OnceLock<Authority> = std::sync::OnceLock::new();
    AUTHORITY.get_or_init(|| Authority::new("nobody"))
}

fn whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length =
        head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
    body.len() >= length.unwrap_or(0)
}

/// A JWT without a signature, good from now on for `seconds`.
pub(crate) fn unsecured_jwt(subject: &str, seconds: i64) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let now = i64::try_from(now).unwrap();
    let claims = format!(r#"{{"sub":"{subject}","iat":{},"exp":{}}}"#, now - 1_000, now + seconds);
    format!("{}.{}.", URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#), URL_SAFE_NO_PAD.encode(claims))
}

#[tokio::test]
async fn a_token_is_asked_for_with_client_credentials_and_held_while_it_is_good() {
    let endpoint = Endpoint::start(|| {
        (
            "200 OK",
            format!(r#"{{"access_token":"{}","token_type":"Bearer","expires_in":600}}"#, unsecured_jwt("a", 600)),
        )
    })
    .await;
    let tokens = endpoint.tokens();
    let token = tokens.token().await.unwrap();
    assert_eq!(token.subject(), Some("a"));
    assert_eq!(tokens.token().await.unwrap(), token);
    let asked = endpoint.asked.lock();
    assert_eq!(asked.len(), 1);
    assert!(asked[0].starts_with("POST /oauth2/token?tenant=x HTTP/1.1\r\n"), "{}", asked[0]);
    assert!(asked[0].ends_with("\r\n\r\ngrant_type=client_credentials&scope=kafka+read"), "{}", asked[0]);
    let basic = STANDARD.encode(format!("tidegate:{CLIENT_SECRET}"));
    assert!(asked[0].contains(&format!("authorization: Basic {basic}\r\n")), "{}", asked[0]);
}

#[tokio::test]
async fn the_header_is_url_encoded_where_that_is_asked_for() {
    let endpoint = Endpoint::start(|| ("200 OK", r#"{"access_token":"t","expires_in":600}"#.to_owned())).await;
    let settings = OidcSettings { header_urlencode: true, ..endpoint.settings() };
    Tokens::new(OidcTokens::new(&settings).unwrap()).token().await.unwrap();
    let basic = STANDARD.encode("tidegate:s3cret%2Fof%2Bthe%7Eclient");
    assert!(endpoint.asked.lock()[0].contains(&format!("authorization: Basic {basic}\r\n")));
}

#[tokio::test]
async fn refusals_redirects_and_answers_without_a_token_are_told_apart_and_without_the_secret() {
    for (status, body, says) in [
        (
            "401 Unauthorized",
            format!(r#"{{"error":"invalid_client","error_description":"{CLIENT_SECRET} is not it"}}"#),
            "status 401: invalid_client: *** is not it",
        ),
        ("302 Found", String::new(), "a redirect, which is not followed with credentials"),
        ("500 Oops", "<html>".to_owned(), "is it the token endpoint?"),
        ("200 OK", r#"{"id_token":"x"}"#.to_owned(), "without access_token"),
        ("200 OK", r#"{"access_token":"a b"}"#.to_owned(), "characters that no token has"),
        ("200 OK", "x".repeat(600 << 10), "longer than"),
    ] {
        let endpoint = Endpoint::start(move || (status, body.clone())).await;
        let error = endpoint.tokens().token().await.unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
        assert!(!format!("{error} {error:?}").contains(CLIENT_SECRET), "{error:?}");
        assert!(!error.to_string().contains("tenant=x"), "{error}");
        assert_eq!(error.is_transient(), status.starts_with('5') || matches!(error.failure, TokenFailure::Endpoint(_)));
    }
}

#[tokio::test]
async fn an_endpoint_that_says_nothing_is_given_up_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = Endpoint::start(|| ("200 OK", String::new())).await;
    let settings = OidcSettings {
        url: format!("http://{}/token", silent.local_addr().unwrap()),
        timeout: Duration::from_millis(200),
        ..endpoint.settings()
    };
    let error = Tokens::new(OidcTokens::new(&settings).unwrap()).token().await.unwrap_err();
    assert!(error.to_string().contains("no answer within 200ms"), "{error}");
}

//! Tokens for OAUTHBEARER: where they come from, how long they are held.

mod answer;
mod command;
mod file;
mod oidc;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::Mutex;

use super::secret::Secret;
use super::tls::TlsSettingError;
use crate::http::HttpError;
pub(crate) use answer::{TokenProblem, from_output, from_response};
pub use command::CommandTokens;
pub use file::FileTokens;
pub use oidc::{OidcSettings, OidcTokens};

/// How long a token that does not tell when it ends is used for new connections.
const HELD_WITHOUT_END: Duration = Duration::from_secs(60);

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    value: Secret,
    expires_at: Option<SystemTime>,
    subject: Option<String>,
}

impl Token {
    /// Takes a token over. What it tells of itself, if it is a JWT, is noted (and not checked: that is the broker's part).
    ///
    /// # Errors
    /// What is wrong with it, if it can be no token.
    pub fn new(value: &str, expires_at: Option<SystemTime>) -> Result<Self, TokenProblem> {
        if value.is_empty() {
            return Err(TokenProblem::Empty);
        }
        if value.len() > answer::LONGEST {
            return Err(TokenProblem::TooLong);
        }
        // RFC 6750, 2.1. Anything else could say more to the broker than a token.
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        if !value.bytes().all(allowed) {
            return Err(TokenProblem::Characters);
        }
        let claims = answer::claims(value);
        Ok(Self { value: Secret::new(value), expires_at: expires_at.or(claims.expires_at), subject: claims.subject })
    }

    pub(crate) fn value(&self) -> &Secret {
        &self.value
    }

    /// When it ends, if that is known.
    pub fn expires_at(&self) -> Option<SystemTime> {
        self.expires_at
    }

    /// Whom it was issued to, if it tells.
    pub fn subject(&self) -> Option<&str> {
        self.subject.as_deref()
    }

    /// Until when new connections use it: four fifths of what is left of it.
    fn held_until(&self, now: SystemTime) -> SystemTime {
        match self.expires_at {
            Some(end) => now + end.duration_since(now).unwrap_or_default().mul_f64(0.8),
            None => now + HELD_WITHOUT_END,
        }
    }

    fn is_over(&self, now: SystemTime) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }
}

/// A token could not be had.
#[derive(Clone, Debug, thiserror::Error)]
#[error("no token from {source_text}: {failure}")]
pub struct TokenError {
    /// Where it should have come from.
    pub source_text: String,
    /// What happened.
    pub failure: TokenFailure,
}

impl TokenError {
    /// Whether the same may work in a moment.
    pub fn is_transient(&self) -> bool {
        match &self.failure {
            TokenFailure::Read(_)
            | TokenFailure::Command { .. }
            | TokenFailure::Endpoint(_)
            | TokenFailure::Expired => true,
            TokenFailure::Refused { status, .. } => *status >= 500 || *status == 429,
            TokenFailure::Answer(_) | TokenFailure::Setting { .. } | TokenFailure::Tls(_) => false,
        }
    }
}

/// Why a token could not be had.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TokenFailure {
    /// The file cannot be read.
    #[error("cannot read it: {0}")]
    Read(Arc<std::io::Error>),
    /// The command failed.
    #[error("{what}")]
    Command {
        /// How, with the end of what it said on standard error.
        what: String,
    },
    /// The endpoint does not answer.
    #[error(transparent)]
    Endpoint(HttpError),
    /// The endpoint refuses.
    #[error("it answers with status {status}: {reason}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// Its words.
        reason: String,
    },
    /// What it gave is no token.
    #[error(transparent)]
    Answer(TokenProblem),
    /// What it gave has ended already.
    #[error("the token has expired; whatever writes it has stopped, or this machine's clock is wrong")]
    Expired,
    /// It cannot be used as it is set.
    #[error("{what}")]
    Setting {
        /// Why not.
        what: String,
    },
    /// Its certificates cannot be read.
    #[error(transparent)]
    Tls(TlsSettingError),
}

/// What a source of tokens is asked for.
pub type TokenFuture<'a> = Pin<Box<dyn Future<Output = Result<Token, TokenFailure>> + Send + 'a>>;

/// Where tokens come from. Both our connections and librdkafka's ask the same one.
pub trait TokenSource: Send + Sync + 'static {
    /// A token that is good now.
    fn token(&self) -> TokenFuture<'_>;

    /// What it is, for messages; never a secret.
    fn describe(&self) -> String;

    /// Whether asking is so cheap that nothing is gained by holding a token.
    fn is_cheap(&self) -> bool {
        false
    }
}

/// The tokens of one source, held while they are good. Cheap to clone; clones share what they hold.
#[derive(Clone)]
pub struct Tokens {
    shared: Arc<Shared>,
}

struct Shared {
    source: Box<dyn TokenSource>,
    /// Locked while the source is asked, so that connections which open together ask once.
    held: Mutex<Option<Held>>,
    /// The last failure, for those who waited while it happened.
    failed: parking_lot::Mutex<Option<(Instant, TokenError)>>,
}

/// How long a token that is good is given out without asking, after the source has failed.
const HELD_ON: Duration = Duration::from_secs(5);

struct Held {
    token: Token,
    until: SystemTime,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.shared.source.describe())
    }
}

impl Tokens {
    /// The tokens of `source`.
    pub fn new(source: impl TokenSource) -> Self {
        Self {
            shared: Arc::new(Shared {
                source: Box::new(source),
                held: Mutex::default(),
                failed: parking_lot::Mutex::default(),
            }),
        }
    }

    /// A token that is good now.
    ///
    /// # Errors
    /// [`TokenError`]. While a held token is good, a source that fails is only warned about.
    pub async fn token(&self) -> Result<Token, TokenError> {
        let came = Instant::now();
        let mut held = self.shared.held.lock().await;
        let now = SystemTime::now();
        if let Some(held) = held.as_ref().filter(|held| now < held.until) {
            return Ok(held.token.clone());
        }
        if let Some((_, error)) = self.shared.failed.lock().as_ref().filter(|(at, _)| *at > came) {
            return Err(error.clone());
        }
        let asked = match self.shared.source.token().await {
            Ok(token) if token.is_over(SystemTime::now()) => Err(TokenFailure::Expired),
            asked => asked,
        };
        match asked {
            Ok(token) => {
                let until = if self.shared.source.is_cheap() { now } else { token.held_until(now) };
                *held = Some(Held { token: token.clone(), until });
                Ok(token)
            }
            Err(failure) => {
                let error = TokenError { source_text: self.shared.source.describe(), failure };
                match held.as_mut().filter(|held| !self.shared.source.is_cheap() && !held.token.is_over(now)) {
                    Some(held) if held.token.expires_at.is_some() => {
                        tracing::warn!(%error, "the token that is held is used for longer");
                        // Others need not wait for a source that fails.
                        held.until = now + HELD_ON;
                        Ok(held.token.clone())
                    }
                    _ => {
                        *self.shared.failed.lock() = Some((Instant::now(), error.clone()));
                        Err(error)
                    }
                }
            }
        }
    }

    /// A broker did not take `token`: the next one is a new one.
    pub(crate) async fn reject(&self, token: &Token) {
        let mut held = self.shared.held.lock().await;
        if held.as_ref().is_some_and(|held| held.token == *token) {
            *held = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    struct Counted {
        asked: Arc<AtomicUsize>,
        lifetime: Option<Duration>,
    }

    impl TokenSource for Counted {
        fn token(&self) -> TokenFuture<'_> {
            let nth = self.asked.fetch_add(1, Ordering::SeqCst);
            let expires_at = self.lifetime.map(|lifetime| SystemTime::now() + lifetime);
            Box::pin(async move { Token::new(&format!("token-{nth}"), expires_at).map_err(TokenFailure::Answer) })
        }

        fn describe(&self) -> String {
            "a test".to_owned()
        }
    }

    fn counted(lifetime: Option<Duration>) -> (Tokens, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        (Tokens::new(Counted { asked: Arc::clone(&asked), lifetime }), asked)
    }

    #[tokio::test]
    async fn connections_that_open_together_ask_once() {
        let (tokens, asked) = counted(Some(Duration::from_secs(60)));
        let both = futures_util::future::join(tokens.token(), tokens.token()).await;
        assert_eq!(both.0.unwrap(), both.1.unwrap());
        assert_eq!(asked.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_token_that_was_refused_is_not_offered_again() {
        let (tokens, _) = counted(None);
        let first = tokens.token().await.unwrap();
        assert_eq!(tokens.token().await.unwrap(), first);
        tokens.reject(&first).await;
        assert_ne!(tokens.token().await.unwrap(), first);
    }

    #[tokio::test]
    async fn a_token_that_has_ended_is_an_error_that_says_so() {
        let (tokens, _) = counted(Some(Duration::ZERO));
        let error = tokens.token().await.unwrap_err();
        assert!(error.to_string().starts_with("no token from a test: the token has expired"), "{error}");
    }

    #[test]
    fn a_token_is_held_for_four_fifths_of_its_life() {
        let now = SystemTime::now();
        let token = Token::new("t", Some(now + Duration::from_secs(100))).unwrap();
        assert_eq!(token.held_until(now), now + Duration::from_secs(80));
        assert!(!token.is_over(now) && token.is_over(now + Duration::from_secs(100)));
    }

    #[test]
    fn debug_output_shows_no_token() {
        let token = Token::new("very-secret-token", None).unwrap();
        assert!(!format!("{token:?}").contains("very-secret"), "{token:?}");
        assert_eq!(format!("{:?}", counted(None).0), "Tokens(a test)");
    }
}

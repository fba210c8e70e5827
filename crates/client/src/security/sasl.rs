//! SASL: who we say that we are, and the messages that say it. Pure but for the nonce.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom as _, SystemRandom};

use super::scram::{Challenge, Expected, ScramClient, ScramError, ScramHash};
use super::secret::{Secret, quoted};
use super::token::{Token, Tokens};

/// A mechanism with what it needs.
#[derive(Clone, Debug)]
pub enum Sasl {
    /// PLAIN (RFC 4616): name and password as they are, so only over TLS or on a trusted network.
    Plain {
        /// Kafka's `username`.
        username: String,
        /// Its password.
        password: Secret,
    },
    /// SCRAM-SHA-256 or SCRAM-SHA-512: the password itself is never sent, and the broker must prove that it knows it.
    Scram {
        /// Which of the two.
        hash: ScramHash,
        /// Kafka's `username`.
        username: String,
        /// Its password.
        password: Secret,
    },
    /// OAUTHBEARER (RFC 7628, KIP-255): a token that somebody else issues.
    OauthBearer {
        /// Where tokens come from.
        tokens: Tokens,
        /// SASL extensions (KIP-342), sent with every token.
        extensions: Extensions,
    },
}

impl Sasl {
    /// The mechanism's name.
    pub fn mechanism(&self) -> &'static str {
        match self {
            Self::Plain { .. } => "PLAIN",
            Self::Scram { hash, .. } => hash.mechanism(),
            Self::OauthBearer { .. } => "OAUTHBEARER",
        }
    }

    /// What of it must not be shown.
    fn secret(&self) -> Option<&Secret> {
        match self {
            Self::Plain { password, .. } | Self::Scram { password, .. } => Some(password),
            Self::OauthBearer { .. } => None,
        }
    }

    /// A user name or password that the mechanism cannot carry; `Err` says why.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (Self::Plain { username, password } | Self::Scram { username, password, .. }) = self else { return Ok(()) };
        if username.is_empty() {
            return Err("the user name is empty".to_owned());
        }
        if username.contains('\0') || password.expose().contains('\0') {
            return Err("the user name or the password holds a NUL character, which SASL cannot carry".to_owned());
        }
        if username.chars().chain(password.expose().chars()).any(|c| matches!(c, '\n' | '\r')) {
            return Err("the user name or the password holds a line break; that is a slip of copying".to_owned());
        }
        Ok(())
    }
}

/// SASL extensions of OAUTHBEARER, such as Confluent Cloud's `logicalCluster` and `identityPoolId`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extensions(BTreeMap<String, String>);

impl Extensions {
    /// Takes names and values that RFC 7628 allows.
    ///
    /// # Errors
    /// What is wrong with the first that it does not.
    pub fn new(pairs: impl IntoIterator<Item = (String, String)>) -> Result<Self, String> {
        let mut extensions = BTreeMap::new();
        for (name, value) in pairs {
            if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphabetic()) {
                return Err(format!("the extension {name:?} has a name that is not made of the letters a to z alone"));
            }
            if name == "auth" {
                return Err("an extension cannot be called auth: that is the token's own name".to_owned());
            }
            // RFC 7628, 3.1: visible characters, space, tab and line breaks; the last are nothing anybody means.
            if value.is_empty() || !value.bytes().all(|byte| matches!(byte, 0x20..=0x7e | b'\t')) {
                return Err(format!("the extension {name} has a value that is not made of printable ASCII"));
            }
            if extensions.insert(name.clone(), value).is_some() {
                return Err(format!("the extension {name} is given twice"));
            }
        }
        Ok(Self(extensions))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// What is wrong with a conversation, apart from a broker's plain refusal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SaslProblem {
    /// Of SCRAM.
    #[error(transparent)]
    Scram(#[from] ScramError),
    /// The broker goes on where there is nothing left to say.
    #[error("the broker asks for more when all has been said")]
    Endless,
    /// The broker takes no token like this one.
    #[error("the broker does not accept the token: {reason}")]
    Token {
        /// Its words.
        reason: String,
    },
    /// The operating system has no random numbers.
    #[error("no random numbers can be had")]
    Random,
}

/// A conversation with one broker.
#[derive(Debug)]
pub(crate) struct Conversation {
    state: State,
}

#[derive(Debug)]
enum State {
    /// Everything was said in the first message, whose answer must be empty.
    Said,
    Token,
    /// The broker does not take the token, and waits to be told that we know.
    TokenRefused(String),
    Scram(ScramClient),
    Proof(Expected),
    Ended,
}

/// What comes after a message of the broker.
#[derive(Debug)]
pub(crate) enum Step {
    Send(Vec<u8>),
    /// As [`Step::Send`], for what takes long to compute.
    Prove(Box<Proof>),
    Done,
}

/// The work of a SCRAM proof.
#[derive(Debug)]
pub(crate) struct Proof {
    client: ScramClient,
    message: Vec<u8>,
    challenge: Challenge,
}

impl Proof {
    /// Does the work.
    pub(crate) fn work(self) -> Result<(Conversation, Vec<u8>), SaslProblem> {
        let (last, expected) = self.client.prove(&self.message, &self.challenge)?;
        Ok((Conversation { state: State::Proof(expected) }, last.into_bytes()))
    }
}

impl Conversation {
    /// Begins, with the first message. `token` is there for OAUTHBEARER.
    pub(crate) fn begin(sasl: &Sasl, token: Option<&Token>) -> Result<(Self, Vec<u8>), SaslProblem> {
        let (state, first) = match sasl {
            Sasl::Plain { username, password } => {
                (State::Said, format!("\0{username}\0{}", password.expose()).into_bytes())
            }
            Sasl::Scram { hash, username, password } => {
                let client = ScramClient::new(*hash, username, password.clone(), nonce()?);
                let first = client.first().into_bytes();
                (State::Scram(client), first)
            }
            Sasl::OauthBearer { extensions, .. } => {
                // The caller gets it first; without one the broker refuses.
                let token = token.map_or("", |token| token.value().expose());
                (State::Token, bearer(token, extensions).into_bytes())
            }
        };
        Ok((Self { state }, first))
    }

    /// One of OAUTHBEARER with this token, for the fuzz targets.
    pub(crate) fn bearer(token: &Token) -> Result<(Self, Vec<u8>), SaslProblem> {
        let first = bearer(token.value().expose(), &Extensions::default());
        Ok((Self { state: State::Token }, first.into_bytes()))
    }

    /// Takes the broker's next message.
    pub(crate) fn answer(&mut self, message: &[u8]) -> Result<Step, SaslProblem> {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Said if message.is_empty() => Ok(Step::Done),
            State::Token if message.is_empty() => Ok(Step::Done),
            State::Token => {
                self.state = State::TokenRefused(refusal(message));
                // RFC 7628, 3.2.3: the server's error is acknowledged, and then it fails the exchange.
                Ok(Step::Send(vec![1]))
            }
            State::TokenRefused(reason) => Err(SaslProblem::Token { reason: quoted(&reason) }),
            State::Scram(client) => {
                let challenge = client.challenge(message)?;
                Ok(Step::Prove(Box::new(Proof { client, message: message.to_vec(), challenge })))
            }
            State::Proof(expected) => expected.verify(message).map(|()| Step::Done).map_err(SaslProblem::from),
            State::Said | State::Ended => Err(SaslProblem::Endless),
        }
    }

    /// What the broker said about the token, before it fails the exchange without a reason: for [`said`].
    pub(crate) fn token_refusal(&self) -> Option<&str> {
        match &self.state {
            State::TokenRefused(reason) => Some(reason),
            _ => None,
        }
    }
}

/// The words of a broker, without what `sasl` and `token` keep secret.
pub(crate) fn said(text: &str, sasl: &Sasl, token: Option<&Token>) -> String {
    // Hidden before it is cut: the rest of a secret that was cut is not found any more.
    let secrets = sasl.secret().into_iter().chain(token.map(Token::value));
    quoted(&secrets.fold(text.to_owned(), |text, secret| secret.hide_in(&text)))
}

/// RFC 7628, 3.1.
fn bearer(token: &str, extensions: &Extensions) -> String {
    let mut message = format!("n,,\x01auth=Bearer {token}\x01");
    for (name, value) in extensions.iter() {
        message.push_str(&format!("{name}={value}\x01"));
    }
    message.push('\x01');
    message
}

/// `{"status":"invalid_token"}` (RFC 7628, 3.2.2), or whatever else it is.
fn refusal(message: &[u8]) -> String {
    let text = String::from_utf8_lossy(message);
    let status = serde_json::from_str::<serde_json::Value>(&text)
        .ok()
        .and_then(|json| json.get("status").and_then(|status| status.as_str().map(str::to_owned)));
    status.unwrap_or_else(|| text.into_owned())
}

fn nonce() -> Result<String, SaslProblem> {
    let mut bytes = [0; 24];
    SystemRandom::new().fill(&mut bytes).map_err(|_| SaslProblem::Random)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(username: &str, password: &str) -> Sasl {
        Sasl::Plain { username: username.to_owned(), password: Secret::new(password) }
    }

    #[test]
    fn plain_says_all_at_once_and_expects_nothing_back() {
        let (mut conversation, first) = Conversation::begin(&plain("alice", "p\u{e4}ss"), None).unwrap();
        assert_eq!(first, "\0alice\0p\u{e4}ss".as_bytes());
        assert!(matches!(conversation.answer(b""), Ok(Step::Done)));
        let (mut conversation, _) = Conversation::begin(&plain("alice", "pass"), None).unwrap();
        assert_eq!(conversation.answer(b"more").unwrap_err(), SaslProblem::Endless);
    }

    #[test]
    fn a_bearer_token_goes_with_its_extensions() {
        let extensions = [("logicalCluster", "lkc-1"), ("a", "b c")].map(|(n, v)| (n.to_owned(), v.to_owned()));
        let extensions = Extensions::new(extensions).unwrap();
        assert_eq!(bearer("tok", &extensions), "n,,\x01auth=Bearer tok\x01a=b c\x01logicalCluster=lkc-1\x01\x01");
        assert_eq!(bearer("tok", &Extensions::default()), "n,,\x01auth=Bearer tok\x01\x01");
        for (name, value) in [("auth", "x"), ("a1", "x"), ("", "x"), ("a", ""), ("a", "x\x01y")] {
            assert!(Extensions::new([(name.to_owned(), value.to_owned())]).is_err(), "{name}={value:?}");
        }
    }

    #[test]
    fn a_token_that_is_refused_is_acknowledged_and_the_status_told() {
        let mut conversation = Conversation { state: State::Token };
        let Ok(Step::Send(bytes)) = conversation.answer(br#"{"status":"invalid_token"}"#) else { panic!() };
        assert_eq!(bytes, [1]);
        assert_eq!(conversation.token_refusal(), Some("invalid_token"));
        let refused = conversation.answer(b"").unwrap_err();
        assert_eq!(refused, SaslProblem::Token { reason: "invalid_token".to_owned() });
        assert_eq!(conversation.answer(b"").unwrap_err(), SaslProblem::Endless);
    }

    #[test]
    fn what_sasl_cannot_carry_is_refused_before_it_is_sent() {
        assert!(plain("alice", "secret").check().is_ok());
        for (username, password) in [("", "x"), ("a\0b", "x"), ("a", "x\0"), ("a", "secret\n")] {
            let error = plain(username, password).check().unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_brokers_words_never_repeat_the_password() {
        assert_eq!(said("no user hunter22\n", &plain("a", "hunter22"), None), "no user ***");
    }

    #[test]
    fn nonces_differ() {
        assert_ne!(nonce().unwrap(), nonce().unwrap());
    }
}

//! SASL on a connection: at its beginning, and again before the session that the broker grants ends (KIP-368).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::{SaslAuthenticateRequest, SaslHandshakeRequest};
use kafka_protocol::protocol::StrBytes;

use super::codec;
use super::link::{Link, Pause};
use super::versions::{BrokerVersions, Spoken};
use crate::error::{AuthenticationError, RequestFailure, code};
use crate::security::sasl::{Conversation, Step, said};
use crate::security::{Sasl, Token};

/// No mechanism takes more messages; a broker that goes on and on is no broker.
const MOST_ROUNDS: usize = 8;

/// SASL with a cluster's settings.
#[derive(Debug)]
pub(super) struct Authenticator {
    sasl: Sasl,
    client_id: StrBytes,
    /// What `security.protocol` would be without SASL, for a message.
    without: &'static str,
}

/// What must be had before the broker is spoken to.
pub(super) struct Prepared {
    token: Option<Token>,
}

/// How a request failed: its name and why.
type Failed = (&'static str, RequestFailure);

/// Where the messages go.
pub(super) enum Way<'a> {
    /// A new connection, which nobody else has yet.
    New(&'a Link),
    /// One in use, with everybody else waiting.
    Paused(&'a Pause<'a>),
}

impl Way<'_> {
    async fn exchange(
        &self,
        encode: impl FnOnce(i32) -> Result<Bytes, RequestFailure>,
        timeout: Duration,
    ) -> Result<Bytes, RequestFailure> {
        match self {
            Self::New(link) => link.exchange(encode, timeout).await,
            Self::Paused(pause) => pause.exchange(encode, timeout).await,
        }
    }
}

impl Authenticator {
    pub(super) fn new(sasl: Sasl, client_id: StrBytes, tls: bool) -> Arc<Self> {
        Arc::new(Self { sasl, client_id, without: if tls { "SSL" } else { "PLAINTEXT" } })
    }

    /// Gets a token, if the mechanism needs one: before the connection, whose limits do not cover other people's servers.
    pub(super) async fn prepare(&self) -> Result<Prepared, RequestFailure> {
        let Sasl::OauthBearer { tokens, .. } = &self.sasl else { return Ok(Prepared { token: None }) };
        let token = tokens.token().await.map_err(|error| RequestFailure::Token(Box::new(error)))?;
        Ok(Prepared { token: Some(token) })
    }

    /// Authenticates. Answers with how long the session lasts, if the broker bounds it. Each answer may take `timeout`.
    pub(super) async fn authenticate(
        &self,
        way: &Way<'_>,
        versions: &BrokerVersions,
        prepared: &Prepared,
        timeout: Duration,
    ) -> Result<Option<Duration>, Failed> {
        let done = self.converse(way, versions, prepared, timeout).await;
        if let (Err((_, RequestFailure::Authentication(_))), Sasl::OauthBearer { tokens, .. }, Some(token)) =
            (&done, &self.sasl, &prepared.token)
        {
            tokens.reject(token).await;
        }
        done
    }

    async fn converse(
        &self,
        way: &Way<'_>,
        versions: &BrokerVersions,
        prepared: &Prepared,
        timeout: Duration,
    ) -> Result<Option<Duration>, Failed> {
        let mechanism = self.sasl.mechanism();
        let refused = |name, error| (name, RequestFailure::Authentication(Box::new(error)));
        let shaking = |error| refused(SaslHandshakeRequest::NAME, error);
        let saying = |error| refused(SaslAuthenticateRequest::NAME, error);

        if !versions.knows::<SaslHandshakeRequest>() {
            return Err(shaking(AuthenticationError::NoSasl { without: self.without }));
        }
        let too_old = |_| shaking(AuthenticationError::TooOld);
        let shake = versions.negotiate::<SaslHandshakeRequest>().map_err(too_old)?;
        let say = versions.negotiate::<SaslAuthenticateRequest>().map_err(too_old)?;

        let request = SaslHandshakeRequest::default().with_mechanism(StrBytes::from_static_str(mechanism));
        let offer = self.call(way, shake, &request, timeout).await?;
        match offer.error_code {
            code::NONE => {}
            code::UNSUPPORTED_SASL_MECHANISM => {
                let offered = offer.mechanisms.iter().take(32).map(|name| said(name, &self.sasl, None)).collect();
                return Err(shaking(AuthenticationError::Mechanism { mechanism, offered }));
            }
            code::ILLEGAL_SASL_STATE => return Err(shaking(AuthenticationError::NoSasl { without: self.without })),
            other => {
                let reason = format!("the broker answers {}", crate::error::KafkaCode(other));
                return Err(shaking(AuthenticationError::Refused { mechanism, reason }));
            }
        }

        let problem = |problem| saying(AuthenticationError::Conversation { mechanism, problem });
        let token = prepared.token.as_ref();
        let (mut conversation, mut message) = Conversation::begin(&self.sasl, token).map_err(problem)?;
        for _ in 0..MOST_ROUNDS {
            let request = SaslAuthenticateRequest::default().with_auth_bytes(Bytes::from(message));
            let answer = self.call(way, say, &request, timeout).await?;
            if answer.error_code != code::NONE {
                let words = answer.error_message.as_deref().map(|words| said(words, &self.sasl, token));
                let words = words.filter(|words| !words.is_empty());
                let code = crate::error::KafkaCode(answer.error_code);
                let status = conversation.token_refusal().map(|status| said(status, &self.sasl, token));
                let reason = match (words, status) {
                    (Some(words), Some(status)) if !words.contains(&status) => format!("{words} ({status})"),
                    (Some(words), _) => words,
                    (None, Some(status)) => format!("{code} ({status})"),
                    (None, None) => code.to_string(),
                };
                return Err(saying(AuthenticationError::Refused { mechanism, reason }));
            }
            message = match conversation.answer(&answer.auth_bytes).map_err(problem)? {
                Step::Done => return Ok(lifetime(answer.session_lifetime_ms)),
                Step::Send(message) => message,
                Step::Prove(proof) => {
                    // Tens of milliseconds for what Kafka stores, more for what a broker may ask for.
                    let worked = tokio::task::spawn_blocking(move || proof.work()).await;
                    let (next, message) = worked
                        .map_err(|error| {
                            let what = format!("the proof was not made: {error}");
                            (SaslAuthenticateRequest::NAME, RequestFailure::Encode { what })
                        })?
                        .map_err(problem)?;
                    conversation = next;
                    message
                }
            };
        }
        Err(problem(crate::security::SaslProblem::Endless))
    }

    async fn call<R: Spoken>(
        &self,
        way: &Way<'_>,
        version: i16,
        request: &R,
        timeout: Duration,
    ) -> Result<R::Response, Failed> {
        let encode = |correlation| codec::encode_frame(request, version, correlation, &self.client_id);
        let exchanged = way.exchange(encode, timeout).await;
        exchanged.and_then(|frame| codec::decode_frame::<R>(frame, version)).map_err(|failure| (R::NAME, failure))
    }
}

/// Zero stands for a session without an end; what is negative is taken for it too.
fn lifetime(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis)
}

/// When to authenticate again in a session that lasts for `lifetime`: 85 to 95 % into it, as Java's client does, so that many
/// connections which began together do not come back together. `fraction` is 0 to 1.
///
/// Not sooner than after a second, in which a broker takes no second one on a connection, and at the latest after a week.
pub(super) fn renew_after(lifetime: Duration, fraction: f64) -> Duration {
    const SOONEST: Duration = Duration::from_secs(1);
    const LATEST: Duration = Duration::from_secs(7 * 24 * 3_600);
    let reserve = (lifetime / 4).min(Duration::from_secs(2));
    let share = lifetime.min(LATEST).mul_f64(0.85 + 0.10 * fraction.clamp(0.0, 1.0));
    share.min(lifetime.saturating_sub(reserve)).max(SOONEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_renewed_between_85_and_95_percent_of_its_life() {
        let minute = Duration::from_secs(60);
        assert_eq!(renew_after(minute, 0.0), Duration::from_secs(51));
        assert_eq!(renew_after(minute, 1.0), Duration::from_secs(57));
        assert_eq!(renew_after(Duration::from_secs(4), 1.0), Duration::from_secs(3));
    }

    #[test]
    fn lives_that_cannot_be_meant_do_no_harm() {
        assert_eq!((lifetime(0), lifetime(-5), lifetime(i64::MIN)), (None, None, None));
        assert_eq!(renew_after(lifetime(1).unwrap(), 0.5), Duration::from_secs(1));
        assert!(renew_after(lifetime(i64::MAX).unwrap(), 0.5) < Duration::from_secs(7 * 24 * 3_600));
    }
}

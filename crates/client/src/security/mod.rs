//! How connections are secured and who we are to the brokers: one set of settings for our own connections and librdkafka's.

pub(crate) mod connection_string;
mod hint;
pub(crate) mod sasl;
pub(crate) mod scram;
pub(crate) mod secret;
pub(crate) mod tls;
pub(crate) mod token;

pub use connection_string::{ConnectionString, ConnectionStringError, OtherTopic};
pub(crate) use hint::{find as rustls_error, tls_hint};
pub use sasl::{Extensions, Sasl, SaslProblem};
pub use scram::{ScramError, ScramHash};
pub use secret::Secret;
pub(crate) use secret::quoted;
pub use tls::{PemProblem, TlsIdentity, TlsSettingError, TlsSettings, Trust};
pub use token::{
    CommandTokens, FileTokens, OidcSettings, OidcTokens, Token, TokenError, TokenFailure, TokenFuture, TokenSource,
    Tokens,
};

/// How connections are secured. Default: they are not.
#[derive(Clone, Debug, Default)]
pub struct Security {
    /// TLS, if it is spoken.
    pub tls: Option<TlsSettings>,
    /// SASL, if brokers ask who we are.
    pub sasl: Option<Sasl>,
}

impl Security {
    /// Kafka's `security.protocol`.
    pub fn protocol(&self) -> &'static str {
        match (&self.tls, &self.sasl) {
            (None, None) => "PLAINTEXT",
            (Some(_), None) => "SSL",
            (None, Some(_)) => "SASL_PLAINTEXT",
            (Some(_), Some(_)) => "SASL_SSL",
        }
    }
}

/// Settings of security cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SecurityError {
    /// Of TLS.
    #[error(transparent)]
    Tls(#[from] TlsSettingError),
    /// Of SASL.
    #[error("SASL {mechanism}: {what}")]
    Sasl {
        /// The mechanism.
        mechanism: &'static str,
        /// What is wrong.
        what: String,
    },
}

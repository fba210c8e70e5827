//! How connections are secured and who we are to the brokers: one set of settings for our own connections and librdkafka's.

mod hint;
#[allow(dead_code, reason = "connections take it up")]
mod secret;
#[allow(dead_code, reason = "connections take it up")]
mod tls;

pub(crate) use hint::tls_hint;
pub use secret::Secret;
pub use tls::{PemProblem, TlsIdentity, TlsSettingError, TlsSettings, Trust};

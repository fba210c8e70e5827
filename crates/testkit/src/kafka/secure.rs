//! An Apache Kafka that wants to know who calls: beside its plaintext listener, one for each way of being sure.

use std::fmt::Write as _;

use super::ports;
use super::{Kafka, KafkaConfig, StartError};
use crate::tls::{Authority, Identity, Validity};

/// The user that all password mechanisms know.
pub const USER: &str = "alice";

/// Two starts in a row that lose a port to a stranger are bad luck; so many are something else.
const ATTEMPTS: u32 = 5;

/// A running Apache Kafka with listeners for TLS and SASL, on 127.0.0.1.
///
/// SASL listeners take PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER with unsecured tokens (JWTs without a signature).
#[derive(Debug)]
pub struct SecureKafka {
    kafka: Kafka,
    authority: Authority,
    ports: [u16; 4],
    password: String,
}

impl SecureKafka {
    /// Starts one whose user [`USER`] has `password`; on the listener [`SecureKafka::renewing`] a session lasts for
    /// `session_ms`.
    ///
    /// # Errors
    /// As [`Kafka::start`].
    pub fn start(password: &str, session_ms: u32) -> Result<Self, StartError> {
        let authority = Authority::new("Tidegate test CA");
        let broker = authority.sign("broker", &["127.0.0.1", "localhost"], Validity::Good);
        let mut attempt = 1;
        loop {
            let ports = ports::free().map_err(StartError::io("find free ports"))?;
            let config = config(&authority, &broker, ports, password, session_ms);
            match Kafka::start(config) {
                Ok(kafka) => return Ok(Self { kafka, authority, ports, password: password.to_owned() }),
                // A stranger took one of the further ports.
                Err(StartError::NoPort { .. }) if attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// [`SecureKafka::start`] for tests, as [`Kafka::start_or_skip`].
    ///
    /// # Panics
    ///
    /// When Kafka can be had but does not start, and under `CI=true` when it cannot be had.
    pub fn start_or_skip(test: &str, password: &str, session_ms: u32) -> Option<Self> {
        match Self::start(password, session_ms) {
            Ok(kafka) => Some(kafka),
            Err(error) if error.is_unavailable() => {
                crate::skip(test, &error.to_string());
                None
            }
            Err(error) => panic!("{test}: Apache Kafka does not start: {error}"),
        }
    }

    /// The password of [`USER`].
    pub fn password(&self) -> &str {
        &self.password
    }

    /// Who signed the broker's certificate, and may sign others.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The listener without any security.
    pub fn plaintext(&self) -> String {
        self.kafka.bootstrap()
    }

    /// SASL without TLS.
    pub fn sasl_plaintext(&self) -> String {
        address(self.ports[0])
    }

    /// SASL over TLS.
    pub fn sasl_ssl(&self) -> String {
        address(self.ports[1])
    }

    /// TLS with a client certificate, which must be [`SecureKafka::authority`]'s.
    pub fn mutual(&self) -> String {
        address(self.ports[2])
    }

    /// SASL without TLS, where a session lasts for a few seconds (`connections.max.reauth.ms`).
    pub fn renewing(&self) -> String {
        address(self.ports[3])
    }

    /// The broker's log.
    pub fn log(&self) -> &std::path::Path {
        self.kafka.log()
    }
}

fn address(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

fn config(authority: &Authority, broker: &Identity, ports: [u16; 4], password: &str, session_ms: u32) -> KafkaConfig {
    const SASL: [&str; 3] = ["sasl_plaintext", "sasl_ssl", "renewing"];
    let [sasl_plaintext, sasl_ssl, mutual, renewing] = ports;
    let mut config = KafkaConfig::default();
    for (name, protocol, port) in [
        ("SASL_PLAINTEXT", "SASL_PLAINTEXT", sasl_plaintext),
        ("SASL_SSL", "SASL_SSL", sasl_ssl),
        ("MUTUAL", "SSL", mutual),
        ("RENEWING", "SASL_PLAINTEXT", renewing),
    ] {
        config.listeners.push((name.to_owned(), protocol.to_owned(), port));
    }
    let mechanisms = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER";
    config = config
        .with("sasl.enabled.mechanisms", mechanisms)
        .with("ssl.keystore.type", "PEM")
        .with("ssl.keystore.location", broker.both.display())
        .with("ssl.truststore.type", "PEM")
        .with("ssl.truststore.location", authority.certificate().display())
        .with("listener.name.mutual.ssl.client.auth", "required")
        .with("listener.name.renewing.connections.max.reauth.ms", session_ms);
    let module = "org.apache.kafka.common.security";
    for listener in SASL {
        let prefix = format!("listener.name.{listener}");
        let plain = format!("{module}.plain.PlainLoginModule required user_{USER}=\"{password}\";");
        let scram = format!("{module}.scram.ScramLoginModule required;");
        let bearer =
            format!("{module}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=\"broker\";");
        config = config
            .with(format!("{prefix}.plain.sasl.jaas.config"), plain)
            .with(format!("{prefix}.scram-sha-256.sasl.jaas.config"), &scram)
            .with(format!("{prefix}.scram-sha-512.sasl.jaas.config"), &scram)
            .with(format!("{prefix}.oauthbearer.sasl.jaas.config"), bearer);
    }
    for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
        config.format_args.push("--add-scram".to_owned());
        let mut user = String::new();
        // Writing to a String does not fail.
        let _ = write!(user, "{mechanism}=[name={USER},password={password},iterations=4096]");
        config.format_args.push(user);
    }
    config
}

//! The same security for librdkafka: its names, its certificates, its tokens.

use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use parking_lot::Mutex;
use rdkafka::client::OAuthToken;
use rdkafka::config::ClientConfig;
use rustls::pki_types::CertificateDer;
use tokio::runtime::Handle;

use crate::security::{Sasl, Secret, Security, SecurityError, Tokens, Trust};

/// A token that does not tell its end is asked for anew after four fifths of this.
const UNTOLD_LIFE: Duration = Duration::from_secs(300);

/// Longer than any source of tokens takes of itself.
const LONGEST_WAIT: Duration = Duration::from_secs(90);

/// Why librdkafka cannot connect with these settings.
#[derive(Debug)]
pub(crate) enum Unfit {
    /// Nobody can.
    Error(SecurityError),
    /// Our own connections can.
    Refused(String),
}

impl From<SecurityError> for Unfit {
    fn from(error: SecurityError) -> Self {
        Self::Error(error)
    }
}

/// Puts `security` into librdkafka's settings.
pub(crate) fn configure(config: &mut ClientConfig, security: &Security) -> Result<(), Unfit> {
    config.set("security.protocol", security.protocol());
    if let Some(tls) = &security.tls {
        // The same files by the same reader, so that what is wrong with them has one wording.
        tls.brokers().map_err(SecurityError::from)?;
        if tls.server_name.is_some() {
            return Err(Unfit::Refused(
                "ssl.server.name is set, and librdkafka, which publishes and joins groups, knows only the host name that a \
                 broker is reached under; for these, let bootstrap.servers and the brokers' advertised.listeners use the \
                 name in the certificate, or set an empty ssl.endpoint.identification.algorithm"
                    .to_owned(),
            ));
        }
        match &tls.trust {
            Trust::PemFile(path) => config.set("ssl.ca.location", path.display().to_string()),
            // Not left to OpenSSL, which was built here and looks for them where it would have been installed.
            Trust::System => {
                let certificates = tls.trust.certificates("ssl.ca.location").map_err(SecurityError::from)?;
                config.set("ssl.ca.pem", pem(&certificates))
            }
        };
        if let Some(identity) = &tls.identity {
            config.set("ssl.certificate.location", identity.certificate.display().to_string());
            config.set("ssl.key.location", identity.key.display().to_string());
        }
        config.set("ssl.endpoint.identification.algorithm", if tls.check_name { "https" } else { "none" });
    }
    let Some(sasl) = &security.sasl else { return Ok(()) };
    sasl.check().map_err(|what| SecurityError::Sasl { mechanism: sasl.mechanism(), what })?;
    config.set("sasl.mechanism", sasl.mechanism());
    match sasl {
        Sasl::Plain { username, password } | Sasl::Scram { username, password, .. } => {
            config.set("sasl.username", username);
            config.set("sasl.password", password.expose());
        }
        Sasl::OauthBearer { extensions, .. } => {
            if !extensions.is_empty() {
                return Err(Unfit::Refused(
                    "sasl.oauthbearer.extensions are set, and the interface to librdkafka, which publishes and joins groups, \
                     cannot carry them with a token"
                        .to_owned(),
                ));
            }
        }
    }
    Ok(())
}

fn pem(certificates: &[CertificateDer<'_>]) -> String {
    let mut pem = String::new();
    for certificate in certificates {
        pem.push_str("-----BEGIN CERTIFICATE-----\n");
        let text = BASE64.encode(certificate);
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let (line, next) = rest.split_at(rest.len().min(64));
            pem.push_str(line);
            pem.push('\n');
            rest = next;
        }
        pem.push_str("-----END CERTIFICATE-----\n");
    }
    pem
}

/// What librdkafka's callbacks need of the security.
pub(crate) struct Guard {
    tokens: Option<(Tokens, Handle)>,
    /// What must not be in a log line, whatever librdkafka writes there.
    secrets: Mutex<Vec<Secret>>,
}

impl Guard {
    /// `None`: tokens are needed, and there is no runtime to get them on.
    pub(crate) fn new(security: &Security) -> Option<Self> {
        let mut secrets = Vec::new();
        let mut tokens = None;
        match &security.sasl {
            Some(Sasl::Plain { password, .. } | Sasl::Scram { password, .. }) => secrets.push(password.clone()),
            Some(Sasl::OauthBearer { tokens: source, .. }) => {
                tokens = Some((source.clone(), Handle::try_current().ok()?));
            }
            None => {}
        }
        Some(Self { tokens, secrets: Mutex::new(secrets) })
    }

    /// A line of librdkafka's without secrets.
    pub(crate) fn clean(&self, line: &str) -> String {
        self.secrets.lock().iter().fold(line.to_owned(), |line, secret| secret.hide_in(&line))
    }

    /// A token, for librdkafka's own thread. `Err` says why there is none.
    pub(crate) fn token(&self) -> Result<OAuthToken, String> {
        let (tokens, runtime) = self.tokens.as_ref().ok_or("no tokens are configured")?;
        let (send, receive) = mpsc::channel();
        let tokens = tokens.clone();
        // Not `block_on`, which panics on a runtime that has ended; then the sender is dropped.
        runtime.spawn(async move { send.send(tokens.token().await) });
        let token = match receive.recv_timeout(LONGEST_WAIT) {
            Ok(Ok(token)) => token,
            Ok(Err(error)) => return Err(error.to_string()),
            Err(mpsc::RecvTimeoutError::Timeout) => return Err(format!("no token came within {LONGEST_WAIT:?}")),
            Err(mpsc::RecvTimeoutError::Disconnected) => return Err("the runtime has ended".to_owned()),
        };
        {
            let mut secrets = self.secrets.lock();
            secrets.clear();
            secrets.push(token.value().clone());
        }
        let end = token.expires_at().unwrap_or_else(|| SystemTime::now() + UNTOLD_LIFE);
        let since_1970 = end.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Ok(OAuthToken {
            token: token.value().expose().to_owned(),
            // librdkafka wants one; the broker takes its own from the token.
            principal_name: token.subject().unwrap_or("tidegate").to_owned(),
            lifetime_ms: i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::security::{Extensions, FileTokens, ScramHash, TlsSettings};

    fn configured(security: &Security) -> Result<ClientConfig, Unfit> {
        let mut config = ClientConfig::new();
        configure(&mut config, security)?;
        Ok(config)
    }

    fn scram() -> Sasl {
        Sasl::Scram { hash: ScramHash::Sha512, username: "alice".to_owned(), password: Secret::new("hunter22") }
    }

    #[test]
    fn the_same_settings_go_by_librdkafkas_names() {
        let security = Security { tls: None, sasl: Some(scram()) };
        let config = configured(&security).unwrap();
        for (name, value) in [
            ("security.protocol", "SASL_PLAINTEXT"),
            ("sasl.mechanism", "SCRAM-SHA-512"),
            ("sasl.username", "alice"),
            ("sasl.password", "hunter22"),
        ] {
            assert_eq!(config.get(name), Some(value));
        }
        // And librdkafka was built with them.
        config.create_native_config().unwrap();
        assert!(!format!("{security:?}").contains("hunter22"));
    }

    #[test]
    fn librdkafka_was_built_with_tls_and_every_mechanism() {
        for sasl in [
            scram(),
            Sasl::Plain { username: "a".to_owned(), password: Secret::new("b") },
            Sasl::OauthBearer { tokens: Tokens::new(FileTokens::new("none")), extensions: Extensions::default() },
        ] {
            let mut config = configured(&Security { tls: None, sasl: Some(sasl) }).unwrap();
            config.set("security.protocol", "SASL_SSL");
            let producer: Result<rdkafka::producer::BaseProducer, _> = config.create();
            assert!(producer.is_ok(), "{:?}", producer.err());
        }
    }

    #[test]
    fn what_librdkafka_cannot_do_is_refused_with_a_reason() {
        let extensions = Extensions::new([("logicalCluster".to_owned(), "lkc-1".to_owned())]).unwrap();
        let tokens = Tokens::new(FileTokens::new("none"));
        let security = Security { tls: None, sasl: Some(Sasl::OauthBearer { tokens, extensions }) };
        let Err(Unfit::Refused(reason)) = configured(&security) else { panic!("taken") };
        assert!(reason.contains("sasl.oauthbearer.extensions"), "{reason}");
        let tls = TlsSettings { server_name: Some("kafka.internal".to_owned()), ..TlsSettings::default() };
        match configured(&Security { tls: Some(tls), sasl: None }) {
            Err(Unfit::Refused(reason)) => assert!(reason.contains("ssl.server.name"), "{reason}"),
            // A machine without CA certificates is told that first.
            Err(Unfit::Error(error)) => assert!(error.to_string().contains("CA certificates"), "{error}"),
            Ok(_) => panic!("taken"),
        }
    }

    #[test]
    fn certificates_become_pem_again() {
        let certificate = CertificateDer::from(vec![7; 100]);
        let text = pem(&[certificate.clone(), certificate.clone()]);
        let read = crate::security::tls::certificates(text.as_bytes()).unwrap();
        assert_eq!(read, [certificate.clone(), certificate]);
    }

    #[test]
    fn log_lines_are_cleaned_of_the_password() {
        let guard = Guard::new(&Security { tls: None, sasl: Some(scram()) }).unwrap();
        assert_eq!(guard.clean("password=hunter22, retrying"), "password=***, retrying");
    }
}

//! TLS and SASL of a `kafka:` section. Names are Java's where Java says the same with one setting, librdkafka's where it does
//! not; what neither this client nor librdkafka can do is refused by name.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde::de::{self, Deserializer};
use tidegate_client::{
    CommandTokens, ConnectionString, Extensions, FileTokens, OidcSettings, OidcTokens, Sasl, ScramHash, Security,
    TlsIdentity, TlsSettings, Tokens, Trust,
};

use super::KafkaSection;

/// Kafka's `security.protocol`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Plaintext,
    Ssl,
    SaslPlaintext,
    SaslSsl,
}

impl Protocol {
    const ALL: [(&'static str, Self); 4] = [
        ("PLAINTEXT", Self::Plaintext),
        ("SSL", Self::Ssl),
        ("SASL_PLAINTEXT", Self::SaslPlaintext),
        ("SASL_SSL", Self::SaslSsl),
    ];

    fn tls(self) -> bool {
        matches!(self, Self::Ssl | Self::SaslSsl)
    }

    fn sasl(self) -> bool {
        matches!(self, Self::SaslPlaintext | Self::SaslSsl)
    }
}

impl<'de> Deserialize<'de> for Protocol {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        // librdkafka writes them small.
        let found = Self::ALL.iter().find(|(name, _)| name.eq_ignore_ascii_case(&text));
        found.map(|(_, protocol)| *protocol).ok_or_else(|| {
            de::Error::custom(format_args!("{text:?} is none of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"))
        })
    }
}

/// Kafka's `sasl.mechanism`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mechanism {
    Plain,
    Scram(ScramHash),
    OauthBearer,
}

impl<'de> Deserialize<'de> for Mechanism {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(match text.to_ascii_uppercase().as_str() {
            "PLAIN" => Self::Plain,
            "SCRAM-SHA-256" => Self::Scram(ScramHash::Sha256),
            "SCRAM-SHA-512" => Self::Scram(ScramHash::Sha512),
            "OAUTHBEARER" => Self::OauthBearer,
            "GSSAPI" => {
                return Err(de::Error::custom(
                    "GSSAPI (Kerberos) is not supported; brokers can offer SCRAM-SHA-512, OAUTHBEARER or client \
                     certificates beside it",
                ));
            }
            "AWS_MSK_IAM" => {
                return Err(de::Error::custom(
                    "AWS_MSK_IAM is Java's alone; MSK takes OAUTHBEARER on the same port, with a token from AWS's signer \
                     (sasl.oauthbearer.token.command)",
                ));
            }
            _ => {
                return Err(de::Error::custom(format_args!(
                    "{text:?} is none of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER"
                )));
            }
        })
    }
}

/// Kafka's `ssl.endpoint.identification.algorithm`: whether names are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CheckName(bool);

impl<'de> Deserialize<'de> for CheckName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
        match text.to_ascii_lowercase().as_str() {
            "https" => Ok(Self(true)),
            // Java's way to say it, and librdkafka's.
            "" | "none" => Ok(Self(false)),
            _ => Err(de::Error::custom(format_args!("{text:?} is neither https nor empty"))),
        }
    }
}

/// `name=value,name=value`, as librdkafka writes it, or a map.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "name=value,name=value or a map from names to values")]
pub(super) enum ExtensionPairs {
    Text(String),
    Map(std::collections::BTreeMap<String, String>),
}

impl ExtensionPairs {
    fn read(&self) -> Result<Extensions, String> {
        let pairs: Vec<(String, String)> = match self {
            Self::Map(map) => map.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
            Self::Text(text) => text
                .split(',')
                .map(str::trim)
                .filter(|part| !part.is_empty())
                .map(|part| match part.split_once('=') {
                    Some((name, value)) => Ok((name.trim().to_owned(), value.trim().to_owned())),
                    None => Err("sasl.oauthbearer.extensions: write name=value,name=value".to_owned()),
                })
                .collect::<Result<_, _>>()?,
        };
        Extensions::new(pairs).map_err(|what| format!("sasl.oauthbearer.extensions: {what}"))
    }
}

/// What to write in place of a setting of Java's or librdkafka's that is not here.
pub(in crate::config) fn instead_of(key: &str) -> Option<&'static str> {
    const CALLBACKS: &str = "tokens come from sasl.oauthbearer.token.endpoint.url, sasl.oauthbearer.token.file or \
                             sasl.oauthbearer.token.command";
    const KERBEROS: &str = "Kerberos (GSSAPI) is not supported; brokers can offer SCRAM-SHA-512, OAUTHBEARER or client \
                            certificates beside it";
    Some(match key {
        "sasl.jaas.config" => {
            "write what stands in it as settings of their own: sasl.username and sasl.password: {env: NAME}, or the \
             sasl.oauthbearer.* keys"
        }
        "sasl.mechanisms" => "the key is sasl.mechanism",
        "ssl.truststore.location" | "ssl.truststore.certificates" | "ssl.truststore.type" | "ssl.ca" | "ssl.ca.pem" => {
            "write ssl.ca.location: a PEM file with the CA's certificate; a Java keystore gives it with `keytool \
             -exportcert -rfc -alias ALIAS -keystore FILE`"
        }
        "ssl.truststore.password" => {
            "the certificates in the PEM file of ssl.ca.location are no secret and need no password"
        }
        "ssl.keystore.location"
        | "ssl.keystore.type"
        | "ssl.keystore.key"
        | "ssl.keystore.certificate.chain"
        | "ssl.key.pem"
        | "ssl.certificate.pem" => {
            "write ssl.certificate.location and ssl.key.location: PEM files; a keystore in PKCS#12 form gives both with \
             `openssl pkcs12 -in FILE -nodes`"
        }
        "ssl.key.password" | "ssl.keystore.password" => {
            "encrypted keys are not read; write the key without a password (`openssl pkey -in FILE -out PLAIN`) into a \
             file that only this user can read, and name that in ssl.key.location"
        }
        "ssl.protocol"
        | "ssl.enabled.protocols"
        | "ssl.cipher.suites"
        | "ssl.curves.list"
        | "ssl.sigalgs.list"
        | "ssl.provider"
        | "ssl.engines" => "TLS 1.2 and 1.3 with rustls's cipher suites are spoken; there is nothing to set",
        "enable.ssl.certificate.verification" => {
            "certificates are always checked; name the CA in ssl.ca.location, and set an empty \
             ssl.endpoint.identification.algorithm if the broker's name is not in its certificate"
        }
        "sasl.oauthbearer.method"
        | "sasl.login.callback.handler.class"
        | "sasl.client.callback.handler.class"
        | "sasl.login.class"
        | "sasl.oauthbearer.config"
        | "enable.sasl.oauthbearer.unsecure.jwt" => CALLBACKS,
        "sasl.oauthbearer.client.credentials.client.id" => "the key is sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.credentials.client.secret" => "the key is sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.sub.claim.name" | "sasl.oauthbearer.scope.claim.name" => {
            "the token goes to the broker as it is; there is nothing to set"
        }
        key if key.starts_with("sasl.kerberos.") || key.starts_with("sasl.gssapi.") => KERBEROS,
        _ => return None,
    })
}

impl KafkaSection {
    /// Makes paths count from `base`.
    pub(in crate::config) fn resolve(&mut self, base: &Path) {
        let files = [
            &mut self.ssl_ca_location,
            &mut self.ssl_certificate_location,
            &mut self.ssl_key_location,
            &mut self.token_file,
            &mut self.https_ca_location,
        ];
        files.into_iter().flatten().for_each(|path| *path = base.join(&*path));
        let secrets = [&mut self.sasl_password, &mut self.client_secret, &mut self.connection_string];
        secrets.into_iter().flatten().for_each(|secret| secret.resolve(base));
        self.sasl_username.iter_mut().for_each(|text| text.resolve(base));
        self.client_id_of_tokens.iter_mut().for_each(|text| text.resolve(base));
    }

    /// The connection string, if one is given.
    pub(crate) fn read_connection_string(&self) -> Result<Option<ConnectionString>, String> {
        let Some(source) = &self.connection_string else { return Ok(None) };
        let text = source.read("connection.string")?;
        ConnectionString::parse(text.expose()).map(Some).map_err(|error| format!("connection.string: {error}"))
    }

    /// What the settings say without looking into files or the environment.
    pub(in crate::config) fn check(&self) -> Result<(), String> {
        if self.bootstrap_servers.is_empty() && self.connection_string.is_none() {
            return Err("bootstrap.servers is missing (or connection.string, for Event Hubs)".to_owned());
        }
        let given = self.given();
        if self.connection_string.is_some() {
            let sasl = given.iter().find(|(key, _)| key.starts_with("sasl."));
            if let Some((key, _)) = sasl {
                return Err(format!("connection.string says how to authenticate, so {key} cannot be set beside it"));
            }
            return match self.security_protocol {
                None | Some(Protocol::SaslSsl) => Ok(()),
                Some(_) => {
                    Err("connection.string means security.protocol SASL_SSL; leave security.protocol out".to_owned())
                }
            };
        }
        let protocol = self.security_protocol.unwrap_or(Protocol::Plaintext);
        let now = if self.security_protocol.is_some() { "is" } else { "is left out, which means" };
        let name = Protocol::ALL.iter().find(|(_, known)| *known == protocol).map_or("", |(name, _)| name);
        if let Some((key, _)) = given.iter().find(|(_, layer)| *layer == Layer::Tls && !protocol.tls()) {
            let instead = if protocol.sasl() { "SASL_SSL" } else { "SSL" };
            return Err(format!(
                "{key} is set, but security.protocol {now} {name}; write security.protocol: {instead}"
            ));
        }
        if let Some((key, _)) = given.iter().find(|(_, layer)| *layer != Layer::Tls && !protocol.sasl()) {
            let instead = if protocol.tls() { "SASL_SSL" } else { "SASL_SSL (or SASL_PLAINTEXT, without TLS)" };
            return Err(format!(
                "{key} is set, but security.protocol {now} {name}; write security.protocol: {instead}"
            ));
        }
        if self.ssl_certificate_location.is_some() != self.ssl_key_location.is_some() {
            return Err("ssl.certificate.location and ssl.key.location go together".to_owned());
        }
        if !protocol.sasl() {
            return Ok(());
        }
        let Some(mechanism) = self.sasl_mechanism else {
            return Err(format!(
                "security.protocol is {name}, so sasl.mechanism must be one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, \
                 OAUTHBEARER (Kafka's default, GSSAPI, is not supported)"
            ));
        };
        let other = match mechanism {
            Mechanism::OauthBearer => Layer::Password,
            Mechanism::Plain | Mechanism::Scram(_) => Layer::Bearer,
        };
        if let Some((key, _)) = given.iter().find(|(_, layer)| *layer == other) {
            let name = self.mechanism_name();
            return Err(format!("{key} does not go with sasl.mechanism {name}"));
        }
        match mechanism {
            Mechanism::OauthBearer => self.check_tokens(),
            Mechanism::Plain | Mechanism::Scram(_) if self.sasl_username.is_none() || self.sasl_password.is_none() => {
                let name = self.mechanism_name();
                Err(format!("sasl.mechanism {name} needs sasl.username and sasl.password: {{env: NAME}}"))
            }
            Mechanism::Plain | Mechanism::Scram(_) => Ok(()),
        }
    }

    fn mechanism_name(&self) -> &'static str {
        match self.sasl_mechanism {
            Some(Mechanism::Plain) => "PLAIN",
            Some(Mechanism::Scram(hash)) => hash.mechanism(),
            Some(Mechanism::OauthBearer) => "OAUTHBEARER",
            None => "",
        }
    }

    fn check_tokens(&self) -> Result<(), String> {
        let endpoint = self.token_endpoint.is_some();
        let sources =
            usize::from(endpoint) + usize::from(self.token_file.is_some()) + usize::from(self.token_command.is_some());
        if sources != 1 {
            return Err("sasl.mechanism OAUTHBEARER needs exactly one of sasl.oauthbearer.token.endpoint.url, \
                        sasl.oauthbearer.token.file and sasl.oauthbearer.token.command"
                .to_owned());
        }
        if self.token_command.as_ref().is_some_and(Vec::is_empty) {
            return Err("sasl.oauthbearer.token.command is empty; write [program, argument, ...]".to_owned());
        }
        if endpoint && (self.client_id_of_tokens.is_none() || self.client_secret.is_none()) {
            return Err("sasl.oauthbearer.token.endpoint.url needs sasl.oauthbearer.client.id and \
                        sasl.oauthbearer.client.secret: {env: NAME}"
                .to_owned());
        }
        let of_endpoint = [
            ("sasl.oauthbearer.client.id", self.client_id_of_tokens.is_some()),
            ("sasl.oauthbearer.client.secret", self.client_secret.is_some()),
            ("sasl.oauthbearer.scope", self.scope.is_some()),
            ("sasl.oauthbearer.header.urlencode", self.header_urlencode.is_some()),
            ("https.ca.location", self.https_ca_location.is_some()),
        ];
        match of_endpoint.iter().find(|(_, given)| *given && !endpoint) {
            Some((key, _)) => Err(format!("{key} goes with sasl.oauthbearer.token.endpoint.url")),
            None => Ok(()),
        }
    }

    /// The settings of security that are given, with what each belongs to.
    fn given(&self) -> Vec<(&'static str, Layer)> {
        use Layer::{Bearer, Password, Sasl as AnySasl, Tls};
        let all = [
            ("ssl.ca.location", Tls, self.ssl_ca_location.is_some()),
            ("ssl.certificate.location", Tls, self.ssl_certificate_location.is_some()),
            ("ssl.key.location", Tls, self.ssl_key_location.is_some()),
            ("ssl.endpoint.identification.algorithm", Tls, self.ssl_check_name.is_some()),
            ("ssl.server.name", Tls, self.ssl_server_name.is_some()),
            ("sasl.mechanism", AnySasl, self.sasl_mechanism.is_some()),
            ("sasl.username", Password, self.sasl_username.is_some()),
            ("sasl.password", Password, self.sasl_password.is_some()),
            ("sasl.oauthbearer.token.endpoint.url", Bearer, self.token_endpoint.is_some()),
            ("sasl.oauthbearer.token.file", Bearer, self.token_file.is_some()),
            ("sasl.oauthbearer.token.command", Bearer, self.token_command.is_some()),
            ("sasl.oauthbearer.client.id", Bearer, self.client_id_of_tokens.is_some()),
            ("sasl.oauthbearer.client.secret", Bearer, self.client_secret.is_some()),
            ("sasl.oauthbearer.scope", Bearer, self.scope.is_some()),
            ("sasl.oauthbearer.header.urlencode", Bearer, self.header_urlencode.is_some()),
            ("sasl.oauthbearer.extensions", Bearer, self.extensions.is_some()),
            ("https.ca.location", Bearer, self.https_ca_location.is_some()),
        ];
        all.into_iter().filter(|(_, _, given)| *given).map(|(key, layer, _)| (key, layer)).collect()
    }

    /// The settings as values, with the secrets read.
    pub(super) fn security(&self) -> Result<Security, String> {
        self.check()?;
        if let Some(connection) = self.read_connection_string()? {
            let mut security = connection.security();
            if let Some(tls) = &mut security.tls {
                *tls = self.tls();
            }
            return Ok(security);
        }
        let protocol = self.security_protocol.unwrap_or(Protocol::Plaintext);
        let tls = protocol.tls().then(|| self.tls());
        let sasl = match self.sasl_mechanism.filter(|_| protocol.sasl()) {
            Some(mechanism) => Some(self.sasl(mechanism)?),
            None => None,
        };
        Ok(Security { tls, sasl })
    }

    fn tls(&self) -> TlsSettings {
        let identity = self.ssl_certificate_location.clone().zip(self.ssl_key_location.clone());
        TlsSettings {
            trust: trust(self.ssl_ca_location.as_ref()),
            identity: identity.map(|(certificate, key)| TlsIdentity { certificate, key }),
            server_name: self.ssl_server_name.clone(),
            check_name: self.ssl_check_name.is_none_or(|CheckName(check)| check),
        }
    }

    fn sasl(&self, mechanism: Mechanism) -> Result<Sasl, String> {
        // `check` has found them.
        let missing = |key: &str| format!("{key} is missing");
        let password = || self.sasl_password.as_ref().ok_or_else(|| missing("sasl.password"))?.read("sasl.password");
        let username = || self.sasl_username.as_ref().ok_or_else(|| missing("sasl.username"))?.read("sasl.username");
        Ok(match mechanism {
            Mechanism::Plain => Sasl::Plain { username: username()?, password: password()? },
            Mechanism::Scram(hash) => Sasl::Scram { hash, username: username()?, password: password()? },
            Mechanism::OauthBearer => {
                let extensions = self.extensions.as_ref().map(ExtensionPairs::read).transpose()?.unwrap_or_default();
                Sasl::OauthBearer { tokens: self.tokens()?, extensions }
            }
        })
    }

    fn tokens(&self) -> Result<Tokens, String> {
        if let Some(path) = &self.token_file {
            return Ok(Tokens::new(FileTokens::new(path)));
        }
        if let Some(argv) = &self.token_command {
            return Ok(Tokens::new(CommandTokens::new(argv.clone())));
        }
        let (Some(url), Some(id), Some(secret)) =
            (&self.token_endpoint, &self.client_id_of_tokens, &self.client_secret)
        else {
            return Err("sasl.oauthbearer.token.endpoint.url is missing".to_owned());
        };
        let settings = OidcSettings {
            url: url.clone(),
            client_id: id.read("sasl.oauthbearer.client.id")?,
            client_secret: secret.read("sasl.oauthbearer.client.secret")?,
            scope: self.scope.clone(),
            header_urlencode: self.header_urlencode.unwrap_or(false),
            trust: trust(self.https_ca_location.as_ref()),
            timeout: Duration::from_secs(30),
        };
        let tokens =
            OidcTokens::new(&settings).map_err(|error| format!("sasl.oauthbearer.token.endpoint.url: {error}"))?;
        Ok(Tokens::new(tokens))
    }
}

/// What a setting belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layer {
    Tls,
    Sasl,
    /// Of PLAIN and SCRAM.
    Password,
    /// Of OAUTHBEARER.
    Bearer,
}

fn trust(file: Option<&PathBuf>) -> Trust {
    file.map_or(Trust::System, |path| Trust::PemFile(path.clone()))
}

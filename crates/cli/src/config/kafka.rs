//! `kafka:`, how to reach a cluster. Kafka's own names, so that what stands in a `client.properties` can be copied.

mod security;

use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use tidegate_client::{ClusterConfig, ProducerSettings};
use tidegate_model::Compression;

use self::security::{CheckName, ExtensionPairs, Mechanism, Protocol};
use super::secret::{SecretSource, TextSource};
use super::{Config, ConfigError};
use crate::exit::Failure;
use crate::units::Size;

pub(super) use self::security::instead_of;

/// The settings that a file may give; what it leaves out stays at its default.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KafkaSection {
    /// The brokers to ask first.
    #[serde(rename = "bootstrap.servers", default, deserialize_with = "servers")]
    pub(crate) bootstrap_servers: Vec<String>,
    /// An Event Hubs connection string, in place of brokers, protocol and credentials.
    #[serde(rename = "connection.string", default)]
    connection_string: Option<SecretSource>,
    /// How connections are secured.
    #[serde(rename = "security.protocol", default)]
    security_protocol: Option<Protocol>,
    /// A PEM file with the CAs that sign brokers' certificates.
    #[serde(rename = "ssl.ca.location", default)]
    ssl_ca_location: Option<PathBuf>,
    /// A PEM file with the client's certificate.
    #[serde(rename = "ssl.certificate.location", default)]
    ssl_certificate_location: Option<PathBuf>,
    /// A PEM file with its key.
    #[serde(rename = "ssl.key.location", default)]
    ssl_key_location: Option<PathBuf>,
    /// Whether brokers' certificates must be made out to their names.
    #[serde(rename = "ssl.endpoint.identification.algorithm", default, deserialize_with = "given")]
    ssl_check_name: Option<CheckName>,
    /// The name that they must have in place of the host name; reading only.
    #[serde(rename = "ssl.server.name", default)]
    ssl_server_name: Option<String>,
    /// How we authenticate.
    #[serde(rename = "sasl.mechanism", default)]
    sasl_mechanism: Option<Mechanism>,
    /// Of PLAIN and SCRAM.
    #[serde(rename = "sasl.username", default)]
    sasl_username: Option<TextSource>,
    /// Of PLAIN and SCRAM.
    #[serde(rename = "sasl.password", default)]
    sasl_password: Option<SecretSource>,
    /// Of OAUTHBEARER: an OIDC token endpoint.
    #[serde(rename = "sasl.oauthbearer.token.endpoint.url", default)]
    token_endpoint: Option<String>,
    /// Of OAUTHBEARER: a file that somebody keeps fresh.
    #[serde(rename = "sasl.oauthbearer.token.file", default)]
    token_file: Option<PathBuf>,
    /// Of OAUTHBEARER: a program with its arguments.
    #[serde(rename = "sasl.oauthbearer.token.command", default)]
    token_command: Option<Vec<String>>,
    /// Of the endpoint.
    #[serde(rename = "sasl.oauthbearer.client.id", default)]
    client_id_of_tokens: Option<TextSource>,
    /// Of the endpoint.
    #[serde(rename = "sasl.oauthbearer.client.secret", default)]
    client_secret: Option<SecretSource>,
    /// Of the endpoint.
    #[serde(rename = "sasl.oauthbearer.scope", default)]
    scope: Option<String>,
    /// Of the endpoint: RFC 6749's encoding of id and secret.
    #[serde(rename = "sasl.oauthbearer.header.urlencode", default)]
    header_urlencode: Option<bool>,
    /// Of OAUTHBEARER: SASL extensions; reading only.
    #[serde(rename = "sasl.oauthbearer.extensions", default)]
    extensions: Option<ExtensionPairs>,
    /// Of the endpoint: a PEM file with the CAs that sign its certificate.
    #[serde(rename = "https.ca.location", default)]
    https_ca_location: Option<PathBuf>,
    /// What the brokers log this client under.
    #[serde(rename = "client.id", default)]
    client_id: Option<String>,
    /// The longest wait for the answer to one request.
    #[serde(rename = "request.timeout.ms", default)]
    request_timeout_ms: Option<u32>,
    /// The longest wait for a TCP connection.
    #[serde(rename = "socket.connection.setup.timeout.ms", default)]
    connect_timeout_ms: Option<u32>,
    /// A connection that was idle for longer is replaced before it is used again.
    #[serde(rename = "connections.max.idle.ms", default)]
    max_idle_ms: Option<u32>,
    /// The kernel's buffer for what a connection receives, in bytes.
    #[serde(rename = "receive.buffer.bytes", default)]
    receive_buffer_bytes: Option<u32>,
    /// Where this client is: a replica in the same rack is fetched from.
    #[serde(rename = "client.rack", default)]
    client_rack: Option<String>,
    /// The most connections to one broker for fetching.
    #[serde(rename = "connections.per.broker", default)]
    connections_per_broker: Option<NonZeroUsize>,
    /// Fetches on their way to one broker at once.
    #[serde(rename = "fetches.in.flight", default)]
    fetches_in_flight: Option<NonZeroUsize>,
    /// The most bytes per second that are fetched.
    #[serde(rename = "max.rate", default)]
    max_rate: Option<Size>,
    /// How published batches are compressed.
    #[serde(rename = "compression.type", default)]
    compression: Option<String>,
    /// How long a published batch may wait for more records.
    #[serde(rename = "linger.ms", default)]
    linger_ms: Option<u32>,
    /// The size of a published batch before compression, in bytes.
    #[serde(rename = "batch.size", default)]
    batch_bytes: Option<u32>,
    /// The bytes of records that may wait for their acknowledgement.
    #[serde(rename = "buffer.memory", default)]
    queue_bytes: Option<u32>,
    /// How long a record may wait for its acknowledgement.
    #[serde(rename = "delivery.timeout.ms", default)]
    delivery_timeout_ms: Option<u32>,
    /// The largest record to publish, in bytes.
    #[serde(rename = "max.request.size", default)]
    max_request_bytes: Option<u32>,
}

impl KafkaSection {
    /// Reads a file for the command line: the keys of a `kafka:` section, or a whole configuration with such a section.
    /// Relative paths in it count from its directory.
    pub(crate) fn load(path: &Path) -> Result<Self, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        let whole = serde_yaml_ng::from_str::<serde_yaml_ng::Value>(&text)
            .map_err(|error| ConfigError::from_yaml(path, &error))?
            .get("kafka")
            .is_some();
        let invalid = |message: String| ConfigError::Invalid { path: path.to_owned(), message };
        if whole {
            return Config::parse(&text, path)?.kafka.ok_or_else(|| invalid("kafka: is empty".to_owned()));
        }
        let mut section: Self = serde_yaml_ng::from_str(&text).map_err(|error| ConfigError::from_yaml(path, &error))?;
        section.resolve(path.parent().unwrap_or(Path::new("")));
        section.check().map_err(invalid)?;
        Ok(section)
    }

    /// The client's configuration with these in place. Secrets are read from where they stand.
    pub(crate) fn cluster(&self) -> Result<ClusterConfig, Failure> {
        let ms = |ms: u32| Duration::from_millis(u64::from(ms));
        let mut bootstrap = self.bootstrap_servers.clone();
        if bootstrap.is_empty() {
            let connection = self.read_connection_string().map_err(Failure::usage)?;
            bootstrap.extend(connection.map(|connection| connection.bootstrap()));
        }
        let mut cluster = ClusterConfig::new(bootstrap);
        cluster.security = self.security().map_err(Failure::usage)?;
        if let Some(client_id) = &self.client_id {
            cluster.client_id.clone_from(client_id);
        }
        if let Some(timeout) = self.request_timeout_ms {
            cluster.request_timeout = ms(timeout);
        }
        if let Some(timeout) = self.connect_timeout_ms {
            cluster.connect_timeout = ms(timeout);
        }
        if let Some(idle) = self.max_idle_ms {
            cluster.connection_max_idle = ms(idle);
        }
        // Java's -1 for "as the kernel likes" is what leaving it out means here.
        cluster.receive_buffer_bytes =
            self.receive_buffer_bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        cluster.fetching.client_rack.clone_from(&self.client_rack);
        if let Some(most) = self.connections_per_broker {
            cluster.fetching.connections_per_broker = most.get();
        }
        cluster.fetching.fetches_in_flight = self.fetches_in_flight.map(NonZeroUsize::get);
        cluster.fetching.max_rate = self.max_rate.map(|Size(bytes)| bytes);
        Ok(cluster)
    }

    /// Puts these into the producer's settings.
    pub(crate) fn producer(&self, settings: &mut ProducerSettings) -> Result<(), Failure> {
        let ms = |ms: u32| Duration::from_millis(u64::from(ms));
        let bytes = |bytes: u32| usize::try_from(bytes).unwrap_or(usize::MAX);
        if let Some(name) = &self.compression {
            settings.compression = COMPRESSIONS.into_iter().find(|codec| codec.name() == name).ok_or_else(|| {
                let names = COMPRESSIONS.map(Compression::name).join(", ");
                Failure::usage(format_args!("kafka.compression.type is {name:?}; it must be one of {names}"))
            })?;
        }
        if let Some(linger) = self.linger_ms {
            settings.linger = ms(linger);
        }
        if let Some(batch) = self.batch_bytes {
            settings.batch_bytes = bytes(batch);
        }
        if let Some(queue) = self.queue_bytes {
            settings.queue_bytes = bytes(queue);
        }
        if let Some(timeout) = self.delivery_timeout_ms {
            settings.delivery_timeout = ms(timeout);
        }
        if let Some(record) = self.max_request_bytes {
            settings.message_max_bytes = bytes(record);
        }
        Ok(())
    }
}

const COMPRESSIONS: [Compression; 5] =
    [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

/// A key that is there with nothing behind it counts as given, with an empty text.
fn given<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

/// `a:9092,b:9092`, as Kafka writes it, or a list.
fn servers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    struct Servers;

    impl<'de> Visitor<'de> for Servers {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("brokers as host:port,host:port or as a list")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<String>, E> {
            split_servers(text).map_err(E::custom)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<String>, A::Error> {
            let mut servers = Vec::new();
            while let Some(text) = seq.next_element::<String>()? {
                servers.extend(split_servers(&text).map_err(de::Error::custom)?);
            }
            if servers.is_empty() { Err(de::Error::custom("no broker is given")) } else { Ok(servers) }
        }
    }

    deserializer.deserialize_any(Servers)
}

/// Splits `host:port,host:port`.
pub(crate) fn split_servers(text: &str) -> Result<Vec<String>, String> {
    let servers: Vec<String> =
        text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect();
    if servers.is_empty() {
        return Err("no broker is given; write host:port,host:port".to_owned());
    }
    for server in &servers {
        let port = server.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port);
        if !port.is_some_and(|port| port.parse::<u16>().is_ok_and(|port| port != 0)) {
            return Err(format!("{server:?} is not a broker's host:port, such as localhost:9092"));
        }
    }
    Ok(servers)
}

//! Whom a command talks to: a Tidegate server (`--server`), or Kafka brokers with the engine in this process (`--brokers`).

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tidegate_api::v1::tidegate_client::TidegateClient;
use tidegate_api::{ApiError, Code};
use tidegate_client::{Cluster, ClusterConfig, ConnectError, Producer, ProducerSettings, RegistryConfig, RequestError};
use tidegate_model::TopicName;
use tidegate_server::engine::{
    Engine, EngineLimits, Payloads, RegistryPayload, SchemaLimits, TopicPayload, WriteSchema,
};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use crate::config::{DEFAULT_LISTEN, KafkaSection, payload_from_proto, registry, split_servers};
use crate::exit::{Exit, Failure, chain};

/// HTTP/2's window of a stream and of a connection. The default lets a distant server send only 64 KiB a round trip.
const WINDOW_BYTES: u32 = 32 << 20;

/// The longest wait for a TCP connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Whom to talk to.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct TargetArgs {
    /// The Tidegate server to ask [default: http://127.0.0.1:8642]
    #[arg(long, value_name = "URL", conflicts_with = "direct", help_heading = "Source")]
    server: Option<ServerUrl>,

    /// Ask these Kafka brokers directly, without a server in between
    #[arg(long, value_name = "HOST:PORT,...", group = "direct", help_heading = "Source")]
    brokers: Option<Brokers>,

    /// Ask Kafka brokers directly, reached as this YAML file says: the keys of the configuration's kafka section, with TLS and
    /// SASL; of a whole configuration of `serve` that section alone is taken
    #[arg(long, value_name = "FILE", group = "direct", help_heading = "Source")]
    kafka_config: Option<PathBuf>,

    /// Which of the server's clusters, by the name that its configuration gives it [default: the default one]
    #[arg(long, value_name = "NAME", conflicts_with = "direct", help_heading = "Source")]
    cluster: Option<String>,
}

/// What [`TargetArgs`] say.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    Server(ServerUrl),
    Brokers(Brokers),
}

impl TargetArgs {
    /// The one that was asked for; the local server when none was.
    pub(crate) fn target(&self) -> Result<Target, Failure> {
        if let Some(path) = &self.kafka_config {
            return Ok(Target::Brokers(Brokers::Configured(Box::new(KafkaSection::load(path)?))));
        }
        Ok(match (&self.brokers, &self.server) {
            (Some(brokers), _) => Target::Brokers(brokers.clone()),
            (None, Some(server)) => Target::Server(server.clone()),
            (None, None) => Target::Server(ServerUrl(format!("http://{DEFAULT_LISTEN}"))),
        })
    }

    /// Whether brokers are asked directly.
    pub(crate) fn is_direct(&self) -> bool {
        self.brokers.is_some() || self.kafka_config.is_some()
    }

    /// The cluster in requests to a server; empty: its default one.
    pub(crate) fn cluster(&self) -> &str {
        self.cluster.as_deref().unwrap_or_default()
    }
}

/// The schema of a topic's values, given on the command line.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct SchemaArgs {
    /// The .proto file, or compiled descriptor set, that defines the message of the topic's values
    #[arg(long, value_name = "FILE", requires = "message", help_heading = "Schema")]
    pub(crate) proto: Option<PathBuf>,

    /// The message's full name, such as tidegate.examples.flights.v1.Flight
    #[arg(long, value_name = "NAME", requires = "proto", help_heading = "Schema")]
    pub(crate) message: Option<String>,

    /// A directory in which imports are looked for; the .proto file's own always is one [may be repeated]
    #[arg(long = "include", value_name = "DIR", requires = "proto", help_heading = "Schema")]
    pub(crate) includes: Vec<PathBuf>,

    /// The schema registry that has the schemas of the topic's values: Protobuf, Avro or JSON
    #[arg(long, value_name = "URL", conflicts_with = "proto", requires = "direct", help_heading = "Schema")]
    pub(crate) schema_registry: Option<String>,
}

impl SchemaArgs {
    /// The payload of `topic`, when a schema was given.
    pub(crate) fn payloads(&self, topic: &str) -> Result<Payloads, Failure> {
        let mut payloads = Payloads::default();
        if let (Some(proto), Some(message)) = (&self.proto, &self.message) {
            let topic = TopicName::new(topic).map_err(Failure::usage)?;
            payloads.insert(topic, payload_from_proto(proto, &self.includes, message)?);
        } else if let Some(url) = &self.schema_registry {
            let topic = TopicName::new(topic).map_err(Failure::usage)?;
            let registry = registry(&RegistryConfig::new(url.split(',').map(str::trim)), SchemaLimits::default())?;
            let payload = RegistryPayload::new(registry, WriteSchema::default());
            payloads.insert(topic, TopicPayload::Registry(Box::new(payload)));
        }
        Ok(payloads)
    }
}

/// Brokers that are asked directly.
#[derive(Debug, Clone)]
pub(crate) enum Brokers {
    /// `host:port,host:port`, without TLS and SASL.
    Plain(Vec<String>),
    /// As a file says.
    Configured(Box<KafkaSection>),
}

impl FromStr for Brokers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        split_servers(text).map(Self::Plain)
    }
}

impl Brokers {
    /// The client's configuration for them.
    pub(crate) fn cluster_config(&self) -> Result<ClusterConfig, Failure> {
        match self {
            Self::Plain(servers) => Ok(ClusterConfig::new(servers.iter().cloned())),
            Self::Configured(section) => section.cluster(),
        }
    }

    /// Puts the file's settings for publishing into `settings`.
    pub(crate) fn producer(&self, settings: &mut ProducerSettings) -> Result<(), Failure> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Configured(section) => section.producer(settings),
        }
    }

    /// The topic to use when `asked` is asked for: a connection string may be for one alone, which is then the default.
    pub(crate) fn topic(&self, asked: Option<&str>) -> Result<String, Failure> {
        let connection = match self {
            Self::Plain(_) => None,
            Self::Configured(section) => section.read_connection_string().map_err(Failure::usage)?,
        };
        let topic = match &connection {
            Some(connection) => connection.topic(asked).map_err(Failure::usage)?,
            None => asked,
        };
        topic.map(str::to_owned).ok_or_else(|| {
            Failure::usage("no topic is given").hint("name one, or put one into the connection string (EntityPath)")
        })
    }
}

/// A server's address: `http://host:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerUrl(String);

impl FromStr for ServerUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim_end_matches('/');
        match text.split_once("://") {
            Some(("http", rest)) if !rest.is_empty() && !rest.contains('/') => Ok(Self(text.to_owned())),
            Some(("http", _)) => Err("it must be http://HOST:PORT and nothing behind".to_owned()),
            Some(("https", _)) => Err("TLS is not supported yet; write http://HOST:PORT".to_owned()),
            _ => Err(format!("write http://{text}")),
        }
    }
}

impl std::fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl ServerUrl {
    /// Connects. Messages of up to `max_message_bytes` are taken.
    pub(crate) async fn connect(&self, max_message_bytes: usize) -> Result<TidegateClient<Channel>, Failure> {
        let endpoint = Endpoint::from_shared(self.0.clone())
            .map_err(|error| Failure::usage(format_args!("--server {self}: {}", chain(&error))))?
            .user_agent(concat!("tidegate-cli/", env!("CARGO_PKG_VERSION")))
            .map_err(|error| Failure::failed("cannot set the user agent", &error))?
            .connect_timeout(CONNECT_TIMEOUT)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .tcp_nodelay(true)
            // TCP's own probes notice a peer that died. HTTP/2 pings would too, but common servers and proxies allow one
            // in five minutes and cut off who sends more.
            .tcp_keepalive(Some(Duration::from_secs(30)));
        let channel = endpoint.connect().await.map_err(|error| {
            Failure::new(Exit::Unavailable, format_args!("no server answers at {self}: {}", chain(&error))).hint(
                "start one with `tidegate demo` or `tidegate serve`, name another with --server, or use --brokers",
            )
        })?;
        Ok(TidegateClient::new(channel)
            .max_decoding_message_size(max_message_bytes)
            .max_encoding_message_size(max_message_bytes))
    }

    /// The failure that a call's status stands for.
    pub(crate) fn failure(&self, status: &Status) -> Failure {
        match ApiError::from_status(status) {
            Some(error) => error.into(),
            // What tonic says when the other side does not speak HTTP/2 or went away.
            None if status.message() == "transport error" => {
                let host_port = self.0.trim_start_matches("http://");
                Failure::new(
                    Exit::Unavailable,
                    format_args!("what answers at {self} broke the connection off: {}", chain(status)),
                )
                .hint(format_args!("is a Tidegate server there? A Kafka broker is asked with --brokers {host_port}"))
            }
            None => {
                let exit = match status.code() {
                    tonic::Code::Unavailable | tonic::Code::DeadlineExceeded => Exit::Unavailable,
                    _ => Exit::Failed,
                };
                let message = match status.message() {
                    "" => chain(status),
                    message => message.to_owned(),
                };
                Failure::new(exit, format_args!("{self}: {message} (gRPC status {:?})", status.code()))
            }
        }
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        let exit = match error.code {
            Code::InvalidArgument | Code::InvalidTime | Code::InvalidRange | Code::InvalidRecord => Exit::Usage,
            Code::DataLoss | Code::PublishUnconfirmed => Exit::Incomplete,
            Code::Internal => Exit::Failed,
            code if code.entry().retryable => Exit::Unavailable,
            _ => Exit::Refused,
        };
        let hint = match error.code {
            Code::UnknownTopic => Some("`tidegate topics` lists the topics"),
            Code::MessageTooLarge => Some("the flag is --max-message-bytes"),
            Code::DataLoss | Code::OffsetOutOfRange => {
                Some("--on-data-loss report reads what is left and names what is gone")
            }
            _ => None,
        };
        let failure = Self::new(exit, &error.message);
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

/// Connects to a cluster.
pub(crate) async fn connect_cluster(config: ClusterConfig) -> Result<Cluster, Failure> {
    Cluster::connect(config).await.map_err(connect_failure)
}

/// Why a cluster cannot be used.
pub(crate) fn connect_failure(error: ConnectError) -> Failure {
    match error {
        ConnectError::NoBootstrap | ConnectError::Address { .. } | ConnectError::Security(_) => Failure::usage(error),
        ConnectError::Unreachable { ref failures } => {
            // Trying again is of no use where every broker refuses.
            let exit = if failures.iter().any(RequestError::is_transient) { Exit::Unavailable } else { Exit::Refused };
            Failure::new(exit, chain(&error))
        }
    }
}

/// A producer for a cluster.
pub(crate) fn producer(cluster: &Cluster, settings: ProducerSettings) -> Result<Producer, Failure> {
    Producer::new(cluster.config(), settings).map_err(|error| Failure::failed("cannot make a producer", &error))
}

/// An engine over a cluster.
pub(crate) fn engine(
    cluster: Cluster,
    settings: ProducerSettings,
    payloads: Payloads,
    limits: EngineLimits,
) -> Result<(Engine, Producer), Failure> {
    let producer = producer(&cluster, settings)?;
    Ok((Engine::new(cluster, producer.clone(), payloads, limits), producer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_by_its_http_address() {
        assert_eq!("http://h:1/".parse(), Ok(ServerUrl("http://h:1".to_owned())));
        assert!("https://h:1".parse::<ServerUrl>().unwrap_err().contains("TLS"));
        assert!("http://h:1/v1".parse::<ServerUrl>().unwrap_err().contains("nothing behind"));
        assert!("h:1".parse::<ServerUrl>().unwrap_err().contains("http://h:1"));
        assert!("http://".parse::<ServerUrl>().is_err());
    }

    #[test]
    fn every_api_error_has_an_exit_code_that_is_not_success() {
        for code in Code::ALL {
            let failure = Failure::from(ApiError::new(*code, "what"));
            assert_ne!(failure.exit, Exit::Done);
            if code.entry().retryable {
                assert!(matches!(failure.exit, Exit::Unavailable | Exit::Incomplete), "{code}");
            }
        }
    }

    #[test]
    fn a_status_of_something_in_between_keeps_its_text() {
        let server = ServerUrl("http://h:1".to_owned());
        let failure = server.failure(&Status::unavailable("upstream is gone"));
        assert_eq!(failure.exit, Exit::Unavailable);
        assert!(failure.message.contains("upstream is gone") && failure.message.contains("http://h:1"));
    }

    #[test]
    fn a_port_that_speaks_something_else_may_be_a_broker() {
        let failure = ServerUrl("http://h:9092".to_owned()).failure(&Status::unknown("transport error"));
        assert_eq!(failure.exit, Exit::Unavailable);
        assert!(failure.hint.unwrap().ends_with("--brokers h:9092"));
    }
}

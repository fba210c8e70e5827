//! `tidegate.yaml`: what `serve` runs with.
//!
//! Kafka's settings have Kafka's names (and Kafka's units, which those names state); ours carry their units in the value.
//! An unknown key is refused: a setting that is silently not in force is worse than none.

mod clusters;
mod error;
mod kafka;
mod limits;
mod registry;
mod secret;
mod topics;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Deserialize;

pub(crate) use self::clusters::ClustersSection;
pub(crate) use self::error::ConfigError;
pub(crate) use self::kafka::{KafkaSection, split_servers};
pub(crate) use self::limits::LimitsSection;
pub(crate) use self::registry::{RegistrySection, registry};
pub(crate) use self::topics::{TopicsSection, payload_from_proto};
use crate::units::Span;

/// The default of `listen`.
pub(crate) const DEFAULT_LISTEN: &str = "127.0.0.1:8642";

/// The whole file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Where REST and gRPC listen.
    pub(crate) listen: Option<Listen>,
    /// Whether `listen` and `broker.listen` may be other than loopback addresses, although nothing authenticates callers.
    pub(crate) insecure: bool,
    /// How long streams may go on after SIGTERM.
    pub(crate) grace: Option<Span>,
    /// A Kafka-protocol cluster.
    pub(crate) kafka: Option<KafkaSection>,
    /// The embedded broker.
    pub(crate) broker: Option<BrokerSection>,
    /// What requests may take.
    #[serde(deserialize_with = "or_default")]
    pub(crate) limits: LimitsSection,
    /// What the topics hold.
    pub(crate) topics: TopicsSection,
    /// Where the schemas are that values name.
    #[serde(rename = "schema.registry")]
    pub(crate) registry: Option<RegistrySection>,
    /// Further clusters by name. The sections above are those of the cluster called `default`.
    #[serde(deserialize_with = "or_default")]
    pub(crate) clusters: ClustersSection,
}

/// `broker:`, the embedded broker.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BrokerSection {
    /// Where its log is; relative to the file.
    pub(crate) data_dir: PathBuf,
    /// Where it speaks the Kafka protocol.
    #[serde(default)]
    pub(crate) listen: Option<Listen>,
    /// When what it wrote goes to the disk.
    #[serde(default)]
    pub(crate) fsync: Option<Fsync>,
    /// Kafka's `num.partitions`: of a topic that is created without a number of its own.
    #[serde(default, rename = "num.partitions")]
    pub(crate) num_partitions: Option<i32>,
}

/// When the embedded broker's writes go to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fsync {
    /// Before a write is acknowledged.
    Always,
    /// At least so often.
    Every(Span),
    /// When the operating system likes.
    Never,
}

impl FromStr for Fsync {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "always" => Ok(Self::Always),
            "never" => Ok(Self::Never),
            text => match text.parse() {
                Ok(span) => Ok(Self::Every(span)),
                Err(error) => Err(format!("fsync is always, never, or an interval such as 1s: {error}")),
            },
        }
    }
}

impl<'de> Deserialize<'de> for Fsync {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer)
    }
}

/// An address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listen(pub(crate) SocketAddr);

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse() {
            return Ok(Self(address));
        }
        let port_only = text.strip_prefix(':').unwrap_or(text);
        Err(match (port_only.parse::<u16>(), text.strip_prefix("localhost:")) {
            (Ok(port), _) => format!("{text:?} is a port without an address; write 127.0.0.1:{port}"),
            (_, Some(port)) => format!("{text:?} is a name; write an address: 127.0.0.1:{port}"),
            _ => format!("{text:?} is not an address with a port, such as {DEFAULT_LISTEN} (port 0: any free one)"),
        })
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer)
    }
}

/// Reads a value from its text; a bare YAML number counts as its digits, so that it gets the same hint.
fn from_text<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: FromStr,
    T::Err: std::fmt::Display,
{
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a text")]
    enum Scalar {
        Text(String),
        Number(i64),
    }
    let text = match Scalar::deserialize(deserializer)? {
        Scalar::Text(text) => text,
        Scalar::Number(number) => number.to_string(),
    };
    text.parse().map_err(serde::de::Error::custom)
}

/// A section whose every line is commented out is there all the same, as null: the defaults.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

impl Config {
    /// Reads the file at `path`. Relative paths in it count from its directory.
    pub(crate) fn load(path: &Path) -> Result<Self, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    /// Reads `text` as the file at `path`.
    pub(crate) fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let mut config = if text.lines().all(|line| line.trim_start().is_empty() || line.trim_start().starts_with('#'))
        {
            Self::default()
        } else {
            serde_yaml_ng::from_str::<Self>(text).map_err(|error| ConfigError::from_yaml(path, &error))?
        };
        let base = path.parent().unwrap_or(Path::new(""));
        config.kafka.iter_mut().for_each(|kafka| kafka.resolve(base));
        config.topics.resolve(base);
        config.clusters.resolve(base);
        if let Some(registry) = &mut config.registry {
            registry.resolve(base);
        }
        if let Some(broker) = &mut config.broker {
            broker.data_dir = base.join(&broker.data_dir);
        }
        config.check().map_err(|message| ConfigError::Invalid { path: path.to_owned(), message })?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        if self.kafka.is_some() && self.broker.is_some() {
            return Err("kafka and broker are both there: records come from a cluster or from the embedded broker, \
                        not from both"
                .to_owned());
        }
        if self.broker.as_ref().and_then(|broker| broker.num_partitions).is_some_and(|partitions| partitions < 1) {
            return Err("broker.num.partitions must be at least 1".to_owned());
        }
        if let Some(kafka) = &self.kafka {
            kafka.check().map_err(|what| format!("kafka: {what}"))?;
        }
        self.limits.check()?;
        self.clusters.check()?;
        if let Some(registry) = &self.registry {
            registry.check("schema.registry")?;
        }
        self.topics.check("topics", self.registry.is_some())
    }
}

#[cfg(test)]
mod tests;

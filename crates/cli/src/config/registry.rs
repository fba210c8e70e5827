//! `schema.registry:`, where the schemas are that values name. The names are those of Confluent's clients.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde::de::{self, Deserializer};
use tidegate_client::{RegistryAuth, RegistryClient, RegistryConfig, Trust};
use tidegate_server::engine::{Registry, SchemaLimits};

use super::secret::SecretSource;
use crate::exit::{Failure, chain};

/// How to reach a schema registry.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RegistrySection {
    /// Its addresses; with several, the next one is asked when one does not answer.
    #[serde(deserialize_with = "urls")]
    url: Vec<String>,
    /// `user:password`.
    #[serde(rename = "basic.auth.user.info", default)]
    user_info: Option<SecretSource>,
    /// A token.
    #[serde(rename = "bearer.auth.token", default)]
    token: Option<SecretSource>,
    /// A PEM file with the authorities that are believed, in place of the system's.
    #[serde(rename = "ssl.ca.location", default)]
    ca: Option<PathBuf>,
    /// The longest wait for one answer.
    #[serde(rename = "request.timeout.ms", default)]
    timeout_ms: Option<u32>,
    /// How many schemas are kept.
    #[serde(rename = "cache.capacity", default)]
    cache_capacity: Option<usize>,
    /// Under which subject the values of a topic have their schema when JSON is published to it.
    #[serde(rename = "subject.name.strategy", default)]
    pub(super) strategy: Strategy,
    /// Whether the schema that a topic names is registered when it is not.
    #[serde(rename = "auto.register.schemas", default)]
    pub(super) auto_register: bool,
}

/// Confluent's strategies, by their names without the package.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
pub(super) enum Strategy {
    #[default]
    #[serde(rename = "TopicNameStrategy")]
    Topic,
    #[serde(rename = "RecordNameStrategy")]
    Record,
    #[serde(rename = "TopicRecordNameStrategy")]
    TopicRecord,
}

impl RegistrySection {
    /// Makes the paths count from `base`.
    pub(super) fn resolve(&mut self, base: &Path) {
        if let Some(ca) = &mut self.ca {
            *ca = base.join(&*ca);
        }
        for secret in self.user_info.iter_mut().chain(&mut self.token) {
            secret.resolve(base);
        }
    }

    pub(super) fn check(&self, at: &str) -> Result<(), String> {
        if self.user_info.is_some() && self.token.is_some() {
            return Err(format!("{at}: basic.auth.user.info and bearer.auth.token are both there; give one"));
        }
        if self.cache_capacity == Some(0) {
            return Err(format!("{at}: cache.capacity must be at least 1"));
        }
        Ok(())
    }

    /// The registry. Reads the secrets.
    pub(super) fn registry(&self) -> Result<Registry, Failure> {
        let secret = |source: &SecretSource, key: &str| {
            source.read(key).map_err(|reason| Failure::usage(format_args!("schema.registry: {reason}")))
        };
        let mut config = RegistryConfig::new(self.url.iter().cloned());
        config.auth = match (&self.user_info, &self.token) {
            (Some(source), _) => RegistryAuth::Basic(secret(source, "basic.auth.user.info")?),
            (None, Some(source)) => RegistryAuth::Bearer(secret(source, "bearer.auth.token")?),
            (None, None) => RegistryAuth::None,
        };
        if let Some(ca) = &self.ca {
            config.trust = Trust::PemFile(ca.clone());
        }
        if let Some(ms) = self.timeout_ms {
            config.timeout = Duration::from_millis(u64::from(ms));
        }
        let mut limits = SchemaLimits::default();
        if let Some(capacity) = self.cache_capacity {
            limits.max_schemas = capacity;
        }
        registry(&config, limits)
    }
}

/// A registry, or what is wrong with its settings.
pub(crate) fn registry(config: &RegistryConfig, limits: SchemaLimits) -> Result<Registry, Failure> {
    let client = RegistryClient::new(config)
        .map_err(|error| Failure::usage(format_args!("schema.registry: {}", chain(&error))))?;
    Ok(Registry::new(client, limits))
}

/// `http://a:8081,http://b:8081`, as Confluent's clients take it, or a list.
fn urls<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "an address such as http://localhost:8081, or a list of them")]
    enum Urls {
        One(String),
        Several(Vec<String>),
    }
    let urls: Vec<String> = match Urls::deserialize(deserializer)? {
        Urls::One(text) => text.split(',').map(str::trim).filter(|url| !url.is_empty()).map(str::to_owned).collect(),
        Urls::Several(urls) => urls,
    };
    if urls.is_empty() { Err(de::Error::custom("no address of a schema registry is given")) } else { Ok(urls) }
}

//! Several clusters behind one server, told apart by the names that its configuration gives them.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_client::{Cluster, Producer};

use super::{Engine, Payloads, PublishError, PublishPlace};

/// The longest name of a cluster, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// A cluster's name: letters, digits, `.`, `_` and `-`, at most 64 of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterName(String);

/// Why a text is no cluster's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} cannot name a cluster; a name is made of letters, digits, '.', '_' and '-', at most 64 of them")]
pub struct ClusterNameError {
    /// The text.
    pub name: String,
}

impl ClusterName {
    /// Of the cluster that a request means which names none.
    pub const DEFAULT: &str = "default";

    /// Checks a name.
    ///
    /// # Errors
    /// [`ClusterNameError`].
    pub fn new(name: &str) -> Result<Self, ClusterNameError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(allowed) {
            return Err(ClusterNameError { name: name.chars().take(MAX_NAME_BYTES + 1).collect() });
        }
        Ok(Self(name.to_owned()))
    }

    /// [`Self::DEFAULT`] as a name.
    pub fn of_default() -> Self {
        Self(Self::DEFAULT.to_owned())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Ordered as its text is, which is what lets a map of names be asked by one.
impl Borrow<str> for ClusterName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// The engines of a server, one for each cluster; at least one. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Clusters {
    engines: Arc<BTreeMap<ClusterName, Engine>>,
    /// Any of them: they share their places.
    one: Engine,
}

/// A request's cluster cannot be told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    /// There is none of that name.
    #[error("there is no cluster {name:?} here; the clusters are {}", known.join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },
    /// The request names none, there are several, and none is the default.
    #[error("the request names no cluster, and there are several here: {}", known.join(", "))]
    Unnamed {
        /// The names that there are.
        known: Vec<String>,
    },
}

impl Clusters {
    /// One cluster of that name; [`Self::with_cluster`] adds others.
    pub fn new(name: ClusterName, engine: Engine) -> Self {
        Self { one: engine.clone(), engines: Arc::new(BTreeMap::from([(name, engine)])) }
    }

    /// Another cluster, which shares the limits of requests with those that are here; one of that name is replaced.
    #[must_use]
    pub fn with_cluster(mut self, name: ClusterName, cluster: Cluster, producer: Producer, payloads: Payloads) -> Self {
        let engine = self.one.beside(cluster, producer, payloads);
        Arc::make_mut(&mut self.engines).insert(name, engine);
        self
    }

    /// The engine of the cluster called `name`. Without a name (empty counts as none): the one called `default`, or the only
    /// one.
    ///
    /// # Errors
    /// [`ClusterError`].
    pub fn get(&self, name: Option<&str>) -> Result<&Engine, ClusterError> {
        let asked = name.filter(|name| !name.is_empty());
        let wanted = asked.or(self.default_name()).ok_or_else(|| ClusterError::Unnamed { known: self.names() })?;
        self.engines.get(wanted).ok_or_else(|| {
            // Not the whole of a name that may be as long as a request.
            let name = wanted.chars().take(MAX_NAME_BYTES).collect();
            ClusterError::Unknown { name, known: self.names() }
        })
    }

    /// A place among the publishes that this server takes at once, for whatever cluster.
    ///
    /// # Errors
    /// [`PublishError::TooManyPublishes`].
    pub fn publish_place(&self) -> Result<PublishPlace, PublishError> {
        self.one.publish_place()
    }

    /// The names, sorted.
    pub fn names(&self) -> Vec<String> {
        self.engines.keys().map(|name| name.0.clone()).collect()
    }

    /// Which of them a request means that names none.
    pub fn default_name(&self) -> Option<&str> {
        match self.engines.get_key_value(ClusterName::DEFAULT) {
            Some((default, _)) => Some(default.as_str()),
            None if self.engines.len() == 1 => self.engines.keys().next().map(ClusterName::as_str),
            None => None,
        }
    }

    /// Ends every read in progress, and every later one before it begins.
    pub fn stop_reads(&self) {
        self.one.stop_reads();
    }
}

/// One cluster alone is the default.
impl From<Engine> for Clusters {
    fn from(engine: Engine) -> Self {
        Self::new(ClusterName::of_default(), engine)
    }
}

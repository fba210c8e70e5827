//! The cluster: metadata, and which broker to ask.

mod metadata;
mod pool;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kafka_protocol::messages::MetadataRequest;
use parking_lot::RwLock;
use tidegate_model::TopicName;
use tokio::time::Instant;
use uuid::Uuid;

use crate::config::ClusterConfig;
use crate::conn::{Connection, ConnectionFacts, Dialer};
use crate::error::{ConnectError, KafkaCode, RequestError, RequestFailure};
use crate::retry::Retry;
use metadata::{Answer, Scope};
use pool::Pool;

/// A cluster. Cheap to clone; clones share connections and metadata.
#[derive(Clone)]
pub struct Cluster {
    shared: Arc<Shared>,
}

struct Shared {
    dialer: Dialer,
    pool: Pool,
    bootstrap: Vec<Arc<str>>,
    view: RwLock<View>,
}

/// The cluster as it was last seen.
#[derive(Default)]
struct View {
    brokers: BTreeMap<i32, Arc<str>>,
    controller: Option<i32>,
    /// For finding leaders. Topics that the cluster no longer shows are dropped when they are asked for again.
    topics: HashMap<TopicName, Seen>,
}

struct Seen {
    at: Instant,
    info: Arc<TopicInfo>,
}

/// A topic as the cluster's metadata shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicInfo {
    /// Its name.
    pub name: TopicName,
    /// Its id; `None` where the broker tells no topic ids (Metadata below version 10).
    pub id: Option<Uuid>,
    /// Whether the cluster keeps it for itself.
    pub internal: bool,
    /// Its partitions, sorted by number.
    pub partitions: Vec<PartitionInfo>,
}

/// A partition as the cluster's metadata shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionInfo {
    /// Its number.
    pub partition: i32,
    /// The broker that leads it, if any does.
    pub leader: Option<i32>,
    /// The leader's epoch, or -1 where the broker does not tell (Metadata below version 7).
    pub leader_epoch: i32,
    /// The brokers that hold it.
    pub replicas: Vec<i32>,
    /// Those of them that are in sync.
    pub isr: Vec<i32>,
}

/// Metadata could not be had.
#[derive(Clone, Debug, thiserror::Error)]
pub enum MetadataError {
    /// The cluster has no such topic.
    #[error("there is no topic {topic}")]
    UnknownTopic {
        /// The name asked for.
        topic: TopicName,
    },
    /// The cluster does not let this client see the topic.
    #[error("not authorized for topic {topic}")]
    NotAuthorized {
        /// The topic.
        topic: TopicName,
    },
    /// The cluster answered with an error.
    #[error("metadata of topic {topic}: {code}")]
    Refused {
        /// The topic.
        topic: TopicName,
        /// The cluster's error.
        code: KafkaCode,
    },
    /// No broker answered, or one answered garbage.
    #[error(transparent)]
    Request(#[from] RequestError),
}

impl MetadataError {
    /// Whether another attempt, after a while, may do better.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Request(source) if source.is_transient())
    }
}

/// Who leads a partition.
#[derive(Clone, Debug)]
pub(crate) struct Leader {
    pub(crate) address: Arc<str>,
    pub(crate) epoch: i32,
}

/// Why a partition's leader is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaderError {
    UnknownPartition,
    /// It may get one.
    NoLeader,
}

impl Cluster {
    /// Connects to the first bootstrap broker that answers ApiVersions and Metadata.
    ///
    /// # Errors
    /// [`ConnectError`] when none does; it holds the failure of each.
    pub async fn connect(config: ClusterConfig) -> Result<Self, ConnectError> {
        let cluster = Self::new(config)?;
        cluster.check().await?;
        Ok(cluster)
    }

    /// A cluster that nobody has asked for yet; the first request connects.
    ///
    /// # Errors
    /// [`ConnectError`] for settings that cannot work.
    pub fn new(config: ClusterConfig) -> Result<Self, ConnectError> {
        if config.bootstrap.is_empty() {
            return Err(ConnectError::NoBootstrap);
        }
        let bootstrap: Vec<Arc<str>> = config.bootstrap.iter().map(|address| address.trim().into()).collect();
        for address in &bootstrap {
            let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port);
            if port.is_none_or(|port| port.parse::<u16>().is_err()) {
                return Err(ConnectError::Address { address: address.to_string() });
            }
        }
        let dialer = Dialer::new(config)?;
        let shared = Shared { dialer, pool: Pool::default(), bootstrap, view: RwLock::default() };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Whether a bootstrap broker answers.
    ///
    /// # Errors
    /// [`ConnectError::Unreachable`] when none does; it holds the failure of each.
    pub async fn check(&self) -> Result<(), ConnectError> {
        let mut failures = Vec::new();
        for address in &self.shared.bootstrap {
            let asked = match self.shared_connection(address).await {
                Ok(connection) => self.ask_metadata(&connection, Scope::Brokers).await,
                Err(failure) => Err(failure),
            };
            match asked {
                Ok(_) => return Ok(()),
                Err(failure) => failures.push(failure),
            }
        }
        Err(ConnectError::Unreachable { failures })
    }

    /// The settings it was connected with.
    pub fn config(&self) -> &ClusterConfig {
        self.shared.dialer.config()
    }

    /// What each connection to a broker has spent its time on, and what the kernel knows of it: those that are shared and those
    /// of the readers, in the order in which they were opened. One that is no longer held by anybody is not among them.
    ///
    /// Takes some system calls a connection, and disturbs none.
    pub fn connections(&self) -> Vec<ConnectionFacts> {
        self.shared.dialer.connections().iter().map(Connection::facts).collect()
    }

    /// All topics that the cluster shows to this client, sorted by name, freshly asked for.
    ///
    /// # Errors
    /// [`MetadataError::Request`] when no broker answers.
    pub async fn topics(&self) -> Result<Vec<TopicInfo>, MetadataError> {
        Ok(self.metadata(Scope::All).await?.all())
    }

    /// One topic, freshly asked for. Never creates it.
    ///
    /// # Errors
    /// [`MetadataError::UnknownTopic`] when there is none; else see [`MetadataError`].
    pub async fn topic(&self, topic: &TopicName) -> Result<TopicInfo, MetadataError> {
        Ok(TopicInfo::clone(&*self.fresh_topic(topic).await?))
    }

    async fn fresh_topic(&self, topic: &TopicName) -> Result<Arc<TopicInfo>, MetadataError> {
        self.metadata(Scope::Topic(topic)).await?.topic(topic)
    }

    /// The leaders of some partitions of a topic, in their order. What was seen up to `stale` is not trusted: it has led to a
    /// refusal.
    pub(crate) async fn leaders(
        &self,
        topic: &TopicName,
        partitions: &[i32],
        stale: Option<Instant>,
    ) -> Result<Vec<Result<Leader, LeaderError>>, MetadataError> {
        let seen = {
            let view = self.shared.view.read();
            let seen = view.topics.get(topic).filter(|seen| stale.is_none_or(|stale| seen.at > stale));
            seen.map(|seen| Arc::clone(&seen.info))
        };
        if let Some(info) = seen {
            let leaders: Vec<_> = partitions.iter().map(|partition| self.leader_in(&info, *partition)).collect();
            if leaders.iter().all(Result::is_ok) {
                return Ok(leaders);
            }
        }
        let info = self.fresh_topic(topic).await?;
        Ok(partitions.iter().map(|partition| self.leader_in(&info, *partition)).collect())
    }

    fn leader_in(&self, info: &TopicInfo, partition: i32) -> Result<Leader, LeaderError> {
        match info.partition(partition) {
            Some(partition) => self.leader_of(partition).ok_or(LeaderError::NoLeader),
            // A topic that is being created lists no partitions yet.
            None if info.partitions.is_empty() => Err(LeaderError::NoLeader),
            None => Err(LeaderError::UnknownPartition),
        }
    }

    fn leader_of(&self, partition: &PartitionInfo) -> Option<Leader> {
        let address = Arc::clone(self.shared.view.read().brokers.get(&partition.leader?)?);
        Some(Leader { address, epoch: partition.leader_epoch })
    }

    /// The shared connection for quick questions to one broker.
    pub(crate) async fn shared_connection(&self, address: &Arc<str>) -> Result<Connection, RequestError> {
        self.shared.pool.get(&self.shared.dialer, address).await
    }

    /// A connection of the caller's own, for waits that must not hold up others.
    pub(crate) async fn own_connection(&self, address: &str) -> Result<Connection, RequestError> {
        self.shared.dialer.open(address).await
    }

    /// A broker's address, as last seen.
    pub(crate) fn broker_address(&self, id: i32) -> Option<Arc<str>> {
        self.shared.view.read().brokers.get(&id).cloned()
    }

    /// The broker that takes administration; any, where the cluster does not tell.
    pub(crate) fn controller_address(&self) -> Arc<str> {
        let view = self.shared.view.read();
        let controller = view.controller.and_then(|id| view.brokers.get(&id));
        let any = || view.brokers.values().next().or_else(|| self.shared.bootstrap.first());
        controller.or_else(any).map_or_else(|| Arc::from(""), Arc::clone)
    }

    /// The brokers' addresses as last seen, then the bootstrap list.
    fn addresses(&self) -> Vec<Arc<str>> {
        let mut addresses: Vec<Arc<str>> = self.shared.view.read().brokers.values().map(Arc::clone).collect();
        for address in &self.shared.bootstrap {
            if !addresses.contains(address) {
                addresses.push(Arc::clone(address));
            }
        }
        addresses
    }

    /// A shared connection to any broker that takes one; the `attempt` decides with whom to begin, so that a broker which
    /// connects and then stays silent is not the only one ever asked.
    pub(crate) async fn any_connection(&self, attempt: usize) -> Result<Connection, RequestError> {
        let addresses = self.addresses();
        let begin = attempt % addresses.len().max(1);
        let mut last = None;
        for address in addresses.iter().cycle().skip(begin).take(addresses.len()) {
            match self.shared_connection(address).await {
                Ok(connection) => return Ok(connection),
                Err(failure) => {
                    tracing::debug!(%failure, "cannot use this broker");
                    last = Some(failure);
                }
            }
        }
        Err(last.unwrap_or_else(|| {
            // There is at least one bootstrap broker, so this is not met.
            RequestError { broker: "any".to_owned(), request: "connect", failure: RequestFailure::Closed }
        }))
    }

    /// Metadata from whichever broker answers, tried again within the limits.
    async fn metadata(&self, scope: Scope<'_>) -> Result<Answer, RequestError> {
        let mut retry = Retry::new(self.config().retry);
        let mut attempt = 0;
        loop {
            let asked = match self.any_connection(attempt).await {
                Ok(connection) => self.ask_metadata(&connection, scope).await,
                Err(failure) => Err(failure),
            };
            match asked {
                Err(failure) if failure.is_transient() => {
                    tracing::debug!(%failure, "metadata is asked for again");
                    if !retry.pause().await {
                        return Err(failure);
                    }
                    attempt += 1;
                }
                settled => return settled,
            }
        }
    }

    /// Looks anew who is in the cluster and who is its controller.
    pub(crate) async fn refresh_brokers(&self) -> Result<(), RequestError> {
        self.metadata(Scope::Brokers).await.map(|_| ())
    }

    /// Metadata from one broker, noted for finding leaders.
    async fn ask_metadata(&self, connection: &Connection, scope: Scope<'_>) -> Result<Answer, RequestError> {
        let asked = Instant::now();
        let version = connection.version::<MetadataRequest>()?;
        let request = metadata::build(version, scope);
        let response = connection.call(version, &request, self.config().request_timeout).await?;
        let answer = metadata::check(response).map_err(|what| connection.garbage::<MetadataRequest>(what))?;
        self.note(asked, scope, &answer);
        Ok(answer)
    }

    fn note(&self, asked: Instant, scope: Scope<'_>, answer: &Answer) {
        let mut view = self.shared.view.write();
        // A broker that is starting may know of nobody yet.
        if !answer.brokers.is_empty() {
            view.brokers.clone_from(&answer.brokers);
            view.controller = answer.controller;
        }
        match scope {
            Scope::Brokers => {}
            Scope::Topic(topic) => note_topic(&mut view, asked, topic, answer),
            Scope::All => {
                // Leaders of topics that nobody asked for are not worth the memory.
                let known: Vec<TopicName> = view.topics.keys().cloned().collect();
                known.iter().for_each(|topic| note_topic(&mut view, asked, topic, answer));
            }
        }
        let View { brokers, .. } = &*view;
        let bootstrap = &self.shared.bootstrap;
        self.shared.pool.retain(|address| brokers.values().chain(bootstrap).any(|known| known.as_ref() == address));
    }
}

fn note_topic(view: &mut View, asked: Instant, topic: &TopicName, answer: &Answer) {
    match answer.topics.get(topic) {
        Some(Ok(info)) => {
            // Two answers may arrive out of order.
            if view.topics.get(topic).is_none_or(|seen| seen.at <= asked) {
                view.topics.insert(topic.clone(), Seen { at: asked, info: Arc::clone(info) });
            }
        }
        _ => {
            view.topics.remove(topic);
        }
    }
}

impl TopicInfo {
    fn partition(&self, partition: i32) -> Option<&PartitionInfo> {
        let at = self.partitions.binary_search_by_key(&partition, |info| info.partition).ok()?;
        self.partitions.get(at)
    }
}

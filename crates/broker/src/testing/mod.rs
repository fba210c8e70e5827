//! Brokers that misbehave, for tests: *flavours* of brokers that people have, and *faults* on demand.
//!
//! A [`TestCluster`] is some stand-in brokers, each with a listener and a node id of its own, before one real broker (the
//! embedded one, mostly) that holds the records. They pass requests on and change what comes back: the versions that are
//! spoken, who leads which partition, and whatever a [`Rule`] says. Everything that happens is decided by the rules and
//! their seed, and is written down, so that a test can check that its fault did happen.
//!
//! Only the crate's feature `testing` compiles this module, and nothing else in the crate knows of it: a broker that is
//! started from a configuration has no way here, whatever features are on.

mod flavour;
mod leaders;
mod lies;
mod message;
mod relay;
mod rewrite;
mod script;

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::BytesMut;
use kafka_protocol::messages::{ApiKey, ApiVersionsRequest, ApiVersionsResponse, RequestHeader};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use flavour::{Egress, Flavour, UnknownApiVersions, Versions};
use leaders::Leaders;
use message::{Incoming, Names};
use relay::Meters;
use script::Script;
pub use script::{Fault, Happened, Lie, Moment, Rule, RuleId};

/// What a [`TestCluster`] is started with.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The kind of brokers.
    pub flavour: Flavour,
    /// How many there are. Their ids are 1, 2, and so on; partition p is led by broker 1 + p modulo their number at first.
    pub brokers: i32,
    /// What every chance is drawn from.
    pub seed: u64,
}

impl Default for Setup {
    fn default() -> Self {
        Self { flavour: Flavour::plain(), brokers: 1, seed: 0 }
    }
}

/// Stand-in brokers before a real one. Dropping it closes all connections.
#[derive(Debug)]
pub struct TestCluster {
    state: Arc<State>,
    _stop: DropGuard,
}

#[derive(Debug)]
struct State {
    flavour: Flavour,
    spoken: Vec<Versions>,
    upstream: SocketAddr,
    /// The brokers' addresses, in the order of their ids.
    addrs: Vec<SocketAddr>,
    leaders: Mutex<Leaders>,
    script: Mutex<Script>,
    names: Mutex<Names>,
    meters: Mutex<Meters>,
    requests: Mutex<BTreeMap<(i16, i16), u64>>,
    connections: AtomicU64,
    idle_cuts: AtomicU64,
    late_commits: AtomicU64,
    throttled: AtomicU64,
}

impl State {
    fn addr(&self, node: i32) -> Option<SocketAddr> {
        self.addrs.get(usize::try_from(node - 1).ok()?).copied()
    }

    fn count(&self, request: &Incoming) {
        *self.requests.lock().entry((request.api as i16, request.version)).or_default() += 1;
    }

    fn note_idle_cut(&self) {
        self.idle_cuts.fetch_add(1, Ordering::SeqCst);
    }

    fn note_late_commit(&self) {
        self.late_commits.fetch_add(1, Ordering::SeqCst);
    }

    fn note_throttled(&self) {
        self.throttled.fetch_add(1, Ordering::SeqCst);
    }
}

impl TestCluster {
    /// Stand-in brokers on free loopback ports before the broker at `upstream`. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When a port cannot be had, or the broker behind does not answer ApiVersions.
    pub async fn start(upstream: SocketAddr, setup: Setup) -> io::Result<Self> {
        let behind = ask_versions(upstream).await?;
        let leaders = Leaders::new(setup.brokers);
        let mut listeners = Vec::new();
        for node in leaders.nodes() {
            listeners.push((node, TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?));
        }
        let addrs = listeners.iter().map(|(_, listener)| listener.local_addr()).collect::<io::Result<_>>()?;
        let state = Arc::new(State {
            spoken: setup.flavour.spoken(&behind),
            flavour: setup.flavour,
            upstream,
            addrs,
            leaders: Mutex::new(leaders),
            script: Mutex::new(Script::new(setup.seed)),
            names: Mutex::default(),
            meters: Mutex::new(Meters::new()),
            requests: Mutex::default(),
            connections: AtomicU64::new(0),
            idle_cuts: AtomicU64::new(0),
            late_commits: AtomicU64::new(0),
            throttled: AtomicU64::new(0),
        });
        let stop = CancellationToken::new();
        for (node, listener) in listeners {
            let (state, stop) = (Arc::clone(&state), stop.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = accept(&state, node, listener) => {}
                    () = stop.cancelled() => {}
                }
            });
        }
        Ok(Self { state, _stop: stop.drop_guard() })
    }

    /// The address of the first broker, as `host:port`.
    pub fn bootstrap(&self) -> String {
        self.state.addrs.first().map(ToString::to_string).unwrap_or_default()
    }

    /// Adds a rule behind those that are there.
    pub fn rule(&self, rule: Rule) -> RuleId {
        self.state.script.lock().add(rule)
    }

    /// No rule applies any more.
    pub fn end_faults(&self) {
        self.state.script.lock().clear();
    }

    /// How often a rule's fault has happened.
    pub fn fired(&self, rule: RuleId) -> u64 {
        self.state.script.lock().fired(rule)
    }

    /// The faults that happened, in order; the first ten thousand.
    pub fn happened(&self) -> Vec<Happened> {
        self.state.script.lock().happened().to_vec()
    }

    /// Gives the lead of a partition to another broker, or to nobody. The next `stale_answers` metadata answers do not know
    /// it yet.
    pub fn move_leader(&self, topic: &str, partition: i32, to: Option<i32>, stale_answers: u32) {
        self.state.leaders.lock().set(topic, partition, to, stale_answers);
    }

    /// How often each version of an API was asked for.
    pub fn asked(&self, api: ApiKey) -> BTreeMap<i16, u64> {
        let requests = self.state.requests.lock();
        requests
            .iter()
            .filter(|((key, _), _)| *key == api as i16)
            .map(|((_, version), count)| (*version, *count))
            .collect()
    }

    /// How many connections were accepted.
    pub fn connections(&self) -> u64 {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// How many connections were dropped silently for being idle.
    pub fn idle_cuts(&self) -> u64 {
        self.state.idle_cuts.load(Ordering::SeqCst)
    }

    /// How many offset commits were answered late for being too many.
    pub fn late_commits(&self) -> u64 {
        self.state.late_commits.load(Ordering::SeqCst)
    }

    /// How many fetches came back empty because the second's bytes were used up.
    pub fn throttled(&self) -> u64 {
        self.state.throttled.load(Ordering::SeqCst)
    }
}

async fn accept(state: &Arc<State>, node: i32, listener: TcpListener) {
    // Connections end with the task that holds this.
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((client, _)) => {
                state.connections.fetch_add(1, Ordering::SeqCst);
                let state = Arc::clone(state);
                connections.spawn(async move {
                    if let Err(error) = relay::serve(&state, node, client).await {
                        tracing::debug!(node, %error, "a stand-in broker closes a connection");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a stand-in broker cannot accept a connection");
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        }
    }
}

/// The versions of a broker.
async fn ask_versions(broker: SocketAddr) -> io::Result<Vec<Versions>> {
    let mut stream = TcpStream::connect(broker).await?;
    let mut request = BytesMut::new();
    let header = RequestHeader::default().with_request_api_key(ApiKey::ApiVersions as i16);
    message::encode(&header, 1, &mut request).map_err(io::Error::other)?;
    message::encode(&ApiVersionsRequest::default(), 0, &mut request).map_err(io::Error::other)?;
    stream.write_all(&message::with_size(&request)).await?;
    let size = stream.read_i32().await?;
    let mut answer = Vec::new();
    stream.take(u64::try_from(size).unwrap_or(0)).read_to_end(&mut answer).await?;
    let answer: ApiVersionsResponse = message::decode_answer(&answer.into(), 0).map_err(io::Error::other)?;
    let known = answer.api_keys.iter().filter_map(|found| {
        let api = ApiKey::try_from(found.api_key).ok()?;
        Some(Versions { api, min: found.min_version, max: found.max_version })
    });
    Ok(known.collect())
}

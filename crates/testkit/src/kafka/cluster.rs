//! An Apache Kafka of three nodes, any of which can be killed and started again on its data.

use super::ports::{self, Ports};
use super::process::{Attempt, Member, Place, Process, cluster_id, voter};
use super::{KafkaConfig, PORT_ATTEMPTS, StartError, artefacts};

const NODES: usize = 3;

/// Three nodes, each broker and controller, on 127.0.0.1. Dropping it kills them and removes their data.
///
/// What is written with `acks=all` is on two of them at least, and only a replica in sync is ever elected: a cluster that
/// loses one node at a time loses nothing.
#[derive(Debug)]
pub struct KafkaCluster {
    nodes: [Node; NODES],
}

#[derive(Debug)]
struct Node {
    process: Process,
    /// `false`: it was killed and is not started again yet.
    is_up: bool,
}

impl KafkaCluster {
    /// Starts the nodes and returns once each knows of all.
    ///
    /// # Errors
    /// As [`super::Kafka::start`].
    pub fn start(config: &KafkaConfig) -> Result<Self, StartError> {
        let libs = artefacts::libs(&config.release.artefact())?;
        let config = replicated(config);
        let mut lost_ports = Vec::new();
        for _ in 0..PORT_ATTEMPTS {
            let ports = ports::free_pairs::<NODES>().map_err(StartError::io("find free ports"))?;
            let voters = (1..).zip(ports).map(|(id, ports)| voter(id, ports)).collect::<Vec<_>>().join(",");
            let cluster_id = cluster_id();
            let launch = |(id, ports): (u16, Ports)| {
                let member = Member { id, ports, voters: voters.clone(), cluster_id: cluster_id.clone() };
                Place::new(&libs, &config, member)?.launch()
            };
            // All of them run before the first is waited for: one alone has no quorum.
            let launched = (1..).zip(ports).map(launch).collect::<Result<Vec<_>, _>>()?;
            let mut nodes = Vec::new();
            for process in launched {
                match process.ready(NODES)? {
                    Attempt::Running(process) => nodes.push(Node { process, is_up: true }),
                    Attempt::PortTaken => break,
                }
            }
            match <[Node; NODES]>::try_from(nodes) {
                Ok(nodes) => return Ok(Self { nodes }),
                Err(_) => lost_ports.extend(ports.map(|ports| ports.broker)),
            }
        }
        Err(StartError::NoPort { lost_ports })
    }

    /// [`KafkaCluster::start`] for a test: where Kafka cannot be had, the skip of `test` is said and counted.
    ///
    /// # Panics
    ///
    /// When Kafka can be had but does not start, and under `CI=true` when it cannot be had.
    pub fn start_or_skip(test: &str, config: &KafkaConfig) -> Option<Self> {
        match Self::start(config) {
            Ok(cluster) => Some(cluster),
            Err(error) if error.is_unavailable() => {
                crate::skip(test, &error.to_string());
                None
            }
            Err(error) => panic!("{test}: Apache Kafka does not start: {error}"),
        }
    }

    /// `host:port` of every node, separated by commas.
    pub fn bootstrap(&self) -> String {
        let addresses = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.process.port()));
        addresses.collect::<Vec<_>>().join(",")
    }

    /// The ids of the nodes, as Kafka's metadata shows them.
    pub fn ids(&self) -> impl Iterator<Item = i32> + use<> {
        (1..).take(NODES)
    }

    /// SIGKILL to a node: it is gone, mid-write if it was writing, when this returns. Its data stays.
    ///
    /// # Panics
    ///
    /// When there is no node `id`.
    pub fn kill(&mut self, id: i32) {
        let node = self.node(id);
        node.process.kill();
        node.is_up = false;
    }

    /// Starts a killed node on its data, and returns once it serves clients. Its replicas may still be catching up.
    ///
    /// # Panics
    ///
    /// When there is no node `id`, or it runs, or does not start.
    pub fn restart(&mut self, id: i32) {
        let node = self.node(id);
        assert!(!node.is_up, "node {id} runs");
        let started = node.process.place().launch().and_then(|process| process.ready(1));
        match started {
            Ok(Attempt::Running(process)) => *node = Node { process, is_up: true },
            Ok(Attempt::PortTaken) => panic!("another program took a port of node {id} while it was down"),
            Err(error) => panic!("node {id} does not start again: {error}"),
        }
    }

    fn node(&mut self, id: i32) -> &mut Node {
        let node = usize::try_from(id - 1).ok().and_then(|at| self.nodes.get_mut(at));
        node.unwrap_or_else(|| panic!("there is no node {id}"))
    }
}

/// What a cluster needs beside what one node needs; what the caller gave wins.
fn replicated(config: &KafkaConfig) -> KafkaConfig {
    let own = [
        ("default.replication.factor", "3"),
        ("offsets.topic.replication.factor", "3"),
        ("transaction.state.log.replication.factor", "3"),
        ("transaction.state.log.min.isr", "2"),
        ("min.insync.replicas", "2"),
        ("unclean.leader.election.enable", "false"),
    ];
    let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut config = config.clone();
    config.properties.splice(0..0, own);
    // Three Java machines share what one may have.
    config.java_options.push("-Xmx256m".to_owned());
    config
}

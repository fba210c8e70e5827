//! Members of groups that run beside a test, and what they saw.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_client::{
    AssignedPartition, AssignmentStrategy, Cluster, ClusterConfig, GroupCounts, GroupError, GroupEvent, GroupOptions,
    GroupProtocol, GroupSource, NewTopic, Producer, ProducerSettings, RecordToSend,
};
use tidegate_model::{Chunk, TopicName, TopicPartition};
use tidegate_testkit::unique_topic;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::name;

/// A cluster, and how groups work there.
pub(crate) struct Ground {
    pub(crate) cluster: Cluster,
    pub(crate) protocol: GroupProtocol,
    pub(crate) strategy: AssignmentStrategy,
    pub(crate) session_timeout: Duration,
}

impl Ground {
    pub(crate) async fn new(bootstrap: String, protocol: GroupProtocol, strategy: AssignmentStrategy) -> Self {
        log();
        let cluster = Cluster::connect(ClusterConfig::new([bootstrap])).await.unwrap();
        Self { cluster, protocol, strategy, session_timeout: Duration::from_secs(10) }
    }

    pub(crate) fn options(&self, group: &str, topics: &[&str]) -> GroupOptions {
        GroupOptions {
            protocol: self.protocol,
            assignment_strategy: self.strategy,
            session_timeout: self.session_timeout,
            heartbeat_interval: Duration::from_millis(100),
            metadata_max_age: Duration::from_millis(500),
            fetch_max_wait: Duration::from_millis(50),
            ..GroupOptions::new(group, topics.iter().copied())
        }
    }

    pub(crate) fn is_cooperative(&self) -> bool {
        self.protocol == GroupProtocol::Consumer || self.strategy == AssignmentStrategy::CooperativeSticky
    }

    pub(crate) async fn topic(&self, partitions: i32) -> TopicName {
        let topic = name(&unique_topic("group"));
        self.create(&topic, partitions).await;
        topic
    }

    pub(crate) async fn create(&self, topic: &TopicName, partitions: i32) {
        let new = NewTopic { name: topic.clone(), partitions, replication_factor: 1, config: BTreeMap::new() };
        self.cluster.create_topic(&new).await.unwrap();
    }

    /// Adds `count` records to each of these partitions.
    pub(crate) async fn fill(&self, topic: &TopicName, partitions: std::ops::Range<i32>, count: i64) {
        let settings = ProducerSettings { linger: Duration::from_millis(1), ..ProducerSettings::default() };
        let producer = Producer::new(self.cluster.config(), settings).unwrap();
        let mut session = producer.session(topic);
        for _ in 0..count {
            for partition in partitions.clone() {
                let record =
                    RecordToSend { partition: Some(partition), value: Some(b"value"), ..RecordToSend::default() };
                session.send(record).await.unwrap();
            }
        }
        session.finish().await.unwrap();
        producer.close().await.unwrap();
    }

    pub(crate) async fn join(&self, options: GroupOptions) -> GroupSource {
        GroupSource::join(&self.cluster, options).await.unwrap()
    }
}

pub(crate) fn offsets(chunk: &Chunk) -> Vec<i64> {
    chunk.batches.iter().flat_map(|batch| batch.records()).map(|record| record.unwrap().offset).collect()
}

/// The next event; a test that waits in vain fails.
pub(crate) async fn next(source: &mut GroupSource) -> Result<GroupEvent, GroupError> {
    tokio::time::timeout(Duration::from_secs(60), source.next()).await.expect("nothing comes")
}

/// Takes events until some were assigned.
pub(crate) async fn assigned(source: &mut GroupSource) -> Vec<AssignedPartition> {
    loop {
        if let GroupEvent::Assigned { partitions } = next(source).await.unwrap() {
            return partitions;
        }
    }
}

/// Takes events until a chunk with records comes.
pub(crate) async fn chunk(source: &mut GroupSource) -> Chunk {
    loop {
        if let GroupEvent::Chunk(chunk) = next(source).await.unwrap()
            && !chunk.batches.is_empty()
        {
            return chunk;
        }
    }
}

/// What a running member saw.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) holds: BTreeSet<TopicPartition>,
    pub(crate) records: Vec<(TopicPartition, i64)>,
    pub(crate) assigned: usize,
    pub(crate) revoking: usize,
    pub(crate) revoked: usize,
    pub(crate) lost: usize,
    pub(crate) refused: usize,
    pub(crate) error: Option<GroupError>,
}

/// Logs what the client says, where `TIDEGATE_TEST_LOG` is set: for a look at a test that fails.
pub(crate) fn log() {
    if std::env::var_os("TIDEGATE_TEST_LOG").is_some() {
        let _second = tracing_subscriber::fmt().with_test_writer().try_init();
    }
}

/// A member that takes what comes, and commits it at once.
pub(crate) struct Running {
    pub(crate) seen: Arc<Mutex<Seen>>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<(Result<(), GroupError>, GroupCounts)>,
}

impl Running {
    pub(crate) async fn start(ground: &Ground, options: GroupOptions) -> Self {
        Self::of(ground.join(options).await)
    }

    pub(crate) fn of(source: GroupSource) -> Self {
        Self::holding(source, BTreeSet::new())
    }

    /// Goes on with a source that has been told of these partitions.
    pub(crate) fn holding(mut source: GroupSource, holds: BTreeSet<TopicPartition>) -> Self {
        let seen = Arc::new(Mutex::new(Seen { holds, ..Seen::default() }));
        let (stop, mut stopped) = oneshot::channel();
        let task = tokio::spawn({
            let seen = Arc::clone(&seen);
            async move {
                loop {
                    let event = tokio::select! {
                        _ = &mut stopped => break,
                        event = source.next() => event,
                    };
                    let mut seen = seen.lock();
                    match event {
                        Ok(GroupEvent::Assigned { partitions }) => {
                            seen.assigned += 1;
                            for partition in partitions {
                                assert!(seen.holds.insert(partition.topic_partition), "assigned twice");
                            }
                        }
                        Ok(GroupEvent::Chunk(chunk)) => {
                            let at = chunk.topic_partition.clone();
                            assert!(seen.holds.contains(&at), "{at} is not held");
                            seen.records.extend(offsets(&chunk).into_iter().map(|offset| (at.clone(), offset)));
                            // Refused where the partition was lost this moment.
                            if !source.commit(&at, chunk.next_offset, None) {
                                seen.refused += 1;
                            }
                        }
                        Ok(GroupEvent::Revoking { .. }) => seen.revoking += 1,
                        Ok(GroupEvent::Revoked { partitions }) => {
                            seen.revoked += 1;
                            partitions.iter().for_each(|at| assert!(seen.holds.remove(at), "{at} was not held"));
                        }
                        Ok(GroupEvent::Lost { partitions }) => {
                            seen.lost += 1;
                            partitions.iter().for_each(|at| assert!(seen.holds.remove(at), "{at} was not held"));
                        }
                        Ok(GroupEvent::Reset { .. }) => panic!("a reset"),
                        Err(error) => {
                            seen.error = Some(error);
                            break;
                        }
                    }
                }
                let counts = source.counts();
                (source.close().await, counts)
            }
        });
        Self { seen, stop, task }
    }

    pub(crate) fn holds(&self) -> usize {
        self.seen.lock().holds.len()
    }

    pub(crate) fn records(&self) -> usize {
        self.seen.lock().records.len()
    }

    /// Closes the source; what the member saw and counted.
    pub(crate) async fn close(self) -> (Seen, GroupCounts) {
        let _ended = self.stop.send(());
        let (closed, counts) = self.task.await.unwrap();
        closed.unwrap();
        assert_eq!(counts.stray_messages, 0);
        (std::mem::take(&mut self.seen.lock()), counts)
    }
}

/// Waits for something that members do: a group's rebalances take seconds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..12_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{what} did not come about");
}

//! The member: a consumer of librdkafka that joins, sends heartbeats and commits, and fetches nothing.
//!
//! One thread polls it all the time, so that neither `max.poll.interval.ms` nor a rebalance waits for the consumer of the
//! records; another makes the calls that block. A rebalance is answered in two ways: what is assigned is taken at once;
//! what is revoked is noted, polling goes on, and [`Member::give_up`] answers when the partitions are drained. (librdkafka
//! allows it: with its event interface a rebalance is answered by the call, not by the return of a callback.)
//!
//! Nothing is fetched because a partition is paused before it is assigned. Pausing afterwards, as usual, loses a race: the
//! broker's thread may send a fetch between the two. Pausing a partition that librdkafka does not know yet is skipped by
//! it, so each is made known first, by asking for its queue.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak, mpsc as blocking};
use std::time::Duration;

use parking_lot::Mutex;
use rdkafka::client::{ClientContext, OAuthToken};
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _, ConsumerContext, RebalanceProtocol};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaRespErr;
use tidegate_model::{TopicName, TopicPartition};
use tokio::sync::{mpsc, oneshot};

use super::ledger::Mark;
use super::start::Committed;
use crate::librdkafka;
use crate::librdkafka::security::Guard;

/// How long one poll may wait; also how soon the threads notice that they are to end.
const POLL: Duration = Duration::from_millis(100);

/// How long one look-up of committed offsets may take.
const LOOK_UP: Duration = Duration::from_secs(5);

/// How long leaving a group may take, when the cluster does not answer.
const LEAVE: Duration = Duration::from_secs(5);

type Consumer = BaseConsumer<Context>;
type Job = Box<dyn FnOnce(&Consumer) + Send>;

/// What happened to the member.
#[derive(Debug)]
pub(super) enum Happening {
    Assigned(Vec<TopicPartition>),
    Revoked {
        partitions: Vec<TopicPartition>,
        /// Somebody else may have them already.
        lost: bool,
        /// Which rebalance it was, for [`Member::give_up`].
        turn: u64,
    },
    /// An error that librdkafka tells its consumer, with its words.
    Trouble {
        code: Option<RDKafkaErrorCode>,
        fatal: bool,
        words: String,
    },
    /// Messages arrived that nobody asked for.
    Stray,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Member {
    consumer: Option<Handle>,
    stop: Arc<AtomicBool>,
    gone: Option<oneshot::Receiver<()>>,
}

struct Handle {
    consumer: Arc<Consumer>,
    jobs: blocking::Sender<Job>,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Handle")
    }
}

pub(super) struct Context {
    happenings: mpsc::UnboundedSender<Happening>,
    guard: Guard,
    /// The consumer itself, for what its references in the callbacks cannot do.
    consumer: OnceLock<Weak<Consumer>>,
    revoked: Mutex<Revoked>,
    /// Nobody drains any more.
    leaving: AtomicBool,
    /// librdkafka's words about its latest error; the error itself comes by another way.
    words: Mutex<String>,
    /// Dropped when librdkafka has ended.
    _gone: oneshot::Sender<()>,
}

/// What is revoked and not given up yet.
///
/// Mostly librdkafka begins no rebalance before the one before is answered. It does when it notices meanwhile that topics or
/// partitions came or went.
#[derive(Default)]
struct Revoked {
    list: Option<TopicPartitionList>,
    /// How many rebalances there were that change what is to be given up.
    turn: u64,
}

impl Revoked {
    /// More is revoked.
    fn add(&mut self, list: &TopicPartitionList) -> u64 {
        match &mut self.list {
            None => self.list = Some(list.clone()),
            Some(before) => {
                for element in list.elements() {
                    if before.find_partition(element.topic(), element.partition()).is_none() {
                        before.add_partition(element.topic(), element.partition());
                    }
                }
            }
        }
        self.turn += 1;
        self.turn
    }

    /// Something else is assigned before it was given up.
    fn overtaken(&mut self) -> Option<TopicPartitionList> {
        let list = self.list.take()?;
        self.turn += 1;
        Some(list)
    }
}

impl Member {
    /// Begins to join. What comes of it is told by the receiver.
    pub(super) fn join(
        config: &ClientConfig,
        guard: Guard,
        topics: &[String],
    ) -> Result<(Self, mpsc::UnboundedReceiver<Happening>), KafkaError> {
        let (happenings, receiver) = mpsc::unbounded_channel();
        let (gone_sender, gone) = oneshot::channel();
        let context = Context {
            happenings,
            guard,
            consumer: OnceLock::new(),
            revoked: Mutex::default(),
            leaving: AtomicBool::new(false),
            words: Mutex::default(),
            _gone: gone_sender,
        };
        let consumer: Arc<Consumer> = Arc::new(config.create_with_context(context)?);
        let _first = consumer.context().consumer.set(Arc::downgrade(&consumer));
        let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
        consumer.subscribe(&topics)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (jobs, to_do) = blocking::channel();
        let handle = Handle { consumer: Arc::clone(&consumer), jobs };
        // Before the threads: should the second not start, dropping this stops the first.
        let member = Self { consumer: Some(handle), stop: Arc::clone(&stop), gone: Some(gone) };
        spawn("group poll", {
            let consumer = Arc::clone(&consumer);
            move || poll(consumer, &stop)
        })?;
        spawn("group calls", move || work(&consumer, &to_do))?;
        Ok((member, receiver))
    }

    /// What makes the calls that block.
    pub(super) fn caller(&self) -> Caller {
        Caller { jobs: self.consumer.as_ref().map(|handle| handle.jobs.clone()) }
    }

    /// Answers the revocation of this turn: the partitions may go to another member. librdkafka's own thread does it, at
    /// once. Nothing is done when another rebalance has come meanwhile; its happening is on its way.
    pub(super) fn give_up(&self, turn: u64) {
        if let Some(Handle { consumer, .. }) = &self.consumer {
            consumer.context().give_up(consumer, Some(turn));
        }
    }

    /// Answers whatever was revoked.
    pub(super) fn give_up_all(&self) {
        if let Some(Handle { consumer, .. }) = &self.consumer {
            consumer.context().give_up(consumer, None);
        }
    }

    /// Whether the group has taken the partitions away without asking.
    pub(super) fn has_lost(&self) -> bool {
        self.consumer.as_ref().is_some_and(|handle| handle.consumer.assignment_lost())
    }

    /// Leaves the group (a static member only goes away) and waits until librdkafka has ended, but not for ever: a commit
    /// that no coordinator takes keeps it for a while, and it then ends by itself.
    pub(super) async fn leave(mut self) {
        let gone = self.gone.take();
        drop(self);
        if let Some(gone) = gone
            && tokio::time::timeout(LEAVE, gone).await.is_err()
        {
            tracing::warn!("librdkafka has not left its group after {LEAVE:?}, and is left to end by itself");
        }
    }
}

/// Makes the calls that block, one after the other, in a thread of their own. The member ends when all of these are gone.
#[derive(Clone)]
pub(super) struct Caller {
    jobs: Option<blocking::Sender<Job>>,
}

impl Caller {
    /// Has `job` done where blocking is allowed, after those before it. [`KafkaError::Canceled`]: the member has ended.
    fn call<T, J>(&self, job: J) -> impl Future<Output = Result<T, KafkaError>> + Send + use<T, J>
    where
        T: Send + 'static,
        J: FnOnce(&Consumer) -> Result<T, KafkaError> + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let job = Box::new(move |consumer: &Consumer| {
            let _nobody_waits = sender.send(job(consumer));
        });
        if let Some(jobs) = &self.jobs {
            // Where it fails, the sender is gone, and the receiver says so.
            let _sent = jobs.send(job);
        }
        async move { receiver.await.unwrap_or(Err(KafkaError::Canceled)) }
    }

    /// Commits, and waits for the coordinator's answer. An error may concern one of the partitions only: librdkafka's call
    /// tells no more, and its asynchronous one tells this interface nothing at all.
    pub(super) fn commit(
        &self,
        marks: BTreeMap<TopicPartition, Mark>,
    ) -> impl Future<Output = Result<(), KafkaError>> + Send + use<> {
        self.call(move |consumer| {
            let mut list = TopicPartitionList::with_capacity(marks.len());
            for (at, mark) in &marks {
                let mut element = list.add_partition(at.topic.as_str(), at.partition);
                element.set_offset(Offset::Offset(mark.offset))?;
                element.set_metadata(&mark.metadata);
            }
            consumer.commit(&list, CommitMode::Sync)
        })
    }

    /// What the group has committed for these partitions.
    pub(super) fn committed(
        &self,
        partitions: Vec<TopicPartition>,
    ) -> impl Future<Output = Result<Vec<Committed>, KafkaError>> + Send + use<> {
        self.call(move |consumer| look_up(consumer, &partitions))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // The threads hold the consumer too; the one that polls drops it last but for a call that still waits.
        self.consumer = None;
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), KafkaError> {
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    spawned.map(|_| ()).map_err(|error| KafkaError::ClientCreation(format!("no thread can be started: {error}")))
}

fn poll(consumer: Arc<Consumer>, stop: &AtomicBool) {
    while !stop.load(Ordering::SeqCst) {
        match consumer.poll(POLL) {
            None => {}
            Some(Ok(_)) => consumer.context().tell(Happening::Stray),
            Some(Err(error)) => consumer.context().trouble(&error),
        }
    }
    let context = Arc::clone(consumer.context());
    context.leaving.store(true, Ordering::SeqCst);
    // Leaving waits for the answer to a rebalance that has begun.
    context.give_up(&consumer, None);
    drop(context);
    drop(consumer);
}

fn work(consumer: &Consumer, jobs: &blocking::Receiver<Job>) {
    while let Ok(job) = jobs.recv() {
        job(consumer);
    }
}

fn look_up(consumer: &Consumer, partitions: &[TopicPartition]) -> Result<Vec<Committed>, KafkaError> {
    let mut list = TopicPartitionList::with_capacity(partitions.len());
    for at in partitions {
        list.add_partition(at.topic.as_str(), at.partition);
    }
    let found = consumer.committed_offsets(list, LOOK_UP)?;
    let mut committed = Vec::with_capacity(partitions.len());
    for topic_partition in partitions {
        let element = found
            .find_partition(topic_partition.topic.as_str(), topic_partition.partition)
            .ok_or(KafkaError::OffsetFetch(RDKafkaErrorCode::UnknownPartition))?;
        element.error()?;
        let offset = match element.offset() {
            Offset::Offset(offset) => Some(offset),
            _ => None,
        };
        // The interface panics at what is not UTF-8, and others may have written that.
        let metadata = std::panic::catch_unwind(AssertUnwindSafe(|| element.metadata().to_owned()))
            .map_err(|_| KafkaError::OffsetFetch(RDKafkaErrorCode::BadMessage))?;
        committed.push(Committed { topic_partition: topic_partition.clone(), offset, metadata });
    }
    Ok(committed)
}

/// The partitions of a list, sorted.
fn partitions(list: &TopicPartitionList) -> Vec<TopicPartition> {
    let mut partitions = Vec::with_capacity(list.count());
    for element in list.elements() {
        match TopicName::new(element.topic()) {
            Ok(topic) => partitions.push(TopicPartition::new(topic, element.partition())),
            Err(error) => tracing::error!(%error, "a topic of the assignment is left out"),
        }
    }
    partitions.sort();
    partitions
}

impl Context {
    fn tell(&self, happening: Happening) {
        let _nobody_listens = self.happenings.send(happening);
    }

    fn trouble(&self, error: &KafkaError) {
        let words = self.words.lock().clone();
        let words = if words.is_empty() { error.to_string() } else { words };
        let fatal = matches!(error, KafkaError::MessageConsumptionFatal(_));
        self.tell(Happening::Trouble { code: error.rdkafka_error_code(), fatal, words });
    }

    /// Takes what is assigned, paused. See the module. What is still to be given up from before is given up without further
    /// ado.
    fn take(&self, consumer: &Consumer, list: &mut TopicPartitionList) -> KafkaResult<()> {
        // Locked until the end: giving up means to give up all where the protocol is eager, also what is assigned here.
        let mut revoked = self.revoked.lock();
        if let Some(before) = revoked.overtaken() {
            tracing::warn!("partitions are assigned before those that were revoked are given up, which are dropped");
            if matches!(consumer.rebalance_protocol(), RebalanceProtocol::Cooperative) {
                consumer.incremental_unassign(&before)?;
            }
        }
        if let Some(shared) = self.consumer.get().and_then(Weak::upgrade) {
            for element in list.elements() {
                drop(shared.split_partition_queue(element.topic(), element.partition()));
            }
        }
        consumer.pause(list)?;
        for element in list.elements() {
            element.error()?;
        }
        // Any offset does, so long as it is one: a logical one would be looked up.
        list.set_all_offsets(Offset::Offset(0))?;
        match consumer.rebalance_protocol() {
            RebalanceProtocol::Cooperative => consumer.incremental_assign(list),
            RebalanceProtocol::Eager | RebalanceProtocol::None => consumer.assign(list),
        }
    }

    /// `turn`: only if nothing else was revoked or assigned since.
    fn give_up(&self, consumer: &Consumer, turn: Option<u64>) {
        let mut revoked = self.revoked.lock();
        if turn.is_some_and(|turn| turn != revoked.turn) {
            return;
        }
        let Some(list) = revoked.list.take() else { return };
        let given = match consumer.rebalance_protocol() {
            RebalanceProtocol::Cooperative => consumer.incremental_unassign(&list),
            RebalanceProtocol::Eager | RebalanceProtocol::None => consumer.unassign(),
        };
        if let Err(error) = given {
            tracing::warn!(%error, "partitions could not be given up in order");
        }
    }
}

impl ConsumerContext for Context {
    fn rebalance(&self, consumer: &Consumer, what: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let named = partitions(list);
        if what == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            match self.take(consumer, list) {
                Ok(()) => self.tell(Happening::Assigned(named)),
                Err(error) => {
                    let words = format!("the assigned partitions could not be taken: {error}");
                    self.tell(Happening::Trouble { code: error.rdkafka_error_code(), fatal: true, words });
                }
            }
            return;
        }
        let lost = consumer.assignment_lost();
        let turn = self.revoked.lock().add(list);
        let told = self.happenings.send(Happening::Revoked { partitions: named, lost, turn });
        if told.is_err() || self.leaving.load(Ordering::SeqCst) {
            self.give_up(consumer, None);
        }
    }
}

impl ClientContext for Context {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        librdkafka::log(&self.guard, level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let reason = self.guard.clean(reason);
        tracing::warn!(target: "librdkafka", %error, "{reason}");
        *self.words.lock() = reason;
    }

    fn generate_oauth_token(&self, _config: Option<&str>) -> Result<OAuthToken, Box<dyn std::error::Error>> {
        // Without NUL characters, which the caller cannot hand on.
        self.guard.token().map_err(|reason| reason.replace('\0', " ").into())
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::ApiKey;
    use tidegate_broker::testing::{Setup, TestCluster};
    use tidegate_broker::{Broker, BrokerConfig};

    use super::*;
    use crate::cluster::Cluster;
    use crate::config::ClusterConfig;
    use crate::group::options::{AssignmentStrategy, GroupOptions};
    use crate::produce::{Producer, ProducerSettings, RecordToSend};
    use crate::{NewTopic, Security};

    #[test]
    fn what_is_revoked_meanwhile_is_given_up_together_and_in_its_turn() {
        let list = |partitions: &[i32]| {
            let mut list = TopicPartitionList::new();
            for partition in partitions {
                list.add_partition("t", *partition);
            }
            list
        };
        let mut revoked = Revoked::default();
        assert!(revoked.overtaken().is_none());
        let first = revoked.add(&list(&[0, 1]));
        let second = revoked.add(&list(&[1, 2]));
        assert!(second > first && revoked.turn == second);
        let dropped = revoked.overtaken().unwrap();
        assert_eq!(partitions(&dropped).iter().map(|at| at.partition).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(revoked.turn > second && revoked.overtaken().is_none());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn librdkafka_never_fetches() {
        for assignment_strategy in [AssignmentStrategy::CooperativeSticky, AssignmentStrategy::Range] {
            let folder = tempfile::tempdir().unwrap();
            let broker = Broker::start(BrokerConfig::new(folder.path())).await.unwrap();
            let stand_in = TestCluster::start(broker.addr(), Setup { brokers: 3, ..Setup::default() }).await.unwrap();
            let cluster = ClusterConfig::new([stand_in.bootstrap()]);
            let topic = TopicName::new("t").unwrap();
            let new = NewTopic { name: topic.clone(), partitions: 12, replication_factor: 1, config: BTreeMap::new() };
            Cluster::connect(cluster.clone()).await.unwrap().create_topic(&new).await.unwrap();
            let producer = Producer::new(&cluster, ProducerSettings::default()).unwrap();
            let mut session = producer.session(&topic);
            for partition in 0..12 {
                let record = RecordToSend { partition: Some(partition), value: Some(b"v"), ..Default::default() };
                session.send(record).await.unwrap();
            }
            session.finish().await.unwrap();
            let options = GroupOptions {
                heartbeat_interval: Duration::from_millis(20),
                assignment_strategy,
                ..GroupOptions::new("g", ["t"])
            };
            // Again and again, for a race is what could let one through.
            for _ in 0..3 {
                let config = options.client_config(&cluster).unwrap();
                let guard = Guard::new(&Security::default()).unwrap();
                let (member, mut happenings) = Member::join(&config, guard, &options.topics).unwrap();
                let Some(Happening::Assigned(partitions)) = happenings.recv().await else { panic!("not assigned") };
                assert_eq!(partitions.len(), 12);
                let heartbeats = || stand_in.asked(ApiKey::Heartbeat).values().sum::<u64>();
                let before = heartbeats();
                while heartbeats() < before + 5 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                assert!(happenings.try_recv().is_err());
                member.leave().await;
            }
            assert!(stand_in.asked(ApiKey::Fetch).is_empty(), "{:?}", stand_in.asked(ApiKey::Fetch));
            assert!(stand_in.asked(ApiKey::ListOffsets).is_empty());
        }
    }
}

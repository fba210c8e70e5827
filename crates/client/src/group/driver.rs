//! The task that runs a source: it follows the member's rebalances, starts and stops the feeds, and sends the commits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::error::KafkaError;
use tidegate_model::{TopicName, TopicPartition};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::desk::Desk;
use super::drain::{Drain, LOOK, Next, Seen};
use super::error::GroupError;
use super::event::{AssignedPartition, GroupEvent};
use super::feed::{Feed, look_up_may_pass, pause};
use super::member::{Happening, Member};
use super::options::GroupOptions;
use super::start::{Policy, starts};
use super::verdict::{Verdict, of_commit, of_look_up, of_trouble};
use crate::cluster::Cluster;
use crate::fetch::Fetcher;

/// When to look again although nothing happens.
const IDLE: Duration = Duration::from_secs(60);

/// Tells the driver to end, and where to tell how that went.
pub(super) type Closing = oneshot::Sender<Result<(), GroupError>>;

pub(super) struct Driver {
    cluster: Cluster,
    /// All partitions share the connections to a broker.
    fetcher: Fetcher,
    options: Arc<GroupOptions>,
    policy: Policy,
    desk: Arc<Desk>,
    member: Member,
    happenings: mpsc::UnboundedReceiver<Happening>,
    held: BTreeMap<TopicPartition, Held>,
    /// What is being given up; librdkafka begins no other rebalance meanwhile.
    drain: Option<Drain>,
    tasks: JoinSet<Done>,
    assignments: u64,
    was_assigned: bool,
}

/// A partition that the group gave to this member.
struct Held {
    assignment: u64,
    /// Whether the consumer knows of it.
    told: bool,
    /// Shared by the partitions whose beginning is asked for together: while one of them is held, it is worth asking.
    asked: Arc<()>,
    /// From when it is known where it begins until its task has ended.
    feeding: Option<Feeding>,
}

/// The task that reads a partition.
struct Feeding {
    /// Tells it to hand over what it has, and end.
    stop: Option<oneshot::Sender<()>>,
    task: AbortHandle,
}

/// What a task ended with.
enum Done {
    /// Where partitions begin; each with its assignment.
    Starts(BTreeMap<TopicPartition, u64>, Result<Vec<AssignedPartition>, GroupError>),
    /// That is to be asked for each topic by itself, after so many failures.
    Apart(BTreeMap<TopicPartition, u64>, u32),
    Unwanted,
    Fed(TopicPartition, u64),
    Committed(Vec<TopicPartition>, Result<(), KafkaError>),
}

impl Driver {
    pub(super) fn new(
        cluster: Cluster,
        options: Arc<GroupOptions>,
        desk: Arc<Desk>,
        member: Member,
        happenings: mpsc::UnboundedReceiver<Happening>,
    ) -> Self {
        let policy = Policy { reset: options.auto_offset_reset, on_data_loss: options.on_data_loss };
        let mut fetching = cluster.config().fetching.clone();
        fetching.client_rack = options.client_rack.clone().or(fetching.client_rack);
        Self {
            fetcher: Fetcher::new(&cluster, fetching),
            cluster,
            options,
            policy,
            desk,
            member,
            happenings,
            held: BTreeMap::new(),
            drain: None,
            tasks: JoinSet::new(),
            assignments: 0,
            was_assigned: false,
        }
    }

    /// Runs until `closing` says to end, or is dropped.
    pub(super) async fn run(mut self, mut closing: oneshot::Receiver<Closing>) {
        let desk = Arc::clone(&self.desk);
        let asked = loop {
            self.go_on();
            let wake = self.wake_at();
            tokio::select! {
                asked = &mut closing => break asked.ok(),
                Some(happening) = self.happenings.recv() => self.follow(happening),
                Some(done) = self.tasks.join_next() => self.done(done),
                () = desk.moved.notified() => {}
                () = sleep_until(wake) => {}
            }
        };
        let closed = self.close().await;
        if let Err(error) = &closed {
            tracing::warn!(%error, "a group source closes with commits that are not acknowledged");
        }
        desk.fail(GroupError::TaskEnded);
        if let Some(asked) = asked {
            // Who asked may be gone.
            let _gone = asked.send(closed);
        }
    }

    /// When to look again although nothing happens.
    fn wake_at(&self) -> Instant {
        let now = Instant::now();
        let mut at = now + IDLE;
        if let Some(due) = self.desk.ledger(|ledger| ledger.due_at()) {
            at = at.min(due);
        }
        if self.drain.is_some() {
            at = at.min(now + LOOK);
        }
        at
    }

    /// Sends what is due, and goes on with a drain.
    fn go_on(&mut self) {
        self.go_on_draining();
        let hurried: Vec<TopicPartition> = self.drain.as_ref().map_or_else(Vec::new, |drain| {
            let last =
                |at: &TopicPartition| !self.desk.has_ready(at) && self.desk.ledger(|ledger| ledger.would_settle(at));
            drain.partitions().iter().filter(|at| drain.hurries() || last(at)).cloned().collect()
        });
        self.commit(|at| hurried.binary_search(at).is_ok());
    }

    /// Sends what is due. `hurried`: the partitions that do not wait for their turn.
    fn commit(&mut self, hurried: impl Fn(&TopicPartition) -> bool) {
        let marks = self.desk.ledger(|ledger| ledger.due(Instant::now(), hurried));
        if marks.is_empty() {
            return;
        }
        self.desk.count(|counts| counts.commit_requests += 1);
        let partitions = marks.keys().cloned().collect();
        let answer = self.member.caller().commit(marks);
        self.tasks.spawn(async move { Done::Committed(partitions, answer.await) });
    }

    fn follow(&mut self, happening: Happening) {
        match happening {
            Happening::Assigned(partitions) => self.assigned(partitions),
            Happening::Revoked { partitions, lost: true } => self.lost(&partitions),
            Happening::Revoked { partitions, lost: false } => self.revoking(partitions),
            Happening::Trouble { code, fatal, words } => {
                match of_trouble(&self.options, code, fatal, self.was_assigned, words) {
                    Verdict::Pass => {}
                    Verdict::End(error) => self.fail(error),
                }
            }
            Happening::Stray => self.desk.count(|counts| counts.stray_messages += 1),
        }
    }

    /// Nothing is read any more; what is ready is still handed out, and then the error.
    fn fail(&mut self, error: GroupError) {
        self.desk.fail(error);
        self.stop_feeds();
    }

    fn stop_feeds(&mut self) {
        for held in self.held.values_mut() {
            if let Some(feeding) = held.feeding.take() {
                feeding.task.abort();
            }
        }
    }

    fn assigned(&mut self, partitions: Vec<TopicPartition>) {
        self.was_assigned = true;
        // There are none of them, or librdkafka counts otherwise than we do.
        self.release(&partitions);
        let mut asked = BTreeMap::new();
        for at in partitions {
            self.assignments += 1;
            let held = Held { assignment: self.assignments, told: false, asked: Arc::default(), feeding: None };
            self.held.insert(at.clone(), held);
            asked.insert(at, self.assignments);
        }
        self.find_starts(asked, 0);
    }

    /// Asks where partitions begin, after so many failures, until it is known or nobody holds them any more.
    fn find_starts(&mut self, asked: BTreeMap<TopicPartition, u64>, mut failures: u32) {
        let token = Arc::new(());
        for (at, assignment) in &asked {
            if let Some(held) = self.held.get_mut(at).filter(|held| held.assignment == *assignment) {
                held.asked = Arc::clone(&token);
            }
        }
        let wanted = Arc::downgrade(&token);
        drop(token);
        let (cluster, policy, isolation) = (self.cluster.clone(), self.policy, self.options.isolation);
        let caller = self.member.caller();
        self.tasks.spawn(async move {
            let partitions: Vec<TopicPartition> = asked.keys().cloned().collect();
            while wanted.strong_count() > 0 {
                let error = match caller.committed(partitions.clone()).await {
                    Ok(committed) => match starts(&cluster, committed, isolation, policy).await {
                        Err(GroupError::Offsets(error)) if look_up_may_pass(&error) => error.to_string(),
                        settled => return Done::Starts(asked, settled),
                    },
                    Err(error) => match of_look_up(&partitions, &error) {
                        Verdict::Pass => error.to_string(),
                        Verdict::End(error) => return Done::Starts(asked, Err(error)),
                    },
                };
                tracing::warn!(error, "where the assigned partitions begin is asked again");
                tokio::time::sleep(pause(failures)).await;
                failures += 1;
                if partitions.iter().any(|at| at.topic != partitions[0].topic) {
                    return Done::Apart(asked, failures);
                }
            }
            Done::Unwanted
        });
    }

    fn done(&mut self, done: Result<Done, JoinError>) {
        match done {
            Err(error) if error.is_panic() => self.fail(GroupError::TaskEnded),
            // A feed that was aborted.
            Err(_) | Ok(Done::Unwanted) => {}
            Ok(Done::Fed(at, assignment)) => {
                if let Some(held) = self.held.get_mut(&at).filter(|held| held.assignment == assignment) {
                    held.feeding = None;
                }
                // That may be why it ended.
                if self.desk.has_failed() {
                    self.stop_feeds();
                }
            }
            Ok(Done::Committed(partitions, result)) => self.committed(partitions, &result),
            Ok(Done::Starts(asked, Ok(found))) => self.start(&asked, found),
            Ok(Done::Starts(asked, Err(error))) => {
                // What is not held any more concerns nobody.
                let still = |(at, assignment): (&TopicPartition, &u64)| {
                    self.held.get(at).is_some_and(|held| held.assignment == *assignment)
                };
                if asked.iter().any(still) {
                    self.fail(error);
                }
            }
            Ok(Done::Apart(asked, failures)) => {
                // One topic in trouble is not to hold the others up.
                let mut by_topic = BTreeMap::<TopicName, BTreeMap<TopicPartition, u64>>::new();
                for (at, assignment) in asked {
                    by_topic.entry(at.topic.clone()).or_default().insert(at, assignment);
                }
                for asked in by_topic.into_values() {
                    self.find_starts(asked, failures);
                }
            }
        }
    }

    fn committed(&mut self, partitions: Vec<TopicPartition>, result: &Result<(), KafkaError>) {
        self.desk.ledger(|ledger| ledger.answered(Instant::now(), result.is_ok()));
        if let Err(error) = result {
            match of_commit(&self.options, partitions, error) {
                Verdict::Pass => tracing::warn!(%error, "a commit is tried again"),
                Verdict::End(error) => self.fail(error),
            }
        }
    }

    fn start(&mut self, asked: &BTreeMap<TopicPartition, u64>, found: Vec<AssignedPartition>) {
        if self.desk.has_failed() {
            return;
        }
        let draining = |at: &TopicPartition| self.drain.as_ref().is_some_and(|drain| drain.holds(at));
        let mut taken = Vec::new();
        for partition in found {
            let at = &partition.topic_partition;
            if draining(at) {
                continue;
            }
            let held = self.held.get_mut(at).filter(|held| asked.get(at) == Some(&held.assignment));
            if let Some(held) = held {
                held.told = true;
                taken.push((held.assignment, partition));
            }
        }
        if taken.is_empty() {
            return;
        }
        // Before anything reads: a chunk must not come before its partition is told.
        self.desk.open(&taken);
        for (assignment, partition) in taken {
            self.feed(assignment, partition);
        }
    }

    /// Begins to read a partition.
    fn feed(&mut self, assignment: u64, partition: AssignedPartition) {
        let at = partition.topic_partition;
        let Some(held) = self.held.get_mut(&at) else { return };
        let feed = Feed {
            cluster: self.cluster.clone(),
            fetcher: self.fetcher.clone(),
            options: Arc::clone(&self.options),
            policy: self.policy,
            desk: Arc::clone(&self.desk),
            at: at.clone(),
            assignment,
            from: partition.start,
        };
        let (stop, stopped) = oneshot::channel();
        let task = self.tasks.spawn(async move {
            feed.run(stopped).await;
            Done::Fed(at, assignment)
        });
        held.feeding = Some(Feeding { stop: Some(stop), task });
    }

    /// Partitions are to be given up: what was fetched of them is still handed out, and nothing more is fetched.
    fn revoking(&mut self, partitions: Vec<TopicPartition>) {
        let until = Instant::now() + self.options.drain_limit();
        let mut told = Vec::new();
        for at in &partitions {
            if let Some(held) = self.held.get_mut(at) {
                // The task goes on until it has handed over, and says so.
                if let Some(stop) = held.feeding.as_mut().and_then(|feeding| feeding.stop.take()) {
                    let _told = stop.send(());
                }
                if held.told {
                    told.push(at.clone());
                }
            }
        }
        if !told.is_empty() {
            self.desk.tell(GroupEvent::Revoking { partitions: told, until });
        }
        self.drain = Some(Drain::new(partitions, until, self.options.commit_limit()));
    }

    fn go_on_draining(&mut self) {
        let Some(drain) = &mut self.drain else { return };
        if self.member.has_lost() {
            let partitions = drain.partitions().to_vec();
            self.lost(&partitions);
            return;
        }
        let (desk, held) = (&self.desk, &self.held);
        let failed = desk.has_failed();
        let next = drain.next(Instant::now(), |at| Seen {
            fetching: held.get(at).is_some_and(|held| held.feeding.is_some()),
            ready: desk.has_ready(at),
            settled: desk.ledger(|ledger| ledger.is_settled(at)),
            clean: desk.ledger(|ledger| ledger.is_clean(at)),
            failed,
        });
        match next {
            Next::Wait => {}
            Next::Withdraw(partitions) => {
                for at in &partitions {
                    if let Some(feeding) = self.held.get_mut(at).and_then(|held| held.feeding.take()) {
                        feeding.task.abort();
                    }
                    self.desk.withdraw(at);
                }
            }
            Next::GiveUp(partitions) => {
                self.member.give_up();
                let told = self.release(&partitions);
                self.drain = None;
                if !told.is_empty() {
                    self.desk.tell(GroupEvent::Revoked { partitions: told });
                }
            }
        }
    }

    /// Partitions are gone already: nothing of them is handed out or committed any more.
    fn lost(&mut self, partitions: &[TopicPartition]) {
        let told = self.release(partitions);
        self.drain = None;
        if !told.is_empty() {
            self.desk.tell(GroupEvent::Lost { partitions: told });
        }
        self.member.give_up();
    }

    /// Forgets partitions; those that the consumer knew of.
    fn release(&mut self, partitions: &[TopicPartition]) -> Vec<TopicPartition> {
        let mut told = Vec::new();
        for at in partitions {
            let Some(held) = self.held.remove(at) else { continue };
            if let Some(feeding) = held.feeding {
                feeding.task.abort();
            }
            self.desk.release(at);
            if held.told {
                told.push(at.clone());
            }
        }
        told
    }

    /// Commits what is marked, leaves the group, and waits until librdkafka has ended.
    async fn close(mut self) -> Result<(), GroupError> {
        self.stop_feeds();
        self.desk.withdraw_all();
        let after = self.options.commit_limit();
        let deadline = Instant::now() + after;
        let mut failed_for_good = None;
        let unfinished = loop {
            if self.member.has_lost() {
                break Vec::new();
            }
            self.commit(|_| true);
            let unclean = self.desk.ledger(|ledger| ledger.unclean());
            if unclean.is_empty() || failed_for_good.is_some() {
                break unclean;
            }
            tokio::select! {
                Some(happening) = self.happenings.recv() => {
                    if let Happening::Revoked { partitions, lost: true } = happening {
                        self.lost(&partitions);
                    }
                }
                Some(done) = self.tasks.join_next() => {
                    if let Ok(Done::Committed(partitions, result)) = done {
                        self.desk.ledger(|ledger| ledger.answered(Instant::now(), result.is_ok()));
                        if let Err(error) = result
                            && let Verdict::End(error) = of_commit(&self.options, partitions, &error)
                        {
                            failed_for_good = Some(error);
                        }
                    }
                }
                () = sleep_until(deadline.min(Instant::now() + LOOK)) => {
                    if Instant::now() >= deadline {
                        break unclean;
                    }
                }
            }
        };
        self.member.give_up();
        self.tasks.abort_all();
        self.member.leave().await;
        match failed_for_good {
            Some(error) => Err(error),
            None if unfinished.is_empty() => Ok(()),
            None => Err(GroupError::CommitUnfinished { partitions: unfinished, after }),
        }
    }
}

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
use super::ledger::{Answer, Ledger};
use super::member::{Happening, Member};
use super::options::GroupOptions;
use super::start::{Policy, starts};
use super::verdict::{Verdict, is_of_an_unknown_topic, of_commit, of_look_up, of_trouble};
use crate::cluster::{Cluster, MetadataError};
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
    /// What is being given up.
    drain: Option<Drain>,
    /// The latest rebalance that took something away.
    turn: u64,
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
    /// It is being asked whether the topic is gone.
    looks: bool,
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
    /// That is to be asked for each of these by itself, after so many failures: what is in trouble must not hold the others
    /// up.
    Apart(Vec<BTreeMap<TopicPartition, u64>>, u32),
    Unwanted,
    Fed(TopicPartition, u64),
    Committed(Vec<TopicPartition>, Result<(), KafkaError>),
    /// Whether the topic of a partition is gone whose commit failed as if it were.
    Looked {
        at: TopicPartition,
        assignment: u64,
        gone: bool,
    },
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
            turn: 0,
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
        desk.close(GroupError::TaskEnded);
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
            Happening::Revoked { partitions, lost, turn } => {
                self.turn = turn;
                if lost { self.lost(partitions) } else { self.revoking(partitions) }
            }
            Happening::Trouble { code, fatal, words } => {
                match of_trouble(&self.options, code, fatal, self.was_assigned, words) {
                    Verdict::Pass => {}
                    Verdict::End(error) => {
                        if fatal {
                            // librdkafka has dropped its partitions, and tells nobody.
                            let all = self.held.keys().cloned().collect();
                            self.lost(all);
                        }
                        self.fail(error);
                    }
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
        // What is still being given up was overtaken: librdkafka has dropped it. And what is assigned was not held, or
        // librdkafka counts otherwise than we do.
        let mut gone = self.drain.take().map_or_else(Vec::new, Drain::into_partitions);
        gone.extend(partitions.iter().cloned());
        self.drop_lost(&gone);
        let mut asked = BTreeMap::new();
        for at in partitions {
            self.assignments += 1;
            let held =
                Held { assignment: self.assignments, told: false, asked: Arc::default(), looks: false, feeding: None };
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
                let mut of = None;
                let error = match caller.committed(partitions.clone()).await {
                    Ok(committed) => match starts(&cluster, committed, isolation, policy).await {
                        Err(GroupError::Offsets(error)) if look_up_may_pass(&error) => {
                            of = error.topic_partition().cloned();
                            error.to_string()
                        }
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
                let parts = apart(&asked, of.as_ref());
                if parts.len() > 1 {
                    return Done::Apart(parts, failures);
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
            Ok(Done::Committed(partitions, result)) => {
                if let Err(error) = self.committed(partitions, result) {
                    self.fail(error);
                }
            }
            Ok(Done::Looked { at, assignment, gone }) => self.looked(&at, assignment, gone),
            Ok(Done::Starts(asked, Ok(found))) => self.start(&asked, found),
            Ok(Done::Starts(asked, Err(error))) => {
                // What is not held any more concerns nobody, and it may be what the error is about.
                let draining = |at: &TopicPartition| self.drain.as_ref().is_some_and(|drain| drain.holds(at));
                let is_wanted = |(at, assignment): &(TopicPartition, u64)| {
                    self.held.get(at).is_some_and(|held| held.assignment == *assignment) && !draining(at)
                };
                let all = asked.len();
                let wanted: BTreeMap<_, _> = asked.into_iter().filter(is_wanted).collect();
                if wanted.len() == all {
                    self.fail(error);
                } else if !wanted.is_empty() {
                    self.find_starts(wanted, 0);
                }
            }
            Ok(Done::Apart(parts, failures)) => {
                for asked in parts {
                    self.find_starts(asked, failures);
                }
            }
        }
    }

    /// A commit is answered.
    fn committed(
        &mut self,
        mut partitions: Vec<TopicPartition>,
        result: Result<(), KafkaError>,
    ) -> Result<(), GroupError> {
        let answer = match &result {
            Ok(()) => Answer::Written,
            Err(error) if is_of_an_unknown_topic(error) => Answer::FailedForOne,
            Err(_) => Answer::Failed,
        };
        self.desk.ledger(|ledger| ledger.answered(Instant::now(), answer));
        let Err(error) = result else { return Ok(()) };
        if let (Answer::FailedForOne, [_]) = (answer, &*partitions) {
            self.look(partitions.remove(0));
            return Ok(());
        }
        match of_commit(&self.options, partitions, &error) {
            Verdict::Pass => {
                tracing::warn!(%error, "a commit is tried again");
                Ok(())
            }
            Verdict::End(error) => Err(error),
        }
    }

    /// Asks whether the topic of a partition is gone.
    fn look(&mut self, at: TopicPartition) {
        let Some(held) = self.held.get_mut(&at).filter(|held| !held.looks) else { return };
        held.looks = true;
        let (cluster, assignment) = (self.cluster.clone(), held.assignment);
        self.tasks.spawn(async move {
            let gone = match cluster.topic(&at.topic).await {
                Ok(topic) => topic.partitions.iter().all(|found| found.partition != at.partition),
                Err(MetadataError::UnknownTopic { .. }) => true,
                Err(_) => false,
            };
            Done::Looked { at, assignment, gone }
        });
    }

    fn looked(&mut self, at: &TopicPartition, assignment: u64, gone: bool) {
        if let Some(held) = self.held.get_mut(at).filter(|held| held.assignment == assignment) {
            held.looks = false;
        }
        if gone && self.desk.ledger(|ledger| ledger.gone(at, assignment)) {
            tracing::warn!(partition = %at, "the topic is gone: what is marked there is not committed");
            self.desk.count(|counts| counts.commits_dropped += 1);
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
        let until = self.drain.as_ref().map_or_else(|| Instant::now() + self.options.drain_limit(), Drain::until);
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
        match &mut self.drain {
            Some(drain) => drain.add(partitions),
            None => self.drain = Some(Drain::new(partitions, until, self.options.commit_limit())),
        }
    }

    fn go_on_draining(&mut self) {
        let Some(drain) = &mut self.drain else { return };
        if self.member.has_lost() {
            self.lost(Vec::new());
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
            Next::GiveUp { partitions, forced } => {
                if !self.desk.release(&partitions, forced) {
                    // Something was marked this moment; it goes out first.
                    return;
                }
                let told = self.forget(&partitions);
                self.member.give_up(self.turn);
                self.drain = None;
                if !told.is_empty() {
                    self.desk.tell(GroupEvent::Revoked { partitions: told });
                }
            }
        }
    }

    /// Partitions are gone already, with those that were being given up: nothing of them is handed out or committed any more.
    fn lost(&mut self, mut partitions: Vec<TopicPartition>) {
        partitions.extend(self.drain.take().map_or_else(Vec::new, Drain::into_partitions));
        self.drop_lost(&partitions);
        self.member.give_up(self.turn);
    }

    fn drop_lost(&mut self, partitions: &[TopicPartition]) {
        self.desk.release(partitions, true);
        let mut told = self.forget(partitions);
        told.sort();
        if !told.is_empty() {
            self.desk.tell(GroupEvent::Lost { partitions: told });
        }
    }

    /// Partitions are not held any more; those that the consumer knew of.
    fn forget(&mut self, partitions: &[TopicPartition]) -> Vec<TopicPartition> {
        let mut told = Vec::new();
        for at in partitions {
            let Some(held) = self.held.remove(at) else { continue };
            if let Some(feeding) = held.feeding {
                feeding.task.abort();
            }
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
            let unclean = self.desk.finish();
            if unclean.is_empty() || failed_for_good.is_some() {
                break unclean;
            }
            tokio::select! {
                Some(happening) = self.happenings.recv() => {
                    if let Happening::Revoked { partitions, lost: true, turn } = happening {
                        self.turn = turn;
                        self.lost(partitions);
                    }
                }
                Some(done) = self.tasks.join_next() => match done {
                    Ok(Done::Committed(partitions, result)) => failed_for_good = self.committed(partitions, result).err(),
                    Ok(Done::Looked { at, assignment, gone }) => self.looked(&at, assignment, gone),
                    _ => {}
                },
                () = sleep_until(deadline.min(Instant::now() + LOOK)) => {
                    if Instant::now() >= deadline {
                        break unclean;
                    }
                }
            }
        };
        self.desk.ledger(Ledger::clear);
        self.member.give_up_all();
        self.tasks.abort_all();
        self.member.leave().await;
        match failed_for_good {
            Some(error) => Err(error),
            None if unfinished.is_empty() => Ok(()),
            None => Err(GroupError::CommitUnfinished { partitions: unfinished, after }),
        }
    }
}

/// What is asked for together, cut apart after a failure that concerned `of`, if it is known: that partition and the others;
/// else the topics, if there are several.
fn apart(asked: &BTreeMap<TopicPartition, u64>, of: Option<&TopicPartition>) -> Vec<BTreeMap<TopicPartition, u64>> {
    let mut parts = BTreeMap::<(bool, Option<&TopicName>), BTreeMap<TopicPartition, u64>>::new();
    for (at, assignment) in asked {
        let part = (Some(at) == of, Some(&at.topic).filter(|_| of.is_none()));
        parts.entry(part).or_default().insert(at.clone(), *assignment);
    }
    parts.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_trouble_is_asked_for_apart() {
        let at = |topic: &str, partition| TopicPartition::new(TopicName::new(topic).unwrap(), partition);
        let asked = BTreeMap::from([(at("a", 0), 1), (at("a", 1), 2), (at("b", 0), 3)]);
        let assignments = |of: Option<&TopicPartition>| -> Vec<Vec<u64>> {
            apart(&asked, of).into_iter().map(|part| part.into_values().collect()).collect()
        };
        assert_eq!(assignments(Some(&at("a", 1))), [vec![1, 3], vec![2]]);
        assert_eq!(assignments(None), [vec![1, 2], vec![3]]);
        assert_eq!(assignments(Some(&at("c", 1))), [vec![1, 2, 3]]);
        let one = BTreeMap::from([(at("a", 1), 2)]);
        assert_eq!(apart(&one, Some(&at("a", 1))), std::slice::from_ref(&one));
        assert_eq!(apart(&one, None), [one]);
    }
}

//! The coordinator of consumer groups: who waits for what, and the groups' state.
//!
//! What a group does is decided in [`machine`]; here are the lock, the clock's place, the limits over all groups, and the
//! answers on their way to those who wait.

pub(crate) mod machine;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::config::BrokerConfig;
use crate::storage::offsets::{Change, OffsetStore, Queued};
use machine::{Action, Group, GroupSettings, Join, Joined, MemberId, StateName, Sync, Synced, Ticket};

/// All groups that have members.
#[derive(Debug)]
pub(crate) struct Groups {
    settings: GroupSettings,
    most_groups: usize,
    most_bytes: usize,
    inner: Mutex<Inner>,
    earlier: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    groups: HashMap<String, Group>,
    waiting: HashMap<Ticket, Waiting>,
    last_ticket: u64,
    /// What the groups hold, see [`Group::bytes`].
    bytes: usize,
    /// Until when the timer sleeps; `None`: for ever.
    timer: Option<Instant>,
}

/// Whether a member left.
pub(crate) type Leave = Result<(), ResponseError>;

#[derive(Debug)]
enum Waiting {
    Join(oneshot::Sender<Joined>),
    Sync(oneshot::Sender<Result<Synced, ResponseError>>),
}

/// Somebody's place in the queue for an answer. Dropping it tells the group that nobody waits any more.
#[derive(Debug)]
pub(crate) struct Held<'a, T> {
    groups: &'a Groups,
    group: String,
    ticket: Ticket,
    answer: oneshot::Receiver<T>,
}

/// A group as DescribeGroups tells it.
#[derive(Debug)]
pub(crate) struct Described {
    pub(crate) state: StateName,
    pub(crate) protocol_type: String,
    pub(crate) protocol: String,
    pub(crate) members: Vec<DescribedMember>,
}

#[derive(Debug)]
pub(crate) struct DescribedMember {
    pub(crate) id: MemberId,
    pub(crate) instance: Option<Arc<str>>,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    pub(crate) metadata: Bytes,
    pub(crate) assignment: Bytes,
}

impl Groups {
    pub(crate) fn new(config: &BrokerConfig) -> Self {
        Self {
            settings: GroupSettings {
                initial_delay: config.group_initial_rebalance_delay,
                most_members: config.limits.max_group_members,
            },
            most_groups: config.limits.max_groups,
            most_bytes: config.limits.group_memory_bytes,
            inner: Mutex::default(),
            earlier: Notify::new(),
        }
    }

    /// Lets a member join; the answer comes when the rebalance is over.
    pub(crate) fn join(&self, group: &str, join: Join, now: Instant) -> Result<Held<'_, Joined>, ResponseError> {
        let mut inner = self.inner.lock();
        if !inner.groups.contains_key(group) {
            if !join.member_id.is_empty() {
                return Err(ResponseError::UnknownMemberId);
            }
            if inner.groups.len() >= self.most_groups {
                tracing::warn!(
                    group,
                    limit = self.most_groups,
                    "refusing a consumer group: there are as many as may be"
                );
                return Err(ResponseError::GroupMaxSizeReached);
            }
        }
        let protocols: usize = join.protocols.iter().map(|(name, metadata)| name.len() + metadata.len()).sum();
        if inner.bytes.saturating_add(protocols + join.protocol_type.len()) > self.most_bytes {
            tracing::warn!(
                group,
                limit = self.most_bytes,
                "refusing a member: the groups hold as many bytes as they may"
            );
            return Err(ResponseError::GroupMaxSizeReached);
        }
        let (sender, answer) = oneshot::channel();
        let ticket = inner.ticket(Waiting::Join(sender));
        inner.groups.entry(group.to_owned()).or_insert_with(|| Group::new(self.settings));
        self.on(&mut inner, group, |group| (group.join(join, ticket, now), ()));
        Ok(Held { groups: self, group: group.to_owned(), ticket, answer })
    }

    /// Hands in the leader's assignment or asks for one; the answer comes with the leader's.
    pub(crate) fn sync(
        &self,
        group: &str,
        sync: Sync,
        now: Instant,
    ) -> Result<Held<'_, Result<Synced, ResponseError>>, ResponseError> {
        let mut inner = self.inner.lock();
        let bytes: usize = sync.assignments.iter().map(|(_, assignment)| assignment.len()).sum();
        if inner.bytes.saturating_add(bytes) > self.most_bytes {
            tracing::warn!(
                group,
                limit = self.most_bytes,
                "refusing an assignment: the groups hold as many bytes as they may"
            );
            return Err(ResponseError::UnknownServerError);
        }
        if !inner.groups.contains_key(group) {
            return Err(ResponseError::UnknownMemberId);
        }
        let (sender, answer) = oneshot::channel();
        let ticket = inner.ticket(Waiting::Sync(sender));
        self.on(&mut inner, group, |group| (group.sync(sync, ticket, now), ()));
        Ok(Held { groups: self, group: group.to_owned(), ticket, answer })
    }

    pub(crate) fn heartbeat(
        &self,
        group: &str,
        id: &MemberId,
        instance: Option<&Arc<str>>,
        generation: i32,
        now: Instant,
    ) -> Result<(), ResponseError> {
        let mut inner = self.inner.lock();
        // It moves deadlines away and answers nobody, so nothing else follows from it.
        let group = inner.groups.get_mut(group).ok_or(ResponseError::UnknownMemberId)?;
        group.heartbeat(id, instance, generation, now)
    }

    /// Lets members go, by id or by instance id alone. Answers for each.
    pub(crate) fn leave(&self, group: &str, members: &[(MemberId, Option<Arc<str>>)], now: Instant) -> Vec<Leave> {
        let mut inner = self.inner.lock();
        let left = self.on(&mut inner, group, |group| {
            let mut actions = Vec::new();
            let left = members.iter().map(|(id, instance)| {
                let (answers, left) = group.leave(id, instance.as_ref(), now);
                actions.extend(answers);
                left
            });
            let left = left.collect();
            (actions, left)
        });
        left.unwrap_or_else(|| vec![Err(ResponseError::UnknownMemberId); members.len()])
    }

    /// Checks that offsets may be committed on behalf of a member, and gives the commit its place in the order: before what
    /// another member commits after a rebalance. `change` is told what the members call themselves.
    pub(crate) fn queue_commit(
        &self,
        group: &str,
        (id, instance, generation): (&MemberId, Option<&Arc<str>>, i32),
        store: &OffsetStore,
        now: Instant,
        change: impl FnOnce(String) -> Change,
    ) -> Result<Queued, ResponseError> {
        let mut inner = self.inner.lock();
        let protocol_type = match inner.groups.get_mut(group) {
            Some(of) => {
                of.check_commit(id, instance, generation, now)?;
                Some(of.protocol_type()).filter(|known| !known.is_empty()).map(str::to_owned)
            }
            None if generation >= 0 => return Err(ResponseError::IllegalGeneration),
            None => None,
        };
        // Committed by a consumer that was given its partitions, or by a tool: a group of members keeps its name.
        let protocol_type = protocol_type.unwrap_or_else(|| store.protocol_type(group));
        store.enqueue(change(protocol_type)).map_err(|error| {
            tracing::warn!(group, %error, "refusing a commit");
            ResponseError::InvalidCommitOffsetSize
        })
    }

    /// Queues a change to the offsets of a group if `allowed` says so of its members' topics and state.
    pub(crate) fn queue_change(
        &self,
        change: Change,
        store: &OffsetStore,
        allowed: impl FnOnce(Option<&Group>) -> Result<(), ResponseError>,
    ) -> Result<Queued, ResponseError> {
        let inner = self.inner.lock();
        allowed(inner.groups.get(&change.group))?;
        store.enqueue(change).map_err(|_| ResponseError::UnknownServerError)
    }

    /// The groups that have members or are about to, with state and protocol type.
    pub(crate) fn list(&self) -> Vec<(String, StateName, String)> {
        let inner = self.inner.lock();
        inner.groups.iter().map(|(name, of)| (name.clone(), of.state(), of.protocol_type().to_owned())).collect()
    }

    /// `None` when nobody is in it or about to come.
    pub(crate) fn describe(&self, group: &str) -> Option<Described> {
        let inner = self.inner.lock();
        let of = inner.groups.get(group)?;
        let state = of.state();
        // In between, nobody knows yet what the members will say of themselves.
        let protocol = of.protocol().filter(|_| state == StateName::Stable);
        let members = of.members().map(|(id, member)| DescribedMember {
            id: Arc::clone(id),
            instance: member.instance.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            metadata: member.metadata(protocol),
            assignment: if protocol.is_some() { member.assignment.clone() } else { Bytes::new() },
        });
        Some(Described {
            state,
            protocol_type: of.protocol_type().to_owned(),
            protocol: protocol.unwrap_or_default().to_owned(),
            members: members.collect(),
        })
    }

    /// Does what is due in all groups. Answers when there is something to do next.
    pub(crate) fn expire(&self, now: Instant) -> Option<Instant> {
        let mut inner = self.inner.lock();
        let due = |group: &Group| group.next_deadline().is_some_and(|deadline| deadline <= now);
        let groups: Vec<String> =
            inner.groups.iter().filter(|(_, group)| due(group)).map(|(name, _)| name.clone()).collect();
        for group in groups {
            self.on(&mut inner, &group, |group| (group.expire(now), ()));
        }
        inner.timer = inner.groups.values().filter_map(Group::next_deadline).min();
        inner.timer
    }

    /// Returns when something has become due earlier than [`Groups::expire`] said last.
    pub(crate) async fn earlier(&self) {
        self.earlier.notified().await;
    }

    /// Does something to a group that is there, answers those to whom an answer is due, and forgets the group when it is
    /// over.
    fn on<T>(&self, inner: &mut Inner, name: &str, event: impl FnOnce(&mut Group) -> (Vec<Action>, T)) -> Option<T> {
        let group = inner.groups.get_mut(name)?;
        let before = group.bytes();
        let (actions, result) = event(group);
        let (after, next, over) = (group.bytes(), group.next_deadline(), group.is_over());
        inner.bytes = (inner.bytes + after).saturating_sub(before);
        for action in actions {
            inner.answer(action);
        }
        if over {
            inner.bytes = inner.bytes.saturating_sub(after);
            inner.groups.remove(name);
        } else if next.is_some_and(|next| inner.timer.is_none_or(|timer| next < timer)) {
            inner.timer = next;
            self.earlier.notify_one();
        }
        Some(result)
    }
}

impl Inner {
    fn ticket(&mut self, waiting: Waiting) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.waiting.insert(ticket, waiting);
        ticket
    }

    /// Whoever has hung up meanwhile does not get it: its session decides what becomes of the member.
    fn answer(&mut self, action: Action) {
        match action {
            Action::Joined(ticket, joined) => {
                if let Some(Waiting::Join(sender)) = self.waiting.remove(&ticket) {
                    let _ = sender.send(joined);
                }
            }
            Action::Synced(ticket, synced) => {
                if let Some(Waiting::Sync(sender)) = self.waiting.remove(&ticket) {
                    let _ = sender.send(synced);
                }
            }
        }
    }
}

impl<T> Held<'_, T> {
    /// Waits for the answer. `None` when there will be none: a bug.
    pub(crate) async fn answer(mut self) -> Option<T> {
        (&mut self.answer).await.ok()
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        let mut inner = self.groups.inner.lock();
        if inner.waiting.remove(&self.ticket).is_some() {
            let (ticket, now) = (self.ticket, Instant::now());
            self.groups.on(&mut inner, &self.group, |group| (group.hung_up(ticket, now), ()));
        }
    }
}

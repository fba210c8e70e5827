//! One consumer group under the classic protocol, as a state machine.
//!
//! It takes events with the time at which they happen and says who is to be answered what. It knows no clock, no socket and
//! no lock, so every order of events can be tried in a test.
//!
//! Source: `org.apache.kafka.coordinator.group.GroupMetadataManager` and `ClassicGroup`; KIP-62 (rebalance timeout),
//! KIP-345 (static members), KIP-394 (a new member joins with the id that it was given), KIP-814 (skipped assignment).

mod rebalance;
mod types;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::ResponseError;

pub(crate) use types::{Action, GroupSettings, Join, Joined, JoinedMember, MemberId, StateName, Sync, Synced, Ticket};

#[derive(Clone, Copy, Debug)]
enum Phase {
    Empty,
    /// Members are called to join; whoever has not by the deadline is out.
    Preparing {
        deadline: Instant,
        initial: Option<Initial>,
    },
    /// The leader works out the assignment.
    Completing,
    Stable,
}

/// The first rebalance of an empty group waits for a while, so that members started together meet in one generation.
#[derive(Clone, Copy, Debug)]
struct Initial {
    /// It is not put off beyond this.
    latest: Instant,
    /// Somebody came since it was last put off.
    newcomer: bool,
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) instance: Option<Arc<str>>,
    pub(super) client_id: String,
    pub(super) client_host: String,
    session_timeout: Duration,
    rebalance_timeout: Duration,
    pub(super) protocols: Vec<(String, Bytes)>,
    pub(super) assignment: Bytes,
    /// Its place in the order of arrival.
    order: u64,
    /// It is out when nothing was heard of it by then, unless it waits for an answer of ours.
    deadline: Instant,
    joining: Option<Ticket>,
    syncing: Option<Ticket>,
    /// It was told of the present generation and has not asked for its assignment.
    must_sync: bool,
    /// Whether the client can know its id: nobody comes back under an id that was never told.
    id_told: bool,
}

impl Member {
    fn waits(&self) -> bool {
        self.joining.is_some() || self.syncing.is_some()
    }

    pub(super) fn metadata(&self, protocol: Option<&str>) -> Bytes {
        let found = self.protocols.iter().find(|(name, _)| Some(name.as_str()) == protocol);
        found.map(|(_, metadata)| metadata.clone()).unwrap_or_default()
    }

    fn supports(&self, protocol: &str) -> bool {
        self.protocols.iter().any(|(name, _)| name == protocol)
    }
}

/// A group.
#[derive(Debug)]
pub(crate) struct Group {
    settings: GroupSettings,
    phase: Phase,
    generation: i32,
    protocol_type: String,
    protocol: Option<String>,
    leader: Option<MemberId>,
    members: BTreeMap<MemberId, Member>,
    instances: HashMap<Arc<str>, MemberId>,
    /// Ids that were given out and not joined with (KIP-394), and until when they may be.
    pending: HashMap<MemberId, Instant>,
    /// Whoever has not asked for its assignment by then is out.
    sync_deadline: Option<Instant>,
    arrivals: u64,
}

/// What a member costs beside its bytes.
const MEMBER_BYTES: usize = 512;

/// Why a join is answered at once, and with which id.
struct Refused(ResponseError, Option<MemberId>);

impl From<ResponseError> for Refused {
    fn from(error: ResponseError) -> Self {
        Self(error, None)
    }
}

impl Group {
    pub(crate) fn new(settings: GroupSettings) -> Self {
        Self {
            settings,
            phase: Phase::Empty,
            generation: 0,
            protocol_type: String::new(),
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            instances: HashMap::new(),
            pending: HashMap::new(),
            sync_deadline: None,
            arrivals: 0,
        }
    }

    pub(crate) fn state(&self) -> StateName {
        match self.phase {
            Phase::Empty => StateName::Empty,
            Phase::Preparing { .. } => StateName::PreparingRebalance,
            Phase::Completing => StateName::CompletingRebalance,
            Phase::Stable => StateName::Stable,
        }
    }

    pub(crate) fn protocol_type(&self) -> &str {
        &self.protocol_type
    }

    pub(crate) fn protocol(&self) -> Option<&str> {
        self.protocol.as_deref()
    }

    pub(super) fn members(&self) -> impl Iterator<Item = (&MemberId, &Member)> {
        self.members.iter()
    }

    /// Whether somebody has joined; those who were only given an id have not.
    pub(crate) fn has_members(&self) -> bool {
        !self.members.is_empty()
    }

    /// Nobody is in it or about to come: nothing is lost when it is forgotten.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Empty) && self.pending.is_empty()
    }

    /// About how much memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        let member = |(id, member): (&MemberId, &Member)| {
            let protocols: usize = member.protocols.iter().map(|(name, metadata)| name.len() + metadata.len()).sum();
            MEMBER_BYTES + 2 * id.len() + member.client_id.len() + protocols + member.assignment.len()
        };
        // What is over is forgotten with all it holds.
        let protocol_type = if self.is_over() { 0 } else { self.protocol_type.len() };
        self.members.iter().map(member).sum::<usize>() + self.pending.len() * MEMBER_BYTES + protocol_type
    }

    /// When [`Group::expire`] has something to do, if nothing happens before.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let members = self.members.values().filter(|member| !member.waits()).map(|member| member.deadline);
        let preparing = match self.phase {
            Phase::Preparing { deadline, .. } => Some(deadline),
            _ => None,
        };
        members.chain(self.pending.values().copied()).chain(self.sync_deadline).chain(preparing).min()
    }

    /// A member wants in. `ticket` is answered now or later.
    pub(crate) fn join(&mut self, join: Join, ticket: Ticket, now: Instant) -> Vec<Action> {
        let mut out = Vec::new();
        let asked_as = Arc::clone(&join.member_id);
        if let Err(Refused(error, told)) = self.try_join(join, ticket, now, &mut out) {
            out.push(Action::Joined(ticket, Joined::refused(error, told.unwrap_or(asked_as))));
        }
        out
    }

    fn try_join(&mut self, join: Join, ticket: Ticket, now: Instant, out: &mut Vec<Action>) -> Result<(), Refused> {
        let id = Arc::clone(&join.member_id);
        let replaces =
            id.is_empty() && join.instance.as_ref().is_some_and(|instance| self.instances.contains_key(instance));
        let has_place = replaces || self.members.contains_key(&id) || self.pending.contains_key(&id);
        if !has_place && self.members.len() + self.pending.len() >= self.settings.most_members {
            return Err(ResponseError::GroupMaxSizeReached.into());
        }
        if !self.has_protocol_for(&join) {
            return Err(ResponseError::InconsistentGroupProtocol.into());
        }
        if id.is_empty() {
            return self.join_without_id(join, ticket, now, out);
        }
        if join.instance.is_none() && self.pending.remove(&id).is_some() {
            self.add(id, join, true, ticket, now, out);
            return Ok(());
        }
        self.check_member(&id, join.instance.as_ref())?;
        let same = self.members.get(&id).is_some_and(|member| member.protocols == join.protocols);
        let is_leader = self.leader.as_ref() == Some(&id);
        match self.phase {
            Phase::Empty => return Err(ResponseError::UnknownMemberId.into()),
            Phase::Preparing { .. } => {
                self.update(&id, join, ticket, now, out);
                self.complete_if_all_joined(now, out);
            }
            // It has missed the answer to its join, or wants no more than it has.
            Phase::Completing if same => self.answer_as_is(&id, ticket, now, out),
            Phase::Stable if same && !is_leader => self.answer_as_is(&id, ticket, now, out),
            // A leader that joins again has seen something that calls for another assignment.
            Phase::Completing | Phase::Stable => {
                self.update(&id, join, ticket, now, out);
                self.prepare(now, out);
            }
        }
        Ok(())
    }

    fn join_without_id(
        &mut self,
        join: Join,
        ticket: Ticket,
        now: Instant,
        out: &mut Vec<Action>,
    ) -> Result<(), Refused> {
        let id = Arc::clone(&join.new_id);
        let former = join.instance.as_ref().and_then(|instance| self.instances.get(instance)).cloned();
        match former {
            Some(former) => self.replace_static(&former, id, join, ticket, now, out),
            None if join.instance.is_none() && join.needs_known_id => {
                self.pending.insert(Arc::clone(&id), now + join.session_timeout);
                return Err(Refused(ResponseError::MemberIdRequired, Some(id)));
            }
            None => self.add(id, join, false, ticket, now, out),
        }
        Ok(())
    }

    /// A static member was started again: the new one takes the place of the old, which is fenced off.
    fn replace_static(
        &mut self,
        former: &MemberId,
        id: MemberId,
        join: Join,
        ticket: Ticket,
        now: Instant,
        out: &mut Vec<Action>,
    ) {
        let Some(mut member) = self.members.remove(former) else { return };
        if let Some(old) = member.joining.take() {
            out.push(Action::Joined(old, Joined::refused(ResponseError::FencedInstanceId, Arc::clone(former))));
        }
        if let Some(old) = member.syncing.take() {
            out.push(Action::Synced(old, Err(ResponseError::FencedInstanceId)));
        }
        member.id_told = false;
        let leads = self.leader.as_ref() == Some(former);
        if leads {
            self.leader = Some(Arc::clone(&id));
        }
        if let Some(instance) = &member.instance {
            self.instances.insert(Arc::clone(instance), Arc::clone(&id));
        }
        self.members.insert(Arc::clone(&id), member);
        let knows_skipping = join.knows_skipping;
        self.update(&id, join, ticket, now, out);
        if matches!(self.phase, Phase::Stable) && self.vote() == self.protocol {
            // Nothing changes for the others: it gets what the old one had, without a rebalance.
            if let Some(member) = self.members.get_mut(&id) {
                (member.joining, member.id_told) = (None, true);
            }
            let mut joined = self.describe_to(&id);
            if leads && knows_skipping {
                joined.skip_assignment = true;
            } else if leads {
                // Told another leader's name, it does not assign anything: the others would not hear of it.
                (joined.leader, joined.members) = (Arc::clone(former), Vec::new());
            }
            out.push(Action::Joined(ticket, joined));
            return;
        }
        match self.phase {
            Phase::Preparing { .. } => self.complete_if_all_joined(now, out),
            _ => self.prepare(now, out),
        }
    }

    fn add(&mut self, id: MemberId, join: Join, id_told: bool, ticket: Ticket, now: Instant, out: &mut Vec<Action>) {
        if self.members.is_empty() {
            self.protocol_type.clone_from(&join.protocol_type);
        }
        if let Some(instance) = &join.instance {
            self.instances.insert(Arc::clone(instance), Arc::clone(&id));
        }
        self.arrivals += 1;
        let member = Member {
            instance: join.instance,
            client_id: join.client_id,
            client_host: join.client_host,
            session_timeout: join.session_timeout,
            rebalance_timeout: join.rebalance_timeout,
            protocols: join.protocols,
            assignment: Bytes::new(),
            order: self.arrivals,
            deadline: now + join.session_timeout,
            joining: Some(ticket),
            syncing: None,
            must_sync: false,
            id_told,
        };
        self.members.insert(Arc::clone(&id), member);
        self.leader.get_or_insert(id);
        match &mut self.phase {
            Phase::Preparing { initial: Some(initial), .. } => initial.newcomer = true,
            Phase::Preparing { initial: None, .. } => self.complete_if_all_joined(now, out),
            _ => self.prepare(now, out),
        }
    }

    /// Takes what a member says of itself now, and lets it wait for the end of the rebalance.
    fn update(&mut self, id: &MemberId, join: Join, ticket: Ticket, now: Instant, out: &mut Vec<Action>) {
        let Some(member) = self.members.get_mut(id) else { return };
        if let Some(old) = member.joining.replace(ticket) {
            // It has asked again on another connection; the first one has nobody who listens.
            out.push(Action::Joined(old, Joined::refused(ResponseError::RebalanceInProgress, Arc::clone(id))));
        }
        (member.session_timeout, member.rebalance_timeout) = (join.session_timeout, join.rebalance_timeout);
        (member.client_id, member.client_host) = (join.client_id, join.client_host);
        member.protocols = join.protocols;
        member.deadline = now + member.session_timeout;
    }

    fn answer_as_is(&mut self, id: &MemberId, ticket: Ticket, now: Instant, out: &mut Vec<Action>) {
        self.touch(id, now);
        out.push(Action::Joined(ticket, self.describe_to(id)));
    }

    /// A member asks for its assignment; the leader brings it for all.
    pub(crate) fn sync(&mut self, sync: Sync, ticket: Ticket, now: Instant) -> Vec<Action> {
        let mut out = Vec::new();
        if let Err(error) = self.try_sync(sync, ticket, now, &mut out) {
            out.push(Action::Synced(ticket, Err(error)));
        }
        out
    }

    fn try_sync(
        &mut self,
        sync: Sync,
        ticket: Ticket,
        now: Instant,
        out: &mut Vec<Action>,
    ) -> Result<(), ResponseError> {
        let id = sync.member_id;
        self.check_member(&id, sync.instance.as_ref())?;
        self.check_generation(sync.generation)?;
        let other_type = sync.protocol_type.is_some_and(|named| named != self.protocol_type);
        if other_type || sync.protocol.is_some_and(|named| self.protocol.as_ref() != Some(&named)) {
            return Err(ResponseError::InconsistentGroupProtocol);
        }
        match self.phase {
            Phase::Empty => return Err(ResponseError::UnknownMemberId),
            Phase::Preparing { .. } => return Err(ResponseError::RebalanceInProgress),
            Phase::Completing | Phase::Stable => {}
        }
        let Some(member) = self.members.get_mut(&id) else { return Err(ResponseError::UnknownMemberId) };
        (member.must_sync, member.deadline) = (false, now + member.session_timeout);
        if let Some(old) = member.syncing.replace(ticket) {
            out.push(Action::Synced(old, Err(ResponseError::RebalanceInProgress)));
        }
        if matches!(self.phase, Phase::Completing) && self.leader.as_ref() == Some(&id) {
            for (id, assignment) in sync.assignments {
                if let Some(member) = self.members.get_mut(&id) {
                    member.assignment = assignment;
                }
            }
            self.phase = Phase::Stable;
        }
        if self.members.values().all(|member| !member.must_sync) {
            self.sync_deadline = None;
        }
        if matches!(self.phase, Phase::Stable) {
            for member in self.members.values_mut() {
                let Some(ticket) = member.syncing.take() else { continue };
                member.deadline = now + member.session_timeout;
                let synced = Synced {
                    protocol_type: self.protocol_type.clone(),
                    protocol: self.protocol.clone(),
                    assignment: member.assignment.clone(),
                };
                out.push(Action::Synced(ticket, Ok(synced)));
            }
        }
        Ok(())
    }

    /// A member says that it is alive.
    pub(crate) fn heartbeat(
        &mut self,
        id: &MemberId,
        instance: Option<&Arc<str>>,
        generation: i32,
        now: Instant,
    ) -> Result<(), ResponseError> {
        self.check_member(id, instance)?;
        self.check_generation(generation)?;
        self.touch(id, now);
        match self.phase {
            Phase::Preparing { .. } => Err(ResponseError::RebalanceInProgress),
            Phase::Empty | Phase::Completing | Phase::Stable => Ok(()),
        }
    }

    /// Whether offsets may be committed on behalf of this member; an id of "" with generation -1 is nobody's.
    pub(crate) fn check_commit(
        &mut self,
        id: &MemberId,
        instance: Option<&Arc<str>>,
        generation: i32,
        now: Instant,
    ) -> Result<(), ResponseError> {
        if generation < 0 && matches!(self.phase, Phase::Empty) {
            return Ok(());
        }
        if generation < 0 && id.is_empty() && instance.is_none() {
            // The members own the offsets while there are some.
            return Err(ResponseError::UnknownMemberId);
        }
        self.check_member(id, instance)?;
        self.check_generation(generation)?;
        // Its partitions may be somebody else's already.
        if matches!(self.phase, Phase::Completing) {
            return Err(ResponseError::RebalanceInProgress);
        }
        self.touch(id, now);
        Ok(())
    }

    /// A member goes, or is sent away by its instance id.
    pub(crate) fn leave(
        &mut self,
        id: &MemberId,
        instance: Option<&Arc<str>>,
        now: Instant,
    ) -> (Vec<Action>, Result<(), ResponseError>) {
        let mut out = Vec::new();
        if self.pending.remove(id).is_some() {
            self.complete_if_all_joined(now, &mut out);
            return (out, Ok(()));
        }
        let named =
            if id.is_empty() { instance.and_then(|instance| self.instances.get(instance)).cloned() } else { None };
        let id = named.as_ref().unwrap_or(id);
        let checked = self.check_member(id, instance);
        if checked.is_ok() {
            self.remove(id, &mut out);
            self.after_removal(now, &mut out);
        }
        (out, checked)
    }

    /// Whoever waited with this ticket has hung up.
    pub(crate) fn hung_up(&mut self, ticket: Ticket, now: Instant) -> Vec<Action> {
        let mut out = Vec::new();
        let found = self.members.iter_mut().find(|(_, m)| m.joining == Some(ticket) || m.syncing == Some(ticket));
        let Some((id, member)) = found else { return out };
        if member.joining == Some(ticket) {
            member.joining = None;
        } else {
            member.syncing = None;
        }
        // It may come back under its id while its session lasts.
        member.deadline = now + member.session_timeout;
        if !member.id_told && member.instance.is_none() {
            let id = Arc::clone(id);
            self.remove(&id, &mut out);
            self.after_removal(now, &mut out);
        }
        out
    }

    /// Does what is due at `now`.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<Action> {
        let mut out = Vec::new();
        let pending = self.pending.len();
        self.pending.retain(|_, until| *until > now);
        if self.pending.len() < pending {
            self.complete_if_all_joined(now, &mut out);
        }
        let unsynced = self.sync_deadline.is_some_and(|deadline| deadline <= now);
        let silent = |member: &Member| !member.waits() && (member.deadline <= now || (unsynced && member.must_sync));
        let gone: Vec<_> = self.members.iter().filter(|(_, m)| silent(m)).map(|(id, _)| Arc::clone(id)).collect();
        if unsynced {
            self.sync_deadline = None;
        }
        for id in &gone {
            self.remove(id, &mut out);
        }
        if !gone.is_empty() {
            self.after_removal(now, &mut out);
        }
        if let Phase::Preparing { deadline, initial } = &mut self.phase
            && *deadline <= now
        {
            match initial {
                Some(initial) if initial.newcomer && initial.latest > now => {
                    initial.newcomer = false;
                    *deadline = (now + self.settings.initial_delay).min(initial.latest);
                }
                _ => self.complete_join(now, &mut out),
            }
        }
        out
    }

    fn remove(&mut self, id: &MemberId, out: &mut Vec<Action>) {
        let Some(member) = self.members.remove(id) else { return };
        if let Some(instance) = &member.instance {
            self.instances.remove(instance);
        }
        if let Some(ticket) = member.joining {
            out.push(Action::Joined(ticket, Joined::refused(ResponseError::UnknownMemberId, Arc::clone(id))));
        }
        if let Some(ticket) = member.syncing {
            out.push(Action::Synced(ticket, Err(ResponseError::UnknownMemberId)));
        }
        if self.leader.as_ref() == Some(id) {
            let next = self.members.iter().min_by_key(|(_, m)| (m.joining.is_none(), m.order));
            self.leader = next.map(|(id, _)| Arc::clone(id));
        }
    }

    fn after_removal(&mut self, now: Instant, out: &mut Vec<Action>) {
        match self.phase {
            Phase::Stable | Phase::Completing => self.prepare(now, out),
            Phase::Preparing { .. } => self.complete_if_all_joined(now, out),
            Phase::Empty => {}
        }
    }

    fn touch(&mut self, id: &MemberId, now: Instant) {
        if let Some(member) = self.members.get_mut(id) {
            member.deadline = now + member.session_timeout;
        }
    }

    /// KIP-345: an instance id belongs to the member that joined with it last.
    fn check_member(&self, id: &MemberId, instance: Option<&Arc<str>>) -> Result<(), ResponseError> {
        match instance.map(|instance| self.instances.get(instance)) {
            Some(Some(owner)) if owner != id => Err(ResponseError::FencedInstanceId),
            Some(None) => Err(ResponseError::UnknownMemberId),
            _ if self.members.contains_key(id) => Ok(()),
            _ => Err(ResponseError::UnknownMemberId),
        }
    }

    fn check_generation(&self, generation: i32) -> Result<(), ResponseError> {
        if generation == self.generation { Ok(()) } else { Err(ResponseError::IllegalGeneration) }
    }
}

#[cfg(test)]
mod tests;

//! The rebalance: calling the members to join, the next generation, the vote on a protocol.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::ResponseError;

use super::{Action, Group, Initial, Join, Joined, JoinedMember, Member, MemberId, Phase};

impl Group {
    /// Calls all members to join.
    pub(super) fn prepare(&mut self, now: Instant, out: &mut Vec<Action>) {
        for member in self.members.values_mut() {
            member.must_sync = false;
            if let Some(ticket) = member.syncing.take() {
                member.deadline = now + member.session_timeout;
                out.push(Action::Synced(ticket, Err(ResponseError::RebalanceInProgress)));
            }
        }
        self.sync_deadline = None;
        let longest = now + self.rebalance_timeout();
        if matches!(self.phase, Phase::Empty) {
            let delay = self.settings.initial_delay;
            if delay.is_zero() {
                // As in Kafka, the first rebalance does not wait for those who were only given an id.
                self.complete_join(now, out);
                return;
            }
            let initial = Some(Initial { latest: longest, newcomer: false });
            self.phase = Phase::Preparing { deadline: (now + delay).min(longest), initial };
            return;
        }
        self.phase = Phase::Preparing { deadline: longest, initial: None };
        self.complete_if_all_joined(now, out);
    }

    pub(super) fn complete_if_all_joined(&mut self, now: Instant, out: &mut Vec<Action>) {
        let counts = matches!(self.phase, Phase::Preparing { initial: None, .. });
        if counts && self.pending.is_empty() && self.members.values().all(|member| member.joining.is_some()) {
            self.complete_join(now, out);
        }
    }

    /// Begins the next generation with those who have joined. Static members keep their place without.
    pub(super) fn complete_join(&mut self, now: Instant, out: &mut Vec<Action>) {
        let absent = |member: &Member| member.joining.is_none() && member.instance.is_none();
        let out_now: Vec<_> = self.members.iter().filter(|(_, m)| absent(m)).map(|(id, _)| Arc::clone(id)).collect();
        for id in &out_now {
            self.remove(id, out);
        }
        if self.members.is_empty() {
            self.generation = next_generation(self.generation);
            (self.phase, self.protocol, self.leader) = (Phase::Empty, None, None);
            return;
        }
        let present = |id: &MemberId| self.members.get(id).is_some_and(|member| member.joining.is_some());
        if !self.leader.as_ref().is_some_and(present) {
            let first = self.members.iter().filter(|(_, m)| m.joining.is_some()).min_by_key(|(_, m)| m.order);
            let Some((first, _)) = first else {
                // Only static members, and none has come: their sessions decide.
                self.phase = Phase::Preparing { deadline: now + self.rebalance_timeout(), initial: None };
                return;
            };
            self.leader = Some(Arc::clone(first));
        }
        self.generation = next_generation(self.generation);
        self.protocol = self.vote();
        self.phase = Phase::Completing;
        self.sync_deadline = Some(now + self.rebalance_timeout());
        let joined: Vec<_> = self.members.iter().filter_map(|(id, m)| Some((Arc::clone(id), m.joining?))).collect();
        for (id, ticket) in joined {
            out.push(Action::Joined(ticket, self.describe_to(&id)));
            if let Some(member) = self.members.get_mut(&id) {
                (member.joining, member.must_sync, member.id_told) = (None, true, true);
                member.assignment = Bytes::new();
                member.deadline = now + member.session_timeout;
            }
        }
    }

    /// What a member is told of the present generation.
    pub(super) fn describe_to(&self, id: &MemberId) -> Joined {
        let leads = self.leader.as_ref() == Some(id);
        let describe = |(id, member): (&MemberId, &Member)| JoinedMember {
            member_id: Arc::clone(id),
            instance: member.instance.clone(),
            metadata: member.metadata(self.protocol.as_deref()),
        };
        Joined {
            error: None,
            generation: self.generation,
            protocol_type: Some(self.protocol_type.clone()),
            protocol: self.protocol.clone(),
            leader: self.leader.clone().unwrap_or_else(|| Arc::from("")),
            skip_assignment: false,
            member_id: Arc::clone(id),
            members: if leads { self.members.iter().map(describe).collect() } else { Vec::new() },
        }
    }

    /// Whether there is a protocol that all members have in common with this one.
    pub(super) fn has_protocol_for(&self, join: &Join) -> bool {
        if join.protocol_type.is_empty() || join.protocols.is_empty() {
            return false;
        }
        if self.members.is_empty() {
            return true;
        }
        let others = || self.members.iter().filter(|(id, _)| **id != join.member_id).map(|(_, member)| member);
        let common = |(name, _): &(String, Bytes)| others().all(|member| member.supports(name));
        join.protocol_type == self.protocol_type && join.protocols.iter().any(common)
    }

    /// Every member votes for what it likes best among what all can do. The leader's liking breaks a tie.
    pub(super) fn vote(&self) -> Option<String> {
        let leader = self.leader.as_ref().and_then(|id| self.members.get(id))?;
        let all_can = |name: &str| self.members.values().all(|member| member.supports(name));
        let candidates: Vec<&str> =
            leader.protocols.iter().map(|(name, _)| name.as_str()).filter(|n| all_can(n)).collect();
        let mut votes = vec![0_usize; candidates.len()];
        for member in self.members.values() {
            let choice = member.protocols.iter().find_map(|(name, _)| candidates.iter().position(|c| c == name));
            if let Some(count) = choice.and_then(|at| votes.get_mut(at)) {
                *count += 1;
            }
        }
        let best = votes.iter().copied().max()?;
        votes.iter().position(|count| *count == best).and_then(|at| candidates.get(at)).map(|name| (*name).to_owned())
    }

    fn rebalance_timeout(&self) -> Duration {
        self.members.values().map(|member| member.rebalance_timeout).max().unwrap_or_default()
    }
}

fn next_generation(generation: i32) -> i32 {
    generation.checked_add(1).unwrap_or(1)
}

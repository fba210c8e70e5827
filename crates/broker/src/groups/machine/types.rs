//! What a group is asked and what it answers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::ResponseError;

pub(crate) type MemberId = Arc<str>;

/// Somebody who waits for the answer to a JoinGroup or a SyncGroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket(pub(crate) u64);

/// What a group is told when it is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupSettings {
    /// How long the first rebalance of an empty group waits for more members.
    pub(crate) initial_delay: Duration,
    /// Members, and those about to become some.
    pub(crate) most_members: usize,
}

/// A JoinGroup request.
#[derive(Clone, Debug)]
pub(crate) struct Join {
    /// Empty for a member that has none yet.
    pub(crate) member_id: MemberId,
    /// Makes a static member (KIP-345).
    pub(crate) instance: Option<Arc<str>>,
    /// The id that a new member gets.
    pub(crate) new_id: MemberId,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    pub(crate) session_timeout: Duration,
    pub(crate) rebalance_timeout: Duration,
    pub(crate) protocol_type: String,
    /// What the member can do, what it likes best first.
    pub(crate) protocols: Vec<(String, Bytes)>,
    /// KIP-394: a new member is first told its id, and joins with it.
    pub(crate) needs_known_id: bool,
    /// KIP-814: the client knows a leader that has nothing to assign.
    pub(crate) knows_skipping: bool,
}

/// The answer to a JoinGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Joined {
    pub(crate) error: Option<ResponseError>,
    pub(crate) generation: i32,
    pub(crate) protocol_type: Option<String>,
    pub(crate) protocol: Option<String>,
    pub(crate) leader: MemberId,
    pub(crate) skip_assignment: bool,
    pub(crate) member_id: MemberId,
    /// For the leader only: all members with what they say of themselves.
    pub(crate) members: Vec<JoinedMember>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JoinedMember {
    pub(crate) member_id: MemberId,
    pub(crate) instance: Option<Arc<str>>,
    pub(crate) metadata: Bytes,
}

impl Joined {
    pub(crate) fn refused(error: ResponseError, member_id: MemberId) -> Self {
        Self {
            error: Some(error),
            generation: -1,
            protocol_type: None,
            protocol: None,
            leader: Arc::from(""),
            skip_assignment: false,
            member_id,
            members: Vec::new(),
        }
    }
}

/// A SyncGroup request.
#[derive(Clone, Debug)]
pub(crate) struct Sync {
    pub(crate) generation: i32,
    pub(crate) member_id: MemberId,
    pub(crate) instance: Option<Arc<str>>,
    pub(crate) protocol_type: Option<String>,
    pub(crate) protocol: Option<String>,
    /// From the leader: who gets what.
    pub(crate) assignments: Vec<(MemberId, Bytes)>,
}

/// The answer to a SyncGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Synced {
    pub(crate) protocol_type: String,
    pub(crate) protocol: Option<String>,
    pub(crate) assignment: Bytes,
}

/// An answer that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Joined(Ticket, Joined),
    Synced(Ticket, Result<Synced, ResponseError>),
}

/// The state's name, as DescribeGroups and ListGroups tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateName {
    Empty,
    PreparingRebalance,
    CompletingRebalance,
    Stable,
    /// What an unknown group is described as.
    Dead,
}

impl StateName {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
            Self::Dead => "Dead",
        }
    }
}

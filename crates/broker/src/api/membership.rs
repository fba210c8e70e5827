//! JoinGroup, SyncGroup, Heartbeat and LeaveGroup: the classic protocol of consumer groups.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::leave_group_response::MemberResponse;
use kafka_protocol::messages::{
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse,
    SyncGroupRequest, SyncGroupResponse,
};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::{Facts, Peer, Reply, fetch, reply};
use crate::groups::Held;
use crate::groups::machine::{Join, Joined, Sync, Synced};
use crate::shared::Shared;

/// KIP-394: from here on a client expects to be told its id before it joins.
const FIRST_WITH_KNOWN_ID: i16 = 4;
/// The first version with a rebalance timeout of its own (KIP-62).
const FIRST_WITH_REBALANCE_TIMEOUT: i16 = 1;
/// The first version in which the protocol's name may be missing (KIP-559).
const FIRST_WITH_NO_PROTOCOL: i16 = 7;
/// KIP-814.
const FIRST_WITH_SKIPPING: i16 = 9;
/// The first version that takes several members at once (KIP-345).
const FIRST_WITH_MEMBERS: i16 = 3;

/// Names longer than this have no honest use. Java limits an instance id to 249 characters itself.
const MOST_NAME_BYTES: usize = 1024;
/// A client that offers more assignors than this does so to make us compare them.
const MOST_PROTOCOLS: usize = 64;
/// How much of the client's name goes into a member's id.
const MOST_CLIENT_ID_BYTES: usize = 255;

pub(super) async fn join_group(
    shared: &Arc<Shared>,
    request: JoinGroupRequest,
    client_id: Option<StrBytes>,
    peer: &Peer<'_>,
    facts: Facts,
) -> Reply {
    let member_id: Arc<str> = Arc::from(request.member_id.as_str());
    let checked = check_join(shared, &request, client_id, peer, facts);
    let group = request.group_id.to_string();
    // The group has its own copy, and its own budget: a join can be held for minutes, which must cost others nothing.
    drop(request);
    let joined = match checked {
        Ok(join) => match shared.groups.join(&group, join, Instant::now()) {
            Ok(held) => match wait(shared, held, peer).await {
                Ok(joined) => joined,
                Err(Unanswered::Hangup) => return Reply::Close("the peer hung up while it joined a group".to_owned()),
                Err(Unanswered::Stopping) => Joined::refused(ResponseError::CoordinatorNotAvailable, member_id),
            },
            Err(error) => Joined::refused(error, member_id),
        },
        Err(error) => Joined::refused(error, member_id),
    };
    reply(facts, &describe_join(joined, facts))
}

fn check_join(
    shared: &Shared,
    request: &JoinGroupRequest,
    client_id: Option<StrBytes>,
    peer: &Peer<'_>,
    facts: Facts,
) -> Result<Join, ResponseError> {
    let limits = &shared.config.limits;
    check_group_id(&request.group_id)?;
    let session_timeout = millis(request.session_timeout_ms);
    if !(limits.min_session_timeout..=limits.max_session_timeout).contains(&session_timeout) {
        return Err(ResponseError::InvalidSessionTimeout);
    }
    let instance = request.group_instance_id.as_ref().map(|instance| Arc::from(instance.as_str()));
    let too_long = |text: &str| text.len() > MOST_NAME_BYTES;
    // The protocol type goes into the file of committed offsets too.
    if too_long(&request.member_id)
        || too_long(&request.protocol_type)
        || instance.as_deref().is_some_and(|id| too_long(id) || id.is_empty())
    {
        return Err(ResponseError::InvalidRequest);
    }
    if request.protocols.len() > MOST_PROTOCOLS {
        return Err(ResponseError::InconsistentGroupProtocol);
    }
    let client_id = cut(client_id.as_deref().unwrap_or_default(), MOST_CLIENT_ID_BYTES).to_owned();
    // As Kafka makes them.
    let new_id = format!("{}-{}", instance.as_deref().unwrap_or(&client_id), Uuid::new_v4());
    let host = peer.stream.peer_addr().map_or_else(|_| String::new(), |addr| format!("/{}", addr.ip()));
    Ok(Join {
        member_id: Arc::from(request.member_id.as_str()),
        instance,
        new_id: Arc::from(new_id),
        client_id,
        client_host: host,
        session_timeout,
        // Kafka takes any; but with none at all a group that waits for its static members would wait again and again, and
        // its other members would be out before they hear of a rebalance.
        rebalance_timeout: if facts.version >= FIRST_WITH_REBALANCE_TIMEOUT {
            millis(request.rebalance_timeout_ms).max(limits.min_session_timeout)
        } else {
            session_timeout
        },
        protocol_type: request.protocol_type.to_string(),
        protocols: request.protocols.iter().map(|p| (p.name.to_string(), owned(&p.metadata))).collect(),
        needs_known_id: facts.version >= FIRST_WITH_KNOWN_ID,
        knows_skipping: facts.version >= FIRST_WITH_SKIPPING,
    })
}

fn describe_join(joined: Joined, facts: Facts) -> JoinGroupResponse {
    let text = |text: String| StrBytes::from_string(text);
    let protocol = joined.protocol.map(text);
    let members = joined.members.into_iter().map(|member| {
        JoinGroupResponseMember::default()
            .with_member_id(name(&member.member_id))
            .with_group_instance_id(member.instance.as_ref().map(name))
            .with_metadata(member.metadata)
    });
    JoinGroupResponse::default()
        .with_error_code(code(joined.error))
        .with_generation_id(joined.generation)
        .with_protocol_type(joined.protocol_type.map(text))
        .with_protocol_name(if facts.version >= FIRST_WITH_NO_PROTOCOL {
            protocol
        } else {
            Some(protocol.unwrap_or_default())
        })
        .with_leader(name(&joined.leader))
        .with_skip_assignment(joined.skip_assignment)
        .with_member_id(name(&joined.member_id))
        .with_members(members.collect())
}

pub(super) async fn sync_group(
    shared: &Arc<Shared>,
    request: SyncGroupRequest,
    peer: &Peer<'_>,
    facts: Facts,
) -> Reply {
    let sync = Sync {
        generation: request.generation_id,
        member_id: Arc::from(request.member_id.as_str()),
        instance: request.group_instance_id.as_ref().map(|instance| Arc::from(instance.as_str())),
        protocol_type: request.protocol_type.as_ref().map(ToString::to_string),
        protocol: request.protocol_name.as_ref().map(ToString::to_string),
        assignments: request
            .assignments
            .iter()
            .map(|a| (Arc::from(a.member_id.as_str()), owned(&a.assignment)))
            .collect(),
    };
    let group = request.group_id.to_string();
    drop(request);
    let held = check_group_id(&group).and_then(|()| shared.groups.sync(&group, sync, Instant::now()));
    let synced = match held {
        Ok(held) => match wait(shared, held, peer).await {
            Ok(synced) => synced,
            Err(Unanswered::Hangup) => {
                return Reply::Close("the peer hung up while it waited for an assignment".to_owned());
            }
            Err(Unanswered::Stopping) => Err(ResponseError::CoordinatorNotAvailable),
        },
        Err(error) => Err(error),
    };
    let response = match synced {
        Ok(Synced { protocol_type, protocol, assignment }) => SyncGroupResponse::default()
            .with_protocol_type(Some(StrBytes::from_string(protocol_type)))
            .with_protocol_name(protocol.map(StrBytes::from_string))
            .with_assignment(assignment),
        Err(error) => SyncGroupResponse::default().with_error_code(error.code()),
    };
    reply(facts, &response)
}

pub(super) fn heartbeat(shared: &Shared, request: &HeartbeatRequest) -> HeartbeatResponse {
    let id = Arc::from(request.member_id.as_str());
    let instance = request.group_instance_id.as_ref().map(|instance| Arc::from(instance.as_str()));
    let alive = check_group_id(&request.group_id).and_then(|()| {
        shared.groups.heartbeat(&request.group_id, &id, instance.as_ref(), request.generation_id, Instant::now())
    });
    HeartbeatResponse::default().with_error_code(code(alive.err()))
}

pub(super) fn leave_group(shared: &Shared, request: LeaveGroupRequest, facts: Facts) -> LeaveGroupResponse {
    if let Err(error) = check_group_id(&request.group_id) {
        return LeaveGroupResponse::default().with_error_code(error.code());
    }
    let many = facts.version >= FIRST_WITH_MEMBERS;
    let members = if many {
        request.members
    } else {
        vec![MemberIdentity::default().with_member_id(request.member_id).with_group_instance_id(None)]
    };
    let named: Vec<(Arc<str>, Option<Arc<str>>)> = members
        .iter()
        .map(|m| (Arc::from(m.member_id.as_str()), m.group_instance_id.as_ref().map(|i| Arc::from(i.as_str()))))
        .collect();
    let left = shared.groups.leave(&request.group_id, &named, Instant::now());
    if !many {
        return LeaveGroupResponse::default().with_error_code(code(left.into_iter().find_map(Result::err)));
    }
    let members = members.into_iter().zip(left).map(|(member, left)| {
        MemberResponse::default()
            .with_member_id(member.member_id)
            .with_group_instance_id(member.group_instance_id)
            .with_error_code(code(left.err()))
    });
    LeaveGroupResponse::default().with_members(members.collect())
}

/// Why an answer did not come.
enum Unanswered {
    Hangup,
    Stopping,
}

/// Waits for a group's answer, as long as the peer does. Nothing of the request must be left.
async fn wait<T>(shared: &Shared, held: Held<'_, T>, peer: &Peer<'_>) -> Result<T, Unanswered> {
    peer.release();
    tokio::select! {
        answer = held.answer() => answer.ok_or(Unanswered::Stopping),
        () = fetch::gone(peer.stream) => Err(Unanswered::Hangup),
        () = shared.stop.cancelled() => Err(Unanswered::Stopping),
    }
}

/// A group's name as Kafka takes it for its members' requests; and not a whole frame of it.
fn check_group_id(group: &str) -> Result<(), ResponseError> {
    if group.is_empty() || group.len() > MOST_NAME_BYTES { Err(ResponseError::InvalidGroupId) } else { Ok(()) }
}

/// The same for offsets, whose groups may have an empty name.
pub(super) fn check_offsets_group_id(group: &str) -> Result<(), ResponseError> {
    if group.len() > MOST_NAME_BYTES { Err(ResponseError::InvalidGroupId) } else { Ok(()) }
}

fn code(error: Option<ResponseError>) -> i16 {
    error.map_or(0, |error| error.code())
}

fn name(text: &Arc<str>) -> StrBytes {
    StrBytes::from_string(text.to_string())
}

/// A copy that does not keep the frame it came in.
fn owned(bytes: &Bytes) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

fn millis(millis: i32) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

/// At most `bytes` of a text, in whole characters.
fn cut(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or_default()
}

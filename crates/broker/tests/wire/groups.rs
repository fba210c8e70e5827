use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;
use tidegate_broker::{Broker, BrokerConfig};
use tokio::time::timeout;

use crate::common::*;

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn join_request(group: &str, member: &str) -> JoinGroupRequest {
    let protocol = JoinGroupRequestProtocol::default()
        .with_name(StrBytes::from_static_str("range"))
        .with_metadata(Bytes::from_static(b"subscription"));
    JoinGroupRequest::default()
        .with_group_id(text(group).into())
        .with_member_id(text(member))
        .with_session_timeout_ms(6_000)
        .with_rebalance_timeout_ms(10_000)
        .with_protocol_type(StrBytes::from_static_str("consumer"))
        .with_protocols(vec![protocol])
}

fn sync_request(group: &str, member: &str, generation: i32, assignments: &[(&str, &[u8])]) -> SyncGroupRequest {
    let assign = |(member, assignment): &(&str, &[u8])| {
        SyncGroupRequestAssignment::default()
            .with_member_id(text(member))
            .with_assignment(Bytes::copy_from_slice(assignment))
    };
    SyncGroupRequest::default()
        .with_group_id(text(group).into())
        .with_member_id(text(member))
        .with_generation_id(generation)
        .with_assignments(assignments.iter().map(assign).collect())
}

fn heartbeat_request(group: &str, member: &str, generation: i32) -> HeartbeatRequest {
    HeartbeatRequest::default()
        .with_group_id(text(group).into())
        .with_member_id(text(member))
        .with_generation_id(generation)
}

pub fn commit_request(group: &str, member: &str, generation: i32, offsets: &[(i32, i64)]) -> OffsetCommitRequest {
    let partition = |&(partition, offset): &(i32, i64)| {
        OffsetCommitRequestPartition::default()
            .with_partition_index(partition)
            .with_committed_offset(offset)
            .with_committed_metadata(Some(text("why not")))
    };
    let topic = OffsetCommitRequestTopic::default()
        .with_name(name("t"))
        .with_partitions(offsets.iter().map(partition).collect());
    OffsetCommitRequest::default()
        .with_group_id(text(group).into())
        .with_member_id(text(member))
        .with_generation_id_or_member_epoch(generation)
        .with_topics(vec![topic])
}

async fn commit(client: &mut Client, group: &str, member: &str, generation: i32, offsets: &[(i32, i64)]) -> Vec<i16> {
    let response = client.call(&commit_request(group, member, generation, offsets), 8).await;
    response.topics[0].partitions.iter().map(|partition| partition.error_code).collect()
}

/// The committed offset of partition 0.
pub async fn committed(client: &mut Client, group: &str) -> i64 {
    let topic = OffsetFetchRequestTopics::default().with_name(name("t")).with_partition_indexes(vec![0]);
    let of = OffsetFetchRequestGroup::default().with_group_id(text(group).into()).with_topics(Some(vec![topic]));
    let response = client.call(&OffsetFetchRequest::default().with_groups(vec![of]), 8).await;
    response.groups[0].topics[0].partitions[0].committed_offset
}

async fn join(client: &mut Client, group: &str, member: &str) -> JoinGroupResponse {
    client.call(&join_request(group, member), 9).await
}

/// Enters an empty group and takes all of it.
async fn enter_alone(client: &mut Client, group: &str) -> (String, i32) {
    enter_alone_as(client, group, |request| request).await
}

/// The same, with a request of its own.
async fn enter_alone_as(
    client: &mut Client,
    group: &str,
    request: impl Fn(JoinGroupRequest) -> JoinGroupRequest,
) -> (String, i32) {
    let told = client.call(&request(join_request(group, "")), 9).await;
    assert_eq!(told.error_code, ResponseError::MemberIdRequired.code());
    let joined = client.call(&request(join_request(group, &told.member_id)), 9).await;
    assert_eq!((joined.error_code, joined.members.len()), (0, 1));
    let (member, generation) = (joined.member_id.to_string(), joined.generation_id);
    let synced = client.call(&sync_request(group, &member, generation, &[(&member, b"all")]), 5).await;
    assert_eq!((synced.error_code, &synced.assignment[..]), (0, &b"all"[..]));
    (member, generation)
}

/// One request of this API and version, and its answer looked at.
pub async fn check_version(addr: SocketAddr, api: ApiKey, version: i16) {
    let group = format!("{api:?}-{version}");
    let mut client = Client::connect(addr).await;
    if matches!(api, ApiKey::JoinGroup) {
        let mut joined = client.call(&join_request(&group, ""), version).await;
        if version >= 4 {
            assert_eq!(joined.error_code, ResponseError::MemberIdRequired.code());
            joined = client.call(&join_request(&group, &joined.member_id), version).await;
        }
        assert_eq!((joined.error_code, joined.generation_id, &joined.leader), (0, 1, &joined.member_id));
        assert_eq!((joined.protocol_name.as_deref(), joined.members.len()), (Some("range"), 1));
        let refused = client.call(&join_request(&group, "stranger"), version).await;
        assert_eq!(refused.error_code, ResponseError::UnknownMemberId.code());
        return;
    }
    let (member, generation) = enter_alone(&mut client, &group).await;
    match api {
        ApiKey::SyncGroup => {
            let synced = client.call(&sync_request(&group, &member, generation, &[]), version).await;
            assert_eq!((synced.error_code, &synced.assignment[..]), (0, &b"all"[..]));
            let refused = client.call(&sync_request(&group, &member, generation + 1, &[]), version).await;
            assert_eq!(refused.error_code, ResponseError::IllegalGeneration.code());
        }
        ApiKey::Heartbeat => {
            assert_eq!(client.call(&heartbeat_request(&group, &member, generation), version).await.error_code, 0);
            let refused = client.call(&heartbeat_request(&group, "stranger", generation), version).await;
            assert_eq!(refused.error_code, ResponseError::UnknownMemberId.code());
        }
        ApiKey::LeaveGroup => {
            let mut request = LeaveGroupRequest::default().with_group_id(text(&group).into());
            if version >= 3 {
                let named = |id: &str| MemberIdentity::default().with_member_id(text(id)).with_group_instance_id(None);
                request.members = vec![named(&member), named("stranger")];
            } else {
                request.member_id = text(&member);
            }
            let left = client.call(&request, version).await;
            assert_eq!(left.error_code, 0);
            if version >= 3 {
                let codes: Vec<_> = left.members.iter().map(|member| member.error_code).collect();
                assert_eq!(codes, [0, ResponseError::UnknownMemberId.code()]);
            }
        }
        ApiKey::OffsetCommit => {
            let request = commit_request(&group, &member, generation, &[(0, 5), (99, 5)]);
            let response = client.call(&request, version).await;
            let codes: Vec<_> = response.topics[0].partitions.iter().map(|p| p.error_code).collect();
            assert_eq!(codes, [0, ResponseError::UnknownTopicOrPartition.code()]);
        }
        ApiKey::OffsetFetch => {
            assert_eq!(commit(&mut client, &group, &member, generation, &[(1, 7)]).await, [0]);
            let mut request = OffsetFetchRequest::default().with_require_stable(version >= 7);
            if version >= 8 {
                let topic = OffsetFetchRequestTopics::default().with_name(name("t")).with_partition_indexes(vec![1, 0]);
                let of = |group: &str| OffsetFetchRequestGroup::default().with_group_id(text(group).into());
                let all = of(&group).with_topics(None);
                let some = of("nobody").with_topics(Some(vec![topic]));
                request.groups = vec![all.clone(), some, all];
                let response = client.call(&request, version).await;
                assert_eq!(response.groups.len(), 2, "a group is answered for once");
                let found = &response.groups[0].topics[0].partitions[0];
                assert_eq!((found.partition_index, found.committed_offset), (1, 7));
                assert_eq!(found.metadata.as_deref(), Some("why not"));
                let none: Vec<_> = response.groups[1].topics[0].partitions.iter().map(|p| p.committed_offset).collect();
                assert_eq!(none, [-1, -1]);
            } else {
                let topic = OffsetFetchRequestTopic::default().with_name(name("t")).with_partition_indexes(vec![1, 0]);
                request.group_id = text(&group).into();
                request.topics = Some(vec![topic]);
                let response = client.call(&request, version).await;
                let found: Vec<_> = response.topics[0].partitions.iter().map(|p| p.committed_offset).collect();
                assert_eq!((response.error_code, found), (0, vec![7, -1]));
                if version >= 2 {
                    request.topics = None;
                    let response = client.call(&request, version).await;
                    assert_eq!(response.topics[0].partitions[0].committed_offset, 7);
                }
            }
        }
        ApiKey::DescribeGroups => {
            let groups = [&group, "nobody", &group].map(|group| text(group).into()).to_vec();
            let response = client.call(&DescribeGroupsRequest::default().with_groups(groups), version).await;
            let states: Vec<_> = response.groups.iter().map(|group| group.group_state.to_string()).collect();
            assert_eq!(states, ["Stable", "Dead"]);
            let described = &response.groups[0];
            assert_eq!((&*described.protocol_type, &*described.protocol_data), ("consumer", "range"));
            let one = &described.members[0];
            assert_eq!((&*one.client_id, &*one.client_host, &*one.member_id), ("test", "/127.0.0.1", &*member));
            assert_eq!((&one.member_metadata[..], &one.member_assignment[..]), (&b"subscription"[..], &b"all"[..]));
            let not_found = if version >= 6 { ResponseError::GroupIdNotFound.code() } else { 0 };
            assert_eq!(response.groups[1].error_code, not_found);
        }
        ApiKey::ListGroups => {
            let response = client.call(&ListGroupsRequest::default(), version).await;
            let listed = response.groups.iter().find(|listed| *listed.group_id == *group).unwrap();
            assert_eq!(&*listed.protocol_type, "consumer");
            if version >= 4 {
                assert_eq!(&*listed.group_state, "Stable");
                let request = ListGroupsRequest::default().with_states_filter(vec![text("empty")]);
                let response = client.call(&request, version).await;
                assert!(response.groups.iter().all(|listed| &*listed.group_state == "Empty"));
            }
            if version >= 5 {
                let request = ListGroupsRequest::default().with_types_filter(vec![text("consumer")]);
                assert!(client.call(&request, version).await.groups.is_empty());
            }
        }
        ApiKey::DeleteGroups => {
            let names = [&group, "nobody"].map(|group| text(group).into()).to_vec();
            let request = DeleteGroupsRequest::default().with_groups_names(names);
            let response = client.call(&request, version).await;
            let codes: Vec<_> = response.results.iter().map(|result| result.error_code).collect();
            assert_eq!(codes, [ResponseError::NonEmptyGroup.code(), ResponseError::GroupIdNotFound.code()]);
        }
        other => panic!("{other:?} is no request of a group"),
    }
}

async fn with_topic(config: BrokerConfig) -> (Broker, Client) {
    let broker = Broker::start(config).await.unwrap();
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 3, &[]).await;
    (broker, client)
}

#[tokio::test]
async fn three_members_share_and_the_death_of_one_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let (broker, mut a) = with_topic(config(dir.path())).await;
    let (first, generation) = enter_alone(&mut a, "g").await;
    assert_eq!(commit(&mut a, "g", &first, generation, &[(0, 1)]).await, [0]);

    // Two more come: each waits until the first one joins again.
    let mut joining = Vec::new();
    for _ in 0..2 {
        let mut client = Client::connect(broker.addr()).await;
        let told = join(&mut client, "g", "").await.member_id.to_string();
        joining.push(tokio::spawn(async move {
            let joined = join(&mut client, "g", &told).await;
            (client, joined)
        }));
    }
    let rebalancing = ResponseError::RebalanceInProgress.code();
    while a.call(&heartbeat_request("g", &first, generation), 4).await.error_code != rebalancing {
        tokio::task::yield_now().await;
    }
    assert_eq!(commit(&mut a, "g", &first, generation, &[(0, 2)]).await, [0], "what was read before the rebalance");
    let led = join(&mut a, "g", &first).await;
    assert_eq!((led.error_code, led.members.len(), &*led.leader), (0, 3, &*first));
    let assignments: Vec<_> = led.members.iter().map(|m| (m.member_id.to_string(), m.member_id.to_string())).collect();
    let given: Vec<_> = assignments.iter().map(|(id, what)| (id.as_str(), what.as_bytes())).collect();
    let mut others = Vec::new();
    for joining in joining {
        let (client, joined) = joining.await.unwrap();
        assert_eq!((joined.generation_id, joined.members.len()), (led.generation_id, 0));
        others.push((client, joined.member_id.to_string()));
    }
    let stale = commit(&mut a, "g", &first, generation, &[(0, 3)]).await;
    assert_eq!(stale, [ResponseError::IllegalGeneration.code()]);
    let generation = led.generation_id;
    assert_eq!(a.call(&sync_request("g", &first, generation, &given), 5).await.error_code, 0);
    for (client, id) in &mut others {
        let synced = client.call(&sync_request("g", id, generation, &[]), 5).await;
        assert_eq!(synced.assignment, id.as_bytes());
        assert_eq!(commit(client, "g", id, generation, &[(1, 4)]).await, [0]);
    }

    // One dies, its connection with it, and its session runs out. The other two beat until they hear of it.
    drop(others.pop());
    let (b, second) = &mut others[0];
    let noticed = async {
        loop {
            let beat = a.call(&heartbeat_request("g", &first, generation), 4).await.error_code;
            let other = b.call(&heartbeat_request("g", second, generation), 4).await.error_code;
            if (beat, other) == (rebalancing, rebalancing) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(30), noticed).await.unwrap();
    let (request_a, request_b) = (join_request("g", &first), join_request("g", second));
    let (a, b) = tokio::join!(a.call(&request_a, 9), b.call(&request_b, 9));
    assert_eq!((a.members.len(), b.error_code, a.generation_id), (2, 0, generation + 1));
}

#[tokio::test]
async fn committed_offsets_with_their_texts_outlive_the_broker_and_end_with_their_topic() {
    let dir = tempfile::tempdir().unwrap();
    let (broker, mut client) = with_topic(config(dir.path())).await;
    assert_eq!(commit(&mut client, "tool", "", -1, &[(0, 41), (0, 42), (1, 43)]).await, [0, 0, 0]);
    let (member, generation) = enter_alone(&mut client, "g").await;
    assert_eq!(commit(&mut client, "g", &member, generation, &[(0, 9)]).await, [0]);
    broker.abort().await;

    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    assert_eq!((committed(&mut client, "tool").await, committed(&mut client, "g").await), (42, 9));
    let stale = commit(&mut client, "g", &member, generation, &[(0, 10)]).await;
    assert_eq!(stale, [ResponseError::IllegalGeneration.code()], "members join anew");
    let listed = client.call(&ListGroupsRequest::default(), 5).await.groups;
    let listed: Vec<_> = listed.iter().map(|g| (&**g.group_id, &*g.protocol_type, &*g.group_state)).collect();
    assert_eq!(listed, [("g", "consumer", "Empty"), ("tool", "", "Empty")]);

    let names = DeleteGroupsRequest::default().with_groups_names(vec![text("tool").into()]);
    assert_eq!(client.call(&names, 2).await.results[0].error_code, 0);
    assert_eq!(committed(&mut client, "tool").await, -1);
    let delete = DeleteTopicsRequest::default().with_topic_names(vec![name("t")]);
    assert_eq!(client.call(&delete, 5).await.responses[0].error_code, 0);
    client.create_topic("t", 1, &[]).await;
    assert_eq!(committed(&mut client, "g").await, -1, "another topic of the same name");
    broker.abort().await;
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    assert_eq!((committed(&mut client, "tool").await, committed(&mut client, "g").await), (-1, -1));
    broker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_static_member_that_is_started_again_keeps_its_place_and_its_former_self_is_fenced() {
    let dir = tempfile::tempdir().unwrap();
    let (broker, mut before) = with_topic(config(dir.path())).await;
    let request = || join_request("g", "").with_group_instance_id(Some(text("i")));
    let first = before.call(&request(), 9).await;
    assert_eq!((first.error_code, &first.leader), (0, &first.member_id), "no id has to be asked for");
    let (member, generation) = (first.member_id.to_string(), first.generation_id);
    assert!(member.starts_with("i-"), "{member}");
    let synced = before.call(&sync_request("g", &member, generation, &[(&member, b"all")]), 5).await;
    assert_eq!(synced.error_code, 0);

    let mut after = Client::connect(broker.addr()).await;
    let again = after.call(&request(), 9).await;
    assert_eq!((again.error_code, again.generation_id, again.skip_assignment), (0, generation, true));
    let synced = after.call(&sync_request("g", &again.member_id, generation, &[]), 5).await;
    assert_eq!((synced.error_code, &synced.assignment[..]), (0, &b"all"[..]));
    let fenced = ResponseError::FencedInstanceId.code();
    let beat = heartbeat_request("g", &member, generation).with_group_instance_id(Some(text("i")));
    assert_eq!(before.call(&beat, 4).await.error_code, fenced);
    let late = commit_request("g", &member, generation, &[(0, 1)]).with_group_instance_id(Some(text("i")));
    assert_eq!(before.call(&late, 8).await.topics[0].partitions[0].error_code, fenced);
    assert_eq!(commit(&mut after, "g", &again.member_id, generation, &[(0, 2)]).await, [0]);

    // An operator sends it away by its instance id alone.
    let gone = MemberIdentity::default().with_group_instance_id(Some(text("i")));
    let leave = LeaveGroupRequest::default().with_group_id(text("g").into()).with_members(vec![gone]);
    assert_eq!(after.call(&leave, 5).await.members[0].error_code, 0);
    let code = after.call(&heartbeat_request("g", &again.member_id, generation), 4).await.error_code;
    assert_eq!(code, ResponseError::UnknownMemberId.code());
    assert_eq!(committed(&mut after, "g").await, 2);
}

#[tokio::test]
async fn a_member_cannot_speak_for_another_group_or_generation() {
    let dir = tempfile::tempdir().unwrap();
    let (broker, mut a) = with_topic(config(dir.path())).await;
    let mut b = Client::connect(broker.addr()).await;
    let (in_g, generation) = enter_alone(&mut a, "g").await;
    let (in_h, _) = enter_alone(&mut b, "h").await;
    let unknown = ResponseError::UnknownMemberId.code();
    assert_eq!(b.call(&heartbeat_request("g", &in_h, generation), 4).await.error_code, unknown);
    assert_eq!(b.call(&sync_request("g", &in_h, generation, &[(&in_g, b"x")]), 5).await.error_code, unknown);
    assert_eq!(commit(&mut b, "g", &in_h, generation, &[(0, 666)]).await, [unknown]);
    assert_eq!(commit(&mut b, "g", "", -1, &[(0, 666)]).await, [unknown], "a tool, while members are there");
    let illegal = ResponseError::IllegalGeneration.code();
    assert_eq!(a.call(&heartbeat_request("g", &in_g, generation + 1), 4).await.error_code, illegal);
    assert_eq!(join(&mut b, "g", &in_h).await.error_code, unknown);
    assert_eq!(committed(&mut a, "g").await, -1);
    assert_eq!(a.call(&heartbeat_request("g", &in_g, generation), 4).await.error_code, 0, "undisturbed");
}

#[tokio::test]
async fn what_a_group_does_not_take_is_refused_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let (_broker, mut client) = with_topic(config(dir.path())).await;
    let mut code = async |request: JoinGroupRequest| {
        ResponseError::try_from_code(client.call(&request, 9).await.error_code).unwrap()
    };
    assert_eq!(code(join_request("", "")).await, ResponseError::InvalidGroupId);
    assert_eq!(code(join_request(&"g".repeat(2000), "")).await, ResponseError::InvalidGroupId);
    for session in [i32::MIN, -1, 0, 5_999, 1_800_001, i32::MAX] {
        let request = join_request("g", "").with_session_timeout_ms(session);
        assert_eq!(code(request).await, ResponseError::InvalidSessionTimeout, "{session}");
    }
    assert_eq!(code(join_request("g", "").with_protocols(Vec::new())).await, ResponseError::InconsistentGroupProtocol);
    let many = vec![JoinGroupRequestProtocol::default(); 1_000];
    assert_eq!(code(join_request("g", "").with_protocols(many)).await, ResponseError::InconsistentGroupProtocol);
    let long = join_request("g", "").with_protocol_type(text(&"ü".repeat(40_000)));
    assert_eq!(code(long).await, ResponseError::InvalidRequest);
    let long = join_request("g", "").with_group_instance_id(Some(text(&"i".repeat(5_000))));
    assert_eq!(code(long).await, ResponseError::InvalidRequest);

    let mut request = commit_request("g", "", -1, &[(0, 1), (1, 1)]);
    let partition = &mut request.topics[0].partitions[1];
    partition.committed_metadata = Some(text(&"m".repeat(4097)));
    let response = client.call(&request, 9).await;
    let codes: Vec<_> = response.topics[0].partitions.iter().map(|p| p.error_code).collect();
    assert_eq!(codes, [0, ResponseError::OffsetMetadataTooLarge.code()]);
    request.topics[0].partitions[1].committed_metadata = Some(text(&"m".repeat(4096)));
    let response = client.call(&request, 9).await;
    assert!(response.topics[0].partitions.iter().all(|p| p.error_code == 0));
    let request = commit_request("g", "x", 3, &[(0, 1)]);
    assert_eq!(client.call(&request, 9).await.topics[0].partitions[0].error_code, 22);
    let listed = client.call(&ListGroupsRequest::default(), 5).await.groups;
    assert_eq!(listed.len(), 1, "refused joins leave no group behind");
}

#[tokio::test]
async fn ten_thousand_members_find_as_many_places_as_there_are_and_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.limits.max_group_members = 100;
    config.limits.max_groups = 50;
    let (_broker, mut client) = with_topic(config).await;
    let full = ResponseError::GroupMaxSizeReached.code();
    let taken = ResponseError::MemberIdRequired.code();
    // An id keeps its place for a session, and this takes a busy machine a while.
    let request = |group: &str| patient(join_request(group, ""));
    for number in 0..10_000 {
        let expected = if number < 100 { taken } else { full };
        assert_eq!(client.call(&request("g"), 9).await.error_code, expected, "{number}");
    }
    for number in 0..100 {
        let code = client.call(&request(&format!("g-{number}")), 9).await.error_code;
        assert_eq!(code, if number < 49 { taken } else { full }, "{number}");
    }

    // Ids that nobody joins with are forgotten, and the groups with them.
    let dir = tempfile::tempdir().unwrap();
    let mut config = self::config(dir.path());
    config.limits.max_groups = 1;
    config.limits.min_session_timeout = Duration::from_millis(100);
    let (_broker, mut client) = with_topic(config).await;
    let request = |group: &str| join_request(group, "").with_session_timeout_ms(100);
    assert_eq!(client.call(&request("early"), 9).await.error_code, taken);
    let place = async {
        loop {
            match client.call(&request("late"), 9).await.error_code {
                code if code == full => tokio::time::sleep(Duration::from_millis(20)).await,
                code => break code,
            }
        }
    };
    assert_eq!(timeout(Duration::from_secs(60), place).await.unwrap(), taken);
}

#[tokio::test]
async fn what_members_say_of_themselves_is_held_within_a_budget() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.limits.group_memory_bytes = 1 << 20;
    let (broker, _client) = with_topic(config).await;
    let huge = || {
        let metadata = Bytes::from(vec![7; 300_000]);
        let protocol = JoinGroupRequestProtocol::default().with_name(text("range")).with_metadata(metadata);
        patient(join_request("g", "")).with_protocols(vec![protocol])
    };
    // Joins of version 3 are held in a group that is busy: the first member never asks for its assignment.
    let mut clients = Vec::new();
    let (mut inside, mut refused) = (0, 0);
    for _ in 0..10 {
        let mut client = Client::connect(broker.addr()).await;
        client.send(&huge(), 3).await.unwrap();
        if joins(&mut client, &broker, inside + 1).await {
            inside += 1;
        } else {
            refused += 1;
        }
        clients.push(client);
    }
    assert_eq!((inside, refused), (3, 7));
    drop(clients);
    // What hung up while it joined is gone; the first one's session lasts. So there is room.
    timeout(Duration::from_secs(30), until_members(&broker, 1)).await.unwrap();
    let mut client = Client::connect(broker.addr()).await;
    client.send(&huge(), 3).await.unwrap();
    assert!(joins(&mut client, &broker, 2).await);
}

/// For members that say nothing for the time of a test.
fn patient(request: JoinGroupRequest) -> JoinGroupRequest {
    request.with_session_timeout_ms(600_000).with_rebalance_timeout_ms(600_000)
}

/// Returns when group `g` has so many members.
async fn until_members(broker: &Broker, count: usize) {
    // Of its own: whoever stops waiting leaves an answer unread.
    let mut watcher = Client::connect(broker.addr()).await;
    let request = DescribeGroupsRequest::default().with_groups(vec![text("g").into()]);
    while watcher.call(&request, 5).await.groups[0].members.len() != count {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Whether a join that was sent made its client the member of group `g` that makes `count` of them; if not, it was refused
/// for want of memory.
async fn joins(client: &mut Client, broker: &Broker, count: usize) -> bool {
    let decided = async {
        tokio::select! {
            answer = client.read_frame() => {
                let code = i16::from_be_bytes(answer.unwrap()[8..10].try_into().unwrap());
                assert!(code == 0 || code == ResponseError::GroupMaxSizeReached.code(), "{code}");
                code == 0
            }
            () = until_members(broker, count) => true,
        }
    };
    timeout(Duration::from_secs(30), decided).await.expect("a join is answered or held")
}

#[tokio::test]
async fn a_join_that_is_held_holds_nothing_of_the_memory_for_requests() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.limits.request_memory_bytes = 4 << 20;
    let (broker, mut a) = with_topic(config).await;
    enter_alone_as(&mut a, "g", patient).await;
    let mut held = Vec::new();
    for _ in 0..5 {
        let metadata = Bytes::from(vec![7; 100_000]);
        let protocol = JoinGroupRequestProtocol::default().with_name(text("range")).with_metadata(metadata);
        let mut client = Client::connect(broker.addr()).await;
        client.send(&patient(join_request("g", "")).with_protocols(vec![protocol]), 3).await.unwrap();
        held.push(client);
    }
    // Each of these needs its part of what a single join would have used up.
    let mut client = Client::connect(broker.addr()).await;
    let mut names: Vec<GroupId> = (0..1_000).map(|number| text(&format!("group-{number}")).into()).collect();
    names.push(text("g").into());
    let request = DescribeGroupsRequest::default().with_groups(names);
    let all_held = async {
        while client.call(&request, 5).await.groups[1_000].members.len() < 6 {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(60), all_held).await.expect("nobody is held up");
}

#[tokio::test]
async fn connections_cut_while_they_join_and_members_that_join_over_and_over_disturb_no_other_group() {
    let dir = tempfile::tempdir().unwrap();
    let (broker, mut calm) = with_topic(config(dir.path())).await;
    let (member, generation) = enter_alone_as(&mut calm, "calm", patient).await;
    let mut leader = Client::connect(broker.addr()).await;
    let lead = |request: JoinGroupRequest| request.with_session_timeout_ms(60_000).with_rebalance_timeout_ms(60_000);
    let (leading, _) = enter_alone_as(&mut leader, "storm", lead).await;
    for round in 0..200 {
        let mut client = Client::connect(broker.addr()).await;
        let version = if round % 2 == 0 { 3 } else { 9 };
        let id = if version == 9 { join(&mut client, "storm", "").await.member_id.to_string() } else { String::new() };
        client.send(&join_request("storm", &id), version).await.unwrap();
        drop(client);
    }
    // The leader of the stormy group gets an end to it: those who hung up are out, at the latest with their sessions.
    let again = lead(join_request("storm", &leading));
    let rejoined = timeout(Duration::from_secs(60), leader.call(&again, 9)).await.unwrap();
    assert_eq!(rejoined.error_code, 0);
    for _ in 0..200 {
        assert_eq!(leader.call(&again, 9).await.error_code, 0);
    }
    assert_eq!(calm.call(&heartbeat_request("calm", &member, generation), 4).await.error_code, 0);
    broker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_shutdown_does_not_wait_for_a_join_that_is_held() {
    let dir = tempfile::tempdir().unwrap();
    let (broker, mut a) = with_topic(config(dir.path())).await;
    let (member, generation) = enter_alone(&mut a, "g").await;
    let mut b = Client::connect(broker.addr()).await;
    let told = join(&mut b, "g", "").await.member_id.to_string();
    let held = tokio::spawn(async move { join(&mut b, "g", &told).await });
    let rebalancing = ResponseError::RebalanceInProgress.code();
    while a.call(&heartbeat_request("g", &member, generation), 4).await.error_code != rebalancing {
        tokio::task::yield_now().await;
    }
    broker.shutdown().await.unwrap();
    assert_eq!(held.await.unwrap().error_code, ResponseError::CoordinatorNotAvailable.code());
}

#[tokio::test]
async fn a_member_that_claims_no_time_for_a_rebalance_hears_of_it_and_joins_again() {
    let dir = tempfile::tempdir().unwrap();
    let (broker, mut a) = with_topic(config(dir.path())).await;
    for (number, claimed) in [0, -1, i32::MIN].into_iter().enumerate() {
        let group = format!("g-{number}");
        let hasty = |request: JoinGroupRequest| request.with_rebalance_timeout_ms(claimed);
        let (member, generation) = enter_alone_as(&mut a, &group, hasty).await;
        let mut b = Client::connect(broker.addr()).await;
        b.send(&hasty(join_request(&group, "")), 3).await.unwrap();
        let called = async {
            loop {
                match a.call(&heartbeat_request(&group, &member, generation), 4).await.error_code {
                    0 => tokio::time::sleep(Duration::from_millis(10)).await,
                    code => return code,
                }
            }
        };
        let code = timeout(Duration::from_secs(30), called).await.unwrap();
        assert_eq!(code, ResponseError::RebalanceInProgress.code(), "{claimed}");
        let again = a.call(&hasty(join_request(&group, &member)), 9).await;
        assert_eq!((again.error_code, again.members.len()), (0, 2), "{claimed}");
    }
}

#[tokio::test]
async fn a_partition_that_is_named_again_and_again_takes_its_room_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.limits.committed_offset_bytes = 500;
    let (_broker, mut client) = with_topic(config).await;
    let offsets: Vec<_> = (0..1_000).map(|offset| (0, offset)).collect();
    assert_eq!(commit(&mut client, "g", "", -1, &offsets).await, [0; 1_000]);
    assert_eq!(committed(&mut client, "g").await, 999, "the last one counts");
}

#[tokio::test]
async fn who_has_only_asked_for_an_id_is_no_member_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (_broker, mut client) = with_topic(config(dir.path())).await;
    let (member, generation) = enter_alone(&mut client, "g").await;
    assert_eq!(commit(&mut client, "g", &member, generation, &[(0, 1), (1, 1)]).await, [0, 0]);
    let leave = LeaveGroupRequest::default().with_group_id(text("g").into()).with_member_id(text(&member));
    assert_eq!(client.call(&leave, 2).await.error_code, 0);

    let told = join(&mut client, "g", "").await;
    assert_eq!(told.error_code, ResponseError::MemberIdRequired.code());
    assert_eq!(commit(&mut client, "g", "", -1, &[(0, 2)]).await, [0], "a tool's");
    let listed = client.call(&ListGroupsRequest::default(), 5).await.groups;
    assert_eq!((listed.len(), &*listed[0].protocol_type, &*listed[0].group_state), (1, "consumer", "Empty"));
    let describe = DescribeGroupsRequest::default().with_groups(vec![text("g").into()]);
    let described = client.call(&describe, 5).await.groups.remove(0);
    assert_eq!((&*described.protocol_type, &*described.group_state), ("consumer", "Empty"));

    let partition = OffsetDeleteRequestPartition::default().with_partition_index(1);
    let topic = OffsetDeleteRequestTopic::default().with_name(name("t")).with_partitions(vec![partition; 3]);
    let request = OffsetDeleteRequest::default().with_group_id(text("g").into()).with_topics(vec![topic]);
    let deleted = client.call(&request, 0).await;
    assert_eq!((deleted.error_code, deleted.topics[0].partitions[0].error_code), (0, 0));
    assert_eq!(committed(&mut client, "g").await, 2, "another partition's");
    let delete = DeleteGroupsRequest::default().with_groups_names(vec![text("g").into()]);
    assert_eq!(client.call(&delete, 2).await.results[0].error_code, 0);
    assert_eq!(committed(&mut client, "g").await, -1);

    assert_eq!(join(&mut client, "g", &told.member_id).await.error_code, 0, "its id is still good");
    assert_eq!(client.call(&delete, 2).await.results[0].error_code, ResponseError::NonEmptyGroup.code());
    let refused = client.call(&request, 0).await;
    assert_eq!(refused.topics[0].partitions[0].error_code, ResponseError::GroupSubscribedToTopic.code());
}

//! Clients that hold memory and do not go on: whoever is honest makes progress all the same.

use std::time::{Duration, Instant};

use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{DescribeGroupsRequest, JoinGroupRequest, MetadataRequest, SyncGroupRequest};
use kafka_protocol::protocol::StrBytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use super::*;

/// How long an honest request may take at worst beside all of them. Alone it takes milliseconds.
const SOON: Duration = Duration::from_secs(30);

/// Limits that hostile clients fill easily, and times that would let them hold on for long.
async fn small_broker(dir: &std::path::Path) -> (Broker, Client) {
    let mut config = config(dir);
    config.limits.response_memory_bytes = 16 * MIB;
    config.limits.request_memory_bytes = 64 * MIB;
    config.limits.frame_timeout = Duration::from_secs(3_600);
    config.limits.write_timeout = Duration::from_secs(3_600);
    let broker = Broker::start(config).await.unwrap();
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 2, &[("max.message.bytes", "4000000")]).await;
    (broker, client)
}

async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    timeout(SOON, work).await.unwrap_or_else(|_| panic!("{what} was held up"))
}

/// The first bytes of a produce request of about `bytes` bytes.
fn half_a_produce(bytes: usize) -> Vec<u8> {
    let mut whole = frame(0, 9, &vec![0; bytes]);
    whole.truncate(bytes / 2);
    whole
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_take_nothing_or_next_to_nothing_hold_no_other_reader_up() {
    let _turn = TURN.lock().await;
    let dir = tempfile::tempdir().unwrap();
    let (broker, mut client) = small_broker(dir.path()).await;
    for _ in 0..24 {
        assert_eq!(client.produce("t", 0, batch_of_value(&vec![1; MIB - 1_000])).await.error_code, 0);
    }
    let request = encode(&fetch_request("t", 0, 0, 50 << 20, 1, 0), FETCH, 1);
    let (memory, ()) = peak(async {
        let mut hostile = JoinSet::new();
        for n in 0..40 {
            let mut stream = TcpStream::connect(broker.addr()).await.unwrap();
            let request = request.clone();
            hostile.spawn(async move {
                // One after another without waiting for an answer; half of them take a byte now and then.
                for _ in 0..10 {
                    if stream.write_all(&request).await.is_err() {
                        return;
                    }
                }
                if n % 2 == 0 {
                    while stream.read(&mut [0]).await.is_ok_and(|count| count > 0) {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                }
                std::future::pending::<()>().await;
            });
        }
        let mut honest = Client::connect(broker.addr()).await;
        for offset in 0..24 {
            let found = soon("an honest fetch", honest.fetch("t", 0, offset)).await;
            assert_eq!(stored(found.records.unwrap())[0].offset, offset);
        }
    })
    .await;
    assert!(memory < 40 * MIB, "{memory} bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_stop_halfway_or_trickle_hold_no_other_request_up() {
    let _turn = TURN.lock().await;
    let dir = tempfile::tempdir().unwrap();
    let (broker, mut client) = small_broker(dir.path()).await;
    let addr = broker.addr();
    let (memory, ()) = peak(async {
        let mut hostile = JoinSet::new();
        for n in 0..120_usize {
            let bytes = [2 * MIB, 200 << 10, 2 * MIB][n % 3];
            let mut stream = TcpStream::connect(addr).await.unwrap();
            hostile.spawn(async move {
                if stream.write_all(&half_a_produce(bytes)).await.is_err() {
                    return;
                }
                while n % 2 == 0 && stream.write_all(&[0]).await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                std::future::pending::<()>().await;
            });
        }
        for bytes in [100, 100 << 10, 2 * MIB, 100 << 10, 2 * MIB] {
            let sent = soon("an honest request", client.produce("t", 1, batch_of_value(&vec![1; bytes]))).await;
            assert_eq!(sent.error_code, 0);
        }
    })
    .await;
    assert!(memory < 64 * MIB, "{memory} bytes");
    assert_eq!(client.end_offset("t", 1).await, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_connections_that_say_nothing_or_little_costs_little() {
    let _turn = TURN.lock().await;
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.limits.max_connections = 150;
    config.limits.idle_timeout = Duration::from_millis(300);
    config.limits.frame_timeout = Duration::from_millis(300);
    let broker = Broker::start(config).await.unwrap();
    // Nothing; half a size; a size; half a header. And from one more of each kind a byte now and then, which must not buy
    // time.
    let whole = frame(3, 9, &[0; 40]);
    let (memory, ()) = peak(async {
        let mut flood = JoinSet::new();
        for n in 0..300_usize {
            let said = whole[..[0, 2, 4, 9][n % 4]].to_vec();
            let addr = broker.addr();
            flood.spawn(async move {
                let mut stream = TcpStream::connect(addr).await.unwrap();
                // It may be turned away at once.
                if stream.write_all(&said).await.is_err() {
                    return;
                }
                let mut rest = whole_rest(n);
                let deadline = Instant::now() + SOON;
                loop {
                    let told = timeout(Duration::from_millis(100), stream.read(&mut [0])).await;
                    if told.is_ok_and(|read| read.is_err() || read.is_ok_and(|count| count == 0)) {
                        return;
                    }
                    assert!(Instant::now() < deadline, "a connection that says little was kept");
                    if let Some(byte) = rest.next()
                        && stream.write_all(&[byte]).await.is_err()
                    {
                        return;
                    }
                }
            });
        }
        while let Some(ended) = flood.join_next().await {
            ended.unwrap();
        }
    })
    .await;
    assert!(memory < 16 * MIB, "{memory} bytes");
    assert_alive(&broker).await;
}

#[tokio::test]
async fn those_who_take_all_places_and_rest_make_room_for_those_who_come_to_work() {
    let _turn = TURN.lock().await;
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.limits.max_connections = 20;
    config.limits.evict_idle_after = Duration::from_millis(300);
    let broker = Broker::start(config).await.unwrap();
    // Half of them have said something that makes sense, and then no more.
    let mut resting = Vec::new();
    for n in 0..20 {
        let mut client = Client::connect(broker.addr()).await;
        if n % 2 == 0 {
            client.call(&ApiVersionsRequest::default(), 3).await;
        }
        resting.push(client);
    }
    for _ in 0..5 {
        soon("a connection", served(&broker)).await;
    }
}

/// Connects until there is a place: one is turned away while nobody has rested for long enough.
async fn served(broker: &Broker) {
    loop {
        let mut client = Client::connect(broker.addr()).await;
        if client.try_call(&ApiVersionsRequest::default(), 3).await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What every eighth client of the flood goes on to send: the zeros that the frame consists of.
fn whole_rest(n: usize) -> impl Iterator<Item = u8> {
    std::iter::repeat_n(0, if n % 8 == 7 { 30 } else { 0 })
}

#[tokio::test]
async fn names_that_lead_out_of_the_folder_are_no_topics_and_touch_nothing() {
    let _turn = TURN.lock().await;
    let outside = tempfile::tempdir().unwrap();
    let dir = outside.path().join("data");
    std::fs::write(outside.path().join("secret"), "untouched").unwrap();
    let broker = start(&dir).await;
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("theirs", 1, &[]).await;
    assert_eq!(client.produce("theirs", 0, batch(&[1])).await.error_code, 0);
    let long = "x".repeat(250);
    let names = ["", ".", "..", "../secret", "../data/theirs", "/etc/passwd", "a/b", "a\0b", "theirs/../x", "ü", &long];
    for bad in names {
        let created = client.call(&create_request(bad, 1, &[]), CREATE_TOPICS).await;
        assert_ne!(created.topics[0].error_code, 0, "{bad:?}");
        assert_ne!(client.produce(bad, 0, batch(&[1])).await.error_code, 0, "{bad:?}");
        assert_ne!(client.fetch(bad, 0, 0).await.error_code, 0, "{bad:?}");
        assert_ne!(client.list_offset(bad, 0, -1).await.error_code, 0, "{bad:?}");
        let topic =
            kafka_protocol::messages::metadata_request::MetadataRequestTopic::default().with_name(Some(name(bad)));
        let asked = MetadataRequest::default().with_topics(Some(vec![topic])).with_allow_auto_topic_creation(true);
        assert_ne!(client.call(&asked, 9).await.topics[0].error_code, 0, "{bad:?}");
        let delete = kafka_protocol::messages::DeleteTopicsRequest::default()
            .with_topic_names(vec![name(bad)])
            .with_timeout_ms(1_000);
        assert_ne!(client.call(&delete, 5).await.responses[0].error_code, 0, "{bad:?}");
    }
    for partition in [-1, 1, i32::MIN, i32::MAX] {
        assert_ne!(client.produce("theirs", partition, batch(&[1])).await.error_code, 0, "{partition}");
        assert_ne!(client.fetch("theirs", partition, 0).await.error_code, 0, "{partition}");
        assert_ne!(client.list_offset("theirs", partition, -1).await.error_code, 0, "{partition}");
    }
    for offset in [-2, -1, 2, i64::MIN, i64::MAX] {
        assert_eq!(client.fetch("theirs", 0, offset).await.error_code, 1, "{offset}");
    }
    assert_eq!(client.read_all("theirs", 0, 0).await.len(), 1);
    let left: Vec<_> = std::fs::read_dir(outside.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
    assert_eq!(std::fs::read_to_string(outside.path().join("secret")).unwrap(), "untouched");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn noise_between_honest_requests_closes_its_own_connection_and_changes_no_record() {
    let _turn = TURN.lock().await;
    let dir = tempfile::tempdir().unwrap();
    let (broker, mut client) = small_broker(dir.path()).await;
    let noise = |n: u64, length: usize| -> Vec<u8> {
        let mut state = n;
        std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.to_be_bytes()[0]
        })
        .take(length)
        .collect()
    };
    let good = produce_request("t", 0, batch(&[7]), -1);
    let mut spoilt = 0;
    for n in 0..60 {
        // A good frame with noise from somewhere on: sometimes its size, sometimes its body, sometimes the batch.
        let mut bytes = encode(&good, PRODUCE, 1).to_vec();
        let at = usize::try_from(n).unwrap() % bytes.len();
        let wild = noise(n, bytes.len() - at);
        bytes[at..].copy_from_slice(&wild);
        let mut stream = TcpStream::connect(broker.addr()).await.unwrap();
        // The broker may hang up before all is sent.
        let _ = stream.write_all(&bytes).await;
        if at >= 4 && decode_request(bytes[4..].to_vec().into()).is_err() {
            spoilt += 1;
        } else {
            // It may be a part of something, or a request that is answered.
            let _ = stream.shutdown().await;
        }
        let mut answer = Vec::new();
        let _ = soon("the end of a connection that sent noise", stream.read_to_end(&mut answer)).await;
        assert_eq!(client.produce("t", 1, batch(&[i64::try_from(n).unwrap()])).await.error_code, 0);
    }
    assert!(spoilt > 10, "{spoilt} frames were no requests");
    let mine = client.read_all("t", 1, 0).await;
    assert_eq!(mine.iter().map(|record| record.timestamp).collect::<Vec<_>>(), (0..60).collect::<Vec<_>>());
    // Whatever was taken of the noise has passed its checksum.
    client.read_all("t", 0, 0).await;
}

/// Joins group `g` in version 3, in which one is held, or answered, at once.
fn join_of(member: &str) -> JoinGroupRequest {
    let protocol = JoinGroupRequestProtocol::default().with_name(StrBytes::from_static_str("range"));
    JoinGroupRequest::default()
        .with_group_id(StrBytes::from_static_str("g").into())
        .with_member_id(StrBytes::from_string(member.to_owned()))
        .with_session_timeout_ms(300_000)
        .with_rebalance_timeout_ms(300_000)
        .with_protocol_type(StrBytes::from_static_str("consumer"))
        .with_protocols(vec![protocol])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_wait_for_their_assignment_hold_nothing_of_their_requests() {
    const FOLLOWERS: usize = 10;
    const SENT: usize = 400 << 10;
    let _turn = TURN.lock().await;
    let dir = tempfile::tempdir().unwrap();
    let (broker, mut leader) = small_broker(dir.path()).await;
    let leading = leader.call(&join_of(""), 3).await.member_id;
    let mut joining = JoinSet::new();
    for _ in 0..FOLLOWERS {
        let mut client = Client::connect(broker.addr()).await;
        joining.spawn(async move {
            let joined = client.call(&join_of(""), 3).await;
            (client, joined.member_id)
        });
    }
    let group = DescribeGroupsRequest::default().with_groups(vec![StrBytes::from_static_str("g").into()]);
    let all_held = async {
        while client_count(&mut Client::connect(broker.addr()).await, &group).await <= FOLLOWERS {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon("a join", all_held).await;
    let joined = soon("the leader's join", leader.call(&join_of(&leading), 3)).await;
    assert_eq!((joined.error_code, joined.members.len()), (0, FOLLOWERS + 1));
    let sync_of = |member: &StrBytes, assignments| {
        SyncGroupRequest::default()
            .with_group_id(StrBytes::from_static_str("g").into())
            .with_generation_id(joined.generation_id)
            .with_member_id(member.clone())
            .with_assignments(assignments)
    };
    let mut followers = Vec::new();
    while let Some(follower) = joining.join_next().await {
        let (client, member) = follower.unwrap();
        let much = SyncGroupRequestAssignment::default().with_assignment(vec![7; SENT].into());
        followers.push((client, encode(&sync_of(&member, vec![much]), 3, 2)));
    }

    let (before, total) = (NOW.load(Ordering::Relaxed), TOTAL.load(Ordering::Relaxed));
    for (client, request) in &mut followers {
        client.stream().write_all(request).await.unwrap();
    }
    let read_and_freed = async {
        let read = || TOTAL.load(Ordering::Relaxed).wrapping_sub(total) > FOLLOWERS * SENT * 2;
        while !read() || NOW.load(Ordering::Relaxed) > before + MIB {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon("the memory of those who wait", read_and_freed).await;
    let sync = sync_of(&leading, Vec::new());
    assert_eq!(soon("the leader's assignment", leader.call(&sync, 3)).await.error_code, 0);
    for (client, _) in &mut followers {
        let answer = soon("a follower's assignment", client.read_frame()).await.unwrap();
        assert_eq!(answer[8..10], [0, 0], "it was held");
    }
}

async fn client_count(client: &mut Client, group: &DescribeGroupsRequest) -> usize {
    client.call(group, 5).await.groups[0].members.len()
}

//! The stand-in brokers of the `testing` feature do what their rules say, and say what they did.

use std::path::Path;
use std::time::{Duration, Instant};

use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, DescribeClusterRequest, FindCoordinatorRequest, MetadataRequest, OffsetCommitResponse,
    ResponseHeader,
};
use kafka_protocol::protocol::{Decodable, StrBytes};
use tidegate_broker::testing::{Fault, Flavour, Lie, Moment, Rule, Setup, TestCluster, UnknownApiVersions};
use tidegate_broker::{Broker, BrokerConfig};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use crate::common::*;
use crate::groups::{commit_request, committed};

/// How long an answer may take on a very busy machine.
const SOON: Duration = Duration::from_secs(30);

/// An embedded broker with a topic of three partitions, five records in partition 0 of them, each a batch of its own.
async fn filled(dir: &Path) -> Broker {
    let broker = Broker::start(BrokerConfig { auto_create_topics: false, ..config(dir) }).await.unwrap();
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 3, &[]).await;
    for time in 1..=5 {
        assert_eq!(client.produce("t", 0, batch(&[time])).await.error_code, 0);
    }
    broker
}

async fn cluster(broker: &Broker, setup: Setup) -> TestCluster {
    TestCluster::start(broker.addr(), setup).await.unwrap()
}

async fn client(cluster: &TestCluster) -> Client {
    Client::connect(cluster.bootstrap().parse().unwrap()).await
}

/// What an answer to ApiVersions in `version` says, if there is one: the error code and the versions.
async fn versions(cluster: &TestCluster, version: i16) -> Option<(i16, Vec<ApiVersion>)> {
    let mut client = client(cluster).await;
    client.send(&ApiVersionsRequest::default(), version.min(4)).await.unwrap();
    let mut frame = client.read_frame().await.ok()?;
    ResponseHeader::decode(&mut frame, 0).unwrap();
    let refused = frame[..2] != [0, 0];
    let form = if refused { 0 } else { version };
    let answer = kafka_protocol::messages::ApiVersionsResponse::decode(&mut frame, form).unwrap();
    Some((answer.error_code, answer.api_keys))
}

#[tokio::test]
async fn a_flavour_speaks_its_versions_and_closes_on_others() {
    let dir = tempfile::tempdir().unwrap();
    let broker = filled(dir.path()).await;
    let azure = cluster(&broker, Setup { flavour: Flavour::event_hubs(), ..Setup::default() }).await;
    let (code, list) = versions(&azure, 3).await.unwrap();
    let of = |api: ApiKey| list.iter().find(|v| v.api_key == api as i16).map(|v| (v.min_version, v.max_version));
    assert_eq!((code, of(ApiKey::Fetch), of(ApiKey::Metadata)), (0, Some((4, 6)), Some((0, 5))));
    assert_eq!(of(ApiKey::DeleteRecords), None);
    assert_eq!(versions(&azure, 4).await, None, "the connection is closed");
    let mut client = client(&azure).await;
    assert!(client.try_call(&MetadataRequest::default(), 9).await.is_err());
    assert_eq!(azure.asked(ApiKey::ApiVersions).into_iter().collect::<Vec<_>>(), [(3, 1), (4, 1)]);

    for (unknown, listed) in [(UnknownApiVersions::Error35, true), (UnknownApiVersions::Error35Bare, false)] {
        let flavour = Flavour { unknown_api_versions: unknown, ..Flavour::old_broker() };
        let old = cluster(&broker, Setup { flavour, ..Setup::default() }).await;
        let (code, list) = versions(&old, 3).await.unwrap();
        assert_eq!((code, !list.is_empty()), (35, listed));
        assert_eq!(versions(&old, 0).await.unwrap().0, 0);
    }
}

#[tokio::test]
async fn a_partition_is_refused_while_the_others_of_the_request_are_answered() {
    let dir = tempfile::tempdir().unwrap();
    let broker = filled(dir.path()).await;
    let cluster = cluster(&broker, Setup::default()).await;
    let rule = cluster.rule(Rule::new(Fault::Error(56)).on(ApiKey::Produce).partition(1).times(1));
    let mut client = client(&cluster).await;
    let mut request = produce_request("t", 0, batch(&[6]), -1);
    let other = produce_request("t", 1, batch(&[6]), -1).topic_data[0].partition_data[0].clone();
    request.topic_data[0].partition_data.push(other);
    let answer = client.call(&request, PRODUCE).await;
    let codes: Vec<_> = answer.responses[0].partition_responses.iter().map(|p| (p.index, p.error_code)).collect();
    assert_eq!(codes, [(0, 0), (1, 56)]);
    assert_eq!((client.end_offset("t", 0).await, client.end_offset("t", 1).await), (6, 0));
    assert_eq!(cluster.fired(rule), 1);
    assert_eq!(cluster.happened()[0].partition, Some(("t".to_owned(), 1)));
    assert_eq!(client.produce("t", 1, batch(&[6])).await.error_code, 0, "once is enough");
}

#[tokio::test]
async fn a_lead_that_moved_is_refused_with_where_it_is_now() {
    let dir = tempfile::tempdir().unwrap();
    let broker = filled(dir.path()).await;
    let cluster = cluster(&broker, Setup { brokers: 3, ..Setup::default() }).await;
    let mut client = client(&cluster).await;
    let metadata = client.call(&MetadataRequest::default().with_topics(None), 12).await;
    assert_eq!(metadata.brokers.len(), 3);
    let topic = &metadata.topics[0];
    let leaders: Vec<_> = topic.partitions.iter().map(|p| (p.leader_id.0, p.leader_epoch)).collect();
    assert_eq!(leaders, [(1, 0), (2, 0), (3, 0)]);

    cluster.move_leader("t", 0, Some(2), 1);
    let mut request = fetch_request("t", 0, 0, 1 << 20, 0, 0);
    request.topics[0].topic_id = topic.topic_id;
    request.topics[0].topic = name("");
    let answer = client.call(&request, 16).await;
    let part = &answer.responses[0].partitions[0];
    assert_eq!((part.error_code, part.current_leader.leader_id.0, part.current_leader.leader_epoch), (6, 2, 1));
    assert_eq!(answer.node_endpoints.len(), 1);
    let port = u16::try_from(answer.node_endpoints[0].port).unwrap();

    for expected in [(1, 0), (2, 1)] {
        let shown = client.call(&MetadataRequest::default().with_topics(None), 12).await;
        let part = &shown.topics[0].partitions[0];
        assert_eq!((part.leader_id.0, part.leader_epoch), expected, "stale once, then true");
    }
    let mut second = Client::connect(([127, 0, 0, 1], port).into()).await;
    for (epoch, code) in [(1, 0), (0, 74), (2, 75)] {
        let mut request = fetch_request("t", 0, 0, 1 << 20, 0, 0);
        request.topics[0].partitions[0].current_leader_epoch = epoch;
        let answer = second.call(&request, FETCH).await;
        assert_eq!(answer.responses[0].partitions[0].error_code, code, "epoch {epoch}");
    }
    assert_eq!(second.read_all("t", 0, 0).await.len(), 5);
}

#[tokio::test]
async fn connections_are_cut_and_fall_silent_at_the_moment_that_the_rule_names() {
    let dir = tempfile::tempdir().unwrap();
    let broker = filled(dir.path()).await;
    let cluster = cluster(&broker, Setup::default()).await;
    let mut written = 5;
    for (moment, carried_out) in
        [(Moment::BeforeRequest, false), (Moment::BeforeAnswer, true), (Moment::InsideAnswer, true)]
    {
        let rule = cluster.rule(Rule::new(Fault::Cut(moment)).on(ApiKey::Produce).times(1));
        let mut client = client(&cluster).await;
        assert!(client.try_produce("t", 0, batch(&[9])).await.is_err(), "{moment:?}");
        written += i64::from(carried_out);
        let mut honest = Client::connect(broker.addr()).await;
        assert_eq!(honest.end_offset("t", 0).await, written, "{moment:?}");
        assert_eq!(cluster.fired(rule), 1);
    }
    let rule = cluster.rule(Rule::new(Fault::Cut(Moment::AfterAnswer)).on(ApiKey::Produce).times(1));
    let mut cut = client(&cluster).await;
    assert_eq!(cut.produce("t", 0, batch(&[9])).await.error_code, 0);
    assert!(cut.read_frame().await.is_err());
    assert_eq!(cluster.fired(rule), 1);

    let request = MetadataRequest::default();
    let mut spoken = client(&cluster).await;
    spoken.send(&request, 9).await.unwrap();
    let whole = 4 + timeout(SOON, spoken.read_frame()).await.unwrap().unwrap().len();
    let rule = cluster.rule(Rule::new(Fault::Silence(Moment::InsideAnswer)).on(ApiKey::Metadata).times(1));
    let mut silent = client(&cluster).await;
    silent.send(&request, 9).await.unwrap();
    let mut half = vec![0; whole / 2];
    timeout(SOON, silent.stream().read_exact(&mut half)).await.expect("half an answer").unwrap();
    assert_eq!(half[..4], u32::try_from(whole - 4).unwrap().to_be_bytes(), "it begins as the whole does");
    let more = timeout(Duration::from_millis(200), silent.stream().read(&mut [0])).await;
    assert!(more.is_err(), "then nothing: {more:?}");
    assert_eq!(cluster.fired(rule), 1);
}

#[tokio::test]
async fn lies_are_told_once_there_is_something_to_lie_about() {
    let dir = tempfile::tempdir().unwrap();
    let broker = filled(dir.path()).await;
    let cluster = cluster(&broker, Setup::default()).await;
    let mut client = client(&cluster).await;
    let rule = cluster.rule(Rule::new(Fault::Lie(Lie::ReversedBatches)).on(ApiKey::Fetch).times(1));
    let answer = client.call(&fetch_request("t", 0, 4, 1 << 20, 0, 0), FETCH).await;
    assert_eq!(stored(answer.responses[0].partitions[0].records.clone().unwrap()).len(), 1);
    assert_eq!(cluster.fired(rule), 0, "one batch has no order");
    let reversed = stored(client.fetch("t", 0, 0).await.records.unwrap());
    assert_eq!(reversed.iter().map(|record| record.offset).collect::<Vec<_>>(), [4, 3, 2, 1, 0]);
    assert_eq!(cluster.fired(rule), 1);

    cluster.rule(Rule::new(Fault::Lie(Lie::OffsetBy(7))).on(ApiKey::ListOffsets).times(1));
    assert_eq!(client.end_offset("t", 0).await, 12);
    cluster.rule(Rule::new(Fault::Lie(Lie::HighWatermarkBy(-3))).on(ApiKey::Fetch).times(1));
    assert_eq!(client.fetch("t", 0, 0).await.high_watermark, 2);
    cluster.rule(Rule::new(Fault::Empty { throttle: Duration::from_millis(30) }).on(ApiKey::Fetch).times(1));
    let answer = client.call(&fetch_request("t", 0, 0, 1 << 20, 0, 0), FETCH).await;
    // As Kafka throttles a fetch without a session: with no topic at all.
    assert_eq!((answer.throttle_time_ms, answer.error_code, answer.responses.len()), (30, 0, 0));
    cluster.rule(Rule::new(Fault::Empty { throttle: Duration::ZERO }).on(ApiKey::Fetch).times(1));
    let answer = client.call(&fetch_request("t", 0, 0, 1 << 20, 0, 0), FETCH).await;
    let part = &answer.responses[0].partitions[0];
    assert_eq!((answer.throttle_time_ms, part.error_code, part.high_watermark), (0, 0, 5));
    assert!(part.records.as_ref().unwrap().is_empty());
    assert_eq!(client.read_all("t", 0, 0).await.len(), 5, "the truth again");
}

#[tokio::test]
async fn an_idle_connection_dies_without_a_word_and_a_busy_one_lives() {
    let dir = tempfile::tempdir().unwrap();
    let broker = filled(dir.path()).await;
    let flavour = Flavour { idle_cut: Some(Duration::from_secs(5)), ..Flavour::event_hubs() };
    let cluster = cluster(&broker, Setup { flavour, ..Setup::default() }).await;
    let mut client = client(&cluster).await;
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(7) {
        let request = MetadataRequest::default();
        timeout(SOON, client.call(&request, 5)).await.expect("a busy connection is answered");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(cluster.idle_cuts(), 0);
    let cut = async {
        while cluster.idle_cuts() == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(SOON, cut).await.expect("an idle connection is cut");
    let request = MetadataRequest::default();
    let call = client.try_call(&request, 5);
    assert!(timeout(Duration::from_millis(300), call).await.is_err(), "neither an answer nor an end");
}

#[tokio::test]
async fn a_fifth_commit_in_a_second_is_answered_when_the_second_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let broker = filled(dir.path()).await;
    let cluster = cluster(&broker, Setup { flavour: Flavour::event_hubs(), ..Setup::default() }).await;
    let mut client = client(&cluster).await;
    // All of them at once, and more than fit into a second's end and the next one's beginning. Where a machine is so busy that
    // they take longer than that, another time.
    for _ in 0..20 {
        for offset in 1..=9 {
            client.send(&commit_request("g", "", -1, &[(0, offset)]), 8).await.unwrap();
        }
        for _ in 1..=9 {
            let mut frame = timeout(SOON, client.read_frame()).await.unwrap().unwrap();
            ResponseHeader::decode(&mut frame, 1).unwrap();
            let answer = OffsetCommitResponse::decode(&mut frame, 8).unwrap();
            assert_eq!(answer.topics[0].partitions[0].error_code, 0, "too many is no error");
        }
        if cluster.late_commits() > 0 {
            break;
        }
    }
    assert!(cluster.late_commits() > 0);
    let mut other = Client::connect(broker.addr()).await;
    assert_eq!(committed(&mut other, "g").await, 9);
}

#[tokio::test]
async fn a_coordinator_is_one_of_the_stand_ins() {
    let dir = tempfile::tempdir().unwrap();
    let broker = filled(dir.path()).await;
    let cluster = cluster(&broker, Setup { brokers: 2, ..Setup::default() }).await;
    let mut client = client(&cluster).await;
    let port = i32::from(cluster.bootstrap().rsplit_once(':').unwrap().1.parse::<u16>().unwrap());
    let key = StrBytes::from_static_str("g");
    let old = client.call(&FindCoordinatorRequest::default().with_key(key.clone()), 1).await;
    assert_eq!((old.error_code, old.node_id.0, old.port), (0, 1, port));
    let new = client.call(&FindCoordinatorRequest::default().with_coordinator_keys(vec![key]), 4).await;
    assert_eq!((new.coordinators[0].error_code, new.coordinators[0].port), (0, port));
    let described = client.call(&DescribeClusterRequest::default().with_endpoint_type(1), 1).await;
    assert_eq!(described.brokers.len(), 2);
    cluster.rule(Rule::new(Fault::Error(15)).on(ApiKey::FindCoordinator).times(1));
    let refused = client.call(&FindCoordinatorRequest::default().with_key(StrBytes::from_static_str("g")), 1).await;
    assert_eq!(refused.error_code, 15);
}

//! Version negotiation, routing, and what is tried again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::time::Duration;

use kafka_protocol::messages::ApiKey;
use kafka_protocol::messages::ApiVersionsResponse;
use parking_lot::Mutex;
use tidegate_client::{Cluster, ClusterConfig, ListOffsetsError, MetadataError, OffsetQuery};
use tidegate_model::Isolation;

use crate::fake::{FakeBroker, FakeTopic, Reply, Request, api_versions, list_offsets, metadata, proper};
use crate::support::{config, connect, eventually, name};

fn topic() -> FakeTopic {
    FakeTopic::new("t", 2)
}

/// The versions of ApiVersions that a broker was asked for, by connection.
type Asked = Arc<Mutex<Vec<(usize, i16)>>>;

async fn recording(mut answer: impl FnMut(&Request) -> Reply + Send + 'static) -> (FakeBroker, Asked) {
    let asked = Asked::default();
    let noted = Arc::clone(&asked);
    let broker = FakeBroker::start(move |request, addr| match request.api {
        ApiKey::ApiVersions => {
            noted.lock().push((request.connection, request.version));
            answer(request)
        }
        _ => proper(request, addr, &topic()).unwrap_or(Reply::Silence),
    })
    .await;
    (broker, asked)
}

#[tokio::test]
async fn error_35_in_the_old_form_is_answered_with_a_lower_version_on_the_same_connection() {
    let (broker, asked) = recording(|request| {
        let versions = api_versions(&topic().with_version(ApiKey::ApiVersions, 0, 2).versions);
        match request.version {
            3 => request.respond_in(0, &versions.with_error_code(35)),
            _ => request.respond(&versions),
        }
    })
    .await;
    let cluster = connect(broker.bootstrap()).await;
    assert_eq!(*asked.lock(), [(0, 3), (0, 2)]);
    cluster.topic(&name("t")).await.unwrap();
}

#[tokio::test]
async fn a_broker_that_closes_at_a_version_is_asked_in_the_oldest_and_that_is_remembered() {
    let (broker, asked) = recording(|request| match request.version {
        3 => Reply::close(),
        _ => request.respond(&api_versions(&topic().versions)),
    })
    .await;
    let cluster = connect(broker.bootstrap()).await;
    assert_eq!(*asked.lock(), [(0, 3), (1, 0)]);
    // Another connection, for a reader, begins with what worked.
    let mut reader = cluster.read(crate::support::slice("t", 0, 0, 1), crate::support::options());
    tokio::select! {
        chunk = reader.next() => panic!("{chunk:?}"),
        () = eventually("another connection", || asked.lock().len() > 2) => {}
    }
    assert_eq!(asked.lock().last(), Some(&(2, 0)));
}

#[tokio::test]
async fn a_broker_that_closes_at_every_version_is_left_alone_after_the_second() {
    let (broker, asked) = recording(|_| Reply::close()).await;
    assert!(Cluster::connect(config(broker.bootstrap())).await.is_err());
    assert_eq!(*asked.lock(), [(0, 3), (1, 0)]);
    let (broker, asked) =
        recording(|request| request.respond_in(0, &ApiVersionsResponse::default().with_error_code(35))).await;
    assert!(Cluster::connect(config(broker.bootstrap())).await.is_err());
    assert_eq!(*asked.lock(), [(0, 3), (0, 0)]);
}

#[tokio::test]
async fn old_brokers_are_asked_for_all_topics_so_that_none_is_created() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&asked);
    let old = topic().with_version(ApiKey::Metadata, 0, 1);
    let broker = FakeBroker::start(move |request, addr| {
        if request.api == ApiKey::Metadata {
            noted.lock().push(request.body.clone());
        }
        proper(request, addr, &old).unwrap()
    })
    .await;
    let cluster = connect(broker.bootstrap()).await;
    assert_eq!(cluster.topic(&name("t")).await.unwrap().partitions.len(), 2);
    let unknown = cluster.topic(&name("other")).await.unwrap_err();
    assert!(matches!(unknown, MetadataError::UnknownTopic { .. }), "{unknown}");
    // Null, all topics.
    assert_eq!(asked.lock()[1..], [&[0xff; 4][..], &[0xff; 4]]);
}

#[tokio::test]
async fn the_leader_is_looked_up_anew_when_it_has_moved() {
    let leader = Arc::new(AtomicI32::new(0));
    let brokers: Arc<Mutex<Vec<SocketAddr>>> = Arc::default();
    let script = |own: i32| {
        let (leader, brokers) = (Arc::clone(&leader), Arc::clone(&brokers));
        move |request: &Request, _| match request.api {
            ApiKey::ApiVersions => request.respond(&api_versions(&topic().versions)),
            ApiKey::Metadata => {
                let led = leader.load(Ordering::SeqCst);
                request.respond(&metadata(&brokers.lock(), &topic(), &|_| Some(led)))
            }
            _ => list_offsets(request, |_, _| match leader.load(Ordering::SeqCst) == own {
                true => (0, -1, i64::from(100 + own)),
                false => (6, -1, -1),
            }),
        }
    };
    let first = FakeBroker::start(script(0)).await;
    let second = FakeBroker::start(script(1)).await;
    brokers.lock().extend([first.addr, second.addr]);
    let cluster = connect(first.bootstrap()).await;
    let latest = async || {
        let answers = cluster.list_offsets(&name("t"), &[(0, OffsetQuery::Latest)], Isolation::default()).await;
        answers.unwrap()[0].found.unwrap().offset
    };
    assert_eq!(latest().await, 100);
    leader.store(1, Ordering::SeqCst);
    assert_eq!(latest().await, 101);
}

#[tokio::test]
async fn a_partition_without_a_leader_is_named_when_patience_ends() {
    let broker = FakeBroker::start(|request, addr| match request.api {
        ApiKey::Metadata => request.respond(&metadata(&[addr], &topic(), &|p| (p == 0).then_some(0))),
        ApiKey::ListOffsets => list_offsets(request, |_, _| (0, -1, 5)),
        _ => proper(request, addr, &topic()).unwrap(),
    })
    .await;
    let cluster = connect(broker.bootstrap()).await;
    let info = cluster.topic(&name("t")).await.unwrap();
    assert_eq!(info.partitions.iter().map(|p| p.leader).collect::<Vec<_>>(), [Some(0), None]);
    let queries = [(0, OffsetQuery::Latest), (1, OffsetQuery::Latest)];
    let error = cluster.list_offsets(&name("t"), &queries, Isolation::default()).await.unwrap_err();
    assert!(error.to_string().contains("t-1 has no leader"), "{error}");
    let unknown = cluster.list_offsets(&name("t"), &[(7, OffsetQuery::Latest)], Isolation::default()).await;
    assert!(matches!(unknown, Err(ListOffsetsError::UnknownPartition { .. })), "{unknown:?}");
}

#[tokio::test]
async fn attempts_are_counted_and_refusals_that_stay_are_not_repeated() {
    for (code, expected) in [(6, 4), (29, 1), (43, 1)] {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let broker = FakeBroker::serving(topic(), move |request| {
            count.fetch_add(1, Ordering::SeqCst);
            list_offsets(request, |_, _| (code, -1, -1))
        })
        .await;
        let cluster = connect(broker.bootstrap()).await;
        let error = cluster.list_offsets(&name("t"), &[(0, OffsetQuery::Latest)], Isolation::default()).await;
        assert_eq!(asked.load(Ordering::SeqCst), expected, "code {code}");
        match error.unwrap_err() {
            ListOffsetsError::NotAuthorized { .. } => assert_eq!(code, 29),
            ListOffsetsError::NoTimestamps { .. } => assert_eq!(code, 43),
            ListOffsetsError::Refused { code: refused, .. } => assert_eq!(refused.0, code),
            other => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn several_questions_about_one_partition_go_out_apart_and_come_back_in_order() {
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    let broker = FakeBroker::serving(topic(), move |request| {
        count.fetch_add(1, Ordering::SeqCst);
        let asked = request.list_offsets();
        let mut partitions: Vec<_> = asked.topics[0].partitions.iter().map(|p| p.partition_index).collect();
        partitions.dedup();
        assert_eq!(partitions.len(), asked.topics[0].partitions.len());
        list_offsets(request, |partition, timestamp| match timestamp {
            50 => (0, -1, -1),
            _ => (0, timestamp.max(-1), i64::from(partition) * 100 + timestamp + 10),
        })
    })
    .await;
    let cluster = connect(broker.bootstrap()).await;
    let queries = [
        (1, OffsetQuery::Latest),
        (0, OffsetQuery::AtOrAfter(7)),
        (1, OffsetQuery::Earliest),
        (1, OffsetQuery::AtOrAfter(50)),
        (0, OffsetQuery::AtOrAfter(-2)),
    ];
    let answers = cluster.list_offsets(&name("t"), &queries, Isolation::default()).await.unwrap();
    let offsets: Vec<_> = answers.iter().map(|a| (a.partition, a.found.map(|found| found.offset))).collect();
    assert_eq!(offsets, [(1, Some(109)), (0, Some(17)), (1, Some(108)), (1, None), (0, Some(10))]);
    assert_eq!(requests.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn the_largest_timestamp_needs_a_broker_that_knows_it() {
    let old = topic().with_version(ApiKey::ListOffsets, 1, 5);
    let broker = FakeBroker::serving(old, |_| Reply::Silence).await;
    let cluster = connect(broker.bootstrap()).await;
    let error = cluster.list_offsets(&name("t"), &[(0, OffsetQuery::MaxTimestamp)], Isolation::default()).await;
    let error = error.unwrap_err();
    assert!(matches!(error, ListOffsetsError::MaxTimestampUnsupported { version: 5, .. }), "{error}");
}

#[tokio::test]
async fn many_callers_share_one_connection_and_each_gets_its_own_answer() {
    let broker = FakeBroker::serving(FakeTopic::new("t", 300), |request| {
        list_offsets(request, |partition, _| (0, -1, i64::from(partition)))
    })
    .await;
    let few = ClusterConfig { max_in_flight: 3, ..config(broker.bootstrap()) };
    let cluster = Cluster::connect(few).await.unwrap();
    let asking = (0..300).map(|partition| {
        let cluster = cluster.clone();
        tokio::spawn(async move {
            let topic = name("t");
            let query = [(partition, OffsetQuery::Latest)];
            let answers = cluster.list_offsets(&topic, &query, Isolation::default()).await.unwrap();
            assert_eq!(answers[0].found.unwrap().offset, i64::from(partition));
        })
    });
    for asked in asking.collect::<Vec<_>>() {
        asked.await.unwrap();
    }
    assert_eq!(broker.open_connections(), 1);
}

#[tokio::test]
async fn a_caller_that_gives_up_leaves_the_connection_in_order_for_the_others() {
    let broker = FakeBroker::serving(topic(), |request| {
        let delay = if request.list_offsets().topics[0].partitions[0].partition_index == 0 { 100 } else { 0 };
        list_offsets(request, |partition, _| (0, -1, i64::from(partition))).after(Duration::from_millis(delay))
    })
    .await;
    let cluster = connect(broker.bootstrap()).await;
    cluster.topic(&name("t")).await.unwrap();
    let topic = name("t");
    let given_up = cluster.list_offsets(&topic, &[(0, OffsetQuery::Latest)], Isolation::default());
    assert!(tokio::time::timeout(Duration::from_millis(20), given_up).await.is_err());
    let answers = cluster.list_offsets(&topic, &[(1, OffsetQuery::Latest)], Isolation::default()).await.unwrap();
    assert_eq!(answers[0].found.unwrap().offset, 1);
    assert_eq!(broker.open_connections(), 1);
}

#[tokio::test]
async fn a_connection_that_was_idle_for_too_long_is_replaced_before_it_is_used() {
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    let broker = FakeBroker::start(move |request, addr| {
        count.fetch_max(request.connection + 1, Ordering::SeqCst);
        proper(request, addr, &topic()).unwrap()
    })
    .await;
    let config = ClusterConfig { connection_max_idle: Duration::ZERO, ..config(broker.bootstrap()) };
    let cluster = Cluster::connect(config).await.unwrap();
    cluster.topic(&name("t")).await.unwrap();
    cluster.topic(&name("t")).await.unwrap();
    assert_eq!(connections.load(Ordering::SeqCst), 3);
    eventually("closing the old ones", || broker.open_connections() == 1).await;
}

//! One server over several clusters: each request reaches the one that it names, and no other.

use std::net::SocketAddr;

use tidegate_api::v1;
use tidegate_api::v1::read_range_response::Message;
use tidegate_api::{ApiError, Code};
use tidegate_client::{Producer, ProducerSettings};
use tidegate_server::engine::{ClusterName, Clusters, EngineLimits, Payloads, TopicPayload};
use tidegate_server::{Server, ServerConfig};

use crate::support::{DAY_MS, Setup, World, name};

/// A server over both worlds. `documents` holds JSON in the second.
async fn serve(near: &World, far: &World, first: &str) -> Server {
    let mut payloads = Payloads::default();
    payloads.insert(name("documents"), TopicPayload::Json);
    let producer = Producer::new(far.cluster.config(), ProducerSettings::default()).unwrap();
    let clusters = Clusters::new(ClusterName::new(first).unwrap(), near.engine.clone()).with_cluster(
        ClusterName::new("far").unwrap(),
        far.cluster.clone(),
        producer,
        payloads,
    );
    let config = ServerConfig { listen: SocketAddr::from(([127, 0, 0, 1], 0)), ..ServerConfig::default() };
    Server::start(config, clusters).await.unwrap()
}

type Client = v1::tidegate_client::TidegateClient<tonic::transport::Channel>;

async fn connect(server: &Server) -> Client {
    Client::connect(format!("http://{}", server.addr())).await.unwrap()
}

async fn values(client: &mut Client, cluster: &str) -> Vec<String> {
    let request = v1::ReadRangeRequest {
        topic: "documents".to_owned(),
        cluster: cluster.to_owned(),
        ..v1::ReadRangeRequest::default()
    };
    let mut stream = client.read_range(request).await.unwrap().into_inner();
    let (mut values, mut ended) = (Vec::new(), false);
    while let Some(message) = stream.message().await.unwrap() {
        match message.message.unwrap() {
            Message::Rows(rows) => values.extend(
                rows.rows
                    .iter()
                    .map(|row| String::from_utf8(row.value.as_deref().unwrap_or_default().to_vec()).unwrap()),
            ),
            Message::Columns(_) => panic!("rows were asked for"),
            Message::End(end) => ended = end.exhaustive,
        }
    }
    assert!(ended);
    values
}

#[tokio::test]
async fn a_request_reaches_the_cluster_that_it_names_and_no_other() {
    let (near, far) = (World::start().await, World::start().await);
    for (world, value) in [(&near, "near"), (&far, "\"far\"")] {
        world.create("documents", 1).await;
        world.append("documents", 0, &[(DAY_MS, value)]).await;
    }
    far.create("only-far", 1).await;
    let server = serve(&near, &far, ClusterName::DEFAULT).await;
    let mut client = connect(&server).await;

    let listed = client.list_clusters(v1::ListClustersRequest {}).await.unwrap().into_inner();
    assert_eq!((listed.names, listed.default_name), (vec!["default".into(), "far".into()], "default".into()));
    for (cluster, expected) in [("", "near"), ("default", "near"), ("far", "\"far\"")] {
        assert_eq!(values(&mut client, cluster).await, [expected], "{cluster:?}");
    }

    // Each cluster has topics and payloads of its own.
    let topics = |cluster: &str| v1::ListTopicsRequest { cluster: cluster.to_owned(), ..Default::default() };
    let far_topics = client.list_topics(topics("far")).await.unwrap().into_inner().topics;
    let seen: Vec<_> = far_topics.iter().map(|topic| (&*topic.name, topic.payload_kind())).collect();
    assert_eq!(seen, [("documents", v1::PayloadKind::Json), ("only-far", v1::PayloadKind::Bytes)]);
    let describe =
        |cluster: &str| v1::DescribeTopicRequest { topic: "only-far".to_owned(), cluster: cluster.to_owned() };
    assert!(client.describe_topic(describe("far")).await.is_ok());
    let refused = ApiError::from_status(&client.describe_topic(describe("")).await.unwrap_err()).unwrap();
    assert_eq!(refused.code, Code::UnknownTopic);

    let message = |cluster: &str, value: &'static str| v1::PublishRequest {
        topic: "documents".to_owned(),
        cluster: cluster.to_owned(),
        records: vec![v1::PublishRecord { value: Some(value.into()), ..Default::default() }],
    };
    let published = client.publish(tokio_stream::iter([message("far", "1"), message("", "2")])).await.unwrap();
    assert_eq!(published.get_ref().records, 2);
    assert_eq!(values(&mut client, "far").await, ["\"far\"", "1", "2"]);
    assert_eq!(values(&mut client, "default").await, ["near"]);

    let same = client.publish(tokio_stream::iter([message("", "5"), message("default", "6")])).await.unwrap();
    assert_eq!(same.get_ref().records, 2);

    // One stream writes to one cluster; what came before the change is told.
    let mixed = client.publish(tokio_stream::iter([message("", "3"), message("far", "4")])).await.unwrap_err();
    let mixed = ApiError::from_status(&mixed).unwrap();
    assert_eq!(
        (mixed.code, &*mixed.details["field"], &*mixed.details["records_written"]),
        (Code::InvalidArgument, "cluster", "1")
    );
    server.shutdown().await;
}

#[tokio::test]
async fn a_cluster_that_nobody_knows_is_refused_with_those_that_there_are() {
    let (near, far) = (World::start().await, World::start().await);
    let server = serve(&near, &far, "near").await;
    let mut client = connect(&server).await;
    let mut refusal = async |cluster: &str| {
        let request = v1::ListTopicsRequest { cluster: cluster.to_owned(), ..Default::default() };
        ApiError::from_status(&client.list_topics(request).await.unwrap_err()).unwrap()
    };
    let unknown = refusal("lab").await;
    assert_eq!((unknown.code, &*unknown.details["clusters"]), (Code::UnknownCluster, "far,near"));
    assert_eq!(unknown.message, "there is no cluster \"lab\" here; the clusters are far, near");
    // Neither of the two is the default.
    let unnamed = refusal("").await;
    assert_eq!((unnamed.code, &*unnamed.details["field"]), (Code::InvalidArgument, "cluster"));
    assert!(
        client.list_topics(v1::ListTopicsRequest { cluster: "near".to_owned(), ..Default::default() }).await.is_ok()
    );
    server.shutdown().await;
}

#[tokio::test]
async fn the_limit_of_reads_holds_for_all_clusters_together() {
    let limits = EngineLimits { max_concurrent_reads: 1, ..EngineLimits::default() };
    let near = World::with(Setup { limits, ..Setup::default() }).await;
    let far = World::start().await;
    for world in [&near, &far] {
        world.create("documents", 1).await;
        world.fill("documents", 4_000, 4 << 10).await;
    }
    let server = serve(&near, &far, "near").await;
    let mut client = connect(&server).await;
    let read = |cluster: &str| v1::ReadRangeRequest {
        topic: "documents".to_owned(),
        cluster: cluster.to_owned(),
        ..v1::ReadRangeRequest::default()
    };
    let mut held = client.read_range(read("far")).await.unwrap().into_inner();
    held.message().await.unwrap().unwrap();
    let refused = ApiError::from_status(&client.read_range(read("near")).await.unwrap_err()).unwrap();
    assert_eq!(refused.code, Code::TooManyReads);
    drop(held);
    server.shutdown().await;
}

#[test]
fn a_name_is_short_and_plain() {
    for name in ["a", "prod-eu.1_x", &"n".repeat(64)] {
        assert_eq!(ClusterName::new(name).unwrap().as_str(), name);
    }
    for name in ["", "a/b", "a b", "é", &"n".repeat(65)] {
        assert!(ClusterName::new(name).unwrap_err().to_string().contains("cannot name a cluster"), "{name}");
    }
}

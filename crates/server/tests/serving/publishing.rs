//! Publishing over gRPC.

use tidegate_api::{Code, v1};
use tidegate_server::ServerConfig;
use tidegate_server::engine::EngineLimits;

use crate::support::{DAY_MS, Setup, World, api_error, code, detail};

fn message(topic: &str, records: Vec<v1::PublishRecord>) -> v1::PublishRequest {
    v1::PublishRequest { topic: topic.to_owned(), records, ..Default::default() }
}

fn value(value: impl Into<Vec<u8>>) -> v1::PublishRecord {
    v1::PublishRecord { value: Some(value.into().into()), ..v1::PublishRecord::default() }
}

#[tokio::test]
async fn records_are_read_back_as_they_were_published() {
    let world = World::start().await;
    world.create("events", 3).await;
    let mut client = world.grpc().await;
    let header = |name: &'static [u8], value: Option<&'static [u8]>| v1::Header {
        name: name.into(),
        value: value.map(Into::into),
    };
    let records = vec![
        v1::PublishRecord {
            key: Some(b"\xff\x00".as_slice().into()),
            value: Some(b"".as_slice().into()),
            headers: vec![header(b"a", Some(b"1")), header(b"b", None), header(b"a", Some(b""))],
            timestamp_ms: Some(DAY_MS),
            partition: Some(1),
        },
        v1::PublishRecord { key: Some(b"".as_slice().into()), value: None, partition: Some(1), ..Default::default() },
        v1::PublishRecord { timestamp_ms: Some(DAY_MS + 1), partition: Some(2), ..value("v") },
    ];
    let stream = tokio_stream::iter([message("events", records[..1].to_vec()), message("", records[1..].to_vec())]);
    let published = client.publish(stream).await.unwrap().into_inner();
    assert_eq!((published.records, published.warnings.len()), (3, 0));
    let partitions: Vec<_> =
        published.partitions.iter().map(|p| (p.partition, p.records, p.first_offset, p.last_offset)).collect();
    assert_eq!(partitions, [(1, 2, 0, 1), (2, 1, 0, 0)]);

    let request = v1::ReadRangeRequest { topic: "events".to_owned(), partitions: vec![1], ..Default::default() };
    let mut stream = client.read_range(request).await.unwrap().into_inner();
    let response = stream.message().await.unwrap().unwrap();
    let Some(v1::read_range_response::Message::Rows(rows)) = response.message else { panic!("{response:?}") };
    for (row, record) in rows.rows.iter().zip(&records) {
        assert_eq!((&row.key, &row.value, &row.headers), (&record.key, &record.value, &record.headers));
    }
    assert_eq!(rows.rows[0].timestamp_ms, DAY_MS);
}

#[tokio::test]
async fn a_stream_that_cannot_be_published_is_refused_with_the_reason() {
    let mut server = ServerConfig::default();
    server.grpc.max_request_message_bytes = 2 << 20;
    let world = World::with(Setup { server, ..Setup::default() }).await;
    world.create("events", 1).await;
    world.create("others", 1).await;
    let mut client = world.grpc().await;
    for (stream, expected, named) in [
        (vec![], Code::InvalidArgument, ("field", "topic")),
        (vec![message("", vec![value("v")])], Code::InvalidArgument, ("field", "topic")),
        (vec![message("missing", vec![value("v")])], Code::UnknownTopic, ("topic", "missing")),
        (vec![message("events", vec![]), message("others", vec![])], Code::InvalidArgument, ("field", "topic")),
        (vec![message("events", vec![value(vec![0; 3 << 20])])], Code::RequestTooLarge, ("limit", "2097152")),
        (vec![message("events", vec![value("v"), value(vec![0; 1_500_000])])], Code::RecordTooLarge, ("record", "1")),
        (
            vec![message("events", vec![v1::PublishRecord { partition: Some(7), ..value("v") }])],
            Code::UnknownPartition,
            ("partition", "7"),
        ),
    ] {
        let status = client.publish(tokio_stream::iter(stream)).await.unwrap_err();
        let error = api_error(&status);
        assert_eq!(error.code, expected, "{error}");
        assert_eq!(detail(&error, named.0), named.1, "{error}");
    }
    let topics = client.list_topics(v1::ListTopicsRequest::default()).await.unwrap().into_inner().topics;
    assert_eq!(topics.len(), 2, "none was created");
}

#[tokio::test]
async fn a_failed_publish_says_how_many_of_its_records_stand() {
    let world = World::start().await;
    world.create("events", 1).await;
    let mut client = world.grpc().await;
    let stream = vec![message("events", vec![value("a"), value("b")]), message("", vec![value(vec![0; 2_000_000])])];
    let error = api_error(&client.publish(tokio_stream::iter(stream)).await.unwrap_err());
    assert_eq!((error.code, detail(&error, "record")), (Code::RecordTooLarge, "2"));
    assert_eq!(detail(&error, "records_written"), "2");
    assert_eq!(world.engine.describe_topic("events").await.unwrap().partitions[0].high_watermark, 2);
}

#[tokio::test]
async fn one_publish_too_many_is_refused_and_may_be_tried_again() {
    let limits = EngineLimits { max_concurrent_publishes: 1, ..EngineLimits::default() };
    let world = World::with(Setup { limits, ..Setup::default() }).await;
    world.create("events", 1).await;
    let mut client = world.grpc().await;
    let publishing = world.engine.publish("events").await.unwrap();
    let one = || tokio_stream::iter([message("events", vec![value("v")])]);
    let error = api_error(&client.publish(one()).await.unwrap_err());
    assert_eq!((error.code, error.entry().retryable), (Code::TooManyPublishes, true));
    publishing.finish().await.unwrap();
    assert_eq!(client.publish(one()).await.unwrap().get_ref().records, 1);
}

#[tokio::test]
async fn records_that_the_topics_retention_would_eat_come_with_a_warning() {
    let world = World::start().await;
    world.create_with("short", 1, &[("retention.ms", "3600000")]).await;
    let mut client = world.grpc().await;
    let old = v1::PublishRecord { timestamp_ms: Some(DAY_MS), ..value("v") };
    let published = client.publish(tokio_stream::iter([message("short", vec![old, value("now")])])).await.unwrap();
    let [warning] = published.get_ref().warnings.as_slice() else { panic!("{published:?}") };
    assert!(warning.contains("1 records") && warning.contains("retention.ms=3600000"), "{warning}");
}

#[tokio::test]
async fn a_unary_call_that_is_too_large_is_refused_without_harm() {
    let mut server = ServerConfig::default();
    server.grpc.max_request_message_bytes = 1 << 10;
    let world = World::with(Setup { server, ..Setup::default() }).await;
    let mut client = world.grpc().await;
    let request = v1::DescribeTopicRequest { topic: "x".repeat(2 << 10), ..Default::default() };
    assert_eq!(client.describe_topic(request).await.unwrap_err().code(), tonic::Code::OutOfRange);
    let request = v1::DescribeTopicRequest { topic: "missing".to_owned(), ..Default::default() };
    assert_eq!(code(&client.describe_topic(request).await.unwrap_err()), Code::UnknownTopic);
}

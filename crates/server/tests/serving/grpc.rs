//! Reading over gRPC: sizes, layouts, errors, reflection, health.

use prost::Message as _;
use tidegate_api::v1::read_range_response::Message;
use tidegate_api::v1::tidegate_client::TidegateClient;
use tidegate_api::{Code, v1};
use tidegate_codec::Schema;
use tidegate_server::engine::{Payloads, TopicPayload};
use tokio_stream::StreamExt as _;
use tonic::transport::Channel;

use crate::support::{DAY_MS, Setup, World, api_error, code, detail, name, soon};

/// What default clients accept.
const DEFAULT_LIMIT: usize = 4 << 20;

const LARGE_RECORDS: [(&str, &str); 1] = [("max.message.bytes", "33554432")];

fn everything(topic: &str, layout: v1::Layout) -> v1::ReadRangeRequest {
    v1::ReadRangeRequest { topic: topic.to_owned(), layout: layout.into(), ..v1::ReadRangeRequest::default() }
}

/// All messages of a stream that ends well.
async fn messages(client: &mut TidegateClient<Channel>, request: v1::ReadRangeRequest) -> Vec<Message> {
    let stream = client.read_range(request).await.unwrap().into_inner();
    let messages: Result<Vec<_>, _> = soon("the end", stream.collect()).await;
    messages.unwrap().into_iter().map(|response| response.message.unwrap()).collect()
}

/// How a stream that fails ends: the messages before, and the status.
async fn failure(
    client: &mut TidegateClient<Channel>,
    request: v1::ReadRangeRequest,
) -> (Vec<v1::ReadRangeResponse>, tonic::Status) {
    let mut stream = client.read_range(request).await.unwrap().into_inner();
    let mut messages = Vec::new();
    loop {
        match soon("the failure", stream.message()).await {
            Ok(Some(message)) => messages.push(message),
            Ok(None) => panic!("a clean end"),
            Err(status) => return (messages, status),
        }
    }
}

fn value_bytes(message: &Message) -> usize {
    match message {
        Message::Rows(rows) => rows.rows.iter().filter_map(|row| row.value.as_ref()).map(|value| value.len()).sum(),
        Message::Columns(columns) => columns.values.len(),
        Message::End(_) => 0,
    }
}

const LAYOUTS: [v1::Layout; 2] = [v1::Layout::Rows, v1::Layout::Columns];

#[tokio::test]
async fn a_default_client_reads_records_that_add_up_to_its_limit_without_their_envelope() {
    let world = World::start().await;
    world.create_with("events", 1, &LARGE_RECORDS).await;
    let value = vec![b'v'; 1_048_550];
    for _ in 0..4 {
        world.append("events", 0, &[(DAY_MS, &value)]).await;
    }
    assert_eq!(4 * value.len(), 4_194_200);
    let mut client = world.grpc().await;
    for layout in LAYOUTS {
        let messages = messages(&mut client, everything("events", layout)).await;
        assert_eq!(messages.iter().map(value_bytes).sum::<usize>(), 4_194_200);
        let Some(Message::End(end)) = messages.last() else { panic!("no statement") };
        assert_eq!((end.records_sent, end.exhaustive), (4, true));
    }
}

#[tokio::test]
async fn a_record_that_cannot_fit_ends_the_stream_and_names_itself_and_the_field_to_raise() {
    let world = World::start().await;
    world.create_with("events", 1, &LARGE_RECORDS).await;
    world.append("events", 0, &[(DAY_MS, b"before")]).await;
    for bytes in [DEFAULT_LIMIT, 16 << 20] {
        world.append("events", 0, &[(DAY_MS, &vec![b'v'; bytes])]).await;
    }
    let mut client = world.grpc().await;
    for layout in LAYOUTS {
        let (before, status) = failure(&mut client, everything("events", layout)).await;
        assert_eq!(before.len(), 1, "the record before comes");
        assert_eq!(status.code(), tonic::Code::ResourceExhausted);
        let error = api_error(&status);
        assert_eq!(error.code, Code::MessageTooLarge);
        let detail = |name| detail(&error, name);
        assert_eq!((detail("topic"), detail("partition"), detail("offset")), ("events", "0", "1"));
        assert_eq!((detail("field"), detail("allowed_bytes")), ("max_message_bytes", "4194304"));
        let needed: usize = detail("needed_bytes").parse().unwrap();
        assert!((DEFAULT_LIMIT..DEFAULT_LIMIT + 100).contains(&needed));
        assert!(status.message().contains("max_message_bytes"), "{status}");

        // With the field raised as told, a client that accepts as much reads both.
        let mut large = client.clone().max_decoding_message_size(32 << 20);
        let raised = |bytes: usize| v1::ReadRangeRequest {
            max_message_bytes: u32::try_from(bytes).unwrap(),
            ..everything("events", layout)
        };
        let (read, status) = failure(&mut large, raised(needed)).await;
        assert_eq!((read.len(), code(&status)), (2, Code::MessageTooLarge));
        assert_eq!(read[1].encoded_len(), needed);
        assert_eq!(messages(&mut large, raised(17 << 20)).await.len(), 4);
    }
}

#[tokio::test]
async fn no_message_is_larger_than_the_request_allows_and_too_small_a_limit_is_refused() {
    let world = World::start().await;
    world.create("events", 2).await;
    world.fill("events", 500, 700).await;
    let mut client = world.grpc().await;
    for layout in LAYOUTS {
        let request = v1::ReadRangeRequest { max_message_bytes: 4_096, ..everything("events", layout) };
        let stream = client.read_range(request).await.unwrap().into_inner();
        let messages: Vec<_> = soon("the end", stream.collect::<Result<_, _>>()).await.unwrap();
        assert!(messages.len() > 100);
        assert!(messages.iter().all(|message: &v1::ReadRangeResponse| message.encoded_len() <= 4_096));
        let bytes: usize = messages.iter().filter_map(|message| message.message.as_ref()).map(value_bytes).sum();
        assert_eq!(bytes, 500 * 700);
    }
    let request = v1::ReadRangeRequest { max_message_bytes: 4_095, ..everything("events", v1::Layout::Rows) };
    let error = api_error(&client.read_range(request).await.unwrap_err());
    assert_eq!((error.code, detail(&error, "field")), (Code::InvalidArgument, "max_message_bytes"));
}

#[tokio::test]
async fn chunks_are_between_a_quarter_and_a_whole_mebibyte() {
    let world = World::start().await;
    world.create("events", 1).await;
    world.fill("events", 4_000, 1_000).await;
    let mut client = world.grpc().await;
    for layout in LAYOUTS {
        let stream = client.read_range(everything("events", layout)).await.unwrap().into_inner();
        let messages: Vec<v1::ReadRangeResponse> = soon("the end", stream.collect::<Result<_, _>>()).await.unwrap();
        let sizes: Vec<_> = messages.iter().map(prost::Message::encoded_len).collect();
        assert!(sizes.iter().all(|size| *size <= 1 << 20), "{sizes:?}");
        // Flushes for time's sake are smaller; the bulk is not.
        assert!(sizes.iter().any(|size| *size >= 256 << 10), "{sizes:?}");
    }
}

#[tokio::test]
async fn values_come_as_json_where_that_is_asked_for_and_possible() {
    let source = "syntax = \"proto3\"; package t; message M { int64 n = 1; }";
    let message = Schema::from_proto_source("m.proto", source).unwrap().message("t.M").unwrap();
    let mut payloads = Payloads::default();
    payloads.insert(name("messages"), TopicPayload::Protobuf(message));
    payloads.insert(name("documents"), TopicPayload::Json);
    let world = World::with(Setup { payloads, ..Setup::default() }).await;
    for topic in ["messages", "documents"] {
        world.create(topic, 1).await;
    }
    let mut client = world.grpc().await;
    world.append("messages", 0, &[(DAY_MS, &[8, 1][..]), (DAY_MS, &[0xff]), (DAY_MS, &[8, 2])]).await;
    world
        .append("documents", 0, &[(DAY_MS, &b"{\"a\":\n1.10}"[..]), (DAY_MS, b"{"), (DAY_MS, b"9007199254740993")])
        .await;
    let (proto, document) =
        ([&b"{\"n\":\"1\"}"[..], &[0xff], b"{\"n\":\"2\"}"], [&b"{\"a\":1.10}"[..], b"{", b"9007199254740993"]);
    for (topic, expected) in [("messages", proto), ("documents", document)] {
        let json = v1::ValueEncoding::Json.into();
        let request = v1::ReadRangeRequest { value_encoding: json, ..everything(topic, v1::Layout::Rows) };
        let messages = messages(&mut client, request).await;
        let (Message::Rows(rows), Some(Message::End(end))) = (&messages[0], messages.last()) else {
            panic!("{messages:?}")
        };
        let values: Vec<_> = rows.rows.iter().map(|row| row.value.as_deref().unwrap()).collect();
        assert_eq!(values, expected);
        assert_eq!(rows.rows.iter().map(|row| row.value_error.is_empty()).collect::<Vec<_>>(), [true, false, true]);
        assert_eq!(end.values_not_converted, 1);
    }
    let described = client
        .describe_topic(v1::DescribeTopicRequest { topic: "messages".to_owned(), ..Default::default() })
        .await
        .unwrap();
    assert_eq!(described.get_ref().message, "t.M");
    let listed = client.list_topics(v1::ListTopicsRequest::default()).await.unwrap().into_inner().topics;
    let kinds: Vec<_> = listed.iter().map(|topic| (topic.name.as_str(), topic.payload_kind())).collect();
    assert_eq!(kinds, [("documents", v1::PayloadKind::Json), ("messages", v1::PayloadKind::Protobuf)]);
}

#[tokio::test]
async fn what_fails_before_the_first_byte_fails_the_call_with_the_code_in_its_status() {
    let world = World::start().await;
    world.create("events", 1).await;
    let mut client = world.grpc().await;
    let read = |change: fn(&mut v1::ReadRangeRequest)| {
        let mut request = everything("events", v1::Layout::Rows);
        change(&mut request);
        request
    };
    let time =
        |from: &str| v1::read_range_request::Range::Time(v1::TimeRange { from: from.to_owned(), until: String::new() });
    let mut bare = read(|_| {});
    bare.range = Some(time("1714521600"));
    for (request, expected, grpc) in [
        (read(|r| r.topic = "missing".to_owned()), Code::UnknownTopic, tonic::Code::NotFound),
        (read(|r| r.topic.clear()), Code::InvalidArgument, tonic::Code::InvalidArgument),
        (read(|r| r.partitions = vec![1]), Code::UnknownPartition, tonic::Code::NotFound),
        (read(|r| r.layout = 99), Code::InvalidArgument, tonic::Code::InvalidArgument),
        (read(|r| r.isolation = -1), Code::InvalidArgument, tonic::Code::InvalidArgument),
        (bare, Code::InvalidTime, tonic::Code::InvalidArgument),
    ] {
        let status = client.read_range(request).await.unwrap_err();
        assert_eq!((code(&status), status.code()), (expected, grpc));
    }
    let describe = v1::DescribeTopicRequest { topic: "missing".to_owned(), ..Default::default() };
    assert_eq!(code(&client.describe_topic(describe).await.unwrap_err()), Code::UnknownTopic);
}

#[tokio::test]
async fn leaving_a_stream_stops_its_fetching() {
    let world = World::start().await;
    world.create("events", 1).await;
    world.fill("events", 4_000, 4 << 10).await;
    let mut client = world.grpc().await;
    let mut stream = client.read_range(everything("events", v1::Layout::Columns)).await.unwrap().into_inner();
    stream.message().await.unwrap().unwrap();
    drop(stream);
    soon("the end of fetching", world.proxy.no_fetching()).await;
}

#[tokio::test]
async fn the_service_describes_itself_and_says_that_it_is_well() {
    let world = World::start().await;
    let channel = Channel::from_shared(format!("http://{}", world.server.addr())).unwrap().connect().await.unwrap();

    macro_rules! listed {
        ($version:ident) => {{
            use tonic_reflection::pb::$version::server_reflection_client::ServerReflectionClient;
            use tonic_reflection::pb::$version::server_reflection_request::MessageRequest;
            use tonic_reflection::pb::$version::server_reflection_response::MessageResponse;
            use tonic_reflection::pb::$version::ServerReflectionRequest;

            let ask = |message_request| ServerReflectionRequest { host: String::new(), message_request: Some(message_request) };
            let requests = tokio_stream::iter([
                ask(MessageRequest::ListServices(String::new())),
                ask(MessageRequest::FileContainingSymbol("tidegate.v1.Tidegate.ReadRange".to_owned())),
            ]);
            let mut client = ServerReflectionClient::new(channel.clone());
            let mut answers = client.server_reflection_info(requests).await.unwrap().into_inner();
            let first = answers.message().await.unwrap().unwrap().message_response.unwrap();
            let second = answers.message().await.unwrap().unwrap().message_response.unwrap();
            assert!(matches!(second, MessageResponse::FileDescriptorResponse(files) if files.file_descriptor_proto.len() == 1));
            let MessageResponse::ListServicesResponse(services) = first else { panic!("{first:?}") };
            services.service.into_iter().map(|service| service.name).collect::<Vec<_>>()
        }};
    }
    for services in [listed!(v1), listed!(v1alpha)] {
        for service in ["tidegate.v1.Tidegate", "grpc.health.v1.Health"] {
            assert!(services.iter().any(|name| name == service), "{service} in {services:?}");
        }
    }

    use tonic_health::pb::health_check_response::ServingStatus;
    use tonic_health::pb::health_client::HealthClient;
    let mut health = HealthClient::new(channel);
    for service in ["", "tidegate.v1.Tidegate"] {
        let request = tonic_health::pb::HealthCheckRequest { service: service.to_owned() };
        assert_eq!(health.check(request).await.unwrap().get_ref().status(), ServingStatus::Serving, "{service:?}");
    }
}

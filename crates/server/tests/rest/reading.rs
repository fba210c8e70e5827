//! What a read gives: by time, by offset, the newest; which partitions; how it ends.

use http::{StatusCode, Version};
use tidegate_api::rest::{self, Isolation, Proof};
use tidegate_client::RecordToSend;

use crate::support::{Answer, Call, World};

/// 2024-05-01T00:00:00Z.
const DAY_MS: i64 = 1_714_521_600_000;

fn values(records: &[rest::Record]) -> Vec<i64> {
    records.iter().map(|record| record.value.as_ref().unwrap().as_i64().unwrap()).collect()
}

/// Writes values 0, 1, 2, … with these timestamps to `plain`.
async fn write_at(world: &World, timestamps: &[i64]) {
    let texts: Vec<String> = (0..timestamps.len()).map(|number| number.to_string()).collect();
    let records: Vec<RecordToSend<'_>> = timestamps
        .iter()
        .zip(&texts)
        .map(|(timestamp_ms, text)| RecordToSend {
            partition: Some(0),
            value: Some(text.as_bytes()),
            timestamp_ms: Some(*timestamp_ms),
            ..RecordToSend::default()
        })
        .collect();
    world.write("plain", &records).await;
}

#[tokio::test]
async fn a_time_range_is_half_open_and_finds_the_late() {
    let world = World::start().await;
    let hour = 3_600_000;
    // In it, in it at its last millisecond, behind it, late, before it, late.
    write_at(&world, &[DAY_MS, DAY_MS + hour - 1, DAY_MS + hour, DAY_MS + 5, DAY_MS - 1, DAY_MS + 6]).await;
    let path = "/v1/topics/plain/records?from=2024-05-01&until=2024-05-01T01:00:00Z";
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let answer = Call::get(path).over(version).send(world.addr()).await;
        assert_eq!(answer.header("content-type"), Some("application/x-ndjson"));
        assert_eq!(answer.header("tidegate-end-delivery"), Some("body"));
        let (records, end) = answer.ndjson();
        assert_eq!(values(&records), [0, 1, 3, 5]);
        assert_eq!(records[0].timestamp.as_deref(), Some("2024-05-01T00:00:00.000Z"));
        assert_eq!(records[1].timestamp.as_deref(), Some("2024-05-01T00:59:59.999Z"));
        let expected = rest::EndStatement {
            records_sent: 4,
            exhaustive: true,
            isolation: Isolation::ReadCommitted,
            from: Some("2024-05-01T00:00:00.000Z".to_owned()),
            until: Some("2024-05-01T01:00:00.000Z".to_owned()),
            values_not_converted: 0,
            undecided_offsets: 0,
            partitions: Some(vec![rest::PartitionEnd {
                partition: 0,
                start_offset: 0,
                end_offset: 6,
                noted_end_offset: 6,
                records_scanned: 6,
                records_sent: 4,
                late_records: 2,
                untimed_records: 0,
                proof: Proof::FullScan,
                exhaustive: true,
                lost_offsets: Vec::new(),
                first_offset_at_or_after_until: Some(2),
                high_watermark: 6,
                last_stable_offset: Some(6),
                undecided_offsets: 0,
            }]),
            partitions_left_out: None,
        };
        assert_eq!(end, expected);
    }
}

#[tokio::test]
async fn an_empty_or_future_range_ends_at_once_and_well() {
    let world = World::start().await;
    write_at(&world, &[DAY_MS]).await;
    for query in
        ["from=2024-05-01&until=2024-05-01", "from=2100-01-01&until=2100-02-01", "from=2100-01-01", "until=2000-01-01"]
    {
        let (records, end) = world.get(&format!("/v1/topics/plain/records?{query}")).await.ndjson();
        assert_eq!((records.len(), end.exhaustive), (0, true), "{query}");
    }
    let (records, end) = world.get("/v1/topics/wide/records").await.ndjson();
    assert_eq!((records.len(), end.partitions.unwrap().len()), (0, 3));
}

#[tokio::test]
async fn offsets_and_the_newest_records_can_be_asked_for() {
    let world = World::start().await;
    write_at(&world, &[DAY_MS; 10]).await;
    for (query, expected) in [
        ("offset=3&end_offset=6", vec![3, 4, 5]),
        ("offset=8", vec![8, 9]),
        ("end_offset=2", vec![0, 1]),
        ("offset=8&end_offset=100", vec![8, 9]),
        ("offset=100", vec![]),
        ("offset=4&end_offset=4", vec![]),
        ("last=3", vec![7, 8, 9]),
        ("last=100", (0..10).collect()),
        ("last=0", vec![]),
    ] {
        let (records, end) = world.get(&format!("/v1/topics/plain/records?{query}")).await.ndjson();
        assert_eq!(values(&records), expected, "{query}");
        assert_eq!((end.exhaustive, end.from, end.until), (true, None, None), "{query}");
        assert_eq!(end.partitions.unwrap()[0].proof, Proof::Offsets, "{query}");
    }
}

#[tokio::test]
async fn a_limit_ends_the_answer_and_is_said() {
    let world = World::start().await;
    write_at(&world, &[DAY_MS; 10]).await;
    let (records, end) = world.get("/v1/topics/plain/records?limit=4").await.ndjson();
    assert_eq!(values(&records), [0, 1, 2, 3]);
    assert_eq!((end.records_sent, end.exhaustive), (4, false));
}

#[tokio::test]
async fn partitions_can_be_picked() {
    let world = World::start().await;
    let records: Vec<RecordToSend<'_>> = (0..3)
        .map(|partition| RecordToSend { partition: Some(partition), value: Some(b"1"), ..RecordToSend::default() })
        .collect();
    world.write("wide", &records).await;
    for query in ["partition=2&partition=0", "partition=0,2", "partition=2,0,2"] {
        let (records, end) = world.get(&format!("/v1/topics/wide/records?{query}")).await.ndjson();
        let mut partitions: Vec<i32> = records.iter().map(|record| record.partition).collect();
        partitions.sort_unstable();
        assert_eq!(partitions, [0, 2], "{query}");
        let ends: Vec<i32> = end.partitions.unwrap().iter().map(|end| end.partition).collect();
        assert_eq!(ends, [0, 2], "{query}");
    }
    let answer = world.get("/v1/topics/wide/records?partition=3").await;
    assert_eq!((answer.status, answer.error_with("partition").0), (StatusCode::NOT_FOUND, "UNKNOWN_PARTITION"));
}

#[tokio::test]
async fn topics_are_listed_and_described() {
    let world = World::start().await;
    write_at(&world, &[DAY_MS + 5, DAY_MS]).await;
    let list: rest::TopicList = world.get_json("/v1/topics").await;
    let names: Vec<&str> = list.topics.iter().map(|topic| topic.name.as_str()).collect();
    assert_eq!(names, ["documents", "messages", "plain", "wide"]);
    let messages = &list.topics[1];
    assert_eq!(messages.payload_kind, rest::PayloadKind::Protobuf);
    assert_eq!(messages.message.as_deref(), Some("test.Message"));
    assert_eq!(list.topics[3].partitions, 3);

    let plain: rest::TopicDescription = world.get_json("/v1/topics/plain").await;
    assert_eq!(plain.payload_kind, rest::PayloadKind::Bytes);
    let partition = &plain.partitions[0];
    assert_eq!((partition.log_start_offset, partition.high_watermark, partition.last_stable_offset), (0, 2, 2));
    assert_eq!(partition.last_timestamp.as_deref(), Some("2024-05-01T00:00:00.005Z"));
    let empty: rest::TopicDescription = world.get_json("/v1/topics/wide").await;
    assert!(empty.partitions.iter().all(|partition| partition.first_timestamp.is_none()));
}

#[tokio::test]
async fn the_end_statement_comes_as_a_trailer_to_those_who_take_trailers() {
    let world = World::start().await;
    write_at(&world, &[DAY_MS; 3]).await;
    let path = "/v1/topics/plain/records?format=values";
    let check = |answer: &Answer| assert_eq!(answer.lines(), ["0", "1", "2"]);

    let with = Call::get(path).header("te", "trailers").send(world.addr()).await;
    check(&with);
    assert_eq!(with.header("tidegate-end-delivery"), Some("trailer"));
    assert_eq!(with.header("trailer"), Some("tidegate-end"));
    assert_eq!((with.end_trailer().records_sent, with.end_trailer().exhaustive), (3, true));

    let without = Call::get(path).send(world.addr()).await;
    check(&without);
    assert_eq!(without.header("tidegate-end-delivery"), Some("none"));
    assert_eq!((without.header("trailer"), &without.trailers), (None, &None));
    assert_eq!(without.failure, None);

    let http_2 = Call::get(path).over(Version::HTTP_2).send(world.addr()).await;
    check(&http_2);
    assert_eq!(http_2.header("tidegate-end-delivery"), Some("trailer"));
    assert_eq!(http_2.end_trailer().records_sent, 3);
}

#[tokio::test]
async fn http_1_0_gets_the_formats_whose_end_it_can_see() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let world = World::start().await;
    write_at(&world, &[DAY_MS]).await;
    for (format, status, last) in [("ndjson", "200 OK", "{\"end\":"), ("values", "400 Bad Request", "{\"error\":")] {
        let mut socket = tokio::net::TcpStream::connect(world.addr()).await.unwrap();
        let request = format!("GET /v1/topics/plain/records?format={format} HTTP/1.0\r\n\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        assert!(answer.contains(status) && answer.lines().last().unwrap().starts_with(last), "{answer}");
    }
}

#[tokio::test]
async fn a_head_request_reads_nothing() {
    let world = World::start().await;
    write_at(&world, &[DAY_MS]).await;
    for path in ["/v1/topics", "/v1/topics/plain", "/v1/topics/plain/records", "/v1/openapi.json"] {
        let answer = Call::new(http::Method::HEAD, path, bytes::Bytes::new()).send(world.addr()).await;
        assert_eq!((answer.status, answer.body.len()), (StatusCode::OK, 0), "{path}");
    }
    assert_eq!(world.engine.available_reads(), world.engine.limits().max_concurrent_reads);
}

#[tokio::test]
async fn a_client_that_goes_away_ends_its_read() {
    let world = World::start().await;
    let documents = (0..20_000).map(|number| crate::support::noisy_document(number, 1_000));
    world.write_values("documents", DAY_MS, documents).await;
    let all = world.engine.limits().max_concurrent_reads;
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let response = Call::get("/v1/topics/documents/records").over(version).open(world.addr()).await;
        assert_eq!(world.engine.available_reads(), all - 1);
        drop(response);
        // The server notices when its connection does.
        while world.engine.available_reads() < all {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
}

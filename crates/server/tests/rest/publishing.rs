//! Records in over POST: what is taken, what is refused and how that is said.

use bytes::Bytes;
use http::StatusCode;
use http_body_util::StreamBody;
use serde_json::json;
use tidegate_api::rest;
use tidegate_server::engine::EngineLimits;
use tidegate_server::rest::RestLimits;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{Call, World, noisy_document};

const DOCUMENTS: &str = "/v1/topics/documents/records";

fn values(records: &[rest::Record]) -> Vec<serde_json::Value> {
    records.iter().map(|record| record.value.clone().unwrap_or_default()).collect()
}

#[tokio::test]
async fn a_published_record_is_durable_and_where_the_answer_says() {
    let world = World::start().await;
    let body = concat!(
        r#"{"key":"k","value":{"b":1.10, "a":[ ]},"headers":[{"name":"h","value":"1"},{"name":"h"}],"#,
        r#""timestamp":"2024-05-01T01:00:00.5+01:00","partition":2}"#,
        "\n",
        r#"{"key_base64":"/w==","value_base64":"/v8=","partition":2}"#,
        "\n",
        r#"{"partition":1}"#
    );
    let answer: rest::PublishAnswer = world.post("/v1/topics/wide/records", body).await.json();
    let partition =
        |partition, records, last_offset| rest::PublishedPartition { partition, records, first_offset: 0, last_offset };
    let expected =
        rest::PublishAnswer { records: 3, partitions: vec![partition(1, 1, 0), partition(2, 2, 1)], warnings: vec![] };
    assert_eq!(answer, expected);
    let read = world.get("/v1/topics/wide/records?partition=2&offset=0").await;
    assert!(read.lines()[0].contains(r#""value":{"b":1.10, "a":[ ]}"#), "the text must stay: {}", read.lines()[0]);
    let (records, _) = read.ndjson();
    assert_eq!(records[0].timestamp.as_deref(), Some("2024-05-01T00:00:00.500Z"));
    assert_eq!(records[0].key.as_deref(), Some("k"));
    assert_eq!(records[0].headers.len(), 2);
    assert_eq!((records[1].key_base64.as_deref(), records[1].value_base64.as_deref()), (Some("/w=="), Some("/v8=")));
}

#[tokio::test]
async fn an_array_and_bare_values_are_taken_too() {
    let world = World::start().await;
    let array = "[ {\"value\":1},\n{\"value\":[2,{\"x\":\"]\"}]} , {\"value\":\"3\"}]";
    let answer = Call::post(DOCUMENTS, array).header("content-type", "application/json").send(world.addr()).await;
    assert_eq!(answer.json::<rest::PublishAnswer>().records, 3);
    let answer = world.post(&format!("{DOCUMENTS}?format=values"), "{\"a\":1}\nnull\n\"x\"\n").await;
    assert_eq!(answer.json::<rest::PublishAnswer>().records, 3);
    let call = Call::post(&format!("{DOCUMENTS}?format=values"), "[true, [7]]");
    let answer = call.header("content-type", "application/json; charset=utf-8").send(world.addr()).await;
    assert_eq!(answer.json::<rest::PublishAnswer>().records, 2);
    for (content_type, empty) in
        [("application/json", "[]"), ("application/x-ndjson", ""), ("application/x-ndjson", "\n\n")]
    {
        let answer = Call::post(DOCUMENTS, empty).header("content-type", content_type).send(world.addr()).await;
        assert_eq!(answer.json::<rest::PublishAnswer>().records, 0, "{content_type} {empty:?}");
    }
    let expected = json!([1, [2, {"x": "]"}], "3", {"a": 1}, null, "x", true, [7]]);
    assert_eq!(json!(values(&world.records("documents").await)), expected);
}

#[tokio::test]
async fn input_is_cut_into_the_records_that_were_sent_however_it_arrives() {
    let world = World::start().await;
    let long = "y".repeat(70_000);
    let body = format!(
        "\u{feff}{{\"value\":1}}\r\n\r\n{{\"value\":\"ä😁\u{2028}\u{2029}\u{85}\\r\"}}\n  \n{{\"value\":\"{long}\"}}\r\n{{\"value\":4}}"
    );
    // Pieces of three bytes: inside characters, between CR and LF.
    let pieces: Vec<Result<_, std::io::Error>> =
        body.as_bytes().chunks(3).map(|piece| Ok(hyper::body::Frame::data(Bytes::copy_from_slice(piece)))).collect();
    let stream = tokio::net::TcpStream::connect(world.addr()).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::post(DOCUMENTS)
        .header("host", "x")
        .header("content-type", "application/x-ndjson")
        .body(StreamBody::new(tokio_stream::iter(pieces)))
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let expected = [json!(1), json!("ä😁\u{2028}\u{2029}\u{85}\r"), json!(long), json!(4)];
    assert_eq!(values(&world.records("documents").await), expected);
}

#[tokio::test]
async fn a_record_that_cannot_be_read_is_named_and_what_was_written_is_counted() {
    let world = World::start().await;
    let good = "{\"value\":1}\n{\"value\":2}\n";
    let too_deep = format!("{{\"value\":{}{}}}", "[".repeat(101), "]".repeat(101));
    for (line, column_or_reason) in [
        ("{\"value\":3} {\"value\":4}", "line 4: more than one value"),
        ("{\"value\":", "line 4, column"),
        ("{\"valeu\":3}", "unknown field `valeu`"),
        ("not json", "line 4, column"),
        ("{\"value\":{\"m\":\"\\ud800\"}}", "half a surrogate pair"),
        ("{\"timestamp\":1714521600000}", "line 4, column"),
        ("{\"timestamp\":\"2024-05-01\"}", "RFC 3339"),
        ("{\"error\":{\"code\":\"DATA_LOSS\"}}", "the read that wrote this input failed"),
        ("[1]", "a record is a JSON object"),
        ("[\"k\",null,1]", "a record is a JSON object"),
        ("{\"headers\":[[\"a\",null,\"v\",null]]}", "a header is a JSON object"),
        ("{\"value\":3,\"end\":{}}", "line 4: the field end is no record's"),
        (too_deep.as_str(), "line 4: the value nests deeper than 100"),
    ] {
        // A blank line, so that lines and records are counted apart.
        let body = format!("\n{good}{line}\n{{\"value\":5}}\n");
        let answer = world.post(DOCUMENTS, body).await;
        let error = answer.error().error;
        assert_eq!((answer.status, error.code.name()), (StatusCode::BAD_REQUEST, "INVALID_RECORD"), "{line}");
        assert!(error.message.contains(column_or_reason), "{line}: {}", error.message);
        assert!(error.message.ends_with("; 2 records of the request were written"), "{}", error.message);
        assert_eq!((error.details["line"].as_str(), error.details["records_written"].as_str()), ("4", "2"));
    }
    // What the answers said is so, each time.
    let records = world.records("documents").await;
    assert_eq!(values(&records), vec![vec![json!(1), json!(2)]; 13].concat());
}

#[tokio::test]
async fn an_end_statement_alone_is_skipped_and_null_is_the_time_of_publishing() {
    let world = World::start().await;
    let before = jiff::Timestamp::now();
    let body = "{\"value\":1,\"timestamp\":null}\n{\"end\":{\"records_sent\":1}}\n{\"value\":2}\n";
    assert_eq!(world.post(DOCUMENTS, body).await.json::<rest::PublishAnswer>().records, 2);
    let call = Call::post(DOCUMENTS, "[{\"value\":3},{\"end\":{}}]").header("content-type", "application/json");
    assert_eq!(call.send(world.addr()).await.json::<rest::PublishAnswer>().records, 1);
    let records = world.records("documents").await;
    assert_eq!(values(&records), [json!(1), json!(2), json!(3)]);
    let written: jiff::Timestamp = records[0].timestamp.as_deref().unwrap().parse().unwrap();
    assert!(written.as_millisecond() >= before.as_millisecond());
}

#[tokio::test]
async fn json_for_a_protobuf_topic_is_converted_or_refused_with_line_and_path() {
    let world = World::start().await;
    let path = "/v1/topics/messages/records";
    let body =
        "{\"value\":{\"id\":\"9007199254740993\",\"the-inner\":{\"number\":1.5}}}\n{\"value\":{}}\n{\"value\":null}";
    assert_eq!(world.post(path, body).await.json::<rest::PublishAnswer>().records, 3);
    let records = world.records("messages").await;
    assert_eq!(values(&records)[..2], [json!({"id": "9007199254740993", "the-inner": {"number": 1.5}}), json!({})]);
    let stored = world.get("/v1/topics/messages/records?format=protobuf&end_offset=1").await;
    assert_eq!(stored.body, b"\x14\x08\x81\x80\x80\x80\x80\x80\x80\x10\x1a\x09\x09\x00\x00\x00\x00\x00\x00\xf8\x3f");

    let answer = world.post(path, "{\"value\":{}}\n{\"value\":{\"the-inner\":{\"nmuber\":1}}}\n").await;
    let (code, message, line) = answer.error_with("line");
    assert_eq!((answer.status, code, line.as_deref()), (StatusCode::BAD_REQUEST, "INVALID_RECORD", Some("2")));
    assert!(message.starts_with("line 2: the value is no test.Message: "), "{message}");
    assert!(message.contains("the-inner") && message.contains("nmuber"), "{message}");
}

#[tokio::test]
async fn a_body_or_record_over_its_limit_is_refused() {
    let mut limits = RestLimits::default();
    limits.max_body_bytes = 1_000_000;
    limits.max_record_text_bytes = 10_000;
    let world = World::with(EngineLimits::default(), limits).await;
    let long = format!("{{\"value\":1}}\n{{\"value\":\"{}\"}}\n", "x".repeat(10_000));
    let answer = world.post(DOCUMENTS, long).await;
    assert_eq!((answer.status, answer.error_with("line").2.as_deref()), (StatusCode::PAYLOAD_TOO_LARGE, Some("2")));
    assert_eq!(answer.error_with("records_written").2.as_deref(), Some("1"));

    let large = "{\"value\":1}\n".repeat(100_000);
    let announced = world.post(DOCUMENTS, large.clone()).await;
    assert_eq!(
        (announced.status, announced.error_with("limit_bytes").2.as_deref()),
        (StatusCode::PAYLOAD_TOO_LARGE, Some("1000000"))
    );
    assert_eq!(announced.error_with("records_written").2, None, "nothing of it was looked at");
    // A bomb: the limit is on what it unfolds to.
    let bomb = zstd::stream::encode_all(large.as_bytes(), 3).unwrap();
    assert!(bomb.len() < 10_000);
    let call = Call::post(DOCUMENTS, bomb).header("content-type", "application/x-ndjson");
    let answer = call.header("content-encoding", "zstd").send(world.addr()).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
    let written: usize = answer.error_with("records_written").2.unwrap().parse().unwrap();
    assert_eq!(world.records("documents").await.len(), 1 + written);
}

/// Opens an upload of `content_type`, sends `first` and, once its record can be read, `then`. How many requests of another
/// client are answered between that and the upload's own answer, and that answer's status.
async fn answered_during(content_type: &str, encoding: &str, first: Vec<u8>, then: Vec<u8>) -> (usize, StatusCode) {
    let world = World::start().await;
    let stream = tokio::net::TcpStream::connect(world.addr()).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let (pieces, body) = tokio::sync::mpsc::channel(2);
    let frame = |bytes: Vec<u8>| Ok::<_, std::io::Error>(hyper::body::Frame::data(Bytes::from(bytes)));
    let request = http::Request::post(DOCUMENTS)
        .header("host", "x")
        .header("content-type", content_type)
        .header("content-encoding", encoding)
        .body(StreamBody::new(tokio_stream::wrappers::ReceiverStream::new(body)))
        .unwrap();
    let upload = tokio::spawn(async move { sender.send_request(request).await.unwrap().status() });
    pieces.send(frame(first)).await.unwrap();
    // The upload is under way when its first record is there.
    while world.records("documents").await.is_empty() {}
    pieces.send(frame(then)).await.unwrap();
    drop(pieces);
    let mut answered = 0;
    while !upload.is_finished() {
        assert_eq!(world.get("/no/such/path").await.status, StatusCode::NOT_FOUND);
        answered += 1;
    }
    (answered, upload.await.unwrap())
}

#[tokio::test]
async fn others_are_answered_while_a_few_bytes_unfold_to_a_body_of_nothing() {
    let gzip = |text: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, text).unwrap();
        encoder.finish().unwrap()
    };
    let zstd = |text: &[u8]| zstd::stream::encode_all(text, 3).unwrap();
    let blank = [b'\n'].repeat(40 << 20);
    let (record, element) = (b"{\"value\":1}\n".as_slice(), b"[{\"value\":1}".as_slice());
    let array = [&blank, b"]".as_slice()].concat();
    for (content_type, encoding, first, then) in [
        ("application/x-ndjson", "gzip", gzip(record), gzip(&blank)),
        ("application/x-ndjson", "zstd", zstd(record), zstd(&blank)),
        ("application/json", "zstd", zstd(element), zstd(&array)),
        // Not even blanks: members without content.
        ("application/x-ndjson", "gzip", gzip(record), gzip(b"").repeat(20_000)),
    ] {
        assert!(then.len() < 1 << 20);
        let (answered, status) = answered_during(content_type, encoding, first, then).await;
        assert_eq!(status, StatusCode::OK);
        // A body that is worked off in one go lets through the few that are under way.
        assert!(answered >= 10, "{content_type} {encoding}: {answered} requests were answered meanwhile");
    }
}

#[tokio::test]
async fn a_body_of_nothing_but_blank_lines_is_refused_in_the_end() {
    let world = World::start().await;
    let bomb = zstd::stream::encode_all([b'\n'].repeat(65 << 20).as_slice(), 3).unwrap();
    let call = Call::post(DOCUMENTS, bomb).header("content-type", "application/x-ndjson");
    let answer = call.header("content-encoding", "zstd").send(world.addr()).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
    let message = answer.error().error.message;
    assert!(message.contains("67108864 bytes of white space"), "{message}");
}

#[tokio::test]
async fn a_record_of_two_mebibytes_is_taken_and_only_the_topic_may_refuse_it() {
    let world = World::start().await;
    // Noise: a topic's limit is on the compressed batch.
    let document = noisy_document(1, 2 << 20);
    let body = format!("{{\"value\":1}}\n{{\"value\":{document}}}\n");
    assert_eq!(world.post(DOCUMENTS, body.clone()).await.json::<rest::PublishAnswer>().records, 2);
    let stored = world.get(&format!("{DOCUMENTS}?format=values&offset=1")).await;
    assert!(stored.lines() == [document]);

    // This one takes a mebibyte.
    let answer = world.post("/v1/topics/plain/records", body).await;
    let error = answer.error().error;
    assert_eq!((answer.status, error.code.name()), (StatusCode::PAYLOAD_TOO_LARGE, "RECORD_TOO_LARGE"));
    assert_eq!(error.details["line"], "2");
    assert!(error.message.starts_with("line 2: "), "{}", error.message);
    assert_eq!(error.details["records_written"], "1");
    // The refusal was this request's; the next one is served.
    assert_eq!(world.post("/v1/topics/plain/records", "{\"value\":2}").await.json::<rest::PublishAnswer>().records, 1);
    assert_eq!(values(&world.records("plain").await), [json!(1), json!(2)]);
}

#[tokio::test]
async fn a_partition_that_is_not_there_is_refused_by_line() {
    let world = World::start().await;
    let answer = world.post("/v1/topics/wide/records", "{\"partition\":0}\n\n{\"partition\":3}\n").await;
    let error = answer.error().error;
    assert_eq!((answer.status, error.code.name()), (StatusCode::NOT_FOUND, "UNKNOWN_PARTITION"));
    assert_eq!((error.details["line"].as_str(), error.details["partition"].as_str()), ("3", "3"));
    assert_eq!(error.details["records_written"], "1");
}

#[tokio::test]
async fn the_content_type_must_say_what_the_body_is() {
    let world = World::start().await;
    for content_type in [None, Some("text/plain"), Some("application/x-www-form-urlencoded")] {
        let call = Call::post(DOCUMENTS, "{}\n");
        let call = content_type.into_iter().fold(call, |call, content_type| call.header("content-type", content_type));
        let answer = call.send(world.addr()).await;
        assert_eq!(answer.status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{content_type:?}");
        assert!(answer.error().error.message.contains("application/x-ndjson"));
    }
    let answer = world.post(&format!("{DOCUMENTS}?from=now"), "{}").await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_client_that_breaks_off_publishes_no_half_line() {
    let world = World::start().await;
    // Complete lines, and the beginning of a number: 12 of 123.
    let mut socket = tokio::net::TcpStream::connect(world.addr()).await.unwrap();
    let head = format!(
        "POST {DOCUMENTS} HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-ndjson\r\ncontent-length: 100\r\n\r\n"
    );
    socket.write_all(format!("{head}{{\"value\":1}}\n{{\"value\":12}}").as_bytes()).await.unwrap();
    socket.shutdown().await.unwrap();
    let mut answer = String::new();
    // Whether an answer still comes is the transport's affair.
    let _ = socket.read_to_string(&mut answer).await;
    assert!(!answer.contains("200 OK"), "{answer}");
    assert_eq!(values(&world.records("documents").await), [json!(1)]);
}

#[tokio::test]
async fn a_client_that_is_still_sending_reads_why_it_was_refused() {
    let world = World::start().await;
    let body = format!("nonsense\n{}", "{\"value\":\"x\"}\n".repeat(500_000));
    let answer = world.post(DOCUMENTS, body).await;
    assert_eq!((answer.status, answer.error_with("line").2.as_deref()), (StatusCode::BAD_REQUEST, Some("1")));
    assert!(answer.error().error.message.ends_with("; no record was written"));
    assert_eq!(world.records("documents").await.len(), 0);
}

#[tokio::test]
async fn a_topic_that_would_forget_the_records_gives_a_warning() {
    let world = World::start().await;
    let topic = tidegate_client::NewTopic {
        name: tidegate_model::TopicName::new("short").unwrap(),
        partitions: 1,
        replication_factor: 1,
        config: [("retention.ms".to_owned(), "604800000".to_owned())].into(),
    };
    world.cluster.create_topic(&topic).await.unwrap();
    let body = "{\"value\":1,\"timestamp\":\"2013-02-01T00:00:00Z\"}\n{\"value\":2}\n";
    let answer: rest::PublishAnswer = world.post("/v1/topics/short/records", body).await.json();
    assert_eq!((answer.records, answer.warnings.len()), (2, 1));
    assert!(answer.warnings[0].contains("retention.ms"), "{}", answer.warnings[0]);
}

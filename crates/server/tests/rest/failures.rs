//! A failure after the first byte: the client can always tell that its answer is incomplete.

use std::process::Stdio;

use http::{Response, StatusCode, Version};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tidegate_api::rest;
use tidegate_model::TopicName;
use tidegate_server::engine::EngineLimits;
use tidegate_server::rest::RestLimits;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{Answer, Call, World, noisy_document, number_of};

const DAY_MS: i64 = 1_714_521_600_000;

/// Many times what the buffers between broker and client hold.
const RECORDS: u64 = 20_000;

async fn world() -> World {
    let mut limits = EngineLimits::default();
    limits.per_request_budget_bytes = 1 << 20;
    let world = World::with(limits, RestLimits::default()).await;
    world.write_values("documents", DAY_MS, (0..RECORDS).map(|number| noisy_document(number, 1_000))).await;
    world
}

/// Opens a read and takes its first frame, so that it is under way.
async fn begin(world: &World, call: Call) -> (Response<Incoming>, Vec<u8>) {
    let mut response = call.open(world.addr()).await;
    assert_eq!(response.status(), StatusCode::OK);
    let first = response.frame().await.unwrap().unwrap().into_data().unwrap();
    (response, first.to_vec())
}

async fn finish((response, first): (Response<Incoming>, Vec<u8>)) -> Answer {
    let mut answer = Answer::read(response).await;
    answer.body.splice(0..0, first);
    answer
}

/// The records of an `ndjson` answer that broke off, which must be whole lines in order, and its error, if it arrived.
fn broken_off(answer: &Answer) -> (u64, Option<tidegate_api::error::ErrorObject>) {
    assert!(answer.failure.is_some(), "the transfer must not end well");
    let text = answer.text();
    assert!(!text.contains("{\"end\":"), "an end statement would call it complete");
    // A cut may leave half a line; what counts is that a client sees it is one.
    let mut lines: Vec<&str> = text.split_inclusive('\n').filter(|line| line.ends_with('\n')).collect();
    let error = lines.last().and_then(|line| serde_json::from_str::<tidegate_api::error::ErrorBody>(line).ok());
    if error.is_some() {
        lines.pop();
    }
    for (line, number) in lines.iter().zip(0..) {
        let record: rest::Record = serde_json::from_str(line).unwrap();
        assert_eq!(number_of(record.value.as_ref().unwrap()), number);
    }
    (lines.len() as u64, error.map(|body| body.error))
}

#[tokio::test]
async fn a_broker_that_dies_aborts_the_answer_in_every_format_and_version() {
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let world = world().await;
        let mut reads = Vec::new();
        for format in ["ndjson", "json", "values", "protobuf"] {
            for encoding in ["identity", "gzip", "zstd"] {
                let path = format!("/v1/topics/documents/records?format={format}");
                let call = Call::get(&path).over(version).header("accept-encoding", encoding).header("te", "trailers");
                reads.push((format, encoding, begin(&world, call).await));
            }
        }
        world.broker.abort().await;
        let ends = reads.into_iter().map(async |(format, encoding, read)| (format, encoding, finish(read).await));
        for (format, encoding, answer) in futures_util::future::join_all(ends).await {
            assert!(answer.failure.is_some(), "{version:?} {format} {encoding} must not end well");
            assert_eq!(answer.trailers, None, "{version:?} {format} {encoding}");
            if (format, encoding) == ("ndjson", "identity") {
                let (records, error) = broken_off(&answer);
                assert!((1..RECORDS).contains(&records));
                let error = error.expect("a client that keeps up reads why");
                assert_eq!(error.code.name(), "CLUSTER_UNAVAILABLE", "{}", error.message);
            }
        }
    }
}

#[tokio::test]
async fn records_deleted_ahead_of_the_reader_fail_it_and_are_named() {
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let world = world().await;
        let read = begin(&world, Call::get("/v1/topics/documents/records").over(version)).await;
        let topic = TopicName::new("documents").unwrap();
        let log_start = world.broker.delete_records_before(&topic, 0, 19_000).await.unwrap();
        let answer = finish(read).await;
        let (records, error) = broken_off(&answer);
        let error = error.expect("a client that keeps up reads why");
        assert_eq!(error.code.name(), "DATA_LOSS");
        // Not one record less is missing than the error says.
        assert_eq!(error.details["lost_start_offset"], records.to_string());
        assert_eq!(error.details["lost_end_offset"], log_start.to_string());
    }
}

#[tokio::test]
async fn a_read_that_reports_losses_goes_on_behind_them() {
    let world = world().await;
    let read = begin(&world, Call::get("/v1/topics/documents/records?on_data_loss=report")).await;
    let topic = TopicName::new("documents").unwrap();
    let log_start = world.broker.delete_records_before(&topic, 0, 19_000).await.unwrap();
    let (records, end) = finish(read).await.ndjson();
    let end = end.partitions.unwrap().remove(0);
    let [lost] = end.lost_offsets[..] else { panic!("one hole: {:?}", end.lost_offsets) };
    assert_eq!(lost.end, log_start);
    assert_eq!(records.len() as i64, lost.start + RECORDS as i64 - lost.end);
    assert!(!end.exhaustive);
}

#[tokio::test]
async fn an_offset_that_is_gone_before_the_read_is_an_error_with_a_status() {
    let world = world().await;
    let topic = TopicName::new("documents").unwrap();
    world.broker.delete_records_before(&topic, 0, 19_000).await.unwrap();
    let answer = world.get("/v1/topics/documents/records?offset=120").await;
    assert_eq!(answer.status, StatusCode::RANGE_NOT_SATISFIABLE);
    assert_eq!(answer.error_with("lost_start_offset").2.as_deref(), Some("120"));
    let (records, _) = world.get("/v1/topics/documents/records").await.ndjson();
    assert_eq!(records.len(), 1_000);
}

#[tokio::test]
async fn an_aborted_answer_over_http_1_has_no_final_chunk() {
    let world = world().await;
    let mut socket = tokio::net::TcpStream::connect(world.addr()).await.unwrap();
    socket.write_all(b"GET /v1/topics/documents/records HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = vec![0; 1_000];
    socket.read_exact(&mut answer).await.unwrap();
    world.broker.abort().await;
    socket.read_to_end(&mut answer).await.unwrap();
    let text = String::from_utf8_lossy(&answer);
    assert!(text.contains("transfer-encoding: chunked"));
    assert!(text.contains("{\"error\":{\"code\":\"CLUSTER_UNAVAILABLE\""));
    assert!(!text.ends_with("\r\n0\r\n\r\n"));
}

#[tokio::test]
async fn curl_fails_when_the_answer_is_aborted_and_succeeds_when_it_is_whole() {
    if tokio::process::Command::new("curl").arg("--version").stdout(Stdio::null()).status().await.is_err() {
        tidegate_testkit::skip(
            "curl_fails_when_the_answer_is_aborted_and_succeeds_when_it_is_whole",
            "there is no curl",
        );
        return;
    }
    let world = world().await;
    let url = format!("http://{}/v1/topics/documents/records", world.addr());
    let curl = |arguments: &[&str]| {
        let mut command = tokio::process::Command::new("curl");
        command.args(["--silent", "--no-buffer"]).args(arguments).stdout(Stdio::piped());
        command.spawn().unwrap()
    };
    let whole = curl(&[&format!("{url}?limit=10")]).wait_with_output().await.unwrap();
    assert!(whole.status.success());
    assert_eq!(String::from_utf8(whole.stdout).unwrap().lines().count(), 11);

    for arguments in [&["--http1.1"][..], &["--http1.1", "--compressed"], &["--http2-prior-knowledge"]] {
        let world = self::world().await;
        let url = format!("http://{}/v1/topics/documents/records", world.addr());
        let mut child = curl(&[arguments, &[&url]].concat());
        let mut output = child.stdout.take().unwrap();
        let mut first = [0; 1_000];
        output.read_exact(&mut first).await.unwrap();
        world.broker.abort().await;
        let mut rest = Vec::new();
        output.read_to_end(&mut rest).await.unwrap();
        let status = child.wait().await.unwrap();
        // 18: a partial file. 56: the connection broke. 61: the compressed text has no end. 92: the stream was reset.
        assert!(matches!(status.code(), Some(18 | 56 | 61 | 92)), "{arguments:?}: {status}");
    }
}

#[tokio::test]
async fn a_server_that_stops_aborts_what_does_not_end_in_time() {
    let world = world().await;
    let read = begin(&world, Call::get("/v1/topics/documents/records")).await;
    world.engine.stop_reads();
    let (records, error) = broken_off(&finish(read).await);
    assert!(records < RECORDS);
    assert_eq!(error.unwrap().code.name(), "SHUTTING_DOWN");
    let refused = world.get("/v1/topics/documents/records").await;
    assert_eq!((refused.status, refused.error().error.retryable), (StatusCode::SERVICE_UNAVAILABLE, true));
}

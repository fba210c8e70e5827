//! The main job on real records: a year of flights, really late, read back by time. Every row of the data's table, through
//! every door, from the embedded broker and from Apache Kafka, with one partition and with six, in several codecs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

#[path = "accept/http.rs"]
mod http_client;
#[path = "accept/process.rs"]
mod process;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hasher};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use process::{Server, run, tidegate};
use tidegate_api::v1;
use tidegate_api::v1::tidegate_client::TidegateClient;
use tidegate_codec::{JsonOptions, MessageType, Schema, UnknownMode};
use tidegate_testkit::flights::{EXPECTED, ExpectedRange, RECORDS};

const MESSAGE: &str = "tidegate.examples.flights.v1.Flight";
const LAYOUTS: [(i32, &str); 2] = [(1, "one"), (6, "six")];
const CODECS: [&str; 3] = ["none", "lz4", "zstd"];

/// Values, in any order: their number and the sum of their hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Digest {
    values: u64,
    sum: u64,
}

impl Digest {
    fn add(&mut self, value: &[u8]) {
        let mut hasher = DefaultHasher::new();
        hasher.write(value);
        self.values += 1;
        self.sum = self.sum.wrapping_add(hasher.finish());
    }
}

/// What the file says, converted as a publisher converts it.
struct Reference {
    times: Vec<i64>,
    stored: Vec<Vec<u8>>,
    json: Vec<String>,
}

impl Reference {
    fn load(message: &MessageType) -> Self {
        let (mut times, mut stored, mut json) = (Vec::new(), Vec::new(), Vec::new());
        for flight in tidegate_testkit::flights::lines() {
            let (mut bytes, mut text) = (Vec::new(), Vec::new());
            message.json_to_protobuf(flight.json.as_bytes(), UnknownMode::Strict, &mut bytes).unwrap();
            message.protobuf_to_json(&bytes, &JsonOptions::default(), &mut text).unwrap();
            times.push(flight.event_time_ms);
            stored.push(bytes);
            json.push(String::from_utf8(text).unwrap());
        }
        Self { times, stored, json }
    }

    /// The digests of a range: of the stored bytes and of the JSON texts.
    fn digests(&self, range: &ExpectedRange) -> (Digest, Digest) {
        let (mut stored, mut json) = (Digest::default(), Digest::default());
        for (at, time) in self.times.iter().enumerate() {
            if (range.from_ms..range.until_ms).contains(time) {
                stored.add(&self.stored[at]);
                json.add(self.json[at].as_bytes());
            }
        }
        (stored, json)
    }
}

/// What a read gave: the values, and what its end statement said.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    digest: Digest,
    late: BTreeMap<i32, u64>,
    exhaustive: bool,
    proofs: Vec<String>,
    isolation: String,
}

fn flight_proto() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/flights/flight.proto")
}

fn flights_message() -> MessageType {
    Schema::load(&flight_proto(), &[]).unwrap().message(MESSAGE).unwrap()
}

fn topics(prefix: &str) -> Vec<(String, i32, &'static str)> {
    LAYOUTS
        .iter()
        .flat_map(|(partitions, word)| CODECS.map(|codec| (format!("{prefix}-{word}-{codec}"), *partitions, codec)))
        .collect()
}

/// A configuration that tells the server what the topics' values are.
fn config_file(dir: &Path, topics: &[(String, i32, &str)]) -> PathBuf {
    let proto = flight_proto();
    let mut text = String::from("topics:\n");
    for (topic, ..) in topics {
        writeln!(text, "  {topic}:\n    payload: protobuf\n    message: {MESSAGE}\n    proto: {}", proto.display())
            .unwrap();
    }
    let path = dir.join("tidegate.yaml");
    std::fs::write(&path, text).unwrap();
    path
}

fn publish(brokers: &str, topic: &str, partitions: i32, codec: &str) {
    run(tidegate()
        .arg("publish")
        .arg(topic)
        .arg(tidegate_testkit::flights::path())
        .args(["--brokers", brokers, "--timestamp-field", "event_time", "--key-field", "tail_number"])
        .arg("--proto")
        .arg(flight_proto())
        .args(["--message", MESSAGE, "--compression", codec, "--create"])
        .args(["--partitions", &partitions.to_string(), "--config", "retention.ms=-1"]));
}

async fn read_grpc(server: SocketAddr, topic: &str, range: &ExpectedRange, layout: v1::Layout) -> Outcome {
    let mut client = TidegateClient::connect(format!("http://{server}")).await.unwrap();
    let request = v1::ReadRangeRequest {
        topic: topic.to_owned(),
        range: Some(v1::read_range_request::Range::Time(v1::TimeRange {
            from: range.from.to_owned(),
            until: range.until.to_owned(),
        })),
        layout: layout.into(),
        ..v1::ReadRangeRequest::default()
    };
    let mut stream = client.read_range(request).await.unwrap().into_inner();
    let (mut digest, mut end) = (Digest::default(), None);
    while let Some(response) = stream.message().await.unwrap() {
        assert!(end.is_none(), "nothing follows the end statement");
        // The default client limit, with room to spare for nothing: tonic would have refused a larger one.
        match response.message.unwrap() {
            v1::read_range_response::Message::Rows(rows) => {
                assert_eq!(layout, v1::Layout::Rows);
                rows.rows.iter().for_each(|row| digest.add(row.value.as_deref().unwrap()));
            }
            v1::read_range_response::Message::Columns(columns) => {
                assert_eq!(layout, v1::Layout::Columns);
                let mut rest = &columns.values[..];
                for length in &columns.value_lengths {
                    let (value, after) = rest.split_at(*length as usize - 1);
                    digest.add(value);
                    rest = after;
                }
                assert!(rest.is_empty());
            }
            v1::read_range_response::Message::End(statement) => end = Some(statement),
        }
    }
    let end = end.expect("a complete stream ends with the end statement");
    assert_eq!(end.records_sent, digest.values);
    Outcome {
        digest,
        late: end.partitions.iter().map(|end| (end.partition, end.late_records)).collect(),
        exhaustive: end.exhaustive && end.partitions.iter().all(|end| end.exhaustive),
        proofs: end
            .partitions
            .iter()
            .map(|end| end.proof().as_str_name().to_lowercase().replace("proof_", ""))
            .collect(),
        isolation: end.isolation().as_str_name().to_lowercase().replace("isolation_", ""),
    }
}

/// An end statement in JSON, as REST gives it.
fn outcome(digest: Digest, end: &serde_json::Value) -> Outcome {
    assert_eq!(end["records_sent"], digest.values, "{end}");
    let partitions = end["partitions"].as_array().unwrap();
    let number = |value: &serde_json::Value| value.as_u64().unwrap_or_else(|| panic!("{end}"));
    Outcome {
        digest,
        late: partitions
            .iter()
            .map(|end| (i32::try_from(number(&end["partition"])).unwrap(), number(&end["late_records"])))
            .collect(),
        exhaustive: end["exhaustive"] == true && partitions.iter().all(|end| end["exhaustive"] == true),
        proofs: partitions.iter().map(|end| end["proof"].as_str().unwrap().to_owned()).collect(),
        isolation: end["isolation"].as_str().unwrap().to_owned(),
    }
}

/// A record of `ndjson` and `json`, as far as this test looks.
#[derive(serde::Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    value: Option<&'a serde_json::value::RawValue>,
    end: Option<serde_json::Value>,
}

#[derive(serde::Deserialize)]
struct Document<'a> {
    #[serde(borrow)]
    records: Vec<Line<'a>>,
    end: serde_json::Value,
}

/// The values of a text answer and its end statement.
fn text_outcome(lines: impl Iterator<Item = impl AsRef<str>>) -> Outcome {
    let (mut digest, mut end) = (Digest::default(), None);
    for line in lines {
        assert!(end.is_none(), "nothing follows the end statement");
        let line: Line<'_> = serde_json::from_str(line.as_ref()).unwrap();
        match (line.value, line.end) {
            (Some(value), None) => digest.add(value.get().as_bytes()),
            (None, Some(statement)) => end = Some(statement),
            _ => panic!("a line is a record or the end statement"),
        }
    }
    outcome(digest, &end.expect("the last line is the end statement"))
}

async fn read_rest(server: SocketAddr, topic: &str, range: &ExpectedRange, format: &str) -> Outcome {
    let query = format!("/v1/topics/{topic}/records?from={}&until={}&format={format}", range.from, range.until);
    let answer = http_client::get(server, &query).await;
    assert_eq!(answer.status, 200, "{query}: {}", String::from_utf8_lossy(&answer.body));
    let trailer = || {
        let value = answer.trailers.get("tidegate-end").unwrap_or_else(|| panic!("{query}: no trailer"));
        serde_json::from_slice::<serde_json::Value>(value.as_bytes()).unwrap()
    };
    match format {
        "ndjson" => text_outcome(std::str::from_utf8(&answer.body).unwrap().lines()),
        "json" => {
            let document: Document<'_> = serde_json::from_slice(&answer.body).unwrap();
            let mut digest = Digest::default();
            document.records.iter().for_each(|line| digest.add(line.value.unwrap().get().as_bytes()));
            outcome(digest, &document.end)
        }
        "values" => {
            let mut digest = Digest::default();
            std::str::from_utf8(&answer.body).unwrap().lines().for_each(|line| digest.add(line.as_bytes()));
            outcome(digest, &trailer())
        }
        "protobuf" => {
            let (mut digest, mut rest) = (Digest::default(), &answer.body[..]);
            while !rest.is_empty() {
                let length = prost::decode_length_delimiter(&mut rest).unwrap();
                let (value, after) = rest.split_at(length);
                digest.add(value);
                rest = after;
            }
            outcome(digest, &trailer())
        }
        other => panic!("{other}"),
    }
}

/// Offsets and timestamps of every record, partition by partition, for the late records that six partitions must give.
async fn whole_log(server: SocketAddr, topic: &str) -> BTreeMap<i32, Vec<i64>> {
    let mut client = TidegateClient::connect(format!("http://{server}")).await.unwrap();
    let request = v1::ReadRangeRequest {
        topic: topic.to_owned(),
        range: Some(v1::read_range_request::Range::Offsets(v1::OffsetRange::default())),
        ..v1::ReadRangeRequest::default()
    };
    let mut stream = client.read_range(request).await.unwrap().into_inner();
    let mut log: BTreeMap<i32, Vec<i64>> = BTreeMap::new();
    while let Some(response) = stream.message().await.unwrap() {
        if let Some(v1::read_range_response::Message::Rows(rows)) = response.message {
            let partition = log.entry(rows.partition).or_default();
            for row in rows.rows {
                assert_eq!(row.offset, i64::try_from(partition.len()).unwrap(), "offsets come in order, without a gap");
                partition.push(row.timestamp_ms);
            }
        }
    }
    log
}

/// Late records by their definition: in the range, at or after the first offset whose timestamp is at or after `until`.
fn late_by_definition(log: &BTreeMap<i32, Vec<i64>>, range: &ExpectedRange) -> BTreeMap<i32, u64> {
    let late = |times: &Vec<i64>| {
        let behind = times.iter().skip_while(|time| **time < range.until_ms);
        behind.filter(|time| (range.from_ms..range.until_ms).contains(*time)).count() as u64
    };
    log.iter().map(|(partition, times)| (*partition, late(times))).collect()
}

async fn check_every_door(server: SocketAddr, brokers: &str, prefix: &str) {
    let message = flights_message();
    let reference = Reference::load(&message);
    for (topic, partitions, codec) in topics(prefix) {
        publish(brokers, &topic, partitions, codec);
        let log = whole_log(server, &topic).await;
        assert_eq!(log.len(), usize::try_from(partitions).unwrap(), "{topic}: every partition has records");
        assert_eq!(log.values().map(Vec::len).sum::<usize>() as u64, RECORDS, "{topic}");
        for range in &EXPECTED {
            let (stored, json) = reference.digests(range);
            let wanted = |digest| Outcome {
                digest,
                late: late_by_definition(&log, range),
                exhaustive: true,
                proofs: vec!["full_scan".to_owned(); log.len()],
                isolation: "read_committed".to_owned(),
            };
            assert_eq!(stored.values, range.records);
            if partitions == 1 {
                assert_eq!(wanted(stored).late[&0], range.late(), "the data's own table");
            }
            let what = format!("{topic} {}..{}", range.from, range.until);
            for layout in [v1::Layout::Rows, v1::Layout::Columns] {
                assert_eq!(read_grpc(server, &topic, range, layout).await, wanted(stored), "{what} {layout:?}");
            }
            for format in ["ndjson", "json", "values"] {
                assert_eq!(read_rest(server, &topic, range, format).await, wanted(json), "{what} {format}");
            }
            assert_eq!(read_rest(server, &topic, range, "protobuf").await, wanted(stored), "{what} protobuf");
        }
        // The command line, over gRPC and with the engine in process: the same bytes. A partition's records are in order; two
        // partitions' are not, so lines are compared sorted.
        let range = &EXPECTED[0];
        let read = |target: [&str; 2]| {
            let mut command = tidegate();
            command.args(["read", &topic, "--from", range.from, "--until", range.until]).args(target);
            if target[0] == "--brokers" {
                command.arg("--proto").arg(flight_proto()).args(["--message", MESSAGE]);
            }
            let text = String::from_utf8(run(&mut command).stdout).unwrap();
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            let end = lines.last().cloned().unwrap();
            assert!(end.starts_with(r#"{"end":"#), "{end}");
            lines.sort_unstable();
            lines
        };
        let over_grpc = read(["--server", &format!("http://{server}")]);
        assert_eq!(over_grpc.len() as u64, range.records + 1, "{topic}");
        assert!(over_grpc == read(["--brokers", brokers]), "{topic}: both ways of reading print the same lines");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_of_the_flights_table_holds_through_every_door_of_the_embedded_broker() {
    let dir = tempfile::tempdir().unwrap();
    let prefix = "flights";
    let config = config_file(dir.path(), &topics(prefix));
    let mut serve = tidegate();
    serve
        .args(["serve", "--listen", "127.0.0.1:0", "--kafka-listen", "127.0.0.1:0"])
        .arg("--data-dir")
        .arg(dir.path().join("data"))
        .arg("--config")
        .arg(&config);
    let server = Server::start(&mut serve, true);
    let brokers = server.kafka.unwrap().to_string();
    check_every_door(server.http, &brokers, prefix).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_of_the_flights_table_holds_through_every_door_of_apache_kafka() {
    let Some(brokers) = tidegate_testkit::kafka::shared("flights on Apache Kafka") else { return };
    let dir = tempfile::tempdir().unwrap();
    let prefix = tidegate_testkit::unique_topic("flights");
    let config = config_file(dir.path(), &topics(&prefix));
    let mut serve = tidegate();
    serve.args(["serve", "--listen", "127.0.0.1:0", "--brokers", &brokers]).arg("--config").arg(&config);
    let server = Server::start(&mut serve, false);
    check_every_door(server.http, &brokers, &prefix).await;
}

#[test]
fn a_flight_comes_out_as_json_with_the_names_and_values_it_went_in_with() {
    let message = flights_message();
    let reference = Reference::load(&message);
    for (flight, json) in tidegate_testkit::flights::lines().zip(&reference.json) {
        let mut went_in: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&flight.json).unwrap();
        // Protobuf's JSON leaves an absent field out where the document said null.
        went_in.retain(|_, value| !value.is_null());
        let came_out: serde_json::Map<String, serde_json::Value> = serde_json::from_str(json).unwrap();
        assert_eq!(came_out, went_in);
    }
}

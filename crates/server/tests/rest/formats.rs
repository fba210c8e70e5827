//! What records look like in each format, whatever they hold.

use http::StatusCode;
use serde_json::{Value, json};
use tidegate_api::rest;
use tidegate_client::RecordToSend;

use crate::support::World;

const DAY_MS: i64 = 1_714_521_600_000;

fn record<'a>(key: Option<&'a [u8]>, value: Option<&'a [u8]>) -> RecordToSend<'a> {
    RecordToSend { partition: Some(0), key, value, timestamp_ms: Some(DAY_MS), ..RecordToSend::default() }
}

/// Keys and values that are no text, half a surrogate pair, null, empty, numbers that doubles cannot hold.
const HARD: [(Option<&[u8]>, Option<&[u8]>); 9] = [
    (Some(b"\xff\xfe\x00"), Some(b"\x08\x96\x01")),
    (None, None),
    (Some(b""), Some(b"")),
    (Some(b"k\"\n"), Some(b"{\"m\":\"\\ud800\"}")),
    (Some(b"k"), Some(b"{\"m\":\"\xff\"}")),
    (Some("schlüssel\u{2028}".as_bytes()), Some(b"{\"m\":\"\\ud83d\\ude01\"}")),
    (None, Some(b"null")),
    (None, Some(b"{\"id\":9007199254740993,\"seq\":18446744073709551615,\"p\":1.10}")),
    (None, Some(b"{\r\n  \"a\": [\n1]\n}")),
];

async fn write_hard(world: &World, topic: &str) {
    let headers: [(&[u8], Option<&[u8]>); 4] =
        [(b"n", Some(b"1")), (b"n", None), (b"n", Some(b"\xff")), (b"", Some(b""))];
    let mut records: Vec<RecordToSend<'_>> = HARD.iter().map(|(key, value)| record(*key, *value)).collect();
    records[0].headers = &headers;
    world.write(topic, &records).await;
}

#[tokio::test]
async fn every_line_is_json_nothing_is_lost_and_the_stream_goes_on() {
    let world = World::start().await;
    write_hard(&world, "plain").await;
    let answer = world.get("/v1/topics/plain/records").await;
    let (records, end) = answer.ndjson();
    let shown: Vec<Value> = records
        .iter()
        .map(|record| {
            let mut value = serde_json::to_value(record).unwrap();
            value.as_object_mut().unwrap().retain(|name, _| name.starts_with("key") || name.starts_with("value"));
            value
        })
        .collect();
    // `null` members are left out by the type that a client reads into; the lines themselves are looked at below.
    let expected = [
        json!({"key_base64": "//4A", "value_base64": "CJYB"}),
        json!({}),
        json!({"key": "", "value_base64": ""}),
        json!({"key": "k\"\n", "value_base64": "eyJtIjoiXHVkODAwIn0="}),
        json!({"key": "k", "value_base64": "eyJtIjoi/yJ9"}),
        json!({"key": "schlüssel\u{2028}", "value": {"m": "😁"}}),
        json!({"value_base64": "bnVsbA=="}),
    ];
    assert_eq!(shown[..7], expected);
    let lines = answer.lines();
    assert!(lines[1].contains(r#""key":null,"value":null,"headers":[]"#), "{}", lines[1]);
    assert!(lines[7].contains(r#"{"id":9007199254740993,"seq":18446744073709551615,"p":1.10}"#), "{}", lines[7]);
    assert_eq!(records[8].value, Some(json!({"a": [1]})));
    assert_eq!(
        serde_json::to_value(&records[0].headers).unwrap(),
        json!([{"name": "n", "value": "1"}, {"name": "n"}, {"name": "n", "value_base64": "/w=="}, {"name": "", "value": ""}])
    );
    assert_eq!((end.records_sent, end.values_not_converted), (9, 5));

    let list: rest::RecordList = world.get_json("/v1/topics/plain/records?format=json").await;
    assert_eq!(list.records, records);
    assert_eq!(list.end.records_sent, 9);
}

#[tokio::test]
async fn what_comes_out_goes_in_again_and_comes_out_the_same() {
    let world = World::start().await;
    write_hard(&world, "plain").await;
    let answer = world.get("/v1/topics/plain/records").await;
    crate::support::create_topic(&world.cluster, "copy", 1, 1 << 20).await;
    // As it is, the end statement included.
    let published = world.post("/v1/topics/copy/records", answer.body.clone()).await;
    assert_eq!((published.status, published.json::<rest::PublishAnswer>().records), (StatusCode::OK, 9));
    let copy = world.get("/v1/topics/copy/records").await;
    let without_end = |text: &str| text.lines().filter(|line| !line.starts_with("{\"end\":")).collect::<String>();
    assert_eq!(without_end(copy.text()), without_end(answer.text()));
}

#[tokio::test]
async fn a_number_that_no_double_holds_keeps_its_digits() {
    let world = World::start().await;
    let text = r#"{"f":1e400,"big":123456789012345678901234567890,"g":9007199254740991.0}"#;
    world.write("documents", &[record(None, Some(text.as_bytes()))]).await;
    for format in ["ndjson", "json", "values"] {
        let answer = world.get(&format!("/v1/topics/documents/records?format={format}")).await;
        assert!(answer.text().contains(text), "{}", answer.text());
    }
}

#[tokio::test]
async fn values_are_bare_one_a_line() {
    let world = World::start().await;
    write_hard(&world, "plain").await;
    let answer = world.get("/v1/topics/plain/records?format=values").await;
    assert_eq!(answer.header("content-type"), Some("application/x-ndjson"));
    let lines = answer.lines();
    assert_eq!(lines.len(), 9);
    assert_eq!(lines[0], r#"{"value_base64":"CJYB"}"#);
    assert_eq!(lines[1], "null");
    assert_eq!(lines[2], r#"{"value_base64":""}"#);
    assert_eq!(lines[5], r#"{"m":"\ud83d\ude01"}"#);
    assert_eq!(lines[7], r#"{"id":9007199254740993,"seq":18446744073709551615,"p":1.10}"#);
    assert!(lines.iter().all(|line| serde_json::from_str::<&serde_json::value::RawValue>(line).is_ok()));
    assert_eq!(answer.end_trailer().values_not_converted, 4);
}

/// Splits length-delimited messages.
fn messages(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        let (mut len, mut shift) = (0_usize, 0);
        loop {
            let byte = bytes[0];
            bytes = &bytes[1..];
            len |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                break;
            }
        }
        messages.push(bytes[..len].to_vec());
        bytes = &bytes[len..];
    }
    messages
}

#[tokio::test]
async fn protobuf_passes_byte_for_byte() {
    let world = World::start().await;
    // The last two: an unknown field in front of a known one, and no message at all.
    let stored: [&[u8]; 5] = [b"\x08\x05", b"", &[b'x'; 300], b"\x9a\x06\x03abc\x08\x05", b"\xff\xff"];
    let records: Vec<RecordToSend<'_>> = stored.iter().map(|value| record(None, Some(value))).collect();
    world.write("messages", &records).await;
    let answer = world.get("/v1/topics/messages/records?format=protobuf").await;
    assert_eq!(
        answer.header("content-type"),
        Some("application/x-protobuf; encoding=delimited; messageType=\"test.Message\"")
    );
    assert_eq!(messages(&answer.body), stored);
    assert_eq!((answer.end_trailer().records_sent, answer.end_trailer().exhaustive), (5, true));
}

#[tokio::test]
async fn protobuf_cannot_say_null_and_says_so() {
    let world = World::start().await;
    world
        .write("messages", &[record(None, Some(b"\x08\x05")), record(None, None), record(None, Some(b"\x08\x06"))])
        .await;
    let answer = world.get("/v1/topics/messages/records?format=protobuf").await;
    assert_eq!(messages(&answer.body), [b"\x08\x05"]);
    assert!(answer.failure.is_some() && answer.trailers.is_none());
    // With nothing sent yet, the failure has a status.
    let first = world.get("/v1/topics/messages/records?format=protobuf&offset=1").await;
    assert_eq!(first.error_with("offset").2.as_deref(), Some("1"));
    assert!(first.error().error.message.contains("format=ndjson"), "{}", first.text());
    // Who asks for lines sees all three.
    let (records, _) = world.get("/v1/topics/messages/records").await.ndjson();
    assert_eq!(records.len(), 3);
}

#[tokio::test]
async fn protobuf_values_become_json_and_those_that_cannot_are_marked_and_counted() {
    let world = World::start().await;
    let stored: [&[u8]; 4] = [
        b"\x08\x81\x80\x80\x80\x80\x80\x80\x10\x1a\x09\x09\x00\x00\x00\x00\x00\x00\xf8\x3f",
        b"\x12\x02\xff\xfe",
        b"",
        b"\x08",
    ];
    let records: Vec<RecordToSend<'_>> = stored.iter().map(|value| record(None, Some(value))).collect();
    world.write("messages", &records).await;
    let (records, end) = world.get("/v1/topics/messages/records").await.ndjson();
    assert_eq!(records[0].value, Some(json!({"id": "9007199254740993", "the-inner": {"number": 1.5}})));
    assert_eq!(records[1].value_base64.as_deref(), Some("EgL//g=="));
    assert!(records[1].value_error.as_deref().unwrap().contains("text"), "{:?}", records[1].value_error);
    assert_eq!(records[2].value, Some(json!({})));
    assert_eq!(records[3].value_base64.as_deref(), Some("CA=="));
    assert_eq!((end.records_sent, end.values_not_converted), (4, 2));
}

#[tokio::test]
async fn long_records_come_whole_in_every_format() {
    let world = World::start().await;
    let text = format!("\"{}\u{2028}\u{85}\\r{}\"", "ä".repeat(35_000), "x".repeat(2 << 20));
    world.write("documents", &[record(None, Some(text.as_bytes())), record(None, Some(b"1"))]).await;
    let lines = world.get("/v1/topics/documents/records?format=values").await;
    assert_eq!(lines.lines(), [text.as_str(), "1"]);
    let (records, _) = world.get("/v1/topics/documents/records").await.ndjson();
    assert_eq!(records[0].value, Some(serde_json::from_str(&text).unwrap()));
    let delimited = world.get("/v1/topics/documents/records?format=protobuf").await;
    assert_eq!(messages(&delimited.body), [text.as_bytes(), b"1"]);
}

#[tokio::test]
async fn a_deeply_nested_value_fells_nobody() {
    let world = World::start().await;
    let deep = format!("{}{}", "[".repeat(400_000), "]".repeat(400_000));
    let open = "{\"a\":".repeat(150_000);
    world.write("documents", &[record(None, Some(deep.as_bytes())), record(None, Some(open.as_bytes()))]).await;
    world.write("messages", &[record(None, Some(&[0x1a; 500_000]))]).await;
    for topic in ["documents", "messages"] {
        for format in ["ndjson", "json", "values", "protobuf"] {
            let answer = world.get(&format!("/v1/topics/{topic}/records?format={format}")).await;
            assert_eq!((answer.status, &answer.failure), (StatusCode::OK, &None));
        }
        for value in [deep.as_str(), open.as_str()] {
            // Taken or refused: the answer is one of the server that goes on.
            let answer = world.post(&format!("/v1/topics/{topic}/records"), format!("{{\"value\":{value}}}")).await;
            assert!(answer.status == StatusCode::OK || answer.error().error.details["line"] == "1");
        }
    }
}

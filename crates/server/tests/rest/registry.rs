//! Values that name their schema: read and published over REST, with a stand-in for the registry and with a real one.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use serde_json::{Value, json};
use tidegate_api::{Code, rest};
use tidegate_client::{NewSchema, RecordToSend, RegistryClient, RegistryConfig, RetryLimits};
use tidegate_server::engine::{Registry, RegistryPayload, SchemaLimits, Subject, TopicPayload, WriteSchema};
use tidegate_testkit::registry::{Apicurio, FakeRegistry, FakeSchema};

use crate::support::World;

const GREETING: &str = "syntax = \"proto3\"; message Greeting { string text = 1; }";

fn config(url: String) -> RegistryConfig {
    let mut config = RegistryConfig::new([url]);
    config.retry = RetryLimits {
        attempts: 2,
        deadline: Duration::from_secs(60),
        backoff: Duration::from_millis(1),
        backoff_max: Duration::from_millis(1),
    };
    config
}

async fn world(url: String, write: WriteSchema) -> World {
    let client = RegistryClient::new(&config(url)).unwrap();
    let registry = Registry::new(client, SchemaLimits::default());
    World::with_framed(TopicPayload::Registry(Box::new(RegistryPayload::new(registry, write)))).await
}

async fn write(world: &World, values: &[Option<&[u8]>]) {
    let headers: [(&[u8], Option<&[u8]>); 1] = [(b"h", Some(b"1"))];
    let records: Vec<RecordToSend<'_>> = values
        .iter()
        .map(|value| RecordToSend {
            partition: Some(0),
            key: Some(b"k"),
            value: *value,
            headers: &headers,
            timestamp_ms: Some(1_000),
        })
        .collect();
    world.write("framed", &records).await;
}

async fn read(world: &World) -> rest::RecordList {
    world.get_json("/v1/topics/framed/records?format=json&offset=0").await
}

fn values(list: &rest::RecordList) -> Vec<Value> {
    list.records.iter().map(|record| record.value.clone().unwrap_or_default()).collect()
}

/// Form (a) to (f): short and long list of indexes, null, not framed, and cut twice.
const FORMS: [Option<&[u8]>; 6] = [
    Some(b"\x00\x00\x00\x00\x2a\x00\x0a\x02hi"),
    Some(b"\x00\x00\x00\x00\x2a\x02\x00\x0a\x02hi"),
    None,
    Some(b"\x0a\x02hi"),
    Some(b"\x00\x00\x00\x2a"),
    Some(b"\x00\x00\x00\x00\x2a\x02"),
];

#[tokio::test]
async fn every_form_of_a_frame_is_shown_or_named_and_the_stream_goes_on() {
    let fake = FakeRegistry::start();
    fake.put("framed-value", 1, FakeSchema::new(42, "PROTOBUF", GREETING));
    let world = world(fake.url(), WriteSchema::default()).await;
    write(&world, &FORMS).await;

    let list = read(&world).await;
    let hi = json!({"text": "hi"});
    assert_eq!(values(&list)[..3], [hi.clone(), hi, Value::Null]);
    let errors = [
        None,
        None,
        None,
        Some("not framed: it begins with byte 0a"),
        Some("truncated at byte 4: it ends inside the schema id"),
        Some("truncated at byte 6: it ends inside the message indexes"),
    ];
    for ((record, form), error) in list.records.iter().zip(FORMS).zip(errors) {
        assert_eq!((record.key.as_deref(), record.headers.len()), (Some("k"), 1));
        match error {
            None => assert_eq!((record.value_base64.as_ref(), record.value_error.as_ref()), (None, None)),
            Some(says) => {
                assert_eq!(record.value_base64, form.map(|bytes| STANDARD.encode(bytes)));
                let error = record.value_error.as_deref().unwrap();
                assert!(error.starts_with(says), "{error}");
            }
        }
    }
    assert_eq!((list.end.records_sent, list.end.values_not_converted), (6, 3));
    assert_eq!(fake.requests(), ["GET /schemas/ids/42"], "null values and what is not framed ask for nothing");

    let bare = world.get("/v1/topics/framed/records?format=values&offset=0").await;
    let lines: Vec<&str> = bare.text().lines().collect();
    assert_eq!(lines[..3], [r#"{"text":"hi"}"#, r#"{"text":"hi"}"#, "null"]);
}

#[tokio::test]
async fn values_as_stored_need_no_registry_and_are_not_touched() {
    let fake = FakeRegistry::start();
    fake.fail(Some((503, "")));
    let world = world(fake.url(), WriteSchema::default()).await;
    write(&world, &FORMS).await;
    for (range, forms) in [("offset=0&end_offset=2", &FORMS[..2]), ("offset=3", &FORMS[3..])] {
        let answer = world.get(&format!("/v1/topics/framed/records?format=protobuf&{range}")).await;
        let delimited = |form: &Option<&[u8]>| [&[form.unwrap().len() as u8], form.unwrap()].concat();
        assert_eq!(answer.body, forms.iter().flat_map(delimited).collect::<Vec<u8>>());
    }
    assert_eq!(fake.requests(), [""; 0]);

    // Shown as JSON they need one, and a registry that does not answer is no fault of the record's.
    let answer = world.get("/v1/topics/framed/records?format=ndjson&offset=0").await;
    let text = answer.text();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(last["error"]["code"], Code::RegistryUnavailable.name(), "{text}");
    let message = last["error"]["message"].as_str().unwrap();
    assert!(message.contains("framed-0, offset 0") && message.contains("/schemas/ids/42"), "{message}");
    assert!(!text.contains("\"end\""), "{text}");
}

#[tokio::test]
async fn one_any_of_an_unknown_type_fails_alone() {
    let fake = FakeRegistry::start();
    let text =
        "syntax = \"proto3\"; import \"google/protobuf/any.proto\"; message Box { google.protobuf.Any any = 1; }";
    fake.put("framed-value", 1, FakeSchema::new(5, "PROTOBUF", text));
    let world = world(fake.url(), WriteSchema::default()).await;
    let any = |url: &str| {
        let any = [&[0x0a, url.len() as u8], url.as_bytes()].concat();
        [&b"\0\0\0\0\x05\0\x0a"[..], &[any.len() as u8], &any].concat()
    };
    let (known, unknown) = (any("type.googleapis.com/Box"), any("type.googleapis.com/not.Known"));
    write(&world, &[Some(&known), Some(&unknown), Some(&known), Some(b"\0\0\0\0\x63\0")]).await;
    let list = read(&world).await;
    let good = json!({"any": {"@type": "type.googleapis.com/Box"}});
    assert_eq!(values(&list), [good.clone(), Value::Null, good, Value::Null]);
    assert!(list.records[1].value_error.as_ref().unwrap().contains("not.Known"));
    assert!(list.records[3].value_error.as_ref().unwrap().starts_with("schema 99: "));
    assert_eq!(list.end.values_not_converted, 2);
}

#[tokio::test]
async fn a_header_can_name_the_schema() {
    let fake = FakeRegistry::start();
    let mut schema = FakeSchema::new(1, "AVRO", "\"string\"");
    schema.guid = Some("89791762-2336-4186-9674-299b90a802e2".to_owned());
    fake.put("framed-value", 1, schema);
    let world = world(fake.url(), WriteSchema::default()).await;
    let guid = b"\x01\x89\x79\x17\x62\x23\x36\x41\x86\x96\x74\x29\x9b\x90\xa8\x02\xe2";
    let headers: [(&[u8], Option<&[u8]>); 1] = [(b"__value_schema_id", Some(guid))];
    let record = RecordToSend { value: Some(b"\x04hi"), headers: &headers, ..RecordToSend::default() };
    world.write("framed", &[record]).await;
    assert_eq!(values(&read(&world).await), [json!("hi")]);
}

#[tokio::test]
async fn published_json_gets_the_subjects_latest_schema() {
    let fake = FakeRegistry::start();
    let world = world(fake.url(), WriteSchema::default()).await;
    let answer = world.post("/v1/topics/framed/records", r#"{"value":{"text":"hi"}}"#).await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(answer.text().contains("SCHEMA_UNUSABLE") && answer.text().contains("framed-value"), "{}", answer.text());

    fake.put("framed-value", 1, FakeSchema::new(42, "PROTOBUF", GREETING));
    let body = "{\"value\":{\"text\":\"hi\"}}\n{\"value\":null}\n{\"value_base64\":\"Cg==\"}\n";
    assert_eq!(world.post("/v1/topics/framed/records", body).await.status, StatusCode::OK);
    let stored = world.get("/v1/topics/framed/records?format=protobuf&offset=0&end_offset=1").await;
    assert_eq!(&stored.body[1..], FORMS[0].unwrap(), "the short form");
    let list = read(&world).await;
    assert_eq!(values(&list)[..2], [json!({"text": "hi"}), Value::Null]);
    assert!(list.records[2].value_error.as_ref().unwrap().starts_with("not framed"));

    let answer =
        world.post("/v1/topics/framed/records", "{\"value\":{\"text\":\"hi\"}}\n{\"value\":{\"txt\":1}}").await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert!(answer.text().contains("line 2: the value is no Greeting: $.txt"), "{}", answer.text());
    let topic: rest::TopicDescription = world.get_json("/v1/topics/framed").await;
    assert_eq!(topic.payload_kind, rest::PayloadKind::Registry);
}

/// Everything against a registry that is one: registering with references, fetching, reading, writing, its errors.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_registry_holds_the_schemas_that_values_are_written_and_read_with() {
    let test = "a_real_registry_holds_the_schemas_that_values_are_written_and_read_with";
    let started = tokio::task::spawn_blocking(move || Apicurio::start_or_skip(test)).await.unwrap();
    let Some(apicurio) = started else { return };
    let client = RegistryClient::new(&config(apicurio.url())).unwrap();
    let register = async |subject: &str, kind: &str, text: &str, references: &[(&str, &str, i32)]| {
        client.register(subject, &NewSchema { kind, text, references }).await.unwrap()
    };
    register("common.unit", "PROTOBUF", "syntax = \"proto3\"; package common; message Unit { string name = 1; }", &[])
        .await;
    let money = "syntax = \"proto3\"; package common; import \"common/unit.proto\"; \
                 import \"google/protobuf/timestamp.proto\"; \
                 message Money { Unit unit = 1; google.protobuf.Timestamp at = 2; }";
    let unit: &[(&str, &str, i32)] = &[("common/unit.proto", "common.unit", 1)];
    register("common.money", "PROTOBUF", money, unit).await;
    let paid = "syntax = \"proto3\"; package t; import \"common/money.proto\"; import \"google/protobuf/any.proto\"; \
                message Other {} message Paid { common.Money money = 1; google.protobuf.Any any = 2; }";
    register("paid", "PROTOBUF", paid, &[("common/money.proto", "common.money", 1)]).await;
    let event = r#"{"type":"record","name":"Event","namespace":"t","fields":[
        {"name":"id","type":{"type":"string","logicalType":"uuid"}},
        {"name":"price","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}},
        {"name":"at","type":{"type":"long","logicalType":"timestamp-micros"}},
        {"name":"note","type":["null","string"],"default":null}]}"#;
    register("t.Event", "AVRO", event, &[]).await;
    let document = r#"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object"}"#;

    let of = |subject: &str, message: Option<&str>| WriteSchema {
        subject: Subject::Named(subject.to_owned()),
        message: message.map(str::to_owned),
        ..WriteSchema::default()
    };
    let registered = WriteSchema {
        subject: Subject::Topic,
        text: Some((tidegate_codec::registry::SchemaType::Json, document.to_owned())),
        register: true,
        ..WriteSchema::default()
    };
    let any = json!({"@type": "type.googleapis.com/google.protobuf.Duration", "value": "1.500s"});
    let cases = [
        (
            of("paid", Some("t.Paid")),
            json!({"money": {"unit": {"name": "EUR"}, "at": "2013-02-01T00:00:00Z"}, "any": any}),
        ),
        (
            of("t.Event", None),
            json!({"id": "89791762-2336-4186-9674-299b90a802e2", "price": "-12.50", "at": "2013-02-01T10:15:00.000250Z", "note": null}),
        ),
        (registered, json!({"anything": [1, 2]})),
    ];
    for (write, value) in cases {
        let world = world(apicurio.url(), write.clone()).await;
        let body = json!({ "value": value }).to_string();
        let answer = world.post("/v1/topics/framed/records", body).await;
        assert_eq!(answer.status, StatusCode::OK, "{write:?}: {}", answer.text());
        let list = read(&world).await;
        assert_eq!((values(&list), list.end.values_not_converted), (vec![value], 0), "{write:?}");
    }

    let world = world(apicurio.url(), of("nowhere", None)).await;
    write_unknown(&world).await;
    let answer = world.post("/v1/topics/framed/records", r#"{"value":{}}"#).await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", answer.text());
    let not_registered = NewSchema { kind: "AVRO", text: r#""bytes""#, references: &[] };
    let error = client.lookup("t.Event", &not_registered).await.unwrap_err();
    assert!(matches!(error, tidegate_client::RegistryError::NotFound { .. }), "{error}");
    let broken = NewSchema { kind: "AVRO", text: "{", references: &[] };
    let error = client.register("t.Event", &broken).await.unwrap_err();
    assert!(matches!(error, tidegate_client::RegistryError::Refused { .. }), "{error}");
}

/// An id that a registry does not have concerns the record that names it.
async fn write_unknown(world: &World) {
    write(world, &[Some(b"\x00\x7f\xff\xff\xff\x00")]).await;
    let list = read(world).await;
    let error = list.records[0].value_error.as_deref().unwrap();
    assert!(error.starts_with("schema 2147483647: ") && error.contains("40403"), "{error}");
}

use tidegate_client::{RegistryConfig, RetryLimits};
use tidegate_codec::registry::Framed;
use tidegate_testkit::registry::{FakeRegistry, FakeSchema};

use super::*;

const UNIT: &str = "syntax = \"proto3\"; package common; message Unit { string name = 1; }";
const MONEY: &str = "syntax = \"proto3\"; package common; import \"common/unit.proto\"; \
                     import \"google/protobuf/timestamp.proto\"; \
                     message Money { Unit unit = 1; google.protobuf.Timestamp at = 2; }";
const PAID: &str =
    "syntax = \"proto3\"; package t; import \"common/money.proto\"; message Paid { common.Money money = 1; }";

/// A registry with schema 7, which reaches two others.
fn money() -> FakeRegistry {
    let fake = FakeRegistry::start();
    fake.put("common.unit", 1, FakeSchema::new(1, "PROTOBUF", UNIT));
    let money = FakeSchema::new(2, "PROTOBUF", MONEY).refers_to("common/unit.proto", "common.unit", 1);
    fake.put("common.money", 2, money);
    let paid = FakeSchema::new(7, "PROTOBUF", PAID).refers_to("common/money.proto", "common.money", 2);
    fake.put("paid-value", 3, paid);
    fake
}

fn registry(fake: &FakeRegistry, limits: SchemaLimits) -> Registry {
    let mut config = RegistryConfig::new([fake.url()]);
    config.retry = RetryLimits {
        attempts: 2,
        deadline: Duration::from_secs(20),
        backoff: Duration::from_millis(1),
        backoff_max: Duration::from_millis(1),
    };
    Registry::new(RegistryClient::new(&config).unwrap(), limits)
}

fn json(schema: &Resolved, value: &[u8]) -> String {
    let Resolved::Ready(schema) = schema else { panic!("{schema:?}") };
    let mut out = Vec::new();
    schema.to_json(&Framed::of_value(value).unwrap(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn reason(schema: Resolved) -> String {
    let Resolved::Unusable(reason) = schema else { panic!("{schema:?}") };
    reason.to_string()
}

/// What is no longer waited for is forgotten when the next schema is asked for.
fn nothing_is_fetched(registry: &Registry) -> bool {
    registry.inner.state.lock().flights.values().all(|flight| flight.strong_count() == 0)
}

#[tokio::test]
async fn a_schema_and_all_that_it_refers_to_are_fetched_once_for_all_who_need_them() {
    let fake = money();
    fake.delay(Duration::from_millis(20));
    let registry = registry(&fake, SchemaLimits::default());
    let gets = (0..20).map(|_| registry.get(SchemaKey::Id(7)));
    for schema in futures_util::future::join_all(gets).await {
        let value = b"\0\0\0\0\x07\0\x0a\x0b\x0a\x05\x0a\x03EUR\x12\x02\x08\x01";
        let expected = r#"{"money":{"unit":{"name":"EUR"},"at":"1970-01-01T00:00:01Z"}}"#;
        assert_eq!(json(&schema.unwrap(), value), expected);
    }
    registry.get(SchemaKey::Id(7)).await.unwrap();
    let asked = ["GET /schemas/ids/7", "GET /subjects/common.money/versions/2", "GET /subjects/common.unit/versions/1"];
    assert_eq!(fake.requests(), asked);
    assert!(nothing_is_fetched(&registry));
}

#[tokio::test]
async fn a_caller_that_goes_away_does_not_take_the_schema_along() {
    let fake = money();
    fake.delay(Duration::from_millis(100));
    let registry = registry(&fake, SchemaLimits::default());
    let first = tokio::spawn({
        let registry = registry.clone();
        async move { registry.get(SchemaKey::Id(7)).await }
    });
    while fake.requests().is_empty() {
        tokio::task::yield_now().await;
    }
    let second = tokio::spawn({
        let registry = registry.clone();
        async move { registry.get(SchemaKey::Id(7)).await }
    });
    first.abort();
    assert!(matches!(second.await.unwrap().unwrap(), Resolved::Ready(_)));

    // And one that goes away alone leaves nothing behind. The answer is not there before it goes.
    fake.delay(Duration::from_secs(5));
    let alone = tokio::spawn({
        let registry = registry.clone();
        async move { registry.get(SchemaKey::Id(1)).await }
    });
    while !fake.requests().contains(&"GET /schemas/ids/1".to_owned()) {
        tokio::task::yield_now().await;
    }
    alone.abort();
    assert!(alone.await.is_err());
    assert!(nothing_is_fetched(&registry));
}

#[tokio::test]
async fn what_is_not_there_is_remembered_for_a_while_and_a_failure_is_not() {
    let fake = money();
    let registry = registry(&fake, SchemaLimits::default());
    for _ in 0..2 {
        let missing = reason(registry.get(SchemaKey::Id(99)).await.unwrap());
        assert!(missing.starts_with("schema 99: ") && missing.contains("40403"), "{missing}");
    }
    assert_eq!(fake.requests().len(), 1);
    let impatient = self::registry(&fake, SchemaLimits { unusable_for: Duration::ZERO, ..SchemaLimits::default() });
    for _ in 0..2 {
        reason(impatient.get(SchemaKey::Id(99)).await.unwrap());
    }
    assert_eq!(fake.requests().len(), 3);

    fake.fail(Some((503, "")));
    let error = registry.get(SchemaKey::Id(7)).await.unwrap_err();
    assert!(matches!(error, SchemaFetchError::Registry(RegistryError::Unavailable { .. })), "{error}");
    fake.fail(Some((200, "<html>")));
    let error = registry.get(SchemaKey::Id(7)).await.unwrap_err();
    assert!(error.to_string().contains("answer for schema 7 makes no sense"), "{error}");
    fake.fail(None);
    assert!(matches!(registry.get(SchemaKey::Id(7)).await.unwrap(), Resolved::Ready(_)));
}

#[tokio::test]
async fn a_schema_that_is_of_no_use_says_why_and_which_it_is() {
    let fake = FakeRegistry::start();
    let import = "syntax = \"proto3\"; import \"nowhere.proto\";";
    fake.put("a", 1, FakeSchema::new(1, "PROTOBUF", import));
    fake.put("a", 2, FakeSchema::new(2, "PROTOBUF", import).refers_to("nowhere.proto", "gone", 4));
    fake.put("a", 3, FakeSchema::new(3, "PROTOBUF", "message {"));
    fake.put("a", 4, FakeSchema::new(4, "THRIFT", ""));
    fake.put("a", 5, FakeSchema::new(5, "AVRO", "{}"));
    let registry = registry(&fake, SchemaLimits::default());
    for (id, says) in [
        (1, "schema 1: schema-1.proto imports \"nowhere.proto\", which is neither"),
        (2, "schema 2: it refers to gone version 4: the schema registry says: Subject not found (error 40401)"),
        (3, "schema 3: schema-3.proto:1:9"),
        (4, "schema 4: schemas of type \"THRIFT\" are not supported"),
        (5, "schema 5: the Avro schema: a type has no \"type\""),
    ] {
        let reason = reason(registry.get(SchemaKey::Id(id)).await.unwrap());
        assert!(reason.starts_with(says), "{reason}");
    }
}

#[tokio::test]
async fn the_schema_that_was_used_last_stays_when_there_is_no_room() {
    let fake = FakeRegistry::start();
    for id in 1..=3 {
        fake.put("a", id as i32, FakeSchema::new(id, "AVRO", "\"int\""));
    }
    let registry = registry(&fake, SchemaLimits { max_schemas: 2, ..SchemaLimits::default() });
    for id in [1, 2, 1, 3, 1, 2] {
        registry.get(SchemaKey::Id(id)).await.unwrap();
    }
    let asked: Vec<String> = [1, 2, 3, 2].iter().map(|id| format!("GET /schemas/ids/{id}")).collect();
    assert_eq!(fake.requests(), asked);
    assert!(registry.kept(SchemaKey::Id(3)).is_none() && registry.kept(SchemaKey::Id(2)).is_some());
}

#[tokio::test]
async fn a_guid_is_asked_for_as_such() {
    let fake = FakeRegistry::start();
    let guid = *b"\x89\x79\x17\x62\x23\x36\x41\x86\x96\x74\x29\x9b\x90\xa8\x02\xe2";
    let mut schema = FakeSchema::new(1, "AVRO", "\"string\"");
    schema.guid = Some("89791762-2336-4186-9674-299b90a802e2".to_owned());
    fake.put("a", 1, schema);
    let registry = registry(&fake, SchemaLimits::default());
    assert!(matches!(registry.get(SchemaKey::Guid(guid)).await.unwrap(), Resolved::Ready(_)));
    assert_eq!(fake.requests(), ["GET /schemas/guids/89791762-2336-4186-9674-299b90a802e2"]);
}

#[tokio::test]
async fn values_are_written_with_the_latest_schema_of_the_subject() {
    let fake = money();
    let registry = registry(&fake, SchemaLimits::default());
    let topic = TopicName::new("paid").unwrap();
    let writer = registry.writer(&topic, &WriteSchema::default()).await.unwrap();
    let mut value = Vec::new();
    writer.write(br#"{"money":{"unit":{"name":"EUR"}}}"#, &mut value).unwrap();
    assert_eq!(value, b"\0\0\0\0\x07\0\x0a\x07\x0a\x05\x0a\x03EUR");

    let of = |subject, message: Option<&str>| WriteSchema {
        subject,
        message: message.map(str::to_owned),
        ..WriteSchema::default()
    };
    let nothing = registry.writer(&TopicName::new("none").unwrap(), &WriteSchema::default()).await.unwrap_err();
    assert!(nothing.to_string().starts_with("subject none-value has no such schema"), "{nothing}");
    let wrong = registry.writer(&topic, &of(Subject::Topic, Some("t.Nope"))).await.unwrap_err();
    assert!(wrong.to_string().contains("t.Paid"), "{wrong}");
    let unknown = registry.writer(&topic, &of(Subject::Unknown, None)).await.unwrap_err();
    assert!(unknown.to_string().contains("its message, or its subject"), "{unknown}");
    for (subject, name) in [
        (Subject::Record("t.Paid".to_owned()), "t.Paid"),
        (Subject::TopicRecord("t.Paid".to_owned()), "paid-t.Paid"),
        (Subject::Named("x".to_owned()), "x"),
    ] {
        assert_eq!(subject.of(&topic).as_deref(), Some(name));
    }
}

//! Random messages: to Protobuf and back, beside prost-reflect's own conversions.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::LazyLock;

use common::{EVERYTHING, everything, lenient, older, print, print_with, strict, with_defaults};
use proptest::prelude::*;
use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use serde_json::{Map, Value, json};
use tidegate_codec::MessageType;

static ALL: LazyLock<MessageType> = LazyLock::new(everything);

/// The same message as prost-reflect has it.
static THEIRS: LazyLock<MessageDescriptor> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("everything.proto"), EVERYTHING).unwrap();
    let mut compiler = protox::Compiler::new([folder.path()]).unwrap();
    compiler.open_file("everything.proto").unwrap();
    let set = compiler.include_imports(true).encode_file_descriptor_set();
    DescriptorPool::decode(&set[..]).unwrap().get_message_by_name("everything.All").unwrap()
});

fn from_json(json: &str) -> DynamicMessage {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    DynamicMessage::deserialize(THEIRS.clone(), &mut deserializer).unwrap_or_else(|error| panic!("{json}: {error}"))
}

/// A number that serde_json reads exactly, which it does only for short ones. It has no negative zero, which prost-reflect
/// takes for a default.
fn short() -> impl Strategy<Value = Value> {
    any::<i32>().prop_map(|value| json!(f64::from(value) / 64.0))
}

fn double() -> impl Strategy<Value = Value> {
    prop_oneof![
        8 => short(),
        1 => Just(json!("NaN")),
        1 => Just(json!("-Infinity")),
    ]
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf =
        prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), short(), ".{0,8}".prop_map(Value::from),];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(".{0,3}", inner, 0..3).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn timestamp() -> impl Strategy<Value = Value> {
    (1_i32..=9999, 1..=12, 1..=28, 0..24, 0..60, 0..60, 0..1000).prop_map(
        |(year, month, day, hour, minute, second, ms)| {
            let fraction = if ms == 0 { String::new() } else { format!(".{ms:03}") };
            json!(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z"))
        },
    )
}

fn color() -> impl Strategy<Value = Value> {
    prop_oneof![
        prop::sample::select(vec!["COLOR_NONE", "COLOR_RED", "COLOR_BLUE"]).prop_map(Value::from),
        any::<i32>().prop_filter_map("has no name", |number| (!(-2..=1).contains(&number)).then(|| json!(number))),
    ]
}

fn blob() -> impl Strategy<Value = Value> {
    use base64::Engine as _;
    prop::collection::vec(any::<u8>(), 0..8).prop_map(|bytes| json!(base64::prelude::BASE64_STANDARD.encode(bytes)))
}

fn int64() -> impl Strategy<Value = Value> {
    any::<i64>().prop_map(|value| json!(value.to_string()))
}

fn object<K: ToString + std::fmt::Debug + Ord>(
    key: impl Strategy<Value = K>,
    value: impl Strategy<Value = Value>,
) -> impl Strategy<Value = Value> {
    prop::collection::btree_map(key, value, 0..3)
        .prop_map(|map| Value::Object(map.into_iter().map(|(key, value)| (key.to_string(), value)).collect()))
}

/// A document of `everything.All` in the form in which it is printed.
fn document() -> impl Strategy<Value = Value> {
    let leaf = Just(json!({})).boxed();
    leaf.prop_recursive(3, 24, 3, |child| {
        fn list(element: impl Strategy<Value = Value> + 'static) -> BoxedStrategy<Value> {
            prop::collection::vec(element, 1..4).prop_map(Value::from).boxed()
        }
        let text = || ".{0,8}".prop_map(Value::from);
        let member = prop_oneof![
            double().prop_map(|v| ("doubleValue", v)),
            any::<i16>().prop_map(|v| ("floatValue", json!(f32::from(v) / 64.0))),
            any::<i32>().prop_map(|v| ("int32Value", json!(v))),
            int64().prop_map(|v| ("int64Value", v)),
            any::<u32>().prop_map(|v| ("uint32Value", json!(v))),
            any::<u64>().prop_map(|v| ("uint64Value", json!(v.to_string()))),
            any::<i32>().prop_map(|v| ("sint32Value", json!(v))),
            int64().prop_map(|v| ("sint64Value", v)),
            any::<u32>().prop_map(|v| ("fixed32Value", json!(v))),
            any::<u64>().prop_map(|v| ("fixed64Value", json!(v.to_string()))),
            any::<i32>().prop_map(|v| ("sfixed32Value", json!(v))),
            int64().prop_map(|v| ("sfixed64Value", v)),
            any::<bool>().prop_map(|v| ("boolValue", json!(v))),
            text().prop_map(|v| ("stringValue", v)),
            blob().prop_map(|v| ("bytesValue", v)),
            color().prop_map(|v| ("color", v)),
            child.clone().prop_map(|v| ("child", v)),
            double().prop_map(|v| ("maybeDouble", v)),
            any::<i32>().prop_map(|v| ("maybeSint32", json!(v))),
            text().prop_map(|v| ("maybeString", v)),
            any::<bool>().prop_map(|v| ("maybeBool", json!(v))),
            color().prop_map(|v| ("maybeColor", v)),
        ];
        let repeated = prop_oneof![
            list(double()).prop_map(|v| ("doubles", v)),
            list(int64()).prop_map(|v| ("int64s", v)),
            list(any::<i32>().prop_map(Value::from)).prop_map(|v| ("sint32s", v)),
            list(any::<bool>().prop_map(Value::from)).prop_map(|v| ("bools", v)),
            list(text()).prop_map(|v| ("strings", v)),
            list(blob()).prop_map(|v| ("blobs", v)),
            list(color()).prop_map(|v| ("colors", v)),
            list(child.clone()).prop_map(|v| ("children", v)),
            list(any::<i32>().prop_map(Value::from)).prop_map(|v| ("unpacked", v)),
            list(any::<u32>().prop_map(Value::from)).prop_map(|v| ("fixed32s", v)),
            object(".{0,3}", any::<i32>().prop_map(Value::from)).prop_map(|v| ("byString", v)),
            object(any::<i64>(), text()).prop_map(|v| ("byNumber", v)),
            object(any::<bool>(), color()).prop_map(|v| ("byBool", v)),
            object(any::<u32>(), child.clone()).prop_map(|v| ("byUint", v)),
            list(timestamp()).prop_map(|v| ("timestamps", v)),
            list(any_json()).prop_map(|v| ("values", v)),
        ];
        let special = prop_oneof![
            text().prop_map(|v| ("choiceString", v)),
            any::<i32>().prop_map(|v| ("choiceInt", json!(v))),
            child.clone().prop_map(|v| ("choiceChild", v)),
            Just(("choiceNull", Value::Null)),
            any_json().prop_map(|v| ("choiceValue", v)),
            timestamp().prop_map(|v| ("timestamp", v)),
            (-315_576_000_000_i64..=315_576_000_000).prop_map(|v| ("duration", json!(format!("{v}s")))),
            "([a-z]{1,3}([A-Z][a-z]{0,2})?(,[a-z]{1,3})?)?".prop_map(|v| ("mask", json!(v))),
            object(".{0,3}", any_json()).prop_map(|v| ("struct", v)),
            any_json().prop_map(|v| ("value", v)),
            list(any_json()).prop_map(|v| ("list", v)),
            Just(("empty", json!({}))),
            child.prop_map(|v| {
                let mut any = Map::from_iter([("@type".to_owned(), json!("x/everything.All"))]);
                any.extend(v.as_object().unwrap().clone());
                ("any", Value::Object(any))
            }),
            timestamp().prop_map(|v| ("any", json!({"@type": "x/google.protobuf.Timestamp", "value": v}))),
            int64().prop_map(|v| ("wrappedInt64", v)),
            short().prop_map(|v| ("wrappedDouble", v)),
            text().prop_map(|v| ("wrappedString", v)),
            blob().prop_map(|v| ("wrappedBytes", v)),
            any::<bool>().prop_map(|v| ("wrappedBool", json!(v))),
            text().prop_map(|v| ("@other name", v)),
        ];
        prop::collection::vec(prop_oneof![member, repeated, special], 0..8).prop_map(|members| {
            let mut document = Map::new();
            for (key, value) in members {
                if key.starts_with("choice") && document.keys().any(|key| key.starts_with("choice")) {
                    continue;
                }
                document.insert(key.to_owned(), value);
            }
            Value::Object(document)
        })
    })
}

/// The document without any `google.protobuf.Any`: merging two of them mixes the type of one with the bytes of the other.
fn without_any(document: Value) -> Value {
    match document {
        Value::Object(members) => members
            .into_iter()
            .filter(|(key, _)| key != "any")
            .map(|(key, value)| (key, without_any(value)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(elements) => elements.into_iter().map(without_any).collect(),
        other => other,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_document_goes_to_protobuf_and_back_as_for_prost_reflect(document in document()) {
        let json = document.to_string();
        let bytes = strict(&ALL, &json).unwrap();
        prop_assert_eq!(&lenient(&ALL, &json).unwrap(), &bytes);
        let theirs = from_json(&json);
        // Compared as text, in which a NaN equals itself.
        let read = DynamicMessage::decode(THEIRS.clone(), &bytes[..]).unwrap();
        prop_assert_eq!(serde_json::to_value(&read).unwrap(), serde_json::to_value(&theirs).unwrap());

        for options in [tidegate_codec::JsonOptions::default(), with_defaults()] {
            let printed = print_with(&ALL, &bytes, &options).unwrap();
            prop_assert!(serde_json::from_str::<Value>(&printed).is_ok(), "{}", printed);
            prop_assert_eq!(&strict(&ALL, &printed).unwrap(), &bytes, "{}", printed);
        }
        let theirs = theirs.encode_to_vec();
        // prost-reflect writes maps in no certain order.
        let value = |bytes: &[u8]| serde_json::from_str::<Value>(&print(&ALL, bytes).unwrap()).unwrap();
        prop_assert_eq!(value(&theirs), value(&bytes));
    }

    #[test]
    fn two_messages_one_behind_the_other_print_as_the_merged_message(first in document(), second in document()) {
        let first = strict(&ALL, &first.to_string()).unwrap();
        let second = strict(&ALL, &without_any(second).to_string()).unwrap();
        let both = [first, second].concat();
        // prost-reflect merges on its own; what it writes then has each field once.
        let merged = DynamicMessage::decode(THEIRS.clone(), &both[..]).unwrap().encode_to_vec();
        let ours: Value = serde_json::from_str(&print(&ALL, &both).unwrap()).unwrap();
        let theirs: Value = serde_json::from_str(&print(&ALL, &merged).unwrap()).unwrap();
        prop_assert_eq!(ours, theirs);
    }

    #[test]
    fn what_is_printed_of_damaged_bytes_prints_the_same_again(document in document(), at: prop::sample::Index, byte: u8) {
        let mut bytes = strict(&ALL, &document.to_string()).unwrap();
        prop_assume!(!bytes.is_empty());
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(printed) = print(&ALL, &bytes) {
            prop_assert!(serde_json::from_str::<Value>(&printed).is_ok(), "{}", printed);
            let again = strict(&ALL, &printed).unwrap();
            prop_assert_eq!(print(&ALL, &again).unwrap(), printed);
        }
    }

    #[test]
    fn floats_of_any_bits_come_back_to_the_bit(double: u64, float: u32) {
        prop_assume!(!f64::from_bits(double).is_nan() && !f32::from_bits(float).is_nan());
        let bytes = [&[0xa9, 0x01][..], &double.to_le_bytes(), &[0xea, 0x04, 0x05, 0x0d], &float.to_le_bytes()].concat();
        prop_assume!(float != 0);
        prop_assert_eq!(strict(&ALL, &print(&ALL, &bytes).unwrap()).unwrap(), bytes);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = print(&ALL, &bytes);
        let _ = print_with(&ALL, &bytes, &with_defaults());
        let _ = print(&older(), &bytes);
    }

    #[test]
    fn any_text_is_read_without_a_panic(text in r#"[{}\[\]:,"a-z0-9.@/\\ null]{0,40}"#) {
        let _ = strict(&ALL, &text);
        let _ = lenient(&ALL, &text);
    }
}

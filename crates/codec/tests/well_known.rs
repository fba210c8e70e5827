//! The message types with a JSON form of their own.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{SAMPLE, everything, hex, lenient, print, sample, strict};
use tidegate_codec::{MessageType, Schema, ToJsonReason, ToProtobufReason};

/// The document gives these bytes, and they give the document.
fn both_ways(message: &MessageType, json: &str, bytes: &str) {
    let encoded = strict(message, json).unwrap_or_else(|error| panic!("{json}: {error}"));
    assert_eq!(encoded, hex(bytes), "{json}");
    assert_eq!(print(message, &encoded).unwrap(), json);
}

#[test]
fn an_any_is_printed_with_its_type() {
    let m = sample();
    let url = |name: &str| format!("type.googleapis.com/{name}");
    let json = format!(r#"{{"any":{{"@type":"{}","by":"card","cents":"5"}}}}"#, url("sample.Paid"));
    let bytes = strict(&m, &json).unwrap();
    let payload = hex("0a 04 63 61 72 64 10 05");
    assert!(bytes.ends_with(&[&[0x12, 8][..], &payload].concat()));
    assert_eq!(print(&m, &bytes).unwrap(), json);

    let json = format!(r#"{{"any":{{"@type":"{}","value":"1.500s"}}}}"#, url("google.protobuf.Duration"));
    let bytes = strict(&m, &json).unwrap();
    assert!(bytes.ends_with(&hex("12 08 08 01 10 80 ca b5 ee 01")));
    assert_eq!(print(&m, &bytes).unwrap(), json);

    // Behind the members that need it, and escaped.
    let late = format!(r#"{{"any":{{"cents":5,"by":"card","\u0040type":"{}"}}}}"#, url("sample.Paid"));
    assert!(strict(&m, &late).unwrap().ends_with(&payload));
    // A message without a field that is set has no value at all.
    both_ways(&m, r#"{"any":{"@type":"x/sample.Paid"}}"#, "82 01 0f 0a 0d 78 2f 73 61 6d 70 6c 65 2e 50 61 69 64");
}

#[test]
fn an_empty_any_is_an_empty_object() {
    both_ways(&sample(), r#"{"any":{}}"#, "82 01 00");
    assert_eq!(print(&sample(), &hex("82 01 04 0a 00 12 00")).unwrap(), r#"{"any":{}}"#);
}

#[test]
fn an_any_in_an_any_goes_both_ways() {
    let json = concat!(
        r#"{"any":{"@type":"u/google.protobuf.Any","value":{"@type":"u/sample.M","#,
        r#""any":{"@type":"u/google.protobuf.Empty","value":{}}}}}"#
    );
    let bytes = strict(&sample(), json).unwrap();
    assert_eq!(print(&sample(), &bytes).unwrap(), json);
}

#[test]
fn an_any_of_an_unknown_type_is_an_error_of_its_own() {
    let m = sample();
    let error = strict(&m, r#"{"any":{"@type":"type.googleapis.com/not.Known","x":1}}"#).unwrap_err();
    assert_eq!(error.to_string(), r#"$.any.@type: the schema has no message for "type.googleapis.com/not.Known""#);
    assert!(lenient(&m, r#"{"any":{"@type":"type.googleapis.com/not.Known","x":1}}"#).is_err());
    let error = print(&m, &hex("82 01 0b 0a 05 61 2f 62 2e 63 12 02 08 01")).unwrap_err();
    assert_eq!(error.path, "$.any");
    assert_eq!(error.reason, ToJsonReason::UnknownType { type_url: "a/b.c".to_owned() });
    assert!(print(&m, &hex("82 01 04 12 02 08 01")).is_err());
}

#[test]
fn an_any_with_the_wrong_members_is_refused() {
    let m = sample();
    let reason = |json: &str| strict(&m, json).expect_err(json).reason;
    assert_eq!(reason(r#"{"any":{"by":"x"}}"#), ToProtobufReason::MissingType);
    assert!(matches!(reason(r#"{"any":{"@type":"sample.Paid"}}"#), ToProtobufReason::UnknownType { .. }));
    assert!(matches!(reason(r#"{"any":{"@type":5}}"#), ToProtobufReason::Type { .. }));
    let twice = r#"{"any":{"@type":"u/sample.Paid","@type":"u/sample.Paid"}}"#;
    assert_eq!(reason(twice), ToProtobufReason::DuplicateField);
    let missing = r#"{"any":{"@type":"u/google.protobuf.Duration"}}"#;
    assert!(matches!(reason(missing), ToProtobufReason::MissingValue { .. }));
    let empty = r#"{"any":{"@type":"u/google.protobuf.Empty"}}"#;
    assert_eq!(print(&m, &strict(&m, empty).unwrap()).unwrap(), empty.replace("}}", r#","value":{}}}"#));
    let extra = r#"{"any":{"@type":"u/google.protobuf.Duration","value":"1s","x":1}}"#;
    assert!(matches!(reason(extra), ToProtobufReason::UnknownField { .. }));
    assert!(lenient(&m, extra).is_ok());
    let unknown = strict(&m, r#"{"any":{"@type":"u/sample.Paid","x":1}}"#).unwrap_err();
    assert_eq!(unknown.to_string(), "$.any.x: sample.Paid has no field of this name");
}

#[test]
fn times_have_their_text() {
    let all = everything();
    both_ways(&all, r#"{"timestamp":"2013-01-01T11:00:00Z"}"#, "ea 03 06 08 b0 83 8b 87 05");
    both_ways(
        &all,
        r#"{"timestamp":"1969-12-31T23:59:59.500Z"}"#,
        "ea 03 11 08 ff ff ff ff ff ff ff ff ff 01 10 80 ca b5 ee 01",
    );
    both_ways(&all, r#"{"timestamp":"1970-01-01T00:00:00Z"}"#, "ea 03 00");
    both_ways(&all, r#"{"duration":"-0.500s"}"#, "f2 03 0b 10 80 b6 ca 91 fe ff ff ff ff 01");
    both_ways(
        &all,
        r#"{"timestamps":["1970-01-01T00:00:01Z","1970-01-01T00:00:02Z"]}"#,
        "d2 04 02 08 01 d2 04 02 08 02",
    );
    let error = strict(&all, r#"{"timestamps":["1970-01-01T00:00:01Z","yesterday"]}"#).unwrap_err();
    assert_eq!(error.to_string(), r#"$.timestamps[1]: "yesterday" is not an RFC 3339 timestamp"#);
    let error = print(&all, &hex("ea 03 02 10 ff")).unwrap_err();
    assert_eq!(error.path, "$.timestamp");
    // A negative fraction of a second, and a duration of two signs.
    for bytes in ["ea 03 0b 10 ff ff ff ff ff ff ff ff ff 01", "f2 03 0d 08 01 10 ff ff ff ff ff ff ff ff ff 01"] {
        assert!(matches!(print(&all, &hex(bytes)).unwrap_err().reason, ToJsonReason::NoJsonForm { .. }));
    }
}

#[test]
fn a_field_mask_is_one_string() {
    let all = everything();
    both_ways(
        &all,
        r#"{"mask":"fooBar,baz.quxQuux"}"#,
        "fa 03 17 0a 07 66 6f 6f 5f 62 61 72 0a 0c 62 61 7a 2e 71 75 78 5f 71 75 75 78",
    );
    both_ways(&all, r#"{"mask":""}"#, "fa 03 00");
    assert!(strict(&all, r#"{"mask":"foo_bar"}"#).is_err());
    assert!(strict(&all, r#"{"mask":"a,,b"}"#).is_err());
    assert!(print(&all, &hex("fa 03 05 0a 03 66 6f 4f")).is_err());
}

#[test]
fn structs_and_values_hold_any_json() {
    let all = everything();
    both_ways(&all, r#"{"struct":{}}"#, "82 04 00");
    both_ways(&all, r#"{"value":null}"#, "8a 04 02 08 00");
    both_ways(&all, r#"{"value":"x"}"#, "8a 04 03 1a 01 78");
    both_ways(&all, r#"{"value":1.5}"#, "8a 04 09 11 00 00 00 00 00 00 f8 3f");
    both_ways(&all, r#"{"value":false}"#, "8a 04 02 20 00");
    both_ways(&all, r#"{"value":{}}"#, "8a 04 02 2a 00");
    both_ways(&all, r#"{"value":[]}"#, "8a 04 02 32 00");
    both_ways(&all, r#"{"list":[]}"#, "92 04 00");
    both_ways(&all, r#"{"values":[null,true]}"#, "da 04 02 08 00 da 04 02 20 01");
    both_ways(&all, r#"{"choiceValue":null}"#, "ba 03 02 08 00");
    both_ways(&all, r#"{"choiceNull":null}"#, "b0 03 00");
    assert_eq!(strict(&all, r#"{"choiceNull":"NULL_VALUE"}"#).unwrap(), hex("b0 03 00"));
    assert_eq!(strict(&all, r#"{"nothing":null}"#).unwrap(), []);
    let json = r#"{"struct":{"a":[1,"x",{"b":null}],"c":{"d":true}}}"#;
    assert_eq!(print(&all, &strict(&all, json).unwrap()).unwrap(), json);
    // A Value that says nothing, and one that says NaN.
    assert_eq!(print(&all, &hex("8a 04 00")).unwrap(), r#"{"value":null}"#);
    let error = print(&all, &hex("8a 04 09 11 00 00 00 00 00 00 f8 7f")).unwrap_err();
    assert!(matches!(error.reason, ToJsonReason::NoJsonForm { .. }));
    // The last thing that a Value says counts.
    assert_eq!(print(&all, &hex("8a 04 07 20 01 1a 01 78 20 00")).unwrap(), r#"{"value":false}"#);
}

#[test]
fn wrappers_are_their_value() {
    let all = everything();
    both_ways(&all, r#"{"wrappedInt64":"5"}"#, "aa 04 02 08 05");
    both_ways(&all, r#"{"wrappedInt64":"0"}"#, "aa 04 00");
    both_ways(&all, r#"{"wrappedString":""}"#, "ba 04 00");
    both_ways(&all, r#"{"wrappedBytes":"AA=="}"#, "c2 04 03 0a 01 00");
    both_ways(&all, r#"{"wrappedBool":true}"#, "ca 04 02 08 01");
    assert_eq!(strict(&all, r#"{"wrappedInt64":null}"#).unwrap(), []);
    both_ways(&all, r#"{"empty":{}}"#, "9a 04 00");
    assert!(strict(&all, r#"{"empty":{"x":1}}"#).is_err());
    assert!(lenient(&all, r#"{"empty":{"x":1}}"#).is_ok());
}

#[test]
fn the_types_that_are_built_in_can_be_asked_for() {
    let schema = Schema::from_proto_source("sample.proto", SAMPLE).unwrap();
    both_ways(
        &schema.message("google.protobuf.Value").unwrap(),
        r#"[1,null]"#,
        "32 0f 0a 09 11 00 00 00 00 00 00 f0 3f 0a 02 08 00",
    );
    both_ways(&schema.message("google.protobuf.Timestamp").unwrap(), r#""1970-01-01T00:00:01Z""#, "08 01");
    both_ways(&schema.message("google.protobuf.UInt64Value").unwrap(), r#""7""#, "08 07");
}

#[test]
fn a_type_that_only_bears_a_well_known_name_is_an_ordinary_message() {
    let text = r#"syntax = "proto3"; package google.protobuf; message Timestamp { string text = 1; }"#;
    let schema = Schema::from_proto_source("own.proto", text).unwrap();
    both_ways(&schema.message("google.protobuf.Timestamp").unwrap(), r#"{"text":"x"}"#, "0a 01 78");
}

use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;
use crate::registry::AvroSchemaError;

const LIMIT: usize = 1 << 20;

fn schema(text: &str) -> AvroSchema {
    AvroSchema::parse(text, &[]).unwrap()
}

fn json(schema: &AvroSchema, bytes: &[u8]) -> Result<String, AvroError> {
    let mut out = b"x".to_vec();
    let printed = schema.to_json(bytes, LIMIT, &mut out);
    if printed.is_err() {
        assert_eq!(out, b"x", "an error leaves nothing behind");
    }
    printed.map(|()| String::from_utf8(out).unwrap()[1..].to_owned())
}

fn problem(text: &str) -> String {
    AvroSchema::parse(text, &[]).unwrap_err().to_string()
}

#[test]
fn every_type_has_its_json_form() {
    let cases: [(&str, &[u8], &str); 22] = [
        (r#""null""#, b"", "null"),
        (r#""boolean""#, b"\x01", "true"),
        (r#""int""#, b"\x03", "-2"),
        (r#""long""#, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "9223372036854775807"),
        (r#""float""#, b"\0\0\x80\x3e", "0.25"),
        (r#""double""#, b"\0\0\0\0\0\0\xf0\x7f", r#""Infinity""#),
        (r#""string""#, b"\x06a\"b", r#""a\"b""#),
        // The top is as Confluent's serializers write it: no length.
        (r#""bytes""#, b"\xff\x00", r#""/wA=""#),
        (r#"{"type":"array","items":"bytes"}"#, b"\x02\x04\xff\x00\x00", r#"["/wA="]"#),
        (r#"{"type":"array","items":"int"}"#, b"\x04\x02\x04\x02\x06\x00", "[1,2,3]"),
        (r#"{"type":"array","items":"int"}"#, b"\x03\x04\x02\x04\x00", "[1,2]"),
        (r#"{"type":"map","values":"int"}"#, b"\x02\x02k\x02\x00", r#"{"k":1}"#),
        (r#"["null","string"]"#, b"\x02\x02x", r#""x""#),
        (r#"["null","string"]"#, b"\x00", "null"),
        (r#"{"type":"enum","name":"E","symbols":["A","B"]}"#, b"\x02", r#""B""#),
        (r#"{"type":"fixed","name":"F","size":2}"#, b"\xff\x00", r#""/wA=""#),
        (r#"{"type":"int","logicalType":"date"}"#, b"\x00", r#""1970-01-01""#),
        (r#"{"type":"long","logicalType":"timestamp-micros"}"#, b"\x02", r#""1970-01-01T00:00:00.000001Z""#),
        (r#"{"type":"string","logicalType":"uuid"}"#, b"\x02u", r#""u""#),
        (
            r#"{"type":"fixed","name":"U","size":16,"logicalType":"uuid"}"#,
            b"\x89\x79\x17\x62\x23\x36\x41\x86\x96\x74\x29\x9b\x90\xa8\x02\xe2",
            r#""89791762-2336-4186-9674-299b90a802e2""#,
        ),
        (
            r#"{"type":"fixed","name":"D","size":3,"logicalType":"decimal","precision":6,"scale":2}"#,
            b"\0\x04\xe2",
            r#""12.50""#,
        ),
        (r#"{"type":"record","name":"R","fields":[]}"#, b"", "{}"),
    ];
    for (text, bytes, expected) in cases {
        assert_eq!(json(&schema(text), bytes).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn a_logical_type_that_does_not_suit_its_type_is_the_type() {
    for (text, bytes, expected) in [
        (r#"{"type":"string","logicalType":"date"}"#, &b"\x02x"[..], r#""x""#),
        (r#"{"type":"int","logicalType":"timestamp-millis"}"#, b"\x02", "1"),
        (r#"{"type":"int","logicalType":"mine"}"#, b"\x02", "1"),
        (r#"{"type":"int","logicalType":7}"#, b"\x02", "1"),
        (r#"{"type":"fixed","name":"F","size":1,"logicalType":"duration"}"#, b"\x02", r#""Ag==""#),
        (r#"{"type":"fixed","name":"F","size":1,"logicalType":"decimal"}"#, b"\x02", r#""Ag==""#),
        (
            r#"{"type":"fixed","name":"F","size":1,"logicalType":"decimal","precision":2,"scale":3}"#,
            b"\x02",
            r#""Ag==""#,
        ),
        (
            r#"{"type":"fixed","name":"F","size":1,"logicalType":"decimal","precision":2,"scale":-1}"#,
            b"\x02",
            r#""Ag==""#,
        ),
    ] {
        assert_eq!(json(&schema(text), bytes).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn a_decimal_of_more_digits_than_its_bytes_can_hold_is_none() {
    let decimal = |precision: i32, scale: i32| {
        let text = r#"{"type":"bytes","logicalType":"decimal","precision":P,"scale":S}"#;
        schema(&text.replace('P', &precision.to_string()).replace('S', &scale.to_string()))
    };
    // A scale of two thousand million would be as many zeroes, before anything looks at the size of the text.
    for (precision, scale) in [(2_467, 0), (i32::MAX, i32::MAX), (0, 0), (-1, 0)] {
        assert_eq!(json(&decimal(precision, scale), b"\x01").as_deref(), Ok(r#""AQ==""#), "{precision} {scale}");
        assert_eq!(bytes(&decimal(precision, scale), r#""AQ==""#).as_deref(), Ok(&b"\x01"[..]));
    }
    let widest = decimal(2_466, 2_466);
    let largest = [&[0x7f][..], &[0xff; 1_023]].concat();
    let text = json(&widest, &largest).unwrap();
    assert_eq!(text.len(), r#""0.""#.len() + 2_466);
    assert_eq!(bytes(&widest, &text), Ok(largest));
}

#[test]
fn names_are_found_in_their_namespaces() {
    let text = r#"{"type":"record","name":"a.b.Outer","fields":[
        {"name":"e","type":{"type":"enum","name":"E","symbols":["X"]}},
        {"name":"again","type":"E"},
        {"name":"full","type":"a.b.E"},
        {"name":"other","type":{"type":"fixed","name":"F","namespace":"c","size":1}},
        {"name":"c","type":"c.F"},
        {"name":"me","type":["null","Outer"]},
        {"name":"none","type":{"type":"record","name":"N","namespace":"","fields":[{"name":"n","type":"int"}]}},
        {"name":"n","type":"N"}
    ]}"#;
    // A name without a namespace is also found by itself, as older writers of schemas assumed.
    let got = json(&schema(text), b"\0\0\0\x01\x02\0\x02\x04").unwrap();
    assert_eq!(
        got,
        r#"{"e":"X","again":"X","full":"X","other":"AQ==","c":"Ag==","me":null,"none":{"n":1},"n":{"n":2}}"#
    );
}

#[test]
fn references_give_the_types_that_the_text_does_not_define() {
    let unit = r#"{"type":"record","name":"common.Unit","fields":[{"name":"n","type":"string"}]}"#;
    let money = r#"{"type":"record","name":"common.Money","fields":[{"name":"unit","type":"Unit"},{"name":"cents","type":"long"}]}"#;
    let root = r#"{"type":"array","items":"common.Money"}"#;
    let parsed = AvroSchema::parse(root, &[unit, money]).unwrap();
    assert_eq!(json(&parsed, b"\x02\x02e\x04\0").as_deref(), Ok(r#"[{"unit":{"n":"e"},"cents":2}]"#));
    let error = AvroSchema::parse(root, &[]).unwrap_err().to_string();
    assert_eq!(
        error,
        "the Avro schema: there is no type \"common.Money\", neither before this place nor among the references"
    );
    let error = AvroSchema::parse(root, &[money]).unwrap_err().to_string();
    assert!(error.contains("common.Money.unit: there is no type \"common.Unit\""), "{error}");
}

#[test]
fn a_type_that_holds_itself_ends_at_the_depth_that_readers_take() {
    let list = schema(
        r#"{"type":"record","name":"L","fields":[{"name":"v","type":"int"},{"name":"next","type":["null","L"]}]}"#,
    );
    let nested = |depth: usize| [&b"\x02\x02".repeat(depth - 1)[..], b"\x02\x00"].concat();
    assert_eq!(json(&list, &nested(2)).as_deref(), Ok(r#"{"v":1,"next":{"v":1,"next":null}}"#));
    assert!(json(&list, &nested(100)).is_ok());
    assert_eq!(json(&list, &nested(101)).unwrap_err().reason, AvroReason::Depth { limit: 100 });

    // Without a single byte.
    let endless = schema(r#"{"type":"record","name":"R","fields":[{"name":"r","type":"R"}]}"#);
    assert_eq!(json(&endless, b"").unwrap_err().reason, AvroReason::Depth { limit: 100 });
}

#[test]
fn lengths_and_counts_that_the_bytes_cannot_hold_are_refused() {
    let big = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01";
    let min = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
    let string = schema(r#""string""#);
    let length = |length, left| AvroReason::Length { what: "a string", length, left };
    assert_eq!(json(&string, big).unwrap_err().reason, length(i64::MAX, 0));
    assert_eq!(json(&string, b"\x03ab").unwrap_err().reason, length(-2, 2));
    assert_eq!(json(&string, b"\x06ab").unwrap_err().reason, length(3, 2));

    let ints = schema(r#"{"type":"array","items":"int"}"#);
    assert_eq!(json(&ints, big).unwrap_err().reason, AvroReason::Truncated { what: "an int" });
    // The smallest count there is, with a size.
    assert!(matches!(json(&ints, &[&min[..], &big[..]].concat()).unwrap_err().reason, AvroReason::Length { .. }));
    assert_eq!(
        json(&ints, &[&min[..], b"\x02\x02"].concat()).unwrap_err().reason,
        AvroReason::Truncated { what: "an int" }
    );
    assert_eq!(json(&ints, b"\x01\x04\x02\x02\x00").unwrap_err().reason, AvroReason::Block { found: 3, expected: 4 });
    assert!(matches!(json(&ints, b"\x01\x03\x02\x00").unwrap_err().reason, AvroReason::Length { length: -2, .. }));
}

#[test]
fn values_without_bytes_do_not_multiply() {
    let big = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01";
    for items in [r#""null""#, r#"{"type":"record","name":"R","fields":[]}"#, r#"{"type":"fixed","name":"F","size":0}"#]
    {
        let nothings = schema(&format!(r#"{{"type":"array","items":{items}}}"#));
        let reason = json(&nothings, big).unwrap_err().reason;
        assert!(matches!(reason, AvroReason::TooManyValues { .. }), "{reason}");
    }
    // Each level doubles the one below: 2^60 values of no bytes.
    let mut text = r#""null""#.to_owned();
    for level in 0..30 {
        let second = if level == 0 { "\"null\"".to_owned() } else { format!("\"R{}\"", level - 1) };
        text = format!(
            r#"{{"type":"record","name":"R{level}","fields":[{{"name":"a","type":{text}}},{{"name":"b","type":{second}}}]}}"#
        );
    }
    assert!(matches!(json(&schema(&text), b"").unwrap_err().reason, AvroReason::TooManyValues { .. }));
}

#[test]
fn the_text_is_bounded() {
    let name = "n".repeat(1_000);
    let wide = schema(&format!(
        r#"{{"type":"array","items":{{"type":"record","name":"R","fields":[{{"name":"{name}","type":"int"}}]}}}}"#
    ));
    let bytes = [&b"\xd0\x0f"[..], &[2; 1_000], b"\0"].concat();
    let mut out = Vec::new();
    let error = wide.to_json(&bytes, 10_000, &mut out).unwrap_err();
    assert_eq!((error.reason, out.len()), (AvroReason::TooLarge { limit: 10_000 }, 0));
}

#[test]
fn what_is_wrong_in_a_value_is_told_with_path_and_byte() {
    let text =
        r#"{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"array","items":["null","boolean"]}}]}"#;
    let cases: [(&[u8], &str); 6] = [
        (b"\x04\0\x02\x05\0", "$.a[1]: byte 4: 0x05 is neither true nor false"),
        (b"\x04\0\x04\0", "$.a[1]: byte 3: 2 is not one of the 2 branches"),
        (b"\x04\0\x01\0", "$.a[1]: byte 3: -1 is not one of the 2 branches"),
        (b"\x04\0\x02", "$.a[1]: byte 3: the value ends inside a boolean"),
        (b"\x00\x00", "$: byte 1: 1 bytes are left behind the value"),
        (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", "$.a: byte 10: a count of items has more than 64 bits"),
    ];
    for (bytes, says) in cases {
        assert_eq!(json(&schema(text), bytes).unwrap_err().to_string(), says);
    }
    let map = schema(r#"{"type":"map","values":"int"}"#);
    assert_eq!(json(&map, b"\x04\x02k\x02\x02k\x04\0").unwrap_err().to_string(), "$.k: byte 6: the key is given twice");
    assert!(json(&schema(r#""string""#), b"\x02\xff").unwrap_err().to_string().contains("not UTF-8"));
    assert_eq!(
        json(&schema(r#""int""#), b"\x80\x80\x80\x80\x10").unwrap_err().reason,
        AvroReason::Varint { what: "an int", bits: 32 }
    );
    let date = schema(r#"{"type":"int","logicalType":"date"}"#);
    assert!(json(&date, b"\xfe\xff\xff\xff\x0f").unwrap_err().to_string().contains("no JSON form: a date"));
}

#[test]
fn what_is_wrong_in_a_schema_is_told_with_its_place() {
    for (text, says) in [
        ("{", "the Avro schema is not JSON"),
        ("7", "the Avro schema: a type cannot be a number"),
        (r#""uuid""#, "no type \"uuid\""),
        ("{}", "a type has no \"type\""),
        (r#"{"type":"array"}"#, "\"items\" is missing"),
        (r#"{"type":"record","name":"R"}"#, "R: a record has no \"fields\""),
        (r#"{"type":"record","fields":[]}"#, "has no \"name\""),
        (r#"{"type":"record","name":"R","fields":[7]}"#, "R: a field is a number, not an object"),
        (r#"{"type":"record","name":"n.R","fields":[{"name":"f","type":"X"}]}"#, "n.R.f: there is no type \"n.X\""),
        (
            r#"{"type":"record","name":"R","fields":[{"name":"f","type":"int"},{"name":"f","type":"int"}]}"#,
            "two fields",
        ),
        (r#"[["int"]]"#, "a union cannot hold a union"),
        (r#"{"type":"fixed","name":"F","size":-1}"#, "size"),
        (r#"{"type":"fixed","name":"F","size":4294967296}"#, "size"),
        (r#"[{"type":"fixed","name":"F","size":1},{"type":"enum","name":"F","symbols":[]}]"#, "\"F\" is defined twice"),
        (r#"{"type":"enum","name":"E"}"#, "an enum has no \"symbols\""),
    ] {
        let problem = problem(text);
        assert!(problem.contains(says), "{text}: {problem}");
    }
    let deep = format!("{}\"int\"{}", r#"{"type":"array","items":"#.repeat(200), "}".repeat(200));
    assert!(matches!(AvroSchema::parse(&deep, &[]), Err(AvroSchemaError::Syntax(_))));
    assert!(AvroSchema::parse(&"[".repeat(1_000_000), &[]).is_err());
}

fn bytes(schema: &AvroSchema, json: &str) -> Result<Vec<u8>, String> {
    let mut out = b"x".to_vec();
    let written = schema.write(json.as_bytes(), &mut out);
    if written.is_err() {
        assert_eq!(out, b"x", "an error leaves nothing behind");
    }
    written.map(|()| out[1..].to_vec()).map_err(|error| error.to_string())
}

#[test]
fn json_is_written_as_the_schema_orders_it() {
    let record = schema(
        r#"{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":["null","string"]},
            {"name":"m","type":{"type":"map","values":"long"}},{"name":"l","type":{"type":"array","items":"R"}}]}"#,
    );
    assert_eq!(
        bytes(&record, r#"{"m":{"k":-1},"l":[],"a":1.0,"b":"x"}"#).unwrap(),
        b"\x02\x02\x02x\x02\x02k\x01\x00\x00"
    );
    assert_eq!(
        bytes(&record, r#"{"m":{},"l":[{"m":{},"l":[],"a":2}],"a":1}"#).unwrap(),
        b"\x02\x00\x00\x02\x04\x00\x00\x00\x00"
    );
    for (json, says) in [
        (r#"{"m":{},"l":[]}"#, "$: the field a is missing"),
        (r#"{"a":1,"m":{},"l":[],"z":1}"#, "$.z: the record has no such field"),
        (r#"{"a":1,"a":1,"m":{},"l":[]}"#, "$.a: the key is given twice"),
        (r#"{"a":1,"m":{"k":1,"k":1},"l":[]}"#, "$.m.k: the key is given twice"),
        (r#"{"a":1.5,"m":{},"l":[]}"#, "$.a: expected an int, found 1.5"),
        (r#"{"a":2147483648,"m":{},"l":[]}"#, "$.a: expected an int"),
        (r#"{"a":1,"b":7,"m":{},"l":[]}"#, "$.b: a number suits none of the union's 2 branches"),
        (r#"{"a":1,"m":{},"l":[{"a":2}]}"#, "$.l[0]: the field m is missing"),
        (r#"{"a":1,"m":{},"l":[]} 7"#, "not JSON"),
        (r#"{"a":1,"#, "not JSON"),
        ("[]", "$: expected an object, found an array"),
    ] {
        let error = bytes(&record, json).unwrap_err();
        assert!(error.contains(says), "{json}: {error}");
    }
}

#[test]
fn a_union_takes_the_first_branch_that_fits() {
    let union = schema(
        r#"["null","int","double",{"type":"long","logicalType":"timestamp-millis"},{"type":"enum","name":"E","symbols":["A"]},
            "string",{"type":"record","name":"P","fields":[{"name":"p","type":"int"}]},
            {"type":"record","name":"Q","fields":[{"name":"q","type":"int"}]},{"type":"map","values":"string"}]"#,
    );
    for (json, branch) in [
        ("null", 0),
        ("7", 1),
        ("7.0", 1),
        ("7.5", 2),
        ("3000000000", 2),
        (r#""1970-01-01T00:00:00Z""#, 3),
        (r#""A""#, 4),
        (r#""B""#, 5),
        (r#"{"p":1}"#, 6),
        (r#"{"q":1}"#, 7),
        (r#"{"r":"x"}"#, 8),
    ] {
        assert_eq!(bytes(&union, json).unwrap()[0], branch * 2, "{json}");
    }
    assert!(bytes(&union, r#"{"r":1}"#).unwrap_err().contains("suits none of the union's 9 branches"));
    assert!(bytes(&union, "[]").unwrap_err().contains("an array suits none"));
    let optional = schema(r#"["null",{"type":"record","name":"P","fields":[{"name":"p","type":"int"}]}]"#);
    assert_eq!(bytes(&optional, r#"{"p":"x"}"#).unwrap_err(), "$.p: expected an int, found a string");
}

#[test]
fn a_number_prefers_the_branch_that_keeps_it() {
    for (union, number, says) in [
        (r#"["float","double"]"#, "0.1", r#"{"double":0.1}"#),
        (r#"["float","double"]"#, "0.5", r#"{"float":0.5}"#),
        (r#"["double","float"]"#, "0.5", r#"{"double":0.5}"#),
        (r#"["float","double"]"#, "16777217", r#"{"double":16777217}"#),
        (r#"["float","double"]"#, "1e300", r#"{"double":1e300}"#),
        (r#"["null","float"]"#, "0.1", r#"{"float":0.1}"#),
        (r#"["float","long"]"#, "0.1", r#"{"float":0.1}"#),
        (r#"["double","long"]"#, "9007199254740993", r#"{"long":9007199254740993}"#),
        (r#"["double","int","long"]"#, "7", r#"{"int":7}"#),
        (r#"["double","long","int"]"#, "7", r#"{"long":7}"#),
        (r#"["float","int"]"#, "16777217", r#"{"int":16777217}"#),
        (r#"["long","double"]"#, "1e19", r#"{"double":1e19}"#),
        (r#"["long","double"]"#, "-0.0", r#"{"double":-0.0}"#),
        (r#"["long","null"]"#, "-0.0", r#"{"long":0}"#),
        (r#"["int","long"]"#, "-0.0", r#"{"int":0}"#),
    ] {
        let written = bytes(&schema(union), number).unwrap();
        let names: Vec<String> = serde_json::from_str(union).unwrap();
        let name = &names[usize::from(written[0] / 2)];
        let shown = json(&schema(&format!("{name:?}")), &written[1..]).unwrap();
        assert_eq!(format!("{{{name:?}:{shown}}}"), says, "{number} of {union}");
    }
    let numbers = schema(r#"["float","int"]"#);
    assert!(bytes(&numbers, "1e39").unwrap_err().contains("a number suits none of the union's 2 branches"));
    // Infinity is a string in JSON, and the order alone decides.
    assert_eq!(bytes(&schema(r#"["float","string"]"#), r#""Infinity""#).unwrap()[0], 0);
    assert_eq!(bytes(&schema(r#"["string","float"]"#), r#""Infinity""#).unwrap()[0], 0);
}

#[test]
fn attempts_at_the_branches_of_a_union_are_counted() {
    let writes = |schema: &AvroSchema, json: &str| {
        let mut out = b"x".to_vec();
        let written = schema.write(json.as_bytes(), &mut out);
        assert!(written.is_ok() || out == b"x");
        written.map(|()| out.len() - 1).map_err(|error| error.reason)
    };
    let is_refused = |schema: &AvroSchema, json: &str| {
        let reason = writes(schema, json).unwrap_err();
        assert!(matches!(reason, AvroWriteReason::TooManyValues { .. }), "{reason}");
    };
    let two = schema(
        r#"{"type":"record","name":"A","fields":[{"name":"next","type":["null","A",
            {"type":"record","name":"B","fields":[{"name":"next","type":["null","A","B"]}]}]}]}"#,
    );
    let nested = |depth: usize, end: &str| format!("{}{end}{}", "{\"next\":".repeat(depth), "}".repeat(depth));
    // The first branch fits at once, however deep.
    assert_eq!(writes(&two, &nested(50, "null")), Ok(50));
    // No branch does, and each level doubles the attempts.
    is_refused(&two, &nested(50, "7"));
    assert!(matches!(writes(&two, &nested(10, "7")), Err(AvroWriteReason::Union { .. })));
    // Each attempt goes over a long text, through `L` as a list and through `S` as a string.
    let text = "x".repeat(1 << 20);
    let long = schema(
        r#"{"type":"record","name":"A","fields":[{"name":"s","type":"string"},{"name":"next","type":["null","A",
            {"type":"record","name":"B","fields":[{"name":"s","type":"string"},{"name":"next","type":["null","A","B"]}]}]}]}"#,
    );
    let item = format!("{{\"s\":\"\",\"next\":{{\"s\":\"{text}\",\"next\":7}}}}");
    assert!(matches!(writes(&long, &item), Err(AvroWriteReason::Union { .. })));
    let levels = "{\"s\":\"\",\"next\":".repeat(20);
    is_refused(&long, &format!("{levels}{item}{}", "}".repeat(20)));
    // Text that is not JSON is so for every branch.
    assert!(matches!(writes(&two, &nested(50, "!")), Err(AvroWriteReason::Syntax(_))));
}

#[test]
fn what_no_text_stands_for_is_bounded_when_writing_too() {
    let fields: Vec<String> = (0..1_000).map(|at| format!(r#"{{"name":"f{at}","type":["null","int"]}}"#)).collect();
    let record = format!(r#"{{"type":"record","name":"R","fields":[{}]}}"#, fields.join(","));
    let items = |of: &str| schema(&format!(r#"{{"type":"array","items":{of}}}"#));
    let list = |item: &str, count: usize| format!("[{}]", vec![item; count].join(","));
    let written = bytes(&items(&record), &list("{}", 10)).unwrap();
    assert_eq!(written.len(), 10 * 1_000 + 2);
    for (of, item) in
        [(&*record, "{}"), (r#"{"type":"bytes","logicalType":"decimal","precision":2466,"scale":2466}"#, r#""0""#)]
    {
        let mut out = Vec::new();
        let error = items(of).write(list(item, 100_000).as_bytes(), &mut out).unwrap_err();
        assert!(matches!(error.reason, AvroWriteReason::TooManyValues { .. }), "{error}");
        assert_eq!(out.len(), 0);
        // Before it was refused.
        assert!(out.capacity() < 32 << 20, "{}", out.capacity());
    }
    // What people write is far from it.
    let usual = r#"{"type":"bytes","logicalType":"decimal","precision":38,"scale":18}"#;
    assert!(bytes(&items(usual), &list(r#""1""#, 100_000)).is_ok());
}

#[test]
fn a_float_is_the_nearest_to_the_text_and_never_infinity_by_its_size() {
    let float = schema(r#""float""#);
    assert_eq!(bytes(&float, "1.00000005960464477540").unwrap(), 1.000_000_1_f32.to_le_bytes());
    assert_eq!(bytes(&float, "3.5e38").unwrap_err(), "$: expected a float, found 3.5e38");
    assert_eq!(bytes(&schema(r#""double""#), "-1e400").unwrap_err(), "$: expected a double, found -1e400");
    for special in ["NaN", "Infinity", "-Infinity"] {
        let text = format!("{special:?}");
        let written = bytes(&float, &text).unwrap();
        assert_eq!(json(&float, &written), Ok(text));
    }
}

#[test]
fn what_was_read_is_written_back_byte_for_byte() {
    for (text, value) in [
        (r#""bytes""#, &b"\xff\x00"[..]),
        (r#""float""#, b"\x00\x00\x80>"),
        (r#""double""#, b"\x00\x00\x00\x00\x00\x00\xf0\xff"),
        (r#"{"type":"fixed","name":"D","size":3,"logicalType":"decimal","precision":6,"scale":2}"#, b"\xff\xfb\x1e"),
        (
            r#"{"type":"array","items":{"type":"bytes","logicalType":"decimal","precision":6,"scale":2}}"#,
            b"\x02\x04\x04\xe2\x00",
        ),
        (
            r#"{"type":"fixed","name":"U","size":12,"logicalType":"duration"}"#,
            b"\x01\x00\x00\x00\x02\x00\x00\x00\xbc\x0b\x00\x00",
        ),
        (r#"{"type":"int","logicalType":"time-millis"}"#, b"\x02"),
        (r#"{"type":"long","logicalType":"local-timestamp-nanos"}"#, b"\x01"),
        (r#"["null","string",{"type":"map","values":["int","null"]}]"#, b"\x04\x04\x02a\x02\x02b\x00\x04\x00"),
    ] {
        let schema = schema(text);
        let json = json(&schema, value).unwrap();
        assert_eq!(bytes(&schema, &json).as_deref(), Ok(value), "{text}: {json}");
    }
}

#[test]
fn depth_is_bounded_when_writing_too() {
    let list = schema(r#"{"type":"record","name":"L","fields":[{"name":"n","type":["null","L"]}]}"#);
    let nested = |depth: usize| format!("{}null{}", "{\"n\":".repeat(depth), "}".repeat(depth));
    assert!(bytes(&list, &nested(99)).is_ok());
    assert!(bytes(&list, &nested(101)).is_err());
}

/// A schema of everything, for the bytes of strangers.
fn everything() -> AvroSchema {
    let mut fields = String::new();
    for (index, of) in [
        r#"{"type":"array","items":{"type":"enum","name":"E","symbols":["A","B"]}}"#,
        r#"["null","int","E",{"type":"map","values":["null","R"]}]"#,
        r#"{"type":"bytes","logicalType":"decimal","precision":9,"scale":3}"#,
        r#"{"type":"long","logicalType":"timestamp-nanos"}"#,
        r#"{"type":"array","items":["null","string","double",{"type":"fixed","name":"F","size":3}]}"#,
    ]
    .iter()
    .enumerate()
    {
        let comma = if index > 0 { "," } else { "" };
        write!(fields, r#"{comma}{{"name":"f{index}","type":{of}}}"#).unwrap();
    }
    schema(&format!(r#"{{"type":"record","name":"R","fields":[{fields}]}}"#))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_048, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_become_json_or_an_error(bytes in prop::collection::vec(prop_oneof![Just(0_u8), Just(2), Just(4), any::<u8>()], 0..60)) {
        if let Ok(text) = json(&everything(), &bytes) {
            prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{}", text);
        }
    }
}

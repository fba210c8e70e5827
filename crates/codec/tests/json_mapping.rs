//! Protobuf's JSON rules, byte for byte, in strict and in lenient mode.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{everything, hex, lenient, older, print, print_with, sample, strict, with_defaults};
use tidegate_codec::{SyntaxProblem, ToJsonReason, ToProtobufReason};

/// The two modes agree on everything that the schema knows.
fn both(json: &str) -> Vec<u8> {
    let m = sample();
    let bytes = strict(&m, json).unwrap_or_else(|error| panic!("{json}: {error}"));
    assert_eq!(lenient(&m, json).unwrap(), bytes, "{json}");
    bytes
}

/// The text of the error that both modes give.
fn refused(json: &str) -> String {
    let m = sample();
    let error = strict(&m, json).expect_err(json);
    assert_eq!(lenient(&m, json).expect_err(json), error, "{json}");
    error.to_string()
}

#[test]
fn strict_mode_refuses_unknown_names_and_says_where() {
    let m = sample();
    let cases = [
        (r#"{"e":"E_FUTURE"}"#, r#"$.e: sample.M.E has no value "E_FUTURE""#),
        (r#"{"es":["E_ONE","E_FUTURE","E_ONE"]}"#, r#"$.es[1]: sample.M.E has no value "E_FUTURE""#),
        (r#"{"zzz":{"q":[1]},"n":5}"#, "$.zzz: sample.M has no field of this name"),
    ];
    for (json, message) in cases {
        assert_eq!(strict(&m, json).unwrap_err().to_string(), message);
    }
}

#[test]
fn lenient_mode_leaves_unknown_enum_names_unset_and_skips_unknown_fields() {
    let m = sample();
    assert_eq!(lenient(&m, r#"{"e":"E_FUTURE"}"#).unwrap(), []);
    assert_eq!(lenient(&m, r#"{"es":["E_ONE","E_FUTURE","E_ONE"]}"#).unwrap(), hex("52 02 01 01"));
    assert_eq!(lenient(&m, r#"{"es":["E_FUTURE"]}"#).unwrap(), []);
    assert_eq!(lenient(&m, r#"{"zzz":{"q":[1]},"n":5}"#).unwrap(), hex("10 05"));
    assert_eq!(lenient(&m, r#"{"n":5,"zzz":[{"n":6}],"e":1}"#).unwrap(), hex("10 05 48 01"));
    let all = everything();
    assert_eq!(
        lenient(&all, r#"{"byBool":{"true":"GREEN","false":"COLOR_RED"}}"#).unwrap(),
        hex("da 02 04 08 00 10 01")
    );
    assert_eq!(lenient(&all, r#"{"maybeColor":"GREEN","color":"GREEN"}"#).unwrap(), []);
    // What is known must still be right.
    assert_eq!(lenient(&m, r#"{"zzz":1,"n":"x"}"#).unwrap_err().path, "$.n");
    assert_eq!(lenient(&m, r#"{"zzz":[1,}"#).unwrap_err().path, "$.zzz");
}

#[test]
fn an_unknown_enum_number_is_kept_as_a_number() {
    assert_eq!(both(r#"{"e":99}"#), hex("48 63"));
    assert_eq!(print(&sample(), &hex("48 63")).unwrap(), r#"{"e":99}"#);
    assert_eq!(both(r#"{"es":[1,"E_ZERO",-1]}"#), hex("52 0c 01 00 ff ff ff ff ff ff ff ff ff 01"));
}

#[test]
fn an_unknown_field_on_the_wire_is_not_printed() {
    assert_eq!(print(&sample(), &hex("9a 06 03 61 62 63 10 05")).unwrap(), r#"{"n":5}"#);
    // In every wire type, a group with fields in it too.
    let unknown = "98 06 01 99 06 01 02 03 04 05 06 07 08 9d 06 01 02 03 04 9b 06 0b 08 01 0c 9c 06";
    assert_eq!(print(&sample(), &hex(&format!("{unknown} 10 05"))).unwrap(), r#"{"n":5}"#);
}

#[test]
fn unset_zero_and_null_are_told_apart() {
    let m = sample();
    assert_eq!(print(&m, &[]).unwrap(), "{}");
    assert_eq!(print(&m, &hex("18 00")).unwrap(), r#"{"opt":0}"#);
    assert_eq!(print(&m, &hex("10 00 48 00 68 00 70 00 92 01 00")).unwrap(), "{}");
    assert_eq!(both("{}"), []);
    assert_eq!(both(r#"{"n":0}"#), []);
    assert_eq!(both(r#"{"opt":0}"#), hex("18 00"));
    assert_eq!(both(r#"{"n":null,"opt":null,"es":null,"any":null,"str":null}"#), []);
}

#[test]
fn of_a_oneof_the_last_member_on_the_wire_counts_and_two_in_a_document_are_an_error() {
    let m = sample();
    assert_eq!(print(&m, &hex("38 01 42 01 78")).unwrap(), r#"{"s":"x"}"#);
    assert_eq!(print(&m, &hex("42 01 78 38 00")).unwrap(), r#"{"a":0}"#);
    assert_eq!(print(&m, &hex("38 01 42 01 78 38 02")).unwrap(), r#"{"a":2}"#);
    assert_eq!(refused(r#"{"a":1,"s":"x"}"#), "$.s: a is given too, and both are of the oneof pick");
    assert_eq!(both(r#"{"a":null,"s":"x"}"#), hex("42 01 78"));
    assert_eq!(both(r#"{"s":"x","a":null}"#), hex("42 01 78"));
    assert_eq!(both(r#"{"a":0}"#), hex("38 00"));
}

#[test]
fn print_defaults_prints_what_knows_no_unset_and_the_document_reads_back() {
    let m = sample();
    let printed = print_with(&m, &[], &with_defaults()).unwrap();
    assert_eq!(printed, r#"{"n":0,"e":"E_ZERO","es":[],"i64":"0","u64":"0","str":""}"#);
    assert_eq!(both(&printed), []);
    let printed = print_with(&m, &hex("18 00 38 00"), &with_defaults()).unwrap();
    assert_eq!(printed, r#"{"n":0,"opt":0,"a":0,"e":"E_ZERO","es":[],"i64":"0","u64":"0","str":""}"#);
    assert_eq!(both(&printed), hex("18 00 38 00"));

    let all = everything();
    let printed = print_with(&all, &[], &with_defaults()).unwrap();
    assert!(printed.starts_with(r#"{"doubleValue":0,"floatValue":0,"int32Value":0,"int64Value":"0","uint32Value":0,"#));
    assert!(
        printed.contains(r#""blobs":[],"#)
            && printed.contains(r#""byString":{},"#)
            && printed.contains(r#""@other name":"""#)
    );
    assert!(!printed.contains("maybe") && !printed.contains("choice") && !printed.contains("wrapped"));
    assert_eq!(strict(&all, &printed).unwrap(), []);
}

#[test]
fn every_printed_document_reads_back_to_the_same_bytes() {
    for bytes in
        ["", "18 00", "42 01 78", "38 00", "48 63", "52 02 01 01", "68 ff ff ff ff ff ff ff ff 7f", "92 01 01 00"]
    {
        let bytes = hex(bytes);
        assert_eq!(both(&print(&sample(), &bytes).unwrap()), bytes);
        assert_eq!(both(&print_with(&sample(), &bytes, &with_defaults()).unwrap()), bytes);
    }
}

#[test]
fn no_digit_of_a_large_number_is_lost() {
    let m = sample();
    assert_eq!(print(&m, &hex("68 ff ff ff ff ff ff ff ff 7f")).unwrap(), r#"{"i64":"9223372036854775807"}"#);
    let exact = hex("68 81 80 80 80 80 80 80 10");
    for form in [
        "9007199254740993",
        "\"9007199254740993\"",
        "9007199254740993.0",
        "9.007199254740993e15",
        "\"9007199254740993000e-3\"",
    ] {
        assert_eq!(both(&format!(r#"{{"i64":{form}}}"#)), exact, "{form}");
    }
    assert_eq!(print(&m, &exact).unwrap(), r#"{"i64":"9007199254740993"}"#);
    let largest = hex("70 ff ff ff ff ff ff ff ff ff 01");
    assert_eq!(both(r#"{"u64":18446744073709551615}"#), largest);
    assert_eq!(both(r#"{"u64":"18446744073709551615"}"#), largest);
    assert_eq!(print(&m, &largest).unwrap(), r#"{"u64":"18446744073709551615"}"#);
    assert_eq!(both(r#"{"i64":-9223372036854775808}"#), hex("68 80 80 80 80 80 80 80 80 80 01"));
}

#[test]
fn a_number_that_its_type_cannot_hold_is_refused() {
    let cases = [
        (r#"{"u64":"18446744073709551616"}"#, "$.u64: 18446744073709551616 is out of range for uint64"),
        (r#"{"u64":18446744073709551616}"#, "$.u64: 18446744073709551616 is out of range for uint64"),
        (r#"{"u64":-1}"#, "$.u64: -1 is out of range for uint64"),
        (r#"{"i64":9223372036854775808}"#, "$.i64: 9223372036854775808 is out of range for int64"),
        (r#"{"n":2147483648}"#, "$.n: 2147483648 is out of range for int32"),
        (r#"{"n":1e400}"#, "$.n: 1e400 is out of range for int32"),
        (r#"{"n":1.5}"#, "$.n: 1.5 is not an integer"),
        (r#"{"e":2147483648}"#, "$.e: 2147483648 is out of range for int32"),
    ];
    for (json, message) in cases {
        assert_eq!(refused(json), message);
    }
    let all = everything();
    for (json, path) in [
        (r#"{"doubleValue":1e400}"#, "$.doubleValue"),
        (r#"{"doubleValue":"1e400"}"#, "$.doubleValue"),
        (r#"{"doubles":[0,-1e309]}"#, "$.doubles[1]"),
        (r#"{"floatValue":3.5e38}"#, "$.floatValue"),
        (r#"{"floatValue":-1e39}"#, "$.floatValue"),
        (r#"{"value":1e400}"#, "$.value"),
        (r#"{"struct":{"x":[1e400]}}"#, "$.struct.x[0]"),
        (r#"{"sint32Value":-2147483649}"#, "$.sint32Value"),
        (r#"{"fixed32Value":4294967296}"#, "$.fixed32Value"),
    ] {
        let error = strict(&all, json).unwrap_err();
        assert_eq!(error.path, path);
        assert!(matches!(error.reason, ToProtobufReason::OutOfRange { .. }), "{error}");
    }
    // In a field that the schema does not know, it harms nobody.
    assert_eq!(lenient(&sample(), r#"{"zzz":1e400,"n":5}"#).unwrap(), hex("10 05"));
}

#[test]
fn floats_have_the_names_that_json_numbers_lack() {
    let all = everything();
    let cases = [
        (r#"{"doubleValue":"NaN","floatValue":"NaN"}"#, "09 00 00 00 00 00 00 f8 7f 15 00 00 c0 7f"),
        (r#"{"doubleValue":"Infinity","floatValue":"-Infinity"}"#, "09 00 00 00 00 00 00 f0 7f 15 00 00 80 ff"),
        (r#"{"doubleValue":-0.0,"floatValue":-0.0}"#, "09 00 00 00 00 00 00 00 80 15 00 00 00 80"),
        (r#"{"doubleValue":0.1,"floatValue":0.1}"#, "09 9a 99 99 99 99 99 b9 3f 15 cd cc cc 3d"),
        (r#"{"doubleValue":5e-324,"floatValue":1e-45}"#, "09 01 00 00 00 00 00 00 00 15 01 00 00 00"),
        (
            r#"{"wrappedDouble":"NaN","wrappedFloat":"Infinity"}"#,
            "b2 04 09 09 00 00 00 00 00 00 f8 7f ea 04 05 0d 00 00 80 7f",
        ),
    ];
    for (json, bytes) in cases {
        assert_eq!(strict(&all, json).unwrap(), hex(bytes), "{json}");
        assert_eq!(print(&all, &hex(bytes)).unwrap(), json);
    }
    for text in ["nan", "inf", "infinity", "+Infinity", "+1", " 1", "0x10", "1.", ""] {
        let error = strict(&all, &format!(r#"{{"doubleValue":"{text}"}}"#)).unwrap_err();
        assert!(matches!(error.reason, ToProtobufReason::Text { .. }), "{error}");
    }
}

#[test]
fn text_that_is_no_text_is_refused() {
    let m = sample();
    assert_eq!(both(r#"{"str":"\ud83d\ude01"}"#), hex("92 01 04 f0 9f 98 81"));
    for json in [r#"{"str":"\ud800"}"#, r#"{"str":"\ude01\ud83d"}"#, r#"{"str":"\ud800x"}"#] {
        let error = strict(&m, json).unwrap_err();
        assert_eq!(error.path, "$.str");
        let ToProtobufReason::Syntax(syntax) = error.reason else { panic!("{error}") };
        assert_eq!((syntax.offset, syntax.problem), (8, SyntaxProblem::LoneSurrogate));
    }
    let mut out = Vec::new();
    let error = m.json_to_protobuf(b"{\"str\":\"\xff\"}", tidegate_codec::UnknownMode::Strict, &mut out).unwrap_err();
    assert_eq!(error.to_string(), "$: not JSON: byte 8: the text is not UTF-8");

    let error = print(&m, &hex("10 05 92 01 02 ff fe")).unwrap_err();
    assert_eq!(error.to_string(), "$.str: byte 5: the string is not UTF-8");
    assert_eq!(print(&m, &hex("92 01 04 f0 9f 98 81")).unwrap(), r#"{"str":"😁"}"#);
}

#[test]
fn both_names_of_a_field_are_read_and_the_json_name_is_written() {
    let all = everything();
    let bytes = hex("18 01");
    assert_eq!(strict(&all, r#"{"int32Value":1}"#).unwrap(), bytes);
    assert_eq!(strict(&all, r#"{"int32_value":1}"#).unwrap(), bytes);
    assert_eq!(print(&all, &bytes).unwrap(), r#"{"int32Value":1}"#);
    let renamed = hex("8a 05 01 78");
    assert_eq!(strict(&all, r#"{"@other name":"x"}"#).unwrap(), renamed);
    assert_eq!(strict(&all, r#"{"renamed":"x"}"#).unwrap(), renamed);
    assert_eq!(print(&all, &renamed).unwrap(), r#"{"@other name":"x"}"#);
    let twice = strict(&all, r#"{"int32Value":1,"int32_value":1}"#).unwrap_err();
    assert_eq!(twice.to_string(), "$.int32_value: the field is given twice");
    assert_eq!(strict(&all, r#"{"Int32Value":1}"#).unwrap_err().path, "$.Int32Value");
}

#[test]
fn the_same_content_gives_the_same_bytes_whatever_the_order_of_the_keys() {
    let bytes = hex("10 05 42 01 78 68 07 92 01 01 79");
    for json in [
        r#"{"n":5,"s":"x","i64":7,"str":"y"}"#,
        r#"{"str":"y","i64":7,"s":"x","n":5}"#,
        r#"{"i64":7,"str":"y","n":5,"s":"x"}"#,
    ] {
        assert_eq!(both(json), bytes);
    }
    let all = everything();
    let child = r#"{"child":{"stringValue":"s","int32Value":1},"doubleValue":1}"#;
    assert_eq!(strict(&all, child).unwrap(), hex("09 00 00 00 00 00 00 f0 3f 8a 01 05 18 01 72 01 73"));
}

#[test]
fn a_value_of_the_wrong_type_is_refused_with_its_path() {
    let cases = [
        ("[]", "$: expected an object, found an array"),
        ("null", "$: expected an object, found null"),
        (r#"{"n":true}"#, "$.n: expected a number, or a string that holds one, found a boolean"),
        (r#"{"n":"five"}"#, r#"$.n: "five" is not an integer"#),
        (r#"{"n":"NaN"}"#, r#"$.n: "NaN" is not an integer"#),
        (r#"{"n":""}"#, r#"$.n: "" is not an integer"#),
        (r#"{"str":5}"#, "$.str: expected a string, found a number"),
        (r#"{"e":true}"#, "$.e: expected a name or a number of the enum, found a boolean"),
        (r#"{"e":"1"}"#, ""),
        (r#"{"es":"E_ONE"}"#, "$.es: expected an array, found a string"),
        (r#"{"es":[null]}"#, "$.es[0]: expected a name or a number of the enum, found null"),
        (r#"{"n":1} {"n":2}"#, "$: not JSON: byte 8: expected the end of the text"),
        (r#"{"n":1,}"#, "$: not JSON: byte 7: expected a string"),
        (r#"{"n":01}"#, "$.n: not JSON: byte 5: not a number as JSON writes them"),
        ("", "$: not JSON: byte 0: the text ends too early"),
    ];
    for (json, message) in cases {
        if message.is_empty() {
            // A name that is not known: lenient mode takes it.
            assert!(strict(&sample(), json).is_err());
        } else {
            assert_eq!(refused(json), message);
        }
    }
    let all = everything();
    for (json, path) in [
        (r#"{"boolValue":"true"}"#, "$.boolValue"),
        (r#"{"boolValue":1}"#, "$.boolValue"),
        (r#"{"strings":["a",null]}"#, "$.strings[1]"),
        (r#"{"children":[{},null]}"#, "$.children[1]"),
        (r#"{"byString":{"a":null}}"#, "$.byString.a"),
        (r#"{"byString":[1]}"#, "$.byString"),
        (r#"{"byNumber":{"1.5":"x"}}"#, "$.byNumber[\"1.5\"]"),
        (r#"{"byBool":{"True":1}}"#, "$.byBool.True"),
        (r#"{"byUint":{"1":{"child":{"int32Value":"q"}}}}"#, "$.byUint.1.child.int32Value"),
        (r#"{"bytesValue":"???"}"#, "$.bytesValue"),
        (r#"{"timestamp":5}"#, "$.timestamp"),
    ] {
        assert_eq!(strict(&all, json).unwrap_err().path, path, "{json}");
    }
}

#[test]
fn a_long_key_or_text_is_cut_in_the_message() {
    let error = strict(&sample(), &format!(r#"{{"{}":1}}"#, "k".repeat(100_000))).unwrap_err();
    assert!(error.to_string().len() < 300);
    let error = strict(&sample(), &format!(r#"{{"n":{}}}"#, "9".repeat(100_000))).unwrap_err();
    assert!(error.to_string().len() < 300);
}

#[test]
fn bytes_are_read_from_both_alphabets_with_and_without_padding() {
    let all = everything();
    let bytes = hex("7a 02 fb ff");
    for text in ["+/8=", "-_8=", "+/8", "-_8"] {
        assert_eq!(strict(&all, &format!(r#"{{"bytesValue":"{text}"}}"#)).unwrap(), bytes, "{text}");
    }
    assert_eq!(print(&all, &bytes).unwrap(), r#"{"bytesValue":"+/8="}"#);
}

#[test]
fn maps_keep_the_last_entry_of_a_key_and_documents_have_each_key_once() {
    let all = everything();
    let entry = |key: &str, value: &str| format!("ca 02 05 0a 01 {key} 10 {value}");
    let bytes = hex(&[entry("61", "01"), entry("62", "02"), entry("61", "03")].join(" "));
    assert_eq!(print(&all, &bytes).unwrap(), r#"{"byString":{"b":2,"a":3}}"#);
    assert_eq!(print(&all, &hex("ca 02 00")).unwrap(), r#"{"byString":{"":0}}"#);
    assert_eq!(print(&all, &hex("e2 02 02 08 07")).unwrap(), r#"{"byUint":{"7":{}}}"#);
    assert_eq!(strict(&all, r#"{"byString":{"":0}}"#).unwrap(), hex("ca 02 04 0a 00 10 00"));
    for json in
        [r#"{"byString":{"a":1,"\u0061":2}}"#, r#"{"byNumber":{"1":"","1.0":""}}"#, r#"{"struct":{"a":1,"a":2}}"#]
    {
        let error = strict(&all, json).unwrap_err();
        assert_eq!(error.reason, ToProtobufReason::DuplicateKey, "{json}");
    }
    let keys = r#"{"byNumber":{"-5":"a","9007199254740993":"b"},"byBool":{"true":"COLOR_BLUE"}}"#;
    assert_eq!(print(&all, &strict(&all, keys).unwrap()).unwrap(), keys);
}

#[test]
fn lists_are_read_packed_or_not() {
    let all = everything();
    assert_eq!(print(&all, &hex("82 02 01 03 82 02 02 05 80")).unwrap_err().path, "$.int64s");
    assert_eq!(print(&all, &hex("82 02 01 03 82 02 02 05 06 80 02 07")).unwrap(), r#"{"int64s":["3","5","6","7"]}"#);
    assert_eq!(print(&all, &hex("ba 02 02 01 02 b8 02 03")).unwrap(), r#"{"unpacked":[1,2,3]}"#);
    assert_eq!(strict(&all, r#"{"unpacked":[1,2]}"#).unwrap(), hex("b8 02 01 b8 02 02"));
    assert_eq!(strict(&all, r#"{"int64s":["1",2]}"#).unwrap(), hex("82 02 02 01 02"));
    assert_eq!(strict(&all, r#"{"int64s":[],"byString":{},"children":[]}"#).unwrap(), []);
}

#[test]
fn a_message_given_twice_on_the_wire_is_merged() {
    let all = everything();
    // child { int32_value: 1, strings: "a" }, then child { int32_value: 2, strings: "b", child {} }.
    let bytes = hex("8a 01 06 18 01 9a 02 01 61 8a 01 09 18 02 8a 01 00 9a 02 01 62");
    assert_eq!(print(&all, &bytes).unwrap(), r#"{"child":{"int32Value":2,"child":{},"strings":["a","b"]}}"#);
    // A oneof's member that another one cleared starts anew.
    let bytes = hex("aa 03 02 18 01 a0 03 05 aa 03 03 72 01 78");
    assert_eq!(print(&all, &bytes).unwrap(), r#"{"choiceChild":{"stringValue":"x"}}"#);
}

#[test]
fn a_field_in_the_encoding_of_another_type_is_an_error_and_not_dropped() {
    let error = print(&sample(), &hex("12 01 05")).unwrap_err();
    assert_eq!(error.to_string(), "$.n: byte 0: the field is not encoded as int32 is");
    let error = print(&everything(), &hex("ca 02 03 0a 01 61 c8 02 05")).unwrap_err();
    assert_eq!(error.to_string(), "$.byString: byte 6: the field is not encoded as a map is");
    let error = print(&everything(), &hex("ca 02 03 08 01 10")).unwrap_err();
    assert_eq!(error.path, "$.byString");
}

#[test]
fn bytes_that_are_no_message_are_an_error_with_their_place() {
    for (bytes, message) in [
        ("10", "$: byte 1: the message ends inside a field"),
        ("92 01 05 61", "$: byte 2: the message ends inside a field"),
        ("00 01", "$: byte 0: no such field number"),
        ("16 01", "$: byte 0: no such wire type"),
        ("14", "$: byte 0: a group ends that did not begin"),
        ("10 ff ff ff ff ff ff ff ff ff ff 01", "$: byte 1: a varint has more than 64 bits"),
    ] {
        assert_eq!(print(&sample(), &hex(bytes)).unwrap_err().to_string(), message);
    }
    let inside = print(&everything(), &hex("8a 01 03 72 05 61")).unwrap_err();
    assert_eq!(inside.path, "$.child");
}

#[test]
fn numbers_of_32_bits_are_taken_from_the_lower_half_of_their_varint() {
    assert_eq!(print(&sample(), &hex("10 ff ff ff ff ff ff ff ff ff 01")).unwrap(), r#"{"n":-1}"#);
    assert_eq!(print(&sample(), &hex("10 85 80 80 80 10")).unwrap(), r#"{"n":5}"#);
    assert_eq!(print(&everything(), &hex("68 80 02")).unwrap(), r#"{"boolValue":true}"#);
}

#[test]
fn the_first_of_two_names_of_an_enum_value_is_printed_and_both_are_read() {
    let all = everything();
    let bytes = hex("80 01 01");
    assert_eq!(strict(&all, r#"{"color":"COLOR_CRIMSON"}"#).unwrap(), bytes);
    assert_eq!(print(&all, &bytes).unwrap(), r#"{"color":"COLOR_RED"}"#);
}

#[test]
fn proto2_has_required_fields_groups_and_extensions() {
    let old = older();
    let json = r#"{"id":0,"unpacked":[1,2],"packed":[3],"box":{"width":1,"side":[{"name":"a"},{}]},"inner":{"id":7},"[older.extra]":"x","[older.more]":[4,5]}"#;
    let bytes = strict(&old, json).unwrap();
    let expected =
        "08 00 18 01 18 02 22 01 03 2b 08 01 13 0a 01 61 14 13 14 2c 32 02 08 07 a2 06 01 78 a8 06 04 a8 06 05";
    assert_eq!(bytes, hex(expected));
    assert_eq!(print(&old, &bytes).unwrap(), json);
    let missing = strict(&old, r#"{"id":1,"inner":{"note":""}}"#).unwrap_err();
    assert_eq!(missing.to_string(), "$.inner: the required field id is missing");
    // To show what is there is better than to show nothing.
    assert_eq!(
        print_with(&old, &hex("12 00"), &with_defaults()).unwrap(),
        r#"{"note":"","unpacked":[],"packed":[],"[older.more]":[]}"#
    );
}

#[test]
fn the_text_has_a_limit() {
    let mut options = with_defaults();
    options.max_json_bytes = 1000;
    let bytes = [&hex("a2 02 d0 0f")[..], &[1; 2000]].concat();
    // colors: 2000 values whose names are far longer than the one byte that each takes.
    let bytes = [&hex("aa 02 d0 0f")[..], &bytes[4..]].concat();
    let error = print_with(&everything(), &bytes, &options).unwrap_err();
    assert_eq!(error.reason, ToJsonReason::TooLarge { limit: 1000 });
    options.max_json_bytes = 100_000;
    assert!(print_with(&everything(), &bytes, &options).is_ok());
}

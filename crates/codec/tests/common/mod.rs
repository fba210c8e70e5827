//! The schemas of the tests, and short ways through them.

// Each test file uses its own part.
#![allow(dead_code)]

use tidegate_codec::{JsonOptions, MessageType, Schema, ToJsonError, ToProtobufError, UnknownMode};

pub(crate) const SAMPLE: &str = include_str!("../protos/sample.proto");
pub(crate) const EVERYTHING: &str = include_str!("../protos/everything.proto");
pub(crate) const OLDER: &str = include_str!("../protos/older.proto");

pub(crate) fn sample() -> MessageType {
    Schema::from_proto_source("sample.proto", SAMPLE).unwrap().message("sample.M").unwrap()
}

pub(crate) fn everything() -> MessageType {
    Schema::from_proto_source("everything.proto", EVERYTHING).unwrap().message("everything.All").unwrap()
}

pub(crate) fn older() -> MessageType {
    Schema::from_proto_source("older.proto", OLDER).unwrap().message("older.Old").unwrap()
}

pub(crate) fn encode(message: &MessageType, json: &str, mode: UnknownMode) -> Result<Vec<u8>, ToProtobufError> {
    let mut out = b"before".to_vec();
    let converted = message.json_to_protobuf(json.as_bytes(), mode, &mut out);
    assert!(out.starts_with(b"before"));
    if converted.is_err() {
        assert_eq!(out, b"before", "an error leaves the buffer as it was");
    }
    converted.map(|()| out.split_off(6))
}

pub(crate) fn strict(message: &MessageType, json: &str) -> Result<Vec<u8>, ToProtobufError> {
    encode(message, json, UnknownMode::Strict)
}

pub(crate) fn lenient(message: &MessageType, json: &str) -> Result<Vec<u8>, ToProtobufError> {
    encode(message, json, UnknownMode::Lenient)
}

pub(crate) fn print_with(message: &MessageType, bytes: &[u8], options: &JsonOptions) -> Result<String, ToJsonError> {
    let mut out = b"before".to_vec();
    let converted = message.protobuf_to_json(bytes, options, &mut out);
    assert!(out.starts_with(b"before"));
    if converted.is_err() {
        assert_eq!(out, b"before", "an error leaves the buffer as it was");
    }
    converted.map(|()| String::from_utf8(out.split_off(6)).unwrap())
}

pub(crate) fn print(message: &MessageType, bytes: &[u8]) -> Result<String, ToJsonError> {
    print_with(message, bytes, &JsonOptions::default())
}

pub(crate) fn with_defaults() -> JsonOptions {
    let mut options = JsonOptions::default();
    options.print_defaults = true;
    options
}

/// Bytes from hexadecimal text with spaces.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    text.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

//! The flights, inside the binary: they work anywhere.

use serde::Deserialize;
use tidegate_codec::{MessageType, Schema};
use tidegate_model::TopicName;

use crate::exit::{Failure, chain};
use crate::input::lines::Lines;
use crate::input::open;

/// One JSON document a line, zstd.
const FLIGHTS: &[u8] = include_bytes!("../../../../../examples/flights/flights.ndjson.zst");
const PROTO: &str = include_str!("../../../../../examples/flights/flight.proto");
const MESSAGE: &str = "tidegate.examples.flights.v1.Flight";

/// How many records there are.
pub(super) const RECORDS: u64 = 336_776;

/// The longest line that is taken.
const MAX_LINE_BYTES: usize = 64 << 10;

pub(super) const JSON_TOPIC: &str = "flights.json";
pub(super) const PROTOBUF_TOPIC: &str = "flights";

pub(super) fn json_topic() -> Result<TopicName, Failure> {
    TopicName::new(JSON_TOPIC).map_err(Failure::failed_plain)
}

pub(super) fn protobuf_topic() -> Result<TopicName, Failure> {
    TopicName::new(PROTOBUF_TOPIC).map_err(Failure::failed_plain)
}

/// The message type of the Protobuf topic.
pub(super) fn message() -> Result<MessageType, Failure> {
    Schema::from_proto_source("flight.proto", PROTO)
        .and_then(|schema| schema.message(MESSAGE))
        .map_err(|error| Failure::failed_plain(chain(&error)))
}

/// The documents, unpacked on the way.
pub(super) fn lines() -> Result<Lines, Failure> {
    let input = open::unpacked(FLIGHTS).map_err(|error| Failure::failed("the embedded flights", &error))?;
    Ok(Lines::new(input, MAX_LINE_BYTES))
}

/// What a record's key and timestamp are made from.
#[derive(Debug, Deserialize)]
pub(super) struct Flight<'a> {
    /// When it left, or should have.
    #[serde(borrow)]
    pub(super) event_time: &'a serde_json::value::RawValue,
    carrier: &'a str,
    flight: u32,
}

impl Flight<'_> {
    /// The record's key: carrier and number, such as `UA1545`. It is always there, and keeps the flights of one line in order.
    pub(super) fn key(&self) -> String {
        format!("{}{}", self.carrier, self.flight)
    }
}

/// Reads the fields of one document.
pub(super) fn flight(document: &[u8]) -> Result<Flight<'_>, serde_json::Error> {
    serde_json::from_slice(document)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::timestamp;

    #[test]
    fn every_embedded_flight_has_a_key_and_a_time_and_becomes_a_message() {
        let message = message().unwrap();
        let mut lines = lines().unwrap();
        let mut records = 0;
        let mut out = Vec::new();
        while let Some((_, line)) = lines.next().unwrap() {
            let flight = flight(line).unwrap();
            assert!(timestamp::from_json(flight.event_time.get(), None).unwrap() > 0);
            assert!(flight.key().len() > 2);
            out.clear();
            message.json_to_protobuf(line, tidegate_codec::UnknownMode::Strict, &mut out).unwrap();
            records += 1;
        }
        assert_eq!(records, RECORDS);
    }
}

//! The example data: every record goes to Protobuf and comes back with the names and values it had.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use tidegate_codec::{JsonOptions, Schema, UnknownMode};
use tidegate_testkit::flights;

#[test]
fn every_flight_comes_back_as_it_went_in_but_for_its_nulls() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/flights");
    let schema = Schema::load(&folder.join("flight.proto"), &[]).unwrap();
    let flight = schema.message("tidegate.examples.flights.v1.Flight").unwrap();

    let options = JsonOptions::default();
    let (mut records, mut protobuf_bytes) = (0_u64, 0);
    let (mut bytes, mut json) = (Vec::new(), Vec::new());
    for record in flights::lines() {
        bytes.clear();
        flight.json_to_protobuf(record.json.as_bytes(), UnknownMode::Strict, &mut bytes).unwrap();
        json.clear();
        flight.protobuf_to_json(&bytes, &options, &mut json).unwrap();
        // The documents are compact and their keys stand in the order of the field numbers, so their text must match.
        let without_nulls: Vec<&str> =
            record.json[1..record.json.len() - 1].split(',').filter(|member| !member.ends_with(":null")).collect();
        assert_eq!(std::str::from_utf8(&json).unwrap(), format!("{{{}}}", without_nulls.join(",")));
        records += 1;
        protobuf_bytes += bytes.len();
    }
    assert_eq!(records, flights::RECORDS);
    // A fifth of the JSON documents, to the byte: a change of the encoding would be a change of the data.
    assert_eq!(protobuf_bytes, 17_631_057);
}

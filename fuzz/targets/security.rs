//! What the client reads before it trusts anybody, and what a user may hand it: the first byte picks one.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_client::fuzzing;
use tidegate_fuzz::within;

/// JSON is the dearest: a value of some dozens of bytes for two bytes of text.
const MEMORY: usize = 1024 * 1024;
const PER_BYTE: usize = 128;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, rest)) = bytes.split_first() else { return };
    within(MEMORY + PER_BYTE * rest.len(), || match kind % 6 {
        0 => fuzzing::scram(rest),
        1 => fuzzing::sasl(rest),
        2 => fuzzing::token(rest),
        3 => fuzzing::connection_string(rest),
        4 => fuzzing::pem(rest),
        _ => fuzzing::first_bytes(rest),
    });
});

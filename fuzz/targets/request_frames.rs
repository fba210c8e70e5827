//! A request frame from a stranger, as the embedded broker decodes it.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use tidegate_fuzz::within;

/// What any frame may take, and what each of its bytes may: some 75 bytes for every value decoded, and the broker counts
/// at most one value for 4 bytes of the frame beyond a fixed number.
const MEMORY: usize = 2 * 1024 * 1024;
const PER_BYTE: usize = 40;

fuzz_target!(|bytes: &[u8]| {
    let frame = Bytes::copy_from_slice(bytes);
    within(MEMORY + PER_BYTE * bytes.len(), || {
        let _ = tidegate_broker::decode_request(frame);
    });
});

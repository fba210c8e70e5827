//! Compressed bytes from a stranger, under a cap: the first byte picks the codec.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use tidegate_fuzz::within;
use tidegate_model::Compression;
use tidegate_wire::compression::{compress, decompress};

const CODECS: [Compression; 4] = [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];
const CAP: usize = 64 * 1024;

/// An output that grows is there twice for a moment; gzip has tables of its own. zstd's memory is not the Rust allocator's.
const MEMORY: usize = CAP + CAP / 2 + 192 * 1024;

fuzz_target!(|bytes: &[u8]| {
    let [codec, packed @ ..] = bytes else { return };
    let codec = CODECS[usize::from(*codec) % CODECS.len()];
    let input = Bytes::copy_from_slice(packed);
    if let Ok(out) = within(MEMORY, || decompress(codec, &input, CAP)) {
        assert!(out.len() <= CAP);
        // The cap is exact.
        assert_eq!(decompress(codec, &input, out.len()).as_ref(), Ok(&out));
        assert!(out.is_empty() || decompress(codec, &input, out.len() - 1).is_err());
    }
    // Whatever the bytes are, they survive the way there and back.
    let there = Bytes::from(compress(codec, packed).expect("memory"));
    assert_eq!(decompress(codec, &there, packed.len()).as_deref(), Ok(packed));
});

//! Frames of each codec as clients and brokers in the field write them, none of them made by this crate.

#![allow(clippy::unwrap_used, clippy::panic)]

use bytes::Bytes;
use tidegate_model::Compression::{self, Gzip, Lz4, Snappy, Zstd};
use tidegate_wire::DecompressError;
use tidegate_wire::compression::decompress;

fn bytes(hex: &str) -> Bytes {
    let digits: Vec<u8> = hex.chars().filter_map(|c| c.to_digit(16)).map(|d| u8::try_from(d).unwrap()).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

const HELLO: [(&str, Compression, &str); 12] = [
    ("snappy, raw", Snappy, "05 10 68 65 6c 6c 6f"),
    (
        "snappy, Java framing",
        Snappy,
        "82 53 4e 41 50 50 59 00 00 00 00 01 00 00 00 01 00 00 00 07 05 10 68 65 6c 6c 6f",
    ),
    (
        "snappy, Java framing, two blocks",
        Snappy,
        "82 53 4e 41 50 50 59 00 00 00 00 01 00 00 00 01 00 00 00 05 03 08 68 65 6c 00 00 00 04 02 04 6c 6f",
    ),
    (
        "snappy, Java framing with little-endian versions",
        Snappy,
        "82 53 4e 41 50 50 59 00 01 00 00 00 01 00 00 00 00 00 00 07 05 10 68 65 6c 6c 6f",
    ),
    ("lz4", Lz4, "04 22 4d 18 60 40 82 05 00 00 80 68 65 6c 6c 6f 00 00 00 00"),
    (
        "lz4, two frames",
        Lz4,
        "04 22 4d 18 60 40 82 03 00 00 80 68 65 6c 00 00 00 00 04 22 4d 18 60 40 82 02 00 00 80 6c 6f 00 00 00 00",
    ),
    ("lz4, a compressed block of literals", Lz4, "04 22 4d 18 60 40 82 06 00 00 00 50 68 65 6c 6c 6f 00 00 00 00"),
    ("zstd, no size stated", Zstd, "28 b5 2f fd 00 00 29 00 00 68 65 6c 6c 6f"),
    ("zstd, two frames, no size stated", Zstd, "28 b5 2f fd 00 00 19 00 00 68 65 6c 28 b5 2f fd 00 00 11 00 00 6c 6f"),
    ("zstd, size stated in one byte", Zstd, "28 b5 2f fd 20 05 29 00 00 68 65 6c 6c 6f"),
    (
        "gzip, a stored block",
        Gzip,
        "1f 8b 08 00 00 00 00 00 00 ff 01 05 00 fa ff 68 65 6c 6c 6f 86 a6 10 36 05 00 00 00",
    ),
    (
        "gzip, two members",
        Gzip,
        "1f 8b 08 00 00 00 00 00 00 ff 01 03 00 fc ff 68 65 6c 1b f1 0b e5 03 00 00 00 \
         1f 8b 08 00 00 00 00 00 00 ff 01 02 00 fd ff 6c 6f 9d 4a 9c 55 02 00 00 00",
    ),
];

#[test]
fn every_form_in_the_field_gives_hello() {
    for (name, codec, hex) in HELLO {
        assert_eq!(decompress(codec, &bytes(hex), 1024).as_deref(), Ok(&b"hello"[..]), "{name}");
        assert_eq!(decompress(codec, &bytes(hex), 5).as_deref(), Ok(&b"hello"[..]), "{name}, at the cap");
        let refused = decompress(codec, &bytes(hex), 4).unwrap_err();
        assert_eq!(refused, DecompressError::TooLarge { codec, cap: 4 }, "{name}, beyond the cap");
    }
}

#[test]
fn the_old_lz4_header_checksum_is_refused_by_name() {
    let old = bytes("04 22 4d 18 60 40 1a 05 00 00 80 68 65 6c 6c 6f 00 00 00 00");
    let error = decompress(Lz4, &old, 1024).unwrap_err();
    assert_eq!(error, DecompressError::Lz4HeaderChecksum { stated: 0x1a, computed: 0x82, includes_magic: true });
    let neither = bytes("04 22 4d 18 60 40 1b 05 00 00 80 68 65 6c 6c 6f 00 00 00 00");
    let error = decompress(Lz4, &neither, 1024).unwrap_err();
    assert_eq!(error, DecompressError::Lz4HeaderChecksum { stated: 0x1b, computed: 0x82, includes_magic: false });
}

#[test]
fn a_raw_snappy_header_that_claims_4_gib_is_refused_under_any_cap() {
    let claim = bytes("ff ff ff ff 0f");
    assert_eq!(decompress(Snappy, &claim, 1024), Err(DecompressError::TooLarge { codec: Snappy, cap: 1024 }));
    let error = decompress(Snappy, &claim, usize::MAX).unwrap_err();
    assert!(matches!(error, DecompressError::Corrupt { codec: Snappy, .. }), "{error}");
}

#[test]
fn every_cut_of_every_form_is_an_error_or_its_leading_frames() {
    for (name, codec, hex) in HELLO {
        let whole = bytes(hex);
        for cut in 1..whole.len() {
            match decompress(codec, &whole.slice(..cut), 1024) {
                Err(_) => {}
                Ok(out) => assert!(out.is_empty() || out == "hel", "{name} cut at {cut}: {out:?}"),
            }
        }
    }
}

#[test]
fn no_single_damaged_byte_of_any_form_panics_or_passes_the_cap() {
    for (_, codec, hex) in HELLO {
        let whole = bytes(hex).to_vec();
        for at in 0..whole.len() {
            for value in 0..=u8::MAX {
                let mut damaged = whole.clone();
                damaged[at] = value;
                if let Ok(out) = decompress(codec, &damaged.into(), 64) {
                    assert!(out.len() <= 64);
                }
            }
        }
    }
}

//! The codecs of record batches, each under an output cap.
//!
//! The output never grows beyond the cap, nor beyond what the compressed bytes could hold at the codec's best ratio: a size
//! that the bytes merely claim is not allocated. Besides the output, a codec needs only its own small working memory
//! (gzip 48 KiB, zstd 160 KiB, the others none), whatever window a frame asks for.

mod gzip;
mod lz4;
mod output;
mod snappy;
mod zstd;

use bytes::Bytes;
use tidegate_model::Compression;

pub(crate) use output::into_bytes;

/// Why bytes cannot be decompressed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecompressError {
    /// The output would be larger than the cap.
    #[error("the {} data takes more than {cap} bytes decompressed", .codec.name())]
    TooLarge {
        /// The codec.
        codec: Compression,
        /// The cap in bytes.
        cap: usize,
    },
    /// The data ends too early.
    #[error("the {} data is cut off", .codec.name())]
    Truncated {
        /// The codec.
        codec: Compression,
    },
    /// The data breaks the codec's rules.
    #[error("the {} data is damaged: {reason}", .codec.name())]
    Corrupt {
        /// The codec.
        codec: Compression,
        /// What is wrong with it.
        reason: String,
    },
    /// The Java framing of snappy in a version that nobody has seen.
    #[error("the snappy framing has version {version:#010x}, compatible down to {compatible:#010x}; only 1 is known")]
    SnappyFraming {
        /// The version field, read big-endian.
        version: u32,
        /// The least compatible version, read big-endian.
        compatible: u32,
    },
    /// The lz4 frame header has the wrong checksum.
    #[error(
        "the lz4 frame header has checksum {stated:#04x} in place of {computed:#04x}{}",
        magic_note(.includes_magic)
    )]
    Lz4HeaderChecksum {
        /// The checksum in the frame.
        stated: u8,
        /// The right one.
        computed: u8,
        /// It is the one that Kafka clients before 0.10 wrote by mistake (KIP-57).
        includes_magic: bool,
    },
}

fn magic_note(includes_magic: &bool) -> &'static str {
    if *includes_magic { " (computed over the magic number too, as only message format v0 allows)" } else { "" }
}

/// Why bytes cannot be compressed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} cannot compress the records: {reason}", .codec.name())]
pub struct CompressError {
    /// The codec.
    pub codec: Compression,
    /// What it said.
    pub reason: String,
}

/// The decompressed bytes, at most `cap` of them. Several frames or members of one codec, one after the other, are one
/// output. No bytes give no bytes, whatever the codec. [`Compression::None`] gives the same bytes without a copy and without
/// regard to the cap, since they are in memory already.
///
/// # Errors
/// [`DecompressError`] when the bytes are not sound, or hold more than `cap`.
pub fn decompress(codec: Compression, bytes: &Bytes, cap: usize) -> Result<Bytes, DecompressError> {
    decompress_by(codec, bytes, cap, HeaderChecksum::Right)
}

/// [`decompress`] for message format v0, whose lz4 frames may have the header checksum that Kafka clients before 0.10 wrote
/// by mistake (KIP-57).
pub(crate) fn decompress_v0(codec: Compression, bytes: &Bytes, cap: usize) -> Result<Bytes, DecompressError> {
    decompress_by(codec, bytes, cap, HeaderChecksum::OrWithMagic)
}

/// Which header checksums of an lz4 frame are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeaderChecksum {
    /// That of lz4's frame format.
    Right,
    /// Or the one over the magic number and the descriptor.
    OrWithMagic,
}

fn decompress_by(
    codec: Compression,
    bytes: &Bytes,
    cap: usize,
    checksum: HeaderChecksum,
) -> Result<Bytes, DecompressError> {
    if bytes.is_empty() {
        return Ok(Bytes::new());
    }
    let out = match codec {
        Compression::None => return Ok(bytes.clone()),
        Compression::Gzip => gzip::decompress(bytes, cap),
        Compression::Snappy => snappy::decompress(bytes, cap),
        Compression::Lz4 => lz4::decompress(bytes, cap, checksum),
        Compression::Zstd => zstd::decompress(bytes, cap),
    }?;
    Ok(into_bytes(out))
}

/// The compressed bytes, in the form that every client of Kafka reads: snappy in the Java framing, lz4 as one frame of
/// independent 64 KiB blocks, zstd as one frame.
///
/// # Errors
/// [`CompressError`] when the codec refuses, which for bytes in memory means that memory is short.
pub fn compress(codec: Compression, bytes: &[u8]) -> Result<Vec<u8>, CompressError> {
    match codec {
        Compression::None => Ok(bytes.to_vec()),
        Compression::Gzip => gzip::compress(bytes),
        Compression::Snappy => snappy::compress(bytes),
        Compression::Lz4 => lz4::compress(bytes),
        Compression::Zstd => zstd::compress(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODECS: [Compression; 4] = [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

    #[test]
    fn what_is_compressed_comes_back_under_a_cap_of_exactly_its_size() {
        let noise: Vec<u8> = (0..100_000_u32).map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
        for input in [&b""[..], b"h", b"hello", &[7; 1 << 20], &noise] {
            for codec in CODECS {
                let packed = Bytes::from(compress(codec, input).unwrap());
                assert_eq!(decompress(codec, &packed, input.len()).unwrap(), input, "{}", codec.name());
                if !input.is_empty() {
                    let less = input.len() - 1;
                    let error = decompress(codec, &packed, less).unwrap_err();
                    assert_eq!(error, DecompressError::TooLarge { codec, cap: less });
                }
            }
        }
    }

    #[test]
    fn several_frames_one_after_the_other_are_one_output() {
        for codec in CODECS {
            if codec == Compression::Snappy {
                // Its framing has blocks; the framing's own tests cover them.
                continue;
            }
            let mut packed = compress(codec, b"hel").unwrap();
            packed.extend(compress(codec, b"").unwrap());
            packed.extend(compress(codec, b"lo").unwrap());
            assert_eq!(decompress(codec, &packed.into(), 5).unwrap(), &b"hello"[..], "{}", codec.name());
        }
    }

    #[test]
    fn no_bytes_give_no_bytes() {
        for codec in CODECS {
            assert_eq!(decompress(codec, &Bytes::new(), 0), Ok(Bytes::new()));
        }
    }

    #[test]
    fn every_cut_is_an_error_or_a_whole_number_of_frames() {
        for codec in CODECS {
            let input: Vec<u8> = (0..3000_u32).flat_map(|i| (i % 251).to_be_bytes()).collect();
            let packed = Bytes::from(compress(codec, &input).unwrap());
            for cut in 1..packed.len() {
                match decompress(codec, &packed.slice(..cut), 1 << 20) {
                    Err(_) => {}
                    // Snappy's framing has no end mark: whole blocks are an output of their own.
                    Ok(out) => assert!(codec == Compression::Snappy && input.starts_with(&out), "{}", codec.name()),
                }
            }
        }
    }

    #[test]
    fn uncompressed_bytes_are_not_copied() {
        let bytes = Bytes::from_static(b"hello");
        let out = decompress(Compression::None, &bytes, 0).unwrap();
        assert_eq!(out.as_ptr(), bytes.as_ptr());
    }
}

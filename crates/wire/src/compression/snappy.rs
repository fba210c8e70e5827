//! snappy: one raw block, as librdkafka writes it, or the framing of the snappy-java library, as the Java client does.
//!
//! The framing is the magic `82 "SNAPPY" 00`, a version and the least compatible version (both 1), then blocks of a
//! big-endian length and a raw block each. One broker writes the two versions little-endian; the block lengths stay
//! big-endian there. A raw block never begins with the magic: its first element would refer to bytes before the output.

use snap::raw::{Decoder, Encoder, decompress_len, max_compress_len};
use tidegate_model::Compression::Snappy;

use super::{CompressError, DecompressError};

const MAGIC: &[u8] = b"\x82SNAPPY\0";
const FRAMING_HEADER_BYTES: usize = 16;

/// The block size of snappy-java's own output stream.
const BLOCK_BYTES: usize = 32 * 1024;

/// The best that the format can do: a copy of 64 bytes from 3.
const MAX_RATIO: usize = 22;

pub(super) fn decompress(bytes: &[u8], cap: usize) -> Result<Vec<u8>, DecompressError> {
    if !bytes.starts_with(MAGIC) {
        let mut out = vec![0; stated_len(bytes, cap)?];
        decode_block(bytes, &mut out)?;
        return Ok(out);
    }
    // All blocks say how much they hold, so the output is allocated once, after every claim has been held against the cap
    // and against the bytes that make it.
    let mut total = 0_usize;
    for block in Blocks::new(bytes) {
        total = total.saturating_add(stated_len(block?, cap)?);
        if total > cap {
            return Err(DecompressError::TooLarge { codec: Snappy, cap });
        }
    }
    let mut out = vec![0; total];
    let mut rest = out.as_mut_slice();
    for block in Blocks::new(bytes) {
        let block = block?;
        let (target, after) = rest.split_at_mut_checked(stated_len(block, cap)?).ok_or_else(too_short)?;
        decode_block(block, target)?;
        rest = after;
    }
    Ok(out)
}

pub(super) fn compress(bytes: &[u8]) -> Result<Vec<u8>, CompressError> {
    let mut out = Vec::with_capacity(FRAMING_HEADER_BYTES + bytes.len() / 2);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&1_u32.to_be_bytes());
    out.extend_from_slice(&1_u32.to_be_bytes());
    let mut encoder = Encoder::new();
    let mut block = vec![0; max_compress_len(BLOCK_BYTES.min(bytes.len()))];
    for part in bytes.chunks(BLOCK_BYTES) {
        let packed = encoder
            .compress(part, &mut block)
            .map_err(|error| CompressError { codec: Snappy, reason: error.to_string() })?;
        // A block of 32 KiB packs into less than 38 KiB.
        out.extend_from_slice(&u32::try_from(packed).unwrap_or(u32::MAX).to_be_bytes());
        out.extend_from_slice(block.get(..packed).unwrap_or_default());
    }
    Ok(out)
}

/// What a raw block says that it holds, if it can be true.
fn stated_len(block: &[u8], cap: usize) -> Result<usize, DecompressError> {
    let stated = decompress_len(block).map_err(|error| corrupt(error.to_string()))?;
    if stated > cap {
        return Err(DecompressError::TooLarge { codec: Snappy, cap });
    }
    if stated > block.len().saturating_mul(MAX_RATIO) {
        return Err(corrupt(format!("{} bytes cannot hold the {stated} that they claim", block.len())));
    }
    Ok(stated)
}

fn decode_block(block: &[u8], out: &mut [u8]) -> Result<(), DecompressError> {
    if block.is_empty() {
        return Ok(());
    }
    let written = Decoder::new().decompress(block, out).map_err(|error| corrupt(error.to_string()))?;
    if written == out.len() { Ok(()) } else { Err(too_short()) }
}

fn corrupt(reason: String) -> DecompressError {
    DecompressError::Corrupt { codec: Snappy, reason }
}

fn too_short() -> DecompressError {
    corrupt("a block holds less than it claims".to_owned())
}

/// The raw blocks of the Java framing.
struct Blocks<'a> {
    rest: &'a [u8],
    failed: bool,
}

impl<'a> Blocks<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, failed: false }
    }

    fn read_next(&mut self) -> Result<Option<&'a [u8]>, DecompressError> {
        const CUT: DecompressError = DecompressError::Truncated { codec: Snappy };
        // snappy-java takes a new header at any place where a block could begin: streams one after the other.
        while self.rest.starts_with(MAGIC) {
            let (header, rest) = self.rest.split_at_checked(FRAMING_HEADER_BYTES).ok_or(CUT)?;
            check_versions(header)?;
            self.rest = rest;
        }
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (length, rest) = self.rest.split_first_chunk().ok_or(CUT)?;
        let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| CUT)?;
        let (block, rest) = rest.split_at_checked(length).ok_or(CUT)?;
        self.rest = rest;
        Ok(Some(block))
    }
}

impl<'a> Iterator for Blocks<'a> {
    type Item = Result<&'a [u8], DecompressError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let item = self.read_next().transpose();
        self.failed = !matches!(item, Some(Ok(_)));
        item
    }
}

fn check_versions(header: &[u8]) -> Result<(), DecompressError> {
    let field =
        |at: usize| header.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |field| u32::from_be_bytes(*field));
    let (version, compatible) = (field(MAGIC.len()), field(MAGIC.len() + 4));
    let known = |version: u32| version == 1 || version.swap_bytes() == 1;
    // A later version that says a reader of version 1 will do is taken at its word.
    if version != 0 && known(compatible) {
        return Ok(());
    }
    Err(DecompressError::SnappyFraming { version, compatible })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAW: &[u8] = b"\x05\x10hello";

    fn framed(versions: [u32; 2], blocks: &[&[u8]]) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        versions.iter().for_each(|version| out.extend(version.to_be_bytes()));
        for block in blocks {
            out.extend(u32::try_from(block.len()).unwrap().to_be_bytes());
            out.extend_from_slice(block);
        }
        out
    }

    #[test]
    fn empty_blocks_and_a_header_between_blocks_are_read() {
        let mut bytes = framed([1, 1], &[b"", b"\x03\x08hel"]);
        bytes.extend(framed([1, 1], &[b"\x02\x04lo", b"\x00"]));
        assert_eq!(decompress(&bytes, 5).unwrap(), b"hello");
        assert_eq!(decompress(&framed([1, 1], &[]), 0).unwrap(), b"");
    }

    #[test]
    fn a_framing_that_version_1_cannot_read_is_refused_by_name() {
        let error = decompress(&framed([2, 2], &[RAW]), 5).unwrap_err();
        assert_eq!(error, DecompressError::SnappyFraming { version: 2, compatible: 2 });
        assert_eq!(decompress(&framed([2, 1], &[RAW]), 5).unwrap(), b"hello");
    }

    #[test]
    fn a_claim_that_the_bytes_cannot_hold_is_refused() {
        // 22 * 7 bytes are possible at best.
        let error = decompress(b"\xff\x7fhello", 1 << 20).unwrap_err();
        assert!(matches!(error, DecompressError::Corrupt { .. }), "{error}");
    }

    #[test]
    fn a_block_length_beyond_the_bytes_is_cut_off() {
        let mut bytes = framed([1, 1], &[]);
        bytes.extend([0xff, 0xff, 0xff, 0xff, 0]);
        assert_eq!(decompress(&bytes, 5), Err(DecompressError::Truncated { codec: Snappy }));
        bytes.truncate(FRAMING_HEADER_BYTES + 3);
        assert_eq!(decompress(&bytes, 5), Err(DecompressError::Truncated { codec: Snappy }));
    }
}

//! zstd (RFC 8878), one or several frames.
//!
//! The data is decompressed in one step into the output, which then is the window too: the window that a frame asks for, up
//! to 2 GiB, is never allocated. A frame need not state its size, and the Java client's do not, so the frames' block headers
//! are walked first for the most that they can hold.

use std::cell::RefCell;

use tidegate_model::Compression::Zstd;
use zstd::zstd_safe::{self, CCtx, DCtx, compress_bound};

use super::{CompressError, DecompressError};

const MAGIC: u32 = 0xfd2f_b528;
const SKIPPABLE: std::ops::RangeInclusive<u32> = 0x184d_2a50..=0x184d_2a5f;

/// The most that a block holds, whatever the window (RFC 8878, 3.1.1.2.4).
const BLOCK_BYTES: usize = 128 * 1024;

/// What the output gets room for at first, in proportion to the input, and how its room then grows.
const USUAL_RATIO: usize = 12;
const GROWTH: usize = 8;

/// zstd's own default, and Kafka's.
const LEVEL: i32 = 3;

thread_local! {
    // A context takes 160 KiB for reading and over 1 MiB for writing; making one costs more than a small batch does.
    static READING: RefCell<DCtx<'static>> = RefCell::new(DCtx::create());
    static WRITING: RefCell<CCtx<'static>> = RefCell::new(CCtx::create());
}

pub(super) fn decompress(bytes: &[u8], cap: usize) -> Result<Vec<u8>, DecompressError> {
    let most = most_output(bytes, cap)?;
    let ceiling = most.min(cap);
    let mut room = bytes.len().saturating_mul(USUAL_RATIO).min(ceiling);
    loop {
        let mut out = Vec::with_capacity(room);
        match READING.with_borrow_mut(|context| context.decompress(&mut out, bytes)) {
            Ok(_) => return Ok(out),
            Err(code) if is_too_small(code) && room < ceiling => room = room.saturating_mul(GROWTH).min(ceiling),
            Err(code) if is_too_small(code) && ceiling < most => {
                return Err(DecompressError::TooLarge { codec: Zstd, cap });
            }
            Err(code) => return Err(corrupt(zstd_safe::get_error_name(code).to_owned())),
        }
    }
}

pub(super) fn compress(bytes: &[u8]) -> Result<Vec<u8>, CompressError> {
    let mut out = Vec::with_capacity(compress_bound(bytes.len()));
    WRITING
        .with_borrow_mut(|context| context.compress(&mut out, bytes, LEVEL))
        .map_err(|code| CompressError { codec: Zstd, reason: zstd_safe::get_error_name(code).to_owned() })?;
    out.shrink_to_fit();
    Ok(out)
}

fn is_too_small(code: usize) -> bool {
    // The library's error codes are negative numbers in an unsigned type.
    code == (zstd_safe::zstd_sys::ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall as usize).wrapping_neg()
}

/// The most that the frames can hold, from their headers and those of their blocks; an error when they are cut off, or when
/// one states a size beyond the cap.
fn most_output(bytes: &[u8], cap: usize) -> Result<usize, DecompressError> {
    let mut input = Input { rest: bytes };
    let mut most = 0_usize;
    while !input.rest.is_empty() {
        match input.little_endian(4)? {
            magic if magic == u64::from(MAGIC) => {
                most = most.saturating_add(frame_output(&mut input, cap)?);
            }
            magic if u32::try_from(magic).is_ok_and(|magic| SKIPPABLE.contains(&magic)) => {
                let length = input.little_endian(4)?;
                input.skip(length)?;
            }
            magic => return Err(corrupt(format!("a frame cannot begin with {magic:#010x}"))),
        }
    }
    Ok(most)
}

/// Walks one frame behind its magic number.
fn frame_output(input: &mut Input<'_>, cap: usize) -> Result<usize, DecompressError> {
    let descriptor = input.little_endian(1)?;
    let single_segment = descriptor & 0x20 != 0;
    let has_checksum = descriptor & 0x04 != 0;
    if descriptor & 0x08 != 0 {
        return Err(corrupt("a reserved bit of the frame header is set".to_owned()));
    }
    if !single_segment {
        input.skip(1)?;
    }
    let dictionary = input.little_endian([0, 1, 2, 4][(descriptor & 3) as usize])?;
    if dictionary != 0 {
        return Err(corrupt(format!("a frame needs the dictionary {dictionary}")));
    }
    let stated = match (descriptor >> 6, single_segment) {
        (0, false) => None,
        (0, true) => Some(input.little_endian(1)?),
        (1, _) => Some(input.little_endian(2)? + 256),
        (2, _) => Some(input.little_endian(4)?),
        _ => Some(input.little_endian(8)?),
    };
    let stated = stated.map(|stated| usize::try_from(stated).unwrap_or(usize::MAX));
    if stated.is_some_and(|stated| stated > cap) {
        return Err(DecompressError::TooLarge { codec: Zstd, cap });
    }
    let mut most = 0_usize;
    loop {
        let header = input.little_endian(3)?;
        let size = header >> 3;
        let holds = usize::try_from(size).unwrap_or(usize::MAX);
        let holds = match (header >> 1) & 3 {
            // Stored as it is.
            0 => {
                input.skip(size)?;
                holds
            }
            // One byte, repeated.
            1 => {
                input.skip(1)?;
                holds
            }
            2 => {
                input.skip(size)?;
                BLOCK_BYTES
            }
            _ => return Err(corrupt("a block of the reserved type".to_owned())),
        };
        most = most.saturating_add(holds);
        if header & 1 != 0 {
            break;
        }
    }
    if has_checksum {
        input.skip(4)?;
    }
    Ok(stated.map_or(most, |stated| stated.min(most)))
}

fn corrupt(reason: String) -> DecompressError {
    DecompressError::Corrupt { codec: Zstd, reason }
}

struct Input<'a> {
    rest: &'a [u8],
}

impl Input<'_> {
    const CUT: DecompressError = DecompressError::Truncated { codec: Zstd };

    fn skip(&mut self, bytes: u64) -> Result<(), DecompressError> {
        let bytes = usize::try_from(bytes).map_err(|_| Self::CUT)?;
        self.rest = self.rest.get(bytes..).ok_or(Self::CUT)?;
        Ok(())
    }

    /// A little-endian number of up to 8 bytes.
    fn little_endian(&mut self, bytes: usize) -> Result<u64, DecompressError> {
        let (number, rest) = self.rest.split_at_checked(bytes).ok_or(Self::CUT)?;
        self.rest = rest;
        Ok(number.iter().rev().fold(0, |value, byte| (value << 8) | u64::from(*byte)))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// As the Java client writes: streamed, so that the frame states no size.
    fn streamed(input: &[u8], level: i32) -> Vec<u8> {
        let mut encoder = ::zstd::stream::Encoder::new(Vec::new(), level).unwrap();
        input.chunks(1000).for_each(|part| encoder.write_all(part).unwrap());
        encoder.finish().unwrap()
    }

    #[test]
    fn a_frame_that_states_no_size_is_read_at_every_ratio() {
        let text: Vec<u8> = (0_u64..).flat_map(|i| format!("{} ", i * i % 1009).into_bytes()).take(700_000).collect();
        for input in [&text[..], &vec![0; 3 << 20], &text[..10]] {
            let bytes = streamed(input, 3);
            assert_eq!(decompress(&bytes, input.len()).unwrap(), input);
            let error = decompress(&bytes, input.len() - 1).unwrap_err();
            assert_eq!(error, DecompressError::TooLarge { codec: Zstd, cap: input.len() - 1 });
        }
    }

    #[test]
    fn the_largest_window_costs_nothing_for_a_small_frame() {
        // Level 22 asks for a window of 128 MiB when the size is not known.
        assert_eq!(decompress(&streamed(b"hello", 22), 5).unwrap(), b"hello");
        let context = READING.with_borrow(|context| context.sizeof());
        assert!(context < 256 * 1024, "{context}");
    }

    #[test]
    fn frames_with_and_without_a_size_and_skippable_ones_are_one_output() {
        let mut bytes = streamed(b"hel", 1);
        bytes.extend([0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 9, 9]);
        bytes.extend(compress(b"lo").unwrap());
        assert_eq!(decompress(&bytes, 5).unwrap(), b"hello");
    }

    #[test]
    fn a_checksum_is_checked() {
        let mut encoder = ::zstd::stream::Encoder::new(Vec::new(), 3).unwrap();
        encoder.include_checksum(true).unwrap();
        encoder.write_all(b"hello").unwrap();
        let mut bytes = encoder.finish().unwrap();
        assert_eq!(decompress(&bytes, 5).unwrap(), b"hello");
        let at = bytes.len() - 1;
        bytes[at] ^= 1;
        assert!(matches!(decompress(&bytes, 5), Err(DecompressError::Corrupt { .. })));
    }

    #[test]
    fn a_context_that_met_an_error_reads_the_next_frame() {
        let good = streamed(b"hello", 3);
        let mut bad = good.clone();
        bad[5] ^= 0xff;
        bad.push(0);
        for _ in 0..3 {
            decompress(&bad, 1 << 20).unwrap_err();
            assert_eq!(decompress(&good, 5).unwrap(), b"hello");
        }
    }
}

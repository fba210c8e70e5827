//! The lz4 frame format, one or several frames.
//!
//! Source: lz4's `lz4_Frame_format.md` 1.6.x and KIP-57. The frame is read here, and only its blocks are given to the lz4
//! library: its own frame reader takes a frame without an end mark for a whole one, and sets aside up to 8 MiB a frame
//! whatever the caller's cap.

use std::cell::RefCell;
use std::io::Write;

use lz4_flex::block::{self, decompress_into, decompress_into_with_dict};
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
use tidegate_model::Compression::Lz4;
use twox_hash::XxHash32;

use super::output::reserve;
use super::{CompressError, DecompressError, HeaderChecksum};

const MAGIC: u32 = 0x184d_2204;
const SKIPPABLE: std::ops::RangeInclusive<u32> = 0x184d_2a50..=0x184d_2a5f;

/// How far back a block that is linked to the ones before it may reach.
const WINDOW_BYTES: usize = 64 * 1024;

/// The best that a block can do: each further byte of a length adds 255 to it.
const MAX_RATIO: usize = 255;

/// The ratio that a block is given room for at first.
const USUAL_RATIO: usize = 12;

/// The most memory that a thread keeps for decoding, as much as the blocks of most producers need.
const KEPT_SCRATCH_BYTES: usize = 256 * 1024;

/// The ratio that the output gets room for at first.
const FIRST_RATIO: usize = 4;

pub(super) fn decompress(bytes: &[u8], cap: usize, checksum: HeaderChecksum) -> Result<Vec<u8>, DecompressError> {
    let mut input = Input { rest: bytes };
    let mut out = Vec::new();
    reserve(&mut out, bytes.len().saturating_mul(FIRST_RATIO).min(cap), cap);
    while !input.rest.is_empty() {
        match input.u32()? {
            MAGIC => read_frame(&mut input, &mut out, cap, checksum)?,
            magic if SKIPPABLE.contains(&magic) => {
                let length = input.u32()?;
                input.take(length)?;
            }
            magic => return Err(corrupt(format!("a frame cannot begin with {magic:#010x}"))),
        }
    }
    Ok(out)
}

pub(super) fn compress(bytes: &[u8]) -> Result<Vec<u8>, CompressError> {
    // Independent blocks of 64 KiB are what the Java client writes, and it reads no linked ones.
    let info = FrameInfo::new().block_size(BlockSize::Max64KB).block_mode(BlockMode::Independent);
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::with_capacity(bytes.len() / 2));
    encoder.write_all(bytes).map_err(|error| CompressError { codec: Lz4, reason: error.to_string() })?;
    encoder.finish().map_err(|error| CompressError { codec: Lz4, reason: error.to_string() })
}

/// Reads one frame behind its magic number.
fn read_frame(
    input: &mut Input<'_>,
    out: &mut Vec<u8>,
    cap: usize,
    checksum: HeaderChecksum,
) -> Result<(), DecompressError> {
    let frame = read_descriptor(input, checksum)?;
    let start = out.len();
    let stated = frame.content_bytes.map(|stated| usize::try_from(stated).unwrap_or(usize::MAX));
    if stated.is_some_and(|stated| stated > cap.saturating_sub(start)) {
        return Err(DecompressError::TooLarge { codec: Lz4, cap });
    }
    loop {
        let field = input.u32()?;
        if field == 0 {
            break;
        }
        let block = input.take(field & 0x7fff_ffff)?;
        if block.len() > frame.block_bytes {
            return Err(corrupt(format!("a block of {} bytes in a frame of {}", block.len(), frame.block_bytes)));
        }
        if frame.block_checksums && input.u32()? != XxHash32::oneshot(0, block) {
            return Err(corrupt("a block has the wrong checksum".to_owned()));
        }
        if field & 0x8000_0000 != 0 {
            if block.len() > cap.saturating_sub(out.len()) {
                return Err(DecompressError::TooLarge { codec: Lz4, cap });
            }
            reserve(out, block.len(), cap);
            out.extend_from_slice(block);
        } else {
            decode_block(block, &frame, start, out, cap)?;
        }
    }
    let content = out.get(start..).unwrap_or_default();
    if stated.is_some_and(|stated| stated != content.len()) {
        return Err(corrupt(format!("a frame holds {} bytes, not as many as it states", content.len())));
    }
    if frame.content_checksum && input.u32()? != XxHash32::oneshot(0, content) {
        return Err(corrupt("a frame has the wrong checksum".to_owned()));
    }
    Ok(())
}

/// Appends what a compressed block holds. `start` is where its frame begins in `out`.
fn decode_block(
    block: &[u8],
    frame: &Descriptor,
    start: usize,
    out: &mut Vec<u8>,
    cap: usize,
) -> Result<(), DecompressError> {
    let room = cap.saturating_sub(out.len());
    // A block does not say how much it holds. It gets room for a usual ratio, and only if that is not enough for all that its
    // frame allows.
    let most = frame.block_bytes.min(block.len().saturating_mul(MAX_RATIO));
    let usual = block.len().saturating_mul(USUAL_RATIO);
    for size in [usual.min(most).min(room), most.min(room)] {
        let decoded = with_scratch(size, |target| {
            let result = if frame.linked {
                let window = start.max(out.len().saturating_sub(WINDOW_BYTES));
                decompress_into_with_dict(block, target, out.get(window..).unwrap_or_default())
            } else {
                decompress_into(block, target)
            };
            result.map(|written| {
                let decoded = target.get(..written).unwrap_or_default();
                reserve(out, decoded.len(), cap);
                out.extend_from_slice(decoded);
            })
        });
        match decoded {
            Ok(()) => return Ok(()),
            Err(block::DecompressError::OutputTooSmall { .. }) => {}
            Err(error) => return Err(corrupt(error.to_string())),
        }
    }
    if room < most {
        return Err(DecompressError::TooLarge { codec: Lz4, cap });
    }
    Err(corrupt(format!("a block holds more than the {} bytes of its frame's blocks", frame.block_bytes)))
}

/// Runs `decode` over memory of `size` bytes with anything in it. The library fills memory that somebody has filled before; to
/// do that anew for each block costs as much as decoding it.
fn with_scratch<T>(size: usize, decode: impl FnOnce(&mut [u8]) -> T) -> T {
    thread_local! {
        static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    if size > KEPT_SCRATCH_BYTES {
        return decode(&mut vec![0; size]);
    }
    SCRATCH.with_borrow_mut(|scratch| {
        if scratch.len() < size {
            scratch.resize(size, 0);
        }
        decode(scratch.get_mut(..size).unwrap_or_default())
    })
}

/// What the head of a frame says.
struct Descriptor {
    linked: bool,
    block_checksums: bool,
    content_checksum: bool,
    content_bytes: Option<u64>,
    /// The most that a block holds.
    block_bytes: usize,
}

fn read_descriptor(input: &mut Input<'_>, checksum: HeaderChecksum) -> Result<Descriptor, DecompressError> {
    let from_here = input.rest;
    let [flags, sizes] = *input.array()?;
    if flags & 0xc0 != 0x40 {
        return Err(corrupt(format!("frame version {} is not known", flags >> 6)));
    }
    if flags & 0x02 != 0 || sizes & 0x8f != 0 {
        return Err(corrupt("a reserved bit of the frame header is set".to_owned()));
    }
    if flags & 0x01 != 0 {
        return Err(corrupt("a frame needs a dictionary".to_owned()));
    }
    let block_bytes = match sizes >> 4 {
        size @ 4..=7 => 1 << (8 + 2 * u32::from(size)),
        size => return Err(corrupt(format!("block size {size} is not defined"))),
    };
    let content_bytes = if flags & 0x08 == 0 { None } else { Some(u64::from_le_bytes(*input.array()?)) };
    let hashed = from_here.get(..from_here.len() - input.rest.len()).unwrap_or_default();
    let computed = header_checksum(hashed);
    let [stated] = *input.array()?;
    if stated != computed {
        let with_magic = [&MAGIC.to_le_bytes(), hashed].concat();
        let includes_magic = stated == header_checksum(&with_magic);
        if !includes_magic || checksum == HeaderChecksum::Right {
            return Err(DecompressError::Lz4HeaderChecksum { stated, computed, includes_magic });
        }
    }
    Ok(Descriptor {
        linked: flags & 0x20 == 0,
        block_checksums: flags & 0x10 != 0,
        content_checksum: flags & 0x04 != 0,
        content_bytes,
        block_bytes,
    })
}

/// The second byte of the descriptor's hash.
fn header_checksum(descriptor: &[u8]) -> u8 {
    let [_, second, ..] = XxHash32::oneshot(0, descriptor).to_le_bytes();
    second
}

fn corrupt(reason: String) -> DecompressError {
    DecompressError::Corrupt { codec: Lz4, reason }
}

struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    const CUT: DecompressError = DecompressError::Truncated { codec: Lz4 };

    fn take(&mut self, length: u32) -> Result<&'a [u8], DecompressError> {
        let length = usize::try_from(length).map_err(|_| Self::CUT)?;
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Self::CUT)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], DecompressError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Self::CUT)?;
        self.rest = rest;
        Ok(taken)
    }

    fn u32(&mut self) -> Result<u32, DecompressError> {
        self.array().map(|bytes| u32::from_le_bytes(*bytes))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decompress(bytes: &[u8], cap: usize) -> Result<Vec<u8>, DecompressError> {
        super::decompress(bytes, cap, HeaderChecksum::Right)
    }

    fn packed(info: FrameInfo, input: &[u8]) -> Vec<u8> {
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(input).unwrap();
        encoder.finish().unwrap()
    }

    fn words(bytes: usize) -> Vec<u8> {
        (0_u64..).flat_map(|i| format!("{} ", i * i % 1009).into_bytes()).take(bytes).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_kind_of_frame_is_read(
            size in 0_usize..400_000,
            linked: bool,
            block_checksums: bool,
            content_checksum: bool,
            stated: bool,
            block_size in prop_oneof![Just(BlockSize::Max64KB), Just(BlockSize::Max256KB), Just(BlockSize::Max4MB)],
        ) {
            let input = words(size);
            let info = FrameInfo::new()
                .block_mode(if linked { BlockMode::Linked } else { BlockMode::Independent })
                .block_checksums(block_checksums)
                .content_checksum(content_checksum)
                .content_size(stated.then_some(size as u64))
                .block_size(block_size);
            let mut bytes = packed(info, &input);
            prop_assert_eq!(&decompress(&bytes, size).unwrap(), &input);
            // A second frame must not see the first one's window.
            bytes.extend_from_within(..);
            prop_assert_eq!(decompress(&bytes, 2 * size).unwrap(), [&input[..], &input].concat());
        }
    }

    #[test]
    fn a_frame_without_its_end_mark_is_cut_off() {
        let bytes = compress(b"hello").unwrap();
        let cut = &bytes[..bytes.len() - 4];
        assert_eq!(decompress(cut, 5), Err(DecompressError::Truncated { codec: Lz4 }));
    }

    #[test]
    fn wrong_checksums_are_errors() {
        let info = FrameInfo::new().block_checksums(true).content_checksum(true);
        let good = packed(info, b"hello");
        for at in [good.len() - 1, good.len() - 9] {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(matches!(decompress(&bad, 5), Err(DecompressError::Corrupt { .. })), "byte {at}");
        }
    }

    #[test]
    fn skippable_frames_are_skipped() {
        let mut bytes = vec![0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
        bytes.extend(compress(b"hello").unwrap());
        assert_eq!(decompress(&bytes, 5).unwrap(), b"hello");
    }

    #[test]
    fn a_stated_size_beyond_the_cap_or_beside_the_truth_is_an_error() {
        let huge = packed(FrameInfo::new(), b"hello");
        let mut claim = vec![0x04, 0x22, 0x4d, 0x18, 0x68, 0x40];
        claim.extend(u64::MAX.to_le_bytes());
        claim.push(header_checksum(&claim[4..]));
        claim.extend(&huge[7..]);
        assert_eq!(decompress(&claim, 5), Err(DecompressError::TooLarge { codec: Lz4, cap: 5 }));
        claim[6..14].copy_from_slice(&4_u64.to_le_bytes());
        claim[14] = header_checksum(&claim[4..14]);
        assert!(matches!(decompress(&claim, 5), Err(DecompressError::Corrupt { .. })));
    }
}

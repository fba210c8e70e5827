//! gzip (RFC 1952), one or several members.

use std::io::{ErrorKind, Read, Write};

use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;
use tidegate_model::Compression::Gzip;

use super::output::reserve;
use super::{CompressError, DecompressError};

/// How much the output grows at a time at least, beyond doubling.
const READ_BYTES: usize = 16 * 1024;

pub(super) fn decompress(bytes: &[u8], cap: usize) -> Result<Vec<u8>, DecompressError> {
    let mut decoder = MultiGzDecoder::new(bytes);
    // The output is `out[..filled]`; what follows is room that was cleared once. A read ends with its member, so clearing
    // all the room for each would let a thousand small members behind a large one cost a thousand times its size.
    let mut out = Vec::new();
    let mut filled = 0;
    loop {
        if filled == out.len() {
            // With the output at its cap, one more byte is too many; only the end may follow.
            if filled == cap {
                return match decoder.read(&mut [0]).map_err(error)? {
                    0 => Ok(out),
                    _ => Err(DecompressError::TooLarge { codec: Gzip, cap }),
                };
            }
            let room = READ_BYTES.max(filled).min(cap - filled);
            reserve(&mut out, room, cap);
            out.resize(filled + room, 0);
        }
        let read = decoder.read(&mut out[filled..]).map_err(error)?;
        if read == 0 {
            out.truncate(filled);
            return Ok(out);
        }
        filled += read;
    }
}

pub(super) fn compress(bytes: &[u8]) -> Result<Vec<u8>, CompressError> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 2), flate2::Compression::default());
    let result = encoder.write_all(bytes).and_then(|()| encoder.finish());
    result.map_err(|error| CompressError { codec: Gzip, reason: error.to_string() })
}

fn error(error: std::io::Error) -> DecompressError {
    match error.kind() {
        ErrorKind::UnexpectedEof => DecompressError::Truncated { codec: Gzip },
        _ => DecompressError::Corrupt { codec: Gzip, reason: error.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_with_name_comment_and_extra_field_is_read() {
        let packed = flate2::GzBuilder::new().filename("f").comment("c").extra(vec![1, 2, 3]);
        let mut packed = packed.write(Vec::new(), flate2::Compression::best());
        packed.write_all(b"hello").unwrap();
        assert_eq!(decompress(&packed.finish().unwrap(), 5).unwrap(), b"hello");
    }

    #[test]
    fn many_small_members_behind_a_large_one_are_one_output() {
        let large = vec![7; 1 << 20];
        let mut packed = compress(&large).unwrap();
        packed.extend(compress(b"h").unwrap().repeat(2000));
        let out = decompress(&packed, 2 << 20).unwrap();
        assert_eq!(out, [&large[..], &[b'h'; 2000]].concat());
    }

    #[test]
    fn a_wrong_checksum_is_an_error() {
        let mut packed = compress(b"hello").unwrap();
        let at = packed.len() - 6;
        packed[at] ^= 1;
        assert!(matches!(decompress(&packed, 5), Err(DecompressError::Corrupt { .. })));
    }
}

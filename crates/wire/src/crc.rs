//! CRC-32C (Castagnoli, RFC 3720), which record batches carry.

use crc_fast::CrcAlgorithm::Crc32Iscsi;

/// The CRC-32C of `bytes`.
///
/// It is as fast as memory can be read (carry-less multiplication over wide registers, where the processor has them): at
/// what a consumer takes per second, one CRC instruction after another was a fifth of its processor time.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    low(crc_fast::checksum(Crc32Iscsi, bytes))
}

/// The CRC-32C of bytes whose CRC-32C is `crc` with `more` behind them.
#[must_use]
pub fn crc32c_append(crc: u32, more: &[u8]) -> u32 {
    low(crc_fast::checksum_combine(Crc32Iscsi, crc.into(), crc32c(more).into(), more.len() as u64))
}

/// The crate has one type for all widths.
const fn low(crc: u64) -> u32 {
    (crc & 0xffff_ffff) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_that_of_the_standard() {
        // RFC 3720, B.4, and the check value of the catalogue.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(b""), 0);
    }

    #[test]
    fn it_is_that_of_another_implementation_at_every_length_and_place() {
        let bytes: Vec<u8> = (0..5_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for end in 0..bytes.len() {
            let part = &bytes[end / 3..end];
            assert_eq!(crc32c(part), ::crc32c::crc32c(part), "{end}");
        }
    }

    #[test]
    fn parts_have_the_crc_of_the_whole() {
        let bytes: Vec<u8> = (0..1_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        for cut in 0..=bytes.len() {
            let (first, rest) = bytes.split_at(cut);
            assert_eq!(crc32c_append(crc32c(first), rest), crc32c(&bytes), "{cut}");
        }
        assert_eq!(crc32c_append(0, &bytes), crc32c(&bytes));
    }
}

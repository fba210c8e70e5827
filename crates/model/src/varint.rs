//! Zigzag varints as Kafka's record format v2 uses them.

/// Why a varint could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VarintError {
    /// The bytes end inside the number.
    #[error("the bytes end inside a varint")]
    Truncated,
    /// The number has more bits than its type.
    #[error("a varint is too long for its type")]
    Overlong,
}

/// Reads one zigzag varint of 64 bits from the front of `bytes` and moves past it.
///
/// # Errors
/// [`VarintError`] when the bytes end early or the number is longer than 10 bytes; `bytes` is then left as it was.
#[inline]
pub fn read_varlong(bytes: &mut &[u8]) -> Result<i64, VarintError> {
    // Nearly all varints of a record are one byte long.
    if let [first, rest @ ..] = *bytes
        && *first < 0x80
    {
        *bytes = rest;
        return Ok(zigzag(u64::from(*first)));
    }
    let mut value = 0_u64;
    for (at, byte) in bytes.iter().enumerate() {
        if at == 9 && *byte > 1 {
            return Err(VarintError::Overlong);
        }
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            *bytes = &bytes[at + 1..];
            return Ok(zigzag(value));
        }
    }
    Err(VarintError::Truncated)
}

/// Reads one zigzag varint of 32 bits from the front of `bytes` and moves past it.
///
/// # Errors
/// As [`read_varlong`], and [`VarintError::Overlong`] when the value does not fit 32 bits.
#[inline]
pub fn read_varint(bytes: &mut &[u8]) -> Result<i32, VarintError> {
    let before = *bytes;
    let value = read_varlong(bytes)?;
    i32::try_from(value).map_err(|_| {
        *bytes = before;
        VarintError::Overlong
    })
}

/// Appends `value` as a zigzag varint.
pub fn write_varlong(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while rest >= 0x80 {
        out.push(rest.to_le_bytes()[0] | 0x80);
        rest >>= 7;
    }
    out.push(rest.to_le_bytes()[0]);
}

/// Appends `value` as a zigzag varint; the encoding of a 32-bit value is that of the same value in 64 bits.
pub fn write_varint(out: &mut Vec<u8>, value: i32) {
    write_varlong(out, i64::from(value));
}

/// How many bytes `value` takes as a zigzag varint.
pub fn varint_len(value: i64) -> usize {
    let bits = 64 - (((value << 1) ^ (value >> 63)) | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

#[inline]
fn zigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_reads_back(value: i64) {
            let mut bytes = Vec::new();
            write_varlong(&mut bytes, value);
            prop_assert_eq!(bytes.len(), varint_len(value));
            let mut rest = bytes.as_slice();
            prop_assert_eq!(read_varlong(&mut rest), Ok(value));
            prop_assert!(rest.is_empty());
        }
    }

    #[test]
    fn a_cut_number_is_truncated_and_the_input_stays() {
        let mut bytes: &[u8] = &[0x80, 0x80];
        assert_eq!(read_varlong(&mut bytes), Err(VarintError::Truncated));
        assert_eq!(bytes.len(), 2);
    }

    #[test]
    fn more_bits_than_the_type_holds_are_refused() {
        let mut eleven: &[u8] = &[0xff; 11];
        assert_eq!(read_varlong(&mut eleven), Err(VarintError::Overlong));
        let mut wide = Vec::new();
        write_varlong(&mut wide, i64::from(i32::MAX) + 1);
        assert_eq!(read_varint(&mut wide.as_slice()), Err(VarintError::Overlong));
    }
}

//! Protobuf fields written by hand, and how many bytes they take. Every field number here is below 16, so every key is one
//! byte.

/// The bytes of a field's key.
pub(super) const KEY: usize = 1;

/// A field's wire type.
#[derive(Clone, Copy)]
enum Wire {
    Varint = 0,
    Len = 2,
}

const fn key(number: u8, wire: Wire) -> u8 {
    (number << 3) | wire as u8
}

/// How many bytes `value` takes as a varint.
#[inline]
pub(super) const fn varint_len(value: u64) -> usize {
    // 1 + floor(log2(value) / 7), without a division.
    let log2 = (value | 1).ilog2() as usize;
    (log2 * 9 + 73) / 64
}

/// Appends a varint.
#[inline]
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// The zigzag form of a `sint64`.
#[inline]
pub(super) const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

/// The size of an `int64`, `int32` or enum field; a zero is left out.
#[inline]
pub(super) const fn int_len(value: i64) -> usize {
    if value == 0 { 0 } else { KEY + varint_len(value.cast_unsigned()) }
}

/// Appends an `int64`, `int32` or enum field.
#[inline]
pub(super) fn put_int(out: &mut Vec<u8>, number: u8, value: i64) {
    if value != 0 {
        out.push(key(number, Wire::Varint));
        put_varint(out, value.cast_unsigned());
    }
}

/// The size of a field of `len` bytes: a message, `bytes`, `string` or packed field that is there.
#[inline]
pub(super) const fn len_field(len: usize) -> usize {
    KEY + varint_len(len as u64) + len
}

/// The size of such a field that is left out when it is empty.
#[inline]
pub(super) const fn implicit_len(len: usize) -> usize {
    if len == 0 { 0 } else { len_field(len) }
}

/// The size of an `optional bytes` field.
#[inline]
pub(super) const fn optional_len(bytes: Option<&[u8]>) -> usize {
    match bytes {
        Some(bytes) => len_field(bytes.len()),
        None => 0,
    }
}

/// Appends the key and length of a field of `len` bytes; the bytes follow.
#[inline]
pub(super) fn put_len(out: &mut Vec<u8>, number: u8, len: usize) {
    out.push(key(number, Wire::Len));
    put_varint(out, len as u64);
}

/// Appends a field of bytes.
#[inline]
pub(super) fn put_bytes(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    put_len(out, number, bytes.len());
    out.extend_from_slice(bytes);
}

/// Appends a field of bytes that is left out when it is empty.
#[inline]
pub(super) fn put_implicit(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    if !bytes.is_empty() {
        put_bytes(out, number, bytes);
    }
}

/// Appends an `optional bytes` field.
#[inline]
pub(super) fn put_optional(out: &mut Vec<u8>, number: u8, bytes: Option<&[u8]>) {
    if let Some(bytes) = bytes {
        put_bytes(out, number, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_varint_is_right_on_both_sides_of_every_step() {
        for bits in 0..64 {
            for value in [(1_u64 << bits) - 1, 1 << bits, (1 << bits) + 1, u64::MAX] {
                let mut out = Vec::new();
                put_varint(&mut out, value);
                assert_eq!(out.len(), varint_len(value), "{value}");
            }
        }
    }
}

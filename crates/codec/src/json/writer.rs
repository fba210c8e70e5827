//! JSON text, appended to a buffer.

use std::fmt;
use std::io::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// Appends `text` as a JSON string, with its quotes.
///
/// Quotes, backslashes and control characters are escaped; everything else, U+2028 too, stands as it is.
pub fn write_json_string(text: &str, out: &mut Vec<u8>) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut run = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let escape: &[u8] = match byte {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            0x08 => b"\\b",
            0x0c => b"\\f",
            0..=0x1f => b"",
            _ => continue,
        };
        out.extend_from_slice(&bytes[run..at]);
        if escape.is_empty() {
            const DIGITS: &[u8; 16] = b"0123456789abcdef";
            let (high, low) = (DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]);
            out.extend_from_slice(&[b'\\', b'u', b'0', b'0', high, low]);
        } else {
            out.extend_from_slice(escape);
        }
        run = at + 1;
    }
    out.extend_from_slice(&bytes[run..]);
    out.push(b'"');
}

/// Appends `bytes` as a JSON string of standard base64 with padding, with its quotes.
pub fn write_json_base64(bytes: &[u8], out: &mut Vec<u8>) {
    // Encoded in pieces of a multiple of three bytes: no second buffer as large as the value.
    const PIECE: usize = 3 * 1024;
    out.reserve(bytes.len() / 3 * 4 + 6);
    out.push(b'"');
    let mut text = [0; PIECE / 3 * 4];
    for piece in bytes.chunks(PIECE) {
        // The buffer holds the longest piece, so the encoder always has room.
        if let Ok(length) = BASE64_STANDARD.encode_slice(piece, &mut text) {
            out.extend_from_slice(&text[..length]);
        }
    }
    out.push(b'"');
}

/// Appends what `value` displays.
pub(crate) fn write_display(value: impl fmt::Display, out: &mut Vec<u8>) {
    // Writing to a vector does not fail.
    let _ = write!(out, "{value}");
}

/// Appends a finite double: the shortest text that reads back to the same value, integers without a fraction.
pub(crate) fn write_f64(value: f64, out: &mut Vec<u8>) {
    // Below 2^53 the plain digits of an integer are exact.
    if value.trunc() == value && value.abs() < 9_007_199_254_740_992.0 && (value != 0.0 || value.is_sign_positive()) {
        write_display(value as i64, out);
    } else {
        // The debug form, unlike the display form, has an exponent where that is shorter.
        write_display(format_args!("{value:?}"), out);
    }
}

/// Appends a finite float: as [`write_f64`].
pub(crate) fn write_f32(value: f32, out: &mut Vec<u8>) {
    // Below 2^24 the plain digits of an integer are exact and the shortest.
    if value.trunc() == value && value.abs() < 16_777_216.0 && (value != 0.0 || value.is_sign_positive()) {
        write_display(value as i32, out);
    } else {
        write_display(format_args!("{value:?}"), out);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_are_short_and_keep_their_sign() {
        let cases = [(1.0, "1"), (-0.0, "-0.0"), (0.1, "0.1"), (1e300, "1e300"), (5e-324, "5e-324"), (-2.5, "-2.5")];
        for (value, text) in cases {
            assert_eq!(written(|out| write_f64(value, out)), text);
        }
        assert_eq!(written(|out| write_f32(0.1, out)), "0.1");
        assert_eq!(written(|out| write_f32(f32::MAX, out)), "3.4028235e38");
    }

    proptest! {
        #[test]
        fn a_written_string_reads_back(text: String) {
            let json = written(|out| write_json_string(&text, out));
            prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }

        #[test]
        fn control_characters_read_back(text in "[\u{0}-\u{1f}\"\\\\x\u{7f}\u{2028}]{0,40}") {
            let json = written(|out| write_json_string(&text, out));
            prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }

        #[test]
        fn written_base64_reads_back(bytes in prop::collection::vec(any::<u8>(), 0..10_000)) {
            let json = written(|out| write_json_base64(&bytes, out));
            prop_assert_eq!(BASE64_STANDARD.decode(json.trim_matches('"')).unwrap(), bytes);
        }

        #[test]
        fn finite_floats_read_back_to_the_bit(double: f64, float: f32) {
            prop_assume!(double.is_finite() && float.is_finite());
            let text = written(|out| write_f64(double, out));
            prop_assert_eq!(text.parse::<f64>().unwrap().to_bits(), double.to_bits());
            let text = written(|out| write_f32(float, out));
            prop_assert_eq!(text.parse::<f32>().unwrap().to_bits(), float.to_bits());
        }
    }
}

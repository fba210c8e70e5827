//! JSON text written by hand: numbers, strings, base64 and times go straight into the output, without a value in between.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

const MS_PER_DAY: i64 = 86_400_000;

/// 9999-12-30T21:59:59.999Z: the last millisecond that RFC 3339, which has four digits for the year, can write with any
/// offset that libraries know (jiff's bound).
const LAST_RFC3339_MS: i64 = 253_402_207_199_999;

/// Appends a decimal number.
pub(crate) fn write_i64(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    write_u64(out, value.unsigned_abs());
}

/// Appends a decimal number.
pub(crate) fn write_u64(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = digit(value % 10);
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends `text` as a JSON string. U+2028 and the like stay as they are: JSON allows them, and a line ends at `\n` only.
pub(crate) fn write_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut plain_from = 0;
    for (at, byte) in bytes.iter().copied().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&bytes[plain_from..at]);
        plain_from = at + 1;
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => {
                let hex = |nibble: u8| if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 };
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&[hex(byte >> 4), hex(byte & 0x0f)]);
            }
        }
    }
    out.extend_from_slice(&bytes[plain_from..]);
    out.push(b'"');
}

/// Appends `bytes` as a JSON string of standard base64 with padding.
pub(crate) fn write_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    // Whole groups of three at a time, so that the pieces join without padding and need one small buffer.
    const PIECE: usize = 3 * 256;
    let mut text = [0_u8; PIECE / 3 * 4];
    out.push(b'"');
    for piece in bytes.chunks(PIECE) {
        // Cannot fail: the buffer holds the encoding of a whole piece.
        if let Ok(len) = STANDARD.encode_slice(piece, &mut text) {
            out.extend_from_slice(&text[..len]);
        }
    }
    out.push(b'"');
}

/// Appends a time as a JSON string: RFC 3339 in UTC with milliseconds; from the end of the year 9999 on `"253402300800000ms"`; `null`
/// before 1970 (a record without a timestamp carries -1, and Kafka knows no other negative one).
pub(crate) fn write_time(out: &mut Vec<u8>, ms: i64) {
    if ms < 0 {
        out.extend_from_slice(b"null");
        return;
    }
    out.push(b'"');
    if ms > LAST_RFC3339_MS {
        write_i64(out, ms);
        out.extend_from_slice(b"ms");
    } else {
        out.extend_from_slice(&rfc3339(ms));
    }
    out.push(b'"');
}

/// A time as the REST bodies write it; `None` where `write_time` writes `null`.
pub fn time_text(ms: i64) -> Option<String> {
    match ms {
        ..0 => None,
        0..=LAST_RFC3339_MS => String::from_utf8(rfc3339(ms).to_vec()).ok(),
        _ => Some(format!("{ms}ms")),
    }
}

/// `ms` must lie in `0..=LAST_RFC3339_MS`.
fn rfc3339(ms: i64) -> [u8; 24] {
    let (year, month, day) = civil_date(ms / MS_PER_DAY);
    let of_day = (ms % MS_PER_DAY).unsigned_abs();
    let mut text = *b"0000-00-00T00:00:00.000Z";
    put_digits(&mut text[0..4], year);
    put_digits(&mut text[5..7], month);
    put_digits(&mut text[8..10], day);
    put_digits(&mut text[11..13], of_day / 3_600_000);
    put_digits(&mut text[14..16], of_day / 60_000 % 60);
    put_digits(&mut text[17..19], of_day / 1_000 % 60);
    put_digits(&mut text[20..23], of_day % 1_000);
    text
}

fn put_digits(field: &mut [u8], mut value: u64) {
    for place in field.iter_mut().rev() {
        *place = digit(value % 10);
        value /= 10;
    }
}

fn digit(below_ten: u64) -> u8 {
    b'0' + below_ten.to_le_bytes()[0]
}

/// Year, month and day of a day counted from 1970-01-01, which must not be negative.
///
/// The years are counted from 1 March, so that the leap day is the last of its year (Howard Hinnant, "chrono-Compatible
/// Low-Level Date Algorithms").
fn civil_date(days: i64) -> (u64, u64, u64) {
    let days = days.unsigned_abs() + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let months_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * months_from_march + 2) / 5 + 1;
    let month = if months_from_march < 10 { months_from_march + 3 } else { months_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_read_back() {
        for value in [0, 7, 10, -1, i64::MIN, i64::MAX] {
            assert_eq!(written(|out| write_i64(out, value)), value.to_string());
        }
        assert_eq!(written(|out| write_u64(out, u64::MAX)), u64::MAX.to_string());
    }

    #[test]
    fn a_string_reads_back_whatever_it_holds() {
        let every_char_below_0x300: String = (0..0x300).filter_map(char::from_u32).collect();
        for text in ["", "plain", "\"\\\n\r\t\u{0}\u{1f}\u{7f}", "\u{2028}\u{2029}\u{85}😁", &every_char_below_0x300]
        {
            let json = written(|out| write_string(out, text));
            assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
            assert!(!json.bytes().any(|byte| byte < 0x20), "{json:?}");
        }
    }

    #[test]
    fn base64_of_any_length_is_one_encoding() {
        for len in [0, 1, 2, 3, 767, 768, 769, 5_000] {
            let bytes: Vec<u8> = (0..len).map(|at: usize| at.to_le_bytes()[0]).collect();
            assert_eq!(written(|out| write_base64(out, &bytes)), format!("\"{}\"", STANDARD.encode(&bytes)));
        }
    }

    #[test]
    fn every_day_until_the_year_9999_is_written_as_jiff_writes_it() {
        for day in 0..=LAST_RFC3339_MS / MS_PER_DAY {
            let ms = (day * MS_PER_DAY + (day * 7_919) % MS_PER_DAY).min(LAST_RFC3339_MS);
            let expected = jiff::Timestamp::from_millisecond(ms).unwrap();
            assert_eq!(time_text(ms).unwrap(), format!("{expected:.3}"));
        }
    }

    #[test]
    fn a_time_that_rfc3339_cannot_write_is_null_or_milliseconds() {
        assert_eq!(written(|out| write_time(out, -1)), "null");
        assert_eq!(written(|out| write_time(out, i64::MIN)), "null");
        assert_eq!(written(|out| write_time(out, 0)), "\"1970-01-01T00:00:00.000Z\"");
        assert_eq!(written(|out| write_time(out, LAST_RFC3339_MS)), "\"9999-12-30T21:59:59.999Z\"");
        assert_eq!(written(|out| write_time(out, LAST_RFC3339_MS + 1)), "\"253402207200000ms\"");
        assert_eq!(written(|out| write_time(out, i64::MAX)), "\"9223372036854775807ms\"");
        assert_eq!(time_text(i64::MAX).unwrap(), "9223372036854775807ms");
    }
}

//! The texts of Avro's logical types. Each function appends its text without quotes; false: there is no text.

use crate::json::write_display;
use crate::well_known::{parse_timestamp, write_timestamp};

const DAY_SECONDS: i64 = 86_400;

/// Days since 1970: `2013-02-01`.
pub(super) fn write_date(days: i32, out: &mut Vec<u8>) -> bool {
    let before = out.len();
    let is_in_range = write_timestamp(i64::from(days) * DAY_SECONDS, 0, out);
    // What stands there is 2013-02-01T00:00:00Z.
    out.truncate(if is_in_range { before + 10 } else { before });
    is_in_range
}

/// Units since midnight: `10:15:00.250`.
pub(super) fn write_time(units: i64, per_second: i64, out: &mut Vec<u8>) -> bool {
    if !(0..DAY_SECONDS * per_second).contains(&units) {
        return false;
    }
    let before = out.len();
    write_instant(units, per_second, out);
    // What stands there is 1970-01-01T10:15:00.250Z.
    out.drain(before..before + 11);
    out.pop();
    true
}

/// Units since 1970: `2013-02-01T10:15:00.250Z`, and without the `Z` when it is a local time.
pub(super) fn write_time_since_epoch(units: i64, per_second: i64, is_local: bool, out: &mut Vec<u8>) -> bool {
    let is_in_range = write_instant(units, per_second, out);
    if is_in_range && is_local {
        out.pop();
    }
    is_in_range
}

fn write_instant(units: i64, per_second: i64, out: &mut Vec<u8>) -> bool {
    let nanos = units.rem_euclid(per_second) * (1_000_000_000 / per_second);
    // A remainder of a second is below 10^9.
    write_timestamp(units.div_euclid(per_second), nanos as i32, out)
}

/// A big-endian number in two's complement, `scale` digits of it behind the point.
pub(super) fn write_decimal(bytes: &[u8], scale: u32, out: &mut Vec<u8>) {
    let is_negative = bytes.first().is_some_and(|byte| byte & 0x80 != 0);
    if let Some(at) = 16_usize.checked_sub(bytes.len()) {
        // What is usual needs no memory of its own.
        let mut filled = [if is_negative { 0xff } else { 0 }; 16];
        filled[at..].copy_from_slice(bytes);
        let number = i128::from_be_bytes(filled).unsigned_abs();
        let (sign, scale) = (if is_negative { "-" } else { "" }, scale as usize);
        write_display(format_args!("{sign}{number:0width$}", width = scale + 1), out);
        if scale > 0 {
            out.insert(out.len() - scale, b'.');
        }
        return;
    }
    // The absolute value, in limbs of 32 bits, the most significant first.
    let mut limbs: Vec<u32> = Vec::with_capacity(bytes.len() / 4 + 2);
    let fill = if is_negative { 0xff } else { 0 };
    let padding = (4 - bytes.len() % 4) % 4;
    let mut limb = [0_u8; 4];
    for (at, byte) in std::iter::repeat_n(&fill, padding).chain(bytes).enumerate() {
        limb[at % 4] = *byte;
        if at % 4 == 3 {
            limbs.push(u32::from_be_bytes(limb));
        }
    }
    if is_negative {
        negate(&mut limbs);
    }
    let digits = digits(limbs);
    let scale = scale as usize;
    if is_negative {
        out.push(b'-');
    }
    let whole = digits.len().saturating_sub(scale);
    if whole == 0 {
        out.push(b'0');
    }
    out.extend_from_slice(&digits[..whole]);
    if scale > 0 {
        out.push(b'.');
        out.extend(std::iter::repeat_n(b'0', scale - (digits.len() - whole)));
        out.extend_from_slice(&digits[whole..]);
    }
}

fn negate(limbs: &mut [u32]) {
    let mut carry = true;
    for limb in limbs.iter_mut().rev() {
        (*limb, carry) = (!*limb).overflowing_add(u32::from(carry));
    }
}

/// The decimal digits of a number, without leading zeroes; none for zero.
fn digits(mut limbs: Vec<u32>) -> Vec<u8> {
    const GROUP: u64 = 1_000_000_000;
    let mut groups = Vec::new();
    while limbs.iter().any(|limb| *limb != 0) {
        let mut remainder = 0;
        for limb in &mut limbs {
            let value = (remainder << 32) | u64::from(*limb);
            // A remainder is below the divisor, so the quotient fits.
            *limb = (value / GROUP) as u32;
            remainder = value % GROUP;
        }
        groups.push(remainder);
    }
    let mut text = Vec::with_capacity(groups.len() * 9);
    for group in groups.iter().rev() {
        if text.is_empty() {
            write_display(group, &mut text);
        } else {
            write_display(format_args!("{group:09}"), &mut text);
        }
    }
    text
}

/// `89791762-2336-4186-9674-299b90a802e2`.
pub(super) fn write_uuid(bytes: [u8; 16], out: &mut Vec<u8>) {
    out.extend_from_slice(crate::registry::SchemaKey::Guid(bytes).text().as_bytes());
}

/// Months, days and milliseconds, each four bytes, little-endian: `P1M2DT3.004S`.
pub(super) fn write_duration(bytes: [u8; 12], out: &mut Vec<u8>) {
    let part = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let (months, days, millis) = (part(0), part(4), part(8));
    out.push(b'P');
    if months > 0 {
        write_display(format_args!("{months}M"), out);
    }
    if days > 0 {
        write_display(format_args!("{days}D"), out);
    }
    if millis > 0 || (months == 0 && days == 0) {
        write_display(format_args!("T{}", millis / 1_000), out);
        if millis % 1_000 > 0 {
            write_display(format_args!(".{:03}", millis % 1_000), out);
        }
        out.push(b'S');
    }
}

/// The days since 1970 of `2013-02-01`.
pub(super) fn parse_date(text: &str) -> Option<i32> {
    let (seconds, _) = parse_timestamp(&format!("{}T00:00:00Z", exact(text, 10)?))?;
    i32::try_from(seconds / DAY_SECONDS).ok()
}

/// The units since midnight of `10:15:00.250`.
pub(super) fn parse_time(text: &str, per_second: i64) -> Option<i64> {
    parse_instant(&format!("1970-01-01T{text}"), per_second, true)
}

/// The units since 1970 of `2013-02-01T10:15:00.250Z`, or of the same without a zone. `None` also where the text says more
/// than the units can.
pub(super) fn parse_instant(text: &str, per_second: i64, is_local: bool) -> Option<i64> {
    let (seconds, nanos) = if is_local {
        // A zone would make it another time.
        let time = text.split_once('T')?.1;
        if time.contains(['Z', '+', '-']) {
            return None;
        }
        parse_timestamp(&format!("{text}Z"))?
    } else {
        parse_timestamp(text)?
    };
    let unit = 1_000_000_000 / per_second;
    let nanos = i64::from(nanos);
    (nanos % unit == 0).then_some(())?;
    seconds.checked_mul(per_second)?.checked_add(nanos / unit)
}

fn exact(text: &str, length: usize) -> Option<&str> {
    (text.len() == length).then_some(text)
}

/// The number `12.50` without its point, big-endian, in as few bytes as it takes. `None` also where it has more digits
/// behind the point than `scale`, or does not fit `max_bytes`.
pub(super) fn parse_decimal(text: &str, scale: u32, max_bytes: usize) -> Option<Vec<u8>> {
    let (is_negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, behind) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let has_point = unsigned.len() > whole.len();
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let scale = scale as usize;
    if whole.is_empty() || (has_point && behind.is_empty()) || !is_digits(whole) || !is_digits(behind) {
        return None;
    }
    if behind.len() > scale {
        return None;
    }
    // A byte holds more than two digits, so that nothing longer can fit. Zeroes in front make no number longer.
    let zeroes = whole.bytes().chain(behind.bytes()).take_while(|digit| *digit == b'0').count();
    let is_zero = zeroes == whole.len() + behind.len();
    if !is_zero && whole.len() + scale - zeroes > max_bytes * 3 + 3 {
        return None;
    }
    let digits = whole.bytes().chain(behind.bytes()).chain(std::iter::repeat_n(b'0', scale - behind.len()));
    let digits = digits.map(|digit| digit - b'0');
    // So many digits always fit.
    let bytes = if whole.len() + scale <= 38 {
        let number = digits.fold(0_i128, |number, digit| number * 10 + i128::from(digit));
        needed(&(if is_negative { -number } else { number }).to_be_bytes()).to_vec()
    } else {
        let bytes: Vec<u8> = limbs_of(digits, is_negative).iter().flat_map(|limb| limb.to_be_bytes()).collect();
        needed(&bytes).to_vec()
    };
    (bytes.len() <= max_bytes).then_some(bytes)
}

/// The number of these digits in two's complement, in limbs of 32 bits, the most significant first.
fn limbs_of(digits: impl Iterator<Item = u8>, is_negative: bool) -> Vec<u32> {
    let mut limbs: Vec<u32> = vec![0];
    let mut add = |factor: u32, group: u32| {
        let mut carry = u64::from(group);
        for limb in &mut limbs {
            let value = u64::from(*limb) * u64::from(factor) + carry;
            (*limb, carry) = (value as u32, value >> 32);
        }
        if carry > 0 {
            limbs.push(carry as u32);
        }
    };
    // As many digits at a time as a limb holds.
    let (mut factor, mut group) = (1, 0);
    for digit in digits {
        (factor, group) = (factor * 10, group * 10 + u32::from(digit));
        if factor == 1_000_000_000 {
            add(factor, group);
            (factor, group) = (1, 0);
        }
    }
    add(factor, group);
    // One more, for the sign.
    limbs.push(0);
    limbs.reverse();
    if is_negative {
        negate(&mut limbs);
    }
    limbs
}

/// Without the bytes in front that only repeat the sign of the next one.
fn needed(bytes: &[u8]) -> &[u8] {
    let is_spare = |pair: &[u8]| matches!(pair, [0, 0..=0x7f] | [0xff, 0x80..=0xff]);
    &bytes[bytes.windows(2).take_while(|pair| is_spare(pair)).count()..]
}

/// The bytes of `89791762-2336-4186-9674-299b90a802e2`.
pub(super) fn parse_uuid(text: &str) -> Option<Vec<u8>> {
    let groups: Vec<&str> = exact(text, 36)?.split('-').collect();
    if groups.iter().map(|group| group.len()).ne([8, 4, 4, 4, 12]) {
        return None;
    }
    let digits: Option<Vec<u8>> =
        text.chars().filter(|c| *c != '-').map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    Some(digits?.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// The bytes of `P1M2DT3.004S`: months, days and milliseconds, in this order, those that are not zero.
pub(super) fn parse_duration(text: &str) -> Option<Vec<u8>> {
    let text = text.strip_prefix('P')?;
    let (dates, time) = match text.split_once('T') {
        Some((dates, time)) => (dates, Some(time)),
        None => (text, None),
    };
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u32>().ok())?;
    let (months, dates) = match dates.split_once('M') {
        Some((months, rest)) => (number(months)?, rest),
        None => (0, dates),
    };
    let days = match dates {
        "" => 0,
        dates => number(dates.strip_suffix('D')?)?,
    };
    let millis = match time {
        None => 0,
        Some(time) => {
            let time = time.strip_suffix('S')?;
            let (seconds, behind) = time.split_once('.').unwrap_or((time, "0"));
            if behind.is_empty() || behind.len() > 3 {
                return None;
            }
            let behind = number(behind)? * 10_u32.pow(3 - behind.len() as u32);
            number(seconds)?.checked_mul(1_000)?.checked_add(behind)?
        }
    };
    if text.is_empty() {
        return None;
    }
    Some([months, days, millis].into_iter().flat_map(u32::to_le_bytes).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>) -> bool) -> Option<String> {
        let mut out = b"before".to_vec();
        let is_written = write(&mut out);
        let text = String::from_utf8(out).unwrap().strip_prefix("before").unwrap().to_owned();
        assert!(is_written || text.is_empty());
        is_written.then_some(text)
    }

    fn decimal(bytes: &[u8], scale: u32) -> String {
        let mut out = Vec::new();
        write_decimal(bytes, scale, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn dates_and_times_are_texts_and_those_that_do_not_exist_are_none() {
        assert_eq!(written(|out| write_date(15_737, out)).as_deref(), Some("2013-02-01"));
        assert_eq!(written(|out| write_date(-1, out)).as_deref(), Some("1969-12-31"));
        assert_eq!(written(|out| write_date(i32::MAX, out)), None);
        assert_eq!(written(|out| write_time(36_900_250, 1_000, out)).as_deref(), Some("10:15:00.250"));
        assert_eq!(written(|out| write_time(1, 1_000_000, out)).as_deref(), Some("00:00:00.000001"));
        assert_eq!(written(|out| write_time(0, 1_000, out)).as_deref(), Some("00:00:00"));
        for (units, per_second) in [(-1, 1_000), (86_400_000, 1_000), (i64::MAX, 1_000_000)] {
            assert_eq!(written(|out| write_time(units, per_second, out)), None);
        }
    }

    #[test]
    fn timestamps_have_the_digits_they_need() {
        let at = |units, per_second, is_local| written(|out| write_time_since_epoch(units, per_second, is_local, out));
        assert_eq!(at(1_359_713_700_000, 1_000, false).as_deref(), Some("2013-02-01T10:15:00Z"));
        assert_eq!(at(1_359_713_700_250_000, 1_000_000, true).as_deref(), Some("2013-02-01T10:15:00.250"));
        assert_eq!(at(1, 1_000_000_000, false).as_deref(), Some("1970-01-01T00:00:00.000000001Z"));
        assert_eq!(at(-1, 1_000, false).as_deref(), Some("1969-12-31T23:59:59.999Z"));
        assert_eq!(at(i64::MIN, 1_000, false), None);
        assert_eq!(at(i64::MAX, 1_000_000_000, false).as_deref(), Some("2262-04-11T23:47:16.854775807Z"));
    }

    #[test]
    fn decimals_keep_every_digit() {
        for (bytes, scale, text) in [
            (&[0x04, 0xe2][..], 2, "12.50"),
            (&[0xff], 2, "-0.01"),
            (&[0x00], 2, "0.00"),
            (&[], 0, "0"),
            (&[], 3, "0.000"),
            (&[0x7f], 0, "127"),
            (&[0x80], 0, "-128"),
            (&[0x00, 0x80], 1, "12.8"),
            (&[0x0d, 0xe0, 0xb6, 0xb3, 0xa7, 0x64, 0x00, 0x00], 18, "1.000000000000000000"),
        ] {
            assert_eq!(decimal(bytes, scale), text, "{bytes:02x?}");
        }
    }

    #[test]
    fn a_duration_says_what_is_not_zero() {
        let text = |months: u32, days: u32, millis: u32| {
            let bytes = [months.to_le_bytes(), days.to_le_bytes(), millis.to_le_bytes()].concat();
            written(|out| {
                write_duration(bytes.try_into().unwrap(), out);
                true
            })
            .unwrap()
        };
        assert_eq!(text(1, 2, 3_004), "P1M2DT3.004S");
        assert_eq!(text(0, 0, 0), "PT0S");
        assert_eq!(text(u32::MAX, 0, 0), "P4294967295M");
        assert_eq!(text(0, 0, 5_000), "PT5S");
    }

    #[test]
    fn texts_that_are_no_such_thing_are_refused() {
        for text in ["", "2013-2-1", "2013-02-30", "2013-02-01T00:00:00Z", "0000-01-01"] {
            assert_eq!(parse_date(text), None, "{text}");
        }
        for text in ["", "24:00:00", "10:15", "10:15:00Z", "10:15:00.0001"] {
            assert_eq!(parse_time(text, 1_000), None, "{text}");
        }
        assert_eq!(parse_instant("2013-02-01T10:15:00+01:00", 1_000, false), Some(1_359_710_100_000));
        assert_eq!(parse_instant("2013-02-01T10:15:00Z", 1_000, true), None);
        assert_eq!(parse_instant("2013-02-01T10:15:00+01:00", 1_000, true), None);
        assert_eq!(parse_instant("2013-02-01T10:15:00", 1_000, false), None);
        assert_eq!(parse_instant("9999-12-31T00:00:00Z", 1_000_000_000, false), None);
        for text in ["", "-", ".5", "1.", "1.234", "1e2", "+1", " 1", "1_0", "--1"] {
            assert_eq!(parse_decimal(text, 2, 16), None, "{text}");
        }
        assert_eq!(parse_decimal(&"9".repeat(1_000_000), 2, 16), None);
        assert_eq!(parse_decimal("1.28", 2, 1), None);
        assert_eq!(parse_decimal("-1.28", 2, 1), Some(vec![0x80]));
        for text in ["", "P", "PT", "P1", "PT1", "P1D2M", "PT1.0000S", "PT4294967.296S", "P-1D"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
        for text in ["", "89791762-2336-4186-9674-299b90a802e", "89791762-2336-4186-9674-299b90a802eg", &"-".repeat(36)]
        {
            assert_eq!(parse_uuid(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(date: i32, time in 0_i64..86_400_000_000, instant: i64, number: i128, bytes: [u8; 16]) {
            if let Some(text) = written(|out| write_date(date, out)) {
                prop_assert_eq!(parse_date(&text), Some(date));
            }
            let text = written(|out| write_time(time, 1_000_000, out)).unwrap();
            prop_assert_eq!(parse_time(&text, 1_000_000), Some(time));
            for (per_second, is_local) in [(1_000, false), (1_000_000, true), (1_000_000_000, false)] {
                if let Some(text) = written(|out| write_time_since_epoch(instant, per_second, is_local, out)) {
                    prop_assert_eq!(parse_instant(&text, per_second, is_local), Some(instant));
                }
            }
            let back = parse_decimal(&decimal(&number.to_be_bytes(), 5), 5, 16).unwrap();
            prop_assert_eq!(decimal(&back, 0), number.to_string());
            let mut out = Vec::new();
            write_uuid(bytes, &mut out);
            prop_assert_eq!(parse_uuid(std::str::from_utf8(&out).unwrap()), Some(bytes.to_vec()));
            let mut out = Vec::new();
            let twelve: [u8; 12] = bytes[..12].try_into().unwrap();
            write_duration(twelve, &mut out);
            prop_assert_eq!(parse_duration(std::str::from_utf8(&out).unwrap()), Some(twelve.to_vec()));
        }

        #[test]
        fn a_decimal_is_the_same_with_bytes_to_spare(value: i128, scale in 0_u32..60) {
            let short = value.to_be_bytes();
            let long = [&[if value < 0 { 0xff } else { 0 }; 4][..], &short].concat();
            let text = decimal(&short, scale);
            prop_assert_eq!(&text, &decimal(&long, scale));
            prop_assert_eq!(parse_decimal(&text, scale, 16).unwrap(), needed(&short));
        }

        #[test]
        fn a_long_decimal_reads_back(bytes in prop::collection::vec(any::<u8>(), 1..80), scale in 0_u32..150) {
            prop_assert_eq!(parse_decimal(&decimal(&bytes, scale), scale, 80).unwrap(), needed(&bytes));
        }

        #[test]
        fn a_decimal_is_the_number_it_is(value: i128, scale in 0_u32..40) {
            let text = decimal(&value.to_be_bytes(), scale);
            let digits: String = text.chars().filter(|c| *c != '.').collect();
            prop_assert_eq!(digits.parse::<i128>().unwrap(), value);
            let behind = text.split_once('.').map_or(0, |(_, behind)| behind.len());
            prop_assert_eq!(behind, scale as usize);
        }
    }
}

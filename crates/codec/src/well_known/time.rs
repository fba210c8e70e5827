//! `google.protobuf.Timestamp` and `google.protobuf.Duration` as text: timestamp.proto and duration.proto say how.

use crate::json::write_display;

/// 0001-01-01T00:00:00Z and 9999-12-31T23:59:59Z, in seconds since 1970.
const TIMESTAMP_SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;
/// About 10,000 years.
const DURATION_SECONDS: std::ops::RangeInclusive<i64> = -315_576_000_000..=315_576_000_000;

/// Reads RFC 3339 text with upper-case `T` and `Z` and at most nine digits of a second's fraction.
///
/// Gives seconds since 1970 and nanoseconds. `None` when the text is not of that form, names a day or time that does not
/// exist (a leap second included, which a Timestamp cannot hold), or lies outside the years 1 to 9999.
pub(crate) fn parse_timestamp(text: &str) -> Option<(i64, i32)> {
    let mut text = Text(text.as_bytes());
    let year = text.digits(4)?;
    text.expect(b'-')?;
    let month = text.digits(2)?;
    text.expect(b'-')?;
    let day = text.digits(2)?;
    text.expect(b'T')?;
    let hour = text.digits(2)?;
    text.expect(b':')?;
    let minute = text.digits(2)?;
    text.expect(b':')?;
    let second = text.digits(2)?;
    let nanos = text.fraction()?;
    let offset_seconds = match text.next()? {
        b'Z' => 0,
        sign @ (b'+' | b'-') => {
            let hours = text.digits(2)?;
            text.expect(b':')?;
            let minutes = text.digits(2)?;
            if hours > 23 || minutes > 59 {
                return None;
            }
            let seconds = hours * 3600 + minutes * 60;
            if sign == b'+' { seconds } else { -seconds }
        }
        _ => return None,
    };
    let exists = (1..=12).contains(&month)
        && (1..=days_in_month(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !exists || !text.0.is_empty() {
        return None;
    }
    let seconds = days_from_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset_seconds;
    TIMESTAMP_SECONDS.contains(&seconds).then_some((seconds, nanos))
}

/// Appends the text of a Timestamp, without quotes. False, and nothing appended, when it is out of range.
pub(crate) fn write_timestamp(seconds: i64, nanos: i32, out: &mut Vec<u8>) -> bool {
    if !TIMESTAMP_SECONDS.contains(&seconds) || !(0..1_000_000_000).contains(&nanos) {
        return false;
    }
    let (year, month, day) = civil_from_days(seconds.div_euclid(86_400));
    let time = seconds.rem_euclid(86_400);
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    write_display(format_args!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}"), out);
    write_fraction(nanos.unsigned_abs(), out);
    out.push(b'Z');
    true
}

/// Reads a number of seconds with at most nine digits of fraction and an `s` behind it. Gives seconds and nanoseconds, both
/// with the sign. `None` when the text is not of that form or out of range.
pub(crate) fn parse_duration(text: &str) -> Option<(i64, i32)> {
    let mut text = Text(text.as_bytes());
    let sign = if text.0.first() == Some(&b'-') { -1 } else { 1 };
    if sign < 0 {
        text.expect(b'-')?;
    }
    let length = text.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
    // The range needs 12 digits; more only as leading zeroes, which nobody writes.
    if !(1..=12).contains(&length) {
        return None;
    }
    let seconds = text.digits(length)? * sign;
    let nanos = text.fraction()? * if sign < 0 { -1 } else { 1 };
    text.expect(b's')?;
    (text.0.is_empty() && is_duration(seconds, nanos)).then_some((seconds, nanos))
}

/// Appends the text of a Duration, without quotes. False, and nothing appended, when it is out of range or its two parts
/// differ in sign.
pub(crate) fn write_duration(seconds: i64, nanos: i32, out: &mut Vec<u8>) -> bool {
    if !is_duration(seconds, nanos) {
        return false;
    }
    if seconds < 0 || nanos < 0 {
        out.push(b'-');
    }
    write_display(seconds.unsigned_abs(), out);
    write_fraction(nanos.unsigned_abs(), out);
    out.push(b's');
    true
}

fn is_duration(seconds: i64, nanos: i32) -> bool {
    let has_one_sign = seconds == 0 || nanos == 0 || (seconds < 0) == (nanos < 0);
    let is_within = seconds.unsigned_abs() < DURATION_SECONDS.end().unsigned_abs() || nanos == 0;
    DURATION_SECONDS.contains(&seconds) && (-999_999_999..=999_999_999).contains(&nanos) && has_one_sign && is_within
}

/// Appends nothing, or a point and 3, 6 or 9 digits: as many as are needed.
fn write_fraction(nanos: u32, out: &mut Vec<u8>) {
    match nanos {
        0 => {}
        _ if nanos.is_multiple_of(1_000_000) => write_display(format_args!(".{:03}", nanos / 1_000_000), out),
        _ if nanos.is_multiple_of(1_000) => write_display(format_args!(".{:06}", nanos / 1_000), out),
        _ => write_display(format_args!(".{nanos:09}"), out),
    }
}

/// What is left of a text.
struct Text<'a>(&'a [u8]);

impl Text<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    /// Exactly `count` digits, at most 18.
    fn digits(&mut self, count: usize) -> Option<i64> {
        let (digits, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        digits.iter().try_fold(0, |value, byte| byte.is_ascii_digit().then(|| value * 10 + i64::from(byte - b'0')))
    }

    /// Nothing, or a point and one to nine digits. Gives nanoseconds.
    fn fraction(&mut self) -> Option<i32> {
        if self.0.first() != Some(&b'.') {
            return Some(0);
        }
        self.expect(b'.')?;
        let length = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if !(1..=9).contains(&length) {
            return None;
        }
        let digits = i32::try_from(self.digits(length)?).ok()?;
        Some((length..9).fold(digits, |nanos, _| nanos * 10))
    }
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days since 1970-01-01 of a day of the proleptic Gregorian calendar. Years are counted from March, so that the leap day is
/// the last of its year; 400 years are 146,097 days.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The inverse of [`days_from_civil`].
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = (shifted_month + 2) % 12 + 1;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn timestamp(seconds: i64, nanos: i32) -> Option<String> {
        let mut out = Vec::new();
        write_timestamp(seconds, nanos, &mut out).then(|| String::from_utf8(out).unwrap())
    }

    fn duration(seconds: i64, nanos: i32) -> Option<String> {
        let mut out = Vec::new();
        write_duration(seconds, nanos, &mut out).then(|| String::from_utf8(out).unwrap())
    }

    #[test]
    fn timestamps_have_the_text_that_the_type_prescribes() {
        let cases = [
            ("1970-01-01T00:00:00Z", 0, 0),
            ("0001-01-01T00:00:00Z", -62_135_596_800, 0),
            ("9999-12-31T23:59:59.999999999Z", 253_402_300_799, 999_999_999),
            ("2013-01-01T11:00:00Z", 1_357_038_000, 0),
            ("2000-02-29T23:59:59.010Z", 951_868_799, 10_000_000),
            ("1969-12-31T23:59:59.000001Z", -1, 1_000),
            ("2024-05-01T00:00:00.000000001Z", 1_714_521_600, 1),
        ];
        for (text, seconds, nanos) in cases {
            assert_eq!(parse_timestamp(text), Some((seconds, nanos)), "{text}");
            assert_eq!(timestamp(seconds, nanos).as_deref(), Some(text));
        }
        assert_eq!(parse_timestamp("2024-05-01T02:30:00.5+02:30"), Some((1_714_521_600, 500_000_000)));
        assert_eq!(parse_timestamp("2024-04-30T23:00:00-01:00"), Some((1_714_521_600, 0)));
    }

    #[test]
    fn other_texts_are_no_timestamps() {
        let cases = [
            "",
            "2024-05-01",
            "2024-05-01T00:00:00",
            "2024-05-01t00:00:00Z",
            "2024-05-01T00:00:00z",
            "2024-05-01 00:00:00Z",
            "2024-05-01T00:00Z",
            "2024-05-01T00:00:00.Z",
            "2024-05-01T00:00:00.1234567890Z",
            "2024-02-30T00:00:00Z",
            "2023-02-29T00:00:00Z",
            "2024-13-01T00:00:00Z",
            "2024-00-01T00:00:00Z",
            "2024-05-00T00:00:00Z",
            "2024-05-01T24:00:00Z",
            "2024-05-01T00:60:00Z",
            "2016-12-31T23:59:60Z",
            "2024-05-01T00:00:00+0200",
            "2024-05-01T00:00:00+24:00",
            "0000-12-31T00:00:00Z",
            "0001-01-01T00:00:00+00:01",
            "9999-12-31T23:59:59-00:01",
            "10000-01-01T00:00:00Z",
            "2024-05-01T00:00:00Z ",
            "+2024-05-01T00:00:00Z",
        ];
        for text in cases {
            assert_eq!(parse_timestamp(text), None, "{text}");
        }
        assert_eq!(timestamp(253_402_300_800, 0), None);
        assert_eq!(timestamp(-62_135_596_801, 0), None);
        assert_eq!(timestamp(0, 1_000_000_000), None);
        assert_eq!(timestamp(0, -1), None);
    }

    #[test]
    fn durations_have_the_text_that_the_type_prescribes() {
        let cases = [
            ("0s", 0, 0),
            ("1.500s", 1, 500_000_000),
            ("-0.500s", 0, -500_000_000),
            ("-1.000000001s", -1, -1),
            ("315576000000s", 315_576_000_000, 0),
            ("-315576000000s", -315_576_000_000, 0),
            ("0.000010s", 0, 10_000),
        ];
        for (text, seconds, nanos) in cases {
            assert_eq!(parse_duration(text), Some((seconds, nanos)), "{text}");
            assert_eq!(duration(seconds, nanos).as_deref(), Some(text));
        }
        assert_eq!(parse_duration("1.5s"), Some((1, 500_000_000)));
        for text in ["", "s", "1", "1.5", "1.s", ".5s", "+1s", "1 s", "1.0000000001s", "315576000001s", "1e3s", "--1s"]
        {
            assert_eq!(parse_duration(text), None, "{text}");
        }
        assert_eq!(parse_duration("315576000000.1s"), None);
        assert_eq!(duration(1, -1), None);
        assert_eq!(duration(0, 1_000_000_000), None);
        assert_eq!(duration(315_576_000_001, 0), None);
        assert_eq!(duration(i64::MIN, i32::MIN), None);
        assert_eq!(timestamp(i64::MIN, 0), None);
        assert_eq!(timestamp(i64::MAX, 0), None);
    }

    proptest! {
        #[test]
        fn any_timestamp_in_range_reads_back(seconds in TIMESTAMP_SECONDS, nanos in 0..1_000_000_000) {
            prop_assert_eq!(parse_timestamp(&timestamp(seconds, nanos).unwrap()), Some((seconds, nanos)));
        }

        #[test]
        fn any_duration_in_range_reads_back(seconds in DURATION_SECONDS, nanos in -999_999_999..1_000_000_000) {
            if let Some(text) = duration(seconds, nanos) {
                prop_assert_eq!(parse_duration(&text), Some((seconds, nanos)));
            }
        }

        #[test]
        fn days_and_dates_agree(days in -719_162_i64..2_932_896) {
            let (year, month, day) = civil_from_days(days);
            prop_assert!((1..=days_in_month(year, month)).contains(&day));
            prop_assert_eq!(days_from_civil(year, month, day), days);
        }
    }
}

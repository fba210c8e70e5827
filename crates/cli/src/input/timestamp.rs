//! A record's timestamp from a field of its value.
//!
//! Text is RFC 3339 with an offset, or an integer with its unit (`1714521600s`, `1714521600000ms`). A number, or a text of
//! digits alone, needs `--timestamp-unit`: nothing in the digits tells seconds from milliseconds for sure.

use std::str::FromStr;

use jiff::Timestamp;

/// 9999-12-31T23:59:59.999Z in ms.
const LAST_MS: i64 = 253_402_300_799_999;

/// The unit of a number that counts from 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Unit {
    /// Seconds.
    S,
    /// Milliseconds.
    Ms,
    /// Microseconds.
    Us,
    /// Nanoseconds.
    Ns,
}

/// Why a JSON value is not a timestamp.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TimestampError {
    #[error("{text} has no unit; say --timestamp-unit s, ms, us or ns")]
    NoUnit { text: String },
    #[error("{text} has no offset from UTC; write a Z or an offset such as +01:00 behind it")]
    NoOffset { text: String },
    #[error("{text} is not a time: it must be RFC 3339 with an offset, or a number with --timestamp-unit")]
    Unknown { text: String },
    #[error("{text} lies before 1970 or beyond the year 9999")]
    OutOfRange { text: String },
}

/// The ms since 1970 that `json`, the JSON text of a field, stands for. Parts of a millisecond are cut off, as Kafka's
/// producers do.
pub(crate) fn from_json(json: &str, unit: Option<Unit>) -> Result<i64, TimestampError> {
    let in_range = |ms: i64| {
        if (0..=LAST_MS).contains(&ms) { Ok(ms) } else { Err(TimestampError::OutOfRange { text: json.to_owned() }) }
    };
    let text = match json.strip_prefix('"') {
        // A time holds nothing that JSON escapes; a text with an escape is no time.
        Some(text) => text.strip_suffix('"').unwrap_or(text),
        None => return in_range(number(json, json, unit)?),
    };
    if let Ok(at) = text.parse::<Timestamp>() {
        // jiff also reads a time zone in brackets, which RFC 3339 does not know.
        if text.contains('[') {
            return Err(TimestampError::Unknown { text: json.to_owned() });
        }
        return in_range(at.as_millisecond_floor());
    }
    if let Some(digits) = text.strip_suffix("ms").filter(|digits| is_integer(digits)) {
        return in_range(number(digits, json, Some(Unit::Ms))?);
    }
    if let Some(digits) = text.strip_suffix('s').filter(|digits| is_integer(digits)) {
        return in_range(number(digits, json, Some(Unit::S))?);
    }
    if is_integer(text) {
        return in_range(number(text, json, unit)?);
    }
    if text.parse::<jiff::civil::DateTime>().is_ok() {
        return Err(TimestampError::NoOffset { text: json.to_owned() });
    }
    Err(TimestampError::Unknown { text: json.to_owned() })
}

trait Floor {
    fn as_millisecond_floor(&self) -> i64;
}

impl Floor for Timestamp {
    fn as_millisecond_floor(&self) -> i64 {
        i64::try_from(self.as_nanosecond().div_euclid(1_000_000)).unwrap_or(i64::MIN)
    }
}

fn is_integer(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A JSON number in `unit`. A fraction is taken exactly, digit by digit: 1714521600.123 as a float is .122 or .123.
fn number(digits: &str, json: &str, unit: Option<Unit>) -> Result<i64, TimestampError> {
    let unknown = || TimestampError::Unknown { text: json.to_owned() };
    let out_of_range = || TimestampError::OutOfRange { text: json.to_owned() };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.starts_with('-') {
        return Err(out_of_range());
    }
    if !is_integer(whole) || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(unknown());
    }
    let unit = unit.ok_or_else(|| TimestampError::NoUnit { text: json.to_owned() })?;
    let whole = i64::from_str(whole).map_err(|_| out_of_range())?;
    match unit {
        Unit::S => {
            let ms = format!("{fraction:0<3}");
            let ms = i64::from_str(ms.get(..3).unwrap_or("0")).map_err(|_| unknown())?;
            whole.checked_mul(1_000).and_then(|whole| whole.checked_add(ms)).ok_or_else(out_of_range)
        }
        Unit::Ms => Ok(whole),
        Unit::Us => Ok(whole / 1_000),
        Unit::Ns => Ok(whole / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_with_an_offset_and_numbers_with_a_unit_are_times() {
        let ms = 1_714_521_600_123;
        for (json, unit) in [
            ("\"2024-05-01T00:00:00.123Z\"", None),
            ("\"2024-05-01T02:00:00.1239+02:00\"", None),
            ("\"1714521600123ms\"", None),
            ("1714521600123", Some(Unit::Ms)),
            ("\"1714521600123\"", Some(Unit::Ms)),
            ("1714521600.123", Some(Unit::S)),
            ("1714521600.1239", Some(Unit::S)),
            ("1714521600123456", Some(Unit::Us)),
            ("1714521600123456789", Some(Unit::Ns)),
        ] {
            assert_eq!(from_json(json, unit), Ok(ms), "{json} {unit:?}");
        }
        assert_eq!(from_json("\"1714521600s\"", None), Ok(1_714_521_600_000));
        assert_eq!(from_json("0", Some(Unit::S)), Ok(0));
    }

    #[test]
    fn a_number_without_its_unit_is_never_guessed() {
        for json in ["1714521600", "1714521600000", "\"1714521600\"", "1714521600.5"] {
            assert!(matches!(from_json(json, None), Err(TimestampError::NoUnit { .. })), "{json}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused_with_the_reason() {
        assert!(matches!(from_json("\"2024-05-01T00:00:00\"", None), Err(TimestampError::NoOffset { .. })));
        assert!(matches!(
            from_json("\"2024-05-01T00:00:00+01:00[Europe/Berlin]\"", None),
            Err(TimestampError::Unknown { .. })
        ));
        assert!(matches!(from_json("-1", Some(Unit::Ms)), Err(TimestampError::OutOfRange { .. })));
        assert!(matches!(from_json("133589952000000000", Some(Unit::Ms)), Err(TimestampError::OutOfRange { .. })));
        assert!(matches!(from_json("1714521600000000", Some(Unit::S)), Err(TimestampError::OutOfRange { .. })));
        for json in ["true", "{}", "[1]", "1e9", "\"\"", "\"now\"", "\"-48h\"", "\"yesterday\""] {
            assert!(matches!(from_json(json, Some(Unit::S)), Err(TimestampError::Unknown { .. })), "{json}");
        }
    }
}

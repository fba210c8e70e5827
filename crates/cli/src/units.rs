//! Sizes, durations and counts as people write and read them.
//!
//! A number without its unit is refused: `5000` has been read as seconds, milliseconds and bytes by people who were all
//! sure of it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer, Visitor};

/// A number of bytes, written with its unit: `512B`, `64KiB`, `4MiB`, `1GiB`, `10MB` (10^6 bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size(pub(crate) u64);

/// A length of time, written with its unit: `20ms`, `5s`, `10m`, `1h`, `7d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span(pub(crate) Duration);

/// Why a text is not a size or a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnitError {
    #[error("{text:?} has no unit; write for example {example}")]
    NoUnit { text: String, example: String },
    #[error("{text:?} has the unknown unit {unit:?}; the units are {known}")]
    UnknownUnit { text: String, unit: String, known: &'static str },
    #[error("{text:?} does not begin with a whole number, as {example} does")]
    NoNumber { text: String, example: &'static str },
    #[error("{text:?} is too large")]
    TooLarge { text: String },
}

const SIZE_UNITS: &str = "B, KiB, MiB, GiB, TiB, kB, MB, GB, TB";
const SPAN_UNITS: &str = "ms, s, m, h, d";

/// Splits `text` into its leading digits and what follows.
fn split<'a>(text: &'a str, example: &'static str) -> Result<(u64, &'a str), UnitError> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: String = number.chars().filter(|c| *c != '_').collect();
    if number.is_empty() || unit.trim_start().starts_with(['.', ',']) {
        return Err(UnitError::NoNumber { text: text.to_owned(), example });
    }
    let number = number.parse().map_err(|_| UnitError::TooLarge { text: text.to_owned() })?;
    Ok((number, unit.trim()))
}

impl FromStr for Size {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (number, unit) = split(text, "4MiB")?;
        let factor = match unit {
            "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            "TiB" => 1 << 40,
            "kB" | "KB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            "TB" => 1_000_000_000_000,
            "" => {
                let example = format!("{number}B (bytes) or 4MiB");
                return Err(UnitError::NoUnit { text: text.trim().to_owned(), example });
            }
            unit => {
                let (text, unit) = (text.trim().to_owned(), unit.to_owned());
                return Err(UnitError::UnknownUnit { text, unit, known: SIZE_UNITS });
            }
        };
        number.checked_mul(factor).map(Self).ok_or_else(|| UnitError::TooLarge { text: text.trim().to_owned() })
    }
}

impl FromStr for Span {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (number, unit) = split(text, "5s")?;
        let factor = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "" => {
                let example = format!("{number}ms or {number}s");
                return Err(UnitError::NoUnit { text: text.trim().to_owned(), example });
            }
            unit => {
                let (text, unit) = (text.trim().to_owned(), unit.to_owned());
                return Err(UnitError::UnknownUnit { text, unit, known: SPAN_UNITS });
            }
        };
        let ms = number.checked_mul(factor).filter(|ms| i64::try_from(*ms).is_ok());
        ms.map(|ms| Self(Duration::from_millis(ms))).ok_or_else(|| UnitError::TooLarge { text: text.trim().to_owned() })
    }
}

/// Deserializes a text with a unit. A bare YAML number gets the same hint that the text would get.
struct WithUnit<T> {
    expecting: &'static str,
    result: std::marker::PhantomData<T>,
}

impl<T: FromStr<Err = UnitError>> Visitor<'_> for WithUnit<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expecting)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expecting = "a size with its unit, such as 4MiB";
        deserializer.deserialize_any(WithUnit { expecting, result: std::marker::PhantomData })
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expecting = "a duration with its unit, such as 5s";
        deserializer.deserialize_any(WithUnit { expecting, result: std::marker::PhantomData })
    }
}

/// `336776` as `336,776`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A number with its noun: `1 record`, `2 records`.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{} {noun}s", count(number)) }
}

/// Bytes in powers of ten, as disks and networks count: `97.0 MB`.
pub(crate) fn bytes(number: u64) -> String {
    const UNITS: [(u64, &str); 4] =
        [(1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
    for (size, unit) in UNITS {
        if number >= size {
            // One digit behind the point; integers, so that no size loses digits on the way.
            let tenths = (u128::from(number) * 10 + u128::from(size) / 2) / u128::from(size);
            return format!("{}.{} {unit}", tenths / 10, tenths % 10);
        }
    }
    format!("{number} B")
}

/// `12.3 s`, `4 min 5 s`, `7 days`: as long as a reader needs it exact.
pub(crate) fn span(duration: Duration) -> String {
    let ms = duration.as_millis();
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{ms} ms"),
        1..60 => format!("{}.{} s", seconds, (ms % 1000) / 100),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..172_800 => format!("{} h {} min", seconds / 3_600, (seconds % 3_600) / 60),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// How much a second: `number` in `duration`, 0 when no time passed.
pub(crate) fn per_second(number: u64, duration: Duration) -> u64 {
    let us = duration.as_micros();
    if us == 0 {
        return 0;
    }
    u64::try_from(u128::from(number) * 1_000_000 / us).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_carry_their_units() {
        for (text, bytes) in
            [("512B", 512), ("64KiB", 65_536), ("4 MiB", 4 << 20), ("10MB", 10_000_000), ("1_000B", 1_000)]
        {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for (text, ms) in [("20ms", 20), ("5s", 5_000), ("10m", 600_000), ("1h", 3_600_000), ("7d", 604_800_000)] {
            assert_eq!(text.parse(), Ok(Span(Duration::from_millis(ms))), "{text}");
        }
    }

    #[test]
    fn a_number_without_its_unit_is_refused_with_a_hint() {
        let error = "4194304".parse::<Size>().unwrap_err().to_string();
        assert!(error.contains("no unit") && error.contains("4194304B"), "{error}");
        let error = "5".parse::<Span>().unwrap_err().to_string();
        assert!(error.contains("no unit") && error.contains("5s"), "{error}");
    }

    #[test]
    fn unknown_units_fractions_and_overflow_are_refused_each_with_its_own_reason() {
        assert!(matches!("4mib".parse::<Size>(), Err(UnitError::UnknownUnit { .. })));
        assert!(matches!("1.5MiB".parse::<Size>(), Err(UnitError::NoNumber { .. })));
        assert!(matches!("-5s".parse::<Span>(), Err(UnitError::NoNumber { .. })));
        assert!(matches!("99999999999TiB".parse::<Size>(), Err(UnitError::TooLarge { .. })));
        assert!(matches!("999999999999999999999B".parse::<Size>(), Err(UnitError::TooLarge { .. })));
        assert!(matches!("999999999999999d".parse::<Span>(), Err(UnitError::TooLarge { .. })));
    }

    #[test]
    fn numbers_come_out_readable() {
        assert_eq!(count(0), "0");
        assert_eq!(count(816), "816");
        assert_eq!(count(336_776), "336,776");
        assert_eq!(count(1_000_000), "1,000,000");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(96_981_158), "97.0 MB");
        assert_eq!(bytes(999_999), "1000.0 kB");
        assert_eq!(span(Duration::from_millis(12_340)), "12.3 s");
        assert_eq!(span(Duration::from_secs(604_800)), "7 days");
        assert_eq!(per_second(500, Duration::from_millis(250)), 2_000);
        assert_eq!(per_second(500, Duration::ZERO), 0);
    }
}

//! The time grammar. One unit a form, and no guessing:
//!
//! | form | example | meaning |
//! |---|---|---|
//! | RFC 3339 with an offset | `2013-02-01T00:00:00Z`, `2013-02-01T01:00:00+01:00` | that instant |
//! | a date | `2013-02-01` | its midnight, UTC |
//! | seconds or milliseconds since 1970 | `1714521600s`, `1714521600000ms` | that instant |
//! | `now` | | the time of the request |
//! | a duration back | `-48h`, `-1h30m`, units `ms s m h d w` | that long before the request |
//! | a duration on (`until` only) | `+1h` | that long after `from` |
//!
//! A bare integer is refused with a hint: as milliseconds 1714521600 is January 1970, and -1 and -2 are protocol codes of
//! Kafka. Times finer than a millisecond are rounded up, which keeps `[from, until)` exact for records in milliseconds.
//! Times before 1970 count as 1970: no record carries one.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime, date};
use tidegate_model::TimeRange;

/// 9999-12-31T23:59:59.999Z, the last millisecond that RFC 3339 can write.
const LAST_MS: i64 = 253_402_300_799_999;

/// Why a text is not a time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimeExprError {
    /// Nothing was given.
    #[error("the time is empty; write for example 2013-02-01, 2013-02-01T00:00:00Z, 1714521600s, now or -48h")]
    Empty,
    /// A bare integer.
    #[error("{text:?} has no unit; {hint}")]
    NoUnit {
        /// What was given.
        text: String,
        /// What to write instead.
        hint: String,
    },
    /// The time lies beyond the year 9999.
    #[error("{text:?} lies beyond the year 9999; {hint}")]
    TooFar {
        /// What was given.
        text: String,
        /// What it may have meant.
        hint: String,
    },
    /// A time of day without an offset.
    #[error("{text:?} has no offset from UTC; write {text}Z, or for example {text}+01:00")]
    NoOffset {
        /// What was given.
        text: String,
    },
    /// The `+` of an offset was read as a space, as a URL's query does.
    #[error("{text:?} holds a space where a '+' may have been; in a URL write %2B for '+'")]
    SpaceForPlus {
        /// What was given.
        text: String,
    },
    /// A duration whose number or unit cannot be read.
    #[error("{text:?} is not a duration; write for example -48h, -90m or -1h30m (units: ms, s, m, h, d, w)")]
    Duration {
        /// What was given.
        text: String,
    },
    /// `+1h` where there is nothing to count from.
    #[error("{text:?} counts from the start of the range and can only be its end, with a start given")]
    NothingToCountFrom {
        /// What was given.
        text: String,
    },
    /// Nothing that the grammar knows.
    #[error(
        "{text:?} is not a time: {reason}; write for example 2013-02-01, 2013-02-01T00:00:00Z, 1714521600s, now or -48h"
    )]
    Unknown {
        /// What was given.
        text: String,
        /// Where reading it failed.
        reason: String,
    },
}

/// Why two texts are not a time range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// The start is not a time.
    #[error("from: {0}")]
    From(#[source] TimeExprError),
    /// The end is not a time.
    #[error("until: {0}")]
    Until(#[source] TimeExprError),
    /// The end lies before the start.
    #[error("until ({until}) lies before from ({from})")]
    EndBeforeStart {
        /// The start, RFC 3339.
        from: String,
        /// The end, RFC 3339.
        until: String,
    },
}

/// Reads one time. `now_ms` is the time of the request; the answer is in ms since 1970.
///
/// # Errors
/// [`TimeExprError`] says what is wrong and what to write.
pub fn parse(text: &str, now_ms: i64) -> Result<i64, TimeExprError> {
    if text.strip_prefix(' ').is_some_and(|rest| is_duration(rest.as_bytes())) {
        return Err(TimeExprError::SpaceForPlus { text: text.to_owned() });
    }
    let text = text.trim();
    match text.as_bytes() {
        [] => Err(TimeExprError::Empty),
        b"now" => Ok(now_ms),
        [b'+', rest @ ..] if is_duration(rest) => Err(TimeExprError::NothingToCountFrom { text: text.to_owned() }),
        [b'-' | b'+', rest @ ..] | rest if is_integer(rest) => {
            Err(TimeExprError::NoUnit { text: text.to_owned(), hint: unit_hint(text) })
        }
        [b'-', ..] => Ok(now_ms.saturating_sub(duration(text)?).max(0)),
        _ => match instant_with_unit(text) {
            Some(instant) => instant,
            None => calendar(text),
        },
    }
}

/// Reads a range. Without a start it begins at the log start; without an end it ends now.
///
/// # Errors
/// [`RangeError`] names the side. An end equal to the start is an empty range and no error.
pub fn parse_range(from: Option<&str>, until: Option<&str>, now_ms: i64) -> Result<TimeRange, RangeError> {
    let from_ms = from.map(|text| parse(text, now_ms)).transpose().map_err(RangeError::From)?;
    let until_ms = match (until, from_ms) {
        (None, _) => now_ms,
        (Some(text), Some(from_ms))
            if text.trim().strip_prefix('+').is_some_and(|rest| is_duration(rest.as_bytes())) =>
        {
            from_ms.saturating_add(duration(text.trim()).map_err(RangeError::Until)?).min(LAST_MS)
        }
        (Some(text), _) => parse(text, now_ms).map_err(RangeError::Until)?,
    };
    match from_ms {
        // A start in the future with an open end is a window that has not begun, not a mistake.
        Some(from_ms) if until.is_none() && until_ms < from_ms => Ok(TimeRange::between(from_ms, from_ms)),
        Some(from_ms) if until_ms < from_ms => {
            Err(RangeError::EndBeforeStart { from: rfc3339(from_ms), until: rfc3339(until_ms) })
        }
        _ => Ok(TimeRange { from_ms, until_ms: Some(until_ms), untimed: from.is_none() && until.is_none() }),
    }
}

/// A time in ms as RFC 3339 text with milliseconds, for messages.
fn rfc3339(ms: i64) -> String {
    Timestamp::from_millisecond(ms).map_or_else(|_| format!("{ms}ms"), |at| format!("{at:.3}"))
}

fn is_integer(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit)
}

/// Whether bytes behind a sign look like a duration: a digit first, a unit's letter last.
fn is_duration(bytes: &[u8]) -> bool {
    matches!(bytes, [first, .., last] if first.is_ascii_digit() && last.is_ascii_alphabetic())
}

/// What to write for a bare integer, by its number of digits.
fn unit_hint(text: &str) -> String {
    let (sign, digits) = match text.strip_prefix(['-', '+']) {
        Some(digits) => (&text[..1], digits),
        None => ("", text),
    };
    if !sign.is_empty() {
        return format!("for a duration write for example {sign}{digits}h; -1 and -2 are protocol codes and no times");
    }
    match digits.len() {
        9 | 10 => format!("for seconds since 1970 write {text}s"),
        12 | 13 => format!("for milliseconds since 1970 write {text}ms"),
        15 | 16 => format!("it looks like microseconds; as milliseconds write {}ms", &text[..digits.len() - 3]),
        18 if text.starts_with('1') => "it looks like a Windows FILETIME; write the time as RFC 3339".to_owned(),
        18 | 19 => format!("it looks like nanoseconds; as milliseconds write {}ms", &text[..digits.len() - 6]),
        _ => format!("write {text}s for seconds or {text}ms for milliseconds since 1970"),
    }
}

/// `1714521600s` and `1714521600000ms`; `None` when the text is of another form.
fn instant_with_unit(text: &str) -> Option<Result<i64, TimeExprError>> {
    let (digits, ms_per_unit) = match text.strip_suffix("ms") {
        Some(digits) => (digits, 1),
        None => (text.strip_suffix('s')?, 1_000),
    };
    if !is_integer(digits.as_bytes()) {
        return None;
    }
    let ms = digits.parse::<i64>().ok().and_then(|number| number.checked_mul(ms_per_unit));
    Some(ms.filter(|ms| *ms <= LAST_MS).ok_or_else(|| TimeExprError::TooFar {
        text: text.to_owned(),
        hint: match (ms_per_unit, digits.len()) {
            (1_000, 12 | 13) => format!("for milliseconds write {digits}ms"),
            (_, 15 | 16) => format!("microseconds? As milliseconds write {}ms", &digits[..digits.len() - 3]),
            (_, 18 | 19) => "nanoseconds or a Windows FILETIME? Write the time as RFC 3339".to_owned(),
            _ => "check its unit".to_owned(),
        },
    }))
}

/// A signed duration such as `-48h` or `+1h30m`, its size in ms.
fn duration(text: &str) -> Result<i64, TimeExprError> {
    let error = || TimeExprError::Duration { text: text.to_owned() };
    let mut rest = text.strip_prefix(['-', '+']).ok_or_else(error)?;
    let mut total = 0_i64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(error)?;
        let number: i64 = rest[..digits].parse().map_err(|_| error())?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let unit_ms = match &rest[..letters] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 604_800_000,
            _ => return Err(error()),
        };
        rest = &rest[letters..];
        total = number.checked_mul(unit_ms).and_then(|part| total.checked_add(part)).ok_or_else(error)?;
    }
    Ok(total)
}

/// RFC 3339 with an offset, or a date.
fn calendar(text: &str) -> Result<i64, TimeExprError> {
    let unknown = |error: jiff::Error| TimeExprError::Unknown { text: text.to_owned(), reason: error.to_string() };
    let has_time = text.len() > 10 && matches!(text.as_bytes()[10], b'T' | b't' | b' ');
    if !has_time {
        let date: Date = text.parse().map_err(unknown)?;
        if text.len() != 10 {
            // Only the plain form: jiff also reads 20130201 and more, which would let a bare integer through.
            return Err(TimeExprError::Unknown {
                text: text.to_owned(),
                reason: "a date is written 2013-02-01".to_owned(),
            });
        }
        return Ok(utc_ms(date.at(0, 0, 0, 0)));
    }
    if text.contains('[') {
        let reason = "a time zone in brackets is not part of RFC 3339".to_owned();
        return Err(TimeExprError::Unknown { text: text.to_owned(), reason });
    }
    match text.parse::<Timestamp>() {
        Ok(at) => {
            // Up, not down: a record at .000 lies before a bound of .0005.
            let ns = at.as_nanosecond();
            let ms = ns.div_euclid(1_000_000) + i128::from(ns.rem_euclid(1_000_000) != 0);
            Ok(i64::try_from(ms).unwrap_or(LAST_MS).clamp(0, LAST_MS))
        }
        // jiff's instants end a day before the year 9999 does, and 9999-12-31 is how people write "for ever".
        Err(_) if text.starts_with("9999-12-3") && text.ends_with(['Z', 'z']) => {
            text[..text.len() - 1].parse::<DateTime>().map(utc_ms).map_err(unknown)
        }
        Err(_) if text.len() > 16 && text.is_char_boundary(11) && text[11..].contains(' ') => {
            Err(TimeExprError::SpaceForPlus { text: text.to_owned() })
        }
        Err(_) if text.parse::<DateTime>().is_ok() => Err(TimeExprError::NoOffset { text: text.to_owned() }),
        Err(error) => Err(unknown(error)),
    }
}

/// A time of the calendar in UTC, in ms since 1970, rounded up; times before 1970 count as 1970.
fn utc_ms(at: DateTime) -> i64 {
    const DAY_MS: i64 = 86_400_000;
    let days = i64::from(date(1970, 1, 1).until(at.date()).map_or(0, |span| span.get_days()));
    let ns = i64::from(at.hour()) * 3_600_000_000_000
        + i64::from(at.minute()) * 60_000_000_000
        + i64::from(at.second()) * 1_000_000_000
        + i64::from(at.subsec_nanosecond());
    (days * DAY_MS + ns.div_euclid(1_000_000) + i64::from(ns % 1_000_000 != 0)).clamp(0, LAST_MS)
}

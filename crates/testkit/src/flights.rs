//! The flights data: a year of real records that are really late, with the answers that must come out.
//!
//! The file's order is the order of publication. Published into ONE partition in that order with
//! [`Flight::event_time_ms`] as the record timestamp, every row of [`EXPECTED`] holds; with more partitions the counts
//! of records still do.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use serde::Deserialize;

/// How many records the file has.
pub const RECORDS: u64 = 336_776;

/// How many bytes the records have together, without line ends.
pub const VALUE_BYTES: u64 = 96_981_158 - RECORDS;

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flight {
    /// The record's value: one JSON object, without a line end.
    pub json: String,
    /// When the flight left: the record's timestamp, in milliseconds since the epoch.
    pub event_time_ms: i64,
}

/// A time range and what one partition in file order must answer for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedRange {
    /// Inclusive start, a date in UTC as the time grammar takes it.
    pub from: &'static str,
    /// Exclusive end, likewise.
    pub until: &'static str,
    /// `from` in milliseconds since the epoch.
    pub from_ms: i64,
    /// `until` in milliseconds since the epoch.
    pub until_ms: i64,
    /// How many records the range has.
    pub records: u64,
    /// The first offset with a timestamp at or after `from`.
    pub first_offset: i64,
    /// The first offset with a timestamp at or after `until`; `None`: no record is that young.
    pub until_offset: Option<i64>,
    /// How many of the records lie before `until_offset`: what a reader finds that stops there.
    pub before_until_offset: u64,
    /// One more than the offset of the range's last record.
    pub exact_end_offset: i64,
}

impl ExpectedRange {
    /// The late records: in the range, at or after the first offset whose timestamp is at or after `until`.
    pub const fn late(&self) -> u64 {
        self.records - self.before_until_offset
    }
}

/// The ranges whose answers are known: a month, a day, everything, nothing.
pub const EXPECTED: [ExpectedRange; 4] = [
    ExpectedRange {
        from: "2013-02-01",
        until: "2013-03-01",
        from_ms: 1_359_676_800_000,
        until_ms: 1_362_096_000_000,
        records: 24_980,
        first_offset: 26_661,
        until_offset: Some(51_693),
        before_until_offset: 24_873,
        exact_end_offset: 51_927,
    },
    ExpectedRange {
        from: "2013-07-04",
        until: "2013-07-05",
        from_ms: 1_372_896_000_000,
        until_ms: 1_372_982_400_000,
        records: 816,
        first_offset: 168_818,
        until_offset: Some(169_652),
        before_until_offset: 740,
        exact_end_offset: 169_776,
    },
    ExpectedRange {
        from: "2013-01-01",
        until: "2014-02-01",
        from_ms: 1_356_998_400_000,
        until_ms: 1_391_212_800_000,
        records: RECORDS,
        first_offset: 0,
        until_offset: None,
        before_until_offset: RECORDS,
        exact_end_offset: RECORDS as i64,
    },
    ExpectedRange {
        from: "2012-01-01",
        until: "2012-02-01",
        from_ms: 1_325_376_000_000,
        until_ms: 1_328_054_400_000,
        records: 0,
        first_offset: 0,
        until_offset: Some(0),
        before_until_offset: 0,
        exact_end_offset: 0,
    },
];

/// Where the data is: `examples/flights/flights.ndjson.zst` of the workspace.
pub fn path() -> PathBuf {
    crate::workspace_root().join("examples/flights/flights.ndjson.zst")
}

/// The records in file order, unpacked while they are read.
///
/// # Panics
///
/// When the file is missing or damaged: it is part of the project.
pub fn lines() -> impl Iterator<Item = Flight> {
    let path = path();
    let fail = |what: &str, error: &dyn std::fmt::Display| -> ! { panic!("{}: {what}: {error}", path.display()) };
    let file = File::open(&path).unwrap_or_else(|error| fail("cannot open", &error));
    let unpacked = zstd::Decoder::new(file).unwrap_or_else(|error| fail("not zstd", &error));
    BufReader::with_capacity(1 << 20, unpacked).lines().enumerate().map(|(index, line)| {
        let json = line.unwrap_or_else(|error| panic!("flights, record {index}: {error}"));
        let event_time_ms = event_time_ms(&json).unwrap_or_else(|| panic!("flights, record {index}: {json}"));
        Flight { json, event_time_ms }
    })
}

#[derive(Deserialize)]
struct EventTime<'a> {
    event_time: &'a str,
}

fn event_time_ms(json: &str) -> Option<i64> {
    let record: EventTime<'_> = serde_json::from_str(json).ok()?;
    utc_ms(record.event_time)
}

/// `2013-01-01T11:00:00Z`, the one form the data has, in milliseconds since the epoch.
fn utc_ms(text: &str) -> Option<i64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time, ':')?;
    Some((((days_from_civil(year, month, day) * 24 + hour) * 60 + minute) * 60 + second) * 1000)
}

fn numbers(text: &str, separator: char) -> Option<[i64; 3]> {
    let mut parts = text.split(separator).map(|part| part.parse().ok());
    let three = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(three)
}

/// Days since 1970-01-01 of a date in the Gregorian calendar (Howard Hinnant, "chrono-compatible low-level date
/// algorithms"), for years from 1970.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let (y, m) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let (era, year_of_era) = (y / 400, y % 400);
    let day_of_year = (153 * m + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_utc() {
        assert_eq!(utc_ms("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(utc_ms("2000-02-29T12:34:56Z"), Some(951_827_696_000));
        assert_eq!(utc_ms("2013-12-31T23:59:00Z"), Some(1_388_534_340_000));
        assert_eq!(utc_ms("2013-12-31T23:59:00+01:00"), None);
        for range in EXPECTED {
            assert_eq!(utc_ms(&format!("{}T00:00:00Z", range.from)), Some(range.from_ms));
            assert_eq!(utc_ms(&format!("{}T00:00:00Z", range.until)), Some(range.until_ms));
        }
    }

    #[test]
    fn the_file_gives_every_row_of_the_table() {
        let mut times = Vec::new();
        let mut bytes = 0;
        for flight in lines() {
            times.push(flight.event_time_ms);
            bytes += flight.json.len() as u64;
        }
        assert_eq!((times.len() as u64, bytes), (RECORDS, VALUE_BYTES));

        for range in EXPECTED {
            let first_at_or_after = |t: i64| times.iter().position(|&time| time >= t).map(|p| p as i64);
            let inside = |time: i64| range.from_ms <= time && time < range.until_ms;
            let until_offset = first_at_or_after(range.until_ms);
            let before = &times[..until_offset.map_or(times.len(), |offset| offset as usize)];
            let found = ExpectedRange {
                records: times.iter().filter(|&&time| inside(time)).count() as u64,
                first_offset: first_at_or_after(range.from_ms).expect("every start has a record after it"),
                until_offset,
                before_until_offset: before.iter().filter(|&&time| inside(time)).count() as u64,
                exact_end_offset: times.iter().rposition(|&time| inside(time)).map_or(0, |last| last as i64 + 1),
                ..range
            };
            assert_eq!(found, range);
        }
    }
}

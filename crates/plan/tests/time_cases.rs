//! The time grammar's cases, as text.
#![allow(clippy::unwrap_used, clippy::panic)]

use tidegate_plan::{RangeError, parse, parse_range};

const NOW: i64 = 1_714_521_600_000;

#[test]
fn every_time_reads_as_its_case_says() {
    let mut cases = 0;
    for (at, line) in include_str!("cases/times.txt").lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        cases += 1;
        let at = at + 1;
        if let Some((text, wanted)) = line.split_once("=>") {
            assert_eq!(parse(text.trim(), NOW), Ok(wanted.trim().parse().unwrap()), "line {at}: {line}");
        } else if let Some((text, wanted)) = line.split_once("!!") {
            let error = parse(text.trim(), NOW).expect_err(line).to_string();
            assert!(error.contains(wanted.trim()), "line {at}: {line}\nsays: {error}");
        } else {
            panic!("line {at} is neither => nor !!: {line}");
        }
    }
    assert!(cases > 40, "only {cases} cases were read");
}

#[test]
fn a_duration_on_counts_from_the_start_and_not_from_now() {
    let range = parse_range(Some("2022-02-14T00:00:00Z"), Some("+1h"), NOW).unwrap();
    assert_eq!((range.from_ms, range.until_ms), (Some(1_644_796_800_000), Some(1_644_800_400_000)));
    assert!(matches!(parse_range(None, Some("+1h"), NOW), Err(RangeError::Until(_))));
    let eaten_by_a_url = parse_range(Some("2022-02-14"), Some(" 1h"), NOW).unwrap_err().to_string();
    assert!(eaten_by_a_url.contains("write %2B"), "{eaten_by_a_url}");
}

#[test]
fn an_end_before_the_start_is_an_error_and_an_equal_end_is_an_empty_range() {
    let error = parse_range(Some("2013-02-01"), Some("2013-01-31"), NOW).unwrap_err();
    assert_eq!(error.to_string(), "until (2013-01-31T00:00:00.000Z) lies before from (2013-02-01T00:00:00.000Z)");
    assert!(parse_range(Some("2013-02-01"), Some("2013-02-01"), NOW).unwrap().is_empty());
}

#[test]
fn a_window_that_has_not_begun_is_empty_and_no_error() {
    assert!(parse_range(Some("2100-01-01"), None, NOW).unwrap().is_empty());
}

#[test]
fn only_the_range_without_any_bound_holds_untimed_records() {
    let open = parse_range(None, None, NOW).unwrap();
    assert_eq!((open.from_ms, open.until_ms, open.untimed), (None, Some(NOW), true));
    assert!(!parse_range(Some("0s"), None, NOW).unwrap().untimed);
    assert!(!parse_range(None, Some("now"), NOW).unwrap().untimed);
}

#[test]
fn any_text_is_answered_without_a_panic() {
    use proptest::prelude::*;
    proptest!(|(text in r"[-+0-9a-zTZ:. \[\]é]{0,40}")| {
        if let Ok(ms) = parse(&text, NOW) {
            prop_assert!((0..=253_402_300_799_999).contains(&ms), "{} gave {}", text, ms);
        }
    });
}

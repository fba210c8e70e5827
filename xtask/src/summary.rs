//! Adds up a test run: per crate, failures by name, skips with their reasons.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use crate::cargo::TestOwners;
use crate::libtest::{BinaryResult, Source};

/// A test run in figures.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    crates: BTreeMap<String, Counts>,
    /// `crate: test`.
    failed: Vec<String>,
    /// `crate: test`, and the reason.
    skipped: Vec<(String, String)>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Summary {
    /// `skip_log` is the file that `tidegate_testkit::skip` writes: `binary<TAB>test<TAB>reason` lines.
    ///
    /// A test that skips has passed in the eyes of the test harness: here it counts as skipped and nothing else. An
    /// ignored test is a skip, too.
    pub(crate) fn new(results: &[BinaryResult], skip_log: &str, owners: &TestOwners) -> Summary {
        let mut summary = Summary::default();
        for result in results {
            let package = match &result.source {
                Source::Binary(name) => owners.of_binary(name).unwrap_or(name),
                Source::DocTests(library) => owners.of_library(library).unwrap_or(library),
            };
            let counts = summary.crates.entry(package.to_owned()).or_default();
            counts.passed += result.passed;
            counts.failed += result.failed.len() as u64;
            counts.skipped += result.ignored;
            summary.failed.extend(result.failed.iter().map(|test| format!("{package}: {test}")));
            if result.ignored > 0 {
                let what = format!("{package}: {} tests", result.ignored);
                summary.skipped.push((what, "marked as ignored".to_owned()));
            }
        }
        let mut seen = BTreeSet::new();
        for line in skip_log.lines() {
            let mut columns = line.splitn(3, '\t');
            let (Some(binary), Some(test), Some(reason)) = (columns.next(), columns.next(), columns.next()) else {
                continue;
            };
            if !seen.insert((binary, test)) {
                continue;
            }
            let package = owners.of_binary(binary).unwrap_or(binary);
            let counts = summary.crates.entry(package.to_owned()).or_default();
            counts.passed = counts.passed.saturating_sub(1);
            counts.skipped += 1;
            summary.skipped.push((format!("{package}: {test}"), reason.to_owned()));
        }
        summary
    }

    /// No test failed.
    pub(crate) fn is_success(&self) -> bool {
        self.failed.is_empty()
    }

    /// How many tests were skipped.
    pub(crate) fn skipped(&self) -> u64 {
        self.total().skipped
    }

    /// The line that runners read: `N passed, N failed, N skipped`.
    pub(crate) fn closing_line(&self) -> String {
        let total = self.total();
        format!("{} passed, {} failed, {} skipped", total.passed, total.failed, total.skipped)
    }

    fn total(&self) -> Counts {
        self.crates.values().fold(Counts::default(), |sum, counts| Counts {
            passed: sum.passed + counts.passed,
            failed: sum.failed + counts.failed,
            skipped: sum.skipped + counts.skipped,
        })
    }
}

/// The table, the failures and the skips; not the closing line.
impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.crates.keys().map(String::len).max().unwrap_or(0).max("crate".len());
        writeln!(f, "{:width$}  passed  failed  skipped", "crate")?;
        for (name, counts) in &self.crates {
            writeln!(f, "{name:width$}  {:>6}  {:>6}  {:>7}", counts.passed, counts.failed, counts.skipped)?;
        }
        if !self.failed.is_empty() {
            writeln!(f, "\nFAILED, {}:", self.failed.len())?;
            self.failed.iter().try_for_each(|test| writeln!(f, "  {test}"))?;
        }
        if !self.skipped.is_empty() {
            writeln!(f, "\nSKIPPED, {}:", self.skipped())?;
            // Most skips share one reason.
            let mut by_reason = BTreeMap::<&str, String>::new();
            for (test, reason) in &self.skipped {
                writeln!(by_reason.entry(reason).or_default(), "    {test}")?;
            }
            by_reason.iter().try_for_each(|(reason, tests)| write!(f, "  {reason}\n{tests}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners() -> TestOwners {
        let metadata = serde_json::json!({"packages": [
            {"id": "c", "name": "tidegate-client", "targets": [{"kind": ["lib"], "name": "tidegate_client"}]},
        ]});
        TestOwners::new(&metadata, r#"{"package_id":"c","executable":"/t/debug/deps/kafka-01"}"#)
    }

    fn result(source: Source, passed: u64, ignored: u64, failed: &[&str]) -> BinaryResult {
        BinaryResult { source, passed, ignored, failed: failed.iter().map(|&name| name.to_owned()).collect() }
    }

    #[test]
    fn a_test_that_skipped_has_not_passed() {
        let results = [
            result(Source::Binary("kafka-01".into()), 5, 0, &["loses_a_record"]),
            result(Source::DocTests("tidegate_client".into()), 2, 1, &[]),
        ];
        let skip_log = "kafka-01\treads_back\tno Kafka\nkafka-01\treads_back\tno Kafka\nkafka-01\tproduces\tno Kafka\n";
        let summary = Summary::new(&results, skip_log, &owners());
        assert!(!summary.is_success());
        assert_eq!(summary.closing_line(), "5 passed, 1 failed, 3 skipped");
        assert_eq!(
            summary.to_string(),
            "crate            passed  failed  skipped\n\
             tidegate-client       5       1        3\n\
             \n\
             FAILED, 1:\n\
             \x20 tidegate-client: loses_a_record\n\
             \n\
             SKIPPED, 3:\n\
             \x20 marked as ignored\n\
             \x20   tidegate-client: 1 tests\n\
             \x20 no Kafka\n\
             \x20   tidegate-client: reads_back\n\
             \x20   tidegate-client: produces\n"
        );
    }

    #[test]
    fn a_binary_that_nobody_knows_is_still_counted() {
        let summary = Summary::new(&[result(Source::Binary("new-02".into()), 1, 0, &[])], "torn line", &owners());
        assert!(summary.is_success());
        assert_eq!(summary.closing_line(), "1 passed, 0 failed, 0 skipped");
    }
}

//! Reads the output of `cargo test`: which binary ran, and what came of its tests.

/// What one test binary, or the doc tests of one library, came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BinaryResult {
    pub(crate) source: Source,
    pub(crate) passed: u64,
    pub(crate) ignored: u64,
    /// The failed tests by name. A binary that ended without a result line (a crash, an abort) counts as one.
    pub(crate) failed: Vec<String>,
}

/// What cargo ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// The file name of a test binary.
    Binary(String),
    /// The crate name of a library whose doc tests ran.
    DocTests(String),
}

/// Fed with lines in the order in which cargo and the tests wrote them.
#[derive(Debug, Default)]
pub(crate) struct LibtestParser {
    done: Vec<BinaryResult>,
    current: Option<(BinaryResult, SawResult)>,
}

/// Whether a `test result:` line of the binary has been seen.
type SawResult = bool;

impl LibtestParser {
    /// Takes one line, without its line end.
    pub(crate) fn line(&mut self, line: &str) {
        let plain = strip_ansi(line);
        let text = plain.trim();
        if let Some(source) = source(text) {
            self.close();
            let result = BinaryResult { source, passed: 0, ignored: 0, failed: Vec::new() };
            self.current = Some((result, false));
        } else if let Some((result, saw_result)) = &mut self.current {
            if let Some(name) = text.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
                result.failed.push(name.to_owned());
            } else if let Some(counts) = text.strip_prefix("test result: ") {
                *saw_result = true;
                result.passed += count(counts, "passed");
                result.ignored += count(counts, "ignored");
                // A failed test's line can be torn apart by what it printed; the result line is the truth.
                let failed = count(counts, "failed") as usize;
                while result.failed.len() < failed {
                    result.failed.push("(a test whose name was not seen)".to_owned());
                }
            }
        }
    }

    /// The results, in the order of the runs.
    pub(crate) fn finish(mut self) -> Vec<BinaryResult> {
        self.close();
        self.done
    }

    fn close(&mut self) {
        if let Some((mut result, saw_result)) = self.current.take() {
            if !saw_result {
                result.failed.push("(ended without a result: it crashed or was killed)".to_owned());
            }
            self.done.push(result);
        }
    }
}

/// `Running unittests src/lib.rs (target/debug/deps/tidegate_model-0a1b)` or `Doc-tests tidegate_model`.
fn source(text: &str) -> Option<Source> {
    if let Some(rest) = text.strip_prefix("Running ") {
        let (_, path) = rest.strip_suffix(')')?.rsplit_once('(')?;
        let file_name = path.rsplit(['/', '\\']).next()?;
        return path.contains("deps").then(|| Source::Binary(file_name.to_owned()));
    }
    let library = text.strip_prefix("Doc-tests ")?;
    (!library.contains(' ')).then(|| Source::DocTests(library.to_owned()))
}

/// The number before `what` in `ok. 5 passed; 0 failed; 1 ignored; ...`.
fn count(counts: &str, what: &str) -> u64 {
    let numbers = counts.split([';', '.']).map(str::trim);
    numbers.filter_map(|part| part.strip_suffix(what)?.trim().parse().ok()).next().unwrap_or(0)
}

/// The line without colour codes.
fn strip_ansi(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find("\u{1b}[") {
        plain.push_str(&rest[..at]);
        let code = &rest[at + 2..];
        let end = code.find(|c: char| c.is_ascii_alphabetic()).map_or(code.len(), |end| end + 1);
        rest = &code[end..];
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(output: &str) -> Vec<BinaryResult> {
        let mut parser = LibtestParser::default();
        output.lines().for_each(|line| parser.line(line));
        parser.finish()
    }

    fn binary(name: &str, passed: u64, ignored: u64, failed: &[&str]) -> BinaryResult {
        let failed = failed.iter().map(|&name| name.to_owned()).collect();
        BinaryResult { source: Source::Binary(name.to_owned()), passed, ignored, failed }
    }

    #[test]
    fn counts_go_to_the_binary_that_ran() {
        let results = parse(
            "     Running unittests src/lib.rs (target/debug/deps/tidegate_model-0a1b)\n\n\
             running 2 tests\ntest batch::reads ... ok\ntest time::reads ... ok\n\n\
             test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\n\
             \u{1b}[1m\u{1b}[32m     Running\u{1b}[0m tests/kafka.rs (target/debug/deps/kafka-0c)\n\
             test reads_back ... \u{1b}[31mFAILED\u{1b}[0m\ntest later ... ignored\n\
             test result: FAILED. 3 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.20s\n\
             \x20  Doc-tests tidegate_model\n\
             test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
             test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n",
        );
        let doc_tests =
            BinaryResult { source: Source::DocTests("tidegate_model".into()), passed: 3, ignored: 0, failed: vec![] };
        assert_eq!(
            results,
            [binary("tidegate_model-0a1b", 2, 0, &[]), binary("kafka-0c", 3, 1, &["reads_back"]), doc_tests]
        );
    }

    #[test]
    fn a_binary_that_crashes_is_a_failure() {
        let results = parse(
            "     Running tests/a.rs (target/debug/deps/a-01)\nrunning 2 tests\ntest one ... ok\n\
             error: test failed, to rerun pass `-p x --test a`\n\
             \x20    Running tests/b.rs (target/debug/deps/b-02)\n\
             test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n",
        );
        let crashed = binary("a-01", 0, 0, &["(ended without a result: it crashed or was killed)"]);
        assert_eq!(results, [crashed, binary("b-02", 1, 0, &[])]);
    }

    #[test]
    fn a_failure_whose_line_was_torn_still_counts() {
        let results = parse(
            "Running tests/a.rs (target/debug/deps/a-01)\ntest one ... some output FAILED?\n\
             test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n",
        );
        assert_eq!(results, [binary("a-01", 0, 0, &["(a test whose name was not seen)"])]);
    }

    #[test]
    fn what_a_test_prints_is_not_taken_for_a_run() {
        let results = parse("Running late (as usual)\nDoc-tests are nice\ntest result: ok. 9 passed; 0 failed\n");
        assert_eq!(results, []);
    }
}

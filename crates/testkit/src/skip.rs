//! Skips that are seen: printed, counted, and failures where nothing may be missing.

use std::fs::OpenOptions;
use std::io::Write as _;

/// The environment variable that names the file to which skips are appended, one `binary<TAB>test<TAB>reason` a line:
/// the file name of the test binary, then what [`skip`] was given.
pub const SKIP_LOG: &str = "TIDEGATE_SKIP_LOG";

/// Says that `test` cannot run here, and why; the caller returns right after.
///
/// The line is printed and appended to `$TIDEGATE_SKIP_LOG`, from which `cargo xtask test` counts. `test` is the
/// name of the test function, or any text that is the same for one test and different for two.
///
/// # Panics
///
/// Under `CI=true`: what is missing there is a failure, or a whole suite could go missing unseen. Also when the log
/// cannot be written, since an uncounted skip looks like a pass.
pub fn skip(test: &str, reason: &str) {
    assert!(!in_ci(), "{test} cannot run: {reason} (CI=true allows no skips)");
    announce(&format!("SKIPPED {test}: {reason}"));
    if let Some(path) = std::env::var_os(SKIP_LOG) {
        let line = log_line(&binary(), test, reason);
        // One write of a short line in append mode: test processes may share the file.
        let written = OpenOptions::new().create(true).append(true).open(&path).and_then(|mut f| f.write_all(&line));
        if let Err(error) = written {
            panic!("cannot append to the skip log {}: {error}", path.display());
        }
    }
}

#[allow(clippy::print_stderr, reason = "the person who runs one test by hand must see that it did nothing")]
fn announce(line: &str) {
    eprintln!("{line}");
}

fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

/// The file name of the running test binary; a name of two crates' tests would else be one test.
fn binary() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn log_line(binary: &str, test: &str, reason: &str) -> Vec<u8> {
    let one_line = |text: &str| text.replace(['\t', '\n', '\r'], " ");
    format!("{}\t{}\t{}\n", one_line(binary), one_line(test), one_line(reason)).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_of_several_lines_stays_one_line_in_the_log() {
        let line = log_line("reader-0a1b", "reads_back", "mvn failed:\n\tno network");
        assert_eq!(line, b"reader-0a1b\treads_back\tmvn failed:  no network\n");
    }
}

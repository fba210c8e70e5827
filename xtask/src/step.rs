//! A named step: announced, timed, and when it fails, named with the command that runs it alone.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

/// What became of a step.
pub(crate) struct StepReport {
    pub(crate) name: &'static str,
    /// The command that runs this step and no other.
    pub(crate) alone: String,
    pub(crate) took: Duration,
    pub(crate) failed: bool,
}

/// Runs one step. A failure is printed at once, where its output is, and kept in the report.
pub(crate) fn step<T>(name: &'static str, alone: &str, work: impl FnOnce() -> Result<T>) -> (StepReport, Option<T>) {
    eprintln!("\n== {name}");
    let started = Instant::now();
    let outcome = work();
    let took = started.elapsed();
    let report = StepReport { name, alone: alone.to_owned(), took, failed: outcome.is_err() };
    match outcome {
        Ok(value) => {
            eprintln!("== {name}: done in {}", seconds(took));
            (report, Some(value))
        }
        Err(error) => {
            eprintln!("== {name}: FAILED after {}: {error:#}\n   run it alone: {alone}", seconds(took));
            (report, None)
        }
    }
}

/// A step whose failure ends the task.
pub(crate) fn required<T>(name: &'static str, alone: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let (report, value) = step(name, alone, work);
    value.ok_or_else(|| anyhow!("the step `{}` failed", report.name))
}

/// `7.4 s`, `12 min 7 s`.
pub(crate) fn seconds(duration: Duration) -> String {
    match duration.as_secs() {
        0..60 => format!("{:.1} s", duration.as_secs_f64()),
        whole => format!("{} min {} s", whole / 60, whole % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_step_keeps_its_name_and_gives_no_value() {
        let (report, value) = step("lint", "cargo clippy", || -> Result<()> { Err(anyhow!("two warnings")) });
        assert!(report.failed && value.is_none());
        assert_eq!((report.name, report.alone.as_str()), ("lint", "cargo clippy"));
        let error = required("lint", "cargo clippy", || -> Result<()> { Err(anyhow!("two warnings")) }).unwrap_err();
        assert_eq!(error.to_string(), "the step `lint` failed");
    }

    #[test]
    fn durations_are_readable() {
        assert_eq!(seconds(Duration::from_millis(7449)), "7.4 s");
        assert_eq!(seconds(Duration::from_secs(727)), "12 min 7 s");
    }
}

//! Progress on standard error: a bar on a terminal, else a plain line every few seconds, so that a log stays readable.

use std::fmt;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::talk;
use crate::units;

/// The least time between two plain lines.
const BETWEEN_LINES: Duration = Duration::from_secs(5);

/// The progress of one piece of work, counted in records. Dropping it takes the bar away.
pub(crate) struct Progress {
    shape: Shape,
    label: String,
    total: Option<u64>,
    started: Instant,
}

enum Shape {
    Bar(ProgressBar),
    Lines { last: Instant },
}

impl Progress {
    /// Progress of `label` towards `total` records, where that is known.
    ///
    /// There is no bar when standard output is a terminal that the work itself fills (`output_on_terminal`).
    pub(crate) fn new(label: impl Into<String>, total: Option<u64>, output_on_terminal: bool) -> Self {
        let (label, started) = (label.into(), Instant::now());
        let shape = if io::stderr().is_terminal() && !output_on_terminal {
            Shape::Bar(bar(&label, total))
        } else {
            Shape::Lines { last: started }
        };
        Self { shape, label, total, started }
    }

    /// `done` records are done.
    pub(crate) fn set(&mut self, done: u64) {
        match &mut self.shape {
            Shape::Bar(bar) => bar.set_position(done),
            Shape::Lines { last } => {
                if last.elapsed() < BETWEEN_LINES {
                    return;
                }
                *last = Instant::now();
                let rate = units::count(units::per_second(done, self.started.elapsed()));
                let done_text = units::count(done);
                match self.total {
                    Some(total) if total > 0 => {
                        let percent = u128::from(done) * 100 / u128::from(total);
                        let total = units::count(total);
                        talk::say(format_args!(
                            "{}: {done_text} of {total} records ({percent} %), {rate}/s",
                            self.label
                        ));
                    }
                    _ => talk::say(format_args!("{}: {done_text} records, {rate}/s", self.label)),
                }
            }
        }
    }

    /// A warning in the midst of the work, without breaking the bar.
    pub(crate) fn warn(&self, line: impl fmt::Display) {
        match &self.shape {
            Shape::Bar(bar) => bar.suspend(|| talk::warn(&line)),
            Shape::Lines { .. } => talk::warn(&line),
        }
    }

    /// How long it has been going on.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Shape::Bar(bar) = &self.shape {
            bar.finish_and_clear();
        }
    }
}

fn bar(label: &str, total: Option<u64>) -> ProgressBar {
    let target = ProgressDrawTarget::stderr_with_hz(10);
    let bar = ProgressBar::with_draw_target(total, target).with_prefix(label.to_owned());
    let template = if total.is_some() {
        "{prefix} [{bar:30}] {human_pos} of {human_len} records, {rate}, {eta} left"
    } else {
        "{prefix} {spinner} {human_pos} records, {rate}"
    };
    // The templates are constants; should one not parse, the plain default bar serves.
    if let Ok(style) = ProgressStyle::with_template(template) {
        let rate = |state: &ProgressState, out: &mut dyn fmt::Write| {
            // Nobody reads the digits behind the point; a bar that fails to write has nothing else to do.
            let _ = write!(out, "{}/s", units::count(state.per_sec() as u64));
        };
        bar.set_style(style.with_key("rate", rate).progress_chars("=> "));
    }
    bar
}

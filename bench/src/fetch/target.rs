//! What is asked of a result, and whether it was met.

use serde::{Deserialize, Serialize};

use super::results::Row;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Bytes of values a second.
    Rate,
    /// Records a second.
    Records,
    /// Processor time for each record.
    CpuPerRecord,
}

/// With whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// A side by its name.
    Side(&'static str),
    /// The best of all clients but ours.
    Best,
    /// The best of the tuned clients but ours.
    BestTuned,
    /// Nobody: the bound is in MB/s.
    Nothing,
}

/// How much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Ours must be so many times theirs, or more.
    AtLeast(f64),
    /// Ours must be so many times theirs, or less.
    AtMost(f64),
}

/// What is asked of a result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// Which side is ours.
    pub ours: &'static str,
    /// What is compared.
    pub metric: Metric,
    /// With whom.
    pub against: Against,
    /// How much.
    pub bound: Bound,
}

/// A target and what came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Verdict {
    /// The target in words.
    pub target: String,
    /// What was measured: the ratio, or MB/s.
    pub measured: Option<f64>,
    /// Whether the target was met.
    pub met: bool,
}

impl Target {
    /// Judges the rows of a scenario.
    pub fn judge(&self, rows: &[Row]) -> Verdict {
        let value = |row: &Row| match self.metric {
            Metric::Rate => row.megabytes_per_second.median,
            Metric::Records => row.records_per_second.median,
            Metric::CpuPerRecord => row.cpu_seconds_per_million,
        };
        let best = |tuned: bool| {
            let peers = rows.iter().filter(|row| !row.side.starts_with("tidegate") && (row.tuned || !tuned));
            peers.max_by(|one, two| value(one).total_cmp(&value(two)))
        };
        let ours = rows.iter().find(|row| row.side == self.ours).map(value);
        let theirs = match self.against {
            Against::Side(name) => rows.iter().find(|row| row.side == name),
            Against::Best => best(false),
            Against::BestTuned => best(true),
            Against::Nothing => None,
        };
        let measured = match (self.against, theirs) {
            (Against::Nothing, _) => ours,
            (_, Some(theirs)) => ours.map(|ours| ours / value(theirs)),
            (_, None) => None,
        };
        let (sign, bound) = match self.bound {
            Bound::AtLeast(bound) => ("at least", bound),
            Bound::AtMost(bound) => ("at most", bound),
        };
        let whom = theirs.map_or("a peer", |row| row.side.as_str());
        let metric = match self.metric {
            Metric::Rate => "rate",
            Metric::Records => "records/s",
            Metric::CpuPerRecord => "processor time a record",
        };
        let target = match self.against {
            Against::Nothing => format!("{}: {sign} {bound} MB/s", self.ours),
            Against::Side(_) => format!("{}: {sign} {bound} x the {metric} of {whom}", self.ours),
            Against::Best => format!("{}: {sign} {bound} x the {metric} of the best peer ({whom})", self.ours),
            Against::BestTuned => {
                format!("{}: {sign} {bound} x the {metric} of the best tuned peer ({whom})", self.ours)
            }
        };
        let met = measured.is_some_and(|measured| match self.bound {
            Bound::AtLeast(bound) => measured >= bound,
            Bound::AtMost(bound) => measured <= bound,
        });
        Verdict { target, measured, met }
    }
}

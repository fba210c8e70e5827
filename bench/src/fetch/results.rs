//! The results of a scenario, as they are kept.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::target::Verdict;
use crate::link::Totals;
use crate::machine::Machine;

/// Everything that a results file holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// The scenario's name.
    pub scenario: String,
    /// Its question.
    pub asks: String,
    /// How to run it again.
    pub command: String,
    /// The machine and the versions.
    pub machine: Machine,
    /// The round trip of the emulated link, in milliseconds; absent on loopback.
    pub round_trip_ms: Option<f64>,
    /// The part of packets that the link loses, each way.
    pub loss: f64,
    /// The link's rate, in bytes a second, if it has one.
    pub rate: Option<u64>,
    /// What passed over the link, near to far and far to near: how late packets were tells how far to trust the figures.
    pub link: Option<[Totals; 2]>,
    /// The broker: its version and its socket buffers.
    pub broker: String,
    /// Its `socket.send.buffer.bytes`.
    pub send_buffer_bytes: i64,
    /// TCP's settings where the clients run.
    pub client_tcp: BTreeMap<String, String>,
    /// TCP's settings where the broker runs.
    pub broker_tcp: BTreeMap<String, String>,
    /// The topic: its partitions, records, and so on, in words.
    pub topic: String,
    /// How many rounds.
    pub rounds: usize,
    /// So many seconds after its first records a client is stopped that has not read everything by then.
    pub limit_seconds: f64,
    /// The hash that every side agreed on before anything was timed, over `verified_records` records.
    pub hash: String,
    /// How many records each side read for it.
    pub verified_records: u64,
    /// The sides, ours first.
    pub rows: Vec<Row>,
    /// What was asked, and what came of it.
    pub verdicts: Vec<Verdict>,
    /// Sides that could not be measured, and why.
    pub left_out: Vec<String>,
}

/// One side of a scenario.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Its name.
    pub side: String,
    /// The client's version.
    pub version: String,
    /// The settings that are not the client's defaults.
    pub settings: BTreeMap<String, String>,
    /// Whether they were chosen for throughput.
    pub tuned: bool,
    /// Whether it spoke TLS.
    pub tls: bool,
    /// Whether it checked every batch's CRC.
    pub checks_crcs: bool,
    /// Bytes of values a second, in MB (10^6 bytes).
    pub megabytes_per_second: Spread,
    /// Records a second.
    pub records_per_second: Spread,
    /// Processor time of the client for each GB (10^9 bytes) of values, in seconds.
    pub cpu_seconds_per_gb: f64,
    /// Processor time of the client for each million records, in seconds.
    pub cpu_seconds_per_million: f64,
    /// Processor time of the broker for each GB of values, in seconds.
    pub broker_cpu_seconds_per_gb: f64,
    /// The most memory the client had resident, in MiB.
    pub peak_mib: f64,
    /// From the making of the consumer to its first records, in seconds.
    pub first_seconds: f64,
    /// Our rate (the side `tidegate`'s) over this one's.
    pub ours_over_this: Option<f64>,
    /// The longest wait for records after a pause, over all rounds, in milliseconds.
    pub longest_gap_ms: Option<f64>,
    /// What the client says of itself, in the last round.
    pub note: Option<String>,
    /// The runs.
    pub runs: Vec<Run>,
}

/// One timed run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Records.
    pub records: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// From the making of the consumer to the last record.
    pub seconds: f64,
    /// From the making of the consumer to its first records.
    pub first_seconds: Option<f64>,
    /// Whether everything was read.
    pub complete: bool,
    /// Processor time in user space, in seconds.
    pub user_seconds: f64,
    /// Processor time in the kernel, in seconds.
    pub system_seconds: f64,
    /// Processor time of the broker meanwhile, in seconds.
    pub broker_seconds: f64,
    /// The most memory, in MiB.
    pub peak_mib: f64,
    /// How many tasks wanted to run on average in the minute before.
    pub load: Option<f64>,
}

/// Several measurements of one thing.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Spread {
    /// The middle one.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
}

impl Spread {
    /// Of some values; all zero for none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (values.first(), values.last()) else { return Self::default() };
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        Self { median, min, max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one_or_between_the_two() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]).median, 2.0);
        let four = Spread::of([4.0, 1.0, 2.0, 3.0]);
        assert_eq!((four.median, four.min, four.max), (2.5, 1.0, 4.0));
    }
}

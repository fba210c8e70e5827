//! The bound of the server's memory, from the limits that a read has.

use serde::Serialize;

/// Fetched record batches of one read that nobody has consumed yet: the engine's budget for one request.
const BUDGET_MIB: f64 = 4.0;
/// The most that one fetch asks for of one partition. It is also at most the partition's share of the budget.
const MAX_FETCH_MIB: f64 = 1.0;
/// Partitions that one read fetches from at once.
const MAX_PARTITIONS_AT_ONCE: u32 = 8;
/// Frames between the encoder and the socket: at most twelve of 256 KiB, as the engine's limits document.
const FRAMES_MIB: f64 = 3.0;
/// The process without a read: code, runtime, librdkafka, the broker's index.
const BASE_MIB: f64 = 64.0;

/// The bound, and what it is made of, in MiB.
#[derive(Debug, Serialize)]
pub struct Bound {
    /// The process without a read.
    pub base_mib: f64,
    /// What each read adds.
    pub read_mib: f64,
    /// Both together, for all readers.
    pub total_mib: f64,
    /// The parts of one read.
    pub parts: Vec<(&'static str, f64)>,
}

impl Bound {
    /// The bound for so many readers of a topic with so many partitions.
    pub fn of(readers: usize, partitions: u32) -> Self {
        let at_once = f64::from(partitions.min(MAX_PARTITIONS_AT_ONCE));
        let fetches = at_once * MAX_FETCH_MIB.min(BUDGET_MIB / at_once);
        let parts = vec![
            ("fetched and not yet consumed (the request's budget)", BUDGET_MIB),
            // A reader whose consumer waits for it may fetch although the others hold the whole budget.
            ("one fetch of each partition beyond it", fetches),
            ("frames under construction and on their way out", FRAMES_MIB),
            // It runs in the same process.
            ("the embedded broker's answers to these fetches", fetches),
        ];
        let read_mib = parts.iter().map(|(_, mib)| mib).sum();
        Self { base_mib: BASE_MIB, read_mib, total_mib: BASE_MIB + readers as f64 * read_mib, parts }
    }
}

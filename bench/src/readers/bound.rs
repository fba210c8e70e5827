//! The bound of the server's memory, from the limits that a read has.

use serde::Serialize;

/// Fetched record batches of one read that nobody has consumed yet: the engine's budget for one request.
const BUDGET_MIB: f64 = 4.0;
/// One more fetch: a reader whose consumer waits for it may fetch beyond the budget.
const FETCH_MIB: f64 = 1.0;
/// Messages: one being filled, one handed over, one encoded and waiting for the connection's window. Each goes out at 512 KiB,
/// but rows stand in memory as objects before they are encoded, and buffers grow by doubling.
const MESSAGES_MIB: f64 = 3.0;
/// The embedded broker runs in the same process and holds the answer to one fetch.
const BROKER_MIB: f64 = 1.0;
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
    /// The bound for so many readers.
    pub fn of(readers: usize) -> Self {
        let parts = vec![
            ("fetched and not yet consumed (the request's budget)", BUDGET_MIB),
            ("one fetch beyond it", FETCH_MIB),
            ("messages on their way out", MESSAGES_MIB),
            ("the embedded broker's answer to one fetch", BROKER_MIB),
        ];
        let read_mib = parts.iter().map(|(_, mib)| mib).sum();
        Self { base_mib: BASE_MIB, read_mib, total_mib: BASE_MIB + readers as f64 * read_mib, parts }
    }
}

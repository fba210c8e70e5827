//! The chunk: a group of record batches of one partition that travels between tasks of the process.

use std::fmt;

use crate::batch::RecordBatch;
use crate::topic::TopicPartition;

/// What a chunk holds of a byte budget. Dropping it gives the bytes back.
///
/// The budget itself lives with the reader that owns it; here it is only something to be dropped.
pub struct Lease(#[expect(dead_code, reason = "kept for its drop")] Box<dyn Send + Sync>);

impl Lease {
    /// Wraps whatever gives the bytes back when it is dropped.
    pub fn new(held: impl Send + Sync + 'static) -> Self {
        Self(Box::new(held))
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lease")
    }
}

/// Record batches of one partition in offset order, with the position behind them.
///
/// A chunk may hold no batch and still advance the position: markers, aborted transactions and emptied batches take
/// offsets and deliver nothing. The first batch may begin before the offset that was asked for (a broker answers with
/// whole batches), so a consumer filters by offset.
#[derive(Debug)]
pub struct Chunk {
    /// Where it was read.
    pub topic_partition: TopicPartition,
    /// The batches that hold records to deliver.
    pub batches: Vec<RecordBatch>,
    /// The position after the chunk: all offsets before it have been considered.
    pub next_offset: i64,
    /// What the chunk holds of its reader's budget.
    pub lease: Option<Lease>,
}

impl Chunk {
    /// The bytes of its records, uncompressed.
    pub fn body_bytes(&self) -> usize {
        self.batches.iter().map(|batch| batch.body().len()).sum()
    }
}

//! The nouns and limits of Tidegate. No I/O, no async, no serde: every other crate may depend on this one, and this one
//! on nothing of ours.
//!
//! - [`topic`]: topic names, topic-partitions.
//! - [`offset`]: half-open offset ranges.
//! - [`time`]: time ranges and timestamp types.
//! - [`batch`]: the record batch as it stands in memory, read in place.
//! - [`chunk`]: the in-process group of record batches that travels between tasks.
//! - [`payload`]: what the bytes of a value are.
//! - [`isolation`]: which records of transactions a reader sees.

pub mod batch;
pub mod chunk;
pub mod isolation;
pub mod offset;
pub mod payload;
pub mod time;
pub mod topic;
mod varint;

pub use batch::{
    BatchAttributes, BatchHeader, Compression, Header, Headers, Record, RecordBatch, RecordError, Records,
};
pub use chunk::{Chunk, Lease};
pub use isolation::Isolation;
pub use offset::OffsetRange;
pub use payload::PayloadKind;
pub use time::{NO_TIMESTAMP, TimeRange, TimestampType};
pub use topic::{TopicName, TopicNameError, TopicPartition};
pub use varint::{VarintError, read_varint, read_varlong, varint_len, write_varint, write_varlong};

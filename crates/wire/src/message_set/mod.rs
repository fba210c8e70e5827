//! Record sets of any age: message sets of formats v0 and v1 (`org.apache.kafka.common.record.LegacyRecord`,
//! `AbstractLegacyRecordBatch`; KIP-31 and KIP-32) beside record batches of v2. A log keeps each entry in the format in which
//! it was written, so one answer may hold all three.
//!
//! An old message is read into a record batch of v2 in memory: same offset, timestamp, timestamp type, key and value, and no
//! headers. All that reads records then knows one format only, and what a record takes of memory does not grow: a message of
//! v0 or v1 has 26 or 34 bytes in front of its key and value, a record of v2 at most 32. Where v2 is a view into the fetched
//! bytes, old messages are copied once; a compressed wrapper exists twice for a moment, as messages and as a batch.
//!
//! ```text
//! offset i64 | length i32 | crc32 u32 | magic i8 | attributes i8 | v1: timestamp i64 | key | value    (i32 lengths, -1: null)
//! ```
//! A compressed message, a *wrapper*, has a message set as its value. Its own offset is that of the last message inside. In
//! v0 the offsets inside are those of the log; in v1 they count from the first (and a few producers wrote those of the log all
//! the same, which the same subtraction reads rightly).

mod message;
mod raw;
mod split;

pub use raw::RawMessages;
pub use split::{RecordSetSplitter, Stored, split_record_set};

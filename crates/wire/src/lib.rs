//! Kafka's bytes to values and back: size-prefixed frames, record batches (message format v2) and the message sets of older
//! logs (v0 and v1, read only), with every length checked before it is believed. No I/O, no clock.
//!
//! - [`frame`]: the size in front of every request and response.
//! - [`batch`]: splitting a record set into batches in place, opening them, writing them, and what a broker does to them.
//! - [`message_set`]: the record set of a log of any age; messages of v0 and v1 are read into batches of v2.
//! - [`compression`]: the codecs, each under an output cap.
//! - [`crc32c`]: the checksum of batches.
//!
//! The batch header and the record view themselves are nouns of `tidegate-model`.

pub mod batch;
pub mod compression;
mod crc;
pub mod frame;
pub mod message_set;

pub use batch::{
    BatchError, BatchLimits, BatchOptions, BatchSpan, BatchSplitter, BatchWriter, ControlRecord, ControlRecordError,
    DEFAULT_MAX_BATCH_BYTES, HEADER_BYTES, Leftover, Marker, MarkerKind, MessageError, ProduceBatchError,
    ProducedBatch, RawBatch, TimestampIndex, TimestampOffset, WriteError, batch_bytes, check_produced,
    first_at_or_after, index_timestamps, parse_header, rewrite_for_append, split_batches, with_max_timestamp,
    write_marker,
};
pub use compression::{CompressError, DecompressError};
pub use crc::{crc32c, crc32c_append};
pub use frame::{FrameError, FrameLimit, read_frame_size};
pub use message_set::{RawMessages, RecordSetSplitter, Stored, split_record_set};

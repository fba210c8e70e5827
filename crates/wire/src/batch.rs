//! Record batches, message format v2 (KIP-98; `org.apache.kafka.common.record.DefaultRecordBatch`).
//!
//! This is what a broker takes and keeps, so [`split_batches`] refuses older formats by name
//! ([`BatchError::UnsupportedMagic`]); a reader of old logs uses [`crate::split_record_set`].
//!
//! Reading: [`split_batches`] cuts a record set into [`RawBatch`]es without copying, [`RawBatch::open`] checks and
//! decompresses one, and the records are then read in place by [`tidegate_model::RecordBatch`].
//!
//! Writing: [`BatchWriter`]; [`write_marker`] for transaction markers.
//!
//! A broker's part: [`check_produced`], [`rewrite_for_append`], [`index_timestamps`].

mod append;
mod control;
mod error;
mod header;
mod produce;
mod raw;
mod split;
mod timestamps;
mod writer;

pub use append::{rewrite_for_append, with_max_timestamp};
pub use control::{ControlRecord, ControlRecordError, Marker, MarkerKind, write_marker};
pub use error::{BatchError, BatchSpan, MessageError};
pub(crate) use header::LENGTH_PREFIX_BYTES;
pub use header::{HEADER_BYTES, batch_bytes, parse_header};
pub use produce::{ProduceBatchError, ProducedBatch, check_produced};
pub use raw::{BatchLimits, RawBatch};
pub use split::{BatchSplitter, DEFAULT_MAX_BATCH_BYTES, Leftover, split_batches};
pub(crate) use split::{LEAST_LENGTH, magic_of};
pub use timestamps::{TimestampIndex, TimestampOffset, first_at_or_after, index_timestamps};
pub use writer::{BatchOptions, BatchWriter, WriteError};

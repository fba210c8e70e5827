//! How records become the frames of an output format.

use tidegate_codec::registry::SchemaKey;
use tidegate_model::Record;
use tidegate_plan::EndStatement;

use super::Resolved;

/// Turns records into the frames of one output format. One pass: the engine decides which records belong to the range, the
/// encoder writes them.
///
/// A frame is what goes out at once: an encoder emits one when 256 KiB to 1 MiB have come together, and otherwise when the
/// engine asks for what is pending.
pub trait Encode: Send + 'static {
    /// One frame: a message, or some bytes of a body.
    type Frame: Send + 'static;

    /// The schema that the encoder must learn before it can write the record. An encoder that writes values as they are
    /// stored needs none.
    fn needs(&self, record: &Record<'_>) -> Option<SchemaKey>;

    /// Learns what became of a schema.
    fn learn(&mut self, key: SchemaKey, schema: Resolved);

    /// Adds one record of `partition`. Frames that are full go to the end of `out`.
    ///
    /// # Errors
    /// [`EncodeError`] when the format cannot hold the record. It ends the stream; frames in `out` and pending records are
    /// still sent before.
    fn push(&mut self, partition: i32, record: &Record<'_>, out: &mut Vec<Self::Frame>) -> Result<(), EncodeError>;

    /// Emits what is pending; nothing when nothing is. Called when a record has waited for as long as the engine's limits
    /// allow.
    fn flush(&mut self, out: &mut Vec<Self::Frame>);

    /// Emits what is pending and then the end statement.
    ///
    /// # Errors
    /// [`EncodeError::EndTooLarge`] when the format cannot hold it.
    fn finish(&mut self, end: &EndStatement, out: &mut Vec<Self::Frame>) -> Result<(), EncodeError>;

    /// How many values could not be converted and were written as stored.
    fn values_not_converted(&self) -> u64;
}

/// Why a format cannot hold what it was given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A record is larger than a message may be.
    #[error(
        "partition {partition}, offset {offset}: the record needs a message of {needed_bytes} bytes, \
         {allowed_bytes} are allowed; raise {field}"
    )]
    RecordTooLarge {
        /// The record's partition.
        partition: i32,
        /// The record's offset.
        offset: i64,
        /// How large the message would be that holds only this record.
        needed_bytes: u64,
        /// How large a message may be.
        allowed_bytes: u64,
        /// The field of the request that says so.
        field: &'static str,
    },
    /// The end statement is larger than a message may be.
    #[error("the end statement needs a message of {needed_bytes} bytes, {allowed_bytes} are allowed; raise {field}")]
    EndTooLarge {
        /// How large the message would be.
        needed_bytes: u64,
        /// How large a message may be.
        allowed_bytes: u64,
        /// The field of the request that says so.
        field: &'static str,
    },
    /// A value cannot be given in the format, and the format has no way of giving it as stored.
    #[error("partition {partition}, offset {offset}: {reason}")]
    Value {
        /// The record's partition.
        partition: i32,
        /// The record's offset.
        offset: i64,
        /// Why not.
        reason: String,
    },
}

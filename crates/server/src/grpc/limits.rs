//! How large a message may be, and when it goes out.

use crate::engine::{EncodeError, EngineLimits};

/// The field of the request that sets the limit.
pub(super) const MAX_MESSAGE_FIELD: &str = "max_message_bytes";

/// What default gRPC clients accept.
pub(super) const DEFAULT_MAX_MESSAGE_BYTES: usize = 4 << 20;

/// The smallest limit that a request may set: less holds no useful message.
pub(super) const MIN_MAX_MESSAGE_BYTES: usize = 4 << 10;

/// How large messages may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MessageLimits {
    /// No message is larger, whatever it holds.
    pub(super) max: usize,
    /// A message of several records is at most this large.
    pub(super) shared: usize,
    /// A message of this size goes out.
    pub(super) target: usize,
}

impl MessageLimits {
    /// The limits of a request that allows messages of `max` bytes, on an engine whose frames go out at `target`.
    pub(super) fn new(max: usize, target: usize) -> Self {
        let shared = max.min(EngineLimits::MAX_CHUNK_BYTES);
        Self { max, shared, target: target.min(shared) }
    }

    /// The error for a record that does not fit.
    pub(super) fn record_too_large(&self, partition: i32, offset: i64, needed: usize) -> EncodeError {
        EncodeError::RecordTooLarge {
            partition,
            offset,
            needed_bytes: needed as u64,
            allowed_bytes: self.max as u64,
            field: MAX_MESSAGE_FIELD,
        }
    }
}

//! Records become messages: what the layouts have in common.
//!
//! A message holds records of one partition. Several partitions are read at once, so one message is under construction for
//! each; together they hold at most [`MAX_OPEN_TARGETS`] messages' worth of bytes.

use prost::Message as _;
use tidegate_api::encoded::EncodedReadRangeResponse;
use tidegate_codec::registry::SchemaKey;
use tidegate_model::{Headers, Record, TimestampType};
use tidegate_plan::EndStatement;

use super::convert;
use super::limits::{MAX_MESSAGE_FIELD, MessageLimits};
use super::values::Values;
use crate::engine::{Encode, EncodeError, Resolved};

/// How many full messages' worth of bytes the messages under construction may hold together. Not reached by as many
/// partitions as are read at once by default; with more, the largest of them goes out before it is full.
const MAX_OPEN_TARGETS: usize = 8;

/// One record as it goes out.
pub(super) struct Row<'a> {
    pub(super) offset: i64,
    pub(super) timestamp_ms: i64,
    pub(super) timestamp_type: TimestampType,
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: Option<&'a [u8]>,
    /// Why the value is not JSON although JSON was asked for; empty when it is.
    pub(super) value_error: &'a str,
    pub(super) headers: Headers<'a>,
}

/// A message of one partition under construction.
pub(super) trait Message: Send + 'static {
    /// An empty one.
    fn new(partition: i32) -> Self;

    /// The partition.
    fn partition(&self) -> i32;

    /// Whether it holds no record.
    fn is_empty(&self) -> bool;

    /// Whether the row can stand beside those that it holds.
    fn suits(&self, row: &Row<'_>) -> bool;

    /// How large the whole message would be with the row, envelope included.
    fn len_with(&self, row: &Row<'_>) -> usize;

    /// Adds the row.
    fn add(&mut self, row: &Row<'_>);

    /// The message as it goes out; an empty one stays behind.
    fn take(&mut self) -> EncodedReadRangeResponse;
}

/// Encodes records in the layout of `M`.
pub(super) struct MessageEncoder<M> {
    values: Values,
    limits: MessageLimits,
    open: Vec<Open<M>>,
    /// Which of them took the last record: the next one mostly goes there too.
    last: usize,
    /// The sum of their sizes.
    open_bytes: usize,
}

struct Open<M> {
    message: M,
    len: usize,
}

impl<M: Message> MessageEncoder<M> {
    pub(super) fn new(values: Values, limits: MessageLimits) -> Self {
        Self { values, limits, open: Vec::new(), last: 0, open_bytes: 0 }
    }

    /// Turns to the message under construction for a partition.
    fn turn_to(&mut self, partition: i32) {
        if self.open.get(self.last).is_some_and(|open| open.message.partition() == partition) {
            return;
        }
        self.last = match self.open.iter().position(|open| open.message.partition() == partition) {
            Some(index) => index,
            None => {
                self.open.push(Open { message: M::new(partition), len: 0 });
                self.open.len() - 1
            }
        };
    }
}

impl<M: Message> Encode for MessageEncoder<M> {
    type Frame = EncodedReadRangeResponse;

    fn needs(&self, record: &Record<'_>) -> Option<SchemaKey> {
        self.values.needs(record)
    }

    fn learn(&mut self, key: SchemaKey, schema: Resolved) {
        self.values.learn(key, schema);
    }

    fn push(&mut self, partition: i32, record: &Record<'_>, out: &mut Vec<Self::Frame>) -> Result<(), EncodeError> {
        self.turn_to(partition);
        let open = &mut self.open[self.last];
        let shown = self.values.show(record.value, record.headers);
        let row = Row {
            offset: record.offset,
            timestamp_ms: record.timestamp_ms,
            timestamp_type: record.timestamp_type,
            key: record.key,
            value: shown.value,
            value_error: &shown.error,
            headers: record.headers,
        };
        let mut len = open.message.len_with(&row);
        if !open.message.is_empty() && (len > self.limits.shared || !open.message.suits(&row)) {
            out.push(open.take(&mut self.open_bytes));
            len = open.message.len_with(&row);
        }
        if len > self.limits.max {
            return Err(self.limits.record_too_large(partition, record.offset, len));
        }
        open.message.add(&row);
        self.open_bytes += len - open.len;
        open.len = len;
        if len >= self.limits.target {
            out.push(open.take(&mut self.open_bytes));
        } else if self.open_bytes >= self.limits.target.saturating_mul(MAX_OPEN_TARGETS)
            && let Some(largest) = self.open.iter_mut().max_by_key(|open| open.len)
        {
            out.push(largest.take(&mut self.open_bytes));
        }
        Ok(())
    }

    fn flush(&mut self, out: &mut Vec<Self::Frame>) {
        let pending = self.open.iter_mut().filter(|open| !open.message.is_empty());
        out.extend(pending.map(|open| open.take(&mut self.open_bytes)));
    }

    fn finish(&mut self, end: &EndStatement, out: &mut Vec<Self::Frame>) -> Result<(), EncodeError> {
        self.flush(out);
        let message = convert::end_message(end);
        let needed = message.encoded_len();
        if needed > self.limits.max {
            return Err(EncodeError::EndTooLarge {
                needed_bytes: needed as u64,
                allowed_bytes: self.limits.max as u64,
                field: MAX_MESSAGE_FIELD,
            });
        }
        out.push(EncodedReadRangeResponse::from(&message));
        Ok(())
    }

    fn values_not_converted(&self) -> u64 {
        self.values.not_converted()
    }
}

impl<M: Message> Open<M> {
    fn take(&mut self, open_bytes: &mut usize) -> EncodedReadRangeResponse {
        let message = self.message.take();
        debug_assert_eq!(message.encoded_len(), self.len, "the size was worked out before");
        *open_bytes -= self.len;
        self.len = 0;
        message
    }
}

/// The number of a timestamp type on the wire.
pub(super) fn timestamp_type_number(timestamp_type: TimestampType) -> i64 {
    i64::from(i32::from(convert::timestamp_type(timestamp_type)))
}

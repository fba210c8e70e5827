//! Messages as stored, and how they become a batch.

use bytes::Bytes;
use tidegate_model::{Compression, RecordBatch, TimestampType};

use super::message::{Message, Messages, check_crc};
use crate::batch::{BatchError, BatchLimits, BatchOptions, BatchSpan, BatchWriter, MessageError};
use crate::compression;

/// Messages of format v0 or v1 as stored, which become one batch: a compressed wrapper, or uncompressed messages one behind
/// the other. Cheap to clone: the bytes are a view into the record set.
#[derive(Clone, Debug)]
pub struct RawMessages {
    bytes: Bytes,
    span: BatchSpan,
    next_offset: i64,
    is_wrapper: bool,
}

/// What uncompressed messages must share to become one batch. Under LogAppendTime a batch has one timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kinship {
    magic: i8,
    append_time_ms: Option<i64>,
}

impl Kinship {
    pub(super) fn of(message: &Message<'_>) -> Self {
        let append_time_ms = (message.timestamp_type() == TimestampType::LogAppendTime).then_some(message.timestamp_ms);
        Self { magic: message.magic, append_time_ms }
    }
}

impl RawMessages {
    /// `bytes` are whole messages whose CRCs were checked, of one [`Kinship`], with rising offsets.
    pub(super) fn uncompressed(bytes: Bytes, first_offset: i64, last_offset: i64, next_offset: i64) -> Self {
        let span = BatchSpan { base_offset: first_offset, last_offset: Some(last_offset) };
        Self { bytes, span, next_offset, is_wrapper: false }
    }

    /// `bytes` are one compressed message, which holds no offset before `from`.
    pub(super) fn wrapper(bytes: Bytes, from: i64, last_offset: i64, next_offset: i64) -> Self {
        let span = BatchSpan { base_offset: from.min(last_offset), last_offset: Some(last_offset) };
        Self { bytes, span, next_offset, is_wrapper: true }
    }

    /// Which offsets they cover. Where a wrapper begins is written inside of it: the first offset is then the one behind the
    /// entry in front.
    pub fn span(&self) -> BatchSpan {
        self.span
    }

    /// The first offset after them.
    pub fn next_offset(&self) -> i64 {
        self.next_offset
    }

    /// The bytes as stored.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Whether they are compressed.
    pub fn is_compressed(&self) -> bool {
        self.is_wrapper
    }

    /// The messages as a batch of v2, checked, decompressed if they are compressed, and copied in any case. See the
    /// [module](super) for what is kept.
    ///
    /// # Errors
    /// [`BatchError::Crc`], [`BatchError::UnknownCodec`], [`BatchError::Decompress`], and [`BatchError::Message`] when
    /// something inside a wrapper cannot be read.
    pub fn open(&self, limits: &BatchLimits) -> Result<RecordBatch, BatchError> {
        let unreadable = |source| BatchError::Message { at: self.span, source };
        if !self.is_wrapper {
            // Their CRCs were checked when they were split, if at all.
            let set = Set { bytes: &self.bytes, shift: 0, append_time_ms: None };
            return set.convert(self.span.base_offset).map_err(unreadable);
        }
        if limits.check_crcs {
            check_crc(&self.bytes).map_err(|(stored, computed)| BatchError::Crc { at: self.span, stored, computed })?;
        }
        let wrapper = Message::parse(&self.bytes).map_err(unreadable)?;
        let inner = self.decompress(&wrapper, limits)?;
        let (first, last) = ends(Messages::new(&inner, limits.check_crcs), &wrapper).map_err(unreadable)?;
        let shift = match wrapper.magic {
            0 if last == wrapper.offset => 0,
            1 if last <= wrapper.offset => wrapper.offset - last,
            _ => return Err(unreadable(MessageError::LastOffset { offset: wrapper.offset, last })),
        };
        let append_time_ms = Kinship::of(&wrapper).append_time_ms;
        let set = Set { bytes: &inner, shift, append_time_ms };
        set.convert(first.saturating_add(shift)).map_err(unreadable)
    }

    fn decompress(&self, wrapper: &Message<'_>, limits: &BatchLimits) -> Result<Bytes, BatchError> {
        let (at, offset) = (self.span, wrapper.offset);
        let unreadable = |source| BatchError::Message { at, source };
        let codec = wrapper.compression().map_err(|codec| BatchError::UnknownCodec { at, codec })?;
        if codec == Compression::Zstd {
            let magic = wrapper.magic;
            return Err(unreadable(MessageError::Codec { offset, codec: codec.name(), magic }));
        }
        let value = wrapper.value.filter(|value| !value.is_empty());
        let value = self.bytes.slice_ref(value.ok_or_else(|| unreadable(MessageError::EmptyWrapper { offset }))?);
        let inner = match wrapper.magic {
            0 => compression::decompress_v0(codec, &value, limits.max_decompressed_bytes),
            _ => compression::decompress(codec, &value, limits.max_decompressed_bytes),
        };
        inner.map_err(|source| BatchError::Decompress { at, source })
    }
}

/// The first and the last offset inside a wrapper, all its messages checked on the way.
fn ends(messages: Messages<'_>, wrapper: &Message<'_>) -> Result<(i64, i64), MessageError> {
    let mut ends = None;
    for message in messages {
        let message = message?;
        let offset = message.offset;
        if message.compression() != Ok(Compression::None) {
            return Err(MessageError::Nested { offset });
        }
        let (first, before) = ends.unwrap_or((offset, offset.saturating_sub(1)));
        if offset < 0 || offset <= before || !is_near(first, offset) {
            return Err(MessageError::Order { offset, before });
        }
        ends = Some((first, offset));
    }
    ends.ok_or(MessageError::EmptyWrapper { offset: wrapper.offset })
}

/// Whether a batch that begins at `first` can reach to `offset`.
pub(super) fn is_near(first: i64, offset: i64) -> bool {
    offset.checked_sub(first).is_some_and(|delta| (0..i64::from(i32::MAX)).contains(&delta))
}

/// A message set whose CRCs were checked, and what the wrapper around it adds.
struct Set<'a> {
    bytes: &'a [u8],
    /// What to add to each offset.
    shift: i64,
    /// A wrapper under LogAppendTime overrides the timestamps inside.
    append_time_ms: Option<i64>,
}

impl Set<'_> {
    /// The batch that begins at `base_offset`.
    fn convert(&self, base_offset: i64) -> Result<RecordBatch, MessageError> {
        let mut writer = None;
        let mut next_offset = base_offset;
        for message in Messages::new(self.bytes, false) {
            let message = message?;
            let writer = writer.get_or_insert_with(|| {
                let log_append_time_ms = self.append_time_ms.or(Kinship::of(&message).append_time_ms);
                let options = BatchOptions { base_offset, log_append_time_ms, ..BatchOptions::default() };
                // A record is never longer than its message was.
                BatchWriter::with_capacity(options, self.bytes.len())
            });
            let offset = message.offset.saturating_add(self.shift);
            let order = MessageError::Order { offset, before: next_offset.saturating_sub(1) };
            let gap = offset.checked_sub(next_offset).and_then(|gap| u32::try_from(gap).ok()).ok_or(order)?;
            writer.skip(gap).map_err(|_| order)?;
            next_offset = offset.saturating_add(1);
            // Lengths and offsets are in their ranges: what is left is a timestamp too far from the first one.
            writer.append(message.timestamp_ms, message.key, message.value, []).map_err(|_| MessageError::Field {
                offset,
                field: "timestamp",
                value: message.timestamp_ms,
            })?;
        }
        let writer = writer.ok_or(MessageError::EmptyWrapper { offset: base_offset })?;
        writer.into_record_batch().map_err(|_| MessageError::Field {
            offset: base_offset,
            field: "size in bytes",
            value: i64::try_from(self.bytes.len()).unwrap_or(i64::MAX),
        })
    }
}

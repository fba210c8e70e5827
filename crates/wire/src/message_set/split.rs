//! A record set cut into what becomes a batch each.

use bytes::Bytes;
use tidegate_model::{Compression, RecordBatch};

use super::message::{Message, check_crc, entry_ahead};
use super::raw::{Kinship, RawMessages, is_near};
use crate::batch::{
    BatchError, BatchLimits, BatchSpan, BatchSplitter, Leftover, MessageError, RawBatch, magic_of, split_batches,
};

/// So many bytes of uncompressed messages become one batch, or one message if it is larger.
const RUN_BYTES: usize = 256 * 1024;

/// Splits the record set of one partition's fetch response, of any message format.
///
/// `from` is the offset that was asked for: what a wrapper holds from before it is of no interest. See [`RecordSetSplitter`].
pub fn split_record_set(record_set: Bytes, from: i64, check_crcs: bool) -> RecordSetSplitter {
    RecordSetSplitter { batches: split_batches(record_set), from: from.max(0), check_crcs }
}

/// What a record set holds, in order. See [`split_record_set`].
///
/// It behaves as [`BatchSplitter`] does: a cut entry at the end is left over, an entry that cannot be read but whose length is
/// sound is an error and the iteration goes on behind it, and after a length that cannot be true it ends.
///
/// The CRC of an uncompressed old message is checked here, so that one damaged message does not take its neighbours with it.
#[derive(Clone, Debug)]
pub struct RecordSetSplitter {
    batches: BatchSplitter,
    /// No offset before it is in what comes.
    from: i64,
    check_crcs: bool,
}

/// One part of a record set, as stored.
#[derive(Clone, Debug)]
pub enum Stored {
    /// A batch of v2.
    Batch(RawBatch),
    /// Messages of v0 or v1.
    Messages(RawMessages),
}

impl Stored {
    /// Which offsets it covers. See [`RawMessages::span`].
    pub fn span(&self) -> BatchSpan {
        match self {
            Self::Batch(raw) => BatchSpan::of(raw.header()),
            Self::Messages(raw) => raw.span(),
        }
    }

    /// The first offset after it.
    pub fn next_offset(&self) -> i64 {
        match self {
            Self::Batch(raw) => raw.header().next_offset(),
            Self::Messages(raw) => raw.next_offset(),
        }
    }

    /// Its bytes as stored.
    pub fn bytes(&self) -> &Bytes {
        match self {
            Self::Batch(raw) => raw.bytes(),
            Self::Messages(raw) => raw.bytes(),
        }
    }

    /// Whether it is compressed.
    pub fn is_compressed(&self) -> bool {
        match self {
            Self::Batch(raw) => raw.header().attributes.compression() != Ok(Compression::None),
            Self::Messages(raw) => raw.is_compressed(),
        }
    }

    /// Whether an opened batch keeps its records in memory of its own, and not in the record set.
    pub fn is_copied(&self) -> bool {
        matches!(self, Self::Messages(_)) || self.is_compressed()
    }

    /// See [`RawBatch::open`] and [`RawMessages::open`].
    ///
    /// # Errors
    /// As those.
    pub fn open(&self, limits: &BatchLimits) -> Result<RecordBatch, BatchError> {
        match self {
            Self::Batch(raw) => raw.open(limits),
            Self::Messages(raw) => raw.open(limits),
        }
    }
}

impl RecordSetSplitter {
    /// See [`BatchSplitter::max_batch_bytes`].
    #[must_use]
    pub fn max_batch_bytes(self, bytes: usize) -> Self {
        Self { batches: self.batches.max_batch_bytes(bytes), ..self }
    }

    /// See [`BatchSplitter::leftover`].
    pub fn leftover(&self) -> Option<Leftover> {
        self.batches.leftover()
    }

    /// The next messages of an old format; `Ok(None)`: cut off.
    fn read_messages(&mut self) -> Result<Option<RawMessages>, BatchError> {
        let set = self.batches.rest().clone();
        let Some((offset, entry)) = self.batches.cut()? else { return Ok(None) };
        let at = BatchSpan { base_offset: offset, last_offset: Some(offset) };
        let next_offset = offset.checked_add(1).filter(|_| offset >= 0);
        let next_offset = next_offset.ok_or(BatchError::Header { at, field: "offset", value: offset })?;
        let message = self.parse(&entry, at)?;
        if message.compression() != Ok(Compression::None) {
            return Ok(Some(RawMessages::wrapper(entry.clone(), self.from, offset, next_offset)));
        }
        let kin = Kinship::of(&message);
        let (mut bytes, mut last) = (entry.len(), offset);
        let most = RUN_BYTES.min(self.batches.most_batch_bytes());
        while let Some((offset, entry)) = self.peek()
            && bytes.saturating_add(entry.len()) <= most
            && offset > last
            && is_near(at.base_offset, offset)
            && self
                .parse(&entry, at)
                .is_ok_and(|next| next.compression() == Ok(Compression::None) && Kinship::of(&next) == kin)
        {
            self.batches.cut()?;
            bytes = bytes.saturating_add(entry.len());
            last = offset;
        }
        let run = set.slice(..bytes.min(set.len()));
        Ok(Some(RawMessages::uncompressed(run, at.base_offset, last, last.saturating_add(1))))
    }

    /// The next entry, if it is a whole message of an old format.
    fn peek(&self) -> Option<(i64, Bytes)> {
        let rest = self.batches.rest();
        let is_old = matches!(magic_of(rest), Some(0 | 1));
        let (offset, bytes) = entry_ahead(rest).ok().filter(|_| is_old)?;
        (bytes <= rest.len()).then(|| (offset, rest.slice(..bytes)))
    }

    /// The message of an entry, its CRC checked unless it is a wrapper, which checks it when it is opened.
    fn parse<'a>(&self, entry: &'a Bytes, at: BatchSpan) -> Result<Message<'a>, BatchError> {
        let parsed = Message::parse(entry);
        let is_wrapper = parsed.as_ref().is_ok_and(|message| message.compression() != Ok(Compression::None));
        if self.check_crcs && !is_wrapper {
            check_crc(entry).map_err(|(stored, computed)| BatchError::Crc { at, stored, computed })?;
        }
        parsed.map_err(|source: MessageError| BatchError::Message { at, source })
    }
}

impl Iterator for RecordSetSplitter {
    type Item = Result<Stored, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = if matches!(magic_of(self.batches.rest()), Some(0 | 1)) {
            match self.read_messages().transpose() {
                Some(messages) => messages.map(Stored::Messages),
                // Cut off: the batches come to the same end, and keep what is left over.
                None => self.batches.next()?.map(Stored::Batch),
            }
        } else {
            self.batches.next()?.map(Stored::Batch)
        };
        let next = match &item {
            Ok(stored) => Some(stored.next_offset()),
            Err(error) => error.at().next_offset(),
        };
        self.from = self.from.max(next.unwrap_or(0));
        Some(item)
    }
}

impl std::iter::FusedIterator for RecordSetSplitter {}

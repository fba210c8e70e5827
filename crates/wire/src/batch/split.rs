//! A record set cut into its batches, in place.

use bytes::Bytes;

use super::error::{BatchError, BatchSpan};
use super::header::{HEADER_BYTES, LENGTH_AT, LENGTH_PREFIX_BYTES, MAGIC, MAGIC_AT, legacy_span, parse_header};
use super::raw::RawBatch;

/// The largest batch that a splitter accepts unless told otherwise: 256 MiB. Kafka itself takes no request beyond
/// `socket.request.max.bytes`, 100 MiB by default.
pub const DEFAULT_MAX_BATCH_BYTES: usize = 256 * 1024 * 1024;

/// The shortest entry of any format after its length field: an empty v0 message (CRC, magic, attributes, two lengths).
pub(crate) const LEAST_LENGTH: usize = 14;

/// Splits the record set of one partition's fetch response, or of a produce request, into batches.
///
/// Nothing is copied: each batch is a view into `record_set`. See [`BatchSplitter`].
pub fn split_batches(record_set: Bytes) -> BatchSplitter {
    BatchSplitter { rest: record_set, max_batch_bytes: DEFAULT_MAX_BATCH_BYTES, ended: false }
}

/// The batches of a record set, in order. See [`split_batches`].
///
/// - A batch that is cut off at the end, as a fetch response may have it, ends the iteration without an error;
///   [`BatchSplitter::leftover`] then tells what remains.
/// - A batch that cannot be read but whose length is sound is an error, and the iteration goes on behind it.
/// - After a length that cannot be true, or a message format that nobody knows, the iteration ends: where the next batch
///   begins is then not known.
#[derive(Clone, Debug)]
pub struct BatchSplitter {
    rest: Bytes,
    max_batch_bytes: usize,
    ended: bool,
}

/// What remains of a record set behind its last whole batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// How many bytes of the cut batch are there.
    pub bytes: usize,
    /// The cut batch's base offset, if those bytes are there.
    pub base_offset: Option<i64>,
    /// The cut batch's whole size, if its length field is there; never beyond the splitter's limit.
    pub batch_bytes: Option<usize>,
}

impl BatchSplitter {
    /// Takes batches up to `bytes`, header included, in place of [`DEFAULT_MAX_BATCH_BYTES`]. A larger one is a
    /// [`BatchError::Length`], also when it is cut off.
    #[must_use]
    pub fn max_batch_bytes(mut self, bytes: usize) -> Self {
        self.max_batch_bytes = bytes;
        self
    }

    /// What is left of a cut batch at the end; `None` before the iteration has ended, when the record set ends with a whole
    /// batch, and after an error that ended it.
    pub fn leftover(&self) -> Option<Leftover> {
        if !self.ended || self.rest.is_empty() {
            return None;
        }
        let base_offset = self.rest.first_chunk().map(|bytes| i64::from_be_bytes(*bytes));
        let batch_bytes = self.stated_length().and_then(|length| usize::try_from(length).ok());
        let batch_bytes = batch_bytes.map(|length| length.saturating_add(LENGTH_PREFIX_BYTES));
        Some(Leftover { bytes: self.rest.len(), base_offset, batch_bytes })
    }

    fn stated_length(&self) -> Option<i32> {
        self.rest.get(LENGTH_AT..)?.first_chunk().map(|bytes| i32::from_be_bytes(*bytes))
    }

    /// `Ok(None)`: cut off.
    fn read_next(&mut self) -> Result<Option<RawBatch>, BatchError> {
        let Some((base_offset, batch)) = self.cut()? else { return Ok(None) };
        // The least length of any format reaches beyond the magic byte.
        let magic = magic_of(&batch).unwrap_or(0);
        if let Some(header) = batch.first_chunk().filter(|_| magic == MAGIC) {
            return parse_header(header).map(|header| Some(RawBatch::from_parts(header, batch)));
        }
        if !matches!(magic, 0 | 1) {
            self.abandon();
        }
        Err(BatchError::UnsupportedMagic { at: legacy_span(base_offset, magic), magic })
    }

    /// What is not split yet.
    pub(crate) fn rest(&self) -> &Bytes {
        &self.rest
    }

    /// What [`BatchSplitter::max_batch_bytes`] set.
    pub(crate) fn most_batch_bytes(&self) -> usize {
        self.max_batch_bytes
    }

    /// Takes the next entry, a batch or a message of an old format, with the offset in front of it. `Ok(None)`: cut off.
    pub(crate) fn cut(&mut self) -> Result<Option<(i64, Bytes)>, BatchError> {
        let Some(base_offset) = self.rest.first_chunk().map(|bytes| i64::from_be_bytes(*bytes)) else {
            return Ok(None);
        };
        let Some(batch_length) = self.stated_length() else { return Ok(None) };
        let least = match magic_of(&self.rest) {
            Some(MAGIC) => HEADER_BYTES - LENGTH_PREFIX_BYTES,
            _ => LEAST_LENGTH,
        };
        let most = self.max_batch_bytes.saturating_sub(LENGTH_PREFIX_BYTES);
        let length = usize::try_from(batch_length).ok().filter(|length| (least..=most).contains(length));
        let Some(length) = length else {
            let at = self.stated_span(base_offset);
            self.abandon();
            return Err(BatchError::Length { at, batch_length, least, most });
        };
        let Some(total) = length.checked_add(LENGTH_PREFIX_BYTES).filter(|total| *total <= self.rest.len()) else {
            return Ok(None);
        };
        Ok(Some((base_offset, self.rest.split_to(total))))
    }

    /// Ends the iteration where nobody knows where the next batch begins.
    fn abandon(&mut self) {
        self.ended = true;
        self.rest.clear();
    }

    /// The offsets of a batch whose length lies, from the header if it is there.
    fn stated_span(&self, base_offset: i64) -> BatchSpan {
        match self.rest.first_chunk::<HEADER_BYTES>().map(parse_header) {
            Some(Ok(header)) => BatchSpan::of(&header),
            Some(Err(error)) => error.at(),
            None => BatchSpan { base_offset, last_offset: None },
        }
    }
}

/// The magic byte of an entry, if it is there.
pub(crate) fn magic_of(entry: &[u8]) -> Option<i8> {
    entry.get(MAGIC_AT).map(|magic| i8::from_be_bytes([*magic]))
}

impl Iterator for BatchSplitter {
    type Item = Result<RawBatch, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let item = self.read_next().transpose();
        self.ended |= item.is_none();
        item
    }
}

impl std::iter::FusedIterator for BatchSplitter {}

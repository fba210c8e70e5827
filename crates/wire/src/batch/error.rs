//! Why a record batch cannot be read.

use std::fmt;

use tidegate_model::{BatchHeader, RecordError};

use crate::compression::DecompressError;

/// Which offsets a batch covers, as far as its bytes tell. A caller adds the topic-partition, and skips to
/// [`BatchSpan::next_offset`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSpan {
    /// The first offset, from the first field of the batch.
    pub base_offset: i64,
    /// The last offset; `None` when the bytes are too few or too wrong to tell.
    pub last_offset: Option<i64>,
}

impl BatchSpan {
    /// The span that a header states; a negative delta or an overflow leaves the last offset unknown.
    pub fn of(header: &BatchHeader) -> Self {
        let last_offset = match header.last_offset_delta {
            0.. => header.base_offset.checked_add(i64::from(header.last_offset_delta)),
            _ => None,
        };
        Self { base_offset: header.base_offset, last_offset }
    }

    /// The first offset after the batch; `None` when its end is not known.
    pub fn next_offset(&self) -> Option<i64> {
        self.last_offset.and_then(|last| last.checked_add(1))
    }
}

impl fmt::Display for BatchSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.last_offset {
            Some(last) => write!(f, "the record batch of offsets {} to {last}", self.base_offset),
            None => write!(f, "the record batch from offset {}", self.base_offset),
        }
    }
}

/// Why a record batch cannot be read. Every variant says which offsets the batch covers, in `at`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The length is negative, shorter than the header, or beyond the splitter's limit. Where the next batch begins is not
    /// known.
    #[error("{at}: its length field says {batch_length}; {least} to {most} is possible")]
    Length {
        /// Which batch.
        at: BatchSpan,
        /// The length field: bytes after itself.
        batch_length: i32,
        /// The least that its format allows.
        least: usize,
        /// The most that is accepted.
        most: usize,
    },
    /// A message format other than the ones that are taken: v2 where batches are split, v0 to v2 where record sets are. For 0 and 1 both offsets of `at` are the offset of the message set's entry, which is
    /// the last one of a compressed wrapper.
    #[error("{at}: message format v{magic} is not supported")]
    UnsupportedMagic {
        /// Which batch.
        at: BatchSpan,
        /// The format's version.
        magic: i8,
    },
    /// A header field is out of its range.
    #[error("{at}: its {field} is {value}")]
    Header {
        /// Which batch.
        at: BatchSpan,
        /// Which field.
        field: &'static str,
        /// What it says.
        value: i64,
    },
    /// The bytes are not the ones that the CRC was computed over.
    #[error("{at}: its CRC is {stored:08x}, but that of its bytes is {computed:08x}")]
    Crc {
        /// Which batch.
        at: BatchSpan,
        /// The CRC in the header.
        stored: u32,
        /// The CRC of the bytes.
        computed: u32,
    },
    /// A codec number that Kafka does not define.
    #[error("{at}: its compression codec {codec} is not defined")]
    UnknownCodec {
        /// Which batch.
        at: BatchSpan,
        /// The codec's number.
        codec: u8,
    },
    /// The records cannot be decompressed.
    #[error("{at}: {source}")]
    Decompress {
        /// Which batch.
        at: BatchSpan,
        /// Why.
        source: DecompressError,
    },
    /// A record cannot be read.
    #[error("{at}: {source}")]
    Record {
        /// Which batch.
        at: BatchSpan,
        /// Why.
        source: RecordError,
    },
    /// A message of format v0 or v1 cannot be read.
    #[error("{at}: {source}")]
    Message {
        /// Which offsets: those of the message, or of the whole wrapper that it is in.
        at: BatchSpan,
        /// Why.
        source: MessageError,
    },
}

/// Why a message of format v0 or v1 cannot be read. `offset` is the one that stands in front of the message: inside a
/// wrapper of v1 it counts from the wrapper's first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The message, or the set inside a wrapper, ends too early.
    #[error("the message at offset {offset} is cut off")]
    Truncated {
        /// Which message.
        offset: i64,
    },
    /// A field is out of its range.
    #[error("the {field} of the message at offset {offset} is {value}")]
    Field {
        /// Which message.
        offset: i64,
        /// Which field.
        field: &'static str,
        /// What it says.
        value: i64,
    },
    /// The fields end before the message does.
    #[error("{bytes} bytes are left over after the value of the message at offset {offset}")]
    LeftOver {
        /// Which message.
        offset: i64,
        /// How many bytes.
        bytes: usize,
    },
    /// The bytes of a message inside a wrapper are not the ones that its CRC was computed over.
    #[error("the CRC of the message at offset {offset} is {stored:08x}, but that of its bytes is {computed:08x}")]
    Crc {
        /// Which message.
        offset: i64,
        /// The CRC in front of the message.
        stored: u32,
        /// The CRC of its bytes.
        computed: u32,
    },
    /// A wrapper without a value.
    #[error("the compressed message at offset {offset} holds nothing")]
    EmptyWrapper {
        /// Which message.
        offset: i64,
    },
    /// A wrapper inside a wrapper, which no format allows.
    #[error("the message at offset {offset} is compressed inside a compressed one")]
    Nested {
        /// Which message.
        offset: i64,
    },
    /// zstd came with message format v2 (KIP-110).
    #[error("the message at offset {offset} is compressed with {codec}, which message format v{magic} does not have")]
    Codec {
        /// Which message.
        offset: i64,
        /// The codec.
        codec: &'static str,
        /// The format's version.
        magic: i8,
    },
    /// The offsets inside a wrapper do not rise, or lie too far apart.
    #[error("the message at offset {offset} inside a compressed one follows the one at offset {before}")]
    Order {
        /// Which message.
        offset: i64,
        /// The offset in front of it.
        before: i64,
    },
    /// The offsets inside a wrapper and its own do not belong together: v0 has the same last offset at both, and v1 none
    /// inside that is larger.
    #[error("the compressed message at offset {offset} holds a last one at offset {last}")]
    LastOffset {
        /// The wrapper's offset.
        offset: i64,
        /// The last one inside.
        last: i64,
    },
}

impl BatchError {
    /// A record error, with the batch it happened in.
    pub fn record(header: &BatchHeader, source: RecordError) -> Self {
        Self::Record { at: BatchSpan::of(header), source }
    }

    /// Which offsets the batch covers.
    pub fn at(&self) -> BatchSpan {
        match self {
            Self::Length { at, .. }
            | Self::UnsupportedMagic { at, .. }
            | Self::Header { at, .. }
            | Self::Crc { at, .. }
            | Self::UnknownCodec { at, .. }
            | Self::Decompress { at, .. }
            | Self::Record { at, .. }
            | Self::Message { at, .. } => *at,
        }
    }
}

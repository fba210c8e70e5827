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
    /// A message format other than v2. For 0 and 1 both offsets of `at` are the offset of the message set's entry, which is
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
            | Self::Record { at, .. } => *at,
        }
    }
}

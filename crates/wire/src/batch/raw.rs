//! One batch as stored.

use bytes::Bytes;
use tidegate_model::{BatchHeader, RecordBatch};

use super::error::{BatchError, BatchSpan};
use super::header::{CRC_START, HEADER_BYTES};
use crate::compression;

/// What opening a batch may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// The most bytes that the records of one compressed batch may take uncompressed. An uncompressed batch is not measured
    /// against it: its bytes are there already.
    pub max_decompressed_bytes: usize,
    /// Whether the CRC is checked.
    pub check_crcs: bool,
}

impl Default for BatchLimits {
    /// 64 MiB, 64 times Kafka's default for the size of a stored batch; CRCs are checked.
    fn default() -> Self {
        Self { max_decompressed_bytes: 64 * 1024 * 1024, check_crcs: true }
    }
}

/// One record batch as stored, with its header as values. Cheap to clone: its bytes are a view into the record set.
#[derive(Clone, Debug)]
pub struct RawBatch {
    header: BatchHeader,
    bytes: Bytes,
}

impl RawBatch {
    /// `bytes` is the whole batch, at least [`HEADER_BYTES`] of it, and `header` what its first bytes say.
    pub(crate) fn from_parts(header: BatchHeader, bytes: Bytes) -> Self {
        Self { header, bytes }
    }

    /// The header.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The whole batch as stored, its 61-byte header included.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The records as stored: compressed, if the batch is.
    pub fn stored_records(&self) -> Bytes {
        self.bytes.slice(HEADER_BYTES.min(self.bytes.len())..)
    }

    /// Compares the CRC-32C in the header with that of the bytes.
    ///
    /// # Errors
    /// [`BatchError::Crc`] when they differ.
    pub fn verify_crc(&self) -> Result<(), BatchError> {
        let computed = crate::crc32c(self.bytes.get(CRC_START..).unwrap_or_default());
        if computed == self.header.crc {
            return Ok(());
        }
        Err(BatchError::Crc { at: BatchSpan::of(&self.header), stored: self.header.crc, computed })
    }

    /// Checks the CRC if `limits` say so, and decompresses the records if they are compressed. An uncompressed batch is not
    /// copied: its records stay views into the record set.
    ///
    /// # Errors
    /// [`BatchError::Crc`], [`BatchError::UnknownCodec`], [`BatchError::Decompress`]. The records themselves are checked
    /// while they are read.
    pub fn open(&self, limits: &BatchLimits) -> Result<RecordBatch, BatchError> {
        if limits.check_crcs {
            self.verify_crc()?;
        }
        let at = BatchSpan::of(&self.header);
        let codec = self.header.attributes.compression().map_err(|codec| BatchError::UnknownCodec { at, codec })?;
        let records = compression::decompress(codec, &self.stored_records(), limits.max_decompressed_bytes)
            .map_err(|source| BatchError::Decompress { at, source })?;
        Ok(RecordBatch::new(self.header, records))
    }
}

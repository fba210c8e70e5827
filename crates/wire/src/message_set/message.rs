//! One message of format v0 or v1.

use tidegate_model::{BatchAttributes, Compression, TimestampType};

use crate::batch::{LEAST_LENGTH, LENGTH_PREFIX_BYTES, MessageError};

/// Where the CRC stands, and behind it what it covers.
const CRC_AT: usize = LENGTH_PREFIX_BYTES;
const CRC_START: usize = CRC_AT + 4;

/// One message, borrowed from its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message<'a> {
    /// The offset in front of it.
    pub(super) offset: i64,
    pub(super) magic: i8,
    attributes: i8,
    /// -1 in v0, which has none.
    pub(super) timestamp_ms: i64,
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: Option<&'a [u8]>,
}

impl<'a> Message<'a> {
    /// Reads a whole entry, offset and length included.
    pub(super) fn parse(entry: &'a [u8]) -> Result<Self, MessageError> {
        let mut fields = entry;
        let offset = take(&mut fields).map(i64::from_be_bytes).ok_or(MessageError::Truncated { offset: -1 })?;
        let cut = MessageError::Truncated { offset };
        let _length: [u8; 4] = take(&mut fields).ok_or(cut)?;
        let _crc: [u8; 4] = take(&mut fields).ok_or(cut)?;
        let [magic, attributes] = take(&mut fields).ok_or(cut)?.map(|byte: u8| i8::from_be_bytes([byte]));
        let timestamp_ms = match magic {
            0 => -1,
            1 => take(&mut fields).map(i64::from_be_bytes).ok_or(cut)?,
            _ => return Err(MessageError::Field { offset, field: "magic byte", value: i64::from(magic) }),
        };
        let key = take_bytes(&mut fields, offset, "key length")?;
        let value = take_bytes(&mut fields, offset, "value length")?;
        if !fields.is_empty() {
            return Err(MessageError::LeftOver { offset, bytes: fields.len() });
        }
        Ok(Self { offset, magic, attributes, timestamp_ms, key, value })
    }

    /// The codec; `Err` holds a number that Kafka does not define.
    pub(super) fn compression(&self) -> Result<Compression, u8> {
        BatchAttributes(i16::from(self.attributes)).compression()
    }

    /// Bit 3 of the attributes; v0 has no such bit, and no timestamps.
    pub(super) fn timestamp_type(&self) -> TimestampType {
        match self.magic {
            0 => TimestampType::CreateTime,
            _ => BatchAttributes(i16::from(self.attributes)).timestamp_type(),
        }
    }
}

/// Compares the CRC-32 of an entry with that of its bytes; `Err` holds the two.
pub(super) fn check_crc(entry: &[u8]) -> Result<(), (u32, u32)> {
    let stored = entry.get(CRC_AT..).and_then(|bytes| bytes.first_chunk()).map_or(0, |crc| u32::from_be_bytes(*crc));
    let computed = crc32fast::hash(entry.get(CRC_START..).unwrap_or_default());
    if stored == computed { Ok(()) } else { Err((stored, computed)) }
}

/// The messages of an uncompressed message set that must end with a whole message: what is inside a wrapper.
#[derive(Clone, Debug)]
pub(super) struct Messages<'a> {
    rest: &'a [u8],
    check_crcs: bool,
}

impl<'a> Messages<'a> {
    pub(super) fn new(set: &'a [u8], check_crcs: bool) -> Self {
        Self { rest: set, check_crcs }
    }

    fn read_next(&mut self) -> Result<Message<'a>, MessageError> {
        let (offset, bytes) = entry_ahead(self.rest)?;
        let (entry, rest) = self.rest.split_at_checked(bytes).ok_or(MessageError::Truncated { offset })?;
        self.rest = rest;
        if self.check_crcs {
            check_crc(entry).map_err(|(stored, computed)| MessageError::Crc { offset, stored, computed })?;
        }
        Message::parse(entry)
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, MessageError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let item = self.read_next();
        if item.is_err() {
            self.rest = &[];
        }
        Some(item)
    }
}

/// The offset and the whole size of the entry that `bytes` begin with. It may be cut off.
pub(super) fn entry_ahead(bytes: &[u8]) -> Result<(i64, usize), MessageError> {
    let mut fields = bytes;
    let offset = take(&mut fields).map(i64::from_be_bytes).ok_or(MessageError::Truncated { offset: -1 })?;
    let length = take(&mut fields).map(i32::from_be_bytes).ok_or(MessageError::Truncated { offset })?;
    match usize::try_from(length) {
        Ok(bytes) if bytes >= LEAST_LENGTH => Ok((offset, bytes.saturating_add(LENGTH_PREFIX_BYTES))),
        _ => Err(MessageError::Field { offset, field: "length", value: i64::from(length) }),
    }
}

fn take<const N: usize>(fields: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = fields.split_first_chunk()?;
    *fields = rest;
    Some(*taken)
}

/// A length and as many bytes; -1 is null, any other negative length an error.
fn take_bytes<'a>(fields: &mut &'a [u8], offset: i64, field: &'static str) -> Result<Option<&'a [u8]>, MessageError> {
    let length = take(fields).map(i32::from_be_bytes).ok_or(MessageError::Truncated { offset })?;
    if length == -1 {
        return Ok(None);
    }
    let refused = MessageError::Field { offset, field, value: i64::from(length) };
    let bytes = usize::try_from(length).map_err(|_| refused)?;
    let (taken, rest) = fields.split_at_checked(bytes).ok_or(MessageError::Truncated { offset })?;
    *fields = rest;
    Ok(Some(taken))
}

//! The 61 bytes in front of every record batch.

use tidegate_model::{BatchAttributes, BatchHeader};

use super::error::{BatchError, BatchSpan};

/// The size of a v2 batch header: everything up to the first record.
pub const HEADER_BYTES: usize = 61;

/// Base offset and length: the bytes that the length field does not count. The same in all message formats.
pub(crate) const LENGTH_PREFIX_BYTES: usize = 12;

/// What the CRC covers begins here, with the attributes.
pub(crate) const CRC_START: usize = 21;

pub(crate) const LENGTH_AT: usize = 8;
pub(crate) const LEADER_EPOCH_AT: usize = 12;
pub(crate) const MAGIC_AT: usize = 16;
pub(crate) const CRC_AT: usize = 17;
pub(crate) const ATTRIBUTES_AT: usize = 21;
pub(crate) const LAST_OFFSET_DELTA_AT: usize = 23;
pub(crate) const BASE_TIMESTAMP_AT: usize = 27;
pub(crate) const MAX_TIMESTAMP_AT: usize = 35;
pub(crate) const PRODUCER_ID_AT: usize = 43;
pub(crate) const PRODUCER_EPOCH_AT: usize = 51;
pub(crate) const BASE_SEQUENCE_AT: usize = 53;
pub(crate) const RECORD_COUNT_AT: usize = 57;

/// The message format's version: the magic byte of what this crate reads and writes.
pub(crate) const MAGIC: i8 = 2;

/// Reads a header and checks what can be checked without the records: magic, length, offsets, record count.
///
/// # Errors
/// [`BatchError::UnsupportedMagic`] for another message format, [`BatchError::Length`] when the length is shorter than the
/// header, [`BatchError::Header`] when an offset or count is negative or beyond 63 bits.
pub fn parse_header(bytes: &[u8; HEADER_BYTES]) -> Result<BatchHeader, BatchError> {
    let header = read_fields(bytes);
    let at = BatchSpan::of(&header);
    let magic = i8::from_be_bytes(take(bytes, MAGIC_AT));
    if magic != MAGIC {
        return Err(BatchError::UnsupportedMagic { at: legacy_span(header.base_offset, magic), magic });
    }
    const LEAST: usize = HEADER_BYTES - LENGTH_PREFIX_BYTES;
    if usize::try_from(header.batch_length).map_or(true, |length| length < LEAST) {
        let most = i32::MAX.unsigned_abs() as usize;
        return Err(BatchError::Length { at, batch_length: header.batch_length, least: LEAST, most });
    }
    let out_of_range = |field, value| Err(BatchError::Header { at, field, value });
    if header.base_offset < 0 {
        return out_of_range("base offset", header.base_offset);
    }
    // A reader's next position is the last offset plus one: neither may move it backwards nor overflow it.
    if header.last_offset_delta < 0 || at.next_offset().is_none() {
        return out_of_range("last offset delta", i64::from(header.last_offset_delta));
    }
    if header.record_count < 0 {
        return out_of_range("record count", i64::from(header.record_count));
    }
    Ok(header)
}

/// The size of the whole batch, header included. 0 for the negative length of a header that nobody checked.
pub fn batch_bytes(header: &BatchHeader) -> usize {
    usize::try_from(header.batch_length).map_or(0, |length| length.saturating_add(LENGTH_PREFIX_BYTES))
}

/// In formats v0 and v1 the offset belongs to the entry itself, and is the last one of a compressed wrapper.
pub(crate) fn legacy_span(offset: i64, magic: i8) -> BatchSpan {
    BatchSpan { base_offset: offset, last_offset: matches!(magic, 0 | 1).then_some(offset) }
}

fn read_fields(bytes: &[u8; HEADER_BYTES]) -> BatchHeader {
    BatchHeader {
        base_offset: i64::from_be_bytes(take(bytes, 0)),
        batch_length: i32::from_be_bytes(take(bytes, LENGTH_AT)),
        partition_leader_epoch: i32::from_be_bytes(take(bytes, LEADER_EPOCH_AT)),
        crc: u32::from_be_bytes(take(bytes, CRC_AT)),
        attributes: BatchAttributes(i16::from_be_bytes(take(bytes, ATTRIBUTES_AT))),
        last_offset_delta: i32::from_be_bytes(take(bytes, LAST_OFFSET_DELTA_AT)),
        base_timestamp: i64::from_be_bytes(take(bytes, BASE_TIMESTAMP_AT)),
        max_timestamp: i64::from_be_bytes(take(bytes, MAX_TIMESTAMP_AT)),
        producer_id: i64::from_be_bytes(take(bytes, PRODUCER_ID_AT)),
        producer_epoch: i16::from_be_bytes(take(bytes, PRODUCER_EPOCH_AT)),
        base_sequence: i32::from_be_bytes(take(bytes, BASE_SEQUENCE_AT)),
        record_count: i32::from_be_bytes(take(bytes, RECORD_COUNT_AT)),
    }
}

/// Writes `header` with magic 2 over the first [`HEADER_BYTES`] of a batch.
pub(crate) fn write_fields(header: &BatchHeader, bytes: &mut [u8; HEADER_BYTES]) {
    put(bytes, 0, header.base_offset.to_be_bytes());
    put(bytes, LENGTH_AT, header.batch_length.to_be_bytes());
    put(bytes, LEADER_EPOCH_AT, header.partition_leader_epoch.to_be_bytes());
    put(bytes, MAGIC_AT, MAGIC.to_be_bytes());
    put(bytes, CRC_AT, header.crc.to_be_bytes());
    put(bytes, ATTRIBUTES_AT, header.attributes.0.to_be_bytes());
    put(bytes, LAST_OFFSET_DELTA_AT, header.last_offset_delta.to_be_bytes());
    put(bytes, BASE_TIMESTAMP_AT, header.base_timestamp.to_be_bytes());
    put(bytes, MAX_TIMESTAMP_AT, header.max_timestamp.to_be_bytes());
    put(bytes, PRODUCER_ID_AT, header.producer_id.to_be_bytes());
    put(bytes, PRODUCER_EPOCH_AT, header.producer_epoch.to_be_bytes());
    put(bytes, BASE_SEQUENCE_AT, header.base_sequence.to_be_bytes());
    put(bytes, RECORD_COUNT_AT, header.record_count.to_be_bytes());
}

/// The `N` bytes from `at`. The offsets are the constants above, all inside a header.
fn take<const N: usize>(bytes: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

fn put<const N: usize>(bytes: &mut [u8; HEADER_BYTES], at: usize, field: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&field);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> BatchHeader {
        BatchHeader {
            base_offset: 0x0102_0304_0506_0708,
            batch_length: 49,
            partition_leader_epoch: 0x1112_1314,
            crc: 0xdead_beef,
            attributes: BatchAttributes(0x0011),
            last_offset_delta: 0x2122_2324,
            base_timestamp: 0x3132_3334_3536_3738,
            max_timestamp: 0x4142_4344_4546_4748,
            producer_id: 0x5152_5354_5556_5758,
            producer_epoch: 0x6162,
            base_sequence: 0x7172_7374,
            record_count: 0x0a0b_0c0d,
        }
    }

    fn written(header: &BatchHeader) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        write_fields(header, &mut bytes);
        bytes
    }

    #[test]
    fn every_field_stands_where_it_was_written() {
        assert_eq!(parse_header(&written(&header())), Ok(header()));
    }

    #[test]
    fn offsets_and_counts_that_would_move_a_reader_backwards_are_refused() {
        let refused = |header: &BatchHeader| match parse_header(&written(header)) {
            Err(BatchError::Header { field, .. }) => field,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(&BatchHeader { base_offset: -1, ..header() }), "base offset");
        assert_eq!(refused(&BatchHeader { last_offset_delta: -1, ..header() }), "last offset delta");
        assert_eq!(refused(&BatchHeader { record_count: -1, ..header() }), "record count");
        let beyond = BatchHeader { base_offset: i64::MAX, last_offset_delta: 0, ..header() };
        assert_eq!(refused(&beyond), "last offset delta");
    }

    #[test]
    fn a_length_shorter_than_the_header_is_refused_with_the_offsets_that_the_header_states() {
        for batch_length in [i32::MIN, -1, 0, 48] {
            let header = BatchHeader { base_offset: 5, last_offset_delta: 3, batch_length, ..header() };
            let error = parse_header(&written(&header)).unwrap_err();
            assert!(matches!(error, BatchError::Length { .. }), "{error}");
            assert_eq!(error.at(), BatchSpan { base_offset: 5, last_offset: Some(8) });
        }
    }
}

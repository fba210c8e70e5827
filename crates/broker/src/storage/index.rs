//! The sidecar index of a segment: one entry a record batch, in a file of fixed-size entries.
//!
//! The index holds nothing that the log does not: it is written after the batch and rebuilt from the batch headers when
//! it is missing, short or damaged. Both searches that the broker needs are binary, because offsets, positions and the
//! running maximum of the timestamps never fall along a segment.
//!
//! Format version 1, big-endian. A header of 16 bytes: `TGBINDEX`, the version (u32), zero (u32). Then per batch 48 bytes:
//! base offset, last offset (i64), position, size (u32), max timestamp, running max timestamp (i64), the CRC-32C of these
//! 40 bytes (u32), zero (u32).

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use tidegate_model::{BatchHeader, NO_TIMESTAMP};

use super::log::LEADER_EPOCH;

/// The size of the index file's header.
pub(crate) const HEADER_BYTES: u64 = 16;
/// The size of an entry.
pub(crate) const ENTRY_BYTES: u64 = 48;
/// A segment ends when it holds this many batches, so that its index stays below 13 MB.
pub(crate) const MAX_ENTRIES: u32 = 1 << 18;

const HEADER: [u8; HEADER_BYTES as usize] = *b"TGBINDEX\0\0\0\x01\0\0\0\0";
const CRC_AT: usize = 40;
/// Entries that are read at a time.
const CHUNK: u32 = 1024;

/// A batch's length counts from behind itself.
const LENGTH_FROM: i32 = 12;
/// The format of the record batches that are written.
const MAGIC: u8 = 2;

/// Where one batch is and what time it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub(crate) base_offset: i64,
    pub(crate) last_offset: i64,
    /// Where the batch begins in the segment file.
    pub(crate) position: u32,
    /// Its size, header included.
    pub(crate) size: u32,
    pub(crate) max_timestamp: i64,
    /// The largest timestamp of this batch and those before it in the segment.
    pub(crate) running_max: i64,
}

impl IndexEntry {
    /// The entry of the batch with this header, `size` bytes long, after a segment content of `position` bytes whose
    /// largest timestamp is `max_before`. `None` when the batch would end beyond the 4 GiB that an entry can address.
    pub(crate) fn of(header: &BatchHeader, position: u64, size: usize, max_before: i64) -> Option<Self> {
        let entry = Self {
            base_offset: header.base_offset,
            last_offset: header.last_offset(),
            position: u32::try_from(position).ok()?,
            size: u32::try_from(size).ok()?,
            max_timestamp: header.max_timestamp,
            running_max: header.max_timestamp.max(max_before),
        };
        entry.position.checked_add(entry.size).map(|_| entry)
    }

    /// Where the batch ends in the segment file.
    pub(crate) fn end(&self) -> u64 {
        u64::from(self.position) + u64::from(self.size)
    }

    pub(crate) fn encode(&self) -> [u8; ENTRY_BYTES as usize] {
        let mut out = [0; ENTRY_BYTES as usize];
        out[..8].copy_from_slice(&self.base_offset.to_be_bytes());
        out[8..16].copy_from_slice(&self.last_offset.to_be_bytes());
        out[16..20].copy_from_slice(&self.position.to_be_bytes());
        out[20..24].copy_from_slice(&self.size.to_be_bytes());
        out[24..32].copy_from_slice(&self.max_timestamp.to_be_bytes());
        out[32..CRC_AT].copy_from_slice(&self.running_max.to_be_bytes());
        let crc = tidegate_wire::crc32c(&out[..CRC_AT]);
        out[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
        out
    }

    /// `None` when the bytes are not an entry.
    pub(crate) fn decode(bytes: &[u8; ENTRY_BYTES as usize]) -> Option<Self> {
        let mut rest = &bytes[..];
        let entry = Self {
            base_offset: i64::from_be_bytes(take(&mut rest)?),
            last_offset: i64::from_be_bytes(take(&mut rest)?),
            position: u32::from_be_bytes(take(&mut rest)?),
            size: u32::from_be_bytes(take(&mut rest)?),
            max_timestamp: i64::from_be_bytes(take(&mut rest)?),
            running_max: i64::from_be_bytes(take(&mut rest)?),
        };
        let crc = u32::from_be_bytes(take(&mut rest)?);
        (crc == tidegate_wire::crc32c(&bytes[..CRC_AT])).then_some(entry)
    }

    /// Whether `batch` begins as the entry says: with its offset and its length, for the leader and in the format that this
    /// broker writes.
    pub(crate) fn check(&self, batch: &[u8]) -> io::Result<()> {
        let begins = |mut rest: &[u8]| {
            let base_offset = i64::from_be_bytes(take(&mut rest)?);
            let length = i32::from_be_bytes(take(&mut rest)?);
            let leader_epoch = i32::from_be_bytes(take(&mut rest)?);
            let [magic] = take(&mut rest)?;
            Some((base_offset, length, leader_epoch, magic))
        };
        let length = i32::try_from(self.size).ok().and_then(|size| size.checked_sub(LENGTH_FROM)).unwrap_or(-1);
        let expected = (self.base_offset, length, LEADER_EPOCH, MAGIC);
        match begins(batch) {
            Some(found) if found == expected => Ok(()),
            found => {
                let reason = format!(
                    "the record batch at byte {} does not begin as its index entry says: (base offset, length, leader \
                     epoch, magic) should be {expected:?} and is {found:?}",
                    self.position
                );
                Err(io::Error::new(io::ErrorKind::InvalidData, reason))
            }
        }
    }

    /// Whether this entry can stand behind `before` (`None`: first) in a segment that begins at `base_offset`.
    pub(crate) fn follows(&self, before: Option<&Self>, base_offset: i64) -> bool {
        let (next_offset, position, max) = before
            .map_or((base_offset, 0, NO_TIMESTAMP), |b| (b.last_offset.saturating_add(1), b.end(), b.running_max));
        self.base_offset == next_offset
            && self.last_offset >= self.base_offset
            && u64::from(self.position) == position
            && self.running_max == self.max_timestamp.max(max)
    }
}

fn decode(bytes: &[u8; ENTRY_BYTES as usize], number: u32) -> io::Result<IndexEntry> {
    IndexEntry::decode(bytes)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("index entry {number} is damaged")))
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*first)
}

/// Writes the header of a new index file.
pub(crate) fn write_header(file: &File) -> io::Result<()> {
    file.write_all_at(&HEADER, 0)
}

/// Where the entry `number` begins in the file.
pub(crate) fn entry_at(number: u32) -> u64 {
    HEADER_BYTES + u64::from(number) * ENTRY_BYTES
}

/// The first `entries` entries of an index file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Index<'a> {
    file: &'a File,
    entries: u32,
}

impl<'a> Index<'a> {
    pub(crate) fn new(file: &'a File, entries: u32) -> Self {
        Self { file, entries }
    }

    /// The whole entries that stand in the file behind a sound header; 0 when the header is not one.
    pub(crate) fn of_file(file: &'a File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        let mut header = [0; HEADER_BYTES as usize];
        if length < HEADER_BYTES {
            return Ok(Self::new(file, 0));
        }
        file.read_exact_at(&mut header, 0)?;
        if header != HEADER {
            return Ok(Self::new(file, 0));
        }
        let entries = (length - HEADER_BYTES) / ENTRY_BYTES;
        Ok(Self::new(file, u32::try_from(entries).unwrap_or(u32::MAX)))
    }

    pub(crate) fn len(&self) -> u32 {
        self.entries
    }

    /// The entry `number`, which must be below [`Index::len`].
    pub(crate) fn get(&self, number: u32) -> io::Result<IndexEntry> {
        let mut bytes = [0; ENTRY_BYTES as usize];
        self.file.read_exact_at(&mut bytes, entry_at(number))?;
        decode(&bytes, number)
    }

    /// Walks along the entries from the first, as long as they are sound and each fits behind the one before in a segment
    /// that begins at `base_offset`, and as long as `goes_on`. Answers how many those are, and the last of them.
    pub(crate) fn walk(
        &self,
        base_offset: i64,
        mut goes_on: impl FnMut(&IndexEntry) -> bool,
    ) -> io::Result<(u32, Option<IndexEntry>)> {
        let mut last = None;
        let mut number = 0;
        let mut buffer = vec![0; (self.entries.min(CHUNK) as usize) * ENTRY_BYTES as usize];
        while number < self.entries {
            let chunk = (self.entries - number).min(CHUNK);
            let Some(chunk) = buffer.get_mut(..chunk as usize * ENTRY_BYTES as usize) else { break };
            self.file.read_exact_at(chunk, entry_at(number))?;
            for bytes in chunk.as_chunks::<{ ENTRY_BYTES as usize }>().0 {
                match IndexEntry::decode(bytes) {
                    Some(entry) if entry.follows(last.as_ref(), base_offset) && goes_on(&entry) => last = Some(entry),
                    _ => return Ok((number, last)),
                }
                number += 1;
            }
        }
        Ok((number, last))
    }

    /// Shows each of these entries, which must be below [`Index::len`], until one fails.
    pub(crate) fn visit(
        &self,
        numbers: Range<u32>,
        mut each: impl FnMut(&IndexEntry) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut next = numbers.start;
        let mut buffer = vec![0; (numbers.len().min(CHUNK as usize)) * ENTRY_BYTES as usize];
        while next < numbers.end {
            let count = (numbers.end - next).min(CHUNK);
            let Some(chunk) = buffer.get_mut(..count as usize * ENTRY_BYTES as usize) else { break };
            self.file.read_exact_at(chunk, entry_at(next))?;
            for bytes in chunk.as_chunks::<{ ENTRY_BYTES as usize }>().0 {
                each(&decode(bytes, next)?)?;
                next += 1;
            }
        }
        Ok(())
    }

    /// The number of the first entry for which `before` is false; [`Index::len`] when there is none. `before` must not
    /// become true again along the segment.
    pub(crate) fn partition_point(&self, mut before: impl FnMut(&IndexEntry) -> bool) -> io::Result<u32> {
        let (mut low, mut high) = (0, self.entries);
        while low < high {
            let middle = low + (high - low) / 2;
            if before(&self.get(middle)?) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u32) -> IndexEntry {
        let base_offset = 100 + i64::from(number) * 3;
        IndexEntry {
            base_offset,
            last_offset: base_offset + 2,
            position: number * 70,
            size: 70,
            max_timestamp: 1_000 - i64::from(number),
            running_max: 1_000,
        }
    }

    #[test]
    fn an_entry_reads_back_and_any_flipped_bit_is_noticed() {
        let bytes = entry(7).encode();
        assert_eq!(IndexEntry::decode(&bytes), Some(entry(7)));
        for at in 0..CRC_AT + 4 {
            for bit in 0..8 {
                let mut changed = bytes;
                changed[at] ^= 1 << bit;
                assert_eq!(IndexEntry::decode(&changed), None, "byte {at}, bit {bit}");
            }
        }
        assert_eq!(IndexEntry::decode(&[0; ENTRY_BYTES as usize]), None, "a hole of zeros is no entry");
    }

    #[test]
    fn searches_find_the_first_entry_that_reaches_a_value() {
        let file = tempfile::tempfile().unwrap();
        write_header(&file).unwrap();
        for number in 0..100 {
            file.write_all_at(&entry(number).encode(), entry_at(number)).unwrap();
        }
        let index = Index::of_file(&file).unwrap();
        assert_eq!(index.len(), 100);
        for offset in 100..400 {
            let found = index.partition_point(|e| e.last_offset < offset).unwrap();
            assert_eq!(i64::from(found), (offset - 100) / 3);
        }
        assert_eq!(index.partition_point(|e| e.last_offset < 400).unwrap(), 100);
        assert_eq!(Index::new(&file, 0).partition_point(|_| true).unwrap(), 0);
    }

    #[test]
    fn entries_follow_each_other_without_gap_or_overlap() {
        assert!(entry(1).follows(Some(&entry(0)), 0));
        assert!(entry(0).follows(None, 100));
        assert!(!entry(0).follows(None, 99));
        assert!(!entry(2).follows(Some(&entry(0)), 0));
        assert!(!IndexEntry { position: 71, ..entry(1) }.follows(Some(&entry(0)), 0));
        assert!(!IndexEntry { running_max: 999, ..entry(1) }.follows(Some(&entry(0)), 0));
    }

    #[test]
    fn a_batch_beyond_four_gibibytes_has_no_entry() {
        let header = BatchHeader::default();
        assert!(IndexEntry::of(&header, u64::from(u32::MAX) - 70, 70, -1).is_some());
        assert!(IndexEntry::of(&header, u64::from(u32::MAX) - 69, 70, -1).is_none());
    }
}

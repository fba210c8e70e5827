//! Reading record batches for a fetch: which bytes of which segment, as whole batches.

use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::index::Index;
use super::segment::{FilePool, Segment, Stretch};
use super::view::View;

/// Whole batches that lie one behind another in one segment.
///
/// It names the segment and does not hold its files open: a fetch may find thousands of spans before it reads one. Reading
/// fails with `NotFound` when the retention has removed the segment meanwhile.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    segment: Arc<Segment>,
    position: u64,
    bytes: usize,
    /// The index entries of the batches.
    entries: Range<u32>,
    reaches_end: bool,
}

impl Span {
    /// How many bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether nothing follows it in the view.
    pub(crate) fn reaches_end(&self) -> bool {
        self.reaches_end
    }

    /// Reads them into `buffer`, which has their size.
    ///
    /// A batch's CRC leaves out its offset and its length, and a reader goes by these. So each is compared with its index
    /// entry: a flipped bit there is an error, and never a gap or another record's offset.
    pub(crate) fn read(&self, pool: &FilePool, buffer: &mut [u8]) -> io::Result<()> {
        let files = pool.open(&self.segment)?;
        files.log.read_exact_at(buffer, self.position)?;
        let mut rest = &*buffer;
        Index::new(&files.index, self.entries.end).visit(self.entries.clone(), |entry| {
            let (batch, after) = rest.split_at_checked(entry.size as usize).unwrap_or((rest, &[]));
            rest = after;
            entry.check(batch)
        })
    }
}

/// Finds what to read from `offset` on, which must lie within the view: whole batches from the one that holds `offset`, at
/// most `most_bytes` of them. `None` at the end of the view.
///
/// A first batch larger than `most_bytes` is taken alone if `first_whole` (KIP-74); else nothing is, and the span is empty.
pub(crate) fn find_span(
    view: &View,
    pool: &FilePool,
    offset: i64,
    most_bytes: usize,
    first_whole: bool,
) -> io::Result<Option<Span>> {
    let Some(Stretch { segment, extent }) = view.stretches_from(offset).next() else { return Ok(None) };
    if offset >= extent.next_offset {
        return Ok(None);
    }
    let files = pool.open(segment)?;
    let index = Index::new(&files.index, extent.entries);
    let number = index.partition_point(|entry| entry.last_offset < offset)?;
    if number == index.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("the index does not reach offset {offset}")));
    }
    let first = index.get(number)?;
    let position = u64::from(first.position);
    let limit = position.saturating_add(most_bytes as u64);
    let beyond =
        if extent.bytes <= limit { index.len() } else { index.partition_point(|entry| entry.end() <= limit)? };
    let beyond = beyond.max(if first_whole { number + 1 } else { number });
    let end = if beyond > number { index.get(beyond - 1)?.end() } else { position };
    Ok(Some(Span {
        segment: Arc::clone(segment),
        position,
        bytes: usize::try_from(end - position).unwrap_or(usize::MAX),
        entries: number..beyond,
        reaches_end: end == extent.bytes && extent.next_offset == view.high_watermark(),
    }))
}

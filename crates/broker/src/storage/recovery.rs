//! Opening a partition's log: what is there, what a crash tore, and what must be rebuilt.
//!
//! The checkpoint says up to which offset the log had been forced to the disk. Everything before it is trusted (the index
//! entries are checked against each other and rebuilt from the batch headers where they do not fit). Everything after it
//! is read with its CRCs; at the first batch that is cut or damaged the log ends, for nobody was promised more. Damage
//! before it is not a crash's doing: the log is then left alone and not opened.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_model::{BatchHeader, TopicPartition};
use tidegate_wire::{DEFAULT_MAX_BATCH_BYTES, HEADER_BYTES, batch_bytes, parse_header};

use super::checkpoint::Checkpoint;
use super::index::{self, Index, IndexEntry};
use super::log::LEADER_EPOCH;
use super::producers::Producers;
use super::segment::{Extent, FilePool, INDEX, LOG, Segment, SegmentFiles, Stretch, offset_of};
use super::text;
use super::view::View;
use crate::config::FsyncPolicy;
use crate::error::OpenError;

/// How a log is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecoverySettings {
    pub(crate) fsync: FsyncPolicy,
    /// How many producers are remembered.
    pub(crate) producers: usize,
    /// Counts as the time when a producer found in the log was last seen.
    pub(crate) now_ms: i64,
}

/// A log as it was found.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) view: View,
    pub(crate) producers: Producers,
    pub(crate) synced: i64,
    pub(crate) checkpoint: Option<Checkpoint>,
}

/// Opens the log in `folder`. See the module's description.
pub(crate) fn recover(
    topic_partition: &TopicPartition,
    folder: &Arc<Path>,
    pool: &FilePool,
    settings: RecoverySettings,
) -> Result<Recovered, OpenError> {
    let written = Checkpoint::read(folder)?;
    let checkpoint = written.unwrap_or_default();
    // What was deleted on request needs no protection.
    let protected = if checkpoint.log_start_offset < checkpoint.synced { checkpoint.synced } else { 0 };
    let recovery = Recovery { topic_partition, folder, pool, synced: checkpoint.synced, protected };

    let mut stretches = Vec::new();
    let bases = recovery.list_segments()?;
    for (at, base_offset) in bases.iter().enumerate() {
        let successor = bases.get(at + 1).copied();
        let segment = Segment::new(folder, *base_offset);
        let found = recovery.open_segment(&segment, stretches.last(), successor)?;
        stretches.push(Stretch { segment: Arc::new(segment), extent: found.extent });
        if found.is_end {
            recovery.remove_from(&bases[at + 1..])?;
            break;
        }
    }

    let end = stretches.last().map_or(0, |stretch: &Stretch| stretch.extent.next_offset);
    if end < protected {
        return Err(recovery.damaged(&Segment::new(folder, bases.last().copied().unwrap_or(0)), end, 0));
    }
    // Records were deleted up to an offset that the log, its unforced tail lost, no longer reaches.
    if stretches.is_empty() || checkpoint.log_start_offset > end {
        for stretch in stretches.drain(..) {
            pool.remove(&stretch.segment).map_err(|source| recovery.io("remove a segment", source))?;
        }
        let base_offset = checkpoint.log_start_offset;
        let segment = Arc::new(Segment::new(folder, base_offset));
        let synced_dir = |_| if settings.fsync == FsyncPolicy::Never { Ok(()) } else { text::sync_dir(folder) };
        pool.create(&segment).and_then(synced_dir).map_err(|source| recovery.io("create a segment", source))?;
        stretches.push(Stretch { segment, extent: Extent::empty(base_offset) });
    }

    let log_start_offset =
        stretches.first().map_or(0, |first| first.segment.base_offset().max(checkpoint.log_start_offset));
    let mut synced = checkpoint.synced.max(log_start_offset);
    let active = stretches.pop().ok_or_else(|| recovery.io("find a segment", io::ErrorKind::NotFound.into()))?;
    let view = View { sealed: Arc::new(stretches), active, log_start_offset };
    if settings.fsync != FsyncPolicy::Never && view.high_watermark() > synced {
        recovery.sync(&view, synced).map_err(|source| recovery.io("force to the disk", source))?;
        synced = view.high_watermark();
    }
    let producers =
        recovery.load_producers(&view, settings).map_err(|source| recovery.io("read the producers", source))?;
    Ok(Recovered { view, producers, synced, checkpoint: written })
}

struct Recovery<'a> {
    topic_partition: &'a TopicPartition,
    folder: &'a Arc<Path>,
    pool: &'a FilePool,
    synced: i64,
    /// Up to here the log must be whole.
    protected: i64,
}

struct Found {
    extent: Extent,
    /// Nothing that follows belongs to the log.
    is_end: bool,
}

impl Recovery<'_> {
    /// The base offsets of all segments with content, in order; at least one if there is any segment. Removes what a crash
    /// left half done: temporary files, empty segments, an index without its segment.
    fn list_segments(&self) -> Result<Vec<i64>, OpenError> {
        let list = || -> io::Result<Vec<PathBuf>> {
            fs::read_dir(self.folder)?.map(|entry| entry.map(|entry| entry.path())).collect()
        };
        let paths = list().map_err(|source| self.io("list the segments", source))?;
        let clear = || -> io::Result<Vec<i64>> {
            let mut all: Vec<(i64, u64)> = Vec::new();
            for path in &paths {
                if path.extension().is_some_and(|ending| ending == text::TEMPORARY) {
                    fs::remove_file(path)?;
                } else if let Some(offset) = offset_of(path, LOG) {
                    all.push((offset, fs::metadata(path)?.len()));
                }
            }
            all.sort_unstable();
            let newest = all.last().map(|(offset, _)| *offset);
            let without_content = all.iter().all(|(_, bytes)| *bytes == 0);
            let (kept, empty): (Vec<_>, Vec<_>) =
                all.into_iter().partition(|(offset, bytes)| *bytes > 0 || (without_content && Some(*offset) == newest));
            for (offset, _) in empty {
                self.pool.remove(&Segment::new(self.folder, offset))?;
            }
            let kept: Vec<i64> = kept.into_iter().map(|(offset, _)| offset).collect();
            for path in &paths {
                if offset_of(path, INDEX).is_some_and(|offset| kept.binary_search(&offset).is_err()) && path.exists() {
                    fs::remove_file(path)?;
                }
            }
            Ok(kept)
        };
        clear().map_err(|source| self.io("clear the folder", source))
    }

    /// Finds how far a segment goes. `before`: the one before it. `successor`: the base offset of the one after it.
    fn open_segment(
        &self,
        segment: &Segment,
        before: Option<&Stretch>,
        successor: Option<i64>,
    ) -> Result<Found, OpenError> {
        let base_offset = segment.base_offset();
        if let Some(expected) = before.map(|before| before.extent.next_offset)
            && expected != base_offset
        {
            return Err(self.damaged(segment, expected, 0));
        }
        let io = |source| self.io("read a segment", source);
        let files = self.open_files(segment).map_err(io)?;
        let bytes = files.log.metadata().map_err(io)?.len();
        if let Some(next_offset) = successor.filter(|next_offset| *next_offset <= self.synced)
            && let Some(extent) = trusted_extent(&files, base_offset, bytes, next_offset).map_err(io)?
        {
            return Ok(Found { extent, is_end: false });
        }

        let mut scan = Scan::begin(&files, segment, bytes, self.synced).map_err(io)?;
        let ended = scan.run().map_err(io)?;
        scan.write_entries().map_err(io)?;
        let extent = scan.extent;
        let whole = extent.bytes == bytes && successor.is_none_or(|next_offset| next_offset == extent.next_offset);
        if whole {
            return Ok(Found { extent, is_end: false });
        }
        if extent.next_offset < self.protected {
            return Err(self.damaged(segment, extent.next_offset, extent.bytes));
        }
        tracing::warn!(
            topic_partition = %self.topic_partition,
            segment = %segment.path(LOG).display(),
            offset = extent.next_offset,
            cut_bytes = bytes - extent.bytes,
            reason = ended,
            "the log's tail was torn and is cut off",
        );
        files.log.set_len(extent.bytes).map_err(io)?;
        Ok(Found { extent, is_end: true })
    }

    fn open_files(&self, segment: &Segment) -> io::Result<Arc<SegmentFiles>> {
        // The index may be missing; the log is there.
        let index = segment.path(INDEX);
        if !index.exists() {
            index::write_header(&File::create(&index)?)?;
        }
        self.pool.open(segment)
    }

    fn remove_from(&self, bases: &[i64]) -> Result<(), OpenError> {
        for base_offset in bases {
            let segment = Segment::new(self.folder, *base_offset);
            tracing::warn!(segment = %segment.path(LOG).display(), "a segment behind the log's torn tail is removed");
            self.pool.remove(&segment).map_err(|source| self.io("remove a segment", source))?;
        }
        Ok(())
    }

    fn sync(&self, view: &View, from: i64) -> io::Result<()> {
        for stretch in view.stretches_from(from) {
            let files = self.pool.open(&stretch.segment)?;
            files.log.sync_data()?;
            files.index.sync_data()?;
        }
        text::sync_dir(self.folder)
    }

    /// The producers as of the last snapshot, and the batches since.
    fn load_producers(&self, view: &View, settings: RecoverySettings) -> io::Result<Producers> {
        let (mut producers, from) =
            Producers::load_snapshot(self.folder, settings.producers, view.log_start_offset, view.high_watermark())?;
        if from >= view.high_watermark() {
            return Ok(producers);
        }
        for Stretch { segment, extent } in view.stretches_from(from) {
            let files = self.pool.open(segment)?;
            let index = Index::new(&files.index, extent.entries);
            for number in index.partition_point(|entry| entry.base_offset < from)?..index.len() {
                let entry = index.get(number)?;
                let header = read_header(&files.log, u64::from(entry.position))?;
                let header = header.map_err(|reason| io::Error::new(io::ErrorKind::InvalidData, reason))?;
                producers.record(&header, settings.now_ms);
            }
        }
        Ok(producers)
    }

    fn damaged(&self, segment: &Segment, offset: i64, position: u64) -> OpenError {
        OpenError::LogDamaged {
            topic_partition: self.topic_partition.clone(),
            path: segment.path(LOG),
            offset,
            position,
            synced: self.synced,
        }
    }

    fn io(&self, action: &'static str, source: io::Error) -> OpenError {
        OpenError::Io { action, path: self.folder.to_path_buf(), source }
    }
}

/// The extent of a sealed segment from its index alone, if index, file length and next segment agree.
fn trusted_extent(files: &SegmentFiles, base_offset: i64, bytes: u64, next_offset: i64) -> io::Result<Option<Extent>> {
    let index = Index::of_file(&files.index)?;
    let (entries, last) = index.walk(base_offset, |_| true)?;
    let whole = entries == index.len() && files.index.metadata()?.len() == index::entry_at(entries);
    Ok(last
        .filter(|last| whole && last.end() == bytes && last.last_offset.checked_add(1) == Some(next_offset))
        .map(|last| Extent { bytes, entries, next_offset, max_timestamp: last.running_max }))
}

/// A walk along the batches of one segment.
struct Scan<'a> {
    files: &'a SegmentFiles,
    bytes: u64,
    synced: i64,
    extent: Extent,
    /// Entries that are not in the index file yet, and the number of the first of them.
    new_entries: Vec<IndexEntry>,
    first_new: u32,
}

impl<'a> Scan<'a> {
    /// Takes over the index entries of records that were on the disk, as far as they fit each other and the file.
    fn begin(files: &'a SegmentFiles, segment: &Segment, bytes: u64, synced: i64) -> io::Result<Self> {
        let base_offset = segment.base_offset();
        let index = Index::of_file(&files.index)?;
        let (entries, last) = index.walk(base_offset, |entry| entry.end() <= bytes && entry.last_offset < synced)?;
        let extent = last.map_or(Extent::empty(base_offset), |last| Extent {
            bytes: last.end(),
            entries,
            next_offset: last.last_offset.saturating_add(1),
            max_timestamp: last.running_max,
        });
        Ok(Self { files, bytes, synced, extent, new_entries: Vec::new(), first_new: entries })
    }

    /// Walks to the end of what is whole. Answers why it ended.
    fn run(&mut self) -> io::Result<&'static str> {
        loop {
            let Extent { bytes: position, next_offset, entries, max_timestamp } = self.extent;
            let left = self.bytes - position;
            if left == 0 {
                return Ok("the file ends");
            }
            if left < HEADER_BYTES as u64 {
                return Ok("a batch header is cut");
            }
            let Ok(header) = read_header(&self.files.log, position)? else {
                return Ok("a batch header is damaged");
            };
            let size = batch_bytes(&header);
            if size > DEFAULT_MAX_BATCH_BYTES || size as u64 > left {
                return Ok("a batch is cut");
            }
            // Both lie outside the CRC.
            if header.base_offset != next_offset || header.partition_leader_epoch != LEADER_EPOCH {
                return Ok("a batch has another offset or epoch than its place");
            }
            if header.last_offset() >= self.synced && crc_of(&self.files.log, position, size)? != header.crc {
                return Ok("a batch has a wrong CRC");
            }
            let Some(entry) = IndexEntry::of(&header, position, size, max_timestamp) else {
                return Ok("a batch lies beyond 4 GiB");
            };
            self.new_entries.push(entry);
            self.extent = Extent {
                bytes: entry.end(),
                entries: entries + 1,
                next_offset: entry.last_offset + 1,
                max_timestamp: entry.running_max,
            };
        }
    }

    /// Makes the index file say what was found.
    fn write_entries(&self) -> io::Result<()> {
        let index = &self.files.index;
        index::write_header(index)?;
        for (chunk_number, chunk) in self.new_entries.chunks(CHUNK_ENTRIES as usize).enumerate() {
            let bytes: Vec<u8> = chunk.iter().flat_map(IndexEntry::encode).collect();
            let first = self.first_new + u32::try_from(chunk_number).unwrap_or(0) * CHUNK_ENTRIES;
            index.write_all_at(&bytes, index::entry_at(first))?;
        }
        index.set_len(index::entry_at(self.extent.entries))
    }
}

/// Index entries that are written at a time.
const CHUNK_ENTRIES: u32 = 1024;

/// Reads and checks the batch header at `position`. The inner error says what is wrong with it.
fn read_header(log: &File, position: u64) -> io::Result<Result<BatchHeader, String>> {
    let mut bytes = [0; HEADER_BYTES];
    log.read_exact_at(&mut bytes, position)?;
    Ok(parse_header(&bytes).map_err(|error| error.to_string()))
}

/// The CRC-32C of a batch's bytes from the attributes on, read piece by piece: a size from a damaged header must not
/// become an allocation.
fn crc_of(log: &File, position: u64, size: usize) -> io::Result<u32> {
    const CRC_START: u64 = 21;
    let mut buffer = vec![0; size.min(1 << 16)];
    let mut crc = 0;
    let (mut at, end) = (position + CRC_START, position + size as u64);
    while at < end {
        let piece = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
        let Some(piece) = buffer.get_mut(..piece) else { break };
        log.read_exact_at(piece, at)?;
        crc = tidegate_wire::crc32c_append(crc, piece);
        at += piece.len() as u64;
    }
    Ok(crc)
}

#[cfg(test)]
mod tests;

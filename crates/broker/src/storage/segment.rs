//! Segments: a stretch of a partition's log in one file, with its index beside it, and the files held open.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tidegate_model::NO_TIMESTAMP;

use super::index;

/// The ending of a segment file. It holds record batches and nothing else, as Kafka's own do.
pub(crate) const LOG: &str = "log";
/// The ending of an index file.
pub(crate) const INDEX: &str = "index";

/// A segment's identity: where its files are. What they hold so far is in an [`Extent`].
#[derive(Debug)]
pub(crate) struct Segment {
    /// Tells the segments of one process apart, also two of one name.
    id: u64,
    folder: Arc<Path>,
    base_offset: i64,
    /// Its files are being removed, so nobody keeps them open for later.
    retired: AtomicBool,
}

impl Segment {
    pub(crate) fn new(folder: &Arc<Path>, base_offset: i64) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            folder: Arc::clone(folder),
            base_offset,
            retired: AtomicBool::new(false),
        }
    }

    /// The offset of its first record, and its name.
    pub(crate) fn base_offset(&self) -> i64 {
        self.base_offset
    }

    pub(crate) fn path(&self, ending: &str) -> PathBuf {
        self.folder.join(file_name(self.base_offset, ending))
    }
}

/// A file's name from an offset: 20 digits, so that names sort as their offsets do.
pub(crate) fn file_name(offset: i64, ending: &str) -> String {
    format!("{offset:020}.{ending}")
}

/// The offset in the name of a file with this ending.
pub(crate) fn offset_of(path: &Path, ending: &str) -> Option<i64> {
    if path.extension()? != ending {
        return None;
    }
    let digits = path.file_stem()?.to_str()?;
    if digits.len() != 20 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// How far a segment is written, or how much of it a reader may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Bytes of the segment file.
    pub(crate) bytes: u64,
    /// Entries of the index file.
    pub(crate) entries: u32,
    /// The offset after its last record.
    pub(crate) next_offset: i64,
    /// The largest timestamp, or -1.
    pub(crate) max_timestamp: i64,
}

impl Extent {
    /// Nothing yet.
    pub(crate) fn empty(base_offset: i64) -> Self {
        Self { bytes: 0, entries: 0, next_offset: base_offset, max_timestamp: NO_TIMESTAMP }
    }
}

/// A segment and how far it goes.
#[derive(Clone, Debug)]
pub(crate) struct Stretch {
    pub(crate) segment: Arc<Segment>,
    pub(crate) extent: Extent,
}

/// The two open files of a segment.
#[derive(Debug)]
pub(crate) struct SegmentFiles {
    pub(crate) log: File,
    pub(crate) index: File,
}

/// The segment files that are held open: at most a fixed number, those used last.
///
/// Whoever holds an `Arc` of the files goes on reading them when the pool closes or the retention removes them.
#[derive(Debug)]
pub(crate) struct FilePool {
    capacity: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    files: HashMap<u64, Slot>,
    tick: u64,
}

#[derive(Debug)]
struct Slot {
    files: Arc<SegmentFiles>,
    used: u64,
}

impl FilePool {
    /// A pool for at most `capacity` segments.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), open: Mutex::default() }
    }

    /// The files of a segment, opened if they are not.
    ///
    /// # Errors
    /// `NotFound` when the retention has removed them.
    pub(crate) fn open(&self, segment: &Segment) -> io::Result<Arc<SegmentFiles>> {
        if let Some(files) = self.find(segment.id) {
            return Ok(files);
        }
        let open = |ending| OpenOptions::new().read(true).write(true).open(segment.path(ending));
        let files = Arc::new(SegmentFiles { log: open(LOG)?, index: open(INDEX)? });
        self.keep(segment, &files);
        Ok(files)
    }

    /// Creates the files of a segment. Empty ones that a failed attempt left are taken over; others are an error.
    pub(crate) fn create(&self, segment: &Segment) -> io::Result<Arc<SegmentFiles>> {
        let create =
            |ending| OpenOptions::new().read(true).write(true).create(true).truncate(false).open(segment.path(ending));
        let log = create(LOG)?;
        if log.metadata()?.len() > 0 {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the segment file is there and not empty"));
        }
        let index = create(INDEX).and_then(|index| {
            index.set_len(0)?;
            index::write_header(&index)?;
            Ok(index)
        });
        match index {
            Ok(index) => {
                let files = Arc::new(SegmentFiles { log, index });
                self.keep(segment, &files);
                Ok(files)
            }
            Err(error) => {
                // The name belongs to this offset alone; the log must not find an empty segment there later. If it cannot be
                // removed either, the recovery takes an empty file for what it is.
                let _ = self.remove(segment);
                Err(error)
            }
        }
    }

    /// Closes the files of a segment and removes them. A missing file is not an error.
    pub(crate) fn remove(&self, segment: &Segment) -> io::Result<()> {
        self.retire(segment);
        // The log first: an index without its log is cleared away at the next start, a log without its index would come
        // back to life.
        for ending in [LOG, INDEX] {
            match fs::remove_file(segment.path(ending)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Closes the files of a segment for good: who opens them from now on gets them for themselves. Else a reader that
    /// comes in between would leave removed files open here, and their space taken.
    pub(crate) fn retire(&self, segment: &Segment) {
        let mut open = self.open.lock();
        segment.retired.store(true, Ordering::Relaxed);
        open.files.remove(&segment.id);
    }

    /// Closes the files of a segment until they are needed again.
    #[cfg(test)]
    pub(super) fn forget(&self, segment: &Segment) {
        self.open.lock().files.remove(&segment.id);
    }

    /// Puts other files in a segment's place: a disk that fails.
    #[cfg(test)]
    pub(super) fn put(&self, segment: &Segment, log: File, index: File) {
        self.keep(segment, &Arc::new(SegmentFiles { log, index }));
    }

    fn find(&self, id: u64) -> Option<Arc<SegmentFiles>> {
        let mut open = self.open.lock();
        open.tick += 1;
        let tick = open.tick;
        let slot = open.files.get_mut(&id)?;
        slot.used = tick;
        Some(Arc::clone(&slot.files))
    }

    fn keep(&self, segment: &Segment, files: &Arc<SegmentFiles>) {
        let id = segment.id;
        let mut open = self.open.lock();
        if segment.retired.load(Ordering::Relaxed) {
            return;
        }
        if open.files.len() >= self.capacity
            && !open.files.contains_key(&id)
            && let Some(oldest) = open.files.iter().min_by_key(|(_, slot)| slot.used).map(|(id, _)| *id)
        {
            open.files.remove(&oldest);
        }
        open.tick += 1;
        let used = open.tick;
        open.files.insert(id, Slot { files: Arc::clone(files), used });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_carry_the_offset_and_nothing_else_is_taken_for_one() {
        assert_eq!(file_name(42, LOG), "00000000000000000042.log");
        assert_eq!(offset_of(Path::new("/d/00000000000000000042.log"), LOG), Some(42));
        for other in ["42.log", "00000000000000000042.index", "-0000000000000000042.log", "0000000000000000004x.log"] {
            assert_eq!(offset_of(Path::new(other), LOG), None, "{other}");
        }
    }

    #[test]
    fn the_pool_holds_no_more_files_than_it_may_and_reopens_what_it_closed() {
        let dir = tempfile::tempdir().unwrap();
        let folder: Arc<Path> = dir.path().into();
        let pool = FilePool::new(2);
        let segments: Vec<_> = (0..5).map(|n| Segment::new(&folder, n * 10)).collect();
        for segment in &segments {
            pool.create(segment).unwrap();
        }
        for segment in segments.iter().chain(segments.iter().rev()) {
            pool.open(segment).unwrap();
            assert!(pool.open.lock().files.len() <= 2);
        }
    }

    #[test]
    fn files_stay_readable_for_their_holder_after_they_were_removed() {
        let dir = tempfile::tempdir().unwrap();
        let segment = Segment::new(&dir.path().into(), 0);
        let pool = FilePool::new(2);
        let files = pool.create(&segment).unwrap();
        pool.remove(&segment).unwrap();
        assert_eq!(files.index.metadata().unwrap().len(), index::HEADER_BYTES);
        pool.keep(&segment, &files);
        assert!(pool.open.lock().files.is_empty(), "a reader that was late keeps nothing open");
        assert_eq!(pool.open(&segment).unwrap_err().kind(), io::ErrorKind::NotFound);
        pool.remove(&segment).unwrap();
    }

    #[test]
    fn a_segment_with_content_is_not_created_over() {
        let dir = tempfile::tempdir().unwrap();
        let segment = Segment::new(&dir.path().into(), 0);
        fs::write(segment.path(LOG), b"x").unwrap();
        assert_eq!(FilePool::new(2).create(&segment).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }
}

//! Committed offsets: in memory, and in an append-only file that outlives the process.
//!
//! The file begins with `TGOFFSET` and its format version (u32, big-endian), then come records (`record.rs`). It is
//! written anew when most of it is out of date. Offsets stay until their group or their topic is deleted: unlike Kafka, the
//! embedded broker forgets none for its age.
//!
//! Locks, in the order in which they are taken: `file`, then `queue` or `known`, each of these for a moment only.

mod record;

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tidegate_model::TopicPartition;
use uuid::Uuid;

use super::text;
use crate::config::FsyncPolicy;
use crate::error::OpenError;
pub(crate) use record::{Change, ChangeKind};
use record::{Found, decode, encode};

const MAGIC: &[u8; 8] = b"TGOFFSET";
const VERSION: u32 = 1;
const HEADER_BYTES: u64 = 12;
/// A file below it is not worth writing anew.
const LEAST_COMPACTED_BYTES: u64 = 1 << 20;
/// Offsets in one record of a file that is written anew.
const OFFSETS_A_RECORD: usize = 1000;
/// Why nothing is written after the close.
const SHUTTING_DOWN: &str = "the broker is shutting down";
/// What an offset costs beside its texts, in memory or in the file, whichever is more.
const OFFSET_BYTES: usize = 160;

/// A committed offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommittedOffset {
    /// The topic at the time: one that was made again under the same name has no committed offsets.
    pub(crate) topic_id: Uuid,
    pub(crate) offset: i64,
    pub(crate) leader_epoch: i32,
    /// When it was committed.
    pub(crate) committed_ms: i64,
    pub(crate) metadata: String,
}

/// The offsets of one group.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupOffsets {
    pub(crate) protocol_type: String,
    pub(crate) offsets: BTreeMap<TopicPartition, CommittedOffset>,
}

/// All committed offsets.
#[derive(Debug)]
pub(crate) struct OffsetStore {
    path: PathBuf,
    fsync: FsyncPolicy,
    most_bytes: usize,
    file: Mutex<OffsetFile>,
    queue: Mutex<Queue>,
    known: RwLock<Known>,
}

#[derive(Debug)]
struct OffsetFile {
    file: File,
    bytes: u64,
    /// A file of this size is looked at for what is out of date in it.
    compact_at: u64,
    /// Written and not forced to the disk.
    unsynced: bool,
    /// Bytes behind `bytes` could not be cut off yet.
    dirty_tail: bool,
    /// Why nothing is written any more.
    closed: Option<String>,
}

#[derive(Debug, Default)]
struct Queue {
    changes: VecDeque<(Change, Arc<Outcome>)>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Known {
    groups: BTreeMap<String, GroupOffsets>,
    bytes: usize,
}

/// What became of a change.
type Outcome = Mutex<Option<Result<(), String>>>;

/// A change that has its place in the order of changes and is not written yet.
#[derive(Debug)]
pub(crate) struct Queued(Arc<Outcome>);

/// The offsets would take more memory than they may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("committed offsets take more than the {most} bytes that they may; delete groups that are not used any more")]
pub(crate) struct TooManyOffsets {
    most: usize,
}

impl OffsetStore {
    /// Opens the file in `dir`, or makes it, and reads all of it. What belongs to topics that are not there is left out.
    pub(crate) fn open(
        dir: &Path,
        fsync: FsyncPolicy,
        most_bytes: usize,
        topic_is_there: impl Fn(Uuid) -> bool,
    ) -> Result<Self, OpenError> {
        let path = dir.join("offsets");
        let io = |action| {
            let path = path.clone();
            move |source| OpenError::Io { action, path, source }
        };
        // A compaction that was interrupted.
        match fs::remove_file(path.with_extension(text::TEMPORARY)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io("clear")(error)),
            _ => {}
        }
        let mut known = Known::default();
        let (file, bytes) = match fs::read(&path) {
            Ok(content) => {
                let bytes = read_all(&path, &content, &mut known)?;
                let file = OpenOptions::new().read(true).write(true).open(&path).map_err(io("open"))?;
                if bytes < content.len() as u64 {
                    let cut = content.len() as u64 - bytes;
                    tracing::warn!(path = %path.display(), bytes = cut, "cutting off a commit that was not finished");
                    file.set_len(bytes).map_err(io("cut"))?;
                }
                if bytes == 0 {
                    write_header(&file).map_err(io("write"))?;
                }
                (file, bytes.max(HEADER_BYTES))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let open = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
                let file = open.and_then(|file| write_header(&file).map(|()| file)).map_err(io("create"))?;
                if fsync != FsyncPolicy::Never {
                    text::sync_dir(dir).map_err(io("create"))?;
                }
                (file, HEADER_BYTES)
            }
            Err(error) => return Err(io("read")(error)),
        };
        known.retain(|_, committed| topic_is_there(committed.topic_id));
        let file = OffsetFile {
            file,
            bytes,
            compact_at: LEAST_COMPACTED_BYTES,
            unsynced: false,
            dirty_tail: false,
            closed: None,
        };
        Ok(Self { path, fsync, most_bytes, file: Mutex::new(file), queue: Mutex::default(), known: RwLock::new(known) })
    }

    /// Gives a change its place in the order. It counts once [`OffsetStore::write_queued`] has written it.
    pub(crate) fn enqueue(&self, change: Change) -> Result<Queued, TooManyOffsets> {
        let known = self.known.read();
        let mut queue = self.queue.lock();
        let bytes = known.growth(&change);
        if bytes > 0 && known.bytes.saturating_add(queue.bytes).saturating_add(bytes) > self.most_bytes {
            return Err(TooManyOffsets { most: self.most_bytes });
        }
        let outcome = Arc::default();
        queue.bytes += bytes;
        queue.changes.push_back((change, Arc::clone(&outcome)));
        Ok(Queued(outcome))
    }

    /// Writes what is queued, in its order, and answers for `queued`: when this returns without an error, the change is in
    /// the page cache, and under [`FsyncPolicy::Always`] on the disk.
    pub(crate) fn write_queued(&self, queued: &Queued) -> io::Result<()> {
        let mut file = self.file.lock();
        // Whoever had the lock before may have written it.
        let done = |queued: &Queued| queued.0.lock().clone();
        if done(queued).is_none() {
            let changes = {
                let mut queue = self.queue.lock();
                queue.bytes = 0;
                std::mem::take(&mut queue.changes)
            };
            let written = file.write(changes.iter().map(|(change, _)| change), self.fsync == FsyncPolicy::Always);
            let result = written.map_err(|error| error.to_string());
            let mut known = self.known.write();
            for (change, outcome) in changes {
                if result.is_ok() {
                    known.apply(change);
                }
                *outcome.lock() = Some(result.clone());
            }
        }
        // After the close the folder may be another broker's, and the file that stands there its.
        if file.closed.is_none() && file.bytes >= file.compact_at {
            self.compact(&mut file);
        }
        match done(queued) {
            Some(Ok(())) => Ok(()),
            Some(Err(reason)) => Err(io::Error::other(reason)),
            None => Err(io::Error::other("the change was not queued here")),
        }
    }

    /// The offsets of a group; `None` when it has none.
    pub(crate) fn group<T>(&self, group: &str, read: impl FnOnce(&GroupOffsets) -> T) -> Option<T> {
        self.read(group, |of| of.map(read))
    }

    /// The same, and the reader looks at nothing as well.
    pub(crate) fn read<T>(&self, group: &str, read: impl FnOnce(Option<&GroupOffsets>) -> T) -> T {
        read(self.known.read().groups.get(group))
    }

    /// What the members of a group call themselves, as far as its offsets tell.
    pub(crate) fn protocol_type(&self, group: &str) -> String {
        self.group(group, |of| of.protocol_type.clone()).unwrap_or_default()
    }

    /// The groups that have offsets, with their protocol types.
    pub(crate) fn groups(&self) -> Vec<(String, String)> {
        let known = self.known.read();
        known.groups.iter().map(|(group, of)| (group.clone(), of.protocol_type.clone())).collect()
    }

    /// Forgets the offsets of a topic that was deleted. The file need not say so: it names the topic's id.
    pub(crate) fn forget_topic(&self, id: Uuid) {
        self.known.write().retain(|_, committed| committed.topic_id != id);
    }

    /// Whether something was written that is yet to be forced to the disk. Does not wait: while something is being written,
    /// there may be.
    pub(crate) fn has_unsynced(&self) -> bool {
        self.file.try_lock().is_none_or(|file| file.closed.is_none() && file.unsynced)
    }

    /// Forces to the disk what is not there yet.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let mut file = self.file.lock();
        file.check_open()?;
        if file.unsynced { file.sync() } else { Ok(()) }
    }

    /// Writes nothing any more.
    pub(crate) fn close(&self) {
        self.file.lock().closed.get_or_insert_with(|| SHUTTING_DOWN.to_owned());
    }

    /// The same, and everything is on the disk when this returns without an error: also not when the disk refused something
    /// before.
    pub(crate) fn close_synced(&self) -> io::Result<()> {
        let mut file = self.file.lock();
        file.check_open()?;
        file.closed = Some(SHUTTING_DOWN.to_owned());
        if file.unsynced { file.sync() } else { Ok(()) }
    }

    /// Writes the file anew, without what is out of date, if that is most of it.
    fn compact(&self, file: &mut OffsetFile) {
        let live = self.known.read().bytes as u64;
        if file.bytes / 4 >= live
            && let Err(error) = self.write_anew(file)
        {
            tracing::error!(path = %self.path.display(), %error, "the file of committed offsets cannot be written anew");
        }
        file.compact_at = file.bytes.saturating_mul(2).max(LEAST_COMPACTED_BYTES);
    }

    fn write_anew(&self, file: &mut OffsetFile) -> io::Result<()> {
        let mut content = Vec::new();
        {
            let known = self.known.read();
            for (group, of) in &known.groups {
                let offsets: Vec<_> =
                    of.offsets.iter().map(|(at, committed)| (at.clone(), committed.clone())).collect();
                for offsets in offsets.chunks(OFFSETS_A_RECORD) {
                    let protocol_type = of.protocol_type.clone();
                    let kind = ChangeKind::Commit { protocol_type, offsets: offsets.to_vec() };
                    encode(&Change { group: group.clone(), kind }, &mut content);
                }
            }
        }
        let beside = self.path.with_extension(text::TEMPORARY);
        let new = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&beside)?;
        write_header(&new)?;
        new.write_all_at(&content, HEADER_BYTES)?;
        // Whatever the policy: the old file is whole, and the new one must be before it takes its place.
        new.sync_data()?;
        fs::rename(&beside, &self.path)?;
        (file.file, file.bytes) = (new, HEADER_BYTES + content.len() as u64);
        (file.unsynced, file.dirty_tail) = (false, false);
        if let Some(dir) = self.path.parent() {
            text::sync_dir(dir)?;
        }
        Ok(())
    }
}

impl OffsetFile {
    fn check_open(&self) -> io::Result<()> {
        match &self.closed {
            Some(reason) => Err(io::Error::other(reason.clone())),
            None => Ok(()),
        }
    }

    /// Appends all changes or none.
    fn write<'a>(&mut self, changes: impl Iterator<Item = &'a Change>, sync: bool) -> io::Result<()> {
        self.check_open()?;
        if self.dirty_tail {
            self.file.set_len(self.bytes)?;
            self.dirty_tail = false;
        }
        let mut content = Vec::new();
        for change in changes {
            encode(change, &mut content);
        }
        if let Err(error) = self.file.write_all_at(&content, self.bytes) {
            self.dirty_tail = self.file.set_len(self.bytes).is_err();
            return Err(error);
        }
        self.bytes += content.len() as u64;
        self.unsynced = true;
        if sync { self.sync() } else { Ok(()) }
    }

    /// A failure is final: nobody knows what the file holds then, and a second try would wrongly succeed.
    fn sync(&mut self) -> io::Result<()> {
        if let Err(error) = self.file.sync_data() {
            tracing::error!(%error, "the disk refused committed offsets; none are taken until a restart");
            self.closed = Some(format!("no offsets are taken since the disk refused some: {error}"));
            return Err(error);
        }
        self.unsynced = false;
        Ok(())
    }
}

impl Known {
    fn apply(&mut self, change: Change) {
        let Change { group, kind } = change;
        match kind {
            ChangeKind::Commit { protocol_type, offsets } => {
                for (at, committed) in offsets {
                    self.bytes += cost(&group, &at, &committed);
                    let of = self.groups.entry(group.clone()).or_default();
                    of.protocol_type.clone_from(&protocol_type);
                    if let Some(old) = of.offsets.insert(at.clone(), committed) {
                        self.bytes -= cost(&group, &at, &old);
                    }
                }
            }
            ChangeKind::Remove(partitions) => self.retain_in(&group, |at, _| !partitions.contains(at)),
            ChangeKind::RemoveGroup => self.retain_in(&group, |_, _| false),
        }
    }

    fn retain(&mut self, keep: impl Fn(&TopicPartition, &CommittedOffset) -> bool) {
        let groups: Vec<String> = self.groups.keys().cloned().collect();
        for group in groups {
            self.retain_in(&group, &keep);
        }
    }

    fn retain_in(&mut self, group: &str, keep: impl Fn(&TopicPartition, &CommittedOffset) -> bool) {
        let Some(of) = self.groups.get_mut(group) else { return };
        let mut freed = 0;
        of.offsets.retain(|at, committed| {
            let kept = keep(at, committed);
            if !kept {
                freed += cost(group, at, committed);
            }
            kept
        });
        self.bytes -= freed;
        if of.offsets.is_empty() {
            self.groups.remove(group);
        }
    }

    /// How much more memory a change may take.
    fn growth(&self, change: &Change) -> usize {
        let ChangeKind::Commit { offsets, .. } = &change.kind else { return 0 };
        let of = self.groups.get(&change.group);
        let old = |at| of.and_then(|of| of.offsets.get(at)).map_or(0, |old| cost(&change.group, at, old));
        offsets.iter().map(|(at, committed)| cost(&change.group, at, committed).saturating_sub(old(at))).sum()
    }
}

fn cost(group: &str, at: &TopicPartition, committed: &CommittedOffset) -> usize {
    OFFSET_BYTES + group.len() + at.topic.as_str().len() + committed.metadata.len()
}

fn write_header(file: &File) -> io::Result<()> {
    let mut header = [0; HEADER_BYTES as usize];
    header[..8].copy_from_slice(MAGIC);
    header[8..].copy_from_slice(&VERSION.to_be_bytes());
    file.write_all_at(&header, 0)
}

/// Reads the records of a file. Answers how many of its bytes are sound; what follows was never acknowledged.
fn read_all(path: &Path, content: &[u8], known: &mut Known) -> Result<u64, OpenError> {
    let damaged = |reason: String| OpenError::Damaged { path: path.to_path_buf(), reason };
    let Some((header, mut rest)) = content.split_first_chunk::<{ HEADER_BYTES as usize }>() else {
        // The first start was killed before it had written all of it.
        return Ok(0);
    };
    let (magic, version) = header.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(damaged("it does not begin with TGOFFSET".to_owned()));
    }
    if version != VERSION.to_be_bytes() {
        let version = version.try_into().map(u32::from_be_bytes).unwrap_or_default();
        let found = version.to_string();
        return Err(OpenError::FormatVersion { path: path.to_path_buf(), found, supported: VERSION });
    }
    let mut at = HEADER_BYTES;
    while !rest.is_empty() {
        match decode(rest) {
            Found::Record(change, bytes) => {
                known.apply(change);
                at += bytes as u64;
                rest = rest.get(bytes..).unwrap_or_default();
            }
            // A torn write damages the end of the file. Sound records behind a broken one were acknowledged.
            Found::Cut | Found::Damaged => {
                if (1..rest.len()).any(|from| matches!(decode(rest.get(from..).unwrap_or_default()), Found::Record(..)))
                {
                    let reason = format!(
                        "the record at byte {at} is broken and sound ones follow; move the file away to go on without \
                         committed offsets"
                    );
                    return Err(damaged(reason));
                }
                break;
            }
        }
    }
    Ok(at)
}

#[cfg(test)]
mod tests;

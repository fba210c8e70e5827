//! The log of one partition: appending to it, forcing it to the disk, removing its old end.
//!
//! Locks, in the order in which they are taken: `maintenance` (one at a time: checkpoint, retention, deletion), `writer`
//! (one append at a time), `published` (held for the time of a copy). Readers take only the last.

use std::cell::Cell;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard, RwLock};
use tidegate_model::{BatchHeader, NO_TIMESTAMP, TimestampType, TopicPartition};
use tidegate_wire::{ProducedBatch, rewrite_for_append, with_max_timestamp};
use tokio::sync::watch;

use super::checkpoint::Checkpoint;
use super::index::{self, Index, IndexEntry};
use super::producers::{Novelty, Producers, SequenceError};
use super::recovery::{self, RecoverySettings};
use super::retention;
use super::segment::{Extent, FilePool, Segment, SegmentFiles, Stretch};
use super::text;
use super::topic_config::{LiveConfig, TopicConfig};
use super::view::{Progress, View};
use crate::config::FsyncPolicy;
use crate::error::OpenError;

/// The epoch of a leader that never changes.
pub(crate) const LEADER_EPOCH: i32 = 0;

/// The log of one partition.
#[derive(Debug)]
pub(crate) struct Log {
    topic_partition: TopicPartition,
    folder: Arc<Path>,
    pool: Arc<FilePool>,
    fsync: FsyncPolicy,
    config: Arc<LiveConfig>,
    published: RwLock<View>,
    progress: watch::Sender<Progress>,
    writer: Mutex<Writer>,
    maintenance: Mutex<Maintenance>,
}

/// What the writer knows beyond the published view.
#[derive(Debug)]
struct Writer {
    /// As written. It is ahead of the published view only while an append is in progress.
    view: View,
    producers: Producers,
    /// All records below it are on the disk.
    synced: i64,
    /// Something was appended since the log was opened.
    appended: bool,
    /// The base offset of a segment that was active, and the largest timestamp of its first batch.
    first_of_active: Cell<Option<(i64, i64)>>,
    /// Bytes behind the active extent could not be cut off yet.
    dirty_tail: bool,
    state: WriterState,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum WriterState {
    Open,
    /// The disk refused to take what was written. What it holds is known after a restart.
    Failed(String),
    Closed,
    Deleted,
}

#[derive(Debug)]
struct Maintenance {
    /// What the checkpoint file says.
    written: Option<Checkpoint>,
}

/// Where and when a batch was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Appended {
    pub(crate) base_offset: i64,
    /// Under LogAppendTime.
    pub(crate) log_append_time_ms: Option<i64>,
    pub(crate) log_start_offset: i64,
}

/// Why a log is not changed any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotOpen {
    #[error("the topic was deleted")]
    Deleted,
    #[error("the broker is shutting down")]
    Closed,
    #[error("the log takes no more records since the disk refused some: {reason}")]
    Failed { reason: String },
}

/// Why a batch was not appended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AppendError {
    #[error(transparent)]
    Sequence(#[from] SequenceError),
    #[error("the partition's offsets are used up")]
    Offsets,
    #[error(transparent)]
    NotOpen(#[from] NotOpen),
    #[error("cannot write: {0}")]
    Io(#[from] io::Error),
}

/// Why the log start was not moved.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MoveStartError {
    #[error("the offset is not between 0 and the high watermark {high_watermark}")]
    OutOfRange { high_watermark: i64 },
    #[error(transparent)]
    NotOpen(#[from] NotOpen),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Log {
    /// Opens the log in `folder`, which must exist, and recovers what a crash left.
    pub(crate) fn open(
        topic_partition: TopicPartition,
        folder: &Path,
        pool: Arc<FilePool>,
        config: Arc<LiveConfig>,
        settings: RecoverySettings,
    ) -> Result<Self, OpenError> {
        let folder: Arc<Path> = folder.into();
        let recovered = recovery::recover(&topic_partition, &folder, &pool, settings)?;
        let view = recovered.view;
        let progress = Progress { high_watermark: view.high_watermark(), ..Progress::default() };
        Ok(Self {
            topic_partition,
            folder,
            pool,
            fsync: settings.fsync,
            config,
            published: RwLock::new(view.clone()),
            progress: watch::Sender::new(progress),
            writer: Mutex::new(Writer {
                view,
                producers: recovered.producers,
                synced: recovered.synced,
                appended: false,
                first_of_active: Cell::default(),
                dirty_tail: false,
                state: WriterState::Open,
            }),
            maintenance: Mutex::new(Maintenance { written: recovered.checkpoint }),
        })
    }

    pub(crate) fn topic_partition(&self) -> &TopicPartition {
        &self.topic_partition
    }

    #[cfg(test)]
    pub(crate) fn config(&self) -> Arc<TopicConfig> {
        self.config.get()
    }

    pub(crate) fn pool(&self) -> &FilePool {
        &self.pool
    }

    /// Whether the topic was deleted.
    pub(crate) fn is_deleted(&self) -> bool {
        self.progress.borrow().deleted
    }

    /// What may be read now.
    pub(crate) fn view(&self) -> View {
        self.published.read().clone()
    }

    /// For waiting until there is more.
    pub(crate) fn watch(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Appends a batch that was checked, at the next offset. A batch that an idempotent producer sent before is not
    /// appended again; the answer is then that of the first time.
    ///
    /// `config` is the one that the batch was checked with: the topic's own may have changed since, and then nobody would
    /// have looked at what it asks for.
    ///
    /// When this returns, the batch is in the page cache, and under [`FsyncPolicy::Always`] on the disk; on an error the
    /// log is as it was.
    pub(crate) fn append(
        &self,
        batch: &ProducedBatch,
        config: &TopicConfig,
        now_ms: i64,
    ) -> Result<Appended, AppendError> {
        let mut writer = self.writer.lock();
        writer.check_open()?;
        let received = batch.raw.header();
        let by_append_time = config.timestamp_type == TimestampType::LogAppendTime;
        if let Novelty::Duplicate(first) = writer.producers.check(received)? {
            return Ok(Appended {
                base_offset: first.base_offset,
                log_append_time_ms: by_append_time.then_some(first.max_timestamp),
                log_start_offset: writer.view.log_start_offset,
            });
        }
        let base_offset = writer.view.high_watermark();
        base_offset.checked_add(i64::from(received.last_offset_delta) + 1).ok_or(AppendError::Offsets)?;

        let log_append_time_ms = by_append_time.then_some(now_ms);
        let true_max = batch.timestamps.max.map_or(NO_TIMESTAMP, |max| max.timestamp_ms);
        let corrected =
            (!by_append_time && received.max_timestamp != true_max).then(|| with_max_timestamp(&batch.raw, true_max));
        let raw = corrected.as_ref().unwrap_or(&batch.raw);
        let bytes = rewrite_for_append(raw, base_offset, LEADER_EPOCH, log_append_time_ms);
        let header =
            BatchHeader { base_offset, max_timestamp: log_append_time_ms.unwrap_or(true_max), ..*raw.header() };

        writer.make_room(self, config, bytes.len(), header.max_timestamp)?;
        let files = writer.write(self, &bytes, &header)?;
        if self.fsync == FsyncPolicy::Always {
            writer.sync_active(self, &files)?;
        }
        writer.producers.record(&header, now_ms);
        writer.appended = true;
        self.publish(&writer, bytes.len() as u64);
        Ok(Appended { base_offset, log_append_time_ms, log_start_offset: writer.view.log_start_offset })
    }

    /// Forces to the disk what is not there yet. Appends go on meanwhile.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let (unsynced, end) = {
            let writer = self.writer.lock();
            match &writer.state {
                WriterState::Deleted => return Ok(()),
                WriterState::Failed(reason) => return Err(io::Error::other(reason.clone())),
                WriterState::Open | WriterState::Closed => {}
            }
            if writer.synced >= writer.view.high_watermark() {
                return Ok(());
            }
            let unsynced: Vec<Stretch> = writer.view.stretches_from(writer.synced).cloned().collect();
            (unsynced, writer.view.high_watermark())
        };
        for stretch in &unsynced {
            let files = match self.pool.open(&stretch.segment) {
                Ok(files) => files,
                // The retention has removed it: nothing is left to be forced.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            // After a failed fsync the kernel may have dropped the pages: nobody knows what the file holds, and a second
            // fsync would wrongly succeed.
            files.log.sync_data().inspect_err(|error| self.writer.lock().fail(&self.topic_partition, error))?;
        }
        let mut writer = self.writer.lock();
        writer.synced = writer.synced.max(end);
        Ok(())
    }

    /// Writes down how far the log is on the disk, and its start. Cheap when nothing changed.
    pub(crate) fn write_checkpoint(&self) -> io::Result<()> {
        let mut maintenance = self.maintenance.lock();
        let (checkpoint, durable) = {
            let writer = self.writer.lock();
            (Self::checkpoint_of(&writer), writer.must_be_durable())
        };
        match checkpoint {
            Some(checkpoint) if maintenance.written != Some(checkpoint) => {
                maintenance.write(&self.folder, checkpoint, durable)
            }
            _ => Ok(()),
        }
    }

    /// Takes no more records, and leaves everything on the disk in such a way that the next start has nothing to recover.
    pub(crate) fn close(&self) -> io::Result<()> {
        {
            let mut writer = self.writer.lock();
            if writer.state == WriterState::Open {
                writer.state = WriterState::Closed;
            }
        }
        self.sync()?;
        let mut maintenance = self.maintenance.lock();
        let mut writer = self.writer.lock();
        if writer.state != WriterState::Closed {
            return Ok(());
        }
        writer.clean_tail(self)?;
        let checkpoint = writer.checkpoint();
        if maintenance.written == Some(checkpoint) && !writer.appended {
            return Ok(());
        }
        if self.fsync == FsyncPolicy::Never {
            text::sync_dir(&self.folder)?;
        }
        // Both only spare the next start some reading, so they need not be waited for.
        writer.producers.write_snapshot(&self.folder, writer.view.high_watermark(), false)?;
        maintenance.write(&self.folder, checkpoint, writer.must_be_durable())
    }

    /// Writes nothing any more.
    pub(crate) fn abandon(&self) {
        let _maintenance = self.maintenance.lock();
        let mut writer = self.writer.lock();
        if writer.state != WriterState::Deleted {
            writer.state = WriterState::Closed;
        }
    }

    /// Whether there are records that were not forced to the disk. Does not wait: while something is being appended, there
    /// may be.
    pub(crate) fn has_unsynced(&self) -> bool {
        let Some(writer) = self.writer.try_lock() else { return true };
        writer.state == WriterState::Open && writer.synced < writer.view.high_watermark()
    }

    /// Whether the checkpoint file does not say what it should. Does not wait: while others are at work, it may not.
    pub(crate) fn has_stale_checkpoint(&self) -> bool {
        let Some(maintenance) = self.maintenance.try_lock() else { return true };
        let Some(writer) = self.writer.try_lock() else { return true };
        Self::checkpoint_of(&writer).is_some_and(|checkpoint| maintenance.written != Some(checkpoint))
    }

    /// Takes no more records and wakes whoever waits for some. The folder can be removed when this returns.
    pub(crate) fn mark_deleted(&self) {
        let _maintenance = self.maintenance.lock();
        let mut writer = self.writer.lock();
        writer.state = WriterState::Deleted;
        for stretch in writer.view.stretches() {
            self.pool.retire(&stretch.segment);
        }
        self.progress.send_modify(|progress| progress.deleted = true);
    }

    /// Deletes the records before `offset`. Answers the log start offset, which is the old one if that lies further.
    pub(crate) fn delete_before(&self, offset: i64) -> Result<i64, MoveStartError> {
        let mut maintenance = self.maintenance.lock();
        let (mut checkpoint, view) = {
            let writer = self.writer.lock();
            writer.check_open()?;
            (writer.checkpoint(), self.view())
        };
        if offset < 0 || offset > view.high_watermark() {
            return Err(MoveStartError::OutOfRange { high_watermark: view.high_watermark() });
        }
        if offset <= view.log_start_offset {
            return Ok(view.log_start_offset);
        }
        // Only what holds the maintenance lock moves the start, so the checkpoint can be written first: once the answer is
        // out, no restart brings the records back.
        checkpoint.log_start_offset = offset;
        maintenance.write(&self.folder, checkpoint, true)?;
        let removed = {
            let mut writer = self.writer.lock();
            writer.check_open()?;
            writer.view.log_start_offset = offset;
            let whole = writer.view.stretches().take_while(|stretch| stretch.extent.next_offset <= offset).count();
            let removed = writer.drop_oldest(self, whole)?;
            self.publish(&writer, 0);
            removed
        };
        self.remove_segments(&removed)?;
        Ok(offset)
    }

    /// Deletes the segments that the topic's retention no longer covers. Answers how many.
    pub(crate) fn apply_retention(&self, now_ms: i64) -> io::Result<usize> {
        let maintenance = self.maintenance.lock();
        let removed = {
            let mut writer = self.writer.lock();
            if writer.state != WriterState::Open {
                return Ok(0);
            }
            let config = self.config.get();
            let ages = self.ages(&writer.view, &config);
            let count = retention::expired(&ages, &config, now_ms);
            if count == 0 {
                return Ok(0);
            }
            let removed = writer.drop_oldest(self, count)?;
            self.publish(&writer, 0);
            removed
        };
        self.remove_segments(&removed)?;
        drop(maintenance);
        self.write_checkpoint()?;
        Ok(removed.len())
    }

    /// Forgets producers that have been silent since before `before_ms`.
    pub(crate) fn expire_producers(&self, before_ms: i64) {
        self.writer.lock().producers.expire(before_ms);
    }

    /// What the retention judges each segment by.
    fn ages(&self, view: &View, config: &TopicConfig) -> Vec<retention::Age> {
        let modified = |segment: &Segment| {
            let modified = self.pool.open(segment).and_then(|files| files.log.metadata()).and_then(|m| m.modified());
            // A segment whose age nobody knows is kept.
            modified.map_or(i64::MAX, crate::clock::millis)
        };
        view.stretches()
            .map(|Stretch { segment, extent }| retention::Age {
                bytes: extent.bytes,
                newest_ms: if extent.bytes == 0 || extent.max_timestamp >= 0 || config.retention_ms.is_none() {
                    extent.max_timestamp
                } else {
                    modified(segment)
                },
            })
            .collect()
    }

    fn remove_segments(&self, removed: &[Arc<Segment>]) -> io::Result<()> {
        let results: Vec<_> = removed.iter().map(|segment| self.pool.remove(segment)).collect();
        results.into_iter().collect()
    }

    /// What the checkpoint file should say; `None` when it is left as it is.
    fn checkpoint_of(writer: &Writer) -> Option<Checkpoint> {
        // A failed log says nothing new: what it holds is found out by the next start.
        (writer.state == WriterState::Open).then(|| writer.checkpoint())
    }

    fn publish(&self, writer: &MutexGuard<'_, Writer>, appended_bytes: u64) {
        *self.published.write() = writer.view.clone();
        self.progress.send_modify(|progress| {
            progress.high_watermark = writer.view.high_watermark();
            progress.appended_bytes = progress.appended_bytes.wrapping_add(appended_bytes);
        });
    }
}

impl Maintenance {
    fn write(&mut self, folder: &Path, checkpoint: Checkpoint, durable: bool) -> io::Result<()> {
        // Until the new file is whole, nobody knows what the next start will read.
        self.written = None;
        checkpoint.write(folder, durable)?;
        self.written = Some(checkpoint);
        Ok(())
    }
}

impl Writer {
    fn check_open(&self) -> Result<(), NotOpen> {
        match &self.state {
            WriterState::Open => Ok(()),
            WriterState::Failed(reason) => Err(NotOpen::Failed { reason: reason.clone() }),
            WriterState::Closed => Err(NotOpen::Closed),
            WriterState::Deleted => Err(NotOpen::Deleted),
        }
    }

    /// Whether the checkpoint says something that nothing else does: a log start that is no segment's, after a deletion of
    /// records. Else losing it costs no more than reading.
    fn must_be_durable(&self) -> bool {
        let first = self.view.stretches().next().map(|stretch| stretch.segment.base_offset());
        first != Some(self.view.log_start_offset)
    }

    fn checkpoint(&self) -> Checkpoint {
        Checkpoint { log_start_offset: self.view.log_start_offset, synced: self.synced }
    }

    fn fail(&mut self, topic_partition: &TopicPartition, error: &io::Error) {
        tracing::error!(%topic_partition, %error, "the disk refused records; the partition takes no more until a restart");
        if self.state == WriterState::Open {
            self.state = WriterState::Failed(error.to_string());
        }
    }

    /// Begins a new segment if a batch of `bytes` does not fit into the active one, or is too much younger than its first.
    /// An empty segment takes any batch.
    fn make_room(&mut self, log: &Log, config: &TopicConfig, bytes: usize, max_timestamp: i64) -> io::Result<()> {
        let Extent { bytes: used, entries, .. } = self.view.active.extent;
        if used == 0 {
            return Ok(());
        }
        let full = used.saturating_add(bytes as u64) > config.segment_bytes || entries >= index::MAX_ENTRIES;
        // As in Kafka by the records' own times (`LogSegment.timeWaitedForRoll`): else a topic that is fed slowly would
        // keep its old records for ever, in a segment whose newest is always young. Records without a time roll nothing.
        let late = || -> io::Result<bool> {
            let first = self.first_timestamp(log)?;
            Ok(first >= 0 && max_timestamp.saturating_sub(first) > config.segment_ms)
        };
        if full || late()? { self.roll(log) } else { Ok(()) }
    }

    /// The largest timestamp of the active segment's first batch, which must be there.
    fn first_timestamp(&self, log: &Log) -> io::Result<i64> {
        let Stretch { segment, extent } = &self.view.active;
        if let Some((base_offset, timestamp)) = self.first_of_active.get()
            && base_offset == segment.base_offset()
        {
            return Ok(timestamp);
        }
        let files = log.pool.open(segment)?;
        let timestamp = Index::new(&files.index, extent.entries).get(0)?.max_timestamp;
        self.first_of_active.set(Some((segment.base_offset(), timestamp)));
        Ok(timestamp)
    }

    /// Seals the active segment and begins a new one at the next offset. On an error the active one stays.
    fn roll(&mut self, log: &Log) -> io::Result<()> {
        let next_offset = self.view.active.extent.next_offset;
        self.clean_tail(log)?;
        if log.fsync != FsyncPolicy::Never {
            // A segment that has a successor is whole on the disk: the recovery looks only at the last one.
            let files = log.pool.open(&self.view.active.segment)?;
            self.sync_active(log, &files)?;
            files.index.sync_data()?;
        }
        // With it the recovery need not read the sealed segments for their producers.
        self.producers.write_snapshot(&log.folder, next_offset, false)?;
        let segment = Arc::new(Segment::new(&log.folder, next_offset));
        log.pool.create(&segment)?;
        if log.fsync != FsyncPolicy::Never
            && let Err(error) = text::sync_dir(&log.folder)
        {
            // Its name would be wrong after the next append to the old segment.
            let _ = log.pool.remove(&segment);
            return Err(error);
        }
        let active = Stretch { segment, extent: Extent::empty(next_offset) };
        let sealed = std::mem::replace(&mut self.view.active, active);
        Arc::make_mut(&mut self.view.sealed).push(sealed);
        Ok(())
    }

    /// Writes a batch and its index entry behind the active extent; all of it or nothing. Answers the files: what follows
    /// must not fail for want of a file descriptor.
    fn write(&mut self, log: &Log, bytes: &[u8], header: &BatchHeader) -> io::Result<Arc<SegmentFiles>> {
        let files = log.pool.open(&self.view.active.segment)?;
        self.clean_tail(log)?;
        let extent = self.view.active.extent;
        let entry = IndexEntry::of(header, extent.bytes, bytes.len(), extent.max_timestamp)
            .ok_or_else(|| io::Error::new(io::ErrorKind::FileTooLarge, "the segment would exceed 4 GiB"))?;
        let written = files
            .log
            .write_all_at(bytes, extent.bytes)
            .and_then(|()| files.index.write_all_at(&entry.encode(), index::entry_at(extent.entries)));
        if let Err(error) = written {
            self.dirty_tail = cut(&files, &extent).is_err();
            return Err(error);
        }
        self.view.active.extent = Extent {
            bytes: entry.end(),
            entries: extent.entries + 1,
            next_offset: entry.last_offset + 1,
            max_timestamp: entry.running_max,
        };
        Ok(files)
    }

    /// Cuts off what a failed append left, if that was not possible at the time.
    fn clean_tail(&mut self, log: &Log) -> io::Result<()> {
        if self.dirty_tail {
            let files = log.pool.open(&self.view.active.segment)?;
            cut(&files, &self.view.active.extent)?;
            self.dirty_tail = false;
        }
        Ok(())
    }

    /// Forces the active segment to the disk. A failure is final, see [`Log::sync`].
    fn sync_active(&mut self, log: &Log, files: &SegmentFiles) -> io::Result<()> {
        if let Err(error) = files.log.sync_data() {
            self.fail(&log.topic_partition, &error);
            return Err(error);
        }
        self.synced = self.synced.max(self.view.active.extent.next_offset);
        Ok(())
    }

    /// Takes the `count` oldest segments out of the view. If that is all of them, an empty one is begun first.
    fn drop_oldest(&mut self, log: &Log, count: usize) -> io::Result<Vec<Arc<Segment>>> {
        if count > self.view.sealed.len() {
            if self.view.active.extent.bytes == 0 {
                return self.drop_oldest(log, self.view.sealed.len());
            }
            self.roll(log)?;
        }
        let sealed = Arc::make_mut(&mut self.view.sealed);
        let removed: Vec<_> = sealed.drain(..count.min(sealed.len())).collect();
        let first = self.view.stretches().next().map_or(0, |stretch| stretch.segment.base_offset());
        self.view.log_start_offset = self.view.log_start_offset.max(first);
        Ok(removed.into_iter().map(|stretch| stretch.segment).collect())
    }
}

/// Cuts both files of a segment to its extent.
fn cut(files: &SegmentFiles, extent: &Extent) -> io::Result<()> {
    files.log.set_len(extent.bytes)?;
    files.index.set_len(index::entry_at(extent.entries))
}

#[cfg(test)]
mod tests;

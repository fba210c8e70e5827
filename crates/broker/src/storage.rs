//! The data folder: topics, their logs, and what outlives the process.
//!
//! ```text
//! lock                      held while a broker uses the folder
//! meta                      cluster id, producer ids, topics (`meta.rs`)
//! offsets                   committed offsets of consumer groups (`offsets.rs`)
//! partitions/<topic id>-<partition>/
//!     partition             whose folder it is, and the format version of its files (`checkpoint.rs`)
//!     checkpoint            log start and how far the log is on the disk (`checkpoint.rs`)
//!     <offset>.log          record batches as received, from that offset on (`segment.rs`)
//!     <offset>.index        an entry per batch (`index.rs`)
//!     <offset>.producers    the idempotent producers as of that offset (`producers.rs`)
//! ```
//!
//! All functions here block; callers run them on blocking threads.

mod checkpoint;
mod index;
pub(crate) mod log;
pub(crate) mod lookup;
mod meta;
pub(crate) mod offsets;
pub(crate) mod producers;
pub(crate) mod read;
mod recovery;
mod retention;
mod segment;
#[cfg(test)]
mod testing;
mod text;
pub(crate) mod topic_config;
pub(crate) mod view;

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tidegate_model::{TopicName, TopicPartition};
use uuid::Uuid;

use crate::clock;
use crate::config::FsyncPolicy;
use crate::error::{OpenError, ShutdownError};
use log::Log;
use meta::{Meta, TopicMeta};
use offsets::OffsetStore;
use recovery::RecoverySettings;
use segment::FilePool;
use topic_config::{LiveConfig, TopicConfig};

/// Producer ids reserved at a time, so that handing one out seldom writes a file.
const PRODUCER_ID_BLOCK: i64 = 1000;

/// An open data folder.
#[derive(Debug)]
pub(crate) struct Storage {
    dir: PathBuf,
    settings: StorageSettings,
    pool: Arc<FilePool>,
    cluster_id: String,
    /// Held by whoever changes the set of topics or reserves producer ids.
    meta: Mutex<MetaState>,
    producer_ids: Mutex<std::ops::Range<i64>>,
    topics: RwLock<Topics>,
    offsets: OffsetStore,
    /// The lock goes with the file.
    lock: Mutex<Option<File>>,
}

/// What a storage needs to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StorageSettings {
    pub(crate) fsync: FsyncPolicy,
    pub(crate) open_segments: usize,
    pub(crate) producers_per_partition: usize,
    pub(crate) max_partitions: usize,
    pub(crate) committed_offset_bytes: usize,
}

#[derive(Debug)]
struct MetaState {
    meta: Meta,
    closed: bool,
}

impl MetaState {
    /// The meta data, unless nothing may be written any more.
    fn open(&mut self) -> io::Result<&mut Meta> {
        if self.closed { Err(io::Error::other("the broker is shutting down")) } else { Ok(&mut self.meta) }
    }
}

#[derive(Debug, Default)]
struct Topics {
    by_name: BTreeMap<TopicName, Arc<Topic>>,
    by_id: HashMap<Uuid, Arc<Topic>>,
}

/// A topic with its logs.
#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) name: TopicName,
    pub(crate) id: Uuid,
    pub(crate) config: Arc<LiveConfig>,
    pub(crate) partitions: Vec<Arc<Log>>,
}

impl Topic {
    /// The log of a partition.
    pub(crate) fn partition(&self, partition: i32) -> Option<&Arc<Log>> {
        self.partitions.get(usize::try_from(partition).ok()?)
    }
}

/// Why a topic was not created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CreateError {
    #[error("the topic exists")]
    Exists,
    #[error(transparent)]
    TooManyPartitions(#[from] TooManyPartitions),
    #[error(transparent)]
    Storage(#[from] OpenError),
}

/// Why a topic got no more partitions.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AddError {
    #[error("there is no such topic")]
    Unknown,
    #[error("the topic {topic} has {present} partitions; {wanted} would not be more")]
    NotMore { topic: TopicName, present: i32, wanted: i32 },
    #[error(transparent)]
    TooMany(#[from] TooManyPartitions),
    #[error(transparent)]
    Storage(OpenError),
}

/// There would be more partitions than there may be.
#[derive(Debug, thiserror::Error)]
#[error("with {wanted} more partitions there would be more than the {most} that this broker is limited to")]
pub(crate) struct TooManyPartitions {
    wanted: i32,
    most: usize,
}

/// Why a topic's configuration was not changed.
#[derive(Debug)]
pub(crate) enum ChangeError<E> {
    Unknown,
    Refused(E),
    Io(io::Error),
}

/// Why a topic was not deleted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeleteError {
    #[error("there is no such topic")]
    Unknown,
    #[error("cannot write that the topic is deleted: {0}")]
    Io(io::Error),
}

impl Storage {
    /// Opens a data folder, or makes one of an empty or missing folder.
    pub(crate) fn open(dir: &Path, settings: StorageSettings) -> Result<Self, OpenError> {
        let io = |action| move |source| OpenError::Io { action, path: dir.to_path_buf(), source };
        fs::create_dir_all(dir).map_err(io("create the folder"))?;
        let lock = lock(dir)?;
        let meta = match Meta::read(dir)? {
            Some(meta) => meta,
            None => {
                check_empty(dir)?;
                let meta = Meta::new();
                meta.write(dir).map_err(io("write into the folder"))?;
                meta
            }
        };
        fs::create_dir_all(dir.join(PARTITIONS)).map_err(io("create a folder in the folder"))?;
        let topic_is_there = |id| meta.topics.values().any(|topic| topic.id == id);
        let offsets = OffsetStore::open(dir, settings.fsync, settings.committed_offset_bytes, topic_is_there)?;
        let storage = Self {
            dir: dir.to_path_buf(),
            settings,
            pool: Arc::new(FilePool::new(settings.open_segments)),
            cluster_id: meta.cluster_id.clone(),
            producer_ids: Mutex::new(0..0),
            meta: Mutex::new(MetaState { meta: meta.clone(), closed: false }),
            topics: RwLock::default(),
            offsets,
            lock: Mutex::new(Some(lock)),
        };
        storage.remove_orphans(&meta)?;
        for (name, topic) in meta.topics {
            let topic = storage.open_topic(name, topic, false)?;
            storage.topics.write().insert(topic);
        }
        Ok(storage)
    }

    pub(crate) fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// The committed offsets.
    pub(crate) fn offsets(&self) -> &OffsetStore {
        &self.offsets
    }

    pub(crate) fn topic(&self, name: &TopicName) -> Option<Arc<Topic>> {
        self.topics.read().by_name.get(name).cloned()
    }

    pub(crate) fn topic_by_id(&self, id: Uuid) -> Option<Arc<Topic>> {
        self.topics.read().by_id.get(&id).cloned()
    }

    /// All topics, by name.
    pub(crate) fn topics(&self) -> Vec<Arc<Topic>> {
        self.topics.read().by_name.values().cloned().collect()
    }

    /// The logs of all partitions.
    pub(crate) fn logs(&self) -> Vec<Arc<Log>> {
        self.topics.read().by_name.values().flat_map(|topic| topic.partitions.iter().cloned()).collect()
    }

    /// Whether a topic of this name and size could be created now.
    pub(crate) fn check_create(&self, name: &TopicName, partitions: i32) -> Result<(), CreateError> {
        self.check_room(&self.meta.lock().meta, name, partitions)
    }

    /// Creates a topic. It is on the disk when this returns.
    pub(crate) fn create_topic(
        &self,
        name: &TopicName,
        partitions: i32,
        config: TopicConfig,
    ) -> Result<Arc<Topic>, CreateError> {
        let mut state = self.meta.lock();
        let path = Meta::path(&self.dir);
        let io = |source| OpenError::Io { action: "write", path: path.clone(), source };
        let meta = state.open().map_err(io)?;
        self.check_room(meta, name, partitions)?;
        let topic_meta = TopicMeta { id: Uuid::new_v4(), partitions, config };
        let id = topic_meta.id;
        let created = self.open_topic(name.clone(), topic_meta.clone(), true).and_then(|topic| {
            meta.topics.insert(name.clone(), topic_meta);
            meta.write(&self.dir).map_err(io)?;
            Ok(topic)
        });
        match created {
            Ok(topic) => {
                self.topics.write().insert(Arc::clone(&topic));
                Ok(topic)
            }
            Err(error) => {
                meta.topics.remove(name);
                // What stays behind is an orphan of the next start.
                let _ = self.remove_folders(id, 0..partitions);
                Err(error.into())
            }
        }
    }

    /// Adds partitions to a topic until it has `count`. They are on the disk when this returns. `only_check`: as far as that
    /// can be said without doing it.
    pub(crate) fn add_partitions(&self, name: &TopicName, count: i32, only_check: bool) -> Result<(), AddError> {
        let mut state = self.meta.lock();
        let path = Meta::path(&self.dir);
        let io = |source| AddError::Storage(OpenError::Io { action: "write", path: path.clone(), source });
        let meta = state.open().map_err(io)?;
        let before = meta.topics.get(name).ok_or(AddError::Unknown)?.partitions;
        if count <= before {
            return Err(AddError::NotMore { topic: name.clone(), present: before, wanted: count });
        }
        self.check_most(meta, count - before)?;
        let topic = self.topic(name).ok_or(AddError::Unknown)?;
        if only_check {
            return Ok(());
        }
        let opened = self.open_logs(name, topic.id, &topic.config, before..count, true).map_err(AddError::Storage);
        let added = opened.and_then(|logs| {
            if let Some(topic) = meta.topics.get_mut(name) {
                topic.partitions = count;
            }
            meta.write(&self.dir).map_err(io)?;
            Ok(logs)
        });
        match added {
            Ok(logs) => {
                let partitions = topic.partitions.iter().cloned().chain(logs).collect();
                let (name, config) = (name.clone(), Arc::clone(&topic.config));
                self.topics.write().insert(Arc::new(Topic { name, id: topic.id, config, partitions }));
                Ok(())
            }
            Err(error) => {
                if let Some(topic) = meta.topics.get_mut(name) {
                    topic.partitions = before;
                }
                // What stays behind is an orphan of the next start.
                let _ = self.remove_folders(topic.id, before..count);
                Err(error)
            }
        }
    }

    /// Gives a topic another configuration: what `change` makes of the present one. It is on the disk when this returns.
    pub(crate) fn change_config<E>(
        &self,
        name: &TopicName,
        only_check: bool,
        change: impl FnOnce(&TopicConfig) -> Result<TopicConfig, E>,
    ) -> Result<(), ChangeError<E>> {
        let mut state = self.meta.lock();
        let meta = state.open().map_err(ChangeError::Io)?;
        let topic = self.topic(name).ok_or(ChangeError::Unknown)?;
        let of = meta.topics.get_mut(name).ok_or(ChangeError::Unknown)?;
        let config = change(&of.config).map_err(ChangeError::Refused)?;
        if only_check {
            return Ok(());
        }
        let before = std::mem::replace(&mut of.config, config.clone());
        if let Err(error) = meta.write(&self.dir) {
            if let Some(of) = meta.topics.get_mut(name) {
                of.config = before;
            }
            return Err(ChangeError::Io(error));
        }
        topic.config.set(config);
        Ok(())
    }

    /// Deletes a topic with its records. Fetches that wait for it are woken.
    pub(crate) fn delete_topic(&self, name: &TopicName) -> Result<(), DeleteError> {
        let mut state = self.meta.lock();
        let meta = state.open().map_err(DeleteError::Io)?;
        let removed = meta.topics.remove(name).ok_or(DeleteError::Unknown)?;
        if let Err(error) = meta.write(&self.dir) {
            meta.topics.insert(name.clone(), removed);
            return Err(DeleteError::Io(error));
        }
        let topic = self.topics.write().remove(name);
        for log in topic.iter().flat_map(|topic| &topic.partitions) {
            log.mark_deleted();
        }
        self.offsets.forget_topic(removed.id);
        if let Err(error) = self.remove_folders(removed.id, 0..removed.partitions) {
            tracing::warn!(topic = %name, %error, "the folders of a deleted topic stay until the next start");
        }
        Ok(())
    }

    /// A producer id that was never handed out before.
    pub(crate) fn next_producer_id(&self) -> io::Result<i64> {
        let mut ids = self.producer_ids.lock();
        if ids.is_empty() {
            let mut state = self.meta.lock();
            let meta = state.open()?;
            let first = meta.next_producer_id;
            let end = first.checked_add(PRODUCER_ID_BLOCK).ok_or_else(|| io::Error::other("no producer id is left"))?;
            meta.next_producer_id = end;
            if let Err(error) = meta.write(&self.dir) {
                meta.next_producer_id = first;
                return Err(error);
            }
            *ids = first..end;
        }
        ids.next().ok_or_else(|| io::Error::other("no producer id is left"))
    }

    /// Forces everything to the disk and lets go of the folder. Nothing is written any more afterwards.
    pub(crate) fn close(&self) -> Result<(), ShutdownError> {
        self.meta.lock().closed = true;
        let mut result = Ok(());
        for log in self.logs() {
            if let Err(source) = log.close() {
                let topic_partition = log.topic_partition().clone();
                tracing::error!(%topic_partition, error = %source, "a log could not be closed");
                result = result.and(Err(ShutdownError::Flush { topic_partition, source }));
            }
        }
        if let Err(source) = self.offsets.close_synced() {
            tracing::error!(error = %source, "the committed offsets could not be forced to the disk");
            result = result.and(Err(ShutdownError::FlushOffsets { source }));
        }
        *self.lock.lock() = None;
        result
    }

    /// Writes nothing any more, and lets go of the folder as it is.
    pub(crate) fn abandon(&self) {
        self.meta.lock().closed = true;
        for log in self.logs() {
            log.abandon();
        }
        self.offsets.close();
        *self.lock.lock() = None;
    }

    fn check_room(&self, meta: &Meta, name: &TopicName, partitions: i32) -> Result<(), CreateError> {
        if meta.topics.contains_key(name) {
            return Err(CreateError::Exists);
        }
        Ok(self.check_most(meta, partitions)?)
    }

    fn check_most(&self, meta: &Meta, wanted: i32) -> Result<(), TooManyPartitions> {
        let most = self.settings.max_partitions;
        let count = |partitions: i32| usize::try_from(partitions).unwrap_or(0);
        let present: usize = meta.topics.values().map(|topic| count(topic.partitions)).sum();
        if present.saturating_add(count(wanted)) > most { Err(TooManyPartitions { wanted, most }) } else { Ok(()) }
    }

    /// Opens the logs of a topic; `new`: makes their folders first.
    fn open_topic(&self, name: TopicName, meta: TopicMeta, new: bool) -> Result<Arc<Topic>, OpenError> {
        let config = Arc::new(LiveConfig::new(meta.config));
        let partitions = self.open_logs(&name, meta.id, &config, 0..meta.partitions, new)?;
        Ok(Arc::new(Topic { name, id: meta.id, config, partitions }))
    }

    fn open_logs(
        &self,
        name: &TopicName,
        id: Uuid,
        config: &Arc<LiveConfig>,
        partitions: std::ops::Range<i32>,
        new: bool,
    ) -> Result<Vec<Arc<Log>>, OpenError> {
        let settings = RecoverySettings {
            fsync: self.settings.fsync,
            producers: self.settings.producers_per_partition,
            now_ms: clock::now_ms(),
        };
        let logs = partitions.map(|partition| {
            let topic_partition = TopicPartition::new(name.clone(), partition);
            let folder = self.folder(id, partition);
            if new {
                fs::create_dir(&folder)
                    .and_then(|()| checkpoint::write_partition_file(&folder, &topic_partition, id))
                    .map_err(|source| OpenError::Io { action: "create", path: folder.clone(), source })?;
            } else {
                checkpoint::check_partition_file(&folder, &topic_partition, id)?;
            }
            let pool = Arc::clone(&self.pool);
            Log::open(topic_partition, &folder, pool, Arc::clone(config), settings).map(Arc::new)
        });
        let logs = logs.collect::<Result<_, _>>()?;
        if new {
            let path = self.dir.join(PARTITIONS);
            text::sync_dir(&path).map_err(|source| OpenError::Io { action: "write", path, source })?;
        }
        Ok(logs)
    }

    fn folder(&self, id: Uuid, partition: i32) -> PathBuf {
        self.dir.join(PARTITIONS).join(format!("{id}-{partition}"))
    }

    fn remove_folders(&self, id: Uuid, partitions: std::ops::Range<i32>) -> io::Result<()> {
        for partition in partitions {
            match fs::remove_dir_all(self.folder(id, partition)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes the folders of topics and partitions that a crash left half created or half deleted: the meta file decides.
    fn remove_orphans(&self, meta: &Meta) -> Result<(), OpenError> {
        let path = self.dir.join(PARTITIONS);
        let clear = || -> io::Result<()> {
            for entry in fs::read_dir(&path)? {
                let entry = entry?;
                let name = entry.file_name();
                let Some((id, partition)) = name.to_str().and_then(folder_of) else { continue };
                let is_of = |topic: &TopicMeta| topic.id == id && partition < topic.partitions;
                if !meta.topics.values().any(is_of) {
                    tracing::info!(folder = %entry.path().display(), "removing the folder of a topic that is not there");
                    fs::remove_dir_all(entry.path())?;
                }
            }
            Ok(())
        };
        clear().map_err(|source| OpenError::Io { action: "clear", path, source })
    }
}

impl Topics {
    fn insert(&mut self, topic: Arc<Topic>) {
        self.by_id.insert(topic.id, Arc::clone(&topic));
        self.by_name.insert(topic.name.clone(), topic);
    }

    fn remove(&mut self, name: &TopicName) -> Option<Arc<Topic>> {
        let topic = self.by_name.remove(name)?;
        self.by_id.remove(&topic.id);
        Some(topic)
    }
}

/// The topic's id and the partition in the name of a folder.
fn folder_of(name: &str) -> Option<(Uuid, i32)> {
    let (id, partition) = name.split_at_checked(36)?;
    Some((id.parse().ok()?, partition.strip_prefix('-')?.parse().ok()?))
}

const PARTITIONS: &str = "partitions";
const LOCK: &str = "lock";

fn lock(dir: &Path) -> Result<File, OpenError> {
    let path = dir.join(LOCK);
    let io = |source| OpenError::Io { action: "lock", path: path.clone(), source };
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path).map_err(io)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path: dir.to_path_buf() }),
        Err(TryLockError::Error(source)) => Err(io(source)),
    }
}

/// A folder without a meta file must hold nothing, so that a mistaken path is not filled or cleared.
fn check_empty(dir: &Path) -> Result<(), OpenError> {
    let foreign = |entry: io::Result<fs::DirEntry>| -> io::Result<bool> {
        // A first start that was killed may have left the lock and a meta file half written.
        Ok(!matches!(entry?.file_name().to_str(), Some(LOCK | "meta.tmp" | "lost+found")))
    };
    let found = || -> io::Result<bool> {
        for entry in fs::read_dir(dir)? {
            if foreign(entry)? {
                return Ok(true);
            }
        }
        Ok(false)
    };
    match found() {
        Ok(false) => Ok(()),
        Ok(true) => Err(OpenError::NotADataDir { path: dir.to_path_buf() }),
        Err(source) => Err(OpenError::Io { action: "list", path: dir.to_path_buf(), source }),
    }
}

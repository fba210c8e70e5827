//! A partition's folder and what one does to it, for the tests of the storage.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use tidegate_model::{TopicName, TopicPartition};
use tidegate_wire::{BatchLimits, BatchOptions, BatchWriter, check_produced, split_batches};

use super::log::{AppendError, Appended, Log};
use super::read::find_span;
use super::recovery::RecoverySettings;
use super::segment::{FilePool, LOG, file_name, offset_of};
use super::topic_config::{LiveConfig, TopicConfig};
use crate::config::FsyncPolicy;
use crate::error::OpenError;

pub(crate) struct Folder {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) segment_bytes: &'static str,
    pub(crate) fsync: FsyncPolicy,
}

impl Folder {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), segment_bytes: "1024", fsync: FsyncPolicy::Never }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn open(&self) -> Result<Log, OpenError> {
        let config = TopicConfig::parse([("segment.bytes", Some(self.segment_bytes))], usize::MAX).unwrap();
        let topic_partition = TopicPartition::new(TopicName::new("t").unwrap(), 0);
        let settings = RecoverySettings { fsync: self.fsync, producers: 100, now_ms: 0 };
        Log::open(topic_partition, self.path(), Arc::new(FilePool::new(4)), Arc::new(LiveConfig::new(config)), settings)
    }

    pub(crate) fn segments(&self) -> Vec<i64> {
        let paths = fs::read_dir(self.path()).unwrap().map(|entry| entry.unwrap().path());
        let mut bases: Vec<_> = paths.filter_map(|path| offset_of(&path, LOG)).collect();
        bases.sort_unstable();
        bases
    }

    /// The last segment's files.
    pub(crate) fn last(&self, ending: &str) -> PathBuf {
        self.path().join(file_name(*self.segments().last().unwrap(), ending))
    }

    pub(crate) fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let paths = fs::read_dir(self.path()).unwrap().map(|entry| entry.unwrap().path());
        paths.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
    }

    pub(crate) fn restore(&self, files: &[(PathBuf, Vec<u8>)]) {
        for entry in fs::read_dir(self.path()).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        for (path, bytes) in files {
            fs::write(path, bytes).unwrap();
        }
    }
}

pub(crate) fn append(log: &Log, timestamps: &[i64]) -> Appended {
    append_with(log, BatchOptions::default(), timestamps)
}

pub(crate) fn append_with(log: &Log, options: BatchOptions, timestamps: &[i64]) -> Appended {
    try_append(log, options, timestamps).unwrap()
}

pub(crate) fn try_append(log: &Log, options: BatchOptions, timestamps: &[i64]) -> Result<Appended, AppendError> {
    let mut writer = BatchWriter::new(options);
    for timestamp in timestamps {
        writer.push(*timestamp, None, Some(b"value"), []).unwrap();
    }
    let batch = check_produced(writer.finish().unwrap(), &BatchLimits::default()).unwrap();
    log.append(&batch, &log.config(), 0)
}

/// Offset and timestamp of all records, read as a fetch does; every CRC is checked.
pub(crate) fn read_all(log: &Log) -> Vec<(i64, i64)> {
    let view = log.view();
    let mut offset = view.log_start_offset;
    let mut all = Vec::new();
    while let Some(span) = find_span(&view, log.pool(), offset, 1 << 20, true).unwrap() {
        let mut bytes = vec![0; span.bytes()];
        span.read(log.pool(), &mut bytes).unwrap();
        for batch in split_batches(Bytes::from(bytes)) {
            let batch = batch.unwrap().open(&BatchLimits::default()).unwrap();
            for record in batch.records() {
                let record = record.unwrap();
                if record.offset >= offset {
                    all.push((record.offset, record.timestamp_ms));
                }
            }
            offset = batch.header().next_offset();
        }
    }
    assert_eq!(offset, view.high_watermark());
    all
}

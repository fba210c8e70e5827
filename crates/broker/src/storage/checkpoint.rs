//! What a partition's folder says about its log: whose it is, where it begins, and how far it is on the disk.

use std::io;
use std::path::{Path, PathBuf};

use tidegate_model::TopicPartition;
use uuid::Uuid;

use super::text::{self, TextError, TextKind};
use crate::error::OpenError;

const CHECKPOINT: TextKind = TextKind { name: "tidegate-checkpoint", version: 1 };
const PARTITION: TextKind = TextKind { name: "tidegate-partition", version: 1 };

/// The state of a log that its segments do not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    /// The first offset that may be read. It lies inside a segment after a DeleteRecords.
    pub(crate) log_start_offset: i64,
    /// All records before it had been forced to the disk. The recovery checks what comes after.
    pub(crate) synced: i64,
}

impl Checkpoint {
    fn path(folder: &Path) -> PathBuf {
        folder.join("checkpoint")
    }

    pub(crate) fn write(self, folder: &Path, durable: bool) -> io::Result<()> {
        let lines = [("log_start_offset", self.log_start_offset.to_string()), ("synced", self.synced.to_string())];
        text::write(&Self::path(folder), CHECKPOINT, &lines, durable)
    }

    /// Reads the checkpoint. A missing or damaged one is `None`: it is written without waiting for the disk, and everything
    /// it says can be had by reading more of the log (the log start falls back to the first segment's).
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>, OpenError> {
        let path = Self::path(folder);
        let lines = match text::read(&path, CHECKPOINT) {
            Ok(Some(lines)) => lines,
            Ok(None) => return Ok(None),
            Err(TextError::Damaged(reason)) => {
                tracing::warn!(path = %path.display(), reason, "a checkpoint is damaged; the whole log is checked");
                return Ok(None);
            }
            Err(TextError::Version(found)) => {
                return Err(OpenError::FormatVersion { path, found, supported: CHECKPOINT.version });
            }
            Err(TextError::Io(source)) => return Err(OpenError::Io { action: "read", path, source }),
        };
        let number = |key: &str| {
            lines.iter().find(|(k, _)| k == key).and_then(|(_, value)| value.parse().ok()).filter(|n: &i64| *n >= 0)
        };
        Ok(number("log_start_offset")
            .zip(number("synced"))
            .map(|(log_start_offset, synced)| Self { log_start_offset, synced }))
    }
}

/// Writes the file that tells a person, and a later version, what the folder holds. Its version is that of the segment and
/// index files beside it.
pub(crate) fn write_partition_file(folder: &Path, topic_partition: &TopicPartition, topic_id: Uuid) -> io::Result<()> {
    let lines = [
        ("topic", topic_partition.topic.to_string()),
        ("topic_id", topic_id.to_string()),
        ("partition", topic_partition.partition.to_string()),
    ];
    text::write(&folder.join("partition"), PARTITION, &lines, true)
}

/// Checks that the folder is of the expected partition, in a format that this version reads.
pub(crate) fn check_partition_file(
    folder: &Path,
    topic_partition: &TopicPartition,
    topic_id: Uuid,
) -> Result<(), OpenError> {
    let path = folder.join("partition");
    let damaged = |path: PathBuf, reason: &str| OpenError::Damaged { path, reason: reason.to_owned() };
    match text::read(&path, PARTITION) {
        Ok(Some(lines)) => {
            let says = |key: &str, value: &str| lines.iter().any(|(k, v)| k == key && v == value);
            let right = says("topic", topic_partition.topic.as_str())
                && says("topic_id", &topic_id.to_string())
                && says("partition", &topic_partition.partition.to_string());
            if right { Ok(()) } else { Err(damaged(path, "it is of another partition")) }
        }
        Ok(None) => Err(damaged(path, "it is missing")),
        Err(TextError::Damaged(reason)) => Err(OpenError::Damaged { path, reason }),
        Err(TextError::Version(found)) => Err(OpenError::FormatVersion { path, found, supported: PARTITION.version }),
        Err(TextError::Io(source)) => Err(OpenError::Io { action: "read", path, source }),
    }
}

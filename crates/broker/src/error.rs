//! The errors of the library's own operations. What goes to clients is in `api`.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use tidegate_model::{TopicName, TopicPartition};

/// Why a broker did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is not a loopback one and `insecure` is not set.
    #[error(
        "{addr} can be reached from other machines, and the embedded broker has no authentication; \
         listen on a loopback address or set `insecure` (--insecure)"
    )]
    NotLoopback {
        /// The address.
        addr: SocketAddr,
    },
    /// The address could not be bound.
    #[error("cannot listen on {addr}")]
    Bind {
        /// The address.
        addr: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// A setting is out of its range.
    #[error("{setting}: {reason}")]
    Config {
        /// Which setting.
        setting: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The data folder could not be opened.
    #[error(transparent)]
    Storage(#[from] OpenError),
}

/// Why a data folder could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another broker uses the folder.
    #[error("another broker is using {}", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// The folder holds something else.
    #[error("{} is not empty and not a data folder of this broker", path.display())]
    NotADataDir {
        /// The folder.
        path: PathBuf,
    },
    /// The folder was written by a version that this one does not know.
    #[error("{}: format version {found} is not supported, only {supported} is", path.display())]
    FormatVersion {
        /// The file that says so.
        path: PathBuf,
        /// The version it states.
        found: String,
        /// The version this broker writes.
        supported: u32,
    },
    /// A file that cannot be rebuilt is damaged.
    #[error("{} is damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Records that had been forced to the disk are missing or damaged. Cutting them off is not this broker's decision.
    #[error(
        "{topic_partition}: the log is damaged at offset {offset} (byte {position} of {}), but it was on the disk up to \
         offset {synced}; move the file away to go on without these records",
        path.display()
    )]
    LogDamaged {
        /// The partition.
        topic_partition: TopicPartition,
        /// The segment file.
        path: PathBuf,
        /// The first offset that cannot be read.
        offset: i64,
        /// Where in the file.
        position: u64,
        /// The offset up to which the log had been forced to the disk.
        synced: i64,
    },
    /// Reading or writing failed.
    #[error("{}: cannot {action}", path.display())]
    Io {
        /// What was attempted.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

/// What went wrong while a broker shut down. The next start recovers.
#[derive(Debug, thiserror::Error)]
pub enum ShutdownError {
    /// Not everything could be forced to the disk.
    #[error("{topic_partition}: the log could not be forced to the disk")]
    Flush {
        /// The first partition concerned.
        topic_partition: TopicPartition,
        /// Why.
        source: io::Error,
    },
    /// The committed offsets could not be forced to the disk.
    #[error("the committed offsets could not be forced to the disk")]
    FlushOffsets {
        /// Why.
        source: io::Error,
    },
    /// Closing the files ended abnormally: a bug, or a runtime that is going down.
    #[error("the shutdown was not carried out: {reason}")]
    Abnormal {
        /// What is known of it.
        reason: String,
    },
}

/// Why records were not deleted.
#[derive(Debug, thiserror::Error)]
pub enum DeleteRecordsError {
    /// There is no such topic or partition.
    #[error("there is no partition {topic}-{partition}")]
    UnknownPartition {
        /// The topic.
        topic: TopicName,
        /// The partition.
        partition: i32,
    },
    /// The offset is negative or beyond the high watermark.
    #[error("{topic_partition}: offset {offset} is not in 0..={high_watermark}")]
    OutOfRange {
        /// The partition.
        topic_partition: TopicPartition,
        /// The offset asked for.
        offset: i64,
        /// The partition's high watermark.
        high_watermark: i64,
    },
    /// The new log start could not be written.
    #[error("{topic_partition}: the log start could not be moved")]
    Io {
        /// The partition.
        topic_partition: TopicPartition,
        /// Why.
        source: io::Error,
    },
}

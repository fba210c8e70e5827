//! Control records: the markers that end a transaction on a partition. They take an offset and are never delivered.
//!
//! Source: KIP-98; `org.apache.kafka.common.record.ControlRecordType`, `EndTransactionMarker`.

use bytes::Bytes;
use tidegate_model::Record;

use super::writer::{BatchOptions, BatchWriter, WriteError};

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MarkerKind {
    /// Its records do not count.
    Abort,
    /// Its records count.
    Commit,
}

impl MarkerKind {
    fn number(self) -> i16 {
        match self {
            Self::Abort => 0,
            Self::Commit => 1,
        }
    }
}

/// What a control record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ControlRecord {
    /// The producer's transaction ended here.
    EndTransaction {
        /// How.
        kind: MarkerKind,
        /// The epoch of the transaction coordinator; `None` when the record's value is too short to hold it, since only the
        /// kind matters to a reader.
        coordinator_epoch: Option<i32>,
    },
    /// Another type, such as the leader changes and snapshot marks of Kafka's own metadata log. A reader passes over it.
    Other {
        /// The type's number.
        kind: i16,
    },
}

/// Why a control record cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlRecordError {
    /// The key is null or shorter than version and type.
    #[error("the control record at offset {offset} has a key of {bytes} bytes, shorter than version and type")]
    ShortKey {
        /// The record's offset.
        offset: i64,
        /// The key's length.
        bytes: usize,
    },
    /// The key's version is negative.
    #[error("the control record at offset {offset} has version {version}")]
    Version {
        /// The record's offset.
        offset: i64,
        /// The version.
        version: i16,
    },
}

impl ControlRecord {
    /// Reads a record of a batch whose attributes say that it is a control batch.
    ///
    /// # Errors
    /// [`ControlRecordError`] when the key does not tell the type.
    pub fn parse(record: &Record<'_>) -> Result<Self, ControlRecordError> {
        let key = record.key.unwrap_or_default();
        let &[v0, v1, t0, t1, ..] = key else {
            return Err(ControlRecordError::ShortKey { offset: record.offset, bytes: key.len() });
        };
        let version = i16::from_be_bytes([v0, v1]);
        if version < 0 {
            return Err(ControlRecordError::Version { offset: record.offset, version });
        }
        let kind = match i16::from_be_bytes([t0, t1]) {
            0 => MarkerKind::Abort,
            1 => MarkerKind::Commit,
            kind => return Ok(Self::Other { kind }),
        };
        let coordinator_epoch = match record.value.unwrap_or_default() {
            &[_, _, e0, e1, e2, e3, ..] => Some(i32::from_be_bytes([e0, e1, e2, e3])),
            _ => None,
        };
        Ok(Self::EndTransaction { kind, coordinator_epoch })
    }
}

/// The facts of a transaction marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// How the transaction ended.
    pub kind: MarkerKind,
    /// The marker's offset.
    pub offset: i64,
    /// The epoch of the leader that appends it.
    pub leader_epoch: i32,
    /// When, in ms.
    pub timestamp_ms: i64,
    /// The transactional producer's id.
    pub producer_id: i64,
    /// Its epoch.
    pub producer_epoch: i16,
    /// The epoch of the transaction coordinator.
    pub coordinator_epoch: i32,
}

/// A control batch with one transaction marker, as the leader appends it.
///
/// # Errors
/// [`WriteError`] for a timestamp below -1 or an offset at the end of its range.
pub fn write_marker(marker: &Marker) -> Result<Bytes, WriteError> {
    let mut writer = BatchWriter::new(BatchOptions {
        base_offset: marker.offset,
        leader_epoch: marker.leader_epoch,
        producer_id: marker.producer_id,
        producer_epoch: marker.producer_epoch,
        transactional: true,
        control: true,
        ..BatchOptions::default()
    });
    // Key: version 0 and type. Value: version 0 and the coordinator's epoch.
    let [t0, t1] = marker.kind.number().to_be_bytes();
    let [e0, e1, e2, e3] = marker.coordinator_epoch.to_be_bytes();
    writer.push(marker.timestamp_ms, Some(&[0, 0, t0, t1]), Some(&[0, 0, e0, e1, e2, e3]), [])?;
    writer.finish()
}

//! What a reader may see of a partition's log at one moment.

use std::sync::Arc;

use super::segment::Stretch;

/// A picture of the log: cheap to clone, and never changed. Appending and retention put a new one in its place, so a
/// reader needs no lock while it reads.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// The finished segments, oldest first.
    pub(crate) sealed: Arc<Vec<Stretch>>,
    /// The segment that is being written, up to the last record that may be read.
    pub(crate) active: Stretch,
    /// The first offset that may be read. It can lie inside a segment.
    pub(crate) log_start_offset: i64,
}

impl View {
    /// The offset after the last record that may be read. Without replicas and transactions it is the last stable offset
    /// too.
    pub(crate) fn high_watermark(&self) -> i64 {
        self.active.extent.next_offset
    }

    /// All segments, oldest first.
    pub(crate) fn stretches(&self) -> impl DoubleEndedIterator<Item = &Stretch> {
        self.sealed.iter().chain(std::iter::once(&self.active))
    }

    /// The segments from the one on that holds `offset`.
    pub(crate) fn stretches_from(&self, offset: i64) -> impl Iterator<Item = &Stretch> {
        let first = self.sealed.partition_point(|stretch| stretch.extent.next_offset <= offset);
        self.sealed.iter().skip(first).chain(std::iter::once(&self.active))
    }
}

/// How far a log has come: what a waiting fetch watches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) high_watermark: i64,
    /// Bytes appended since the log was opened.
    pub(crate) appended_bytes: u64,
    /// The topic was deleted.
    pub(crate) deleted: bool,
}

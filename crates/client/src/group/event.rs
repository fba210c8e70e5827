//! What a group source tells.

use tidegate_model::{Chunk, TopicPartition};
use tokio::time::Instant;

/// What a group source tells, in order.
#[derive(Debug)]
pub enum GroupEvent {
    /// The group gave these partitions to this member; their chunks follow.
    Assigned {
        /// Sorted.
        partitions: Vec<AssignedPartition>,
    },
    /// Records of one partition. The chunks of a partition follow each other without a gap, but for a `Reset` in between. A
    /// chunk may hold no record and still advance the position; commit its `next_offset` all the same.
    Chunk(Chunk),
    /// These partitions are about to go to another member. The chunks that had been fetched still follow, and are best
    /// settled and committed soon; the partitions are given up when everything that was handed out is committed, or at
    /// the deadline.
    Revoking {
        /// Sorted.
        partitions: Vec<TopicPartition>,
        /// The deadline.
        until: Instant,
    },
    /// These partitions were given up; what was committed before is committed, later commits are refused. What had been
    /// handed out and was not committed will be read again by their next member.
    Revoked {
        /// Sorted.
        partitions: Vec<TopicPartition>,
    },
    /// The group took these partitions away without asking (a session that timed out, a fenced instance). Another member may
    /// be reading them already, so nothing was committed on the way out.
    Lost {
        /// Sorted.
        partitions: Vec<TopicPartition>,
    },
    /// A partition goes on elsewhere than where it stood, because its offset is no longer in the log and
    /// `on_data_loss` is reset.
    Reset {
        /// The partition.
        topic_partition: TopicPartition,
        /// Where it stood: its committed offset, or the position that was reached.
        from: i64,
        /// Where it goes on. `[from, to)` is lost if it lies ahead.
        to: i64,
    },
}

/// A partition that was assigned.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AssignedPartition {
    /// The partition.
    pub topic_partition: TopicPartition,
    /// The offset of the first record that is read.
    pub start: i64,
    /// The offset that the group had committed, if any. It differs from `start` only after a reset.
    pub committed: Option<i64>,
    /// The metadata of that commit; `None` where it is empty.
    pub metadata: Option<String>,
}

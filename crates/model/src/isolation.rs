//! Isolation levels.

/// Which records of transactions a reader sees. Kafka's `isolation.level`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// Records up to the last stable offset, none of an aborted transaction. The default everywhere.
    #[default]
    ReadCommitted,
    /// All records up to the high watermark.
    ReadUncommitted,
}

impl Isolation {
    /// Kafka's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadCommitted => "read_committed",
            Self::ReadUncommitted => "read_uncommitted",
        }
    }
}

//! Offsets: positions in a partition's log.

/// A half-open range of offsets `[start, end)` of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OffsetRange {
    /// The first offset of the range.
    pub start: i64,
    /// The first offset after it.
    pub end: i64,
}

impl OffsetRange {
    /// The range `[start, end)`; an end before the start gives the empty range at `start`.
    pub fn new(start: i64, end: i64) -> Self {
        Self { start, end: end.max(start) }
    }

    /// Whether no offset lies in it.
    pub fn is_empty(&self) -> bool {
        self.end <= self.start
    }

    /// How many offsets lie in it. Not the number of records: markers, compaction and aborted transactions leave gaps.
    pub fn len(&self) -> u64 {
        self.end.saturating_sub(self.start).max(0).cast_unsigned()
    }

    /// Whether `offset` lies in it.
    pub fn contains(&self, offset: i64) -> bool {
        self.start <= offset && offset < self.end
    }
}

impl std::fmt::Display for OffsetRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "[{}, {})", self.start, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_before_the_start_is_empty_and_not_negative() {
        let range = OffsetRange::new(7, 3);
        assert!(range.is_empty());
        assert_eq!(range.len(), 0);
        assert!(!range.contains(7));
    }

    #[test]
    fn the_end_is_outside() {
        let range = OffsetRange::new(1, 3);
        assert_eq!(range.len(), 2);
        assert!(range.contains(1) && range.contains(2) && !range.contains(3));
    }
}

//! Record timestamps and ranges of them. All times are milliseconds since 1970-01-01T00:00:00Z.

/// What a record without a timestamp carries.
pub const NO_TIMESTAMP: i64 = -1;

/// Who set a record's timestamp. The batch's own type bit decides, never the topic's present configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimestampType {
    /// The producer.
    CreateTime,
    /// The broker, when it appended the batch.
    LogAppendTime,
}

impl TimestampType {
    /// Kafka's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::CreateTime => "CreateTime",
            Self::LogAppendTime => "LogAppendTime",
        }
    }
}

/// A half-open range of record timestamps `[from, until)`.
///
/// A side that the caller left open is `None`. Nobody can say that a record without a timestamp lies before or after a
/// given time, so it is in the range only when [`TimeRange::untimed`] says that the caller named no time at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TimeRange {
    /// The first millisecond of the range; `None`: from the start of the log.
    pub from_ms: Option<i64>,
    /// The first millisecond after it; `None`: without an end.
    pub until_ms: Option<i64>,
    /// Whether records without a timestamp belong to it.
    pub untimed: bool,
}

impl TimeRange {
    /// The range that every record belongs to.
    pub const ALL: Self = Self { from_ms: None, until_ms: None, untimed: true };

    /// The range `[from, until)` in ms, without the records that have no timestamp.
    pub fn between(from_ms: i64, until_ms: i64) -> Self {
        Self { from_ms: Some(from_ms), until_ms: Some(until_ms), untimed: false }
    }

    /// Whether a record with this timestamp belongs to the range.
    pub fn contains(&self, timestamp_ms: i64) -> bool {
        if timestamp_ms < 0 {
            return self.untimed;
        }
        self.from_ms.is_none_or(|from| from <= timestamp_ms) && self.until_ms.is_none_or(|until| timestamp_ms < until)
    }

    /// Whether no timestamp can lie in it.
    pub fn is_empty(&self) -> bool {
        matches!((self.from_ms, self.until_ms), (Some(from), Some(until)) if until <= from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_is_inside_and_the_end_is_not() {
        let range = TimeRange::between(10, 20);
        assert!(range.contains(10) && range.contains(19));
        assert!(!range.contains(9) && !range.contains(20));
    }

    #[test]
    fn an_untimed_record_is_in_no_range_that_names_a_time() {
        assert!(TimeRange::ALL.contains(NO_TIMESTAMP));
        assert!(!TimeRange::between(0, i64::MAX).contains(NO_TIMESTAMP));
    }

    #[test]
    fn an_empty_range_holds_nothing() {
        let range = TimeRange::between(5, 5);
        assert!(range.is_empty() && !range.contains(5));
    }
}

//! Which segments a topic's retention no longer covers. Pure.
//!
//! Source: `UnifiedLog.deleteOldSegments`. Segments leave from the oldest end only, and only whole: a segment stays as long
//! as its largest timestamp is young enough, or as the rest without it would be smaller than the bytes to keep.

use super::topic_config::TopicConfig;

/// What a segment is judged by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Age {
    pub(crate) bytes: u64,
    /// The largest timestamp of its records; the time of the last write when no record has one.
    pub(crate) newest_ms: i64,
}

/// How many of the oldest segments are to go. The last one is the active one; it can be among them unless it is empty.
pub(crate) fn expired(segments: &[Age], config: &TopicConfig, now_ms: i64) -> usize {
    let too_old =
        |age: &Age| config.retention_ms.is_some_and(|retention| now_ms.saturating_sub(age.newest_ms) > retention);
    let by_time = segments.iter().take_while(|age| age.bytes > 0 && too_old(age)).count();
    let by_size = config.retention_bytes.map_or(0, |keep| {
        let mut rest: u64 = segments.iter().map(|age| age.bytes).sum();
        let goes = |age: &&Age| {
            rest = rest.saturating_sub(age.bytes);
            age.bytes > 0 && rest >= keep
        };
        segments.iter().take_while(goes).count()
    });
    by_time.max(by_size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(given: &[(&str, &str)]) -> TopicConfig {
        TopicConfig::parse(given.iter().map(|(k, v)| (*k, Some(*v))), usize::MAX).unwrap()
    }

    fn ages(segments: &[(u64, i64)]) -> Vec<Age> {
        segments.iter().map(|&(bytes, newest_ms)| Age { bytes, newest_ms }).collect()
    }

    #[test]
    fn a_young_segment_protects_those_behind_it() {
        let config = config(&[("retention.ms", "100")]);
        let segments = ages(&[(10, 800), (10, 950), (10, 700)]);
        assert_eq!(expired(&segments, &config, 1_000), 1);
        assert_eq!(expired(&segments, &config, 900), 0, "exactly as old as the limit is not too old");
        assert_eq!(expired(&segments, &config, 1_051), 3, "the active segment can go too");
    }

    #[test]
    fn an_empty_active_segment_stays() {
        let config = config(&[("retention.ms", "100"), ("retention.bytes", "0")]);
        assert_eq!(expired(&ages(&[(10, 0), (0, -1)]), &config, 1_000), 1);
        assert_eq!(expired(&ages(&[(0, -1)]), &config, 1_000), 0);
    }

    #[test]
    fn minus_one_keeps_all() {
        let config = config(&[("retention.ms", "-1")]);
        assert_eq!(expired(&ages(&[(10, 0), (10, 0)]), &config, i64::MAX), 0);
    }

    #[test]
    fn by_size_what_remains_is_never_less_than_the_bytes_to_keep() {
        let config = config(&[("retention.ms", "-1"), ("retention.bytes", "25")]);
        assert_eq!(expired(&ages(&[(10, 0), (10, 0), (10, 0), (10, 0)]), &config, 0), 1);
        assert_eq!(expired(&ages(&[(10, 0), (10, 0), (10, 0)]), &config, 0), 0);
        assert_eq!(expired(&ages(&[(5, 0), (10, 0), (10, 0), (5, 0)]), &config, 0), 1);
    }
}

//! The configuration of a topic: which keys there are, their defaults, and what they mean to the log.
//!
//! Names, defaults and meanings are Kafka's. A key that the broker does not act on is refused by name, so that nobody
//! relies on a promise that is not kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;
use tidegate_model::TimestampType;

/// One configuration key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeySpec {
    pub(crate) name: &'static str,
    pub(crate) default: &'static str,
    /// The type's number in DescribeConfigs.
    pub(crate) config_type: i8,
    pub(crate) documentation: &'static str,
}

// The types' numbers in DescribeConfigs.
pub(crate) const BOOLEAN: i8 = 1;
pub(crate) const STRING: i8 = 2;
pub(crate) const INT: i8 = 3;
pub(crate) const LONG: i8 = 5;
pub(crate) const LIST: i8 = 7;

/// All keys, by name.
pub(crate) const KEYS: [KeySpec; 11] = [
    KeySpec {
        name: "cleanup.policy",
        default: "delete",
        config_type: LIST,
        documentation: "How old records leave the log. Only `delete`: this broker does not compact.",
    },
    KeySpec {
        name: "compression.type",
        default: "producer",
        config_type: STRING,
        documentation: "Only `producer`: record batches are kept as the producer compressed them.",
    },
    KeySpec {
        name: "max.message.bytes",
        default: "1048588",
        config_type: INT,
        documentation: "The largest record batch that is accepted, in bytes, as compressed.",
    },
    KeySpec {
        name: "message.timestamp.after.max.ms",
        default: "3600000",
        config_type: LONG,
        documentation: "How far in the future a record's timestamp may lie, in milliseconds. Only under CreateTime.",
    },
    KeySpec {
        name: "message.timestamp.before.max.ms",
        default: "9223372036854775807",
        config_type: LONG,
        documentation: "How far in the past a record's timestamp may lie, in milliseconds. Only under CreateTime.",
    },
    KeySpec {
        name: "message.timestamp.type",
        default: "CreateTime",
        config_type: STRING,
        documentation: "Whether a record carries its producer's time (CreateTime) or the broker's (LogAppendTime).",
    },
    KeySpec {
        name: "min.insync.replicas",
        default: "1",
        config_type: INT,
        documentation: "Only 1: there is one broker.",
    },
    KeySpec {
        name: "retention.bytes",
        default: "-1",
        config_type: LONG,
        documentation: "A partition's oldest segments are deleted while the rest is at least this large; -1 is no limit.",
    },
    KeySpec {
        name: "retention.ms",
        default: "604800000",
        config_type: LONG,
        documentation: "A segment is deleted when its largest timestamp is older than this; -1 keeps all.",
    },
    KeySpec {
        name: "segment.bytes",
        default: "134217728",
        config_type: INT,
        documentation: "The size at which a new segment file is begun. Records are deleted by whole segments.",
    },
    KeySpec {
        name: "segment.ms",
        default: "604800000",
        config_type: LONG,
        documentation: "A new segment file is begun for a record that is this much younger than the first batch of the last.",
    },
];

/// A smaller segment would be little more than its own bookkeeping.
const LEAST_SEGMENT_BYTES: i64 = 1024;

/// A topic's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TopicConfig {
    pub(crate) max_message_bytes: usize,
    pub(crate) timestamp_type: TimestampType,
    /// `None`: no limit.
    pub(crate) retention_bytes: Option<u64>,
    /// `None`: no limit.
    pub(crate) retention_ms: Option<i64>,
    pub(crate) segment_bytes: u64,
    pub(crate) segment_ms: i64,
    /// How far from the broker's clock a record's timestamp may lie under CreateTime (KIP-937), in milliseconds.
    pub(crate) timestamp_before_max_ms: i64,
    pub(crate) timestamp_after_max_ms: i64,
    /// The keys that were set for this topic, as they were given.
    set: BTreeMap<&'static str, String>,
}

/// Why a topic's configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TopicConfigError {
    #[error("unknown topic config {key:?}; this broker knows {}", key_names())]
    Unknown { key: String },
    #[error("the topic config {key} has no value")]
    NoValue { key: &'static str },
    #[error("the topic config {key} is given twice")]
    Twice { key: &'static str },
    #[error("{key}={value}: {reason}")]
    Value { key: &'static str, value: String, reason: String },
}

impl TopicConfig {
    /// Reads the given settings over the defaults. `most_message_bytes`: the upper bound of `max.message.bytes`.
    pub(crate) fn parse<'a>(
        given: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
        most_message_bytes: usize,
    ) -> Result<Self, TopicConfigError> {
        let mut set = BTreeMap::new();
        for (key, value) in given {
            let spec = KEYS.iter().find(|spec| spec.name == key);
            let key = spec.ok_or_else(|| TopicConfigError::Unknown { key: key.to_owned() })?.name;
            let value = value.ok_or(TopicConfigError::NoValue { key })?;
            if set.insert(key, value.trim().to_owned()).is_some() {
                return Err(TopicConfigError::Twice { key });
            }
        }
        let given = Given(&set);
        let most_message_bytes = i64::try_from(most_message_bytes).unwrap_or(i64::MAX).min(i64::from(i32::MAX));
        let no_limit = |value: i64| (value >= 0).then_some(value);
        given.only("cleanup.policy", "delete", "this broker does not compact logs; use Apache Kafka, or `delete`")?;
        given.only(
            "compression.type",
            "producer",
            "this broker keeps batches as produced; only `producer` is supported",
        )?;
        given.only("min.insync.replicas", "1", "there is one broker; use Apache Kafka for replicas")?;
        Ok(Self {
            max_message_bytes: usize::try_from(given.number("max.message.bytes", 0, most_message_bytes)?).unwrap_or(0),
            timestamp_type: match given.value("message.timestamp.type") {
                "CreateTime" => TimestampType::CreateTime,
                "LogAppendTime" => TimestampType::LogAppendTime,
                _ => return Err(given.refuse("message.timestamp.type", "it is CreateTime or LogAppendTime")),
            },
            retention_bytes: no_limit(given.number("retention.bytes", -1, i64::MAX)?).map(i64::cast_unsigned),
            retention_ms: no_limit(given.number("retention.ms", -1, i64::MAX)?),
            segment_ms: given.number("segment.ms", 1, i64::MAX)?,
            timestamp_before_max_ms: given.number("message.timestamp.before.max.ms", 0, i64::MAX)?,
            timestamp_after_max_ms: given.number("message.timestamp.after.max.ms", 0, i64::MAX)?,
            segment_bytes: given.number("segment.bytes", LEAST_SEGMENT_BYTES, i64::from(i32::MAX))?.cast_unsigned(),
            set,
        })
    }

    /// A key's value and whether it was set for this topic.
    pub(crate) fn value(&self, spec: &KeySpec) -> (&str, bool) {
        self.set.get(spec.name).map_or((spec.default, false), |value| (value, true))
    }

    /// The keys that were set, with their values.
    pub(crate) fn set(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.set.iter().map(|(key, value)| (*key, value.as_str()))
    }
}

impl KeySpec {
    /// The key of this name.
    pub(crate) fn of(name: &str) -> Option<&'static Self> {
        KEYS.iter().find(|spec| spec.name == name)
    }

    /// Whether its value is a list, to which one can append (KIP-339).
    pub(crate) fn is_list(&self) -> bool {
        self.config_type == LIST
    }
}

/// A topic's configuration as it is now. What is being done goes on with the one it began with.
#[derive(Debug)]
pub(crate) struct LiveConfig(RwLock<Arc<TopicConfig>>);

impl LiveConfig {
    pub(crate) fn new(config: TopicConfig) -> Self {
        Self(RwLock::new(Arc::new(config)))
    }

    pub(crate) fn get(&self) -> Arc<TopicConfig> {
        Arc::clone(&self.0.read())
    }

    pub(crate) fn set(&self, config: TopicConfig) {
        *self.0.write() = Arc::new(config);
    }
}

struct Given<'a>(&'a BTreeMap<&'static str, String>);

impl Given<'_> {
    fn value(&self, key: &'static str) -> &str {
        let default = || KEYS.iter().find(|spec| spec.name == key).map_or("", |spec| spec.default);
        self.0.get(key).map_or_else(default, String::as_str)
    }

    fn refuse(&self, key: &'static str, reason: impl Into<String>) -> TopicConfigError {
        TopicConfigError::Value { key, value: self.value(key).to_owned(), reason: reason.into() }
    }

    fn only(&self, key: &'static str, value: &str, reason: &str) -> Result<(), TopicConfigError> {
        if self.value(key) == value { Ok(()) } else { Err(self.refuse(key, reason)) }
    }

    fn number(&self, key: &'static str, least: i64, most: i64) -> Result<i64, TopicConfigError> {
        let value: i64 = self.value(key).parse().map_err(|_| self.refuse(key, "it is not a whole number"))?;
        if (least..=most).contains(&value) {
            Ok(value)
        } else {
            Err(self.refuse(key, format!("it must be between {least} and {most}")))
        }
    }
}

fn key_names() -> String {
    KEYS.map(|spec| spec.name).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(given: &[(&str, &str)]) -> Result<TopicConfig, TopicConfigError> {
        TopicConfig::parse(given.iter().map(|(k, v)| (*k, Some(*v))), usize::MAX)
    }

    #[test]
    fn the_defaults_are_those_that_are_described() {
        let config = parse(&[]).unwrap();
        assert_eq!(config.max_message_bytes, 1_048_588);
        assert_eq!(config.timestamp_type, TimestampType::CreateTime);
        assert_eq!((config.retention_bytes, config.retention_ms), (None, Some(604_800_000)));
        assert_eq!(config.segment_bytes, 128 << 20);
        let all_defaults: Vec<_> = KEYS.iter().map(|spec| (spec.name, spec.default)).collect();
        let restated = parse(&all_defaults).unwrap();
        assert_eq!(TopicConfig { set: BTreeMap::new(), ..restated }, config);
    }

    #[test]
    fn settings_are_taken_and_remembered_as_set() {
        let config = parse(&[("retention.ms", "-1"), ("message.timestamp.type", "LogAppendTime")]).unwrap();
        assert_eq!((config.retention_ms, config.timestamp_type), (None, TimestampType::LogAppendTime));
        let set: Vec<_> = config.set().collect();
        assert_eq!(set, [("message.timestamp.type", "LogAppendTime"), ("retention.ms", "-1")]);
    }

    #[test]
    fn what_the_broker_does_not_do_is_refused_by_name() {
        let unknown = parse(&[("unclean.leader.election.enable", "true")]).unwrap_err().to_string();
        assert!(unknown.contains("unclean.leader") && unknown.contains("retention.ms"), "{unknown}");
        let compact = parse(&[("cleanup.policy", "compact,delete")]).unwrap_err().to_string();
        assert!(compact.contains("does not compact"), "{compact}");
        assert!(parse(&[("compression.type", "zstd")]).is_err());
        assert!(parse(&[("min.insync.replicas", "2")]).is_err());
        for (key, value) in [
            ("retention.ms", "7d"),
            ("retention.ms", "-2"),
            ("segment.bytes", "100"),
            ("max.message.bytes", "3000000000"),
            ("message.timestamp.type", "createtime"),
        ] {
            let error = parse(&[(key, value)]).unwrap_err().to_string();
            assert!(error.contains(key) && error.contains(value), "{error}");
        }
        assert_eq!(
            TopicConfig::parse([("retention.ms", None)], usize::MAX),
            Err(TopicConfigError::NoValue { key: "retention.ms" })
        );
        assert_eq!(
            parse(&[("retention.ms", "1"), ("retention.ms", "2")]),
            Err(TopicConfigError::Twice { key: "retention.ms" })
        );
    }
}

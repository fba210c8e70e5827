//! Topic names and topic-partitions.

use std::fmt;
use std::sync::Arc;

/// The longest topic name Kafka accepts, in bytes.
pub const MAX_TOPIC_NAME_BYTES: usize = 249;

/// A topic name that Kafka would accept: 1 to 249 of `[a-zA-Z0-9._-]`, not `.` or `..`. Cheap to clone.
///
/// The rules are those of `org.apache.kafka.common.internals.Topic`; they also make the name safe as a file name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicName(Arc<str>);

/// Why a string is not a topic name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopicNameError {
    /// The name is empty.
    #[error("a topic name must not be empty")]
    Empty,
    /// The name is longer than [`MAX_TOPIC_NAME_BYTES`].
    #[error("the topic name is {bytes} bytes long, at most {MAX_TOPIC_NAME_BYTES} are allowed")]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// The name is `.` or `..`.
    #[error("a topic must not be called {name:?}")]
    Dots {
        /// The name.
        name: String,
    },
    /// The name holds a character outside `[a-zA-Z0-9._-]`.
    #[error("the topic name {name:?} holds {character:?}; letters, digits, '.', '_' and '-' are allowed")]
    Character {
        /// The name.
        name: String,
        /// The first character that is not allowed.
        character: char,
    },
}

impl TopicName {
    /// Checks `name` against Kafka's rules.
    ///
    /// # Errors
    /// [`TopicNameError`] says which rule it breaks.
    pub fn new(name: &str) -> Result<Self, TopicNameError> {
        if name.is_empty() {
            return Err(TopicNameError::Empty);
        }
        if name.len() > MAX_TOPIC_NAME_BYTES {
            return Err(TopicNameError::TooLong { bytes: name.len() });
        }
        if name == "." || name == ".." {
            return Err(TopicNameError::Dots { name: name.to_owned() });
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if let Some(character) = name.chars().find(|c| !allowed(*c)) {
            return Err(TopicNameError::Character { name: name.to_owned(), character });
        }
        Ok(Self(name.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl std::str::FromStr for TopicName {
    type Err = TopicNameError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Self::new(s)
    }
}

/// One partition of one topic. Shown as `topic-3`, as Kafka's own tools do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// The topic.
    pub topic: TopicName,
    /// The partition number, from 0.
    pub partition: i32,
}

impl TopicPartition {
    /// Puts the two together.
    pub fn new(topic: TopicName, partition: i32) -> Self {
        Self { topic, partition }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_kafka_accepts_are_accepted() {
        for name in ["a", "flights.json", "A_b-c.9", &"x".repeat(249)] {
            assert_eq!(TopicName::new(name).unwrap().as_str(), name);
        }
    }

    #[test]
    fn names_that_kafka_refuses_are_refused_with_the_reason() {
        assert_eq!(TopicName::new(""), Err(TopicNameError::Empty));
        assert_eq!(TopicName::new(&"x".repeat(250)), Err(TopicNameError::TooLong { bytes: 250 }));
        assert!(matches!(TopicName::new(".."), Err(TopicNameError::Dots { .. })));
        let slash = TopicName::new("a/b").unwrap_err();
        assert!(matches!(slash, TopicNameError::Character { character: '/', .. }), "{slash}");
    }
}

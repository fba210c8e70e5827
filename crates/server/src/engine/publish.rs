//! Write records to a topic.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_client::{
    MetadataError, ProduceError, ProduceSession, ProduceSummary, RecordToSend, TopicConfigEntry, TopicInfo,
};
use tidegate_model::{TimestampType, TopicName, TopicNameError};
use tokio::sync::OwnedSemaphorePermit;

use super::{Engine, TopicPayload, WriterSetupError};

/// Why records were not written.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The name is none that a topic can have.
    #[error(transparent)]
    TopicName(#[from] TopicNameError),
    /// There is no such topic (none is created), or the cluster did not say.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// As many publishes as allowed are in progress.
    #[error("{limit} publishes are in progress, and this server allows no more at once; try again later")]
    TooManyPublishes {
        /// The limit.
        limit: usize,
    },
    /// The schema that JSON should be written with is not to be had.
    #[error("topic {topic}: {source}")]
    Schema {
        /// The topic.
        topic: TopicName,
        /// Why not.
        source: WriterSetupError,
    },
    /// A record was not written; those before it may have been.
    #[error(transparent)]
    Produce(#[from] ProduceError),
}

/// What a caller should know although the records were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublishWarning {
    /// Records older than the topic's retention: the cluster may delete them at any time.
    Retention {
        /// The topic.
        topic: TopicName,
        /// Its `retention.ms`.
        retention: Duration,
        /// How many of the records are older.
        records: u64,
        /// The oldest timestamp among them, in ms.
        oldest_ms: i64,
    },
}

impl fmt::Display for PublishWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retention { topic, retention, records, oldest_ms } => write!(
                f,
                "{records} records are older than the retention of topic {topic} (retention.ms={}, oldest timestamp \
                 {oldest_ms} ms): the cluster may delete them at any time; set retention.ms=-1 to keep them",
                retention.as_millis()
            ),
        }
    }
}

/// Records on their way to one topic, in order.
pub struct Publishing {
    topic: TopicInfo,
    payload: TopicPayload,
    session: ProduceSession,
    retention: Option<RetentionWatch>,
    _permit: OwnedSemaphorePermit,
}

/// A place among the publishes that may be in progress at once.
pub struct PublishPlace {
    permit: OwnedSemaphorePermit,
}

impl Engine {
    /// Begins to write to a topic, which must exist.
    ///
    /// # Errors
    /// [`PublishError::Metadata`] with [`MetadataError::UnknownTopic`] when it does not.
    pub async fn publish(&self, topic: &str) -> Result<Publishing, PublishError> {
        self.publish_place()?.publish(self, topic).await
    }

    /// Takes a place among the publishes, for a caller that has to read some of the request before it knows the topic and
    /// the cluster.
    ///
    /// # Errors
    /// [`PublishError::TooManyPublishes`].
    pub fn publish_place(&self) -> Result<PublishPlace, PublishError> {
        let limit = self.limits().max_concurrent_publishes;
        let permit = Arc::clone(&self.inner.gates.publishes).try_acquire_owned();
        let permit = permit.map_err(|_| PublishError::TooManyPublishes { limit })?;
        Ok(PublishPlace { permit })
    }
}

impl PublishPlace {
    /// Begins to write to a topic of `engine`'s cluster, which must exist.
    ///
    /// # Errors
    /// As [`Engine::publish`].
    pub async fn publish(self, engine: &Engine, topic: &str) -> Result<Publishing, PublishError> {
        let Self { permit } = self;
        let name = TopicName::new(topic)?;
        let topic = engine.inner.cluster.topic(&name).await?;
        // Only for a warning: a cluster that hides its configuration still takes records.
        let retention = match engine.inner.cluster.topic_config(&name).await {
            Ok(config) => retention(&config).map(|retention| RetentionWatch::new(retention, engine.now_ms())),
            Err(error) => {
                tracing::debug!(topic = %name, %error, "the topic's retention is not known");
                None
            }
        };
        let payload = engine.inner.payloads.get(&name);
        let session = engine.inner.producer.session(&name);
        Ok(Publishing { topic, payload, session, retention, _permit: permit })
    }
}

impl Publishing {
    /// The topic.
    pub fn topic(&self) -> &TopicInfo {
        &self.topic
    }

    /// What the topic's values are: a face that takes JSON has to know.
    pub fn payload(&self) -> &TopicPayload {
        &self.payload
    }

    /// Gets ready to be given JSON: afterwards [`Publishing::payload`] says how to convert it. Where values name their schema,
    /// the registry is asked for it.
    ///
    /// # Errors
    /// [`PublishError::Schema`].
    pub async fn take_json(&mut self) -> Result<&TopicPayload, PublishError> {
        if let TopicPayload::Registry(payload) = &mut self.payload
            && payload.writer.is_none()
        {
            let topic = &self.topic.name;
            let writer = payload.registry.writer(topic, &payload.write).await;
            let writer = writer.map_err(|source| PublishError::Schema { topic: topic.clone(), source })?;
            payload.writer = Some(writer);
        }
        Ok(&self.payload)
    }

    /// Sends one record. Waits while the producer's queue is full.
    ///
    /// # Errors
    /// The failure of this record or of one before it; nothing more can be sent then.
    pub async fn send(&mut self, record: &RecordToSend<'_>) -> Result<(), PublishError> {
        self.session.send(*record).await?;
        if let (Some(watch), Some(timestamp_ms)) = (&mut self.retention, record.timestamp_ms) {
            watch.observe(timestamp_ms);
        }
        Ok(())
    }

    /// What the caller should know of the records sent so far.
    pub fn warnings(&self) -> Vec<PublishWarning> {
        let topic = &self.topic.name;
        self.retention.iter().filter_map(|watch| watch.warning(topic)).collect()
    }

    /// Waits until all records are durable.
    ///
    /// # Errors
    /// The failure of the first record that was not written.
    pub async fn finish(self) -> Result<ProduceSummary, PublishError> {
        Ok(self.session.finish().await?)
    }

    /// Waits until each record is either durable or will never be, and tells what was written beside the failure, if there
    /// was one: for a face that must say how much of a failed request stands.
    pub async fn settle(self) -> (ProduceSummary, Option<PublishError>) {
        let (summary, failure) = self.session.settle().await;
        (summary, failure.map(PublishError::from))
    }
}

/// For how long the topic keeps a record by its own timestamp; `None`: for ever, or it goes by another clock.
fn retention(config: &BTreeMap<String, TopicConfigEntry>) -> Option<Duration> {
    let value = |name: &str| config.get(name).and_then(|entry| entry.value.as_deref());
    let deletes = value("cleanup.policy").is_none_or(|policy| policy.split(',').any(|part| part.trim() == "delete"));
    // Under LogAppendTime the broker replaces the timestamp that the record came with.
    let appended = value("message.timestamp.type") == Some(TimestampType::LogAppendTime.name());
    let retention_ms = value("retention.ms")?.parse::<u64>().ok()?;
    (deletes && !appended).then(|| Duration::from_millis(retention_ms))
}

/// Counts records that are older than the topic's retention.
struct RetentionWatch {
    retention: Duration,
    /// The oldest timestamp that the topic keeps, in ms.
    horizon_ms: i64,
    records: u64,
    oldest_ms: i64,
}

impl RetentionWatch {
    fn new(retention: Duration, now_ms: i64) -> Self {
        let retention_ms = i64::try_from(retention.as_millis()).unwrap_or(i64::MAX);
        Self { retention, horizon_ms: now_ms.saturating_sub(retention_ms), records: 0, oldest_ms: i64::MAX }
    }

    fn observe(&mut self, timestamp_ms: i64) {
        if timestamp_ms < self.horizon_ms {
            self.records += 1;
            self.oldest_ms = self.oldest_ms.min(timestamp_ms);
        }
    }

    fn warning(&self, topic: &TopicName) -> Option<PublishWarning> {
        (self.records > 0).then(|| PublishWarning::Retention {
            topic: topic.clone(),
            retention: self.retention,
            records: self.records,
            oldest_ms: self.oldest_ms,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(entries: &[(&str, &str)]) -> BTreeMap<String, TopicConfigEntry> {
        let entry = |value: &str| TopicConfigEntry { value: Some(value.to_owned()), is_default: false };
        entries.iter().map(|(name, value)| ((*name).to_owned(), entry(value))).collect()
    }

    #[test]
    fn only_a_topic_that_deletes_by_the_records_own_time_has_a_retention() {
        let week = Some(Duration::from_millis(604_800_000));
        assert_eq!(retention(&config(&[("retention.ms", "604800000")])), week);
        assert_eq!(retention(&config(&[("retention.ms", "604800000"), ("cleanup.policy", "compact,delete")])), week);
        for other in [
            &[("retention.ms", "-1")][..],
            &[],
            &[("retention.ms", "604800000"), ("cleanup.policy", "compact")],
            &[("retention.ms", "604800000"), ("message.timestamp.type", "LogAppendTime")],
        ] {
            assert_eq!(retention(&config(other)), None, "{other:?}");
        }
    }

    #[test]
    fn records_older_than_the_retention_are_counted_and_the_oldest_is_named() {
        let topic = TopicName::new("flights").unwrap();
        let mut watch = RetentionWatch::new(Duration::from_millis(100), 1_000);
        watch.observe(900);
        assert_eq!(watch.warning(&topic), None);
        watch.observe(899);
        watch.observe(5);
        let Some(PublishWarning::Retention { records, oldest_ms, .. }) = watch.warning(&topic) else {
            panic!("no warning")
        };
        assert_eq!((records, oldest_ms), (2, 5));
    }
}

//! The ends of partitions, as their leaders tell them.

use tidegate_client::{ListOffsetsError, OffsetAndTimestamp, OffsetQuery};
use tidegate_model::{Isolation, TopicName, TopicPartition};

use super::Engine;

/// Why the ends of a topic's partitions are not known.
#[derive(Debug, thiserror::Error)]
pub enum EndsError {
    /// A leader did not answer.
    #[error(transparent)]
    ListOffsets(#[from] ListOffsetsError),
    /// A leader answered, but without an offset where every partition has one.
    #[error("the leader of partition {topic_partition} does not say where its log {side}")]
    NoEnd {
        /// The partition.
        topic_partition: TopicPartition,
        /// `starts` or `ends`.
        side: &'static str,
    },
}

impl Engine {
    /// Asks one question of each of the partitions; the answers come in their order.
    pub(super) async fn ask(
        &self,
        topic: &TopicName,
        partitions: &[i32],
        query: OffsetQuery,
        isolation: Isolation,
    ) -> Result<Vec<Option<OffsetAndTimestamp>>, ListOffsetsError> {
        if partitions.is_empty() {
            return Ok(Vec::new());
        }
        let queries: Vec<_> = partitions.iter().map(|partition| (*partition, query)).collect();
        let answers = self.inner.cluster.list_offsets(topic, &queries, isolation).await?;
        Ok(answers.into_iter().map(|answer| answer.found).collect())
    }

    /// The log start offset of each partition.
    pub(super) async fn log_starts(&self, topic: &TopicName, partitions: &[i32]) -> Result<Vec<i64>, EndsError> {
        let answers = self.ask(topic, partitions, OffsetQuery::Earliest, Isolation::ReadUncommitted).await?;
        offsets(topic, partitions, &answers, "starts")
    }

    /// The end of each partition: the high watermark, or the last stable offset under read_committed.
    pub(super) async fn log_ends(
        &self,
        topic: &TopicName,
        partitions: &[i32],
        isolation: Isolation,
    ) -> Result<Vec<i64>, EndsError> {
        let answers = self.ask(topic, partitions, OffsetQuery::Latest, isolation).await?;
        offsets(topic, partitions, &answers, "ends")
    }
}

fn offsets(
    topic: &TopicName,
    partitions: &[i32],
    answers: &[Option<OffsetAndTimestamp>],
    side: &'static str,
) -> Result<Vec<i64>, EndsError> {
    let offset = |(partition, answer): (&i32, &Option<OffsetAndTimestamp>)| match answer {
        Some(found) if found.offset >= 0 => Ok(found.offset),
        _ => Err(EndsError::NoEnd { topic_partition: TopicPartition::new(topic.clone(), *partition), side }),
    };
    partitions.iter().zip(answers).map(offset).collect()
}

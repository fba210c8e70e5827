//! The ends of partitions, as their leaders tell them.

use tidegate_client::{ListOffsetsError, OffsetAndTimestamp, OffsetQuery};
use tidegate_model::{Isolation, OffsetRange, TopicName, TopicPartition};
use tidegate_plan::LogEnd;

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

    /// What [`Engine::log_ends`] noted, put beside the high watermarks and what open transactions keep back.
    ///
    /// A high watermark above a last stable offset alone proves no open transaction: the record between the two may have been
    /// appended between the two questions. So the last stable offset is asked for once more behind the high watermark; what it
    /// does not reach even then is undecided.
    pub(super) async fn weigh_ends(
        &self,
        topic: &TopicName,
        partitions: &[i32],
        noted: &[i64],
        isolation: Isolation,
    ) -> Result<Vec<LogEnd>, EndsError> {
        if isolation == Isolation::ReadUncommitted {
            return Ok(noted.iter().map(|end| LogEnd::of(*end)).collect());
        }
        let high_watermarks = self.log_ends(topic, partitions, Isolation::ReadUncommitted).await?;
        let is_above = high_watermarks.iter().zip(noted).any(|(high_watermark, stable)| high_watermark > stable);
        let stable_now = match is_above {
            true => self.log_ends(topic, partitions, isolation).await?,
            false => noted.to_vec(),
        };
        let log_end = |((high_watermark, noted), now): ((&i64, &i64), &i64)| LogEnd {
            high_watermark: (*high_watermark).max(*noted),
            last_stable_offset: Some(*noted),
            undecided: OffsetRange::new((*now).max(*noted), *high_watermark),
        };
        Ok(high_watermarks.iter().zip(noted).zip(&stable_now).map(log_end).collect())
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

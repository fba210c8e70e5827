//! From a request to the offsets to read: everything that can fail before the first byte.

use std::sync::Arc;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tidegate_client::{ListOffsetsError, OffsetAndTimestamp, OffsetQuery, TopicInfo};
use tidegate_model::{Isolation, OffsetRange, TimeRange, TopicName, TopicPartition};
use tidegate_plan::{OffsetBounds, PartitionFacts, PartitionPlan, Proof, parse_range, plan_offsets, plan_time};

use super::{OnDataLoss, PlannedRead, RangeSpec, ReadRangeError, ReadRequest, last};
use crate::engine::{EndsError, Engine};

/// A range that has been understood.
enum Range {
    Time(TimeRange),
    Offsets(OffsetBounds),
    Last(u64),
}

impl Range {
    fn understand(spec: &RangeSpec, now_ms: i64) -> Result<Self, ReadRangeError> {
        Ok(match spec {
            RangeSpec::Time { from, until } => Self::Time(parse_range(from.as_deref(), until.as_deref(), now_ms)?),
            RangeSpec::Offsets { start, end } => {
                let bounds = OffsetBounds { start: *start, end: *end };
                bounds.check()?;
                Self::Offsets(bounds)
            }
            RangeSpec::Last { count } => Self::Last(*count),
        })
    }
}

impl Engine {
    /// Works out what a request reads. All that can fail before the first byte fails here; the ends of the partitions are
    /// noted here too.
    ///
    /// # Errors
    /// [`ReadRangeError`].
    pub async fn plan_read(&self, request: ReadRequest) -> Result<PlannedRead, ReadRangeError> {
        let stop = self.inner.gates.stop.clone();
        tokio::select! {
            biased;
            () = stop.cancelled() => Err(ReadRangeError::ShuttingDown),
            planned = self.plan(request) => planned,
        }
    }

    async fn plan(&self, request: ReadRequest) -> Result<PlannedRead, ReadRangeError> {
        let range = Range::understand(&request.range, self.now_ms())?;
        let topic = TopicName::new(&request.topic)?;
        let permit = Arc::clone(&self.inner.gates.reads)
            .try_acquire_owned()
            .map_err(|_| ReadRangeError::TooManyReads { limit: self.limits().max_concurrent_reads })?;
        let info = self.inner.cluster.topic(&topic).await?;
        let partitions = choose(&info, &request.partitions)?;
        let plans = self.partition_plans(&topic, &partitions, &range, request.isolation).await?;
        if request.on_data_loss == OnDataLoss::Fail
            && let Some((plan, lost)) = plans.iter().find_map(|plan| Some((plan, plan.lost?)))
        {
            return Err(ReadRangeError::OffsetsGone {
                topic_partition: TopicPartition::new(topic, plan.partition),
                lost,
                log_start_offset: plan.read.start,
                noted_end_offset: plan.noted_end_offset,
            });
        }
        Ok(PlannedRead {
            engine: self.clone(),
            topic,
            partitions: plans,
            range: match range {
                Range::Time(range) => range,
                Range::Offsets(_) | Range::Last(_) => TimeRange::ALL,
            },
            limit: request.limit,
            isolation: request.isolation,
            on_data_loss: request.on_data_loss,
            _permit: permit,
        })
    }

    async fn partition_plans(
        &self,
        topic: &TopicName,
        partitions: &[i32],
        range: &Range,
        isolation: Isolation,
    ) -> Result<Vec<PartitionPlan>, ReadRangeError> {
        let from_ms = match range {
            Range::Time(range) => range.from_ms,
            Range::Offsets(_) | Range::Last(_) => None,
        };
        // The ends first: a record that is appended between the two questions then lies beyond what is read. The other way
        // round, "nothing at or after `from`" could be answered before it, and an end behind it noted after.
        let ends = self.log_ends(topic, partitions, isolation).await?;
        let (log_ends, starts, from_offsets, timed_offsets) = tokio::try_join!(
            self.weigh_ends(topic, partitions, &ends, isolation),
            self.log_starts(topic, partitions),
            self.first_at_or_after(topic, partitions, from_ms, isolation),
            // No record's own time is below 0, so this is the first record that has one.
            self.first_at_or_after(topic, partitions, from_ms.map(|_| 0), isolation),
        )?;
        let facts = (0..partitions.len()).map(|at| PartitionFacts {
            partition: partitions[at],
            log_start_offset: starts[at],
            log_end: log_ends[at],
            from_offset: from_offsets[at],
            first_timed_offset: timed_offsets[at],
        });
        match range {
            Range::Time(range) => Ok(facts.map(|facts| plan_time(&facts, range)).collect()),
            Range::Offsets(bounds) => Ok(facts.map(|facts| plan_offsets(&facts, *bounds)).collect::<Result<_, _>>()?),
            Range::Last(count) => self.last_plans(topic, facts.collect(), *count, isolation).await,
        }
    }

    async fn first_at_or_after(
        &self,
        topic: &TopicName,
        partitions: &[i32],
        from_ms: Option<i64>,
        isolation: Isolation,
    ) -> Result<Vec<Option<i64>>, EndsError> {
        let Some(from_ms) = from_ms else { return Ok(vec![None; partitions.len()]) };
        let found = match self.ask(topic, partitions, OffsetQuery::AtOrAfter(from_ms), isolation).await {
            // Brokers look no time up in a topic whose format is v0 now. What it holds from other days may have timestamps, so
            // all of it is read.
            Err(ListOffsetsError::NoTimestamps { .. }) => return Ok(vec![Some(0); partitions.len()]),
            found => found?,
        };
        Ok(found.into_iter().map(|found| found.map(|OffsetAndTimestamp { offset, .. }| offset)).collect())
    }

    async fn last_plans(
        &self,
        topic: &TopicName,
        facts: Vec<PartitionFacts>,
        count: u64,
        isolation: Isolation,
    ) -> Result<Vec<PartitionPlan>, ReadRangeError> {
        let options = super::reader_options(self, isolation);
        let plan = |facts: PartitionFacts| {
            let options = options.clone();
            async move {
                let end = facts.log_end.noted();
                let log = last::Log {
                    fetcher: &self.inner.fetcher,
                    topic_partition: TopicPartition::new(topic.clone(), facts.partition),
                    options,
                };
                let start = last::start_of_last(OffsetRange::new(facts.log_start_offset, end), count, &log).await?;
                Ok(PartitionPlan {
                    partition: facts.partition,
                    read: OffsetRange::new(start, end),
                    noted_end_offset: end,
                    log_end: facts.log_end,
                    // They would be among the newest.
                    undecided_offsets: facts.log_end.undecided.len(),
                    lost: None,
                    untimed_before: 0,
                    proof: Proof::Offsets,
                })
            }
        };
        stream::iter(facts).map(plan).buffered(self.limits().readers_at_once()).try_collect().await
    }
}

/// The partitions to read, in order and each once.
fn choose(topic: &TopicInfo, wanted: &[i32]) -> Result<Vec<i32>, ReadRangeError> {
    let all: Vec<i32> = topic.partitions.iter().map(|partition| partition.partition).collect();
    if wanted.is_empty() {
        return Ok(all);
    }
    let mut chosen = wanted.to_vec();
    chosen.sort_unstable();
    chosen.dedup();
    match chosen.iter().find(|partition| all.binary_search(partition).is_err()) {
        None => Ok(chosen),
        Some(unknown) => {
            Err(ReadRangeError::UnknownPartition { topic: topic.name.clone(), partition: *unknown, count: all.len() })
        }
    }
}

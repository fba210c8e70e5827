//! The task of a piece: fetches one after another, within the budget.

mod deliver;

use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::messages::OffsetForLeaderEpochRequest;
use tidegate_model::{Chunk, Isolation, OffsetRange, TopicPartition};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Slice;
use super::assemble::Shared;
use super::demand::Demand;
use super::error::ReadError;
use super::facts::{Phase, Waits};
use super::lead::Lead;
use super::lineage::{self, Mark};
use super::rate::Pass;
use super::request::{self, Ask, Fetched, Manner};
use crate::budget::{ByteBudget, Held};
use crate::cluster::MetadataError;
use crate::error::{KafkaCode, RequestError, RequestFailure, code};
use crate::offsets::{ListOffsetsError, OffsetQuery};
use crate::retry::Retry;

/// What a response may hold besides record batches.
const RESPONSE_OVERHEAD: usize = 64 << 10;

/// What a fetch asks for of one partition while it waits at the end of a log. It takes no room in the budget while it waits,
/// so it is little.
const POLL_BYTES: usize = 256 << 10;

/// What one answer to such fetches holds of all partitions together.
const POLL_MAX_BYTES: usize = 4 << 20;

/// See the [module](self).
pub(super) struct Task {
    shared: Arc<Shared>,
    position: i64,
    end: i64,
    /// Whether a fetch that brings something is the last when there shall be several pieces.
    is_open: bool,
    chunks: mpsc::Sender<Result<Chunk, ReadError>>,
    demand: Arc<Demand>,
    phase: Arc<Phase>,

    /// Who was asked last.
    lead: Option<Arc<Lead>>,
    retry: Retry,
    /// The size of a batch that did not fit a fetch, or 0.
    grown: usize,
    /// When the broker wants to be asked again at the earliest.
    not_before: Instant,
    /// The base offset of a batch that another fetch did not bring.
    doubted: Option<i64>,
    /// Fetches without progress, since the last with.
    standing: u32,
}

/// What a piece fetches.
#[derive(Clone, Copy, Debug)]
pub(super) enum Extent {
    /// All of it.
    Whole(OffsetRange),
    /// As much of it as comes until what is left is worth being cut into pieces, but for one fetch at least.
    Open(OffsetRange),
}

/// Why the task ends before the end of the slice.
enum Stop {
    /// Nobody wants the chunks.
    Dropped,
    Failed(Box<ReadError>),
}

impl From<ReadError> for Stop {
    fn from(error: ReadError) -> Self {
        Self::Failed(Box::new(error))
    }
}

/// Why a fetch brought nothing.
pub(super) enum Trouble {
    UnknownPartition,
    NoLeader,
    Metadata(MetadataError),
    /// The log's bounds are not told.
    Bounds(ListOffsetsError),
    Request(RequestError),
    Refused(KafkaCode),
    /// The leader lacks what was read.
    Truncated(Mark, i64),
}

impl From<RequestError> for Trouble {
    fn from(error: RequestError) -> Self {
        Self::Request(error)
    }
}

impl Task {
    pub(super) fn new(
        shared: Arc<Shared>,
        extent: Extent,
        chunks: mpsc::Sender<Result<Chunk, ReadError>>,
        demand: Arc<Demand>,
        phase: Arc<Phase>,
    ) -> Self {
        let (range, is_open) = match extent {
            Extent::Whole(range) => (range, false),
            Extent::Open(range) => (range, true),
        };
        Self {
            retry: Retry::new(shared.retry),
            shared,
            position: range.start,
            end: range.end,
            is_open,
            chunks,
            demand,
            phase,
            lead: None,
            grown: 0,
            not_before: Instant::now(),
            doubted: None,
            standing: 0,
        }
    }

    pub(super) async fn run(mut self) {
        let read = self.read().await;
        let Self { shared, chunks, demand, .. } = self;
        if let Err(Stop::Failed(error)) = read {
            demand.sending();
            drop(chunks.send(Err(*error)).await);
        }
        // The closed channel is what tells that this piece is fetched.
        drop(chunks);
        shared.fetched.notify_one();
    }

    async fn read(&mut self) -> Result<(), Stop> {
        if self.position < 0 {
            let range = OffsetRange { start: self.position, end: self.end };
            return Err(
                ReadError::NegativeOffset { topic_partition: self.shared.topic_partition.clone(), range }.into()
            );
        }
        while self.position < self.end {
            self.leave_alone().await;
            // At the end of the log nothing may come for long: room is taken when it does.
            let waits_for_data = self.waits_for_data();
            let bytes = self.bytes_to_ask(waits_for_data);
            let held = self.room(if waits_for_data { 1 } else { bytes }).await;
            let asked_at = Instant::now();
            self.phase.enter(if waits_for_data { Waits::NoData } else { Waits::Network });
            match self.fetch_from(self.position, bytes).await {
                Ok(fetched) => {
                    self.phase.enter(Waits::Decoding);
                    self.take(fetched, bytes, held, asked_at).await?;
                }
                Err(trouble) => {
                    drop(held);
                    self.recover(trouble).await?;
                }
            }
        }
        Ok(())
    }

    /// Whether the log holds nothing more at the position, as far as anybody told.
    fn waits_for_data(&self) -> bool {
        self.shared.known_end().is_some_and(|end| self.position >= end)
    }

    fn bytes_to_ask(&self, waits_for_data: bool) -> usize {
        let expected = match self.is_open {
            true => None,
            false => self.shared.meter.bytes_of(self.position, self.end),
        };
        let expected = expected.unwrap_or_else(|| self.shared.fetch_bytes());
        let expected = if waits_for_data { expected.min(POLL_BYTES) } else { expected };
        // Half of the share: one fetch comes while the consumer has another.
        let share = (self.shared.share() / 2).max(ByteBudget::LEAST_FETCH).min(expected);
        request::bytes_to_ask(&self.shared.options, share, self.grown, self.most())
    }

    /// Waits as long as the broker wants to be left alone.
    async fn leave_alone(&self) {
        let throttled_until = self.shared.leads.current().map(|lead| lead.lanes.throttled_until());
        let until = throttled_until.map_or(self.not_before, |until| until.max(self.not_before));
        if until > Instant::now() {
            let at_the_end = self.waits_for_data() && throttled_until.is_none_or(|until| until <= Instant::now());
            let phase = self.phase.now();
            self.phase.enter(if at_the_end { Waits::NoData } else { Waits::Throttled });
            tokio::time::sleep_until(until).await;
            self.phase.enter(phase);
        }
    }

    /// The most that a fetch may ask for: the response has to be accepted.
    fn most(&self) -> usize {
        self.shared.fetcher.cluster().config().max_response_bytes.saturating_sub(RESPONSE_OVERHEAD)
    }

    /// Room in the budget. A consumer that waits with nothing left to take does not wait for other readers.
    async fn room(&self, bytes: usize) -> Held {
        let room = self.shared.may_take();
        if let Some(held) = self.shared.options.budget.try_acquire(bytes, room) {
            return held;
        }
        let phase = self.phase.now();
        self.phase.enter(Waits::BudgetFull);
        let held = tokio::select! {
            biased;
            held = self.shared.options.budget.acquire(bytes, room) => held,
            () = self.demand.urgent() => self.shared.options.budget.force(bytes),
        };
        self.phase.enter(phase);
        held
    }

    async fn fetch_from(&mut self, offset: i64, bytes: usize) -> Result<Fetched, Trouble> {
        let Shared { fetcher, topic_partition, options, leads, .. } = &*self.shared;
        loop {
            let lead = leads.get(fetcher, topic_partition).await?;
            self.lead = Some(Arc::clone(&lead));
            self.compare_lineage(&lead).await?;
            let waits_for_data = self.shared.known_end().is_some_and(|end| offset >= end);
            let ask = Ask { topic_partition: topic_partition.clone(), offset, bytes, leader_epoch: lead.epoch };
            let mut manner = Manner {
                isolation: options.isolation,
                max_wait: options.fetch_max_wait,
                min_bytes: options.fetch_min_bytes,
                max_bytes: options.fetch_max_bytes.min(POLL_MAX_BYTES).max(bytes),
                rack: if leads.may_prefer() { Arc::clone(fetcher.rack()) } else { "".into() },
            };
            lead.set_busy(!waits_for_data);
            // What may bring nothing for long is paid for when it has brought something.
            let mut passes = self.pass(if waits_for_data { 0 } else { bytes }).await;
            let told = if waits_for_data {
                lead.lanes.poll(ask, &manner).await?
            } else {
                (manner.min_bytes, manner.max_bytes) = (1, bytes);
                if self.shared.known_end().is_none() && self.end == Slice::NO_END {
                    // Nobody knows yet whether there is anything, and who waits on a lane holds others up.
                    manner.max_wait = Duration::ZERO;
                }
                lead.lanes.fetch(&ask, &manner, &self.phase).await?
            };
            let received = told.answer.as_ref().map_or(0, |fetched| fetched.records.len());
            passes.iter_mut().for_each(|pass| pass.received = received);
            if !told.throttle.is_zero() {
                self.shared.meter.add_throttled();
            }
            let fetched = told.answer.map_err(Trouble::Refused)?;
            let preferred = fetched.preferred_read_replica.filter(|_| !lead.is_follower && fetched.records.is_empty());
            if let Some(replica) = preferred.filter(|_| !manner.rack.is_empty()) {
                leads.prefer(&lead, replica, fetcher).await;
                continue;
            }
            self.shared.learn_end(&fetched, offset, lead.is_follower);
            return Ok(fetched);
        }
    }

    /// Waits as the caps on bytes per second demand.
    async fn pass(&self, bytes: usize) -> [Pass<'_>; 2] {
        let (own, all) = (&self.shared.rate, self.shared.fetcher.rate());
        let phase = self.phase.now();
        if own.is_capped() || all.is_capped() {
            self.phase.enter(Waits::Throttled);
        }
        let passes = [own.pass(bytes).await, all.pass(bytes).await];
        self.phase.enter(phase);
        passes
    }

    /// Before anything is fetched from another leader: whether it has what was read. A broker that cannot tell is trusted.
    async fn compare_lineage(&self, lead: &Lead) -> Result<(), Trouble> {
        let Shared { fetcher, topic_partition, lineage, .. } = &*self.shared;
        // A replica is named by a leader that was asked.
        let Some(mark) = lineage.question(lead.epoch).filter(|_| !lead.is_follower) else { return Ok(()) };
        let cluster = fetcher.cluster();
        let connection = cluster.shared_connection(lead.lanes.address()).await?;
        if let Ok(version) = connection.version::<OffsetForLeaderEpochRequest>() {
            let request = lineage::build(topic_partition, mark, lead.epoch);
            let response = connection.call(version, &request, cluster.config().request_timeout).await?;
            let answer = lineage::check(response, topic_partition)
                .map_err(|what| connection.garbage::<OffsetForLeaderEpochRequest>(what))?;
            match answer {
                Ok(Some(end)) if end < mark.position => return Err(Trouble::Truncated(mark, end)),
                Ok(_) => {}
                Err(code) if code::concerns_leader(code.0) => return Err(Trouble::Refused(code)),
                Err(code) => tracing::debug!(%topic_partition, %code, "the leader does not tell where an epoch ends"),
            }
        }
        lineage.confirm(mark, lead.epoch);
        Ok(())
    }

    /// After trouble: nothing, when another attempt may do better.
    async fn recover(&mut self, trouble: Trouble) -> Result<(), Stop> {
        let topic_partition = self.shared.topic_partition.clone();
        let here = || topic_partition.clone();
        let offset = self.position;
        let error = match trouble {
            Trouble::Request(source) => match source.failure {
                RequestFailure::TooLarge { bytes, limit } => {
                    let bytes = bytes as u64;
                    return Err(ReadError::BatchTooLarge { topic_partition: here(), offset, bytes, limit }.into());
                }
                _ if source.is_transient() => ReadError::Request { topic_partition: here(), source },
                _ => return Err(ReadError::Request { topic_partition: here(), source }.into()),
            },
            Trouble::Truncated(Mark { position, epoch: leader_epoch, .. }, end_offset) => {
                return Err(ReadError::Truncated { topic_partition: here(), position, end_offset, leader_epoch }.into());
            }
            // The cluster was asked as often as one question allows, which is all the time that a bounded read has.
            Trouble::Metadata(error) if self.shared.follows && error.is_transient() => ReadError::Metadata(error),
            Trouble::Metadata(error) => return Err(ReadError::Metadata(error).into()),
            Trouble::Bounds(source) => self.bounds_unknown(source)?,
            Trouble::UnknownPartition => return Err(ReadError::UnknownPartition { topic_partition: here() }.into()),
            Trouble::NoLeader => ReadError::NoLeader { topic_partition: here() },
            Trouble::Refused(KafkaCode(code::TOPIC_AUTHORIZATION_FAILED)) => {
                return Err(ReadError::NotAuthorized { topic: self.shared.topic_partition.topic.clone() }.into());
            }
            Trouble::Refused(code @ KafkaCode(code::OFFSET_OUT_OF_RANGE)) => {
                // A replica may be behind; only the leader's word counts.
                let by_leader = self.lead.as_ref().is_none_or(|lead| !lead.is_follower);
                let unknown = if by_leader { self.compare_with_log().await? } else { None };
                match unknown {
                    Some(source) => self.bounds_unknown(source)?,
                    None => ReadError::Refused { topic_partition: here(), offset, code },
                }
            }
            Trouble::Refused(code) => {
                let error = ReadError::Refused { topic_partition: here(), offset, code };
                if !code::concerns_leader(code.0) && code.0 != code::UNKNOWN_SERVER_ERROR {
                    return Err(error.into());
                }
                error
            }
        };
        tracing::debug!(%error, "the fetch is tried again");
        self.phase.set_fails(true);
        self.shared.leads.distrust(self.lead.take().as_ref()).await;
        self.phase.enter(Waits::Network);
        if self.retry.pause().await { Ok(()) } else { Err(error.into()) }
    }

    /// What to say if the log's bounds stay unknown, where another attempt may do better.
    fn bounds_unknown(&self, source: ListOffsetsError) -> Result<ReadError, Stop> {
        let may_pass = self.shared.follows && source.is_transient();
        let topic_partition = self.shared.topic_partition.clone();
        let error = ReadError::Bounds { topic_partition, requested: self.position, source };
        if may_pass { Ok(error) } else { Err(error.into()) }
    }

    /// After OFFSET_OUT_OF_RANGE, which does not tell the log's bounds. Nothing, when the position lies inside them: the
    /// broker that answered may have just begun to lead and not know its high watermark yet. Else why they are not known.
    async fn compare_with_log(&self) -> Result<Option<ListOffsetsError>, Stop> {
        let TopicPartition { topic, partition } = &self.shared.topic_partition;
        let queries = [(*partition, OffsetQuery::Earliest), (*partition, OffsetQuery::Latest)];
        let bounds = self.shared.fetcher.cluster().list_offsets(topic, &queries, Isolation::ReadUncommitted).await;
        let here = || self.shared.topic_partition.clone();
        let requested = self.position;
        let bounds = match bounds {
            Ok(bounds) => bounds,
            Err(source) => return Ok(Some(source)),
        };
        let mut bounds = bounds.iter().filter_map(|answer| answer.found.map(|found| found.offset));
        let (Some(log_start_offset), Some(high_watermark)) = (bounds.next(), bounds.next()) else { return Ok(None) };
        if (log_start_offset..=high_watermark).contains(&requested) {
            return Ok(None);
        }
        Err(ReadError::OffsetOutOfRange { topic_partition: here(), requested, log_start_offset, high_watermark }.into())
    }
}

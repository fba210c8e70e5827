//! What becomes of the answers: batches checked, decompressed, trimmed and handed on, and what an answer without progress means.

use std::sync::Arc;
use std::time::Duration;

use tidegate_model::{Chunk, Isolation, Lease, OffsetRange, RecordBatch, TopicPartition};
use tidegate_wire::{BatchError, Stored};
use tokio::time::Instant;

use super::{Stop, Task, Trouble};
use crate::budget::Held;
use crate::error::{RequestError, RequestFailure};
use crate::fetch::error::ReadError;
use crate::fetch::facts::Waits;
use crate::fetch::lineage::Mark;
use crate::fetch::meter::Sample;
use crate::fetch::request::Fetched;
use crate::fetch::walk::{self, Delivery, Standstill, Tail, Unreadable, Walk};
use crate::fetch::{Slice, polls};
use crate::offsets::OffsetQuery;

/// A chunk is handed on when its records reach so many bytes, or when the fetch it came with is used up.
const CHUNK_BYTES: usize = 512 << 10;

/// Compressed batches and old messages larger than this are read on a thread that may block.
const INLINE_BYTES: usize = 32 << 10;

/// What a fetch that asks after one batch asks for beyond it.
const PROBE_BYTES: usize = 4 << 10;

/// The first pause after a fetch that came back empty at once.
const EMPTY_PAUSE: Duration = Duration::from_millis(5);

/// What came of asking after a doubtful batch.
enum Doubt {
    Wrong(Box<ReadError>),
    Trouble(Trouble),
}

impl From<ReadError> for Doubt {
    fn from(error: ReadError) -> Self {
        Self::Wrong(Box::new(error))
    }
}

/// What is gathered for the next chunk.
#[derive(Default)]
struct Gathered {
    batches: Vec<RecordBatch>,
    bytes: usize,
    /// For records that were decompressed: the memory they take, whole batches counted where only a part is delivered.
    opened: Option<Held>,
    opened_bytes: usize,
    /// For records that lie in the response.
    frame: Option<Arc<Held>>,
}

impl Task {
    /// Hands on what a fetch brought.
    pub(super) async fn take(
        &mut self,
        fetched: Fetched,
        asked_bytes: usize,
        mut held: Held,
        asked_at: Instant,
    ) -> Result<(), Stop> {
        let Fetched { high_watermark, last_stable_offset, log_start_offset, aborted, records, .. } = fetched;
        let begin = self.position;
        // Asking after a doubtful batch may find another leader.
        let seen_under = self.lead.as_ref().map(|lead| lead.epoch);
        if let Some(log_start_offset) = log_start_offset.filter(|log_start| *log_start > begin)
            && walk::first_offset_from(&records, begin, &self.shared.options.batch_limits)
                .is_none_or(|first| first > begin)
        {
            // The broker read at the position and found a gap there. It moved the log's start over the position meanwhile, so
            // nobody can say that the gap was compaction.
            let topic_partition = self.shared.topic_partition.clone();
            let requested = begin;
            return Err(
                ReadError::OffsetOutOfRange { topic_partition, requested, log_start_offset, high_watermark }.into()
            );
        }
        let received = records.len();
        held.resize(received);
        let frame = Arc::new(held);
        let range = OffsetRange::new(begin, self.end);
        let limits = self.shared.options.batch_limits;
        let mut walk = Walk::new(records, range, self.shared.options.isolation, aborted, limits.check_crcs);
        if let Some(tail) = walk.doubtful()
            && ![high_watermark, last_stable_offset].contains(&tail.next_offset)
        {
            match self.doubt(&tail, high_watermark).await {
                Ok(true) => {}
                // Asked again from the same position, too; a broker that never tells is given up in time.
                Ok(false) => return self.stand(asked_at, last_stable_offset, high_watermark),
                Err(Doubt::Wrong(error)) => return Err((*error).into()),
                // Asked again from the same position.
                Err(Doubt::Trouble(trouble)) => return self.recover(trouble).await,
            }
        }
        // Only now has the fetch succeeded: what is asked about it may be what fails each time.
        self.retry.reset();
        self.phase.set_fails(false);
        let mut gathered = Gathered::default();
        loop {
            let delivery = match walk.next(&limits) {
                None => break,
                Some(Ok(delivery)) => delivery,
                Some(Err(unreadable)) => {
                    self.hand_on(&mut gathered, walk.position()).await?;
                    return Err(self.unreadable(unreadable).into());
                }
            };
            let before = delivery.range.start;
            if delivery.stored.is_copied() {
                self.make_room(&mut gathered, before, &delivery.stored).await?;
            } else {
                gathered.frame.get_or_insert_with(|| Arc::clone(&frame));
            }
            if let Err(error) = self.open(delivery, &mut gathered).await? {
                self.hand_on(&mut gathered, before).await?;
                return Err(self.unreadable(Unreadable::Batch(error)).into());
            }
            if gathered.bytes >= CHUNK_BYTES {
                self.hand_on(&mut gathered, walk.position()).await?;
            }
        }
        self.hand_on(&mut gathered, walk.position()).await?;
        if self.position > begin {
            let passed = walk.passed();
            if let (Some(seen_under), Some((position, epoch))) = (seen_under, walk.passed_up_to()) {
                self.shared.lineage.read(Mark { position, epoch, seen_under });
            }
            self.shared.meter.add(Sample { received, passed });
            self.grown = 0;
            self.standing = 0;
            if self.is_open && self.shared.is_worth_cutting(self.position, self.end) {
                self.end = self.position;
            }
            return Ok(());
        }
        match walk.standstill() {
            Standstill::Empty => self.stand(asked_at, last_stable_offset, high_watermark),
            Standstill::Cut(size) => self.grow(asked_bytes, size),
            Standstill::Behind => {
                let what = "it holds only batches from before the offset that was asked for";
                let source = RequestError {
                    broker: self.lead.as_ref().map_or_else(String::new, |lead| lead.lanes.address().to_string()),
                    request: "Fetch",
                    failure: RequestFailure::Garbage { what: what.to_owned() },
                };
                Err(ReadError::Request { topic_partition: self.shared.topic_partition.clone(), source }.into())
            }
        }
    }

    /// Asks the leader whether a batch stands where its base offset says. `false`: it did not tell.
    async fn doubt(&mut self, tail: &Tail, high_watermark: i64) -> Result<bool, Doubt> {
        let TopicPartition { topic, partition } = &self.shared.topic_partition;
        if tail.next_offset > high_watermark {
            // The mark came with the batch, but a broker may be late with it.
            let query = [(*partition, OffsetQuery::Latest)];
            let end = self.shared.fetcher.cluster().list_offsets(topic, &query, Isolation::ReadUncommitted).await;
            let end = end.map_err(|source| Doubt::Trouble(Trouble::Bounds(source)))?;
            let high_watermark = end.first().and_then(|end| end.found).map_or(high_watermark, |end| end.offset);
            if tail.next_offset > high_watermark {
                let (topic_partition, base_offset) = (self.shared.topic_partition.clone(), tail.span.base_offset);
                return Err(ReadError::BeyondEnd { topic_partition, base_offset, high_watermark }.into());
            }
        }
        // The batch itself, and enough of the one behind it to tell its offset.
        let bytes = tail.bytes.saturating_add(PROBE_BYTES).min(self.most());
        self.leave_alone().await;
        let _held = self.room(bytes).await;
        self.phase.enter(Waits::Network);
        let probe = self.fetch_from(tail.span.base_offset.saturating_sub(1), bytes).await.map_err(Doubt::Trouble)?;
        self.phase.enter(Waits::Decoding);
        match walk::confirm(tail, &probe.records) {
            Ok(told) => Ok(told),
            // It may have been compacted away between the two fetches: then it does not come again.
            Err(_) if self.doubted.replace(tail.span.base_offset) != Some(tail.span.base_offset) => Ok(false),
            Err(wrong) => Err(self.unreadable(wrong).into()),
        }
    }

    /// Room for the records of a compressed batch, as far as they can be guessed, or of old messages. What is gathered goes
    /// out before the task waits: the consumer may free room with it.
    async fn make_room(&mut self, gathered: &mut Gathered, before: i64, stored: &Stored) -> Result<(), Stop> {
        let bytes = stored.bytes().len();
        let expected = if stored.is_compressed() {
            bytes
                .saturating_mul(self.shared.meter.expansion())
                .min(self.shared.options.batch_limits.max_decompressed_bytes)
        } else {
            bytes
        };
        let held = match self.shared.options.budget.try_acquire(expected, self.shared.may_take()) {
            Some(held) => held,
            None => {
                self.hand_on(gathered, before).await?;
                self.room(expected).await
            }
        };
        match &mut gathered.opened {
            Some(opened) => opened.absorb(held),
            opened => *opened = Some(held),
        }
        Ok(())
    }

    /// Checks, decompresses and trims a batch, and adds it to what is gathered. The outer error: the runtime is shutting
    /// down.
    async fn open(&mut self, delivery: Delivery, gathered: &mut Gathered) -> Result<Result<(), BatchError>, Stop> {
        let limits = self.shared.options.batch_limits;
        let (is_copied, is_compressed) = (delivery.stored.is_copied(), delivery.stored.is_compressed());
        let stored = delivery.stored.bytes().len();
        let open = move |Delivery { stored, range }: Delivery| {
            let whole = stored.open(&limits)?;
            let bytes = whole.body().len();
            Ok((walk::trim(whole, range), bytes))
        };
        let opened = if is_copied && stored > INLINE_BYTES {
            tokio::task::spawn_blocking(move || open(delivery)).await.map_err(|_| Stop::Dropped)?
        } else {
            // A CRC runs at gigabytes a second: it is enough to let others run between batches.
            tokio::task::consume_budget().await;
            open(delivery)
        };
        let (batch, bytes) = match opened {
            Ok(opened) => opened,
            Err(error) => return Ok(Err(error)),
        };
        if is_compressed {
            self.shared.meter.expanded(stored, bytes);
        }
        if is_copied {
            gathered.opened_bytes += bytes;
            if let Some(opened) = &mut gathered.opened {
                // In place of the guess.
                opened.resize(gathered.opened_bytes);
            }
        }
        if batch.header().record_count > 0 {
            gathered.bytes += bytes;
            gathered.batches.push(batch);
        }
        Ok(Ok(()))
    }

    /// Sends what is gathered, with the position behind it. Nothing, when that did not move.
    async fn hand_on(&mut self, gathered: &mut Gathered, position: i64) -> Result<(), Stop> {
        let Gathered { batches, opened, frame, .. } = std::mem::take(gathered);
        if position <= self.position {
            return Ok(());
        }
        let lease = (opened.is_some() || frame.is_some()).then(|| Lease::new((opened, frame)));
        let chunk =
            Chunk { topic_partition: self.shared.topic_partition.clone(), batches, next_offset: position, lease };
        self.shared.standing.end();
        self.demand.sending();
        self.chunks.send(Ok(chunk)).await.map_err(|_| Stop::Dropped)?;
        self.position = position;
        Ok(())
    }

    /// A fetch came back empty. Below the end that is never the end: the broker may throttle without saying so, or a
    /// transaction may be open.
    fn stand(&mut self, asked_at: Instant, last_stable_offset: i64, high_watermark: i64) -> Result<(), Stop> {
        let throttled_until = self.shared.leads.current().map(|lead| lead.lanes.throttled_until());
        let throttled = throttled_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()));
        // A broker that does not use its time to wait is not asked again and again.
        let may_wait = match self.waits_for_data() {
            true => self.shared.options.fetch_max_wait.min(polls::FIRST_WAIT),
            false => self.shared.options.fetch_max_wait,
        };
        let unused = may_wait.saturating_sub(asked_at.elapsed());
        let pause = EMPTY_PAUSE.saturating_mul(1 << self.standing.min(16)).min(unused).max(throttled);
        self.standing = self.standing.saturating_add(1);
        // Whoever follows a log has all the time in the world at its end.
        let is_at_the_end = self.end == Slice::NO_END && self.waits_for_data();
        let waited = match is_at_the_end {
            true => Duration::ZERO,
            false => self.shared.standing.add(asked_at, Instant::now() + pause),
        };
        if waited >= self.shared.options.stall_timeout {
            return Err(ReadError::Stalled {
                topic_partition: self.shared.topic_partition.clone(),
                offset: self.position,
                waited,
                last_stable_offset,
                high_watermark,
            }
            .into());
        }
        self.not_before = Instant::now() + pause;
        Ok(())
    }

    /// A fetch brought the beginning of a batch alone, as brokers older than KIP-74 do: the next one asks for all of it.
    fn grow(&mut self, asked: usize, size: Option<usize>) -> Result<(), Stop> {
        let needed = size.unwrap_or(0).max(asked.saturating_mul(2));
        let most = self.most();
        if asked >= most || size.is_some_and(|size| size > most) {
            return Err(ReadError::BatchTooLarge {
                topic_partition: self.shared.topic_partition.clone(),
                offset: self.position,
                bytes: size.unwrap_or(asked) as u64,
                limit: most,
            }
            .into());
        }
        self.grown = needed.min(most);
        Ok(())
    }

    fn unreadable(&self, unreadable: Unreadable) -> ReadError {
        let topic_partition = self.shared.topic_partition.clone();
        match unreadable {
            Unreadable::Batch(source) => ReadError::Batch { topic_partition, source },
            Unreadable::Marker(source) => ReadError::Marker { topic_partition, source },
            Unreadable::OutOfOrder { base_offset, before } => {
                ReadError::OutOfOrder { topic_partition, base_offset, before }
            }
        }
    }
}

//! A reader's task: cuts the slice into pieces, has several of them fetched at once, and hands their chunks on in order.
//!
//! ```text
//!   offsets   [ piece 0 ][ piece 1 ][ piece 2 ] ...            each piece: a task
//!                  |          |          |
//!               chunks     chunks     chunks                   bounded by the byte budget, not by their number
//!                  '--> in order, each offset once --> the reader
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_model::{Chunk, Isolation, OffsetRange, TopicPartition};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::demand::Demand;
use super::error::ReadError;
use super::facts::{Clock, Phase, ReaderFacts};
use super::lead::Leads;
use super::lineage::Lineage;
use super::meter::Meter;
use super::rate::Rate;
use super::request::Fetched;
use super::standing::Standing;
use super::task::{Extent, Task};
use super::{AbortOnDrop, Fetcher, QUEUED_CHUNKS, ReaderOptions, Slice};
use crate::budget::{ByteBudget, Registration, Room};
use crate::config::RetryLimits;

/// Pieces that are fetched wait for the one in front of them; at most so many times the width.
const FETCHED_AHEAD: usize = 2;

/// The first fetch of a slice asks for no more: it tells how large batches are and how many offsets are in how many bytes, and
/// on a new connection to a distant broker a small answer comes some round trips sooner.
const FIRST_BYTES: usize = 128 << 10;

/// A budget of so much is enough for the longest way: at 80 ms it is 800 MB/s.
const FAR_BUDGET: usize = 64 << 20;

/// What one fetch asks for, unless batches are large. A near broker has the less to do the more one fetch brings: with this it
/// spends half the processor time on each byte that it does with Kafka's 1 MiB. From one that is not near a slice is shared by
/// many connections, each of which may be slow.
const NEAR_BYTES: usize = 4 << 20;
const FAR_BYTES: usize = 1 << 20;

/// What the tasks of one reader share.
pub(super) struct Shared {
    pub(super) fetcher: Fetcher,
    pub(super) topic_partition: TopicPartition,
    pub(super) options: ReaderOptions,
    pub(super) meter: Meter,
    pub(super) clock: Arc<Clock>,
    pub(super) leads: Leads,
    pub(super) lineage: Lineage,
    pub(super) rate: Rate,
    /// The slice has no end.
    pub(super) follows: bool,
    /// Of each of its tasks.
    pub(super) retry: RetryLimits,
    /// A piece has been fetched.
    pub(super) fetched: Notify,
    /// How many pieces there shall be at once.
    at_once: AtomicUsize,
    /// The end of what can be read, as a broker told it last; -1 when none did.
    known_end: AtomicI64,
    restarts: AtomicU64,
    /// How long fetches have come back without any progress.
    pub(super) standing: Standing,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("topic_partition", &self.topic_partition).finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn new(
        fetcher: Fetcher,
        topic_partition: TopicPartition,
        range: OffsetRange,
        options: ReaderOptions,
    ) -> Self {
        let mut retry = fetcher.cluster().config().retry;
        let follows = range.end == Slice::NO_END;
        if follows {
            // Whoever follows a log waits out an election, however long it takes, as long as it waits for data.
            retry.attempts = u32::MAX;
            retry.deadline = retry.deadline.max(options.stall_timeout);
        }
        Self {
            retry,
            follows,
            rate: Rate::new(options.max_rate),
            fetcher,
            topic_partition,
            options,
            meter: Meter::default(),
            clock: Arc::default(),
            leads: Leads::default(),
            lineage: Lineage::default(),
            fetched: Notify::new(),
            at_once: AtomicUsize::new(1),
            known_end: AtomicI64::new(-1),
            restarts: AtomicU64::new(0),
            standing: Standing::default(),
        }
    }

    /// The end of what can be read, as far as it is known.
    pub(super) fn known_end(&self) -> Option<i64> {
        Some(self.known_end.load(Ordering::Relaxed)).filter(|end| *end >= 0)
    }

    /// Takes note of what a broker tells of the end after it was asked for `offset`.
    ///
    /// Answers may arrive out of order, so the end only grows; but when a leader has nothing from an offset on, the end is no
    /// further, whatever was told before the log was cut off.
    pub(super) fn learn_end(&self, fetched: &Fetched, offset: i64, by_follower: bool) {
        let stable = fetched.last_stable_offset;
        let end = match self.options.isolation {
            Isolation::ReadCommitted if stable >= 0 => stable,
            Isolation::ReadCommitted | Isolation::ReadUncommitted => fetched.high_watermark,
        };
        if fetched.records.is_empty() && !by_follower && (0..=offset).contains(&end) {
            self.known_end.store(end, Ordering::Relaxed);
        } else {
            self.known_end.fetch_max(end, Ordering::Relaxed);
        }
    }

    /// Whether this reader needs more than its budget: over a long way if that is small, and while answers bring much that is
    /// not wanted.
    pub(super) fn may_take(&self) -> Room {
        let is_small = self.options.budget.limit() < FAR_BUDGET;
        let is_far = || self.leads.current().is_some_and(|lead| lead.lanes.is_far());
        if (is_small && is_far()) || self.meter.is_wasteful() { Room::Reserve } else { Room::Own }
    }

    /// What this reader may hold.
    pub(super) fn share(&self) -> usize {
        self.options.budget.share(self.may_take())
    }

    /// The bytes that one fetch should ask for.
    pub(super) fn fetch_bytes(&self) -> usize {
        let is_near = self.leads.current().is_some_and(|lead| lead.lanes.is_near());
        let pays = if is_near { NEAR_BYTES } else { FAR_BYTES };
        let bytes = pays.max(self.meter.least_fetch()).min(self.options.most_of_a_fetch());
        // Three times as much comes with each until enough is known.
        self.meter.learning().map_or(bytes, |came| bytes.min(FIRST_BYTES.max(came.saturating_mul(2))))
    }

    /// Whether what is left from `position` on is worth being cut into pieces.
    pub(super) fn is_worth_cutting(&self, position: i64, end: i64) -> bool {
        if self.at_once.load(Ordering::Relaxed) < 2 {
            return false;
        }
        let end = self.cutting_end(end);
        position < end && self.meter.bytes_of(position, end).is_some_and(|bytes| bytes > self.fetch_bytes())
    }

    /// Up to where a slice that ends at `end` can be cut: nobody knows yet what is beyond the end of the log, and a fetch from
    /// there would be refused.
    fn cutting_end(&self, end: i64) -> i64 {
        end.min(self.known_end().unwrap_or(0))
    }

    pub(super) fn facts(&self, position: i64) -> ReaderFacts {
        ReaderFacts {
            times: self.clock.times(),
            totals: self.meter.totals(),
            position,
            known_end: self.known_end(),
            pieces_at_once: self.at_once.load(Ordering::Relaxed),
            broker: self.leads.current().map(|lead| lead.lanes.choice()),
            restarts: self.restarts.load(Ordering::Relaxed),
        }
    }
}

/// See the [module](self).
pub(super) struct Assembler {
    shared: Arc<Shared>,
    /// Everything before it was handed on.
    position: i64,
    /// The first offset that no piece has.
    next: i64,
    end: i64,
    /// In the order of their offsets.
    pieces: VecDeque<Piece>,
    chunks: mpsc::Sender<Result<Chunk, ReadError>>,
    demand: Arc<Demand>,
    _registration: Registration,
}

struct Piece {
    /// Everything before it has come.
    position: i64,
    /// `None`: wherever its task ends.
    end: Option<i64>,
    chunks: mpsc::Receiver<Result<Chunk, ReadError>>,
    demand: Arc<Demand>,
    phase: Arc<Phase>,
    _task: AbortOnDrop,
}

impl Piece {
    fn is_fetching(&self) -> bool {
        // Its task lets go of the other end when it has sent everything.
        !self.chunks.is_closed()
    }
}

impl Assembler {
    pub(super) fn new(
        shared: Arc<Shared>,
        range: OffsetRange,
        chunks: mpsc::Sender<Result<Chunk, ReadError>>,
        demand: Arc<Demand>,
    ) -> Self {
        let _registration = shared.options.budget.register();
        let OffsetRange { start, end } = range;
        Self { shared, position: start, next: start, end, pieces: VecDeque::new(), chunks, demand, _registration }
    }

    pub(super) async fn run(mut self) {
        let Err(error) = self.read().await else { return };
        self.demand.sending();
        // The connections go before the consumer looks at the error.
        self.pieces.clear();
        self.shared.leads.distrust(self.shared.leads.current().as_ref()).await;
        // A consumer that left needs to hear of nothing.
        drop(self.chunks.send(Err(error)).await);
    }

    /// Ends when everything was handed on, or the consumer left.
    async fn read(&mut self) -> Result<(), ReadError> {
        loop {
            self.begin_pieces();
            let Some(item) = self.head_item().await else { return Ok(()) };
            match item {
                Item::Chunk(chunk) => {
                    self.position = chunk.next_offset;
                    self.demand.sending();
                    if self.chunks.send(Ok(chunk)).await.is_err() {
                        return Ok(());
                    }
                }
                Item::Done => {}
                Item::Overdue => self.restart().await,
                Item::Failed(error) => return Err(error),
            }
        }
    }

    /// How many pieces may be fetched at once: this reader's share of what may be on its way, and no more than fit the
    /// budget, as large as they must be.
    fn at_once(&self) -> usize {
        let Some(lead) = self.shared.leads.current() else { return 1 };
        let fit = for_frames(self.shared.share()) / self.shared.meter.least_piece().max(1);
        lead.lanes.share().min(fit).max(1)
    }

    /// Starts fetching as many pieces as shall be fetched at once.
    fn begin_pieces(&mut self) {
        let at_once = self.at_once();
        self.shared.at_once.store(at_once, Ordering::Relaxed);
        while self.next < self.end
            && self.pieces.len() < at_once * FETCHED_AHEAD
            && self.pieces.iter().filter(|piece| piece.is_fetching()).count() < at_once
        {
            // Where a piece ends that ends by itself is known when it has been fetched.
            if self.pieces.back().is_some_and(|last| last.end.is_none()) {
                return;
            }
            let end = self.cut(at_once);
            self.begin_piece(end);
        }
    }

    /// The end of the next piece, one fetch long; `None` where it is not worth cutting or cannot be told.
    fn cut(&self, at_once: usize) -> Option<i64> {
        if !self.shared.is_worth_cutting(self.next, self.end) {
            return None;
        }
        let share = for_frames(self.shared.share()) / at_once;
        let bytes = self.shared.fetch_bytes().min(share).max(ByteBudget::LEAST_FETCH);
        let end = self.shared.meter.piece_end(self.next, self.shared.cutting_end(self.end), bytes);
        end.filter(|end| *end > self.next)
    }

    fn begin_piece(&mut self, end: Option<i64>) {
        let (sender, chunks) = mpsc::channel(QUEUED_CHUNKS);
        let demand = Arc::new(Demand::default());
        let phase = Arc::new(Phase::new(Arc::clone(&self.shared.clock)));
        let start = self.next;
        let extent = match end {
            Some(end) => Extent::Whole(OffsetRange::new(start, end)),
            None => Extent::Open(OffsetRange::new(start, self.end)),
        };
        let task = Task::new(Arc::clone(&self.shared), extent, sender, Arc::clone(&demand), Arc::clone(&phase));
        let task = AbortOnDrop::spawn(task.run());
        self.next = end.unwrap_or(start);
        self.pieces.push_back(Piece { position: start, end, chunks, demand, phase, _task: task });
    }

    /// What comes next from the piece in front. `None`: there is none any more.
    async fn head_item(&mut self) -> Option<Item> {
        // While the consumer waits with nothing to take, the piece in front need not wait for room.
        let mut urgent = None;
        let network_before = self.shared.clock.times().network;
        let mut watched_since = Instant::now();
        let received = loop {
            let head = self.pieces.front_mut()?;
            head.phase.lead();
            let watchdog = self.shared.options.watchdog;
            tokio::select! {
                biased;
                item = head.chunks.recv() => break item,
                () = self.shared.fetched.notified() => {}
                () = self.demand.urgent(), if urgent.is_none() => {
                    urgent = Some(Arc::clone(&head.demand));
                    head.demand.begin_waiting();
                    continue;
                }
                () = elapsed_since(watched_since, watchdog) => {
                    if self.is_overdue() {
                        return Some(Item::Overdue);
                    }
                    watched_since = Instant::now();
                    continue;
                }
            }
            self.begin_pieces();
        };
        if let Some(demand) = urgent {
            demand.end_waiting();
        }
        if self.chunks.capacity() == self.chunks.max_capacity() {
            self.starved(network_before);
        }
        let head = self.pieces.front_mut()?;
        match received {
            Some(Ok(chunk)) => {
                head.demand.taken();
                head.position = chunk.next_offset;
                Some(Item::Chunk(chunk))
            }
            Some(Err(error)) => Some(Item::Failed(error)),
            None => {
                let Piece { position, end, .. } = self.pieces.pop_front()?;
                match end {
                    Some(end) if position < end => Some(Item::Failed(self.ended_early(position))),
                    Some(_) => Some(Item::Done),
                    None if position <= self.next => Some(Item::Failed(self.ended_early(position))),
                    None => {
                        self.next = position;
                        Some(Item::Done)
                    }
                }
            }
        }
    }

    fn ended_early(&self, offset: i64) -> ReadError {
        ReadError::TaskEnded { topic_partition: self.shared.topic_partition.clone(), offset }
    }

    /// The consumer had nothing to take while the piece in front was waited for. Only what it waited for the network could
    /// have been less with more connections.
    fn starved(&self, network_before: Duration) {
        if let Some(lead) = self.shared.leads.current() {
            lead.lanes.starved(self.shared.clock.times().network.saturating_sub(network_before));
        }
    }

    /// Whether nothing came for too long although there is something, and nothing but the network is to blame.
    fn is_overdue(&self) -> bool {
        let there_is_more = self.shared.known_end().is_some_and(|end| end > self.position);
        // Whoever looks for a broker to fetch from has limits of its own.
        let is_asked = self.shared.leads.current().is_some();
        let watchdog = self.shared.options.watchdog;
        there_is_more && is_asked && self.pieces.front().is_some_and(|head| head.phase.is_stuck(watchdog))
    }

    /// Begins anew where the reader is, over new connections if these are to blame.
    async fn restart(&mut self) {
        self.shared.restarts.fetch_add(1, Ordering::Relaxed);
        let facts = self.shared.facts(self.position);
        tracing::warn!(
            partition = %self.shared.topic_partition, ?facts,
            "nothing came for too long although there is more: fetching begins anew"
        );
        self.pieces.clear();
        self.next = self.position;
        self.shared.leads.distrust(self.shared.leads.current().as_ref()).await;
    }
}

/// What of a budget answers may fill as they came. The rest is for what compressed ones become: if nothing were left, each
/// batch would wait for the consumer.
fn for_frames(share: usize) -> usize {
    share / 4 * 3
}

/// Never, where a time is too long to be told.
async fn elapsed_since(begun: Instant, time: Duration) {
    match begun.checked_add(time) {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

enum Item {
    Chunk(Chunk),
    /// The piece is complete.
    Done,
    /// It takes too long.
    Overdue,
    Failed(ReadError),
}

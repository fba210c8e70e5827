//! A reader's task: cuts the slice into pieces, has several of them fetched at once, and hands their chunks on in order.
//!
//! ```text
//!   offsets   [ piece 0 ][ piece 1 ][ piece 2 ] ...            each piece: a task with a connection of its own
//!                  |          |          |
//!               chunks     chunks     chunks                   bounded by the byte budget, not by their number
//!                  '--> in order, each offset once --> the reader
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_model::{Chunk, OffsetRange, TopicPartition};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::demand::Demand;
use super::error::ReadError;
use super::lanes::Lanes;
use super::meter::{Meter, Totals};
use super::task::{Extent, Task};
use super::width::{Choice, Stretch, Width};
use super::{AbortOnDrop, QUEUED_CHUNKS, ReaderOptions};
use crate::budget::{ByteBudget, Registration};
use crate::cluster::{Cluster, Places};

/// The width is not judged by less than so many fetches for each of the pieces at once.
const FETCHES_A_PIECE: u64 = 2;

/// Nor by less time: what a busy machine does in less says nothing.
const LEAST_STRETCH: Duration = Duration::from_millis(20);

/// Pieces that are fetched wait for the one in front of them; at most so many times the width.
const FETCHED_AHEAD: usize = 2;

/// What the tasks of one reader share.
pub(super) struct Shared {
    pub(super) cluster: Cluster,
    pub(super) topic_partition: TopicPartition,
    pub(super) options: ReaderOptions,
    pub(super) meter: Arc<Meter>,
    /// The connections of this reader.
    pub(super) own: Arc<Places>,
    /// The leader's address, when a piece has found it.
    pub(super) leader: Mutex<Option<Arc<str>>>,
    /// Connections to the leader that no piece uses at the moment.
    pub(super) lanes: Lanes,
    /// A piece has been fetched.
    pub(super) fetched: Notify,
    /// How many pieces there shall be at once.
    pub(super) at_once: AtomicUsize,
    /// When a broker that throttles wants to be asked again at the earliest, by whatever piece.
    pub(super) throttled_until: Mutex<Instant>,
}

impl Shared {
    pub(super) fn new(
        cluster: Cluster,
        topic_partition: TopicPartition,
        options: ReaderOptions,
        meter: Arc<Meter>,
    ) -> Self {
        let (lanes, fetched) = (Lanes::default(), Notify::new());
        let throttled_until = Mutex::new(Instant::now());
        let (own, leader) = (Arc::default(), Mutex::default());
        let at_once = AtomicUsize::new(1);
        Self { cluster, topic_partition, options, meter, own, leader, lanes, fetched, at_once, throttled_until }
    }
}

/// See the [module](self).
pub(super) struct Assembler {
    shared: Arc<Shared>,
    /// The first offset that no piece has.
    next: i64,
    end: i64,
    /// In the order of their offsets.
    pieces: VecDeque<Piece>,
    width: Width,
    begun: Instant,
    before: Totals,
    starved: Duration,
    /// Whether connections are still being made.
    unsettled: bool,
    chunks: mpsc::Sender<Result<Chunk, ReadError>>,
    demand: Arc<Demand>,
    chosen: Arc<Mutex<Choice>>,
    registration: Registration,
}

struct Piece {
    /// Everything before it has come.
    position: i64,
    /// `None`: wherever its task ends.
    end: Option<i64>,
    chunks: mpsc::Receiver<Result<Chunk, ReadError>>,
    demand: Arc<Demand>,
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
        shared: Shared,
        range: OffsetRange,
        chunks: mpsc::Sender<Result<Chunk, ReadError>>,
        demand: Arc<Demand>,
        chosen: Arc<Mutex<Choice>>,
    ) -> Self {
        Self {
            registration: shared.options.budget.register(),
            next: range.start,
            end: range.end,
            pieces: VecDeque::new(),
            width: shared.options.fetches_in_flight.map_or_else(Width::new, Width::set),
            begun: Instant::now(),
            before: Totals::default(),
            starved: Duration::ZERO,
            unsettled: true,
            chunks,
            demand,
            chosen,
            shared: Arc::new(shared),
        }
    }

    pub(super) async fn run(mut self) {
        let Err(error) = self.read().await else { return };
        self.demand.sending();
        // The connections go before the consumer looks at the error.
        self.pieces.clear();
        self.shared.lanes.clear();
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
                    self.demand.sending();
                    if self.chunks.send(Ok(chunk)).await.is_err() {
                        return Ok(());
                    }
                }
                Item::Done => {}
                Item::Failed(error) => return Err(error),
            }
            self.judge_width();
        }
    }

    /// How many connections this reader may have: the readers of a budget share what is allowed, and what other readers of
    /// the cluster have to the same broker counts. One is always allowed.
    fn limit(&self) -> usize {
        let Shared { cluster, options, own, leader, .. } = &*self.shared;
        let allowed = options.connections_per_broker;
        let others = match &*leader.lock() {
            Some(address) => cluster.fetching().count(address).saturating_sub(own.count(address)),
            None => 0,
        };
        // Nor more pieces than fit the budget, as large as they must be.
        let fit = for_frames(options.budget.share()) / self.shared.meter.least_piece().max(1);
        (allowed / self.registration.readers()).min(allowed.saturating_sub(others)).min(fit).max(1)
    }

    /// Starts fetching as many pieces as the width allows.
    fn begin_pieces(&mut self) {
        let width = self.width.get(self.limit());
        self.shared.at_once.store(width, Ordering::Relaxed);
        self.shared.lanes.keep(width);
        *self.chosen.lock() = Choice { at_once: width, reason: self.width.reason() };
        while self.next < self.end
            && self.pieces.len() < width * FETCHED_AHEAD
            && self.pieces.iter().filter(|piece| piece.is_fetching()).count() < width
        {
            // Where a piece ends that ends by itself is known when it has been fetched.
            if self.pieces.back().is_some_and(|last| last.end.is_none()) {
                return;
            }
            let end = if width == 1 { None } else { self.cut(width) };
            self.begin_piece(end);
        }
    }

    /// The end of the next piece, one fetch long; `None` while it cannot be told.
    fn cut(&self, width: usize) -> Option<i64> {
        let options = &self.shared.options;
        let share = for_frames(options.budget.share()) / width;
        let bytes = options.max_partition_fetch_bytes.min(options.fetch_max_bytes).min(share);
        self.shared.meter.piece_end(self.next, self.end, bytes.max(ByteBudget::LEAST_FETCH))
    }

    fn begin_piece(&mut self, end: Option<i64>) {
        let (sender, chunks) = mpsc::channel(QUEUED_CHUNKS);
        let demand = Arc::new(Demand::default());
        let start = self.next;
        let extent = match end {
            Some(end) => Extent::Whole(OffsetRange::new(start, end)),
            None => Extent::Open(OffsetRange::new(start, self.end)),
        };
        let task = Task::new(Arc::clone(&self.shared), extent, sender, Arc::clone(&demand));
        let task = AbortOnDrop::spawn(task.run());
        self.next = end.unwrap_or(start);
        self.pieces.push_back(Piece { position: start, end, chunks, demand, _task: task });
    }

    /// What comes next from the piece in front. `None`: there is none any more.
    async fn head_item(&mut self) -> Option<Item> {
        let waits_from = Instant::now();
        // While the consumer waits with nothing to take, the piece in front need not wait for room.
        let mut urgent = None;
        let received = loop {
            let head = self.pieces.front_mut()?;
            tokio::select! {
                biased;
                item = head.chunks.recv() => break item,
                () = self.shared.fetched.notified() => {}
                () = self.demand.urgent(), if urgent.is_none() => {
                    urgent = Some(Arc::clone(&head.demand));
                    head.demand.begin_waiting();
                    continue;
                }
            }
            self.begin_pieces();
        };
        if let Some(demand) = urgent {
            demand.end_waiting();
        }
        if self.chunks.capacity() == self.chunks.max_capacity() {
            self.starved += waits_from.elapsed();
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

    /// Decides the width anew when enough has happened since the last time.
    fn judge_width(&mut self) {
        let limit = self.limit();
        let width = self.width.get(limit);
        let totals = self.shared.meter.totals();
        let elapsed = self.begun.elapsed();
        let fetches = totals.fetches - self.before.fetches;
        if fetches < FETCHES_A_PIECE * width as u64 || elapsed < LEAST_STRETCH {
            return;
        }
        if std::mem::take(&mut self.unsettled) {
            (self.begun, self.before, self.starved) = (Instant::now(), totals, Duration::ZERO);
            return;
        }
        let stretch = Stretch {
            elapsed,
            bytes: totals.used - self.before.used,
            starved: std::mem::take(&mut self.starved),
            throttled: totals.throttled > self.before.throttled,
        };
        self.width.decide(&stretch, limit);
        let now = self.width.get(limit);
        if now != width {
            let reason = self.width.reason();
            tracing::debug!(partition = %self.shared.topic_partition, before = width, now, %reason, "pieces fetched at once");
            // The next stretch begins with connecting, and would be taken for slow.
            self.unsettled = true;
        }
        (self.begun, self.before) = (Instant::now(), totals);
    }
}

/// What of a budget answers may fill as they came. The rest is for what compressed ones become: if nothing were left, each
/// batch would wait for the consumer.
fn for_frames(share: usize) -> usize {
    share / 4 * 3
}

enum Item {
    Chunk(Chunk),
    /// The piece is complete.
    Done,
    Failed(ReadError),
}

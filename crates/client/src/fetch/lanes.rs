//! The connections to one broker, shared by everything that is fetched from it.
//!
//! ```text
//!   pieces of partitions --.                  .--> lane: a connection, a few fetches on their way
//!                          |--> queue, in turn|--> lane
//!   pieces of partitions --'                  '--> lane
//!
//!   ends of logs ------------> one request for all that wait ("polls")
//! ```
//!
//! A fetch of what is known to be there takes a lane; a fetch that may have to wait at the end of a log never does, since a
//! broker answers the requests of one connection one after another and what stands behind it would wait, too.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use kafka_protocol::messages::FetchRequest;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::AbortOnDrop;
use super::facts::Phase;
use super::pace::{Choice, Pace, Stretch};
use super::polls::Polls;
use super::request::{self, Answers, Ask, Manner, Told};
use crate::cluster::Cluster;
use crate::conn::{Connection, Spoken as _};
use crate::error::{RequestError, RequestFailure};

/// Fetches that may be on their way on one connection: the broker turns to the second while the first is on the wire.
pub(super) const DEPTH: usize = 2;

/// A pause after a connection that could not be opened while others can be used.
const OPEN_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A lane that nobody used for so long is closed, when there is more than one.
const IDLE: Duration = Duration::from_secs(30);

/// However long a broker says that it wants to be left alone: Kafka says the length of its quota window at most, 11 s unless
/// that is set.
const LONGEST_THROTTLE: Duration = Duration::from_secs(300);

/// A stretch is not judged that is shorter: what a busy machine does in less says nothing.
const LEAST_STRETCH: Duration = Duration::from_millis(80);

/// Nor with fewer fetches than connections, nor within fewer round trips.
const ROUND_TRIPS: u32 = 4;

/// So many round trips after a change of the number of connections nothing is judged: to connect takes two or three of them,
/// and to find out what goes over a new connection (slow start) three to seven.
const SETTLING_ROUND_TRIPS: u32 = 8;

/// What is allowed to all that is fetched from one broker.
#[derive(Clone, Debug)]
pub(super) struct LaneLimits {
    /// The most connections.
    pub(super) connections: usize,
    /// Fetches on their way at once, if that is set.
    pub(super) in_flight: Option<usize>,
}

/// See the [module](self). Dropping it closes all.
pub(super) struct Lanes {
    address: Arc<str>,
    cluster: Cluster,
    limits: LaneLimits,
    state: Mutex<State>,
    polls: Polls,
    /// Itself, for the tasks that open connections.
    this: Weak<Lanes>,
}

struct State {
    lanes: Vec<Lane>,
    next_id: u64,
    /// The tasks that open connections.
    openers: BTreeMap<u64, AbortOnDrop>,
    not_before: Instant,
    waiting: VecDeque<oneshot::Sender<Result<Turn, RequestError>>>,
    pace: Pace,
    judged: Judged,
    round_trip: Option<Duration>,
    throttled_until: Instant,
    /// Readers with something to fetch.
    readers: usize,
}

/// What has happened since the pace was judged last.
struct Judged {
    since: Instant,
    bytes: u64,
    fetches: u64,
    starved: Duration,
    throttled: bool,
    /// Connections are being made: what happens meanwhile says nothing.
    unsettled: bool,
}

impl Judged {
    fn begin(unsettled: bool) -> Self {
        Self { since: Instant::now(), bytes: 0, fetches: 0, starved: Duration::ZERO, throttled: false, unsettled }
    }
}

struct Lane {
    id: u64,
    connection: Connection,
    in_flight: usize,
    used: Instant,
    /// Takes nothing more and goes when its last answer has come: somebody left while an answer was on its way.
    is_retired: bool,
}

/// A fetch's turn on a lane.
pub(super) struct Turn {
    lanes: Weak<Lanes>,
    id: u64,
    connection: Connection,
    /// A request is on its way.
    is_asking: bool,
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(lanes) = self.lanes.upgrade() {
            lanes.settle(self.id, !self.is_asking);
        }
    }
}

/// A reader that has something to fetch, as long as this lives.
pub(super) struct Presence(Arc<Lanes>);

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.state.lock().readers -= 1;
    }
}

/// One request, and its answers.
pub(super) async fn exchange(
    connection: &Connection,
    asks: &[Ask],
    manner: &Manner,
    timeout: Duration,
) -> Result<Answers, RequestError> {
    let version = connection.version::<FetchRequest>()?;
    let built = request::build(version, manner, asks);
    let response = connection.call_expecting(version, &built, manner.max_bytes, timeout).await?;
    let asked: Vec<_> = asks.iter().map(|ask| &ask.topic_partition).collect();
    request::check(response, &asked).map_err(|what| connection.garbage::<FetchRequest>(what))
}

type Granted = Vec<(oneshot::Sender<Result<Turn, RequestError>>, Turn)>;

impl Lanes {
    pub(super) fn new(address: Arc<str>, cluster: Cluster, limits: LaneLimits) -> Arc<Self> {
        let pace = limits.in_flight.map_or_else(Pace::new, Pace::set);
        let now = Instant::now();
        let state = State {
            lanes: Vec::new(),
            next_id: 0,
            openers: BTreeMap::new(),
            not_before: now,
            waiting: VecDeque::new(),
            pace,
            judged: Judged::begin(true),
            round_trip: None,
            throttled_until: now,
            readers: 0,
        };
        Arc::new_cyclic(|this| Self {
            polls: Polls::new(Weak::clone(this)),
            address,
            cluster,
            limits,
            state: Mutex::new(state),
            this: Weak::clone(this),
        })
    }

    /// The broker's.
    pub(super) fn address(&self) -> &Arc<str> {
        &self.address
    }

    pub(super) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// One more reader has something to fetch.
    pub(super) fn join(self: &Arc<Self>) -> Presence {
        let mut state = self.state.lock();
        state.readers += 1;
        if state.readers == 1 {
            // What was not fetched while nobody had anything to fetch says nothing.
            state.judged = Judged::begin(true);
        }
        Presence(Arc::clone(self))
    }

    /// How many pieces one reader may have on their way at once.
    pub(super) fn share(&self) -> usize {
        let state = self.state.lock();
        (self.in_flight(&state) / state.readers.max(1)).max(1)
    }

    /// How the broker is fetched from now.
    pub(super) fn choice(&self) -> Choice {
        let state = self.state.lock();
        Choice {
            connections: state.pace.connections(self.limits.connections),
            fetches_in_flight: self.in_flight(&state),
            reason: state.pace.reason(),
        }
    }

    fn in_flight(&self, state: &State) -> usize {
        let lanes = state.pace.connections(self.limits.connections);
        self.limits.in_flight.unwrap_or(lanes * DEPTH).max(1)
    }

    /// Whether a round trip to the broker is next to nothing.
    pub(super) fn is_near(&self) -> bool {
        self.state.lock().pace.is_near()
    }

    /// Whether a round trip to the broker is known to be more than that.
    pub(super) fn is_far(&self) -> bool {
        self.state.lock().pace.is_far()
    }

    /// When the broker wants to be asked again at the earliest.
    pub(super) fn throttled_until(&self) -> Instant {
        self.state.lock().throttled_until
    }

    /// Fetches what is known to be there. `phase` is told over which connection.
    pub(super) async fn fetch(
        self: &Arc<Self>,
        ask: &Ask,
        manner: &Manner,
        phase: &Phase,
    ) -> Result<Told, RequestError> {
        let mut turn = self.turn().await?;
        phase.fetches_over(turn.connection.arrivals());
        turn.is_asking = true;
        let answers = exchange(&turn.connection, std::slice::from_ref(ask), manner, self.timeout(manner)).await;
        turn.is_asking = false;
        drop(turn);
        let mut answers = answers?;
        let throttle = answers.throttle;
        self.throttled(throttle);
        let answer = answers.answers.pop().ok_or_else(|| self.closed())?;
        self.note(answer.as_ref().map_or(0, |fetched| fetched.records.len()));
        Ok(Told { answer, throttle })
    }

    /// Fetches what may have to be waited for.
    pub(super) async fn poll(&self, ask: Ask, manner: &Manner) -> Result<Told, RequestError> {
        self.polls.ask(ask, manner).await
    }

    /// How long an answer may take.
    pub(super) fn timeout(&self, manner: &Manner) -> Duration {
        manner.max_wait.saturating_add(self.cluster.config().request_timeout)
    }

    /// The broker told that it throttles.
    pub(super) fn throttled(&self, throttle: Duration) {
        if !throttle.is_zero() {
            tracing::debug!(broker = %self.address, ?throttle, "the broker throttles");
            let mut state = self.state.lock();
            state.judged.throttled = true;
            state.throttled_until = state.throttled_until.max(Instant::now() + throttle.min(LONGEST_THROTTLE));
        }
    }

    /// A turn on a lane.
    async fn turn(self: &Arc<Self>) -> Result<Turn, RequestError> {
        let granted = {
            let mut state = self.state.lock();
            if state.waiting.is_empty()
                && let Some(turn) = self.pick(&mut state)
            {
                return Ok(turn);
            }
            let (grant, granted) = oneshot::channel();
            state.waiting.push_back(grant);
            self.open_more(&mut state);
            granted
        };
        // Only a runtime that shuts down drops a grant without an answer.
        granted.await.unwrap_or_else(|_| Err(self.closed()))
    }

    /// The failure of a fetch that was given up.
    pub(super) fn closed(&self) -> RequestError {
        let (broker, failure) = (self.address.to_string(), RequestFailure::Closed);
        RequestError { broker, request: FetchRequest::NAME, failure }
    }

    /// The lane with the fewest fetches on their way, if one may take another.
    fn pick(self: &Arc<Self>, state: &mut State) -> Option<Turn> {
        state.lanes.retain(|lane| lane.in_flight > 0 || (!lane.is_retired && lane.connection.is_usable()));
        let allowed = state.pace.connections(self.limits.connections);
        let depth = self.depth(allowed);
        if state.lanes.iter().map(|lane| lane.in_flight).sum::<usize>() >= self.in_flight(state) {
            return None;
        }
        let free = state.lanes.iter_mut().filter(|lane| !lane.is_retired && lane.connection.is_usable());
        let lane = free.min_by_key(|lane| lane.in_flight).filter(|lane| lane.in_flight < depth)?;
        lane.in_flight += 1;
        lane.used = Instant::now();
        let (lanes, connection) = (Weak::clone(&self.this), lane.connection.clone());
        let turn = Turn { lanes, id: lane.id, connection, is_asking: false };
        if lane.in_flight > 1 {
            self.open_more(state);
        }
        Some(turn)
    }

    fn depth(&self, connections: usize) -> usize {
        self.limits.in_flight.map_or(DEPTH, |in_flight| in_flight.div_ceil(connections)).max(1)
    }

    /// Begins to open connections, one for each fetch that waits or shares a lane, within what is allowed.
    fn open_more(&self, state: &mut State) {
        let allowed = state.pace.connections(self.limits.connections);
        let busy: usize = state.lanes.iter().map(|lane| lane.in_flight).sum();
        let wanted = allowed.min(busy + state.waiting.len());
        let has_some = !state.lanes.is_empty() || !state.openers.is_empty();
        if has_some && Instant::now() < state.not_before {
            return;
        }
        while state.lanes.iter().filter(|lane| !lane.is_retired).count() + state.openers.len() < wanted {
            let id = state.next_id;
            state.next_id += 1;
            let (this, cluster, address) = (Weak::clone(&self.this), self.cluster.clone(), Arc::clone(&self.address));
            let opener = AbortOnDrop::spawn(async move {
                let opened = cluster.own_connection(&address).await;
                if let Some(lanes) = this.upgrade() {
                    lanes.opened(id, opened);
                }
            });
            state.openers.insert(id, opener);
        }
    }

    fn opened(self: &Arc<Self>, id: u64, opened: Result<Connection, RequestError>) {
        let mut state = self.state.lock();
        state.openers.remove(&id);
        match opened {
            Ok(connection) => {
                // What the kernel measures; else the first answer, which says as much and a little more.
                let kernel = connection.facts().tcp.min_rtt;
                let round_trip = kernel.unwrap_or_else(|| connection.first_round_trip());
                // The least is the nearest to the truth: everything else only adds to it.
                let least = state.round_trip.map_or(round_trip, |known| known.min(round_trip));
                state.round_trip = Some(least);
                state.pace.begin(least);
                let lane = Lane { id, connection, in_flight: 0, used: Instant::now(), is_retired: false };
                state.lanes.push(lane);
                self.give_turns(state);
            }
            Err(error) => {
                state.not_before = Instant::now() + OPEN_AGAIN_AFTER;
                if !state.openers.is_empty() || state.lanes.iter().any(|lane| lane.connection.is_usable()) {
                    tracing::debug!(%error, "a further connection cannot be opened");
                    return;
                }
                let waiting = std::mem::take(&mut state.waiting);
                drop(state);
                waiting.into_iter().for_each(|waiter| drop(waiter.send(Err(error.clone()))));
            }
        }
    }

    /// A turn is over.
    fn settle(self: &Arc<Self>, id: u64, is_done: bool) {
        let mut state = self.state.lock();
        if let Some(lane) = state.lanes.iter_mut().find(|lane| lane.id == id) {
            lane.in_flight -= 1;
            lane.is_retired |= !is_done;
            lane.used = Instant::now();
        }
        // One that nobody wants the answer of is closed before more of it comes; one that is too many since the pace became
        // slower goes, too.
        let too_many = state.lanes.len() > state.pace.connections(self.limits.connections);
        let gone = |lane: &Lane| lane.id == id && lane.in_flight == 0 && (lane.is_retired || too_many);
        if let Some(at) = state.lanes.iter().position(gone) {
            state.lanes.swap_remove(at);
        }
        self.give_turns(state);
    }

    /// Serves those who wait, from the front.
    fn give_turns(self: &Arc<Self>, mut state: parking_lot::MutexGuard<'_, State>) {
        let mut granted: Granted = Vec::new();
        while let Some(waiter) = state.waiting.pop_front() {
            if waiter.is_closed() {
                continue;
            }
            match self.pick(&mut state) {
                Some(turn) => granted.push((waiter, turn)),
                None => {
                    state.waiting.push_front(waiter);
                    self.open_more(&mut state);
                    break;
                }
            }
        }
        // Without the lock: a turn that meets nobody comes back here.
        drop(state);
        granted.into_iter().for_each(|(waiter, turn)| drop(waiter.send(Ok(turn))));
    }

    /// Closes the lanes that nobody needs, as when all readers have come to the ends of their logs.
    pub(super) fn prune(&self) {
        let mut state = self.state.lock();
        while state.lanes.len() > 1
            && let Some(at) = state.lanes.iter().position(|lane| lane.in_flight == 0 && lane.used.elapsed() > IDLE)
        {
            state.lanes.swap_remove(at);
        }
    }

    /// A consumer waited so long with nothing to take.
    pub(super) fn starved(&self, time: Duration) {
        self.state.lock().judged.starved += time;
    }

    /// Takes note of a fetch, and judges the pace when enough has happened.
    fn note(&self, received: usize) {
        let mut state = self.state.lock();
        let State { judged, pace, readers, round_trip, .. } = &mut *state;
        judged.bytes += received as u64;
        judged.fetches += 1;
        let before = pace.connections(self.limits.connections);
        let elapsed = judged.since.elapsed();
        let round_trips = if judged.unsettled { SETTLING_ROUND_TRIPS } else { ROUND_TRIPS };
        let least = LEAST_STRETCH.max(round_trip.unwrap_or_default() * round_trips);
        if elapsed < least || (judged.fetches < before as u64 && !judged.unsettled) {
            return;
        }
        if !judged.unsettled {
            let waiting_for = elapsed.as_secs_f64() * (*readers).max(1) as f64;
            let starved = judged.starved.as_secs_f64() / waiting_for.max(1e-9);
            let Judged { bytes, throttled, .. } = *judged;
            let stretch = Stretch { elapsed, bytes, starved, throttled, round_trip: *round_trip };
            pace.decide(&stretch, self.limits.connections);
        }
        let now = pace.connections(self.limits.connections);
        if now != before {
            let reason = pace.reason();
            tracing::debug!(broker = %self.address, before, now, %reason, "connections");
        }
        *judged = Judged::begin(now != before);
    }
}

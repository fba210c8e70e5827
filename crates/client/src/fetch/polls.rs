//! Waiting at the ends of logs: one request for all partitions of a broker that wait.
//!
//! A request is built from those that wait when it goes out. One that comes later goes out on a second connection at once, so
//! that a partition with traffic is not held up by the quiet ones: those stand in the first request until the broker has
//! waited long enough. One that comes while both wait is held up; so the broker is let wait for long only as long as
//! nobody comes.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::AbortOnDrop;
use super::lanes::{Lanes, exchange};
use super::request::{Answer, Answers, Ask, Manner, Told};
use crate::conn::Connection;
use crate::error::{RequestError, RequestFailure};

/// Requests that wait at the broker at a time, each on a connection of its own.
const WORKERS: usize = 2;

/// How long the broker is let wait at first, and when somebody came meanwhile; doubled with each wait that brought nothing.
pub(super) const FIRST_WAIT: Duration = Duration::from_millis(50);

/// Records of one partition among several in an answer are copied out of it when they are less.
const COPIED_BYTES: usize = 64 << 10;

/// See the [module](self). Dropping it ends them.
pub(super) struct Polls {
    lanes: Weak<Lanes>,
    shared: Arc<Shared>,
    workers: Mutex<Vec<AbortOnDrop>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    waiting: Vec<Poll>,
    /// Workers without a request.
    idle: usize,
}

struct Poll {
    ask: Ask,
    manner: Manner,
    answer: oneshot::Sender<Result<Told, RequestError>>,
}

impl Polls {
    pub(super) fn new(lanes: Weak<Lanes>) -> Self {
        Self { lanes, shared: Arc::default(), workers: Mutex::default() }
    }

    /// Asks, and waits for the answer.
    pub(super) async fn ask(&self, ask: Ask, manner: &Manner) -> Result<Told, RequestError> {
        let (answer, answered) = oneshot::channel();
        {
            let mut state = self.shared.state.lock();
            state.waiting.push(Poll { ask, manner: manner.clone(), answer });
            let mut workers = self.workers.lock();
            if state.idle == 0 && workers.len() < WORKERS {
                let (lanes, shared) = (Weak::clone(&self.lanes), Arc::clone(&self.shared));
                workers.push(AbortOnDrop::spawn(work(lanes, shared)));
            }
        }
        self.shared.changed.notify_one();
        // Only a runtime that shuts down ends a worker without an answer.
        answered.await.unwrap_or_else(|_| {
            let (broker, failure) = (String::new(), RequestFailure::Closed);
            Err(self.lanes.upgrade().map_or(RequestError { broker, request: "Fetch", failure }, |lanes| lanes.closed()))
        })
    }
}

async fn work(lanes: Weak<Lanes>, shared: Arc<Shared>) {
    let (mut connection, mut wait_for) = (None, FIRST_WAIT);
    loop {
        wait(&shared).await;
        // Those that were answered together ask again together.
        tokio::task::yield_now().await;
        let polls = take(&shared);
        let Some(first) = polls.first() else { continue };
        let manner = Manner {
            isolation: first.manner.isolation,
            max_wait: polls.iter().map(|poll| poll.manner.max_wait).min().unwrap_or_default().min(wait_for),
            min_bytes: polls.iter().map(|poll| poll.manner.min_bytes).min().unwrap_or(1),
            max_bytes: max_bytes(&polls),
            rack: Arc::clone(&first.manner.rack),
        };
        let asks: Vec<Ask> = polls.iter().map(|poll| poll.ask.clone()).collect();
        let answered = request(&lanes, &mut connection, &asks, &manner).await;
        let brought_nothing = answered.as_ref().is_ok_and(|answers| answers.answers.iter().all(is_empty));
        wait_for = if brought_nothing && !shared.is_waited_for() { wait_for.saturating_mul(2) } else { FIRST_WAIT };
        match answered {
            Ok(Answers { throttle, answers }) => polls.into_iter().zip(answers).for_each(|(poll, answer)| {
                drop(poll.answer.send(Ok(Told { answer, throttle })));
            }),
            Err(error) => {
                connection = None;
                polls.into_iter().for_each(|poll| drop(poll.answer.send(Err(error.clone()))));
            }
        }
    }
}

/// What the answer to all of them may hold: what one of them wants at least.
fn max_bytes(polls: &[Poll]) -> usize {
    let all = polls.iter().fold(0_usize, |sum, poll| sum.saturating_add(poll.ask.bytes));
    let largest = polls.iter().map(|poll| poll.ask.bytes).max().unwrap_or(1);
    all.min(polls.iter().map(|poll| poll.manner.max_bytes).min().unwrap_or(1)).max(largest)
}

/// The lanes are not held while the broker waits: they go with the last reader, and this task with them.
async fn request(
    lanes: &Weak<Lanes>,
    connection: &mut Option<Connection>,
    asks: &[Ask],
    manner: &Manner,
) -> Result<Answers, RequestError> {
    let gone = || RequestError { broker: String::new(), request: "Fetch", failure: RequestFailure::Closed };
    let (cluster, address, timeout) = {
        let lanes = lanes.upgrade().ok_or_else(gone)?;
        lanes.prune();
        (lanes.cluster().clone(), Arc::clone(lanes.address()), lanes.timeout(manner))
    };
    let open = match connection.take().filter(Connection::is_usable) {
        Some(open) => open,
        None => cluster.own_connection(&address).await?,
    };
    let mut answers = exchange(connection.insert(open), asks, manner, timeout).await?;
    if let Some(lanes) = lanes.upgrade() {
        lanes.throttled(answers.throttle);
    }
    answers.answers.iter_mut().for_each(|answer| let_go(answer, asks.len()));
    Ok(answers)
}

/// A few records of one partition would keep the memory of the whole answer as long as they are kept themselves, and count in
/// no budget with it.
fn let_go(answer: &mut Answer, partitions: usize) {
    if let Ok(fetched) = answer
        && partitions > 1
        && fetched.records.len() < COPIED_BYTES
    {
        fetched.records = Bytes::copy_from_slice(&fetched.records);
    }
}

fn is_empty(answer: &Answer) -> bool {
    answer.as_ref().is_ok_and(|fetched| fetched.records.is_empty())
}

impl Shared {
    fn is_waited_for(&self) -> bool {
        !self.state.lock().waiting.is_empty()
    }
}

/// Until somebody waits.
async fn wait(shared: &Shared) {
    shared.state.lock().idle += 1;
    loop {
        let changed = shared.changed.notified();
        {
            let mut state = shared.state.lock();
            if !state.waiting.is_empty() {
                state.idle -= 1;
                return;
            }
        }
        changed.await;
    }
}

/// All that may go out in one request; those who left are forgotten.
fn take(shared: &Shared) -> Vec<Poll> {
    let mut state = shared.state.lock();
    state.waiting.retain(|poll| !poll.answer.is_closed());
    let Some(isolation) = state.waiting.first().map(|poll| poll.manner.isolation) else { return Vec::new() };
    let mut taken: Vec<Poll> = state.waiting.extract_if(.., |poll| poll.manner.isolation == isolation).collect();
    if !state.waiting.is_empty() {
        shared.changed.notify_one();
    }
    // So that each topic is named once, and each partition is asked for once.
    taken.sort_by(|a, b| a.ask.topic_partition.cmp(&b.ask.topic_partition));
    let mut again = Vec::new();
    let mut asked: Vec<Poll> = Vec::with_capacity(taken.len());
    for poll in taken {
        match asked.last() {
            Some(last) if last.ask.topic_partition == poll.ask.topic_partition => again.push(poll),
            _ => asked.push(poll),
        }
    }
    if !again.is_empty() {
        state.waiting.append(&mut again);
        shared.changed.notify_one();
    }
    asked
}

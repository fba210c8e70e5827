//! What a connection spends its time on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::tcp::{Socket, TcpFacts};

/// A connection to a broker, as it stands.
///
/// `idle`, `waiting` and `receiving` exclude each other and add up to `opened_for`. When the connection has ended they stand
/// still, and `tcp` tells nothing any more.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionFacts {
    /// The broker's address, `host:port`.
    pub address: Arc<str>,
    /// Since the connection was made, TLS included; up to its end if it has ended. The questions of its beginning (versions,
    /// SASL) are in all that follows.
    pub opened_for: Duration,
    /// Nothing was asked.
    pub idle: Duration,
    /// Something was asked and no byte of the next answer had come. A long poll in which the broker had no data is in it.
    pub waiting: Duration,
    /// Between the first and the last byte of an answer.
    pub receiving: Duration,
    /// Requests whose answer has not come whole.
    pub in_flight: usize,
    /// Answers that came whole.
    pub answers: u64,
    /// Their bytes, with their sizes and without TLS. An answer counts at its end; `tcp` knows of one that is coming.
    pub bytes_received: u64,
    /// How long answers let themselves be waited for; `None` before the first.
    pub first_byte: Option<FirstByte>,
    /// The receive buffer that was asked for; `None` leaves it to the kernel. What is in force stands in `tcp`.
    pub receive_buffer_asked: Option<usize>,
    /// What the kernel knows.
    pub tcp: TcpFacts,
}

/// The time from a request to the first byte of its answer. A request that is sent while others wait has their answers before
/// its own, and the time of receiving them is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstByte {
    /// Of the latest answer.
    pub latest: Duration,
    /// Smoothed over all: each new one counts for an eighth, as in the round trip of TCP (RFC 6298).
    pub smoothed: Duration,
}

impl FirstByte {
    fn after(before: Option<Self>, latest: Duration) -> Self {
        let smoothed = before.map_or(latest, |before| before.smoothed * 7 / 8 + latest / 8);
        Self { latest, smoothed }
    }
}

/// Keeps a connection's [`ConnectionFacts`]: three short locks and clocks for a request with its answer.
#[derive(Debug)]
pub(super) struct Account {
    times: Mutex<Times>,
    socket: Socket,
    opened: Instant,
    /// When bytes came last, in ms since it was opened.
    arrived_ms: AtomicU64,
}

impl Account {
    /// For a connection that is made.
    pub(super) fn new(stream: &TcpStream) -> Arc<Self> {
        let opened = Instant::now();
        let times = Mutex::new(Times::new(opened));
        Arc::new(Self { times, socket: Socket::of(stream), opened, arrived_ms: AtomicU64::new(0) })
    }

    /// What the kernel knows now.
    pub(super) fn tcp(&self) -> TcpFacts {
        self.socket.facts()
    }

    /// From how many bytes on the connection counts as readable. Whether the kernel took it.
    pub(super) fn wake_at(&self, bytes: usize) -> bool {
        self.socket.wake_at(bytes)
    }

    /// Bytes came.
    pub(super) fn arrived(&self) {
        let ms = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.arrived_ms.store(ms, Ordering::Relaxed);
    }

    /// When bytes came last, or the connection was opened.
    pub(super) fn last_arrival(&self) -> Instant {
        self.opened + Duration::from_millis(self.arrived_ms.load(Ordering::Relaxed))
    }

    /// A request goes out.
    pub(super) fn asked(&self, now: Instant) {
        self.times.lock().asked(now);
    }

    /// The first bytes of an answer are here: of that to a request of `asked`, unless nothing was asked.
    pub(super) fn first_byte(&self, asked: Option<Instant>) {
        self.times.lock().first_byte(asked, Instant::now());
    }

    /// An answer is here, `bytes` long.
    pub(super) fn answered(&self, bytes: usize) {
        self.times.lock().answered(bytes, Instant::now());
    }

    pub(super) fn facts(&self, address: Arc<str>, receive_buffer_asked: Option<usize>) -> ConnectionFacts {
        let mut times = self.times.lock().clone();
        times.turn(times.state, Instant::now());
        ConnectionFacts {
            address,
            opened_for: times.since.duration_since(times.opened),
            idle: times.idle,
            waiting: times.waiting,
            receiving: times.receiving,
            in_flight: times.in_flight,
            answers: times.answers,
            bytes_received: times.bytes,
            first_byte: times.first_byte,
            receive_buffer_asked,
            tcp: self.tcp(),
        }
    }
}

/// When bytes come over a connection, as far as it goes on. It keeps no connection open.
#[derive(Clone, Debug)]
pub(crate) struct Arrivals(pub(super) Arc<Account>);

impl Arrivals {
    /// When they came last, or the connection was opened.
    pub(crate) fn last(&self) -> Instant {
        self.0.last_arrival()
    }
}

/// Ends an account when it is dropped, and lets the socket go. A connection's task owns it, so that the connection closes
/// however the task ends: by itself, aborted, or with its runtime, begun or not.
pub(super) struct Ending(pub(super) Arc<Account>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.times.lock().ended(Instant::now());
        self.0.socket.release();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Waiting,
    Receiving,
    Ended,
}

#[derive(Clone, Debug)]
struct Times {
    opened: Instant,
    state: State,
    /// When the state began, or was last counted.
    since: Instant,
    idle: Duration,
    waiting: Duration,
    receiving: Duration,
    in_flight: usize,
    answers: u64,
    bytes: u64,
    first_byte: Option<FirstByte>,
}

impl Times {
    fn new(now: Instant) -> Self {
        Self {
            opened: now,
            state: State::Idle,
            since: now,
            idle: Duration::ZERO,
            waiting: Duration::ZERO,
            receiving: Duration::ZERO,
            in_flight: 0,
            answers: 0,
            bytes: 0,
            first_byte: None,
        }
    }

    /// Counts what has passed and goes on in `state`. Nothing follows on an end.
    fn turn(&mut self, state: State, now: Instant) {
        // Who reads the clock first may come second.
        let passed = now.saturating_duration_since(self.since);
        match self.state {
            State::Idle => self.idle += passed,
            State::Waiting => self.waiting += passed,
            State::Receiving => self.receiving += passed,
            State::Ended => return,
        }
        self.since = self.since.max(now);
        self.state = state;
    }

    fn asked(&mut self, now: Instant) {
        if self.state == State::Ended {
            return;
        }
        self.in_flight += 1;
        if self.state == State::Idle {
            self.turn(State::Waiting, now);
        }
    }

    fn first_byte(&mut self, asked: Option<Instant>, now: Instant) {
        self.turn(State::Receiving, now);
        if let Some(asked) = asked {
            self.first_byte = Some(FirstByte::after(self.first_byte, now.saturating_duration_since(asked)));
        }
    }

    fn answered(&mut self, bytes: usize, now: Instant) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.answers += 1;
        self.bytes += bytes as u64;
        self.turn(if self.in_flight == 0 { State::Idle } else { State::Waiting }, now);
    }

    fn ended(&mut self, now: Instant) {
        self.turn(State::Ended, now);
        self.in_flight = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn totals(times: &Times) -> (Duration, Duration, Duration) {
        assert_eq!(times.idle + times.waiting + times.receiving, times.since.duration_since(times.opened));
        (times.idle, times.waiting, times.receiving)
    }

    #[test]
    fn every_moment_is_idle_waiting_or_receiving() {
        let began = Instant::now();
        let at = |after| began + ms(after);
        let mut times = Times::new(began);
        times.asked(at(10));
        times.first_byte(Some(at(10)), at(50));
        assert_eq!(times.first_byte, Some(FirstByte { latest: ms(40), smoothed: ms(40) }));
        times.answered(1_000, at(55));
        assert_eq!(totals(&times), (ms(10), ms(40), ms(5)));
        // Two on their way: the second is waited for only after the first has come.
        times.asked(at(60));
        times.asked(at(62));
        times.first_byte(Some(at(60)), at(70));
        times.answered(10, at(100));
        times.first_byte(Some(at(62)), at(101));
        times.answered(10, at(111));
        assert_eq!(totals(&times), (ms(15), ms(51), ms(45)));
        assert_eq!((times.in_flight, times.answers, times.bytes), (0, 3, 1_020));
    }

    #[test]
    fn what_comes_while_an_answer_arrives_does_not_interrupt_it() {
        let began = Instant::now();
        let at = |after| began + ms(after);
        let mut times = Times::new(began);
        times.asked(at(0));
        times.first_byte(Some(at(0)), at(5));
        times.asked(at(8));
        times.answered(10, at(20));
        assert_eq!(totals(&times), (ms(0), ms(5), ms(15)));
        assert_eq!((times.state, times.in_flight), (State::Waiting, 1));
    }

    #[test]
    fn after_the_end_nothing_is_counted() {
        let began = Instant::now();
        let at = |after| began + ms(after);
        let mut times = Times::new(began);
        times.asked(at(1));
        times.ended(at(3));
        times.asked(at(4));
        times.ended(at(9));
        assert_eq!(totals(&times), (ms(1), ms(2), ms(0)));
        assert_eq!((times.state, times.in_flight), (State::Ended, 0));
    }

    #[test]
    fn clocks_read_out_of_order_add_up_nevertheless() {
        let began = Instant::now();
        let at = |after| began + ms(after);
        let mut times = Times::new(began);
        times.asked(at(10));
        times.first_byte(Some(at(10)), at(9));
        times.answered(10, at(12));
        assert_eq!(totals(&times), (ms(10), ms(0), ms(2)));
        assert_eq!(times.first_byte.map(|first| first.latest), Some(ms(0)));
    }

    #[test]
    fn one_slow_answer_moves_the_smoothed_time_by_an_eighth() {
        let first = FirstByte::after(None, ms(80));
        assert_eq!(FirstByte::after(Some(first), ms(160)), FirstByte { latest: ms(160), smoothed: ms(90) });
    }
}

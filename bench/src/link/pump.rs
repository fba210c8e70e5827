//! One direction of a link: a thread that takes packets from one device and gives them to the other when their time has come.
//!
//! One thread does both, so that a packet costs two system calls and no handing over. It runs before everything else on the
//! machine: a link does not slow down because its ends compute.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::ring::Ring;
use super::tun::{PACKET_BYTES, Tun, wire_bytes};

/// How many packets are taken at once before those that are due get their turn.
const BURST: usize = 32;

/// How long a thread sleeps at most, so that it sees that it shall end.
const NAP: Duration = Duration::from_millis(50);

/// The memory for packets on their way. At 1 GB/s and 80 ms one way 80 MB are under way; it is only touched when used.
const RING_BYTES: usize = 192 << 20;

/// What one direction does to packets.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// How long a packet is under way, after it has left.
    pub delay: Duration,
    /// Bytes a second.
    pub rate: Option<u64>,
    /// The bytes that may wait to leave.
    pub queue_bytes: usize,
    /// The part of packets that is lost.
    pub loss: f64,
}

/// What has passed in one direction.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Packets, as the kernel handed them over.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Packets lost on purpose.
    pub lost: u64,
    /// Packets lost because the queue was full.
    pub overflowed: u64,
    /// Packets that the receiving kernel refused.
    pub refused: u64,
    /// Packets that were more than a millisecond late.
    pub late: u64,
    /// How late packets were at most, in microseconds.
    pub latest_us: u64,
    /// Processor time of the thread, in milliseconds.
    pub cpu_ms: u64,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    packets: AtomicU64,
    bytes: AtomicU64,
    lost: AtomicU64,
    overflowed: AtomicU64,
    refused: AtomicU64,
    late: AtomicU64,
    latest_us: AtomicU64,
    cpu_ms: AtomicU64,
}

/// A running direction. Dropping it ends it.
#[derive(Debug)]
pub struct Pump {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Pump {
    /// Starts a direction.
    pub fn start(name: &str, from: Arc<Tun>, to: Arc<Tun>, shape: Shape) -> Result<Self> {
        let shared = Arc::<Shared>::default();
        let theirs = Arc::clone(&shared);
        let work = move || {
            // A wake-up that is 50 us late, the kernel's default, would show at short round trips. Both may be refused to a
            // process that is not root, and cost precision only.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
            let _ = rustix::process::setpriority_process(None, -20);
            Direction { from, to, shape, shared: theirs, free_at: Instant::now(), random: 0x9e37_79b9_7f4a_7c15 }.run();
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work).context("a thread of the link")?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// What has passed so far.
    pub fn totals(&self) -> Totals {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Totals {
            packets: get(&self.shared.packets),
            bytes: get(&self.shared.bytes),
            lost: get(&self.shared.lost),
            overflowed: get(&self.shared.overflowed),
            refused: get(&self.shared.refused),
            late: get(&self.shared.late),
            latest_us: get(&self.shared.latest_us),
            cpu_ms: get(&self.shared.cpu_ms),
        }
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Direction {
    from: Arc<Tun>,
    to: Arc<Tun>,
    shape: Shape,
    shared: Arc<Shared>,
    /// When the last packet that was taken has left.
    free_at: Instant,
    random: u64,
}

impl Direction {
    fn run(mut self) {
        let mut ring = Ring::<Instant>::new(RING_BYTES, PACKET_BYTES);
        let mut spare = vec![0; PACKET_BYTES];
        while !self.shared.stop.load(Ordering::Relaxed) {
            let wait = self.deliver(&mut ring);
            match self.take(&mut ring, &mut spare) {
                0 => self.wait(wait),
                _ => continue,
            }
        }
    }

    /// Hands over the packets that are due; until when the next one is not.
    fn deliver(&self, ring: &mut Ring<Instant>) -> Duration {
        let mut now = Instant::now();
        while let Some((packet, &due)) = ring.front() {
            if due > now {
                // Someone who writes may have let a packet become due.
                now = Instant::now();
                if due > now {
                    return (due - now).min(NAP);
                }
            }
            let late_us = (now - due).as_micros() as u64;
            self.shared.latest_us.fetch_max(late_us, Ordering::Relaxed);
            if late_us > 1000 {
                self.shared.late.fetch_add(1, Ordering::Relaxed);
            }
            if self.to.write(packet).is_err() {
                self.shared.refused.fetch_add(1, Ordering::Relaxed);
            }
            ring.pop();
        }
        NAP
    }

    /// Takes what has come; how many packets.
    fn take(&mut self, ring: &mut Ring<Instant>, spare: &mut [u8]) -> usize {
        for taken in 0..BURST {
            let full = ring.room().is_none();
            let read = match ring.room() {
                Some(room) => self.from.read(room),
                None => self.from.read(spare),
            };
            // A device that is gone reads as an error, and the link goes with it.
            let Ok(Some(bytes)) = read else { return taken };
            let now = Instant::now();
            let on_wire = if full { bytes } else { wire_bytes(ring.filled(bytes)) };
            self.shared.packets.fetch_add(1, Ordering::Relaxed);
            self.shared.bytes.fetch_add(on_wire as u64, Ordering::Relaxed);
            if self.lost() {
                self.shared.lost.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            match self.leaves_at(now, on_wire) {
                Some(left) if !full => ring.push(bytes, left + self.shape.delay),
                _ => {
                    self.shared.overflowed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        BURST
    }

    /// When a packet that comes now has left; `None` when the queue is full.
    fn leaves_at(&mut self, now: Instant, bytes: usize) -> Option<Instant> {
        let Some(rate) = self.shape.rate else { return Some(now) };
        let begins = self.free_at.max(now);
        let waiting = (begins - now).as_secs_f64() * rate as f64;
        if waiting + bytes as f64 > self.shape.queue_bytes as f64 {
            return None;
        }
        self.free_at = begins + Duration::from_secs_f64(bytes as f64 / rate as f64);
        Some(self.free_at)
    }

    /// Whether this packet is lost (xorshift: the same losses in each run of the same packets).
    fn lost(&mut self) -> bool {
        if self.shape.loss <= 0.0 {
            return false;
        }
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((self.random >> 11) as f64) < self.shape.loss * (1_u64 << 53) as f64
    }

    fn wait(&self, wait: Duration) {
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        let cpu_ms = cpu.tv_sec as u64 * 1000 + cpu.tv_nsec as u64 / 1_000_000;
        self.shared.cpu_ms.store(cpu_ms, Ordering::Relaxed);
        let timeout = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
        // Interrupted or not, the loop looks again.
        let _ = poll(&mut [PollFd::new(&self.from, PollFlags::IN)], Some(&timeout));
    }
}

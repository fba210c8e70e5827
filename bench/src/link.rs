//! An emulated link: two network namespaces, joined by two TUN devices and a delay queue of our own between them.
//!
//! TCP stays end to end: both ends are the kernel's own sockets, with its congestion control, its windows and its automatic
//! buffer sizes. Only what lies between two network cards is emulated: delay, rate, a queue, loss.
//!
//! ```text
//!   namespace near                                         namespace far
//!   10.77.0.1  link0 (TUN) --read--> [delay queue] --write--> (TUN) link0  10.77.0.2
//!   client                <--write-- [delay queue] <--read--                 broker
//! ```

mod check;
mod namespace;
mod pump;
mod ring;
mod sysctl;
mod tun;

use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

pub use self::check::{Carried, run as run_check};
pub use self::namespace::Namespace;
pub use self::pump::Totals;
use self::pump::{Pump, Shape};
pub use self::sysctl::Tcp;
use self::tun::Offload;

/// The address of the near end.
pub const NEAR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The address of the far end.
pub const FAR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

/// What lies between two ends.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LinkOptions {
    /// There and back, in milliseconds; half of it each way.
    pub round_trip_ms: f64,
    /// Bytes a second, each way; `None` does not hold packets back for a rate.
    pub rate: Option<u64>,
    /// The bytes that may wait for the rate, each way; what comes on top is lost.
    pub queue_bytes: usize,
    /// The part of packets that is lost at random, each way.
    pub loss: f64,
}

impl LinkOptions {
    /// A link without a rate of its own and without loss.
    pub fn with_round_trip_ms(round_trip_ms: f64) -> Self {
        Self { round_trip_ms, rate: None, queue_bytes: 16 << 20, loss: 0.0 }
    }

    fn shape(&self) -> Shape {
        Shape {
            delay: Duration::from_secs_f64(self.round_trip_ms / 2e3),
            rate: self.rate,
            queue_bytes: self.queue_bytes,
            loss: self.loss,
        }
    }
}

/// Two namespaces and what joins them. Dropping it removes all of it.
///
/// Nothing is left behind when this process is killed either: the namespaces have no name and end with their last process.
#[derive(Debug)]
pub struct Link {
    /// Where the clients run.
    pub near: Namespace,
    /// Where the broker runs.
    pub far: Namespace,
    pumps: Option<[Pump; 2]>,
    near_tun: Arc<tun::Tun>,
    far_tun: Arc<tun::Tun>,
}

impl Link {
    /// Makes the namespaces and devices, without anything between them yet: see [`Link::shape`].
    pub fn open() -> Result<Self> {
        ensure!(
            rustix::process::geteuid().is_root(),
            "this benchmark needs root, for network namespaces and TUN devices"
        );
        let near = Namespace::new().context("the near namespace")?;
        let far = Namespace::new().context("the far namespace")?;
        let near_tun = near.run(|| end(NEAR))?.context("the near end")?;
        let far_tun = far.run(|| end(FAR))?.context("the far end")?;
        Ok(Self { near, far, pumps: None, near_tun: Arc::new(near_tun), far_tun: Arc::new(far_tun) })
    }

    /// Sets what lies between the two ends from now on. Packets on their way are lost.
    pub fn shape(&mut self, options: &LinkOptions) -> Result<()> {
        self.pumps = None;
        // A loss must be of one packet as the wire would have it; with offloads a packet here is up to 64 KiB.
        let offload = if options.loss > 0.0 { Offload::Checksums } else { Offload::Segments };
        for tun in [&self.near_tun, &self.far_tun] {
            tun.set_offload(offload)?;
        }
        let shape = options.shape();
        let outward = Pump::start("link-out", Arc::clone(&self.near_tun), Arc::clone(&self.far_tun), shape)?;
        let inward = Pump::start("link-in", Arc::clone(&self.far_tun), Arc::clone(&self.near_tun), shape)?;
        self.pumps = Some([outward, inward]);
        Ok(())
    }

    /// What has passed since [`Link::shape`]: outward (near to far), inward.
    pub fn totals(&self) -> Option<[Totals; 2]> {
        self.pumps.as_ref().map(|[outward, inward]| [outward.totals(), inward.totals()])
    }
}

/// In a namespace: its loopback, and a device with `address`.
fn end(address: Ipv4Addr) -> Result<tun::Tun> {
    // Router solicitations would only stand between the packets that count.
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
    let tun = tun::Tun::open("link0")?;
    ip(&["link", "set", "lo", "up"])?;
    ip(&["addr", "add", &format!("{address}/24"), "dev", "link0"])?;
    // Nothing must be lost between the kernel and the emulator, however late the emulator gets its turn.
    ip(&["link", "set", "link0", "mtu", "1500", "txqueuelen", "20000", "up"])?;
    Ok(tun)
}

fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(arguments).output().context("`ip` (iproute2) cannot be run")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`ip {}`: {}", arguments.join(" "), said.trim());
    Ok(())
}

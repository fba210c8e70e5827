//! Ports for a program that cannot be handed a bound socket.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;

/// Below the range from which Linux (32768 and up) and macOS (49152 and up) hand out ports: the many tests that bind
/// port 0 meanwhile can never be given one of these between the look and the broker's own bind.
const CANDIDATES: Range<u16> = 20_000..32_000;

/// One port to serve clients, one for the controller's own listener.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ports {
    pub(super) broker: u16,
    pub(super) controller: u16,
}

/// Two ports that are free at this moment. Another process that picks the same two numbers can still come first; the
/// broker then ends, saying so, and the caller asks again.
pub(super) fn free_pair() -> io::Result<Ports> {
    let mut last_error = None;
    let width = u64::from(CANDIDATES.end - CANDIDATES.start) / 2;
    for _ in 0..200 {
        let broker = CANDIDATES.start + 2 * crate::random::below(width) as u16;
        let ports = Ports { broker, controller: broker + 1 };
        match (bind(ports.broker), bind(ports.controller)) {
            (Ok(_), Ok(_)) => return Ok(ports),
            (Err(error), _) | (_, Err(error)) => last_error = Some(error),
        }
    }
    Err(last_error.unwrap_or_else(|| io::ErrorKind::AddrInUse.into()))
}

/// Pairs for the nodes of a cluster, which must know each other's before the first one starts.
pub(super) fn free_pairs<const N: usize>() -> io::Result<[Ports; N]> {
    let mut found = [Ports { broker: 0, controller: 0 }; N];
    let mut taken = Vec::new();
    for ports in &mut found {
        *ports = free_pair()?;
        // Held until all are found, so that none is found twice.
        taken.push(bind(ports.broker)?);
    }
    Ok(found)
}

/// Ports for further listeners, each of a pair of its own.
#[cfg(feature = "secure")]
pub(super) fn free<const N: usize>() -> io::Result<[u16; N]> {
    let mut found = [0; N];
    let mut taken = Vec::new();
    for port in &mut found {
        let pair = free_pair()?;
        // Held until all are found, so that none is found twice.
        taken.push(bind(pair.broker)?);
        *port = pair.broker;
    }
    Ok(found)
}

fn bind(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_can_be_bound_and_lies_outside_the_range_of_port_0() {
        let ports = free_pair().expect("some pair is free");
        assert!(CANDIDATES.contains(&ports.broker) && CANDIDATES.contains(&ports.controller), "{ports:?}");
        assert_ne!(ports.broker, ports.controller);
    }
}

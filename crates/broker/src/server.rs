//! The network side: accepting connections and serving each of them.

mod connection;
mod frames;
mod places;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio_util::task::TaskTracker;

use crate::shared::Shared;
use places::Places;

/// How many clients may wait to be accepted; the system may allow fewer. With the usual 128 a crowd that reconnects fills the
/// queue: some then try again after seconds, and those that the system turned to SYN cookies for hold a connection that
/// nobody knows of.
const BACKLOG: u32 = 4096;

/// Listens. As [`TcpListener::bind`] does it, with a longer queue.
pub(crate) fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restart gets its port back at once. Elsewhere than on Unix this would let two listen on one port.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

/// Accepts connections until the broker stops.
pub(crate) async fn accept(shared: Arc<Shared>, listener: TcpListener, tasks: TaskTracker) {
    let limits = &shared.config.limits;
    let places = Places::new(limits.max_connections, limits.evict_idle_after);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shared.stop.cancelled() => return,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, mostly. Connections that end free some.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(accept_pause(&error)).await;
                continue;
            }
        };
        let Some(place) = places.take() else {
            tracing::warn!(%peer, limit = shared.config.limits.max_connections, "too many connections; closing a new one");
            continue;
        };
        let shared = Arc::clone(&shared);
        tasks.spawn(async move {
            tokio::select! {
                () = connection::serve(&shared, stream, peer, &place) => {}
                () = shared.kill.cancelled() => {}
            }
        });
    }
}

/// An aborted connection says nothing about the next one; anything else will not be better at once.
fn accept_pause(error: &io::Error) -> Duration {
    match error.kind() {
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted => {
            Duration::ZERO
        }
        _ => Duration::from_millis(100),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpStream};

    use super::*;

    #[tokio::test]
    async fn a_crowd_connects_while_nobody_accepts() {
        let listener = listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let addr = listener.local_addr().unwrap();
        let allowed = std::fs::read_to_string("/proc/sys/net/core/somaxconn").ok();
        let crowd = allowed.and_then(|most| most.trim().parse().ok()).unwrap_or(128).min(500);
        let connect = || TcpStream::connect_timeout(&addr, Duration::from_secs(30)).unwrap();
        let _all: Vec<_> = std::iter::repeat_with(connect).take(crowd).collect();
    }
}

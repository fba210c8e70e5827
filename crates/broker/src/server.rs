//! The network side: accepting connections and serving each of them.

mod connection;
mod frames;
mod places;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

use crate::shared::Shared;
use places::Places;

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

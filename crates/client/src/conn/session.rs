//! Keeps a connection's SASL session alive.
//!
//! The broker closes a connection at the first request after its session has ended. It takes a new authentication on the same
//! connection before that (KIP-368), which must not have other requests in between: from SaslHandshake to the last
//! SaslAuthenticate it expects nothing else. What was sent before is answered first, so a fetch on its way is neither failed
//! nor repeated; what comes meanwhile waits for its place.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};

use super::auth::{Authenticator, Prepared, Way, renew_after};
use super::{Inner, Limits};
use crate::error::RequestFailure;
use crate::retry::fraction;

/// The pauses between attempts to get a token.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));

/// Authenticates anew whenever it is time, as long as the connection lives and is of use.
pub(super) async fn keep(
    connection: Weak<Inner>,
    authenticator: Arc<Authenticator>,
    mut lifetime: Duration,
    limits: Limits,
) {
    loop {
        let began = Instant::now();
        sleep_until(began + renew_after(lifetime, fraction())).await;
        let Some(inner) = connection.upgrade() else { return };
        if !inner.link.is_open() {
            return;
        }
        if inner.link.idle() >= inner.max_idle {
            // Nobody will use it again: it would be replaced before.
            inner.link.close(RequestFailure::Closed);
            return;
        }
        drop(inner);
        // Saturating: a broker may say anything.
        let end = began.checked_add(lifetime).unwrap_or(began + Duration::from_secs(7 * 24 * 3_600));
        let Some(prepared) = prepared(&connection, &authenticator, end).await else { return };
        let Some(inner) = connection.upgrade() else { return };
        match renew(&inner, &authenticator, prepared, limits).await {
            Ok(Some(next)) => {
                tracing::debug!(broker = %inner.address, lifetime = ?next, "authenticated anew");
                lifetime = next;
            }
            Ok(None) => return,
            Err(failure) => {
                tracing::warn!(broker = %inner.address, %failure, "the session cannot be renewed");
                inner.link.close(failure);
                return;
            }
        }
    }
}

/// A token, asked for until one comes or the session ends. `None`: the connection is no longer there, or was given up.
async fn prepared(connection: &Weak<Inner>, authenticator: &Authenticator, end: Instant) -> Option<Prepared> {
    let mut pause = PAUSE.0;
    loop {
        let asked = Instant::now();
        let failure = match timeout_at(end, authenticator.prepare()).await {
            Ok(Ok(prepared)) => return Some(prepared),
            Ok(Err(failure)) => {
                let inner = connection.upgrade()?;
                tracing::warn!(broker = %inner.address, %failure, "no token to renew the session with; it is asked for again");
                failure
            }
            Err(_) => {
                let after = end.saturating_duration_since(asked);
                tracing::warn!(?after, "no token came before the session ended");
                RequestFailure::Timeout { after }
            }
        };
        if Instant::now() + pause >= end {
            if let Some(inner) = connection.upgrade() {
                inner.link.close(failure);
            }
            return None;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE.1);
    }
}

async fn renew(
    inner: &Inner,
    authenticator: &Authenticator,
    prepared: Prepared,
    limits: Limits,
) -> Result<Option<Duration>, RequestFailure> {
    // A request on its way may be a fetch that waits for records.
    let pause = inner.link.pause(limits.request_timeout * 2).await?;
    // It may have waited for so long that the token is over; one that is held costs nothing.
    let prepared = match tokio::time::timeout(limits.request_timeout, authenticator.prepare()).await {
        Ok(Ok(fresh)) => fresh,
        Ok(Err(_)) | Err(_) => prepared,
    };
    let way = Way::Paused(&pause);
    let renewed = authenticator.authenticate(&way, &inner.versions, &prepared, limits.request_timeout).await;
    renewed.map_err(|(_, failure)| failure)
}

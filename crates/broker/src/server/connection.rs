//! One connection: requests are answered one after another, in the order in which they came.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Buf;
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::frames::{Frame, FrameReadError, FrameReader};
use super::places::Place;
use crate::api::{self, Answer, Peer, Reply};
use crate::memory::Pace;
use crate::request::decode_with_limits;
use crate::shared::Shared;

/// An answer this small takes nothing from the shared budget: the number of connections bounds what all of them hold.
const FREE_BYTES: usize = 32 * 1024;

/// How many answers may wait for the memory that others hold, and for how long.
const MOST_WAITING: usize = 16;
const WAIT: Duration = Duration::from_secs(1);

/// Serves a connection until its end.
pub(super) async fn serve(shared: &Arc<Shared>, mut stream: TcpStream, peer: SocketAddr, place: &Place) {
    match run(shared, &mut stream, place).await {
        Ok(()) => {}
        // Somebody meant another port, or this one with TLS: they will look for the reason here.
        Err(error @ ServeError::Read(FrameReadError::Size(_))) => tracing::warn!(%peer, %error, "closing a connection"),
        Err(error) => tracing::debug!(%peer, %error, "closing a connection"),
    }
}

#[derive(Debug, thiserror::Error)]
enum ServeError {
    #[error(transparent)]
    Read(#[from] FrameReadError),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("it rested longest when there was no place for another")]
    Evicted,
    #[error("the peer took no byte of an answer for {0:?}")]
    Stalled(Duration),
    #[error("the peer took an answer too slowly while others waited for its memory")]
    Lagging,
    #[error("there is no memory for an answer of {bytes} bytes while others are unread")]
    NoMemory { bytes: usize },
    #[error("{0}")]
    Closed(String),
}

async fn run(shared: &Arc<Shared>, stream: &mut TcpStream, place: &Place) -> Result<(), ServeError> {
    stream.set_nodelay(true)?;
    let local = stream.local_addr()?;
    let mut reader = FrameReader::default();
    let limits = &shared.config.limits;
    loop {
        // Whoever has sent its next request already does not rest.
        if reader.is_empty() {
            let rest = place.rest();
            let goes_on = tokio::select! {
                biased;
                () = rest.evicted() => return Err(ServeError::Evicted),
                () = shared.stop.cancelled() => false,
                begun = reader.wait(stream, limits) => begun?,
            };
            // The place may have been given away since.
            if !rest.end() {
                return Err(ServeError::Evicted);
            }
            if !goes_on {
                return Ok(());
            }
        }
        let frame = tokio::select! {
            biased;
            () = shared.stop.cancelled() => return Ok(()),
            frame = reader.next(stream, limits, &shared.request_memory) => frame?,
        };
        // The leases are held until the request is answered: what it was decoded into lives as long, or gives them back.
        let Some(Frame { bytes, leases }) = frame else { return Ok(()) };
        let peer = Peer { local, stream, leases: Mutex::new(leases) };
        let reply = match decode_with_limits(bytes, &shared.config.limits) {
            Ok(request) => api::answer(shared, request, &peer).await,
            Err(error) => api::refuse(error),
        };
        let _leases = peer.leases.into_inner();
        match reply {
            Reply::Answer(answer) => write(shared, stream, answer).await?,
            Reply::Nothing => {}
            Reply::Close(reason) => return Err(ServeError::Closed(reason)),
        }
    }
}

async fn write(shared: &Shared, stream: &mut TcpStream, mut answer: Answer) -> Result<(), ServeError> {
    let limit = shared.config.limits.write_timeout;
    // Whoever leaves answers unread must not pile them up here. Records came with their own lease.
    let bytes = answer.remaining();
    let memory = if answer.has_lease() { &shared.response_memory.fetched } else { &shared.response_memory.other };
    let lease = if answer.has_lease() || bytes <= FREE_BYTES {
        None
    } else {
        // Few wait, since each of them holds its answer already.
        let lease = match memory.try_take(bytes) {
            None if memory.waiting() < MOST_WAITING => {
                timeout(WAIT, memory.take(bytes)).await.ok().and_then(Result::ok)
            }
            lease => lease,
        };
        Some(lease.ok_or(ServeError::NoMemory { bytes })?)
    };
    let holds = answer.has_lease() || lease.is_some();
    let mut pace = Pace::new(bytes);
    while answer.has_remaining() {
        match timeout(Pace::LOOK.min(limit), stream.write_vectored(&answer.slices())).await {
            Ok(written) => match written? {
                0 => return Err(std::io::Error::from(std::io::ErrorKind::WriteZero).into()),
                count => {
                    answer.advance(count);
                    pace.moved(count);
                }
            },
            Err(_) if pace.pause() >= limit => return Err(ServeError::Stalled(limit)),
            Err(_) => {}
        }
        if holds && memory.is_short() && pace.is_slow() {
            return Err(ServeError::Lagging);
        }
    }
    Ok(())
}

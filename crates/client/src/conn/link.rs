//! One connection with the task that owns it: frames out, frames in, matched by correlation id.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tidegate_wire::frame::{FrameError, FrameLimit, read_frame_size};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::codec;
use super::transport::Transport;
use crate::error::RequestFailure;
use crate::security::tls_hint;

/// What the first allocation for a frame may be; a frame grows beyond it only as its bytes arrive.
const FIRST_ALLOCATION: usize = 256 << 10;

/// The first answer on a connection is that to ApiVersions, some KiB. What is larger and begins as a TLS record does is one,
/// however large answers may be later: a TLS alert reads as 336 MiB.
const FIRST_ANSWER: FrameLimit = FrameLimit::new(1 << 20);

/// One request on its way.
struct Call {
    frame: Bytes,
    correlation_id: i32,
    answer: oneshot::Sender<Bytes>,
    /// Bounds the requests that wait for their answers. What is sent while a [`Pause`] holds all places has none.
    _place: Option<OwnedSemaphorePermit>,
}

/// The way to a connection's task. Dropping it ends the task and closes the connection.
pub(super) struct Link {
    calls: mpsc::UnboundedSender<Call>,
    places: Arc<Semaphore>,
    max_in_flight: u32,
    /// Why the connection is of no use any more.
    ended: Arc<OnceLock<RequestFailure>>,
    task: AbortHandle,
    correlation: Mutex<Correlation>,
}

struct Correlation {
    next: i32,
    last_used: Instant,
}

impl Link {
    /// Takes a connection over. At most `max_in_flight` requests wait on it at a time.
    pub(super) fn new(transport: Transport, limit: FrameLimit, max_in_flight: usize) -> Self {
        // As many as there are places: the semaphore is the bound.
        let (calls, queue) = mpsc::unbounded_channel();
        let ended = Arc::new(OnceLock::new());
        let most = u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX);
        let max_in_flight = u32::try_from(max_in_flight).unwrap_or(u32::MAX).clamp(1, most);
        let places = Arc::new(Semaphore::new(max_in_flight as usize));
        let task = tokio::spawn({
            let ended = Arc::clone(&ended);
            async move {
                let cause = serve(transport, queue, limit).await;
                let _ = ended.set(cause);
            }
        });
        let correlation = Mutex::new(Correlation { next: 0, last_used: Instant::now() });
        Self { calls, places, max_in_flight, ended, task: task.abort_handle(), correlation }
    }

    /// Whether a request may still be sent.
    pub(super) fn is_open(&self) -> bool {
        self.ended.get().is_none() && !self.calls.is_closed()
    }

    /// How long ago the last request was sent.
    pub(super) fn idle(&self) -> Duration {
        self.correlation.lock().last_used.elapsed()
    }

    /// Gives the connection up. Requests that wait on it fail with `cause`.
    pub(super) fn close(&self, cause: RequestFailure) {
        let _ = self.ended.set(cause);
        self.task.abort();
    }

    fn cause(&self) -> RequestFailure {
        self.ended.get().cloned().unwrap_or(RequestFailure::Closed)
    }

    /// Sends a frame that `encode` makes for a correlation id and waits for its answer, at most for `timeout`. A peer that
    /// stays silent is given up.
    ///
    /// Dropping the future leaves the connection in order: the answer is received and thrown away.
    pub(super) async fn exchange(
        &self,
        encode: impl FnOnce(i32) -> Result<Bytes, RequestFailure>,
        timeout: Duration,
    ) -> Result<Bytes, RequestFailure> {
        let exchange = async {
            let place = Arc::clone(&self.places).acquire_owned().await.map_err(|_| self.cause())?;
            let answered = self.send(encode, Some(place))?;
            answered.await.map_err(|_| self.cause())
        };
        self.within(timeout, exchange).await
    }

    /// Waits until no request is on its way, and keeps others from being sent as long as the pause lives. Callers wait for
    /// their place meanwhile, as they do when all are taken, and in their order.
    pub(super) async fn pause(&self, timeout: Duration) -> Result<Pause<'_>, RequestFailure> {
        let drained = async {
            let all = Arc::clone(&self.places).acquire_many_owned(self.max_in_flight).await;
            let all = all.map_err(|_| self.cause())?;
            // A connection that has ended has no request on its way either.
            if self.is_open() { Ok(Pause { link: self, _all: all }) } else { Err(self.cause()) }
        };
        self.within(timeout, drained).await
    }

    fn send(
        &self,
        encode: impl FnOnce(i32) -> Result<Bytes, RequestFailure>,
        place: Option<OwnedSemaphorePermit>,
    ) -> Result<oneshot::Receiver<Bytes>, RequestFailure> {
        // Under one lock, so that ids go up in the order in which the frames go out.
        let mut correlation = self.correlation.lock();
        let correlation_id = correlation.next;
        let frame = encode(correlation_id)?;
        let (answer, answered) = oneshot::channel();
        correlation.next = correlation_id.wrapping_add(1);
        if place.is_some() {
            // What is sent in a pause keeps the connection, and is not why it is there.
            correlation.last_used = Instant::now();
        }
        let call = Call { frame, correlation_id, answer, _place: place };
        self.calls.send(call).map_err(|_| self.cause())?;
        Ok(answered)
    }

    async fn within<T>(
        &self,
        timeout: Duration,
        work: impl Future<Output = Result<T, RequestFailure>>,
    ) -> Result<T, RequestFailure> {
        match tokio::time::timeout(timeout, work).await {
            Ok(result) => result,
            Err(_) => {
                let silent = RequestFailure::Timeout { after: timeout };
                self.close(silent.clone());
                Err(silent)
            }
        }
    }
}

/// A connection on which nothing is on its way but what is sent through this.
pub(super) struct Pause<'a> {
    link: &'a Link,
    _all: OwnedSemaphorePermit,
}

impl Pause<'_> {
    /// [`Link::exchange`] in the pause.
    pub(super) async fn exchange(
        &self,
        encode: impl FnOnce(i32) -> Result<Bytes, RequestFailure>,
        timeout: Duration,
    ) -> Result<Bytes, RequestFailure> {
        let link = self.link;
        link.within(timeout, async { link.send(encode, None)?.await.map_err(|_| link.cause()) }).await
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Writes requests and reads responses until something ends the connection.
async fn serve(transport: Transport, queue: mpsc::UnboundedReceiver<Call>, limit: FrameLimit) -> RequestFailure {
    match transport {
        Transport::Plain(mut stream) => {
            let (read, write) = stream.split();
            both(read, write, queue, limit).await
        }
        Transport::Tls(stream) => {
            let (read, write) = tokio::io::split(stream);
            both(read, write, queue, limit).await
        }
    }
}

async fn both(
    read: impl AsyncRead + Unpin,
    write: impl AsyncWrite + Unpin,
    queue: mpsc::UnboundedReceiver<Call>,
    limit: FrameLimit,
) -> RequestFailure {
    let waiting = Mutex::new(VecDeque::new());
    // Both sides in one task: a peer that stops reading must not stop us from reading.
    let writing = pin!(write_calls(write, queue, &waiting));
    let reading = pin!(read_answers(read, &waiting, limit));
    first(writing, reading).await
}

async fn first(a: impl Future<Output = RequestFailure>, b: impl Future<Output = RequestFailure>) -> RequestFailure {
    tokio::select! { cause = a => cause, cause = b => cause }
}

async fn write_calls(
    mut write: impl AsyncWrite + Unpin,
    mut queue: mpsc::UnboundedReceiver<Call>,
    waiting: &Mutex<VecDeque<Call>>,
) -> RequestFailure {
    while let Some(call) = queue.recv().await {
        let frame = call.frame.clone();
        // Before the frame goes out, so that its answer finds it.
        waiting.lock().push_back(call);
        let written = async {
            write.write_all(&frame).await?;
            // TLS may keep the end of it back.
            write.flush().await
        };
        if let Err(error) = written.await {
            return broken(error);
        }
    }
    RequestFailure::Closed
}

async fn read_answers(
    mut read: impl AsyncRead + Unpin,
    waiting: &Mutex<VecDeque<Call>>,
    limit: FrameLimit,
) -> RequestFailure {
    let mut first = true;
    loop {
        let frame = match read_frame(&mut read, limit, first).await {
            Ok(frame) => frame,
            Err(cause) => return cause,
        };
        first = false;
        // Brokers answer the requests of one connection in their order.
        let Some(call) = waiting.lock().pop_front() else {
            return RequestFailure::Garbage { what: "nothing was asked".to_owned() };
        };
        match codec::correlation_id(&frame) {
            // A caller that went away has dropped the other end; its answer is not needed.
            Some(id) if id == call.correlation_id => drop(call.answer.send(frame)),
            id => {
                let sent = call.correlation_id;
                let what = match id {
                    Some(id) => format!("its correlation id is {id}, but that of the request is {sent}"),
                    None => format!("it holds {} bytes, too few for a correlation id", frame.len()),
                };
                return RequestFailure::Garbage { what };
            }
        }
    }
}

/// Reads one frame, without its size.
///
/// Memory grows with the bytes that arrive, never with what the size claims.
pub(super) async fn read_frame(
    read: &mut (impl AsyncRead + Unpin),
    limit: FrameLimit,
    first: bool,
) -> Result<Bytes, RequestFailure> {
    let mut prefix = [0; 4];
    read.read_exact(&mut prefix).await.map_err(broken)?;
    if first && matches!(read_frame_size(prefix, FIRST_ANSWER), Err(FrameError::Tls { .. })) {
        return Err(speaks_tls());
    }
    let size = read_frame_size(prefix, limit).map_err(|error| match error {
        FrameError::TooLarge { size, limit } => RequestFailure::TooLarge { bytes: size, limit: limit.bytes() },
        FrameError::Tls { .. } => speaks_tls(),
        error => RequestFailure::Garbage { what: error.to_string() },
    })?;
    let mut frame = BytesMut::with_capacity(size.min(FIRST_ALLOCATION));
    while frame.len() < size {
        let left = size - frame.len();
        if frame.capacity() == frame.len() {
            frame.reserve(left.min(frame.len()));
        }
        // Never into the next frame.
        if (&mut *read).take(left as u64).read_buf(&mut frame).await.map_err(broken)? == 0 {
            return Err(RequestFailure::Closed);
        }
    }
    Ok(frame.freeze())
}

fn speaks_tls() -> RequestFailure {
    let reason =
        "the broker speaks TLS on this port and this client does not: set security.protocol to SSL or SASL_SSL";
    RequestFailure::Tls { reason: reason.to_owned() }
}

pub(super) fn broken(error: io::Error) -> RequestFailure {
    // A broker that wants a client certificate says so only after the handshake (TLS 1.3).
    if let Some(reason) = tls_reason(&error) {
        return RequestFailure::Tls { reason };
    }
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            RequestFailure::Closed
        }
        _ => RequestFailure::Io(Arc::new(error)),
    }
}

/// What rustls says, with what to do about it; `None` for an error of the connection itself.
fn tls_reason(error: &io::Error) -> Option<String> {
    let rustls = crate::security::rustls_error(error)?;
    Some(match tls_hint(error) {
        Some(hint) => format!("{rustls}; {hint}"),
        None => rustls.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: FrameLimit = FrameLimit::new(64 << 20);

    async fn frame_of(bytes: Vec<u8>) -> Result<Bytes, RequestFailure> {
        read_frame(&mut bytes.as_slice(), LIMIT, true).await
    }

    #[tokio::test]
    async fn a_frame_is_read_to_its_end_and_no_further() {
        let mut bytes: &[u8] = &[0, 0, 0, 3, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 1, 9];
        for expected in [&[1, 2, 3][..], &[], &[9]] {
            assert_eq!(read_frame(&mut bytes, LIMIT, false).await.unwrap(), expected);
        }
        assert!(matches!(read_frame(&mut bytes, LIMIT, false).await, Err(RequestFailure::Closed)));
    }

    #[tokio::test]
    async fn a_frame_larger_than_the_first_allocation_arrives_whole() {
        let body: Vec<u8> = (0..3 * FIRST_ALLOCATION + 5).map(|at| at.to_le_bytes()[0]).collect();
        let mut bytes = u32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
        bytes.extend_from_slice(&body);
        assert_eq!(frame_of(bytes).await.unwrap(), body);
    }

    #[tokio::test]
    async fn sizes_that_lie_are_garbage_and_a_cut_frame_is_a_closed_connection() {
        let failure = frame_of(vec![0xff; 4]).await.unwrap_err();
        assert!(matches!(failure, RequestFailure::Garbage { .. }), "{failure}");
        let failure = frame_of(vec![0x15, 0x03, 0x03, 0x00]).await.unwrap_err();
        assert!(matches!(failure, RequestFailure::Tls { .. }), "{failure}");
        let large = frame_of(vec![0x7f, 0xff, 0xff, 0xff]).await.unwrap_err();
        assert!(matches!(large, RequestFailure::TooLarge { bytes: 0x7fff_ffff, .. }), "{large}");
        let cut = frame_of(vec![0x03, 0xff, 0xff, 0xff, 1, 2]).await.unwrap_err();
        assert!(matches!(cut, RequestFailure::Closed), "{cut}");
    }
}

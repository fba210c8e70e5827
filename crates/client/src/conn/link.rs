//! One connection with the task that owns it: frames out, frames in, matched by correlation id.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tidegate_wire::frame::{FrameError, FrameLimit, read_frame_size};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::codec;
use super::facts::{Account, Arrivals, ConnectionFacts, Ending};
use super::low_water::LowWater;
use super::memory;
use super::transport::Transport;
use crate::error::RequestFailure;
use crate::security::tls_hint;

/// What the first allocation for a frame may be; a frame grows beyond it, and beyond what its request asked for, only as its
/// bytes arrive.
const FIRST_ALLOCATION: usize = 256 << 10;

/// What an answer may hold besides the bytes that were asked for.
const AROUND_EXPECTED: usize = 64 << 10;

/// What a frame begins with.
const SIZE_BYTES: usize = 4;

/// The first answer on a connection is that to ApiVersions, some KiB. What is larger and begins as a TLS record does is one,
/// however large answers may be later: a TLS alert reads as 336 MiB.
const FIRST_ANSWER: FrameLimit = FrameLimit::new(1 << 20);

/// An answer that arrives little by little may take so many times as long as a peer may be silent.
const SLOW: u32 = 10;

/// As good as none.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(30 * 24 * 3_600);

/// One request on its way.
struct Call {
    frame: Bytes,
    correlation_id: i32,
    /// When it was given to the task.
    asked: Instant,
    /// How many bytes its answer may well hold.
    expect: usize,
    answer: oneshot::Sender<Result<Bytes, RequestFailure>>,
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
    account: Arc<Account>,
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
        let account = Account::new(transport.tcp());
        let task = tokio::spawn({
            let ended = Arc::clone(&ended);
            let ending = Ending(Arc::clone(&account));
            async move {
                let ending = ending;
                let (mut queue, waiting) = (queue, Mutex::new(VecDeque::new()));
                let cause = serve(transport, &mut queue, &waiting, limit, &ending.0).await;
                // What is wrong with an answer concerns the request in front, whose answer it is. The others may be sent
                // again over another connection.
                let concerns_one = matches!(cause, RequestFailure::TooLarge { .. } | RequestFailure::Garbage { .. });
                // Before those who wait are woken by the end of what they wait for: they ask for the cause.
                let _ = ended.set(if concerns_one { RequestFailure::Closed } else { cause.clone() });
                let front = waiting.lock().pop_front().filter(|_| concerns_one);
                if let Some(call) = front {
                    drop(call.answer.send(Err(cause)));
                }
            }
        });
        let correlation = Mutex::new(Correlation { next: 0, last_used: Instant::now() });
        Self { calls, places, max_in_flight, ended, task: task.abort_handle(), account, correlation }
    }

    /// What the time was spent on, and what the kernel knows. At any time.
    pub(super) fn facts(&self, address: Arc<str>, receive_buffer_asked: Option<usize>) -> ConnectionFacts {
        self.account.facts(address, receive_buffer_asked)
    }

    /// When bytes come.
    pub(super) fn arrivals(&self) -> Arrivals {
        Arrivals(Arc::clone(&self.account))
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
        self.exchange_expecting(encode, 0, timeout).await
    }

    /// [`Self::exchange`] for an answer that may well hold `expect` bytes: as much memory is taken at once, if the answer's
    /// size claims it, in place of growing into it. Larger answers come nevertheless.
    pub(super) async fn exchange_expecting(
        &self,
        encode: impl FnOnce(i32) -> Result<Bytes, RequestFailure>,
        expect: usize,
        timeout: Duration,
    ) -> Result<Bytes, RequestFailure> {
        let exchange = async {
            let place = Arc::clone(&self.places).acquire_owned().await.map_err(|_| self.cause())?;
            let answered = self.send(encode, expect, Some(place))?;
            answered.await.unwrap_or_else(|_| Err(self.cause()))
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
        expect: usize,
        place: Option<OwnedSemaphorePermit>,
    ) -> Result<oneshot::Receiver<Result<Bytes, RequestFailure>>, RequestFailure> {
        // Under one lock, so that ids go up in the order in which the frames go out.
        let mut correlation = self.correlation.lock();
        let correlation_id = correlation.next;
        let frame = encode(correlation_id)?;
        let (answer, answered) = oneshot::channel();
        correlation.next = correlation_id.wrapping_add(1);
        let asked = Instant::now();
        if place.is_some() {
            // What is sent in a pause keeps the connection, and is not why it is there.
            correlation.last_used = asked;
        }
        // Before the task has it, so that its answer comes after it.
        self.account.asked(asked);
        let call = Call { frame, correlation_id, asked, expect, answer, _place: place };
        self.calls.send(call).map_err(|_| self.cause())?;
        Ok(answered)
    }

    async fn within<T>(
        &self,
        timeout: Duration,
        work: impl Future<Output = Result<T, RequestFailure>>,
    ) -> Result<T, RequestFailure> {
        // However long it is: the clock has an end.
        let timeout = timeout.min(LONGEST_TIMEOUT);
        let mut work = pin!(work);
        let begun = Instant::now();
        let mut due = begun + timeout;
        loop {
            if let Ok(result) = tokio::time::timeout_at(due, work.as_mut()).await {
                return result;
            }
            // A peer whose answer still arrives is slow and not silent: to begin anew would only be slower.
            let silent_at = self.account.last_arrival() + timeout;
            if silent_at <= Instant::now() || begun.elapsed() >= timeout * SLOW {
                let silent = RequestFailure::Timeout { after: begun.elapsed() };
                self.close(silent.clone());
                return Err(silent);
            }
            due = silent_at;
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
        let exchange = async { link.send(encode, 0, None)?.await.unwrap_or_else(|_| Err(link.cause())) };
        link.within(timeout, exchange).await
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Writes requests and reads responses until something ends the connection.
async fn serve(
    transport: Transport,
    queue: &mut mpsc::UnboundedReceiver<Call>,
    waiting: &Mutex<VecDeque<Call>>,
    limit: FrameLimit,
    account: &Account,
) -> RequestFailure {
    let low_water = LowWater::of(account, transport.is_tls());
    match transport {
        Transport::Plain(mut stream) => {
            let (read, write) = stream.split();
            both(read, write, queue, waiting, limit, account, low_water).await
        }
        Transport::Tls(stream) => {
            let (read, write) = tokio::io::split(stream);
            both(read, write, queue, waiting, limit, account, low_water).await
        }
    }
}

async fn both(
    read: impl AsyncRead + Unpin,
    write: impl AsyncWrite + Unpin,
    queue: &mut mpsc::UnboundedReceiver<Call>,
    waiting: &Mutex<VecDeque<Call>>,
    limit: FrameLimit,
    account: &Account,
    low_water: LowWater<'_>,
) -> RequestFailure {
    // Both sides in one task: a peer that stops reading must not stop us from reading.
    let writing = pin!(write_calls(write, queue, waiting));
    let reading = pin!(read_answers(Watched { read, account }, waiting, limit, account, low_water));
    first(writing, reading).await
}

/// Notes when bytes come.
struct Watched<'a, R> {
    read: R,
    account: &'a Account,
}

impl<R: AsyncRead + Unpin> AsyncRead for Watched<'_, R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.read).poll_read(cx, buf);
        if polled.is_ready() {
            self.account.arrived();
        }
        polled
    }
}

async fn first(a: impl Future<Output = RequestFailure>, b: impl Future<Output = RequestFailure>) -> RequestFailure {
    tokio::select! { cause = a => cause, cause = b => cause }
}

async fn write_calls(
    mut write: impl AsyncWrite + Unpin,
    queue: &mut mpsc::UnboundedReceiver<Call>,
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
    account: &Account,
    mut low_water: LowWater<'_>,
) -> RequestFailure {
    let mut first = true;
    loop {
        let begun = || {
            let next = waiting.lock().front().map(|call| (call.asked, call.expect));
            account.first_byte(next.map(|(asked, _)| asked));
            next.map_or(0, |(_, expect)| expect)
        };
        let frame = match read_frame(&mut read, limit, first, &mut low_water, begun).await {
            Ok(frame) => frame,
            Err(cause) => return cause,
        };
        account.answered(SIZE_BYTES + frame.len());
        first = false;
        // Brokers answer the requests of one connection in their order.
        let Some(call) = waiting.lock().pop_front() else {
            return RequestFailure::Garbage { what: "nothing was asked".to_owned() };
        };
        match codec::correlation_id(&frame) {
            // A caller that went away has dropped the other end; its answer is not needed.
            Some(id) if id == call.correlation_id => drop(call.answer.send(Ok(frame))),
            id => {
                let sent = call.correlation_id;
                waiting.lock().push_front(call);
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
/// `begun` is called when its first bytes are here; it answers with how many bytes were asked for. Beyond them, memory grows
/// with the bytes that arrive, never with what the size claims.
pub(super) async fn read_frame(
    read: &mut (impl AsyncRead + Unpin),
    limit: FrameLimit,
    first: bool,
    low_water: &mut LowWater<'_>,
    begun: impl FnOnce() -> usize,
) -> Result<Bytes, RequestFailure> {
    let mut prefix = [0; SIZE_BYTES];
    let arrived = read.read(&mut prefix).await.map_err(broken)?;
    if arrived == 0 {
        return Err(RequestFailure::Closed);
    }
    let expect = begun();
    read.read_exact(&mut prefix[arrived..]).await.map_err(broken)?;
    if first && matches!(read_frame_size(prefix, FIRST_ANSWER), Err(FrameError::Tls { .. })) {
        return Err(speaks_tls());
    }
    let size = read_frame_size(prefix, limit).map_err(|error| match error {
        FrameError::TooLarge { size, limit } => RequestFailure::TooLarge { bytes: size, limit: limit.bytes() },
        FrameError::Tls { .. } => speaks_tls(),
        error => RequestFailure::Garbage { what: error.to_string() },
    })?;
    low_water.begin();
    let mut frame = memory::take(first_allocation(size, expect));
    while frame.len() < size {
        let left = size - frame.len();
        if frame.capacity() == frame.len() {
            frame.reserve_exact(left.min(frame.len()));
        }
        low_water.before_read(frame.len(), left);
        // Never into the next frame.
        if (&mut *read).take(left as u64).read_buf(&mut frame).await.map_err(broken)? == 0 {
            return Err(RequestFailure::Closed);
        }
    }
    low_water.before_read(size, 0);
    Ok(memory::share(frame))
}

/// The memory to begin a frame with that claims `size` bytes and answers a request for `expect`.
fn first_allocation(size: usize, expect: usize) -> usize {
    let asked = if expect == 0 { 0 } else { expect.saturating_add(AROUND_EXPECTED) };
    size.min(asked.max(FIRST_ALLOCATION))
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
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::net::TcpStream;

    use super::*;
    use crate::conn::connect::tests::pair;
    use crate::conn::tcp::TcpFacts;

    const LIMIT: FrameLimit = FrameLimit::new(64 << 20);

    async fn frame_of(bytes: Vec<u8>) -> Result<Bytes, RequestFailure> {
        read_frame(&mut bytes.as_slice(), LIMIT, true, &mut LowWater::none(), || 0).await
    }

    #[tokio::test]
    async fn a_frame_is_read_to_its_end_and_no_further() {
        let mut bytes: &[u8] = &[0, 0, 0, 3, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 1, 9];
        for expected in [&[1, 2, 3][..], &[], &[9]] {
            assert_eq!(read_frame(&mut bytes, LIMIT, false, &mut LowWater::none(), || 0).await.unwrap(), expected);
        }
        assert!(matches!(
            read_frame(&mut bytes, LIMIT, false, &mut LowWater::none(), || 0).await,
            Err(RequestFailure::Closed)
        ));
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

    #[tokio::test]
    async fn an_answer_larger_than_was_asked_for_arrives_whole() {
        let body = vec![7; 5 * FIRST_ALLOCATION];
        let mut bytes = u32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
        bytes.extend_from_slice(&body);
        let asked = body.len() / 2;
        let frame = read_frame(&mut bytes.as_slice(), LIMIT, false, &mut LowWater::none(), || asked).await.unwrap();
        assert!(frame == body);
    }

    #[test]
    fn memory_follows_a_claimed_size_as_far_as_was_asked_for() {
        const CLAIMED: usize = 1 << 30;
        assert_eq!(first_allocation(CLAIMED, 0), FIRST_ALLOCATION);
        assert_eq!(first_allocation(CLAIMED, 1), FIRST_ALLOCATION);
        assert_eq!(first_allocation(CLAIMED, 50 << 20), (50 << 20) + AROUND_EXPECTED);
        assert_eq!(first_allocation(10, 50 << 20), 10);
        assert_eq!(first_allocation(CLAIMED, usize::MAX), CLAIMED);
    }

    const PATIENT: Duration = Duration::from_secs(30);

    /// A link to a peer that is played by the test.
    async fn linked() -> (Link, TcpStream) {
        let (ours, theirs) = pair(None).await;
        (Link::new(Transport::Plain(ours), LIMIT, 8), theirs)
    }

    fn facts(link: &Link) -> ConnectionFacts {
        let facts = link.facts("broker:1".into(), None);
        assert_eq!(facts.idle + facts.waiting + facts.receiving, facts.opened_for);
        facts
    }

    /// A request of nothing but its correlation id.
    fn bare(id: i32) -> Result<Bytes, RequestFailure> {
        Ok([&[0, 0, 0, 4], &id.to_be_bytes()[..]].concat().into())
    }

    async fn sees_the_end(mut theirs: TcpStream) {
        let mut bytes = [0; 64];
        let ended = async {
            // A reset is an end too.
            while theirs.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
        };
        tokio::time::timeout(PATIENT, ended).await.expect("the connection is kept open");
    }

    /// While somebody asks for its facts all the time, and holds the link.
    async fn ends_for_the_peer(how: &str, link: Link, theirs: TcpStream, end: impl AsyncFnOnce(&Link, &mut TcpStream)) {
        let link = Arc::new(link);
        let asking = Arc::new(AtomicBool::new(true));
        let asker = std::thread::spawn({
            let (link, asking) = (Arc::clone(&link), Arc::clone(&asking));
            move || {
                while asking.load(Ordering::Relaxed) {
                    drop(facts(&link));
                }
            }
        });
        let mut theirs = theirs;
        end(&link, &mut theirs).await;
        sees_the_end(theirs).await;
        asking.store(false, Ordering::Relaxed);
        asker.join().expect(how);
        let (one, other) = (facts(&link), facts(&link));
        assert_eq!((&one, one.in_flight, &one.tcp), (&other, 0, &TcpFacts::default()), "{how}");
        assert!(!link.is_open(), "{how}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_peer_sees_the_end_of_a_link_that_is_still_held() {
        let (link, theirs) = linked().await;
        ends_for_the_peer("closed", link, theirs, async |link, _| link.close(RequestFailure::Closed)).await;

        let (link, theirs) = linked().await;
        ends_for_the_peer("garbage", link, theirs, async |_, theirs| theirs.write_all(&[0xff; 4]).await.unwrap()).await;

        let (link, theirs) = linked().await;
        ends_for_the_peer("answer to nothing", link, theirs, async |_, theirs| {
            theirs.write_all(&[0, 0, 0, 4, 0, 0, 0, 9]).await.unwrap();
        })
        .await;

        let (link, theirs) = linked().await;
        ends_for_the_peer("silence", link, theirs, async |link, _| {
            let failure = link.exchange(bare, Duration::from_millis(20)).await.unwrap_err();
            assert!(matches!(failure, RequestFailure::Timeout { .. }), "{failure}");
        })
        .await;

        let (link, theirs) = linked().await;
        ends_for_the_peer("half closed", link, theirs, async |_, theirs| theirs.shutdown().await.unwrap()).await;
    }

    #[tokio::test]
    async fn an_answer_that_arrives_little_by_little_is_no_silence() {
        let (link, mut theirs) = linked().await;
        let slow = async {
            let mut request = [0; 8];
            theirs.read_exact(&mut request).await.unwrap();
            for byte in [0, 0, 0, 12].into_iter().chain(request[4..].to_vec()).chain([7; 8]) {
                tokio::time::sleep(Duration::from_millis(100)).await;
                theirs.write_all(&[byte]).await.unwrap();
            }
        };
        // Longer in all than a peer may be silent.
        let (answer, ()) = tokio::join!(link.exchange(bare, Duration::from_secs(1)), slow);
        assert_eq!(answer.unwrap().len(), 12);
        let (link, _theirs) = linked().await;
        let never = link.exchange(bare, Duration::MAX);
        assert!(tokio::time::timeout(Duration::from_millis(20), never).await.is_err());
    }

    #[tokio::test]
    async fn what_is_wrong_with_an_answer_fails_its_own_request_and_the_others_may_be_sent_again() {
        type Expected = fn(&RequestFailure) -> bool;
        let wrong: [(&[u8], Expected); 3] = [
            (&[0x7f, 0xff, 0xff, 0xff], |failure| matches!(failure, RequestFailure::TooLarge { .. })),
            (&[0xff, 0xff, 0xff, 0xff], |failure| matches!(failure, RequestFailure::Garbage { .. })),
            (&[0, 0, 0, 4, 0, 0, 0, 9], |failure| matches!(failure, RequestFailure::Garbage { .. })),
        ];
        for (bytes, expected) in wrong {
            let (link, mut theirs) = linked().await;
            let answer = async {
                // Both requests.
                theirs.read_exact(&mut [0; 16]).await.unwrap();
                theirs.write_all(bytes).await.unwrap();
            };
            let (first, second, ()) = tokio::join!(link.exchange(bare, PATIENT), link.exchange(bare, PATIENT), answer);
            assert!(expected(first.as_ref().unwrap_err()), "{first:?}");
            assert!(matches!(second, Err(RequestFailure::Closed)), "{second:?}");
            assert!(!link.is_open());
        }
    }

    #[tokio::test]
    async fn the_peer_sees_the_end_of_a_link_that_is_dropped() {
        // Before its task has begun, and after.
        let (link, theirs) = linked().await;
        drop(link);
        sees_the_end(theirs).await;

        let (link, mut theirs) = linked().await;
        let answer = async {
            let mut request = [0; 8];
            theirs.read_exact(&mut request).await.unwrap();
            theirs.write_all(&request).await.unwrap();
        };
        tokio::join!(link.exchange(bare, PATIENT), answer).0.unwrap();
        drop(link);
        sees_the_end(theirs).await;
    }

    #[test]
    fn the_peer_sees_the_end_of_a_link_whose_runtime_is_gone() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (theirs, other) = (runtime(), runtime());
        let (ours, peer) = theirs.block_on(pair(None));
        let ours = ours.into_std().unwrap();
        let link = other.block_on(async { Link::new(Transport::Plain(TcpStream::from_std(ours).unwrap()), LIMIT, 8) });
        assert!(cfg!(not(target_os = "linux")) || facts(&link).tcp.receive_buffer.is_some());
        drop(other);
        theirs.block_on(sees_the_end(peer));
        assert_eq!(facts(&link).tcp, TcpFacts::default());
    }

    #[tokio::test]
    async fn an_answer_is_waited_for_and_then_received() {
        let (link, mut theirs) = linked().await;
        let begun = facts(&link);
        assert_eq!((begun.waiting, begun.receiving, begun.in_flight, begun.answers), Default::default());
        assert_eq!(begun.first_byte, None);

        let link = Arc::new(link);
        let exchange = tokio::spawn({
            let link = Arc::clone(&link);
            async move { link.exchange(bare, PATIENT).await }
        });
        let mut request = [0; 8];
        theirs.read_exact(&mut request).await.unwrap();
        let asked = facts(&link);
        assert_eq!((asked.in_flight, asked.answers, asked.receiving), (1, 0, Duration::ZERO));
        assert!(facts(&link).waiting > asked.waiting, "it waits");

        // The first byte alone begins the answer.
        theirs.write_all(&request[..1]).await.unwrap();
        let receiving = loop {
            tokio::task::yield_now().await;
            match facts(&link) {
                facts if facts.receiving > Duration::ZERO => break facts,
                _ => {}
            }
        };
        assert_eq!((receiving.answers, receiving.bytes_received), (0, 0));
        assert_eq!(receiving.first_byte.map(|first| first.latest), Some(receiving.waiting));
        theirs.write_all(&request[1..]).await.unwrap();
        exchange.await.unwrap().unwrap();

        let answered = facts(&link);
        assert_eq!((answered.in_flight, answered.answers, answered.bytes_received), (0, 1, 8));
        assert_eq!(answered.waiting, receiving.waiting);
        let later = facts(&link);
        assert_eq!((later.waiting, later.receiving), (answered.waiting, answered.receiving));
        assert!(later.idle > answered.idle, "it is idle again");
    }
}

//! Fetch: finding record batches, waiting for some, reading them in one go.
//!
//! Source: KIP-74 (size limits), KIP-227 (sessions, which this broker does not keep: it answers every fetch in full and
//! with session id 0), KIP-98 (isolation; without transactions the last stable offset is the high watermark).

use std::collections::HashSet;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{self, FutureExt, select_all};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::FetchRequest;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::fetch_response::{FIRST_WITH_TOPIC_IDS, FetchAnswer, PartitionAnswer, TopicAnswer};
use super::{Answer, Facts, Peer, Reply, check_leader_epoch, find_topic};
use crate::memory::Lease;
use crate::shared::{NotCarriedOut, Shared};
use crate::storage::log::Log;
use crate::storage::read::{Span, find_span};
use crate::storage::view::Progress;

/// How often a fetch begins anew because the retention removed a segment between finding and reading it.
const ATTEMPTS: usize = 3;
const READ_COMMITTED: i8 = 1;

/// One partition of a request.
#[derive(Clone, Debug)]
struct Part {
    target: Result<Arc<Log>, ResponseError>,
    offset: i64,
    most_bytes: usize,
}

/// The limits of a request, within those of the broker.
#[derive(Clone, Copy, Debug)]
struct Asked {
    least_bytes: usize,
    most_bytes: usize,
    deadline: Instant,
}

pub(super) async fn fetch(shared: &Arc<Shared>, request: FetchRequest, facts: Facts, peer: &Peer<'_>) -> Reply {
    let read_committed = request.isolation_level == READ_COMMITTED;
    if request.session_id != 0 && request.session_epoch > 0 {
        // The client begins a new session, with all its partitions.
        let error_code = ResponseError::FetchSessionIdNotFound.code();
        return finish(FetchAnswer { error_code, ..FetchAnswer::default() }, facts, None);
    }
    let asked = Asked::new(shared, &request);
    let mut topics = Vec::with_capacity(request.topics.len());
    let mut parts = Vec::new();
    let mut seen = HashSet::new();
    for topic in request.topics {
        let found = find_topic(shared, &topic.topic, topic.topic_id, facts.version >= FIRST_WITH_TOPIC_IDS);
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for wanted in topic.partitions {
            partitions.push(wanted.partition);
            let target = found.as_ref().map_err(|error| *error).and_then(|topic| {
                // What an answer waits for and holds is bounded by the partitions that there are.
                if !seen.insert((topic.id, wanted.partition)) {
                    return Err(ResponseError::InvalidRequest);
                }
                let log = topic.partition(wanted.partition).ok_or(ResponseError::UnknownTopicOrPartition)?;
                check_leader_epoch(wanted.current_leader_epoch)?;
                Ok(Arc::clone(log))
            });
            let most_bytes = usize::try_from(wanted.partition_max_bytes).unwrap_or(0);
            parts.push(Part { target, offset: wanted.fetch_offset, most_bytes });
        }
        topics.push((topic.topic, topic.topic_id, partitions));
    }

    let (found, lease) = match read(shared, parts, asked, peer.stream).await {
        Ok(read) => read,
        Err(FetchEnd::PeerGone) => return Reply::Close("the peer closed the connection during a fetch".to_owned()),
        Err(FetchEnd::NotCarriedOut(error)) => return Reply::Close(error.to_string()),
    };
    let mut found = found.into_iter();
    let topics = topics.into_iter().map(|(name, id, partitions)| {
        let partitions = partitions.into_iter().zip(&mut found).map(|(partition, found)| found.answer(partition));
        TopicAnswer { name, id, partitions: partitions.collect() }
    });
    finish(FetchAnswer { error_code: 0, topics: topics.collect(), read_committed }, facts, lease)
}

fn finish(answer: FetchAnswer, facts: Facts, lease: Option<Lease>) -> Reply {
    match answer.pieces(facts).and_then(|pieces| Answer::framed(pieces, lease)) {
        Some(answer) => Reply::Answer(answer),
        None => Reply::Close("a fetch answer is larger than a frame can be".to_owned()),
    }
}

impl Asked {
    fn new(shared: &Shared, request: &FetchRequest) -> Self {
        let limits = &shared.config.limits;
        let bytes = |asked: i32| usize::try_from(asked).unwrap_or(0);
        let most_bytes = bytes(request.max_bytes).min(limits.max_fetch_bytes).min(limits.response_memory_bytes);
        let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
        Self {
            // What the limit keeps from coming must not be waited for.
            least_bytes: bytes(request.min_bytes).min(most_bytes),
            most_bytes,
            deadline: Instant::now() + wait.min(limits.max_fetch_wait),
        }
    }
}

impl Asked {
    /// The same with at most `bytes`. What they keep from coming is not waited for: the partition then has more.
    fn within(self, bytes: usize) -> Self {
        let most_bytes = self.most_bytes.min(bytes);
        Self { most_bytes, least_bytes: self.least_bytes.min(most_bytes), ..self }
    }
}

/// What was found for one partition.
#[derive(Debug)]
struct Found {
    error: Option<ResponseError>,
    high_watermark: i64,
    log_start_offset: i64,
    span: Option<Span>,
    records: Bytes,
}

impl Found {
    fn failed(error: ResponseError) -> Self {
        Self { error: Some(error), high_watermark: -1, log_start_offset: -1, span: None, records: Bytes::new() }
    }

    fn bytes(&self) -> usize {
        self.span.as_ref().map_or(0, Span::bytes)
    }

    /// Whether waiting would bring nothing: there is an error, or more records than were taken.
    fn is_final(&self) -> bool {
        self.error.is_some() || self.span.as_ref().is_some_and(|span| !span.reaches_end())
    }

    fn answer(self, partition: i32) -> PartitionAnswer {
        PartitionAnswer {
            partition,
            error_code: self.error.map_or(0, |error| error.code()),
            high_watermark: self.high_watermark,
            log_start_offset: self.log_start_offset,
            records: self.records,
        }
    }
}

enum FetchEnd {
    PeerGone,
    NotCarriedOut(NotCarriedOut),
}

impl From<NotCarriedOut> for FetchEnd {
    fn from(error: NotCarriedOut) -> Self {
        Self::NotCarriedOut(error)
    }
}

/// Finds and reads what was asked for; waits for it when there is too little.
async fn read(
    shared: &Arc<Shared>,
    parts: Vec<Part>,
    asked: Asked,
    stream: &TcpStream,
) -> Result<(Vec<Found>, Option<Lease>), FetchEnd> {
    let parts: Arc<[Part]> = parts.into();
    let mut attempts = 0;
    loop {
        attempts += 1;
        // Before the search, so that nothing appended after it goes unnoticed.
        let mut watches: Vec<_> =
            parts.iter().filter_map(|part| part.target.as_ref().ok().map(|log| log.watch())).collect();
        let seen: Vec<Progress> = watches.iter_mut().map(|watch| *watch.borrow_and_update()).collect();

        let wanted = Arc::clone(&parts);
        let may_wait = Instant::now() < asked.deadline && !shared.stop.is_cancelled();
        let last = attempts >= ATTEMPTS;
        let step = shared.reading(move |shared| find_and_read(shared, &wanted, asked, may_wait, last)).await?;
        let found = match step {
            Step::Done(found, lease) => return Ok((found, lease)),
            Step::Again => continue,
            Step::TooLittle { bytes } => {
                tokio::select! {
                    () = enough(&mut watches, &seen, asked.least_bytes.saturating_sub(bytes)) => {}
                    () = sleep_until(asked.deadline) => {}
                    () = shared.stop.cancelled() => {}
                    () = gone(stream) => return Err(FetchEnd::PeerGone),
                }
                attempts = 0;
                continue;
            }
            Step::NoMemory(found) => found,
        };
        let lease = tokio::select! {
            lease = shared.response_memory.fetched.take(bytes_of(&found)) => lease?,
            () = gone(stream) => return Err(FetchEnd::PeerGone),
        };
        let wanted = Arc::clone(&parts);
        if let Some(found) = shared.reading(move |shared| read_found(shared, &wanted, found, last)).await? {
            return Ok((found, Some(lease)));
        }
    }
}

/// How far one visit to the disk came.
enum Step {
    Done(Vec<Found>, Option<Lease>),
    /// The retention removed a segment between finding and reading it.
    Again,
    /// Fewer bytes than asked for, and there is time to wait for more.
    TooLittle {
        bytes: usize,
    },
    /// There is no memory for the records now.
    NoMemory(Vec<Found>),
}

fn find_and_read(shared: &Shared, parts: &[Part], asked: Asked, may_wait: bool, last: bool) -> Step {
    let asked = asked.within(shared.response_memory.fetched.share());
    let found = find(parts, asked);
    let bytes = bytes_of(&found);
    if may_wait && bytes < asked.least_bytes && !found.iter().any(Found::is_final) {
        return Step::TooLittle { bytes };
    }
    if bytes == 0 {
        return Step::Done(found, None);
    }
    let Some(lease) = shared.response_memory.fetched.try_take(bytes) else { return Step::NoMemory(found) };
    match read_found(shared, parts, found, last) {
        Some(found) => Step::Done(found, Some(lease)),
        None => Step::Again,
    }
}

fn bytes_of(found: &[Found]) -> usize {
    found.iter().map(Found::bytes).sum()
}

/// Finds what can be read now, in the order of the request and within its limits.
fn find(parts: &[Part], asked: Asked) -> Vec<Found> {
    let mut left = asked.most_bytes;
    let mut nothing_yet = true;
    let find = |part: &Part| {
        let log = match &part.target {
            Ok(log) => log,
            Err(error) => return Found::failed(*error),
        };
        let (found, bytes) = find_in(log, part, left, nothing_yet);
        nothing_yet &= bytes == 0;
        left = left.saturating_sub(bytes);
        found
    };
    parts.iter().map(find).collect()
}

fn find_in(log: &Log, part: &Part, left: usize, nothing_yet: bool) -> (Found, usize) {
    for attempt in 1..=ATTEMPTS {
        if log.is_deleted() {
            return (Found::failed(ResponseError::UnknownTopicOrPartition), 0);
        }
        let view = log.view();
        let mut found = Found {
            error: None,
            high_watermark: view.high_watermark(),
            log_start_offset: view.log_start_offset,
            span: None,
            records: Bytes::new(),
        };
        if part.offset < view.log_start_offset || part.offset > view.high_watermark() {
            found.error = Some(ResponseError::OffsetOutOfRange);
            return (found, 0);
        }
        match find_span(&view, log.pool(), part.offset, part.most_bytes.min(left), nothing_yet) {
            Ok(span) => found.span = span,
            // The retention has removed the segment since the view was taken.
            Err(error) if error.kind() == io::ErrorKind::NotFound && attempt < ATTEMPTS => continue,
            Err(error) => found.error = Some(unreadable(log, part.offset, &error)),
        }
        let bytes = found.bytes();
        return (found, bytes);
    }
    (Found::failed(ResponseError::KafkaStorageError), 0)
}

/// Reads the spans into one buffer. `None` when a segment is gone and the search should be made again; on the last attempt
/// that is an error of its partition.
fn read_found(shared: &Shared, parts: &[Part], mut found: Vec<Found>, last: bool) -> Option<Vec<Found>> {
    let mut buffer = shared.buffers.take(bytes_of(&found));
    let mut rest = buffer.as_mut();
    for (part, found) in parts.iter().zip(&mut found) {
        let (Ok(log), Some(span)) = (&part.target, &found.span) else { continue };
        let (place, after) = std::mem::take(&mut rest).split_at_mut_checked(span.bytes())?;
        rest = after;
        match span.read(log.pool(), place) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound && !last => return None,
            Err(error) => found.error = Some(unreadable(log, part.offset, &error)),
        }
    }
    let mut all = buffer.freeze();
    for found in &mut found {
        let records = all.split_to(found.bytes());
        if found.error.is_none() {
            found.records = records;
        }
    }
    Some(found)
}

fn unreadable(log: &Log, offset: i64, error: &io::Error) -> ResponseError {
    tracing::error!(topic_partition = %log.topic_partition(), offset, %error, "cannot read");
    ResponseError::KafkaStorageError
}

/// Returns when `missing` bytes were appended to the watched logs together since they were `seen`, or when one of them is
/// gone.
async fn enough(watches: &mut [watch::Receiver<Progress>], seen: &[Progress], missing: usize) {
    loop {
        let mut appended = 0_u64;
        for (watch, seen) in watches.iter_mut().zip(seen) {
            let now = *watch.borrow_and_update();
            if now.deleted {
                return;
            }
            appended = appended.saturating_add(now.appended_bytes.wrapping_sub(seen.appended_bytes));
        }
        if appended >= missing as u64 {
            return;
        }
        if watches.is_empty() {
            return future::pending().await;
        }
        let changes = watches.iter_mut().map(|watch| watch.changed().boxed());
        // An error means that the log is gone with its topic.
        if select_all(changes).await.0.is_err() {
            return;
        }
    }
}

/// Returns when the peer has closed its side. Bytes of a next request hide that, so then it never returns.
pub(super) async fn gone(stream: &TcpStream) {
    let mut byte = [0];
    match pin!(stream.peek(&mut byte)).await {
        Ok(0) | Err(_) => {}
        Ok(_) => future::pending().await,
    }
}

//! One connection of a client to a stand-in broker: requests are judged, carried out by the broker behind, and answered.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::{ApiKey, ApiVersionsResponse};
use tidegate_wire::{FrameLimit, read_frame_size};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::flavour::{Egress, UnknownApiVersions, Versions};
use super::message::{Incoming, Named, Refusal, Undecodable, answer_frame};
use super::script::{Due, Fault, Moment, Seen};
use super::{State, lies, rewrite};

/// The largest frame that is passed on, either way.
const LIMIT: FrameLimit = FrameLimit::new(128 << 20);
/// Commits and bytes are counted in spans of this length.
const SECOND: Duration = Duration::from_secs(1);

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum End {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Undecodable(#[from] Undecodable),
    #[error("as the script or the flavour has it")]
    Closed,
}

/// What has passed in the present second.
#[derive(Debug)]
pub(super) struct Meters {
    since: Instant,
    bytes: u64,
    commits: HashMap<(String, i32), u32>,
}

impl Meters {
    pub(super) fn new() -> Self {
        Self { since: Instant::now(), bytes: 0, commits: HashMap::new() }
    }

    fn turn(&mut self) {
        if self.since.elapsed() >= SECOND {
            *self = Self::new();
        }
    }

    /// Counts a commit. When it may be answered, if not now.
    fn commit(&mut self, partitions: &[Named], limit: u32) -> Option<Instant> {
        self.turn();
        let mut over = false;
        for named in partitions {
            let count = self.commits.entry((named.topic.clone(), named.partition)).or_default();
            *count += 1;
            over |= *count > limit;
        }
        over.then(|| self.since + SECOND)
    }
}

/// Serves a connection to broker `node` until its end.
pub(super) async fn serve(state: &State, node: i32, mut client: TcpStream) -> Result<(), End> {
    client.set_nodelay(true)?;
    let mut behind = TcpStream::connect(state.upstream).await?;
    behind.set_nodelay(true)?;
    loop {
        let Some(frame) = within(state, read_frame(&mut client)).await else { return dead(state, client).await };
        let Some(frame) = frame? else { return Ok(()) };
        let mut request = Incoming::parse(frame)?;
        state.count(&request);
        if request.api != ApiKey::ApiVersions && !is_spoken(state, &request) {
            // As Kafka does: there is no answer that a client of an unknown version could read.
            return Err(End::Closed);
        }
        request.open()?;
        let partitions = request.partitions(&state.names.lock());
        let seen = Seen { api: request.api, version: request.version, node, partitions: &partitions };
        let due = state.script.lock().decide(seen);
        let exchange = Exchange { state, node, request, partitions, due };
        let outcome = match within(state, exchange.carry_out(&mut behind)).await {
            Some(outcome) => outcome?,
            None => return dead(state, client).await,
        };
        match outcome {
            Outcome::Answer(answer) => client.write_all(&answer).await?,
            Outcome::Nothing => {}
            Outcome::Cut(sent) => {
                client.write_all(&sent).await?;
                return Err(End::Closed);
            }
            Outcome::Silence(sent) => {
                client.write_all(&sent).await?;
                return swallow(client).await;
            }
        }
    }
}

/// The result, unless no byte has come or gone for so long that the connection is dead.
async fn within<T>(state: &State, work: impl Future<Output = T>) -> Option<T> {
    match state.flavour.idle_cut {
        Some(limit) => timeout(limit, work).await.ok(),
        None => Some(work.await),
    }
}

/// An idle connection was dropped on the way: neither side hears of it.
async fn dead(state: &State, client: TcpStream) -> Result<(), End> {
    state.note_idle_cut();
    swallow(client).await
}

/// Takes what comes and never answers.
async fn swallow(mut client: TcpStream) -> Result<(), End> {
    let mut sink = vec![0; 16 << 10];
    while client.read(&mut sink).await? > 0 {}
    Ok(())
}

/// A frame without its size; `None` at the end. Memory grows with the bytes that arrive.
async fn read_frame(stream: &mut TcpStream) -> io::Result<Option<Bytes>> {
    let mut prefix = [0; 4];
    match stream.read_exact(&mut prefix).await {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let size = read_frame_size(prefix, LIMIT).map_err(io::Error::other)?;
    let mut frame = BytesMut::new();
    let mut rest = stream.take(size as u64);
    while frame.len() < size {
        if rest.read_buf(&mut frame).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(Some(frame.freeze()))
}

fn is_spoken(state: &State, request: &Incoming) -> bool {
    let known = state.spoken.iter().find(|versions| versions.api == request.api);
    known.is_some_and(|versions| (versions.min..=versions.max).contains(&request.version))
}

/// The answer to ApiVersions, which is never the broker's behind.
fn api_versions(state: &State, request: &Incoming) -> Result<Bytes, End> {
    let list = |versions: &[Versions]| {
        let one = |v: &Versions| {
            ApiVersion::default().with_api_key(v.api as i16).with_min_version(v.min).with_max_version(v.max)
        };
        ApiVersionsResponse::default().with_api_keys(versions.iter().map(one).collect())
    };
    let refused = ResponseError::UnsupportedVersion.code();
    let (version, response) = match state.flavour.unknown_api_versions {
        _ if is_spoken(state, request) => (request.version, list(&state.spoken)),
        UnknownApiVersions::Error35 => (0, list(&state.spoken).with_error_code(refused)),
        UnknownApiVersions::Error35Bare => (0, list(&[]).with_error_code(refused)),
        UnknownApiVersions::Close => return Err(End::Closed),
    };
    Ok(answer_frame(request.correlation_id(), version, &response)?)
}

/// What goes back to the client.
enum Outcome {
    Answer(Bytes),
    Nothing,
    /// These bytes, and the connection is closed.
    Cut(Bytes),
    /// These bytes, and nothing ever after.
    Silence(Bytes),
}

/// One request on its way.
struct Exchange<'a> {
    state: &'a State,
    node: i32,
    request: Incoming,
    partitions: Vec<Named>,
    due: Option<Due>,
}

impl Exchange<'_> {
    async fn carry_out(mut self, behind: &mut TcpStream) -> Result<Outcome, End> {
        let due = self.due.take();
        let fault = due.as_ref().map(|due| due.fault.clone());
        match &fault {
            Some(Fault::Delay(delay)) => sleep(*delay).await,
            Some(Fault::MoveLeader { topic, partition, to, stale_answers }) => {
                self.state.leaders.lock().set(topic, *partition, *to, *stale_answers);
            }
            Some(Fault::Cut(Moment::BeforeRequest)) => return Ok(self.noted(&due, Outcome::Cut(Bytes::new()))),
            Some(Fault::Silence(Moment::BeforeRequest)) => return Ok(self.noted(&due, Outcome::Silence(Bytes::new()))),
            Some(Fault::Lie(lie)) => {
                lies::ask_wrongly(*lie, &mut self.request);
            }
            _ => {}
        }
        if let (ApiKey::OffsetCommit, Some(limit)) = (self.request.api, self.state.flavour.commits_per_second) {
            let at = self.state.meters.lock().commit(&self.partitions, limit);
            if let Some(at) = at {
                self.state.note_late_commit();
                sleep_until(at).await;
            }
        }
        let Some(answer) = self.answer(behind, &due).await? else { return Ok(self.noted(&due, Outcome::Nothing)) };
        let seed = due.as_ref().map_or(0, |due| due.seed);
        let half = || answer.slice(..answer.len() / 2);
        Ok(match fault {
            Some(Fault::Cut(Moment::BeforeAnswer)) => self.noted(&due, Outcome::Cut(Bytes::new())),
            Some(Fault::Cut(Moment::InsideAnswer)) => self.noted(&due, Outcome::Cut(half())),
            Some(Fault::Cut(_)) => self.noted(&due, Outcome::Cut(answer)),
            Some(Fault::Silence(Moment::BeforeAnswer)) => self.noted(&due, Outcome::Silence(Bytes::new())),
            Some(Fault::Silence(Moment::InsideAnswer)) => self.noted(&due, Outcome::Silence(half())),
            Some(Fault::Silence(_)) => self.noted(&due, Outcome::Silence(answer)),
            Some(Fault::Empty { throttle }) => {
                self.changed(&due, rewrite::emptied(&self.request, &answer, throttle)?, answer)
            }
            Some(Fault::Lie(lie)) => self.changed(&due, lies::tell(lie, &self.request, &answer, seed)?, answer),
            // Those have happened already, or not.
            Some(Fault::Error(_)) | None => Outcome::Answer(answer),
            Some(Fault::Delay(_) | Fault::MoveLeader { .. }) => self.noted(&due, Outcome::Answer(answer)),
        })
    }

    fn noted(&self, due: &Option<Due>, outcome: Outcome) -> Outcome {
        if let Some(due) = due {
            self.state.script.lock().note(due);
        }
        outcome
    }

    /// What a fault made of an answer; if nothing, it did not happen.
    fn changed(&self, due: &Option<Due>, changed: Option<Bytes>, before: Bytes) -> Outcome {
        match (changed, due) {
            (Some(changed), _) => self.noted(due, Outcome::Answer(changed)),
            (None, Some(due)) => {
                self.state.script.lock().take_back(due);
                Outcome::Answer(before)
            }
            (None, None) => Outcome::Answer(before),
        }
    }

    /// The answer of the broker behind, as these brokers give it; `None` when the client wants none.
    async fn answer(&mut self, behind: &mut TcpStream, due: &Option<Due>) -> Result<Option<Bytes>, End> {
        let (state, node) = (self.state, self.node);
        let refusals = self.refusals(due);
        let names = state.names.lock().clone();
        let has_partitions = !self.partitions.is_empty();
        let refused = self
            .request
            .take_out(&names, &mut |topic, partition| refusals.get(&(topic.to_owned(), partition)).copied());
        let failed = due.as_ref().and_then(|due| match due.fault {
            Fault::Error(code) => Some((code, due)),
            _ => None,
        });
        if let Some((code, due)) = failed {
            if has_partitions {
                state.script.lock().note(due);
            } else if let Some(answer) = rewrite::refused(&self.request, code)? {
                state.script.lock().note(due);
                return Ok(Some(answer));
            } else {
                state.script.lock().take_back(due);
            }
        }
        if self.request.api == ApiKey::ApiVersions {
            return api_versions(state, &self.request).map(Some);
        }
        let only_refused = !refused.is_empty() && self.request.is_used_up();
        let answer = if only_refused { None } else { self.pass_on(behind).await? };
        if !self.request.wants_answer() {
            return Ok(None);
        }
        let answer = match (answer, refused.is_empty()) {
            (Some(answer), true) => answer,
            (answer, _) => {
                let body = answer.as_ref().map(|answer| answer.slice(4..));
                let whole = self.request.put_back(body.as_ref(), refused)?;
                rewrite::with_endpoints(state, &self.request, whole)?
            }
        };
        let answer = rewrite::as_seen_here(state, node, &self.request, answer)?;
        self.metered(answer).map(Some)
    }

    /// Which partitions are refused, and why.
    fn refusals(&self, due: &Option<Due>) -> HashMap<(String, i32), Refusal> {
        let mut refusals = HashMap::new();
        if self.request.is_for_leaders() {
            let leaders = self.state.leaders.lock();
            for Named { topic, partition, epoch } in &self.partitions {
                if let Some(refusal) = leaders.judge(self.node, topic, *partition, *epoch) {
                    refusals.insert((topic.clone(), *partition), refusal);
                }
            }
        }
        if let Some(Due { fault: Fault::Error(code), partitions, .. }) = due {
            refusals.extend(partitions.iter().map(|part| (part.clone(), Refusal { code: *code, leader: None })));
        }
        refusals
    }

    /// Sends the request on, and takes the answer as a whole frame.
    async fn pass_on(&self, behind: &mut TcpStream) -> Result<Option<Bytes>, End> {
        behind.write_all(&self.request.frame()?).await?;
        if !self.request.wants_answer() {
            return Ok(None);
        }
        let answer = read_frame(behind).await?.ok_or(End::Closed)?;
        Ok(Some(super::message::with_size(&answer)))
    }

    /// Empty, when the second's bytes are used up.
    fn metered(&self, answer: Bytes) -> Result<Bytes, End> {
        let Some(Egress { bytes_per_second, told }) = self.state.flavour.egress else { return Ok(answer) };
        if self.request.api != ApiKey::Fetch {
            return Ok(answer);
        }
        let left = {
            let mut meters = self.state.meters.lock();
            meters.turn();
            if meters.bytes < bytes_per_second {
                meters.bytes += answer.len() as u64;
                return Ok(answer);
            }
            // An answer that throttles says so in whole milliseconds.
            SECOND.saturating_sub(meters.since.elapsed()).max(Duration::from_millis(1))
        };
        let throttle = if told { left } else { Duration::ZERO };
        let emptied = rewrite::emptied(&self.request, &answer, throttle)?;
        if emptied.is_some() {
            self.state.note_throttled();
        }
        Ok(emptied.unwrap_or(answer))
    }
}

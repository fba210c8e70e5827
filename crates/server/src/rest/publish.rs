//! `POST /v1/topics/{topic}/records`: records in, answered when they are durable.
//!
//! The body is read, cut into records and sent as it comes. A record that cannot be read ends the request; those before it
//! are on their way by then, so the answer waits for them and says how many were written.

use std::fmt::Display;
use std::io;
use std::sync::LazyLock;
use std::time::Duration;

use axum::Json;
use axum::body::BodyDataStream;
use axum::extract::{RawQuery, Request, State};
use bytes::Bytes;
use futures_util::StreamExt as _;
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use tidegate_api::{ApiError, Code, rest};
use tidegate_client::ProduceSummary;
use utoipa::IntoParams;

use super::decode::BodyDecoder;
use super::error::RestError;
use super::incoming::{self, IncomingError, Shape};
use super::lines::{Item, SplitError, Splitter};
use super::openapi::{Failures, names};
use super::query::Query;
use super::{Rest, RestLimits, Topic, TopicPath};
use crate::engine::{PublishError, Publishing};
use crate::errors::with_records_written;

/// What is read and thrown away of a body that was refused. A client that is still sending would otherwise see its
/// connection reset before it has read why.
const DRAIN_BYTES: usize = 16 << 20;

/// How long that may take.
const DRAIN_FOR: Duration = Duration::from_secs(2);

/// The parameters of a publish.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "the fields are there to be described")]
pub(super) struct PublishParameters {
    /// `records` (the default): each line or element is an object with `key`, `value`, `headers`, `timestamp` and
    /// `partition`. `values`: each is the value alone.
    #[param(inline)]
    format: Option<ShapeName>,
    /// Which cluster; `/v1/clusters` lists them. Without it: the default one.
    #[param(example = "default")]
    cluster: Option<String>,
}

/// The names of the shapes.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "the variants are there to be described")]
enum ShapeName {
    Records,
    Values,
}

static NAMES: LazyLock<Vec<String>> = LazyLock::new(names::<PublishParameters>);

/// Publish records to a topic.
///
/// The body is NDJSON (`application/x-ndjson`, one record a line) or one JSON array of records (`application/json`),
/// plain or compressed with gzip or zstd. Lines end with LF or CRLF; blank lines are skipped, one leading byte order mark
/// is taken off, and the last line needs no end. More than 64 MiB of white space before a record is refused.
///
/// What `format=ndjson` shows of a read can be sent back as it is. Its end statement, an object whose only field is `end`,
/// is no record: such a line (or element of an array) is skipped, and `end` beside other fields is refused. A record that
/// had no timestamp (`"timestamp":null`) gets the time of publishing, as when `timestamp` is absent.
///
/// A JSON value is stored as its text exactly as sent; on a `protobuf` topic it is converted to the topic's message, and
/// what the message does not have is refused. Records of one partition keep their order.
///
/// The answer comes when all records are durable. When a record cannot be read or written, the error names its line
/// (`details.line`) and says how many records of the request were written all the same (`details.records_written`): those
/// before it have been sent by then. No record behind it is read. A body that breaks off publishes the records that were
/// complete before.
#[utoipa::path(
    post,
    path = "/v1/topics/{topic}/records",
    operation_id = "publish_records",
    tag = "records",
    params(TopicPath, PublishParameters),
    request_body(
        description = "The records.",
        content(
            (rest::PublishRecord = "application/x-ndjson"),
            (Vec<rest::PublishRecord> = "application/json"),
        ),
    ),
    responses((status = 200, description = "All records are durable.", body = rest::PublishAnswer), Failures),
)]
pub(super) async fn publish_records(
    State(rest): State<Rest>,
    Topic(topic): Topic,
    RawQuery(query): RawQuery,
    request: Request,
) -> Result<Json<rest::PublishAnswer>, RestError> {
    let (parts, body) = request.into_parts();
    // Until the body is asked for, a client that expects "100 Continue" has sent none of it.
    let mut waits = parts.headers.contains_key(EXPECT);
    let mut body = body.into_data_stream();
    let published = publish(&rest, &topic, query.as_deref(), &parts.headers, &mut body, &mut waits).await;
    if published.is_err() && !waits {
        drain(body).await;
    }
    published
}

async fn publish(
    rest: &Rest,
    topic: &str,
    query: Option<&str>,
    headers: &HeaderMap,
    body: &mut BodyDataStream,
    waits: &mut bool,
) -> Result<Json<rest::PublishAnswer>, RestError> {
    let query = Query::parse(query, &NAMES)?;
    let shapes = [("records", Shape::Records), ("values", Shape::Values)];
    let shape = query.word("format", &shapes)?.unwrap_or(Shape::Records);
    let splitter = splitter(headers, &rest.limits)?;
    let decoder = BodyDecoder::new(headers)?;
    let announced = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if decoder.is_identity() && announced.is_some_and(|bytes| bytes > rest.limits.max_body_bytes) {
        return Err(BodyError::TooLarge { limit: rest.limits.max_body_bytes }.into_api().into());
    }
    let publishing = rest.engine(&query)?.publish(topic).await?;

    *waits = false;
    let mut upload = Upload { shape, splitter, publishing, places: Places::default(), sent: 0 };
    match upload.receive(body, decoder, rest.limits.max_body_bytes).await {
        Ok(()) => upload.finish().await.map(Json).map_err(RestError),
        Err(failure) => Err(RestError(upload.settle(failure).await)),
    }
}

/// One request's records on their way.
struct Upload {
    shape: Shape,
    splitter: Splitter,
    publishing: Publishing,
    places: Places,
    /// Records handed to the producer.
    sent: u64,
}

impl Upload {
    /// Reads the body to its end and sends every record in it.
    async fn receive(
        &mut self,
        body: &mut BodyDataStream,
        mut decoder: BodyDecoder,
        max_body_bytes: u64,
    ) -> Result<(), Failure> {
        let too_large = || BodyError::TooLarge { limit: max_body_bytes };
        let (mut on_the_wire, mut bytes) = (0_u64, 0_u64);
        while let Some(piece) = body.next().await {
            let piece = piece.map_err(|error| BodyError::Broken { reason: error.to_string() })?;
            // Compressed nothings have no text that would count.
            on_the_wire = on_the_wire.saturating_add(piece.len() as u64);
            if on_the_wire > max_body_bytes {
                return Err(too_large().into());
            }
            decoder.feed(piece);
            while let Some(text) = decoder.next().map_err(BodyError::Compression)? {
                bytes = bytes.saturating_add(text.len() as u64);
                if bytes > max_body_bytes {
                    return Err(too_large().into());
                }
                self.push(text).await?;
                // What has come already may unfold to a gibibyte in which nothing waits: others run in between.
                tokio::task::yield_now().await;
            }
        }
        decoder.finish().map_err(BodyError::Compression)?;
        // Only now is a line without an end known to be whole.
        if let Some(item) = self.splitter.finish()? {
            self.send(item).await?;
        }
        Ok(())
    }

    async fn push(&mut self, text: Bytes) -> Result<(), Failure> {
        self.splitter.feed(text);
        while let Some(item) = self.splitter.next()? {
            self.send(item).await?;
            // The producer makes a sender wait only when its queue is full.
            tokio::task::coop::consume_budget().await;
        }
        Ok(())
    }

    async fn send(&mut self, item: Item) -> Result<(), Failure> {
        let mut read = incoming::read(&item.text, self.shape, self.publishing.payload());
        if matches!(read, Err(IncomingError::NoSchema)) {
            // Asked for when it is needed: records without a value, or with one as stored, need none.
            self.publishing.take_json().await?;
            read = incoming::read(&item.text, self.shape, self.publishing.payload());
        }
        let record = match read {
            Ok(Some(record)) => record,
            Ok(None) => return Ok(()),
            Err(source) => return Err(Failure::Record { line: item.line, record: self.sent, source }),
        };
        self.places.note(self.sent, item.line);
        self.sent += 1;
        let headers = record.headers();
        Ok(self.publishing.send(&record.to_send(&headers)).await?)
    }

    async fn finish(self) -> Result<rest::PublishAnswer, ApiError> {
        let warnings = self.publishing.warnings().iter().map(ToString::to_string).collect();
        match self.publishing.settle().await {
            (summary, None) => Ok(answer(&summary, warnings)),
            (summary, Some(error)) => Err(with_records_written(produce_failure(&error, &self.places), summary.records)),
        }
    }

    /// Waits for what was sent before the failure, and says what became of it.
    async fn settle(self, failure: Failure) -> ApiError {
        let error = match failure {
            Failure::Publish(error) => produce_failure(&error, &self.places),
            Failure::Body(error) => error.into_api(),
            Failure::Split(error) => {
                let code = match error {
                    SplitError::TooLong { .. } | SplitError::Blank { .. } => Code::RequestTooLarge,
                    _ => Code::InvalidRecord,
                };
                ApiError::new(code, error.to_string()).with("line", error.line())
            }
            Failure::Record { line, record, source } => record_failure(line, record, &source),
        };
        // A record that the cluster refused meanwhile changes the count, not the reason: this one came first.
        let (summary, _) = self.publishing.settle().await;
        with_records_written(error, summary.records)
    }
}

/// Why a request ends early.
enum Failure {
    Body(BodyError),
    Split(SplitError),
    Record { line: u64, record: u64, source: IncomingError },
    Publish(PublishError),
}

/// What is wrong with a body as a whole.
#[derive(Debug, thiserror::Error)]
enum BodyError {
    #[error("the body is larger than {limit} bytes, the most that this server takes in one request")]
    TooLarge { limit: u64 },
    #[error("the body cannot be decompressed: {0}")]
    Compression(#[source] io::Error),
    #[error("the body broke off: {reason}")]
    Broken { reason: String },
}

impl BodyError {
    fn into_api(self) -> ApiError {
        let message = self.to_string();
        match self {
            Self::TooLarge { limit } => ApiError::new(Code::RequestTooLarge, message).with("limit_bytes", limit),
            Self::Compression(_) | Self::Broken { .. } => ApiError::new(Code::InvalidArgument, message),
        }
    }
}

impl From<BodyError> for Failure {
    fn from(error: BodyError) -> Self {
        Self::Body(error)
    }
}

impl From<SplitError> for Failure {
    fn from(error: SplitError) -> Self {
        Self::Split(error)
    }
}

impl From<PublishError> for Failure {
    fn from(error: PublishError) -> Self {
        Self::Publish(error)
    }
}

fn record_failure(line: u64, record: u64, error: &IncomingError) -> ApiError {
    let place: &dyn Display = match error {
        // In an array a record may begin anywhere on its line.
        IncomingError::Json { line_in_record: 1, column, .. } => &format!("line {line}, column {column} of the record"),
        IncomingError::Json { line_in_record, column, .. } => {
            &format!("line {}, column {column}", line + line_in_record.saturating_sub(1))
        }
        _ => &format!("line {line}"),
    };
    ApiError::new(Code::InvalidRecord, format!("{place}: {error}")).with("line", line).with("record", record)
}

/// A record that was read but not written, by its line.
fn produce_failure(error: &PublishError, places: &Places) -> ApiError {
    let api = ApiError::from(error);
    let line = api.details.get("record").and_then(|ordinal| places.line(ordinal.parse().ok()?));
    match line {
        Some(line) => ApiError { message: format!("line {line}: {}", api.message), ..api.with("line", line) },
        None => api,
    }
}

fn answer(summary: &ProduceSummary, warnings: Vec<String>) -> rest::PublishAnswer {
    let partition = |(partition, produced): (&i32, &tidegate_client::ProducedPartition)| rest::PublishedPartition {
        partition: *partition,
        records: produced.records,
        first_offset: produced.first_offset,
        last_offset: produced.last_offset,
    };
    let partitions = summary.partitions.iter().map(partition).collect();
    rest::PublishAnswer { records: summary.records, partitions, warnings }
}

/// How the body is cut into records, by its content type.
fn splitter(headers: &HeaderMap, limits: &RestLimits) -> Result<Splitter, ApiError> {
    let limit = limits.max_record_text_bytes;
    let given = headers.get(CONTENT_TYPE).map(|value| value.to_str().unwrap_or("?"));
    let media_type = given.and_then(|value| value.split(';').next()).map(|name| name.trim().to_ascii_lowercase());
    match media_type.as_deref() {
        Some("application/x-ndjson" | "application/ndjson" | "application/jsonl" | "application/x-jsonlines") => {
            Ok(Splitter::lines(limit))
        }
        Some("application/json") => Ok(Splitter::array(limit)),
        _ => {
            let given = given.map_or("no Content-Type".to_owned(), |given| format!("Content-Type: {given}"));
            let message = format!(
                "{given} does not say how to read the body; send one record a line as application/x-ndjson, or a JSON \
                 array as application/json"
            );
            Err(ApiError::new(Code::UnsupportedMediaType, message).with("field", "content-type"))
        }
    }
}

/// Reads on and throws away, within limits.
async fn drain(mut body: BodyDataStream) {
    let drain = async {
        let mut left = DRAIN_BYTES;
        while let Some(Ok(piece)) = body.next().await {
            left = left.saturating_sub(piece.len());
            if left == 0 {
                break;
            }
        }
    };
    // Whoever sends on for longer than that sees a reset.
    let _ = tokio::time::timeout(DRAIN_FOR, drain).await;
}

/// Which line each record sent stands on, as far as it can be said in little memory: runs of records on adjoining lines.
#[derive(Debug, Default)]
struct Places {
    /// The first record of a run, and its line.
    runs: Vec<(u64, u64)>,
    /// There were too many runs: records from this one on are not noted.
    full_at: Option<u64>,
}

impl Places {
    const MAX_RUNS: usize = 4_096;

    fn note(&mut self, record: u64, line: u64) {
        let follows = self.runs.last().is_some_and(|(first, on)| line == on + (record - first));
        if follows || self.full_at.is_some() {
            return;
        }
        if self.runs.len() == Self::MAX_RUNS {
            self.full_at = Some(record);
        } else {
            self.runs.push((record, line));
        }
    }

    fn line(&self, record: u64) -> Option<u64> {
        if self.full_at.is_some_and(|full_at| record >= full_at) {
            return None;
        }
        let after = self.runs.partition_point(|(first, _)| *first <= record);
        let (first, line) = self.runs.get(after.checked_sub(1)?)?;
        Some(line + (record - first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_leads_back_to_its_line() {
        let mut places = Places::default();
        for (record, line) in [(0, 1), (1, 2), (2, 5), (3, 6), (4, 6)] {
            places.note(record, line);
        }
        assert_eq!(places.runs.len(), 3);
        for (record, line) in [(0, 1), (1, 2), (2, 5), (3, 6), (4, 6)] {
            assert_eq!(places.line(record), Some(line));
        }
        assert_eq!(Places::default().line(0), None);
    }

    #[test]
    fn lines_all_over_the_place_cost_bounded_memory() {
        let mut places = Places::default();
        for record in 0..10_000 {
            places.note(record, record * 2 + 1);
        }
        assert_eq!(places.runs.len(), Places::MAX_RUNS);
        assert_eq!(places.line(4_095), Some(8_191));
        assert_eq!(places.line(4_096), None);
    }

    #[test]
    fn the_content_type_says_how_to_cut_and_others_are_refused() {
        let of = |value: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            if let Some(value) = value {
                headers.insert(CONTENT_TYPE, http::HeaderValue::from_static(value));
            }
            splitter(&headers, &RestLimits::default())
        };
        assert!(matches!(of(Some("application/x-ndjson")), Ok(Splitter::Lines(_))));
        assert!(matches!(of(Some("Application/NDJSON; charset=utf-8")), Ok(Splitter::Lines(_))));
        assert!(matches!(of(Some("application/json;charset=utf-8")), Ok(Splitter::Array(_))));
        for refused in [None, Some("text/plain"), Some("application/x-www-form-urlencoded")] {
            assert_eq!(of(refused).unwrap_err().code, Code::UnsupportedMediaType);
        }
    }
}

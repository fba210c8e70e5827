//! `GET /v1/topics/{topic}/records`: a range of a topic.

use std::convert::Infallible;
use std::sync::LazyLock;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{RawQuery, Request, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, TE, TRAILER};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};
use tidegate_api::{ApiError, Code};
use tidegate_model::Isolation;
use tokio::time::timeout;
use utoipa::IntoParams;

use super::answer::{END_TRAILER, RangeBody};
use super::error::RestError;
use super::openapi::{Failures, names};
use super::query::Query;
use super::{Rest, Topic, TopicPath};
use crate::engine::{OnDataLoss, RangeSpec, ReadRangeError, ReadRequest, TopicPayload};
use crate::formats::{Encoder, Format, Part};

/// Where the end statement of this answer is: `body`, `trailer`, or `none` when the format has it in a trailer and the
/// client has not said that it takes trailers.
pub(super) const END_DELIVERY: HeaderName = HeaderName::from_static("tidegate-end-delivery");

/// How long the head of an answer waits for the first frame. Most reads have it sooner; one that looks for its first record
/// for long begins its answer without.
const FIRST_FRAME_WAIT: Duration = Duration::from_millis(50);

/// The parameters of a read, for the OpenAPI document. [`read_request`] reads them; a test holds the two together.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "the fields are there to be described")]
pub(super) struct ReadParameters {
    /// Records with a timestamp at or after this time: RFC 3339 with an offset, a date (UTC), `1714521600s`,
    /// `1714521600000ms`, `now` or `-48h`. Write `%2B` for the `+` of an offset. Without it: from the log start.
    #[param(example = "2013-02-01")]
    from: Option<String>,
    /// Records with a timestamp before this time, in the same grammar, or `+1h` (write `%2B1h`): that long after `from`.
    /// Without it: now.
    #[param(example = "2013-03-01")]
    until: Option<String>,
    /// The first offset of each partition. Not with `from`, `until` or `last`.
    #[param(minimum = 0)]
    offset: Option<i64>,
    /// The offset after the last one. Without it, or when it is larger: the end noted when the request began.
    #[param(minimum = 0)]
    end_offset: Option<i64>,
    /// The newest so many records of each partition. Not with any of the others.
    #[param(minimum = 0)]
    last: Option<u64>,
    /// Only these partitions: several with commas between them, or the parameter given several times.
    #[param(style = Form, explode, example = json!([0]))]
    partition: Option<Vec<i32>>,
    /// At most so many records in all. An answer that the limit ended is not exhaustive and says so.
    #[param(minimum = 1)]
    limit: Option<u64>,
    /// `ndjson` (the default): one record a line, the end statement as the last line. `json`: one document. `values`: the
    /// bare values, one a line. `protobuf`: the values as stored, each behind its length as a varint.
    #[param(inline)]
    format: Option<FormatName>,
    /// Which records of transactions are seen: `read_committed` (the default) or `read_uncommitted`.
    #[param(inline)]
    isolation: Option<tidegate_api::rest::Isolation>,
    /// What happens when the log no longer holds records of the range: `fail` (the default) ends the answer with an error,
    /// `report` names the lost offsets in the end statement and goes on behind them.
    #[param(inline)]
    on_data_loss: Option<OnDataLossName>,
    /// Which cluster; `/v1/clusters` lists them. Without it: the default one.
    #[param(example = "default")]
    cluster: Option<String>,
}

/// The names of the formats.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "the variants are there to be described")]
enum FormatName {
    Ndjson,
    Json,
    Values,
    Protobuf,
}

/// What to do about lost records.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "the variants are there to be described")]
enum OnDataLossName {
    Fail,
    Report,
}

static NAMES: LazyLock<Vec<String>> = LazyLock::new(names::<ReadParameters>);

/// Read a range of a topic.
///
/// By time (`from`, `until`), by offset (`offset`, `end_offset`) or the newest records (`last`); without any of them, all
/// records until now. Ranges are half-open. Late records are found: the whole log behind `from` is looked at, and only
/// records of the range are sent.
///
/// A complete answer says so: `ndjson` by its last line, `{"end":{…}}`, `json` by its `end`, `values` and `protobuf` by the
/// trailer `Tidegate-End`, whose value is the end statement as compact JSON (without `partitions` where these would make
/// it longer than 8 KiB). Over HTTP/1.1 trailers are only sent to a client that sends `TE: trailers`; the header
/// `Tidegate-End-Delivery` says what this answer does. Without the trailer a client can still tell a complete answer from
/// an aborted one by the clean end of the transfer, but does not learn what the statement says.
///
/// When a read fails after its first byte, `ndjson` adds a line `{"error":{…}}`, and in every format the transfer is
/// aborted: no final chunk in HTTP/1.1, RST_STREAM in HTTP/2. An answer without its end is incomplete.
///
/// In `values` a record without a value is the line `null`, and a value that has no JSON form the line
/// `{"value_base64":"…"}`, counted in `values_not_converted`. `protobuf` gives the values of any topic as stored, each
/// behind its length as a varint (the parameter `messageType` of its media type names the message of a `protobuf` topic);
/// it cannot say that a record has no value: such a record ends it with an error.
#[utoipa::path(
    get,
    path = "/v1/topics/{topic}/records",
    operation_id = "read_records",
    tag = "records",
    params(TopicPath, ReadParameters),
    responses(
        (
            status = 200,
            description = "The records of the range.",
            headers(
                ("Tidegate-End-Delivery" = String, description = "Where the end statement is: body, trailer or none."),
                ("Trailer" = String, description = "`tidegate-end`, when the end statement comes as a trailer."),
            ),
            content(
                (tidegate_api::rest::Record = "application/x-ndjson"),
                (tidegate_api::rest::RecordList = "application/json"),
                (String = "application/x-protobuf"),
            )
        ),
        Failures,
    ),
)]
pub(super) async fn read_records(
    State(rest): State<Rest>,
    Topic(topic): Topic,
    RawQuery(query): RawQuery,
    request: Request,
) -> Result<Response, RestError> {
    let query = Query::parse(query.as_deref(), &NAMES)?;
    let format = format(&query)?;
    let read = read_request(topic, &query)?;
    if format.has_end_apart() && request.version() < Version::HTTP_11 {
        let message = format!(
            "format={} needs HTTP/1.1 or later: HTTP/1.0 cannot tell an aborted answer from a \
             complete one; ask for format=ndjson, whose last line says it",
            format.name()
        );
        return Err(ApiError::new(Code::InvalidArgument, message).with("field", "format").into());
    }
    let planned = rest.engine(&query)?.plan_read(read).await?;
    let values = planned.values();
    let media_type = media_type(format, values.payload());
    let encoder = Encoder::new(format, values, planned.chunk_target_bytes());
    let body = match *request.method() {
        // The head says nothing that would have to be read for it.
        Method::HEAD => Body::from_stream(stream::empty::<Result<Bytes, Infallible>>()),
        _ => Body::new(RangeBody::new(begin(planned.stream(encoder)).await?, format)),
    };

    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, media_type);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let delivery = match (format.has_end_apart(), takes_trailers(request.version(), request.headers())) {
        (false, _) => "body",
        (true, true) => {
            headers.insert(TRAILER, HeaderValue::from_name(END_TRAILER));
            "trailer"
        }
        (true, false) => "none",
    };
    headers.insert(END_DELIVERY, HeaderValue::from_static(delivery));
    Ok(response)
}

/// Waits a little for the first frame: a failure that comes before it still gets the status that it deserves.
async fn begin<S>(mut frames: S) -> Result<impl Stream<Item = Result<Part, ReadRangeError>> + Unpin, ReadRangeError>
where
    S: Stream<Item = Result<Part, ReadRangeError>> + Unpin,
{
    let first = match timeout(FIRST_FRAME_WAIT, frames.next()).await {
        Ok(Some(Err(error))) => return Err(error),
        Ok(first) => first,
        Err(_) => None,
    };
    Ok(stream::iter(first).chain(frames))
}

fn format(query: &Query<'_>) -> Result<Format, ApiError> {
    let words = Format::ALL.map(|format| (format.name(), format));
    Ok(query.word("format", &words)?.unwrap_or_default())
}

/// What the query asks to read.
fn read_request(topic: String, query: &Query<'_>) -> Result<ReadRequest, ApiError> {
    let isolations = [("read_committed", Isolation::ReadCommitted), ("read_uncommitted", Isolation::ReadUncommitted)];
    let on_data_loss = [("fail", OnDataLoss::Fail), ("report", OnDataLoss::Report)];
    let mut partitions = query.numbers::<i32>("partition")?;
    partitions.sort_unstable();
    partitions.dedup();
    if let Some(partition @ ..0) = partitions.first().copied() {
        return Err(negative("partition", i64::from(partition)));
    }
    let limit = query.number::<u64>("limit")?;
    if limit == Some(0) {
        let message = "limit=0 asks for nothing; leave it out for no limit";
        return Err(ApiError::new(Code::InvalidArgument, message).with("field", "limit"));
    }
    Ok(ReadRequest {
        topic,
        range: range(query)?,
        partitions,
        limit,
        isolation: query.word("isolation", &isolations)?.unwrap_or(Isolation::ReadCommitted),
        on_data_loss: query.word("on_data_loss", &on_data_loss)?.unwrap_or_default(),
    })
}

fn range(query: &Query<'_>) -> Result<RangeSpec, ApiError> {
    let time = query.given(&["from", "until"]);
    let offsets = query.given(&["offset", "end_offset"]);
    let last = query.given(&["last"]);
    let ways = [&time, &offsets, &last].into_iter().filter(|fields| !fields.is_empty()).count();
    if ways > 1 {
        let fields = [time, offsets, last].concat();
        let message = format!(
            "{} do not go together: ask by time (from, until), by offset (offset, end_offset), or for the newest records \
             (last)",
            fields.join(", ")
        );
        return Err(ApiError::new(Code::InvalidArgument, message).with("fields", fields.join(",")));
    }
    if let Some(count) = query.number("last")? {
        return Ok(RangeSpec::Last { count });
    }
    if !offsets.is_empty() {
        let side = |name| match query.number::<i64>(name)? {
            Some(offset @ ..0) => Err(negative(name, offset)),
            side => Ok(side),
        };
        return Ok(RangeSpec::Offsets { start: side("offset")?, end: side("end_offset")? });
    }
    let side = |name| query.one(name).map(|text| text.map(str::to_owned));
    Ok(RangeSpec::Time { from: side("from")?, until: side("until")? })
}

fn negative(field: &'static str, value: i64) -> ApiError {
    let message = format!("{field}={value} is negative; -1 and -2 are protocol codes of Kafka and mean nothing here");
    ApiError::new(Code::InvalidArgument, message).with("field", field).with("value", value)
}

/// The format's media type; that of `protobuf` names the message where it is known.
fn media_type(format: Format, payload: &TopicPayload) -> HeaderValue {
    let plain = HeaderValue::from_static(format.media_type());
    match (format, payload) {
        (Format::Protobuf, TopicPayload::Protobuf(message)) => {
            let named = format!("{}; messageType=\"{}\"", format.media_type(), message.full_name());
            HeaderValue::from_str(&named).unwrap_or(plain)
        }
        _ => plain,
    }
}

/// Whether trailers reach this client. HTTP/2 has room for them always; over HTTP/1.1 a client must ask.
fn takes_trailers(version: Version, headers: &HeaderMap) -> bool {
    let asks = |value: &HeaderValue| {
        value.to_str().is_ok_and(|value| value.split(',').any(|part| part.trim().eq_ignore_ascii_case("trailers")))
    };
    version >= Version::HTTP_2 || headers.get_all(TE).into_iter().any(asks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(raw: &str) -> Result<ReadRequest, ApiError> {
        read_request("t".to_owned(), &Query::parse(Some(raw), &NAMES)?)
    }

    #[test]
    fn an_empty_query_asks_for_everything_until_now() {
        assert_eq!(parsed("").unwrap(), ReadRequest::new("t"));
    }

    #[test]
    fn every_parameter_reaches_the_request() {
        let request = parsed(
            "from=2013-02-01&until=now&partition=3,1&partition=1&limit=7&isolation=read_uncommitted&on_data_loss=report",
        );
        let expected = ReadRequest {
            topic: "t".to_owned(),
            range: RangeSpec::Time { from: Some("2013-02-01".to_owned()), until: Some("now".to_owned()) },
            partitions: vec![1, 3],
            limit: Some(7),
            isolation: Isolation::ReadUncommitted,
            on_data_loss: OnDataLoss::Report,
        };
        assert_eq!(request.unwrap(), expected);
        assert_eq!(parsed("offset=0&end_offset=9").unwrap().range, RangeSpec::Offsets { start: Some(0), end: Some(9) });
        assert_eq!(parsed("end_offset=9").unwrap().range, RangeSpec::Offsets { start: None, end: Some(9) });
        assert_eq!(parsed("last=5").unwrap().range, RangeSpec::Last { count: 5 });
    }

    #[test]
    fn ways_of_asking_do_not_mix_and_the_error_names_the_fields() {
        for (raw, fields) in [
            ("from=now&offset=1", "from,offset"),
            ("until=now&last=1", "until,last"),
            ("last=1&end_offset=3&from=now", "from,end_offset,last"),
        ] {
            let error = parsed(raw).unwrap_err();
            assert_eq!((error.code, error.details["fields"].as_str()), (Code::InvalidArgument, fields));
        }
    }

    #[test]
    fn numbers_that_mean_nothing_are_refused_by_name() {
        for (raw, field) in [
            ("offset=-1", "offset"),
            ("end_offset=-2", "end_offset"),
            ("partition=-1", "partition"),
            ("partition=x", "partition"),
            ("limit=0", "limit"),
            ("last=-1", "last"),
            ("limit=18446744073709551616", "limit"),
        ] {
            let error = parsed(raw).unwrap_err();
            assert_eq!((error.code, error.details["field"].as_str()), (Code::InvalidArgument, field), "{raw}");
        }
    }

    #[test]
    fn trailers_are_for_http_2_and_for_who_asks() {
        let mut headers = HeaderMap::new();
        assert!(takes_trailers(Version::HTTP_2, &headers));
        assert!(!takes_trailers(Version::HTTP_11, &headers));
        headers.append(TE, HeaderValue::from_static("gzip"));
        assert!(!takes_trailers(Version::HTTP_11, &headers));
        headers.append(TE, HeaderValue::from_static("deflate, Trailers"));
        assert!(takes_trailers(Version::HTTP_11, &headers));
    }
}

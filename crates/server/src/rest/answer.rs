//! The body of a read: the engine's frames as an HTTP body that ends well only when the read did.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::Frame;
use tidegate_api::{ApiError, Code};
use tokio::time::Sleep;

use crate::engine::ReadRangeError;
use crate::formats::{Format, Part, ndjson};

/// The trailer that holds the end statement of a format without room for it.
pub(super) const END_TRAILER: HeaderName = HeaderName::from_static("tidegate-end");

/// How long a failed answer stays open before it is aborted. Both HTTP versions throw away what the abort overtakes; in
/// this time a client that keeps up receives what was written, the error line among it. It is a courtesy: what tells a
/// client that its answer is incomplete is that no end statement comes and the transfer is aborted.
const ABORT_AFTER: Duration = Duration::from_millis(100);

/// Why an answer was aborted. It reaches the server's log; the client sees an aborted transfer.
#[derive(Debug, thiserror::Error)]
#[error("the answer was aborted: {0}")]
pub(super) struct Aborted(ApiError);

/// The frames of one read as an HTTP body.
pub(super) struct RangeBody<S> {
    frames: S,
    format: Format,
    state: State,
}

enum State {
    /// Frames are coming.
    Open,
    /// The read is complete, and so is the answer.
    Complete,
    /// The read has failed; the transfer will be aborted.
    Failed { error: Option<ApiError>, abort: Pin<Box<Sleep>> },
}

impl<S: Stream<Item = Result<Part, ReadRangeError>> + Unpin> RangeBody<S> {
    pub(super) fn new(frames: S, format: Format) -> Self {
        Self { frames, format, state: State::Open }
    }

    /// What a failure leaves to send: in `ndjson` a line that says what it was.
    fn fail(&mut self, error: ApiError) -> Option<Bytes> {
        tracing::warn!(code = error.code.name(), message = error.message, "a read failed and its answer is aborted");
        let line = (self.format == Format::Ndjson).then(|| {
            let mut line = Vec::new();
            ndjson::write_error(&mut line, &error);
            line.into()
        });
        self.state = State::Failed { error: Some(error), abort: Box::pin(tokio::time::sleep(ABORT_AFTER)) };
        line
    }
}

impl<S: Stream<Item = Result<Part, ReadRangeError>> + Unpin> http_body::Body for RangeBody<S> {
    type Data = Bytes;
    type Error = Aborted;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        loop {
            let this = &mut *self;
            match &mut this.state {
                State::Complete => return Poll::Ready(None),
                State::Failed { error, abort } => {
                    std::task::ready!(abort.as_mut().poll(cx));
                    return Poll::Ready(error.take().map(|error| Err(Aborted(error))));
                }
                State::Open => {}
            }
            let failure = match std::task::ready!(Pin::new(&mut this.frames).poll_next(cx)) {
                Some(Ok(Part::Data(bytes))) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Some(Ok(Part::End { apart })) => {
                    this.state = State::Complete;
                    // The statement is JSON in ASCII, which any header can hold.
                    match apart.map(HeaderValue::from_maybe_shared) {
                        None => continue,
                        Some(Ok(statement)) => {
                            let trailers = HeaderMap::from_iter([(END_TRAILER, statement)]);
                            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                        }
                        Some(Err(error)) => ApiError::new(Code::Internal, format!("the end statement: {error}")),
                    }
                }
                Some(Err(error)) => error.into(),
                None => ApiError::new(Code::Internal, "the read ended without its end statement"),
            };
            if let Some(line) = this.fail(failure) {
                return Poll::Ready(Some(Ok(Frame::data(line))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::BodyExt as _;

    use super::*;

    type Frames = Vec<Result<Part, ReadRangeError>>;

    fn data(text: &'static str) -> Part {
        Part::Data(Bytes::from_static(text.as_bytes()))
    }

    /// The data, the trailer, and the failure.
    async fn collect(format: Format, frames: Frames) -> (String, Option<HeaderValue>, Option<String>) {
        let mut body = RangeBody::new(stream::iter(frames), format);
        let mut text = Vec::new();
        let mut trailer = None;
        while let Some(frame) = body.frame().await {
            match frame {
                Err(error) => return (String::from_utf8(text).unwrap(), trailer, Some(error.to_string())),
                Ok(frame) => match frame.into_data() {
                    Ok(data) => text.extend_from_slice(&data),
                    Err(frame) => trailer = frame.into_trailers().unwrap().remove(END_TRAILER),
                },
            }
        }
        (String::from_utf8(text).unwrap(), trailer, None)
    }

    #[tokio::test]
    async fn a_complete_read_ends_well_with_its_statement_where_the_format_has_it() {
        let frames = vec![Ok(data("{}\n")), Ok(data("{\"end\":{}}\n")), Ok(Part::End { apart: None })];
        assert_eq!(collect(Format::Ndjson, frames).await, ("{}\n{\"end\":{}}\n".to_owned(), None, None));
        let apart = Some(Bytes::from_static(b"{\"records_sent\":1}"));
        let (text, trailer, failure) = collect(Format::Values, vec![Ok(data("{}\n")), Ok(Part::End { apart })]).await;
        assert_eq!((text.as_str(), failure), ("{}\n", None));
        assert_eq!(trailer.unwrap(), "{\"records_sent\":1}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_a_line_in_ndjson_and_an_abort_everywhere() {
        for format in Format::ALL {
            let frames = vec![Ok(data("x\n")), Err(ReadRangeError::ShuttingDown), Ok(data("never\n"))];
            let (text, trailer, failure) = collect(format, frames).await;
            let expected = if format == Format::Ndjson { "x\n{\"error\":{\"code\":\"SHUTTING_DOWN\"," } else { "x\n" };
            assert!(text.starts_with(expected) && !text.contains("never"), "{text}");
            assert_eq!(format == Format::Ndjson, text.len() > 2);
            assert_eq!(trailer, None);
            assert!(failure.is_some(), "{}", format.name());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn frames_that_end_without_the_end_are_a_failure() {
        for format in Format::ALL {
            let (_, trailer, failure) = collect(format, vec![Ok(data("x\n"))]).await;
            assert_eq!(trailer, None);
            assert!(failure.unwrap().contains("without its end statement"));
        }
    }
}

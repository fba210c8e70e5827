//! Compressed answers, as `Accept-Encoding` asks for.
//!
//! The body is compressed piece by piece as it is produced. Whenever nothing more is ready the encoder is flushed, so that
//! a compressed record waits no longer than an uncompressed one. Trailers come behind the compressed end, and an answer
//! that is aborted stays aborted: it gets no end, neither of the compressed stream nor of the transfer.

use std::io::{self, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use bytes::{Buf as _, Bytes};
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, VARY};
use http::{HeaderMap, HeaderValue, Method};
use http_body::{Body as _, Frame, SizeHint};

/// What is compressed at once: a task that compresses a large frame lets others run in between.
const PIECE_BYTES: usize = 64 << 10;

/// A body that is known to be shorter than this goes out as it is: its headers weigh more.
const WORTHWHILE_BYTES: u64 = 860;

/// A middle way for JSON: most of what the higher levels gain, at several times their speed.
const GZIP_LEVEL: u32 = 4;

/// Level 1 keeps a window of 512 KiB: a reader costs about 1 MiB of encoder memory, level 3 four times that.
const ZSTD_LEVEL: i32 = 1;

/// A way of compressing that HTTP knows by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Gzip,
    Zstd,
}

impl Encoding {
    fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    /// The client's choice; between equals, zstd.
    fn accepted(headers: &HeaderMap) -> Option<Self> {
        let mut zstd = None;
        let mut gzip = None;
        let mut any = None;
        let values = headers.get_all(ACCEPT_ENCODING).into_iter().filter_map(|value| value.to_str().ok());
        for entry in values.flat_map(|value| value.split(',')) {
            let mut parts = entry.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default().to_ascii_lowercase();
            let quality = parts
                .find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")))
                // A weight that cannot be read is no wish.
                .map_or(1.0, |weight| weight.trim().parse::<f32>().unwrap_or(0.0));
            match name.as_str() {
                "zstd" => zstd = Some(quality),
                "gzip" | "x-gzip" => gzip = Some(quality),
                "*" => any = Some(quality),
                _ => {}
            }
        }
        let zstd = zstd.or(any).unwrap_or(0.0);
        let gzip = gzip.or(any).unwrap_or(0.0);
        match (zstd > 0.0, gzip > 0.0) {
            (true, _) if zstd >= gzip => Some(Self::Zstd),
            (_, true) => Some(Self::Gzip),
            _ => None,
        }
    }
}

/// Middleware: compresses the answer when the request allows it.
pub(super) async fn compress(request: Request, next: Next) -> Response {
    let encoding = Encoding::accepted(request.headers());
    let is_head = request.method() == Method::HEAD;
    let mut response = next.run(request).await;
    response.headers_mut().append(VARY, HeaderValue::from_static("accept-encoding"));
    let small = response.body().size_hint().upper().is_some_and(|bytes| bytes < WORTHWHILE_BYTES);
    let Some(encoding) = encoding else { return response };
    if is_head || small || response.headers().contains_key(CONTENT_ENCODING) {
        return response;
    }
    let encoder = match Encoder::new(encoding) {
        Ok(encoder) => encoder,
        Err(error) => {
            tracing::warn!(%error, encoding = encoding.name(), "an answer goes out uncompressed");
            return response;
        }
    };
    response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static(encoding.name()));
    response.headers_mut().remove(CONTENT_LENGTH);
    response.map(|body| Body::new(CompressedBody::new(body, encoder)))
}

enum Encoder {
    Gzip(GzEncoder<Vec<u8>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

impl Encoder {
    fn new(encoding: Encoding) -> io::Result<Self> {
        Ok(match encoding {
            Encoding::Gzip => Self::Gzip(GzEncoder::new(Vec::new(), flate2::Compression::new(GZIP_LEVEL))),
            Encoding::Zstd => Self::Zstd(zstd::stream::write::Encoder::new(Vec::new(), ZSTD_LEVEL)?),
        })
    }

    fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        match self {
            Self::Gzip(encoder) => encoder.write_all(piece),
            Self::Zstd(encoder) => encoder.write_all(piece),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Gzip(encoder) => encoder.flush(),
            Self::Zstd(encoder) => encoder.flush(),
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Gzip(encoder) => encoder.try_finish(),
            Self::Zstd(encoder) => encoder.do_finish(),
        }
    }

    fn output(&mut self) -> &mut Vec<u8> {
        match self {
            Self::Gzip(encoder) => encoder.get_mut(),
            Self::Zstd(encoder) => encoder.get_mut(),
        }
    }
}

/// What comes behind the compressed bytes.
enum Tail {
    End,
    Trailers(HeaderMap),
    Error(axum::Error),
}

struct CompressedBody {
    inner: Body,
    encoder: Encoder,
    /// What the inner body gave and the encoder has not seen.
    input: Bytes,
    /// The encoder holds bytes that a flush would bring out.
    unflushed: bool,
    tail: Option<Tail>,
    done: bool,
}

impl CompressedBody {
    fn new(inner: Body, encoder: Encoder) -> Self {
        Self { inner, encoder, input: Bytes::new(), unflushed: false, tail: None, done: false }
    }

    fn take_output(&mut self) -> Option<Bytes> {
        let output = std::mem::take(self.encoder.output());
        (!output.is_empty()).then(|| output.into())
    }

    /// Compresses what the inner body has until a piece of output is full or nothing more is ready.
    fn advance(&mut self, cx: &mut Context<'_>) -> io::Result<Poll<()>> {
        while self.encoder.output().len() < PIECE_BYTES {
            if !self.input.is_empty() {
                let piece = self.input.len().min(PIECE_BYTES);
                self.encoder.write(&self.input[..piece])?;
                self.input.advance(piece);
                self.unflushed = true;
                continue;
            }
            match Pin::new(&mut self.inner).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.input = data,
                    Err(frame) => {
                        self.encoder.finish()?;
                        self.tail = Some(frame.into_trailers().map_or(Tail::End, Tail::Trailers));
                        return Ok(Poll::Ready(()));
                    }
                },
                Poll::Ready(Some(Err(error))) => {
                    // What came before the failure still goes out, but no end does.
                    self.encoder.flush()?;
                    self.tail = Some(Tail::Error(error));
                    return Ok(Poll::Ready(()));
                }
                Poll::Ready(None) => {
                    self.encoder.finish()?;
                    self.tail = Some(Tail::End);
                    return Ok(Poll::Ready(()));
                }
                Poll::Pending => {
                    if self.unflushed {
                        self.encoder.flush()?;
                        self.unflushed = false;
                    }
                    return Ok(if self.encoder.output().is_empty() { Poll::Pending } else { Poll::Ready(()) });
                }
            }
        }
        Ok(Poll::Ready(()))
    }
}

impl http_body::Body for CompressedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        if this.done {
            return Poll::Ready(None);
        }
        if this.tail.is_none() {
            match this.advance(cx) {
                Ok(Poll::Ready(())) => {}
                Ok(Poll::Pending) => return Poll::Pending,
                Err(error) => this.tail = Some(Tail::Error(axum::Error::new(error))),
            }
        }
        if let Some(output) = this.take_output() {
            return Poll::Ready(Some(Ok(Frame::data(output))));
        }
        this.done = true;
        match this.tail.take() {
            Some(Tail::Trailers(trailers)) => Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
            Some(Tail::Error(error)) => Poll::Ready(Some(Err(error))),
            Some(Tail::End) | None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.done
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use futures_util::StreamExt as _;
    use http_body_util::{BodyExt as _, StreamBody};
    use tokio::sync::mpsc;

    use super::*;

    fn accepted(value: &'static str) -> Option<Encoding> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(value));
        Encoding::accepted(&headers)
    }

    #[test]
    fn the_client_chooses_and_zstd_wins_a_tie() {
        assert_eq!(Encoding::accepted(&HeaderMap::new()), None);
        assert_eq!(accepted("gzip, deflate, br, zstd"), Some(Encoding::Zstd));
        assert_eq!(accepted("gzip;q=1.0, zstd;q=0.5"), Some(Encoding::Gzip));
        assert_eq!(accepted("zstd; q=0, GZIP"), Some(Encoding::Gzip));
        assert_eq!(accepted("x-gzip"), Some(Encoding::Gzip));
        assert_eq!(accepted("*"), Some(Encoding::Zstd));
        assert_eq!(accepted("*;q=0.1, zstd;q=0"), Some(Encoding::Gzip));
        for none in ["", "identity", "br", "gzip;q=0", "*;q=0", "gzip;q=x"] {
            assert_eq!(accepted(none), None, "{none}");
        }
    }

    type Piece = Result<Frame<Bytes>, io::Error>;

    fn compressed(encoding: Encoding) -> (mpsc::UnboundedSender<Piece>, CompressedBody) {
        let (pieces, receiver) = mpsc::unbounded_channel();
        let stream = tokio_stream::wrappers::UnboundedReceiverStream::new(receiver);
        let inner = Body::new(StreamBody::new(stream.map(|piece: Piece| piece.map_err(axum::Error::new))));
        (pieces, CompressedBody::new(inner, Encoder::new(encoding).unwrap()))
    }

    /// As much of the text as can be read from what has come.
    fn readable(encoding: Encoding, bytes: &[u8]) -> (String, bool) {
        let mut text = Vec::new();
        let mut buffer = [0_u8; 1_000];
        let mut reader: Box<dyn io::Read> = match encoding {
            Encoding::Gzip => Box::new(flate2::read::GzDecoder::new(bytes)),
            Encoding::Zstd => Box::new(zstd::stream::read::Decoder::new(bytes).unwrap()),
        };
        let whole = loop {
            match reader.read(&mut buffer) {
                Ok(0) => break true,
                Ok(read) => text.extend_from_slice(&buffer[..read]),
                Err(_) => break false,
            }
        };
        (String::from_utf8(text).unwrap(), whole)
    }

    #[tokio::test]
    async fn a_piece_can_be_read_before_the_next_one_is_there() {
        for encoding in [Encoding::Gzip, Encoding::Zstd] {
            let (pieces, mut body) = compressed(encoding);
            let mut received = Vec::new();
            for number in 1..=3 {
                pieces.send(Ok(Frame::data(Bytes::from(format!("{{\"n\":{number}}}\n"))))).unwrap();
                // The sender is alive and silent: only a flush brings the piece out.
                let frame = body.frame().await.unwrap().unwrap();
                received.extend_from_slice(frame.data_ref().unwrap());
                let (text, whole) = readable(encoding, &received);
                assert_eq!(text.lines().count(), number, "{text:?}");
                assert!(!whole, "no end may be there yet");
            }
            drop(pieces);
            while let Some(frame) = body.frame().await {
                received.extend_from_slice(frame.unwrap().data_ref().unwrap());
            }
            assert_eq!(readable(encoding, &received), ("{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n".to_owned(), true));
        }
    }

    #[tokio::test]
    async fn trailers_come_behind_the_end() {
        for encoding in [Encoding::Gzip, Encoding::Zstd] {
            let (pieces, body) = compressed(encoding);
            let text = "the same line again and again\n".repeat(20_000);
            pieces.send(Ok(Frame::data(Bytes::from(text.clone())))).unwrap();
            let mut trailers = HeaderMap::new();
            trailers.insert("tidegate-end", HeaderValue::from_static("{}"));
            pieces.send(Ok(Frame::trailers(trailers.clone()))).unwrap();
            drop(pieces);
            let collected = body.collect().await.unwrap();
            assert_eq!(collected.trailers(), Some(&trailers));
            let bytes = collected.to_bytes();
            assert!(bytes.len() < text.len() / 10);
            assert_eq!(readable(encoding, &bytes), (text, true));
        }
    }

    #[tokio::test]
    async fn a_failure_brings_out_what_came_before_and_no_end() {
        for encoding in [Encoding::Gzip, Encoding::Zstd] {
            let (pieces, mut body) = compressed(encoding);
            pieces.send(Ok(Frame::data(Bytes::from_static(b"{\"error\":{}}\n")))).unwrap();
            pieces.send(Err(io::Error::other("gone"))).unwrap();
            let mut received = Vec::new();
            let error = loop {
                match body.frame().await.unwrap() {
                    Ok(frame) => received.extend_from_slice(frame.data_ref().unwrap()),
                    Err(error) => break error,
                }
            };
            assert!(error.to_string().contains("gone"), "{error}");
            assert_eq!(readable(encoding, &received), ("{\"error\":{}}\n".to_owned(), false));
            assert!(body.frame().await.is_none());
        }
    }
}

//! Request bodies that come compressed.
//!
//! The text comes out in small pieces, each the work of one bounded step, so that a bomb costs no more memory than an
//! honest body and the caller can let others run between two steps. How much text a request may have in all is for the
//! caller to count.

use std::io;

use bytes::{Buf as _, Bytes};
use flate2::{Decompress, FlushDecompress, Status};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use tidegate_api::{ApiError, Code};
use zstd::stream::raw::{DParameter, InBuffer, Operation as _, OutBuffer};

/// The most that one step takes in, and the most text that it gives out.
const PIECE_BYTES: usize = 64 << 10;

/// zstd's window is memory that a few bytes can ask for; 8 MiB is what RFC 9659 allows over HTTP.
const ZSTD_WINDOW_LOG: u32 = 23;

/// The default of zlib: a window of 32 KiB.
const GZIP_WINDOW_BITS: u8 = 15;

/// Turns what came over the wire into text.
pub(super) struct BodyDecoder {
    method: Method,
    input: Bytes,
    /// Room for the next piece of text, kept when a step brought none.
    spare: Vec<u8>,
}

enum Method {
    Identity,
    Gzip {
        state: Decompress,
        /// A member has begun and has not ended.
        open: bool,
    },
    Zstd {
        state: zstd::stream::raw::Decoder<'static>,
        /// A frame has begun and has not ended.
        open: bool,
    },
}

impl BodyDecoder {
    /// The decoder for the request's `Content-Encoding`.
    pub(super) fn new(headers: &HeaderMap) -> Result<Self, ApiError> {
        let mut names = headers.get_all(CONTENT_ENCODING).into_iter();
        let name = names.next().map_or("identity", |name| name.to_str().unwrap_or("?").trim());
        let method = match name.to_ascii_lowercase().as_str() {
            _ if names.next().is_some() => Err(unsupported("several")),
            "identity" => Ok(Method::Identity),
            "gzip" | "x-gzip" => Ok(Method::Gzip { state: Decompress::new_gzip(GZIP_WINDOW_BITS), open: false }),
            "zstd" => {
                let state = zstd::stream::raw::Decoder::new().and_then(|mut state| {
                    state.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG))?;
                    Ok(state)
                });
                let internal = |error: io::Error| ApiError::new(Code::Internal, format!("no zstd decoder: {error}"));
                Ok(Method::Zstd { state: state.map_err(internal)?, open: false })
            }
            _ => Err(unsupported(name)),
        };
        Ok(Self { method: method?, input: Bytes::new(), spare: Vec::new() })
    }

    /// Whether the body is its own text.
    pub(super) fn is_identity(&self) -> bool {
        matches!(self.method, Method::Identity)
    }

    /// Gives it what came next. What came before must be used up: `next` has answered `None`.
    pub(super) fn feed(&mut self, input: Bytes) {
        self.input = input;
    }

    /// Takes one step. What comes out is the next piece of text, which may be empty: a header, or a frame without content.
    /// `None`: more input is needed.
    pub(super) fn next(&mut self) -> io::Result<Option<Bytes>> {
        let step = self.input.len().min(PIECE_BYTES);
        if self.is_identity() {
            return Ok((step > 0).then(|| self.input.split_to(step)));
        }
        self.spare.resize(PIECE_BYTES, 0);
        let input = self.input.get(..step).unwrap_or_default();
        let (read, written) = match &mut self.method {
            Method::Identity => (0, 0),
            Method::Gzip { state, open } => {
                let (read_before, written_before) = (state.total_in(), state.total_out());
                let status = state.decompress(input, &mut self.spare, FlushDecompress::None)?;
                let read = usize::try_from(state.total_in() - read_before).map_err(io::Error::other)?;
                let written = usize::try_from(state.total_out() - written_before).map_err(io::Error::other)?;
                *open = (*open || read > 0) && status != Status::StreamEnd;
                if status == Status::StreamEnd {
                    // Another member may follow.
                    *state = Decompress::new_gzip(GZIP_WINDOW_BITS);
                }
                (read, written)
            }
            Method::Zstd { state, open } => {
                let mut input = InBuffer::around(input);
                let mut output = OutBuffer::around(self.spare.as_mut_slice());
                let hint = state.run(&mut input, &mut output)?;
                let (read, written) = (input.pos(), output.pos());
                *open = if read > 0 || written > 0 { hint != 0 } else { *open };
                (read, written)
            }
        };
        self.input.advance(read);
        if written > 0 {
            let mut piece = std::mem::take(&mut self.spare);
            piece.truncate(written);
            return Ok(Some(piece.into()));
        }
        Ok((read > 0).then(Bytes::new))
    }

    /// Checks that the body ended where its compression does.
    pub(super) fn finish(&self) -> io::Result<()> {
        match self.method {
            Method::Gzip { open: true, .. } | Method::Zstd { open: true, .. } => {
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the compressed body is cut off"))
            }
            _ => Ok(()),
        }
    }
}

fn unsupported(name: &str) -> ApiError {
    let message = format!("a body with Content-Encoding {name} is not taken; send it as it is, or as gzip or zstd");
    ApiError::new(Code::UnsupportedMediaType, message).with("content_encoding", name)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use http::HeaderValue;

    use super::*;

    fn decoder(encoding: &'static str) -> BodyDecoder {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(encoding));
        BodyDecoder::new(&headers).unwrap()
    }

    fn decode(encoding: &'static str, body: &[u8], size: usize) -> io::Result<Vec<u8>> {
        let mut decoder = decoder(encoding);
        let mut text = Vec::new();
        for piece in body.chunks(size) {
            decoder.feed(Bytes::copy_from_slice(piece));
            while let Some(piece) = decoder.next()? {
                assert!(encoding == "identity" || piece.len() <= PIECE_BYTES);
                text.extend_from_slice(&piece);
            }
        }
        decoder.finish()?;
        Ok(text)
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn encoded(encoding: &str, text: &[u8]) -> Vec<u8> {
        match encoding {
            "gzip" => gzip(text),
            "zstd" => zstd::stream::encode_all(text, 3).unwrap(),
            _ => text.to_vec(),
        }
    }

    #[test]
    fn a_body_comes_out_as_it_went_in_however_it_is_cut() {
        let text: Vec<u8> = (0..200_000_u32).flat_map(|n| n.to_string().into_bytes()).collect();
        for encoding in ["identity", "gzip", "zstd"] {
            let body = encoded(encoding, &text);
            for size in [7, 8_192, body.len()] {
                assert!(decode(encoding, &body, size).unwrap() == text, "{encoding} in pieces of {size}");
            }
            assert_eq!(decode(encoding, &encoded(encoding, b""), 3).unwrap(), b"");
            assert_eq!(decode(encoding, b"", 1).unwrap(), b"");
        }
    }

    #[test]
    fn several_members_or_frames_are_one_body() {
        for encoding in ["gzip", "zstd"] {
            let body = [encoded(encoding, b"one\n"), encoded(encoding, b""), encoded(encoding, b"two\n")].concat();
            for size in 1..=body.len() {
                assert_eq!(decode(encoding, &body, size).unwrap(), b"one\ntwo\n", "{encoding} in pieces of {size}");
            }
        }
    }

    #[test]
    fn a_cut_or_damaged_body_is_an_error() {
        let text = b"some text that is long enough to be compressed, long enough, long enough";
        for encoding in ["gzip", "zstd"] {
            let body = encoded(encoding, text);
            for cut in 1..body.len() {
                assert!(decode(encoding, &body[..cut], 5).is_err(), "{encoding} cut at {cut}");
            }
            assert!(decode(encoding, b"plain text", 5).is_err(), "{encoding}");
            let trailing = [&body[..], b"more"].concat();
            assert!(decode(encoding, &trailing, trailing.len()).is_err(), "{encoding}");
        }
    }

    #[test]
    fn a_frame_that_asks_for_a_huge_window_is_refused() {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(27).unwrap();
        encoder.write_all(&[b'x'; 1_000]).unwrap();
        encoder.flush().unwrap();
        let body = encoder.finish().unwrap();
        assert!(decode("zstd", &body, body.len()).is_err());
    }

    #[test]
    fn an_unknown_encoding_is_refused() {
        for encoding in ["br", "gzip, zstd", "deflate"] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_ENCODING, HeaderValue::from_str(encoding).unwrap());
            assert_eq!(BodyDecoder::new(&headers).err().unwrap().code, Code::UnsupportedMediaType);
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            headers.append(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            assert!(BodyDecoder::new(&headers).is_err());
        }
    }
}

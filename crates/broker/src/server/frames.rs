//! Reading request frames off a connection.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tidegate_wire::{FrameError, FrameLimit, read_frame_size};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Instant, timeout, timeout_at};

use crate::config::BrokerLimits;
use crate::memory::{Budget, Lease, Pace, RequestMemory};
use crate::request::{FrameKind, RequestError};
use crate::shared::NotCarriedOut;

/// A frame this small takes nothing from the shared budget: the number of connections bounds what all of them hold.
const FREE_BYTES: usize = 1024;
/// What has arrived behind a frame larger than this is copied away from it.
const SHARED_BYTES: usize = 8 * 1024;
/// The least room that is made for what arrives next.
const LEAST_ROOM: usize = 4 * 1024;
/// From here on a frame gets the room that it claims.
const TRUSTED_BYTES: usize = 64 * 1024;

/// One request frame, and what it holds of the memory for requests.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) bytes: Bytes,
    pub(super) leases: Option<[Lease; 2]>,
}

/// Why no frame can be read any more.
#[derive(Debug, thiserror::Error)]
pub(super) enum FrameReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the peer closed the connection inside a request")]
    Cut,
    #[error("the peer was silent for {0:?}")]
    Idle(Duration),
    #[error("a request did not arrive within {0:?}")]
    Slow(Duration),
    #[error("a request of {bytes} bytes came too slowly while others waited for its memory")]
    Lagging { bytes: usize },
    #[error(transparent)]
    Size(#[from] FrameError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    NotCarriedOut(#[from] NotCarriedOut),
}

/// Takes frames off a stream. Memory grows with the bytes that arrive, not with the size that a frame claims.
#[derive(Debug, Default)]
pub(super) struct FrameReader {
    buffer: BytesMut,
}

impl FrameReader {
    /// Whether nothing of the next frame is here yet.
    pub(super) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Waits until a frame begins; `false` when the peer closed the connection instead.
    pub(super) async fn wait<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        limits: &BrokerLimits,
    ) -> Result<bool, FrameReadError> {
        if !self.buffer.is_empty() {
            return Ok(true);
        }
        self.buffer.reserve(LEAST_ROOM);
        let read = timeout(limits.idle_timeout, stream.read_buf(&mut self.buffer)).await;
        Ok(read.map_err(|_| FrameReadError::Idle(limits.idle_timeout))?? > 0)
    }

    /// The next frame; `None` when the peer closed the connection between two.
    pub(super) async fn next<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        limits: &BrokerLimits,
        memory: &RequestMemory,
    ) -> Result<Option<Frame>, FrameReadError> {
        if !self.wait(stream, limits).await? {
            return Ok(None);
        }
        let deadline = Instant::now() + limits.frame_timeout;
        let rest = self.rest_of_frame(stream, limits, memory);
        timeout_at(deadline, rest).await.map_err(|_| FrameReadError::Slow(limits.frame_timeout))?.map(Some)
    }

    async fn rest_of_frame<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        limits: &BrokerLimits,
        memory: &RequestMemory,
    ) -> Result<Frame, FrameReadError> {
        let largest = FrameLimit::new(limits.max_produce_bytes.max(limits.max_request_bytes));
        let prefix = self.peek::<4, _>(0, stream).await?;
        let size = read_frame_size(prefix, largest)?;
        if size < LEAST_FRAME {
            return Err(RequestError::Short { bytes: size }.into());
        }
        let kind = FrameKind::of(self.peek::<2, _>(4, stream).await?, limits);
        kind.check(size)?;
        let leases = if size > FREE_BYTES {
            let class = memory.of(kind.is_produce(), size);
            let arriving = class.arriving.take(size).await?;
            self.fill(4 + size, stream, Some(&class.arriving)).await?;
            Some([arriving, class.decoded.take(kind.memory(size) - size).await?])
        } else {
            self.fill(4 + size, stream, None).await?;
            None
        };

        let mut bytes = self.buffer.split_to(4 + size).freeze();
        let _prefix = bytes.split_to(4);
        if size > SHARED_BYTES || self.buffer.is_empty() {
            // What is left shares its memory with the frame, and would keep it.
            self.buffer = BytesMut::from(&self.buffer[..]);
        }
        Ok(Frame { bytes, leases })
    }

    /// `N` bytes from `at` on, left where they are.
    async fn peek<const N: usize, S: AsyncRead + Unpin>(
        &mut self,
        at: usize,
        stream: &mut S,
    ) -> Result<[u8; N], FrameReadError> {
        self.fill(at + N, stream, None).await?;
        let bytes = self.buffer.get(at..).and_then(<[u8]>::first_chunk);
        bytes.copied().ok_or(FrameReadError::Cut)
    }

    /// Reads until the buffer holds `bytes`; they are paid from `budget`.
    async fn fill<S: AsyncRead + Unpin>(
        &mut self,
        bytes: usize,
        stream: &mut S,
        budget: Option<&Budget>,
    ) -> Result<(), FrameReadError> {
        let mut pace = Pace::new(bytes.saturating_sub(self.buffer.len()));
        while let Some(missing) = bytes.checked_sub(self.buffer.len()).filter(|missing| *missing > 0) {
            // In proportion to what is here, so that a claimed size costs little before its bytes come; once a good part has
            // come, all of it at once, which the lease covers.
            let arrived = self.buffer.len();
            let room =
                if arrived < TRUSTED_BYTES { missing.min(arrived.saturating_mul(4).max(LEAST_ROOM)) } else { missing };
            self.buffer.reserve(room);
            let read = stream.read_buf(&mut self.buffer);
            let Some(budget) = budget else {
                if read.await? == 0 {
                    return Err(FrameReadError::Cut);
                }
                continue;
            };
            match timeout(Pace::LOOK, read).await {
                Ok(Ok(0)) => return Err(FrameReadError::Cut),
                Ok(read) => pace.moved(read?),
                Err(_) => {}
            }
            if budget.is_short() && pace.is_slow() {
                return Err(FrameReadError::Lagging { bytes });
            }
        }
        Ok(())
    }
}

/// API key, version and correlation id.
const LEAST_FRAME: usize = 8;

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    fn limits() -> BrokerLimits {
        BrokerLimits {
            idle_timeout: Duration::from_secs(60),
            frame_timeout: Duration::from_secs(60),
            max_request_bytes: 1 << 16,
            max_produce_bytes: 1 << 24,
            ..BrokerLimits::default()
        }
    }

    async fn read_all(sent: &[u8]) -> (Vec<Bytes>, Option<FrameReadError>) {
        let (mut near, mut far) = tokio::io::duplex(1 << 10);
        let sent = sent.to_vec();
        let writing = tokio::spawn(async move {
            // The reader may hang up.
            let _ = far.write_all(&sent).await;
        });
        let (mut reader, memory) = (FrameReader::default(), RequestMemory::new(1 << 20));
        let mut frames = Vec::new();
        let end = loop {
            match reader.next(&mut near, &limits(), &memory).await {
                Ok(Some(frame)) => frames.push(frame.bytes),
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        drop(near);
        writing.await.unwrap();
        (frames, end)
    }

    fn frame(api_key: i16, body: usize) -> Vec<u8> {
        let mut bytes = i32::try_from(body + 8).unwrap().to_be_bytes().to_vec();
        bytes.extend(api_key.to_be_bytes());
        bytes.extend([0, 3, 1, 2, 3, 4]);
        bytes.extend((0..body).map(|n| n.to_be_bytes()[7]));
        bytes
    }

    #[tokio::test]
    async fn frames_of_all_sizes_come_through_one_after_another() {
        let bodies = [0, 1, 4_000, 60_000, 7, 65_000, 0];
        let sent: Vec<u8> = bodies.iter().flat_map(|body| frame(18, *body)).collect();
        let (frames, end) = read_all(&sent).await;
        assert!(end.is_none(), "{end:?}");
        let expected: Vec<_> = bodies.iter().map(|body| frame(18, *body)[4..].to_vec()).collect();
        assert_eq!(frames, expected);
    }

    #[tokio::test]
    async fn a_frame_larger_than_its_kind_needs_is_refused_before_it_is_read() {
        let (_, end) = read_all(&frame(18, 1 << 16)).await;
        assert!(matches!(end, Some(FrameReadError::Request(RequestError::TooLarge { .. }))), "{end:?}");
        let (frames, end) = read_all(&frame(0, 1 << 20)).await;
        assert!(end.is_none() && frames.len() == 1, "a produce request may be that large");
    }

    #[tokio::test]
    async fn sizes_that_cannot_be_are_named() {
        let (_, end) = read_all(&[0xff, 0xff, 0xff, 0xff, 0, 0]).await;
        assert!(matches!(end, Some(FrameReadError::Size(FrameError::Negative { .. }))), "{end:?}");
        let (_, end) = read_all(&[0x16, 0x03, 0x01, 0x02, 0, 1]).await;
        assert!(matches!(end, Some(FrameReadError::Size(FrameError::Tls { .. }))), "{end:?}");
        let (_, end) = read_all(&[0, 0, 0, 2, 0, 18]).await;
        assert!(matches!(end, Some(FrameReadError::Request(RequestError::Short { bytes: 2 }))), "{end:?}");
    }

    #[tokio::test]
    async fn a_cut_frame_is_an_error_and_a_close_between_frames_is_none() {
        let whole = frame(18, 100);
        for cut in 1..whole.len() {
            let (frames, end) = read_all(&whole[..cut]).await;
            assert!(frames.is_empty() && matches!(end, Some(FrameReadError::Cut)), "{cut}: {end:?}");
        }
    }

    #[tokio::test]
    async fn a_frame_that_trickles_in_and_a_silent_peer_run_into_their_times() {
        let (mut near, mut far) = tokio::io::duplex(64);
        let (mut reader, memory) = (FrameReader::default(), RequestMemory::new(1 << 20));
        let short = Duration::from_millis(10);
        let limits = BrokerLimits { idle_timeout: short, frame_timeout: short, ..limits() };
        let end = reader.next(&mut near, &limits, &memory).await;
        assert!(matches!(end, Err(FrameReadError::Idle(_))), "{end:?}");
        far.write_all(&frame(18, 10)[..9]).await.unwrap();
        let end = reader.next(&mut near, &limits, &memory).await;
        assert!(matches!(end, Err(FrameReadError::Slow(_))), "{end:?}");
    }
}

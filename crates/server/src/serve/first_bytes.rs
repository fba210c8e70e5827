//! A deadline for the first bytes of a connection.
//!
//! hyper-util waits for them without one, to tell HTTP/2 (its preface) from HTTP/1.1, whose own deadline for a request's head
//! starts only then. So a client that says nothing, or stops inside the preface, would keep its place for ever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// What every HTTP/2 connection starts with (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection whose first bytes must come in time.
pub(super) struct FirstBytes<T> {
    io: T,
    /// `None`: the protocol is known.
    deadline: Option<Pin<Box<Sleep>>>,
    /// How much of the preface has come.
    seen: usize,
}

impl<T> FirstBytes<T> {
    pub(super) fn new(io: T, within: Duration) -> Self {
        Self { io, deadline: Some(Box::pin(sleep(within))), seen: 0 }
    }

    /// Looks at bytes that were read: with the whole preface, or with a byte that is not of it, the protocol is known.
    fn look(&mut self, bytes: &[u8]) {
        let rest = &PREFACE[self.seen..];
        let matching = rest.iter().zip(bytes).take_while(|(preface, byte)| preface == byte).count();
        self.seen += matching;
        if self.seen == PREFACE.len() || matching < bytes.len() {
            self.deadline = None;
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for FirstBytes<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        let Some(deadline) = &mut self.deadline else { return read };
        match read {
            Poll::Pending => match deadline.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                Poll::Pending => Poll::Pending,
            },
            Poll::Ready(read) => {
                read?;
                self.look(&buf.filled()[before..]);
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for FirstBytes<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    /// Sends `sent`, reads it back through a deadline of 30 s, and then waits for what a further read brings.
    async fn after(sent: &[u8]) -> Option<io::ErrorKind> {
        let (mut client, server) = duplex(1024);
        client.write_all(sent).await.unwrap();
        let mut server = FirstBytes::new(server, Duration::from_secs(30));
        let mut first = vec![0; sent.len()];
        server.read_exact(&mut first).await.unwrap();
        assert_eq!(first, sent);
        let mut next = [0];
        match tokio::time::timeout(Duration::from_secs(3600), server.read(&mut next)).await {
            Ok(read) => Some(read.unwrap_err().kind()),
            Err(_) => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_says_nothing_or_half_a_preface_is_cut_off() {
        for sent in [&b""[..], b"P", &PREFACE[..23]] {
            assert_eq!(after(sent).await, Some(io::ErrorKind::TimedOut), "{sent:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn once_the_protocol_is_known_the_deadline_is_gone() {
        for sent in [PREFACE, &b"G"[..], b"PRO", b"GET / HTTP/1.1\r\n\r\n"] {
            assert_eq!(after(sent).await, None, "{sent:?}");
        }
    }
}

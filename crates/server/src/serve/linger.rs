//! The end of a connection that went well: what was written must arrive.
//!
//! A socket that is closed while bytes of the peer lie in it unread is reset by the kernel, and a reset throws away what is
//! still on its way to the peer (RFC 1122, section 4.2.2.13). An HTTP/2 client that receives a long answer keeps sending
//! WINDOW_UPDATE, so there nearly always are some. After the last byte this side therefore says that it is done, and reads
//! and discards until the peer is too.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How long the peer has to read the rest and to close. It bounds how long a finished connection keeps its place.
pub(super) const LINGER: Duration = Duration::from_secs(2);

/// What is read at a time to be thrown away.
const DISCARD_BYTES: usize = 4 << 10;

/// A connection that is closed only when the peer has had what was written to it.
pub(super) struct Lingering<T> {
    io: T,
    closing: Closing,
}

enum Closing {
    Not,
    /// This side has said that it is done.
    Until(Pin<Box<Sleep>>),
    Done,
}

impl<T> Lingering<T> {
    pub(super) fn new(io: T) -> Self {
        Self { io, closing: Closing::Not }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Lingering<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<T> {
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
        let this = &mut *self;
        loop {
            match &mut this.closing {
                Closing::Done => return Poll::Ready(Ok(())),
                Closing::Not => {
                    std::task::ready!(Pin::new(&mut this.io).poll_shutdown(cx))?;
                    this.closing = Closing::Until(Box::pin(sleep(LINGER)));
                }
                Closing::Until(deadline) => {
                    let mut discarded = [0; DISCARD_BYTES];
                    let mut buf = ReadBuf::new(&mut discarded);
                    let read = Pin::new(&mut this.io).poll_read(cx, &mut buf);
                    // A peer that goes on sending does not keep the connection for longer either.
                    let over = deadline.as_mut().poll(cx).is_ready();
                    match read {
                        Poll::Ready(Ok(())) if !buf.filled().is_empty() && !over => {}
                        Poll::Pending if !over => return Poll::Pending,
                        // The end, a failure after which nothing can arrive any more, or the deadline.
                        _ => this.closing = Closing::Done,
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::Instant;

    use super::*;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (client, listener.accept().await.unwrap().0)
    }

    /// More than the kernel's buffers of a loopback connection hold.
    const LONG: usize = 16 << 20;

    #[tokio::test]
    async fn a_peer_that_reads_late_and_talks_meanwhile_gets_every_byte() {
        let (mut client, server) = pair().await;
        let serving = tokio::spawn(async move {
            let mut server = Lingering::new(server);
            server.write_all(&vec![7; LONG]).await.unwrap();
            server.shutdown().await
        });
        let mut received = vec![0; LONG / 2];
        client.read_exact(&mut received).await.unwrap();
        // Nobody reads this on the other side until it closes.
        client.write_all(&[1; 64 << 10]).await.unwrap();
        let rest = client.read_to_end(&mut received).await.unwrap();
        assert_eq!((rest, received.len()), (LONG - LONG / 2, LONG));
        drop(client);
        serving.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_never_closes_is_let_go_after_a_while() {
        for talks in [false, true] {
            let (mut client, server) = tokio::io::duplex(1 << 20);
            if talks {
                client.write_all(&[0; 100_000]).await.unwrap();
            }
            let begun = Instant::now();
            Lingering::new(server).shutdown().await.unwrap();
            assert_eq!(begun.elapsed().as_secs(), LINGER.as_secs());
        }
    }
}

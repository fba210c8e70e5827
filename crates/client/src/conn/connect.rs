//! A TCP connection to a broker, with the receive buffer that was asked for.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::net::{TcpSocket, TcpStream, lookup_host};

/// Connects to `address`, `host:port`: to each address that the name stands for, until one takes the connection.
pub(super) async fn connect(address: &str, buffer: Option<&ReceiveBuffer>) -> io::Result<TcpStream> {
    match buffer {
        None => TcpStream::connect(address).await,
        Some(buffer) => connect_any(lookup_host(address).await?, buffer).await,
    }
}

/// What `TcpStream::connect` does, with room for an option before each attempt.
async fn connect_any(addresses: impl IntoIterator<Item = SocketAddr>, buffer: &ReceiveBuffer) -> io::Result<TcpStream> {
    let mut last = None;
    for address in addresses {
        match connect_one(address, buffer).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the name stands for no address")))
}

async fn connect_one(address: SocketAddr, buffer: &ReceiveBuffer) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    buffer.set(&socket);
    socket.connect(address).await
}

/// A receive buffer of one's own choice.
#[derive(Debug)]
pub(super) struct ReceiveBuffer {
    bytes: usize,
    /// One warning is enough for all connections.
    warned: AtomicBool,
}

impl ReceiveBuffer {
    pub(super) const fn new(bytes: usize) -> Self {
        Self { bytes, warned: AtomicBool::new(false) }
    }

    /// Before the connection is made, since the scale of its windows is told in the first packet.
    ///
    /// A system that gives less, or refuses, does not keep the connection from being made: it is only slower. Answers with
    /// whether all was given.
    fn set(&self, socket: &TcpSocket) -> bool {
        let most = i32::MAX.unsigned_abs();
        let refused = socket.set_recv_buffer_size(u32::try_from(self.bytes).unwrap_or(most).min(most)).err();
        let in_force = socket.recv_buffer_size().ok().map(|bytes| bytes as usize);
        let given = refused.is_none() && in_force.is_none_or(|in_force| in_force >= in_force_for(self.bytes));
        if !given && !self.warned.swap(true, Ordering::Relaxed) {
            let (asked, in_force) = (self.bytes, in_force.unwrap_or(0) / in_force_for(1));
            tracing::warn!(
                asked,
                given = in_force,
                error = refused.map(tracing::field::display),
                "the system gives less than receive.buffer.bytes asks for; on Linux net.core.rmem_max is the most"
            );
        }
        given
    }
}

/// What a system says is in force after it has given `bytes`: Linux doubles it, for its bookkeeping (socket(7)).
fn in_force_for(bytes: usize) -> usize {
    if cfg!(target_os = "linux") { bytes.saturating_mul(2) } else { bytes }
}

#[cfg(test)]
pub(super) mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// The two ends of a connection: ours, and the broker's.
    pub(in crate::conn) async fn pair(buffer: Option<&ReceiveBuffer>) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (ours, theirs) = tokio::join!(connect(&address, buffer), listener.accept());
        (ours.unwrap(), theirs.unwrap().0)
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_buffer_asked_for_is_in_force_and_doubled() {
        let in_force = |stream: &TcpStream| crate::conn::tcp::Socket::of(stream).facts().receive_buffer;
        let buffer = ReceiveBuffer::new(50_000);
        let (ours, _theirs) = pair(Some(&buffer)).await;
        assert_eq!(in_force(&ours), Some(100_000));
        let (untouched, _theirs) = pair(None).await;
        assert_ne!(in_force(&untouched), Some(100_000));
    }

    #[test]
    fn a_system_that_gives_less_is_told_from_one_that_gives_all() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _entered = runtime.enter();
        for (bytes, given) in [(16_384, true), (usize::MAX, false)] {
            let buffer = ReceiveBuffer::new(bytes);
            assert_eq!(buffer.set(&TcpSocket::new_v4().unwrap()), given, "{bytes}");
            assert_eq!(buffer.warned.into_inner(), !given, "{bytes}");
        }
    }

    #[tokio::test]
    async fn every_address_of_a_name_is_tried() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let open = listener.local_addr().unwrap();
        // Bound and not listening, so that nobody else can listen there.
        let bound = TcpSocket::new_v4().unwrap();
        bound.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let closed = bound.local_addr().unwrap();
        let buffer = ReceiveBuffer::new(65_536);
        let stream = connect_any([closed, open], &buffer).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), open);
        let refused = connect_any([closed, closed], &buffer).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused, "{refused}");
        let nowhere = connect_any([], &buffer).await.unwrap_err();
        assert_eq!(nowhere.kind(), io::ErrorKind::InvalidInput, "{nowhere}");
    }
}

//! What the kernel knows of a TCP connection, asked while somebody else reads and writes it.

#[cfg(target_os = "linux")]
mod info;
#[cfg(target_os = "linux")]
mod kernel;

use std::time::Duration;

#[cfg(target_os = "linux")]
use parking_lot::Mutex;
#[cfg(target_os = "linux")]
use std::os::fd::{AsFd as _, OwnedFd};
use tokio::net::TcpStream;

/// What the kernel tells of a TCP connection (Linux: `TCP_INFO` of tcp(7) and `linux/tcp.h`, and a few socket options).
///
/// `None` is "not measured": the platform or the kernel's version does not tell, nothing has been measured yet, or the
/// connection has ended. It never stands for zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpFacts {
    /// The smoothed round trip of what this side sent and the peer acknowledged (`tcpi_rtt`). A side that mostly receives
    /// learns it from its few requests; it ends at whatever terminates TCP, which may be a proxy.
    pub rtt: Option<Duration>,
    /// The mean deviation of [`Self::rtt`] (`tcpi_rttvar`).
    pub rtt_var: Option<Duration>,
    /// The shortest round trip of the last minutes (`tcpi_min_rtt`, Linux 4.6).
    pub min_rtt: Option<Duration>,
    /// The round trip as the receiving side sees it in the data that comes (`tcpi_rcv_rtt`): what the kernel sizes the receive
    /// buffer by. Queues on the way, and a sender's pauses, are in it.
    pub receive_rtt: Option<Duration>,
    /// The receive window that was last advertised, in bytes, scaled (`tcpi_rcv_wnd`, Linux 6.2). The peer sends no more than
    /// that in one round trip.
    pub receive_window: Option<u32>,
    /// How many bytes the reader took in one [`Self::receive_rtt`] (`tcpi_rcv_space`): the autotuning's measure.
    pub receive_space: Option<u32>,
    /// Up to where the receive window may open for now, in bytes (`tcpi_rcv_ssthresh`).
    pub receive_ssthresh: Option<u32>,
    /// The receive buffer in force, in bytes (`SO_RCVBUF`). Linux counts its own bookkeeping in: it doubles what is asked for,
    /// and about half of this can hold data.
    pub receive_buffer: Option<usize>,
    /// Bytes that have come and were not read (`FIONREAD`). Near zero: the reader waits for the network. Near
    /// [`Self::receive_space`] or more: the network waits for the reader.
    pub unread: Option<usize>,
    /// Packets that came out of their order (`tcpi_rcv_ooopack`, Linux 5.4): loss or reordering on the way here.
    pub out_of_order: Option<u32>,
    /// Whether both sides scale their windows (`TCPI_OPT_WSCALE`). Without it no window exceeds 64 KiB.
    pub window_scaling: Option<bool>,
    /// The power of two that the peer's windows are multiplied by (`tcpi_snd_wscale`).
    pub send_window_scale: Option<u8>,
    /// The power of two that our windows are multiplied by (`tcpi_rcv_wscale`).
    pub receive_window_scale: Option<u8>,
    /// Bytes received, TLS and handshakes included (`tcpi_bytes_received`, Linux 4.1).
    pub bytes_received: Option<u64>,
    /// Segments that this side sent again (`tcpi_total_retrans`). What the peer sent again shows in [`Self::out_of_order`].
    pub retransmits: Option<u32>,
    /// The largest segment that is sent, in bytes (`tcpi_snd_mss`).
    pub send_mss: Option<u32>,
    /// The segment size that the peer seems to send, in bytes (`tcpi_rcv_mss`).
    pub receive_mss: Option<u32>,
    /// The congestion control of this side, by its name (`TCP_CONGESTION`). That of the peer, which sends the data, nobody
    /// here can see.
    pub congestion_control: Option<String>,
}

/// A second handle of a connection's socket, for asking.
///
/// The connection lasts as long as any handle does, so whoever owns the stream must [`Self::release`] this one when it ends.
/// It costs a file descriptor; if there is none left, nothing is measured.
#[derive(Debug)]
pub(super) struct Socket {
    /// Locked while the kernel is asked: a descriptor that is closed meanwhile may already be another file's.
    #[cfg(target_os = "linux")]
    handle: Mutex<Option<OwnedFd>>,
}

#[cfg(target_os = "linux")]
impl Socket {
    pub(super) fn of(stream: &TcpStream) -> Self {
        Self { handle: Mutex::new(stream.as_fd().try_clone_to_owned().ok()) }
    }

    pub(super) fn release(&self) {
        *self.handle.lock() = None;
    }

    /// From how many bytes on the socket counts as readable. Whether the kernel took it.
    pub(super) fn wake_at(&self, bytes: usize) -> bool {
        self.handle.lock().as_ref().is_some_and(|socket| kernel::wake_at(socket.as_fd(), bytes))
    }

    /// Some system calls, microseconds in all.
    pub(super) fn facts(&self) -> TcpFacts {
        let handle = self.handle.lock();
        let Some(socket) = handle.as_ref().map(OwnedFd::as_fd) else { return TcpFacts::default() };
        let mut bytes = [0; info::ROOM];
        let length = kernel::option(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut bytes);
        let told = length.and_then(|length| bytes.get(..length)).unwrap_or_default();

        let mut buffer = [0; size_of::<libc::c_int>()];
        let receive_buffer = kernel::option(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &mut buffer)
            .filter(|length| *length == buffer.len())
            .and_then(|_| usize::try_from(libc::c_int::from_ne_bytes(buffer)).ok());

        // TCP_CA_NAME_MAX is 16, its end by a zero byte included.
        let mut name = [0; 64];
        let congestion_control = kernel::option(socket, libc::IPPROTO_TCP, libc::TCP_CONGESTION, &mut name)
            .and_then(|length| name.get(..length))
            .and_then(|name| name.split(|byte| *byte == 0).next())
            .and_then(|name| std::str::from_utf8(name).ok())
            .filter(|name| !name.is_empty())
            .map(str::to_owned);

        TcpFacts { receive_buffer, unread: kernel::readable(socket), congestion_control, ..info::read(told) }
    }
}

#[cfg(not(target_os = "linux"))]
impl Socket {
    pub(super) fn of(_: &TcpStream) -> Self {
        Self {}
    }

    pub(super) fn release(&self) {}

    pub(super) fn wake_at(&self, _: usize) -> bool {
        false
    }

    pub(super) fn facts(&self) -> TcpFacts {
        TcpFacts::default()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::conn::connect::tests::pair;

    #[tokio::test]
    async fn bytes_that_nobody_has_read_are_counted() {
        let (mut ours, mut theirs) = pair(None).await;
        let socket = Socket::of(&ours);
        assert_eq!((socket.facts().unread, socket.facts().bytes_received), (Some(0), Some(0)));
        theirs.write_all(&[7; 1_000]).await.unwrap();
        let mut bytes = [0; 1_000];
        while ours.peek(&mut bytes).await.unwrap() < bytes.len() {}
        assert_eq!(socket.facts().unread, Some(1_000));
        ours.read_exact(&mut bytes[..400]).await.unwrap();
        let facts = socket.facts();
        assert_eq!((facts.unread, facts.bytes_received), (Some(600), Some(1_000)));
    }

    #[tokio::test]
    async fn a_connection_of_this_machine_shows_what_every_kernel_tells() {
        let (ours, _theirs) = pair(None).await;
        let facts = Socket::of(&ours).facts();
        let scaling = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_window_scaling").unwrap();
        assert_eq!(facts.window_scaling, Some(scaling.trim() != "0"), "{facts:?}");
        assert_eq!(facts.receive_window_scale.is_some(), scaling.trim() != "0", "{facts:?}");
        assert!(facts.receive_buffer.is_some_and(|bytes| bytes > 0), "{facts:?}");
        assert!(facts.rtt.is_some_and(|rtt| rtt < Duration::from_secs(5)), "{facts:?}");
        assert!(facts.send_mss.is_some_and(|bytes| bytes > 0), "{facts:?}");
        let name = facts.congestion_control.unwrap();
        assert!(name.bytes().all(|byte| byte.is_ascii_graphic()), "{name:?}");
    }

    #[tokio::test]
    async fn a_released_socket_tells_nothing_and_keeps_nothing_open() {
        let (ours, mut theirs) = pair(None).await;
        let socket = Socket::of(&ours);
        drop(ours);
        assert!(socket.facts().receive_buffer.is_some(), "still there");
        socket.release();
        assert_eq!(socket.facts(), TcpFacts::default());
        assert_eq!(theirs.read(&mut [0; 8]).await.unwrap(), 0);
    }
}

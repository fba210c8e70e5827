//! What neither std nor tokio asks the kernel, or tells it.
//!
//! This is why the module may use `unsafe`: `getsockopt(2)` with `TCP_INFO`, `setsockopt(2)` with `SO_RCVLOWAT` and `ioctl(2)`
//! with `FIONREAD` have no safe wrapper among the crates that are here already. Each is one call on a file descriptor that is
//! borrowed, and so open, with a buffer that lives in the caller's frame. The kernel reads or writes plain bytes, at most as
//! many as it is told there are, and keeps no pointer; bytes of any value are valid in what they are written to.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd as _, BorrowedFd};

use libc::{c_int, socklen_t};

/// A socket option's bytes, in `into`; answers with how many the kernel has written. `None` where it knows no such option.
pub(super) fn option(socket: BorrowedFd<'_>, level: c_int, name: c_int, into: &mut [u8]) -> Option<usize> {
    let mut length = socklen_t::try_from(into.len()).ok()?;
    // SAFETY: the descriptor is open, `into` has room for `length` bytes, and both pointers outlive the call.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, into.as_mut_ptr().cast(), &raw mut length) };
    (result == 0).then_some((length as usize).min(into.len()))
}

/// From how many bytes on a socket counts as readable. Whether the kernel took it.
pub(super) fn wake_at(socket: BorrowedFd<'_>, bytes: usize) -> bool {
    let Ok(bytes) = c_int::try_from(bytes) else { return false };
    let length = size_of::<c_int>() as socklen_t;
    // SAFETY: the descriptor is open, and SO_RCVLOWAT reads one `int`, from `bytes`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, (&raw const bytes).cast(), length)
    };
    result == 0
}

/// How many bytes a read would find.
pub(super) fn readable(socket: BorrowedFd<'_>) -> Option<usize> {
    let mut bytes: c_int = 0;
    // SAFETY: the descriptor is open, and for a socket FIONREAD writes one `int`, to `bytes`, which outlives the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::FIONREAD, &raw mut bytes) };
    (result == 0).then(|| usize::try_from(bytes).ok()).flatten()
}

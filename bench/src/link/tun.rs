//! A TUN device whose packets carry the header of virtio-net, so that TCP hands over up to 64 KiB at once.
//!
//! With the header, the kernel leaves cutting a long run of bytes into packets, and their checksums, to "the card": here to
//! nobody, since the other end takes the long run as it is. That is what lets user space carry hundreds of MB/s.

#![allow(unsafe_code, reason = "ioctls of /dev/net/tun, which no safe crate here covers; each says why it is sound")]

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;

use anyhow::{Context as _, Result};
use rustix::fs::OFlags;
use rustix::ioctl::{IntegerSetter, Opcode, Setter, ioctl};

// From linux/if_tun.h.
const TUNSETIFF: Opcode = 0x4004_54ca;
const TUNSETOFFLOAD: Opcode = 0x4004_54d0;
const IFF_TUN: i16 = 0x0001;
const IFF_NO_PI: i16 = 0x1000;
const IFF_VNET_HDR: i16 = 0x4000;
const TUN_F_CSUM: usize = 0x01;
const TUN_F_TSO4: usize = 0x02;
const TUN_F_TSO6: usize = 0x04;

/// The bytes of the header before each packet: `struct virtio_net_hdr`, the kernel's default size.
pub const HEADER_BYTES: usize = 10;
/// The most that one read brings: the header and the longest IPv4 packet.
pub const PACKET_BYTES: usize = HEADER_BYTES + 65_535;

/// What the kernel leaves to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// Checksums: packets are as long as on a wire.
    Checksums,
    /// Checksums and cutting: packets are up to 64 KiB.
    Segments,
}

/// `struct ifreq` as TUNSETIFF reads it: a name, flags, and space up to the size of the kernel's.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    flags: i16,
    rest: [u8; 22],
}

/// A TUN device, non-blocking. It goes when it is dropped.
#[derive(Debug)]
pub struct Tun {
    file: File,
}

impl Tun {
    /// Makes the device `name` in the network namespace of the calling thread.
    pub fn open(name: &str) -> Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
            .open("/dev/net/tun")
            .context("/dev/net/tun cannot be opened: it needs root, and a kernel with TUN devices")?;
        let mut request = InterfaceRequest { name: [0; 16], flags: IFF_TUN | IFF_NO_PI | IFF_VNET_HDR, rest: [0; 22] };
        // The last byte stays zero, as C wants it.
        for (to, from) in request.name[..15].iter_mut().zip(name.bytes()) {
            *to = from;
        }
        // SAFETY: TUNSETIFF reads one `struct ifreq` of 40 bytes through the pointer and keeps no reference to it;
        // `InterfaceRequest` has that size and layout, and lives through the call.
        unsafe { ioctl(&file, Setter::<TUNSETIFF, InterfaceRequest>::new(request)) }.context("TUNSETIFF")?;
        Ok(Self { file })
    }

    /// Sets what the kernel leaves to the device.
    pub fn set_offload(&self, offload: Offload) -> Result<()> {
        let flags = match offload {
            Offload::Checksums => TUN_F_CSUM,
            Offload::Segments => TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6,
        };
        // SAFETY: TUNSETOFFLOAD takes its argument as an integer and touches no memory of ours.
        unsafe { ioctl(&self.file, IntegerSetter::<TUNSETOFFLOAD>::new_usize(flags)) }.context("TUNSETOFFLOAD")
    }

    /// One packet with its header; `None` when there is none now.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.file).read(buffer) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Hands one packet with its header to the kernel.
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        (&self.file).write(packet).map(drop)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The bytes that a packet of a device would take on the wire: one that the kernel has not cut yet pays for the headers of
/// each of its parts.
pub fn wire_bytes(packet: &[u8]) -> usize {
    let (Some(header), bytes) = (packet.first_chunk::<HEADER_BYTES>(), packet.len().saturating_sub(HEADER_BYTES))
    else {
        return packet.len();
    };
    let headers = usize::from(u16::from_ne_bytes([header[2], header[3]]));
    let segment = usize::from(u16::from_ne_bytes([header[4], header[5]]));
    if header[1] == 0 || segment == 0 {
        return bytes;
    }
    let segments = bytes.saturating_sub(headers).div_ceil(segment).max(1);
    bytes + (segments - 1) * headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_packet_pays_for_the_headers_of_its_parts() {
        let mut packet = vec![0; HEADER_BYTES + 40 + 3000];
        assert_eq!(wire_bytes(&packet), 3040);
        packet[1] = 1;
        packet[2..4].copy_from_slice(&40_u16.to_ne_bytes());
        packet[4..6].copy_from_slice(&1460_u16.to_ne_bytes());
        assert_eq!(wire_bytes(&packet), 3000 + 3 * 40);
    }

    #[test]
    fn a_request_has_the_size_of_the_kernels() {
        assert_eq!(size_of::<InterfaceRequest>(), 40);
    }
}

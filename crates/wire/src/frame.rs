//! The frame around every Kafka request and response: a big-endian `int32` size, then that many bytes.

/// The largest frame that is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FrameLimit {
    bytes: usize,
}

impl FrameLimit {
    /// A limit of `bytes`, without the four bytes of the size itself.
    pub const fn new(bytes: usize) -> Self {
        Self { bytes }
    }

    /// The limit in bytes.
    pub const fn bytes(self) -> usize {
        self.bytes
    }

    /// Whether a frame of `size` bytes is accepted.
    pub const fn allows(self, size: usize) -> bool {
        size <= self.bytes
    }
}

impl Default for FrameLimit {
    /// 100 MiB, Kafka's default for `socket.request.max.bytes`.
    fn default() -> Self {
        Self::new(100 * 1024 * 1024)
    }
}

/// Why the size in front of a frame is refused. Nothing was allocated for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The size is negative.
    #[error("the peer announced a frame of {size} bytes")]
    Negative {
        /// What it said.
        size: i32,
    },
    /// The size is beyond the limit.
    #[error("the peer announced a frame of {size} bytes, at most {} are accepted", .limit.bytes())]
    TooLarge {
        /// What it said.
        size: usize,
        /// What is accepted.
        limit: FrameLimit,
    },
    /// The four bytes begin a TLS record: the peer speaks TLS where plaintext is expected.
    #[error("the peer speaks TLS here, and plaintext was expected (its first bytes read as a frame of {size} bytes)")]
    Tls {
        /// What the bytes say when read as a size.
        size: usize,
    },
    /// The four bytes begin an HTTP message.
    #[error("the peer speaks HTTP here, and Kafka's protocol was expected (it read as a frame of {size} bytes)")]
    Http {
        /// What the bytes say when read as a size.
        size: usize,
    },
}

/// The size of the frame that follows its four-byte `prefix`.
///
/// A frame within the limit is never refused; the guess at another protocol only words the refusal of one beyond it.
///
/// # Errors
/// [`FrameError`] when the size is negative or beyond `limit`.
pub fn read_frame_size(prefix: [u8; 4], limit: FrameLimit) -> Result<usize, FrameError> {
    let stated = i32::from_be_bytes(prefix);
    let size = usize::try_from(stated).map_err(|_| FrameError::Negative { size: stated })?;
    if limit.allows(size) {
        return Ok(size);
    }
    Err(match &prefix {
        // A TLS record (RFC 8446, 5.1): content type 20 to 23, version 3.0 to 3.4, then the high byte of a length of at
        // most 2^14 + 2048. An alert reads as 352,518,912 and above, a ClientHello as 369,295,616 and above.
        [0x14..=0x17, 0x03, 0x00..=0x04, 0x00..=0x48] => FrameError::Tls { size },
        b"HTTP" | b"GET " | b"POST" | b"PUT " | b"HEAD" | b"PRI " | b"OPTI" | b"CONN" | b"DELE" => {
            FrameError::Http { size }
        }
        _ => FrameError::TooLarge { size, limit },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: FrameLimit = FrameLimit::new(1 << 20);

    #[test]
    fn a_size_within_the_limit_is_taken_and_one_beyond_it_refused() {
        assert_eq!(read_frame_size([0, 0, 0, 0], LIMIT), Ok(0));
        assert_eq!(read_frame_size([0, 0x10, 0, 0], LIMIT), Ok(1 << 20));
        let beyond = read_frame_size([0, 0x10, 0, 1], LIMIT);
        assert_eq!(beyond, Err(FrameError::TooLarge { size: (1 << 20) + 1, limit: LIMIT }));
        assert_eq!(read_frame_size([0x7f, 0xff, 0xff, 0xff], FrameLimit::new(usize::MAX)), Ok(0x7fff_ffff));
    }

    #[test]
    fn a_negative_size_is_refused_whatever_the_limit() {
        for prefix in [[0xff, 0xff, 0xff, 0xff], [0x80, 0, 0, 0]] {
            let error = read_frame_size(prefix, FrameLimit::new(usize::MAX)).unwrap_err();
            assert_eq!(error, FrameError::Negative { size: i32::from_be_bytes(prefix) });
        }
    }

    #[test]
    fn a_tls_alert_and_a_client_hello_are_called_tls() {
        // An alert record: type 21, version 3.3, length 2.
        let alert = read_frame_size([0x15, 0x03, 0x03, 0x00], LIMIT).unwrap_err();
        assert_eq!(alert, FrameError::Tls { size: 352_518_912 });
        assert!(alert.to_string().contains("TLS"), "{alert}");
        let hello = read_frame_size([0x16, 0x03, 0x01, 0x02], LIMIT).unwrap_err();
        assert!(matches!(hello, FrameError::Tls { .. }), "{hello}");
    }

    #[test]
    fn an_http_peer_is_called_one() {
        for start in [b"HTTP", b"GET ", b"POST"] {
            assert!(matches!(read_frame_size(*start, LIMIT), Err(FrameError::Http { .. })));
        }
    }

    #[test]
    fn a_guess_at_another_protocol_never_refuses_a_frame_within_the_limit() {
        assert_eq!(read_frame_size([0x15, 0x03, 0x03, 0x00], FrameLimit::new(1 << 30)), Ok(352_518_912));
    }
}

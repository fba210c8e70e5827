//! A buffer that stops a decoder which makes too much of too few bytes.

use std::ops::Range;

use bytes::{Buf, Bytes};
use kafka_protocol::protocol::buf::ByteBuf;

/// The bytes of a frame, with a bound on how many values are read from them.
///
/// The generated decoders push one element after another, and an element of an array can take twenty times its bytes on
/// the wire. Each element costs some reads, so bounding the reads bounds the memory. When the bound is reached the buffer
/// says that it is empty, and the decoder fails as on a cut frame.
#[derive(Debug)]
pub(super) struct Metered {
    bytes: Bytes,
    steps_left: usize,
}

impl Metered {
    pub(super) fn new(bytes: Bytes, steps: usize) -> Self {
        Self { bytes, steps_left: steps }
    }

    /// Whether the bound was reached.
    pub(super) fn spent(&self) -> bool {
        self.steps_left == 0
    }
}

impl Buf for Metered {
    fn remaining(&self) -> usize {
        if self.spent() { 0 } else { self.bytes.len() }
    }

    fn chunk(&self) -> &[u8] {
        if self.spent() { &[] } else { &self.bytes }
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        self.steps_left = self.steps_left.saturating_sub(1);
    }
}

impl ByteBuf for Metered {
    fn peek_bytes(&mut self, range: Range<usize>) -> Bytes {
        self.bytes.slice(range)
    }

    fn get_bytes(&mut self, size: usize) -> Bytes {
        self.steps_left = self.steps_left.saturating_sub(1);
        self.bytes.split_to(size)
    }
}

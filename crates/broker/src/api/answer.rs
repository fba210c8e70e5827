//! An answer as bytes, on its way to the socket.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::ResponseHeader;
use kafka_protocol::protocol::{Encodable, HeaderVersion};

use super::Facts;
use crate::memory::Lease;

/// Pieces that are written with one system call.
const SLICES: usize = 64;

/// The bytes of an answer, size prefix included, in pieces: records are not copied behind the fields that precede them.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pieces: VecDeque<Bytes>,
    /// What the bytes hold of the memory for answers, until they are written.
    lease: Option<Lease>,
}

/// An answer could not be put into bytes: a bug of ours, not the client's.
#[derive(Debug, thiserror::Error)]
#[error("an answer of version {version} cannot be encoded: {reason}")]
pub(crate) struct EncodeError {
    version: i16,
    reason: String,
}

impl Answer {
    /// An answer of these pieces, to which the size prefix is added. `None` when they are more than a frame can hold.
    pub(super) fn framed(pieces: Vec<Bytes>, lease: Option<Lease>) -> Option<Self> {
        let size: usize = pieces.iter().map(Bytes::len).sum();
        let prefix = i32::try_from(size).ok()?.to_be_bytes();
        let mut all = VecDeque::with_capacity(pieces.len() + 1);
        all.push_back(Bytes::copy_from_slice(&prefix));
        all.extend(pieces.into_iter().filter(|piece| !piece.is_empty()));
        Some(Self { pieces: all, lease })
    }

    /// Whether it holds a part of the memory for answers.
    pub(crate) fn has_lease(&self) -> bool {
        self.lease.is_some()
    }

    /// The next pieces to write.
    pub(crate) fn slices(&self) -> Vec<IoSlice<'_>> {
        self.pieces.iter().take(SLICES).map(|piece| IoSlice::new(piece)).collect()
    }
}

impl Buf for Answer {
    fn remaining(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }

    fn chunk(&self) -> &[u8] {
        self.pieces.front().map_or(&[], |piece| piece)
    }

    fn has_remaining(&self) -> bool {
        !self.pieces.is_empty()
    }

    fn advance(&mut self, mut count: usize) {
        while let Some(piece) = self.pieces.front_mut() {
            if count < piece.len() {
                piece.advance(count);
                return;
            }
            count -= piece.len();
            self.pieces.pop_front();
        }
    }
}

/// Encodes an answer behind its header and size.
pub(super) fn encode<R: Encodable + HeaderVersion>(facts: Facts, response: &R) -> Result<Answer, EncodeError> {
    let Facts { version, correlation_id } = facts;
    let failed = |error: &dyn std::fmt::Display| EncodeError { version, reason: error.to_string() };
    let mut bytes = BytesMut::new();
    bytes.put_i32(0);
    let header = ResponseHeader::default().with_correlation_id(correlation_id);
    header.encode(&mut bytes, R::header_version(version)).map_err(|error| failed(&error))?;
    response.encode(&mut bytes, version).map_err(|error| failed(&error))?;
    let size = i32::try_from(bytes.len() - 4).map_err(|error| failed(&error))?;
    if let Some(prefix) = bytes.get_mut(..4) {
        prefix.copy_from_slice(&size.to_be_bytes());
    }
    Ok(Answer { pieces: VecDeque::from([bytes.freeze()]), lease: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_writes_of_any_size_leave_the_rest() {
        let pieces =
            vec![Bytes::from_static(b"ab"), Bytes::new(), Bytes::from_static(b"cde"), Bytes::from_static(b"f")];
        let whole = [&6_i32.to_be_bytes()[..], b"abcdef"].concat();
        for step in 1..=whole.len() {
            let mut answer = Answer::framed(pieces.clone(), None).unwrap();
            let mut written = Vec::new();
            while answer.has_remaining() {
                let next: Vec<u8> = answer.slices().iter().flat_map(|slice| slice.to_vec()).take(step).collect();
                answer.advance(next.len());
                written.extend(next);
            }
            assert_eq!(written, whole, "in steps of {step}");
        }
    }
}

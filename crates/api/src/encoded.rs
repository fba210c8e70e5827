//! A `ReadRangeResponse` that is encoded already: what the server's `ReadRange` answers with.

use bytes::{Buf, BufMut, Bytes};
use prost::encoding::{DecodeContext, WireType, skip_field};
use prost::{DecodeError, Message};

/// The bytes of one `ReadRangeResponse`, in up to a few parts that follow each other.
///
/// Only its own encoder makes one, so it is never decoded; as a [`Message`] it skips whatever it is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedReadRangeResponse {
    parts: Vec<Bytes>,
}

impl EncodedReadRangeResponse {
    /// A message whose encoding is `parts`, one behind the other.
    pub fn new(parts: Vec<Bytes>) -> Self {
        Self { parts }
    }

    /// The parts of its encoding.
    pub fn parts(&self) -> &[Bytes] {
        &self.parts
    }
}

impl From<&crate::v1::ReadRangeResponse> for EncodedReadRangeResponse {
    fn from(message: &crate::v1::ReadRangeResponse) -> Self {
        Self { parts: vec![message.encode_to_vec().into()] }
    }
}

impl Message for EncodedReadRangeResponse {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        for part in &self.parts {
            buf.put_slice(part);
        }
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        skip_field(wire_type, tag, buf, ctx)
    }

    fn encoded_len(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum()
    }

    fn clear(&mut self) {
        self.parts.clear();
    }
}

//! Protobuf's wire format: tags, varints, fields.

use crate::error::MessageProblem;

/// Where the bytes of a message lie in the value that is being read. Values of 4 GiB and more are refused before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

/// The wire types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WireType {
    Varint = 0,
    Fixed64 = 1,
    Delimited = 2,
    StartGroup = 3,
    EndGroup = 4,
    Fixed32 = 5,
}

/// The value of a field, as far as the wire type tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WireValue {
    Varint(u64),
    Fixed64(u64),
    Delimited(Span),
    /// The fields between the start tag and the end tag.
    Group(Span),
    Fixed32(u32),
}

/// What is wrong with encoded bytes, and where: an offset into the whole value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WireError {
    pub(crate) offset: u32,
    pub(crate) problem: MessageProblem,
}

/// Groups nest no deeper than messages may.
const MAX_GROUP_DEPTH: usize = crate::MAX_DEPTH as usize;

/// Reads fields out of a part of a value.
#[derive(Clone, Copy)]
pub(crate) struct FieldReader<'a> {
    bytes: &'a [u8],
    at: u32,
    end: u32,
}

impl<'a> FieldReader<'a> {
    /// Reads `span` of `bytes`. A span that reaches beyond the bytes reads as truncated.
    pub(crate) fn new(bytes: &'a [u8], span: Span) -> Self {
        Self { bytes, at: span.start, end: span.end }
    }

    /// Where the next field starts.
    pub(crate) fn position(&self) -> u32 {
        self.at
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.at >= self.end
    }

    /// The next field, its number and value. `None` at the end.
    pub(crate) fn next_field(&mut self) -> Result<Option<(u32, WireValue)>, WireError> {
        if self.is_at_end() {
            return Ok(None);
        }
        let start = self.at;
        let (number, wire_type) = self.tag()?;
        let value = match wire_type {
            WireType::StartGroup => WireValue::Group(self.group(number)?),
            WireType::EndGroup => return Err(WireError { offset: start, problem: MessageProblem::EndGroup }),
            plain => self.value(plain)?,
        };
        Ok(Some((number, value)))
    }

    pub(crate) fn varint(&mut self) -> Result<u64, WireError> {
        let start = self.at;
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(WireError { offset: start, problem: MessageProblem::Varint })
    }

    /// A value of one of the wire types without an end of its own: not a group.
    pub(crate) fn value(&mut self, wire_type: WireType) -> Result<WireValue, WireError> {
        Ok(match wire_type {
            WireType::Varint => WireValue::Varint(self.varint()?),
            WireType::Fixed64 => WireValue::Fixed64(u64::from_le_bytes(self.array()?)),
            WireType::Fixed32 => WireValue::Fixed32(u32::from_le_bytes(self.array()?)),
            WireType::Delimited => {
                let offset = self.at;
                let length = self.varint()?;
                let end = u32::try_from(length).ok().and_then(|length| self.at.checked_add(length));
                match end {
                    Some(end) if end <= self.end => {
                        let span = Span { start: self.at, end };
                        self.at = end;
                        WireValue::Delimited(span)
                    }
                    _ => return Err(WireError { offset, problem: MessageProblem::Truncated }),
                }
            }
            WireType::StartGroup | WireType::EndGroup => {
                return Err(WireError { offset: self.at, problem: MessageProblem::WireType });
            }
        })
    }

    /// The fields of a group up to its end tag, past its start tag. Does not recurse.
    fn group(&mut self, number: u32) -> Result<Span, WireError> {
        let start = self.at;
        let mut open = vec![number];
        loop {
            let offset = self.at;
            let wrong = |problem| WireError { offset, problem };
            let (number, wire_type) = self.tag()?;
            match wire_type {
                WireType::StartGroup if open.len() == MAX_GROUP_DEPTH => return Err(wrong(MessageProblem::GroupDepth)),
                WireType::StartGroup => open.push(number),
                WireType::EndGroup => {
                    if open.pop() != Some(number) {
                        return Err(wrong(MessageProblem::EndGroup));
                    }
                    if open.is_empty() {
                        return Ok(Span { start, end: offset });
                    }
                }
                plain => {
                    self.value(plain)?;
                }
            }
        }
    }

    fn tag(&mut self) -> Result<(u32, WireType), WireError> {
        let offset = self.at;
        let wrong = |problem| WireError { offset, problem };
        let tag = u32::try_from(self.varint()?).map_err(|_| wrong(MessageProblem::FieldNumber))?;
        let wire_type = match tag & 7 {
            0 => WireType::Varint,
            1 => WireType::Fixed64,
            2 => WireType::Delimited,
            3 => WireType::StartGroup,
            4 => WireType::EndGroup,
            5 => WireType::Fixed32,
            _ => return Err(wrong(MessageProblem::WireType)),
        };
        match tag >> 3 {
            0 => Err(wrong(MessageProblem::FieldNumber)),
            number => Ok((number, wire_type)),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (start, limit) = (self.at as usize, self.end as usize);
        match self.bytes.get(start..limit).and_then(|rest| rest.get(..count)) {
            Some(taken) => {
                // It was within the span, whose end is a u32.
                self.at += count as u32;
                Ok(taken)
            }
            None => Err(WireError { offset: self.at, problem: MessageProblem::Truncated }),
        }
    }
}

pub(crate) fn write_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

pub(crate) fn write_tag(number: u32, wire_type: WireType, out: &mut Vec<u8>) {
    write_varint(u64::from(number) << 3 | wire_type as u64, out);
}

/// Puts the length of everything behind `start` in front of it.
pub(crate) fn insert_length(start: usize, out: &mut Vec<u8>) {
    // Written behind the bytes first, to know how long it is, then turned to the front.
    let end = out.len();
    write_varint((end - start) as u64, out);
    let length = out.len() - end;
    out[start..].rotate_right(length);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(bytes: &[u8]) -> Result<Vec<(u32, WireValue)>, WireError> {
        let mut reader = FieldReader::new(bytes, Span { start: 0, end: bytes.len() as u32 });
        let mut fields = Vec::new();
        while let Some(field) = reader.next_field()? {
            fields.push(field);
        }
        Ok(fields)
    }

    #[test]
    fn fields_of_every_wire_type_are_read() {
        let bytes =
            [0x08, 0x96, 0x01, 0x11, 1, 0, 0, 0, 0, 0, 0, 0, 0x1a, 1, b'x', 0x23, 0x08, 5, 0x24, 0x2d, 2, 0, 0, 0];
        let expected = vec![
            (1, WireValue::Varint(150)),
            (2, WireValue::Fixed64(1)),
            (3, WireValue::Delimited(Span { start: 14, end: 15 })),
            (4, WireValue::Group(Span { start: 16, end: 18 })),
            (5, WireValue::Fixed32(2)),
        ];
        assert_eq!(fields(&bytes), Ok(expected));
    }

    #[test]
    fn lying_bytes_are_errors() {
        let cases: [(&[u8], u32, MessageProblem); 13] = [
            (&[0x08], 1, MessageProblem::Truncated),
            (&[0x80], 1, MessageProblem::Truncated),
            (&[0x11, 0, 0], 1, MessageProblem::Truncated),
            (&[0x0a, 5, 1], 1, MessageProblem::Truncated),
            (&[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f], 1, MessageProblem::Truncated),
            (&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], 1, MessageProblem::Truncated),
            (&[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02], 1, MessageProblem::Varint),
            (&[0x00, 0x00], 0, MessageProblem::FieldNumber),
            (&[0x0e, 0x00], 0, MessageProblem::WireType),
            (&[0x0c], 0, MessageProblem::EndGroup),
            (&[0x0b, 0x14], 1, MessageProblem::EndGroup),
            (&[0x0b, 0x08], 2, MessageProblem::Truncated),
            (&[0x0b; 101], 100, MessageProblem::GroupDepth),
        ];
        for (bytes, offset, problem) in cases {
            assert_eq!(fields(bytes), Err(WireError { offset, problem }), "{bytes:02x?}");
        }
    }

    #[test]
    fn a_length_is_put_in_front() {
        for length in [0, 1, 127, 128, 20_000] {
            let mut out = vec![7; 3 + length];
            insert_length(3, &mut out);
            let mut reader = FieldReader::new(&out, Span { start: 3, end: out.len() as u32 });
            let start = out.len() as u32 - length as u32;
            assert_eq!(
                reader.value(WireType::Delimited),
                Ok(WireValue::Delimited(Span { start, end: out.len() as u32 }))
            );
        }
    }
}

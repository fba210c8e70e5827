//! Confluent's wire format: how a value says which schema it was written with.
//!
//! A value begins with the magic byte 0 and the schema's id, four bytes, big-endian. Since 2025 Confluent's clients know a
//! second form, the magic byte 1 and the schema's GUID, 16 bytes, and can put either form into the record header
//! `__value_schema_id` in place of the value. Protobuf has the message's place in its file behind the id: how many indexes
//! there are, then the indexes, zigzag varints all; `00` is short for the one index 0.
//!
//! Source: <https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format>.

use std::fmt;

/// The record header that can hold what otherwise stands in front of the value.
pub const VALUE_SCHEMA_HEADER: &str = "__value_schema_id";

/// The most indexes that lead to a message. The compiler lets messages nest 32 deep, so no file has more.
pub const MAX_MESSAGE_INDEXES: usize = 32;

const MAGIC_ID: u8 = 0;
const MAGIC_GUID: u8 = 1;
const ID_BYTES: usize = 4;
const GUID_BYTES: usize = 16;

/// Which schema of a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SchemaKey {
    /// The number that the registry gave it.
    Id(u32),
    /// Its GUID, which is the same in every registry of Confluent's that knows the schema.
    Guid([u8; GUID_BYTES]),
}

impl fmt::Display for SchemaKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => write!(f, "schema {id}"),
            Self::Guid(_) => write!(f, "schema {}", self.text()),
        }
    }
}

impl SchemaKey {
    /// As it stands in the path of a request: the digits of an id, a GUID in its five groups.
    pub fn text(&self) -> String {
        match self {
            Self::Id(id) => id.to_string(),
            Self::Guid(bytes) => {
                let mut text = String::with_capacity(36);
                for (index, byte) in bytes.iter().enumerate() {
                    if matches!(index, 4 | 6 | 8 | 10) {
                        text.push('-');
                    }
                    for digit in [byte >> 4, byte & 15] {
                        text.extend(char::from_digit(u32::from(digit), 16));
                    }
                }
                text
            }
        }
    }
}

/// Why a value does not say which schema it was written with. Offsets count from the start of the value, or of the header
/// where that holds the schema's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The value is not in the wire format.
    #[error(
        "not framed: {}, and a value written through a schema registry begins with byte 00 and a schema id",
        first_byte(*first)
    )]
    NotFramed {
        /// What the value begins with; `None` when it is empty.
        first: Option<u8>,
    },
    /// The bytes end too early.
    #[error("truncated at byte {offset}: it ends inside {part}")]
    Truncated {
        /// How many bytes there are.
        offset: usize,
        /// What is not whole.
        part: &'static str,
    },
    /// There cannot be so many message indexes.
    #[error(
        "byte {offset}: {count} message indexes, and there can be 0 to {MAX_MESSAGE_INDEXES}; clients that write them \
         without zigzag (use.deprecated.format) are not supported"
    )]
    IndexCount {
        /// Where the count stands.
        offset: usize,
        /// The count.
        count: i64,
    },
    /// An index that no message can have.
    #[error("byte {offset}: {index} is no message index")]
    Index {
        /// Where it stands.
        offset: usize,
        /// The index.
        index: i64,
    },
    /// A varint of more than 64 bits.
    #[error("byte {offset}: a message index has more than 64 bits")]
    Varint {
        /// Where it begins.
        offset: usize,
    },
    /// Something follows the schema's id in the header.
    #[error("byte {offset} of the header {VALUE_SCHEMA_HEADER}: more than a schema id stands there")]
    HeaderTail {
        /// Where the rest begins.
        offset: usize,
    },
}

fn first_byte(first: Option<u8>) -> String {
    match first {
        None => "the value is empty".to_owned(),
        Some(byte) => format!("it begins with byte {byte:02x}"),
    }
}

/// A value taken apart as far as its schema's type need not be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framed<'a> {
    /// The schema it was written with.
    pub schema: SchemaKey,
    place: Place<'a>,
}

/// Where the schema's id stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place<'a> {
    /// In front of the value, whose rest begins at `offset`.
    Value { rest: &'a [u8], offset: usize },
    /// In a header; `rest` is what the header has behind it, at `offset`.
    Header { rest: &'a [u8], offset: usize, value: &'a [u8] },
}

impl<'a> Framed<'a> {
    /// Reads the schema's id from the front of a value.
    ///
    /// # Errors
    /// [`FrameError::NotFramed`] and [`FrameError::Truncated`].
    pub fn of_value(value: &'a [u8]) -> Result<Self, FrameError> {
        let (schema, rest) = key(value)?;
        Ok(Self { schema, place: Place::Value { rest, offset: value.len() - rest.len() } })
    }

    /// Reads the schema's id from the header [`VALUE_SCHEMA_HEADER`]; the value is the bare payload then.
    ///
    /// # Errors
    /// As [`Framed::of_value`], of the header's bytes.
    pub fn of_header(header: &'a [u8], value: &'a [u8]) -> Result<Self, FrameError> {
        let (schema, rest) = key(header)?;
        Ok(Self { schema, place: Place::Header { rest, offset: header.len() - rest.len(), value } })
    }

    /// What was written, where nothing but the id stands in front of it: Avro and JSON.
    ///
    /// # Errors
    /// [`FrameError::HeaderTail`].
    pub fn payload(&self) -> Result<&'a [u8], FrameError> {
        match self.place {
            Place::Value { rest, .. } => Ok(rest),
            Place::Header { rest: [], value, .. } => Ok(value),
            Place::Header { offset, .. } => Err(FrameError::HeaderTail { offset }),
        }
    }

    /// Where the message stands in its file, and the message: Protobuf.
    ///
    /// # Errors
    /// [`FrameError::Truncated`], and what message indexes can have wrong.
    pub fn message(&self) -> Result<(MessageIndexes, &'a [u8]), FrameError> {
        match self.place {
            Place::Value { rest, offset } => MessageIndexes::read(rest, offset),
            Place::Header { rest, offset, value } => match MessageIndexes::read(rest, offset)? {
                (indexes, []) => Ok((indexes, value)),
                (_, tail) => Err(FrameError::HeaderTail { offset: offset + rest.len() - tail.len() }),
            },
        }
    }
}

fn key(bytes: &[u8]) -> Result<(SchemaKey, &[u8]), FrameError> {
    let truncated = |part| FrameError::Truncated { offset: bytes.len(), part };
    match bytes.split_first() {
        Some((&MAGIC_ID, rest)) => match rest.split_first_chunk::<ID_BYTES>() {
            Some((id, rest)) => Ok((SchemaKey::Id(u32::from_be_bytes(*id)), rest)),
            None => Err(truncated("the schema id")),
        },
        Some((&MAGIC_GUID, rest)) => match rest.split_first_chunk::<GUID_BYTES>() {
            Some((guid, rest)) => Ok((SchemaKey::Guid(*guid), rest)),
            None => Err(truncated("the schema GUID")),
        },
        first => Err(FrameError::NotFramed { first: first.map(|(first, _)| *first) }),
    }
}

/// Where a message type stands in its file: the index among the messages of the file, then among those nested in that one,
/// and so on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MessageIndexes {
    indexes: [u32; MAX_MESSAGE_INDEXES],
    len: usize,
}

impl MessageIndexes {
    /// The first message of the file.
    pub const FIRST: Self = Self { indexes: [0; MAX_MESSAGE_INDEXES], len: 1 };

    /// The indexes, from the outermost message inwards.
    pub fn as_slice(&self) -> &[u32] {
        &self.indexes[..self.len]
    }

    /// Puts indexes together; `None` when there are none or too many.
    pub fn new(indexes: &[u32]) -> Option<Self> {
        let mut all = Self { indexes: [0; MAX_MESSAGE_INDEXES], len: indexes.len() };
        all.indexes.get_mut(..indexes.len())?.copy_from_slice(indexes);
        (!indexes.is_empty()).then_some(all)
    }

    /// Reads them off `bytes`, which begin at `offset`; the rest is the message.
    fn read(bytes: &[u8], offset: usize) -> Result<(Self, &[u8]), FrameError> {
        let mut varints = Varints { bytes, at: 0, offset };
        let count_at = offset;
        let count = varints.next()?;
        if count == 0 {
            return Ok((Self::FIRST, &bytes[varints.at..]));
        }
        let len = usize::try_from(count).ok().filter(|count| *count <= MAX_MESSAGE_INDEXES);
        let len = len.ok_or(FrameError::IndexCount { offset: count_at, count })?;
        let mut all = Self { indexes: [0; MAX_MESSAGE_INDEXES], len };
        for slot in &mut all.indexes[..len] {
            let at = offset + varints.at;
            let index = varints.next()?;
            *slot = u32::try_from(index).map_err(|_| FrameError::Index { offset: at, index })?;
        }
        Ok((all, &bytes[varints.at..]))
    }
}

impl fmt::Debug for MessageIndexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_slice(), f)
    }
}

struct Varints<'a> {
    bytes: &'a [u8],
    at: usize,
    /// What the first of the bytes counts as.
    offset: usize,
}

impl Varints<'_> {
    fn next(&mut self) -> Result<i64, FrameError> {
        let start = self.at;
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let Some(byte) = self.bytes.get(self.at) else {
                let offset = self.offset + self.bytes.len();
                return Err(FrameError::Truncated { offset, part: "the message indexes" });
            };
            self.at += 1;
            if shift == 63 && *byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                return Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed());
            }
        }
        Err(FrameError::Varint { offset: self.offset + start })
    }
}

/// Appends what stands in front of an Avro or JSON payload: magic byte and id.
pub fn write_id(id: u32, out: &mut Vec<u8>) {
    out.push(MAGIC_ID);
    out.extend_from_slice(&id.to_be_bytes());
}

/// Appends what stands in front of a Protobuf message: magic byte, id and message indexes. The first message of a file gets
/// the short form, as Confluent's own clients write it.
pub fn write_id_and_indexes(id: u32, indexes: &MessageIndexes, out: &mut Vec<u8>) {
    write_id(id, out);
    if *indexes == MessageIndexes::FIRST {
        out.push(0);
        return;
    }
    // Neither a count nor an index is negative, so zigzag doubles them.
    crate::wire::write_varint((indexes.len as u64) << 1, out);
    for index in indexes.as_slice() {
        crate::wire::write_varint(u64::from(*index) << 1, out);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(value: &[u8]) -> Result<(SchemaKey, Vec<u32>, &[u8]), FrameError> {
        let framed = Framed::of_value(value)?;
        let (indexes, message) = framed.message()?;
        Ok((framed.schema, indexes.as_slice().to_vec(), message))
    }

    #[test]
    fn the_short_and_the_long_form_of_the_first_message_are_the_same() {
        for value in [&b"\x00\x00\x00\x00\x2a\x00\x0a\x02hi"[..], b"\x00\x00\x00\x00\x2a\x02\x00\x0a\x02hi"] {
            assert_eq!(message(value), Ok((SchemaKey::Id(42), vec![0], &b"\x0a\x02hi"[..])));
        }
    }

    #[test]
    fn what_is_not_framed_and_what_is_cut_are_told_apart() {
        assert_eq!(message(b"\x0a\x02hi"), Err(FrameError::NotFramed { first: Some(0x0a) }));
        assert_eq!(message(b""), Err(FrameError::NotFramed { first: None }));
        for (value, part) in [
            (&b"\x00\x00\x00\x2a"[..], "the schema id"),
            (b"\x00", "the schema id"),
            (b"\x00\x00\x00\x00\x2a\x02", "the message indexes"),
            (b"\x00\x00\x00\x00\x2a", "the message indexes"),
            (b"\x00\x00\x00\x00\x2a\x06\x02\x80", "the message indexes"),
            (b"\x01\x89\x79", "the schema GUID"),
        ] {
            let error = message(value).unwrap_err();
            assert_eq!(error, FrameError::Truncated { offset: value.len(), part }, "{value:02x?}");
            assert!(error.to_string().starts_with(&format!("truncated at byte {}", value.len())), "{error}");
        }
    }

    #[test]
    fn indexes_beyond_any_schema_are_refused_without_being_read() {
        let cases: [(&[u8], FrameError); 5] = [
            (b"\0\0\0\0\x2a\x01", FrameError::IndexCount { offset: 5, count: -1 }),
            (b"\0\0\0\0\x2a\x42", FrameError::IndexCount { offset: 5, count: 33 }),
            (b"\0\0\0\0\x2a\x80\x80\x80\x80\x80\x01", FrameError::IndexCount { offset: 5, count: 1 << 34 }),
            (b"\0\0\0\0\x2a\x04\x00\x01", FrameError::Index { offset: 7, index: -1 }),
            (b"\0\0\0\0\x2a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", FrameError::Varint { offset: 5 }),
        ];
        for (value, error) in cases {
            assert_eq!(message(value), Err(error), "{value:02x?}");
        }
    }

    #[test]
    fn avro_and_json_have_nothing_between_the_id_and_the_payload() {
        assert_eq!(Framed::of_value(b"\0\0\0\x01\0{}").unwrap().payload(), Ok(&b"{}"[..]));
        assert_eq!(Framed::of_value(b"\0\0\0\x01\0").unwrap().payload(), Ok(&b""[..]));
    }

    #[test]
    fn a_header_can_hold_the_id_and_the_indexes() {
        let guid = *b"\x89\x79\x17\x62\x23\x36\x41\x86\x96\x74\x29\x9b\x90\xa8\x02\xe2";
        let header = [&b"\x01"[..], &guid, b"\x02\x04"].concat();
        let framed = Framed::of_header(&header, b"\x0a\x02hi").unwrap();
        assert_eq!(framed.schema.to_string(), "schema 89791762-2336-4186-9674-299b90a802e2");
        let (indexes, message) = framed.message().unwrap();
        assert_eq!((indexes.as_slice(), message), (&[2][..], &b"\x0a\x02hi"[..]));
        assert_eq!(framed.payload(), Err(FrameError::HeaderTail { offset: 17 }));
        assert_eq!(Framed::of_header(&header[..17], b"{}").unwrap().payload(), Ok(&b"{}"[..]));
        let tail = [&header[..], b"x"].concat();
        assert_eq!(Framed::of_header(&tail, b"").unwrap().message(), Err(FrameError::HeaderTail { offset: 19 }));
    }

    #[test]
    fn the_first_message_is_written_short() {
        let mut out = Vec::new();
        write_id_and_indexes(42, &MessageIndexes::FIRST, &mut out);
        assert_eq!(out, b"\0\0\0\0\x2a\0");
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(id: u32, path in prop::collection::vec(any::<u32>(), 1..=MAX_MESSAGE_INDEXES)) {
            let indexes = MessageIndexes::new(&path).unwrap();
            let mut out = Vec::new();
            write_id_and_indexes(id, &indexes, &mut out);
            out.extend_from_slice(b"rest");
            prop_assert_eq!(message(&out), Ok((SchemaKey::Id(id), path, &b"rest"[..])));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(value in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = message(&value);
            let mut framed = vec![0, 0, 0, 0, 1];
            framed.extend_from_slice(&value);
            let _ = message(&framed);
        }
    }
}

//! Why an Avro schema cannot be used, and why a value is not what it says.

use crate::json::SyntaxError;

/// Why an Avro schema cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AvroSchemaError {
    /// The text is not JSON.
    #[error("the Avro schema is not JSON: {0}")]
    Syntax(#[from] SyntaxError),
    /// Something is not as Avro wants it.
    #[error("the Avro schema{}: {what}", place(at))]
    Invalid {
        /// The named type, or the field, in which it stands; empty at the top.
        at: String,
        /// What is wrong.
        what: String,
    },
    /// A type of that name is nowhere.
    #[error(
        "the Avro schema{}: there is no type {name:?}, neither before this place nor among the references",
        place(at)
    )]
    UnknownType {
        /// Where the name stands.
        at: String,
        /// The name.
        name: String,
    },
    /// The schema holds more than is allowed.
    #[error("the Avro schema has more than {limit} types")]
    TooLarge {
        /// How many there may be.
        limit: usize,
    },
}

fn place(at: &str) -> String {
    if at.is_empty() { String::new() } else { format!(", {at}") }
}

/// Why bytes cannot be shown as the value that an Avro schema describes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: byte {offset}: {reason}")]
pub struct AvroError {
    /// The path that the value in trouble would have in the JSON document; `$` is the document.
    pub path: String,
    /// Where in the bytes the trouble was noticed.
    pub offset: usize,
    /// What is wrong.
    pub reason: AvroReason,
}

/// What can be wrong with the bytes of an Avro value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AvroReason {
    /// They end too early.
    #[error("the value ends inside {what}")]
    Truncated {
        /// What is not whole.
        what: &'static str,
    },
    /// A varint is longer than its type.
    #[error("{what} has more than {bits} bits")]
    Varint {
        /// What was read.
        what: &'static str,
        /// How many it can have.
        bits: u32,
    },
    /// A length or a count is negative, or beyond what the bytes can hold.
    #[error("{what} of {length}, and {left} bytes are left")]
    Length {
        /// Of what.
        what: &'static str,
        /// What was claimed.
        length: i64,
        /// How many bytes are left.
        left: usize,
    },
    /// The items of a block take other bytes than the block says.
    #[error("a block of items ends at byte {found}, and its size says byte {expected}")]
    Block {
        /// Where its items end.
        found: usize,
        /// Where they should.
        expected: usize,
    },
    /// A boolean is neither 0 nor 1.
    #[error("{byte:#04x} is neither true nor false")]
    Boolean {
        /// The byte.
        byte: u8,
    },
    /// An index is not among the branches of a union or the symbols of an enum.
    #[error("{index} is not one of the {count} {of}")]
    Index {
        /// The index.
        index: i64,
        /// How many there are.
        count: usize,
        /// Of what.
        of: &'static str,
    },
    /// A string is not UTF-8.
    #[error("the string is not UTF-8")]
    NotUtf8,
    /// A key stands twice in a map.
    #[error("the key is given twice")]
    DuplicateKey,
    /// The value has no text.
    #[error("no JSON form: {what}")]
    NoJsonForm {
        /// What it is.
        what: &'static str,
    },
    /// Records, arrays and maps nest too deep.
    #[error("values nest deeper than {limit}")]
    Depth {
        /// How deep they may.
        limit: u32,
    },
    /// More values than so few bytes should hold: values of types that take no bytes.
    #[error("more than {limit} values in so few bytes")]
    TooManyValues {
        /// How many there may be.
        limit: usize,
    },
    /// The text would be too large.
    #[error("the JSON text is larger than {limit} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// Bytes are left behind the value.
    #[error("{bytes} bytes are left behind the value")]
    Rest {
        /// How many.
        bytes: usize,
    },
}

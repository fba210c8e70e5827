//! Why a conversion failed, and where in the document.

use std::fmt;

use crate::json::SyntaxError;

/// Why a JSON document could not be encoded as a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct ToProtobufError {
    /// The path of the value in trouble, such as `$.es[1]`; `$` is the document.
    pub path: String,
    /// What is wrong with it.
    pub reason: ToProtobufReason,
}

/// What can be wrong with a JSON document. Long texts are cut.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToProtobufReason {
    /// The bytes are not one JSON text.
    #[error("not JSON: {0}")]
    Syntax(#[from] SyntaxError),
    /// The value is of another JSON type than the field takes.
    #[error("expected {expected}, found {found}")]
    Type {
        /// What the field takes.
        expected: &'static str,
        /// What stands there.
        found: &'static str,
    },
    /// The message has no field with that name (strict mode).
    #[error("{message} has no field of this name")]
    UnknownField {
        /// The full name of the message.
        message: String,
    },
    /// The enum has no value with that name (strict mode).
    #[error("{enumeration} has no value {name:?}")]
    UnknownEnumName {
        /// The full name of the enum.
        enumeration: String,
        /// The name in the document.
        name: String,
    },
    /// A number that the field's type cannot hold.
    #[error("{text} is out of range for {scalar}")]
    OutOfRange {
        /// The type, as `.proto` files name it.
        scalar: &'static str,
        /// The number in the document.
        text: String,
    },
    /// A number with a fraction where an integer is needed.
    #[error("{text} is not an integer")]
    Fraction {
        /// The number in the document.
        text: String,
    },
    /// A string that does not have the form that the type prescribes.
    #[error("{text:?} is not {expected}")]
    Text {
        /// What it should be.
        expected: &'static str,
        /// The string in the document.
        text: String,
    },
    /// The same field is given twice, be it under its two names.
    #[error("the field is given twice")]
    DuplicateField,
    /// The same key stands twice in a map or a `google.protobuf.Struct`.
    #[error("the key is given twice")]
    DuplicateKey,
    /// Two members of a oneof are given.
    #[error("{first} is given too, and both are of the oneof {oneof}")]
    OneofConflict {
        /// The oneof's name.
        oneof: String,
        /// The JSON name of the member that came first.
        first: String,
    },
    /// A required field (proto2) is missing.
    #[error("the required field {field} is missing")]
    MissingField {
        /// Its JSON name.
        field: String,
    },
    /// A `google.protobuf.Any` that is not empty has no `@type`.
    #[error("a google.protobuf.Any needs a key \"@type\"")]
    MissingType,
    /// A `google.protobuf.Any` of a type with a JSON form of its own has no `value`.
    #[error("a google.protobuf.Any of {message} needs a key \"value\"")]
    MissingValue {
        /// The full name of the type.
        message: String,
    },
    /// A `google.protobuf.Any` of a type that the schema does not have.
    #[error("the schema has no message for {type_url:?}")]
    UnknownType {
        /// The type URL.
        type_url: String,
    },
    /// Messages nest too deep for the readers of Protobuf.
    #[error("messages nest deeper than {limit}")]
    Depth {
        /// How deep they may.
        limit: u32,
    },
}

/// Why an encoded message could not be printed as JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct ToJsonError {
    /// The path that the value in trouble would have in the JSON document, such as `$.es[1]`; `$` is the document.
    pub path: String,
    /// What is wrong with it.
    pub reason: ToJsonReason,
}

/// What can be wrong with an encoded message. Offsets count the bytes of the whole value from 0. Long texts are cut.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToJsonReason {
    /// The bytes are no message at all.
    #[error("byte {offset}: {problem}")]
    Malformed {
        /// Where.
        offset: u32,
        /// What is wrong there.
        problem: MessageProblem,
    },
    /// The field is encoded in another way than its type is.
    #[error("byte {offset}: the field is not encoded as {expected} is")]
    WireType {
        /// Where.
        offset: u32,
        /// The field's type.
        expected: &'static str,
    },
    /// A string is not UTF-8.
    #[error("byte {offset}: the string is not UTF-8")]
    NotUtf8 {
        /// Where.
        offset: u32,
    },
    /// The value has no JSON form.
    #[error("no JSON form: {what}")]
    NoJsonForm {
        /// What it is.
        what: &'static str,
    },
    /// A `google.protobuf.Any` of a type that the schema does not have.
    #[error("the schema has no message for {type_url:?}")]
    UnknownType {
        /// The type URL.
        type_url: String,
    },
    /// Messages nest too deep.
    #[error("messages nest deeper than {limit}")]
    Depth {
        /// How deep they may.
        limit: u32,
    },
    /// The text would be larger than [`JsonOptions::max_json_bytes`](crate::JsonOptions::max_json_bytes).
    #[error("the JSON text is larger than {limit} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The encoded message has 4 GiB or more.
    #[error("the message has {bytes} bytes; Protobuf ends at 2 GiB")]
    TooLong {
        /// Its size.
        bytes: usize,
    },
}

/// How bytes fail to be a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageProblem {
    /// They end inside a field, or a length reaches beyond them.
    Truncated,
    /// A varint is longer than 64 bits.
    Varint,
    /// A field number is 0 or too large.
    FieldNumber,
    /// A wire type does not exist.
    WireType,
    /// A group ends that did not begin.
    EndGroup,
    /// Groups nest too deep.
    GroupDepth,
}

impl fmt::Display for MessageProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the message ends inside a field",
            Self::Varint => "a varint has more than 64 bits",
            Self::FieldNumber => "no such field number",
            Self::WireType => "no such wire type",
            Self::EndGroup => "a group ends that did not begin",
            Self::GroupDepth => "groups nest too deep",
        })
    }
}

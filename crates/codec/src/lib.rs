//! Descriptors, and JSON <-> Protobuf under Protobuf's JSON rules.
//!
//! - [`Schema`] loads `.proto` files or a descriptor set; a [`MessageType`] of it converts documents in both directions.
//! - [`JsonValue`] decides how arbitrary bytes are shown in JSON output.
//! - [`registry`] reads values that were written through a schema registry: Protobuf, Avro and JSON.
//!
//! `protox` compiles and `prost-reflect` holds the descriptors; neither is seen outside of `schema` and `table`. The two
//! conversions work on a table of their own, compiled once for a schema, straight from text to bytes and from bytes to text:
//! `to_protobuf` and `to_json` can be replaced by faster ones behind the same signatures.
//!
//! # The JSON rules, where they leave a choice or implementations differ
//!
//! Into Protobuf:
//!
//! - A key that is given twice is an error, also under a field's two names, in a map and in a `google.protobuf.Struct`. So are
//!   two members of a oneof, unless one of them is null.
//! - Numbers are read from their text, in every form that JSON has for them, also in a string, and never by way of a float
//!   that could lose digits. A number that the type cannot hold is an error: `1e400` is not infinity. In a string nothing but
//!   a number as JSON writes them is one: no `+1`, `01`, ` 1` or `inf`.
//! - The numbers of a `google.protobuf.Value` are doubles by its definition, so integers beyond 2^53 lose digits there.
//! - An enum is given by a name or by a number, not by a number in a string. Unknown numbers are kept.
//! - Half a surrogate pair is an error, wherever it stands.
//! - A required field (proto2) must be there.
//! - Fields are written in the order of their numbers.
//!
//! Into JSON:
//!
//! - Fields that the schema does not know are not printed.
//! - A field encoded in another way than its type is an error, where some readers take it for an unknown field and drop it.
//! - A string that is not UTF-8 is an error, in proto2 too.
//! - An unknown number of an enum is printed as a number, also of a closed enum (proto2), and of `google.protobuf.NullValue`.
//! - Missing required fields (proto2) do not matter: it is better to show what is there.
//! - A `google.protobuf.Value` that says nothing prints as null, which reads back as a Value that says null.
//! - Integers in floats are printed without a fraction: `1`, not `1.0`.
//!
//! Both ways, messages nest at most 100 deep, and a map entry counts as a message, as it does for most readers of the wire
//! format. Not supported: editions, for the compiler knows proto2 and proto3 only, and the MessageSet wire format.

mod error;
mod json;
mod path;
pub mod registry;
mod schema;
mod shown;
mod table;
mod to_json;
mod to_protobuf;
mod well_known;
mod wire;

pub use error::{MessageProblem, ToJsonError, ToJsonReason, ToProtobufError, ToProtobufReason};
pub use json::{SyntaxError, SyntaxProblem, write_json_base64, write_json_string};
pub use schema::{MessageType, Schema, SchemaError};
pub use shown::JsonValue;

/// Messages and records, arrays and objects nest no deeper, in whichever direction: what readers of Protobuf and of JSON
/// accept by default.
pub(crate) const MAX_DEPTH: u32 = 100;

/// What becomes of names that the schema does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownMode {
    /// An unknown field or enum name is an error.
    #[default]
    Strict,
    /// An unknown field is skipped. An unknown enum name leaves its field unset, and is left out of a list or a map.
    Lenient,
}

/// How a message is printed. Start from `JsonOptions::default()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JsonOptions {
    /// Also print fields without presence that have their default value: zeroes, empty strings, lists and maps. Fields that
    /// know "unset" (`optional`, members of a oneof, messages) are printed only when they are set.
    pub print_defaults: bool,
    /// The conversion fails when the text grows beyond this many bytes. Default: 64 MiB.
    pub max_json_bytes: usize,
}

impl Default for JsonOptions {
    fn default() -> Self {
        Self { print_defaults: false, max_json_bytes: 64 << 20 }
    }
}

//! Descriptors, and JSON <-> Protobuf under Protobuf's JSON rules.
//!
//! - [`Schema`] loads `.proto` files or a descriptor set; [`MessageType`] converts documents of one message type.
//! - [`JsonValue`] decides how arbitrary bytes are shown in JSON output.

mod error;
mod json;
mod path;
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
    /// The conversion fails when the text grows beyond this many bytes. Default: 256 MiB.
    pub max_json_bytes: usize,
}

impl Default for JsonOptions {
    fn default() -> Self {
        Self { print_defaults: false, max_json_bytes: 256 << 20 }
    }
}

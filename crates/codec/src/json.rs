//! JSON text (RFC 8259), read and written without building a document.

mod number;
mod reader;
mod writer;

pub(crate) use number::{IntegerError, is_number, parse_f32, parse_f64, parse_integer, special_float};
pub(crate) use reader::{Ahead, Reader};
pub use reader::{SyntaxError, SyntaxProblem};
pub(crate) use writer::{write_display, write_f32, write_f64};
pub use writer::{write_json_base64, write_json_string};

/// Checks that `bytes` are one JSON text.
pub(crate) fn check(bytes: &[u8]) -> Result<(), SyntaxError> {
    let mut reader = Reader::new(bytes)?;
    reader.skip_value()?;
    reader.end()
}

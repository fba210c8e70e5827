//! Avro: schemas read into a table, and values straight from bytes to JSON text by it.

mod decode;
mod encode;
mod error;
mod logical;
mod schema;

pub use encode::{AvroWriteError, AvroWriteReason};
pub use error::{AvroError, AvroReason, AvroSchemaError};
pub(super) use schema::AvroSchema;

impl AvroSchema {
    /// Appends the JSON form of one value to `out`, which is left as it was on an error.
    pub(super) fn to_json(&self, bytes: &[u8], max_json_bytes: usize, out: &mut Vec<u8>) -> Result<(), AvroError> {
        decode::to_json(self, bytes, max_json_bytes, out)
    }

    /// Appends the value that a JSON document stands for to `out`, which is left as it was on an error.
    pub(super) fn write(&self, json: &[u8], out: &mut Vec<u8>) -> Result<(), AvroWriteError> {
        encode::write(self, json, out)
    }
}

#[cfg(test)]
mod tests;

//! Avro: schemas read into a table, and values straight from bytes to JSON text by it.

mod decode;
mod encode;
mod error;
mod logical;
mod schema;

pub use encode::{AvroWriteError, AvroWriteReason};
pub use error::{AvroError, AvroReason, AvroSchemaError};
pub(super) use schema::AvroSchema;

/// How many values there may be, whatever the bytes, and how many more for each byte: of Avro when it is read, and of JSON
/// when it is written. A record of null fields and unions comes to one value a byte and its nulls.
const FREE_VALUES: usize = 64 << 10;
const VALUES_PER_BYTE: usize = 16;

fn max_values(bytes: usize) -> usize {
    FREE_VALUES.saturating_add(bytes.saturating_mul(VALUES_PER_BYTE))
}

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

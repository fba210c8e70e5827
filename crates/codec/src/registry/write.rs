//! JSON to values that carry their schema's id.

use std::fmt;
use std::sync::Arc;

use super::avro::AvroWriteError;
use super::{Compiled, CompiledSchema, MessageIndexes, SchemaKey, write_id, write_id_and_indexes};
use crate::json::{SyntaxError, check};
use crate::{MessageType, ToProtobufError, UnknownMode};

/// Writes values of one schema. Cheap to clone.
#[derive(Clone)]
pub struct ValueWriter {
    id: u32,
    schema: Arc<CompiledSchema>,
    /// With Protobuf.
    message: Option<(MessageIndexes, MessageType)>,
}

/// Why no values can be written with a schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriterError {
    /// The file has no such message.
    #[error("{schema} has no message {name}; it has {known}")]
    UnknownMessage {
        /// The schema.
        schema: SchemaKey,
        /// The name.
        name: String,
        /// Those that it has, as a list.
        known: String,
    },
    /// The file has no message at all.
    #[error("{schema} has no message")]
    NoMessage {
        /// The schema.
        schema: SchemaKey,
    },
    /// A message was named, and the schema is not Protobuf.
    #[error("{schema} is of type {found}, where no message can be named")]
    NotProtobuf {
        /// The schema.
        schema: SchemaKey,
        /// Its kind.
        found: &'static str,
    },
}

/// Why a JSON document is no value of the schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// It is not the Protobuf message.
    #[error("the value is no {message}: {source}")]
    Protobuf {
        /// The message's full name.
        message: String,
        /// What is wrong.
        source: ToProtobufError,
    },
    /// It is not what the Avro schema says.
    #[error("the value is not as {schema} says: {source}")]
    Avro {
        /// The schema.
        schema: SchemaKey,
        /// What is wrong.
        source: AvroWriteError,
    },
    /// It is not JSON.
    #[error("the value is not JSON: {0}")]
    Json(#[from] SyntaxError),
}

impl ValueWriter {
    /// Writes values of `schema`, which has this id. With Protobuf of the message of that full name, or of the first one of
    /// the file.
    ///
    /// # Errors
    /// [`WriterError`].
    pub fn new(id: u32, schema: Arc<CompiledSchema>, message: Option<&str>) -> Result<Self, WriterError> {
        let key = schema.key;
        let message = match (&schema.kind, message) {
            (Compiled::Protobuf(file), Some(name)) => {
                let indexes = file.indexes(name).ok_or_else(|| {
                    let known = file.message_names().into_iter().take(10).collect::<Vec<_>>().join(", ");
                    WriterError::UnknownMessage { schema: key, name: name.to_owned(), known }
                })?;
                let found = file.message(indexes.as_slice()).cloned();
                Some((indexes, found.ok_or(WriterError::NoMessage { schema: key })?))
            }
            (Compiled::Protobuf(file), None) => {
                let found = file.message(MessageIndexes::FIRST.as_slice()).cloned();
                Some((MessageIndexes::FIRST, found.ok_or(WriterError::NoMessage { schema: key })?))
            }
            (Compiled::Avro(_) | Compiled::Json, None) => None,
            (Compiled::Avro(_) | Compiled::Json, Some(_)) => {
                return Err(WriterError::NotProtobuf { schema: key, found: schema.kind().name() });
            }
        };
        Ok(Self { id, schema, message })
    }

    /// The schema.
    pub fn schema(&self) -> &CompiledSchema {
        &self.schema
    }

    /// Appends the framed value that a JSON document stands for.
    ///
    /// The payload of a JSON Schema is the document as it stands; it is not checked against the schema.
    ///
    /// # Errors
    /// [`WriteError`]; `out` is then as it was.
    pub fn write(&self, json: &[u8], out: &mut Vec<u8>) -> Result<(), WriteError> {
        let start = out.len();
        let written = match (&self.schema.kind, &self.message) {
            (Compiled::Avro(avro), _) => {
                write_id(self.id, out);
                avro.write(json, out).map_err(|source| WriteError::Avro { schema: self.schema.key, source })
            }
            (_, Some((indexes, message))) => {
                write_id_and_indexes(self.id, indexes, out);
                message
                    .json_to_protobuf(json, UnknownMode::Strict, out)
                    .map_err(|source| WriteError::Protobuf { message: message.full_name().to_owned(), source })
            }
            (_, None) => check(json).map_err(WriteError::Json).map(|()| {
                write_id(self.id, out);
                out.extend_from_slice(json);
            }),
        };
        if written.is_err() {
            out.truncate(start);
        }
        written
    }
}

impl fmt::Debug for ValueWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut writer = f.debug_tuple("ValueWriter");
        writer.field(&self.schema);
        if let Some((_, message)) = &self.message {
            writer.field(message);
        }
        writer.finish()
    }
}

//! Values written through a schema registry: which schema they were written with, and what they say.
//!
//! Nothing here talks to a registry. [`Framed`] reads the schema's id off a value; whoever can fetch gives what a registry
//! answered to [`read_answer`], follows the references with an [`Assembly`], and keeps the [`CompiledSchema`], which turns values
//! into JSON and JSON into values.
//!
//! # Avro in JSON
//!
//! Avro has a JSON encoding of its own, in which a value of a union is wrapped in the name of its type (`{"string": "x"}`) and
//! bytes are characters up to U+00FF. It is not what comes out here: the readers are people and programs that expect JSON,
//! beside values that were Protobuf, and no optional field should look otherwise than one that is not optional. So:
//!
//! - A value of a union is the value.
//! - `bytes` and `fixed` are base64 in a string, as Protobuf's `bytes` are. `NaN` and the infinities are strings, too.
//! - `long` is a number with all its digits.
//! - `decimal` is a string with all its digits: `"12.50"`.
//! - `date` is `"2013-02-01"`; `time-*` is `"10:15:00.250"`; `timestamp-*` is `"2013-02-01T10:15:00.250Z"`, and
//!   `local-timestamp-*` the same without the `Z`. Digits of a second's fraction come in threes, as many as are needed.
//! - `uuid` is its text, also of a `fixed`; `duration` is ISO 8601: `"P1M2DT3.004S"`.
//! - Any other logical type, and one that does not suit its type, is its underlying type, as Avro's specification has it.
//!
//! The reader's schema is the writer's: nothing is resolved, and defaults play no part in reading.
//!
//! Written is what reads back so: a value of a union goes to the first branch that it fits, a missing field to the null branch
//! of its union, and defaults play no part. Of the branches for numbers, an integer prefers `int` and `long`, and another
//! number a `double` to a `float` that would change it, wherever they stand.
//!
//! # Protobuf's message indexes beside map fields
//!
//! A framed value names its message by where that stands in the file, and clients count differently: Confluent's Java client
//! goes by the messages that are written there, others by those of the descriptor, where the compiler's own message for the
//! entries of a map field stands among them. For messages nested in one with a map field, the same index can so mean two
//! messages, and no value tells which client wrote it. The Java client's way of counting is tried first and is how values are
//! written; the other one is tried where the first leads nowhere. A message that no field of type map is beside has one index.

mod answer;
mod assembly;
mod avro;
mod framing;
mod known;
mod protobuf;
mod write;

use std::fmt;

use crate::json::SyntaxError;
use crate::{JsonOptions, JsonValue, MessageType, ToJsonError};

pub use answer::{AnswerError, RegistryAnswer, read_answer};
pub use assembly::{
    Assembly, AssemblyLimits, RegisteredSchema, SchemaProblem, SchemaReference, SchemaType, SubjectVersion,
};
pub use avro::{AvroError, AvroReason, AvroSchemaError, AvroWriteError, AvroWriteReason};
pub use framing::{
    FrameError, Framed, MAX_MESSAGE_INDEXES, MessageIndexes, SchemaKey, VALUE_SCHEMA_HEADER, write_id,
    write_id_and_indexes,
};
pub use write::{ValueWriter, WriteError, WriterError};

use self::avro::AvroSchema;
use self::protobuf::{Imports, ProtobufFile};

/// A schema of a registry with all that it refers to, ready to convert values.
pub struct CompiledSchema {
    key: SchemaKey,
    kind: Compiled,
}

enum Compiled {
    Protobuf(ProtobufFile),
    Avro(AvroSchema),
    Json,
}

/// Why a value cannot be shown as JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It is not framed, or the frame is broken.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The message indexes lead nowhere.
    #[error("{schema} has no message at {indexes:?}")]
    NoMessage {
        /// The schema.
        schema: SchemaKey,
        /// The indexes.
        indexes: Vec<u32>,
    },
    /// It is not the Protobuf message that it claims to be.
    #[error("the value is not a {message} of {schema}: {source}")]
    Protobuf {
        /// The schema.
        schema: SchemaKey,
        /// The message's full name.
        message: String,
        /// What is wrong; offsets count from the first byte of the message.
        source: ToJsonError,
    },
    /// It is not what the Avro schema says.
    #[error("the value is not as {schema} says: {source}")]
    Avro {
        /// The schema.
        schema: SchemaKey,
        /// What is wrong; offsets count from the first byte behind the schema id.
        source: AvroError,
    },
    /// It is not JSON.
    #[error("{schema} is a JSON Schema, and behind its id stands no JSON document{}", syntax(source.as_ref()))]
    Json {
        /// The schema.
        schema: SchemaKey,
        /// What is wrong; offsets count from the first byte behind the schema id.
        source: Option<SyntaxError>,
    },
}

fn syntax(error: Option<&SyntaxError>) -> String {
    error.map(|error| format!(": {error}")).unwrap_or_default()
}

impl CompiledSchema {
    /// Compiles `root` with the texts of what it refers to: by name for Protobuf, those that others need first for Avro.
    fn compile(
        key: SchemaKey,
        root: &RegisteredSchema,
        by_name: &Imports<'_>,
        in_order: &[&str],
    ) -> Result<Self, SchemaProblem> {
        let kind = match root.kind {
            SchemaType::Protobuf => {
                let name = format!("schema-{}.proto", key.text());
                Compiled::Protobuf(ProtobufFile::compile(&name, &root.text, by_name)?)
            }
            SchemaType::Avro => Compiled::Avro(AvroSchema::parse(&root.text, in_order)?),
            // Whoever wrote the value has checked it against the schema; what is shown is the value.
            SchemaType::Json => Compiled::Json,
        };
        Ok(Self { key, kind })
    }

    /// Which schema it is.
    pub fn key(&self) -> SchemaKey {
        self.key
    }

    /// Its kind.
    pub fn kind(&self) -> SchemaType {
        match self.kind {
            Compiled::Protobuf(_) => SchemaType::Protobuf,
            Compiled::Avro(_) => SchemaType::Avro,
            Compiled::Json => SchemaType::Json,
        }
    }

    /// Appends a value's JSON form to `out`, on one line.
    ///
    /// # Errors
    /// [`DecodeError`]; `out` is then as it was.
    pub fn to_json(&self, framed: &Framed<'_>, out: &mut Vec<u8>) -> Result<(), DecodeError> {
        let schema = self.key;
        let options = JsonOptions::default();
        match &self.kind {
            Compiled::Protobuf(file) => {
                let (indexes, bytes) = framed.message()?;
                let message = file.message(indexes.as_slice());
                let message =
                    message.ok_or_else(|| DecodeError::NoMessage { schema, indexes: indexes.as_slice().to_vec() })?;
                message.protobuf_to_json(bytes, &options, out).map_err(|source| DecodeError::Protobuf {
                    schema,
                    message: message.full_name().to_owned(),
                    source,
                })
            }
            Compiled::Avro(avro) => avro
                .to_json(framed.payload()?, options.max_json_bytes, out)
                .map_err(|source| DecodeError::Avro { schema, source }),
            Compiled::Json => {
                let payload = framed.payload()?;
                let document = JsonValue::document(payload)
                    .ok_or_else(|| DecodeError::Json { schema, source: crate::json::check(payload).err() })?;
                out.extend_from_slice(document.as_bytes());
                Ok(())
            }
        }
    }

    /// With Protobuf, the message type at a place of the file.
    pub fn message(&self, indexes: &MessageIndexes) -> Option<&MessageType> {
        match &self.kind {
            Compiled::Protobuf(file) => file.message(indexes.as_slice()),
            Compiled::Avro(_) | Compiled::Json => None,
        }
    }
}

impl fmt::Debug for CompiledSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.key, self.kind().name())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base64::Engine as _;
    use serde_json::Value;

    use super::*;

    /// `tests/registry/make.py` wrote them with Confluent's own client for Python.
    const VALUES: &str = include_str!("../../tests/registry/values.jsonl");

    #[test]
    fn values_of_confluents_python_client_are_read_and_written_back_byte_for_byte() {
        use SchemaType::{Avro, Json, Protobuf};
        let mut kinds = Vec::new();
        for line in VALUES.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let text = |name: &str| line[name].as_str().unwrap().to_owned();
            let value: Vec<u8> = (0..text("value").len() / 2)
                .map(|at| u8::from_str_radix(&text("value")[2 * at..2 * at + 2], 16).unwrap())
                .collect();
            let kind = SchemaType::from_name(&text("kind")).unwrap();
            let root = RegisteredSchema { kind, text: text("schema"), references: Vec::new() };
            let framed = Framed::of_value(&value).unwrap();
            let SchemaKey::Id(id) = framed.schema else { panic!("{}", framed.schema) };
            let assembly = Assembly::new(framed.schema, root, AssemblyLimits::default()).unwrap();
            let compiled = Arc::new(assembly.compile().unwrap());
            let mut json = Vec::new();
            compiled.to_json(&framed, &mut json).unwrap();
            assert_eq!(serde_json::from_slice::<Value>(&json).unwrap(), line["json"]);

            let indexes = framed.message().ok().filter(|_| kind == Protobuf).map(|(indexes, _)| indexes);
            let message =
                indexes.and_then(|indexes| compiled.message(&indexes)).map(|message| message.full_name().to_owned());
            let writer = ValueWriter::new(id, compiled, message.as_deref()).unwrap();
            let mut written = Vec::new();
            writer.write(&json, &mut written).unwrap();
            assert_eq!(written, value, "{}", String::from_utf8_lossy(&json));
            kinds.push(kind);
        }
        assert_eq!(kinds, [Protobuf, Protobuf, Protobuf, Avro, Avro, Json]);
        // The client registers Protobuf as a descriptor and not as text.
        assert!(base64::engine::general_purpose::STANDARD.decode(VALUES.split('"').nth(7).unwrap()).is_ok());
    }
}

//! What the values of each topic are, as the operator declared it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tidegate_codec::registry::{FrameError, Framed, SchemaKey, VALUE_SCHEMA_HEADER, ValueWriter};
use tidegate_codec::{JsonOptions, JsonValue, MessageType};
use tidegate_model::{Headers, PayloadKind, Record, TopicName};

use super::registry::{Registry, Resolved, WriteSchema};

/// What the values of one topic are.
#[derive(Clone, Debug, Default)]
pub enum TopicPayload {
    /// Bytes.
    #[default]
    Bytes,
    /// One JSON document each.
    Json,
    /// One Protobuf message of this type each.
    Protobuf(MessageType),
    /// One value each that names its schema, which is in a registry.
    Registry(Box<RegistryPayload>),
}

/// What is known of values that name their schema.
#[derive(Clone, Debug)]
pub struct RegistryPayload {
    /// Where their schemas are.
    pub registry: Registry,
    /// What JSON is written with.
    pub write: WriteSchema,
    /// What writes it, once that is known.
    pub(crate) writer: Option<ValueWriter>,
}

impl RegistryPayload {
    /// Values whose schemas are in `registry`.
    pub fn new(registry: Registry, write: WriteSchema) -> Self {
        Self { registry, write, writer: None }
    }

    /// What writes JSON as these values; `None` before the registry was asked for it.
    pub fn writer(&self) -> Option<&ValueWriter> {
        self.writer.as_ref()
    }
}

impl TopicPayload {
    /// Its kind.
    pub fn kind(&self) -> PayloadKind {
        match self {
            Self::Bytes => PayloadKind::Bytes,
            Self::Json => PayloadKind::Json,
            Self::Protobuf(message) => PayloadKind::Protobuf { message: message.full_name().to_owned() },
            Self::Registry(_) => PayloadKind::Registry,
        }
    }
}

/// The payloads of the topics; a topic that is not in it holds bytes. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Payloads {
    topics: Arc<BTreeMap<TopicName, TopicPayload>>,
}

impl Payloads {
    /// Declares a topic's payload, in place of an earlier declaration.
    pub fn insert(&mut self, topic: TopicName, payload: TopicPayload) {
        Arc::make_mut(&mut self.topics).insert(topic, payload);
    }

    /// What the topic's values are.
    pub fn get(&self, topic: &TopicName) -> TopicPayload {
        self.topics.get(topic).cloned().unwrap_or_default()
    }

    /// The way from the topic's values to JSON.
    pub fn decoder(&self, topic: &TopicName) -> ValueDecoder {
        ValueDecoder::new(self.get(topic))
    }
}

/// The way from a topic's values to JSON text.
///
/// Where values name their schema, it has to learn the schemas: whoever shows it a record asks [`ValueDecoder::needs`] before.
#[derive(Clone, Debug, Default)]
pub struct ValueDecoder {
    payload: TopicPayload,
    schemas: HashMap<SchemaKey, Resolved>,
}

/// How many schemas a decoder remembers. One read meets a few; the registry's own memory is behind it.
const MAX_LEARNT: usize = 64;

impl ValueDecoder {
    /// The way from values of this payload to JSON.
    pub fn new(payload: TopicPayload) -> Self {
        Self { payload, schemas: HashMap::new() }
    }

    /// What the values are.
    pub fn payload(&self) -> &TopicPayload {
        &self.payload
    }

    /// The schema that must be learnt before the record can be shown.
    pub fn needs(&self, record: &Record<'_>) -> Option<SchemaKey> {
        let TopicPayload::Registry(_) = &self.payload else { return None };
        // A null value says nothing, and what is not framed has no schema.
        let framed = framed(record.value?, record.headers).ok()?;
        (!self.schemas.contains_key(&framed.schema)).then_some(framed.schema)
    }

    /// Where the schemas are that it may need.
    pub fn registry(&self) -> Option<&Registry> {
        match &self.payload {
            TopicPayload::Registry(payload) => Some(&payload.registry),
            TopicPayload::Bytes | TopicPayload::Json | TopicPayload::Protobuf(_) => None,
        }
    }

    /// Learns what became of a schema.
    pub fn learn(&mut self, key: SchemaKey, schema: Resolved) {
        if self.schemas.len() == MAX_LEARNT {
            self.schemas.clear();
        }
        self.schemas.insert(key, schema);
    }

    /// Appends the value as one JSON document on one line: a Protobuf message by Protobuf's JSON rules, and so what a schema
    /// registry has the schema of; anything else must be JSON already and keeps the text of its numbers and strings.
    ///
    /// # Errors
    /// Why the value has no JSON form; `out` is then as it was.
    pub fn to_json(&self, value: &[u8], headers: Headers<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        match &self.payload {
            TopicPayload::Bytes | TopicPayload::Json => match JsonValue::document(value) {
                Some(document) => {
                    out.extend_from_slice(document.as_bytes());
                    Ok(())
                }
                None => Err("the value is not a JSON document".to_owned()),
            },
            TopicPayload::Protobuf(message) => {
                let before = out.len();
                message.protobuf_to_json(value, &JsonOptions::default(), out).map_err(|error| {
                    out.truncate(before);
                    format!("the value is not a {}: {error}", message.full_name())
                })
            }
            TopicPayload::Registry(_) => {
                let framed = framed(value, headers).map_err(|error| error.to_string())?;
                match self.schemas.get(&framed.schema) {
                    Some(Resolved::Ready(schema)) => schema.to_json(&framed, out).map_err(|error| error.to_string()),
                    Some(Resolved::Unusable(reason)) => Err(reason.to_string()),
                    None => Err(format!("{} was not fetched", framed.schema)),
                }
            }
        }
    }
}

/// A value with what names its schema, which a header may do in place of the value.
fn framed<'a>(value: &'a [u8], headers: Headers<'a>) -> Result<Framed<'a>, FrameError> {
    let mut named = headers.filter(|header| header.name == VALUE_SCHEMA_HEADER.as_bytes());
    match named.next().and_then(|header| header.value) {
        Some(header) => Framed::of_header(header, value),
        None => Framed::of_value(value),
    }
}

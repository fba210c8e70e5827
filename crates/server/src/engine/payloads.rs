//! What the values of each topic are, as the operator declared it.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_codec::{JsonOptions, JsonValue, MessageType};
use tidegate_model::{PayloadKind, TopicName};

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
}

impl TopicPayload {
    /// Its kind.
    pub fn kind(&self) -> PayloadKind {
        match self {
            Self::Bytes => PayloadKind::Bytes,
            Self::Json => PayloadKind::Json,
            Self::Protobuf(message) => PayloadKind::Protobuf { message: message.full_name().to_owned() },
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
        ValueDecoder { payload: self.get(topic) }
    }
}

/// The way from a topic's values to JSON text.
#[derive(Clone, Debug, Default)]
pub struct ValueDecoder {
    payload: TopicPayload,
}

impl ValueDecoder {
    /// The way from values of this payload to JSON.
    pub fn new(payload: TopicPayload) -> Self {
        Self { payload }
    }

    /// What the values are.
    pub fn payload(&self) -> &TopicPayload {
        &self.payload
    }

    /// Appends the value as one JSON document on one line: a Protobuf message by Protobuf's JSON rules; anything else must
    /// be JSON already and keeps the text of its numbers and strings.
    ///
    /// # Errors
    /// Why the value has no JSON form; `out` is then as it was.
    pub fn to_json(&self, value: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
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
        }
    }
}

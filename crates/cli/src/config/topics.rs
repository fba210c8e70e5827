//! `topics:`, what the values of each topic are.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{self, MapAccess, Visitor};
use tidegate_codec::Schema;
use tidegate_model::TopicName;
use tidegate_server::engine::{Payloads, TopicPayload};

use crate::exit::{Failure, chain};

/// The topics that the file names. A topic that it does not name holds bytes.
#[derive(Debug, Default)]
pub(crate) struct TopicsSection(BTreeMap<String, (TopicName, TopicSection)>);

/// One topic.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TopicSection {
    payload: Payload,
    /// With `protobuf`: the full name of the message.
    #[serde(default)]
    message: Option<String>,
    /// With `protobuf`: the `.proto` file that defines it.
    #[serde(default)]
    proto: Option<PathBuf>,
    /// Or a compiled descriptor set, as `protoc --descriptor_set_out` or `buf build` write it.
    #[serde(default)]
    descriptor: Option<PathBuf>,
    /// Directories in which imports are looked for; the `.proto` file's own is always one.
    #[serde(default)]
    includes: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Payload {
    Bytes,
    Json,
    Protobuf,
}

impl<'de> Deserialize<'de> for TopicsSection {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Topics;

        impl<'de> Visitor<'de> for Topics {
            type Value = TopicsSection;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from topic names to what the topics hold")
            }

            fn visit_unit<E>(self) -> Result<TopicsSection, E> {
                Ok(TopicsSection::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TopicsSection, A::Error> {
                let mut topics = BTreeMap::new();
                while let Some(text) = map.next_key::<String>()? {
                    let name = TopicName::new(&text).map_err(de::Error::custom)?;
                    match topics.entry(text) {
                        // A map would let the last one win, and the first would silently not be in force.
                        Entry::Occupied(entry) => {
                            return Err(de::Error::custom(format_args!("topic {:?} stands there twice", entry.key())));
                        }
                        Entry::Vacant(entry) => {
                            entry.insert((name, map.next_value()?));
                        }
                    }
                }
                Ok(TopicsSection(topics))
            }
        }

        deserializer.deserialize_any(Topics)
    }
}

impl TopicsSection {
    /// Makes the paths count from `base`.
    pub(super) fn resolve(&mut self, base: &Path) {
        for (_, topic) in self.0.values_mut() {
            for path in topic.proto.iter_mut().chain(&mut topic.descriptor).chain(&mut topic.includes) {
                *path = base.join(&*path);
            }
        }
    }

    /// Checks what one value cannot tell; `section` is where it stands, for messages.
    pub(super) fn check(&self, section: &str) -> Result<(), String> {
        for (name, (_, topic)) in &self.0 {
            let sources = usize::from(topic.proto.is_some()) + usize::from(topic.descriptor.is_some());
            match topic.payload {
                Payload::Protobuf if topic.message.is_none() => {
                    return Err(format!("{section}.{name}: payload protobuf needs message, the message's full name"));
                }
                Payload::Protobuf if sources != 1 => {
                    return Err(format!("{section}.{name}: payload protobuf needs either proto or descriptor"));
                }
                Payload::Bytes | Payload::Json
                    if sources > 0 || topic.message.is_some() || !topic.includes.is_empty() =>
                {
                    return Err(format!(
                        "{section}.{name}: message, proto, descriptor and includes go with payload protobuf only"
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads the schemas.
    pub(crate) fn payloads(&self) -> Result<Payloads, Failure> {
        let mut payloads = Payloads::default();
        for (topic, section) in self.0.values() {
            let payload =
                match (section.payload, &section.message, section.proto.as_ref().or(section.descriptor.as_ref())) {
                    (Payload::Bytes, ..) => TopicPayload::Bytes,
                    (Payload::Json, ..) => TopicPayload::Json,
                    (Payload::Protobuf, Some(message), Some(file)) => {
                        payload_from_proto(file, &section.includes, message).map_err(|failure| Failure {
                            message: format!("topics.{topic}: {}", failure.message),
                            ..failure
                        })?
                    }
                    (Payload::Protobuf, ..) => {
                        return Err(Failure::usage(format_args!("topics.{topic} is not complete")));
                    }
                };
            payloads.insert(topic.clone(), payload);
        }
        Ok(payloads)
    }
}

/// The message `message` of the `.proto` file or descriptor set at `file`, as a topic's payload.
pub(crate) fn payload_from_proto(file: &Path, includes: &[PathBuf], message: &str) -> Result<TopicPayload, Failure> {
    let schema = Schema::load(file, includes).map_err(|error| Failure::usage(chain(&error)))?;
    let message = schema.message(message).map_err(|error| Failure::usage(chain(&error)))?;
    Ok(TopicPayload::Protobuf(message))
}

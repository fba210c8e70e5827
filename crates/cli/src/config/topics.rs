//! `topics:`, what the values of each topic are.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{self, MapAccess, Visitor};
use tidegate_codec::Schema;
use tidegate_codec::registry::SchemaType;
use tidegate_model::TopicName;
use tidegate_server::engine::{Payloads, Registry, RegistryPayload, Subject, TopicPayload, WriteSchema};

use super::RegistrySection;
use super::registry::Strategy;
use crate::exit::{Failure, chain};

/// The topics that the file names. A topic that it does not name holds bytes.
#[derive(Debug, Default)]
pub(crate) struct TopicsSection(BTreeMap<String, (TopicName, TopicSection)>);

/// One topic.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TopicSection {
    payload: Payload,
    /// With `protobuf`: the full name of the message. With `registry`: what published JSON is.
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
    /// With `registry`: the subject that published JSON gets its schema from.
    #[serde(default)]
    subject: Option<String>,
    /// With `registry`: the file of the schema, when it is not the subject's latest one.
    #[serde(default)]
    schema: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Payload {
    Bytes,
    Json,
    Protobuf,
    Registry,
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
            let files = topic.proto.iter_mut().chain(&mut topic.descriptor).chain(&mut topic.schema);
            for path in files.chain(&mut topic.includes) {
                *path = base.join(&*path);
            }
        }
    }

    /// Checks what one value cannot tell; `section` is where it stands, for messages.
    pub(super) fn check(&self, section: &str, has_registry: bool) -> Result<(), String> {
        for (name, (_, topic)) in &self.0 {
            let sources = usize::from(topic.proto.is_some()) + usize::from(topic.descriptor.is_some());
            match topic.payload {
                Payload::Protobuf if topic.message.is_none() => {
                    return Err(format!("{section}.{name}: payload protobuf needs message, the message's full name"));
                }
                Payload::Protobuf if sources != 1 => {
                    return Err(format!("{section}.{name}: payload protobuf needs either proto or descriptor"));
                }
                Payload::Registry if !has_registry => {
                    return Err(format!(
                        "{section}.{name}: payload registry needs the section schema.registry of its cluster"
                    ));
                }
                Payload::Bytes | Payload::Json | Payload::Protobuf
                    if topic.subject.is_some() || topic.schema.is_some() =>
                {
                    return Err(format!("{section}.{name}: subject and schema go with payload registry only"));
                }
                Payload::Registry if sources > 0 || !topic.includes.is_empty() => {
                    return Err(format!(
                        "{section}.{name}: proto, descriptor and includes go with payload protobuf only"
                    ));
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
    pub(crate) fn payloads(&self, section: Option<&RegistrySection>) -> Result<Payloads, Failure> {
        let mut payloads = Payloads::default();
        let needed = self.0.values().any(|(_, topic)| topic.payload == Payload::Registry);
        // One for all topics: they share what is kept of it.
        let registry = section.filter(|_| needed).map(|section| section.registry().map(|registry| (section, registry)));
        let registry = registry.transpose()?;
        for (topic, section) in self.0.values() {
            let payload =
                match (section.payload, &section.message, section.proto.as_ref().or(section.descriptor.as_ref())) {
                    (Payload::Bytes, ..) => TopicPayload::Bytes,
                    (Payload::Json, ..) => TopicPayload::Json,
                    (Payload::Registry, ..) => match &registry {
                        Some((settings, registry)) => {
                            section.registry_payload(settings, registry).map_err(|failure| Failure {
                                message: format!("topics.{topic}: {}", failure.message),
                                ..failure
                            })?
                        }
                        None => return Err(Failure::usage(format_args!("topics.{topic} needs schema.registry"))),
                    },
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

impl TopicSection {
    fn registry_payload(&self, settings: &RegistrySection, registry: &Registry) -> Result<TopicPayload, Failure> {
        let subject = match (&self.subject, settings.strategy, &self.message) {
            (Some(subject), ..) => Subject::Named(subject.clone()),
            (None, Strategy::Topic, _) => Subject::Topic,
            (None, Strategy::Record, Some(record)) => Subject::Record(record.clone()),
            (None, Strategy::TopicRecord, Some(record)) => Subject::TopicRecord(record.clone()),
            (None, _, None) => Subject::Unknown,
        };
        let text = self.schema.as_deref().map(schema_file).transpose()?;
        let write = WriteSchema { subject, message: self.message.clone(), text, register: settings.auto_register };
        Ok(TopicPayload::Registry(Box::new(RegistryPayload::new(registry.clone(), write))))
    }
}

/// The text of a schema, and its kind by the file's extension.
fn schema_file(path: &Path) -> Result<(SchemaType, String), Failure> {
    let kind = match path.extension().and_then(|extension| extension.to_str()) {
        Some("proto") => SchemaType::Protobuf,
        Some("avsc") => SchemaType::Avro,
        Some("json") => SchemaType::Json,
        _ => {
            return Err(Failure::usage(format_args!(
                "cannot tell what {} is: expected .proto, .avsc (Avro) or .json (JSON Schema)",
                path.display()
            )));
        }
    };
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format_args!("cannot read {}: {error}", path.display())))?;
    Ok((kind, text))
}

/// The message `message` of the `.proto` file or descriptor set at `file`, as a topic's payload.
pub(crate) fn payload_from_proto(file: &Path, includes: &[PathBuf], message: &str) -> Result<TopicPayload, Failure> {
    let schema = Schema::load(file, includes).map_err(|error| Failure::usage(chain(&error)))?;
    let message = schema.message(message).map_err(|error| Failure::usage(chain(&error)))?;
    Ok(TopicPayload::Protobuf(message))
}

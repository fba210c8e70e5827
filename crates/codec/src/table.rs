//! The compiled form of a descriptor pool: what the two conversions look up, and nothing else.

use std::collections::HashMap;

use prost_reflect::{
    Cardinality, DescriptorPool, EnumDescriptor, ExtensionDescriptor, FieldDescriptor, MessageDescriptor,
};

use crate::SchemaError;

/// All message types and enums of a schema. Types refer to each other by index.
pub(crate) struct Table {
    messages: Vec<MessageEntry>,
    enums: Vec<EnumEntry>,
    by_name: HashMap<String, u32>,
    /// Indices of the messages that are not well-known types, by name.
    listed: Vec<u32>,
}

/// A message type.
pub(crate) struct MessageEntry {
    pub(crate) full_name: String,
    /// Not `None` when the type has a JSON form of its own.
    pub(crate) well_known: Option<WellKnown>,
    /// In the order of their numbers, extensions among them.
    pub(crate) fields: Vec<FieldEntry>,
    pub(crate) oneofs: Vec<OneofEntry>,
    /// Has a required field (proto2).
    pub(crate) has_required: bool,
    by_name: HashMap<String, u32>,
}

/// A field, or an extension.
pub(crate) struct FieldEntry {
    pub(crate) number: u32,
    /// The key in JSON. For an extension its full name in brackets.
    pub(crate) json_name: String,
    pub(crate) kind: Kind,
    pub(crate) shape: Shape,
    /// Index into the message's oneofs. A `optional` of proto3 is in none.
    pub(crate) oneof: Option<u32>,
}

/// How often a field's value occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Once; unset and default are the same.
    Implicit,
    /// Once; unset and default differ.
    Explicit,
    /// Once, and it must be there (proto2).
    Required,
    /// A list, written packed or not. Both are read.
    List { packed: bool },
    /// A map. The field's kind is that of the values.
    Map { key: Scalar },
}

/// A oneof of two or more possible fields.
pub(crate) struct OneofEntry {
    pub(crate) name: String,
    /// Indices into the message's fields, ascending.
    pub(crate) members: Vec<u32>,
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Scalar(Scalar),
    /// Index into the table's enums.
    Enum(u32),
    /// Index into the table's messages.
    Message(u32),
    /// A message written between start and end tags (proto2).
    Group(u32),
}

/// A value without structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    Double,
    Float,
    Int32,
    Int64,
    Uint32,
    Uint64,
    Sint32,
    Sint64,
    Fixed32,
    Fixed64,
    Sfixed32,
    Sfixed64,
    Bool,
    String,
    Bytes,
}

/// The message types that have a JSON form of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WellKnown {
    Any,
    Timestamp,
    Duration,
    FieldMask,
    Struct,
    Value,
    ListValue,
    Empty,
    /// `google.protobuf.Int32Value` and the like: the JSON form is that of the one field.
    Wrapper,
}

/// An enum.
pub(crate) struct EnumEntry {
    pub(crate) full_name: String,
    /// `google.protobuf.NullValue`, whose JSON form is null.
    pub(crate) is_null: bool,
    /// The number that an unset field has.
    pub(crate) default: i32,
    by_name: HashMap<String, i32>,
    /// The first name given to each number.
    names: HashMap<i32, String>,
}

impl Table {
    pub(crate) fn new(pool: &DescriptorPool) -> Result<Self, SchemaError> {
        let count = |length: usize, what| {
            u32::try_from(length).map_err(|_| SchemaError::TooLarge { what, limit: u32::MAX as usize })
        };
        let mut by_name = HashMap::new();
        for (index, message) in pool.all_messages().enumerate() {
            by_name.insert(message.full_name().to_owned(), count(index, "messages")?);
        }
        let mut enum_indices = HashMap::new();
        for (index, entry) in pool.all_enums().enumerate() {
            enum_indices.insert(entry.full_name().to_owned(), count(index, "enums")?);
        }
        let builder = Builder { messages: &by_name, enums: &enum_indices };
        let messages = pool.all_messages().map(|message| builder.message(&message)).collect::<Result<Vec<_>, _>>()?;
        let enums = pool.all_enums().map(|entry| EnumEntry::new(&entry)).collect();
        let mut listed: Vec<u32> = pool
            .all_messages()
            .filter(|message| !message.is_map_entry() && !message.parent_file().name().starts_with("google/protobuf/"))
            .filter_map(|message| by_name.get(message.full_name()).copied())
            .collect();
        listed.sort_by(|a, b| messages[*a as usize].full_name.cmp(&messages[*b as usize].full_name));
        Ok(Self { messages, enums, by_name, listed })
    }

    pub(crate) fn message(&self, index: u32) -> &MessageEntry {
        &self.messages[index as usize]
    }

    pub(crate) fn enumeration(&self, index: u32) -> &EnumEntry {
        &self.enums[index as usize]
    }

    pub(crate) fn message_by_name(&self, full_name: &str) -> Option<u32> {
        self.by_name.get(full_name).copied()
    }

    pub(crate) fn message_names(&self) -> impl Iterator<Item = &str> {
        self.listed.iter().map(|index| self.message(*index).full_name.as_str())
    }
}

impl MessageEntry {
    /// A field by the name it has in JSON, or by the one it has in the `.proto` file.
    pub(crate) fn field_by_name(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// A field by its number.
    pub(crate) fn field_by_number(&self, number: u32) -> Option<u32> {
        // Most messages number their fields 1, 2, 3 without a gap.
        let guess = number.wrapping_sub(1);
        if self.fields.get(guess as usize).is_some_and(|field| field.number == number) {
            return Some(guess);
        }
        let found = self.fields.binary_search_by_key(&number, |field| field.number).ok()?;
        u32::try_from(found).ok()
    }
}

impl EnumEntry {
    fn new(descriptor: &EnumDescriptor) -> Self {
        let mut by_name = HashMap::new();
        let mut names = HashMap::new();
        // The descriptor's own list keeps the order of the file, which tells the first name from its aliases.
        for value in &descriptor.enum_descriptor_proto().value {
            by_name.insert(value.name().to_owned(), value.number());
            names.entry(value.number()).or_insert_with(|| value.name().to_owned());
        }
        Self {
            full_name: descriptor.full_name().to_owned(),
            is_null: descriptor.full_name() == "google.protobuf.NullValue",
            default: descriptor.default_value().number(),
            by_name,
            names,
        }
    }

    pub(crate) fn number(&self, name: &str) -> Option<i32> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn name(&self, number: i32) -> Option<&str> {
        self.names.get(&number).map(String::as_str)
    }
}

impl Scalar {
    /// The name that `.proto` files have for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Double => "double",
            Self::Float => "float",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Uint32 => "uint32",
            Self::Uint64 => "uint64",
            Self::Sint32 => "sint32",
            Self::Sint64 => "sint64",
            Self::Fixed32 => "fixed32",
            Self::Fixed64 => "fixed64",
            Self::Sfixed32 => "sfixed32",
            Self::Sfixed64 => "sfixed64",
            Self::Bool => "bool",
            Self::String => "string",
            Self::Bytes => "bytes",
        }
    }
}

impl WellKnown {
    /// The JSON form of the type's own, if it has one. A type that merely bears the name does not.
    fn of(full_name: &str, fields: &[FieldEntry]) -> Option<Self> {
        use Scalar::{Bool, Bytes, Double, Int32, Int64, String};
        let name = full_name.strip_prefix("google.protobuf.")?;
        let scalars = |expected: &[Scalar]| {
            fields.len() == expected.len()
                && fields.iter().zip(1..).zip(expected).all(|((field, number), scalar)| {
                    field.number == number && field.kind == Kind::Scalar(*scalar) && field.shape == Shape::Implicit
                })
        };
        let one = |shape, is_kind: fn(Kind) -> bool| matches!(fields, [field] if field.number == 1 && field.shape == shape && is_kind(field.kind));
        let is_message: fn(Kind) -> bool = |kind| matches!(kind, Kind::Message(_));
        let (well_known, is_genuine) = match name {
            "Any" => (Self::Any, scalars(&[String, Bytes])),
            "Timestamp" => (Self::Timestamp, scalars(&[Int64, Int32])),
            "Duration" => (Self::Duration, scalars(&[Int64, Int32])),
            "FieldMask" => (Self::FieldMask, one(Shape::List { packed: false }, |kind| kind == Kind::Scalar(String))),
            "Struct" => (Self::Struct, one(Shape::Map { key: String }, is_message)),
            "ListValue" => (Self::ListValue, one(Shape::List { packed: false }, is_message)),
            "Value" => {
                let is_value = match fields {
                    [null, number, string, boolean, fields, list] => {
                        matches!(null.kind, Kind::Enum(_))
                            && number.kind == Kind::Scalar(Double)
                            && string.kind == Kind::Scalar(String)
                            && boolean.kind == Kind::Scalar(Bool)
                            && is_message(fields.kind)
                            && is_message(list.kind)
                    }
                    _ => false,
                };
                (Self::Value, is_value && fields.iter().zip(1..).all(|(field, number)| field.number == number))
            }
            "Empty" => (Self::Empty, fields.is_empty()),
            "DoubleValue" | "FloatValue" | "Int64Value" | "UInt64Value" | "Int32Value" | "UInt32Value"
            | "BoolValue" | "StringValue" | "BytesValue" => {
                (Self::Wrapper, one(Shape::Implicit, |kind| matches!(kind, Kind::Scalar(_))))
            }
            _ => return None,
        };
        is_genuine.then_some(well_known)
    }
}

struct Builder<'a> {
    messages: &'a HashMap<String, u32>,
    enums: &'a HashMap<String, u32>,
}

impl Builder<'_> {
    fn message(&self, descriptor: &MessageDescriptor) -> Result<MessageEntry, SchemaError> {
        let mut fields: Vec<(FieldEntry, String)> = Vec::new();
        // The indices of the real oneofs: a proto3 `optional` is wrapped in a oneof of its own, which has no meaning here.
        let mut oneofs: Vec<OneofEntry> = Vec::new();
        for field in descriptor.fields() {
            let oneof = field.containing_oneof().filter(|oneof| !oneof.is_synthetic()).map(|oneof| {
                let found = oneofs.iter().position(|known| known.name == oneof.name()).unwrap_or_else(|| {
                    oneofs.push(OneofEntry { name: oneof.name().to_owned(), members: Vec::new() });
                    oneofs.len() - 1
                });
                // A message has fewer oneofs than fields, and those are counted below.
                found as u32
            });
            fields.push((self.field(&field, oneof), field.name().to_owned()));
        }
        for extension in descriptor.extensions() {
            let name = format!("[{}]", extension.full_name());
            fields.push((self.extension(&extension), name));
        }
        fields.sort_by_key(|(field, _)| field.number);
        let mut by_name = HashMap::new();
        // The names of the `.proto` file come first so that the JSON name of another field wins over them.
        for (index, (_, name)) in fields.iter().enumerate() {
            let index = u32::try_from(index)
                .map_err(|_| SchemaError::TooLarge { what: "fields in a message", limit: u32::MAX as usize })?;
            by_name.insert(name.clone(), index);
        }
        for (index, (field, _)) in (0_u32..).zip(&fields) {
            by_name.insert(field.json_name.clone(), index);
            if let Some(oneof) = field.oneof {
                oneofs[oneof as usize].members.push(index);
            }
        }
        let fields: Vec<FieldEntry> = fields.into_iter().map(|(field, _)| field).collect();
        Ok(MessageEntry {
            full_name: descriptor.full_name().to_owned(),
            well_known: WellKnown::of(descriptor.full_name(), &fields),
            has_required: fields.iter().any(|field| field.shape == Shape::Required),
            fields,
            oneofs,
            by_name,
        })
    }

    fn field(&self, field: &FieldDescriptor, oneof: Option<u32>) -> FieldEntry {
        let descriptor_kind = field.kind();
        let shape_and_kind = match &descriptor_kind {
            prost_reflect::Kind::Message(entry) if field.is_map() => {
                let key = match self.kind(&entry.map_entry_key_field().kind(), false) {
                    Kind::Scalar(key) => key,
                    // Descriptors with such keys are refused when the pool is built.
                    Kind::Enum(_) | Kind::Message(_) | Kind::Group(_) => Scalar::String,
                };
                (Shape::Map { key }, self.kind(&entry.map_entry_value_field().kind(), false))
            }
            kind => {
                let shape = match field.cardinality() {
                    Cardinality::Repeated => Shape::List { packed: field.is_packed() },
                    Cardinality::Required => Shape::Required,
                    Cardinality::Optional if field.supports_presence() => Shape::Explicit,
                    Cardinality::Optional => Shape::Implicit,
                };
                (shape, self.kind(kind, field.is_group()))
            }
        };
        FieldEntry {
            number: field.number(),
            json_name: field.json_name().to_owned(),
            kind: shape_and_kind.1,
            shape: shape_and_kind.0,
            oneof,
        }
    }

    fn extension(&self, extension: &ExtensionDescriptor) -> FieldEntry {
        let shape = match extension.cardinality() {
            Cardinality::Repeated => Shape::List { packed: extension.is_packed() },
            Cardinality::Optional | Cardinality::Required => Shape::Explicit,
        };
        FieldEntry {
            number: extension.number(),
            json_name: extension.json_name().to_owned(),
            kind: self.kind(&extension.kind(), extension.is_group()),
            shape,
            oneof: None,
        }
    }

    fn kind(&self, kind: &prost_reflect::Kind, is_group: bool) -> Kind {
        use prost_reflect::Kind as Described;
        Kind::Scalar(match kind {
            Described::Double => Scalar::Double,
            Described::Float => Scalar::Float,
            Described::Int32 => Scalar::Int32,
            Described::Int64 => Scalar::Int64,
            Described::Uint32 => Scalar::Uint32,
            Described::Uint64 => Scalar::Uint64,
            Described::Sint32 => Scalar::Sint32,
            Described::Sint64 => Scalar::Sint64,
            Described::Fixed32 => Scalar::Fixed32,
            Described::Fixed64 => Scalar::Fixed64,
            Described::Sfixed32 => Scalar::Sfixed32,
            Described::Sfixed64 => Scalar::Sfixed64,
            Described::Bool => Scalar::Bool,
            Described::String => Scalar::String,
            Described::Bytes => Scalar::Bytes,
            // Every type that a pool's field names is in the pool.
            Described::Message(message) if is_group => return Kind::Group(self.messages[message.full_name()]),
            Described::Message(message) => return Kind::Message(self.messages[message.full_name()]),
            Described::Enum(entry) => return Kind::Enum(self.enums[entry.full_name()]),
        })
    }
}

//! An Avro schema as a table of types that refer to each other by index: <https://avro.apache.org/docs/current/specification/>.

use std::collections::HashMap;

use super::AvroSchemaError;
use crate::json::{Ahead, Reader, parse_integer, write_json_string};
use crate::path::cut;

/// More types than any schema of people has; each is a few words in memory.
const MAX_TYPES: usize = 100_000;

/// The largest decimal, in bytes. A thousand digits are some 416.
pub(super) const MAX_DECIMAL_BYTES: usize = 1_024;

/// As many digits as so many bytes can hold. It bounds the scale as well: without it a value of one byte could ask for
/// gigabytes of zeroes behind the point.
const MAX_DECIMAL_PRECISION: u32 = 2_466;

/// A schema, ready to read values by.
#[derive(Debug)]
pub(in crate::registry) struct AvroSchema {
    types: Vec<Type>,
    root: u32,
}

/// A type.
#[derive(Debug)]
pub(super) enum Type {
    Null,
    Boolean,
    Int(IntForm),
    Long(LongForm),
    Float,
    Double,
    Bytes(BytesForm),
    String,
    Fixed { size: usize, form: BytesForm },
    Enum { symbols: Vec<String> },
    Record { fields: Vec<Field> },
    Array { items: u32 },
    Map { values: u32 },
    Union { branches: Vec<u32> },
}

/// A field of a record.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: String,
    /// The name as a JSON key: quoted, with its colon.
    pub(super) key: Box<[u8]>,
    pub(super) of: u32,
}

/// What an `int` is shown as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IntForm {
    Number,
    Date,
    TimeMillis,
}

/// What a `long` is shown as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LongForm {
    Number,
    TimeMicros,
    /// A timestamp of so many units a second.
    Timestamp {
        per_second: i64,
        is_local: bool,
    },
}

/// What `bytes` and `fixed` are shown as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BytesForm {
    Base64,
    Decimal {
        scale: u32,
    },
    /// `fixed` of 16.
    Uuid,
    /// `fixed` of 12.
    Duration,
}

impl AvroSchema {
    /// Reads a schema's text. `in_order` are the texts of the schemas that it refers to, each behind those that it needs.
    pub(in crate::registry) fn parse(text: &str, in_order: &[&str]) -> Result<Self, AvroSchemaError> {
        let mut parser = Parser { types: Vec::new(), named: HashMap::new(), way: Vec::new() };
        for text in in_order {
            parser.schema(text)?;
        }
        let root = parser.schema(text)?;
        Ok(Self { types: parser.types, root })
    }

    pub(super) fn root(&self) -> u32 {
        self.root
    }

    pub(super) fn get(&self, index: u32) -> &Type {
        &self.types[index as usize]
    }
}

struct Parser<'t> {
    types: Vec<Type>,
    /// The named types by their full names.
    named: HashMap<String, u32>,
    /// The named types and fields around the place that is being read, for errors.
    way: Vec<std::borrow::Cow<'t, str>>,
}

type Parsed<T> = Result<T, AvroSchemaError>;

/// The members of an object that Avro knows, each as a reader that stands before the value.
#[derive(Default)]
struct Members<'t> {
    of: Option<Reader<'t>>,
    name: Option<Reader<'t>>,
    namespace: Option<Reader<'t>>,
    fields: Option<Reader<'t>>,
    symbols: Option<Reader<'t>>,
    items: Option<Reader<'t>>,
    values: Option<Reader<'t>>,
    size: Option<Reader<'t>>,
    logical: Option<Reader<'t>>,
    precision: Option<Reader<'t>>,
    scale: Option<Reader<'t>>,
}

impl<'t> Members<'t> {
    fn read(reader: &mut Reader<'t>) -> Parsed<Self> {
        let mut members = Self::default();
        reader.begin_object()?;
        let mut first = true;
        while let Some(key) = reader.next_key(&mut first)? {
            let slot = match &*key {
                "type" => &mut members.of,
                "name" => &mut members.name,
                "namespace" => &mut members.namespace,
                "fields" => &mut members.fields,
                "symbols" => &mut members.symbols,
                "items" => &mut members.items,
                "values" => &mut members.values,
                "size" => &mut members.size,
                "logicalType" => &mut members.logical,
                "precision" => &mut members.precision,
                "scale" => &mut members.scale,
                _ => &mut None,
            };
            *slot = Some(reader.clone());
            reader.skip_value()?;
        }
        Ok(members)
    }
}

impl<'t> Parser<'t> {
    fn schema(&mut self, text: &'t str) -> Parsed<u32> {
        self.way.clear();
        let mut reader = Reader::new(text.as_bytes())?;
        // Everything is valid JSON, and nests no deeper than the reader skips: so the parser's recursion has an end.
        crate::json::check(text.as_bytes())?;
        self.any(&mut reader, "")
    }

    /// A type of whatever form: a name, a union, or an object.
    fn any(&mut self, reader: &mut Reader<'t>, namespace: &str) -> Parsed<u32> {
        match reader.ahead()? {
            Ahead::String => {
                let name = reader.string()?;
                self.by_name(&name, namespace)
            }
            Ahead::Array => self.union(reader, namespace),
            Ahead::Object => {
                let members = Members::read(reader)?;
                self.object(members, namespace)
            }
            other => Err(self.invalid(format_args!("a type cannot be {}", other.name()))),
        }
    }

    fn by_name(&mut self, name: &str, namespace: &str) -> Parsed<u32> {
        if let Some(primitive) = primitive(name) {
            return self.push(primitive);
        }
        let full = full_name(name, namespace);
        let found = self.named.get(&full).or_else(|| self.named.get(name));
        found.copied().ok_or_else(|| AvroSchemaError::UnknownType { at: self.at(), name: cut(&full).into_owned() })
    }

    fn union(&mut self, reader: &mut Reader<'t>, namespace: &str) -> Parsed<u32> {
        let mut branches = Vec::new();
        reader.begin_array()?;
        let mut first = true;
        while reader.next_element(&mut first)? {
            let branch = self.any(reader, namespace)?;
            if matches!(self.types[branch as usize], Type::Union { .. }) {
                return Err(self.invalid("a union cannot hold a union"));
            }
            branches.push(branch);
        }
        self.push(Type::Union { branches })
    }

    fn object(&mut self, mut members: Members<'t>, namespace: &str) -> Parsed<u32> {
        let Some(mut of) = members.of.take() else { return Err(self.invalid("a type has no \"type\"")) };
        if of.ahead()? != Ahead::String {
            return self.any(&mut of, namespace);
        }
        let of = of.string()?;
        match &*of {
            "record" | "error" => self.record(members, namespace),
            "enum" => {
                let (full, _) = self.named_type(&mut members, namespace)?;
                let symbols = self.symbols(&mut members)?;
                let index = self.push(Type::Enum { symbols })?;
                self.define(full, index)
            }
            "fixed" => {
                let (full, _) = self.named_type(&mut members, namespace)?;
                let size = self.whole(&mut members.size)?;
                let size = size.ok_or_else(|| self.invalid("a fixed needs a \"size\" of 0 or more"))? as usize;
                let form = self.bytes_form(&mut members, Some(size))?;
                let index = self.push(Type::Fixed { size, form })?;
                self.define(full, index)
            }
            "array" => {
                let items = self.member(members.items.take(), "items", namespace)?;
                self.push(Type::Array { items })
            }
            "map" => {
                let values = self.member(members.values.take(), "values", namespace)?;
                self.push(Type::Map { values })
            }
            "int" => {
                let form = match self.logical(&mut members)?.as_deref() {
                    Some("date") => IntForm::Date,
                    Some("time-millis") => IntForm::TimeMillis,
                    _ => IntForm::Number,
                };
                self.push(Type::Int(form))
            }
            "long" => {
                let timestamp = |per_second, is_local| LongForm::Timestamp { per_second, is_local };
                let form = match self.logical(&mut members)?.as_deref() {
                    Some("time-micros") => LongForm::TimeMicros,
                    Some("timestamp-millis") => timestamp(1_000, false),
                    Some("timestamp-micros") => timestamp(1_000_000, false),
                    Some("timestamp-nanos") => timestamp(1_000_000_000, false),
                    Some("local-timestamp-millis") => timestamp(1_000, true),
                    Some("local-timestamp-micros") => timestamp(1_000_000, true),
                    Some("local-timestamp-nanos") => timestamp(1_000_000_000, true),
                    _ => LongForm::Number,
                };
                self.push(Type::Long(form))
            }
            "bytes" => {
                let form = self.bytes_form(&mut members, None)?;
                self.push(Type::Bytes(form))
            }
            name => self.by_name(name, namespace),
        }
    }

    fn record(&mut self, mut members: Members<'t>, namespace: &str) -> Parsed<u32> {
        let (full, namespace) = self.named_type(&mut members, namespace)?;
        // Its own fields may name it.
        let index = self.push(Type::Record { fields: Vec::new() })?;
        self.define(full.clone(), index)?;
        self.way.push(full.into());
        let Some(mut reader) = members.fields.take() else { return Err(self.invalid("a record has no \"fields\"")) };
        self.expect(&mut reader, Ahead::Array, "fields")?;
        reader.begin_array()?;
        let mut first = true;
        let mut fields: Vec<Field> = Vec::new();
        let mut names = std::collections::HashSet::new();
        while reader.next_element(&mut first)? {
            self.expect(&mut reader, Ahead::Object, "a field")?;
            let mut field = Members::read(&mut reader)?;
            let name = self.text(&mut field.name, "name")?;
            let name = name.ok_or_else(|| self.invalid("a field has no \"name\""))?;
            if !names.insert(name.clone()) {
                return Err(self.invalid(format_args!("two fields are called {:?}", cut(&name))));
            }
            self.way.push(name.clone().into());
            let of = self.member(field.of.take(), "type", &namespace)?;
            self.way.pop();
            let mut key = Vec::new();
            write_json_string(&name, &mut key);
            key.push(b':');
            fields.push(Field { name, key: key.into(), of });
        }
        self.way.pop();
        self.types[index as usize] = Type::Record { fields };
        Ok(index)
    }

    /// The full name of a named type, and the namespace that holds inside it.
    fn named_type(&self, members: &mut Members<'t>, outer: &str) -> Parsed<(String, String)> {
        let name = self.text(&mut members.name, "name")?;
        let name = name.filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| self.invalid("a record, enum or fixed has no \"name\""))?;
        let namespace = self.text(&mut members.namespace, "namespace")?;
        let full = full_name(&name, namespace.as_deref().unwrap_or(outer));
        let inner = full.rsplit_once('.').map_or("", |(namespace, _)| namespace).to_owned();
        Ok((full, inner))
    }

    fn define(&mut self, full: String, index: u32) -> Parsed<u32> {
        if self.named.contains_key(&full) {
            return Err(self.invalid(format_args!("{:?} is defined twice", cut(&full))));
        }
        self.named.insert(full, index);
        Ok(index)
    }

    fn symbols(&self, members: &mut Members<'t>) -> Parsed<Vec<String>> {
        let Some(mut reader) = members.symbols.take() else { return Err(self.invalid("an enum has no \"symbols\"")) };
        self.expect(&mut reader, Ahead::Array, "symbols")?;
        let mut symbols = Vec::new();
        reader.begin_array()?;
        let mut first = true;
        while reader.next_element(&mut first)? {
            self.expect(&mut reader, Ahead::String, "a symbol")?;
            symbols.push(reader.string()?.into_owned());
        }
        Ok(symbols)
    }

    fn member(&mut self, reader: Option<Reader<'t>>, name: &str, namespace: &str) -> Parsed<u32> {
        match reader {
            Some(mut reader) => self.any(&mut reader, namespace),
            None => Err(self.invalid(format_args!("{name:?} is missing"))),
        }
    }

    /// A logical type that does not suit its type is none.
    fn bytes_form(&self, members: &mut Members<'t>, fixed: Option<usize>) -> Parsed<BytesForm> {
        let form = match (self.logical(members)?.as_deref(), fixed) {
            (Some("decimal"), size) => {
                let precision = self.whole(&mut members.precision)?.unwrap_or(0);
                let scale = if members.scale.is_some() { self.whole(&mut members.scale)? } else { Some(0) };
                match scale {
                    Some(scale)
                        if (1..=MAX_DECIMAL_PRECISION).contains(&precision)
                            && scale <= precision
                            && size.is_none_or(|size| size <= MAX_DECIMAL_BYTES) =>
                    {
                        BytesForm::Decimal { scale }
                    }
                    _ => BytesForm::Base64,
                }
            }
            (Some("uuid"), Some(16)) => BytesForm::Uuid,
            (Some("duration"), Some(12)) => BytesForm::Duration,
            _ => BytesForm::Base64,
        };
        Ok(form)
    }

    fn logical(&self, members: &mut Members<'t>) -> Parsed<Option<String>> {
        let Some(reader) = &mut members.logical else { return Ok(None) };
        let is_text = reader.ahead()? == Ahead::String;
        if is_text { Ok(Some(reader.string()?.into_owned())) } else { Ok(None) }
    }

    /// A number from 0 to what fits an int of Java's; `None` for anything else.
    fn whole(&self, reader: &mut Option<Reader<'t>>) -> Parsed<Option<u32>> {
        let Some(reader) = reader else { return Ok(None) };
        if reader.ahead()? != Ahead::Number {
            return Ok(None);
        }
        let value = parse_integer(reader.number()?).ok();
        Ok(value.and_then(|value| i32::try_from(value).ok()).and_then(|value| u32::try_from(value).ok()))
    }

    fn text(&self, reader: &mut Option<Reader<'t>>, member: &str) -> Parsed<Option<String>> {
        match reader {
            None => Ok(None),
            Some(reader) => {
                self.expect(reader, Ahead::String, member)?;
                Ok(Some(reader.string()?.into_owned()))
            }
        }
    }

    fn expect(&self, reader: &mut Reader<'t>, expected: Ahead, member: &str) -> Parsed<()> {
        let found = reader.ahead()?;
        if found == expected {
            return Ok(());
        }
        Err(self.invalid(format_args!("{member} is {}, not {}", found.name(), expected.name())))
    }

    fn push(&mut self, entry: Type) -> Parsed<u32> {
        if self.types.len() == MAX_TYPES {
            return Err(AvroSchemaError::TooLarge { limit: MAX_TYPES });
        }
        self.types.push(entry);
        // Within the limit, which a u32 counts.
        Ok(self.types.len() as u32 - 1)
    }

    fn at(&self) -> String {
        let last = self.way.len().saturating_sub(4);
        self.way[last..].iter().map(|name| cut(name)).collect::<Vec<_>>().join(".")
    }

    fn invalid(&self, what: impl ToString) -> AvroSchemaError {
        AvroSchemaError::Invalid { at: self.at(), what: what.to_string() }
    }
}

fn primitive(name: &str) -> Option<Type> {
    Some(match name {
        "null" => Type::Null,
        "boolean" => Type::Boolean,
        "int" => Type::Int(IntForm::Number),
        "long" => Type::Long(LongForm::Number),
        "float" => Type::Float,
        "double" => Type::Double,
        "bytes" => Type::Bytes(BytesForm::Base64),
        "string" => Type::String,
        _ => return None,
    })
}

/// A name with a dot is whole; another one stands in the namespace.
fn full_name(name: &str, namespace: &str) -> String {
    if name.contains('.') || namespace.is_empty() { name.to_owned() } else { format!("{namespace}.{name}") }
}

//! JSON to Protobuf, in one pass over the text: <https://protobuf.dev/programming-guides/json/>.
//!
//! The bytes are written while the text is read; there is no document and no dynamic message in between. What has to be
//! remembered of a message (which fields it had, and where they start) lies on two stacks that all levels share.

mod scalars;
mod well_known;

use std::borrow::Cow;
use std::collections::HashSet;

use self::scalars::MapKey;
use crate::json::{Ahead, Reader};
use crate::path::{Step, cut, path_text};
use crate::table::{EnumEntry, FieldEntry, Kind, MessageEntry, Scalar, Shape, Table};
use crate::wire::{WireType, insert_length, write_tag, write_varint};
use crate::{MAX_DEPTH, ToProtobufError, ToProtobufReason, UnknownMode};

/// Appends the encoding of `json` as the message `index` to `out`, which is left as it was on an error.
pub(crate) fn convert(
    table: &Table,
    index: u32,
    json: &[u8],
    mode: UnknownMode,
    out: &mut Vec<u8>,
) -> Result<(), ToProtobufError> {
    let start = out.len();
    let reader = Reader::new(json)
        .map_err(|error| ToProtobufError { path: path_text(&[]), reason: ToProtobufReason::Syntax(error) })?;
    let mut encoder =
        Encoder { table, reader, mode, out, path: Vec::new(), depth: 0, parts: Vec::new(), seen: Vec::new() };
    let converted = encoder.message(index).and_then(|()| Ok(encoder.reader.end()?));
    let path = encoder.path;
    converted.map_err(|reason| {
        out.truncate(start);
        ToProtobufError { path: path_text(&path), reason }
    })
}

struct Encoder<'a, 'o> {
    table: &'a Table,
    reader: Reader<'a>,
    mode: UnknownMode,
    out: &'o mut Vec<u8>,
    /// The way to the value that is being read. An error leaves it as it is.
    path: Vec<Step<'a>>,
    depth: u32,
    /// The fields of all open messages that have been written.
    parts: Vec<Part>,
    /// One bit for each field of all open messages: given, and not as null.
    seen: Vec<u64>,
}

/// A field that has been written, all of its values together.
struct Part {
    field: u32,
    start: usize,
}

type Converted<T> = Result<T, ToProtobufReason>;

impl<'a> Encoder<'a, '_> {
    /// Writes the fields of one message, without tag or length, from the next value.
    fn message(&mut self, index: u32) -> Converted<()> {
        let entry = self.table.message(index);
        if let Some(well_known) = entry.well_known {
            return self.well_known(well_known, entry);
        }
        self.expect(Ahead::Object)?;
        self.reader.begin_object()?;
        self.members(entry, false)
    }

    /// Writes the fields of a message, behind the `{` of its object. In a `google.protobuf.Any` the key `@type` has been
    /// read before and is passed over.
    fn members(&mut self, entry: &'a MessageEntry, in_any: bool) -> Converted<()> {
        let start = self.out.len();
        let (first_part, first_seen) = (self.parts.len(), self.seen.len());
        self.seen.resize(first_seen + entry.fields.len().div_ceil(64), 0);

        let mut first = true;
        let mut types = 0;
        while let Some(key) = self.reader.next_key(&mut first)? {
            let found = entry.field_by_name(&key);
            let is_type = in_any && key == "@type";
            self.path.push(Step::Key(key));
            if is_type {
                types += 1;
                if types > 1 {
                    return Err(ToProtobufReason::DuplicateField);
                }
                self.reader.skip_value()?;
            } else if let Some(index) = found {
                self.field(entry, index, first_seen)?;
            } else {
                self.unknown_field(entry)?;
            }
            self.path.pop();
        }
        if entry.has_required {
            let missing = (0_u32..)
                .zip(&entry.fields)
                .find(|(index, field)| field.shape == Shape::Required && !is_marked(&self.seen[first_seen..], *index));
            if let Some((_, field)) = missing {
                return Err(ToProtobufReason::MissingField { field: field.json_name.clone() });
            }
        }
        self.put_in_order(start, first_part);
        self.parts.truncate(first_part);
        self.seen.truncate(first_seen);
        Ok(())
    }

    fn unknown_field(&mut self, entry: &MessageEntry) -> Converted<()> {
        match self.mode {
            UnknownMode::Strict => Err(ToProtobufReason::UnknownField { message: entry.full_name.clone() }),
            UnknownMode::Lenient => Ok(self.reader.skip_value()?),
        }
    }

    /// Writes one field, tag included, from the value of its key.
    fn field(&mut self, entry: &'a MessageEntry, index: u32, first_seen: usize) -> Converted<()> {
        let field = &entry.fields[index as usize];
        // Null is as good as no key at all, also beside another member of the same oneof.
        if self.reader.ahead()? == Ahead::Null && !self.takes_null(field) {
            return Ok(self.reader.null()?);
        }
        if is_marked(&self.seen[first_seen..], index) {
            return Err(ToProtobufReason::DuplicateField);
        }
        if let Some(oneof) = field.oneof {
            let oneof = &entry.oneofs[oneof as usize];
            if let Some(other) = oneof.members.iter().find(|member| is_marked(&self.seen[first_seen..], **member)) {
                return Err(ToProtobufReason::OneofConflict {
                    oneof: oneof.name.clone(),
                    first: entry.fields[*other as usize].json_name.clone(),
                });
            }
        }
        let start = self.out.len();
        let is_set = match field.shape {
            Shape::Implicit | Shape::Explicit | Shape::Required => self.singular(field)?,
            Shape::List { packed } => self.list(field, packed).map(|()| true)?,
            Shape::Map { key } => self.map(field, key).map(|()| true)?,
        };
        if is_set {
            self.seen[first_seen + index as usize / 64] |= 1 << (index % 64);
        }
        if self.out.len() > start {
            self.parts.push(Part { field: index, start });
        }
        Ok(())
    }

    /// The types for which null is a value: `google.protobuf.Value` and `google.protobuf.NullValue`.
    fn takes_null(&self, field: &FieldEntry) -> bool {
        if matches!(field.shape, Shape::List { .. } | Shape::Map { .. }) {
            return false;
        }
        match field.kind {
            Kind::Message(index) => self.table.message(index).well_known == Some(crate::table::WellKnown::Value),
            Kind::Enum(index) => self.table.enumeration(index).is_null,
            Kind::Scalar(_) | Kind::Group(_) => false,
        }
    }

    /// Writes a field that occurs once. False when it stays unset.
    fn singular(&mut self, field: &FieldEntry) -> Converted<bool> {
        let start = self.out.len();
        let is_default = match field.kind {
            Kind::Enum(index) => match self.enumeration(self.table.enumeration(index))? {
                Some(number) => {
                    self.write_enum(field.number, number);
                    number == 0
                }
                None => return Ok(false),
            },
            kind => self.value(field.number, kind)?,
        };
        if is_default && field.shape == Shape::Implicit {
            self.out.truncate(start);
        }
        Ok(true)
    }

    /// Writes one value with its tag. True when it is the default of a scalar type.
    fn value(&mut self, number: u32, kind: Kind) -> Converted<bool> {
        match kind {
            Kind::Scalar(scalar) => {
                write_tag(number, scalar.wire_type(), self.out);
                return self.scalar(scalar);
            }
            Kind::Enum(index) => {
                if let Some(value) = self.enumeration(self.table.enumeration(index))? {
                    self.write_enum(number, value);
                }
            }
            Kind::Message(index) => {
                write_tag(number, WireType::Delimited, self.out);
                self.nested(|encoder| encoder.message(index))?;
            }
            Kind::Group(index) => {
                write_tag(number, WireType::StartGroup, self.out);
                self.enter()?;
                self.message(index)?;
                self.depth -= 1;
                write_tag(number, WireType::EndGroup, self.out);
            }
        }
        Ok(false)
    }

    fn list(&mut self, field: &FieldEntry, packed: bool) -> Converted<()> {
        self.expect(Ahead::Array)?;
        self.reader.begin_array()?;
        let before_tag = self.out.len();
        if packed {
            write_tag(field.number, WireType::Delimited, self.out);
        }
        let start = self.out.len();
        let mut first = true;
        for index in 0.. {
            if !self.reader.next_element(&mut first)? {
                break;
            }
            self.path.push(Step::Index(index));
            match field.kind {
                Kind::Scalar(scalar) if packed => self.scalar(scalar).map(|_| ())?,
                Kind::Enum(index) if packed => {
                    if let Some(number) = self.enumeration(self.table.enumeration(index))? {
                        write_varint(i64::from(number).cast_unsigned(), self.out);
                    }
                }
                kind => self.value(field.number, kind).map(|_| ())?,
            }
            self.path.pop();
        }
        if packed && self.out.len() == start {
            self.out.truncate(before_tag);
        } else if packed {
            insert_length(start, self.out);
        }
        Ok(())
    }

    fn map(&mut self, field: &FieldEntry, key_type: Scalar) -> Converted<()> {
        self.expect(Ahead::Object)?;
        self.reader.begin_object()?;
        let mut keys: HashSet<MapKey<'a>> = HashSet::new();
        let mut first = true;
        while let Some(key) = self.reader.next_key(&mut first)? {
            self.path.push(Step::Key(key.clone()));
            let start = self.out.len();
            let mut is_known = true;
            write_tag(field.number, WireType::Delimited, self.out);
            self.nested(|encoder| {
                if !keys.insert(encoder.map_key(key_type, key)?) {
                    return Err(ToProtobufReason::DuplicateKey);
                }
                let key_end = encoder.out.len();
                encoder.value(2, field.kind)?;
                // Only an enum name that is not known writes nothing.
                is_known = encoder.out.len() > key_end;
                Ok(())
            })?;
            if !is_known {
                self.out.truncate(start);
            }
            self.path.pop();
        }
        Ok(())
    }

    /// The number of an enum value. `None` for a name that is not known, in lenient mode.
    fn enumeration(&mut self, entry: &EnumEntry) -> Converted<Option<i32>> {
        match self.reader.ahead()? {
            Ahead::Null if entry.is_null => {
                self.reader.null()?;
                Ok(Some(0))
            }
            Ahead::String => {
                let name = self.reader.string()?;
                match (entry.number(&name), self.mode) {
                    (Some(number), _) => Ok(Some(number)),
                    (None, UnknownMode::Lenient) => Ok(None),
                    (None, UnknownMode::Strict) => Err(ToProtobufReason::UnknownEnumName {
                        enumeration: entry.full_name.clone(),
                        name: cut(&name).into_owned(),
                    }),
                }
            }
            Ahead::Number => {
                let text = self.reader.number()?;
                let number = scalars::integer(Scalar::Int32, text)?;
                // The number was checked against the range of int32.
                Ok(i32::try_from(number).ok())
            }
            found => Err(ToProtobufReason::Type { expected: "a name or a number of the enum", found: found.name() }),
        }
    }

    fn write_enum(&mut self, field_number: u32, number: i32) {
        write_tag(field_number, WireType::Varint, self.out);
        write_varint(i64::from(number).cast_unsigned(), self.out);
    }

    /// Writes a length in front of what `write` appends.
    fn nested(&mut self, write: impl FnOnce(&mut Self) -> Converted<()>) -> Converted<()> {
        self.enter()?;
        let start = self.out.len();
        write(self)?;
        insert_length(start, self.out);
        self.depth -= 1;
        Ok(())
    }

    fn enter(&mut self) -> Converted<()> {
        if self.depth == MAX_DEPTH {
            return Err(ToProtobufReason::Depth { limit: MAX_DEPTH });
        }
        self.depth += 1;
        Ok(())
    }

    fn expect(&mut self, wanted: Ahead) -> Converted<()> {
        match self.reader.ahead()? {
            found if found == wanted => Ok(()),
            found => Err(ToProtobufReason::Type { expected: wanted.name(), found: found.name() }),
        }
    }

    /// The next value, which must be a string.
    fn text(&mut self) -> Converted<Cow<'a, str>> {
        self.expect(Ahead::String)?;
        Ok(self.reader.string()?)
    }

    /// Sorts the fields of the message that begins at `start` by their numbers, as other encoders write them, so that the
    /// same content gives the same bytes whatever the order of the keys.
    fn put_in_order(&mut self, start: usize, first_part: usize) {
        let parts = &self.parts[first_part..];
        if parts.is_sorted_by_key(|part| part.field) {
            return;
        }
        let body = self.out.split_off(start);
        let ends = parts.iter().skip(1).map(|part| part.start - start).chain([body.len()]);
        let mut ranges: Vec<_> =
            parts.iter().zip(ends).map(|(part, end)| (part.field, part.start - start..end)).collect();
        ranges.sort_unstable_by_key(|(field, _)| *field);
        for (_, range) in ranges {
            self.out.extend_from_slice(&body[range]);
        }
    }
}

fn is_marked(seen: &[u64], index: u32) -> bool {
    seen[index as usize / 64] & (1 << (index % 64)) != 0
}

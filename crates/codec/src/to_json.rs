//! Protobuf to JSON, straight from the bytes: <https://protobuf.dev/programming-guides/json/>.
//!
//! No dynamic message is built, so hostile bytes cannot blow up: what is remembered of a message is eight bytes for each of
//! its fields on the wire, on a stack that all levels share, and a map's keys while the map is printed. Everything else is
//! read again from the bytes.

mod scalars;
mod well_known;

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use self::scalars::MapKey;
use crate::MAX_DEPTH;
use crate::json::write_json_string;
use crate::path::{Step, path_text};
use crate::table::{FieldEntry, Kind, MessageEntry, Scalar, Shape, Table};
use crate::wire::{FieldReader, Span, WireError, WireType, WireValue};
use crate::{JsonOptions, ToJsonError, ToJsonReason};

/// Appends the JSON form of `bytes` as the message `index` to `out`, which is left as it was on an error.
pub(crate) fn convert(
    table: &Table,
    index: u32,
    bytes: &[u8],
    options: &JsonOptions,
    out: &mut Vec<u8>,
) -> Result<(), ToJsonError> {
    let start = out.len();
    let Ok(end) = u32::try_from(bytes.len()) else {
        return Err(ToJsonError { path: path_text(&[]), reason: ToJsonReason::TooLong { bytes: bytes.len() } });
    };
    let mut printer = Printer { table, bytes, options, out, start, path: Vec::new(), depth: 0, found: Vec::new() };
    let printed = printer.message(index, &[Span { start: 0, end }]).and_then(|()| printer.check_size());
    let path = printer.path;
    printed.map_err(|reason| {
        out.truncate(start);
        ToJsonError { path: path_text(&path), reason }
    })
}

struct Printer<'a, 'o> {
    table: &'a Table,
    /// The whole value. Spans and offsets count from its start.
    bytes: &'a [u8],
    options: &'a JsonOptions,
    out: &'o mut Vec<u8>,
    /// Where the document starts in `out`.
    start: usize,
    /// The way to the value that is being printed. An error leaves it as it is.
    path: Vec<Step<'a>>,
    depth: u32,
    /// The known fields of all open messages, by field and then as they stand in the bytes.
    found: Vec<Found>,
}

/// A field on the wire.
#[derive(Clone, Copy)]
struct Found {
    /// Index into the message's fields.
    field: u32,
    /// Where its tag stands.
    at: u32,
}

type Printed<T> = Result<T, ToJsonReason>;

impl<'a> Printer<'a, '_> {
    /// Prints a message. It can lie in several spans: the same message field given more than once is one message with all of
    /// their fields, as if they stood one behind the other.
    fn message(&mut self, index: u32, spans: &[Span]) -> Printed<()> {
        let entry = self.table.message(index);
        if let Some(well_known) = entry.well_known {
            return self.well_known(well_known, entry, spans);
        }
        self.out.push(b'{');
        self.fields(entry, spans, true)?;
        self.out.push(b'}');
        Ok(())
    }

    /// A message inside another one.
    fn nested(&mut self, index: u32, spans: &[Span]) -> Printed<()> {
        self.enter()?;
        self.message(index, spans)?;
        self.depth -= 1;
        Ok(())
    }

    fn enter(&mut self) -> Printed<()> {
        if self.depth == MAX_DEPTH {
            return Err(ToJsonReason::Depth { limit: MAX_DEPTH });
        }
        self.depth += 1;
        Ok(())
    }

    /// Prints the members of a message's object. `first`: no member stands before them.
    fn fields(&mut self, entry: &'a MessageEntry, spans: &[Span], mut first: bool) -> Printed<()> {
        let message = self.gather(entry, spans)?;
        let mut next = message.start;
        if self.options.print_defaults {
            for index in 0..entry.fields.len() {
                // A message has fewer fields than a u32 counts.
                let field = self.same_field(index as u32, next, &message);
                next = field.end;
                self.field(entry, index as u32, field, &message, &mut first)?;
            }
        } else {
            while next < message.end {
                let index = self.found[next].field;
                let field = self.same_field(index, next, &message);
                next = field.end;
                self.field(entry, index, field, &message, &mut first)?;
            }
        }
        self.found.truncate(message.start);
        Ok(())
    }

    /// Finds the known fields of a message and puts them on the stack. Gives their place there; the caller takes them off.
    fn gather(&mut self, entry: &'a MessageEntry, spans: &[Span]) -> Printed<Range<usize>> {
        let start = self.found.len();
        for span in spans {
            let mut reader = FieldReader::new(self.bytes, *span);
            loop {
                let at = reader.position();
                let Some((number, value)) = reader.next_field()? else { break };
                if let Some(index) = entry.field_by_number(number) {
                    let field = &entry.fields[index as usize];
                    if !field.takes(&value) {
                        self.path.push(Step::Key(Cow::Borrowed(&field.json_name)));
                        return Err(ToJsonReason::WireType { offset: at, expected: field.type_name() });
                    }
                    self.found.push(Found { field: index, at });
                }
            }
        }
        let found = &mut self.found[start..];
        if !found.is_sorted_by_key(|found| (found.field, found.at)) {
            found.sort_unstable_by_key(|found| (found.field, found.at));
        }
        Ok(start..self.found.len())
    }

    /// The places of the field `index` among those of its message, from `next` on.
    fn same_field(&self, index: u32, next: usize, message: &Range<usize>) -> Range<usize> {
        let count = self.found[next..message.end].iter().take_while(|found| found.field == index).count();
        next..next + count
    }

    fn field(
        &mut self,
        entry: &'a MessageEntry,
        index: u32,
        found: Range<usize>,
        message: &Range<usize>,
        first: &mut bool,
    ) -> Printed<()> {
        let field = &entry.fields[index as usize];
        let found = self.still_set(entry, index, found, message);
        let has_presence = matches!(field.shape, Shape::Explicit | Shape::Required);
        if found.is_empty() && (has_presence || !self.options.print_defaults) {
            return Ok(());
        }
        let start = self.out.len();
        self.path.push(Step::Key(Cow::Borrowed(&field.json_name)));
        if !*first {
            self.out.push(b',');
        }
        write_json_string(&field.json_name, self.out);
        self.out.push(b':');
        let always = self.options.print_defaults;
        let is_printed = match field.shape {
            Shape::Implicit | Shape::Explicit | Shape::Required => self.singular(field, found)?,
            Shape::List { .. } => self.list(field, found, always)?,
            Shape::Map { key } => self.map(field, key, found, always)?,
        };
        if is_printed {
            *first = false;
            self.check_size()?;
        } else {
            self.out.truncate(start);
        }
        self.path.pop();
        Ok(())
    }

    /// Of a oneof only the member that stands last is set; a member that stands before another one was cleared by it.
    fn still_set(&self, entry: &MessageEntry, index: u32, found: Range<usize>, message: &Range<usize>) -> Range<usize> {
        let Some(oneof) = entry.fields[index as usize].oneof else { return found };
        let all = &self.found[message.clone()];
        let members = entry.oneofs[oneof as usize].members.iter().filter(|member| **member != index);
        let cleared = members.filter_map(|member| {
            let end = all.partition_point(|found| found.field <= *member);
            all[..end].last().filter(|found| found.field == *member).map(|found| found.at)
        });
        match cleared.max() {
            None => found,
            Some(at) => {
                let before = self.found[found.clone()].partition_point(|found| found.at < at);
                found.start + before..found.end
            }
        }
    }

    /// Prints a field that occurs once: the last one counts, or all of them together for a message. False when it has its
    /// default value and is not to be printed.
    fn singular(&mut self, field: &'a FieldEntry, found: Range<usize>) -> Printed<bool> {
        match field.kind {
            Kind::Message(index) | Kind::Group(index) => {
                if found.len() == 1 {
                    let span = self.span_at(found.start)?;
                    self.nested(index, &[span])?;
                } else {
                    let spans = found.map(|at| self.span_at(at)).collect::<Result<Vec<_>, _>>()?;
                    self.nested(index, &spans)?;
                }
                Ok(true)
            }
            Kind::Scalar(_) | Kind::Enum(_) => {
                let value = match self.found[found].last() {
                    Some(found) => self.read(found.at)?,
                    None => self.default(field.kind),
                };
                if field.shape == Shape::Implicit && !self.options.print_defaults && field.kind.is_default(value) {
                    return Ok(false);
                }
                self.value(field.kind, value)?;
                Ok(true)
            }
        }
    }

    /// Prints a list. False when it is empty and not to be printed.
    fn list(&mut self, field: &'a FieldEntry, found: Range<usize>, always: bool) -> Printed<bool> {
        self.out.push(b'[');
        let mut count = 0;
        for place in found {
            let value = self.read(self.found[place].at)?;
            match (field.kind.packed_type(), value) {
                (Some(wire_type), WireValue::Delimited(span)) => {
                    let mut reader = FieldReader::new(self.bytes, span);
                    while !reader.is_at_end() {
                        let value = reader.value(wire_type)?;
                        self.element(field.kind, value, &mut count)?;
                    }
                }
                _ => self.element(field.kind, value, &mut count)?,
            }
        }
        self.out.push(b']');
        Ok(count > 0 || always)
    }

    fn element(&mut self, kind: Kind, value: WireValue, count: &mut usize) -> Printed<()> {
        if *count > 0 {
            self.out.push(b',');
        }
        self.path.push(Step::Index(*count));
        self.value(kind, value)?;
        self.check_size()?;
        self.path.pop();
        *count += 1;
        Ok(())
    }

    /// Prints a map; of entries with the same key the last one counts. False when it is empty and not to be printed.
    fn map(&mut self, field: &'a FieldEntry, key: Scalar, found: Range<usize>, always: bool) -> Printed<bool> {
        let mut last_entries: HashMap<MapKey<'a>, u32> = HashMap::new();
        if found.len() > 1 {
            for place in found.clone() {
                let at = self.found[place].at;
                last_entries.insert(self.entry(field, key, at)?.key, at);
            }
        }
        self.out.push(b'{');
        let mut is_empty = true;
        for place in found {
            let at = self.found[place].at;
            let entry = self.entry(field, key, at)?;
            if last_entries.get(&entry.key).is_some_and(|last| *last != at) {
                continue;
            }
            if !std::mem::replace(&mut is_empty, false) {
                self.out.push(b',');
            }
            entry.key.write(self.out);
            self.out.push(b':');
            self.path.push(Step::Key(entry.key.text()));
            self.enter()?;
            match field.kind {
                Kind::Message(index) | Kind::Group(index) => self.nested(index, &entry.spans)?,
                kind => {
                    let value = entry.value.unwrap_or_else(|| self.default(kind));
                    self.value(kind, value)?;
                }
            }
            self.depth -= 1;
            self.check_size()?;
            self.path.pop();
        }
        self.out.push(b'}');
        Ok(!is_empty || always)
    }

    /// The map entry whose tag stands at `at`. Its key and value have the numbers 1 and 2, and either can be missing.
    fn entry(&self, field: &FieldEntry, key_type: Scalar, at: u32) -> Printed<Entry<'a>> {
        let mut entry = Entry { key: MapKey::default_of(key_type), value: None, spans: Vec::new() };
        let WireValue::Delimited(span) = self.read(at)? else { return Ok(entry) };
        let mut reader = FieldReader::new(self.bytes, span);
        loop {
            let offset = reader.position();
            let Some((number, value)) = reader.next_field()? else { return Ok(entry) };
            match (number, value) {
                (1, value) if Kind::Scalar(key_type).takes(&value) => entry.key = self.map_key(key_type, value)?,
                (1, _) => return Err(ToJsonReason::WireType { offset, expected: key_type.name() }),
                (2, value) if !field.kind.takes(&value) => {
                    return Err(ToJsonReason::WireType { offset, expected: field.type_name() });
                }
                (2, WireValue::Delimited(span)) if matches!(field.kind, Kind::Message(_)) => entry.spans.push(span),
                (2, value) => entry.value = Some(value),
                _ => {}
            }
        }
    }

    /// The value of the field whose tag stands at `at`.
    fn read(&self, at: u32) -> Printed<WireValue> {
        // The field was read before, within its message; so it ends before the bytes do.
        let rest = Span { start: at, end: self.bytes.len() as u32 };
        match FieldReader::new(self.bytes, rest).next_field()? {
            Some((_, value)) => Ok(value),
            None => Ok(WireValue::Varint(0)),
        }
    }

    /// Where the message at a place of the stack lies.
    fn span_at(&self, place: usize) -> Printed<Span> {
        Ok(match self.read(self.found[place].at)? {
            WireValue::Delimited(span) | WireValue::Group(span) => span,
            // Another wire type was refused when the message was gathered.
            _ => Span { start: 0, end: 0 },
        })
    }

    /// Fails when the document has grown beyond its limit. Called after every value, so it is passed by one value at most.
    fn check_size(&self) -> Printed<()> {
        let limit = self.options.max_json_bytes;
        if self.out.len() - self.start > limit { Err(ToJsonReason::TooLarge { limit }) } else { Ok(()) }
    }
}

/// An entry of a map.
struct Entry<'a> {
    key: MapKey<'a>,
    /// The value, if it is not a message.
    value: Option<WireValue>,
    /// Where the value lies, if it is a message.
    spans: Vec<Span>,
}

impl Kind {
    /// Whether a single value of this type can be encoded like `value`.
    fn takes(self, value: &WireValue) -> bool {
        let wire_type = match self {
            Self::Scalar(scalar) => scalar.wire_type(),
            Self::Enum(_) => WireType::Varint,
            Self::Message(_) => WireType::Delimited,
            Self::Group(_) => WireType::StartGroup,
        };
        wire_type == value.wire_type()
    }

    /// How the values in a packed list are encoded. `None` for types that have no packed lists.
    fn packed_type(self) -> Option<WireType> {
        match self {
            Self::Scalar(Scalar::String | Scalar::Bytes) | Self::Message(_) | Self::Group(_) => None,
            Self::Scalar(scalar) => Some(scalar.wire_type()),
            Self::Enum(_) => Some(WireType::Varint),
        }
    }
}

impl FieldEntry {
    /// Whether the field can be encoded like `value`. Lists are read packed or not, however they are declared.
    fn takes(&self, value: &WireValue) -> bool {
        match self.shape {
            Shape::Map { .. } => value.wire_type() == WireType::Delimited,
            Shape::List { .. } => {
                self.kind.takes(value)
                    || (self.kind.packed_type().is_some() && value.wire_type() == WireType::Delimited)
            }
            Shape::Implicit | Shape::Explicit | Shape::Required => self.kind.takes(value),
        }
    }

    fn type_name(&self) -> &'static str {
        match (self.shape, self.kind) {
            (Shape::Map { .. }, _) => "a map",
            (_, Kind::Scalar(scalar)) => scalar.name(),
            (_, Kind::Enum(_)) => "an enum",
            (_, Kind::Message(_)) => "a message",
            (_, Kind::Group(_)) => "a group",
        }
    }
}

impl WireValue {
    fn wire_type(&self) -> WireType {
        match self {
            Self::Varint(_) => WireType::Varint,
            Self::Fixed64(_) => WireType::Fixed64,
            Self::Delimited(_) => WireType::Delimited,
            Self::Group(_) => WireType::StartGroup,
            Self::Fixed32(_) => WireType::Fixed32,
        }
    }
}

impl From<WireError> for ToJsonReason {
    fn from(error: WireError) -> Self {
        Self::Malformed { offset: error.offset, problem: error.problem }
    }
}

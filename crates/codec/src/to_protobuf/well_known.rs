//! The message types with a JSON form of their own.

use std::borrow::Cow;

use super::scalars::not;
use super::{Converted, Encoder};
use crate::json::Ahead;
use crate::path::{Step, cut};
use crate::table::{Kind, MessageEntry, Scalar, WellKnown};
use crate::well_known::{parse_duration, parse_timestamp, path_from_json};
use crate::wire::{WireType, write_tag, write_varint};
use crate::{ToProtobufReason, UnknownMode};

impl<'a> Encoder<'a, '_> {
    /// Writes the fields of one of these messages from the next value.
    pub(super) fn well_known(&mut self, well_known: WellKnown, entry: &'a MessageEntry) -> Converted<()> {
        match well_known {
            WellKnown::Any => self.any(),
            WellKnown::Timestamp => {
                let text = self.text()?;
                let parts = parse_timestamp(&text).ok_or_else(|| not("an RFC 3339 timestamp", &text))?;
                self.write_time(parts);
                Ok(())
            }
            WellKnown::Duration => {
                let text = self.text()?;
                let parts = parse_duration(&text).ok_or_else(|| not("a duration such as 1.5s", &text))?;
                self.write_time(parts);
                Ok(())
            }
            WellKnown::FieldMask => {
                let text = self.text()?;
                for part in text.split(',').filter(|_| !text.is_empty()) {
                    let path = path_from_json(part).filter(|path| !path.is_empty());
                    let path = path.ok_or_else(|| not("a field mask such as fooBar,baz.qux", &text))?;
                    write_tag(1, WireType::Delimited, self.out);
                    self.write_bytes(path.as_bytes());
                }
                Ok(())
            }
            WellKnown::Struct => self.map(&entry.fields[0], Scalar::String),
            WellKnown::ListValue => self.list(&entry.fields[0], false),
            WellKnown::Value => self.any_json(entry),
            WellKnown::Wrapper => self.singular(&entry.fields[0]).map(|_| ()),
            WellKnown::Empty => {
                self.expect(Ahead::Object)?;
                self.reader.begin_object()?;
                self.members(entry, false)
            }
        }
    }

    /// The two fields that a Timestamp and a Duration are made of.
    fn write_time(&mut self, (seconds, nanos): (i64, i32)) {
        for (number, value) in [(1, seconds), (2, i64::from(nanos))] {
            if value != 0 {
                write_tag(number, WireType::Varint, self.out);
                write_varint(value.cast_unsigned(), self.out);
            }
        }
    }

    /// A `google.protobuf.Value`: whatever JSON can say. Its numbers are doubles.
    fn any_json(&mut self, entry: &'a MessageEntry) -> Converted<()> {
        match self.reader.ahead()? {
            Ahead::Null => {
                self.reader.null()?;
                self.write_enum(1, 0);
                Ok(())
            }
            Ahead::Number => {
                write_tag(2, WireType::Fixed64, self.out);
                let value = self.double()?;
                self.out.extend_from_slice(&value.to_le_bytes());
                Ok(())
            }
            Ahead::String => self.value(3, Kind::Scalar(Scalar::String)).map(|_| ()),
            Ahead::Bool => self.value(4, Kind::Scalar(Scalar::Bool)).map(|_| ()),
            Ahead::Object => self.value(5, entry.fields[4].kind).map(|_| ()),
            Ahead::Array => self.value(6, entry.fields[5].kind).map(|_| ()),
        }
    }

    /// A `google.protobuf.Any`: the type stands beside the fields of the message, or beside `value` for a message with a
    /// JSON form of its own.
    fn any(&mut self) -> Converted<()> {
        self.expect(Ahead::Object)?;
        self.reader.begin_object()?;
        // The type may stand anywhere in the object, but nothing else of it can be read without it.
        let members = self.reader.clone();
        let Some(type_url) = self.find_type()? else {
            return Ok(());
        };
        self.reader = members;

        let named = type_url.rsplit_once('/').and_then(|(_, name)| self.table.message_by_name(name));
        let Some(index) = named else {
            self.path.push(Step::Key(Cow::Borrowed("@type")));
            return Err(ToProtobufReason::UnknownType { type_url: cut(&type_url).into_owned() });
        };
        write_tag(1, WireType::Delimited, self.out);
        self.write_bytes(type_url.as_bytes());

        let before_tag = self.out.len();
        write_tag(2, WireType::Delimited, self.out);
        let start = self.out.len();
        let entry = self.table.message(index);
        let mut is_empty = false;
        self.nested(|encoder| {
            match entry.well_known {
                Some(_) => encoder.any_value(index, entry)?,
                None => encoder.members(entry, true)?,
            }
            is_empty = encoder.out.len() == start;
            Ok(())
        })?;
        if is_empty {
            self.out.truncate(before_tag);
        }
        Ok(())
    }

    /// The type URL of the Any whose object has just begun. `None`, and the object is read, when it is empty.
    fn find_type(&mut self) -> Converted<Option<Cow<'a, str>>> {
        let mut first = true;
        let mut is_empty = true;
        while let Some(key) = self.reader.next_key(&mut first)? {
            if key == "@type" {
                self.path.push(Step::Key(key));
                let type_url = self.text()?;
                self.path.pop();
                return Ok(Some(type_url));
            }
            is_empty = false;
            self.reader.skip_value()?;
        }
        if is_empty { Ok(None) } else { Err(ToProtobufReason::MissingType) }
    }

    /// The members of an Any whose message has a JSON form of its own.
    fn any_value(&mut self, index: u32, entry: &'a MessageEntry) -> Converted<()> {
        let (mut types, mut values) = (0, 0);
        let mut first = true;
        while let Some(key) = self.reader.next_key(&mut first)? {
            let (is_type, is_value) = (key == "@type", key == "value");
            types += u32::from(is_type);
            values += u32::from(is_value);
            self.path.push(Step::Key(key));
            if types > 1 || values > 1 {
                return Err(ToProtobufReason::DuplicateField);
            } else if is_value {
                self.message(index)?;
            } else if is_type || self.mode == UnknownMode::Lenient {
                self.reader.skip_value()?;
            } else {
                return Err(ToProtobufReason::UnknownField { message: entry.full_name.clone() });
            }
            self.path.pop();
        }
        // Some printers leave the value of an Empty out.
        if values == 0 && entry.well_known != Some(WellKnown::Empty) {
            return Err(ToProtobufReason::MissingValue { message: entry.full_name.clone() });
        }
        Ok(())
    }
}

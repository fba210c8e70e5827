//! The message types with a JSON form of their own.

use std::borrow::Cow;

use super::{Printed, Printer};
use crate::ToJsonReason;
use crate::json::write_json_string;
use crate::path::{Step, cut};
use crate::table::{MessageEntry, Scalar, WellKnown};
use crate::well_known::{write_duration, write_path, write_timestamp};
use crate::wire::{Span, WireValue};

impl<'a> Printer<'a, '_> {
    /// Prints one of these messages.
    pub(super) fn well_known(&mut self, well_known: WellKnown, entry: &'a MessageEntry, spans: &[Span]) -> Printed<()> {
        match well_known {
            WellKnown::Empty => {
                self.out.push(b'{');
                self.fields(entry, spans, true)?;
                self.out.push(b'}');
                return Ok(());
            }
            WellKnown::Timestamp | WellKnown::Duration => return self.time(well_known, entry, spans),
            WellKnown::Any => return self.any(entry, spans),
            _ => {}
        }
        let message = self.gather(entry, spans)?;
        let start = message.start;
        match well_known {
            WellKnown::Struct => {
                self.map(&entry.fields[0], Scalar::String, message, true)?;
            }
            WellKnown::ListValue => {
                self.list(&entry.fields[0], message, true)?;
            }
            WellKnown::Value => self.any_json(entry, message)?,
            WellKnown::FieldMask => {
                let mut mask = String::new();
                for place in message {
                    let path = self.text(self.read(self.found[place].at)?)?;
                    if !mask.is_empty() {
                        mask.push(',');
                    }
                    if !write_path(path, &mut mask) {
                        return Err(ToJsonReason::NoJsonForm {
                            what: "a field mask whose paths are not in snake_case",
                        });
                    }
                }
                write_json_string(&mask, self.out);
            }
            _ => {
                let kind = entry.fields[0].kind;
                let value = match self.found[message].last() {
                    Some(found) => self.read(found.at)?,
                    None => self.default(kind),
                };
                self.value(kind, value)?;
            }
        }
        self.found.truncate(start);
        Ok(())
    }

    /// The last value of each of the first two fields.
    fn pair(&mut self, entry: &'a MessageEntry, spans: &[Span]) -> Printed<[Option<WireValue>; 2]> {
        let message = self.gather(entry, spans)?;
        let mut pair = [None, None];
        for place in message.clone() {
            let found = self.found[place];
            if let Some(value) = pair.get_mut(found.field as usize) {
                *value = Some(self.read(found.at)?);
            }
        }
        self.found.truncate(message.start);
        Ok(pair)
    }

    fn time(&mut self, well_known: WellKnown, entry: &'a MessageEntry, spans: &[Span]) -> Printed<()> {
        let pair = self.pair(entry, spans)?;
        let [seconds, nanos] = pair.map(|value| match value {
            Some(WireValue::Varint(bits)) => bits,
            _ => 0,
        });
        let (seconds, nanos) = (seconds.cast_signed(), nanos as u32 as i32);
        self.out.push(b'"');
        let (is_in_range, what) = if well_known == WellKnown::Timestamp {
            (write_timestamp(seconds, nanos, self.out), "a timestamp outside the years 1 to 9999")
        } else {
            (write_duration(seconds, nanos, self.out), "a duration beyond 10,000 years, or of two signs")
        };
        self.out.push(b'"');
        if is_in_range { Ok(()) } else { Err(ToJsonReason::NoJsonForm { what }) }
    }

    /// A `google.protobuf.Value`. One that says nothing prints as null.
    fn any_json(&mut self, entry: &'a MessageEntry, message: std::ops::Range<usize>) -> Printed<()> {
        let Some(last) = self.found[message.clone()].iter().max_by_key(|found| found.at).copied() else {
            self.out.extend_from_slice(b"null");
            return Ok(());
        };
        let same = self.found[message.clone()].partition_point(|found| found.field < last.field);
        let found = self.same_field(last.field, message.start + same, &message);
        let found = self.still_set(entry, last.field, found, &message);
        match (last.field, self.read(last.at)?) {
            (0, _) => self.out.extend_from_slice(b"null"),
            (1, WireValue::Fixed64(bits)) if !f64::from_bits(bits).is_finite() => {
                return Err(ToJsonReason::NoJsonForm { what: "NaN or infinity in a google.protobuf.Value" });
            }
            _ => {
                self.singular(&entry.fields[last.field as usize], found)?;
            }
        }
        Ok(())
    }

    /// A `google.protobuf.Any`: its type, then the fields of the message, or `value` for a message with a JSON form of its
    /// own. An empty one prints as `{}`.
    fn any(&mut self, entry: &'a MessageEntry, spans: &[Span]) -> Printed<()> {
        let [type_url, value] = self.pair(entry, spans)?;
        let type_url = match type_url {
            Some(value) => self.text(value)?,
            None => "",
        };
        let value = match value {
            Some(WireValue::Delimited(span)) => span,
            _ => Span { start: 0, end: 0 },
        };
        if type_url.is_empty() && value.start == value.end {
            self.out.extend_from_slice(b"{}");
            return Ok(());
        }
        let named = type_url.rsplit_once('/').and_then(|(_, name)| self.table.message_by_name(name));
        let Some(index) = named else {
            return Err(ToJsonReason::UnknownType { type_url: cut(type_url).into_owned() });
        };
        self.out.extend_from_slice(b"{\"@type\":");
        write_json_string(type_url, self.out);
        self.enter()?;
        let payload = self.table.message(index);
        if payload.well_known.is_some() {
            self.out.extend_from_slice(b",\"value\":");
            self.path.push(Step::Key(Cow::Borrowed("value")));
            self.message(index, &[value])?;
            self.path.pop();
        } else {
            self.fields(payload, &[value], false)?;
        }
        self.depth -= 1;
        self.out.push(b'}');
        Ok(())
    }
}

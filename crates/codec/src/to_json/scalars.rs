//! Scalar values and enums: from their bytes to their JSON form.

use std::borrow::Cow;

use super::{Printed, Printer};
use crate::ToJsonReason;
use crate::json::{write_display, write_f32, write_f64, write_json_base64, write_json_string};
use crate::table::{Kind, Scalar};
use crate::wire::{Span, WireType, WireValue};

/// A key of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum MapKey<'a> {
    Text(&'a str),
    Signed(i64),
    Unsigned(u64),
    Bool(bool),
}

impl<'a> MapKey<'a> {
    /// The key of an entry that has none.
    pub(super) fn default_of(scalar: Scalar) -> Self {
        match scalar {
            Scalar::String => Self::Text(""),
            Scalar::Bool => Self::Bool(false),
            Scalar::Uint32 | Scalar::Uint64 | Scalar::Fixed32 | Scalar::Fixed64 => Self::Unsigned(0),
            _ => Self::Signed(0),
        }
    }

    pub(super) fn text(self) -> Cow<'a, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Signed(number) => Cow::Owned(number.to_string()),
            Self::Unsigned(number) => Cow::Owned(number.to_string()),
            Self::Bool(value) => Cow::Borrowed(if value { "true" } else { "false" }),
        }
    }

    /// Appends it as a key of an object.
    pub(super) fn write(self, out: &mut Vec<u8>) {
        write_json_string(&self.text(), out);
    }
}

impl<'a> Printer<'a, '_> {
    /// Prints one value of any type.
    pub(super) fn value(&mut self, kind: Kind, value: WireValue) -> Printed<()> {
        match (kind, value) {
            (Kind::Scalar(scalar), value) => self.scalar(scalar, value),
            (Kind::Enum(index), value) => {
                self.enumeration(index, int32(bits(value)));
                Ok(())
            }
            (Kind::Message(index) | Kind::Group(index), WireValue::Delimited(span) | WireValue::Group(span)) => {
                self.nested(index, &[span])
            }
            // Another wire type was refused when the message was gathered.
            (Kind::Message(index) | Kind::Group(index), _) => self.nested(index, &[]),
        }
    }

    /// What an unset scalar or enum has.
    pub(super) fn default(&self, kind: Kind) -> WireValue {
        match kind {
            Kind::Enum(index) => WireValue::Varint(i64::from(self.table.enumeration(index).default).cast_unsigned()),
            Kind::Scalar(scalar) => match scalar.wire_type() {
                WireType::Fixed64 => WireValue::Fixed64(0),
                WireType::Fixed32 => WireValue::Fixed32(0),
                WireType::Delimited => WireValue::Delimited(Span { start: 0, end: 0 }),
                _ => WireValue::Varint(0),
            },
            Kind::Message(_) | Kind::Group(_) => WireValue::Delimited(Span { start: 0, end: 0 }),
        }
    }

    pub(super) fn scalar(&mut self, scalar: Scalar, value: WireValue) -> Printed<()> {
        let bits = bits(value);
        match scalar {
            Scalar::Double => match f64::from_bits(bits) {
                finite if finite.is_finite() => write_f64(finite, self.out),
                special => self.special(special),
            },
            Scalar::Float => match f32::from_bits(bits as u32) {
                finite if finite.is_finite() => write_f32(finite, self.out),
                special => self.special(f64::from(special)),
            },
            Scalar::Int32 | Scalar::Sfixed32 => write_display(int32(bits), self.out),
            Scalar::Sint32 => write_display(zigzag(bits) as i32, self.out),
            Scalar::Uint32 | Scalar::Fixed32 => write_display(bits as u32, self.out),
            // Numbers of 64 bits are strings: a JSON parser that takes numbers for doubles would lose digits.
            Scalar::Int64 | Scalar::Sfixed64 => write_display(format_args!("\"{}\"", bits.cast_signed()), self.out),
            Scalar::Sint64 => write_display(format_args!("\"{}\"", zigzag(bits)), self.out),
            Scalar::Uint64 | Scalar::Fixed64 => write_display(format_args!("\"{bits}\""), self.out),
            Scalar::Bool => self.out.extend_from_slice(if bits == 0 { b"false" } else { b"true" }),
            Scalar::String => {
                let text = self.text(value)?;
                write_json_string(text, self.out);
            }
            Scalar::Bytes => {
                let bytes = self.delimited(value).1;
                write_json_base64(bytes, self.out);
            }
        }
        Ok(())
    }

    pub(super) fn enumeration(&mut self, index: u32, number: i32) {
        let entry = self.table.enumeration(index);
        match entry.name(number) {
            Some(_) if entry.is_null => self.out.extend_from_slice(b"null"),
            Some(name) => write_json_string(name, self.out),
            None => write_display(number, self.out),
        }
    }

    pub(super) fn map_key(&self, scalar: Scalar, value: WireValue) -> Printed<MapKey<'a>> {
        let bits = bits(value);
        Ok(match scalar {
            Scalar::String => MapKey::Text(self.text(value)?),
            Scalar::Bool => MapKey::Bool(bits != 0),
            Scalar::Uint32 | Scalar::Fixed32 => MapKey::Unsigned(u64::from(bits as u32)),
            Scalar::Uint64 | Scalar::Fixed64 => MapKey::Unsigned(bits),
            Scalar::Sint32 => MapKey::Signed(i64::from(zigzag(bits) as i32)),
            Scalar::Sint64 => MapKey::Signed(zigzag(bits)),
            Scalar::Int64 | Scalar::Sfixed64 => MapKey::Signed(bits.cast_signed()),
            _ => MapKey::Signed(i64::from(int32(bits))),
        })
    }

    pub(super) fn text(&self, value: WireValue) -> Printed<&'a str> {
        let (start, bytes) = self.delimited(value);
        std::str::from_utf8(bytes).map_err(|error| {
            // An offset into the value, which has less than 4 GiB.
            ToJsonReason::NotUtf8 { offset: start + error.valid_up_to() as u32 }
        })
    }

    /// The bytes of a value, and where they start.
    pub(super) fn delimited(&self, value: WireValue) -> (u32, &'a [u8]) {
        match value {
            WireValue::Delimited(Span { start, end }) => {
                (start, self.bytes.get(start as usize..end as usize).unwrap_or_default())
            }
            // Another wire type was refused when the message was gathered.
            _ => (0, &[]),
        }
    }

    fn special(&mut self, value: f64) {
        let text: &[u8] = match value {
            f64::INFINITY => b"\"Infinity\"",
            f64::NEG_INFINITY => b"\"-Infinity\"",
            _ => b"\"NaN\"",
        };
        self.out.extend_from_slice(text);
    }
}

impl Kind {
    /// Whether the value of a scalar or enum is the one that an unset field without presence has.
    pub(super) fn is_default(self, value: WireValue) -> bool {
        match (self, value) {
            (_, WireValue::Delimited(span)) => span.start == span.end,
            // The upper half of such a varint does not count.
            (Self::Enum(_) | Self::Scalar(Scalar::Int32 | Scalar::Uint32 | Scalar::Sint32), value) => {
                bits(value) as u32 == 0
            }
            (_, value) => bits(value) == 0,
        }
    }
}

/// The number that a varint or a fixed field holds.
fn bits(value: WireValue) -> u64 {
    match value {
        WireValue::Varint(bits) | WireValue::Fixed64(bits) => bits,
        WireValue::Fixed32(bits) => u64::from(bits),
        WireValue::Delimited(_) | WireValue::Group(_) => 0,
    }
}

/// The lower half of a varint, whatever the upper one holds: so Protobuf's own readers take it.
fn int32(bits: u64) -> i32 {
    bits as u32 as i32
}

fn zigzag(bits: u64) -> i64 {
    (bits >> 1).cast_signed() ^ -((bits & 1).cast_signed())
}

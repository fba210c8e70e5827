//! Scalar values: from their JSON form to their bytes.

use std::borrow::Cow;

use base64::Engine as _;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::{Converted, Encoder};
use crate::ToProtobufReason;
use crate::json::{Ahead, IntegerError, is_number, parse_f32, parse_f64, parse_integer, special_float};
use crate::path::cut;
use crate::table::Scalar;
use crate::wire::{WireType, write_tag, write_varint};

/// A key of a map, as far as two keys can be the same: `1` and `1.0` are.
#[derive(PartialEq, Eq, Hash)]
pub(super) enum MapKey<'a> {
    Text(Cow<'a, str>),
    Number(i128),
}

/// Both alphabets are read, with padding or without.
const BASE64: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_allow_trailing_bits(true)
    .with_decode_padding_mode(DecodePaddingMode::Indifferent);
const BASE64_STANDARD: GeneralPurpose = GeneralPurpose::new(&STANDARD, BASE64);
const BASE64_URL_SAFE: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, BASE64);

impl<'a> Encoder<'a, '_> {
    /// Writes a scalar without its tag. True when it is the default of its type.
    pub(super) fn scalar(&mut self, scalar: Scalar) -> Converted<bool> {
        match scalar {
            Scalar::String => {
                let text = self.text()?;
                self.write_bytes(text.as_bytes());
                Ok(text.is_empty())
            }
            Scalar::Bytes => {
                let text = self.text()?;
                let engine = if text.contains(['-', '_']) { BASE64_URL_SAFE } else { BASE64_STANDARD };
                let bytes = engine.decode(text.as_bytes()).map_err(|_| not("base64", &text))?;
                self.write_bytes(&bytes);
                Ok(bytes.is_empty())
            }
            Scalar::Bool => {
                self.expect(Ahead::Bool)?;
                let value = self.reader.boolean()?;
                self.out.push(u8::from(value));
                Ok(!value)
            }
            Scalar::Double => {
                let value = self.double()?;
                self.out.extend_from_slice(&value.to_le_bytes());
                // A negative zero is not the default, though it equals it.
                Ok(value.to_bits() == 0)
            }
            Scalar::Float => {
                let text = self.number_text("a number, NaN, Infinity or -Infinity")?;
                let value = match special_float(&text) {
                    Some(value) => value as f32,
                    None => parse_f32(&text).ok_or_else(|| out_of_range(Scalar::Float, &text))?,
                };
                self.out.extend_from_slice(&value.to_le_bytes());
                Ok(value.to_bits() == 0)
            }
            integers => {
                let text = self.number_text("an integer")?;
                if special_float(&text).is_some() {
                    return Err(not("an integer", &text));
                }
                let value = integer(integers, &text)?;
                self.write_integer(integers, value);
                Ok(value == 0)
            }
        }
    }

    /// Writes the key field of a map entry.
    pub(super) fn map_key(&mut self, scalar: Scalar, key: Cow<'a, str>) -> Converted<MapKey<'a>> {
        write_tag(1, scalar.wire_type(), self.out);
        match scalar {
            Scalar::String => {
                self.write_bytes(key.as_bytes());
                Ok(MapKey::Text(key))
            }
            Scalar::Bool => {
                let value = match key.as_ref() {
                    "true" => true,
                    "false" => false,
                    _ => return Err(not("true or false", &key)),
                };
                self.out.push(u8::from(value));
                Ok(MapKey::Number(i128::from(value)))
            }
            integers => {
                if !is_number(&key) {
                    return Err(not("an integer", &key));
                }
                let value = integer(integers, &key)?;
                self.write_integer(integers, value);
                Ok(MapKey::Number(value))
            }
        }
    }

    /// A number that a double can hold, or one of its special values.
    pub(super) fn double(&mut self) -> Converted<f64> {
        let text = self.number_text("a number, NaN, Infinity or -Infinity")?;
        let value = special_float(&text).or_else(|| parse_f64(&text));
        value.ok_or_else(|| out_of_range(Scalar::Double, &text))
    }

    pub(super) fn write_bytes(&mut self, bytes: &[u8]) {
        write_varint(bytes.len() as u64, self.out);
        self.out.extend_from_slice(bytes);
    }

    /// The text of a number, be it given as a number or as a string, or the name of a special value of floats.
    fn number_text(&mut self, expected: &'static str) -> Converted<Cow<'a, str>> {
        match self.reader.ahead()? {
            Ahead::Number => Ok(Cow::Borrowed(self.reader.number()?)),
            Ahead::String => {
                let text = self.reader.string()?;
                if is_number(&text) || special_float(&text).is_some() { Ok(text) } else { Err(not(expected, &text)) }
            }
            found => {
                Err(ToProtobufReason::Type { expected: "a number, or a string that holds one", found: found.name() })
            }
        }
    }

    /// Writes an integer that has been checked against the range of its type.
    fn write_integer(&mut self, scalar: Scalar, value: i128) {
        // The low 64 bits of the value, sign-extended, are what each of the encodings starts from.
        let bits = value as u64;
        match scalar {
            Scalar::Sint32 | Scalar::Sint64 => {
                let value = bits.cast_signed();
                write_varint(((value << 1) ^ (value >> 63)).cast_unsigned(), self.out);
            }
            Scalar::Fixed32 | Scalar::Sfixed32 => self.out.extend_from_slice(&(bits as u32).to_le_bytes()),
            Scalar::Fixed64 | Scalar::Sfixed64 => self.out.extend_from_slice(&bits.to_le_bytes()),
            _ => write_varint(bits, self.out),
        }
    }
}

/// The value of a number's text, within the range of the integer type.
pub(super) fn integer(scalar: Scalar, text: &str) -> Converted<i128> {
    let range = match scalar {
        Scalar::Int32 | Scalar::Sint32 | Scalar::Sfixed32 => i128::from(i32::MIN)..=i128::from(i32::MAX),
        Scalar::Int64 | Scalar::Sint64 | Scalar::Sfixed64 => i128::from(i64::MIN)..=i128::from(i64::MAX),
        Scalar::Uint32 | Scalar::Fixed32 => 0..=i128::from(u32::MAX),
        _ => 0..=i128::from(u64::MAX),
    };
    match parse_integer(text) {
        Ok(value) if range.contains(&value) => Ok(value),
        Err(IntegerError::Fraction) => Err(ToProtobufReason::Fraction { text: cut(text).into_owned() }),
        Ok(_) | Err(IntegerError::Range) => Err(out_of_range(scalar, text)),
    }
}

fn out_of_range(scalar: Scalar, text: &str) -> ToProtobufReason {
    ToProtobufReason::OutOfRange { scalar: scalar.name(), text: cut(text).into_owned() }
}

pub(super) fn not(expected: &'static str, text: &str) -> ToProtobufReason {
    ToProtobufReason::Text { expected, text: cut(text).into_owned() }
}

impl Scalar {
    /// How a single value of the type is encoded.
    pub(crate) fn wire_type(self) -> WireType {
        match self {
            Self::Double | Self::Fixed64 | Self::Sfixed64 => WireType::Fixed64,
            Self::Float | Self::Fixed32 | Self::Sfixed32 => WireType::Fixed32,
            Self::String | Self::Bytes => WireType::Delimited,
            Self::Int32 | Self::Int64 | Self::Uint32 | Self::Uint64 | Self::Sint32 | Self::Sint64 | Self::Bool => {
                WireType::Varint
            }
        }
    }
}

//! Avro to JSON, straight from the bytes.
//!
//! No value is built, and no length is believed: what is claimed is compared with the bytes that are left before anything is
//! done with it. Types that take no bytes (null, a record without fields) could make a few bytes claim endless values, so the
//! values are counted, too.

use std::borrow::Cow;
use std::collections::HashSet;

use super::logical;
use super::schema::{AvroSchema, BytesForm, IntForm, LongForm, MAX_DECIMAL_BYTES, Type};
use super::{AvroError, AvroReason, max_values};
use crate::MAX_DEPTH;
use crate::json::{write_display, write_f32, write_f64, write_json_base64, write_json_string};
use crate::path::{Step, path_text};

pub(super) fn to_json(
    schema: &AvroSchema,
    bytes: &[u8],
    max_json_bytes: usize,
    out: &mut Vec<u8>,
) -> Result<(), AvroError> {
    let start = out.len();
    let max_values = max_values(bytes.len());
    let path = Vec::new();
    let mut printer =
        Printer { schema, bytes, at: 0, out, start, max_json_bytes, path, depth: 0, values: 0, max_values };
    let printed = printer.root();
    let (path, offset) = (printer.path, printer.at);
    printed.map_err(|reason| {
        out.truncate(start);
        AvroError { path: path_text(&path), offset, reason }
    })
}

struct Printer<'a, 'o> {
    schema: &'a AvroSchema,
    bytes: &'a [u8],
    at: usize,
    out: &'o mut Vec<u8>,
    /// Where the document starts in `out`.
    start: usize,
    max_json_bytes: usize,
    /// The way to the value that is being printed. An error leaves it as it is.
    path: Vec<Step<'a>>,
    depth: u32,
    /// How many values have been printed, and how many may be.
    values: usize,
    max_values: usize,
}

type Printed<T> = Result<T, AvroReason>;

impl<'a> Printer<'a, '_> {
    fn root(&mut self) -> Printed<()> {
        let root = self.schema.root();
        // Confluent's serializers write bytes at the top as they are, without Avro's length in front.
        if let Type::Bytes(form) = self.schema.get(root) {
            let bytes = self.take(self.bytes.len(), "the bytes")?;
            self.print_bytes(bytes, *form)?;
            return self.check_size();
        }
        self.value(root)?;
        self.check_size()?;
        match self.left() {
            0 => Ok(()),
            bytes => Err(AvroReason::Rest { bytes }),
        }
    }

    fn value(&mut self, of: u32) -> Printed<()> {
        self.values += 1;
        if self.values > self.max_values {
            return Err(AvroReason::TooManyValues { limit: self.max_values });
        }
        let schema = self.schema;
        match schema.get(of) {
            Type::Null => self.out.extend_from_slice(b"null"),
            Type::Boolean => match self.take(1, "a boolean")?[0] {
                0 => self.out.extend_from_slice(b"false"),
                1 => self.out.extend_from_slice(b"true"),
                byte => return Err(AvroReason::Boolean { byte }),
            },
            Type::Int(form) => self.int(*form)?,
            Type::Long(form) => self.long(*form)?,
            Type::Float => {
                let value = f32::from_le_bytes(self.array("a float")?);
                match not_finite(f64::from(value)) {
                    None => write_f32(value, self.out),
                    Some(name) => self.out.extend_from_slice(name),
                }
            }
            Type::Double => {
                let value = f64::from_le_bytes(self.array("a double")?);
                match not_finite(value) {
                    None => write_f64(value, self.out),
                    Some(name) => self.out.extend_from_slice(name),
                }
            }
            Type::Bytes(form) => {
                let bytes = self.delimited("bytes")?;
                self.print_bytes(bytes, *form)?;
            }
            Type::String => {
                let text = self.text()?;
                write_json_string(text, self.out);
            }
            Type::Fixed { size, form } => {
                let bytes = self.take(*size, "a fixed")?;
                self.print_bytes(bytes, *form)?;
            }
            Type::Enum { symbols } => {
                let symbol = self.one_of(symbols, "symbols")?;
                write_json_string(symbol, self.out);
            }
            Type::Union { branches } => {
                let branch = *self.one_of(branches, "branches")?;
                // A branch is no union, so this does not go on.
                self.value(branch)?;
            }
            Type::Record { fields } => {
                self.enter()?;
                self.out.push(b'{');
                for (index, field) in fields.iter().enumerate() {
                    if index > 0 {
                        self.out.push(b',');
                    }
                    self.out.extend_from_slice(&field.key);
                    self.path.push(Step::Key(Cow::Borrowed(&field.name)));
                    self.value(field.of)?;
                    self.check_size()?;
                    self.path.pop();
                }
                self.out.push(b'}');
                self.depth -= 1;
            }
            Type::Array { items } => {
                self.enter()?;
                self.out.push(b'[');
                let mut index = 0;
                self.blocks(|printer| {
                    printer.comma(index);
                    printer.path.push(Step::Index(index));
                    printer.value(*items)?;
                    printer.check_size()?;
                    printer.path.pop();
                    index += 1;
                    Ok(())
                })?;
                self.out.push(b']');
                self.depth -= 1;
            }
            Type::Map { values } => {
                self.enter()?;
                self.out.push(b'{');
                let mut keys = HashSet::new();
                self.blocks(|printer| {
                    let key = printer.text()?;
                    printer.path.push(Step::Key(Cow::Borrowed(key)));
                    printer.comma(keys.len());
                    if !keys.insert(key) {
                        return Err(AvroReason::DuplicateKey);
                    }
                    write_json_string(key, printer.out);
                    printer.out.push(b':');
                    printer.value(*values)?;
                    printer.check_size()?;
                    printer.path.pop();
                    Ok(())
                })?;
                self.out.push(b'}');
                self.depth -= 1;
            }
        }
        Ok(())
    }

    /// The items of an array or a map, block by block. A count that is negative has the block's size in bytes behind it.
    fn blocks(&mut self, mut item: impl FnMut(&mut Self) -> Printed<()>) -> Printed<()> {
        loop {
            let count = self.varint("a count of items")?;
            if count == 0 {
                return Ok(());
            }
            let end = if count < 0 {
                let size = self.varint("the size of a block")?;
                Some(self.length(size, "a block")? + self.at)
            } else {
                None
            };
            for _ in 0..count.unsigned_abs() {
                item(self)?;
            }
            match end {
                Some(expected) if expected != self.at => {
                    return Err(AvroReason::Block { found: self.at, expected });
                }
                _ => {}
            }
        }
    }

    fn comma(&mut self, index: usize) {
        if index > 0 {
            self.out.push(b',');
        }
    }

    fn int(&mut self, form: IntForm) -> Printed<()> {
        let value = self.varint("an int")?;
        let value = i32::try_from(value).map_err(|_| AvroReason::Varint { what: "an int", bits: 32 })?;
        match form {
            IntForm::Number => write_display(value, self.out),
            IntForm::Date => self.quoted("a date beyond the years 1 to 9999", |out| logical::write_date(value, out))?,
            IntForm::TimeMillis => {
                self.quoted("a time beyond a day", |out| logical::write_time(i64::from(value), 1_000, out))?;
            }
        }
        Ok(())
    }

    fn long(&mut self, form: LongForm) -> Printed<()> {
        let value = self.varint("a long")?;
        match form {
            LongForm::Number => write_display(value, self.out),
            LongForm::TimeMicros => {
                self.quoted("a time beyond a day", |out| logical::write_time(value, 1_000_000, out))?;
            }
            LongForm::Timestamp { per_second, is_local } => {
                self.quoted("a timestamp beyond the years 1 to 9999", |out| {
                    logical::write_time_since_epoch(value, per_second, is_local, out)
                })?;
            }
        }
        Ok(())
    }

    fn quoted(&mut self, otherwise: &'static str, write: impl FnOnce(&mut Vec<u8>) -> bool) -> Printed<()> {
        self.out.push(b'"');
        if !write(self.out) {
            return Err(AvroReason::NoJsonForm { what: otherwise });
        }
        self.out.push(b'"');
        Ok(())
    }

    fn print_bytes(&mut self, bytes: &[u8], form: BytesForm) -> Printed<()> {
        match form {
            BytesForm::Decimal { .. } if bytes.len() > MAX_DECIMAL_BYTES => {
                Err(AvroReason::NoJsonForm { what: "a decimal of more than 1024 bytes" })
            }
            BytesForm::Decimal { scale } => self.quoted("", |out| {
                logical::write_decimal(bytes, scale, out);
                true
            }),
            BytesForm::Uuid | BytesForm::Duration | BytesForm::Base64 => {
                match (form, <[u8; 16]>::try_from(bytes), <[u8; 12]>::try_from(bytes)) {
                    (BytesForm::Uuid, Ok(bytes), _) => self.quoted("", |out| {
                        logical::write_uuid(bytes, out);
                        true
                    }),
                    (BytesForm::Duration, _, Ok(bytes)) => self.quoted("", |out| {
                        logical::write_duration(bytes, out);
                        true
                    }),
                    _ => {
                        write_json_base64(bytes, self.out);
                        Ok(())
                    }
                }
            }
        }
    }

    fn one_of<'s, T>(&mut self, all: &'s [T], of: &'static str) -> Printed<&'s T> {
        let index = self.varint("an index")?;
        let found = usize::try_from(index).ok().and_then(|index| all.get(index));
        found.ok_or(AvroReason::Index { index, count: all.len(), of })
    }

    fn text(&mut self) -> Printed<&'a str> {
        let bytes = self.delimited("a string")?;
        std::str::from_utf8(bytes).map_err(|_| AvroReason::NotUtf8)
    }

    fn delimited(&mut self, what: &'static str) -> Printed<&'a [u8]> {
        let length = self.varint(what)?;
        let length = self.length(length, what)?;
        self.take(length, what)
    }

    /// A length, if so many bytes are left.
    fn length(&self, length: i64, what: &'static str) -> Printed<usize> {
        let left = self.left();
        usize::try_from(length).ok().filter(|length| *length <= left).ok_or(AvroReason::Length { what, length, left })
    }

    /// A zigzag varint of up to 64 bits.
    fn varint(&mut self, what: &'static str) -> Printed<i64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1, what)?[0];
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed());
            }
        }
        Err(AvroReason::Varint { what, bits: 64 })
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Printed<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, what)?);
        Ok(array)
    }

    fn take(&mut self, count: usize, what: &'static str) -> Printed<&'a [u8]> {
        let taken = self.bytes[self.at..].get(..count).ok_or(AvroReason::Truncated { what })?;
        self.at += count;
        Ok(taken)
    }

    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn enter(&mut self) -> Printed<()> {
        if self.depth == MAX_DEPTH {
            return Err(AvroReason::Depth { limit: MAX_DEPTH });
        }
        self.depth += 1;
        Ok(())
    }

    /// Fails when the document has grown beyond its limit, which is passed by one value at most.
    fn check_size(&self) -> Printed<()> {
        let limit = self.max_json_bytes;
        if self.out.len() - self.start > limit { Err(AvroReason::TooLarge { limit }) } else { Ok(()) }
    }
}

/// JSON has no numbers for these.
fn not_finite(value: f64) -> Option<&'static [u8]> {
    if value.is_nan() {
        Some(b"\"NaN\"")
    } else if value.is_infinite() {
        Some(if value > 0.0 { b"\"Infinity\"" } else { b"\"-Infinity\"" })
    } else {
        None
    }
}

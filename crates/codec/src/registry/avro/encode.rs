//! JSON to Avro, in one pass over the text.
//!
//! It takes what reading gives: see the module above for the forms. A field that is missing is written as its union's null
//! branch, and is an error without one.
//!
//! A value of a union goes to the first branch that it fits, and a number first to those that keep it as it is:
//!
//! 1. to an `int` or a `long`, if it is an integer and not the negative zero, which only floats have;
//! 2. to a `double`, and to a `float` if that is the same number as the nearest double;
//! 3. to a `float` that is not: there is no `double`.
//!
//! Which branch a record fits shows only when it has been tried, and so in each record inside it: a schema of a few lines can
//! ask for 2^100 attempts. And records of absent fields are far longer than their text. So the values are counted as they are
//! when reading, those of attempts that fail too, with the fields that are absent and whatever else takes time.

use std::borrow::Cow;

use super::logical;
use super::max_values;
use super::schema::{AvroSchema, BytesForm, IntForm, LongForm, MAX_DECIMAL_BYTES, Type};
use crate::MAX_DEPTH;
use crate::json::{Ahead, Reader, SyntaxError, parse_f32, parse_f64, parse_integer, special_float};
use crate::path::{Step, cut, path_text};

/// Why a JSON document is no value of an Avro schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct AvroWriteError {
    /// The path of the value in trouble; `$` is the document.
    pub path: String,
    /// What is wrong with it.
    pub reason: AvroWriteReason,
}

/// What can be wrong with a JSON document. Long texts are cut.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AvroWriteReason {
    /// It is not JSON.
    #[error("not JSON: {0}")]
    Syntax(#[from] SyntaxError),
    /// The value does not suit the type.
    #[error("expected {expected}, found {found}")]
    Type {
        /// What the type takes.
        expected: Cow<'static, str>,
        /// What stands there.
        found: String,
    },
    /// No branch of the union takes the value.
    #[error("{found} suits none of the union's {count} branches")]
    Union {
        /// What stands there.
        found: &'static str,
        /// How many branches there are.
        count: usize,
    },
    /// The record has no field of that name.
    #[error("the record has no such field")]
    UnknownField,
    /// A field that must be there is missing.
    #[error("the field {name} is missing")]
    MissingField {
        /// Its name.
        name: String,
    },
    /// The same key stands twice.
    #[error("the key is given twice")]
    Duplicate,
    /// Records, arrays and maps nest too deep.
    #[error("values nest deeper than {limit}")]
    Depth {
        /// How deep they may.
        limit: u32,
    },
    /// More values than so short a text should stand for: absent fields, and branches of unions to be tried.
    #[error("more than {limit} values to write or to try for so short a text")]
    TooManyValues {
        /// How many there may be.
        limit: usize,
    },
}

type Written<T> = Result<T, AvroWriteReason>;

pub(super) fn write(schema: &AvroSchema, json: &[u8], out: &mut Vec<u8>) -> Result<(), AvroWriteError> {
    let start = out.len();
    let max_values = max_values(json.len());
    let mut writer = Writer { schema, path: Vec::new(), depth: 0, values: 0, max_values };
    let written = writer.document(json, out);
    let path = writer.path;
    written.map_err(|reason| {
        out.truncate(start);
        AvroWriteError { path: path_text(&path), reason }
    })
}

struct Writer<'a> {
    schema: &'a AvroSchema,
    path: Vec<Step<'a>>,
    depth: u32,
    /// How many values have been written or tried, and how many may be.
    values: usize,
    max_values: usize,
}

/// Going over so much text, or comparing with so many names, counts as one value.
const WORK_PER_VALUE: usize = 64;

/// So many digits that a decimal's scale adds count as one value: no text stands for them.
const DIGITS_PER_VALUE: u32 = 8;

impl<'a> Writer<'a> {
    fn document(&mut self, json: &'a [u8], out: &mut Vec<u8>) -> Written<()> {
        let mut reader = Reader::new(json)?;
        let root = self.schema.root();
        // Bytes at the top have no length in front, as Confluent's serializers write them.
        if let Type::Bytes(form) = self.schema.get(root) {
            let bytes = bytes(&mut reader, *form, None)?;
            out.extend_from_slice(&bytes);
        } else {
            self.value(root, &mut reader, out)?;
        }
        Ok(reader.end()?)
    }

    fn value(&mut self, of: u32, reader: &mut Reader<'a>, out: &mut Vec<u8>) -> Written<()> {
        self.spend(1)?;
        let schema = self.schema;
        match schema.get(of) {
            Type::Union { branches } => self.union(branches, reader, out),
            Type::Record { .. } => self.nested(|writer| writer.record(of, reader, out)),
            Type::Array { items } => self.nested(|writer| writer.array(*items, reader, out)),
            Type::Map { values } => self.nested(|writer| writer.map(*values, reader, out)),
            scalar => {
                let start = reader.position();
                let written = self.scalar(scalar, reader, out);
                // A long text counts also for a branch that does not take it.
                self.went_over(start, reader)?;
                written
            }
        }
    }

    fn spend(&mut self, values: usize) -> Written<()> {
        self.values = self.values.saturating_add(values);
        let limit = self.max_values;
        if self.values > limit { Err(AvroWriteReason::TooManyValues { limit }) } else { Ok(()) }
    }

    fn went_over(&mut self, start: usize, reader: &Reader<'a>) -> Written<()> {
        self.spend((reader.position() - start) / WORK_PER_VALUE)
    }

    fn scalar(&mut self, of: &Type, reader: &mut Reader<'a>, out: &mut Vec<u8>) -> Written<()> {
        if let Type::Bytes(BytesForm::Decimal { scale }) | Type::Fixed { form: BytesForm::Decimal { scale }, .. } = of {
            self.spend((scale / DIGITS_PER_VALUE) as usize)?;
        }
        match of {
            Type::Null => {
                expect(reader, Ahead::Null, "null")?;
                reader.null()?;
            }
            Type::Boolean => {
                expect(reader, Ahead::Bool, "a boolean")?;
                out.push(u8::from(reader.boolean()?));
            }
            Type::Int(form) => write_varint(i64::from(int(reader, *form)?), out),
            Type::Long(form) => write_varint(long(reader, *form)?, out),
            Type::Float => {
                let value: f32 = float(reader, "a float", parse_f32, |value| value as f32)?;
                out.extend_from_slice(&value.to_le_bytes());
            }
            Type::Double => {
                let value: f64 = float(reader, "a double", parse_f64, |value| value)?;
                out.extend_from_slice(&value.to_le_bytes());
            }
            Type::Bytes(form) => write_bytes(&bytes(reader, *form, None)?, out),
            Type::String => {
                expect(reader, Ahead::String, "a string")?;
                write_bytes(reader.string()?.as_bytes(), out);
            }
            Type::Fixed { size, form } => out.extend_from_slice(&bytes(reader, *form, Some(*size))?),
            Type::Enum { symbols } => {
                expect(reader, Ahead::String, "a symbol of an enum")?;
                let text = reader.string()?;
                let index = symbols.iter().position(|symbol| *symbol == *text);
                self.spend(index.unwrap_or(symbols.len()) / WORK_PER_VALUE)?;
                let index = index.ok_or_else(|| wrong("a symbol of the enum", &text))?;
                write_varint(index as i64, out);
            }
            // These are no scalars.
            Type::Union { .. } | Type::Record { .. } | Type::Array { .. } | Type::Map { .. } => {}
        }
        Ok(())
    }

    fn nested(&mut self, write: impl FnOnce(&mut Self) -> Written<()>) -> Written<()> {
        if self.depth == MAX_DEPTH {
            return Err(AvroWriteReason::Depth { limit: MAX_DEPTH });
        }
        self.depth += 1;
        write(self)?;
        self.depth -= 1;
        Ok(())
    }

    fn union(&mut self, branches: &[u32], reader: &mut Reader<'a>, out: &mut Vec<u8>) -> Written<()> {
        let ahead = reader.ahead()?;
        let schema = self.schema;
        let mut suiting = branches.iter().enumerate().filter(|(_, branch)| suits(schema.get(**branch), ahead));
        let (first, second) = (suiting.next(), suiting.next());
        if let (Some((index, branch)), None) = (first, second) {
            // The one branch that there is for such a value says what is wrong with it.
            write_varint(index as i64, out);
            return self.value(*branch, reader, out);
        }
        let (start, way, depth) = (out.len(), self.path.len(), self.depth);
        let number = if ahead == Ahead::Number { Some(Number::read(reader.clone().number()?)) } else { None };
        for rank in Rank::ALL {
            let of_rank = |branch: &u32| {
                let of = schema.get(*branch);
                suits(of, ahead) && number.as_ref().map_or(Rank::Whole, |number| number.rank(of)) == rank
            };
            for (index, branch) in branches.iter().enumerate().filter(|(_, branch)| of_rank(branch)) {
                let mut attempt = reader.clone();
                write_varint(index as i64, out);
                match self.value(*branch, &mut attempt, out) {
                    Ok(()) => {
                        *reader = attempt;
                        return Ok(());
                    }
                    // Neither would be otherwise in another branch.
                    Err(reason @ (AvroWriteReason::TooManyValues { .. } | AvroWriteReason::Syntax(_))) => {
                        return Err(reason);
                    }
                    Err(_) => {
                        out.truncate(start);
                        self.path.truncate(way);
                        self.depth = depth;
                    }
                }
            }
        }
        Err(AvroWriteReason::Union { found: ahead.name(), count: branches.len() })
    }

    fn record(&mut self, of: u32, reader: &mut Reader<'a>, out: &mut Vec<u8>) -> Written<()> {
        let Type::Record { fields } = self.schema.get(of) else { return Ok(()) };
        expect(reader, Ahead::Object, "an object")?;
        // Where the value of each field that is there stands: the bytes follow the order of the schema, not that of the keys.
        let mut given: Vec<(usize, Reader<'a>)> = Vec::new();
        let (mut first, mut next) = (true, 0);
        let mut start = reader.position();
        reader.begin_object()?;
        loop {
            let key = reader.next_key(&mut first)?;
            self.went_over(start, reader)?;
            let Some(key) = key else { break };
            // Keys mostly stand in the order of the fields.
            let found = match fields.get(next) {
                Some(field) if *field.name == *key => Some(next),
                _ => {
                    let found = fields.iter().position(|field| *field.name == *key);
                    self.spend(found.unwrap_or(fields.len()) / WORK_PER_VALUE)?;
                    found
                }
            };
            let Some(index) = found else {
                self.path.push(Step::Key(key));
                return Err(AvroWriteReason::UnknownField);
            };
            start = reader.position();
            given.push((index, reader.clone()));
            reader.skip_value()?;
            next = index + 1;
        }
        given.sort_by_key(|(index, _)| *index);
        if let Some(twice) = given.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            self.path.push(Step::Key(Cow::Borrowed(&fields[twice[0].0].name)));
            return Err(AvroWriteReason::Duplicate);
        }
        let mut given = given.into_iter().peekable();
        for (index, field) in fields.iter().enumerate() {
            match given.next_if(|(given, _)| *given == index) {
                Some((_, mut value)) => {
                    self.path.push(Step::Key(Cow::Borrowed(&field.name)));
                    self.value(field.of, &mut value, out)?;
                    self.path.pop();
                }
                None => {
                    self.spend(1)?;
                    match self.null_branch(field.of) {
                        Some(index) => write_varint(index as i64, out),
                        None if matches!(self.schema.get(field.of), Type::Null) => {}
                        None => return Err(AvroWriteReason::MissingField { name: cut(&field.name).into_owned() }),
                    }
                }
            }
        }
        Ok(())
    }

    fn null_branch(&self, of: u32) -> Option<usize> {
        match self.schema.get(of) {
            Type::Union { branches } => {
                branches.iter().position(|branch| matches!(self.schema.get(*branch), Type::Null))
            }
            _ => None,
        }
    }

    fn array(&mut self, items: u32, reader: &mut Reader<'a>, out: &mut Vec<u8>) -> Written<()> {
        expect(reader, Ahead::Array, "an array")?;
        let count = self.count(reader)?;
        reader.begin_array()?;
        if count > 0 {
            write_varint(count, out);
        }
        let (mut first, mut index) = (true, 0);
        while reader.next_element(&mut first)? {
            self.path.push(Step::Index(index));
            self.value(items, reader, out)?;
            self.path.pop();
            index += 1;
        }
        out.push(0);
        Ok(())
    }

    fn map(&mut self, values: u32, reader: &mut Reader<'a>, out: &mut Vec<u8>) -> Written<()> {
        expect(reader, Ahead::Object, "an object")?;
        let count = self.count(reader)?;
        reader.begin_object()?;
        if count > 0 {
            write_varint(count, out);
        }
        let mut first = true;
        let mut keys = std::collections::HashSet::new();
        while let Some(key) = reader.next_key(&mut first)? {
            write_bytes(key.as_bytes(), out);
            self.path.push(Step::Key(key.clone()));
            if !keys.insert(key) {
                return Err(AvroWriteReason::Duplicate);
            }
            self.value(values, reader, out)?;
            self.path.pop();
        }
        out.push(0);
        Ok(())
    }

    /// How many items the next array or object has.
    fn count(&mut self, reader: &Reader<'a>) -> Written<i64> {
        let mut ahead = reader.clone();
        let (mut first, mut count) = (true, 0);
        if ahead.ahead()? == Ahead::Array {
            ahead.begin_array()?;
            while ahead.next_element(&mut first)? {
                ahead.skip_value()?;
                count += 1;
            }
        } else {
            ahead.begin_object()?;
            while ahead.next_key(&mut first)?.is_some() {
                ahead.skip_value()?;
                count += 1;
            }
        }
        self.went_over(reader.position(), &ahead)?;
        Ok(count)
    }
}

/// In which order a union's branches are tried for a number: those of a rank as they stand. All others are of the first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rank {
    Whole,
    Exact,
    Rounded,
}

impl Rank {
    const ALL: [Self; 3] = [Self::Whole, Self::Exact, Self::Rounded];
}

/// What decides on the branch that a number goes to.
struct Number {
    is_negative_zero: bool,
    /// Whether a float is another number than a double.
    needs_double: bool,
}

impl Number {
    fn read(text: &str) -> Self {
        let (float, double) = (parse_f32(text), parse_f64(text));
        Self {
            is_negative_zero: text.starts_with('-') && parse_integer(text) == Ok(0),
            needs_double: float.map(f64::from) != double,
        }
    }

    fn rank(&self, of: &Type) -> Rank {
        match of {
            Type::Int(_) | Type::Long(_) if self.is_negative_zero => Rank::Rounded,
            Type::Float if self.needs_double => Rank::Rounded,
            Type::Float | Type::Double => Rank::Exact,
            _ => Rank::Whole,
        }
    }
}

/// Whether a JSON value of this kind can be of the type.
fn suits(of: &Type, ahead: Ahead) -> bool {
    match ahead {
        Ahead::Null => matches!(of, Type::Null),
        Ahead::Bool => matches!(of, Type::Boolean),
        Ahead::Number => {
            matches!(of, Type::Int(IntForm::Number) | Type::Long(LongForm::Number) | Type::Float | Type::Double)
        }
        Ahead::Array => matches!(of, Type::Array { .. }),
        Ahead::Object => matches!(of, Type::Record { .. } | Type::Map { .. }),
        Ahead::String => !matches!(
            of,
            Type::Null
                | Type::Boolean
                | Type::Int(IntForm::Number)
                | Type::Long(LongForm::Number)
                | Type::Array { .. }
                | Type::Record { .. }
                | Type::Map { .. }
        ),
    }
}

fn expect(reader: &mut Reader<'_>, expected: Ahead, name: &'static str) -> Written<()> {
    let found = reader.ahead()?;
    if found == expected {
        return Ok(());
    }
    Err(AvroWriteReason::Type { expected: name.into(), found: found.name().to_owned() })
}

fn wrong(expected: impl Into<Cow<'static, str>>, text: &str) -> AvroWriteReason {
    AvroWriteReason::Type { expected: expected.into(), found: format!("{:?}", cut(text)) }
}

fn integer<T: TryFrom<i128>>(reader: &mut Reader<'_>, expected: &'static str) -> Written<T> {
    expect(reader, Ahead::Number, expected)?;
    let text = reader.number()?;
    let value = parse_integer(text).ok().and_then(|value| T::try_from(value).ok());
    value.ok_or_else(|| AvroWriteReason::Type { expected: expected.into(), found: cut(text).into_owned() })
}

fn int(reader: &mut Reader<'_>, form: IntForm) -> Written<i32> {
    let (name, parse): (&'static str, fn(&str) -> Option<i32>) = match form {
        IntForm::Number => return integer(reader, "an int"),
        IntForm::Date => ("a date such as 2013-02-01", logical::parse_date),
        IntForm::TimeMillis => {
            ("a time such as 10:15:00.250", |text| logical::parse_time(text, 1_000)?.try_into().ok())
        }
    };
    expect(reader, Ahead::String, name)?;
    let text = reader.string()?;
    parse(&text).ok_or_else(|| wrong(name, &text))
}

fn long(reader: &mut Reader<'_>, form: LongForm) -> Written<i64> {
    let name = match form {
        LongForm::Number => return integer(reader, "a long"),
        LongForm::TimeMicros => "a time such as 10:15:00.250",
        LongForm::Timestamp { is_local: false, .. } => "a time such as 2013-02-01T10:15:00.250Z",
        LongForm::Timestamp { is_local: true, .. } => "a local time such as 2013-02-01T10:15:00.250",
    };
    expect(reader, Ahead::String, name)?;
    let text = reader.string()?;
    let value = match form {
        LongForm::Number => None,
        LongForm::TimeMicros => logical::parse_time(&text, 1_000_000),
        LongForm::Timestamp { per_second, is_local } => logical::parse_instant(&text, per_second, is_local),
    };
    value.ok_or_else(|| wrong(name, &text))
}

/// A number that `parse` finds a value for, or one of the special ones.
fn float<T>(
    reader: &mut Reader<'_>,
    name: &'static str,
    parse: fn(&str) -> Option<T>,
    of_special: fn(f64) -> T,
) -> Written<T> {
    if reader.ahead()? == Ahead::String {
        let text = reader.string()?;
        return special_float(&text).map(of_special).ok_or_else(|| wrong("a number", &text));
    }
    expect(reader, Ahead::Number, "a number")?;
    let text = reader.number()?;
    parse(text).ok_or_else(|| AvroWriteReason::Type { expected: name.into(), found: cut(text).into_owned() })
}

fn bytes(reader: &mut Reader<'_>, form: BytesForm, size: Option<usize>) -> Written<Vec<u8>> {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let name = match form {
        BytesForm::Base64 => "bytes in base64",
        BytesForm::Decimal { .. } => "a decimal in a string, such as \"12.50\"",
        BytesForm::Uuid => "a UUID",
        BytesForm::Duration => "a duration such as P1M2DT3.004S",
    };
    expect(reader, Ahead::String, name)?;
    let text = reader.string()?;
    let bytes = match form {
        BytesForm::Base64 => STANDARD.decode(text.as_bytes()).ok(),
        BytesForm::Decimal { scale } => logical::parse_decimal(&text, scale, size.unwrap_or(MAX_DECIMAL_BYTES)),
        BytesForm::Uuid => logical::parse_uuid(&text),
        BytesForm::Duration => logical::parse_duration(&text),
    };
    match (bytes, form, size) {
        (None, ..) => Err(wrong(name, &text)),
        // A decimal of a fixed size is filled up in front, with its sign.
        (Some(bytes), BytesForm::Decimal { .. }, Some(size)) => {
            let fill = if bytes.first().is_some_and(|byte| byte & 0x80 != 0) { 0xff } else { 0 };
            let mut filled = vec![fill; size.saturating_sub(bytes.len())];
            filled.extend_from_slice(&bytes);
            Ok(filled)
        }
        (Some(bytes), _, Some(size)) if bytes.len() != size => Err(AvroWriteReason::Type {
            expected: format!("{size} bytes").into(),
            found: format!("{} bytes", bytes.len()),
        }),
        (Some(bytes), ..) => Ok(bytes),
    }
}

fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    // No slice is longer than an i64 counts.
    write_varint(bytes.len() as i64, out);
    out.extend_from_slice(bytes);
}

fn write_varint(value: i64, out: &mut Vec<u8>) {
    crate::wire::write_varint(((value << 1) ^ (value >> 63)).cast_unsigned(), out);
}

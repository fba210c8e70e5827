//! A registry's JSON, read.

use super::{RegisteredSchema, SchemaReference, SchemaType, SubjectVersion};
use crate::json::{Ahead, Reader, SyntaxError, parse_integer};

/// What a registry says of a schema. Which of the numbers are there depends on the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryAnswer {
    /// The schema; `None` where only the id was answered, as to a registration.
    pub schema: Option<RegisteredSchema>,
    /// Its id.
    pub id: Option<u32>,
    /// The version of the subject that was asked for.
    pub version: Option<i32>,
}

/// Why an answer cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// It is not JSON.
    #[error("not JSON: {0}")]
    Syntax(#[from] SyntaxError),
    /// A member is of another type than it must be.
    #[error("{member} is {found}, not {expected}")]
    Type {
        /// The member's name.
        member: &'static str,
        /// What it should be.
        expected: &'static str,
        /// What it is.
        found: &'static str,
    },
    /// A member is missing.
    #[error("{member} is missing")]
    Missing {
        /// The member's name.
        member: &'static str,
    },
    /// A number that cannot be one.
    #[error("{member} is {text}, which no registry gives")]
    Number {
        /// The member's name.
        member: &'static str,
        /// What stands there, cut.
        text: String,
    },
    /// A kind of schema that is not known.
    #[error("schemas of type {name:?} are not supported: AVRO, PROTOBUF and JSON are")]
    SchemaType {
        /// The name of the kind, cut.
        name: String,
    },
    /// More references than any schema has.
    #[error("more than {limit} references")]
    TooManyReferences {
        /// How many there may be.
        limit: usize,
    },
}

/// One schema refers to no more others than this.
const MAX_REFERENCES: usize = 500;

type Read<T> = Result<T, AnswerError>;

/// Reads the answer to a request for a schema, by id, GUID, or subject and version, and to a registration.
///
/// # Errors
/// [`AnswerError`].
pub fn read_answer(json: &[u8]) -> Result<RegistryAnswer, AnswerError> {
    let mut reader = Reader::new(json)?;
    let (mut text, mut kind, mut references, mut id, mut version) = (None, None, Vec::new(), None, None);
    expect(&mut reader, "the answer", Ahead::Object)?;
    reader.begin_object()?;
    let mut first = true;
    while let Some(key) = reader.next_key(&mut first)? {
        if reader.ahead()? == Ahead::Null {
            reader.null()?;
            continue;
        }
        match &*key {
            "schema" => text = Some(string(&mut reader, "schema")?),
            "schemaType" => {
                let name = string(&mut reader, "schemaType")?;
                let known = SchemaType::from_name(&name);
                kind = Some(known.ok_or_else(|| AnswerError::SchemaType { name: short(&name) })?);
            }
            "references" => references = read_references(&mut reader)?,
            "id" => id = Some(number(&mut reader, "id")?),
            "version" => version = Some(number(&mut reader, "version")?),
            _ => reader.skip_value()?,
        }
    }
    reader.end()?;
    let schema = text.map(|text| RegisteredSchema { kind: kind.unwrap_or_default(), text, references });
    Ok(RegistryAnswer { schema, id, version })
}

fn read_references(reader: &mut Reader<'_>) -> Read<Vec<SchemaReference>> {
    let mut references = Vec::new();
    expect(reader, "references", Ahead::Array)?;
    reader.begin_array()?;
    let mut first = true;
    while reader.next_element(&mut first)? {
        if references.len() == MAX_REFERENCES {
            return Err(AnswerError::TooManyReferences { limit: MAX_REFERENCES });
        }
        references.push(read_reference(reader)?);
    }
    Ok(references)
}

fn read_reference(reader: &mut Reader<'_>) -> Read<SchemaReference> {
    let (mut name, mut subject, mut version) = (None, None, None);
    expect(reader, "a reference", Ahead::Object)?;
    reader.begin_object()?;
    let mut first = true;
    while let Some(key) = reader.next_key(&mut first)? {
        match &*key {
            "name" => name = Some(string(reader, "a reference's name")?),
            "subject" => subject = Some(string(reader, "a reference's subject")?),
            "version" => version = Some(number(reader, "a reference's version")?),
            _ => reader.skip_value()?,
        }
    }
    let missing = |member| AnswerError::Missing { member };
    let subject = subject.ok_or(missing("a reference's subject"))?;
    let version = version.ok_or(missing("a reference's version"))?;
    let name = name.ok_or(missing("a reference's name"))?;
    Ok(SchemaReference { name, at: SubjectVersion { subject, version } })
}

fn expect(reader: &mut Reader<'_>, member: &'static str, expected: Ahead) -> Read<()> {
    let found = reader.ahead()?;
    if found == expected {
        Ok(())
    } else {
        Err(AnswerError::Type { member, expected: expected.name(), found: found.name() })
    }
}

fn string(reader: &mut Reader<'_>, member: &'static str) -> Read<String> {
    expect(reader, member, Ahead::String)?;
    Ok(reader.string()?.into_owned())
}

fn number<T: TryFrom<i128>>(reader: &mut Reader<'_>, member: &'static str) -> Read<T> {
    expect(reader, member, Ahead::Number)?;
    let text = reader.number()?;
    let value = parse_integer(text).ok().and_then(|value| T::try_from(value).ok());
    value.ok_or_else(|| AnswerError::Number { member, text: short(text) })
}

fn short(text: &str) -> String {
    crate::path::cut(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answers_of_a_registry_are_understood() {
        let answer = read_answer(
            br#"{"id":2,"subject":"common.money","version":3,"schema":"syntax = \"proto3\";","schemaType":"PROTOBUF",
                "references":[{"name":"common/unit.proto","subject":"common.unit","version":1}],"metadata":{"a":[1]},"ruleSet":null}"#,
        );
        let expected = RegisteredSchema {
            kind: SchemaType::Protobuf,
            text: "syntax = \"proto3\";".to_owned(),
            references: vec![SchemaReference {
                name: "common/unit.proto".to_owned(),
                at: SubjectVersion { subject: "common.unit".to_owned(), version: 1 },
            }],
        };
        assert_eq!(answer, Ok(RegistryAnswer { schema: Some(expected), id: Some(2), version: Some(3) }));

        // A registry that says no type means Avro, and may say null for what is not there.
        let answer = read_answer(br#"{"schema":"\"int\"","references":null,"schemaType":null}"#).unwrap();
        assert_eq!(answer.schema.unwrap().kind, SchemaType::Avro);
        assert_eq!(read_answer(br#"{"id":4294967295}"#).unwrap().id, Some(u32::MAX));
    }

    #[test]
    fn what_no_registry_says_is_refused_with_the_member_it_stands_in() {
        for (json, says) in [
            (&br#"{"schema":7}"#[..], "schema is a number, not a string"),
            (br#"{"schema":"","schemaType":"THRIFT"}"#, "type \"THRIFT\" are not supported"),
            (br#"{"id":-1}"#, "id is -1"),
            (br#"{"id":1e30}"#, "id is 1e30"),
            (br#"{"references":[{"name":"a","subject":"b"}]}"#, "a reference's version is missing"),
            (br#"{"references":{}}"#, "references is an object, not an array"),
            (br#"[]"#, "the answer is an array, not an object"),
            (br#"<html>"#, "not JSON"),
            (br#"{} {}"#, "not JSON"),
        ] {
            let error = read_answer(json).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        let many =
            format!("{{\"references\":[{}]}}", ["{\"name\":\"\",\"subject\":\"\",\"version\":1}"; 501].join(","));
        assert_eq!(read_answer(many.as_bytes()), Err(AnswerError::TooManyReferences { limit: 500 }));
    }
}

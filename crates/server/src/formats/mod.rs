//! The formats that records leave in over REST, and in the command line's own reads.
//!
//! | format | what it is | where the end statement is |
//! |---|---|---|
//! | `ndjson` | one object a record, one a line | the last line, `{"end":{…}}` |
//! | `json` | one document, `{"records":[…],"end":{…}}` | its `end` |
//! | `values` | the bare values as JSON, one a line | apart: an HTTP trailer |
//! | `protobuf` | the values as stored, each behind its length as a varint | apart: an HTTP trailer |

pub mod encoder;
pub mod end;
pub mod ndjson;
mod text;

pub use encoder::{Encoder, Part};
pub use text::time_text;

/// An output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// One object a record, one a line.
    #[default]
    Ndjson,
    /// One JSON document.
    Json,
    /// The bare values as JSON, one a line. A null value is the line `null`; a value without a JSON form is the line
    /// `{"value_base64":"…"}` and is counted in the end statement.
    Values,
    /// The values as stored, each behind its length as a varint. It has no way to say null, so a record without a value
    /// ends it with an error.
    Protobuf,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Ndjson, Self::Json, Self::Values, Self::Protobuf];

    /// Its name in a request.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ndjson => "ndjson",
            Self::Json => "json",
            Self::Values => "values",
            Self::Protobuf => "protobuf",
        }
    }

    /// The format of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Its media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Ndjson | Self::Values => "application/x-ndjson",
            Self::Json => "application/json",
            Self::Protobuf => "application/x-protobuf; encoding=delimited",
        }
    }

    /// Whether the end statement stands apart from the body.
    pub fn has_end_apart(self) -> bool {
        match self {
            Self::Ndjson | Self::Json => false,
            Self::Values | Self::Protobuf => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_back_to_its_format() {
        for format in Format::ALL {
            assert_eq!(Format::from_name(format.name()), Some(format));
        }
        assert_eq!(Format::from_name("csv"), None);
    }
}

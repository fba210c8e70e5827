//! The value of a record as the request wants it.

use tidegate_codec::registry::SchemaKey;
use tidegate_model::{Headers, Record};

use crate::engine::{Resolved, ValueDecoder};

/// How values go out.
pub(super) enum Values {
    /// As they stand in the log.
    AsStored,
    /// As JSON where that can be.
    Json(JsonValues),
}

/// Converts values to JSON, one at a time, in one buffer.
pub(super) struct JsonValues {
    decoder: ValueDecoder,
    json: Vec<u8>,
    not_converted: u64,
}

/// A value on its way out.
pub(super) struct Shown<'a> {
    /// Its bytes; `None`: null.
    pub(super) value: Option<&'a [u8]>,
    /// Why it is not JSON although JSON was asked for; empty when it is.
    pub(super) error: String,
}

impl Values {
    /// Values as JSON, by the topic's decoder.
    pub(super) fn json(decoder: ValueDecoder) -> Self {
        Self::Json(JsonValues { decoder, json: Vec::new(), not_converted: 0 })
    }

    /// The value as it goes out. Null stays null.
    pub(super) fn show<'a>(&'a mut self, value: Option<&'a [u8]>, headers: Headers<'_>) -> Shown<'a> {
        match (self, value) {
            (Self::AsStored, value) | (Self::Json(_), value @ None) => Shown { value, error: String::new() },
            (Self::Json(json), Some(stored)) => json.show(stored, headers),
        }
    }

    /// The schema that must be learnt before the record can be shown.
    pub(super) fn needs(&self, record: &Record<'_>) -> Option<SchemaKey> {
        match self {
            Self::AsStored => None,
            Self::Json(json) => json.decoder.needs(record),
        }
    }

    /// Learns what became of a schema.
    pub(super) fn learn(&mut self, key: SchemaKey, schema: Resolved) {
        if let Self::Json(json) = self {
            json.decoder.learn(key, schema);
        }
    }

    /// How many values went out as stored although JSON was asked for.
    pub(super) fn not_converted(&self) -> u64 {
        match self {
            Self::AsStored => 0,
            Self::Json(json) => json.not_converted,
        }
    }
}

impl JsonValues {
    fn show<'a>(&'a mut self, stored: &'a [u8], headers: Headers<'_>) -> Shown<'a> {
        self.json.clear();
        // One huge value must not pin its memory for the rest of the read.
        self.json.shrink_to(1 << 20);
        match self.decoder.to_json(stored, headers, &mut self.json) {
            Ok(()) => Shown { value: Some(&self.json), error: String::new() },
            Err(error) => {
                self.not_converted += 1;
                Shown { value: Some(stored), error }
            }
        }
    }
}

//! What the bytes of a topic's values are.

/// The kind of a topic's values, as its owner declared it. It decides how a value is shown, never how it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum PayloadKind {
    /// Nothing is known; values are bytes.
    #[default]
    Bytes,
    /// Each value is one JSON document.
    Json,
    /// Each value is one Protobuf message.
    Protobuf {
        /// The message's full name, such as `tidegate.examples.flights.v1.Flight`.
        message: String,
    },
    /// Each value names the schema it was written with, which is in a schema registry: Protobuf, Avro or JSON.
    Registry,
}

impl PayloadKind {
    /// Its name in configuration and on the wire: `bytes`, `json`, `protobuf` or `registry`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Json => "json",
            Self::Protobuf { .. } => "protobuf",
            Self::Registry => "registry",
        }
    }
}

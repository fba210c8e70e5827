//! Placeholder.
/// Why a JSON document is not one of the message type.
#[derive(Debug, thiserror::Error)]
#[error("placeholder")]
pub struct ToProtobufError;
/// Why bytes cannot be printed as the message type.
#[derive(Debug, thiserror::Error)]
#[error("placeholder")]
pub struct ToJsonError;

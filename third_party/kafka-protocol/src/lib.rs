//! A subset of the `kafka-protocol` crate 0.18.0, see README.md for what was left out and the one change.
#![allow(clippy::all, dead_code, missing_docs, rustdoc::all)]

pub mod error;
pub mod messages;
pub mod protocol;

pub use error::ResponseError;

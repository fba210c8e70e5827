//! The server: use cases that know no protocol ([`engine`]), and their two faces, [`grpc`] and [`rest`], on one port
//! ([`serve`]).
//!
//! An endpoint is a thin caller of one function of the engine, so the faces cannot drift apart.

pub mod engine;
mod errors;
pub mod formats;
pub mod grpc;
pub mod rest;
pub mod serve;

pub use serve::{Server, ServerConfig, StartError};

//! The public contract of Tidegate: the gRPC package `tidegate.v1`, the types of the REST bodies and the one table of
//! error codes. Nothing but `server` and those who talk to a server depends on it.

pub mod encoded;
pub mod error;
pub mod rest;

pub use error::{ApiError, Code};

/// The descriptors of `tidegate.v1`, for reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tidegate.v1.bin"));

/// The gRPC package `tidegate.v1`, generated from `proto/tidegate/v1/tidegate.proto`, which documents it.
#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::unwrap_used,
    clippy::panic,
    reason = "generated code"
)]
pub mod v1 {
    include!(concat!(env!("OUT_DIR"), "/tidegate.v1.rs"));
}

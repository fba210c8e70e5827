//! The REST face against a real engine and an embedded broker, over real connections of HTTP/1.1 and HTTP/2.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::type_complexity,
    unused_qualifications,
    unreachable_pub,
    reason = "a test fails by panicking, and nothing outside uses its modules"
)]
#![allow(
    clippy::field_reassign_with_default,
    reason = "the limits can grow, so only their fields can be set from here"
)]

mod compression;
mod errors;
mod failures;
mod formats;
mod openapi;
mod publishing;
mod reading;
mod registry;
mod support;

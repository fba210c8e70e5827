//! The broker as its clients meet it: over a socket, request by request.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, unreachable_pub, dead_code)]

#[path = "../common/mod.rs"]
mod common;

mod admin;
mod fetch;
mod groups;
mod produce;
mod protocol;
mod restart;
mod retention;
mod stand_ins;
mod time_lookup;

//! The engine and its gRPC face over the embedded broker.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(unreachable_pub, reason = "the modules of one test program")]

mod clusters;
mod connection;
mod flights;
mod flow;
mod grpc;
mod kafka;
mod loss;
mod old_kafka;
mod proxy;
mod publishing;
mod ranges;
mod shutdown;
mod support;

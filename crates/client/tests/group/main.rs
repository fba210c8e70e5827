//! The group source against brokers: the embedded one, stand-ins that misbehave, and a real Apache Kafka.

#![allow(clippy::unwrap_used, clippy::panic)]

mod faults;
mod grounds;
mod markers;
mod members;
#[path = "../it/stage.rs"]
#[allow(dead_code, reason = "shared with the other tests")]
mod stage;
#[path = "../it/support.rs"]
#[allow(dead_code, reason = "shared with the other tests")]
mod support;

//! The client against brokers: a scripted one that misbehaves, the embedded one, and a real Apache Kafka.

#![allow(clippy::unwrap_used, clippy::panic)]

mod behaviour;
mod budget;
mod conversation;
mod facts;
mod failover;
mod fake;
mod faults;
mod fetching;
mod flavours;
mod hostile;
mod kafka;
mod old_formats;
mod patience;
mod pieces;
mod pressure;
mod random_faults;
mod reading;
mod registry;
mod replicas;
mod sasl;
mod secure;
mod stage;
mod support;
mod tls;
mod tokens;
mod truncation;

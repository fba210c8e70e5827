//! librdkafka through its batch interface, `rd_kafka_consume_batch_queue`: the fastest way to take records from it.

#![allow(unsafe_code, reason = "the crate rdkafka does not cover the batch interface; each call says why it is sound")]

use std::ptr;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use rdkafka::bindings::{
    rd_kafka_consume_batch_queue, rd_kafka_message_destroy, rd_kafka_message_t, rd_kafka_message_timestamp,
    rd_kafka_queue_destroy, rd_kafka_queue_get_consumer, rd_kafka_resp_err_t,
};
use rdkafka::consumer::{BaseConsumer, Consumer};

use super::rdkafka::{assignment, config};
use super::tally::{Outcome, Pauses, Tally};
use super::{PAUSE_FOR, Task};

/// How many records one call may bring.
const BATCH: usize = 1000;
/// How long one call waits until it has so many, in milliseconds: short, so that a slow link's last records count.
const WAIT_MS: i32 = 10;

/// Reads the task.
pub fn read(task: &Task) -> Result<Outcome> {
    let begun = Instant::now();
    let consumer: BaseConsumer = config(task).create()?;
    consumer.assign(&assignment(task)?)?;
    // SAFETY: the handle is alive while `consumer` is. The queue is a reference of its own, given back below.
    let queue = unsafe { rd_kafka_queue_get_consumer(consumer.client().native_ptr()) };
    ensure!(!queue.is_null(), "librdkafka has no queue for its consumer");

    let mut tally = Tally::new(&task.ends, task.hash, begun);
    let mut pauses = Pauses::new(task.pauses);
    let mut messages = [ptr::null_mut::<rd_kafka_message_t>(); BATCH];
    let mut failure = None;
    let mut asked = Instant::now();
    while failure.is_none() && !tally.complete() && !tally.expired(task.limit) {
        // SAFETY: `messages` has room for BATCH pointers; those that were filled are owned by us from here on.
        let got = unsafe { rd_kafka_consume_batch_queue(queue, WAIT_MS, messages.as_mut_ptr(), BATCH) };
        let Ok(got) = usize::try_from(got) else { bail!("rd_kafka_consume_batch_queue failed") };
        if got == 0 {
            continue;
        }
        pauses.waited(asked.elapsed());
        for &message in &messages[..got] {
            // SAFETY: librdkafka filled this pointer just now and keeps the message until it is destroyed, once, below.
            // A payload without bytes may be null.
            let message_ref = unsafe { &*message };
            if message_ref.err == rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
                let value = if message_ref.payload.is_null() {
                    &[]
                } else {
                    // SAFETY: as above: `len` bytes, which nobody changes while the message lives.
                    unsafe { std::slice::from_raw_parts(message_ref.payload.cast::<u8>(), message_ref.len) }
                };
                // SAFETY: as above; no timestamp type is asked for.
                let timestamp = unsafe { rd_kafka_message_timestamp(message, ptr::null_mut()) };
                tally.record(message_ref.partition, message_ref.offset, timestamp, value);
            } else if message_ref.err != rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__PARTITION_EOF {
                failure = Some(format!("{:?}", message_ref.err));
            }
            // SAFETY: the message is ours, and nothing refers to it any more.
            unsafe { rd_kafka_message_destroy(message) };
        }
        tally.now();
        if pauses.due() {
            std::thread::sleep(PAUSE_FOR);
            pauses.resume();
        }
        asked = Instant::now();
    }
    // SAFETY: our reference, given back once.
    unsafe { rd_kafka_queue_destroy(queue) };
    if let Some(failure) = failure {
        bail!("librdkafka: {failure}");
    }
    Ok(Outcome { longest_gap_ms: pauses.longest_gap_ms(), ..Tally::merge(vec![tally]) })
}

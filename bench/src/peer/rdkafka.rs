//! librdkafka through the crate `rdkafka`, as Rust programs use it: one record at a time, from a stream or by polling.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer, StreamConsumer};
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};

use super::tally::{Outcome, Pauses, Tally};
use super::{PAUSE_FOR, Task};

/// How long a consumer waits for a record before it looks at the clock.
const WAIT: Duration = Duration::from_millis(100);

/// The client's configuration: what an assigned consumer needs, TLS, and the task's settings on top.
pub fn config(task: &Task) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &task.bootstrap).set("group.id", "bench").set("enable.auto.commit", "false");
    if let Some(ca) = &task.ca {
        config.set("security.protocol", "ssl").set("ssl.ca.location", ca.display().to_string());
    }
    for (name, value) in task.settings.iter().filter(|(name, _)| name != "api") {
        config.set(name, value);
    }
    config
}

/// The task's partitions, from the start.
pub fn assignment(task: &Task) -> Result<TopicPartitionList> {
    let mut list = TopicPartitionList::new();
    for &(partition, _) in &task.ends {
        list.add_partition_offset(&task.topic, partition, Offset::Offset(0))?;
    }
    Ok(list)
}

/// Reads the task; the setting `api` is `stream` (default) or `base`.
pub fn read(task: &Task) -> Result<Outcome> {
    let api = task.settings.iter().find(|(name, _)| name == "api").map_or("stream", |(_, value)| value.as_str());
    match api {
        "base" => base(task),
        "stream" => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(stream(task))
        }
        other => bail!("api={other}: it is stream or base"),
    }
}

fn base(task: &Task) -> Result<Outcome> {
    let begun = Instant::now();
    let consumer: BaseConsumer = config(task).create()?;
    consumer.assign(&assignment(task)?)?;
    let mut tally = Tally::new(&task.ends, task.hash, begun);
    let mut pauses = Pauses::new(task.pauses);
    while !tally.complete() && !tally.expired(task.limit) {
        let asked = Instant::now();
        let Some(message) = consumer.poll(WAIT) else { continue };
        pauses.waited(asked.elapsed());
        count(&mut tally, &message?);
        if pauses.due() {
            std::thread::sleep(PAUSE_FOR);
            pauses.resume();
        }
    }
    Ok(Outcome { longest_gap_ms: pauses.longest_gap_ms(), ..Tally::merge(vec![tally]) })
}

async fn stream(task: &Task) -> Result<Outcome> {
    let begun = Instant::now();
    let consumer: StreamConsumer = config(task).create()?;
    consumer.assign(&assignment(task)?)?;
    let mut tally = Tally::new(&task.ends, task.hash, begun);
    let mut pauses = Pauses::new(task.pauses);
    while !tally.complete() && !tally.expired(task.limit) {
        let asked = Instant::now();
        let Ok(message) = tokio::time::timeout(WAIT, consumer.recv()).await else { continue };
        pauses.waited(asked.elapsed());
        count(&mut tally, &message?);
        if pauses.due() {
            tokio::time::sleep(PAUSE_FOR).await;
            pauses.resume();
        }
    }
    Ok(Outcome { longest_gap_ms: pauses.longest_gap_ms(), ..Tally::merge(vec![tally]) })
}

fn count(tally: &mut Tally, message: &impl Message) {
    let timestamp = message.timestamp().to_millis().unwrap_or(-1);
    tally.record(message.partition(), message.offset(), timestamp, message.payload().unwrap_or_default());
    tally.now();
}

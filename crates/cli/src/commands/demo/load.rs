//! Fills the two topics: the JSON documents first, then, from that topic, the Protobuf messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_client::{Cluster, DeleteTopicError, NewTopic, Producer, ReaderOptions, RecordToSend, Slice};
use tidegate_codec::{MessageType, UnknownMode};
use tidegate_model::{OffsetRange, TopicName, TopicPartition};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::data;
use super::measure::{self, Measured, ranges};
use super::plan::{self, Present, Step, Why, Wish};
use crate::exit::{Exit, Failure, chain};
use crate::input::timestamp;
use crate::output::progress::Progress;
use crate::output::talk;
use crate::units::{count, per_second, span};

/// Partitions that are converted at the same time.
const PARTITIONS_AT_ONCE: usize = 4;

/// Documents that are unpacked and parsed ahead of the producer, in groups.
const DOCUMENTS_A_GROUP: usize = 1024;
const GROUPS_AHEAD: usize = 4;

/// What was done.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) anything_new: bool,
    /// The JSON topic, when the conversion has read it anyway.
    pub(super) json: Option<Measured>,
}

/// Makes sure that both topics are there, whole.
pub(super) async fn load(
    cluster: &Cluster,
    producer: &Producer,
    message: &MessageType,
    wish: &Wish,
) -> Result<Loaded, Failure> {
    let (json, protobuf) = (data::json_topic()?, data::protobuf_topic()?);
    let json_step = step(cluster, &json, wish).await?;
    let mut protobuf_step = step(cluster, &protobuf, wish).await?;
    if json_step != Step::Keep && protobuf_step == Step::Keep {
        // Made from what is now made anew.
        protobuf_step = match json_step {
            Step::Load { partitions } | Step::Replace { partitions, .. } => {
                Step::Replace { partitions, why: Why::Asked }
            }
            Step::Keep => Step::Keep,
        };
    }
    let json_is_new = prepare(cluster, &json, json_step).await?;
    if json_is_new {
        publish(producer, &json).await?;
    }
    // A partition of the one is converted into the same partition of the other.
    let protobuf_step = with_partitions(protobuf_step, present(cluster, &json).await?);
    let protobuf_is_new = prepare(cluster, &protobuf, protobuf_step).await?;
    let measured =
        if protobuf_is_new { Some(convert(cluster, producer, message, &json, &protobuf).await?) } else { None };
    if !json_is_new && !protobuf_is_new {
        talk::say(format_args!(
            "the topics {json} and {protobuf} are there already, with all {} records",
            count(wish.records)
        ));
    }
    Ok(Loaded { anything_new: json_is_new || protobuf_is_new, json: measured })
}

async fn step(cluster: &Cluster, name: &TopicName, wish: &Wish) -> Result<Step, Failure> {
    plan::step(name.as_str(), present(cluster, name).await?, wish)
}

fn with_partitions(step: Step, source: Option<Present>) -> Step {
    match (step, source) {
        (Step::Load { .. }, Some(Present { partitions, .. })) => Step::Load { partitions },
        (Step::Replace { why, .. }, Some(Present { partitions, .. })) => Step::Replace { partitions, why },
        (step, _) => step,
    }
}

/// What there is of a topic. No record of it was ever deleted or compacted away, so offsets count records.
async fn present(cluster: &Cluster, name: &TopicName) -> Result<Option<Present>, Failure> {
    let topics = cluster.topics().await.map_err(|error| Failure::new(Exit::Unavailable, chain(&error)))?;
    if !topics.iter().any(|topic| topic.name == *name) {
        return Ok(None);
    }
    let ranges = ranges(cluster, name).await?;
    let records = ranges.iter().map(|(_, range)| range.len()).sum();
    Ok(Some(Present { partitions: i32::try_from(ranges.len()).unwrap_or(i32::MAX), records }))
}

/// Creates the topic where the step says so. Whether it must now be filled.
async fn prepare(cluster: &Cluster, name: &TopicName, step: Step) -> Result<bool, Failure> {
    let partitions = match step {
        Step::Keep => return Ok(false),
        Step::Load { partitions } => partitions,
        Step::Replace { partitions, why } => {
            match why {
                Why::Unfinished { records } => talk::say(format_args!(
                    "topic {name} holds {} of {} records: an earlier load did not end, so it is loaded again",
                    count(records),
                    count(data::RECORDS)
                )),
                Why::Asked => talk::say(format_args!("topic {name} is loaded again")),
            }
            match cluster.delete_topic(name).await {
                Ok(()) | Err(DeleteTopicError::UnknownTopic { .. }) => {}
                Err(error) => return Err(Failure::failed("cannot delete the old topic", &error)),
            }
            partitions
        }
    };
    let topic = NewTopic {
        name: name.clone(),
        partitions,
        replication_factor: 1,
        // By their timestamps the records are years old: any other retention would delete them.
        config: [("retention.ms".to_owned(), "-1".to_owned())].into(),
    };
    cluster.create_topic(&topic).await.map_err(|error| Failure::failed("cannot create the topic", &error))?;
    Ok(true)
}

/// A document with what its record carries beside it.
struct Document {
    timestamp_ms: i64,
    key: String,
    value: Vec<u8>,
}

/// Publishes the embedded documents.
async fn publish(producer: &Producer, topic: &TopicName) -> Result<(), Failure> {
    let (out, mut groups) = mpsc::channel::<Result<Vec<Document>, Failure>>(GROUPS_AHEAD);
    tokio::task::spawn_blocking(move || {
        let mut group = Vec::with_capacity(DOCUMENTS_A_GROUP);
        let mut unpack = || {
            let mut lines = data::lines()?;
            let failure = |error: String| Failure::failed_plain(format_args!("the embedded flights: {error}"));
            while let Some((number, line)) = lines.next().map_err(|error| failure(chain(&error)))? {
                let document = document(line).map_err(|error| failure(format!("line {number}: {error}")))?;
                group.push(document);
                if group.len() == DOCUMENTS_A_GROUP {
                    let full = std::mem::replace(&mut group, Vec::with_capacity(DOCUMENTS_A_GROUP));
                    if out.blocking_send(Ok(full)).is_err() {
                        return Ok(());
                    }
                }
            }
            let _ = out.blocking_send(Ok(std::mem::take(&mut group)));
            Ok(())
        };
        if let Err(failure) = unpack() {
            let _ = out.blocking_send(Err(failure));
        }
    });

    let mut progress = Progress::new(format!("publishing {topic}"), Some(data::RECORDS), false);
    let mut session = producer.session(topic);
    let mut records = 0;
    while let Some(group) = groups.recv().await {
        let group = group?;
        for Document { timestamp_ms, key, value } in &group {
            let record = RecordToSend {
                key: Some(key.as_bytes()),
                value: Some(value),
                timestamp_ms: Some(*timestamp_ms),
                ..RecordToSend::default()
            };
            session.send(record).await.map_err(|error| Failure::failed("cannot publish", &error))?;
        }
        records += group.len() as u64;
        progress.set(records);
    }
    let summary = session.finish().await.map_err(|error| Failure::failed("cannot publish", &error))?;
    expect_all(topic, summary.records)?;
    tell(&format!("published to {topic}"), progress);
    Ok(())
}

/// What was done, and how fast.
fn tell(what: &str, progress: Progress) {
    let elapsed = progress.elapsed();
    drop(progress);
    let rate = per_second(data::RECORDS, elapsed);
    talk::say(format_args!("{} records {what} in {}, {}/s", count(data::RECORDS), span(elapsed), count(rate)));
}

fn document(line: &[u8]) -> Result<Document, String> {
    let flight = data::flight(line).map_err(|error| error.to_string())?;
    let timestamp_ms = timestamp::from_json(flight.event_time.get(), None).map_err(|error| error.to_string())?;
    Ok(Document { timestamp_ms, key: flight.key(), value: line.to_vec() })
}

fn expect_all(topic: &TopicName, records: u64) -> Result<(), Failure> {
    if records == data::RECORDS {
        return Ok(());
    }
    Err(Failure::failed_plain(format_args!("{records} records reached {topic}, not {}", data::RECORDS)))
}

/// Converts one topic into the other: the same partition, key and timestamp, the value as Protobuf.
async fn convert(
    cluster: &Cluster,
    producer: &Producer,
    message: &MessageType,
    from: &TopicName,
    into: &TopicName,
) -> Result<Measured, Failure> {
    let mut progress = Progress::new(format!("converting into {into}"), Some(data::RECORDS), false);
    let done = Arc::new(AtomicU64::new(0));
    let mut waiting = ranges(cluster, from).await?.into_iter();
    let mut running = JoinSet::new();
    let mut measured = Measured::default();
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    loop {
        while running.len() < PARTITIONS_AT_ONCE
            && let Some((source, range)) = waiting.next()
        {
            let part = Conversion {
                cluster: cluster.clone(),
                producer: producer.clone(),
                message: message.clone(),
                into: into.clone(),
                done: Arc::clone(&done),
            };
            running.spawn(part.run(source, range));
        }
        tokio::select! {
            ended = running.join_next() => match ended {
                None => break,
                Some(ended) => {
                    let part = ended.map_err(|error| Failure::failed("a conversion", &error))??;
                    measured.merge(&part);
                }
            },
            _ = ticks.tick() => progress.set(done.load(Ordering::Relaxed)),
        }
    }
    expect_all(into, done.load(Ordering::Relaxed))?;
    tell(&format!("converted into {into}"), progress);
    Ok(measured)
}

/// The conversion of one partition.
struct Conversion {
    cluster: Cluster,
    producer: Producer,
    message: MessageType,
    into: TopicName,
    done: Arc<AtomicU64>,
}

impl Conversion {
    /// Answers with what it read.
    async fn run(self, source: TopicPartition, range: OffsetRange) -> Result<Measured, Failure> {
        let mut measured = Measured { partitions: 1, ..Measured::default() };
        let mut session = self.producer.session(&self.into);
        let mut reader = self.cluster.read(Slice { topic_partition: source.clone(), range }, ReaderOptions::default());
        let mut value = Vec::new();
        while let Some(chunk) = reader.next().await {
            let chunk = chunk.map_err(|error| measure::read_failure(&error))?;
            let damaged = |error| measure::record_failure(&source.topic, &error);
            measured.add(&chunk).map_err(damaged)?;
            let mut records = 0;
            for record in chunk.batches.iter().flat_map(|batch| batch.records()) {
                let record = record.map_err(damaged)?;
                value.clear();
                let json = record.value.unwrap_or_default();
                self.message.json_to_protobuf(json, UnknownMode::Strict, &mut value).map_err(|error| {
                    Failure::failed_plain(format_args!("{source}, offset {}: {error}", record.offset))
                })?;
                let converted = RecordToSend {
                    partition: Some(source.partition),
                    key: record.key,
                    value: record.value.map(|_| value.as_slice()),
                    timestamp_ms: Some(record.timestamp_ms),
                    ..RecordToSend::default()
                };
                session.send(converted).await.map_err(|error| Failure::failed("cannot publish", &error))?;
                records += 1;
            }
            self.done.fetch_add(records, Ordering::Relaxed);
        }
        session.finish().await.map_err(|error| Failure::failed("cannot publish", &error))?;
        Ok(measured)
    }
}

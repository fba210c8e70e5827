//! Produce: checking record batches and appending them.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::produce_response::{
    BatchIndexAndErrorMessage, PartitionProduceResponse, TopicProduceResponse,
};
use kafka_protocol::messages::{ProduceRequest, ProduceResponse};
use kafka_protocol::protocol::StrBytes;
use tidegate_model::{Compression, NO_TIMESTAMP, TimestampType};
use tidegate_wire::{BatchError, DecompressError, ProduceBatchError, ProducedBatch, check_produced};

use super::{Facts, Refusal, Reply, find_topic, refusals, reply};
use crate::clock;
use crate::shared::Shared;
use crate::storage::Topic;
use crate::storage::log::{AppendError, Appended, Log, NotOpen};
use crate::storage::producers::SequenceError;
use crate::storage::topic_config::TopicConfig;

/// The first version in which zstd is allowed (KIP-110).
const FIRST_WITH_ZSTD: i16 = 7;
/// The first version whose answer carries a message.
const FIRST_WITH_MESSAGE: i16 = 8;
/// Records of one batch that are named in an answer.
const MOST_RECORD_ERRORS: usize = 100;
/// The first version that names topics by id (KIP-516).
const FIRST_WITH_TOPIC_IDS: i16 = 13;

/// One partition of a request.
struct Part {
    /// Its place in the request: which topic, which partition.
    at: (usize, usize),
    target: Result<(Arc<Topic>, Arc<Log>), Refusal>,
    records: Option<Bytes>,
}

/// Why a partition's records were not appended, and which of them are to blame, with words for each.
struct Refused {
    refusal: Refusal,
    records: Vec<(i32, String)>,
}

impl<E: Into<Refusal>> From<E> for Refused {
    fn from(error: E) -> Self {
        Self { refusal: error.into(), records: Vec::new() }
    }
}

pub(super) async fn produce(shared: &Arc<Shared>, request: ProduceRequest, facts: Facts) -> Reply {
    let acks = request.acks;
    let refused = whole_refusal(&request);
    let mut responses = Vec::with_capacity(request.topic_data.len());
    let mut parts = Vec::new();
    let mut seen = HashSet::new();
    for (topic_at, topic) in request.topic_data.into_iter().enumerate() {
        let found = find_topic(shared, &topic.name, topic.topic_id, facts.version >= FIRST_WITH_TOPIC_IDS);
        let mut partitions = Vec::with_capacity(topic.partition_data.len());
        for (partition_at, data) in topic.partition_data.into_iter().enumerate() {
            partitions.push(PartitionProduceResponse::default().with_index(data.index));
            let target = match (&refused, &found) {
                (Some(refusal), _) => Err(refusal.clone()),
                (None, Err(error)) => Err((*error).into()),
                (None, Ok(topic)) => target(topic, data.index, &mut seen),
            };
            parts.push(Part { at: (topic_at, partition_at), target, records: data.records });
        }
        let response = TopicProduceResponse::default().with_name(topic.name).with_topic_id(topic.topic_id);
        responses.push(response.with_partition_responses(partitions));
    }

    let limit = shared.config.limits.io_threads.max(1);
    let appends = parts.into_iter().map(|part| async move { (part.at, append(shared, part, facts).await) });
    let mut appends = stream::iter(appends).buffer_unordered(limit);
    let mut failures = 0_usize;
    while let Some(((topic_at, partition_at), appended)) = appends.next().await {
        failures += usize::from(appended.is_err());
        let response = responses.get_mut(topic_at).and_then(|t| t.partition_responses.get_mut(partition_at));
        if let Some(response) = response {
            fill(response, appended, facts);
        }
    }
    match acks {
        // The client waits for no answer; a closed connection is how it learns of a failure.
        0 if failures > 0 => Reply::Close(format!("{failures} partitions of a request without acknowledgement failed")),
        0 => Reply::Nothing,
        _ => reply(facts, &ProduceResponse::default().with_responses(responses)),
    }
}

/// What is wrong with the request as a whole.
fn whole_refusal(request: &ProduceRequest) -> Option<Refusal> {
    if !matches!(request.acks, -1..=1) {
        let text = format!("acks={} is not -1, 0 or 1", request.acks);
        return Some(Refusal::new(ResponseError::InvalidRequiredAcks, text));
    }
    request.transactional_id.as_ref().map(|_| refusals::transactions("Produce"))
}

fn target(
    topic: &Arc<Topic>,
    partition: i32,
    seen: &mut HashSet<(uuid::Uuid, i32)>,
) -> Result<(Arc<Topic>, Arc<Log>), Refusal> {
    let log = topic.partition(partition).ok_or(ResponseError::UnknownTopicOrPartition)?;
    // Partitions are appended to side by side; two batches for one of them would have no order.
    if !seen.insert((topic.id, partition)) {
        return Err(Refusal::new(ResponseError::InvalidRequest, "the request names the partition twice"));
    }
    Ok((Arc::clone(topic), Arc::clone(log)))
}

async fn append(shared: &Arc<Shared>, part: Part, facts: Facts) -> Result<Appended, Refused> {
    let (topic, log) = part.target?;
    let records = part.records.unwrap_or_default();
    let config = topic.config.get();
    let most = config.max_message_bytes;
    if records.len() > most {
        let text = format!(
            "the record batch takes {} bytes; max.message.bytes of topic {} is {most}",
            records.len(),
            topic.name
        );
        return Err(Refusal::new(ResponseError::MessageTooLarge, text).into());
    }
    shared.writing(move |shared| check_and_append(shared, &log, &config, records, facts)).await?
}

fn check_and_append(
    shared: &Shared,
    log: &Log,
    config: &TopicConfig,
    records: Bytes,
    facts: Facts,
) -> Result<Appended, Refused> {
    let batch = check_produced(records, &shared.batch_limits()).map_err(|error| refuse_batch(&error))?;
    let header = batch.raw.header();
    if header.attributes.is_transactional() {
        return Err(refusals::transactions("Produce").into());
    }
    if facts.version < FIRST_WITH_ZSTD && header.attributes.compression() == Ok(Compression::Zstd) {
        let text = format!("zstd is allowed from version {FIRST_WITH_ZSTD} of Produce on");
        return Err(Refusal::new(ResponseError::UnsupportedCompressionType, text).into());
    }
    let now_ms = clock::now_ms();
    check_timestamps(&batch, config, now_ms)?;
    log.append(&batch, config, now_ms).map_err(|error| {
        if let AppendError::Io(error) = &error {
            tracing::error!(topic_partition = %log.topic_partition(), %error, "cannot append");
        }
        refuse_append(&error).into()
    })
}

/// Under CreateTime a record's time must be near the broker's (KIP-937); one without a time passes. Each record that is not
/// is named, as far as an answer has room (KIP-467).
fn check_timestamps(batch: &ProducedBatch, config: &TopicConfig, now_ms: i64) -> Result<(), Refused> {
    let least = now_ms.saturating_sub(config.timestamp_before_max_ms);
    let most = now_ms.saturating_add(config.timestamp_after_max_ms);
    let fits = |time: i64| time == NO_TIMESTAMP || (least..=most).contains(&time);
    let extremes = [batch.timestamps.max.map(|max| max.timestamp_ms), batch.timestamps.min_timestamp_ms];
    // When the smallest is -1, a smaller time than allowed can hide behind it.
    let unsure = batch.timestamps.min_timestamp_ms == Some(NO_TIMESTAMP) && least > 0;
    if config.timestamp_type == TimestampType::LogAppendTime || (!unsure && extremes.into_iter().flatten().all(fits)) {
        return Ok(());
    }
    let mut records = Vec::new();
    let (mut first, mut count) = (None, 0_usize);
    for record in batch.records.records() {
        // All of them were read before.
        let Ok(record) = record else { break };
        if fits(record.timestamp_ms) {
            continue;
        }
        let words = format!("the timestamp {} is not between {least} and {most}", record.timestamp_ms);
        count += 1;
        if records.len() < MOST_RECORD_ERRORS {
            records.push((i32::try_from(record.offset).unwrap_or(i32::MAX), words.clone()));
        }
        first.get_or_insert(words);
    }
    let Some(first) = first else { return Ok(()) };
    let text = format!(
        "{count} of {} records have a timestamp too far from the broker's clock: {first}; correct the producer's clock or \
         unit (milliseconds), or change message.timestamp.after.max.ms or message.timestamp.before.max.ms of the topic",
        batch.timestamps.records
    );
    Err(Refused { refusal: Refusal::new(ResponseError::InvalidTimestamp, text), records })
}

fn refuse_batch(error: &ProduceBatchError) -> Refusal {
    let code = match error {
        ProduceBatchError::Batch(BatchError::UnsupportedMagic { .. }) => ResponseError::UnsupportedForMessageFormat,
        ProduceBatchError::Batch(BatchError::UnknownCodec { .. }) => ResponseError::UnsupportedCompressionType,
        // More than this broker opens, and more than a client would be ready to.
        ProduceBatchError::Batch(BatchError::Decompress { source: DecompressError::TooLarge { .. }, .. }) => {
            ResponseError::MessageTooLarge
        }
        ProduceBatchError::Batch(_) => ResponseError::CorruptMessage,
        ProduceBatchError::LogAppendTime => ResponseError::InvalidTimestamp,
        _ => ResponseError::InvalidRecord,
    };
    Refusal::new(code, error)
}

fn refuse_append(error: &AppendError) -> Refusal {
    let code = match error {
        AppendError::Sequence(SequenceError::OutOfOrder { .. }) => ResponseError::OutOfOrderSequenceNumber,
        AppendError::Sequence(SequenceError::Fenced { .. }) => ResponseError::InvalidProducerEpoch,
        AppendError::NotOpen(NotOpen::Deleted) => ResponseError::UnknownTopicOrPartition,
        // A client asks for the leader again, and finds the broker that comes back.
        AppendError::NotOpen(NotOpen::Closed) => ResponseError::NotLeaderOrFollower,
        AppendError::NotOpen(NotOpen::Failed { .. }) | AppendError::Offsets | AppendError::Io(_) => {
            ResponseError::KafkaStorageError
        }
    };
    Refusal::new(code, error)
}

fn fill(response: &mut PartitionProduceResponse, appended: Result<Appended, Refused>, facts: Facts) {
    match appended {
        Ok(appended) => {
            response.base_offset = appended.base_offset;
            response.log_append_time_ms = appended.log_append_time_ms.unwrap_or(-1);
            response.log_start_offset = appended.log_start_offset;
        }
        Err(Refused { refusal, records }) => {
            response.error_code = refusal.error.code();
            response.base_offset = -1;
            response.log_append_time_ms = -1;
            response.log_start_offset = -1;
            if facts.version >= FIRST_WITH_MESSAGE {
                response.error_message = refusal.text();
                let records = records.into_iter().map(|(index, words)| {
                    BatchIndexAndErrorMessage::default()
                        .with_batch_index(index)
                        .with_batch_index_error_message(Some(StrBytes::from_string(words)))
                });
                response.record_errors = records.collect();
            }
        }
    }
}

//! Fetch: what to ask for next, the request built, the response checked. Pure.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::{BrokerId, FetchRequest, FetchResponse};
use kafka_protocol::protocol::StrBytes;
use tidegate_model::{Isolation, TopicPartition};

use super::ReaderOptions;
use super::aborted::Aborted;
use crate::error::{KafkaCode, code};
use crate::offsets::isolation_level;

/// What one fetch asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    /// From which offset.
    pub(super) offset: i64,
    /// How many bytes of record batches; a single larger batch comes nevertheless (KIP-74).
    pub(super) bytes: usize,
    pub(super) max_wait: Duration,
    pub(super) isolation: Isolation,
    /// The epoch of the leader asked, or -1.
    pub(super) leader_epoch: i32,
}

/// How many bytes the next fetch asks for.
///
/// `share` is the reader's part of the budget. `grown` is the size that a batch turned out to have which an old broker cut
/// off, or 0; it comes before the limits of reading ahead, but `most`, the size of a response, it may not exceed.
pub(super) fn bytes_to_ask(options: &ReaderOptions, share: usize, grown: usize, most: usize) -> usize {
    let ahead = options.max_partition_fetch_bytes.min(options.fetch_max_bytes).min(share);
    ahead.max(grown).clamp(1, most.max(1))
}

/// The request.
pub(super) fn build(version: i16, topic_partition: &TopicPartition, ask: &Ask) -> FetchRequest {
    let limit = i32::try_from(ask.bytes).unwrap_or(i32::MAX);
    let mut partition = FetchPartition::default()
        .with_partition(topic_partition.partition)
        .with_fetch_offset(ask.offset)
        .with_partition_max_bytes(limit);
    if version >= 9 {
        // KIP-320: lets a broker that lost the lead, or does not know of it yet, say so.
        partition = partition.with_current_leader_epoch(ask.leader_epoch);
    }
    let name = StrBytes::from_string(topic_partition.topic.as_str().to_owned());
    let topic =
        FetchTopic::default().with_topic(kafka_protocol::messages::TopicName(name)).with_partitions(vec![partition]);
    FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(i32::try_from(ask.max_wait.as_millis()).unwrap_or(i32::MAX))
        .with_min_bytes(1)
        .with_max_bytes(limit)
        .with_isolation_level(isolation_level(ask.isolation))
        .with_topics(vec![topic])
}

/// What a fetch brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fetched {
    pub(super) high_watermark: i64,
    pub(super) last_stable_offset: i64,
    /// `None` where the broker does not tell (Fetch version 4).
    pub(super) log_start_offset: Option<i64>,
    pub(super) aborted: Vec<Aborted>,
    pub(super) records: Bytes,
}

/// A checked response: a value or the broker's refusal, and beside it how long the broker wants to be left alone (KIP-219:
/// it has answered already and counts on the client to wait).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) throttle: Duration,
    pub(super) fetched: Result<Fetched, KafkaCode>,
}

/// The answer for the one partition that was asked for; `Err` says what is wrong with the response.
pub(super) fn check(response: FetchResponse, topic_partition: &TopicPartition) -> Result<Answer, String> {
    let throttle = Duration::from_millis(u64::try_from(response.throttle_time_ms).unwrap_or(0));
    if response.error_code != code::NONE {
        return Ok(Answer { throttle, fetched: Err(KafkaCode(response.error_code)) });
    }
    // Beyond a quota Kafka answers a fetch without a session with no topic at all (KIP-219).
    if response.responses.is_empty() && !throttle.is_zero() {
        let nothing = Fetched {
            high_watermark: -1,
            last_stable_offset: -1,
            log_start_offset: None,
            aborted: Vec::new(),
            records: Bytes::new(),
        };
        return Ok(Answer { throttle, fetched: Ok(nothing) });
    }
    let topics = response.responses.into_iter().filter(|t| t.topic.as_str() == topic_partition.topic.as_str());
    let mut partitions = topics.flat_map(|topic| topic.partitions);
    let partition = partitions.find(|partition| partition.partition_index == topic_partition.partition);
    let Some(partition) = partition else { return Err(format!("it says nothing of partition {topic_partition}")) };
    if partition.error_code != code::NONE {
        return Ok(Answer { throttle, fetched: Err(KafkaCode(partition.error_code)) });
    }
    let aborted = partition.aborted_transactions.unwrap_or_default();
    let fetched = Fetched {
        high_watermark: partition.high_watermark,
        last_stable_offset: partition.last_stable_offset,
        log_start_offset: Some(partition.log_start_offset).filter(|offset| *offset >= 0),
        aborted: aborted
            .into_iter()
            .map(|aborted| Aborted { producer_id: aborted.producer_id.0, first_offset: aborted.first_offset })
            .collect(),
        records: partition.records.unwrap_or_default(),
    };
    Ok(Answer { throttle, fetched: Ok(fetched) })
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
    use kafka_protocol::protocol::{Decodable as _, Encodable as _};
    use tidegate_model::TopicName;

    use super::*;
    use crate::budget::ByteBudget;

    fn here() -> TopicPartition {
        TopicPartition::new(TopicName::new("orders").unwrap(), 3)
    }

    fn options(partition: usize, response: usize) -> ReaderOptions {
        ReaderOptions {
            max_partition_fetch_bytes: partition,
            fetch_max_bytes: response,
            budget: ByteBudget::new(1),
            ..ReaderOptions::default()
        }
    }

    #[test]
    fn a_fetch_asks_for_the_least_of_its_limits_but_for_a_batch_known_to_be_larger() {
        assert_eq!(bytes_to_ask(&options(1000, 500), 800, 0, 10_000), 500);
        assert_eq!(bytes_to_ask(&options(1000, 5000), 800, 0, 10_000), 800);
        assert_eq!(bytes_to_ask(&options(1000, 5000), 800, 4000, 10_000), 4000);
        assert_eq!(bytes_to_ask(&options(1000, 5000), 800, 40_000, 10_000), 10_000);
        assert_eq!(bytes_to_ask(&options(0, 0), 0, 0, 0), 1);
    }

    #[test]
    fn the_request_says_the_same_in_every_version_that_is_spoken() {
        let ask = Ask {
            offset: 42,
            bytes: 1024,
            max_wait: Duration::from_millis(250),
            isolation: Isolation::ReadCommitted,
            leader_epoch: 7,
        };
        for version in 4..=12 {
            let mut bytes = bytes::BytesMut::new();
            build(version, &here(), &ask).encode(&mut bytes, version).unwrap();
            let read = FetchRequest::decode(&mut bytes.freeze(), version).unwrap();
            let partition = &read.topics[0].partitions[0];
            assert_eq!((read.max_wait_ms, read.isolation_level, read.session_epoch), (250, 1, -1));
            assert_eq!((partition.partition, partition.fetch_offset, partition.partition_max_bytes), (3, 42, 1024));
            assert_eq!(partition.current_leader_epoch, if version >= 9 { 7 } else { -1 });
        }
    }

    fn response(data: PartitionData) -> FetchResponse {
        let name = kafka_protocol::messages::TopicName(StrBytes::from_static_str("orders"));
        let topic = FetchableTopicResponse::default().with_topic(name).with_partitions(vec![data]);
        FetchResponse::default().with_responses(vec![topic]).with_throttle_time_ms(30)
    }

    #[test]
    fn throttling_stands_beside_the_value_and_beside_the_refusal() {
        let data = PartitionData::default().with_partition_index(3).with_high_watermark(9).with_records(None);
        let answer = check(response(data.clone()), &here()).unwrap();
        assert_eq!(answer.throttle, Duration::from_millis(30));
        let fetched = answer.fetched.unwrap();
        assert_eq!((fetched.high_watermark, fetched.records.len(), fetched.log_start_offset), (9, 0, None));
        let refused = check(response(data.with_error_code(6)), &here()).unwrap();
        assert_eq!((refused.throttle, refused.fetched), (Duration::from_millis(30), Err(KafkaCode(6))));
    }

    #[test]
    fn an_error_of_the_whole_response_is_a_refusal_and_another_partition_no_answer() {
        let refused = check(FetchResponse::default().with_error_code(70), &here()).unwrap();
        assert_eq!(refused.fetched, Err(KafkaCode(70)));
        assert!(check(response(PartitionData::default().with_partition_index(4)), &here()).is_err());
        assert!(check(FetchResponse::default(), &here()).is_err());
    }

    #[test]
    fn an_answer_beyond_a_quota_names_no_topic_and_is_an_empty_one() {
        let answer = check(FetchResponse::default().with_throttle_time_ms(30), &here()).unwrap();
        assert_eq!(answer.throttle, Duration::from_millis(30));
        assert!(answer.fetched.unwrap().records.is_empty());
    }
}

//! Fetch: what to ask for next, the request built, the response checked. Pure.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::{BrokerId, FetchRequest, FetchResponse};
use kafka_protocol::protocol::StrBytes;
use tidegate_model::{Isolation, TopicPartition};

use super::ReaderOptions;
use super::aborted::Aborted;
use crate::error::{KafkaCode, code};
use crate::offsets::isolation_level;

/// What a fetch asks for of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) topic_partition: TopicPartition,
    /// From which offset.
    pub(super) offset: i64,
    /// How many bytes of record batches; a single larger batch comes nevertheless (KIP-74).
    pub(super) bytes: usize,
    /// The epoch of the leader asked, or -1.
    pub(super) leader_epoch: i32,
}

/// How a fetch is asked, whatever for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Manner {
    pub(super) isolation: Isolation,
    /// How long the broker may wait for `min_bytes`. Zero: it answers at once.
    pub(super) max_wait: Duration,
    pub(super) min_bytes: usize,
    /// The most bytes of record batches that the answer should hold, of all partitions together.
    pub(super) max_bytes: usize,
    /// Where the client is (KIP-392), or nothing.
    pub(super) rack: Arc<str>,
}

/// How many bytes the next fetch asks for.
///
/// `share` is the reader's part of the budget. `grown` is the size that a batch turned out to have which an old broker cut
/// off, or 0; it comes before the limits of reading ahead, but `most`, the size of a response, it may not exceed.
pub(super) fn bytes_to_ask(options: &ReaderOptions, share: usize, grown: usize, most: usize) -> usize {
    let ahead = options.most_of_a_fetch().min(share);
    ahead.max(grown).clamp(1, most.max(1))
}

/// The request. The partitions of one topic should stand together.
pub(super) fn build<'a>(version: i16, manner: &Manner, asks: impl IntoIterator<Item = &'a Ask>) -> FetchRequest {
    let limit = |bytes: usize| i32::try_from(bytes).unwrap_or(i32::MAX);
    let mut topics: Vec<FetchTopic> = Vec::new();
    for ask in asks {
        let TopicPartition { topic, partition } = &ask.topic_partition;
        let mut wanted = FetchPartition::default()
            .with_partition(*partition)
            .with_fetch_offset(ask.offset)
            .with_partition_max_bytes(limit(ask.bytes));
        if version >= 9 {
            // KIP-320: lets a broker that lost the lead, or does not know of it yet, say so.
            wanted = wanted.with_current_leader_epoch(ask.leader_epoch);
        }
        match topics.last_mut().filter(|last| last.topic.as_str() == topic.as_str()) {
            Some(last) => last.partitions.push(wanted),
            None => {
                let name = kafka_protocol::messages::TopicName(StrBytes::from_string(topic.as_str().to_owned()));
                topics.push(FetchTopic::default().with_topic(name).with_partitions(vec![wanted]));
            }
        }
    }
    let mut request = FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(i32::try_from(manner.max_wait.as_millis()).unwrap_or(i32::MAX))
        .with_min_bytes(limit(manner.min_bytes))
        .with_max_bytes(limit(manner.max_bytes))
        .with_isolation_level(isolation_level(manner.isolation))
        .with_topics(topics);
    if version >= 11 {
        request = request.with_rack_id(StrBytes::from_string(manner.rack.to_string()));
    }
    request
}

/// What a fetch brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fetched {
    pub(super) high_watermark: i64,
    pub(super) last_stable_offset: i64,
    /// `None` where the broker does not tell (Fetch version 4).
    pub(super) log_start_offset: Option<i64>,
    /// The broker that this client should rather fetch from (KIP-392).
    pub(super) preferred_read_replica: Option<i32>,
    pub(super) aborted: Vec<Aborted>,
    pub(super) records: Bytes,
}

impl Fetched {
    /// An answer that tells nothing.
    fn nothing() -> Self {
        Self {
            high_watermark: -1,
            last_stable_offset: -1,
            log_start_offset: None,
            preferred_read_replica: None,
            aborted: Vec::new(),
            records: Bytes::new(),
        }
    }
}

/// What the broker says to one partition: a value or its refusal.
pub(super) type Answer = Result<Fetched, KafkaCode>;

/// What one partition is told: the answer, and how long the broker wants to be left alone.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) answer: Answer,
    pub(super) throttle: Duration,
}

/// A checked response: an answer for each partition, in the order of asking, and beside them how long the broker wants to be
/// left alone (KIP-219: it has answered already and counts on the client to wait).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answers {
    pub(super) throttle: Duration,
    pub(super) answers: Vec<Answer>,
}

/// The answers for the partitions that were asked for; `Err` says what is wrong with the response.
pub(super) fn check(response: FetchResponse, asked: &[&TopicPartition]) -> Result<Answers, String> {
    let throttle = Duration::from_millis(u64::try_from(response.throttle_time_ms).unwrap_or(0));
    let all = |answer: Answer| Answers { throttle, answers: vec![answer; asked.len()] };
    if response.error_code != code::NONE {
        return Ok(all(Err(KafkaCode(response.error_code))));
    }
    // Beyond a quota Kafka answers a fetch without a session with no topic at all (KIP-219).
    if response.responses.is_empty() && !throttle.is_zero() {
        return Ok(all(Ok(Fetched::nothing())));
    }
    let mut told: HashMap<(String, i32), Answer> = HashMap::new();
    for topic in response.responses {
        for partition in topic.partitions {
            let key = (topic.topic.to_string(), partition.partition_index);
            told.entry(key).or_insert_with(|| fetched(partition));
        }
    }
    let answers = asked.iter().map(|asked| {
        let answer = told.remove(&(asked.topic.as_str().to_owned(), asked.partition));
        answer.ok_or_else(|| format!("it says nothing of partition {asked}"))
    });
    Ok(Answers { throttle, answers: answers.collect::<Result<_, _>>()? })
}

fn fetched(partition: PartitionData) -> Answer {
    if partition.error_code != code::NONE {
        return Err(KafkaCode(partition.error_code));
    }
    let aborted = partition.aborted_transactions.unwrap_or_default();
    Ok(Fetched {
        high_watermark: partition.high_watermark,
        last_stable_offset: partition.last_stable_offset,
        log_start_offset: Some(partition.log_start_offset).filter(|offset| *offset >= 0),
        preferred_read_replica: Some(partition.preferred_read_replica.0).filter(|id| *id >= 0),
        aborted: aborted
            .into_iter()
            .map(|aborted| Aborted { producer_id: aborted.producer_id.0, first_offset: aborted.first_offset })
            .collect(),
        records: partition.records.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::fetch_response::FetchableTopicResponse;
    use kafka_protocol::protocol::{Decodable as _, Encodable as _};
    use tidegate_model::TopicName;

    use super::*;
    use crate::budget::ByteBudget;

    fn here() -> TopicPartition {
        TopicPartition::new(TopicName::new("orders").unwrap(), 3)
    }

    fn options(partition: usize, response: usize) -> ReaderOptions {
        ReaderOptions {
            max_partition_fetch_bytes: Some(partition),
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
        let ask = Ask { topic_partition: here(), offset: 42, bytes: 1024, leader_epoch: 7 };
        let manner = Manner {
            isolation: Isolation::ReadCommitted,
            max_wait: Duration::from_millis(250),
            min_bytes: 1,
            max_bytes: 4096,
            rack: "r1".into(),
        };
        for version in 4..=12 {
            let mut bytes = bytes::BytesMut::new();
            build(version, &manner, [&ask]).encode(&mut bytes, version).unwrap();
            let read = FetchRequest::decode(&mut bytes.freeze(), version).unwrap();
            let partition = &read.topics[0].partitions[0];
            assert_eq!((read.max_wait_ms, read.isolation_level, read.session_epoch), (250, 1, -1));
            assert_eq!((read.max_bytes, read.rack_id.as_str()), (4096, if version >= 11 { "r1" } else { "" }));
            assert_eq!((partition.partition, partition.fetch_offset, partition.partition_max_bytes), (3, 42, 1024));
            assert_eq!(partition.current_leader_epoch, if version >= 9 { 7 } else { -1 });
        }
    }

    #[test]
    fn partitions_of_one_topic_go_out_together_and_each_gets_its_answer() {
        let there = TopicPartition::new(TopicName::new("other").unwrap(), 0);
        let ask = |topic_partition: TopicPartition| Ask { topic_partition, offset: 1, bytes: 1, leader_epoch: -1 };
        let asks = [ask(TopicPartition { partition: 1, ..here() }), ask(here()), ask(there.clone())];
        let manner = Manner {
            isolation: Isolation::ReadCommitted,
            max_wait: Duration::ZERO,
            min_bytes: 1,
            max_bytes: 1,
            rack: "".into(),
        };
        let request = build(12, &manner, &asks);
        let partitions: Vec<_> = request.topics.iter().map(|topic| topic.partitions.len()).collect();
        assert_eq!(partitions, [2, 1]);
        let mut response = response(PartitionData::default().with_partition_index(3).with_high_watermark(9));
        response.responses[0].partitions.push(PartitionData::default().with_partition_index(1).with_error_code(6));
        let name = kafka_protocol::messages::TopicName(StrBytes::from_static_str("other"));
        let data = vec![PartitionData::default().with_high_watermark(5)];
        response.responses.insert(0, FetchableTopicResponse::default().with_topic(name).with_partitions(data));
        let asked: Vec<_> = asks.iter().map(|ask| &ask.topic_partition).collect();
        let answers = check(response, &asked).unwrap().answers;
        let marks: Vec<_> = answers.into_iter().map(|answer| answer.map(|fetched| fetched.high_watermark)).collect();
        assert_eq!(marks, [Err(KafkaCode(6)), Ok(9), Ok(5)]);
    }

    fn response(data: PartitionData) -> FetchResponse {
        let name = kafka_protocol::messages::TopicName(StrBytes::from_static_str("orders"));
        let topic = FetchableTopicResponse::default().with_topic(name).with_partitions(vec![data]);
        FetchResponse::default().with_responses(vec![topic]).with_throttle_time_ms(30)
    }

    #[test]
    fn throttling_stands_beside_the_value_and_beside_the_refusal() {
        let data = PartitionData::default().with_partition_index(3).with_high_watermark(9).with_records(None);
        let answer = check(response(data.clone()), &[&here()]).unwrap();
        assert_eq!(answer.throttle, Duration::from_millis(30));
        let fetched = answer.answers[0].clone().unwrap();
        assert_eq!((fetched.high_watermark, fetched.records.len(), fetched.log_start_offset), (9, 0, None));
        let refused = check(response(data.with_error_code(6)), &[&here()]).unwrap();
        assert_eq!((refused.throttle, refused.answers), (Duration::from_millis(30), vec![Err(KafkaCode(6))]));
    }

    #[test]
    fn an_error_of_the_whole_response_is_a_refusal_and_another_partition_no_answer() {
        let refused = check(FetchResponse::default().with_error_code(70), &[&here()]).unwrap();
        assert_eq!(refused.answers, [Err(KafkaCode(70))]);
        assert!(check(response(PartitionData::default().with_partition_index(4)), &[&here()]).is_err());
        assert!(check(FetchResponse::default(), &[&here()]).is_err());
    }

    #[test]
    fn an_answer_beyond_a_quota_names_no_topic_and_is_an_empty_one() {
        let answer = check(FetchResponse::default().with_throttle_time_ms(30), &[&here()]).unwrap();
        assert_eq!(answer.throttle, Duration::from_millis(30));
        assert!(answer.answers[0].clone().unwrap().records.is_empty());
    }
}

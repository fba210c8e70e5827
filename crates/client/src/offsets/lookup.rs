//! ListOffsets: the request built, the response checked. Pure.

use std::collections::HashMap;

use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::list_offsets_response::ListOffsetsPartitionResponse;
use kafka_protocol::messages::{BrokerId, ListOffsetsRequest, ListOffsetsResponse};
use kafka_protocol::protocol::StrBytes;
use tidegate_model::{Isolation, TopicName};

use super::{OffsetAndTimestamp, OffsetQuery};
use crate::error::{KafkaCode, code};

/// The first version that answers [`OffsetQuery::MaxTimestamp`] (KIP-734).
pub(super) const MAX_TIMESTAMP_VERSION: i16 = 7;

/// One question to a leader. No two of one request ask about the same partition: brokers refuse that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    pub(super) partition: i32,
    pub(super) leader_epoch: i32,
    pub(super) query: OffsetQuery,
}

/// The request for these questions.
pub(super) fn build(
    version: i16,
    topic: &TopicName,
    questions: &[Question],
    isolation: Isolation,
) -> ListOffsetsRequest {
    let partitions = questions.iter().map(|question| {
        let partition = ListOffsetsPartition::default()
            .with_partition_index(question.partition)
            .with_timestamp(protocol_timestamp(question.query));
        // KIP-320: lets a broker that lost the lead, or does not know of it yet, say so.
        if version >= 4 { partition.with_current_leader_epoch(question.leader_epoch) } else { partition }
    });
    let topic = ListOffsetsTopic::default()
        .with_name(kafka_protocol::messages::TopicName(StrBytes::from_string(topic.as_str().to_owned())))
        .with_partitions(partitions.collect());
    let request = ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic]);
    // Version 1 is older than transactions: there the high watermark is the last stable offset.
    if version >= 2 { request.with_isolation_level(isolation_level(isolation)) } else { request }
}

/// The isolation level as Fetch and ListOffsets write it.
pub(crate) fn isolation_level(isolation: Isolation) -> i8 {
    match isolation {
        Isolation::ReadUncommitted => 0,
        Isolation::ReadCommitted => 1,
    }
}

fn protocol_timestamp(query: OffsetQuery) -> i64 {
    match query {
        OffsetQuery::Latest => -1,
        OffsetQuery::Earliest => -2,
        OffsetQuery::MaxTimestamp => -3,
        // Negative numbers are the codes above.
        OffsetQuery::AtOrAfter(ms) => ms.max(0),
    }
}

/// What a leader says to each question, in their order; the outer `Err` says what is wrong with the response.
pub(super) fn check(
    response: ListOffsetsResponse,
    topic: &TopicName,
    questions: &[Question],
) -> Result<Vec<Result<Option<OffsetAndTimestamp>, KafkaCode>>, String> {
    let mut answers = HashMap::new();
    for partition in
        response.topics.into_iter().filter(|t| t.name.as_str() == topic.as_str()).flat_map(|t| t.partitions)
    {
        answers.insert(partition.partition_index, partition);
    }
    questions
        .iter()
        .map(|question| match answers.get(&question.partition) {
            Some(answer) if answer.error_code != code::NONE => Ok(Err(KafkaCode(answer.error_code))),
            Some(answer) => found(question.query, answer).map(Ok),
            None => Err(format!("it says nothing of partition {topic}-{}", question.partition)),
        })
        .collect()
}

fn found(query: OffsetQuery, answer: &ListOffsetsPartitionResponse) -> Result<Option<OffsetAndTimestamp>, String> {
    let found = OffsetAndTimestamp {
        offset: answer.offset,
        timestamp_ms: answer.timestamp,
        leader_epoch: Some(answer.leader_epoch).filter(|epoch| *epoch >= 0),
    };
    match (query, answer.offset) {
        (_, 0..) => Ok(Some(found)),
        // KIP-79: "no message at or after" is timestamp -1, offset -1. KIP-734 answers the same for an empty partition.
        (OffsetQuery::AtOrAfter(_) | OffsetQuery::MaxTimestamp, -1) => Ok(None),
        (_, offset) => Err(format!("the offset of partition {} is {offset}", answer.partition_index)),
    }
}

/// Deals the queries out to requests in which each partition occurs once: the first query of every partition, then the
/// second of those that have two, and so on. Indexes into `partitions`.
pub(super) fn rounds(partitions: impl IntoIterator<Item = i32>) -> Vec<Vec<usize>> {
    let mut seen = HashMap::<i32, usize>::new();
    let mut rounds: Vec<Vec<usize>> = Vec::new();
    for (index, partition) in partitions.into_iter().enumerate() {
        let round = seen.entry(partition).or_default();
        match rounds.get_mut(*round) {
            Some(indexes) => indexes.push(index),
            None => rounds.push(vec![index]),
        }
        *round += 1;
    }
    rounds
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::list_offsets_response::ListOffsetsTopicResponse;
    use kafka_protocol::protocol::Encodable as _;

    use super::*;

    fn topic() -> TopicName {
        TopicName::new("orders").unwrap()
    }

    fn question(partition: i32, query: OffsetQuery) -> Question {
        Question { partition, leader_epoch: 4, query }
    }

    fn response(partitions: &[(i32, i16, i64, i64)]) -> ListOffsetsResponse {
        let partitions = partitions.iter().map(|(index, error, timestamp, offset)| {
            ListOffsetsPartitionResponse::default()
                .with_partition_index(*index)
                .with_error_code(*error)
                .with_timestamp(*timestamp)
                .with_offset(*offset)
        });
        let name = kafka_protocol::messages::TopicName(StrBytes::from_static_str("orders"));
        let topic = ListOffsetsTopicResponse::default().with_name(name).with_partitions(partitions.collect());
        ListOffsetsResponse::default().with_topics(vec![topic])
    }

    #[test]
    fn every_version_encodes_and_a_time_never_becomes_a_code() {
        let queries = [OffsetQuery::Earliest, OffsetQuery::Latest, OffsetQuery::MaxTimestamp];
        let times = [i64::MIN, -3, -2, -1, 0, 1, i64::MAX].map(OffsetQuery::AtOrAfter);
        let all: Vec<_> = (0..).zip(queries.into_iter().chain(times)).map(|(p, q)| question(p, q)).collect();
        for version in 1..=8 {
            let request = build(version, &topic(), &all, Isolation::ReadCommitted);
            request.encode(&mut bytes::BytesMut::new(), version).unwrap();
            let sent: Vec<_> = request.topics[0].partitions.iter().map(|p| p.timestamp).collect();
            assert_eq!(sent, [-2, -1, -3, 0, 0, 0, 0, 0, 1, i64::MAX]);
        }
    }

    #[test]
    fn nothing_at_or_after_is_none_and_not_an_offset() {
        let asked = [question(0, OffsetQuery::AtOrAfter(5)), question(1, OffsetQuery::MaxTimestamp)];
        let answers = check(response(&[(1, 0, -1, -1), (0, 0, -1, -1)]), &topic(), &asked).unwrap();
        assert_eq!(answers, [Ok(None), Ok(None)]);
    }

    #[test]
    fn answers_come_in_the_order_of_the_questions_with_each_error_its_own() {
        let asked = [
            question(2, OffsetQuery::Latest),
            question(0, OffsetQuery::AtOrAfter(5)),
            question(1, OffsetQuery::Earliest),
        ];
        let answers = check(response(&[(0, 0, 7, 70), (1, 6, -1, -1), (2, 0, -1, 9)]), &topic(), &asked).unwrap();
        let found = |offset, timestamp_ms| Ok(Some(OffsetAndTimestamp { offset, timestamp_ms, leader_epoch: None }));
        assert_eq!(answers, [found(9, -1), found(70, 7), Err(KafkaCode(6))]);
    }

    #[test]
    fn a_missing_partition_and_a_negative_offset_are_garbage() {
        let asked = [question(0, OffsetQuery::Latest)];
        assert!(check(response(&[(1, 0, -1, 9)]), &topic(), &asked).is_err());
        assert!(check(response(&[(0, 0, -1, -1)]), &topic(), &asked).is_err());
        let asked = [question(0, OffsetQuery::AtOrAfter(0))];
        assert!(check(response(&[(0, 0, -1, -2)]), &topic(), &asked).is_err());
        assert!(check(ListOffsetsResponse::default(), &topic(), &asked).is_err());
    }

    #[test]
    fn a_partition_is_asked_once_per_round() {
        assert_eq!(rounds([0, 1, 0, 0, 2, 1]), [vec![0, 1, 4], vec![2, 5], vec![3]]);
        assert!(rounds([]).is_empty());
    }
}

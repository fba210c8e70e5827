use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::ProduceRequest;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::protocol::StrBytes;
use tidegate_model::{Compression, TimestampType};
use tidegate_wire::{BatchOptions, split_batches};
use tokio::io::AsyncReadExt;

use crate::common::*;
use crate::protocol::init_producer_id;

#[tokio::test]
async fn a_batch_comes_back_as_it_was_sent_but_for_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 1, &[]).await;
    let codecs = [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];
    let mut offset = 0;
    for codec in codecs {
        let sent = compressed(codec, &[10, 30, 20]);
        let answer = client.produce("t", 0, sent.clone()).await;
        assert_eq!((answer.error_code, answer.base_offset, answer.log_append_time_ms), (0, offset, -1));
        let back = client.fetch("t", 0, offset).await.records.unwrap();
        assert_eq!(back[..8], offset.to_be_bytes(), "the base offset is set");
        assert_eq!(back[12..16], 0_i32.to_be_bytes(), "the leader epoch is set");
        assert_eq!((&back[8..12], &back[16..]), (&sent[8..12], &sent[16..]), "all else is as it was");
        offset += 3;
    }
}

#[tokio::test]
async fn log_append_time_is_the_brokers_and_is_told_to_the_producer() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 1, &[("message.timestamp.type", "LogAppendTime")]).await;
    let answer = client.produce("t", 0, compressed(Compression::Lz4, &[10, 30, 20])).await;
    assert!(answer.log_append_time_ms > 1_700_000_000_000);
    let records = client.fetch("t", 0, 0).await.records.unwrap();
    let raw = split_batches(records.clone()).next().unwrap().unwrap();
    raw.verify_crc().unwrap();
    assert_eq!(raw.header().attributes.timestamp_type(), TimestampType::LogAppendTime);
    let times: Vec<_> = stored(records).iter().map(|record| record.timestamp).collect();
    assert_eq!(times, [answer.log_append_time_ms; 3]);
    let found = client.list_offset("t", 0, answer.log_append_time_ms).await;
    assert_eq!((found.offset, found.timestamp), (0, answer.log_append_time_ms));
}

#[tokio::test]
async fn a_repeated_batch_is_acknowledged_at_its_first_offset_and_stored_once() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 1, &[]).await;
    let id = client.call(&init_producer_id(), 4).await.producer_id.0;
    for (sequence, offset) in [(0, 0), (2, 2), (4, 4)] {
        let sent = sequenced(id, 0, sequence, &[1, 2]);
        assert_eq!(client.produce("t", 0, sent.clone()).await.base_offset, offset);
        let again = client.produce("t", 0, sent).await;
        assert_eq!((again.error_code, again.base_offset), (0, offset));
    }
    let gap = client.produce("t", 0, sequenced(id, 0, 7, &[1])).await;
    assert_eq!(gap.error_code, ResponseError::OutOfOrderSequenceNumber.code());
    assert!(gap.error_message.unwrap().contains("expected was 6"));
    assert_eq!(client.produce("t", 0, sequenced(id, 1, 0, &[1])).await.base_offset, 6, "a new epoch begins at 0");
    let fenced = client.produce("t", 0, sequenced(id, 0, 6, &[1])).await;
    assert_eq!(fenced.error_code, ResponseError::InvalidProducerEpoch.code());
    assert_eq!(client.end_offset("t", 0).await, 7);
    let other = client.call(&init_producer_id(), 4).await.producer_id.0;
    assert_ne!(other, id);
}

#[tokio::test]
async fn what_must_not_be_stored_is_refused_and_the_connection_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 1, &[("max.message.bytes", "1000")]).await;
    let whole = batch(&[1, 2]);
    let mut damaged = whole.to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    let mut old = whole.to_vec();
    old[16] = 1;
    let mut unknown_codec = whole.to_vec();
    unknown_codec[22] = 7;
    let crc = crc32c::crc32c(&unknown_codec[21..]);
    unknown_codec[17..21].copy_from_slice(&crc.to_be_bytes());
    let control = batch_with(BatchOptions { control: true, ..BatchOptions::default() }, &[1]);
    let append_time = batch_with(BatchOptions { log_append_time_ms: Some(5), ..BatchOptions::default() }, &[1]);
    let moved = batch_with(BatchOptions { base_offset: 5, ..BatchOptions::default() }, &[1]);
    let transactional = batch_with(
        BatchOptions {
            transactional: true,
            producer_id: 1,
            producer_epoch: 0,
            base_sequence: 0,
            ..BatchOptions::default()
        },
        &[1],
    );
    let cases: Vec<(&str, Bytes, ResponseError)> = vec![
        ("nothing", Bytes::new(), ResponseError::InvalidRecord),
        ("a cut batch", whole.slice(..whole.len() - 1), ResponseError::InvalidRecord),
        ("two batches", [&whole[..], &whole[..]].concat().into(), ResponseError::InvalidRecord),
        ("a flipped bit", damaged.into(), ResponseError::CorruptMessage),
        ("message format 1", old.into(), ResponseError::UnsupportedForMessageFormat),
        ("codec 7", unknown_codec.into(), ResponseError::UnsupportedCompressionType),
        ("a control batch", control, ResponseError::InvalidRecord),
        ("the broker's own timestamp type", append_time, ResponseError::InvalidTimestamp),
        ("a base offset", moved, ResponseError::InvalidRecord),
        ("a transaction", transactional, ResponseError::InvalidRequest),
        ("too many bytes", batch_of_value(&[0; 1000]), ResponseError::MessageTooLarge),
    ];
    for (what, records, error) in cases {
        let answer = client.produce("t", 0, records).await;
        assert_eq!(ResponseError::try_from_code(answer.error_code), Some(error), "{what}: {answer:?}");
        assert!(answer.error_message.is_some() && answer.base_offset == -1, "{what}");
    }
    let zstd = produce_request("t", 0, compressed(Compression::Zstd, &[1]), -1);
    let early = client.call(&zstd, 6).await.responses[0].partition_responses[0].error_code;
    assert_eq!(early, ResponseError::UnsupportedCompressionType.code());
    let acks = client.call(&produce_request("t", 0, whole.clone(), 2), 9).await;
    assert_eq!(acks.responses[0].partition_responses[0].error_code, ResponseError::InvalidRequiredAcks.code());
    let with_id =
        produce_request("t", 0, whole.clone(), -1).with_transactional_id(Some(StrBytes::from_static_str("tx").into()));
    let refused = client.call(&with_id, 9).await;
    assert_eq!(refused.responses[0].partition_responses[0].error_code, ResponseError::InvalidRequest.code());
    let mut twice = produce_request("t", 0, whole.clone(), -1);
    let repeated = twice.topic_data[0].partition_data[0].clone();
    twice.topic_data[0].partition_data.push(repeated);
    let twice = client.call(&twice, 9).await.responses[0].partition_responses.clone();
    assert_eq!((twice[0].error_code, twice[1].error_code), (0, ResponseError::InvalidRequest.code()));

    assert_eq!(client.produce("t", 0, whole).await.base_offset, 2, "nothing of the refused was stored");
}

#[tokio::test]
async fn a_lying_max_timestamp_is_corrected_because_the_time_index_rests_on_it() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 1, &[]).await;
    let mut lying = batch(&[100, 300, 200]).to_vec();
    lying[35..43].copy_from_slice(&100_i64.to_be_bytes());
    let crc = crc32c::crc32c(&lying[21..]);
    lying[17..21].copy_from_slice(&crc.to_be_bytes());
    assert_eq!(client.produce("t", 0, lying.into()).await.error_code, 0);
    let back = split_batches(client.fetch("t", 0, 0).await.records.unwrap()).next().unwrap().unwrap();
    back.verify_crc().unwrap();
    assert_eq!(back.header().max_timestamp, 300);
    assert_eq!(client.list_offset("t", 0, 250).await.offset, 1);
}

#[tokio::test]
async fn one_request_feeds_many_partitions_and_each_answers_for_itself() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("a", 20, &[]).await;
    client.create_topic("b", 1, &[]).await;
    let data = |index| PartitionProduceData::default().with_index(index).with_records(Some(batch(&[1, 2])));
    let topics = vec![
        TopicProduceData::default().with_name(name("a")).with_partition_data((0..25).map(data).collect()),
        TopicProduceData::default().with_name(name("b")).with_partition_data(vec![data(0)]),
        TopicProduceData::default().with_name(name("c")).with_partition_data(vec![data(0)]),
    ];
    let response = client.call(&ProduceRequest::default().with_acks(-1).with_topic_data(topics), 9).await;
    let codes = |at: usize| -> Vec<i16> {
        response.responses[at].partition_responses.iter().map(|partition| partition.error_code).collect()
    };
    assert_eq!(codes(0), [vec![0; 20], vec![3; 5]].concat());
    assert_eq!((codes(1), codes(2)), (vec![0], vec![3]));
}

#[tokio::test]
async fn without_acknowledgement_there_is_no_answer_and_a_failure_closes_the_connection() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 1, &[]).await;
    client.send(&produce_request("t", 0, batch(&[1]), 0), 9).await.unwrap();
    // The next answer on the connection is the next request's.
    assert_eq!(client.end_offset("t", 0).await, 1);
    client.send(&produce_request("none", 0, batch(&[1]), 0), 9).await.unwrap();
    assert_eq!(client.stream().read(&mut [0]).await.unwrap(), 0, "closed");
}

#[tokio::test]
async fn a_time_too_far_from_the_brokers_clock_is_refused_and_each_such_record_named() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 1, &[]).await;
    client.create_topic("near", 1, &[("message.timestamp.before.max.ms", "60000")]).await;
    client.create_topic("broker", 1, &[("message.timestamp.type", "LogAppendTime")]).await;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    let now = i64::try_from(now).unwrap();
    let invalid = ResponseError::InvalidTimestamp.code();
    let far = now + 2 * 3_600_000;
    for times in [&[i64::MAX][..], &[now, far, -1, far + 1]] {
        let refused = client.produce("t", 0, batch(times)).await;
        assert_eq!(refused.error_code, invalid);
        let named: Vec<_> = refused.record_errors.iter().map(|record| record.batch_index).collect();
        assert_eq!(named, if times.len() == 1 { vec![0] } else { vec![1, 3] });
        let message = refused.error_message.unwrap();
        assert!(message.contains("message.timestamp.after.max.ms"), "{message}");
    }
    let many = client.produce("t", 0, batch(&[far; 1_000])).await;
    assert_eq!((many.error_code, many.record_errors.len()), (invalid, 100), "an answer must not outgrow its request");
    // Microseconds, the usual mistake.
    assert_eq!(client.produce("t", 0, batch(&[now * 1_000])).await.error_code, invalid);
    for times in [&[now + 3_000_000][..], &[-1], &[0, 1]] {
        assert_eq!(client.produce("t", 0, batch(times)).await.error_code, 0, "{times:?}");
    }
    // An old record behind one without a time.
    let refused = client.produce("near", 0, batch(&[-1, now - 120_000])).await;
    assert_eq!((refused.error_code, refused.record_errors[0].batch_index), (invalid, 1));
    assert_eq!(client.produce("near", 0, batch(&[-1, now - 10_000])).await.error_code, 0);
    assert_eq!(client.produce("broker", 0, batch(&[i64::MAX])).await.error_code, 0, "its time is not used");
}

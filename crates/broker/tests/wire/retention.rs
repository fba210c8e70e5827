use kafka_protocol::ResponseError;
use std::time::Duration;

use tidegate_broker::{Broker, BrokerConfig, DeleteRecordsError};
use tidegate_model::TopicName;

use crate::common::*;
use crate::protocol::delete_records_request;

async fn start_with_retention(dir: &std::path::Path) -> Broker {
    let config = BrokerConfig { retention_interval: Duration::from_millis(5), ..config(dir) };
    Broker::start(config).await.unwrap()
}

/// Asks until the log start is where it should be; the test run's own limit ends it otherwise.
async fn until_start_is(client: &mut Client, topic: &str, expected: i64) {
    while client.list_offset(topic, 0, -2).await.offset != expected {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn now_ms() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(now.as_millis()).unwrap()
}

#[tokio::test]
async fn old_segments_go_by_their_largest_timestamp_and_the_rest_stays() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("keep", 1, &[("retention.ms", "-1"), ("segment.bytes", "1024")]).await;
    client.create_topic("t", 1, &[("retention.ms", "3600000"), ("segment.bytes", "1024")]).await;
    let now = now_ms();
    for topic in ["keep", "t"] {
        for _ in 0..40 {
            client.produce(topic, 0, batch(&[1_000, 2_000])).await;
        }
        // A young record among old ones keeps its whole segment.
        client.produce(topic, 0, batch(&[1_000, now, 1_000])).await;
    }
    broker.shutdown().await.unwrap();

    let broker = start_with_retention(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    // All that is too old goes at once, so the first change is the last.
    while client.list_offset("t", 0, -2).await.offset == 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let start = client.list_offset("t", 0, -2).await.offset;
    let left = client.read_all("t", 0, start).await;
    assert_eq!(left.iter().filter(|record| record.timestamp == now).count(), 1);
    assert!(left.len() < 83);
    let gone = client.fetch("t", 0, 0).await;
    assert_eq!((gone.error_code, gone.log_start_offset), (ResponseError::OffsetOutOfRange.code(), start));
    assert_eq!(client.read_all("keep", 0, 0).await.len(), 83);
}

#[tokio::test]
async fn even_the_last_segment_goes_and_offsets_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start_with_retention(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 1, &[("retention.ms", "1000")]).await;
    client.produce("t", 0, batch(&[1, 2, 3])).await;
    until_start_is(&mut client, "t", 3).await;
    assert_eq!(client.end_offset("t", 0).await, 3);
    assert_eq!(client.produce("t", 0, batch(&[now_ms()])).await.base_offset, 3);
    broker.shutdown().await.unwrap();

    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    assert_eq!(client.list_offset("t", 0, -2).await.offset, 3);
    assert_eq!(client.read_all("t", 0, 3).await.len(), 1);
}

#[tokio::test]
async fn by_size_the_newest_bytes_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start_with_retention(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    let config = [("retention.ms", "-1"), ("retention.bytes", "4096"), ("segment.bytes", "1024")];
    client.create_topic("t", 1, &config).await;
    for _ in 0..100 {
        client.produce("t", 0, batch_of_value(&[1; 200])).await;
    }
    let one = i64::try_from(batch_of_value(&[1; 200]).len()).unwrap();
    let mut left;
    while {
        left = one * (100 - client.list_offset("t", 0, -2).await.offset);
        assert!(left >= 4096, "{left} bytes are left");
        left > 4096 + 1024
    } {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let start = client.list_offset("t", 0, -2).await.offset;
    assert_eq!(client.read_all("t", 0, start).await.last().unwrap().offset, 99);
}

#[tokio::test]
async fn deleted_records_stay_deleted_and_offsets_beyond_the_end_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 1, &[("segment.bytes", "1024"), ("retention.ms", "-1")]).await;
    for _ in 0..40 {
        client.produce("t", 0, batch(&[1, 2, 3, 4, 5])).await;
    }
    let topic = TopicName::new("t").unwrap();
    assert_eq!(broker.delete_records_before(&topic, 0, 102).await.unwrap(), 102);
    assert_eq!(broker.delete_records_before(&topic, 0, 50).await.unwrap(), 102, "never back");
    let beyond = broker.delete_records_before(&topic, 0, 201).await.unwrap_err();
    assert!(matches!(beyond, DeleteRecordsError::OutOfRange { high_watermark: 200, .. }), "{beyond}");
    let unknown = broker.delete_records_before(&topic, 1, 0).await.unwrap_err();
    assert!(matches!(unknown, DeleteRecordsError::UnknownPartition { .. }));
    let beyond = client.call(&delete_records_request("t", 0, 201), 2).await;
    assert_eq!(beyond.topics[0].partitions[0].error_code, ResponseError::OffsetOutOfRange.code());
    // As a crash leaves it: the answer alone promises that it lasts.
    broker.abort().await;

    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    assert_eq!(client.list_offset("t", 0, -2).await.offset, 102);
    let records = client.read_all("t", 0, 102).await;
    assert_eq!((records.len(), records[0].offset), (98, 102));
    let all = client.call(&delete_records_request("t", 0, -1), 2).await.topics[0].partitions[0].clone();
    assert_eq!((all.error_code, all.low_watermark), (0, 200));
    assert_eq!(client.produce("t", 0, batch(&[1])).await.base_offset, 200);
}

#[tokio::test]
async fn reading_goes_on_while_the_oldest_records_are_deleted_under_it() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 1, &[("segment.bytes", "1024"), ("retention.ms", "-1")]).await;
    for _ in 0..400 {
        client.produce("t", 0, batch_of_value(&[1; 100])).await;
    }
    let addr = broker.addr();
    let reading = tokio::spawn(async move {
        let mut client = Client::connect(addr).await;
        let (mut offset, mut read, mut lost) = (0, 0, 0);
        loop {
            let found = client.fetch("t", 0, offset).await;
            if found.error_code == ResponseError::OffsetOutOfRange.code() {
                assert!(found.log_start_offset > offset);
                lost += found.log_start_offset - offset;
                offset = found.log_start_offset;
                continue;
            }
            assert_eq!(found.error_code, 0);
            let records = stored(found.records.unwrap());
            let Some(last) = records.last() else { return (read, lost) };
            assert_eq!(records[0].offset, offset);
            read += i64::try_from(records.len()).unwrap();
            offset = last.offset + 1;
        }
    });
    let topic = TopicName::new("t").unwrap();
    for offset in (10..=400).step_by(10) {
        broker.delete_records_before(&topic, 0, offset).await.unwrap();
        client.list_offset("t", 0, 1).await;
    }
    let (read, lost) = reading.await.unwrap();
    assert_eq!(read + lost, 400, "every record was read, or its loss was told");
}

#[tokio::test]
async fn a_slowly_fed_topic_begins_new_segments_by_time_so_that_the_old_ones_can_go() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start_with_retention(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 1, &[("segment.ms", "60000"), ("retention.ms", "3600000")]).await;
    let now = now_ms();
    let hours = |hours: i64| now - hours * 3_600_000;
    client.produce("t", 0, batch(&[hours(3), hours(3) + 10_000])).await;
    client.produce("t", 0, batch(&[hours(3) + 30_000])).await;
    client.produce("t", 0, batch(&[hours(2)])).await;
    client.produce("t", 0, batch(&[now])).await;
    client.produce("t", 0, batch(&[now + 1])).await;
    until_start_is(&mut client, "t", 4).await;
    assert_eq!(client.read_all("t", 0, 4).await.len(), 2);
}

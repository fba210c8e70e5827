use std::time::Duration;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::{DeleteTopicsRequest, FetchRequest};
use tidegate_broker::Broker;
use tokio::time::{Instant, timeout};

use crate::common::*;
use crate::protocol::delete_records_request;

/// So long that a test which waits for it has failed.
const LONG_MS: i32 = 50_000;
const LONG: Duration = Duration::from_secs(30);

#[tokio::test]
async fn limits_are_kept_in_whole_batches_and_the_first_batch_always_comes() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 1, &[]).await;
    let small = batch_of_value(&[1; 100]);
    let large = batch_of_value(&[2; 40 * 1024]);
    for batch in [&small, &small, &large, &small, &small] {
        client.produce("t", 0, batch.clone()).await;
    }
    let bytes = |count: usize| i32::try_from(small.len() * count).unwrap();
    let cases = [(0, 1, 1), (0, bytes(1), 1), (0, bytes(2) - 1, 1), (0, bytes(2), 2), (0, bytes(3), 2)];
    for (offset, most_bytes, expected) in cases.into_iter().chain([(2, 1024, 1), (3, bytes(2), 2), (3, i32::MIN, 1)]) {
        let response = client.call(&fetch_request("t", 0, offset, most_bytes, 1, LONG_MS), FETCH).await;
        let records = stored(response.responses[0].partitions[0].records.clone().unwrap());
        assert_eq!(records.len(), expected, "{most_bytes} bytes from {offset}");
        assert_eq!(records[0].offset, offset);
    }
}

#[tokio::test]
async fn the_limit_of_the_whole_answer_is_shared_in_the_order_of_the_request() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 3, &[]).await;
    let small = batch_of_value(&[1; 100]);
    for partition in 0..3 {
        for _ in 0..4 {
            client.produce("t", partition, small.clone()).await;
        }
    }
    let partitions = [2, 0, 1].map(|partition| {
        FetchPartition::default()
            .with_partition(partition)
            .with_current_leader_epoch(-1)
            .with_partition_max_bytes(1 << 20)
    });
    let topic = FetchTopic::default().with_topic(name("t")).with_partitions(partitions.into());
    let most_bytes = i32::try_from(small.len() * 6).unwrap();
    let request = FetchRequest::default().with_max_bytes(most_bytes).with_min_bytes(1).with_topics(vec![topic]);
    let response = client.call(&request, FETCH).await;
    let counts: Vec<_> = response.responses[0]
        .partitions
        .iter()
        .map(|p| (p.partition_index, stored(p.records.clone().unwrap()).len()))
        .collect();
    assert_eq!(counts, [(2, 4), (0, 2), (1, 0)]);
}

#[tokio::test]
async fn a_read_inside_a_batch_gives_the_whole_batch() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 1, &[("segment.bytes", "1024"), ("retention.ms", "-1")]).await;
    for _ in 0..50 {
        client.produce("t", 0, batch(&[1, 2, 3, 4, 5])).await;
    }
    for offset in 0..250 {
        let records = stored(client.fetch("t", 0, offset).await.records.unwrap());
        assert_eq!(records[0].offset, offset - offset % 5);
    }
    assert_eq!(client.read_all("t", 0, 17).await.len(), 233, "over the ends of segments");
}

#[tokio::test]
async fn offsets_outside_the_log_are_an_error_that_says_where_the_log_is() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 1, &[]).await;
    client.produce("t", 0, batch(&[1, 2, 3, 4])).await;
    client.call(&delete_records_request("t", 0, 2), 2).await;
    for offset in [-1, 0, 1, 5, i64::MAX, i64::MIN] {
        let started = Instant::now();
        let response = client.call(&fetch_request("t", 0, offset, 1000, 1, LONG_MS), FETCH).await;
        let partition = &response.responses[0].partitions[0];
        assert_eq!(partition.error_code, ResponseError::OffsetOutOfRange.code(), "{offset}");
        assert_eq!((partition.log_start_offset, partition.high_watermark), (2, 4));
        assert!(started.elapsed() < LONG, "an error does not wait");
    }
    assert_eq!(client.read_all("t", 0, 2).await.len(), 2);
    assert!(client.read_all("t", 0, 4).await.is_empty(), "the end itself is inside");
}

#[tokio::test]
async fn a_fetch_waits_for_records_and_answers_when_there_are_enough() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 1, &[]).await;
    let small = batch_of_value(&[1; 100]);
    let least_bytes = i32::try_from(small.len() * 2).unwrap();
    let mut reader = Client::connect(broker.addr()).await;
    let waiting = tokio::spawn(async move {
        let request = fetch_request("t", 0, 0, 1 << 20, least_bytes, LONG_MS);
        reader.call(&request, FETCH).await.responses[0].partitions[0].clone()
    });
    client.produce("t", 0, small.clone()).await;
    client.produce("t", 0, small).await;
    let found = timeout(LONG, waiting).await.unwrap().unwrap();
    assert_eq!(stored(found.records.unwrap()).len(), 2);
}

#[tokio::test]
async fn a_fetch_that_waits_in_vain_comes_back_empty_after_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 1, &[]).await;
    let started = Instant::now();
    let response = client.call(&fetch_request("t", 0, 0, 1000, 1, 120), FETCH).await;
    assert!(started.elapsed() >= Duration::from_millis(120));
    let partition = &response.responses[0].partitions[0];
    assert_eq!((partition.error_code, partition.high_watermark), (0, 0));
    assert_eq!(partition.records.as_deref(), Some(&[][..]));
}

#[tokio::test]
async fn the_end_of_a_segment_is_not_waited_at() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 1, &[("segment.bytes", "1024"), ("retention.ms", "-1")]).await;
    for _ in 0..30 {
        client.produce("t", 0, batch_of_value(&[1; 200])).await;
    }
    // The segment that holds offset 0 has less than asked for; the next one has more.
    let request = fetch_request("t", 0, 0, 1 << 20, 1 << 20, LONG_MS);
    let response = timeout(LONG, client.call(&request, FETCH)).await.unwrap();
    let records = response.responses[0].partitions[0].records.clone().unwrap();
    assert!(!records.is_empty() && records.len() <= 1024);
}

#[tokio::test]
async fn deleting_the_topic_ends_a_waiting_fetch() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 1, &[]).await;
    let mut reader = Client::connect(broker.addr()).await;
    let waiting = tokio::spawn(async move {
        loop {
            let request = fetch_request("t", 0, 0, 1 << 20, 1, LONG_MS);
            let partition = reader.call(&request, FETCH).await.responses[0].partitions[0].clone();
            if partition.error_code != 0 {
                return partition.error_code;
            }
        }
    });
    client.call(&DeleteTopicsRequest::default().with_topic_names(vec![name("t")]), 5).await;
    let code = timeout(LONG, waiting).await.unwrap().unwrap();
    assert_eq!(code, ResponseError::UnknownTopicOrPartition.code());
}

#[tokio::test]
async fn a_shutdown_ends_a_waiting_fetch_with_an_answer() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 1, &[]).await;
    client.send(&fetch_request("t", 0, 0, 1000, 1, LONG_MS), FETCH).await.unwrap();
    // A second connection proves nothing about the first; the answer does.
    timeout(LONG, broker.shutdown()).await.unwrap().unwrap();
    match client.read_frame().await {
        Ok(_) => {}
        // The stop came before the request was read.
        Err(error) => {
            assert!(matches!(error.kind(), std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::ConnectionReset))
        }
    }
}

#[tokio::test]
async fn a_reader_that_hangs_up_leaves_no_fetch_behind() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.limits.max_connections = 2;
    let broker = Broker::start(config).await.unwrap();
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 1, &[]).await;
    for _ in 0..20 {
        let mut reader = Client::connect(broker.addr()).await;
        // Refused while the one before still counts; taken once its fetch has ended.
        let mut tries = 0;
        while reader.try_call(&fetch_request("t", 0, 0, 1000, 0, 0), FETCH).await.is_err() {
            tries += 1;
            assert!(tries < 10_000, "the fetch of a reader that hung up still holds its connection");
            tokio::task::yield_now().await;
            reader = Client::connect(broker.addr()).await;
        }
        reader.send(&fetch_request("t", 0, 0, 1000, 1, LONG_MS), FETCH).await.unwrap();
    }
}

#[tokio::test]
async fn a_session_that_the_broker_does_not_keep_is_begun_anew() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 1, &[]).await;
    let initial = fetch_request("t", 0, 0, 1000, 0, 0).with_session_epoch(0);
    let response = client.call(&initial, FETCH).await;
    assert_eq!((response.error_code, response.session_id, response.responses.len()), (0, 0, 1));
    let next = fetch_request("t", 0, 0, 1000, 0, 0).with_session_id(7).with_session_epoch(1);
    let response = client.call(&next, FETCH).await;
    assert_eq!(response.error_code, ResponseError::FetchSessionIdNotFound.code());
}

#[tokio::test]
async fn leader_epochs_and_repeated_partitions_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 1, &[]).await;
    for (epoch, error) in [(-1, 0), (0, 0), (1, ResponseError::UnknownLeaderEpoch.code())] {
        let mut request = fetch_request("t", 0, 0, 1000, 0, 0);
        request.topics[0].partitions[0].current_leader_epoch = epoch;
        assert_eq!(client.call(&request, FETCH).await.responses[0].partitions[0].error_code, error, "{epoch}");
    }
    let mut request = fetch_request("t", 0, 0, 1000, 0, 0);
    let repeated = request.topics[0].partitions[0].clone();
    request.topics[0].partitions.push(repeated);
    let codes =
        client.call(&request, FETCH).await.responses[0].partitions.iter().map(|p| p.error_code).collect::<Vec<_>>();
    assert_eq!(codes, [0, ResponseError::InvalidRequest.code()]);
}

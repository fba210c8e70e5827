//! The reader against a scripted broker: progress, gaps, losses, damage, throttling, and its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::ApiKey;
use parking_lot::Mutex;
use tidegate_client::{Cluster, ClusterConfig, ReadError, ReaderOptions};
use tidegate_model::{Compression, Isolation};
use tidegate_wire::{BatchError, BatchLimits, BatchOptions, Marker, MarkerKind, write_marker};

use crate::fake::{FakeBroker, FakeTopic, FetchAnswer, Log, Reply, Request, list_offsets, metadata, proper};
use crate::support::{batch, batch_of, config, connect, drain, eventually, name, options, set, slice};

fn topic() -> FakeTopic {
    FakeTopic::new("t", 1)
}

async fn serving(log: Log) -> (FakeBroker, Cluster) {
    let broker = FakeBroker::serving(topic(), move |request| log.answer(request).to(request)).await;
    let cluster = connect(broker.bootstrap()).await;
    (broker, cluster)
}

async fn read(cluster: &Cluster, start: i64, end: i64) -> (Vec<i64>, Result<(), ReadError>, i64) {
    let mut reader = cluster.read(slice("t", 0, start, end), options());
    let (offsets, result) = drain(&mut reader).await;
    (offsets, result, reader.position())
}

fn offsets(range: std::ops::Range<i64>) -> Vec<i64> {
    range.collect()
}

#[tokio::test]
async fn a_slice_is_read_to_its_end_exactly_whatever_the_batches_are() {
    let (_broker, cluster) = serving(Log::of((0..20).map(|at| batch(at * 5, 5)))).await;
    for (start, end) in [(0, 100), (3, 98), (7, 8), (99, 100), (50, 50), (50, 40)] {
        let (read, result, position) = read(&cluster, start, end).await;
        result.unwrap();
        assert_eq!(read, offsets(start..end), "{start} to {end}");
        assert_eq!(position, end.max(start));
    }
}

#[tokio::test]
async fn chunks_follow_each_other_without_a_gap() {
    let (_broker, cluster) = serving(Log::of((0..50).map(|at| batch(at * 10, 10)))).await;
    let options = ReaderOptions { max_partition_fetch_bytes: Some(700), ..options() };
    let mut reader = cluster.read(slice("t", 0, 5, 495), options);
    let (mut position, mut chunks) = (5, 0);
    while let Some(chunk) = reader.next().await {
        let chunk = chunk.unwrap();
        for batch in &chunk.batches {
            for record in batch.records() {
                let offset = record.unwrap().offset;
                assert_eq!(offset, position);
                position += 1;
            }
        }
        assert_eq!((chunk.next_offset, reader.position()), (position, position));
        chunks += 1;
    }
    assert_eq!(position, 495);
    assert!(chunks > 5);
}

#[tokio::test]
async fn a_range_that_starts_below_zero_is_refused_without_a_fetch() {
    let broker = FakeBroker::serving(topic(), |_| panic!("nothing may be asked")).await;
    let cluster = connect(broker.bootstrap()).await;
    let (_, result, _) = read(&cluster, -1, 5).await;
    assert!(matches!(result, Err(ReadError::NegativeOffset { .. })), "{result:?}");
    let (_, result, _) = read(&cluster, 5, 5).await;
    result.unwrap();
}

fn transaction(producer_id: i64, base_offset: i64, count: i64) -> Bytes {
    let options = BatchOptions {
        producer_id,
        producer_epoch: 0,
        base_sequence: 0,
        transactional: true,
        ..BatchOptions::default()
    };
    batch_of(base_offset, count, options)
}

fn marker(producer_id: i64, offset: i64, kind: MarkerKind) -> Bytes {
    let marker =
        Marker { kind, offset, leader_epoch: 0, timestamp_ms: 9, producer_id, producer_epoch: 0, coordinator_epoch: 0 };
    write_marker(&marker).unwrap()
}

#[tokio::test]
async fn a_slice_that_ends_with_a_marker_ends_and_one_of_markers_alone_ends_at_once() {
    let log = Log::of([transaction(7, 0, 2), marker(7, 2, MarkerKind::Commit)]);
    let (_broker, cluster) = serving(log).await;
    let (read, result, position) = read(&cluster, 0, 3).await;
    result.unwrap();
    assert_eq!((read, position), (vec![0, 1], 3));

    let (_broker, cluster) = serving(Log::of([marker(7, 0, MarkerKind::Commit)])).await;
    let (read, result, position) = self::read(&cluster, 0, 1).await;
    result.unwrap();
    assert_eq!((read, position), (vec![], 1));
}

#[tokio::test]
async fn aborted_transactions_are_left_out_unless_uncommitted_records_are_asked_for() {
    let mut log = Log::of([
        transaction(7, 0, 2),
        batch(2, 1),
        marker(7, 3, MarkerKind::Abort),
        transaction(7, 4, 2),
        marker(7, 6, MarkerKind::Commit),
    ]);
    log.aborted = vec![(7, 0, 3)];
    let (_broker, cluster) = serving(log).await;
    // One fetch for all, and one for each batch: the list comes with every answer.
    for max_partition_fetch_bytes in [1 << 20, 1] {
        let committed = ReaderOptions { max_partition_fetch_bytes: Some(max_partition_fetch_bytes), ..options() };
        let (read, result) = drain(&mut cluster.read(slice("t", 0, 0, 7), committed.clone())).await;
        result.unwrap();
        assert_eq!(read, [2, 4, 5]);
        let all = ReaderOptions { isolation: Isolation::ReadUncommitted, ..committed };
        let (read, result) = drain(&mut cluster.read(slice("t", 0, 0, 7), all)).await;
        result.unwrap();
        assert_eq!(read, [0, 1, 2, 4, 5]);
    }
}

#[tokio::test]
async fn gaps_of_compaction_are_passed_also_at_the_end_of_the_slice() {
    let (_broker, cluster) = serving(Log::of([batch(0, 1), batch(10, 2), batch(40, 1)])).await;
    let (read, result, position) = read(&cluster, 0, 30).await;
    result.unwrap();
    assert_eq!((read, position), (vec![0, 10, 11], 30));
    let (read, result, position) = self::read(&cluster, 12, 13).await;
    result.unwrap();
    assert_eq!((read, position), (vec![], 13));
}

#[tokio::test]
async fn empty_answers_below_the_end_are_not_the_end_and_are_not_hammered() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let log = Log::of([batch(0, 5), batch(5, 5)]);
    let broker = FakeBroker::serving(topic(), move |request| {
        let before = count.fetch_add(1, Ordering::SeqCst);
        let answer = log.answer(request);
        // Every other answer is empty, at once, as a throttled broker's may be, with or without saying so.
        match before % 2 {
            0 => FetchAnswer { records: Bytes::new(), throttle_ms: i32::try_from(before % 4).unwrap(), ..answer },
            _ => answer,
        }
        .to(request)
    })
    .await;
    let cluster = connect(broker.bootstrap()).await;
    let one_by_one = ReaderOptions { max_partition_fetch_bytes: Some(1), ..options() };
    let (read, result) = drain(&mut cluster.read(slice("t", 0, 0, 10), one_by_one)).await;
    result.unwrap();
    assert_eq!(read, offsets(0..10));
    assert_eq!(asked.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn the_broker_is_left_alone_as_long_as_it_wants() {
    let answered: Arc<Mutex<Vec<tokio::time::Instant>>> = Arc::default();
    let noted = Arc::clone(&answered);
    let log = Log::of([batch(0, 5), batch(5, 5)]);
    let broker = FakeBroker::serving(topic(), move |request| {
        noted.lock().push(tokio::time::Instant::now());
        FetchAnswer { throttle_ms: 150, ..log.answer(request) }.to(request)
    })
    .await;
    let cluster = connect(broker.bootstrap()).await;
    let one_by_one = ReaderOptions { max_partition_fetch_bytes: Some(1), ..options() };
    let (read, result) = drain(&mut cluster.read(slice("t", 0, 0, 10), one_by_one)).await;
    result.unwrap();
    assert_eq!(read, offsets(0..10));
    let answered = answered.lock();
    assert_eq!(answered.len(), 2);
    assert!(answered[1] - answered[0] >= Duration::from_millis(150));
}

#[tokio::test]
async fn standing_still_for_too_long_is_an_error_with_the_facts() {
    let broker = FakeBroker::serving(topic(), |request| {
        let records = FetchAnswer::records(Bytes::new(), 20);
        FetchAnswer { last_stable_offset: 10, ..records }.to(request)
    })
    .await;
    let cluster = connect(broker.bootstrap()).await;
    let options = ReaderOptions { stall_timeout: Duration::from_millis(100), ..options() };
    let (_, result) = drain(&mut cluster.read(slice("t", 0, 10, 20), options)).await;
    assert!(
        matches!(result, Err(ReadError::Stalled { offset: 10, last_stable_offset: 10, high_watermark: 20, .. })),
        "{result:?}"
    );
}

/// Answers the log's bounds to ListOffsets, and fetches as given.
async fn bounded(
    start: i64,
    end: i64,
    mut fetch: impl FnMut(&Request) -> Reply + Send + 'static,
) -> (FakeBroker, Cluster) {
    let broker = FakeBroker::serving(topic(), move |request| match request.api {
        ApiKey::ListOffsets => list_offsets(request, |_, timestamp| (0, -1, if timestamp == -2 { start } else { end })),
        _ => fetch(request),
    })
    .await;
    let cluster = connect(broker.bootstrap()).await;
    (broker, cluster)
}

#[tokio::test]
async fn what_was_deleted_ahead_of_the_reader_is_named_and_never_jumped_over() {
    let log = Log::of((0..10).map(|at| batch(at * 12, 12)));
    let (_broker, cluster) =
        bounded(500, 1000, move |request| match request.fetch().topics[0].partitions[0].fetch_offset {
            120 => FetchAnswer::error(1).to(request),
            _ => log.answer(request).to(request),
        })
        .await;
    let (read, result, position) = read(&cluster, 0, 1000).await;
    assert_eq!((read, position), (offsets(0..120), 120));
    assert!(
        matches!(
            result,
            Err(ReadError::OffsetOutOfRange { requested: 120, log_start_offset: 500, high_watermark: 1000, .. })
        ),
        "{result:?}"
    );
}

#[tokio::test]
async fn a_position_behind_the_logs_end_is_named_too() {
    let (_broker, cluster) = bounded(0, 50, |request| FetchAnswer::error(1).to(request)).await;
    let (_, result, _) = read(&cluster, 70, 80).await;
    assert!(
        matches!(
            result,
            Err(ReadError::OffsetOutOfRange { requested: 70, log_start_offset: 0, high_watermark: 50, .. })
        ),
        "{result:?}"
    );
}

#[tokio::test]
async fn out_of_range_inside_the_log_is_tried_again_within_limits() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let log = Log::of([batch(0, 10)]);
    let (_broker, cluster) = bounded(0, 10, move |request| match count.fetch_add(1, Ordering::SeqCst) {
        0 => FetchAnswer::error(1).to(request),
        _ => log.answer(request).to(request),
    })
    .await;
    let (read, result, _) = read(&cluster, 0, 10).await;
    result.unwrap();
    assert_eq!(read, offsets(0..10));

    let (_broker, cluster) = bounded(0, 10, |request| FetchAnswer::error(1).to(request)).await;
    let (_, result, _) = self::read(&cluster, 0, 10).await;
    assert!(matches!(result, Err(ReadError::Refused { offset: 0, .. })), "{result:?}");
}

#[tokio::test]
async fn a_gap_under_a_log_start_that_moved_meanwhile_is_a_loss_and_not_compaction() {
    let broker = FakeBroker::serving(topic(), |request| {
        FetchAnswer { log_start_offset: 500, ..FetchAnswer::records(batch(500, 10), 1000) }.to(request)
    })
    .await;
    let cluster = connect(broker.bootstrap()).await;
    let (read, result, _) = read(&cluster, 100, 1000).await;
    assert!(read.is_empty());
    assert!(
        matches!(result, Err(ReadError::OffsetOutOfRange { requested: 100, log_start_offset: 500, .. })),
        "{result:?}"
    );
}

/// A broker whose log holds a batch with base offset 500 in place of 10, ends at `high_watermark`, and gives one batch an answer
/// as long as it is asked for no more than 200 bytes.
async fn misplaced(high_watermark: i64) -> (FakeBroker, Cluster) {
    let log: Vec<(i64, Bytes)> = [0, 500, 20, 30].iter().map(|base| (base + 10, batch(*base, 10))).collect();
    let broker = FakeBroker::serving(topic(), move |request| {
        if request.api == ApiKey::ListOffsets {
            return list_offsets(request, |_, _| (0, -1, high_watermark));
        }
        let asked = &request.fetch().topics[0].partitions[0];
        let from = log.iter().skip_while(|(next, _)| *next <= asked.fetch_offset).map(|(_, batch)| batch.clone());
        let batches: Vec<_> = from.take(if asked.partition_max_bytes <= 200 { 1 } else { 4 }).collect();
        FetchAnswer::records(set(&batches), high_watermark).to(request)
    })
    .await;
    let cluster = connect(broker.bootstrap()).await;
    (broker, cluster)
}

#[tokio::test]
async fn a_wrong_base_offset_at_the_end_of_an_answer_is_damage_and_no_gap() {
    let options = ReaderOptions { max_partition_fetch_bytes: Some(200), ..options() };
    // Beyond the log's end; below it, where another fetch tells.
    for (high_watermark, end) in [(40, 40), (1_000, 1_000), (1_000, 400)] {
        let (_broker, cluster) = misplaced(high_watermark).await;
        let mut reader = cluster.read(slice("t", 0, 0, end), options.clone());
        let (read, result) = drain(&mut reader).await;
        assert_eq!((read, reader.position()), (offsets(0..10), 10));
        match (high_watermark, result) {
            (40, Err(ReadError::BeyondEnd { base_offset: 500, high_watermark: 40, .. })) => {}
            (1_000, Err(ReadError::OutOfOrder { base_offset: 20, before: 510, .. })) => {}
            (_, other) => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn gaps_of_compaction_are_passed_whatever_the_answers_hold() {
    let batches: Vec<Bytes> = [0, 7, 90, 300, 301, 1_000].iter().map(|base| batch(*base, 1)).collect();
    for max_partition_fetch_bytes in [1, 200, 1 << 20] {
        let (_broker, cluster) = serving(Log::of(batches.clone())).await;
        let options = ReaderOptions { max_partition_fetch_bytes: Some(max_partition_fetch_bytes), ..options() };
        let mut reader = cluster.read(slice("t", 0, 0, 1_001), options);
        let (read, result) = drain(&mut reader).await;
        result.unwrap();
        assert_eq!((read, reader.position()), (vec![0, 7, 90, 300, 301, 1_000], 1_001));
    }
}

#[tokio::test]
async fn a_damaged_batch_is_reported_once_with_its_offsets_after_what_stands_before_it() {
    for compression in [Compression::None, Compression::Lz4] {
        let mut damaged = BytesMut::from(&batch_of(10, 5, BatchOptions { compression, ..BatchOptions::default() })[..]);
        *damaged.last_mut().unwrap() ^= 1;
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let log = Log::of([batch(0, 10), damaged.freeze(), batch(15, 5)]);
        let broker = FakeBroker::serving(topic(), move |request| {
            count.fetch_add(1, Ordering::SeqCst);
            log.answer(request).to(request)
        })
        .await;
        let cluster = connect(broker.bootstrap()).await;
        let mut reader = cluster.read(slice("t", 0, 0, 20), options());
        let (read, result) = drain(&mut reader).await;
        assert_eq!((read, reader.position()), (offsets(0..10), 10));
        let Err(ReadError::Batch { source, topic_partition }) = result else { panic!("{result:?}") };
        assert_eq!(topic_partition.to_string(), "t-0");
        assert!(matches!(source, BatchError::Crc { .. }), "{source}");
        assert_eq!((source.at().base_offset, source.at().last_offset), (10, Some(14)));
        assert!(reader.next().await.is_none());
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        // It can be skipped.
        let behind = source.at().next_offset().unwrap();
        let (rest, result, _) = self::read(&cluster, behind, 20).await;
        result.unwrap();
        assert_eq!(rest, offsets(15..20));
    }
}

#[tokio::test]
async fn a_bomb_is_an_error_within_its_cap() {
    let bomb = {
        let options = BatchOptions { compression: Compression::Zstd, ..BatchOptions::default() };
        let mut writer = tidegate_wire::BatchWriter::new(options);
        writer.push(1, None, Some(&vec![0; 8 << 20]), []).unwrap();
        writer.finish().unwrap()
    };
    let (_broker, cluster) = serving(Log::of([bomb])).await;
    let batch_limits = BatchLimits { max_decompressed_bytes: 1 << 20, ..BatchLimits::default() };
    let (_, result) = drain(&mut cluster.read(slice("t", 0, 0, 1), ReaderOptions { batch_limits, ..options() })).await;
    assert!(matches!(result, Err(ReadError::Batch { source: BatchError::Decompress { .. }, .. })), "{result:?}");
}

fn large(base_offset: i64, bytes: usize) -> Bytes {
    let mut writer = tidegate_wire::BatchWriter::new(BatchOptions { base_offset, ..BatchOptions::default() });
    writer.push(1, None, Some(&vec![b'x'; bytes]), []).unwrap();
    writer.finish().unwrap()
}

/// Records of 100 bytes with one of 40 KiB at offset 5.
fn with_a_large_record() -> Log {
    Log::of((0..10).map(|offset| large(offset, if offset == 5 { 40 << 10 } else { 100 })))
}

#[tokio::test]
async fn a_record_larger_than_the_fetch_limit_is_delivered_in_as_many_fetches_as_batches_need() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let log = with_a_large_record();
    let broker = FakeBroker::serving(topic(), move |request| {
        count.fetch_add(1, Ordering::SeqCst);
        log.answer(request).to(request)
    })
    .await;
    let cluster = connect(broker.bootstrap()).await;
    let small = ReaderOptions { max_partition_fetch_bytes: Some(1024), ..options() };
    let (read, result) = drain(&mut cluster.read(slice("t", 0, 0, 10), small)).await;
    result.unwrap();
    assert_eq!(read, offsets(0..10));
    assert!(asked.load(Ordering::SeqCst) <= 4);
}

#[tokio::test]
async fn a_broker_that_cuts_a_large_batch_is_asked_for_all_of_it() {
    for keep in [20, 1024] {
        let limits: Arc<Mutex<Vec<i32>>> = Arc::default();
        let noted = Arc::clone(&limits);
        let log = with_a_large_record();
        let broker = FakeBroker::serving(topic(), move |request| {
            let limit = request.fetch().topics[0].partitions[0].partition_max_bytes;
            noted.lock().push(limit);
            let mut answer = log.answer(request);
            // As before KIP-74: bytes, not batches, end an answer. A broker may also keep it much shorter.
            let limit = usize::try_from(limit).unwrap();
            let cut = if answer.records.len() > limit { limit.min(keep) } else { limit };
            answer.records.truncate(cut);
            answer.to(request)
        })
        .await;
        let cluster = connect(broker.bootstrap()).await;
        let small = ReaderOptions { max_partition_fetch_bytes: Some(1024), ..options() };
        let (read, result) = drain(&mut cluster.read(slice("t", 0, 0, 10), small)).await;
        result.unwrap();
        assert_eq!(read, offsets(0..10), "{keep}");
        let limits = limits.lock();
        assert!(limits.len() < 30, "{limits:?}");
        assert_eq!(limits.last(), Some(&1024), "{limits:?}");
    }
}

#[tokio::test]
async fn a_batch_that_no_limit_allows_is_named_with_its_size() {
    let broker = FakeBroker::serving(topic(), |request| {
        let mut answer = FetchAnswer::records(large(0, 100), 1);
        let mut claims = BytesMut::from(&answer.records[..40]);
        claims[8..12].copy_from_slice(&(100_i32 << 20).to_be_bytes());
        answer.records = claims.freeze();
        answer.to(request)
    })
    .await;
    let cluster = connect(broker.bootstrap()).await;
    let (_, result, _) = read(&cluster, 0, 1).await;
    let size = (100_u64 << 20) + 12;
    assert!(matches!(result, Err(ReadError::BatchTooLarge { offset: 0, bytes, .. }) if bytes == size), "{result:?}");

    // One that does not tell its size: the limit goes up, and not for ever.
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let broker = FakeBroker::serving(topic(), move |request| {
        count.fetch_add(1, Ordering::SeqCst);
        FetchAnswer::records(Bytes::from_static(&[0; 5]), 1).to(request)
    })
    .await;
    let cluster = connect(broker.bootstrap()).await;
    let (_, result, _) = read(&cluster, 0, 1).await;
    assert!(matches!(result, Err(ReadError::BatchTooLarge { offset: 0, .. })), "{result:?}");
    assert!(asked.load(Ordering::SeqCst) < 12);
}

#[tokio::test]
async fn a_broker_that_answers_only_what_was_read_before_is_an_error_and_no_loop() {
    let broker = FakeBroker::serving(topic(), |request| FetchAnswer::records(batch(0, 5), 100).to(request)).await;
    let cluster = connect(broker.bootstrap()).await;
    let (read, result, _) = read(&cluster, 0, 100).await;
    assert_eq!(read, offsets(0..5));
    assert!(matches!(result, Err(ReadError::Request { .. })), "{result:?}");
}

#[tokio::test]
async fn batches_that_overlap_what_was_delivered_give_no_record_twice() {
    let broker = FakeBroker::serving(topic(), |request| {
        let records = match request.fetch().topics[0].partitions[0].fetch_offset {
            0 => set(&[batch(0, 6), batch(4, 4)]),
            _ => batch(2, 10),
        };
        FetchAnswer::records(records, 12).to(request)
    })
    .await;
    let cluster = connect(broker.bootstrap()).await;
    let (read, result, _) = read(&cluster, 0, 12).await;
    result.unwrap();
    assert_eq!(read, offsets(0..12));
}

#[tokio::test]
async fn the_reader_follows_the_leader_and_reads_on_where_it_was() {
    let leader = Arc::new(AtomicI32::new(0));
    let addrs: Arc<Mutex<Vec<std::net::SocketAddr>>> = Arc::default();
    let log = Log::of((0..10).map(|at| batch(at * 10, 10)));
    let script = |own: i32| {
        let (leader, addrs, log) = (Arc::clone(&leader), Arc::clone(&addrs), log.clone());
        move |request: &Request, addr| match request.api {
            ApiKey::Metadata => {
                let led = leader.load(Ordering::SeqCst);
                request.respond(&metadata(&addrs.lock(), &topic(), &|_| (led < 2).then_some(led)))
            }
            ApiKey::Fetch => {
                let offset = request.fetch().topics[0].partitions[0].fetch_offset;
                match (own, leader.load(Ordering::SeqCst)) {
                    // At 50 the first leader loses the lead, for a moment to nobody.
                    (0, 0) if offset == 50 => {
                        leader.store(2, Ordering::SeqCst);
                        FetchAnswer::error(6).to(request)
                    }
                    (0, 0) | (1, 1) => log.answer(request).to(request),
                    _ => FetchAnswer::error(74).to(request),
                }
            }
            _ => proper(request, addr, &topic()).unwrap(),
        }
    };
    let (first, second) = (FakeBroker::start(script(0)).await, FakeBroker::start(script(1)).await);
    addrs.lock().extend([first.addr, second.addr]);
    let cluster = Cluster::connect(ClusterConfig {
        retry: tidegate_client::RetryLimits { attempts: 1_000, ..config("").retry },
        ..config(first.bootstrap())
    })
    .await
    .unwrap();
    let one_by_one = ReaderOptions { max_partition_fetch_bytes: Some(1), ..options() };
    let mut reader = cluster.read(slice("t", 0, 0, 100), one_by_one);
    let mut read = Vec::new();
    while reader.position() < 50 {
        let chunk = reader.next().await.unwrap().unwrap();
        read.extend(chunk.batches.iter().flat_map(|b| b.records()).map(|r| r.unwrap().offset));
    }
    eventually("the loss of the lead", || leader.load(Ordering::SeqCst) == 2).await;
    leader.store(1, Ordering::SeqCst);
    let (rest, result) = drain(&mut reader).await;
    result.unwrap();
    read.extend(rest);
    assert_eq!(read, offsets(0..100));
}

#[tokio::test]
async fn a_cut_connection_is_made_anew_and_the_read_goes_on() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let log = Log::of((0..10).map(|at| batch(at * 10, 10)));
    let broker = FakeBroker::serving(topic(), move |request| {
        let Reply::Bytes(answer) = log.answer(request).to(request) else { panic!() };
        match count.fetch_add(1, Ordering::SeqCst) % 3 {
            // Cut in the middle of an answer.
            1 => Reply::Last(answer.slice(..answer.len() / 2)),
            2 => Reply::close(),
            _ => Reply::Bytes(answer),
        }
    })
    .await;
    let cluster = connect(broker.bootstrap()).await;
    let one_by_one = ReaderOptions { max_partition_fetch_bytes: Some(1), ..options() };
    let (read, result) = drain(&mut cluster.read(slice("t", 0, 0, 100), one_by_one)).await;
    result.unwrap();
    assert_eq!(read, offsets(0..100));
}

#[tokio::test]
async fn attempts_without_progress_end_and_each_cause_has_its_name() {
    type Expected = fn(&ReadError) -> bool;
    let cases: [(i16, usize, Expected); 4] = [
        (6, 4, |error| matches!(error, ReadError::Refused { offset: 0, .. })),
        (-1, 4, |error| matches!(error, ReadError::Refused { offset: 0, .. })),
        (29, 1, |error| matches!(error, ReadError::NotAuthorized { .. })),
        (2, 1, |error| matches!(error, ReadError::Refused { offset: 0, .. })),
    ];
    for (code, attempts, expected) in cases {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let broker = FakeBroker::serving(topic(), move |request| {
            count.fetch_add(1, Ordering::SeqCst);
            FetchAnswer::error(code).to(request)
        })
        .await;
        let cluster = connect(broker.bootstrap()).await;
        let (_, result, _) = read(&cluster, 0, 10).await;
        let error = result.unwrap_err();
        assert!(expected(&error), "code {code}: {error}");
        assert_eq!(asked.load(Ordering::SeqCst), attempts, "code {code}");
    }
    let broker = FakeBroker::serving(topic(), |request| FetchAnswer::error(3).to(request)).await;
    let cluster = connect(broker.bootstrap()).await;
    let mut reader = cluster.read(slice("t", 5, 0, 10), options());
    assert!(matches!(drain(&mut reader).await.1, Err(ReadError::UnknownPartition { .. })));
    let mut reader = cluster.read(slice("other", 0, 0, 10), options());
    assert!(matches!(drain(&mut reader).await.1, Err(ReadError::Metadata(_))));
}

#[tokio::test]
async fn a_reader_that_is_dropped_stops_fetching_and_closes_its_connection() {
    // Dropped while a fetch waits, while the queue is full, and before anything was sent.
    let log = Log::of((0..1_000).map(|at| batch(at, 1)));
    let fetches = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&fetches);
    let broker = FakeBroker::serving(topic(), move |request| {
        count.fetch_add(1, Ordering::SeqCst);
        match request.fetch().topics[0].partitions[0].fetch_offset {
            0..1_000 => log.answer(request).to(request),
            _ => Reply::Silence,
        }
    })
    .await;
    let cluster = connect(broker.bootstrap()).await;
    assert_eq!(broker.open_connections(), 1);

    let mut waiting = cluster.read(slice("t", 0, 1_000, 2_000), options());
    let asked = || broker.open_connections() == 2 && fetches.load(Ordering::SeqCst) > 0;
    tokio::select! {
        chunk = waiting.next() => panic!("{chunk:?}"),
        () = eventually("a fetch over a connection of its own", asked) => {}
    }
    drop(waiting);
    eventually("closing", || broker.open_connections() == 1).await;

    let one_by_one = ReaderOptions { max_partition_fetch_bytes: Some(1), ..options() };
    let budget = one_by_one.budget.clone();
    let mut full = cluster.read(slice("t", 0, 0, 1_000), one_by_one);
    full.next().await.unwrap().unwrap();
    let fetched = || fetches.load(Ordering::SeqCst);
    eventually("a full queue", || fetched() > 30).await;
    drop(full);
    eventually("closing", || broker.open_connections() == 1).await;
    let after = fetched();
    assert!(after < 1_000);
    assert_eq!(budget.used(), 0);

    drop(cluster.read(slice("t", 0, 0, 1_000), options()));
    eventually("closing", || broker.open_connections() == 1).await;
}

#[tokio::test]
async fn a_reader_that_is_done_holds_no_connection_although_it_is_kept() {
    let (broker, cluster) = serving(Log::of([batch(0, 5)])).await;
    let mut reader = cluster.read(slice("t", 0, 0, 5), options());
    let (_, result) = drain(&mut reader).await;
    result.unwrap();
    eventually("closing", || broker.open_connections() == 1).await;
    assert!(reader.next().await.is_none());
}

#[tokio::test]
async fn giving_up_on_next_loses_nothing() {
    let log = Log::of((0..50).map(|at| batch(at, 1)));
    let broker =
        FakeBroker::serving(topic(), move |request| log.answer(request).to(request).after(Duration::from_millis(3)))
            .await;
    let cluster = connect(broker.bootstrap()).await;
    let one_by_one = ReaderOptions { max_partition_fetch_bytes: Some(1), ..options() };
    let mut reader = cluster.read(slice("t", 0, 0, 50), one_by_one);
    let mut read = Vec::new();
    loop {
        match tokio::time::timeout(Duration::from_millis(1), reader.next()).await {
            Err(_) => {}
            Ok(None) => break,
            Ok(Some(chunk)) => {
                let chunk = chunk.unwrap();
                read.extend(chunk.batches.iter().flat_map(|b| b.records()).map(|r| r.unwrap().offset));
            }
        }
    }
    assert_eq!(read, offsets(0..50));
}

#[tokio::test]
async fn a_runtime_that_ends_under_the_reader_is_an_error_and_not_the_end() {
    let (_broker, cluster) = serving(Log::default()).await;
    let mut reader = {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let reader = runtime.spawn(async move { cluster.read(slice("t", 0, 0, 5), options()) }).await.unwrap();
        runtime.shutdown_background();
        reader
    };
    let end = reader.next().await.unwrap();
    assert!(matches!(end, Err(ReadError::TaskEnded { offset: 0, .. })), "{end:?}");
    assert!(reader.next().await.is_none());
    assert_eq!(reader.topic_partition().topic, name("t"));
}

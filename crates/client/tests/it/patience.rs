//! How long a reader waits, and for what: outages that heal, silence that does not, answers that are only slow.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::ApiKey;
use tidegate_client::{
    Cluster, ClusterConfig, Fetcher, FetcherOptions, MetadataError, ReadError, Reader, ReaderOptions, RequestFailure,
    RetryLimits, Slice,
};
use tidegate_model::TopicPartition;

use crate::fake::{FakeBroker, FakeTopic, FetchAnswer, Log, Reply, list_offsets, proper};
use crate::support::{batch, config, connect, drain, name, options, slice};

/// No test waits longer for what it expects, however slow the machine.
const AT_MOST: Duration = Duration::from_secs(60);

fn topic() -> FakeTopic {
    FakeTopic::new("t", 1)
}

/// Batches of ten records.
fn log(batches: i64) -> Log {
    Log::of((0..batches).map(|at| batch(at * 10, 10)))
}

/// One batch in each fetch.
fn one_by_one() -> ReaderOptions {
    ReaderOptions { max_partition_fetch_bytes: Some(1), ..options() }
}

fn following(start: i64) -> Slice {
    Slice::from(TopicPartition::new(name("t"), 0), start)
}

async fn ends(reader: &mut Reader) -> (Vec<i64>, Result<(), ReadError>) {
    tokio::time::timeout(AT_MOST, drain(reader)).await.expect("the reader comes to no end")
}

/// Reads until the offset before `end` came.
async fn read_up_to(reader: &mut Reader, end: i64) -> Vec<i64> {
    let mut offsets = Vec::new();
    while reader.position() < end {
        let chunk = tokio::time::timeout(AT_MOST, reader.next()).await.expect("nothing comes").unwrap().unwrap();
        let records = chunk.batches.iter().flat_map(|batch| batch.records());
        offsets.extend(records.map(|record| record.unwrap().offset));
    }
    offsets
}

#[tokio::test]
async fn failures_that_repeat_end_a_read_within_its_limits_although_it_is_watched() {
    // Silence, which the attempts end, and a leader that nobody is, which ends with the time to wait for one.
    for is_silent in [true, false] {
        let asked = AtomicUsize::new(0);
        let log = log(20);
        let broker = FakeBroker::serving(topic(), move |request| match asked.fetch_add(1, Ordering::SeqCst) {
            0 => log.answer(request).to(request),
            _ if is_silent => Reply::Silence,
            _ => FetchAnswer::error(5).to(request),
        })
        .await;
        let retry = RetryLimits { attempts: 20, deadline: Duration::from_secs(2), ..config("").retry };
        let request_timeout = Duration::from_millis(100);
        let config = ClusterConfig { request_timeout, retry, ..config(broker.bootstrap()) };
        let cluster = Cluster::connect(config).await.unwrap();
        // Longer than one failure takes, and far shorter than all of them.
        let watchdog = Duration::from_millis(400);
        let options = ReaderOptions { watchdog, stall_timeout: Duration::from_secs(2), ..one_by_one() };
        let slice = if is_silent { slice("t", 0, 0, 200) } else { following(0) };
        let (read, end) = ends(&mut cluster.read(slice, options)).await;
        assert_eq!(read, (0..10).collect::<Vec<_>>());
        match end {
            Err(ReadError::Request { source, .. }) if is_silent => {
                assert!(matches!(source.failure, RequestFailure::Timeout { .. }), "{source}");
            }
            Err(ReadError::Refused { code, .. }) if !is_silent => assert_eq!(code.0, 5),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn an_answer_that_takes_longer_than_the_watchdog_is_waited_for_while_it_comes() {
    let asked = AtomicUsize::new(0);
    let log = log(3);
    let broker = FakeBroker::serving(topic(), move |request| {
        let Reply::Bytes(answer) = log.answer(request).to(request) else { panic!() };
        match asked.fetch_add(1, Ordering::SeqCst) {
            0 => Reply::Bytes(answer),
            // More than a second in all.
            _ => Reply::Slowly(answer, Duration::from_millis(25)),
        }
    })
    .await;
    let cluster = connect(broker.bootstrap()).await;
    let options = ReaderOptions { watchdog: Duration::from_millis(300), ..one_by_one() };
    let mut reader = cluster.read(slice("t", 0, 0, 30), options);
    let (read, end) = ends(&mut reader).await;
    end.unwrap();
    assert_eq!(read, (0..30).collect::<Vec<_>>());
}

/// A broker that answers one fetch, closes every connection at the next `refusals` requests, whatever they ask, and then
/// answers again. How many it refused.
async fn out_for(refusals: usize) -> (FakeBroker, Arc<AtomicUsize>) {
    let refused = Arc::new(AtomicUsize::new(0));
    let (count, log, mut is_out) = (Arc::clone(&refused), log(3), false);
    let broker = FakeBroker::start(move |request, addr| {
        if is_out {
            is_out = count.fetch_add(1, Ordering::SeqCst) + 1 < refusals;
            return Reply::close();
        }
        if request.api == ApiKey::Fetch {
            is_out = count.load(Ordering::SeqCst) < refusals;
            return log.answer(request).to(request);
        }
        proper(request, addr, &topic()).unwrap()
    })
    .await;
    (broker, refused)
}

#[tokio::test]
async fn who_follows_a_log_outlasts_a_broker_that_is_away_and_a_bounded_read_gives_up_as_soon_as_ever() {
    let one_piece = FetcherOptions { fetches_in_flight: Some(1), ..FetcherOptions::default() };
    // Four attempts are made at one thing, of two requests each.
    let (broker, refused) = out_for(80).await;
    let cluster = connect(broker.bootstrap()).await;
    let mut reader = Fetcher::new(&cluster, one_piece.clone()).read(following(0), one_by_one());
    assert_eq!(read_up_to(&mut reader, 30).await, (0..30).collect::<Vec<_>>());
    assert_eq!(refused.load(Ordering::SeqCst), 80);

    let (broker, refused) = out_for(usize::MAX).await;
    let cluster = connect(broker.bootstrap()).await;
    let mut reader = Fetcher::new(&cluster, one_piece).read(slice("t", 0, 0, 30), one_by_one());
    let (read, end) = ends(&mut reader).await;
    assert_eq!(read, (0..10).collect::<Vec<_>>());
    let Err(ReadError::Metadata(MetadataError::Request(error))) = end else { panic!("{end:?}") };
    assert!(error.is_transient(), "{error}");
    // A fetch, and the attempts at metadata once.
    let refused = refused.load(Ordering::SeqCst);
    assert!(refused <= 1 + 4 * 2, "{refused}");
}

#[tokio::test]
async fn who_follows_a_log_outlasts_a_broker_that_does_not_tell_its_bounds() {
    // Asked for after a refusal, and to find out whether a batch behind a gap lies inside of the log.
    for out_of_range in [true, false] {
        let refused = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&refused);
        let log = Log::of([batch(0, 10), batch(30, 10)]);
        let broker = FakeBroker::serving(topic(), move |request| {
            let is_out = count.load(Ordering::SeqCst) < 30;
            if request.api == ApiKey::ListOffsets {
                return match is_out {
                    true => {
                        count.fetch_add(1, Ordering::SeqCst);
                        Reply::close()
                    }
                    false => list_offsets(request, |_, timestamp| (0, -1, if timestamp == -2 { 0 } else { 40 })),
                };
            }
            match request.fetch().topics[0].partitions[0].fetch_offset {
                10 if out_of_range && is_out => FetchAnswer::error(1).to(request),
                _ => FetchAnswer { high_watermark: 20, last_stable_offset: 20, ..log.answer(request) }.to(request),
            }
        })
        .await;
        let cluster = connect(broker.bootstrap()).await;
        let mut reader = cluster.read(following(0), one_by_one());
        let expected: Vec<i64> = (0..10).chain(30..40).collect();
        assert_eq!(read_up_to(&mut reader, 40).await, expected);
        assert_eq!(refused.load(Ordering::SeqCst), 30);
    }
}

#[tokio::test]
async fn pieces_that_are_throttled_together_stand_still_for_as_long_as_one() {
    let value = vec![b'v'; 8 << 10];
    let batches = (0..400).map(|offset| {
        let options = tidegate_wire::BatchOptions { base_offset: offset, ..tidegate_wire::BatchOptions::default() };
        let mut writer = tidegate_wire::BatchWriter::new(options);
        writer.push(1, None, Some(&value), []).unwrap();
        writer.finish().unwrap()
    });
    let log = Log::of(batches);
    let most_in_a_row = Arc::new(AtomicUsize::new(0));
    let (most, mut in_a_row, mut asked) = (Arc::clone(&most_in_a_row), 0, HashSet::new());
    let broker = FakeBroker::serving(topic(), move |request| {
        let answer = log.answer(request);
        let offset = request.fetch().topics[0].partitions[0].fetch_offset;
        // The first fetch of each piece but the first comes back empty.
        if offset == 0 || !asked.insert(offset) {
            in_a_row = 0;
            return answer.to(request);
        }
        in_a_row += 1;
        most.fetch_max(in_a_row, Ordering::SeqCst);
        FetchAnswer { records: Bytes::new(), throttle_ms: 500, ..answer }.to(request)
    })
    .await;
    let cluster = connect(broker.bootstrap()).await;
    let fetcher = Fetcher::new(&cluster, FetcherOptions { fetches_in_flight: Some(32), ..FetcherOptions::default() });
    let options = ReaderOptions {
        max_partition_fetch_bytes: Some(64 << 10),
        stall_timeout: Duration::from_secs(2),
        budget: tidegate_client::ByteBudget::new(32 << 20),
        ..options()
    };
    let mut reader = fetcher.read(slice("t", 0, 0, 400), options);
    let (read, end) = ends(&mut reader).await;
    end.unwrap();
    assert_eq!(read, (0..400).collect::<Vec<_>>());
    // Twice as long as the reader may stand still, if each counted.
    assert!(most_in_a_row.load(Ordering::SeqCst) >= 8, "{most_in_a_row:?}");
}

//! How long a reader waits, and for what: outages that heal, silence that does not, answers that are only slow.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_client::{
    Cluster, ClusterConfig, ReadError, Reader, ReaderOptions, RequestFailure, RetryLimits, Slice,
};
use tidegate_model::TopicPartition;

use crate::fake::{FakeBroker, FakeTopic, FetchAnswer, Log, Reply};
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

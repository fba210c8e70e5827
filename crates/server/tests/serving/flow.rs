//! Flow: what flushes, what waits, what stops.

use std::time::Duration;

use futures_util::StreamExt as _;
use tidegate_api::{ApiError, Code};
use tidegate_server::engine::{EngineLimits, ReadRangeError, ReadRequest};

use crate::proxy::Hold;
use crate::support::{DAY_MS, Each, Frame, OnFlush, Setup, World, complete, places, soon, take};

#[tokio::test]
async fn records_go_out_although_another_partition_keeps_the_read_waiting() {
    let world = World::start().await;
    world.create("events", 2).await;
    for partition in 0..2 {
        world.append("events", partition, &[(DAY_MS, b"v"); 3]).await;
    }
    world.proxy.hold(Hold::First);
    let mut stream = world.engine.plan_read(ReadRequest::new("events")).await.unwrap().stream(OnFlush::default());
    // The encoder gives nothing out by itself, and the other partition's answer is held: only a flush can bring these.
    let first = soon("the flush", take(&mut stream, 3)).await;
    let partition = first[0].partition;
    assert_eq!(places(&first), (0..3).map(|offset| (partition, offset)).collect::<Vec<_>>());
    world.proxy.release();
    let (rest, end) = soon("the rest", complete(stream)).await.unwrap();
    assert_eq!(places(&rest), (0..3).map(|offset| (1 - partition, offset)).collect::<Vec<_>>());
    assert!(end.exhaustive);
}

#[tokio::test]
async fn dropping_a_stream_stops_its_fetching() {
    let limits = EngineLimits { per_request_budget_bytes: 64 << 10, ..EngineLimits::default() };
    let world = World::with(Setup { limits, ..Setup::default() }).await;
    world.create("events", 1).await;
    world.fill("events", 1_000, 4 << 10).await;
    let free = world.engine.available_reads();

    let mut stream = world.engine.plan_read(ReadRequest::new("events")).await.unwrap().stream(Each);
    take(&mut stream, 1).await;
    assert_eq!(world.engine.available_reads(), free - 1);
    drop(stream);
    assert_eq!(world.engine.available_reads(), free);
    soon("the end of fetching", world.proxy.no_fetching()).await;

    // Also while a fetch is on its way.
    world.proxy.hold(Hold::All);
    let seen = world.proxy.fetches_so_far();
    let mut stream = world.engine.plan_read(ReadRequest::new("events")).await.unwrap().stream(Each);
    tokio::select! {
        frame = stream.next() => panic!("{frame:?}"),
        () = world.proxy.fetches(seen + 1) => {}
    }
    drop(stream);
    soon("the end of fetching", world.proxy.no_fetching()).await;
}

#[tokio::test]
async fn a_reader_that_stands_still_fetches_no_more_than_its_budget_and_holds_up_nobody() {
    let limits = EngineLimits {
        per_request_budget_bytes: 256 << 10,
        max_partition_fetch_bytes: Some(64 << 10),
        ..EngineLimits::default()
    };
    let world = World::with(Setup { limits, ..Setup::default() }).await;
    world.create("events", 1).await;
    world.fill("events", 2_000, 4 << 10).await;
    let mut slow = world.engine.plan_read(ReadRequest::new("events")).await.unwrap().stream(Each);
    let mut records = take(&mut slow, 1).await;
    // Until it fetches nothing more.
    let mut seen = 0;
    while seen < world.proxy.fetches_so_far() {
        seen = world.proxy.fetches_so_far();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // Its budget holds four fetches; a few more were in hand.
    assert!(seen <= 12, "{seen} fetches");

    for _ in 0..3 {
        let (fast, end) = soon("the other reader", world.read(ReadRequest::new("events"))).await;
        assert_eq!((fast.len(), end.exhaustive), (2_000, true));
    }
    let (rest, end) = complete(slow).await.unwrap();
    records.extend(rest);
    assert_eq!((records.len(), end.exhaustive), (2_000, true));
}

#[tokio::test]
async fn one_read_too_many_is_refused_and_may_be_tried_again() {
    let limits = EngineLimits { max_concurrent_reads: 2, ..EngineLimits::default() };
    let world = World::with(Setup { limits, ..Setup::default() }).await;
    world.create("events", 1).await;
    let first = world.engine.plan_read(ReadRequest::new("events")).await.unwrap();
    let second = world.engine.plan_read(ReadRequest::new("events")).await.unwrap().stream(Each);
    let error = world.refusal(ReadRequest::new("events")).await;
    assert_eq!((error.code, error.entry().http.as_u16(), error.entry().retryable), (Code::TooManyReads, 429, true));
    // A refused read takes no place, and one that fails gives its place back.
    drop(first);
    assert_eq!(world.refusal(ReadRequest::new("missing")).await.code, Code::UnknownTopic);
    world.read(ReadRequest::new("events")).await;
    drop(second);
    assert_eq!(world.engine.available_reads(), 2);
}

#[tokio::test]
async fn a_stopped_engine_ends_its_reads_with_an_error_and_begins_no_more() {
    let world = World::start().await;
    world.create("events", 1).await;
    world.append("events", 0, &[(DAY_MS, b"v")]).await;
    world.proxy.hold(Hold::All);
    let mut stream = world.engine.plan_read(ReadRequest::new("events")).await.unwrap().stream(Each);
    tokio::select! {
        frame = stream.next() => panic!("{frame:?}"),
        () = world.proxy.fetches(1) => {}
    }
    world.engine.stop_reads();
    let error = soon("the error", stream.next()).await.unwrap().unwrap_err();
    assert!(matches!(error, ReadRangeError::ShuttingDown), "{error}");
    assert!(stream.next().await.is_none());
    assert_eq!(world.refusal(ReadRequest::new("events")).await.code, Code::ShuttingDown);
}

#[tokio::test]
async fn a_broker_that_goes_away_ends_the_read_with_an_error_and_not_with_a_statement() {
    let limits = EngineLimits { per_request_budget_bytes: 64 << 10, ..EngineLimits::default() };
    let world = World::with(Setup { limits, ..Setup::default() }).await;
    world.create("events", 1).await;
    world.fill("events", 2_000, 4 << 10).await;
    let mut stream = world.engine.plan_read(ReadRequest::new("events")).await.unwrap().stream(Each);
    take(&mut stream, 5).await;
    let World { broker, engine, .. } = world;
    broker.abort().await;
    let error = loop {
        match soon("the error", stream.next()).await {
            Some(Ok(Frame::Record(_))) => {}
            Some(Err(error)) => break ApiError::from(error),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((error.code, error.entry().retryable), (Code::ClusterUnavailable, true), "{error}");
    drop(engine);
}

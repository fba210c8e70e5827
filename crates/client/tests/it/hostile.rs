//! Brokers that answer garbage, lie about sizes or say nothing: a named error, a dropped connection, and no more memory than
//! what was really sent.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::ApiKey;
use kafka_protocol::messages::FetchResponse;
use tidegate_client::{
    Cluster, ClusterConfig, ConnectError, Fetcher, FetcherOptions, ListOffsetsError, MetadataError, OffsetQuery,
    ReadError, RequestError, RequestFailure, RetryLimits,
};
use tidegate_model::Isolation;

use crate::fake::{FakeBroker, FakeTopic, Reply, VERSIONS, api_versions, framed, proper};
use crate::support::{config, connect, drain, name, options, slice};

/// The one place of this crate's tests with `unsafe`: counting what is allocated takes a global allocator, and its trait is
/// unsafe to implement. It hands every call to the system's allocator unchanged, so that one's promises are kept; the
/// counters are plain cells of the thread, which neither allocate nor run a destructor. They count per thread, because tests
/// run side by side.
#[allow(unsafe_code)]
mod counting {
    use std::alloc::{GlobalAlloc, Layout, System};
    use std::cell::Cell;

    struct Counting;

    #[global_allocator]
    static COUNTING: Counting = Counting;

    thread_local! {
        static LIVE: Cell<isize> = const { Cell::new(0) };
        static PEAK: Cell<isize> = const { Cell::new(0) };
    }

    fn count(bytes: isize) {
        // A thread that is ending has no cells any more, and nothing to measure.
        let _ = LIVE.try_with(|live| {
            live.set(live.get() + bytes);
            let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
        });
    }

    // SAFETY: every method forwards its arguments to `System` as they are, whose contract is the same.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            count(layout.size().cast_signed());
            unsafe { System.alloc(layout) }
        }

        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            count(layout.size().cast_signed());
            unsafe { System.alloc_zeroed(layout) }
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            count(-layout.size().cast_signed());
            unsafe { System.dealloc(block, layout) }
        }

        unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
            // A block that moves is there twice for a moment.
            count(size.cast_signed());
            count(-layout.size().cast_signed());
            unsafe { System.realloc(block, layout, size) }
        }
    }

    /// What `work` returns, and the most bytes that it held at one time on this thread.
    pub(super) fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
        let before = LIVE.with(Cell::get);
        PEAK.with(|peak| peak.set(before));
        let result = work();
        let peak = PEAK.with(Cell::get) - before;
        (result, usize::try_from(peak).unwrap_or(0))
    }
}

/// A peer that reads a little, answers `bytes` and closes; the error of connecting to it, and the memory that took.
fn connect_to_peer(bytes: &'static [u8], config: impl FnOnce(String) -> ClusterConfig) -> (RequestError, usize) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let peer = std::thread::spawn(move || {
        // Whoever connects again finds the same.
        for stream in listener.incoming().take(2) {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(bytes);
        }
    });
    // One thread, so that all that is allocated is counted.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = config(addr.to_string());
    let (result, peak) = counting::peak_of(|| runtime.block_on(Cluster::connect(config)));
    let Err(ConnectError::Unreachable { failures }) = result else { panic!("connected") };
    // Ends the peer if it waits for a second connection.
    let _ = std::net::TcpStream::connect(addr);
    peer.join().unwrap();
    (failures.into_iter().next().unwrap(), peak)
}

const FLAT: usize = 1 << 20;

#[test]
fn a_tls_alert_is_called_tls_and_allocates_nothing() {
    let (error, peak) = connect_to_peer(&[0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x50], config);
    assert!(error.to_string().contains("TLS"), "{error}");
    assert!(peak < FLAT, "{peak} bytes");
}

#[test]
fn frames_of_negative_and_of_two_gigabytes_are_refused_and_allocate_nothing() {
    let (error, peak) = connect_to_peer(&[0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 0], config);
    assert!(matches!(error.failure, RequestFailure::Garbage { .. }), "{error}");
    assert!(peak < FLAT, "{peak} bytes");
    let (error, peak) = connect_to_peer(&[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0], config);
    assert!(
        matches!(error.failure, RequestFailure::TooLarge { bytes: 0x7fff_ffff, limit } if limit == 16 << 20),
        "{error}"
    );
    assert!(peak < FLAT, "{peak} bytes");
}

#[test]
fn a_frame_within_the_limit_that_does_not_come_takes_no_memory() {
    // One gigabyte is allowed and announced; eight bytes come.
    let allow = |bootstrap| ClusterConfig { max_response_bytes: 1 << 30, ..config(bootstrap) };
    let (error, peak) = connect_to_peer(&[0x40, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4], allow);
    assert!(matches!(error.failure, RequestFailure::ClosedAtOnce { .. }), "{error}");
    assert!(peak < FLAT, "{peak} bytes");
}

#[test]
fn a_count_that_lies_inside_a_frame_takes_no_memory() {
    // ApiVersions, version 3: no error, then 2^28 entries in an array of nothing.
    let frame: &[u8] = &[0, 0, 0, 11, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f, 0];
    let (error, peak) = connect_to_peer(frame, config);
    assert!(matches!(error.failure, RequestFailure::Garbage { .. }), "{error}");
    assert!(peak < FLAT, "{peak} bytes");
}

#[tokio::test]
async fn a_wrong_correlation_id_is_an_error_and_the_connection_is_dropped() {
    let broker = FakeBroker::serving(FakeTopic::new("t", 1), |request| match request.api {
        ApiKey::ListOffsets => Reply::Bytes(framed(&[0, 0, 0, 99, 0, 0, 0, 0])),
        _ => Reply::Silence,
    })
    .await;
    let cluster = connect(broker.bootstrap()).await;
    let error = cluster.list_offsets(&name("t"), &[(0, OffsetQuery::Latest)], Isolation::default()).await.unwrap_err();
    let ListOffsetsError::Request(error) = error else { panic!("{error}") };
    assert_eq!((error.broker.as_str(), error.request), (broker.bootstrap().as_str(), "ListOffsets"));
    assert!(error.to_string().contains("correlation id is 99"), "{error}");
    crate::support::eventually("closing", || broker.open_connections() == 0).await;
    // The next question gets a connection of its own.
    cluster.topic(&name("t")).await.unwrap();
}

#[tokio::test]
async fn an_answer_that_nobody_asked_for_drops_the_connection() {
    let broker = FakeBroker::start(|request, addr| match request.api {
        ApiKey::Metadata => {
            let Some(Reply::Bytes(answer)) = proper(request, addr, &FakeTopic::new("t", 1)) else { panic!() };
            Reply::Bytes(crate::support::set(&[answer.clone(), answer]))
        }
        _ => proper(request, addr, &FakeTopic::new("t", 1)).unwrap(),
    })
    .await;
    let cluster = connect(broker.bootstrap()).await;
    crate::support::eventually("closing", || broker.open_connections() == 0).await;
    cluster.topic(&name("t")).await.unwrap();
}

#[tokio::test]
async fn an_answer_that_is_garbage_fails_its_own_question_and_no_other() {
    let broker = FakeBroker::serving(FakeTopic::new("t", 2), |request| {
        match request.list_offsets().topics[0].partitions[0].partition_index {
            // Long enough for the other question to be on its way.
            0 => {
                let body = [&request.correlation_id.to_be_bytes()[..], &[0xff; 9]].concat();
                Reply::Bytes(framed(&body)).after(Duration::from_millis(100))
            }
            _ => crate::fake::list_offsets(request, |_, _| (0, -1, 7)),
        }
    })
    .await;
    let cluster = connect(broker.bootstrap()).await;
    let topic = name("t");
    cluster.topic(&topic).await.unwrap();
    let ask = async |partition| {
        let queries = [(partition, OffsetQuery::Latest)];
        cluster.list_offsets(&topic, &queries, Isolation::default()).await
    };
    let (garbage, sound) = tokio::join!(ask(0), ask(1));
    let Err(ListOffsetsError::Request(error)) = garbage else { panic!("{garbage:?}") };
    assert!(matches!(error.failure, RequestFailure::Garbage { .. }), "{error}");
    assert_eq!(sound.unwrap()[0].found.unwrap().offset, 7);
}

#[tokio::test]
async fn an_answer_that_is_too_large_fails_its_own_partition_and_no_other() {
    let log = crate::fake::Log::of((0..3).map(|at| crate::support::batch(at * 10, 10)));
    let broker = FakeBroker::serving(FakeTopic::new("t", 2), move |request| {
        match request.fetch().topics[0].partitions[0].partition {
            // Long enough for the other fetch to be on its way.
            0 => Reply::Bytes(Bytes::from_static(&[0x03, 0, 0, 0])).after(Duration::from_millis(100)),
            _ => log.answer(request).to(request),
        }
    })
    .await;
    let cluster = connect(broker.bootstrap()).await;
    cluster.topic(&name("t")).await.unwrap();
    // Both fetches go over one connection.
    let one_lane =
        FetcherOptions { connections_per_broker: 1, fetches_in_flight: Some(2), ..FetcherOptions::default() };
    let fetcher = Fetcher::new(&cluster, one_lane);
    let (mut large, mut sound) =
        (fetcher.read(slice("t", 0, 0, 30), options()), fetcher.read(slice("t", 1, 0, 30), options()));
    let (large, sound) = tokio::join!(drain(&mut large), drain(&mut sound));
    assert!(matches!(large.1, Err(ReadError::BatchTooLarge { .. })), "{large:?}");
    sound.1.unwrap();
    assert_eq!(sound.0, (0..30).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_silent_broker_is_a_timeout_that_names_broker_and_request() {
    let broker = FakeBroker::start(|_, _| Reply::Silence).await;
    // Long enough for a busy machine to come to ApiVersions.
    let impatient = ClusterConfig { connect_timeout: Duration::from_secs(2), ..config(broker.bootstrap()) };
    let Err(error) = Cluster::connect(impatient).await else { panic!("connected") };
    let text = error.to_string();
    assert!(text.contains(&broker.bootstrap()) && text.contains("ApiVersions") && text.contains("no answer"), "{text}");

    let broker = FakeBroker::serving(FakeTopic::new("t", 1), |_| Reply::Silence).await;
    let once = RetryLimits { attempts: 1, ..config("").retry };
    let impatient =
        ClusterConfig { request_timeout: Duration::from_secs(2), retry: once, ..config(broker.bootstrap()) };
    let cluster = Cluster::connect(impatient).await.unwrap();
    let topic = name("t");
    let mut reader = cluster.read(slice("t", 0, 0, 10), options());
    let (answers, (_, end)) = tokio::join!(
        cluster.list_offsets(&topic, &[(0, OffsetQuery::Latest)], Isolation::default()),
        drain(&mut reader)
    );
    let text = answers.unwrap_err().to_string();
    assert!(text.contains(&broker.bootstrap()) && text.contains("ListOffsets") && text.contains("no answer"), "{text}");
    let text = end.unwrap_err().to_string();
    assert!(text.contains(&broker.bootstrap()) && text.contains("Fetch") && text.contains("no answer"), "{text}");
}

#[tokio::test]
async fn a_broker_that_takes_no_connection_is_named() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let Err(error) = Cluster::connect(config(free.to_string())).await else { panic!("connected") };
    let ConnectError::Unreachable { failures } = &error else { panic!("{error}") };
    assert!(matches!(failures[0].failure, RequestFailure::Connect(_)), "{error}");
    assert!(error.to_string().contains(&free.to_string()), "{error}");
}

#[tokio::test]
async fn addresses_that_are_none_are_refused_before_anything_is_sent() {
    assert!(matches!(Cluster::connect(ClusterConfig::new([] as [&str; 0])).await, Err(ConnectError::NoBootstrap)));
    for address in ["localhost", "localhost:", ":9092", "localhost:90920", "localhost:kafka"] {
        let result = Cluster::connect(ClusterConfig::new([address])).await;
        assert!(matches!(result, Err(ConnectError::Address { .. })), "{address}");
    }
}

#[tokio::test]
async fn the_second_bootstrap_broker_serves_when_the_first_does_not() {
    let bad = FakeBroker::start(|_, _| Reply::close()).await;
    let good = FakeBroker::serving(FakeTopic::new("t", 1), |_| Reply::Silence).await;
    let config = ClusterConfig { bootstrap: vec![bad.bootstrap(), good.bootstrap()], ..config("") };
    let cluster = Cluster::connect(config).await.unwrap();
    cluster.topic(&name("t")).await.unwrap();
}

#[tokio::test]
async fn a_fetch_answer_about_something_else_is_an_error_and_final() {
    let broker =
        FakeBroker::serving(FakeTopic::new("t", 1), |request| request.respond(&FetchResponse::default())).await;
    let cluster = connect(broker.bootstrap()).await;
    let (offsets, end) = drain(&mut cluster.read(slice("t", 0, 0, 10), options())).await;
    assert!(offsets.is_empty());
    let Err(ReadError::Request { source, .. }) = end else { panic!("{end:?}") };
    assert!(matches!(source.failure, RequestFailure::Garbage { .. }), "{source}");
}

#[tokio::test]
async fn a_response_larger_than_the_limit_is_called_a_large_batch() {
    let broker =
        FakeBroker::serving(FakeTopic::new("t", 1), |_| Reply::Bytes(Bytes::from_static(&[0x03, 0, 0, 0, 1, 2, 3, 4])))
            .await;
    let cluster = connect(broker.bootstrap()).await;
    let (_, end) = drain(&mut cluster.read(slice("t", 0, 0, 10), options())).await;
    assert!(
        matches!(end, Err(ReadError::BatchTooLarge { offset: 0, bytes, limit, .. })
            if bytes == 0x0300_0000 && limit == 16 << 20),
        "{end:?}"
    );
}

#[tokio::test]
async fn a_broker_without_a_common_version_is_told_apart() {
    let newer = FakeTopic::new("t", 1).with_version(ApiKey::Fetch, 13, 17);
    let broker = FakeBroker::serving(newer, |_| Reply::Silence).await;
    let cluster = connect(broker.bootstrap()).await;
    let (_, end) = drain(&mut cluster.read(slice("t", 0, 0, 10), options())).await;
    let text = end.unwrap_err().to_string();
    assert!(text.contains("13 to 17") && text.contains("4 to 12"), "{text}");

    let silent = FakeBroker::start(|request, _| match request.api {
        ApiKey::ApiVersions => request.respond(&api_versions(&VERSIONS[..1])),
        _ => Reply::Silence,
    })
    .await;
    let Err(error) = Cluster::connect(config(silent.bootstrap())).await else { panic!("connected") };
    assert!(error.to_string().contains("Metadata") && error.to_string().contains("none"), "{error}");
}

#[tokio::test]
async fn metadata_that_contradicts_itself_is_an_error() {
    let broker = FakeBroker::start(|request, addr| match request.api {
        ApiKey::Metadata => {
            let mut metadata = crate::fake::metadata(&[addr], &FakeTopic::new("t", 2), &|_| Some(0));
            for partition in &mut metadata.topics[0].partitions {
                partition.partition_index = 0;
            }
            if request.connection == 0 && request.correlation_id == 1 {
                metadata.topics.clear();
            }
            request.respond(&metadata)
        }
        _ => proper(request, addr, &FakeTopic::new("t", 1)).unwrap(),
    })
    .await;
    let cluster = connect(broker.bootstrap()).await;
    let error = cluster.topic(&name("t")).await.unwrap_err();
    assert!(matches!(error, MetadataError::Request(_)), "{error}");
}

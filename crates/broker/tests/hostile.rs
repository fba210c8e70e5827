//! Bytes that nobody sends who means well: each harms its own connection at most, and none costs memory.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, unreachable_pub, dead_code)]
// Counting allocations takes an allocator of one's own, and `GlobalAlloc` is unsafe to implement. It only counts.
#![allow(unsafe_code)]

mod common;
#[path = "hostile/pressure.rs"]
mod pressure;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{BufMut, Bytes};
use common::*;
use kafka_protocol::messages::{
    ApiVersionsRequest, CreateTopicsRequest, DeleteRecordsRequest, DescribeConfigsRequest, FetchRequest,
    ListOffsetsRequest, MetadataRequest, ProduceRequest,
};
use proptest::prelude::*;
use tidegate_broker::{Broker, BrokerLimits, RequestError, decode_request};
use tidegate_model::Compression;
use tidegate_wire::compression::compress;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::timeout;

struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// All that was ever allocated.
static TOTAL: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        TOTAL.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The tests of this file measure one process, so they take turns.
static TURN: Mutex<()> = Mutex::const_new(());

const MIB: usize = 1 << 20;

/// ConsumerGroupDescribe.
const NOT_SERVED: i16 = 69;

/// The most that was allocated during `work` beyond what was before.
async fn peak<T>(work: impl Future<Output = T>) -> (usize, T) {
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let result = work.await;
    (PEAK.load(Ordering::Relaxed).saturating_sub(before), result)
}

fn frame(api_key: i16, version: i16, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    bytes.put_i16(api_key);
    bytes.put_i16(version);
    bytes.put_i32(1);
    bytes.put_i16(-1);
    bytes.extend(body);
    let size = i32::try_from(bytes.len() - 4).unwrap();
    bytes[..4].copy_from_slice(&size.to_be_bytes());
    bytes
}

/// Sends bytes on a connection of their own and reads until the broker hangs up or has answered `answers` times.
async fn send(broker: &Broker, bytes: &[u8], answers: usize) -> usize {
    let mut stream = TcpStream::connect(broker.addr()).await.unwrap();
    // The broker may hang up before all is sent.
    let _ = stream.write_all(bytes).await;
    let mut got = 0;
    while got < answers {
        let Ok(size) = stream.read_i32().await else { break };
        let mut left = u64::try_from(size).unwrap();
        let mut sink = vec![0; 64 * 1024];
        while left > 0 {
            let piece = usize::try_from(left).unwrap_or(usize::MAX).min(sink.len());
            let Ok(count) = stream.read(&mut sink[..piece]).await else { return got };
            if count == 0 {
                return got;
            }
            left -= count as u64;
        }
        got += 1;
    }
    got
}

/// That the broker still serves others.
async fn assert_alive(broker: &Broker) {
    let mut client = Client::connect(broker.addr()).await;
    let answer = timeout(Duration::from_secs(20), client.call(&ApiVersionsRequest::default(), 3)).await.unwrap();
    assert_eq!(answer.error_code, 0);
}

#[tokio::test]
async fn lying_lengths_unknown_apis_and_other_protocols_close_their_connection_only() {
    let _turn = TURN.lock().await;
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let not_served = decode_request(frame(NOT_SERVED, 0, &[0; 20])[4..].to_vec().into()).unwrap_err();
    assert!(matches!(not_served, RequestError::UnknownApi { api_key: NOT_SERVED, .. }), "{not_served}");
    let two_billion = i32::MAX.to_be_bytes();
    let mut cases: Vec<(&str, Vec<u8>)> = vec![
        ("a negative size", vec![0xff; 4]),
        ("a size of 2 GiB", [&two_billion[..], &[0, 18, 0, 3]].concat()),
        ("a size of 60 MiB for a fetch", [&(60 * 1024 * 1024_i32).to_be_bytes()[..], &[0, 1, 0, 12]].concat()),
        ("an empty frame", vec![0; 4]),
        ("a TLS client hello", vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]),
        ("an HTTP request", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec()),
        ("an unknown api", frame(999, 0, &[])),
        ("a negative api", frame(-1, -1, &[])),
        ("an api that is not served", frame(NOT_SERVED, 0, &[0; 20])),
        ("a version from the past", frame(0, 0, &[0; 20])),
        ("a version from the future", frame(1, 99, &[0; 20])),
        ("a header that ends early", vec![0, 0, 0, 9, 0, 18, 0, 0, 0, 0, 0, 1, 0]),
        ("a client id that is longer than the frame", vec![0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0x7f, 0xff]),
        ("a fetch of two billion topics", frame(1, 4, &[&[0; 17][..], &two_billion].concat())),
        ("a fetch of two billion partitions", {
            let body = [&[0; 17][..], &[0, 0, 0, 1, 0, 1, b't'], &two_billion].concat();
            frame(1, 4, &body)
        }),
        (
            "two billion topics in a produce request",
            frame(0, 3, &[&[0xff, 0xff, 0, 1, 0, 0, 0, 0], &two_billion[..]].concat()),
        ),
        ("two billion bytes of records", {
            let body =
                [&[0xff, 0xff, 0, 1, 0, 0, 0, 0][..], &[0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 0], &two_billion];
            frame(0, 3, &body.concat())
        }),
        ("two billion topics in metadata", frame(3, 1, &two_billion)),
        ("negative lengths", frame(3, 1, &[0x80, 0, 0, 0])),
        ("two billion tagged fields", frame(18, 3, &[0, 1, 1, 0xff, 0xff, 0xff, 0xff, 0x0f])),
        ("a topic name that is not UTF-8", frame(3, 1, &[0, 0, 0, 1, 0, 2, 0xff, 0xfe])),
    ];
    cases.push(("a size that never comes", vec![0, 0, 0, 100]));
    for (what, bytes) in cases {
        let (memory, answers) = peak(async {
            if what == "a size that never comes" {
                let mut stream = TcpStream::connect(broker.addr()).await.unwrap();
                stream.write_all(&bytes).await.unwrap();
                return 0;
            }
            timeout(Duration::from_secs(20), send(&broker, &bytes, 1))
                .await
                .unwrap_or_else(|_| panic!("{what}: no end"))
        })
        .await;
        assert_eq!(answers, 0, "{what} was answered");
        assert!(memory < MIB, "{what} cost {memory} bytes");
        assert_alive(&broker).await;
    }
}

#[tokio::test]
async fn the_largest_requests_of_the_smallest_elements_stay_within_a_few_times_their_size() {
    let _turn = TURN.lock().await;
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path()).await;
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 100, &[]).await;
    let limits = BrokerLimits::default();
    let fill = |api_key: i16, version: i16, head: &[u8], element: &[u8], count_at: usize, limit: usize| {
        let count = (limit - 64 - head.len()) / element.len();
        let mut body = head.to_vec();
        body[count_at..count_at + 4].copy_from_slice(&i32::try_from(count).unwrap().to_be_bytes());
        for _ in 0..count {
            body.extend(element);
        }
        frame(api_key, version, &body)
    };
    let most = limits.max_request_bytes;
    let requests: Vec<(&str, Vec<u8>)> = vec![
        ("metadata of one topic, again and again", fill(3, 1, &[0; 4], &[0, 1, b't'], 0, most)),
        ("metadata of topics without a name", fill(3, 1, &[0; 4], &[0, 0], 0, most)),
        ("a fetch of topics without partitions", fill(1, 4, &[0; 21], &[0, 0, 0, 0, 0, 0], 17, most)),
        ("a fetch of one partition, again and again", {
            let head = [&[0; 17][..], &[0, 0, 0, 1, 0, 1, b't'], &[0; 4]].concat();
            fill(1, 4, &head, &[0; 16], 24, most)
        }),
        ("offsets of topics without partitions", fill(2, 1, &[0; 8], &[0, 0, 0, 0, 0, 0], 4, most)),
        ("the config of one topic, again and again", {
            fill(32, 1, &[0; 4], &[2, 0, 1, b't', 0xff, 0xff, 0xff, 0xff], 0, most)
        }),
        ("protocols of nothing to join with", {
            let head = [&[0, 1, b'g'][..], &30_000_i32.to_be_bytes(), &[0; 4], &[0; 4], &[0; 4]].concat();
            fill(11, 4, &head, &[0; 6], 15, most)
        }),
        ("assignments of nothing", fill(14, 2, &[&[0, 1, b'g'][..], &[0; 10]].concat(), &[0; 6], 9, most)),
        ("nobody leaves, again and again", fill(13, 3, &[0, 1, b'g', 0, 0, 0, 0], &[0, 0, 0xff, 0xff], 3, most)),
        ("offsets for one partition, again and again", {
            let head =
                [&[0, 1, b'g', 0xff, 0xff, 0xff, 0xff][..], &[0; 10], &[0, 0, 0, 1, 0, 1, b't'], &[0; 4]].concat();
            fill(8, 2, &head, &[0; 14], 24, most)
        }),
        ("offsets of topics without partitions committed", {
            let head = [&[0, 1, b'g', 0xff, 0xff, 0xff, 0xff][..], &[0; 10], &[0; 4]].concat();
            fill(8, 2, &head, &[0; 6], 17, most)
        }),
        ("the committed offset of as many partitions as fit", {
            let mut request = fill(9, 1, &[0, 1, b'g', 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 0], &[0; 4], 10, most);
            let begin = request.len() - (most - 64 - 14) / 4 * 4;
            for (number, partition) in request[begin..].chunks_exact_mut(4).enumerate() {
                partition.copy_from_slice(&u32::try_from(number).unwrap().to_be_bytes());
            }
            request
        }),
        ("one group, again and again", fill(15, 0, &[0; 4], &[0, 1, b'g'], 0, most)),
        ("groups without a name to be deleted", fill(42, 0, &[0; 4], &[0, 0], 0, most)),
        ("configs without a name", {
            fill(33, 0, &[0, 0, 0, 1, 2, 0, 1, b't', 0, 0, 0, 0], &[0, 0, 0xff, 0xff], 8, most)
        }),
        ("topics without a name to get more partitions", {
            fill(37, 0, &[0; 4], &[0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff], 0, most)
        }),
        ("partitions for a transaction", {
            let head = [&[0; 12][..], &[0, 0, 0, 1, 0, 1, b't'], &[0; 4]].concat();
            fill(24, 0, &head, &[0; 4], 19, most)
        }),
        ("topics without a name to be created", fill(19, 2, &[0; 4], &[0; 16], 0, most)),
        ("records of topics without partitions", {
            fill(0, 3, &[&[0xff, 0xff, 0, 1, 0, 0, 0, 0][..], &[0; 4]].concat(), &[0; 6], 8, limits.max_produce_bytes)
        }),
    ];
    for (what, request) in requests {
        let (memory, _) = peak(async {
            // Dropped before the broker answers, so that only the broker's own memory counts while it does.
            timeout(Duration::from_secs(60), send(&broker, &request, 1))
                .await
                .unwrap_or_else(|_| panic!("{what}: no end"))
        })
        .await;
        assert!(memory < 24 * MIB + 4 * request.len(), "{what}: {memory} bytes for a request of {}", request.len());
        assert_alive(&broker).await;
    }
}

#[tokio::test]
async fn a_bomb_is_refused_within_its_cap() {
    let _turn = TURN.lock().await;
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.limits.max_decompressed_bytes = 4 * MIB;
    let broker = Broker::start(config).await.unwrap();
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 1, &[]).await;
    for (codec, number) in [(Compression::Gzip, 1_u8), (Compression::Lz4, 3), (Compression::Zstd, 4)] {
        let zeros = vec![0; 200 * MIB];
        let packed = compress(codec, &zeros).unwrap();
        drop(zeros);
        // A header of one record, and two hundred megabytes of zeros behind it.
        let mut batch = batch(&[1]).to_vec();
        batch.truncate(61);
        batch.extend(&packed);
        let length = i32::try_from(batch.len() - 12).unwrap();
        batch[8..12].copy_from_slice(&length.to_be_bytes());
        batch[22] = number;
        let crc = crc32c::crc32c(&batch[21..]);
        batch[17..21].copy_from_slice(&crc.to_be_bytes());
        if batch.len() > 1_000_000 {
            continue;
        }
        let (memory, answer) = peak(client.produce("t", 0, batch.into())).await;
        assert_eq!(answer.error_code, 10, "{codec:?}: {answer:?}");
        assert!(memory < 16 * MIB, "{codec:?}: {memory} bytes");
    }
}

#[tokio::test]
async fn requests_that_stop_halfway_hold_no_more_than_they_sent() {
    let _turn = TURN.lock().await;
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.limits.frame_timeout = Duration::from_secs(1);
    let broker = Broker::start(config).await.unwrap();
    let claim = [&(60 * 1024 * 1024_i32).to_be_bytes()[..], &[0, 0, 0, 9, 0, 0, 0, 1, 0, 0]].concat();
    let (memory, streams) = peak(async {
        let mut streams = Vec::new();
        for _ in 0..200 {
            let mut stream = TcpStream::connect(broker.addr()).await.unwrap();
            stream.write_all(&claim).await.unwrap();
            streams.push(stream);
        }
        assert_alive(&broker).await;
        streams
    })
    .await;
    assert!(memory < 8 * MIB, "{memory} bytes for 200 claims of 60 MiB");
    // Their time runs out, and others get their turn.
    for mut stream in streams {
        assert_eq!(timeout(Duration::from_secs(20), stream.read(&mut [0])).await.unwrap().unwrap_or(0), 0);
    }
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 1, &[]).await;
    assert_eq!(client.produce("t", 0, batch_of_value(&vec![1; MIB / 2])).await.error_code, 0);
}

#[tokio::test]
async fn more_connections_than_allowed_are_closed_and_the_allowed_ones_go_on() {
    let _turn = TURN.lock().await;
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.limits.max_connections = 5;
    let broker = Broker::start(config).await.unwrap();
    let mut inside = Vec::new();
    for _ in 0..5 {
        let mut client = Client::connect(broker.addr()).await;
        client.call(&ApiVersionsRequest::default(), 3).await;
        inside.push(client);
    }
    for _ in 0..20 {
        let mut stream = TcpStream::connect(broker.addr()).await.unwrap();
        assert_eq!(timeout(Duration::from_secs(20), stream.read(&mut [0])).await.unwrap().unwrap_or(0), 0);
    }
    for client in &mut inside {
        client.call(&ApiVersionsRequest::default(), 3).await;
    }
}

#[tokio::test]
async fn readers_that_take_nothing_hold_no_more_than_the_budget() {
    let _turn = TURN.lock().await;
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.limits.response_memory_bytes = 8 * MIB;
    // The honest reader below is held to it too.
    config.limits.write_timeout = Duration::from_secs(1);
    let broker = Broker::start(config).await.unwrap();
    let mut client = Client::connect(broker.addr()).await;
    client.create_topic("t", 1, &[]).await;
    for _ in 0..40 {
        assert_eq!(client.produce("t", 0, batch_of_value(&vec![1; MIB - 1000])).await.error_code, 0);
    }
    let request = encode(&fetch_request("t", 0, 0, 32 << 20, 1, 0), FETCH, 1);
    let (memory, ()) = peak(async {
        let mut streams = Vec::new();
        for _ in 0..20 {
            let mut stream = TcpStream::connect(broker.addr()).await.unwrap();
            stream.write_all(&request).await.unwrap();
            streams.push(stream);
        }
        // It waits for those who read nothing to be given up.
        let found = timeout(Duration::from_secs(240), client.fetch("t", 0, 39)).await.unwrap();
        assert_eq!(found.error_code, 0);
        assert_eq!(stored(found.records.unwrap()).len(), 1);
    })
    .await;
    assert!(memory < 24 * MIB, "{memory} bytes");
}

fn decodes_within_bounds(bytes: Vec<u8>) {
    // Whatever it says, it must come back and not panic.
    match decode_request(Bytes::from(bytes)) {
        Ok(request) => assert!(request.api_key() >= 0),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_frame_makes_the_decoder_panic(
        api in 0_i16..70, version in -1_i16..20, body in prop::collection::vec(any::<u8>(), 0..200)
    ) {
        decodes_within_bounds(frame(api, version, &body)[4..].to_vec());
    }

    #[test]
    fn no_changed_or_cut_request_makes_the_decoder_panic(
        which in 0_usize..8, version in 0_i16..17, at in any::<prop::sample::Index>(), bit in 0_u8..8,
        cut in any::<prop::sample::Index>()
    ) {
        let bytes = sample(which, version);
        let mut changed = bytes.clone();
        let at = at.index(changed.len());
        changed[at] ^= 1 << bit;
        changed.truncate(cut.index(changed.len() + 1));
        decodes_within_bounds(changed);
        decodes_within_bounds(bytes);
    }
}

/// Requests as Java's client writes them: the seeds of the fuzz target.
fn seeds() -> Vec<(String, Vec<u8>)> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/request_frames");
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read(path).unwrap())).collect()
}

#[test]
fn requests_of_javas_client_decode_and_none_changed_or_cut_makes_the_decoder_panic() {
    let seeds = seeds();
    let kinds: std::collections::BTreeSet<_> = seeds.iter().map(|(name, _)| name.rsplit_once('-').unwrap().0).collect();
    assert!(kinds.len() > 30, "{kinds:?}");
    for (name, bytes) in seeds {
        let request = decode_request(Bytes::from(bytes.clone())).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(name.ends_with(&format!("-v{}", request.api_version())), "{name}");
        for cut in 0..bytes.len() {
            decodes_within_bounds(bytes[..cut].to_vec());
        }
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            decodes_within_bounds(changed);
        }
    }
}

/// A request of each kind, as near as possible to the version.
fn sample(which: usize, version: i16) -> Vec<u8> {
    let bytes = match which {
        0 => encode(&produce_request("t", 0, batch(&[1, 2]), -1), version.clamp(3, 12), 1),
        1 => encode(&fetch_request("t", 0, 0, 1000, 1, 10), version.clamp(4, 12), 1),
        2 => encode(&create_request("t", 1, &[("retention.ms", "-1")]), version.clamp(2, 7), 1),
        3 => encode(&MetadataRequest::default(), version.clamp(4, 12), 1),
        4 => encode(&ListOffsetsRequest::default(), version.clamp(1, 9), 1),
        5 => encode(&DeleteRecordsRequest::default(), version.clamp(0, 2), 1),
        6 => encode(&DescribeConfigsRequest::default(), version.clamp(1, 4), 1),
        _ => encode(&ApiVersionsRequest::default(), version.clamp(0, 4), 1),
    };
    bytes[4..].to_vec()
}

#[test]
fn samples_of_every_kind_decode_as_they_are() {
    for which in 0..8 {
        for version in 0..17 {
            decode_request(sample(which, version).into()).unwrap();
        }
    }
    let _: (ProduceRequest, FetchRequest, CreateTopicsRequest);
    let unsupported = decode_request(Bytes::from_static(&[0, 18, 0, 99, 0, 0, 0, 7])).unwrap_err();
    assert!(matches!(unsupported, RequestError::UnsupportedVersion { correlation_id: 7, max: 4, .. }));
}

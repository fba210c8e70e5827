//! Logs that hold messages of formats v0 and v1, and brokers as old as they are, scripted.

use bytes::Bytes;
use kafka_protocol::messages::ApiKey;
use tidegate_client::{Cluster, ReadError, ReaderOptions};
use tidegate_model::{Compression, TimestampType};
use tidegate_testkit::old_messages::OldMessage;
use tidegate_wire::BatchError;
use tidegate_wire::compression::compress;

use crate::fake::{FakeBroker, FakeTopic, FetchAnswer, Log};
use crate::support::{batch, connect, drain, options, slice};

/// As Azure Event Hubs and Apache Kafka 0.11 to 1.0 speak.
fn old_broker() -> FakeTopic {
    FakeTopic::new("t", 1)
        .with_version(ApiKey::ApiVersions, 0, 0)
        .with_version(ApiKey::Metadata, 0, 5)
        .with_version(ApiKey::ListOffsets, 0, 2)
        .with_version(ApiKey::Fetch, 0, 6)
}

fn message(magic: u8, offset: i64, value: &[u8]) -> OldMessage<'_> {
    OldMessage { offset, magic, attributes: 0, timestamp_ms: 1_000 + offset, key: None, value: Some(value) }
}

fn plain(magic: u8, offset: i64) -> Bytes {
    message(magic, offset, offset.to_string().as_bytes()).encode().into()
}

/// A wrapper of `count` messages, its offsets as the format has them.
fn wrapper(magic: u8, codec: Compression, first: i64, count: i64) -> Bytes {
    let inner = |offset: i64| {
        let relative = if magic == 0 { offset } else { offset - first };
        let value = offset.to_string();
        let message = OldMessage { timestamp_ms: 1_000 + offset, ..message(magic, relative, value.as_bytes()) };
        message.encode()
    };
    let inner: Vec<u8> = (first..first + count).flat_map(inner).collect();
    let value = compress(codec, &inner).unwrap();
    let attributes = match codec {
        Compression::Gzip => 1,
        Compression::Snappy => 2,
        _ => 3,
    };
    OldMessage { attributes, ..message(magic, first + count - 1, &value) }.encode().into()
}

/// Offsets 0 to 59: v0, then v1, then v2, as in a log that lived through upgrades.
fn upgraded() -> Log {
    let mut entries: Vec<Bytes> = (0..5).map(|offset| plain(0, offset)).collect();
    entries.push(wrapper(0, Compression::Gzip, 5, 5));
    entries.push(wrapper(0, Compression::Snappy, 10, 10));
    entries.extend((20..25).map(|offset| plain(1, offset)));
    entries.push(wrapper(1, Compression::Lz4, 25, 14));
    entries.push(wrapper(1, Compression::Gzip, 39, 1));
    entries.push(batch(40, 20));
    Log::of(entries)
}

async fn serving(log: Log, is_cut: bool) -> (FakeBroker, Cluster) {
    let broker = FakeBroker::serving(old_broker(), move |request| {
        assert_eq!((request.api, request.version), (ApiKey::Fetch, 6));
        let partition = &request.fetch().topics[0].partitions[0];
        let records = if is_cut {
            log.read_cut(partition.fetch_offset, usize::try_from(partition.partition_max_bytes).unwrap())
        } else {
            log.read(partition.fetch_offset, usize::try_from(partition.partition_max_bytes).unwrap())
        };
        FetchAnswer::records(records, log.end()).to(request)
    })
    .await;
    let cluster = connect(broker.bootstrap()).await;
    (broker, cluster)
}

#[tokio::test]
async fn a_log_of_three_formats_is_read_from_any_offset_to_any_by_small_and_large_fetches() {
    for is_cut in [false, true] {
        let (_broker, cluster) = serving(upgraded(), is_cut).await;
        for (start, end) in [(0, 60), (3, 57), (7, 8), (12, 30), (26, 39), (39, 40), (38, 41)] {
            for max_partition_fetch_bytes in [1, 100, 1 << 20] {
                let options = ReaderOptions { max_partition_fetch_bytes: Some(max_partition_fetch_bytes), ..options() };
                let mut reader = cluster.read(slice("t", 0, start, end), options);
                let (read, result) = drain(&mut reader).await;
                result.unwrap();
                assert_eq!(read, (start..end).collect::<Vec<_>>(), "{start} to {end} by {max_partition_fetch_bytes}");
                assert_eq!(reader.position(), end);
            }
        }
    }
}

#[tokio::test]
async fn old_records_keep_their_values_and_v0_has_no_timestamps() {
    let (_broker, cluster) = serving(upgraded(), false).await;
    let mut reader = cluster.read(slice("t", 0, 0, 60), options());
    let mut seen = 0;
    while let Some(chunk) = reader.next().await {
        for batch in chunk.unwrap().batches {
            for record in batch.records() {
                let record = record.unwrap();
                let offset = record.offset;
                assert_eq!(record.value, Some(offset.to_string().as_bytes()));
                assert_eq!(record.timestamp_ms, if offset < 20 { -1 } else { 1_000 + offset });
                assert_eq!(record.timestamp_type, TimestampType::CreateTime);
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 60);
}

#[tokio::test]
async fn a_record_larger_than_the_fetch_limit_is_passed_in_every_format_even_where_brokers_cut_it() {
    let large = vec![b'x'; 40 << 10];
    for magic in [0, 1] {
        let entries = (0..10).map(|offset| {
            if offset == 5 { message(magic, offset, &large).encode().into() } else { plain(magic, offset) }
        });
        let log = Log::of(entries);
        for is_cut in [false, true] {
            let (_broker, cluster) = serving(log.clone(), is_cut).await;
            let options = ReaderOptions { max_partition_fetch_bytes: Some(1_024), ..options() };
            let mut reader = cluster.read(slice("t", 0, 0, 10), options);
            let (read, result) = drain(&mut reader).await;
            result.unwrap();
            assert_eq!(read, (0..10).collect::<Vec<_>>(), "v{magic}");
        }
    }
}

#[tokio::test]
async fn a_wrapper_that_cannot_be_read_ends_the_read_before_it_and_tells_what_it_may_hold() {
    let damaged = {
        let mut bytes = wrapper(1, Compression::Gzip, 3, 4).to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        Bytes::from(bytes)
    };
    let set: Vec<u8> = [plain(1, 0), plain(1, 1), damaged, plain(1, 7)].concat();
    let broker =
        FakeBroker::serving(old_broker(), move |request| FetchAnswer::records(Bytes::from(set.clone()), 8).to(request))
            .await;
    let cluster = connect(broker.bootstrap()).await;
    let mut reader = cluster.read(slice("t", 0, 0, 8), options());
    let (read, result) = drain(&mut reader).await;
    let Err(ReadError::Batch { source: source @ BatchError::Crc { .. }, .. }) = result else { panic!("{result:?}") };
    // The entry in front ends at 1, and 2 may be in the wrapper as well as gone.
    assert_eq!((source.at().base_offset, source.at().next_offset()), (2, Some(7)));
    assert_eq!(read, [0, 1]);
    // Whoever skips it goes on behind it.
    let mut reader = cluster.read(slice("t", 0, 7, 8), options());
    let (read, result) = drain(&mut reader).await;
    result.unwrap();
    assert_eq!(read, [7]);
}

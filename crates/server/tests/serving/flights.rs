//! A year of real records that are really late, through both layouts, from one partition and from six.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher as _};

use bytes::Bytes;
use tidegate_api::v1;
use tidegate_api::v1::read_range_response::Message;
use tidegate_api::v1::tidegate_client::TidegateClient;
use tidegate_client::RecordToSend;
use tidegate_server::engine::Engine;
use tidegate_server::{Server, ServerConfig};
use tidegate_testkit::flights::{EXPECTED, ExpectedRange, RECORDS, lines};
use tonic::transport::Channel;

use crate::support::{World, soon};

/// The hash of one value; those of a range are added up, so that the order between partitions does not matter.
fn hash(value: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(value);
    hasher.finish()
}

/// Writes the flights to an empty topic. By range: the sum of the hashes of its values.
async fn load(engine: &Engine, topic: &str, partitions: i32) -> Vec<u64> {
    let mut publishing = engine.publish(topic).await.unwrap();
    let mut hashes = vec![0_u64; EXPECTED.len()];
    for (n, flight) in (0_i32..).zip(lines()) {
        let value = flight.json.as_bytes();
        for (sum, range) in hashes.iter_mut().zip(EXPECTED) {
            if (range.from_ms..range.until_ms).contains(&flight.event_time_ms) {
                *sum = sum.wrapping_add(hash(value));
            }
        }
        let record = RecordToSend {
            partition: Some(n % partitions),
            value: Some(value),
            timestamp_ms: Some(flight.event_time_ms),
            ..RecordToSend::default()
        };
        publishing.send(&record).await.unwrap();
    }
    assert_eq!(publishing.finish().await.unwrap().records, RECORDS);
    hashes
}

struct Read {
    records: u64,
    hash: u64,
    end: v1::EndStatement,
}

async fn read(mut client: TidegateClient<Channel>, topic: &str, range: &ExpectedRange, layout: v1::Layout) -> Read {
    let time = v1::TimeRange { from: range.from.to_owned(), until: range.until.to_owned() };
    let request = v1::ReadRangeRequest {
        topic: topic.to_owned(),
        range: Some(v1::read_range_request::Range::Time(time)),
        layout: layout.into(),
        ..v1::ReadRangeRequest::default()
    };
    let mut stream = client.read_range(request).await.unwrap().into_inner();
    let (mut records, mut sum) = (0, 0_u64);
    let mut next_offsets = BTreeMap::new();
    let mut see = |partition: i32, offset: i64, timestamp_ms: i64, value: &[u8]| {
        let next = next_offsets.entry(partition).or_insert(0);
        assert!(offset >= *next, "the order within partition {partition} is kept");
        *next = offset + 1;
        assert!((range.from_ms..range.until_ms).contains(&timestamp_ms));
        records += 1;
        sum = sum.wrapping_add(hash(value));
    };
    loop {
        match stream.message().await.unwrap().expect("a statement comes last").message.unwrap() {
            Message::Rows(rows) => {
                for row in rows.rows {
                    see(rows.partition, row.offset, row.timestamp_ms, &row.value.unwrap());
                }
            }
            Message::Columns(columns) => {
                let (mut offset, mut timestamp_ms, mut values) = (0, 0, columns.values);
                let deltas = columns.offset_deltas.iter().zip(&columns.timestamp_deltas).zip(&columns.value_lengths);
                for ((offset_delta, timestamp_delta), length) in deltas {
                    offset += offset_delta;
                    timestamp_ms += timestamp_delta;
                    let value: Bytes = values.split_to(*length as usize - 1);
                    see(columns.partition, offset, timestamp_ms, &value);
                }
            }
            Message::End(end) => {
                assert!(stream.message().await.unwrap().is_none());
                return Read { records, hash: sum, end };
            }
        }
    }
}

/// Writes the flights to an empty topic, and reads every range of the table through a server of its own.
pub async fn check(engine: &Engine, topic: &str, partitions: i32) {
    let config = ServerConfig { listen: ([127, 0, 0, 1], 0).into(), ..ServerConfig::default() };
    let server = Server::start(config, engine.clone()).await.unwrap();
    let client = TidegateClient::connect(format!("http://{}", server.addr())).await.unwrap();
    let hashes = load(engine, topic, partitions).await;
    for (range, expected_hash) in EXPECTED.iter().zip(&hashes) {
        for layout in [v1::Layout::Rows, v1::Layout::Columns] {
            let read = soon("the end", read(client.clone(), topic, range, layout)).await;
            let what = format!("{} to {}, {layout:?}, {partitions} partitions", range.from, range.until);
            assert_eq!((read.records, read.end.records_sent), (range.records, range.records), "{what}");
            assert_eq!(read.hash, *expected_hash, "{what}: the values are as they were written");
            assert!(read.end.exhaustive && read.end.partitions.iter().all(|end| end.exhaustive), "{what}");
            assert_eq!((read.end.from_ms, read.end.until_ms), (Some(range.from_ms), Some(range.until_ms)));
            if partitions == 1 {
                let end = &read.end.partitions[0];
                assert_eq!((end.start_offset, end.end_offset), (range.first_offset, RECORDS as i64), "{what}");
                assert_eq!(end.late_records, range.late(), "{what}");
                assert_eq!(end.first_offset_at_or_after_until, range.until_offset, "{what}");
                assert_eq!(end.records_scanned, RECORDS - range.first_offset.unsigned_abs(), "{what}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_range_of_a_year_is_complete_from_one_partition() {
    let world = World::start().await;
    world.create("flights", 1).await;
    check(&world.engine, "flights", 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_range_of_a_year_is_complete_from_six_partitions() {
    let world = World::start().await;
    world.create("flights", 6).await;
    check(&world.engine, "flights", 6).await;
}

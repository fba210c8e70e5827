//! The broker is killed in the midst of publishing, again and again: what it acknowledged is there afterwards.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, missing_docs, unreachable_pub, dead_code)]

#[path = "../common/mod.rs"]
mod common;
mod real_clients;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use common::*;
use kafka_protocol::messages::InitProducerIdRequest;
use tidegate_broker::{Broker, BrokerConfig, FsyncPolicy};
use tidegate_model::Compression;
use tidegate_wire::{BatchOptions, BatchWriter};

/// Set in the child: the folder to serve.
const CHILD_DIR: &str = "TIDEGATE_BROKER_KILL_TEST_DIR";
/// Set in the child: where to listen.
const CHILD_LISTEN: &str = "TIDEGATE_BROKER_KILL_TEST_LISTEN";
const CHILD_FSYNC: &str = "TIDEGATE_BROKER_KILL_TEST_FSYNC";
const KILLS: usize = 20;
const PARTITIONS: i32 = 3;
const PUBLISHERS: usize = 4;

/// Not a test of its own: the body of the child process, which is this binary started with an environment variable.
#[test]
fn child_broker() {
    let Ok(dir) = std::env::var(CHILD_DIR) else { return };
    let fsync = match std::env::var(CHILD_FSYNC).unwrap().as_str() {
        "always" => FsyncPolicy::Always,
        "interval" => FsyncPolicy::Interval(Duration::from_millis(20)),
        _ => FsyncPolicy::Never,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let config = BrokerConfig {
            fsync,
            listen: std::env::var(CHILD_LISTEN).unwrap().parse().unwrap(),
            // So that those who come back together meet in one generation.
            group_initial_rebalance_delay: Duration::from_millis(100),
            ..BrokerConfig::new(dir)
        };
        let broker = Broker::start(config).await.unwrap();
        println!("\nlistening on {}", broker.addr());
        std::future::pending::<()>().await;
    });
}

struct ChildBroker {
    child: Child,
    addr: SocketAddr,
}

impl ChildBroker {
    fn start(dir: &Path, fsync: &str) -> Self {
        Self::start_at(dir, fsync, ([127, 0, 0, 1], 0).into())
    }

    /// Starts it at an address, which somebody else's connection may still hold for a moment.
    fn start_at(dir: &Path, fsync: &str, listen: SocketAddr) -> Self {
        (0..50).find_map(|_| Self::try_start_at(dir, fsync, listen)).unwrap()
    }

    fn try_start_at(dir: &Path, fsync: &str, listen: SocketAddr) -> Option<Self> {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["child_broker", "--exact", "--nocapture", "--test-threads=1"])
            .env(CHILD_DIR, dir)
            .env(CHILD_FSYNC, fsync)
            .env(CHILD_LISTEN, listen.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        match lines.map(Result::unwrap).find_map(|line| line.strip_prefix("listening on ")?.parse().ok()) {
            Some(addr) => Some(Self { child, addr }),
            None => {
                child.wait().unwrap();
                None
            }
        }
    }
}

impl Drop for ChildBroker {
    fn drop(&mut self) {
        // SIGKILL: the child runs nothing any more.
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// What one publisher knows: its batches in order, acknowledged or not.
#[derive(Default)]
struct Publisher {
    number: usize,
    next: u64,
    acknowledged: Vec<(i32, i64, Vec<String>)>,
}

impl Publisher {
    /// Publishes until the broker is gone.
    async fn publish(mut self, addr: SocketAddr, random: u64) -> Self {
        let mut random = Random(random);
        let Ok(stream) = tokio::net::TcpStream::connect(addr).await else { return self };
        let mut client = Client::over(stream);
        let idempotent = self.number.is_multiple_of(2);
        let request = InitProducerIdRequest::default().with_transactional_id(None);
        let Ok(producer) = client.try_call(&request, 4).await else { return self };
        let mut sequences = [0_i32; PARTITIONS as usize];
        loop {
            let partition = i32::try_from(random.next() % PARTITIONS as u64).unwrap();
            let values: Vec<String> = (0..=random.next() % 20)
                .map(|_| {
                    self.next += 1;
                    let padding = "x".repeat(usize::try_from(random.next() % 3_000).unwrap());
                    format!("{}:{}:{padding}", self.number, self.next)
                })
                .collect();
            let sequence = &mut sequences[usize::try_from(partition).unwrap()];
            let mut options = BatchOptions::default();
            if random.next().is_multiple_of(2) {
                options.compression = Compression::Lz4;
            }
            if idempotent {
                (options.producer_id, options.producer_epoch, options.base_sequence) =
                    (producer.producer_id.0, 0, *sequence);
            }
            let Ok(answer) = client.try_produce("t", partition, batch_of(options, &values)).await else { return self };
            assert_eq!(answer.error_code, 0, "{answer:?}");
            *sequence += i32::try_from(values.len()).unwrap();
            self.acknowledged.push((partition, answer.base_offset, values));
        }
    }
}

fn batch_of(options: BatchOptions, values: &[String]) -> Bytes {
    let mut writer = BatchWriter::new(options);
    for value in values {
        writer.push(1, None, Some(value.as_bytes()), []).unwrap();
    }
    writer.finish().unwrap()
}

/// Not for chance's own sake, only to be somewhere else each time (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_kills_lose_no_acknowledged_record_and_tear_none() {
    if std::env::var(CHILD_DIR).is_ok() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random(std::process::id().into());
    let mut publishers: Vec<Publisher> =
        (0..PUBLISHERS).map(|number| Publisher { number, ..Publisher::default() }).collect();
    for kill in 0..KILLS {
        let fsync = ["never", "interval", "always"][kill % 3];
        let broker = ChildBroker::start(dir.path(), fsync);
        let mut client = Client::connect(broker.addr).await;
        if kill == 0 {
            client.create_topic("t", PARTITIONS, &[("segment.bytes", "200000"), ("retention.ms", "-1")]).await;
        }
        let publishing: Vec<_> =
            publishers.drain(..).map(|publisher| tokio::spawn(publisher.publish(broker.addr, random.next()))).collect();
        // The moment is what varies; nothing is waited for.
        tokio::time::sleep(Duration::from_micros(20_000 + random.next() % 150_000)).await;
        drop(broker);
        for publisher in publishing {
            publishers.push(publisher.await.unwrap());
        }
        check(dir.path(), &publishers).await;
    }
    assert!(publishers.iter().all(|publisher| !publisher.acknowledged.is_empty()));
}

async fn check(dir: &Path, publishers: &[Publisher]) {
    let broker = start(dir).await;
    let mut client = Client::connect(broker.addr()).await;
    let mut logs = BTreeMap::new();
    for partition in 0..PARTITIONS {
        // Checks the CRC of every batch.
        let records = client.read_all("t", partition, 0).await;
        assert!((0..).zip(&records).all(|(offset, record)| record.offset == offset), "offsets without gap");
        logs.insert(partition, records);
    }
    for (partition, base_offset, values) in publishers.iter().flat_map(|publisher| &publisher.acknowledged) {
        let at = usize::try_from(*base_offset).unwrap();
        let found = logs[partition].get(at..at + values.len()).unwrap_or_else(|| panic!("lost from {at} on"));
        let same = found.iter().zip(values).all(|(found, value)| found.value == value.as_bytes());
        assert!(same, "partition {partition}: other records than were acknowledged at {at}");
    }
    for records in logs.values() {
        let mut last: BTreeMap<&str, u64> = BTreeMap::new();
        for record in records {
            let value = std::str::from_utf8(&record.value).unwrap();
            let mut parts = value.split(':');
            let publisher = parts.next().unwrap();
            let number = parts.next().unwrap().parse().unwrap();
            let before = last.insert(publisher, number);
            assert!(before.is_none_or(|before| before < number), "out of order, or twice: {publisher}:{number}");
        }
    }
    broker.shutdown().await.unwrap();
}

//! Healthy readers under pressure: a broker that is short of memory, consumers that are slow, and a machine that is busy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_broker::{Broker, BrokerConfig, BrokerLimits};
use tidegate_client::{ByteBudget, Cluster, ClusterConfig, NewTopic, ReaderOptions};
use tidegate_wire::{BatchOptions, BatchWriter};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::stage::write;
use crate::support::{name, slice};

const TOPIC: &str = "pressure";
const PARTITIONS: i32 = 6;
const BATCHES: i64 = 6;
const RECORDS_A_BATCH: i64 = 5;
const RECORD_BYTES: usize = 100_000;
/// Each reads all partitions.
const CONSUMERS: usize = 8;

/// Threads that want all of the machine, until it is dropped.
struct Busy(Arc<AtomicBool>);

impl Busy {
    fn new(threads: usize) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        for _ in 0..threads {
            let over = Arc::clone(&over);
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        Self(over)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_consumers_of_a_broker_that_is_short_of_memory_all_reach_the_end() {
    let folder = tempfile::tempdir().unwrap();
    // Six answers of a megabyte at a time, for the 48 readers.
    let limits = BrokerLimits { response_memory_bytes: 7 << 20, ..BrokerLimits::default() };
    let broker = Broker::start(BrokerConfig { limits, ..BrokerConfig::new(folder.path()) }).await.unwrap();
    // The client's own limits, as a server has them.
    let cluster = Cluster::connect(ClusterConfig::new([broker.addr().to_string()])).await.unwrap();
    let config = [("retention.ms".to_owned(), "-1".to_owned())].into();
    let topic = NewTopic { name: name(TOPIC), partitions: PARTITIONS, replication_factor: 1, config };
    cluster.create_topic(&topic).await.unwrap();
    let mut stream = TcpStream::connect(broker.addr()).await.unwrap();
    for partition in 0..PARTITIONS {
        for batch in 0..BATCHES {
            let mut writer = BatchWriter::new(BatchOptions::default());
            for n in 0..RECORDS_A_BATCH {
                let value = vec![u8::try_from(n).unwrap(); RECORD_BYTES];
                writer.push(batch, None, Some(&value), []).unwrap();
            }
            write(&mut stream, TOPIC, partition, writer.finish().unwrap()).await;
        }
    }
    let _busy = Busy::new(4);
    let mut consumers = JoinSet::new();
    for consumer in 0..CONSUMERS {
        // One budget for the partitions of a read, as a server has it.
        let options = ReaderOptions { budget: ByteBudget::new(4 << 20), ..ReaderOptions::default() };
        for partition in 0..PARTITIONS {
            let (cluster, options) = (cluster.clone(), options.clone());
            consumers.spawn(async move {
                let mut reader = cluster.read(slice(TOPIC, partition, 0, BATCHES * RECORDS_A_BATCH), options);
                let mut next = 0;
                while let Some(chunk) = reader.next().await {
                    let chunk = chunk.unwrap_or_else(|error| panic!("a healthy read failed at {next}: {error}"));
                    for batch in &chunk.batches {
                        for record in batch.records() {
                            assert_eq!(record.unwrap().offset, next);
                            next += 1;
                        }
                    }
                    // Some are slow, and some of them by turns.
                    tokio::time::sleep(Duration::from_millis([0, 5, 40, 80][consumer % 4])).await;
                }
                assert_eq!(next, BATCHES * RECORDS_A_BATCH);
            });
        }
    }
    while let Some(consumed) = consumers.join_next().await {
        consumed.unwrap();
    }
    broker.shutdown().await.unwrap();
}

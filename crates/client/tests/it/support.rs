//! Batches, slices and short waits.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tidegate_client::{Cluster, ClusterConfig, ReadError, Reader, ReaderOptions, RetryLimits, Slice};
use tidegate_model::{OffsetRange, TopicName, TopicPartition};
use tidegate_wire::{BatchOptions, BatchWriter};

/// Settings with which giving up takes no time.
pub(crate) fn config(bootstrap: impl Into<String>) -> ClusterConfig {
    ClusterConfig {
        connect_timeout: Duration::from_secs(5),
        request_timeout: Duration::from_secs(5),
        retry: RetryLimits {
            attempts: 4,
            backoff: Duration::from_millis(1),
            backoff_max: Duration::from_millis(5),
            deadline: Duration::from_secs(30),
        },
        max_response_bytes: 16 << 20,
        ..ClusterConfig::new([bootstrap])
    }
}

pub(crate) async fn connect(bootstrap: impl Into<String>) -> Cluster {
    Cluster::connect(config(bootstrap)).await.unwrap()
}

pub(crate) fn name(topic: &str) -> TopicName {
    TopicName::new(topic).unwrap()
}

pub(crate) fn slice(topic: &str, partition: i32, start: i64, end: i64) -> Slice {
    Slice { topic_partition: TopicPartition::new(name(topic), partition), range: OffsetRange { start, end } }
}

/// An uncompressed batch whose values are the offsets.
pub(crate) fn batch(base_offset: i64, count: i64) -> Bytes {
    batch_of(base_offset, count, BatchOptions::default())
}

pub(crate) fn batch_of(base_offset: i64, count: i64, options: BatchOptions) -> Bytes {
    let mut writer = BatchWriter::new(BatchOptions { base_offset, ..options });
    for offset in base_offset..base_offset + count {
        writer.push(1_000 + offset, None, Some(offset.to_string().as_bytes()), []).unwrap();
    }
    writer.finish().unwrap()
}

pub(crate) fn set(batches: &[Bytes]) -> Bytes {
    let mut set = BytesMut::new();
    batches.iter().for_each(|batch| set.extend_from_slice(batch));
    set.freeze()
}

/// Quick fetches.
pub(crate) fn options() -> ReaderOptions {
    ReaderOptions { fetch_max_wait: Duration::from_millis(20), ..ReaderOptions::default() }
}

/// The offsets that a reader yields until it ends, and how it ends.
pub(crate) async fn drain(reader: &mut Reader) -> (Vec<i64>, Result<(), ReadError>) {
    let mut offsets = Vec::new();
    while let Some(chunk) = reader.next().await {
        match chunk {
            Ok(chunk) => {
                for batch in &chunk.batches {
                    offsets.extend(batch.records().map(|record| record.unwrap().offset));
                }
            }
            Err(error) => return (offsets, Err(error)),
        }
    }
    (offsets, Ok(()))
}

/// Waits for something that another task does; a test that waits in vain fails.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..12_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{what} did not come about");
}

//! The byte budget: what readers hold, and that none waits for ever for another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tidegate_client::{ByteBudget, Cluster, Reader, ReaderOptions};
use tidegate_model::{Compression, TopicPartition};
use tidegate_wire::{BatchOptions, BatchWriter};

use crate::fake::{FakeBroker, FakeTopic, Log};
use crate::support::{connect, drain, eventually, options, slice};

const BATCH: usize = 64 << 10;
const BATCHES: i64 = 40;

/// A batch of one record of 64 KiB, or of one of `size` that compresses to next to nothing.
fn batch(base_offset: i64, size: usize, compression: Compression) -> Bytes {
    let mut writer = BatchWriter::new(BatchOptions { base_offset, compression, ..BatchOptions::default() });
    writer.push(1, None, Some(&vec![b'x'; size]), []).unwrap();
    writer.finish().unwrap()
}

/// Several partitions of 40 batches each, and how many fetches were answered.
async fn serving(partitions: i32, size: usize, compression: Compression) -> (FakeBroker, Cluster, Arc<AtomicUsize>) {
    let log = Log::of((0..BATCHES).map(|at| batch(at, size, compression)));
    let fetches = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&fetches);
    let broker = FakeBroker::serving(FakeTopic::new("t", partitions), move |request| {
        count.fetch_add(1, Ordering::SeqCst);
        log.answer(request).to(request)
    })
    .await;
    let cluster = connect(broker.bootstrap()).await;
    (broker, cluster, fetches)
}

fn reader(cluster: &Cluster, partition: i32, budget: &ByteBudget) -> Reader {
    let options = ReaderOptions { budget: budget.clone(), ..options() };
    cluster.read(slice("t", partition, 0, BATCHES), options)
}

/// Waits until nothing more is fetched.
async fn settled(fetches: &AtomicUsize) -> usize {
    loop {
        let before = fetches.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(50)).await;
        if fetches.load(Ordering::SeqCst) == before {
            return before;
        }
    }
}

#[tokio::test]
async fn a_reader_reads_ahead_within_the_budget_and_gives_all_of_it_back() {
    let (_broker, cluster, fetches) = serving(1, BATCH, Compression::None).await;
    let budget = ByteBudget::new(5 * BATCH);
    let mut reader = reader(&cluster, 0, &budget);
    eventually("reading ahead", || budget.used() > 3 * BATCH).await;
    assert!(settled(&fetches).await < 8);
    // Each batch is a little larger than its record.
    assert!(budget.used() <= 5 * BATCH + 4_096, "{}", budget.used());
    let (read, result) = drain(&mut reader).await;
    result.unwrap();
    assert_eq!(read.len(), 40);
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn chunks_that_the_consumer_keeps_count_until_it_drops_them() {
    let (_broker, cluster, fetches) = serving(1, BATCH, Compression::None).await;
    let budget = ByteBudget::new(4 * BATCH);
    let mut reader = reader(&cluster, 0, &budget);
    let mut kept = Vec::new();
    // More than the budget: whoever asks for the next chunk gets it.
    for _ in 0..8 {
        kept.push(reader.next().await.unwrap().unwrap());
    }
    let before = settled(&fetches).await;
    assert!(before <= 9, "nothing is read ahead while the consumer holds too much: {before}");
    assert!(budget.used() >= 8 * BATCH);
    kept.clear();
    let (_, result) = drain(&mut reader).await;
    result.unwrap();
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn a_reader_whose_chunks_nobody_takes_does_not_stop_the_others() {
    let (_broker, cluster, fetches) = serving(6, BATCH, Compression::None).await;
    let budget = ByteBudget::new(4 * BATCH);
    let stalled: Vec<Reader> = (0..5).map(|partition| reader(&cluster, partition, &budget)).collect();
    eventually("a full budget", || budget.used() >= 3 * BATCH).await;
    settled(&fetches).await;
    // Readers ask for their share, but for 64 KiB at least, and each may be one fetch over.
    assert!(budget.used() <= (4 + 5) * (BATCH + 4_096), "{}", budget.used());
    // In turn, each read to its end while the others lie still.
    let mut live = reader(&cluster, 5, &budget);
    let (read, result) = drain(&mut live).await;
    result.unwrap();
    assert_eq!(read.len(), 40);
    for mut reader in stalled {
        let (read, result) = drain(&mut reader).await;
        result.unwrap();
        assert_eq!(read.len(), 40);
    }
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn a_budget_smaller_than_any_fetch_still_lets_everything_through() {
    let (_broker, cluster, _) = serving(3, BATCH, Compression::None).await;
    let budget = ByteBudget::new(1);
    let mut readers: Vec<Reader> = (0..3).map(|partition| reader(&cluster, partition, &budget)).collect();
    // One chunk of each in turn, as a merge by time takes them.
    let mut chunks = 0;
    loop {
        let mut held = Vec::new();
        for reader in &mut readers {
            if let Some(chunk) = reader.next().await {
                held.push(chunk.unwrap());
            }
        }
        if held.is_empty() {
            break;
        }
        chunks += held.len();
    }
    assert_eq!(chunks, 3 * 40);
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn decompressed_bytes_are_what_counts() {
    for compression in [Compression::Zstd, Compression::Lz4, Compression::Gzip, Compression::Snappy] {
        // Half the batches fit one fetch at least, and what they hold is far more than the budget.
        let (_broker, cluster, _) = serving(1, 1 << 20, compression).await;
        let budget = ByteBudget::new(3 << 20);
        let mut reader = reader(&cluster, 0, &budget);
        eventually("reading ahead", || budget.used() > 3 << 19).await;
        tokio::time::sleep(Duration::from_millis(30)).await;
        // The compressed answer itself, and one batch more than was guessed.
        assert!(budget.used() < 6 << 20, "{} {}", compression.name(), budget.used());
        let mut most = 0;
        let mut chunks = 0;
        while let Some(chunk) = reader.next().await {
            let chunk = chunk.unwrap();
            assert_eq!(chunk.topic_partition, TopicPartition::new(crate::support::name("t"), 0));
            assert!(chunk.body_bytes() >= 1 << 20);
            most = most.max(budget.used());
            chunks += 1;
        }
        assert_eq!(chunks, 40);
        assert!(most < 8 << 20, "{} {most}", compression.name());
        assert_eq!(budget.used(), 0);
    }
}

#[tokio::test]
async fn readers_that_are_dropped_at_any_moment_give_everything_back() {
    let (broker, cluster, _) = serving(1, BATCH, Compression::Lz4).await;
    let budget = ByteBudget::new(3 * BATCH);
    for micros in (0..6_000).step_by(150) {
        let mut reader = reader(&cluster, 0, &budget);
        let _ =
            tokio::time::timeout(Duration::from_micros(micros), async { while reader.next().await.is_some() {} }).await;
    }
    eventually("giving back", || budget.used() == 0).await;
    eventually("closing", || broker.open_connections() == 1).await;
}

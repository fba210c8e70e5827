//! What a reader gains from fetching pieces over several connections when the broker is far away.
//!
//! `cargo run --release -p tidegate-client --example far_read`
//!
//! The embedded broker behind a relay that holds every byte back for half a round trip and, like a socket buffer, lets each
//! connection have so many bytes on their way and no more. A relay is not a network: there is no loss and no shared link.

// A measurement talks to whoever runs it.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidegate_broker::{Broker, BrokerConfig};
use tidegate_client::{
    ByteBudget, Choice, Cluster, ClusterConfig, Fetcher, FetcherOptions, NewTopic, Producer, ProducerSettings,
    ReaderOptions, RecordToSend, Slice,
};
use tidegate_model::{Compression, OffsetRange, TopicName, TopicPartition};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};

const RECORDS: u64 = 60_000;
const VALUE_BYTES: usize = 1_000;
/// Rounds of each, by turns; the middle one counts.
const ROUNDS: usize = 3;

/// How far away the broker is.
#[derive(Clone, Copy)]
struct Link {
    round_trip: Duration,
    /// The bytes of one connection that may be on their way.
    window: usize,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let link = Arc::new(Mutex::new(Link { round_trip: Duration::ZERO, window: 8 << 20 }));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let relay = listener.local_addr()?;
    let folder = tempfile::tempdir()?;
    let mut config = BrokerConfig::new(folder.path());
    // Clients are led back to the relay.
    config.advertised = Some((relay.ip().to_string(), relay.port()));
    let broker = Broker::start(config).await?;
    tokio::spawn(accept(listener, broker.addr(), Arc::clone(&link)));

    let cluster = Cluster::connect(ClusterConfig::new([relay.to_string()])).await?;
    let topic = TopicName::new("far")?;
    let config = [("retention.ms".to_owned(), "-1".to_owned())].into();
    cluster.create_topic(&NewTopic { name: topic.clone(), partitions: 1, replication_factor: 1, config }).await?;
    let producer = Producer::new(
        cluster.config(),
        ProducerSettings { compression: Compression::None, batch_bytes: 16 << 10, ..ProducerSettings::default() },
    )?;
    let mut session = producer.session(&topic);
    let value = vec![b'v'; VALUE_BYTES];
    for _ in 0..RECORDS {
        session.send(RecordToSend { value: Some(&value), ..RecordToSend::default() }).await?;
    }
    session.finish().await?;

    println!("{RECORDS} records of {VALUE_BYTES} bytes, one partition; median of {ROUNDS} reads each, MB/s of values");
    println!("{:>10} {:>12} {:>9} {:>9} {:>6}  auto", "round trip", "window", "one", "auto", "times");
    for (round_trip_ms, window) in [(0, 8 << 20), (20, 8 << 20), (20, 100 << 10), (40, 8 << 20), (80, 8 << 20)] {
        *link.lock() = Link { round_trip: Duration::from_millis(round_trip_ms), window };
        let (mut one, mut auto, mut how) = (Vec::new(), Vec::new(), String::new());
        for _ in 0..ROUNDS {
            one.push(read(relay, &topic, Some(1)).await?.0);
            let (rate, chosen) = read(relay, &topic, None).await?;
            auto.push(rate);
            how = chosen;
        }
        let (one, auto) = (median(one), median(auto));
        println!("{round_trip_ms:>7} ms {:>8} KiB {one:>9.1} {auto:>9.1} {:>6.1}  {how}", window >> 10, auto / one);
    }
    Ok(())
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().unwrap_or_default()
}

/// MB/s of one read of everything, and how it was read.
async fn read(relay: SocketAddr, topic: &TopicName, at_once: Option<usize>) -> Result<(f64, String), Box<dyn Error>> {
    let cluster = Cluster::connect(ClusterConfig::new([relay.to_string()])).await?;
    let budget = ByteBudget::new(64 << 20);
    let fetcher = Fetcher::new(&cluster, FetcherOptions { fetches_in_flight: at_once, ..FetcherOptions::default() });
    let options = ReaderOptions { budget, ..ReaderOptions::default() };
    let range = OffsetRange::new(0, i64::try_from(RECORDS)?);
    let begun = Instant::now();
    let slice = Slice { topic_partition: TopicPartition::new(topic.clone(), 0), range };
    let mut reader = fetcher.read(slice, options);
    let (mut records, mut most) = (0_u64, None::<Choice>);
    while let Some(chunk) = reader.next().await {
        for batch in chunk?.batches {
            records += batch.records().count() as u64;
        }
        let choice = reader.facts().broker.into_iter().chain(most);
        most = choice.max_by_key(|choice| choice.connections);
    }
    if records != RECORDS {
        return Err(format!("{records} records came").into());
    }
    let totals = reader.totals();
    let rate = RECORDS as f64 * VALUE_BYTES as f64 / 1e6 / begun.elapsed().as_secs_f64();
    let surplus = 100.0 * (totals.received - totals.used) as f64 / totals.used.max(1) as f64;
    let how = most.map_or_else(String::new, |most| format!("up to {} connections ({})", most.connections, most.reason));
    Ok((rate, format!("{how}, {surplus:.1} % surplus")))
}

async fn accept(listener: TcpListener, target: SocketAddr, link: Arc<Mutex<Link>>) {
    while let Ok((near, _)) = listener.accept().await {
        let Ok(far) = TcpStream::connect(target).await else { continue };
        for stream in [&near, &far] {
            let _ = stream.set_nodelay(true);
        }
        let link = *link.lock();
        let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
        tokio::spawn(carry(near_read, far_write, link));
        tokio::spawn(carry(far_read, near_write, link));
    }
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, link: Link) {
    let one_way = link.round_trip / 2;
    let (sender, mut on_their_way) = mpsc::unbounded_channel::<(tokio::time::Instant, Vec<u8>)>();
    let room = Arc::new(Semaphore::new(link.window));
    let places = Arc::clone(&room);
    let arriving = tokio::spawn(async move {
        while let Some((at, bytes)) = on_their_way.recv().await {
            tokio::time::sleep_until(at).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
            // The acknowledgement takes the other half of the round trip.
            let places = Arc::clone(&places);
            tokio::spawn(async move {
                tokio::time::sleep(one_way).await;
                places.add_permits(bytes.len());
            });
        }
    });
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let Ok(taken) = room.acquire_many(u32::try_from(count).unwrap_or(u32::MAX)).await else { break };
        taken.forget();
        let due = tokio::time::Instant::now() + one_way;
        if sender.send((due, buffer.get(..count).unwrap_or_default().to_vec())).is_err() {
            break;
        }
    }
    drop(sender);
    let _ = arriving.await;
}

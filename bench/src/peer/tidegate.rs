//! Tidegate's own fetch engine, as a program uses it: one reader for each partition, in a task of its own, within one byte
//! budget.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tidegate_client::{
    ByteBudget, Cluster, ClusterConfig, Fetcher, FetcherOptions, Reader, ReaderOptions, Reserve, Slice, TlsSettings,
    Trust,
};
use tidegate_model::{OffsetRange, TopicName, TopicPartition};
use tokio::time::timeout;

use super::tally::{Outcome, Pauses, Tally};
use super::{FIRST_RECORD, PAUSE_FOR, Task};

/// How long a reader is waited for before the clock is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Reads the task.
pub fn read(task: &Task) -> Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(read_all(task))
}

/// Starts all readers: the one place that knows how the client is called.
fn start(task: &Task) -> Result<Vec<(i32, Reader)>> {
    let mut config = ClusterConfig::new([task.bootstrap.clone()]);
    if let Some(ca) = &task.ca {
        config.security.tls = Some(TlsSettings { trust: Trust::PemFile(ca.clone()), ..TlsSettings::default() });
    }
    let mut fetcher = FetcherOptions::default();
    let mut options = ReaderOptions::default();
    for (name, value) in &task.settings {
        match name.as_str() {
            "check.crcs" => options.batch_limits.check_crcs = value.parse()?,
            "connections.per.broker" => fetcher.connections_per_broker = value.parse()?,
            "fetches.in.flight" => fetcher.fetches_in_flight = Some(value.parse()?),
            "max.partition.fetch.bytes" => options.max_partition_fetch_bytes = Some(value.parse()?),
            "prefetch.max.bytes" => options.budget = ByteBudget::new(value.parse()?),
            "reserve.bytes" => {
                let reserve = Reserve::new(value.parse()?);
                options.budget = ByteBudget::with_reserve(options.budget.limit(), &reserve, reserve.limit());
            }
            other => bail!("{other} is not a setting of Tidegate's reader"),
        }
    }
    let fetcher = Fetcher::new(&Cluster::new(config)?, fetcher);
    let topic = TopicName::new(&task.topic)?;
    let reader = |&(partition, end): &(i32, i64)| {
        let topic_partition = TopicPartition { topic: topic.clone(), partition };
        let slice = Slice { topic_partition, range: OffsetRange::new(0, end) };
        (partition, fetcher.read(slice, options.clone()))
    };
    Ok(task.ends.iter().map(reader).collect())
}

async fn read_all(task: &Task) -> Result<Outcome> {
    let begun = Instant::now();
    let first = Arc::new(OnceLock::new());
    let mut tasks = Vec::new();
    for (partition, reader) in start(task)? {
        let ends: Vec<_> = task.ends.iter().copied().filter(|(other, _)| *other == partition).collect();
        let tally = Tally::new(&ends, task.hash, begun);
        let clock = Clock { begun, limit: task.limit, first: Arc::clone(&first) };
        tasks.push(tokio::spawn(read_one(reader, partition, tally, clock, task.pauses)));
    }
    let mut tallies = Vec::new();
    let mut longest_gap_ms: Option<f64> = None;
    let mut note = String::new();
    for task in tasks {
        let (tally, gap, said) = task.await??;
        tallies.push(tally);
        longest_gap_ms = longest_gap_ms.max_by(gap);
        note = said;
    }
    Ok(Outcome { longest_gap_ms, note: Some(note), ..Tally::merge(tallies) })
}

/// When the readers' time is up: all at the same time.
struct Clock {
    begun: Instant,
    limit: Duration,
    /// When the first of them got records.
    first: Arc<OnceLock<Instant>>,
}

impl Clock {
    fn expired(&self) -> bool {
        match self.first.get() {
            Some(first) => first.elapsed() >= self.limit,
            None => self.begun.elapsed() >= FIRST_RECORD,
        }
    }
}

async fn read_one(
    mut reader: Reader,
    partition: i32,
    mut tally: Tally,
    clock: Clock,
    pauses: bool,
) -> Result<(Tally, Option<f64>, String)> {
    let mut pauses = Pauses::new(pauses);
    let mut broker = None;
    let mut asked = Instant::now();
    // A reader that always has something never lets the timeout see the clock, so it is looked at for each chunk.
    while !clock.expired() {
        let Ok(next) = timeout(LOOK, reader.next()).await else { continue };
        let Some(chunk) = next else { break };
        let chunk = chunk.with_context(|| format!("partition {partition}"))?;
        pauses.waited(asked.elapsed());
        for batch in &chunk.batches {
            for record in batch.records() {
                let record = record?;
                tally.record(partition, record.offset, record.timestamp_ms, record.value.unwrap_or_default());
            }
        }
        tally.now();
        clock.first.get_or_init(Instant::now);
        broker = reader.facts().broker.or(broker);
        if pauses.due() {
            tokio::time::sleep(PAUSE_FOR).await;
            pauses.resume();
        }
        asked = Instant::now();
    }
    let facts = reader.facts();
    let how = broker.map_or_else(String::new, |choice| {
        format!("{} connections ({}), {} fetches at once", choice.connections, choice.reason, choice.fetches_in_flight)
    });
    let share = |time: Duration| 100.0 * time.as_secs_f64() / facts.times.total().as_secs_f64().max(1e-9);
    let times = &facts.times;
    let said = format!(
        "{how}; network {:.0} %, budget full {:.0} %, decoding {:.0} %, consumer busy {:.0} %; {:.1} % surplus; {} restarts",
        share(times.network),
        share(times.budget_full),
        share(times.decoding),
        share(times.consumer_busy),
        100.0 * (facts.totals.received as f64 / facts.totals.used.max(1) as f64 - 1.0),
        facts.restarts,
    );
    Ok((tally, pauses.longest_gap_ms(), said))
}

trait MaxBy {
    fn max_by(self, other: Self) -> Self;
}

impl MaxBy for Option<f64> {
    fn max_by(self, other: Self) -> Self {
        match (self, other) {
            (Some(one), Some(two)) => Some(one.max(two)),
            (one, two) => one.or(two),
        }
    }
}

//! 200 gRPC readers at once over a year of records.
//!
//! Three runs, each on a fresh server over the same data: all readers in the layout ROWS, all in COLUMNS, and all stalled: they
//! take one message each and then nothing until the server's memory has stopped growing, which is the worst that slow clients
//! can do to it. All readers of all runs must end with the same records, by count and by hash, and the server's memory must
//! stay under a bound that follows from its limits.

mod bound;
mod client;
mod report;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use tidegate_api::v1::Layout;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use self::bound::Bound;
use self::client::{Hold, Outcome};
use crate::machine::{Machine, cpu_seconds};
use crate::server::{self, Server};

/// The records of the topic.
const RECORDS: u64 = 336_776;
const TOPIC: &str = "flights";

const USAGE: &str = "\
Usage: cargo run --release -- readers [options]

  --readers N      how many readers at once [200]
  --partitions N   how many partitions the topic has [1]
  --binary FILE    measure this binary instead of building one
  --no-results     do not write bench/results/";

struct Options {
    readers: usize,
    partitions: u32,
    binary: Option<PathBuf>,
    write_results: bool,
}

/// One run.
#[derive(Debug, Serialize)]
pub struct Run {
    /// `rows`, `columns` or `stalled`.
    pub name: &'static str,
    /// From the first request to the last end, in seconds; without the time that the readers were stalled.
    pub seconds: f64,
    /// Records of all readers.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Keys and values a second, in MB (10^6 bytes).
    pub megabytes_per_second: f64,
    /// Records a second.
    pub records_per_second: f64,
    /// Messages of all streams.
    pub messages: u64,
    /// Processor time of the server, in seconds.
    pub server_cpu_seconds: Option<f64>,
    /// Processor time of the readers, in seconds.
    pub readers_cpu_seconds: Option<f64>,
    /// The server's memory before the first request, in MiB.
    pub idle_mib: f64,
    /// The most that it took, in MiB.
    pub peak_mib: f64,
}

/// Everything that a results file holds.
#[derive(Debug, Serialize)]
pub struct Results {
    /// The scenario.
    pub scenario: &'static str,
    /// How to run it again.
    pub command: String,
    /// The machine and the versions.
    pub machine: Machine,
    /// What `tidegate --version` says.
    pub tidegate: Option<String>,
    /// How many readers at once.
    pub readers: usize,
    /// How many partitions the topic has.
    pub partitions: u32,
    /// The hash that every reader of every run ended with, by partition.
    pub hashes: Vec<(i32, String)>,
    /// The bound of the server's memory.
    pub bound: Bound,
    /// Whether every run stayed under it.
    pub within_bound: bool,
    /// The runs.
    pub runs: Vec<Run>,
}

/// Runs the scenario. False when the memory bound was broken.
pub async fn run(arguments: Vec<String>) -> Result<bool> {
    let Some(options) = options(&arguments)? else {
        println!("{USAGE}");
        return Ok(true);
    };
    // Before the benchmark itself is the load.
    let machine = Machine::here(&server::project_root());
    let binary = options.binary.map_or_else(server::build, Ok)?;
    let data_dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("target/readers-data");
    if data_dir.exists() {
        std::fs::remove_dir_all(&data_dir).context("the data of the last run")?;
    }
    server::load(&binary, &data_dir, options.partitions)?;

    let mut runs = Vec::new();
    let mut expected: Option<Outcome> = None;
    for (name, layout, hold) in [
        ("rows", Layout::Rows, Hold::No),
        ("columns", Layout::Columns, Hold::No),
        ("stalled", Layout::Rows, Hold::AfterFirstMessage),
    ] {
        let server = Server::start(&binary, &data_dir)?;
        let (run, outcome) = one_run(&server, name, layout, hold, options.readers).await?;
        server.stop()?;
        eprintln!(
            "{name}: {:.2} s, {:.0} MB/s, {:.2} M records/s, peak {:.0} MiB",
            run.seconds,
            run.megabytes_per_second,
            run.records_per_second / 1e6,
            run.peak_mib
        );
        if let Some(expected) = &expected {
            ensure!(expected.hashes == outcome.hashes, "{name}: other records than in the first run");
        }
        expected = Some(outcome);
        runs.push(run);
    }

    let bound = Bound::of(options.readers, options.partitions);
    let within_bound = runs.iter().all(|run| run.peak_mib <= bound.total_mib);
    let command = match arguments.join(" ") {
        none if none.is_empty() => "cd bench && cargo run --release -- readers".to_owned(),
        some => format!("cd bench && cargo run --release -- readers {some}"),
    };
    let hashes = expected.map(|outcome| outcome.hashes).unwrap_or_default();
    let results = Results {
        scenario: "readers",
        command,
        machine,
        tidegate: server::version(&binary),
        readers: options.readers,
        partitions: options.partitions,
        hashes: hashes.into_iter().map(|(partition, hash)| (partition, format!("{hash:032x}"))).collect(),
        bound,
        within_bound,
        runs,
    };
    if options.write_results {
        report::write(&results)?;
    }
    println!("{}", report::markdown(&results));
    Ok(within_bound)
}

/// `None`: help was asked for.
fn options(arguments: &[String]) -> Result<Option<Options>> {
    let mut options = Options { readers: 200, partitions: 1, binary: None, write_results: true };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().with_context(|| format!("{argument} needs a value"));
        let mut number = || -> Result<u32> {
            let text = value()?;
            let number = text.parse().with_context(|| format!("{argument} {text}"))?;
            ensure!(number > 0, "{argument} {text}: at least 1");
            Ok(number)
        };
        match argument.as_str() {
            "--readers" => options.readers = number()? as usize,
            "--partitions" => options.partitions = number()?,
            "--binary" => options.binary = Some(value()?.into()),
            "--no-results" => options.write_results = false,
            "--help" | "-h" => return Ok(None),
            other => bail!("unknown option {other}\n{USAGE}"),
        }
    }
    Ok(Some(options))
}

async fn one_run(
    server: &Server,
    name: &'static str,
    layout: Layout,
    hold: Hold,
    readers: usize,
) -> Result<(Run, Outcome)> {
    let idle = server.memory()?;
    let cpu = || (server.cpu_seconds(), cpu_seconds("self"));
    let cpu_before = cpu();
    // Everybody is connected before the first request, and everybody stands still before the memory is looked at.
    let connected = Arc::new(Barrier::new(readers + 1));
    let held = Arc::new(Barrier::new(readers + 1));
    let go_on = Arc::new(Barrier::new(readers + 1));
    let mut tasks = JoinSet::new();
    for _ in 0..readers {
        let address = server.address().to_owned();
        let (connected, held, go_on) = (Arc::clone(&connected), Arc::clone(&held), Arc::clone(&go_on));
        tasks.spawn(async move {
            let client = client::connect(address).await?;
            connected.wait().await;
            let hold = async {
                if hold == Hold::AfterFirstMessage {
                    held.wait().await;
                    go_on.wait().await;
                }
            };
            client::read(client, TOPIC, layout, hold).await
        });
    }
    connected.wait().await;
    let started = Instant::now();
    let mut stalled = Duration::ZERO;
    if hold == Hold::AfterFirstMessage {
        held.wait().await;
        let since = Instant::now();
        settle(server).await?;
        stalled = since.elapsed();
        go_on.wait().await;
    }

    let mut first: Option<Outcome> = None;
    let mut messages = 0;
    while let Some(joined) = tasks.join_next().await {
        let outcome = joined.context("a reader")?.with_context(|| format!("{name}: a reader"))?;
        ensure!(outcome.records == RECORDS, "{name}: a reader got {} records, not {RECORDS}", outcome.records);
        messages += outcome.messages;
        match &first {
            None => first = Some(outcome),
            Some(first) => ensure!(first.hashes == outcome.hashes, "{name}: two readers got different records"),
        }
    }
    let seconds = (started.elapsed() - stalled).as_secs_f64();
    let taken = |before: Option<f64>, after: Option<f64>| Some(after? - before?);
    let cpu_after = cpu();
    let outcome = first.context("no reader")?;
    let (records, bytes) = (outcome.records * readers as u64, outcome.bytes * readers as u64);
    let run = Run {
        name,
        seconds,
        records,
        bytes,
        megabytes_per_second: bytes as f64 / 1e6 / seconds,
        records_per_second: records as f64 / seconds,
        messages,
        server_cpu_seconds: taken(cpu_before.0, cpu_after.0),
        readers_cpu_seconds: taken(cpu_before.1, cpu_after.1),
        idle_mib: idle.resident,
        peak_mib: server.memory()?.peak,
    };
    Ok((run, outcome))
}

/// Waits until the server's memory has not grown for two seconds.
async fn settle(server: &Server) -> Result<()> {
    let mut peak = 0.0;
    let mut quiet = 0;
    while quiet < 20 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = server.memory()?.peak;
        quiet = if now > peak { 0 } else { quiet + 1 };
        peak = now;
    }
    Ok(())
}

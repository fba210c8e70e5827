//! One scenario: first all sides must read the same, then they are timed in turns.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::broker::{Broker, Buffers};
use super::client::{Client, Program};
use super::results::{Results, Row, Run, Spread};
use super::scenario::Scenario;
use super::side::Side;
use super::{Options, server_root};
use crate::child::{self, Finished};
use crate::link::{Link, LinkOptions, Namespace, Tcp};
use crate::machine::{Machine, load};
use crate::peer::{FIRST_RECORD, Outcome, Task};

/// The bytes of values that each side reads for the comparison of hashes.
const VERIFIED_BYTES: u64 = 20_000_000;
/// How long that may take, and how much longer than its limit a timed run.
const PATIENCE: Duration = Duration::from_secs(60);

/// The clients that could be installed, and why the others could not.
pub type Clients = BTreeMap<Client, Result<(Program, String), String>>;

/// What a run needs that scenarios share.
pub struct Bench<'b> {
    /// The command line.
    pub options: &'b Options,
    /// The link.
    pub link: &'b mut Link,
    /// The broker of the scenario's variant.
    pub broker: &'b Broker,
    /// The end offsets of its topics.
    pub topics: &'b HashMap<&'static str, Vec<(i32, i64)>>,
    /// The clients.
    pub clients: &'b Clients,
    /// What each side has read before for the comparison: by topic, side and place.
    pub verified: &'b mut HashMap<(&'static str, &'static str, bool), Outcome>,
}

/// Where a client runs and how it finds the broker.
struct Place<'p> {
    namespace: &'p Namespace,
    bootstrap: String,
}

impl Bench<'_> {
    /// Measures a scenario.
    pub fn measure(&mut self, scenario: &Scenario) -> Result<Results> {
        let machine = Machine::here(&server_root());
        let link = scenario.round_trip_ms.map(|ms| LinkOptions {
            loss: scenario.loss,
            rate: self.options.rate,
            ..LinkOptions::with_round_trip_ms(ms)
        });
        if let Some(link) = &link {
            self.link.shape(link)?;
        }
        let ends = self.topics.get(scenario.topic.name).context("the topic was not filled")?;
        let mut left_out = Vec::new();
        let mut sides = Vec::new();
        for side in &scenario.sides {
            match self.clients.get(&side.client) {
                Some(Ok(_)) => sides.push(*side),
                Some(Err(why)) => left_out.push(format!("{}: {why}", side.name)),
                None => {}
            }
        }
        let (hash, verified_records) = self.verify(scenario, &sides, ends)?;

        let seconds = self.options.seconds.max(scenario.least_seconds);
        let mut runs: Vec<Vec<(Run, Outcome)>> = vec![Vec::new(); sides.len()];
        for round in 1..=self.options.rounds {
            // Each begins a round in its turn: what comes first after a pause meets colder caches.
            for turn in 0..sides.len() {
                let place = (turn + round - 1) % sides.len();
                let (side, runs) = (&sides[place], &mut runs[place]);
                let task = Task {
                    ends: ends.clone(),
                    limit: Duration::from_secs_f64(seconds),
                    pauses: scenario.pauses,
                    ..Task::default()
                };
                let before = (load(), self.broker.cpu_seconds());
                match self.run(scenario, side, scenario.round_trip_ms.is_some(), task) {
                    Ok((outcome, finished)) => {
                        check(scenario, &outcome, ends).with_context(|| side.name)?;
                        let mut run = timed(&outcome, &finished, before.0, self.broker.cpu_seconds() - before.1);
                        if run.records == 0 {
                            // Its last record is at the start; it had all the time there was.
                            run.seconds = FIRST_RECORD.as_secs_f64();
                        }
                        println!(
                            "  round {round} {:<20} {:>8.1} MB/s {:>10.0} records/s  cpu {:>5.2} s  {:>5.0} MiB  {}load {}",
                            side.name,
                            run.bytes as f64 / 1e6 / run.seconds,
                            run.records as f64 / run.seconds,
                            run.user_seconds + run.system_seconds,
                            run.peak_mib,
                            if run.complete { "" } else { "stopped  " },
                            run.load.unwrap_or_default(),
                        );
                        runs.push((run, outcome));
                    }
                    // One that fails while timed is left out, with its reason, rather than the scenario with all others.
                    Err(error) => {
                        println!("  round {round} {:<20} {error:#}", side.name);
                        left_out.push(format!("{}, round {round}: {error:#}", side.name));
                    }
                }
            }
        }
        let mut rows: Vec<Row> = sides.iter().zip(runs).filter_map(|(side, runs)| self.row(side, runs)).collect();
        let ours = rows.iter().find(|row| row.side == "tidegate").map(|row| row.megabytes_per_second.median);
        for row in &mut rows {
            let theirs = row.megabytes_per_second.median;
            row.ours_over_this = ours.filter(|_| theirs > 0.0).map(|ours| ours / theirs);
        }
        let verdicts = scenario.targets.iter().map(|target| target.judge(&rows)).collect();
        let near = if scenario.round_trip_ms.is_some() { &self.link.near } else { &self.link.far };
        let topic = scenario.topic;
        Ok(Results {
            scenario: scenario.name.clone(),
            asks: scenario.asks.to_owned(),
            command: format!("cargo run --release -- fetch {} {}", scenario.name, self.options.said())
                .trim()
                .to_owned(),
            machine,
            round_trip_ms: scenario.round_trip_ms,
            loss: scenario.loss,
            rate: self.options.rate.filter(|_| link.is_some()),
            link: self.link.totals().filter(|_| link.is_some()),
            broker: format!("Apache Kafka {}", tidegate_testkit::kafka::VERSION),
            send_buffer_bytes: if self.broker.buffers == Buffers::Auto { -1 } else { 102_400 },
            client_tcp: Tcp::of(near)?.0,
            broker_tcp: Tcp::of(&self.link.far)?.0,
            topic: format!(
                "{} partition(s), {} records of {} bytes ({}), batches of {}, compression {}",
                topic.partitions,
                ends.iter().map(|(_, end)| end).sum::<i64>(),
                topic.value_bytes,
                match topic.values {
                    super::fill::Values::Random => "random bytes",
                    super::fill::Values::Text => "log events as JSON",
                },
                if topic.uneven { "50 to 900 KB" } else { "16 KiB" },
                topic.compression
            ),
            rounds: self.options.rounds,
            limit_seconds: seconds,
            hash,
            verified_records,
            rows,
            verdicts,
            left_out,
        })
    }

    /// Lets each side read the first records over loopback, ours over the link too, and compares what they got.
    fn verify(&mut self, scenario: &Scenario, sides: &[Side], ends: &[(i32, i64)]) -> Result<(String, u64)> {
        let each = VERIFIED_BYTES / scenario.topic.value_bytes as u64 / ends.len() as u64;
        let few: Vec<_> = ends.iter().map(|&(partition, end)| (partition, end.min(each as i64))).collect();
        let mut agreed: Option<(&str, Outcome)> = None;
        for side in sides {
            let ours_far = scenario.round_trip_ms.is_some() && side.client == Client::Tidegate;
            for over_link in [false, true].into_iter().filter(|over_link| !over_link || ours_far) {
                // A client with other settings, or over TLS, has another name or another topic's turn.
                let key = (scenario.topic.name, side.name, over_link || side.tls);
                let outcome = match self.verified.get(&key) {
                    Some(outcome) => outcome.clone(),
                    None => {
                        let task = Task { ends: few.clone(), limit: PATIENCE, hash: true, ..Task::default() };
                        let (outcome, _) = self
                            .run(scenario, side, over_link, task)
                            .with_context(|| format!("{} while it was verified", side.name))?;
                        self.verified.insert(key, outcome.clone());
                        outcome
                    }
                };
                ensure!(outcome.complete, "{} did not read {} records within {PATIENCE:?}", side.name, each);
                ensure!(outcome.contiguous == Some(true), "{} read offsets with a gap", side.name);
                match &agreed {
                    None => agreed = Some((side.name, outcome)),
                    Some((first, other)) => ensure!(
                        (&other.hash, other.records, other.bytes) == (&outcome.hash, outcome.records, outcome.bytes),
                        "{first} and {} read different records: {other:?}, {outcome:?}",
                        side.name
                    ),
                }
            }
        }
        let Some((_, outcome)) = agreed else { bail!("no client can be had") };
        Ok((outcome.hash.unwrap_or_default(), outcome.records))
    }

    /// One run of a side.
    fn run(&self, scenario: &Scenario, side: &Side, over_link: bool, task: Task) -> Result<(Outcome, Finished)> {
        let Some(Ok((program, _))) = self.clients.get(&side.client) else { bail!("{} was not installed", side.name) };
        let place = match (over_link, side.tls) {
            (true, _) => Place { namespace: &self.link.near, bootstrap: Broker::over_link() },
            (false, true) => Place { namespace: &self.link.far, bootstrap: Broker::tls() },
            (false, false) => Place { namespace: &self.link.far, bootstrap: self.broker.loopback() },
        };
        let task = Task {
            bootstrap: place.bootstrap,
            topic: scenario.topic.name.to_owned(),
            ca: side.tls.then(|| self.broker.ca().to_owned()),
            settings: side.settings.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect(),
            ..task
        };
        let mut command = program.command();
        command.args(task.arguments());
        let finished = place.namespace.run(|| child::run(&mut command, task.limit + PATIENCE))??;
        let line = finished.stdout.lines().last().unwrap_or_default();
        let outcome = serde_json::from_str(line).with_context(|| format!("{} printed {line:?}", side.name))?;
        Ok((outcome, finished))
    }

    fn row(&self, side: &Side, runs: Vec<(Run, Outcome)>) -> Option<Row> {
        let version = match self.clients.get(&side.client) {
            Some(Ok((_, version))) => version.clone(),
            _ => String::new(),
        };
        let gaps = runs.iter().filter_map(|(_, outcome)| outcome.longest_gap_ms);
        let longest_gap_ms = gaps.max_by(f64::total_cmp);
        let note = runs.last()?.1.note.clone().filter(|note| !note.is_empty());
        let runs: Vec<Run> = runs.into_iter().map(|(run, _)| run).collect();
        let median = |of: &dyn Fn(&Run) -> f64| Spread::of(runs.iter().map(of));
        let cpu = |run: &Run| run.user_seconds + run.system_seconds;
        Some(Row {
            side: side.name.to_owned(),
            version,
            settings: side.settings.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect(),
            tuned: side.tuned,
            tls: side.tls,
            checks_crcs: side.checks_crcs(),
            megabytes_per_second: median(&|run| run.bytes as f64 / 1e6 / run.seconds),
            records_per_second: median(&|run| run.records as f64 / run.seconds),
            cpu_seconds_per_gb: median(&|run| cpu(run) / run.bytes.max(1) as f64 * 1e9).median,
            cpu_seconds_per_million: median(&|run| cpu(run) / run.records.max(1) as f64 * 1e6).median,
            broker_cpu_seconds_per_gb: median(&|run| run.broker_seconds / run.bytes.max(1) as f64 * 1e9).median,
            peak_mib: median(&|run| run.peak_mib).median,
            first_seconds: Spread::of(runs.iter().filter_map(|run| run.first_seconds)).median,
            ours_over_this: None,
            longest_gap_ms,
            note,
            runs,
        })
    }
}

/// A timed run reads everything and no more, or stops on its way.
fn check(scenario: &Scenario, outcome: &Outcome, ends: &[(i32, i64)]) -> Result<()> {
    let all: i64 = ends.iter().map(|(_, end)| end).sum();
    let bytes = outcome.records * scenario.topic.value_bytes as u64;
    ensure!(outcome.bytes == bytes, "{} records with {} bytes", outcome.records, outcome.bytes);
    ensure!(!outcome.complete || outcome.records == all as u64, "{} records of {all}", outcome.records);
    Ok(())
}

fn timed(outcome: &Outcome, finished: &Finished, load: Option<f64>, broker_seconds: f64) -> Run {
    Run {
        records: outcome.records,
        bytes: outcome.bytes,
        seconds: outcome.seconds,
        first_seconds: outcome.first_seconds,
        complete: outcome.complete,
        user_seconds: finished.user_seconds,
        system_seconds: finished.system_seconds,
        broker_seconds,
        peak_mib: finished.peak_mib,
        load,
    }
}

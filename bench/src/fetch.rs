//! Reading a backlog: our fetch engine beside other clients, from a real Apache Kafka, over an emulated link or loopback.

mod broker;
mod client;
mod fill;
mod measure;
mod plot;
mod report;
mod results;
mod scenario;
mod side;
mod target;
mod text;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

use self::broker::Broker;
use self::fill::Topic;
use self::measure::{Bench, Clients};
use self::scenario::Scenario;
use crate::link::{self, Link};
use crate::machine::load;

const USAGE: &str = "\
Usage: cargo run --release -- fetch <scenario...|all|lossy|list|link-check> [options]

  all is every scenario without loss, lossy every one with

  --rounds N       how often each client is timed, in turns [5]
  --seconds S      how long after its first record a client is stopped that has not read everything [4]
  --scale F        make the topics so many times as large [1]
  --sides A,B      only these sides
  --rate BYTES     hold the link to so many bytes a second, each way
  --loss P         link-check: lose this part of packets
  --no-results     do not write bench/results/";

/// The command line.
#[derive(Clone, Debug)]
pub struct Options {
    scenarios: Vec<String>,
    /// How many rounds.
    pub rounds: usize,
    /// After how many seconds a client is stopped.
    pub seconds: f64,
    scale: f64,
    sides: Option<Vec<String>>,
    /// The link's rate, in bytes a second.
    pub rate: Option<u64>,
    loss: f64,
    write_results: bool,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Option<Self>> {
        let mut options = Self {
            scenarios: Vec::new(),
            rounds: 5,
            seconds: 4.0,
            scale: 1.0,
            sides: None,
            rate: None,
            loss: 0.0,
            write_results: true,
        };
        let mut rest = arguments.iter();
        while let Some(name) = rest.next() {
            let mut value = || rest.next().with_context(|| format!("{name} needs a value"));
            match name.as_str() {
                "--rounds" => options.rounds = value()?.parse().context("--rounds")?,
                "--seconds" => options.seconds = value()?.parse().context("--seconds")?,
                "--scale" => options.scale = value()?.parse().context("--scale")?,
                "--sides" => options.sides = Some(value()?.split(',').map(str::to_owned).collect()),
                "--rate" => options.rate = Some(value()?.parse().context("--rate")?),
                "--loss" => options.loss = value()?.parse().context("--loss")?,
                "--no-results" => options.write_results = false,
                "--help" | "-h" => return Ok(None),
                other if other.starts_with('-') => bail!("{other} is not an option\n{USAGE}"),
                scenario => options.scenarios.push(scenario.to_owned()),
            }
        }
        ensure!(options.rounds > 0, "--rounds must be 1 or more");
        ensure!(options.seconds > 0.0 && options.scale > 0.0, "--seconds and --scale must be more than 0");
        Ok((!options.scenarios.is_empty()).then_some(options))
    }

    /// The options as they would be given again.
    pub fn said(&self) -> String {
        let mut said = format!("--rounds {} --seconds {}", self.rounds, self.seconds);
        if self.scale != 1.0 {
            said.push_str(&format!(" --scale {}", self.scale));
        }
        if let Some(sides) = &self.sides {
            said.push_str(&format!(" --sides {}", sides.join(",")));
        }
        if let Some(rate) = self.rate {
            said.push_str(&format!(" --rate {rate}"));
        }
        said
    }

    /// The scenarios that were asked for.
    fn chosen(&self) -> Result<Vec<Scenario>> {
        let mut chosen = scenario::all();
        for name in self.scenarios.iter().filter(|name| !["all", "lossy"].contains(&name.as_str())) {
            ensure!(chosen.iter().any(|s| s.name == *name), "there is no scenario {name}: `fetch list` lists them");
        }
        chosen.retain(|scenario| {
            let group = if scenario.loss > 0.0 { "lossy" } else { "all" };
            self.scenarios.iter().any(|name| name == group || *name == scenario.name)
        });
        for scenario in &mut chosen {
            scenario.topic.bytes = (scenario.topic.bytes as f64 * self.scale) as u64;
            if let Some(sides) = &self.sides {
                scenario.sides.retain(|side| sides.iter().any(|name| name == side.name));
            }
        }
        chosen.retain(|scenario| !scenario.sides.is_empty());
        Ok(chosen)
    }
}

/// `fetch ...`: false when a scenario failed or a target was not met.
pub fn run(arguments: &[String]) -> Result<bool> {
    let Some(options) = Options::parse(arguments)? else {
        println!("{USAGE}");
        return Ok(true);
    };
    match options.scenarios.first().map(String::as_str) {
        Some("list") => {
            for scenario in scenario::all() {
                println!(
                    "{:<20} {}{}",
                    scenario.name,
                    scenario.asks,
                    if scenario.loss > 0.0 { "; with loss" } else { "" }
                );
            }
            Ok(true)
        }
        Some("link-check") => {
            let carried = link::run_check(options.seconds.min(3.0), options.loss, options.rate)?;
            if options.write_results {
                report::write_link(&carried)?;
            }
            Ok(true)
        }
        _ => scenarios(&options),
    }
}

fn scenarios(options: &Options) -> Result<bool> {
    let chosen = options.chosen()?;
    let mut link = Link::open()?;
    let mut clients = Clients::new();
    for client in scenario::clients(&chosen) {
        let installed = client::install(client).map_err(|error| format!("{error:#}"));
        match &installed {
            Ok((_, version)) => println!("{version}"),
            Err(error) => println!("left out: {error}"),
        }
        clients.insert(client, installed);
    }

    let mut good = true;
    let mut broker: Option<Broker> = None;
    let mut topics = HashMap::new();
    let mut verified = HashMap::new();
    for scenario in &chosen {
        if broker.as_ref().is_none_or(|broker| broker.buffers != scenario.buffers) {
            // The old one first: its memory and its files are wanted.
            drop(broker.take());
            topics.clear();
            verified.clear();
            broker = Some(Broker::start(&link, scenario.buffers)?);
            let mut wanted = BTreeMap::new();
            for other in chosen.iter().filter(|other| other.buffers == scenario.buffers) {
                wanted.insert(other.topic.name, other.topic);
            }
            if let Some(broker) = &broker {
                for topic in wanted.into_values() {
                    topics.insert(topic.name, fill(&link, broker, topic)?);
                }
                // What is written back while a client is timed would take its turn at the processor.
                rustix::fs::sync();
            }
        }
        let Some(broker) = &broker else { bail!("no broker") };
        println!("{}: {} (load {})", scenario.name, scenario.asks, load().unwrap_or_default());
        let mut bench =
            Bench { options, link: &mut link, broker, topics: &topics, clients: &clients, verified: &mut verified };
        match bench.measure(scenario) {
            Ok(results) => {
                println!("{}", report::table(&results));
                good &= results.left_out.is_empty() && results.verdicts.iter().all(|verdict| verdict.met);
                if options.write_results {
                    report::write(&results)?;
                }
            }
            Err(error) => {
                println!("{} FAILED: {error:#}", scenario.name);
                good = false;
            }
        }
    }
    Ok(good)
}

fn fill(link: &Link, broker: &Broker, topic: Topic) -> Result<Vec<(i32, i64)>> {
    let begun = std::time::Instant::now();
    let address = broker.address()?;
    let ends = link.far.run(|| fill::fill(address, topic))?.with_context(|| format!("filling {}", topic.name))?;
    let seconds = begun.elapsed().as_secs_f64();
    println!("filled {} with {} MB in {seconds:.1} s", topic.name, topic.bytes / 1_000_000);
    Ok(ends)
}

/// The root of the project.
fn server_root() -> PathBuf {
    crate::server::project_root()
}

//! A consumer as a process of its own: reads given partitions from the start to given offsets and prints one line of JSON.
//!
//! The peers in other languages (`peers/`) take the same options and print the same line.

mod librdkafka;
mod rdkafka;
mod tally;
mod tidegate;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};

pub use self::tally::Outcome;

/// What a peer is to read, and how.
#[derive(Clone, Debug, Default)]
pub struct Task {
    /// `host:port`.
    pub bootstrap: String,
    /// The topic.
    pub topic: String,
    /// Partitions, each with the offset to stop at.
    pub ends: Vec<(i32, i64)>,
    /// How long after the first records to stop, whatever has been read by then.
    pub limit: Duration,
    /// Whether every value is hashed and every offset looked at.
    pub hash: bool,
    /// Whether the consumer stands still for 200 ms every 2 s.
    pub pauses: bool,
    /// The certificate authority of a TLS listener.
    pub ca: Option<PathBuf>,
    /// Settings, by the client's own names.
    pub settings: Vec<(String, String)>,
}

/// How long a pausing consumer reads between two pauses.
pub const PAUSE_EVERY: Duration = Duration::from_secs(2);
/// How long it then stands still.
pub const PAUSE_FOR: Duration = Duration::from_millis(200);

/// How long a consumer waits for its first records.
pub const FIRST_RECORD: Duration = Duration::from_secs(25);

impl Task {
    /// The options of a peer's command line.
    pub fn arguments(&self) -> Vec<String> {
        let ends: Vec<String> = self.ends.iter().map(|(partition, end)| format!("{partition}={end}")).collect();
        let mut arguments = vec![
            "--bootstrap".to_owned(),
            self.bootstrap.clone(),
            "--topic".to_owned(),
            self.topic.clone(),
            "--ends".to_owned(),
            ends.join(","),
            "--seconds".to_owned(),
            self.limit.as_secs_f64().to_string(),
        ];
        if self.hash {
            arguments.push("--hash".to_owned());
        }
        if self.pauses {
            arguments.push("--pauses".to_owned());
        }
        if let Some(ca) = &self.ca {
            arguments.extend(["--ca".to_owned(), ca.display().to_string()]);
        }
        for (name, value) in &self.settings {
            arguments.extend(["--set".to_owned(), format!("{name}={value}")]);
        }
        arguments
    }

    fn parse(arguments: &[String]) -> Result<Self> {
        let mut task = Self::default();
        let mut rest = arguments.iter();
        while let Some(name) = rest.next() {
            let mut value = || rest.next().with_context(|| format!("{name} needs a value"));
            match name.as_str() {
                "--bootstrap" => task.bootstrap = value()?.clone(),
                "--topic" => task.topic = value()?.clone(),
                "--ends" => {
                    for part in value()?.split(',') {
                        let (partition, end) = part.split_once('=').context("--ends is PARTITION=OFFSET,...")?;
                        task.ends.push((partition.parse()?, end.parse()?));
                    }
                }
                "--seconds" => task.limit = Duration::from_secs_f64(value()?.parse()?),
                "--hash" => task.hash = true,
                "--pauses" => task.pauses = true,
                "--ca" => task.ca = Some(value()?.into()),
                "--set" => {
                    let (name, value) = value()?.split_once('=').context("--set is NAME=VALUE")?;
                    task.settings.push((name.to_owned(), value.to_owned()));
                }
                other => bail!("{other} is not an option of a peer"),
            }
        }
        Ok(task)
    }
}

/// `peer <name> <options>`: the peers that are written in Rust.
pub fn run(arguments: &[String]) -> Result<bool> {
    let (name, options) = arguments.split_first().context("which peer?")?;
    let task = Task::parse(options)?;
    let outcome = match name.as_str() {
        "tidegate" => tidegate::read(&task),
        "librdkafka" => librdkafka::read(&task),
        "rdkafka" => rdkafka::read(&task),
        other => bail!("{other} is not a peer"),
    }?;
    println!("{}", serde_json::to_string(&outcome)?);
    Ok(true)
}

//! `tidegate publish`: records from a file or standard input into a topic.

mod remote;
mod to_cluster;

pub(crate) use self::to_cluster::{MAX_RECORD_BYTES, create};

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tidegate_client::ProduceSummary;
use tidegate_model::Compression;
use tidegate_server::engine::TopicPayload;

use crate::exit::{EXIT_CODES, Exit, Failure, chain};
use crate::input::fields::FieldPath;
use crate::input::records::{self, InputError, Rules, Shape};
use crate::input::timestamp::Unit;
use crate::input::{lines::LineError, open};
use crate::output::talk;
use crate::signals::Signals;
use crate::target::{SchemaArgs, Target, TargetArgs};
use crate::units::{Size, bytes, count, counted, per_second, span};

const EXAMPLES: &str = "\
Examples:
  JSON documents, each with its own time, into a new topic that keeps them for ever:
    tidegate publish flights.json examples/flights/flights.ndjson.zst \\
        --timestamp-field event_time --key-field flight --brokers localhost:9092 \\
        --create --partitions 6 --config retention.ms=-1

  The same documents as Protobuf, through the local server:
    tidegate publish flights examples/flights/flights.ndjson.zst --timestamp-field event_time \\
        --proto examples/flights/flight.proto --message tidegate.examples.flights.v1.Flight

  A copy of a range, keys, headers and timestamps included:
    tidegate read flights.json --last 100 | tidegate publish copy --format ndjson

Input: one JSON value a line; zstd and gzip are unpacked. Blank lines are skipped, two values on a line are refused. A line \
null is a record without a value (a tombstone).";

fn after_help() -> String {
    format!("{EXAMPLES}\n\n{EXIT_CODES}")
}

/// Publish records from a file or standard input
///
/// It ends when every record is durable (acks=all). A line that cannot be used ends it with the line's number; the records
/// before it are published.
#[derive(Debug, Args)]
#[command(after_help = after_help())]
pub(crate) struct PublishArgs {
    /// The topic; it must exist, or see --create
    topic: String,

    /// The input; - is standard input
    #[arg(default_value = "-")]
    file: PathBuf,

    /// What a line is
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = FormatArg::Values, help_heading = "Input")]
    format: FormatArg,

    /// The field of the value that becomes the record's key: a name, or a JSON pointer such as /device/id
    #[arg(long, value_name = "FIELD", help_heading = "Input")]
    key_field: Option<FieldPath>,

    /// The field of the value that becomes the record's timestamp: RFC 3339 with an offset, 1714521600s, 1714521600000ms,
    /// or a number with --timestamp-unit [default: the time of publishing]
    #[arg(long, value_name = "FIELD", help_heading = "Input")]
    timestamp_field: Option<FieldPath>,

    /// What the numbers of --timestamp-field count since 1970; it is never guessed
    #[arg(long, value_enum, value_name = "UNIT", requires = "timestamp_field", help_heading = "Input")]
    timestamp_unit: Option<Unit>,

    /// The longest line to take
    #[arg(long, value_name = "SIZE", default_value = "64MiB", help_heading = "Input")]
    max_line_bytes: Size,

    /// Put every record into this partition [default: the key decides, as in Java's producer; without a key, chance]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..), help_heading = "Topic")]
    partition: Option<i32>,

    /// Create the topic if it does not exist
    #[arg(long, requires = "direct", help_heading = "Topic")]
    create: bool,

    #[command(flatten)]
    new_topic: NewTopicArgs,

    #[command(flatten)]
    target: TargetArgs,

    /// How batches are compressed [default: as --kafka-config says, else lz4]
    #[arg(long, value_enum, value_name = "CODEC", conflicts_with = "server", help_heading = "Source")]
    compression: Option<CompressionArg>,

    #[command(flatten)]
    schema: SchemaArgs,
}

/// What a topic is created with.
#[derive(Debug, Clone, Args)]
pub(crate) struct NewTopicArgs {
    /// With --create: how many partitions [default: the cluster's]
    #[arg(long, value_name = "N", requires = "create", value_parser = clap::value_parser!(i32).range(1..), help_heading = "Topic")]
    pub(crate) partitions: Option<i32>,

    /// With --create: how many replicas [default: the cluster's]
    #[arg(long, value_name = "N", requires = "create", value_parser = clap::value_parser!(i16).range(1..), help_heading = "Topic")]
    pub(crate) replication_factor: Option<i16>,

    /// With --create: a setting of the topic, by Kafka's name, such as retention.ms=-1 [may be repeated]
    #[arg(long = "config", value_name = "KEY=VALUE", requires = "create", value_parser = key_value, help_heading = "Topic")]
    pub(crate) config: Vec<(String, String)>,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write key=value, such as retention.ms=-1".to_owned()),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FormatArg {
    /// The record's value as JSON
    Values,
    /// An object with value, key, headers, timestamp and partition, as read writes it
    Ndjson,
}

/// Kafka's compression codecs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompressionArg {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl From<CompressionArg> for Compression {
    fn from(compression: CompressionArg) -> Self {
        match compression {
            CompressionArg::None => Self::None,
            CompressionArg::Gzip => Self::Gzip,
            CompressionArg::Snappy => Self::Snappy,
            CompressionArg::Lz4 => Self::Lz4,
            CompressionArg::Zstd => Self::Zstd,
        }
    }
}

impl PublishArgs {
    fn rules(&self, payload: TopicPayload) -> Result<Rules, Failure> {
        let shape = match self.format {
            FormatArg::Values => Shape::Values {
                key_field: self.key_field.clone(),
                timestamp_field: self.timestamp_field.clone(),
                timestamp_unit: self.timestamp_unit,
            },
            FormatArg::Ndjson if self.key_field.is_some() || self.timestamp_field.is_some() => {
                return Err(Failure::usage(
                    "--key-field and --timestamp-field go with --format values: ndjson has a key and a timestamp itself",
                ));
            }
            FormatArg::Ndjson => Shape::Ndjson,
        };
        let Size(max_line_bytes) = self.max_line_bytes;
        let max_line_bytes = usize::try_from(max_line_bytes).unwrap_or(usize::MAX).min(1 << 30);
        Ok(Rules { shape, payload, partition: self.partition, max_line_bytes })
    }

    fn open(&self) -> Result<Box<dyn open::Input>, Failure> {
        open::open(&self.file).map_err(|error| Failure::usage(format_args!("{}: {error}", self.input_name())))
    }

    fn input_name(&self) -> String {
        if self.file.as_os_str() == "-" { "standard input".to_owned() } else { self.file.display().to_string() }
    }
}

/// Why publishing stopped before the end of the input.
enum Stopped {
    /// The input cannot be used from here on.
    Input(InputError),
    /// SIGINT or SIGTERM.
    Signal,
}

/// What was published, and what the user should know.
struct Outcome {
    summary: ProduceSummary,
    value_bytes: u64,
    elapsed: Duration,
    stopped: Option<Stopped>,
    warnings: Vec<String>,
}

/// Runs the command.
pub(crate) async fn run(args: PublishArgs) -> Result<Exit, Failure> {
    let mut signals = Signals::catch()?;
    let outcome = match args.target.target()? {
        Target::Server(server) => remote::publish(&args, &server, &mut signals).await?,
        Target::Brokers(brokers) => to_cluster::publish(&args, &brokers, &mut signals).await?,
    };
    for warning in &outcome.warnings {
        talk::warn(warning);
    }
    if outcome.summary.records > 0 || outcome.stopped.is_none() {
        talk::say(summary(&args.topic, &outcome));
    }
    match outcome.stopped {
        None => Ok(Exit::Done),
        Some(Stopped::Signal) => Ok(Exit::Interrupted),
        Some(Stopped::Input(error)) => {
            let (exit, before) = match outcome.summary.records {
                0 => (Exit::Usage, "nothing was published".to_owned()),
                1 => (Exit::Incomplete, "the record before it was published".to_owned()),
                many => (Exit::Incomplete, format!("the {} before it were published", counted(many, "record"))),
            };
            let exit = if matches!(error, InputError::Line(LineError::Io { .. })) { Exit::Incomplete } else { exit };
            Err(Failure::new(exit, format_args!("{}: {}; {before}", args.input_name(), chain(&error))))
        }
    }
}

fn summary(topic: &str, outcome: &Outcome) -> String {
    let Outcome { summary, value_bytes, elapsed, .. } = outcome;
    let places: Vec<String> = summary
        .partitions
        .iter()
        .map(|(partition, part)| format!("{partition} [{}, {}]", part.first_offset, part.last_offset))
        .collect();
    let mut line = format!(
        "{} durable in {topic}: {} of values in {}, {} records/s, {}/s",
        counted(summary.records, "record"),
        bytes(*value_bytes),
        span(*elapsed),
        count(per_second(summary.records, *elapsed)),
        bytes(per_second(*value_bytes, *elapsed)),
    );
    match places.len() {
        0 => {}
        1..=12 => line.push_str(&format!("; partitions with first and last offset: {}", places.join(", "))),
        many => line.push_str(&format!("; in {many} partitions")),
    }
    line
}

/// Starts the thread that reads the input.
fn begin_input(
    args: &PublishArgs,
    payload: TopicPayload,
) -> Result<tokio::sync::mpsc::Receiver<Result<records::Group, InputError>>, Failure> {
    let rules = args.rules(payload)?;
    Ok(records::read(args.open()?, rules))
}

//! `tidegate read`: the records of a range on standard output, and whether they are all.

mod local;
mod remote;
mod summary;

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tidegate_api::rest;
use tidegate_model::Isolation;
use tidegate_server::engine::{OnDataLoss, RangeSpec, ReadRequest};
use tidegate_server::formats::Format;

use crate::exit::{EXIT_CODES, Exit, Failure};
use crate::output::progress::Progress;
use crate::output::sink::{Sink, SinkError};
use crate::output::talk;
use crate::target::{SchemaArgs, Target, TargetArgs};
use crate::units::{Size, counted};

const EXAMPLES: &str = "\
Examples:
  A month of flights, as NDJSON, from the local server:
    tidegate read flights --from 2013-02-01 --until 2013-03-01

  The last two days, the bare values only:
    tidegate read flights --from -48h --format values

  One hour, beginning at a time with its offset:
    tidegate read flights --from 2013-07-04T08:00:00-04:00 --until +1h

  The newest 10 records of each partition, straight from a Kafka cluster:
    tidegate read flights.json --last 10 --brokers localhost:9092

  Protobuf values as they stand in the log, each behind its length:
    tidegate read flights --from 2013-07-04 --until +24h --format protobuf --output july.bin

Times: 2013-02-01 (UTC), RFC 3339 with an offset, 1714521600s, 1714521600000ms, now, -48h; --until also +1h, counted from \
--from. A number without a unit is refused. The range is half-open: --from is in it, --until is not.";

fn after_help() -> String {
    format!("{EXAMPLES}\n\n{EXIT_CODES}")
}

/// Read a range of a topic: the records on standard output, and whether they are all
///
/// ndjson and json end with the end statement, which says per partition what was read and what that proves. values and
/// protobuf have no room for it, so it goes to standard error. Output without it is a part; then the exit code is 3.
#[derive(Debug, Args)]
#[command(after_help = after_help())]
pub(crate) struct ReadArgs {
    /// The topic [default, with --kafka-config: the EntityPath of its connection string]
    #[arg(required_unless_present = "kafka_config")]
    topic: Option<String>,

    /// Only records from this time on [default: from the start of the log]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, help_heading = "Range")]
    from: Option<String>,

    /// Only records before this time [default: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, help_heading = "Range")]
    until: Option<String>,

    /// Read from this offset of each partition on, in place of a time range [default: the start of the log]
    #[arg(long, value_name = "N", conflicts_with_all = ["from", "until"], help_heading = "Range")]
    offset: Option<i64>,

    /// Read up to this offset of each partition, which is not read itself [default: the end at the start of the read]
    #[arg(long, value_name = "N", conflicts_with_all = ["from", "until"], help_heading = "Range")]
    end_offset: Option<i64>,

    /// Read the newest N records of each partition
    #[arg(long, value_name = "N", conflicts_with_all = ["from", "until", "offset", "end_offset"], help_heading = "Range")]
    last: Option<u64>,

    /// Only this partition [may be repeated]
    #[arg(long = "partition", value_name = "N", value_delimiter = ',', help_heading = "Range")]
    partitions: Vec<i32>,

    /// At most N records in all; a read that this ends does not count as complete
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Range")]
    limit: Option<u64>,

    /// Which records of transactions to see
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t = IsolationArg::ReadCommitted, help_heading = "Range")]
    isolation: IsolationArg,

    /// What to do when records of the range are gone from the log: fail, or read what is left and report what is gone
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = OnDataLossArg::Fail, help_heading = "Range")]
    on_data_loss: OnDataLossArg,

    /// The output's format
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = FormatArg::Ndjson, help_heading = "Output")]
    format: FormatArg,

    /// Write to this file; until the read is complete it is FILE.incomplete [default: standard output]
    #[arg(long, short, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,

    #[command(flatten)]
    target: TargetArgs,

    /// How records travel from the server; the output is the same
    #[arg(long, value_enum, value_name = "LAYOUT", default_value_t = LayoutArg::Columns, conflicts_with = "direct", help_heading = "Source")]
    layout: LayoutArg,

    /// The largest message to take from the server; a record must fit into one
    #[arg(long, value_name = "SIZE", default_value = "64MiB", conflicts_with = "direct", help_heading = "Source")]
    max_message_bytes: Size,

    #[command(flatten)]
    schema: SchemaArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FormatArg {
    /// One object a record, one a line; the last line is the end statement
    Ndjson,
    /// One document with the records and the end statement
    Json,
    /// The bare values as JSON, one a line
    Values,
    /// The values as stored, each behind its length as a varint
    Protobuf,
}

impl From<FormatArg> for Format {
    fn from(format: FormatArg) -> Self {
        match format {
            FormatArg::Ndjson => Self::Ndjson,
            FormatArg::Json => Self::Json,
            FormatArg::Values => Self::Values,
            FormatArg::Protobuf => Self::Protobuf,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LayoutArg {
    /// One message a record
    Rows,
    /// Packed columns
    Columns,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum IsolationArg {
    ReadCommitted,
    ReadUncommitted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnDataLossArg {
    Fail,
    Report,
}

impl ReadArgs {
    /// The topic, once it is known.
    fn topic(&self) -> &str {
        self.topic.as_deref().unwrap_or_default()
    }

    fn request(&self) -> ReadRequest {
        let range = match self {
            Self { last: Some(count), .. } => RangeSpec::Last { count: *count },
            Self { offset: None, end_offset: None, .. } => {
                RangeSpec::Time { from: self.from.clone(), until: self.until.clone() }
            }
            Self { offset, end_offset, .. } => RangeSpec::Offsets { start: *offset, end: *end_offset },
        };
        ReadRequest {
            topic: self.topic().to_owned(),
            range,
            partitions: self.partitions.clone(),
            limit: self.limit,
            isolation: match self.isolation {
                IsolationArg::ReadCommitted => Isolation::ReadCommitted,
                IsolationArg::ReadUncommitted => Isolation::ReadUncommitted,
            },
            on_data_loss: match self.on_data_loss {
                OnDataLossArg::Fail => OnDataLoss::Fail,
                OnDataLossArg::Report => OnDataLoss::Report,
            },
        }
    }
}

/// How a read ended whose beginning went well.
enum Ended {
    /// With its end statement, and the text of it that goes to standard error, where the format has it apart.
    Complete { end: rest::EndStatement, apart: Option<bytes::Bytes> },
    /// Without it.
    Failed(Failure),
    /// The output took no more. [`Sink::finish`] knows why.
    OutputClosed,
}

/// Runs the command.
pub(crate) async fn run(mut args: ReadArgs) -> Result<Exit, Failure> {
    if !args.target.is_direct() && args.schema.proto.is_some() {
        return Err(Failure::usage("--proto and --message go with --brokers: a server has its own configuration"));
    }
    let to_terminal = args.output.is_none() && std::io::stdout().is_terminal();
    if args.format == FormatArg::Protobuf && to_terminal {
        return Err(Failure::usage("--format protobuf writes bytes, which a terminal cannot show")
            .hint("say --output FILE, or send it through a pipe"));
    }
    match args.target.target()? {
        Target::Server(server) => {
            let read = remote::begin(&args, &server).await?;
            let (sink, mut progress) = open(&args, to_terminal)?;
            let ended = read.run(&sink, &mut progress).await;
            finish(&args, sink, progress, ended).await
        }
        Target::Brokers(brokers) => {
            args.topic = Some(brokers.topic(args.topic.as_deref())?);
            let read = local::begin(&args, &brokers).await?;
            let (sink, mut progress) = open(&args, to_terminal)?;
            let ended = read.run(&sink, &mut progress).await;
            finish(&args, sink, progress, ended).await
        }
    }
}

/// Opens the output, after all that can fail before the first record has gone well: a mistake leaves no file behind.
fn open(args: &ReadArgs, to_terminal: bool) -> Result<(Sink, Progress), Failure> {
    let sink = Sink::open(args.output.as_deref()).map_err(sink_failure)?;
    Ok((sink, Progress::new(format!("reading {}", args.topic()), None, to_terminal)))
}

async fn finish(
    args: &ReadArgs,
    sink: Sink,
    progress: Progress,
    (records, ended): (u64, Ended),
) -> Result<Exit, Failure> {
    let complete = matches!(ended, Ended::Complete { .. });
    let (written, part) = sink.finish(complete).await.map_err(sink_failure)?;
    let elapsed = progress.elapsed();
    drop(progress);
    match ended {
        Ended::Complete { end, apart } => {
            if let Some(text) = apart {
                talk::say(String::from_utf8_lossy(&text));
            }
            for line in summary::lines(&end, args.limit, written, elapsed) {
                talk::say(line);
            }
            Ok(Exit::Done)
        }
        Ended::Failed(failure) => {
            let left = part.map_or_else(String::new, |part| format!(" in {}", part.display()));
            let came = counted(records, "record");
            let message = format!("{}; the output is incomplete: {came} came out before{left}", failure.message);
            Err(Failure { exit: Exit::Incomplete, message, ..failure })
        }
        // The output said it is closed, but all that it got it wrote: whoever reads it left while nothing was to write.
        Ended::OutputClosed => Err(sink_failure(SinkError::OutputClosed)),
    }
}

fn sink_failure(error: SinkError) -> Failure {
    let exit = match error {
        SinkError::OutputClosed => Exit::OutputClosed,
        SinkError::Stdout(_) | SinkError::File { .. } => Exit::Failed,
    };
    Failure::new(exit, error)
}

//! `tidegate demo`: a year of flights in the embedded broker, as JSON and as Protobuf, served.

mod data;
mod load;
mod measure;
mod plan;

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tidegate_broker::{Broker, BrokerConfig, StartError};
use tidegate_client::{Cluster, ClusterConfig, Producer, ProducerSettings};
use tidegate_model::Compression;
use tidegate_server::engine::{Engine, EngineLimits, Payloads, TopicPayload};

use self::measure::Measured;
use super::serve::DEFAULT_KAFKA_LISTEN;
use crate::config::{DEFAULT_LISTEN, Listen};
use crate::exit::{EXIT_CODES, Exit, Failure};
use crate::output::table::{Align, layout};
use crate::output::talk;
use crate::signals::Signals;
use crate::stack::{cannot_listen, close, serve_until_signal, server_config, start_broker, start_server};
use crate::target::{connect_cluster, engine};
use crate::units::{bytes, count};

/// How long streams may go on after a signal: whoever stops a demo does not want to wait.
const GRACE: Duration = Duration::from_secs(2);

const EXAMPLES: &str = "\
Examples:
  tidegate demo
  tidegate demo --exit --data-dir ./flights --partitions 6 --compression zstd
  tidegate demo --listen 127.0.0.1:0 --kafka-listen 127.0.0.1:0

The data: every flight that left New York in 2013, 336,776 records in the order in which they would have been published, 25 \
minutes after landing; so most are late by the length of their flight. examples/flights/README.md tells more.";

fn after_help() -> String {
    format!("{EXAMPLES}\n\n{EXIT_CODES}")
}

/// Load a year of flights into the embedded broker, as JSON and as Protobuf, and serve them
///
/// It starts the embedded broker, publishes the flights into the topic flights.json with their departure as the record
/// timestamp, converts them into the Protobuf topic flights, tells how much smaller that is, serves REST and gRPC, and
/// prints commands to try. A second start finds the data there.
#[derive(Debug, Args)]
#[command(after_help = after_help())]
pub(crate) struct DemoArgs {
    /// Where the embedded broker keeps its data [default: a directory of this user's cache]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// End after the load, without serving
    #[arg(long)]
    exit: bool,

    /// Load the data again, also when it is there
    #[arg(long)]
    reload: bool,

    /// How many partitions both topics have [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=1000))]
    partitions: Option<i32>,

    /// How the record batches are compressed [default: none, so that the sizes of JSON and Protobuf are compared]
    #[arg(long, value_enum, value_name = "CODEC")]
    compression: Option<DemoCompression>,

    /// Where REST and gRPC listen; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = DEFAULT_LISTEN)]
    listen: Listen,

    /// Where the embedded broker speaks the Kafka protocol; port 0 takes a free one [default: 127.0.0.1:9092, or a
    /// free port where that is taken]
    #[arg(long, value_name = "ADDRESS")]
    kafka_listen: Option<Listen>,

    /// Allow addresses that other machines can reach, although nothing authenticates callers yet
    #[arg(long)]
    insecure: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DemoCompression {
    None,
    Lz4,
    Zstd,
}

impl From<DemoCompression> for Compression {
    fn from(compression: DemoCompression) -> Self {
        match compression {
            DemoCompression::None => Self::None,
            DemoCompression::Lz4 => Self::Lz4,
            DemoCompression::Zstd => Self::Zstd,
        }
    }
}

/// Runs the command.
pub(crate) async fn run(args: DemoArgs) -> Result<Exit, Failure> {
    let mut signals = Signals::catch()?;
    let Listen(listen) = args.listen;
    if !args.exit && listen.port() != 0 {
        // Before the load, not after it.
        TcpListener::bind(listen).map_err(|error| cannot_listen(listen, &error, "--listen"))?;
    }
    let data_dir = match &args.data_dir {
        Some(data_dir) => data_dir.clone(),
        None => default_data_dir(),
    };
    talk::say(format_args!("embedded broker, data in {}", data_dir.display()));
    let broker = start_embedded(&args, data_dir).await?;
    talk::say(format_args!("Kafka on {}", broker.addr()));

    let (engine, producer) = match prepare(&args, &broker).await {
        Ok(prepared) => prepared,
        Err(failure) => {
            // The failure that is reported is the one that came first.
            let _ = broker.shutdown().await;
            return Err(failure);
        }
    };
    let loaded = tokio::select! {
        loaded = load_and_report(&args, &broker, &producer) => loaded.map(|()| None),
        stop = signals.first() => Ok(Some(stop)),
    };
    match loaded {
        Ok(None) => {}
        Ok(Some(stop)) => {
            // What is half loaded is found at the next start.
            talk::say(format_args!("{}: stopped before all was loaded", stop.name()));
            signals.exit_at_the_next();
            drop(engine);
            close(vec![producer], Some(broker)).await?;
            return Ok(Exit::Interrupted);
        }
        Err(failure) => {
            drop(engine);
            let _ = close(vec![producer], Some(broker)).await;
            return Err(failure);
        }
    }
    if args.exit {
        signals.exit_at_the_next();
        drop(engine);
        close(vec![producer], Some(broker)).await?;
        return Ok(Exit::Done);
    }
    let server = match start_server(server_config(listen, args.insecure, GRACE), engine).await {
        Ok(server) => server,
        Err(failure) => {
            let _ = close(vec![producer], Some(broker)).await;
            return Err(failure);
        }
    };
    talk::say(format_args!("REST and gRPC on http://{}", server.addr()));
    talk::say(try_this(server.addr(), broker.addr()));
    serve_until_signal(server, vec![producer], Some(broker), signals).await
}

/// Starts the broker. The usual port may well be a real Kafka's; a demo that nobody gave a port then takes another.
async fn start_embedded(args: &DemoArgs, data_dir: PathBuf) -> Result<Broker, Failure> {
    let mut config = BrokerConfig::new(data_dir);
    config.insecure = args.insecure;
    if let Some(Listen(listen)) = args.kafka_listen {
        config.listen = listen;
        return start_broker(config).await;
    }
    let any = config.listen;
    config.listen = DEFAULT_KAFKA_LISTEN.parse().unwrap_or(any);
    match Broker::start(config.clone()).await {
        Err(StartError::Bind { addr, .. }) => {
            talk::say(format_args!("port {} is taken, so Kafka gets another one", addr.port()));
            config.listen = any;
            start_broker(config).await
        }
        Ok(broker) => Ok(broker),
        // The same again, for its words.
        Err(_) => start_broker(config).await,
    }
}

/// The engine over the embedded broker.
async fn prepare(args: &DemoArgs, broker: &Broker) -> Result<(Engine, Producer), Failure> {
    let cluster = connect_cluster(ClusterConfig::new([broker.addr().to_string()])).await?;
    let compression = args.compression.map_or(Compression::None, Compression::from);
    let settings = ProducerSettings { compression, ..ProducerSettings::default() };
    let mut payloads = Payloads::default();
    payloads.insert(data::json_topic()?, TopicPayload::Json);
    payloads.insert(data::protobuf_topic()?, TopicPayload::Protobuf(data::message()?));
    engine(cluster, settings, payloads, EngineLimits::default())
}

/// Loads what is not there, and tells what there is.
async fn load_and_report(args: &DemoArgs, broker: &Broker, producer: &Producer) -> Result<(), Failure> {
    let cluster = connect_cluster(ClusterConfig::new([broker.addr().to_string()])).await?;
    let wish = plan::Wish { partitions: args.partitions, reload: args.reload, records: data::RECORDS };
    let loaded = load::load(&cluster, producer, &data::message()?, &wish).await?;
    if !loaded.anything_new && args.compression.is_some() {
        talk::say("--compression goes with the load, and the data is there already; --reload loads it again");
    }
    report(&cluster, &loaded).await
}

/// Both sizes and their ratio.
async fn report(cluster: &Cluster, loaded: &load::Loaded) -> Result<(), Failure> {
    let json = match loaded.json {
        Some(measured) => measured,
        None => measure::topic(cluster, &data::json_topic()?).await?,
    };
    let protobuf = measure::topic(cluster, &data::protobuf_topic()?).await?;
    talk::say(sizes(&json, &protobuf));
    Ok(())
}

fn sizes(json: &Measured, protobuf: &Measured) -> String {
    let head = [
        ("TOPIC", Align::Left),
        ("PARTITIONS", Align::Right),
        ("RECORDS", Align::Right),
        ("VALUES", Align::Right),
        ("IN THE LOG", Align::Right),
    ];
    let row = |name: &str, measured: &Measured| {
        vec![
            name.to_owned(),
            count(measured.partitions),
            count(measured.records),
            bytes(measured.value_bytes),
            bytes(measured.stored_bytes),
        ]
    };
    let table = layout(&head, &[row(data::JSON_TOPIC, json), row(data::PROTOBUF_TOPIC, protobuf)]);
    format!(
        "\n{table}\nAs Protobuf the values are {} smaller, and the log, which also holds keys and timestamps, is {} smaller \
         (record batches as stored, {}).\n",
        times(json.value_bytes, protobuf.value_bytes),
        times(json.stored_bytes, protobuf.stored_bytes),
        json.compression_text(protobuf),
    )
}

/// How many times larger `large` is, with one digit behind the point.
fn times(large: u64, small: u64) -> String {
    if small == 0 {
        return "infinitely many times".to_owned();
    }
    let tenths = (u128::from(large) * 10 + u128::from(small) / 2) / u128::from(small);
    format!("{}.{} times", tenths / 10, tenths % 10)
}

/// Commands to try, with the ports of this run.
fn try_this(server: SocketAddr, kafka: SocketAddr) -> String {
    // As it was called, so that the lines can be pasted: after `cargo run` the binary is not on the path.
    let tidegate = std::env::args().next().unwrap_or_else(|| "tidegate".to_owned());
    let elsewhere =
        if server.to_string() == DEFAULT_LISTEN { String::new() } else { format!(" --server http://{server}") };
    format!(
        "\
Try:
  February, 24,980 flights; the last line says how many were late, and that none is missing:
    {tidegate} read flights --from 2013-02-01 --until 2013-03-01{elsewhere} > february.ndjson

  The same over REST, as bare values:
    curl -N 'http://{server}/v1/topics/flights/records?from=2013-02-01&until=2013-03-01&format=values'

  The morning of 4 July in New York, straight from the broker, without the server:
    {tidegate} read flights.json --from 2013-07-04T06:00:00-04:00 --until +6h --brokers {kafka}

  gRPC, with Protobuf values as they are stored or as JSON:
    grpcurl -plaintext -d '{{\"topic\":\"flights\",\"last\":{{\"count\":3}},\"value_encoding\":\"VALUE_ENCODING_JSON\"}}' \\
        {server} tidegate.v1.Tidegate/ReadRange

  What there is:
    {tidegate} topics flights{elsewhere}
    curl http://{server}/v1/openapi.json

Ctrl-C stops it; the data stays."
    )
}

/// `tidegate/demo` in the user's cache directory (the XDG Base Directory Specification), else in the one for temporary files.
fn default_data_dir() -> PathBuf {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    cache.unwrap_or_else(std::env::temp_dir).join("tidegate").join("demo")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_are_told_with_their_ratio() {
        let json = Measured {
            partitions: 1,
            records: 336_776,
            value_bytes: 96_000_000,
            stored_bytes: 110_000_000,
            compressions: measure::Compressions::of(Compression::None),
        };
        let protobuf = Measured { value_bytes: 20_000_000, stored_bytes: 30_000_000, ..json };
        let text = sizes(&json, &protobuf);
        assert!(text.contains("the values are 4.8 times smaller"), "{text}");
        assert!(text.contains("is 3.7 times smaller (record batches as stored, uncompressed)"), "{text}");
        assert_eq!(times(1, 0), "infinitely many times");
    }

    #[test]
    fn the_commands_to_try_name_the_server_when_it_is_not_at_the_default_port() {
        let kafka = SocketAddr::from(([127, 0, 0, 1], 9092));
        let usual = try_this(DEFAULT_LISTEN.parse().unwrap(), kafka);
        assert!(!usual.contains("--server"), "{usual}");
        let other = try_this(SocketAddr::from(([127, 0, 0, 1], 7)), kafka);
        assert!(other.contains("--server http://127.0.0.1:7") && other.contains("--brokers 127.0.0.1:9092"), "{other}");
    }
}

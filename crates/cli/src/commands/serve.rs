//! `tidegate serve`: REST and gRPC over a cluster, or over the embedded broker.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tidegate_broker::{BrokerConfig, FsyncPolicy};
use tidegate_client::{Cluster, ClusterConfig, Producer, ProducerSettings};
use tidegate_server::engine::{ClusterName, Clusters, Engine, EngineLimits, Payloads};

use super::publish::MAX_RECORD_BYTES;
use crate::config::{Config, DEFAULT_LISTEN, Fsync, Listen};
use crate::exit::{EXIT_CODES, Exit, Failure};
use crate::output::talk;
use crate::signals::Signals;
use crate::stack::{serve_until_signal, server_config, start_broker, start_server};
use crate::target::{Brokers, connect_cluster, connect_failure, producer};
use crate::units::Span;

/// The default of `grace`.
const DEFAULT_GRACE: Duration = Duration::from_secs(10);

const EXAMPLES: &str = "\
Examples:
  Over a Kafka cluster:
    tidegate serve --brokers localhost:9092

  Over the embedded broker, for a laptop; production means Kafka or Event Hubs:
    tidegate serve --data-dir ./tidegate-data

  With everything in a file; examples/tidegate.yaml is annotated:
    tidegate serve --config tidegate.yaml

SIGTERM or SIGINT: nothing new is accepted, streams end or are aborted within the grace period, the broker's records go to \
the disk, exit code 0. A second signal ends the process at once.";

fn after_help() -> String {
    format!("{EXAMPLES}\n\n{EXIT_CODES}")
}

/// Serve REST and gRPC on one port
#[derive(Debug, Args)]
#[command(after_help = after_help())]
pub(crate) struct ServeArgs {
    /// The configuration file; flags come before it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Where REST and gRPC listen; port 0 takes a free one [default: 127.0.0.1:8642]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<Listen>,

    /// The Kafka brokers to read from and write to
    #[arg(long, value_name = "HOST:PORT,...", conflicts_with = "data_dir")]
    brokers: Option<Brokers>,

    /// Run the embedded broker, with its data in this directory
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Where the embedded broker speaks the Kafka protocol [default: 127.0.0.1:9092]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "brokers")]
    kafka_listen: Option<Listen>,

    /// Allow addresses that other machines can reach, although nothing authenticates callers yet
    #[arg(long)]
    insecure: bool,
}

/// Where records come from.
enum Source {
    Cluster(Box<ClusterConfig>),
    Embedded(Box<BrokerConfig>),
}

/// Runs the command.
pub(crate) async fn run(args: ServeArgs) -> Result<Exit, Failure> {
    let signals = Signals::catch()?;
    let config = match &args.config {
        Some(path) => Config::load(path)?,
        None => Config::default(),
    };
    let payloads = config.topics.payloads(config.registry.as_ref())?;
    let insecure = args.insecure || config.insecure;
    let listen = match args.listen.or(config.listen) {
        Some(Listen(listen)) => listen,
        None => default_address(DEFAULT_LISTEN)?,
    };
    let source = source(&args, &config, insecure)?;
    let mut settings = producer_settings();
    if let Some(kafka) = &config.kafka {
        kafka.producer(&mut settings)?;
    }

    let (broker, default_cluster) = match source {
        None => (None, None),
        Some(Source::Cluster(cluster)) => (None, Some(*cluster)),
        Some(Source::Embedded(config)) => {
            let data_dir = config.data_dir.clone();
            let broker = start_broker(*config).await?;
            talk::say(format_args!("embedded broker, data in {}", data_dir.display()));
            talk::say(format_args!("Kafka on {}", broker.addr()));
            let cluster = ClusterConfig::new([broker.addr().to_string()]);
            (Some(broker), Some(cluster))
        }
    };
    let started = async {
        let mut stack = Stack { limits: config.limits.engine(), clusters: None, producers: Vec::new() };
        if let Some(cluster) = default_cluster {
            let cluster = connect_cluster(cluster).await?;
            stack.add(ClusterName::of_default(), cluster, settings, payloads)?;
        }
        for (name, section) in &config.clusters.0 {
            let of = |failure: Failure| Failure {
                message: format!("clusters.{}: {}", name.as_str(), failure.message),
                ..failure
            };
            let mut settings = producer_settings();
            section.kafka.producer(&mut settings).map_err(of)?;
            let payloads = section.topics.payloads(section.registry.as_ref()).map_err(of)?;
            let cluster = Cluster::new(section.kafka.cluster().map_err(of)?).map_err(connect_failure).map_err(of)?;
            // One cluster that is down keeps the others from nothing.
            if let Err(error) = cluster.check().await {
                let failure = of(connect_failure(error));
                talk::warn(format_args!("{}; requests for it fail until it answers", failure.message));
            }
            stack.add(name.clone(), cluster, settings, payloads).map_err(of)?;
        }
        let Stack { clusters: Some(clusters), producers, .. } = stack else { return Err(no_source()) };
        let grace = config.grace.map_or(DEFAULT_GRACE, |Span(grace)| grace);
        let mut server = server_config(listen, insecure, grace);
        config.limits.server(&mut server);
        let server = start_server(server, clusters).await?;
        Ok((server, producers))
    };
    let (server, producers) = match started.await {
        Ok(started) => started,
        Err(failure) => {
            if let Some(broker) = broker {
                // The failure that is reported is the one that came first.
                let _ = broker.shutdown().await;
            }
            return Err(failure);
        }
    };
    talk::say(format_args!("REST and gRPC on http://{}", server.addr()));
    serve_until_signal(server, producers, broker, signals).await
}

fn producer_settings() -> ProducerSettings {
    ProducerSettings { message_max_bytes: MAX_RECORD_BYTES, ..ProducerSettings::default() }
}

/// The engines of the clusters, as they come up.
struct Stack {
    limits: EngineLimits,
    clusters: Option<Clusters>,
    producers: Vec<Producer>,
}

impl Stack {
    fn add(
        &mut self,
        name: ClusterName,
        cluster: Cluster,
        settings: ProducerSettings,
        payloads: Payloads,
    ) -> Result<(), Failure> {
        let producer = producer(&cluster, settings)?;
        self.producers.push(producer.clone());
        self.clusters = Some(match self.clusters.take() {
            None => Clusters::new(name, Engine::new(cluster, producer, payloads, self.limits.clone())),
            Some(clusters) => clusters.with_cluster(name, cluster, producer, payloads),
        });
        Ok(())
    }
}

fn default_address(text: &str) -> Result<SocketAddr, Failure> {
    text.parse::<Listen>().map(|Listen(address)| address).map_err(Failure::failed_plain)
}

fn no_source() -> Failure {
    Failure::usage("nothing says where records come from").hint(
        "say --brokers HOST:PORT for a Kafka cluster, --data-dir DIR for the embedded broker, or --config FILE; \
         `tidegate demo` needs none of them",
    )
}

/// Where the records of the cluster called `default` come from. Flags come before the file, and one of the two sources must
/// be there, unless the file names other clusters.
fn source(args: &ServeArgs, config: &Config, insecure: bool) -> Result<Option<Source>, Failure> {
    if let Some(brokers) = &args.brokers {
        return Ok(Some(Source::Cluster(Box::new(brokers.cluster_config()?))));
    }
    let section = config.broker.as_ref();
    let data_dir = match (&args.data_dir, &config.kafka, section) {
        (Some(data_dir), ..) => data_dir.clone(),
        (None, Some(kafka), _) if args.kafka_listen.is_none() => {
            return Ok(Some(Source::Cluster(Box::new(kafka.cluster()?))));
        }
        (None, Some(_), _) => {
            return Err(Failure::usage("--kafka-listen goes with the embedded broker, and the file names a cluster"));
        }
        (None, None, Some(section)) => section.data_dir.clone(),
        (None, None, None) if args.kafka_listen.is_none() && !config.clusters.0.is_empty() => return Ok(None),
        (None, None, None) => return Err(no_source()),
    };
    let mut broker = BrokerConfig::new(data_dir);
    broker.insecure = insecure;
    broker.listen = match args.kafka_listen.or(section.and_then(|section| section.listen)) {
        Some(Listen(listen)) => listen,
        None => default_address(DEFAULT_KAFKA_LISTEN)?,
    };
    if let Some(section) = section {
        if let Some(fsync) = section.fsync {
            broker.fsync = match fsync {
                Fsync::Always => FsyncPolicy::Always,
                Fsync::Every(Span(interval)) => FsyncPolicy::Interval(interval),
                Fsync::Never => FsyncPolicy::Never,
            };
        }
        if let Some(partitions) = section.num_partitions {
            broker.default_partitions = partitions;
        }
    }
    Ok(Some(Source::Embedded(Box::new(broker))))
}

/// The default of `--kafka-listen`.
pub(crate) const DEFAULT_KAFKA_LISTEN: &str = "127.0.0.1:9092";

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        serve: ServeArgs,
    }

    fn choose(flags: &[&str], yaml: &str) -> Result<String, String> {
        let args = Only::try_parse_from([&["serve"], flags].concat()).unwrap().serve;
        let config = Config::parse(yaml, Path::new("t.yaml")).unwrap();
        match source(&args, &config, false) {
            Ok(None) => Ok("only named clusters".to_owned()),
            Ok(Some(Source::Cluster(cluster))) => Ok(format!("cluster {}", cluster.bootstrap.join(","))),
            Ok(Some(Source::Embedded(broker))) => {
                Ok(format!("embedded {} {}", broker.data_dir.display(), broker.listen))
            }
            Err(failure) => Err(failure.message),
        }
    }

    #[test]
    fn flags_come_before_the_file_and_one_source_must_be_there() {
        let kafka = "kafka: {bootstrap.servers: k:1}";
        let embedded = "broker: {data_dir: /d, listen: 127.0.0.1:7}";
        assert_eq!(choose(&[], kafka).unwrap(), "cluster k:1");
        assert_eq!(choose(&[], embedded).unwrap(), "embedded /d 127.0.0.1:7");
        assert_eq!(choose(&["--brokers", "b:2"], embedded).unwrap(), "cluster b:2");
        assert_eq!(choose(&["--data-dir", "/e"], kafka).unwrap(), "embedded /e 127.0.0.1:9092");
        assert_eq!(choose(&["--data-dir", "/e"], embedded).unwrap(), "embedded /e 127.0.0.1:7");
        assert_eq!(choose(&["--kafka-listen", "127.0.0.1:0"], embedded).unwrap(), "embedded /d 127.0.0.1:0");
        assert!(choose(&["--kafka-listen", "127.0.0.1:0"], kafka).unwrap_err().contains("names a cluster"));
        let named = "clusters: {lab: {kafka: {bootstrap.servers: l:1}}}";
        assert_eq!(choose(&[], named).unwrap(), "only named clusters");
        assert_eq!(choose(&["--data-dir", "/e"], named).unwrap(), "embedded /e 127.0.0.1:9092");
        assert!(choose(&[], "").unwrap_err().contains("where records come from"));
    }
}

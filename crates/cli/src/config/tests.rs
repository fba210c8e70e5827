use tidegate_client::{ClusterConfig, ProducerSettings};
use tidegate_server::ServerConfig;
use tidegate_server::engine::EngineLimits;

use super::*;
use crate::exit::{Exit, Failure};

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, Path::new("dir/tidegate.yaml"))
}

/// The message and the hint of the error.
fn refused(text: &str) -> (String, String) {
    let failure = Failure::from(parse(text).unwrap_err());
    assert_eq!(failure.exit, Exit::Usage);
    (failure.message, failure.hint.unwrap_or_default())
}

#[test]
fn the_annotated_example_is_valid_and_tells_the_defaults() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/tidegate.yaml");
    let config = Config::load(&path).unwrap();
    assert!(config.broker.is_some() && config.kafka.is_none());
    assert_eq!(config.limits.engine(), EngineLimits::default());
    let mut server = ServerConfig::default();
    config.limits.server(&mut server);
    let default = ServerConfig::default();
    assert_eq!(
        (server.rest, server.grpc, server.max_connections),
        (default.rest, default.grpc, default.max_connections)
    );
    let payloads = config.topics.payloads().unwrap();
    let flights = payloads.get(&tidegate_model::TopicName::new("flights").unwrap());
    assert_eq!(flights.kind().name(), "protobuf");

    // What stands there commented out must be valid as well, once the comment's mark is gone.
    let text = std::fs::read_to_string(&path).unwrap();
    let uncommented: String = text
        .lines()
        .map(|line| if line.trim_start().starts_with("#:") { line.replacen("#:", "", 1) } else { line.to_owned() })
        .map(|line| line + "\n")
        .collect();
    assert_ne!(uncommented, text);
    let error = Config::parse(&uncommented, &path).unwrap_err().to_string();
    assert!(error.contains("kafka and broker are both there"), "{error}");
    let broker = uncommented.find("\nbroker:").unwrap();
    let after = broker + uncommented[broker..].find("\nkafka:").unwrap();
    let only_kafka = format!("{}{}", &uncommented[..broker], &uncommented[after..]);
    let kafka = Config::parse(&only_kafka, &path).unwrap().kafka.unwrap();
    let (cluster, default) = (kafka.cluster(), ClusterConfig::new(["localhost:9092"]));
    assert_eq!(format!("{cluster:?}"), format!("{default:?}"));
    let mut settings = ProducerSettings { message_max_bytes: 64 << 20, ..ProducerSettings::default() };
    let default = settings.clone();
    kafka.producer(&mut settings).unwrap();
    assert_eq!(settings, default);
}

#[test]
fn an_empty_file_means_the_defaults() {
    for text in ["", "\n# nothing\n", "limits:\n  # none\ntopics:\n"] {
        let config = parse(text).unwrap();
        assert!(config.listen.is_none() && config.kafka.is_none() && !config.insecure);
    }
}

#[test]
fn an_unknown_key_is_refused_with_its_place_and_what_may_have_been_meant() {
    let (message, hint) = refused("listen: 127.0.0.1:1\nlisten_adress: x\n");
    assert!(message.starts_with("dir/tidegate.yaml:2:1: unknown key \"listen_adress\""), "{message}");
    assert!(hint.starts_with("did you mean listen?"), "{hint}");

    let (message, hint) = refused("kafka:\n  bootstrap.servers: a:1\n  bootstrap_server: b:1\n");
    assert!(message.contains(":3:3: unknown key \"bootstrap_server\" in kafka"), "{message}");
    assert!(hint.starts_with("did you mean bootstrap.servers?"), "{hint}");

    let (message, hint) = refused("topics:\n  flights:\n    payload: json\n    protobuff: x.proto\n");
    assert!(message.contains(":4:5: unknown key \"protobuff\" in topics.flights"), "{message}");
    assert!(hint.contains("proto"), "{hint}");

    let (_, hint) = refused("qqqq: 1\n");
    assert!(hint.starts_with("the keys here are listen, insecure"), "{hint}");
}

#[test]
fn sizes_and_durations_without_units_are_refused_with_a_hint() {
    let (message, _) = refused("limits:\n  read_budget: 4194304\n");
    assert!(message.contains(":2:") && message.contains("4194304B"), "{message}");
    let (message, _) = refused("grace: 5\n");
    assert!(message.contains("grace: \"5\" has no unit") && message.contains("5s"), "{message}");
    let (message, _) = refused("broker:\n  data_dir: d\n  fsync: 5\n");
    assert!(message.contains("5s"), "{message}");
    let config = parse("limits:\n  read_budget: 8MiB\n  flush_after: 5ms\ngrace: 3s\n").unwrap();
    assert_eq!(config.limits.engine().per_request_budget_bytes, 8 << 20);
    let mut server = ServerConfig::default();
    parse("limits:\n  max_body: 2GiB\n  max_connections: 7\n").unwrap().limits.server(&mut server);
    assert_eq!((server.rest.max_body_bytes, server.max_connections), (2 << 30, 7));
    assert_eq!(config.grace, Some(Span(std::time::Duration::from_secs(3))));
}

#[test]
fn kafka_has_its_own_names_and_units() {
    let text = "kafka:\n  bootstrap.servers: a:9092, b:9092\n  request.timeout.ms: 1500\n  client.id: me\n";
    let cluster = parse(text).unwrap().kafka.unwrap().cluster();
    assert_eq!(cluster.bootstrap, ["a:9092", "b:9092"]);
    assert_eq!(cluster.request_timeout, std::time::Duration::from_millis(1500));
    assert_eq!(cluster.client_id, "me");
    let list = parse("kafka: {bootstrap.servers: [a:9092, '[::1]:9092']}").unwrap().kafka.unwrap();
    assert_eq!(list.bootstrap_servers, ["a:9092", "[::1]:9092"]);
    for servers in ["a", "a:x", ":9092", "[]", "''", "a:0"] {
        let (message, _) = refused(&format!("kafka:\n  bootstrap.servers: {servers}\n"));
        assert!(message.contains("broker"), "{servers}: {message}");
    }
}

#[test]
fn values_that_do_not_go_together_are_refused() {
    for (text, says) in [
        ("kafka: {bootstrap.servers: a:1}\nbroker: {data_dir: d}\n", "not from both"),
        ("topics: {a: {payload: protobuf}}", "needs message"),
        ("topics: {a: {payload: protobuf, message: m}}", "needs either proto or descriptor"),
        ("topics: {a: {payload: protobuf, message: m, proto: p, descriptor: d}}", "either proto or descriptor"),
        ("topics: {a: {payload: json, message: m}}", "go with payload protobuf only"),
        ("topics: {a/b: {payload: json}}", "topic name"),
        ("topics:\n  a: {payload: json}\n  a: {payload: bytes}\n", "twice"),
        ("topics: {a: {payload: xml}}", "unknown variant"),
        ("limits: {max_concurrent_reads: 0}", "at least 1"),
        ("limits: {read_budget: 1B}", "between"),
        ("limits: {chunk: 2MiB}", "between 256KiB and 1MiB"),
        ("broker: {data_dir: d, num.partitions: 0}", "at least 1"),
        ("listen: 8642", "127.0.0.1:8642"),
        ("listen: localhost:8642", "127.0.0.1:8642"),
        ("listen: 127.0.0.1:1\nlisten: 127.0.0.1:2", "duplicate"),
        ("- a", "invalid type"),
        ("listen: [", "line"),
    ] {
        let (message, _) = refused(text);
        assert!(message.contains(says) || message.contains(":1:") && says == "line", "{text}: {message}");
    }
}

#[test]
fn paths_count_from_the_file() {
    let config = parse("broker: {data_dir: data}\n").unwrap();
    assert_eq!(config.broker.unwrap().data_dir, Path::new("dir/data"));
    let absolute = parse("broker: {data_dir: /data}\n").unwrap();
    assert_eq!(absolute.broker.unwrap().data_dir, Path::new("/data"));
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Config::load(Path::new("no/such.yaml")).unwrap_err().to_string();
    assert!(error.contains("no/such.yaml"), "{error}");
}

#[test]
fn further_clusters_have_names_and_sections_of_their_own() {
    let text = "kafka: {bootstrap.servers: a:1}\nclusters:\n  lab:\n    kafka: {bootstrap.servers: b:2, client.id: me}\n    \
                topics: {t: {payload: json}}\n";
    let config = parse(text).unwrap();
    let lab = &config.clusters.0[&tidegate_server::engine::ClusterName::new("lab").unwrap()];
    assert_eq!(
        (lab.kafka.cluster().bootstrap, lab.kafka.cluster().client_id),
        (vec!["b:2".to_owned()], "me".to_owned())
    );
    let payloads = lab.topics.payloads().unwrap();
    assert_eq!(payloads.get(&tidegate_model::TopicName::new("t").unwrap()).kind().name(), "json");
    assert!(parse("clusters:\n  # none\n").unwrap().clusters.0.is_empty());
    for (text, says) in [
        ("clusters: {default: {kafka: {bootstrap.servers: a:1}}}", "top of the file"),
        ("clusters: {a b: {kafka: {bootstrap.servers: a:1}}}", "cannot name a cluster"),
        ("clusters: {lab: {}}", "missing field `kafka`"),
        (
            "clusters: {lab: {kafka: {bootstrap.servers: a:1}, topics: {t: {payload: protobuf}}}}",
            "clusters.lab.topics.t",
        ),
        ("clusters:\n  a: {kafka: {bootstrap.servers: a:1}}\n  a: {kafka: {bootstrap.servers: b:1}}\n", "twice"),
    ] {
        let (message, _) = refused(text);
        assert!(message.contains(says), "{text}: {message}");
    }
    let (message, hint) = refused("clusters:\n  lab:\n    kafka: {bootstrap.servers: a:1}\n    topic: {}\n");
    assert!(
        message.contains(":4:5: unknown key \"topic\" in clusters.lab") && hint.contains("topics"),
        "{message} {hint}"
    );
}

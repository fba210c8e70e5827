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
    let payloads = config.topics.payloads(None).unwrap();
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
    let (cluster, default) = (kafka.cluster().unwrap(), ClusterConfig::new(["localhost:9092"]));
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
    let config = parse("limits:\n  read_budget: 8MiB\n  read_reserve: 1GiB\n  flush_after: 5ms\ngrace: 3s\n").unwrap();
    let limits = config.limits.engine();
    assert_eq!((limits.per_request_budget_bytes, limits.read_reserve_bytes), (8 << 20, 1 << 30));
    let mut server = ServerConfig::default();
    parse("limits:\n  max_body: 2GiB\n  max_connections: 7\n").unwrap().limits.server(&mut server);
    assert_eq!((server.rest.max_body_bytes, server.max_connections), (2 << 30, 7));
    assert_eq!(config.grace, Some(Span(std::time::Duration::from_secs(3))));
}

#[test]
fn kafka_has_its_own_names_and_units() {
    let text = "kafka:\n  bootstrap.servers: a:9092, b:9092\n  request.timeout.ms: 1500\n  client.id: me\n";
    let cluster = parse(text).unwrap().kafka.unwrap().cluster().unwrap();
    assert_eq!(cluster.bootstrap, ["a:9092", "b:9092"]);
    assert_eq!(cluster.request_timeout, std::time::Duration::from_millis(1500));
    assert_eq!(cluster.client_id, "me");
    let text = "kafka:\n  bootstrap.servers: a:1\n  receive.buffer.bytes: 65536\n  client.rack: r1\n  max.rate: 5MB\n  \
                connections.per.broker: 64\n  fetches.in.flight: 8\n";
    let cluster = parse(text).unwrap().kafka.unwrap().cluster().unwrap();
    let fetching = &cluster.fetching;
    assert_eq!((cluster.receive_buffer_bytes, fetching.client_rack.as_deref()), (Some(65_536), Some("r1")));
    assert_eq!((fetching.connections_per_broker, fetching.fetches_in_flight), (64, Some(8)));
    assert_eq!(fetching.max_rate, Some(5_000_000));
    let (message, _) = refused("kafka:\n  bootstrap.servers: a:1\n  connections.per.broker: 0\n");
    assert!(message.contains("connections.per.broker"), "{message}");
    let list = parse("kafka: {bootstrap.servers: [a:9092, '[::1]:9092']}").unwrap().kafka.unwrap();
    assert_eq!(list.bootstrap_servers, ["a:9092", "[::1]:9092"]);
    for servers in ["a", "a:x", ":9092", "[]", "''", "a:0"] {
        let (message, _) = refused(&format!("kafka:\n  bootstrap.servers: {servers}\n"));
        assert!(message.contains("broker"), "{servers}: {message}");
    }
}

/// The protocol, TLS and SASL of a `kafka:` section with these lines.
fn security(lines: &str) -> tidegate_client::Security {
    let text: String = lines.lines().map(|line| format!("  {line}\n")).collect();
    parse(&format!("kafka:\n  bootstrap.servers: a:1\n{text}")).unwrap().kafka.unwrap().cluster().unwrap().security
}

/// A file in a directory of its own, which holds `text`.
fn secret_file(text: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    std::fs::write(&path, text).unwrap();
    let path = path.display().to_string();
    (dir, path)
}

#[test]
fn tls_and_sasl_are_set_by_kafkas_names() {
    let (_dir, file) = secret_file("hunter22\n");
    let scram = security(&format!(
        "security.protocol: SASL_SSL\nsasl.mechanism: SCRAM-SHA-512\nsasl.username: alice\nsasl.password: {{file: {file}}}\n\
         ssl.ca.location: ca.pem\nssl.endpoint.identification.algorithm: ''"
    ));
    assert_eq!(scram.protocol(), "SASL_SSL");
    let shown = format!("{scram:?}");
    assert!(shown.contains("dir/ca.pem") && shown.contains("check_name: false"), "{shown}");
    assert!(shown.contains("Sha512") && shown.contains("alice") && !shown.contains("hunter22"), "{shown}");

    let mutual = security(
        "security.protocol: ssl\nssl.certificate.location: c.pem\nssl.key.location: k.pem\nssl.server.name: b",
    );
    assert_eq!(mutual.protocol(), "SSL");
    assert!(format!("{mutual:?}").contains("server_name: Some(\"b\")"), "{mutual:?}");

    for source in [
        "sasl.oauthbearer.token.file: t".to_owned(),
        "sasl.oauthbearer.token.command: [az, account, get-access-token]".to_owned(),
        format!(
            "sasl.oauthbearer.token.endpoint.url: http://127.0.0.1:1/t\nsasl.oauthbearer.client.id: me\n\
             sasl.oauthbearer.client.secret: {{file: {file}}}\nhttps.ca.location: {file}"
        ),
    ] {
        let text = format!("security.protocol: SASL_PLAINTEXT\nsasl.mechanism: OAUTHBEARER\n{source}");
        if source.contains("https.ca.location") {
            // It is read, and it holds no certificate.
            let text: String = text.lines().map(|line| format!("  {line}\n")).collect();
            let section = parse(&format!("kafka:\n  bootstrap.servers: a:1\n{text}")).unwrap().kafka.unwrap();
            let error = section.cluster().unwrap_err().message;
            assert!(error.contains("https.ca.location") && !error.contains("hunter22"), "{error}");
        } else {
            assert_eq!(security(&text).protocol(), "SASL_PLAINTEXT");
        }
    }
}

#[test]
fn a_connection_string_gives_brokers_and_credentials() {
    const STRING: &str =
        "Endpoint=sb://ns1.servicebus.windows.net/;SharedAccessKeyName=reader;SharedAccessKey=QUJDREVGR0g+/aa==";
    let (_dir, file) = secret_file(STRING);
    let section = parse(&format!("kafka: {{connection.string: {{file: {file}}}}}")).unwrap().kafka.unwrap();
    let cluster = section.cluster().unwrap();
    assert_eq!(cluster.bootstrap, ["ns1.servicebus.windows.net:9093"]);
    assert_eq!(cluster.security.protocol(), "SASL_SSL");
    assert!(!format!("{cluster:?} {section:?}").contains("QUJD"));
    std::fs::write(&file, format!("\"{STRING}\"")).unwrap();
    let error = section.cluster().unwrap_err().message;
    assert!(error.starts_with("connection.string: the connection string stands in quotes"), "{error}");
    for (text, says) in [
        ("kafka: {connection.string: Endpoint=sb}", "{env: NAME}"),
        ("kafka: {connection.string: {env: A}, sasl.mechanism: PLAIN}", "sasl.mechanism cannot be set beside it"),
        ("kafka: {connection.string: {env: A}, security.protocol: PLAINTEXT}", "leave security.protocol out"),
        ("kafka: {client.id: me}", "bootstrap.servers is missing"),
    ] {
        let (message, _) = refused(text);
        assert!(message.contains(says), "{text}: {message}");
    }
}

#[test]
fn what_security_cannot_mean_is_refused_with_what_to_write() {
    let with = |lines: &str| refused(&format!("kafka:\n  bootstrap.servers: a:1\n  {}\n", lines.replace('\n', "\n  ")));
    for (lines, says) in [
        ("sasl.password: hunter22", "{env: NAME}"),
        ("sasl.mechanism: PLAIN", "write security.protocol: SASL_SSL"),
        ("ssl.ca.location: ca.pem", "write security.protocol: SSL"),
        (
            "security.protocol: SASL_PLAINTEXT\nsasl.mechanism: PLAIN\nssl.ca.location: ca.pem",
            "security.protocol: SASL_SSL",
        ),
        ("security.protocol: SASL_SSL", "GSSAPI, is not supported"),
        ("security.protocol: TLS", "none of PLAINTEXT, SSL"),
        ("sasl.mechanism: GSSAPI", "Kerberos"),
        ("sasl.mechanism: AWS_MSK_IAM", "sasl.oauthbearer.token.command"),
        ("sasl.mechanism: SCRAM", "none of PLAIN, SCRAM-SHA-256"),
        (
            "security.protocol: SASL_SSL\nsasl.mechanism: PLAIN\nsasl.username: a",
            "needs sasl.username and sasl.password",
        ),
        ("security.protocol: SASL_SSL\nsasl.mechanism: OAUTHBEARER", "exactly one of"),
        (
            "security.protocol: SASL_SSL\nsasl.mechanism: OAUTHBEARER\nsasl.username: a",
            "does not go with sasl.mechanism OAUTHBEARER",
        ),
        (
            "security.protocol: SASL_SSL\nsasl.mechanism: PLAIN\nsasl.oauthbearer.scope: a",
            "does not go with sasl.mechanism PLAIN",
        ),
        (
            "security.protocol: SASL_SSL\nsasl.mechanism: OAUTHBEARER\nsasl.oauthbearer.token.file: t\nsasl.oauthbearer.scope: a",
            "goes with sasl.oauthbearer.token.endpoint.url",
        ),
        ("security.protocol: SSL\nssl.key.location: k", "go together"),
        ("security.protocol: SSL\nssl.endpoint.identification.algorithm: ldaps", "neither https nor empty"),
    ] {
        let (message, _) = with(lines);
        assert!(message.contains(says) && !message.contains("hunter22"), "{lines}: {message}");
    }
    for (line, hint) in [
        ("sasl.jaas.config: 'x required password=\"hunter22\";'", "sasl.username"),
        ("sasl.kerberos.service.name: kafka", "Kerberos"),
        ("ssl.truststore.location: t.jks", "keytool"),
        ("ssl.key.password: hunter22", "openssl pkey"),
        ("sasl.mechanisms: PLAIN", "the key is sasl.mechanism"),
        ("sasl.login.callback.handler.class: x", "sasl.oauthbearer.token.file"),
        ("enable.ssl.certificate.verification: false", "always checked"),
        ("ssl.ca.locatoin: x", "did you mean ssl.ca.location?"),
    ] {
        let (message, found) = with(line);
        assert!(found.contains(hint), "{line}: {message} / {found}");
        assert!(!format!("{message}{found}").contains("hunter22"), "{message}");
    }
}

#[test]
fn a_secret_that_is_not_there_is_named_with_its_setting() {
    let text = "kafka:\n  bootstrap.servers: a:1\n  security.protocol: SASL_SSL\n  sasl.mechanism: PLAIN\n  \
                sasl.username: a\n  sasl.password: {env: TIDEGATE_NO_SUCH_VARIABLE}\n";
    let error = parse(text).unwrap().kafka.unwrap().cluster().unwrap_err().message;
    assert_eq!(error, "sasl.password: the environment variable TIDEGATE_NO_SUCH_VARIABLE is not set");
}

#[test]
fn the_command_line_reads_the_section_alone_or_in_a_whole_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kafka.yaml");
    for text in [
        "bootstrap.servers: k:1\nclient.id: me\n",
        "listen: 127.0.0.1:0\nkafka: {bootstrap.servers: k:1, client.id: me}\n",
    ] {
        std::fs::write(&path, text).unwrap();
        let cluster = KafkaSection::load(&path).unwrap().cluster().unwrap();
        assert_eq!((cluster.bootstrap, cluster.client_id), (vec!["k:1".to_owned()], "me".to_owned()));
    }
    std::fs::write(&path, "bootstrap.servers: k:1\nsasl.mechanisms: PLAIN\n").unwrap();
    let failure = Failure::from(KafkaSection::load(&path).unwrap_err());
    assert!(failure.message.contains(":2:1: unknown key \"sasl.mechanisms\""), "{}", failure.message);
    assert_eq!(failure.hint.as_deref(), Some("the key is sasl.mechanism"));
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
fn a_registry_topic_needs_a_registry_and_secrets_stand_elsewhere() {
    let registry = "schema.registry: {url: 'http://a:1, http://b:2', subject.name.strategy: RecordNameStrategy}\n";
    let topics = "topics: {t: {payload: registry, message: shop.Order}, u: {payload: registry, subject: s}}";
    let config = parse(&format!("{registry}{topics}")).unwrap();
    let payloads = config.topics.payloads(config.registry.as_ref()).unwrap();
    let of = |topic: &str| match payloads.get(&tidegate_model::TopicName::new(topic).unwrap()) {
        tidegate_server::engine::TopicPayload::Registry(payload) => payload,
        other => panic!("{other:?}"),
    };
    use tidegate_server::engine::Subject;
    assert_eq!(of("t").write.subject, Subject::Record("shop.Order".to_owned()));
    assert_eq!(of("u").write.subject, Subject::Named("s".to_owned()));
    assert!(format!("{:?}", of("t").registry).contains("http://b:2"));

    for (text, says) in [
        (topics, "topics.t: payload registry needs the section schema.registry"),
        ("topics: {t: {payload: json, subject: s}}", "subject and schema go with payload registry only"),
        (
            "schema.registry: {url: 'http://a'}\ntopics: {t: {payload: registry, proto: x}}",
            "go with payload protobuf only",
        ),
        ("schema.registry: {url: 'http://a', basic.auth.user.info: me:hunter22}", "{env: NAME}"),
        ("schema.registry: {url: 'http://a', basic.auth.user.info: {env: A}, bearer.auth.token: {env: B}}", "give one"),
        ("schema.registry: {url: ''}", "no address"),
        ("schema.registry: {url: [], cache.capacity: 0}", "no address"),
        ("schema.registry: {}", "missing field `url`"),
        ("schema.registry: {url: 'http://a', subject.name.strategy: X}", "TopicNameStrategy"),
        ("clusters: {l: {kafka: {bootstrap.servers: a:1}, topics: {t: {payload: registry}}}}", "clusters.l.topics.t"),
    ] {
        let (message, _) = refused(text);
        assert!(message.contains(says) && !message.contains("hunter22"), "{text}: {message}");
    }
    let config = parse("schema.registry: {url: 'http://u:hunter22@a'}\ntopics: {t: {payload: registry}}").unwrap();
    let failure = config.topics.payloads(config.registry.as_ref()).unwrap_err();
    assert!(failure.message.contains("basic.auth.user.info") && !failure.message.contains("hunter22"), "{failure:?}");
    let config =
        parse("schema.registry: {url: 'http://a'}\ntopics: {t: {payload: registry, schema: no.avsc}}").unwrap();
    let failure = config.topics.payloads(config.registry.as_ref()).unwrap_err();
    assert!(failure.message.contains("topics.t: cannot read dir/no.avsc"), "{failure:?}");
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
        (lab.kafka.cluster().unwrap().bootstrap, lab.kafka.cluster().unwrap().client_id),
        (vec!["b:2".to_owned()], "me".to_owned())
    );
    let payloads = lab.topics.payloads(None).unwrap();
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

//! Apache Kafka with its listeners for TLS and SASL: every mechanism with right, wrong and expiring credentials, for our own
//! connections and for librdkafka's, and no secret in anything that is written.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tidegate_client::{
    Cluster, ClusterConfig, CommandTokens, ConnectError, Extensions, FileTokens, NewTopic, ProduceError, Producer,
    ProducerSettings, RecordToSend, RetryLimits, Sasl, ScramHash, Secret, Security, TlsIdentity, TlsSettings, Token,
    TokenFailure, TokenFuture, TokenSource, Tokens, Trust,
};
use tidegate_model::TopicName;
use tidegate_testkit::kafka::{SecureKafka, USER};
use tidegate_testkit::tls::{Authority, Validity};
use tidegate_testkit::unique_topic;

use crate::support::{drain, name, options, slice};
use crate::tokens::{CLIENT_SECRET, Endpoint, unsecured_jwt};

const PASSWORD: &str = "RightPassword4711";
const WRONG_PASSWORD: &str = "WrongPassword0815";

/// How long a session lasts on the listener that bounds it: so long that its renewal, some time before, may be late on a busy
/// machine.
const SESSION: Duration = Duration::from_millis(6_000);

/// How long a token of [`ShortLived`] does, in seconds. It is replaced after four fifths of that, so that what is left of one
/// makes a session that can be renewed in time.
const TOKEN: i64 = 16;

/// What is logged, by everybody in this process.
#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Captured {
    fn start() -> Self {
        let captured = Self::default();
        let writer = captured.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::set_global_default(subscriber).unwrap();
        captured
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock()).into_owned()
    }
}

fn plain(password: &str) -> Sasl {
    Sasl::Plain { username: USER.to_owned(), password: Secret::new(password) }
}

fn scram(hash: ScramHash, password: &str) -> Sasl {
    Sasl::Scram { hash, username: USER.to_owned(), password: Secret::new(password) }
}

fn bearer(tokens: Tokens) -> Sasl {
    Sasl::OauthBearer { tokens, extensions: Extensions::default() }
}

fn reach(bootstrap: String, tls: Option<TlsSettings>, sasl: Option<Sasl>) -> ClusterConfig {
    ClusterConfig {
        security: Security { tls, sasl },
        connect_timeout: Duration::from_secs(20),
        retry: RetryLimits { attempts: 4, ..RetryLimits::default() },
        ..ClusterConfig::new([bootstrap])
    }
}

fn trusting(authority: &Authority) -> TlsSettings {
    TlsSettings { trust: Trust::PemFile(authority.certificate().to_owned()), ..TlsSettings::default() }
}

fn showing(authority: &Authority, signer: &Authority, file: &str) -> TlsSettings {
    let identity = signer.sign(file, &["client"], Validity::Good);
    let identity = TlsIdentity { certificate: identity.certificate, key: identity.key };
    TlsSettings { identity: Some(identity), ..trusting(authority) }
}

/// Publishes one record through librdkafka, reads it back over our own connection.
async fn round_trip(what: &str, config: ClusterConfig, topic: &TopicName, partition: i32) {
    let cluster = Cluster::connect(config.clone()).await.unwrap_or_else(|error| panic!("{what}: {error}"));
    let producer = Producer::new(&config, ProducerSettings::default()).unwrap();
    let mut session = producer.session(topic);
    let record = RecordToSend { partition: Some(partition), value: Some(what.as_bytes()), ..RecordToSend::default() };
    session.send(record).await.unwrap_or_else(|error| panic!("{what}: {error}"));
    session.finish().await.unwrap_or_else(|error| panic!("{what}: {error}"));
    producer.close().await.unwrap();
    let mut reader = cluster.read(slice(topic.as_str(), partition, 0, 1), options());
    let (offsets, ended) = drain(&mut reader).await;
    ended.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(offsets, [0], "{what}");
}

/// Both kinds of connections are refused. Answers with what both say.
async fn shut_out(what: &str, config: ClusterConfig, topic: &TopicName, says: &str) -> String {
    let error = match Cluster::connect(config.clone()).await {
        Err(error @ ConnectError::Unreachable { .. }) => format!("{error} {error:?}"),
        Err(error) => panic!("{what}: {error}"),
        Ok(_) => panic!("{what}: let in"),
    };
    assert!(error.contains(says), "{what}: {error}");
    // All of it is waited for, beside those whose sessions are renewed, who take longer.
    let settings = ProducerSettings { delivery_timeout: Duration::from_secs(15), ..ProducerSettings::default() };
    let producer = Producer::new(&config, settings).unwrap();
    let mut session = producer.session(topic);
    session.send(RecordToSend { value: Some(b"never"), ..RecordToSend::default() }).await.unwrap();
    let refused = session.finish().await.expect_err(what);
    assert!(matches!(refused, ProduceError::ShutOut { .. }), "{what}: {refused}");
    let _ = producer.close().await;
    format!("{error} {refused} {refused:?}")
}

/// Tokens that live for a few seconds.
struct ShortLived(Arc<AtomicUsize>);

impl TokenSource for ShortLived {
    fn token(&self) -> TokenFuture<'_> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Token::new(&unsecured_jwt(USER, TOKEN), None).map_err(TokenFailure::Answer) })
    }

    fn describe(&self) -> String {
        "a source of short lives".to_owned()
    }
}

/// Reads and publishes for longer than several sessions last, and nothing fails.
async fn outlives_sessions(what: &str, config: ClusterConfig, topic: &TopicName, partition: i32) {
    let cluster = Cluster::connect(config.clone()).await.unwrap_or_else(|error| panic!("{what}: {error}"));
    let producer = Producer::new(&config, ProducerSettings::default()).unwrap();
    let mut reader = cluster.read(slice(topic.as_str(), partition, 0, 10), options());
    for offset in 0..10 {
        let mut session = producer.session(topic);
        let record = RecordToSend { partition: Some(partition), value: Some(b"tick"), ..RecordToSend::default() };
        session.send(record).await.unwrap();
        session.finish().await.unwrap_or_else(|error| panic!("{what}: {error}"));
        let chunk = reader.next().await.unwrap().unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(chunk.next_offset, offset + 1, "{what}");
        cluster.topic(topic).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        // Sessions end by the clock alone.
        tokio::time::sleep(SESSION / 3).await;
    }
    producer.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kafka_takes_right_credentials_refuses_wrong_ones_renews_expiring_ones_and_no_secret_is_written() {
    const NAME: &str = "kafka_takes_right_credentials_refuses_wrong_ones_renews_expiring_ones_and_no_secret_is_written";
    let start = || SecureKafka::start_or_skip(NAME, PASSWORD, u32::try_from(SESSION.as_millis()).unwrap());
    let Some(kafka) = tokio::task::spawn_blocking(start).await.unwrap() else { return };
    let captured = Captured::start();

    let topic = name(&unique_topic("secure"));
    let admin = Cluster::connect(ClusterConfig::new([kafka.plaintext()])).await.unwrap();
    let new = NewTopic { name: topic.clone(), partitions: 16, replication_factor: 1, config: BTreeMap::new() };
    admin.create_topic(&new).await.unwrap();

    let dir = tempfile::tempdir().unwrap();
    let good_token = unsecured_jwt(USER, 3_600);
    let file = |name: &str, text: &str| -> PathBuf {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let from_file = |name: &str, text: &str| bearer(Tokens::new(FileTokens::new(file(name, text))));
    let printed = file("printed", &format!(r#"{{"accessToken":"{good_token}","tokenType":"Bearer"}}"#));
    let command = CommandTokens::new(vec!["cat".to_owned(), printed.display().to_string()]);
    let token = good_token.clone();
    let endpoint =
        Endpoint::start(move || ("200 OK", format!(r#"{{"access_token":"{token}","expires_in":3600}}"#))).await;

    let tls = || trusting(kafka.authority());
    let (bare, over_tls) = (|| kafka.sasl_plaintext(), || kafka.sasl_ssl());
    let right = [
        ("PLAIN", reach(bare(), None, Some(plain(PASSWORD)))),
        ("SCRAM-SHA-256", reach(bare(), None, Some(scram(ScramHash::Sha256, PASSWORD)))),
        ("SCRAM-SHA-512", reach(bare(), None, Some(scram(ScramHash::Sha512, PASSWORD)))),
        ("OAUTHBEARER from a file", reach(bare(), None, Some(from_file("good", &good_token)))),
        ("OAUTHBEARER from an endpoint", reach(bare(), None, Some(bearer(endpoint.tokens())))),
        ("PLAIN over TLS", reach(over_tls(), Some(tls()), Some(plain(PASSWORD)))),
        ("SCRAM-SHA-512 over TLS", reach(over_tls(), Some(tls()), Some(scram(ScramHash::Sha512, PASSWORD)))),
        ("OAUTHBEARER from a command over TLS", reach(over_tls(), Some(tls()), Some(bearer(Tokens::new(command))))),
        ("a client certificate", reach(kafka.mutual(), Some(showing(kafka.authority(), kafka.authority(), "c")), None)),
    ];
    let right = (0..).zip(right).map(|(partition, (what, config))| round_trip(what, config, &topic, partition));

    let stranger = Authority::new("a stranger");
    let expired_token = unsecured_jwt(USER, -60);
    let wrong = [
        ("PLAIN", reach(bare(), None, Some(plain(WRONG_PASSWORD))), "authentication failed (SASL PLAIN)"),
        (
            "SCRAM-SHA-256",
            reach(bare(), None, Some(scram(ScramHash::Sha256, WRONG_PASSWORD))),
            "authentication failed (SASL SCRAM-SHA-256)",
        ),
        (
            "SCRAM-SHA-512 over TLS",
            reach(over_tls(), Some(tls()), Some(scram(ScramHash::Sha512, WRONG_PASSWORD))),
            "authentication failed (SASL SCRAM-SHA-512)",
        ),
        ("a token that is over", reach(bare(), None, Some(from_file("over", &expired_token))), "has expired"),
        (
            "a token that is none",
            reach(bare(), None, Some(from_file("none", "NotATokenAtAll"))),
            "authentication failed (SASL OAUTHBEARER)",
        ),
        ("another authority", reach(over_tls(), Some(trusting(&stranger)), Some(plain(PASSWORD))), "ssl.ca.location"),
        ("no certificate", reach(kafka.mutual(), Some(tls()), None), "ssl.certificate.location"),
        (
            "a stranger's certificate",
            reach(kafka.mutual(), Some(showing(kafka.authority(), &stranger, "s")), None),
            "does not accept the client certificate",
        ),
    ];
    let wrong = wrong.into_iter().map(|(what, config, says)| shut_out(what, config, &topic, says));

    let issued = Arc::new(AtomicUsize::new(0));
    let short_lived = Tokens::new(ShortLived(Arc::clone(&issued)));
    let expiring = [
        ("sessions of SCRAM", reach(kafka.renewing(), None, Some(scram(ScramHash::Sha512, PASSWORD)))),
        ("sessions of PLAIN", reach(kafka.renewing(), None, Some(plain(PASSWORD)))),
        ("sessions of tokens", reach(kafka.renewing(), None, Some(bearer(short_lived)))),
    ];
    let expiring =
        (10..).zip(expiring).map(|(partition, (what, config))| outlives_sessions(what, config, &topic, partition));

    join_all(right).await;
    let (refusals, _) = tokio::join!(join_all(wrong), join_all(expiring));
    assert!(issued.load(Ordering::SeqCst) >= 2, "expiring tokens are replaced");

    // The ways to take the wrong port.
    let mistakes = [
        (
            "no TLS on a TLS port",
            reach(over_tls(), None, Some(plain(PASSWORD))),
            "security.protocol to SSL or SASL_SSL",
        ),
        ("TLS on a port without", reach(bare(), Some(tls()), Some(plain(PASSWORD))), "security.protocol"),
        ("no SASL on a SASL port", reach(bare(), None, None), "wants SASL"),
        ("SASL on a port without", reach(kafka.plaintext(), None, Some(plain(PASSWORD))), "does no SASL on this port"),
    ];
    for (what, config, says) in mistakes {
        let Err(error) = Cluster::connect(config).await else { panic!("{what}: let in") };
        assert!(error.to_string().contains(says), "{what}: {error}");
    }

    let log = captured.text();
    assert!(log.contains("authenticated anew"), "sessions were renewed");
    assert!(!log.contains("the session cannot be renewed"), "{log}");
    let secrets = [PASSWORD, WRONG_PASSWORD, &good_token, &expired_token, "NotATokenAtAll", CLIENT_SECRET];
    for secret in secrets {
        assert!(!log.contains(secret), "the log holds a secret");
        for refusal in &refusals {
            assert!(!refusal.contains(secret), "{refusal}");
        }
    }
}

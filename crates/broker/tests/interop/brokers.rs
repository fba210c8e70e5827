//! The two brokers that the clients meet.

use std::net::ToSocketAddrs as _;
use std::sync::LazyLock;

use tempfile::TempDir;
use tidegate_broker::{Broker, BrokerConfig};
use tidegate_testkit::kafka::{self, Kafka, KafkaConfig, StartError};
use tokio::runtime::Runtime;

use crate::common::Client;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    ApacheKafka,
    Embedded,
}

impl On {
    /// As in the lines of `expected`.
    pub fn name(self) -> &'static str {
        match self {
            Self::ApacheKafka => "apache-kafka",
            Self::Embedded => "embedded",
        }
    }

    pub fn test_suffix(self) -> &'static str {
        match self {
            Self::ApacheKafka => "apache_kafka",
            Self::Embedded => "the_embedded_broker",
        }
    }
}

/// One for all tests of this binary, where `cargo xtask test` has started none. It ends with the process.
static OWN_KAFKA: LazyLock<Result<Kafka, StartError>> = LazyLock::new(|| Kafka::start(KafkaConfig::default()));

/// A running broker.
pub struct Target {
    bootstrap: String,
    runtime: Runtime,
    /// The embedded broker and its data, which are dropped in this order.
    _embedded: Option<(Broker, TempDir)>,
}

impl Target {
    /// `None` where it cannot be had, and the skip of `test` has been counted.
    pub fn start(on: On, test: &str) -> Option<Self> {
        let runtime = Runtime::new().unwrap();
        let (bootstrap, embedded) = match on {
            On::ApacheKafka => (apache_kafka(test)?, None),
            On::Embedded => {
                let data = TempDir::new().unwrap();
                let broker = runtime.block_on(Broker::start(BrokerConfig::new(data.path()))).unwrap();
                (broker.addr().to_string(), Some((broker, data)))
            }
        };
        Some(Self { bootstrap, runtime, _embedded: embedded })
    }

    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// What kcat, which has no administration, finds ready.
    pub fn create_topics_of_kcat(&self, prefix: &str) {
        let addr = self.bootstrap.to_socket_addrs().unwrap().next().unwrap();
        self.runtime.block_on(async {
            let mut client = Client::connect(addr).await;
            for (suffix, partitions) in [("records", 10), ("acks", 1), ("group", 6), ("transactions", 1)] {
                client.create_topic(&format!("{prefix}-{suffix}"), partitions, &[("retention.ms", "-1")]).await;
            }
        });
    }
}

fn apache_kafka(test: &str) -> Option<String> {
    if let Some(shared) = kafka::shared_bootstrap() {
        return Some(shared);
    }
    match &*OWN_KAFKA {
        Ok(kafka) => Some(kafka.bootstrap()),
        Err(error) if error.is_unavailable() => {
            tidegate_testkit::skip(test, &error.to_string());
            None
        }
        Err(error) => panic!("Apache Kafka does not start: {error}"),
    }
}

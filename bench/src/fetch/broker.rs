//! The broker: a real Apache Kafka in the far namespace.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use tidegate_testkit::kafka::{Kafka, KafkaConfig};
use tidegate_testkit::tls::{Authority, Validity};

use crate::link::{FAR, Link};

/// The ports of the listeners beside the one on loopback. The namespace is ours alone, so any will do.
const LINK_PORT: u16 = 9092;
const TLS_PORT: u16 = 9093;

/// The sizes of the broker's socket buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Buffers {
    /// Kafka's default: 100 KiB each way, and so a window of 100 KiB for each connection.
    Default,
    /// -1: left to the kernel.
    Auto,
}

/// A running broker.
#[derive(Debug)]
pub struct Broker {
    /// Its variant.
    pub buffers: Buffers,
    kafka: Kafka,
    authority: Authority,
}

impl Broker {
    /// Starts one.
    pub fn start(link: &Link, buffers: Buffers) -> Result<Self> {
        let authority = Authority::new("Benchmark CA");
        let identity = authority.sign("broker", &[&FAR.to_string(), "127.0.0.1", "localhost"], Validity::Good);
        let mut config = KafkaConfig::default()
            .with("ssl.keystore.type", "PEM")
            .with("ssl.keystore.location", identity.both.display())
            // What is read once must be there until the last round.
            .with("log.retention.hours", -1);
        if buffers == Buffers::Auto {
            config = config.with("socket.send.buffer.bytes", -1).with("socket.receive.buffer.bytes", -1);
        }
        config.host = FAR;
        config.listeners = [("LINK", "PLAINTEXT", LINK_PORT), ("TLS", "SSL", TLS_PORT)]
            .map(|(name, protocol, port)| (name.to_owned(), protocol.to_owned(), port))
            .to_vec();
        config.java_options = ["-Xms768m", "-Xmx768m", "-XX:+UseSerialGC"].map(str::to_owned).to_vec();
        let kafka = link.far.run(|| Kafka::start(config))?.context("Apache Kafka")?;
        Ok(Self { buffers, kafka, authority })
    }

    /// Where clients in the far namespace find it, over loopback.
    pub fn loopback(&self) -> String {
        self.kafka.bootstrap()
    }

    /// Where clients in the near namespace find it.
    pub fn over_link() -> String {
        SocketAddr::from((FAR, LINK_PORT)).to_string()
    }

    /// Where clients in the far namespace find it with TLS: its own address, so that nothing leaves the machine's loopback.
    pub fn tls() -> String {
        SocketAddr::from((FAR, TLS_PORT)).to_string()
    }

    /// Who signed the certificate of [`Broker::tls`].
    pub fn ca(&self) -> &std::path::Path {
        self.authority.certificate()
    }

    /// Its plaintext address on loopback, for the one who fills its topics.
    pub fn address(&self) -> Result<SocketAddr> {
        let address: SocketAddr = self.loopback().parse()?;
        debug_assert_eq!(address.ip(), Ipv4Addr::LOCALHOST);
        Ok(address)
    }

    /// Processor time of the broker so far, in seconds.
    pub fn cpu_seconds(&self) -> f64 {
        crate::machine::cpu_seconds(&self.kafka.pid().to_string()).unwrap_or(0.0)
    }
}

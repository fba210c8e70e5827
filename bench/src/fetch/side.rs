//! The sides of a comparison: a client with its settings.

use serde::Serialize;

use super::client::Client;

/// A client with its settings.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Side {
    /// Its name in the results.
    pub name: &'static str,
    /// The client.
    pub client: Client,
    /// Its settings, by the client's own names; all others are its defaults.
    pub settings: &'static [(&'static str, &'static str)],
    /// Whether the settings were chosen for throughput.
    pub tuned: bool,
    /// Whether it speaks TLS.
    pub tls: bool,
}

impl Side {
    const fn new(name: &'static str, client: Client, settings: &'static [(&'static str, &'static str)]) -> Self {
        Self { name, client, settings, tuned: false, tls: false }
    }

    const fn tuned(name: &'static str, client: Client, settings: &'static [(&'static str, &'static str)]) -> Self {
        Self { name, client, settings, tuned: true, tls: false }
    }

    /// The same client under another name, with these settings.
    pub const fn with(self, name: &'static str, settings: &'static [(&'static str, &'static str)]) -> Self {
        Self { name, settings, ..self }
    }

    /// Whether the CRC of every batch is checked.
    pub fn checks_crcs(&self) -> bool {
        match self.settings.iter().find(|(name, _)| *name == "check.crcs") {
            Some((_, value)) => *value == "true",
            // Their defaults.
            None => matches!(self.client, Client::Tidegate | Client::Java | Client::Franz),
        }
    }
}

/// What librdkafka is told when throughput is wanted: answers of 32 MiB a partition, 128 MiB in all, and a queue that never
/// fills. The receive buffer stays with the kernel, which gives a long way more than a fixed size would.
const LIBRDKAFKA_SETTINGS: &[(&str, &str)] = &[
    ("max.partition.fetch.bytes", "33554432"),
    ("fetch.max.bytes", "134217728"),
    ("receive.message.max.bytes", "200000000"),
    ("queued.min.messages", "10000000"),
    ("queued.max.messages.kbytes", "1048576"),
];

/// The same where the broker's socket buffers hold a connection to a few MB/s: larger answers would only come later.
const LIBRDKAFKA_NARROW_SETTINGS: &[(&str, &str)] = &[
    ("max.partition.fetch.bytes", "4194304"),
    ("fetch.max.bytes", "8388608"),
    ("queued.min.messages", "10000000"),
    ("queued.max.messages.kbytes", "1048576"),
];

/// Ours.
pub const TIDEGATE: Side = Side::new("tidegate", Client::Tidegate, &[]);
/// librdkafka's batch interface.
pub const LIBRDKAFKA: Side = Side::new("librdkafka", Client::Librdkafka, &[]);
/// The same, tuned.
pub const LIBRDKAFKA_TUNED: Side = Side::tuned("librdkafka-tuned", Client::Librdkafka, LIBRDKAFKA_SETTINGS);
/// The same, tuned for a broker with small socket buffers.
pub const LIBRDKAFKA_NARROW: Side = Side::tuned("librdkafka-tuned", Client::Librdkafka, LIBRDKAFKA_NARROW_SETTINGS);
/// Java's consumer.
pub const JAVA: Side = Side::new("java", Client::Java, &[]);
/// The same, tuned.
pub const JAVA_TUNED: Side = Side::tuned(
    "java-tuned",
    Client::Java,
    &[
        ("max.partition.fetch.bytes", "33554432"),
        ("fetch.max.bytes", "134217728"),
        ("receive.buffer.bytes", "-1"),
        ("max.poll.records", "10000"),
    ],
);

/// Ours with what one read of the server may hold: its budget alone, and with its part of the reserve.
pub fn server_reads() -> [Side; 2] {
    [
        TIDEGATE.with("tidegate-4mib", &[("prefetch.max.bytes", "4194304")]),
        TIDEGATE.with("tidegate-server-read", &[("prefetch.max.bytes", "4194304"), ("reserve.bytes", "67108864")]),
    ]
}

/// Ours with its budget and no reserve.
pub fn without_reserve() -> Side {
    TIDEGATE.with("tidegate-64mib", &[("prefetch.max.bytes", "67108864")])
}

/// All clients, with their defaults and tuned.
pub fn everyone() -> Vec<Side> {
    vec![
        TIDEGATE,
        LIBRDKAFKA,
        LIBRDKAFKA_TUNED,
        Side::new("rdkafka", Client::Rdkafka, &[]),
        Side::tuned("rdkafka-tuned", Client::Rdkafka, LIBRDKAFKA_SETTINGS),
        JAVA,
        JAVA_TUNED,
        Side::new("franz", Client::Franz, &[]),
        Side::tuned(
            "franz-tuned",
            Client::Franz,
            &[
                ("FetchMaxPartitionBytes", "33554432"),
                ("FetchMaxBytes", "134217728"),
                ("BrokerMaxReadBytes", "268435456"),
            ],
        ),
        Side::new("kafkajs", Client::KafkaJs, &[]),
        Side::tuned(
            "kafkajs-tuned",
            Client::KafkaJs,
            &[("maxBytesPerPartition", "16777216"), ("maxBytes", "67108864"), ("partitionsConsumedConcurrently", "4")],
        ),
        Side::new("python", Client::Python, &[]),
        Side::tuned("python-tuned", Client::Python, LIBRDKAFKA_SETTINGS),
    ]
}

/// All clients, the tuned ones for a broker with small socket buffers.
pub fn everyone_narrow() -> Vec<Side> {
    let mut sides = everyone();
    for side in sides.iter_mut().filter(|side| side.tuned) {
        side.settings = match side.client {
            Client::Librdkafka | Client::Rdkafka | Client::Python => LIBRDKAFKA_NARROW_SETTINGS,
            Client::Java => &[
                ("max.partition.fetch.bytes", "4194304"),
                ("fetch.max.bytes", "8388608"),
                ("receive.buffer.bytes", "-1"),
                ("max.poll.records", "10000"),
            ],
            Client::Franz => &[("FetchMaxPartitionBytes", "4194304"), ("FetchMaxBytes", "8388608")],
            Client::KafkaJs => {
                &[("maxBytesPerPartition", "4194304"), ("maxBytes", "8388608"), ("partitionsConsumedConcurrently", "4")]
            }
            Client::Tidegate => side.settings,
        };
    }
    sides
}

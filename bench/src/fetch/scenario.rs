//! The scenarios: what is read over which link, by whom, and what is asked of the result.

use super::broker::Buffers;
use super::client::Client;
use super::fill::{Topic, Values};
use super::side::{self, Side};
use super::target::{Against, Bound, Metric, Target};

/// One scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: String,
    /// Its question.
    pub asks: &'static str,
    /// The round trip of the link, in milliseconds; `None` is loopback.
    pub round_trip_ms: Option<f64>,
    /// The part of packets that is lost at random, each way.
    pub loss: f64,
    /// The broker's socket buffers.
    pub buffers: Buffers,
    /// What is read.
    pub topic: Topic,
    /// Whether the consumers stand still for 200 ms every 2 s.
    pub pauses: bool,
    /// The least time after which a client is stopped, in seconds: where it takes seconds to find out how the link is filled,
    /// and what it carries then is asked.
    pub least_seconds: f64,
    /// The clients.
    pub sides: Vec<Side>,
    /// What is asked of the result.
    pub targets: Vec<Target>,
}

const KB: usize = 1000;
const MB: u64 = 1_000_000;

const fn random(name: &'static str, partitions: i32, value_bytes: usize, bytes: u64) -> Topic {
    Topic { name, partitions, values: Values::Random, value_bytes, compression: "none", uneven: false, bytes }
}

const fn text(name: &'static str, compression: &'static str) -> Topic {
    Topic { name, partitions: 4, values: Values::Text, value_bytes: KB, compression, uneven: false, bytes: 3000 * MB }
}

const ONE: Topic = random("one", 1, KB, 1600 * MB);
const LARGE: Topic = Topic { uneven: true, ..random("large", 1, KB, 1600 * MB) };
const SIXTEEN: Topic = random("sixteen", 16, KB, 2000 * MB);
const FOUR: Topic = random("four", 4, KB, 3000 * MB);
const SMALL: Topic = random("small", 4, 100, 1500 * MB);
const ZSTD: Topic = text("zstd", "zstd");
const LZ4: Topic = text("lz4", "lz4");

/// The loss of the scenarios that end in `-loss`.
pub const LOSS: f64 = 0.001;

impl Scenario {
    fn far(name: &str, asks: &'static str, round_trip_ms: f64, buffers: Buffers, topic: Topic) -> Self {
        Self {
            name: name.to_owned(),
            asks,
            round_trip_ms: Some(round_trip_ms),
            loss: 0.0,
            buffers,
            topic,
            pauses: false,
            least_seconds: 0.0,
            sides: Vec::new(),
            targets: Vec::new(),
        }
    }

    fn near(name: &str, asks: &'static str, topic: Topic) -> Self {
        Self { round_trip_ms: None, ..Self::far(name, asks, 0.0, Buffers::Default, topic) }
    }

    fn sides(mut self, sides: impl IntoIterator<Item = Side>) -> Self {
        self.sides = sides.into_iter().collect();
        self
    }

    fn target(mut self, metric: Metric, against: Against, bound: Bound) -> Self {
        self.targets.push(Target { ours: "tidegate", metric, against, bound });
        self
    }

    /// The same over a link that loses packets, for fewer clients and without a target.
    fn with_loss(&self) -> Self {
        let mut scenario = self.clone();
        scenario.name.push_str("-loss");
        scenario.loss = LOSS;
        scenario.targets.clear();
        let keep = ["tidegate", "tidegate-128", "librdkafka", "librdkafka-tuned", "java"];
        scenario.sides.retain(|side| keep.contains(&side.name));
        scenario
    }
}

/// All scenarios, those of one broker after each other.
pub fn all() -> Vec<Scenario> {
    use Against::{Best, BestTuned, Nothing};
    use Bound::{AtLeast, AtMost};
    use Buffers::{Auto, Default};
    use Metric::{CpuPerRecord, Rate, Records};

    let rdkafka = Against::Side("librdkafka");
    let tls = |side: Side| Side { tls: true, ..side };
    let mut far = vec![
        Scenario::far("far16", "16 partitions, 20 ms, the broker's default socket buffers", 20.0, Default, SIXTEEN)
            .sides(side::everyone_narrow())
            .target(Rate, Best, AtLeast(8.0)),
        Scenario::far("far1-default", "1 partition, 20 ms, the broker's default socket buffers", 20.0, Default, ONE)
            .sides(side::everyone_narrow())
            .target(Rate, Best, AtLeast(6.0)),
        Scenario {
            least_seconds: 12.0,
            targets: vec![Target { ours: "tidegate-128", metric: Rate, against: Nothing, bound: AtLeast(110.0) }],
            ..Scenario::far(
                "far80",
                "16 partitions, 80 ms, the broker's default socket buffers; 128 connections, and the \
                 default limit of them",
                80.0,
                Default,
                SIXTEEN,
            )
            .sides([
                side::TIDEGATE.with("tidegate-128", &[("connections.per.broker", "128")]),
                side::TIDEGATE,
                side::LIBRDKAFKA,
                side::LIBRDKAFKA_NARROW,
            ])
        },
        Scenario::far("far1", "1 partition, 40 ms, the broker's socket buffers left to the kernel", 40.0, Auto, ONE)
            .sides(side::everyone().into_iter().chain(side::server_reads()))
            .target(Rate, rdkafka, AtLeast(10.0))
            .target(Rate, BestTuned, AtLeast(3.0)),
        Scenario::far("java", "1 partition, 20 ms, the broker's socket buffers left to the kernel", 20.0, Auto, ONE)
            .sides([side::TIDEGATE, side::JAVA, side::JAVA_TUNED])
            .target(Rate, Against::Side("java"), AtLeast(20.0)),
        Scenario {
            pauses: true,
            ..Scenario::far(
                "pauses",
                "the consumer stands still for 200 ms every 2 s: 1 partition, 20 ms, socket buffers \
                 left to the kernel",
                20.0,
                Auto,
                ONE,
            )
            .sides([side::TIDEGATE, side::without_reserve(), side::LIBRDKAFKA, side::LIBRDKAFKA_TUNED])
            .target(Rate, rdkafka, AtLeast(1.5))
        },
        Scenario::far(
            "far80-auto",
            "16 partitions, 80 ms, the broker's socket buffers left to the kernel",
            80.0,
            Auto,
            SIXTEEN,
        )
        .sides([side::TIDEGATE, side::LIBRDKAFKA, side::LIBRDKAFKA_TUNED])
        .target(Rate, Nothing, AtLeast(110.0)),
        Scenario::far(
            "batches",
            "1 partition, batches of 50 to 900 KB, 20 ms, the broker's socket buffers left to the kernel",
            20.0,
            Auto,
            LARGE,
        )
        .sides(side::everyone().into_iter().chain([side::without_reserve()]))
        .target(Rate, Best, AtLeast(1.0)),
        Scenario::far(
            "fast20",
            "16 partitions, 20 ms, the broker's socket buffers left to the kernel",
            20.0,
            Auto,
            SIXTEEN,
        )
        .sides([side::TIDEGATE, side::LIBRDKAFKA, side::LIBRDKAFKA_TUNED])
        .target(Rate, Nothing, AtLeast(470.0)),
    ];
    let lossy: Vec<Scenario> = far.iter().map(Scenario::with_loss).collect();
    far.extend(lossy);
    far.extend([
        Scenario::near("near", "loopback, 4 partitions, 1 KB records", FOUR)
            .sides(side::everyone())
            .target(Records, rdkafka, AtLeast(2.0))
            .target(CpuPerRecord, rdkafka, AtMost(0.45)),
        Scenario::near("small", "loopback, 4 partitions, 100-byte records", SMALL)
            .sides(side::everyone())
            .target(Records, rdkafka, AtLeast(3.0))
            .target(Records, Against::Side("rdkafka"), AtLeast(6.0)),
        Scenario::near("zstd", "loopback, 4 partitions, text compressed with zstd", ZSTD)
            .sides(side::everyone())
            .target(Rate, Best, AtLeast(1.5)),
        Scenario::near("lz4", "loopback, 4 partitions, text compressed with LZ4", LZ4).sides(side::everyone()).target(
            Rate,
            Best,
            AtLeast(1.4),
        ),
        Scenario::near("tls", "loopback, 4 partitions, TLS", FOUR)
            .sides([
                tls(side::TIDEGATE),
                side::TIDEGATE.with("tidegate-plaintext", &[]),
                tls(side::LIBRDKAFKA),
                tls(side::LIBRDKAFKA_TUNED),
                tls(side::JAVA),
            ])
            .target(Rate, rdkafka, AtLeast(1.5))
            .target(CpuPerRecord, Against::Side("tidegate-plaintext"), AtMost(2.0)),
        Scenario::near("crc", "loopback, 4 partitions: what checking every CRC costs", FOUR)
            .sides([side::TIDEGATE, side::TIDEGATE.with("tidegate-no-crc", &[("check.crcs", "false")])])
            .target(Rate, Against::Side("tidegate-no-crc"), AtLeast(0.97)),
    ]);
    // One broker at a time, and one start of each.
    far.sort_by_key(|scenario| scenario.buffers);
    far
}

/// The clients of some scenarios, each once.
pub fn clients(scenarios: &[Scenario]) -> Vec<Client> {
    let mut clients: Vec<Client> = scenarios.iter().flat_map(|s| s.sides.iter().map(|side| side.client)).collect();
    clients.sort();
    clients.dedup();
    clients
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_target_names_sides_of_its_scenario() {
        let scenarios = all();
        let names: std::collections::BTreeSet<&str> = scenarios.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names.len(), scenarios.len());
        for scenario in &scenarios {
            let has = |name: &str| scenario.sides.iter().any(|side| side.name == name);
            for target in &scenario.targets {
                assert!(has(target.ours), "{}: {target:?}", scenario.name);
                if let Against::Side(name) = target.against {
                    assert!(has(name), "{}: {target:?}", scenario.name);
                }
            }
        }
    }
}

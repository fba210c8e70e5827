//! A real Apache Kafka for tests: one KRaft node, broker and controller in one process, plaintext, on loopback.
//!
//! Its jars come through Maven into `<target dir>/kafka-<version>/libs` at the first start; `mvn` and `java` (17 or
//! later) must be on the PATH. Most tests share the one Kafka that `cargo xtask test` starts ([`shared`]); a test
//! that kills its broker or needs other broker properties starts its own ([`Kafka::start_or_skip`]), and one that
//! needs several brokers a [`KafkaCluster`].

mod artefacts;
mod cluster;
mod ports;
mod process;
mod ready;
#[cfg(feature = "secure")]
mod secure;

use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use process::{Attempt, Process};

pub use artefacts::{OLD_VERSION, VERSION};
pub use cluster::KafkaCluster;
#[cfg(feature = "secure")]
pub use secure::{SecureKafka, USER};

/// The environment variable in which `cargo xtask test` tells the tests where the shared Kafka is.
pub const SHARED: &str = "TIDEGATE_TEST_KAFKA";

/// Two starts in a row that lose a port to a stranger are bad luck; so many are something else.
const PORT_ATTEMPTS: u32 = 5;

/// The bootstrap address of the shared Kafka, `host:port`; `None` when there is none and the caller skips.
///
/// All tests use this one at the same time: take topic names from [`crate::unique_topic`].
pub fn shared_bootstrap() -> Option<String> {
    std::env::var(SHARED).ok().filter(|address| !address.is_empty())
}

/// [`shared_bootstrap`], with the skip of `test` said and counted where there is none.
///
/// # Panics
///
/// Under `CI=true` when there is no shared Kafka.
pub fn shared(test: &str) -> Option<String> {
    let bootstrap = shared_bootstrap();
    if bootstrap.is_none() {
        crate::skip(test, &format!("no shared Apache Kafka: ${SHARED} is not set (cargo xtask test sets it)"));
    }
    bootstrap
}

/// The directory of Apache Kafka's jars, its clients among them; they are fetched first if they are missing.
///
/// # Errors
/// [`StartError::is_unavailable`] tells whether they cannot be had here.
pub fn libs() -> Result<PathBuf, StartError> {
    artefacts::libs(&artefacts::CURRENT)
}

/// How to start a [`Kafka`].
#[derive(Debug, Clone)]
pub struct KafkaConfig {
    /// Broker properties on top of the test kit's own, Kafka's names; a name given here wins.
    pub properties: Vec<(String, String)>,
    /// Listeners beside the plaintext one: name, security protocol and port, on `host`.
    pub listeners: Vec<(String, String, u16)>,
    /// Where the further listeners are. Default: 127.0.0.1, where the plaintext one always is.
    pub host: Ipv4Addr,
    /// Options of the Java machine. Default: what starts fastest and takes little memory.
    pub java_options: Vec<String>,
    /// Further arguments of the storage tool's `format`.
    pub format_args: Vec<String>,
    /// How long a start may take until the broker answers, the fetching of its jars not counted.
    pub start_timeout: Duration,
    /// Which Apache Kafka.
    pub release: Release,
}

/// Which Apache Kafka to start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Release {
    /// [`VERSION`].
    #[default]
    Current,
    /// [`OLD_VERSION`], with a ZooKeeper in the same process: it still stores message formats v0 and v1.
    Old,
}

impl Release {
    fn artefact(self) -> artefacts::Artefact {
        match self {
            Self::Current => artefacts::CURRENT,
            Self::Old => artefacts::OLD,
        }
    }
}

impl Default for KafkaConfig {
    fn default() -> Self {
        // Three to five seconds on an idle machine; test machines are not idle.
        KafkaConfig {
            properties: Vec::new(),
            listeners: Vec::new(),
            host: Ipv4Addr::LOCALHOST,
            java_options: ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"].map(str::to_owned).to_vec(),
            format_args: Vec::new(),
            start_timeout: Duration::from_secs(120),
            release: Release::Current,
        }
    }
}

impl KafkaConfig {
    /// Adds a broker property.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl fmt::Display) -> Self {
        self.properties.push((name.into(), value.to_string()));
        self
    }
}

/// A running Apache Kafka with its data in a temporary directory. Dropping it kills it and removes the data.
///
/// The broker also ends when this process dies in whatever way, so a test run that is interrupted leaves nothing.
#[derive(Debug)]
pub struct Kafka {
    process: Process,
}

impl Kafka {
    /// Starts a broker and returns once it has answered a metadata request with itself in it.
    pub fn start(config: KafkaConfig) -> Result<Kafka, StartError> {
        let libs = artefacts::libs(&config.release.artefact())?;
        let mut lost_ports = Vec::new();
        for _ in 0..PORT_ATTEMPTS {
            let ports = ports::free_pair().map_err(StartError::io("find free ports"))?;
            match process::start(&libs, &config, ports)? {
                Attempt::Running(process) => return Ok(Kafka { process }),
                Attempt::PortTaken => lost_ports.push(ports.broker),
            }
            if !config.listeners.is_empty() {
                // Which port was lost is not known, and these are the caller's to choose.
                break;
            }
        }
        Err(StartError::NoPort { lost_ports })
    }

    /// [`Kafka::start`] for a test: where Kafka cannot be had, the skip of `test` is said and counted.
    ///
    /// # Panics
    ///
    /// When Kafka can be had but does not start, and under `CI=true` when it cannot be had.
    pub fn start_or_skip(test: &str, config: KafkaConfig) -> Option<Kafka> {
        match Kafka::start(config) {
            Ok(kafka) => Some(kafka),
            Err(error) if error.is_unavailable() => {
                crate::skip(test, &error.to_string());
                None
            }
            Err(error) => panic!("{test}: Apache Kafka does not start: {error}"),
        }
    }

    /// `host:port` to bootstrap from.
    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.process.port())
    }

    /// The broker's process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The broker's log. It outlives the broker, for a look after a failure.
    pub fn log(&self) -> &Path {
        self.process.log()
    }

    /// Waits until the broker ends of itself.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.process.wait()
    }

    /// SIGKILL: the broker is gone, mid-write if it was writing, when this returns. Killing it twice is fine.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// SIGTERM, so that the broker closes its log segments; SIGKILL if that takes longer than two minutes.
    pub fn stop(mut self) {
        self.process.terminate(Duration::from_secs(120));
    }
}

/// Why there is no Kafka.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A program that the start needs is not installed.
    #[error("`{program}` is not on the PATH; Apache Kafka for the tests needs it")]
    Missing {
        /// `mvn` or `java`.
        program: &'static str,
    },
    /// Maven did not get the jars: no network and nothing in its local repository, most likely.
    #[error("Maven did not fetch Apache Kafka {version}: {output}")]
    Fetch {
        /// Of Apache Kafka.
        version: &'static str,
        /// What Maven said, its last lines.
        output: String,
    },
    /// The storage directory could not be formatted.
    #[error("kafka.tools.StorageTool did not format the storage: {output}")]
    Format {
        /// What the tool said, its last lines.
        output: String,
    },
    /// The broker ended before it answered.
    #[error("Apache Kafka ended at once with {status}; its log, {}, ends with:\n{tail}", log.display())]
    Exited {
        /// How it ended.
        status: ExitStatus,
        /// Its whole log.
        log: PathBuf,
        /// The end of the log.
        tail: String,
    },
    /// The broker did not answer in time.
    #[error("Apache Kafka did not answer on port {port} within {waited:?}; its log is {}", log.display())]
    TimedOut {
        /// The port that was asked.
        port: u16,
        /// How long.
        waited: Duration,
        /// Its whole log.
        log: PathBuf,
    },
    /// Every port that was free a moment ago was taken when the broker bound it.
    #[error("other programs took the ports {lost_ports:?} before Apache Kafka could bind them")]
    NoPort {
        /// The broker ports of the attempts.
        lost_ports: Vec<u16>,
    },
    /// The operating system refused something.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was being done.
        action: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

impl StartError {
    /// Whether Kafka cannot be had on this machine, rather than being there and failing.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, StartError::Missing { .. } | StartError::Fetch { .. })
    }

    fn io(action: &'static str) -> impl FnOnce(io::Error) -> StartError {
        move |source| StartError::Io { action, source }
    }

    /// For spawning `program`: a missing program has its own variant.
    fn spawn(program: &'static str, action: &'static str) -> impl FnOnce(io::Error) -> StartError {
        move |source| match source.kind() {
            io::ErrorKind::NotFound => StartError::Missing { program },
            _ => StartError::Io { action, source },
        }
    }
}

/// The last `lines` lines of what a Java program printed, without stack frames: the message stands before them.
fn tail(text: &str, lines: usize) -> String {
    let worth_reading = |line: &&str| !line.trim().is_empty() && !line.starts_with("\tat ");
    let all: Vec<&str> = text.lines().filter(worth_reading).collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_cannot_be_had_is_a_skip() {
        let missing = StartError::spawn("java", "run java")(io::ErrorKind::NotFound.into());
        assert!(missing.is_unavailable(), "{missing}");
        let refused = StartError::spawn("java", "run java")(io::ErrorKind::PermissionDenied.into());
        assert!(!refused.is_unavailable(), "{refused}");
        assert!(!StartError::NoPort { lost_ports: vec![1] }.is_unavailable());
    }

    #[test]
    fn a_tail_drops_blank_lines_and_stack_frames_and_takes_short_text_whole() {
        assert_eq!(tail("Error: no\n\tat kafka.A(A.java:1)\n\tat kafka.B(B.java:2)\n", 1), "Error: no");
        assert_eq!(tail("a\n\nb\nc\n", 2), "b\nc");
        assert_eq!(tail("a", 2), "a");
        assert_eq!(tail("", 2), "");
    }
}

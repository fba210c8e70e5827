//! The broker's process: its files, its start, its end.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::ports::Ports;
use super::{KafkaConfig, Release, StartError, artefacts, ready, tail};

const LOG4J2: &str = include_str!("../../kafka/log4j2.properties");
const LOG4J: &str = include_str!("../../kafka/log4j.properties");

/// The broker tells nobody that it is ready, so it is asked this often; likewise whether it has ended.
const POLL: Duration = Duration::from_millis(50);

/// Logs outlive their brokers for a look after a failure, but not for ever.
const KEEP_LOGS: Duration = Duration::from_secs(24 * 60 * 60);

/// How a start ended, if not with an error.
#[derive(Debug)]
pub(super) enum Attempt {
    Running(Process),
    /// Another program bound one of the ports first.
    PortTaken,
}

/// A broker's process. Dropping it kills the broker, and removes its data if nobody else keeps its [`Place`].
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    watchdog: Child,
    port: u16,
    log: PathBuf,
    place: Arc<Place>,
}

/// Which of the nodes of a cluster a broker is.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) id: u16,
    pub(super) ports: Ports,
    /// Kafka's `controller.quorum.voters`.
    pub(super) voters: String,
    pub(super) cluster_id: String,
}

impl Member {
    /// The one node of a cluster.
    pub(super) fn alone(ports: Ports) -> Self {
        Self { id: 1, ports, voters: voter(1, ports), cluster_id: cluster_id() }
    }
}

/// A node as `controller.quorum.voters` names it.
pub(super) fn voter(id: u16, ports: Ports) -> String {
    format!("{id}@127.0.0.1:{}", ports.controller)
}

/// Where a broker lives: its formatted data and its files, which outlast its process.
#[derive(Debug)]
pub(super) struct Place {
    libs: PathBuf,
    config: KafkaConfig,
    member: Member,
    data: TempDir,
}

impl Place {
    /// A new one.
    pub(super) fn new(libs: &Path, config: &KafkaConfig, member: Member) -> Result<Arc<Self>, StartError> {
        let data = TempDir::with_prefix("tidegate-kafka-").map_err(StartError::io("create a temporary directory"))?;
        let place = Self { libs: libs.to_owned(), config: config.clone(), member, data };
        let (text, _) = place.logging();
        fs::write(place.file("logging.properties"), text).map_err(StartError::io("write the logging's properties"))?;
        let properties = place.file("server.properties");
        fs::write(&properties, server_properties(place.data.path(), config, &place.member))
            .map_err(StartError::io("write server.properties"))?;
        if config.release == Release::Current {
            let tool = place.java("kafka.tools.StorageTool");
            format_storage(tool, &place.member.cluster_id, &properties, &config.format_args)?;
        }
        Ok(Arc::new(place))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.data.path().join(name)
    }

    /// The logging's configuration, and the setting that names its file.
    fn logging(&self) -> (&'static str, &'static str) {
        match self.config.release {
            Release::Current => (LOG4J2, "log4j2.configurationFile="),
            Release::Old => (LOG4J, "log4j.configuration=file:"),
        }
    }

    fn java(&self, main: &str) -> Command {
        let mut java = Command::new("java");
        java.args(&self.config.java_options)
            .arg("-XX:-UsePerfData")
            .arg(format!("-D{}{}", self.logging().1, self.file("logging.properties").display()))
            .arg("-cp")
            .arg(self.libs.join("*"))
            .arg(main)
            .stdin(Stdio::null());
        java
    }

    /// Starts a broker's process. It is not ready yet.
    pub(super) fn launch(self: &Arc<Self>) -> Result<Process, StartError> {
        let ports = self.member.ports;
        let log = new_log(self.config.release, ports.broker).map_err(StartError::io("create a log file for Kafka"))?;
        let out = File::create(&log).map_err(StartError::io("create a log file for Kafka"))?;
        let err = out.try_clone().map_err(StartError::io("share Kafka's log file"))?;
        let mut broker = match self.config.release {
            Release::Current => self.java("kafka.Kafka"),
            Release::Old => {
                // Run from its source.
                let source = crate::workspace_root().join("crates/testkit/kafka/OldKafka.java");
                let mut java = self.java(&source.display().to_string());
                java.arg(self.file("zookeeper")).arg(ports.controller.to_string());
                java
            }
        };
        let child = broker
            .arg(self.file("server.properties"))
            .stdout(out)
            .stderr(err)
            // Not in the terminal's foreground group: ctrl-c must reach the tests first and the broker through its
            // watchdog, or every test still running reports a lost broker.
            .process_group(0)
            .spawn()
            .map_err(StartError::spawn("java", "run kafka.Kafka"))?;
        let watchdog = watch(&child, self.data.path())?;
        Ok(Process { watchdog, child, port: ports.broker, log, place: Arc::clone(self) })
    }
}

/// Formats a new data directory and starts a broker on it; returns when the broker is ready or has failed.
pub(super) fn start(libs: &Path, config: &KafkaConfig, ports: Ports) -> Result<Attempt, StartError> {
    Place::new(libs, config, Member::alone(ports))?.launch()?.ready(1)
}

/// Formats the data directory, which KRaft wants.
fn format_storage(
    mut java: Command,
    cluster_id: &str,
    properties: &Path,
    further: &[String],
) -> Result<(), StartError> {
    let formatted = java
        .args(["format", "--cluster-id", cluster_id, "--config"])
        .arg(properties)
        .args(further)
        .output()
        .map_err(StartError::spawn("java", "run kafka.tools.StorageTool"))?;
    if formatted.status.success() {
        return Ok(());
    }
    let said = [formatted.stdout, formatted.stderr].concat();
    Err(StartError::Format { output: tail(&String::from_utf8_lossy(&said), 5) })
}

/// Lets a shell wait for the end of this process, which closes the pipe whatever the cause, and then end the broker.
///
/// Without it, a test run that is killed would leave a Java process behind that nobody looks for.
fn watch(broker: &Child, data: &Path) -> Result<Child, StartError> {
    let spawned = Command::new("sh")
        .args(["-c", r#"read -r _; kill -9 "$1"; rm -rf "$2""#, "watchdog"])
        .arg(broker.id().to_string())
        .arg(data)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn();
    spawned.map_err(StartError::spawn("sh", "run a shell that watches over Kafka"))
}

impl Process {
    /// Waits until the broker tells of `brokers` brokers or more.
    pub(super) fn ready(mut self, brokers: usize) -> Result<Attempt, StartError> {
        let Place { config, member, .. } = &*self.place;
        let started = Instant::now();
        while started.elapsed() < config.start_timeout {
            if let Some(status) = self.child.try_wait().map_err(StartError::io("wait for Kafka"))? {
                let tail = log_tail(&self.log);
                // What the JDK says when a listener finds its port taken, from `Socket server failed to bind to ...`.
                if tail.contains("Address already in use") {
                    return Ok(Attempt::PortTaken);
                }
                return Err(StartError::Exited { status, log: self.log.clone(), tail: super::tail(&tail, 30) });
            }
            // An old broker draws its cluster's id itself.
            let is_ours =
                |id: Option<String>| config.release == Release::Old || id.as_ref() == Some(&member.cluster_id);
            match ready::ask(self.port) {
                Ok(state) if state.brokers >= brokers && is_ours(state.cluster_id.clone()) => {
                    return Ok(Attempt::Running(self));
                }
                _ => sleep(POLL),
            }
        }
        Err(StartError::TimedOut { port: self.port, waited: config.start_timeout, log: self.log.clone() })
    }

    pub(super) fn place(&self) -> &Arc<Place> {
        &self.place
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn log(&self) -> &Path {
        &self.log
    }

    pub(super) fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait();
        self.kill();
        status
    }

    /// SIGKILL to the watchdog, then to the broker, and waits for both.
    ///
    /// In this order, so that the watchdog never signals a process id that has been waited for and may be another's.
    pub(super) fn kill(&mut self) {
        for child in [&mut self.watchdog, &mut self.child] {
            // Either fails only when the process has ended and has been waited for.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// SIGTERM to the broker; SIGKILL when it has not ended within `grace`.
    pub(super) fn terminate(&mut self, grace: Duration) {
        let asked = Command::new("sh")
            .args(["-c", r#"kill -TERM "$1""#, "terminate"])
            .arg(self.child.id().to_string())
            .status();
        let deadline = Instant::now() + grace;
        while asked.is_ok() && Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            sleep(POLL);
        }
        self.kill();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A node that is broker and controller (KIP-631), with the internal topics cut down to what one node can hold.
/// All else is Kafka's default, so that tests meet what users meet.
fn server_properties(data: &Path, config: &KafkaConfig, member: &Member) -> String {
    let Ports { broker, controller } = member.ports;
    let mut listeners = format!("PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}");
    let mut protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT".to_owned();
    for (name, protocol, port) in &config.listeners {
        listeners.push_str(&format!(",{name}://{}:{port}", config.host));
        protocols.push_str(&format!(",{name}:{protocol}"));
    }
    let role = match config.release {
        Release::Current => vec![
            ("process.roles", "broker,controller".to_owned()),
            ("node.id", member.id.to_string()),
            ("listeners", listeners),
            ("controller.listener.names", "CONTROLLER".to_owned()),
            ("listener.security.protocol.map", protocols),
            ("controller.quorum.voters", member.voters.clone()),
        ],
        Release::Old => vec![
            ("broker.id", "1".to_owned()),
            ("listeners", format!("PLAINTEXT://127.0.0.1:{broker}")),
            ("zookeeper.connect", format!("127.0.0.1:{controller}")),
        ],
    };
    let own = [
        ("log.dirs", data.join("data").display().to_string()),
        ("offsets.topic.num.partitions", "1".to_owned()),
        ("offsets.topic.replication.factor", "1".to_owned()),
        ("transaction.state.log.num.partitions", "1".to_owned()),
        ("transaction.state.log.replication.factor", "1".to_owned()),
        ("transaction.state.log.min.isr", "1".to_owned()),
        // A test that forgets to create its topic, or reads one that is gone, must be told.
        ("auto.create.topics.enable", "false".to_owned()),
        ("group.initial.rebalance.delay.ms", "0".to_owned()),
        // The retention looks at the topics for the first time half a minute after the start, and would delete the records of
        // tests whose times lie long ago.
        ("log.initial.task.delay.ms", "86400000".to_owned()),
    ];
    let own = role.iter().chain(&own).map(|(name, value)| (*name, value.as_str()));
    let given = config.properties.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    // Java's properties take the last of two lines with one name.
    own.chain(given).map(|(name, value)| format!("{name}={value}\n")).collect()
}

/// A cluster id: 16 bytes in URL-safe base64 without padding, of which the last character carries two bits.
pub(super) fn cluster_id() -> String {
    const ALPHABET: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let letters = (0..21).map(|_| char::from(ALPHABET[crate::random::below(62) as usize]));
    letters.chain(['A']).collect()
}

/// A path for a new log, after the logs of long ago have been removed.
fn new_log(release: Release, port: u16) -> io::Result<PathBuf> {
    let logs = artefacts::home(&release.artefact()).join("logs");
    fs::create_dir_all(&logs)?;
    for entry in fs::read_dir(&logs)?.flatten() {
        let age = entry.metadata().and_then(|m| m.modified()).ok().and_then(|modified| modified.elapsed().ok());
        if age.is_some_and(|age| age > KEEP_LOGS) {
            // Another test process may be removing it too.
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(logs.join(format!("{}-{port}.log", std::process::id())))
}

/// The last 64 KiB of a log, or why it cannot be read.
fn log_tail(log: &Path) -> String {
    let read = || -> io::Result<String> {
        let mut file = File::open(log)?;
        let start = file.metadata()?.len().saturating_sub(64 * 1024);
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_else(|error| format!("(cannot read it: {error})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_given_property_comes_after_our_own() {
        let config = KafkaConfig::default().with("auto.create.topics.enable", true);
        let text = server_properties(Path::new("d"), &config, &Member::alone(Ports { broker: 1, controller: 2 }));
        let values: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("auto.create.topics.enable=")).collect();
        assert_eq!(values, ["false", "true"]);
    }
}

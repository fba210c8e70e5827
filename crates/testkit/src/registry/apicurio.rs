//! Apicurio Registry, as its project releases it to Maven: one Java process, schemas in memory, on loopback.
//!
//! The release comes through Maven into `<target dir>/apicurio-<version>` at the first start; `mvn` and `java` (17 or later)
//! must be on the PATH. It speaks Confluent's API under `/apis/ccompat/v7`.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The version that the tests run against: the last line that runs on Java 17.
pub const VERSION: &str = "2.6.13.Final";

/// Named in full, since Maven asks the network what a short plugin name means even when it has the plugin.
const UNPACK: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:unpack";

/// Ten seconds on an idle machine; test machines are not idle.
const START_TIMEOUT: Duration = Duration::from_secs(180);

/// A running registry. Dropping it kills it; it also ends when this process dies in whatever way.
#[derive(Debug)]
pub struct Apicurio {
    child: Child,
    watchdog: Child,
    address: String,
}

/// Why there is no registry.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A program that the start needs is not installed.
    #[error("`{program}` is not on the PATH; Apicurio Registry {VERSION} for the tests needs it")]
    Missing {
        /// `mvn` or `java`.
        program: &'static str,
    },
    /// Maven did not get it: no network and nothing in its local repository, most likely.
    #[error("Maven did not fetch Apicurio Registry {VERSION}: {output}")]
    Fetch {
        /// What Maven said.
        output: String,
    },
    /// It did not come up.
    #[error("Apicurio Registry did not start within {START_TIMEOUT:?}; it said last:\n{output}")]
    Start {
        /// Its last lines.
        output: String,
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
    fn io(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, source }
    }

    fn spawn(program: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| match source.kind() {
            io::ErrorKind::NotFound => Self::Missing { program },
            _ => Self::Io { action: "run a program", source },
        }
    }
}

impl Apicurio {
    /// Starts a registry and returns once it serves.
    pub fn start() -> Result<Self, StartError> {
        let home = fetched()?;
        let mut child = Command::new("java")
            .args(["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"])
            .args(["-Dquarkus.http.host=127.0.0.1", "-Dquarkus.http.port=0", "-Dquarkus.log.file.enable=false"])
            .arg("-jar")
            .arg(home.join(format!("apicurio-registry-app-{VERSION}-runner.jar")))
            .current_dir(&home)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // Not in the terminal's foreground group: ctrl-c must reach the tests first.
            .process_group(0)
            .spawn()
            .map_err(StartError::spawn("java"))?;
        let watchdog = watch(&child)?;
        let stdout = child.stdout.take();
        let mut registry = Self { child, watchdog, address: String::new() };
        let Some(stdout) = stdout else { return Err(StartError::Start { output: String::new() }) };
        registry.address = listening(stdout)?;
        Ok(registry)
    }

    /// [`Apicurio::start`] for a test: where it cannot be had, the skip of `test` is said and counted.
    ///
    /// # Panics
    ///
    /// When it can be had but does not start, and under `CI=true` when it cannot be had.
    pub fn start_or_skip(test: &str) -> Option<Self> {
        match Self::start() {
            Ok(registry) => Some(registry),
            Err(error @ (StartError::Missing { .. } | StartError::Fetch { .. })) => {
                crate::skip(test, &error.to_string());
                None
            }
            Err(error) => panic!("{test}: {error}"),
        }
    }

    /// The address of its API in Confluent's form, without a slash at the end.
    pub fn url(&self) -> String {
        format!("{}/apis/ccompat/v7", self.address)
    }
}

impl Drop for Apicurio {
    fn drop(&mut self) {
        // The watchdog first, so that it never signals a process id that may be another's by then.
        for child in [&mut self.watchdog, &mut self.child] {
            // Either fails only when the process has ended and has been waited for.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The directory of the release, which is fetched first if it is not there. Test processes start at the same time, so a
/// file lock lets one of them fetch; a mark is written last and tells that the release is complete.
fn fetched() -> Result<PathBuf, StartError> {
    let home = crate::target_dir().join(format!("apicurio-{VERSION}"));
    fs::create_dir_all(&home).map_err(StartError::io("create the registry's directory"))?;
    let lock = File::create(home.join("lock")).map_err(StartError::io("create the registry's lock file"))?;
    lock.lock().map_err(StartError::io("lock the registry's directory"))?;
    let (release, complete) = (home.join("release"), home.join("complete"));
    if complete.exists() {
        return Ok(release);
    }
    if release.exists() {
        fs::remove_dir_all(&release).map_err(StartError::io("remove an incomplete registry"))?;
    }
    let output = Command::new("mvn")
        .args(["--batch-mode", "--quiet", "-Dstyle.color=never", UNPACK])
        .arg(format!("-Dartifact=io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"))
        .arg(format!("-DoutputDirectory={}", release.display()))
        .arg(format!("-Dmdep.unpack.markersDirectory={}", home.join("markers").display()))
        .arg(format!("-DmarkersDirectory={}", home.join("markers").display()))
        .current_dir(&home)
        .stdin(Stdio::null())
        .output()
        .map_err(StartError::spawn("mvn"))?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        return Err(StartError::Fetch { output: last_lines(&String::from_utf8_lossy(&said), 5) });
    }
    fs::write(&complete, VERSION).map_err(StartError::io("note that the registry is complete"))?;
    Ok(release)
}

/// Lets a shell wait for the end of this process, which closes the pipe whatever the cause, and then end the registry.
fn watch(registry: &Child) -> Result<Child, StartError> {
    Command::new("sh")
        .args(["-c", r#"read -r _; kill -9 "$1""#, "watchdog"])
        .arg(registry.id().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(StartError::spawn("sh"))
}

/// Reads what the registry says until it tells its address; a thread reads on, so that it never waits for us.
fn listening(stdout: ChildStdout) -> Result<String, StartError> {
    let (lines, said) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            // After the start nobody listens any more.
            let _ = lines.send(line);
        }
    });
    let deadline = Instant::now() + START_TIMEOUT;
    let mut output = String::new();
    while let Ok(line) = said.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        if let Some((_, address)) = line.split_once("Listening on: ") {
            return Ok(address.trim().trim_end_matches('/').to_owned());
        }
        output.push_str(&line);
        output.push('\n');
    }
    Err(StartError::Start { output: last_lines(&output, 30) })
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

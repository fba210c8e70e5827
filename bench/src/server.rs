//! The server under test: built in release, run as a process of its own, stopped by its own process id.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::machine::{cpu_seconds, kibibytes};

/// How long a start may take, with recovery of the data.
const START_WITHIN: Duration = Duration::from_secs(60);
/// How long a stop may take.
const STOP_WITHIN: Duration = Duration::from_secs(20);

/// The main workspace.
pub fn project_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Builds `tidegate` in release and gives the path of the binary.
pub fn build() -> Result<PathBuf> {
    eprintln!("building tidegate in release");
    let output = Command::new("cargo")
        .args(["build", "--release", "--locked", "-p", "tidegate", "--message-format=json-render-diagnostics"])
        .current_dir(project_root())
        // The target folder and the flags of this workspace are not those of the main one.
        .env_remove("CARGO_TARGET_DIR")
        .stderr(Stdio::inherit())
        .output()
        .context("cargo build")?;
    ensure!(output.status.success(), "cargo build failed: {}", output.status);
    let messages = String::from_utf8(output.stdout).context("cargo's messages")?;
    let executable = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "tidegate")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from));
    executable.context("cargo named no executable")
}

/// Runs `tidegate demo --exit`: the data is loaded and the process that did it is gone.
pub fn load(binary: &Path, data_dir: &Path, partitions: u32) -> Result<()> {
    let status = Command::new(binary)
        .args(["demo", "--exit", "--kafka-listen", "127.0.0.1:0", "--partitions", &partitions.to_string()])
        .arg("--data-dir")
        .arg(data_dir)
        .stdin(Stdio::null())
        .status()
        .context("tidegate demo --exit")?;
    ensure!(status.success(), "tidegate demo --exit: {status}");
    Ok(())
}

/// What `tidegate --version` says.
pub fn version(binary: &Path) -> Option<String> {
    let output = Command::new(binary).arg("--version").output().ok()?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

/// A running server. It is killed when this is dropped.
pub struct Server {
    child: Child,
    address: String,
}

/// The memory of a process, in MiB.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Now.
    pub resident: f64,
    /// The most so far.
    pub peak: f64,
}

impl Server {
    /// Starts `tidegate demo` over the data that [`load`] left, on free ports.
    pub fn start(binary: &Path, data_dir: &Path) -> Result<Self> {
        let mut child = Command::new(binary)
            .args(["demo", "--listen", "127.0.0.1:0", "--kafka-listen", "127.0.0.1:0", "--data-dir"])
            .arg(data_dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("tidegate demo")?;
        let stderr = child.stderr.take().context("no standard error")?;
        let mut server = Self { child, address: String::new() };
        // Reads on after the address, so that the server never waits for a full pipe.
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if let Some((_, address)) = line.split_once("REST and gRPC on ") {
                    let _ = sender.send(address.trim().to_owned());
                }
            }
        });
        match lines.recv_timeout(START_WITHIN) {
            Ok(address) => server.address = address,
            Err(_) => bail!("the server did not say where it listens within {START_WITHIN:?}"),
        }
        Ok(server)
    }

    /// Where it listens, as `http://127.0.0.1:1234`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Its memory, as the kernel counts it: resident set, and that one's high-water mark.
    pub fn memory(&self) -> Result<Memory> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).context("/proc")?;
        let mib = |key| kibibytes(&status, key).map(|kib| kib as f64 / 1024.0);
        match (mib("VmRSS"), mib("VmHWM")) {
            (Some(resident), Some(peak)) => Ok(Memory { resident, peak }),
            _ => bail!("/proc does not tell the memory of process {}", self.child.id()),
        }
    }

    /// The processor time that it has taken so far, in seconds.
    pub fn cpu_seconds(&self) -> Option<f64> {
        cpu_seconds(&self.child.id().to_string())
    }

    /// Ends it with SIGTERM and says whether it ended well.
    pub fn stop(mut self) -> Result<()> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).context("SIGTERM")?;
        let until = Instant::now() + STOP_WITHIN;
        loop {
            if let Some(status) = self.child.try_wait()? {
                ensure!(status.success(), "the server ended with {status}");
                return Ok(());
            }
            ensure!(Instant::now() < until, "the server did not end within {STOP_WITHIN:?} of SIGTERM");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // After a clean stop there is nothing to kill, which is no error that matters.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! What the tests of the command line share: running the binary, and an embedded broker to run it against.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part of this")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use tidegate_broker::{Broker, BrokerConfig};

/// No single step of a test takes longer than this unless something hangs.
const PATIENCE: Duration = Duration::from_secs(240);

/// The binary under test, without anything of the environment that would change what it does.
pub fn tidegate() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.env_remove("TIDEGATE_LOG").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What a run left.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Ran {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }

    /// The lines of standard output.
    pub fn lines(&self) -> Vec<&str> {
        self.text().lines().collect()
    }

    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stderr:\n{}", self.stderr);
        self
    }
}

/// Runs to the end.
pub fn run<I: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = I>) -> Ran {
    run_with_input(args, b"")
}

/// Runs to the end with `input` on standard input.
pub fn run_with_input<I: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = I>, input: &[u8]) -> Ran {
    let mut command = tidegate();
    let mut child = command.args(args).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // Who does not read its input closes it, which is no matter here.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let stdout = collect(child.stdout.take().unwrap());
    let stderr = collect(child.stderr.take().unwrap());
    let status = wait(&mut child);
    writer.join().unwrap();
    Ran {
        code: status.code(),
        stdout: stdout.join().unwrap(),
        stderr: String::from_utf8(stderr.join().unwrap()).unwrap(),
    }
}

fn collect(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

/// Waits for the end of a process, within reason.
pub fn wait(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("the process did not end within {PATIENCE:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A process that runs on: `serve`, `demo`. Dropping it kills it.
pub struct Running {
    child: Child,
    lines: mpsc::Receiver<String>,
    seen: Vec<String>,
}

impl Running {
    pub fn start<I: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = I>) -> Self {
        let mut child = tidegate().args(args).stdout(Stdio::null()).spawn().unwrap();
        let stderr = child.stderr.take().unwrap();
        let (out, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if out.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines, seen: Vec::new() }
    }

    /// Waits for a line that contains `text`, and answers with what stands behind it.
    #[track_caller]
    pub fn after(&mut self, text: &str) -> String {
        if let Some(line) = self.seen.iter().find(|line| line.contains(text)) {
            return behind(line, text);
        }
        let deadline = Instant::now() + PATIENCE;
        while let Ok(line) = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            self.seen.push(line);
            let line = self.seen.last().unwrap();
            if line.contains(text) {
                return behind(line, text);
            }
        }
        panic!("no line with {text:?} came; what came:\n{}", self.seen.join("\n"));
    }

    /// The server's URL, once it is printed.
    pub fn url(&mut self) -> String {
        format!("http://{}", self.after("REST and gRPC on http://"))
    }

    /// The broker's address, once it is printed.
    pub fn kafka(&mut self) -> String {
        self.after("Kafka on ").split(' ').next().unwrap().to_owned()
    }

    /// Everything that came so far, and what comes until the end.
    pub fn rest(&mut self) -> String {
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            self.seen.push(line);
        }
        self.seen.join("\n")
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
    }

    pub fn wait(&mut self) -> ExitStatus {
        wait(&mut self.child)
    }

    /// SIGTERM, and a clean end.
    #[track_caller]
    pub fn stop(mut self) {
        self.signal("TERM");
        let status = self.wait();
        assert_eq!(status.code(), Some(0), "{}", self.rest());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn behind(line: &str, text: &str) -> String {
    line.split_once(text).map(|(_, rest)| rest.to_owned()).unwrap_or_default()
}

/// An embedded broker in the test's own process.
pub struct TestBroker {
    runtime: tokio::runtime::Runtime,
    broker: Option<Broker>,
    pub dir: tempfile::TempDir,
    addr: SocketAddr,
}

impl TestBroker {
    pub fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let broker = runtime.block_on(Broker::start(BrokerConfig::new(dir.path().join("broker")))).unwrap();
        let addr = broker.addr();
        Self { runtime, broker: Some(broker), dir, addr }
    }

    pub fn addr(&self) -> String {
        self.addr.to_string()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs a command against it.
    pub fn run(&self, args: &[&str]) -> Ran {
        self.run_with_input(args, b"")
    }

    pub fn run_with_input(&self, args: &[&str], input: &[u8]) -> Ran {
        let addr = self.addr();
        run_with_input(args.iter().copied().chain(["--brokers", &addr]), input)
    }

    /// Creates a topic and publishes `input` to it.
    #[track_caller]
    pub fn publish(&self, topic: &str, flags: &[&str], input: &[u8]) -> Ran {
        let args = [&["publish", topic, "--create", "--config", "retention.ms=-1"], flags].concat();
        self.run_with_input(&args, input).expect(0)
    }

    /// Deletes the records before `offset`.
    pub fn delete_before(&self, topic: &str, partition: i32, offset: i64) {
        let topic = topic.parse().unwrap();
        let deleted = self.broker.as_ref().unwrap().delete_records_before(&topic, partition, offset);
        self.runtime.block_on(deleted).unwrap();
    }
}

impl Drop for TestBroker {
    fn drop(&mut self) {
        if let Some(broker) = self.broker.take() {
            self.runtime.block_on(broker.abort());
        }
    }
}

/// The `.proto` file of the flights.
pub fn flight_proto() -> String {
    example("flights/flight.proto").to_str().unwrap().to_owned()
}

pub fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

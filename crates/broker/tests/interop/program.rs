//! Runs a client's program and takes its lines.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// What a whole scenario may take on a very busy machine; an idle one needs less than a minute.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// How long a program may go on after its last line.
const TO_END: Duration = Duration::from_secs(60);

/// How to start a client's scenario; the bootstrap address and the prefix come behind the arguments.
#[derive(Debug)]
pub struct Program {
    pub executable: PathBuf,
    pub arguments: Vec<PathBuf>,
    pub environment: Vec<(&'static str, PathBuf)>,
}

impl Program {
    /// The lines that it printed, until it ended or was ended for taking too long.
    pub fn run(&self, bootstrap: &str, prefix: &str) -> Vec<String> {
        let mut child = Running(
            Command::new(&self.executable)
                .args(&self.arguments)
                .args([bootstrap, prefix])
                .envs(self.environment.iter().map(|(name, value)| (name, value)))
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                // Its group members are processes of their own, and must end with it.
                .process_group(0)
                .spawn()
                .unwrap_or_else(|error| panic!("cannot run {}: {error}", self.executable.display())),
        );
        let (sender, receiver) = mpsc::channel();
        let stdout = BufReader::new(child.0.stdout.take().unwrap());
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut stderr = child.0.stderr.take().unwrap();
        let complaints = thread::spawn(move || {
            let mut text = Vec::new();
            let _ = stderr.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });

        let deadline = Instant::now() + TIME_LIMIT;
        let mut lines: Vec<String> = Vec::new();
        let in_time = loop {
            match receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Disconnected) => break true,
                Err(RecvTimeoutError::Timeout) => break false,
            }
        };
        let ended = if in_time { child.end() } else { None };
        drop(child);
        // Shown by the test harness when the test fails.
        eprintln!("{}", complaints.join().unwrap());
        assert!(in_time, "it took more than {TIME_LIMIT:?}; its lines:\n{}", lines.join("\n"));
        let status = ended.unwrap_or_else(|| panic!("it said nothing more and did not end within {TO_END:?}"));
        assert!(status.success(), "it ended with {status}; its lines:\n{}", lines.join("\n"));
        lines
    }
}

/// A process and those that it started. They end with it.
struct Running(Child);

impl Running {
    /// How it ended, unless it takes too long to.
    fn end(&mut self) -> Option<ExitStatus> {
        let deadline = Instant::now() + TO_END;
        loop {
            match self.0.try_wait().unwrap() {
                None if Instant::now() < deadline => thread::sleep(Duration::from_millis(20)),
                ended => return ended,
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Until it is waited for, nobody else can have its number, nor for a while after.
        let group = format!("-{}", self.0.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.0.wait();
    }
}

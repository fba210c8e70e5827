//! The `tidegate` binary as a child process.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How long a server may take to say where it listens.
const START_DEADLINE: Duration = Duration::from_secs(60);

pub(crate) fn tidegate() -> Command {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
}

/// Runs a command to its end and insists that it succeeds.
pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(
        output.status.success(),
        "{command:?} ended with {}:\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// A server process. Dropping it ends it.
pub(crate) struct Server {
    child: Child,
    pub(crate) http: SocketAddr,
    /// The embedded broker's address, when it has one.
    pub(crate) kafka: Option<SocketAddr>,
}

impl Server {
    /// Starts `tidegate serve` or `tidegate demo` and waits until it has said where it listens.
    pub(crate) fn start(command: &mut Command, with_kafka: bool) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (lines, said) = mpsc::channel();
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let sender = lines.clone();
        std::thread::spawn(move || {
            BufReader::new(out).lines().map_while(Result::ok).for_each(|l| drop(sender.send(l)))
        });
        std::thread::spawn(move || BufReader::new(err).lines().map_while(Result::ok).for_each(|l| drop(lines.send(l))));
        let (mut http, mut kafka, mut heard) = (None, None, String::new());
        while http.is_none() || (with_kafka && kafka.is_none()) {
            let line = said.recv_timeout(START_DEADLINE).unwrap_or_else(|error| {
                let _ = child.kill();
                panic!("the server did not say where it listens ({error}); it said:\n{heard}")
            });
            http = http.or_else(|| address_behind(&line, "http://"));
            kafka = kafka.or_else(|| address_behind(&line, "Kafka on "));
            heard.push_str(&line);
            heard.push('\n');
        }
        Self { child, http: http.unwrap(), kafka }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The socket address that follows `mark` in a line.
fn address_behind(line: &str, mark: &str) -> Option<SocketAddr> {
    let rest = &line[line.find(mark)? + mark.len()..];
    let end = rest.find(|c: char| !(c.is_ascii_hexdigit() || matches!(c, '.' | ':' | '[' | ']'))).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

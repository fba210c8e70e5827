//! The `tidegate` binary as a child process.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
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

/// A server process. Dropping it ends it. When its test has failed, what it said is shown.
pub(crate) struct Server {
    child: Child,
    said: Arc<Mutex<Vec<String>>>,
    pipes: Vec<JoinHandle<()>>,
    pub(crate) http: SocketAddr,
    /// The embedded broker's address, when it has one.
    pub(crate) kafka: Option<SocketAddr>,
}

impl Server {
    /// Starts `tidegate serve` or `tidegate demo` and waits until it has said where it listens.
    pub(crate) fn start(command: &mut Command, with_kafka: bool) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (lines, heard) = mpsc::channel();
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let said = Arc::new(Mutex::new(Vec::new()));
        let pipes = vec![follow(out, &said, lines.clone()), follow(err, &said, lines)];
        let (mut http, mut kafka) = (None, None);
        while http.is_none() || (with_kafka && kafka.is_none()) {
            let line = heard.recv_timeout(START_DEADLINE).unwrap_or_else(|error| {
                let _ = child.kill();
                let said = said.lock().unwrap().join("\n");
                panic!("the server did not say where it listens ({error}); it said:\n{said}")
            });
            http = http.or_else(|| address_behind(&line, "http://"));
            kafka = kafka.or_else(|| address_behind(&line, "Kafka on "));
        }
        Self { child, said, pipes, http: http.unwrap(), kafka }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            self.pipes.drain(..).for_each(|pipe| drop(pipe.join()));
            eprintln!("the server said:\n{}", self.said.lock().unwrap().join("\n"));
        }
    }
}

/// Keeps every line of a pipe, and tells whoever still listens.
fn follow(
    pipe: impl Read + Send + 'static,
    said: &Arc<Mutex<Vec<String>>>,
    lines: mpsc::Sender<String>,
) -> JoinHandle<()> {
    let said = Arc::clone(said);
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            said.lock().unwrap().push(line.clone());
            let _ = lines.send(line);
        }
    })
}

/// The socket address that follows `mark` in a line.
fn address_behind(line: &str, mark: &str) -> Option<SocketAddr> {
    let rest = &line[line.find(mark)? + mark.len()..];
    let end = rest.find(|c: char| !(c.is_ascii_hexdigit() || matches!(c, '.' | ':' | '[' | ']'))).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

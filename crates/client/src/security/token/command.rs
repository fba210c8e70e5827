//! Tokens from a command: a cloud's own tool, or a few lines of anybody's.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

use super::answer::LONGEST;
use super::{TokenFailure, TokenFuture, TokenSource, from_output};
use crate::security::secret::quoted;

/// Cloud tools take seconds, and start interpreters.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// How often a command that has closed its output is asked whether it has ended. The standard library has no such event.
const POLL: Duration = Duration::from_millis(5);

/// Runs a command, without a shell: what it prints on standard output is the bare token, or JSON with `access_token`.
#[derive(Clone)]
pub struct CommandTokens {
    argv: Vec<String>,
    timeout: Duration,
}

impl std::fmt::Debug for CommandTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Arguments may hold secrets.
        f.debug_struct("CommandTokens").field("program", &self.argv.first()).finish_non_exhaustive()
    }
}

impl CommandTokens {
    /// The command `argv`: the program, which is looked for in `PATH`, and its arguments. It may take 30 s.
    pub fn new(argv: Vec<String>) -> Self {
        Self { argv, timeout: DEFAULT_TIMEOUT }
    }

    /// The same with another limit.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }
}

impl TokenSource for CommandTokens {
    fn token(&self) -> TokenFuture<'_> {
        let (argv, timeout) = (self.argv.clone(), self.timeout);
        Box::pin(async move {
            let ran = tokio::task::spawn_blocking(move || run(&argv, timeout)).await;
            let text = ran.unwrap_or_else(|error| Err(failed(format!("it cannot be waited for: {error}"))))?;
            from_output(&text, SystemTime::now()).map_err(TokenFailure::Answer)
        })
    }

    fn describe(&self) -> String {
        format!("the command {}", self.argv.first().map_or("(none)", String::as_str))
    }
}

fn failed(what: String) -> TokenFailure {
    TokenFailure::Command { what }
}

/// One of the two streams has ended.
enum Ended {
    Out(Vec<u8>),
    Err(Vec<u8>),
}

fn run(argv: &[String], timeout: Duration) -> Result<String, TokenFailure> {
    let [program, arguments @ ..] = argv else { return Err(failed("no command is given".to_owned())) };
    let deadline = Instant::now() + timeout;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(format!("it cannot be started: {error}")))?;
    let (ended, ends) = mpsc::channel();
    // A thread each, so that a command that fills one of them is not held up by the other. After a kill they end with the
    // pipes, which the command's own children may keep open.
    if let Some(out) = child.stdout.take() {
        let ended = ended.clone();
        std::thread::spawn(move || ended.send(Ended::Out(read(out, LONGEST))));
    }
    if let Some(err) = child.stderr.take() {
        std::thread::spawn(move || ended.send(Ended::Err(tail(err))));
    }
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let waited = loop {
        match ends.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Ended::Out(bytes)) => out = bytes,
            Ok(Ended::Err(bytes)) => err = bytes,
            // Both have ended.
            Err(mpsc::RecvTimeoutError::Disconnected) => break wait(&mut child, deadline),
            Err(mpsc::RecvTimeoutError::Timeout) => break Ok(None),
        }
        if out.len() > LONGEST {
            end(&mut child);
            return Err(failed("it prints more than 256 KiB".to_owned()));
        }
    };
    match waited {
        Ok(Some(status)) if status.success() => {
            String::from_utf8(out).map_err(|_| failed("what it prints is not UTF-8".to_owned()))
        }
        Ok(Some(status)) => {
            let said = String::from_utf8_lossy(&err);
            // The reason stands last; what stands before it may be pages.
            let last = said.lines().rev().find(|line| !line.trim().is_empty()).map(quoted);
            Err(failed(match last {
                Some(last) => format!("it ended with {status}: {last}"),
                None => format!("it ended with {status} and said nothing on standard error"),
            }))
        }
        Ok(None) => {
            end(&mut child);
            Err(failed(format!("it did not end within {timeout:?}")))
        }
        Err(error) => {
            end(&mut child);
            Err(failed(format!("it cannot be waited for: {error}")))
        }
    }
}

/// The bytes of a pipe, one more than `cap` at most.
fn read(pipe: impl Read, cap: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A pipe that breaks has ended; the exit status tells the rest.
    let _ = pipe.take(cap as u64 + 1).read_to_end(&mut bytes);
    bytes
}

/// The end of what a pipe gives. It is read to its end: a command whose pipe is closed while it talks is killed by that.
fn tail(mut pipe: impl Read) -> Vec<u8> {
    const KEPT: usize = 64 << 10;
    let (mut bytes, mut piece) = (Vec::new(), [0; 8 << 10]);
    // A pipe that breaks has ended; the exit status tells the rest.
    while let Ok(count @ 1..) = pipe.read(&mut piece) {
        bytes.extend_from_slice(piece.get(..count).unwrap_or_default());
        if bytes.len() > 2 * KEPT {
            bytes.drain(..bytes.len() - KEPT);
        }
    }
    bytes
}

/// The end of a command that has closed its output, or `None` when it does not come in time.
fn wait(child: &mut Child, deadline: Instant) -> std::io::Result<Option<ExitStatus>> {
    loop {
        match child.try_wait()? {
            Some(status) => return Ok(Some(status)),
            None if Instant::now() >= deadline => return Ok(None),
            None => std::thread::sleep(POLL),
        }
    }
}

fn end(child: &mut Child) {
    // Either fails only when it has ended and has been waited for.
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<String, String> {
        let argv = ["sh", "-c", script].map(str::to_owned);
        run(&argv, Duration::from_secs(20)).map_err(|failure| failure.to_string())
    }

    #[test]
    fn what_a_command_prints_is_taken() {
        assert_eq!(shell("echo abc").unwrap(), "abc\n");
        // Both pipes are read at once.
        assert_eq!(shell("head -c 60000 /dev/zero >&2; echo abc").unwrap(), "abc\n");
    }

    #[test]
    fn a_command_that_fails_is_told_with_its_last_words() {
        let error = shell("echo printed-secret; echo trace >&2; echo 'run az login' >&2; exit 3").unwrap_err();
        assert!(error.ends_with("3: run az login") && !error.contains("printed-secret"), "{error}");
        let missing = run(&["no-such-program-anywhere".to_owned()], Duration::from_secs(1)).unwrap_err();
        assert!(missing.to_string().contains("cannot be started"), "{missing}");
    }

    #[test]
    fn a_command_that_prints_without_end_or_never_ends_is_ended() {
        let flood = shell("exec cat /dev/zero").unwrap_err();
        assert!(flood.contains("more than 256 KiB"), "{flood}");
        let argv = ["sleep".to_owned(), "600".to_owned()];
        let began = Instant::now();
        let hang = run(&argv, Duration::from_millis(50)).unwrap_err();
        assert!(hang.to_string().contains("did not end within"), "{hang}");
        assert!(began.elapsed() < Duration::from_secs(300));
    }

    #[test]
    fn arguments_are_not_shown() {
        let tokens = CommandTokens::new(vec!["tool".to_owned(), "--secret=hunter22".to_owned()]);
        assert_eq!(tokens.describe(), "the command tool");
        assert!(!format!("{tokens:?}").contains("hunter22"));
    }
}

//! A network namespace without a name: it ends with the last file and process that hold it.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network namespace.
#[derive(Debug)]
pub struct Namespace {
    file: File,
}

impl Namespace {
    /// A new one, with a loopback device that is down.
    pub fn new() -> Result<Self> {
        // A child makes it, since a thread of ours that left its namespace would have to find back. The child says when it is
        // there and ends when its input does; the open file keeps the namespace.
        let mut child = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo there; read -r _"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("`unshare` (util-linux) cannot be run")?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let file = File::open(format!("/proc/{}/ns/net", child.id()));
        drop(child.stdin.take());
        child.wait()?;
        ensure!(line.trim() == "there", "`unshare --net` made no network namespace: it needs root");
        Ok(Self { file: file.context("the file of the network namespace")? })
    }

    /// Runs `work` inside, on a thread of its own: sockets that it opens and processes that it starts stay inside.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| -> Result<T> {
                move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))
                    .context("entering a network namespace")?;
                Ok(work())
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

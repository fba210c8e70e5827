//! A child process with what it took: processor time and memory, as the kernel counts them for it alone.

#![allow(unsafe_code, reason = "the standard library waits for a child without telling what it used: wait4 tells")]

use std::io::Read;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::machine::kibibytes;

/// How often a child is asked whether it has ended, and how much memory it takes.
const POLL: Duration = Duration::from_millis(10);

/// A child that has ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// What it printed.
    pub stdout: String,
    /// Processor time in user space, in seconds.
    pub user_seconds: f64,
    /// Processor time in the kernel, in seconds.
    pub system_seconds: f64,
    /// The most memory it had resident, in MiB.
    pub peak_mib: f64,
}

/// Runs `command` and waits for its end, for `limit` at most. A failure tells the end of what it said.
pub fn run(command: &mut Command, limit: Duration) -> Result<Finished> {
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("`{program}` cannot be run"))?;
    let (stdout, stderr) = (read(child.stdout.take()), read(child.stderr.take()));
    let begun = Instant::now();
    let pid = i32::try_from(child.id())?;
    let mut peak_kib = 0;
    let (status, usage) = loop {
        // Not `ru_maxrss`: it begins with the memory of the process that started the child, this one.
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        peak_kib = kibibytes(&status, "VmHWM").unwrap_or(0).max(peak_kib);
        if let Some(ended) = wait(pid)? {
            break ended;
        }
        if begun.elapsed() > limit {
            child.kill()?;
            bail!("`{program}` did not end within {limit:?}");
        }
        sleep(POLL);
    };
    let (stdout, stderr) = (stdout.join().unwrap_or_default(), stderr.join().unwrap_or_default());
    if status != 0 {
        let lines: Vec<&str> = stderr.lines().filter(|line| !line.trim().is_empty()).collect();
        bail!("`{program}` failed (status {status:#x}): {}", lines[lines.len().saturating_sub(6)..].join("; "));
    }
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Ok(Finished {
        stdout,
        user_seconds: seconds(usage.ru_utime),
        system_seconds: seconds(usage.ru_stime),
        peak_mib: peak_kib as f64 / 1024.0,
    })
}

/// The wait status and the usage of a child that has ended; `None` while it runs.
fn wait(pid: i32) -> Result<Option<(i32, libc::rusage)>> {
    let mut status = 0;
    // SAFETY: `rusage` is a struct of integers, for which zeroes are a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to values of ours that live through the call. The process id is that of a child that nobody
    // else waits for, so it cannot have become another process's.
    let waited = unsafe { libc::wait4(pid, &mut status, libc::WNOHANG, &mut usage) };
    ensure!(waited >= 0, "wait4: {}", std::io::Error::last_os_error());
    Ok((waited == pid).then_some((status, usage)))
}

fn read(from: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            // What was read before an error is what there is to say.
            let _ = from.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

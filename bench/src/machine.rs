//! What a figure means nothing without: the machine and the versions.

use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// The machine and the versions of a run. What the system does not tell is absent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// The day, UTC.
    pub date: Option<String>,
    /// The processor's name.
    pub cpu: Option<String>,
    /// How many threads it runs at once.
    pub cpus: Option<usize>,
    /// The memory, in MiB.
    pub memory_mib: Option<u64>,
    /// The kernel.
    pub kernel: Option<String>,
    /// How many tasks wanted to run on average in the minute before: more than a few, and the times mean little.
    pub load: Option<f64>,
    /// The compiler.
    pub rustc: Option<String>,
    /// The commit, with `-dirty` behind it when files differ from it.
    pub commit: Option<String>,
}

impl Machine {
    /// This machine, and the project at `root`.
    pub fn here(root: &Path) -> Self {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").ok();
        let meminfo = std::fs::read_to_string("/proc/meminfo").ok();
        Self {
            date: output(root, "date", &["-u", "+%Y-%m-%d"]),
            cpu: cpuinfo.as_deref().and_then(|text| value_of(text, "model name")).map(str::to_owned),
            cpus: std::thread::available_parallelism().ok().map(Into::into),
            memory_mib: meminfo.as_deref().and_then(|text| kibibytes(text, "MemTotal")).map(|kib| kib / 1024),
            kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease").ok().map(|text| text.trim().to_owned()),
            load: load(),
            rustc: output(root, "rustc", &["--version"]),
            commit: output(root, "git", &["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]),
        }
    }
}

/// How many tasks wanted to run on average in the minute before.
pub fn load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// The value of a line `key: value`.
pub fn value_of<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim())
    })
}

/// The number of a line `key: number kB`, as files under /proc have them.
pub fn kibibytes(text: &str, key: &str) -> Option<u64> {
    value_of(text, key)?.strip_suffix("kB")?.trim().parse().ok()
}

/// The processor time that a process has taken so far, in seconds; `pid` can be `self`.
pub fn cpu_seconds(pid: &str) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name, in parentheses, with whatever it has in it. Fields 14 and 15 are user and
    // system time, in clock ticks.
    let (_, rest) = stat.rsplit_once(')')?;
    let ticks: Vec<f64> = rest.split_whitespace().skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
    (ticks.len() == 2).then(|| ticks.iter().sum::<f64>() / rustix::param::clock_ticks_per_second() as f64)
}

fn output(root: &Path, program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).current_dir(root).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}

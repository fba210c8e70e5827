//! What a figure means nothing without: the machine and the versions.

use std::path::Path;
use std::process::Command;

use serde::Serialize;

/// The machine and the versions of a run. What the system does not tell is absent.
#[derive(Debug, Serialize)]
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
            rustc: output(root, "rustc", &["--version"]),
            commit: output(root, "git", &["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]),
        }
    }
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

fn output(root: &Path, program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).current_dir(root).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}

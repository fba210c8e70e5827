//! `cargo xtask fuzz`: builds the targets of `fuzz/` and runs each for some seconds. `fuzz/README.md` has the commands
//! for longer work on one target.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde_json::Value;

use crate::cargo;
use crate::step;

/// For the whole process. What one input may allocate is counted, and capped much lower, by the targets themselves.
const RSS_LIMIT_MB: u32 = 1024;

#[derive(Args)]
pub(crate) struct FuzzArguments {
    /// How long each target runs
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Only these targets
    targets: Vec<String>,
}

pub(crate) fn run(arguments: &FuzzArguments) -> Result<ExitCode> {
    fuzz(arguments.seconds, &arguments.targets)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the targets of these names, or all if there are no names. Every target runs, also after one has failed.
pub(crate) fn fuzz(seconds: u32, names: &[String]) -> Result<()> {
    cpp_compiler()?;
    let targets = step::required("build the fuzz targets", "cd fuzz && cargo build --release --locked", build)?;
    if let Some(unknown) = names.iter().find(|name| targets.iter().all(|target| target.name != **name)) {
        let known: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
        bail!("no fuzz target is called `{unknown}`; there are {}", known.join(", "));
    }
    let mut failed = Vec::new();
    for target in targets.iter().filter(|target| names.is_empty() || names.contains(&target.name)) {
        let alone = format!("cargo xtask fuzz {}", target.name);
        let (report, _) = step::step("fuzz one target", &alone, || target.run(seconds));
        if report.failed {
            failed.push(target.name.as_str());
        }
    }
    if !failed.is_empty() {
        bail!("failing inputs are in fuzz/artifacts; targets that failed: {}", failed.join(", "));
    }
    Ok(())
}

/// libFuzzer is C++, and only the fuzz targets need it.
fn cpp_compiler() -> Result<()> {
    let mut command = Command::new("c++");
    command.arg("--version");
    cargo::output(&mut command).map(drop).context("the fuzz targets need a C++ compiler")
}

struct Target {
    name: String,
    executable: PathBuf,
}

/// The flags for coverage are in `fuzz/.cargo/config.toml`, which cargo reads only in that folder, and which a
/// RUSTFLAGS in the environment would replace.
fn build() -> Result<Vec<Target>> {
    let mut command = cargo::cargo(&["build", "--release", "--locked", "--message-format=json-render-diagnostics"]);
    command.current_dir(folder()).env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    let messages = cargo::output(&mut command)?;
    let mut targets: Vec<Target> = messages.lines().filter_map(executable).collect();
    targets.sort_by(|a, b| a.name.cmp(&b.name));
    if targets.is_empty() {
        bail!("cargo built no executable in {}", folder().display());
    }
    Ok(targets)
}

/// The executable that a message of cargo's build tells of, if any.
fn executable(message: &str) -> Option<Target> {
    let message: Value = serde_json::from_str(message).ok()?;
    let name = message["target"]["name"].as_str()?.to_owned();
    Some(Target { name, executable: message["executable"].as_str()?.into() })
}

fn folder() -> PathBuf {
    cargo::workspace_root().join("fuzz")
}

impl Target {
    fn run(&self, seconds: u32) -> Result<()> {
        let name = &self.name;
        eprintln!("{name}, {seconds} s");
        let mut command = Command::new(&self.executable);
        command
            .current_dir(folder())
            .stdin(Stdio::null())
            .args(["-create_missing_dirs=1", "-verbosity=0", "-print_final_stats=1"])
            .arg(format!("-artifact_prefix=artifacts/{name}/"))
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-rss_limit_mb={RSS_LIMIT_MB}"))
            .args([format!("corpus/{name}"), format!("seeds/{name}")]);
        cargo::run(&mut command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_messages_of_executables_name_targets() {
        let message = r#"{"reason":"compiler-artifact","target":{"name":"decompress"},"executable":"/t/decompress"}"#;
        let target = executable(message).expect("it has an executable");
        assert_eq!((target.name.as_str(), target.executable), ("decompress", "/t/decompress".into()));
        assert!(executable(r#"{"reason":"compiler-artifact","target":{"name":"bytes"},"executable":null}"#).is_none());
        assert!(executable("warning: text").is_none());
    }
}

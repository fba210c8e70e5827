//! `cargo xtask ci`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;

use crate::cargo::{self, cargo};
use crate::step::{self, StepReport};
use crate::{fuzz, test};

#[derive(Args)]
pub(crate) struct CiArguments {
    /// How long each fuzz target runs
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    fuzz_seconds: u32,
}

/// The vendored crate keeps its authors' style.
const NOT_OURS: [&str; 2] = ["--exclude", "kafka-protocol"];

/// Runs every step, also after one has failed: one run tells all that is wrong.
pub(crate) fn run(arguments: &CiArguments) -> Result<ExitCode> {
    let mut reports = Vec::new();
    let mut run_step = |name, alone, work: &mut dyn FnMut() -> Result<()>| {
        let (report, _) = step::step(name, alone, work);
        reports.push(report);
    };

    run_step("tools", "java --version; mvn --version; c++ --version", &mut tools);
    run_step("lock file", "cargo metadata --locked --format-version 1", &mut || {
        cargo::output(&mut cargo(&["metadata", "--locked", "--format-version", "1"])).map(drop)
    });
    run_step("format", "cargo fmt --all --check", &mut || cargo::run(&mut cargo(&["fmt", "--all", "--check"])));
    run_step("lints", "cargo clippy --workspace --all-targets -- -D warnings", &mut || {
        let mut clippy = cargo(&["clippy", "--workspace", "--all-targets", "--no-deps"]);
        cargo::run(clippy.args(NOT_OURS).args(["--", "--deny", "warnings"]))
    });
    run_step("docs", "RUSTDOCFLAGS=-Dwarnings cargo doc --no-deps --workspace", &mut || {
        let mut doc = cargo(&["doc", "--workspace", "--no-deps"]);
        cargo::run(doc.args(NOT_OURS).env("RUSTDOCFLAGS", "-Dwarnings"))
    });
    run_step("fuzz", "cargo xtask fuzz", &mut || fuzz::fuzz(arguments.fuzz_seconds, &[]));
    let mut closing_line = None;
    run_step("tests", "CI=true cargo xtask test", &mut || {
        let summary = test::tests(&test::TestArguments::default(), &[("CI", "true")])?;
        println!("\n{summary}");
        closing_line = Some(summary.closing_line());
        if !summary.is_success() {
            bail!("tests failed");
        }
        if summary.skipped() > 0 {
            bail!("{} tests were skipped", summary.skipped());
        }
        Ok(())
    });

    print(&reports);
    if let Some(line) = closing_line {
        println!("\n{line}");
    }
    let failed = reports.iter().any(|report| report.failed);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn print(reports: &[StepReport]) {
    println!("\nstep       took          outcome");
    for StepReport { name, alone, took, failed } in reports {
        let outcome = if *failed { format!("FAILED; alone: {alone}") } else { "ok".to_owned() };
        println!("{name:<9}  {:<12}  {outcome}", step::seconds(*took));
    }
}

/// Without these, tests would have to be skipped after a quarter of an hour of building.
fn tools() -> Result<()> {
    cargo::output(std::process::Command::new("java").arg("--version")).map(drop)?;
    cargo::output(std::process::Command::new("mvn").args(["--batch-mode", "--version"])).map(drop)?;
    fuzz::cpp_compiler()
}

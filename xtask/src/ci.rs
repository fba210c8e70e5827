//! `cargo xtask ci`.

use std::process::{Command, ExitCode, Stdio};

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

/// Runs every step, also after one has failed: one run tells all that is wrong. Only missing tools end it at once.
pub(crate) fn run(arguments: &CiArguments) -> Result<ExitCode> {
    tools()?;

    let mut reports = Vec::new();
    let mut run_step = |name, alone, work: &mut dyn FnMut() -> Result<()>| {
        let (report, _) = step::step(name, alone, work);
        reports.push(report);
    };

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

/// Programs that the steps call, beside cargo, and what for.
const TOOLS: [(&str, &str, &str); 11] = [
    ("java", "--version", "Apache Kafka"),
    ("mvn", "--version", "Apache Kafka's jars"),
    ("c++", "--version", "libFuzzer"),
    ("curl", "--version", "a test of what a client sees"),
    ("git", "--version", "the test of the tracked files"),
    ("javac", "--version", "Java's clients"),
    ("python3", "--version", "confluent-kafka and kcat"),
    ("node", "--version", "KafkaJS"),
    ("npm", "--version", "KafkaJS"),
    ("go", "version", "franz-go"),
    ("dpkg-deb", "--version", "kcat's packages"),
];

/// Without these, a test would have to be skipped after a quarter of an hour of building.
fn tools() -> Result<()> {
    let works = |program: &str, argument: &str| {
        Command::new(program).arg(argument).stdin(Stdio::null()).output().is_ok_and(|output| output.status.success())
    };
    let missing = TOOLS.iter().filter(|(program, argument, _)| !works(program, argument));
    let missing: Vec<String> = missing.map(|(program, _, what_for)| format!("`{program}` for {what_for}")).collect();
    if !missing.is_empty() {
        bail!("not on the PATH, or not working: {}", missing.join(", "));
    }
    Ok(())
}

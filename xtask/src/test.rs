//! `cargo xtask test`.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Command, ExitCode, Stdio};
use std::thread;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use tidegate_testkit::kafka::{self, Kafka, KafkaConfig};

use crate::cargo::{self, TestOwners, cargo};
use crate::libtest::LibtestParser;
use crate::step;
use crate::summary::Summary;

#[derive(Args, Default)]
pub(crate) struct TestArguments {
    /// Only the tests whose name contains this
    filter: Option<String>,
    /// Only the tests of this crate (may be repeated)
    #[arg(short, long = "package", value_name = "CRATE")]
    packages: Vec<String>,
    /// Start no Apache Kafka: tests that need the shared one are skipped
    #[arg(long)]
    no_kafka: bool,
    /// Arguments for the test binaries
    #[arg(last = true)]
    rest: Vec<String>,
}

/// Runs the tests and prints the summary, the closing line last: who runs this looks for it at the end.
pub(crate) fn run(arguments: &TestArguments) -> Result<ExitCode> {
    let summary = tests(arguments, &[])?;
    println!("\n{summary}\n{}", summary.closing_line());
    Ok(if summary.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Builds the tests, starts Kafka meanwhile, runs the tests, ends Kafka. `environment` is set for the tests.
pub(crate) fn tests(arguments: &TestArguments, environment: &[(&str, &str)]) -> Result<Summary> {
    let kafka = thread::spawn({
        let wanted = !arguments.no_kafka && kafka::shared_bootstrap().is_none();
        move || wanted.then(|| Kafka::start(KafkaConfig::default()))
    });

    let built = step::required("build the tests", "cargo test --workspace --no-run", || {
        cargo::output(test_command(arguments).args(["--no-run", "--message-format=json-render-diagnostics"]))
    });
    // Also when the build has failed: a broker that is just starting must be there to be stopped.
    let kafka = kafka.join();
    let owners = TestOwners::new(&cargo::metadata()?, &built?);
    let kafka = step::required("start Apache Kafka", "cargo xtask kafka", || match kafka {
        Err(_) => bail!("the thread that starts it panicked"),
        Ok(None) => Ok(None),
        Ok(Some(Ok(kafka))) => {
            eprintln!("Apache Kafka {} at {}, log {}", kafka::VERSION, kafka.bootstrap(), kafka.log().display());
            Ok(Some(kafka))
        }
        Ok(Some(Err(error))) if error.is_unavailable() => {
            eprintln!("no Apache Kafka, tests that need it are skipped: {error}");
            Ok(None)
        }
        Ok(Some(Err(error))) => Err(error).context("--no-kafka runs the tests without it"),
    })?;

    let skip_log = tempfile::NamedTempFile::new().context("cannot create the skip log")?;
    let mut command = test_command(arguments);
    command.env(tidegate_testkit::SKIP_LOG, skip_log.path()).envs(environment.iter().copied());
    if let Some(kafka) = &kafka {
        command.env(kafka::SHARED, kafka.bootstrap());
    }
    let results = step::required("run the tests", "cargo xtask test", || {
        command.arg("--no-fail-fast");
        command.args(&arguments.filter).arg("--").args(&arguments.rest);
        let (results, succeeded) = run_and_parse(command)?;
        if !succeeded && results.iter().all(|result| result.failed.is_empty()) {
            bail!("cargo test failed, but no test did");
        }
        Ok(results)
    })?;
    if let Some(kafka) = kafka {
        kafka.stop();
    }
    let skipped = fs::read(skip_log.path()).context("cannot read the skip log")?;
    Ok(Summary::new(&results, &String::from_utf8_lossy(&skipped), &owners))
}

fn test_command(arguments: &TestArguments) -> Command {
    let mut command = cargo(&["test"]);
    if arguments.packages.is_empty() {
        command.arg("--workspace");
    }
    command.args(arguments.packages.iter().flat_map(|package| ["--package", package.as_str()]));
    command
}

/// Runs cargo with its output passed on and read. One pipe for both streams, since cargo names a binary on standard
/// error and the binary reports on standard output: through two pipes the order would be lost.
fn run_and_parse(mut command: Command) -> Result<(Vec<crate::libtest::BinaryResult>, bool)> {
    let (reader, writer) = io::pipe().context("cannot create a pipe")?;
    command.stdin(Stdio::null()).stdout(writer.try_clone().context("cannot share a pipe")?).stderr(writer);
    let mut child = command.spawn().map_err(|error| cargo::cannot_run(&command, &error))?;
    // It holds the pipe's writing end, without whose closing the reading below would never end.
    drop(command);

    let mut parser = LibtestParser::default();
    let mut output = io::stdout().lock();
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).context("cannot read the output of cargo test")? > 0 {
        // A closed standard output (`| head`) must not end the run before Kafka is stopped and tests are counted.
        let _ = output.write_all(&line);
        parser.line(String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']));
        line.clear();
    }
    let status = child.wait().context("cannot wait for cargo test")?;
    Ok((parser.finish(), status.success()))
}

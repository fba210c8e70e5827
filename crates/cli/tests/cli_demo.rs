//! The demo, as a newcomer runs it.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "a test")]

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::{Running, run};
use tidegate_testkit::flights;

/// Whether a record was written to any topic in the folder.
fn has_records(folder: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    entries.flatten().map(|entry| entry.path()).any(|path| match path.extension() {
        Some(extension) if extension == "log" => path.metadata().is_ok_and(|metadata| metadata.len() > 0),
        _ => has_records(&path),
    })
}

#[test]
fn the_demo_loads_serves_survives_being_killed_and_finds_its_data_again() {
    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().join("demo");
    let data_dir = data_dir.to_str().unwrap();
    let args = ["demo", "--data-dir", data_dir, "--listen", "127.0.0.1:0", "--kafka-listen", "127.0.0.1:0"];

    // Killed while it loads. Its files say at once that it does; a command that asks may come back when it has done.
    let mut demo = Running::start(args);
    demo.kafka();
    let deadline = Instant::now() + Duration::from_secs(240);
    while !has_records(data_dir.as_ref()) {
        assert!(Instant::now() < deadline, "nothing is loaded");
        std::thread::sleep(Duration::from_millis(1));
    }
    demo.signal("KILL");
    demo.wait();

    let mut demo = Running::start(args);
    demo.after("an earlier load did not end");
    let (kafka, url) = (demo.kafka(), demo.url());
    for expected in flights::EXPECTED {
        for (topic, target) in [("flights", ["--server", &url]), ("flights.json", ["--brokers", &kafka])] {
            let range = ["read", topic, "--from", expected.from, "--until", expected.until];
            let read = run(range.iter().copied().chain(target)).expect(0);
            let end = read.lines().pop().unwrap().to_owned();
            let end: serde_json::Value = serde_json::from_str(&end).unwrap();
            assert_eq!(end["end"]["records_sent"], expected.records, "{topic} {expected:?}");
            assert_eq!(end["end"]["partitions"][0]["late_records"], expected.late(), "{topic} {expected:?}");
        }
    }
    demo.stop();

    let again = run(["demo", "--data-dir", data_dir, "--exit"]).expect(0);
    assert!(again.stdout.is_empty());
    assert!(again.stderr.contains("are there already, with all 336,776 records"), "{}", again.stderr);
    assert!(again.stderr.contains("uncompressed") && again.stderr.contains("times smaller"), "{}", again.stderr);
    let other = run(["demo", "--data-dir", data_dir, "--exit", "--partitions", "6"]).expect(2);
    assert!(other.stderr.contains("--reload"), "{}", other.stderr);
}

#[test]
fn six_partitions_and_compression_hold_the_same_records() {
    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().join("demo");
    let data_dir = data_dir.to_str().unwrap();
    let args = ["demo", "--data-dir", data_dir, "--partitions", "6", "--compression", "zstd"];
    let mut demo = Running::start(args.into_iter().chain(["--listen", "127.0.0.1:0", "--kafka-listen", "127.0.0.1:0"]));
    let url = demo.url();
    let expected = flights::EXPECTED[0];
    for layout in ["rows", "columns"] {
        let range = ["read", "flights", "--from", expected.from, "--until", expected.until, "--layout", layout];
        let read = run(range.into_iter().chain(["--format", "values", "--server", &url])).expect(0);
        assert_eq!(read.lines().len() as u64, expected.records);
        assert!(read.stderr.contains("6 partitions read to the end"), "{}", read.stderr);
    }
    let said = {
        demo.signal("TERM");
        assert_eq!(demo.wait().code(), Some(0));
        demo.rest()
    };
    assert!(said.contains("zstd") && said.contains("times smaller"), "{said}");
}

//! Ends that nobody asked the program for: a reader that leaves, a signal, a server that dies.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "a test")]

mod common;

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use common::{Running, TestBroker, tidegate, wait};

/// More than all buffers between server and reader hold together: HTTP/2 windows of 32 MiB, frames and pipes.
const MANY: usize = 96 << 20;

fn much_data(broker: &TestBroker) {
    let line = format!("\"{}\"\n", "x".repeat(64 << 10));
    let input = line.repeat(MANY / line.len());
    broker.publish("much", &[], input.as_bytes());
}

#[test]
fn a_reader_that_leaves_ends_the_read_quietly() {
    let broker = TestBroker::start();
    much_data(&broker);
    let mut server = Running::start(["serve", "--brokers", &broker.addr(), "--listen", "127.0.0.1:0"]);
    let url = server.url();
    for target in [["--brokers", &broker.addr()], ["--server", &url]] {
        for format in ["ndjson", "values"] {
            let args = [&["read", "much", "--format", format][..], &target].concat();
            let mut child = tidegate().args(args).spawn().unwrap();
            let mut stdout = BufReader::new(child.stdout.take().unwrap());
            let mut line = String::new();
            stdout.read_line(&mut line).unwrap();
            assert!(line.len() > 64 << 10);
            drop(stdout);
            let mut stderr = String::new();
            child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
            assert_eq!((wait(&mut child).code(), stderr.as_str()), (Some(141), ""), "{target:?} {format}");
        }
    }
    server.stop();
}

#[test]
fn a_cluster_that_is_down_is_told_and_keeps_the_others_from_nothing() {
    let broker = TestBroker::start();
    broker.publish("near", &[], b"1\n");
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("tidegate.yaml");
    let down = "{kafka: {bootstrap.servers: 127.0.0.1:1, socket.connection.setup.timeout.ms: 500}}";
    let text = format!("kafka: {{bootstrap.servers: {}}}\nclusters: {{down: {down}}}\n", broker.addr());
    std::fs::write(&config, text).unwrap();
    let mut server = Running::start(["serve", "--config", config.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    let why = server.after("clusters.down: ");
    assert!(why.contains("127.0.0.1:1") && why.contains("until it answers"), "{why}");
    let url = server.url();
    let topics = common::run(["topics", "--server", &url]).expect(0);
    assert!(topics.text().contains("near"));
    let failed = common::run(["topics", "--server", &url, "--cluster", "down"]).expect(5);
    assert!(failed.stderr.contains("127.0.0.1:1"), "{}", failed.stderr);
    server.stop();
}

#[test]
fn a_table_that_nobody_reads_is_no_error() {
    let broker = TestBroker::start();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut child = tidegate().args(["topics", "--brokers", &broker.addr()]).stdout(writer).spawn().unwrap();
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!((wait(&mut child).code(), stderr.as_str()), (Some(141), ""));
}

#[test]
fn a_server_that_dies_in_the_midst_leaves_a_read_incomplete_and_the_file_without_its_name() {
    let broker = TestBroker::start();
    much_data(&broker);
    let mut server = Running::start(["serve", "--brokers", &broker.addr(), "--listen", "127.0.0.1:0"]);
    let url = server.url();

    // Through a pipe that nobody empties until the server is dead, so the read cannot have ended before.
    let mut child = tidegate().args(["read", "much", "--server", &url]).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut first = [0; 1];
    stdout.read_exact(&mut first).unwrap();
    server.signal("KILL");
    server.wait();
    let mut rest = Vec::new();
    stdout.read_to_end(&mut rest).unwrap();
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(wait(&mut child).code(), Some(3), "{stderr}");
    assert!(stderr.contains("incomplete") && stderr.contains("records came out before"), "{stderr}");
    assert!(!String::from_utf8_lossy(&rest).contains("{\"end\":"), "no end statement");
}

#[test]
fn a_record_that_does_not_fit_a_message_ends_the_read_with_the_flag_to_raise() {
    let broker = TestBroker::start();
    let input = format!("1\n\"{}\"\n", "x".repeat(300_000));
    broker.publish("t", &[], input.as_bytes());
    let mut server = Running::start(["serve", "--brokers", &broker.addr(), "--listen", "127.0.0.1:0"]);
    let url = server.url();
    let out = broker.path("out");
    let output = out.to_str().unwrap();
    let args = ["read", "t", "--server", &url, "--max-message-bytes", "100KiB", "--output", output];
    let ran = common::run(args);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("offset 1") && ran.stderr.contains("--max-message-bytes"), "{}", ran.stderr);
    assert!(ran.stderr.contains("out.incomplete"), "{}", ran.stderr);
    assert!(!out.exists());
    let part = std::fs::read_to_string(broker.path("out.incomplete")).unwrap();
    let lines: Vec<&str> = part.lines().collect();
    assert_eq!(lines.len(), 2, "{part}");
    assert!(lines[1].starts_with("{\"error\":{\"code\":\"MESSAGE_TOO_LARGE\""), "{part}");
    server.stop();
}

#[test]
fn a_signal_ends_serving_in_order_and_the_data_is_there_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().join("data");
    let args = |data_dir: &std::path::Path| -> Vec<String> {
        ["serve", "--data-dir", data_dir.to_str().unwrap(), "--listen", "127.0.0.1:0", "--kafka-listen", "127.0.0.1:0"]
            .map(str::to_owned)
            .into()
    };
    for (run, signal) in ["TERM", "INT"].into_iter().enumerate() {
        let mut server = Running::start(args(&data_dir));
        let (kafka, url) = (server.kafka(), server.url());
        let create = if run == 0 { &["--create"][..] } else { &[] };
        let publish = [&["publish", "t", "--brokers", &kafka][..], create].concat();
        common::run_with_input(publish, b"1\n").expect(0);
        let read = common::run(["read", "t", "--format", "values", "--server", &url]).expect(0);
        assert_eq!(read.lines().len(), run + 1);
        server.signal(signal);
        assert_eq!(server.wait().code(), Some(0));
        let said = server.rest();
        assert!(said.contains(&format!("SIG{signal}: stopping")) && said.contains("stopped"), "{said}");
    }
}

#[test]
fn a_second_signal_ends_the_process_at_once() {
    let broker = TestBroker::start();
    much_data(&broker);
    let config = broker.path("tidegate.yaml");
    // A grace period that the test would not survive.
    let text = format!("listen: 127.0.0.1:0\ngrace: 1h\nkafka: {{bootstrap.servers: '{}'}}\n", broker.addr());
    std::fs::write(&config, text).unwrap();
    let mut server = Running::start(["serve", "--config", config.to_str().unwrap()]);
    let url = server.url();
    let mut reader = tidegate().args(["read", "much", "--server", &url]).stderr(Stdio::null()).spawn().unwrap();
    let mut first = [0; 1];
    reader.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    server.signal("TERM");
    server.after("stopping");
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(143));
    reader.kill().unwrap();
    reader.wait().unwrap();
}

#[test]
fn publishing_ends_at_a_signal_with_what_is_durable() {
    let broker = TestBroker::start();
    broker.publish("t", &[], b"0\n");
    let mut child = tidegate()
        .args(["publish", "t", "--brokers", &broker.addr(), "--log", "tidegate=debug"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, b"1\n2\n").unwrap();
    // Both lines are in the topic although the input goes on: nothing is held back.
    loop {
        let read = broker.run(&["read", "t", "--format", "values"]).expect(0);
        if read.lines().len() == 3 {
            break;
        }
    }
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(wait(&mut child).code(), Some(130), "{stderr}");
    assert!(stderr.contains("2 records durable in t"), "{stderr}");
    drop(stdin);
}

//! The test kit's Kafka itself: it starts, it ends, and it never outlives the tests.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tidegate_testkit::kafka::{Kafka, KafkaConfig, StartError};

const CHILD: &str = "TIDEGATE_TESTKIT_KAFKA_CHILD";

#[test]
fn a_killed_kafka_serves_no_more_and_leaves_its_log() {
    let Some(mut kafka) =
        Kafka::start_or_skip("a_killed_kafka_serves_no_more_and_leaves_its_log", KafkaConfig::default())
    else {
        return;
    };
    let address = kafka.bootstrap();
    TcpStream::connect(&address).unwrap();
    kafka.kill();
    TcpStream::connect(&address).unwrap_err();
    let log = kafka.log().to_owned();
    kafka.kill();
    drop(kafka);
    assert!(std::fs::read_to_string(log).unwrap().contains("[BrokerServer id=1]"));
}

#[test]
fn a_stopped_kafka_has_shut_down_in_order() {
    let Some(kafka) = Kafka::start_or_skip("a_stopped_kafka_has_shut_down_in_order", KafkaConfig::default()) else {
        return;
    };
    let log = kafka.log().to_owned();
    kafka.stop();
    assert!(std::fs::read_to_string(log).unwrap().contains("shut down completed"));
}

#[test]
fn a_property_that_kafka_refuses_is_named_by_the_error() {
    let config = KafkaConfig::default().with("log.message.timestamp.type", "SundialTime");
    match Kafka::start(config) {
        Err(error) if error.is_unavailable() => {
            tidegate_testkit::skip("a_property_that_kafka_refuses_is_named_by_the_error", &error.to_string());
        }
        Err(error @ (StartError::Format { .. } | StartError::Exited { .. })) => {
            assert!(error.to_string().contains("SundialTime"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

/// A test process that is killed, as by a runner's time limit, takes its Kafka with it.
#[test]
fn kafka_ends_when_the_process_that_started_it_is_killed() {
    const NAME: &str = "kafka_ends_when_the_process_that_started_it_is_killed";
    if std::env::var_os(CHILD).is_some() {
        match Kafka::start(KafkaConfig::default()) {
            Ok(kafka) => {
                println!("\nchild-kafka {} {}", kafka.pid(), kafka.bootstrap());
                // Until the parent kills us.
                loop {
                    std::thread::park();
                }
            }
            Err(error) if error.is_unavailable() => return println!("\nchild-skips {error}"),
            Err(error) => panic!("{error}"),
        }
    }

    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.find(|line| line.starts_with("child-")).expect("the child says where its Kafka is");
    if let Some(reason) = line.strip_prefix("child-skips ") {
        child.wait().unwrap();
        return tidegate_testkit::skip(NAME, reason);
    }
    let mut words = line.split(' ').skip(1);
    let (pid, address) = (words.next().unwrap(), words.next().unwrap());
    TcpStream::connect(address).unwrap();

    child.kill().unwrap();
    child.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while TcpStream::connect(address).is_ok() || is_running(pid) {
        assert!(Instant::now() < deadline, "Kafka, process {pid}, still runs");
        // Neither process is ours to wait for.
        sleep(Duration::from_millis(20));
    }
}

/// Whether a process has not ended; one that has ended but that nobody has waited for yet (`Z`) does not count.
fn is_running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

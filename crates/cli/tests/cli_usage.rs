//! The command line by itself: help, exit codes, what goes to which stream, configuration errors.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "a test")]

mod common;

use common::{Ran, run};

const COMMANDS: [&str; 5] = ["demo", "serve", "read", "publish", "topics"];

/// A failure says so on standard error alone.
#[track_caller]
fn refused(args: &[&str], code: i32) -> String {
    let Ran { stdout, stderr, .. } = run(args).expect(code);
    assert!(stdout.is_empty(), "{}", String::from_utf8_lossy(&stdout));
    stderr
}

#[test]
fn help_goes_to_standard_output_with_examples_and_exit_codes() {
    let top = run(["--help"]).expect(0);
    for command in COMMANDS {
        assert!(top.text().contains(command), "{}", top.text());
        let help = run([command, "--help"]).expect(0);
        assert!(help.text().contains("Examples:") && help.text().contains("Exit codes:"), "{}", help.text());
        assert!(help.stderr.is_empty());
    }
    assert!(run(["--version"]).expect(0).text().starts_with("tidegate "));
}

#[test]
fn a_wrong_command_line_is_exit_code_2_with_a_hint() {
    assert!(refused(&["reed"], 2).contains("read"));
    assert!(refused(&["read"], 2).contains("TOPIC"));
    assert!(refused(&["read", "t", "--form", "now"], 2).contains("--from"));
    assert!(refused(&["read", "t", "--last", "3", "--from", "now"], 2).contains("cannot be used with"));
    assert!(refused(&["read", "t", "--server", "http://h:1", "--brokers", "h:1"], 2).contains("cannot be used with"));
    assert!(refused(&["read", "t", "--limit", "0"], 2).contains("--limit"));
    assert!(refused(&["read", "t", "--max-message-bytes", "4194304"], 2).contains("no unit"));
    assert!(refused(&["read", "t", "--brokers", "localhost"], 2).contains("localhost:9092"));
    assert!(refused(&["read", "t", "--server", "https://h"], 2).contains("TLS"));
    assert!(refused(&["read", "t", "--proto", "f.proto", "--message", "M"], 2).contains("--brokers"));
    assert!(refused(&["publish", "t", "--create"], 2).contains("--brokers"));
    assert!(refused(&["publish", "t", "--partitions", "3", "--brokers", "h:1"], 2).contains("--create"));
    assert!(refused(&["publish", "t", "--create", "--config", "x", "--brokers", "h:1"], 2).contains("key=value"));
    assert!(refused(&["publish", "t", "--timestamp-unit", "ms"], 2).contains("--timestamp-field"));
    assert!(refused(&["topics", "--create", "--brokers", "h:1"], 2).contains("NAME"));
    assert!(refused(&["serve"], 2).contains("where records come from"));
    assert!(refused(&["serve", "--listen", "8642", "--data-dir", "d"], 2).contains("127.0.0.1:8642"));
    assert!(refused(&["--log", "a=b=c", "topics"], 2).contains("log filter"));
}

#[test]
fn a_server_that_is_not_there_is_exit_code_5_and_says_how_to_get_one() {
    // A port that nobody listens on: bound, and given back.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{free}");
    for args in [&["topics"][..], &["read", "t"], &["publish", "t"]] {
        let stderr = refused(&[args, &["--server", &url]].concat(), 5);
        assert!(stderr.contains(&url) && stderr.contains("tidegate serve"), "{stderr}");
    }
}

#[test]
fn a_cluster_that_is_not_there_is_exit_code_5_and_is_named() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let stderr = refused(&["topics", "--brokers", &free], 5);
    assert!(stderr.contains(&free), "{stderr}");
}

#[test]
fn a_mistake_in_the_configuration_is_exit_code_2_with_place_and_suggestion() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tidegate.yaml");
    let refuse = |text: &str| {
        std::fs::write(&path, text).unwrap();
        refused(&["serve", "--config", path.to_str().unwrap()], 2)
    };
    let stderr = refuse("listen: 127.0.0.1:0\nbroker:\n  data_dirr: d\n");
    assert!(stderr.contains("tidegate.yaml:3:3: unknown key \"data_dirr\" in broker"), "{stderr}");
    assert!(stderr.contains("did you mean data_dir?"), "{stderr}");
    let stderr = refuse("grace: 5\n");
    assert!(stderr.contains("no unit") && stderr.contains("5s"), "{stderr}");
    let stderr = refuse("topics:\n  a:\n    payload: protobuf\n    message: M\n    proto: missing.proto\n");
    assert!(stderr.contains("topics.a") && stderr.contains("missing.proto"), "{stderr}");
    let stderr = refused(&["serve", "--config", dir.path().join("no.yaml").to_str().unwrap()], 2);
    assert!(stderr.contains("no.yaml"), "{stderr}");
}

#[test]
fn an_address_that_others_can_reach_needs_insecure() {
    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().join("data");
    let data_dir = data_dir.to_str().unwrap();
    for listen in ["--listen", "--kafka-listen"] {
        let other = if listen == "--listen" { "--kafka-listen" } else { "--listen" };
        let stderr = refused(&["serve", "--data-dir", data_dir, listen, "0.0.0.0:0", other, "127.0.0.1:0"], 2);
        assert!(stderr.contains("--insecure"), "{stderr}");
    }
}

#[test]
fn a_port_that_is_taken_is_named_with_the_flag_that_changes_it() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().join("data");
    let data_dir = data_dir.to_str().unwrap();
    let stderr = refused(&["demo", "--data-dir", data_dir, "--listen", &address], 1);
    assert!(stderr.contains("is taken") && stderr.contains("--listen 127.0.0.1:0"), "{stderr}");
    assert!(!dir.path().join("data").exists(), "nothing is made before the mistake is found");
    let stderr = run(["serve", "--data-dir", data_dir, "--listen", &address, "--kafka-listen", "127.0.0.1:0"]);
    let stderr = stderr.expect(1).stderr;
    assert!(stderr.contains("is taken") && stderr.contains("--listen 127.0.0.1:0"), "{stderr}");
    let stderr = refused(&["serve", "--data-dir", data_dir, "--listen", "127.0.0.1:0", "--kafka-listen", &address], 1);
    assert!(stderr.contains("is taken") && stderr.contains("--kafka-listen 127.0.0.1:0"), "{stderr}");
}

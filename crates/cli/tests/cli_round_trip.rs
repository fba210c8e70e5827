//! Records in, records out: `publish`, `topics` and `read` against an embedded broker, in process and through a server.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "a test")]

mod common;

use common::{Ran, Running, TestBroker, flight_proto, run, run_with_input};
use serde_json::{Value, json};

/// The record lines and the end statement of NDJSON output.
fn parse(ran: &Ran) -> (Vec<Value>, Value) {
    let mut lines: Vec<Value> = ran.lines().iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let end = lines.pop().unwrap()["end"].clone();
    assert!(end.is_object(), "the last line is the end statement");
    (lines, end)
}

fn values(ran: &Ran) -> Vec<Value> {
    parse(ran).0.into_iter().map(|record| record["value"].clone()).collect()
}

#[test]
fn what_is_published_is_read_with_keys_timestamps_and_the_proof() {
    let broker = TestBroker::start();
    let input = concat!(
        "\u{feff}{\"id\":\"a\",\"at\":\"2013-02-01T00:00:00Z\",\"n\":9007199254740993}\r\n",
        "\n",
        "{\"id\":\"b\",\"at\":\"2013-02-03T00:00:00Z\",\"s\":\"\u{2028}\u{85}\\r\"}\n",
        "{\"id\":\"c\",\"at\":\"2013-02-02T00:00:00+00:00\",\"p\":1.10}",
    );
    let flags = ["--key-field", "id", "--timestamp-field", "at"];
    let published = broker.publish("events", &flags, input.as_bytes());
    assert!(published.stdout.is_empty());
    assert!(published.stderr.contains("created topic events"), "{}", published.stderr);
    assert!(published.stderr.contains("3 records durable in events"), "{}", published.stderr);

    let all = broker.run(&["read", "events"]).expect(0);
    let (records, end) = parse(&all);
    let keys: Vec<&str> = records.iter().map(|record| record["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["a", "b", "c"]);
    assert_eq!(records[2]["timestamp"], "2013-02-02T00:00:00.000Z");
    assert!(all.text().contains("\"n\":9007199254740993") && all.text().contains("\"p\":1.10"), "{}", all.text());
    assert_eq!((end["records_sent"].as_u64(), end["exhaustive"].as_bool()), (Some(3), Some(true)));
    assert!(all.stderr.contains("3 records, complete"), "{}", all.stderr);

    // The third record is late: it stands behind one from after the range.
    let range = broker.run(&["read", "events", "--from", "2013-02-01", "--until", "2013-02-03"]).expect(0);
    let (records, end) = parse(&range);
    assert_eq!(records.len(), 2);
    assert_eq!(end["partitions"][0]["late_records"], 1);
    assert!(range.stderr.contains("late: 1 of them"), "{}", range.stderr);

    let hour =
        broker.run(&["read", "events", "--from", "2013-02-01", "--until", "+1h", "--format", "values"]).expect(0);
    assert_eq!(hour.lines().len(), 1);
    assert!(hour.stderr.contains("\"records_sent\":1"), "the end statement is on standard error: {}", hour.stderr);

    let last = broker.run(&["read", "events", "--last", "1", "--format", "json"]).expect(0);
    let document: Value = serde_json::from_str(last.text()).unwrap();
    assert_eq!(document["records"][0]["key"], "c");
    let offsets = broker.run(&["read", "events", "--offset", "1", "--end-offset", "2"]).expect(0);
    assert_eq!(parse(&offsets).0[0]["key"], "b");
}

#[test]
fn a_limit_ends_a_read_which_then_says_that_it_is_not_complete() {
    let broker = TestBroker::start();
    broker.publish("t", &[], b"1\n2\n3\n");
    let ran = broker.run(&["read", "t", "--limit", "2"]).expect(0);
    let (records, end) = parse(&ran);
    assert_eq!((records.len(), end["exhaustive"].as_bool()), (2, Some(false)));
    assert!(ran.stderr.contains("NOT complete: --limit 2"), "{}", ran.stderr);
}

#[test]
fn a_server_gives_the_same_bytes_in_both_layouts_as_a_read_in_process() {
    let broker = TestBroker::start();
    let lines = concat!(
        "{\"key\":\"k\",\"value\":{\"a\":1.10},\"headers\":[{\"name\":\"h\",\"value\":\"1\"},{\"name\":\"h\",\"value\":null}]}\n",
        "{\"key\":null,\"value\":null}\n",
        "{\"key\":\"\",\"value_base64\":\"\"}\n",
        "{\"key_base64\":\"//4A\",\"value_base64\":\"/w==\"}\n",
        "{\"value_base64\":\"bnVsbA==\",\"timestamp\":\"2013-02-01T00:00:00.000Z\"}\n",
        "{\"value\":\"\u{2028}\"}\n",
        "{\"end\":{}}\n",
    );
    broker.publish("t", &["--format", "ndjson"], lines.as_bytes());
    let mut server = Running::start(["serve", "--brokers", &broker.addr(), "--listen", "127.0.0.1:0"]);
    let url = server.url();

    for format in ["ndjson", "json", "values"] {
        let local = broker.run(&["read", "t", "--format", format]).expect(0);
        assert_eq!(local.text().matches("value_base64").count(), if format == "values" { 2 } else { 3 });
        for layout in ["rows", "columns"] {
            let args = ["read", "t", "--format", format, "--layout", layout, "--server", &url];
            let remote = run(args).expect(0);
            assert_eq!(without_until(&remote), without_until(&local), "{format} {layout}");
        }
    }
    server.stop();
}

/// The range's open end is the time of the request, which differs from run to run.
fn without_until(ran: &Ran) -> String {
    let text = ran.text().to_owned();
    match text.find("\"until\":") {
        None => text,
        Some(at) => {
            let end = at + text[at..].find(',').unwrap();
            format!("{}{}", &text[..at], &text[end..])
        }
    }
}

#[test]
fn json_becomes_protobuf_and_its_bytes_come_back_untouched() {
    let broker = TestBroker::start();
    let flight = concat!(
        r#"{"event_time":"2013-01-01T11:00:00Z","scheduled_departure":"2013-01-01T11:00:00Z","carrier":"B6","flight":125,"#,
        r#""tail_number":"N618JB","origin":"JFK","destination":"FLL","departure_delay_minutes":null,"#,
        r#""arrival_delay_minutes":null,"air_time_minutes":null,"distance_miles":1069,"cancelled":true}"#,
    );
    let message = "tidegate.examples.flights.v1.Flight";
    let proto = flight_proto();
    let schema = ["--proto", &proto, "--message", message];
    let flags = [&["--timestamp-field", "event_time"], &schema[..]].concat();
    broker.publish("flights", &flags, flight.as_bytes());

    let config = broker.path("tidegate.yaml");
    std::fs::write(
        &config,
        format!(
            "listen: 127.0.0.1:0\nkafka:\n  bootstrap.servers: {}\ntopics:\n  flights:\n    payload: protobuf\n    message: \
             {message}\n    proto: {proto}\n",
            broker.addr()
        ),
    )
    .unwrap();
    let mut server = Running::start(["serve", "--config", config.to_str().unwrap()]);
    let url = server.url();

    let local = broker.run(&[&["read", "flights", "--format", "protobuf"][..], &schema].concat()).expect(0);
    // Behind its length comes field 1, a message: the tag 0x0a.
    assert_eq!((usize::from(local.stdout[0]), local.stdout[1]), (local.stdout.len() - 1, 0x0a));
    for layout in ["rows", "columns"] {
        let args = ["read", "flights", "--format", "protobuf", "--layout", layout, "--server", &url];
        assert_eq!(run(args).expect(0).stdout, local.stdout, "{layout}");
    }

    let expected: Value = serde_json::from_str(flight).unwrap();
    let without_nulls = |value: &Value| -> Value {
        let fields = value.as_object().unwrap().iter().filter(|(_, value)| !value.is_null());
        Value::Object(fields.map(|(name, value)| (name.clone(), value.clone())).collect())
    };
    let shown = run(["read", "flights", "--format", "values", "--server", &url]).expect(0);
    assert_eq!(serde_json::from_str::<Value>(shown.text()).unwrap(), without_nulls(&expected));

    // JSON text in a Protobuf topic would be a record that nobody can read.
    let wrong = run_with_input(["publish", "flights", "--server", &url], flight.as_bytes()).expect(2);
    assert!(wrong.stderr.contains("holds Protobuf") && wrong.stderr.contains(message), "{}", wrong.stderr);
    let args = [&["publish", "flights", "--server", &url][..], &schema].concat();
    run_with_input(args, flight.as_bytes()).expect(0);
    let both = run(["read", "flights", "--format", "values", "--server", &url]).expect(0);
    assert_eq!(both.lines()[0], both.lines()[1]);
    server.stop();
}

#[test]
fn a_read_is_published_again_as_it_is_through_a_server() {
    let broker = TestBroker::start();
    broker.publish("from", &["--format", "ndjson"], concat!(
        "{\"key\":\"k\",\"value\":{\"a\":1.10},\"timestamp\":\"2013-02-01T00:00:00.000Z\",\"headers\":[{\"name\":\"h\",\"value\":\"1\"}]}\n",
        "{\"key_base64\":\"//4A\",\"value\":null,\"timestamp\":\"2013-02-01T00:00:01.000Z\"}\n",
    ).as_bytes());
    broker.run(&["topics", "into", "--create", "--config", "retention.ms=86400000"]).expect(0);
    let mut server = Running::start(["serve", "--brokers", &broker.addr(), "--listen", "127.0.0.1:0"]);
    let url = server.url();

    let read = run(["read", "from", "--server", &url]).expect(0);
    let published = run_with_input(["publish", "into", "--format", "ndjson", "--server", &url], &read.stdout).expect(0);
    assert!(published.stderr.contains("2 records durable in into"), "{}", published.stderr);
    assert!(
        published.stderr.contains("warning:") && published.stderr.contains("retention.ms=-1"),
        "{}",
        published.stderr
    );
    let again = run(["read", "into", "--server", &url]).expect(0);
    assert_eq!(parse(&again).0, parse(&read).0);
    server.stop();
}

#[test]
fn records_that_the_retention_would_delete_are_warned_of() {
    let broker = TestBroker::start();
    broker.run(&["topics", "t", "--create", "--config", "retention.ms=604800000"]).expect(0);
    let old = b"{\"at\":\"2013-02-01T00:00:00Z\"}\n{\"at\":\"2012-02-01T00:00:00Z\"}\n";
    let ran = broker.run_with_input(&["publish", "t", "--timestamp-field", "at"], old).expect(0);
    for says in ["warning:", "2 records are older than topic t", "7 days", "2012-02-01T00:00:00Z", "retention.ms=-1"] {
        assert!(ran.stderr.contains(says), "{says}: {}", ran.stderr);
    }
    let now = broker.run_with_input(&["publish", "t"], b"1\n").expect(0);
    assert!(!now.stderr.contains("warning:"), "{}", now.stderr);
}

#[test]
fn a_line_that_cannot_be_used_is_named_and_what_stands_before_it_is_published() {
    let broker = TestBroker::start();
    broker.publish("t", &[], b"0\n");
    let ran = broker.run_with_input(&["publish", "t"], b"1\n2\n{\"a\":1} {\"b\":2}\n4\n").expect(3);
    assert!(ran.stderr.contains("line 3: more than one value"), "{}", ran.stderr);
    assert!(ran.stderr.contains("2 records before it were published"), "{}", ran.stderr);
    let first = broker.run_with_input(&["publish", "t"], b"{\n").expect(2);
    assert!(first.stderr.contains("line 1: "), "{}", first.stderr);
    assert_eq!(values(&broker.run(&["read", "t"])), [json!(0), json!(1), json!(2)]);
}

#[test]
fn long_lines_and_packed_files_come_through() {
    let broker = TestBroker::start();
    let long = format!("\"{}\"", "x".repeat(2 << 20));
    let input = format!("{long}\n\"{}\"", "y".repeat(70_000));
    let packed = broker.path("input.zst");
    std::fs::write(&packed, zstd::encode_all(input.as_bytes(), 1).unwrap()).unwrap();
    let args = ["publish", "t", packed.to_str().unwrap(), "--create", "--config", "max.message.bytes=4000000"];
    broker.run(&args).expect(0);
    let read = broker.run(&["read", "t", "--format", "values"]).expect(0);
    assert_eq!(read.lines().iter().map(|line| line.len()).collect::<Vec<_>>(), [(2 << 20) + 2, 70_002]);
    let short = broker.run_with_input(&["publish", "t", "--max-line-bytes", "1MiB"], input.as_bytes()).expect(2);
    assert!(short.stderr.contains("line 1 is longer than 1048576 bytes"), "{}", short.stderr);
}

#[test]
fn topics_are_listed_and_described_for_people_and_for_machines() {
    let broker = TestBroker::start();
    broker.publish("b", &["--partitions", "3", "--partition", "1"], b"1\n2\n");
    broker.publish("a", &[], b"1\n");
    let mut server = Running::start(["serve", "--brokers", &broker.addr(), "--listen", "127.0.0.1:0"]);
    let url = server.url();

    let list = broker.run(&["topics"]).expect(0);
    let rows: Vec<Vec<&str>> = list.lines().iter().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows, [vec!["TOPIC", "PARTITIONS", "PAYLOAD"], vec!["a", "1", "bytes"], vec!["b", "3", "bytes"]]);
    assert_eq!(run(["topics", "--server", &url]).expect(0).text(), list.text());

    let one = broker.run(&["topics", "b", "--json"]).expect(0);
    let description: Value = serde_json::from_str(one.text()).unwrap();
    assert_eq!(description["partitions"][1]["high_watermark"], 2);
    assert_eq!(run(["topics", "b", "--json", "--server", &url]).expect(0).text(), one.text());
    let table = broker.run(&["topics", "b"]).expect(0);
    assert!(table.text().contains("HIGH WATERMARK") && table.text().contains("CreateTime"), "{}", table.text());
    assert_eq!(run(["topics", "b", "--server", &url]).expect(0).text(), table.text());

    let again = broker.run(&["topics", "b", "--create", "--partitions", "9"]).expect(0);
    assert!(again.stderr.contains("exists already"), "{}", again.stderr);
    for args in [&["topics", "missing"][..], &["read", "missing"], &["publish", "missing"]] {
        let stderr = broker.run(args).expect(4).stderr;
        assert!(stderr.contains("missing"), "{stderr}");
        let stderr = run([args, &["--server", &url]].concat()).expect(4).stderr;
        assert!(stderr.contains("missing") && stderr.contains("`tidegate topics`"), "{stderr}");
    }
    server.stop();
}

#[test]
fn a_time_without_a_unit_is_refused_before_anything_is_written() {
    let broker = TestBroker::start();
    broker.publish("t", &[], b"1\n");
    let out = broker.path("out.ndjson");
    let args = ["read", "t", "--from", "1714521600", "--output", out.to_str().unwrap()];
    let stderr = broker.run(&args).expect(2).stderr;
    assert!(stderr.contains("1714521600s"), "{stderr}");
    assert!(std::fs::read_dir(broker.dir.path()).unwrap().all(|entry| entry.unwrap().file_name() == "broker"));
    broker.run(&["read", "t", "--output", out.to_str().unwrap()]).expect(0);
    assert_eq!(std::fs::read_to_string(&out).unwrap().lines().count(), 2);
}

#[test]
fn records_that_are_gone_fail_the_read_or_are_reported() {
    let broker = TestBroker::start();
    broker.publish("t", &[], b"0\n1\n2\n3\n");
    broker.delete_before("t", 0, 2);
    let failed = broker.run(&["read", "t", "--offset", "0"]).expect(4);
    assert!(failed.stderr.contains("[0, 2)") && failed.stderr.contains("--on-data-loss report"), "{}", failed.stderr);
    let reported = broker.run(&["read", "t", "--offset", "0", "--on-data-loss", "report"]).expect(0);
    assert_eq!(values(&reported), [json!(2), json!(3)]);
    assert!(reported.stderr.contains("NOT complete") && reported.stderr.contains("[0, 2)"), "{}", reported.stderr);
}

//! What the clients must print.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::brokers::On;
use crate::document;
use crate::install::{Client, folder};

/// When it is set, what Apache Kafka shows is what is expected from now on.
const RECORD: &str = "TIDEGATE_INTEROP_RECORD";

/// A line of `expected/<client>.jsonl`.
#[derive(Clone, Debug, PartialEq)]
struct Line {
    step: String,
    /// The broker that it holds for; both when there is none.
    on: Option<String>,
    result: Value,
}

impl Line {
    fn read(text: &str) -> Self {
        let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"));
        Self {
            step: value["step"].as_str().unwrap_or_else(|| panic!("no step in {text}")).to_owned(),
            on: value["on"].as_str().map(str::to_owned),
            result: value["result"].clone(),
        }
    }

    fn write(&self) -> String {
        let mut value = Map::new();
        value.insert("step".to_owned(), self.step.clone().into());
        if let Some(on) = &self.on {
            value.insert("on".to_owned(), on.clone().into());
        }
        value.insert("result".to_owned(), self.result.clone());
        format!("{}\n", Value::Object(value))
    }

    fn holds_on(&self, on: On) -> bool {
        self.on.as_deref().is_none_or(|name| name == on.name())
    }
}

/// Compares what a client printed with what it must print.
pub fn compare(client: Client, on: On, printed: &[String]) {
    let failures: Vec<&String> = printed.iter().filter(|line| !line.contains("\"result\"")).collect();
    if std::env::var_os(RECORD).is_some() && on == On::ApacheKafka && failures.is_empty() {
        record(client, printed);
    }
    let mut must: BTreeMap<String, Value> = BTreeMap::new();
    for line in expected(client).into_iter().filter(|line| line.holds_on(on)) {
        assert!(must.insert(line.step.clone(), line.result).is_none(), "{} is expected twice", line.step);
    }
    let mut wrong = Vec::new();
    for text in printed {
        let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"));
        let step = value["step"].as_str().unwrap_or_default();
        match (must.remove(step), value.get("result")) {
            (Some(must), Some(result)) if must == *result => {}
            (Some(must), _) => wrong.push(format!("  must be {must}\n  but is {text}")),
            (None, _) => wrong.push(format!("  not expected (or twice): {text}")),
        }
    }
    wrong.extend(must.iter().map(|(step, must)| format!("  missing: {step}, which must be {must}")));
    assert!(wrong.is_empty(), "{} on {}:\n{}", client.name(), on.name(), wrong.join("\n"));
}

fn path(client: Client) -> PathBuf {
    folder().join("expected").join(format!("{}.jsonl", client.name()))
}

fn expected(client: Client) -> Vec<Line> {
    fs::read_to_string(path(client)).unwrap_or_default().lines().map(Line::read).collect()
}

/// Keeps what is expected of the embedded broker alone, behind the line of the same step.
fn record(client: Client, printed: &[String]) {
    let old = expected(client);
    let mut text = String::new();
    for line in printed {
        let mut line = Line::read(line);
        let embedded = old.iter().find(|old| old.step == line.step && old.on.as_deref() == Some(On::Embedded.name()));
        if embedded.is_some() {
            line.on = Some(On::ApacheKafka.name().to_owned());
        }
        text.push_str(&line.write());
        text.extend(embedded.map(Line::write));
    }
    fs::write(path(client), text).unwrap();
}

#[test]
fn every_step_of_the_table_is_expected_of_both_brokers_and_no_other() {
    for client in Client::ALL {
        let lines = expected(client);
        for on in [On::ApacheKafka, On::Embedded] {
            let mut found: Vec<&str> = Vec::new();
            for line in lines.iter().filter(|line| line.holds_on(on)) {
                let step = line.step.split('/').next().unwrap();
                if found.last() != Some(&step) {
                    found.push(step);
                }
            }
            assert_eq!(found, document::steps_of(client), "{client:?} on {}", on.name());
        }
    }
}

/// The records are written down once, so whoever produces and reads them must find the same.
#[test]
fn all_clients_that_can_write_the_records_find_the_same_digests() {
    let digests = |client, step: &str| {
        let line = expected(client).into_iter().find(|line| line.step == step);
        line.unwrap_or_else(|| panic!("{client:?} has no {step}")).result
    };
    // kcat sets no timestamps, and KafkaJS writes no header without a value.
    let unable = [Client::Kcat, Client::KafkaJs];
    let able = Client::ALL.into_iter().filter(|client| !unable.contains(client));
    for client in able {
        for step in ["consume", "seek-time", "seek-into-batch", "small-fetches"] {
            assert_eq!(digests(client, step), digests(Client::Python, step), "{client:?}, {step}");
        }
    }
}

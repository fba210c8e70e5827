//! ARCHITECTURE.md's crate table says what is there: the workspace's members, where they are, and which of them each
//! one is built on.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// A row of the table, or a member as cargo has it.
#[derive(Debug, PartialEq, Eq)]
struct Member {
    path: String,
    /// Direct dependencies within the workspace that the product is built with: build dependencies count, development
    /// dependencies do not.
    dependencies: BTreeSet<String>,
}

#[test]
fn the_crate_table_of_architecture_md_is_what_cargo_metadata_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let text = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let (table, members) = (table(&text), members(&metadata(root), root));
    let names = |of: &BTreeMap<String, Member>| of.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(names(&table), names(&members), "left: ARCHITECTURE.md, right: cargo metadata");
    for (name, member) in &members {
        assert_eq!(&table[name], member, "{name}; left: ARCHITECTURE.md, right: cargo metadata");
    }
}

/// Reads the rows of the one table whose first column is headed `Crate`: name, path, description, dependencies.
fn table(text: &str) -> BTreeMap<String, Member> {
    let mut rows = BTreeMap::new();
    let table = text.lines().skip_while(|line| !line.starts_with("| Crate |")).skip(2);
    for line in table.take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, path, description, dependencies] = cells[..] else { panic!("not four cells: {line}") };
        assert!(!description.is_empty(), "{name} has no description");
        let dependencies = code_spans(dependencies).map(str::to_owned).collect();
        let path = code_spans(path).next().unwrap_or_else(|| panic!("no path in backticks: {line}")).to_owned();
        let name = code_spans(name).next().unwrap_or_else(|| panic!("no name in backticks: {line}")).to_owned();
        let twice = rows.insert(name, Member { path, dependencies });
        assert_eq!(twice, None, "a crate has two rows: {line}");
    }
    rows
}

/// What stands between backticks.
fn code_spans(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

fn metadata(root: &Path) -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn members(metadata: &Value, root: &Path) -> BTreeMap<String, Member> {
    let packages = metadata["packages"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let names: BTreeSet<String> = packages.iter().map(|package| text(&package["name"])).collect();
    let member = |package: &Value| {
        let directory = text(&package["manifest_path"]);
        let path = Path::new(&directory).parent().unwrap().strip_prefix(root).unwrap().display().to_string();
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        let built_with = dependencies.filter(|dependency| dependency["kind"] != "dev");
        let dependencies = built_with.map(|dependency| text(&dependency["name"])).filter(|name| names.contains(name));
        Member { path, dependencies: dependencies.collect() }
    };
    packages.iter().map(|package| (text(&package["name"]), member(package))).collect()
}

#[test]
fn only_tests_can_reach_the_brokers_that_misbehave() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let metadata = metadata(root);
    // `cargo build` of the binary: development dependencies do not count, so nothing may turn the feature on but them.
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        for dependency in package["dependencies"].as_array().unwrap() {
            let on = dependency["features"].as_array().unwrap().iter().any(|feature| feature == "testing");
            let broker = dependency["name"] == "tidegate-broker";
            assert!(!(broker && on) || dependency["kind"] == "dev", "{name} turns tidegate-broker's `testing` on");
        }
        let features = package["features"].to_string();
        assert!(!features.contains("tidegate-broker/"), "{name} passes a feature on to tidegate-broker: {features}");
        if name == "tidegate-broker" {
            assert_eq!(features, r#"{"testing":[]}"#, "nothing of it is on by default");
        }
    }
    // `cargo test --workspace` turns it on for the binary too. Then no code of the product may know of it.
    let mut gates = Vec::new();
    for (path, text) in product_sources(root) {
        if path.starts_with("crates/broker/src/testing") {
            continue;
        }
        // The unit tests at a file's end are no product.
        let product = text.split_once("#[cfg(test)]\nmod tests").map_or(&*text, |(product, _)| product);
        for line in product.lines() {
            assert!(!line.contains("broker::testing") && !line.contains("crate::testing"), "{path}: {line}");
            if path.starts_with("crates/broker/") && line.contains("feature =") {
                gates.push((path.clone(), line.to_owned()));
            }
        }
    }
    let gate = r#"#[cfg(any(test, feature = "testing"))]"#.to_owned();
    assert_eq!(
        gates,
        [("crates/broker/src/lib.rs".to_owned(), gate)],
        "the feature adds one module and changes nothing"
    );
}

/// The tracked source files under `crates/*/src`.
fn product_sources(root: &Path) -> Vec<(String, String)> {
    let output = Command::new("git").args(["ls-files", "crates/*/src/*.rs"]).current_dir(root).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let list = String::from_utf8(output.stdout).unwrap();
    let sources: Vec<_> =
        list.lines().map(|path| (path.to_owned(), std::fs::read_to_string(root.join(path)).unwrap())).collect();
    assert!(sources.len() > 100, "the list of sources is not the whole: {}", sources.len());
    sources
}

#[test]
fn a_row_is_read_with_all_its_dependencies() {
    let rows = table(
        "# Text\n| Other | table |\n|---|---|\n| `x` | y |\n\n| Crate | Path | What | Builds on |\n|---|---|---|---|\n\
         | `a` | `crates/a` | does `things` | `b`, `c` |\n| `b` | `b` | less | |\n\nmore\n| `z` | `z` | z | z |\n",
    );
    let member = |path: &str, dependencies: &[&str]| Member {
        path: path.to_owned(),
        dependencies: dependencies.iter().map(|&name| name.to_owned()).collect(),
    };
    let expected = [("a".to_owned(), member("crates/a", &["b", "c"])), ("b".to_owned(), member("b", &[]))];
    assert_eq!(rows, BTreeMap::from(expected));
}

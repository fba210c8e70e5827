//! What no tracked file may hold, and how long a source file may get.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Longer files hold more than one idea.
const MAX_SOURCE_LINES: usize = 700;

/// Taken apart, so that this file does not find itself.
const MACHINE_PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

/// Where packages come from is each machine's own configuration.
const REGISTRY_HOSTS: &[&str] = &[
    concat!("index.crates", ".io"),
    concat!("static.crates", ".io"),
    concat!("repo.maven.", "apache.org"),
    concat!("repo1.maven", ".org"),
    concat!("proxy.golang", ".org"),
    concat!("registry.npmjs", ".org"),
    concat!("files.python", "hosted.org"),
    concat!("<repo", "sitory>"),
    concat!("replace-", "with"),
];

/// Work that was left for later belongs where work is planned; debugging output belongs nowhere; and a test that is
/// ignored is a claim that nobody checks.
const LEFTOVERS: &[&str] =
    &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("dbg", "!("), concat!("todo", "!("), concat!("#[ig", "nore")];

#[test]
fn no_tracked_file_names_a_machines_paths_or_registries() {
    let found = lines_with(&[MACHINE_PATHS, REGISTRY_HOSTS].concat(), |path| {
        !path.ends_with("Cargo.lock") && !path.starts_with("examples/flights/")
    });
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

/// Numbers of lists that the project's readers cannot see: a test says what it claims in words.
const FOREIGN_IDS: &[&str] = &[concat!("B", "L-0"), concat!("B", "L-1"), concat!("B", "L-2"), concat!("B", "L-3")];

#[test]
fn no_file_of_ours_has_leftovers() {
    let found = lines_with(&[LEFTOVERS, FOREIGN_IDS].concat(), |path| {
        !path.ends_with("Cargo.lock") && !path.starts_with("third_party")
    });
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn source_files_stay_short() {
    let is_source = |path: &&PathBuf| {
        let in_src = path.starts_with("crates") && path.iter().nth(2).is_some_and(|part| part == "src");
        in_src && path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs")
    };
    let long: Vec<String> = tracked_files()
        .iter()
        .filter(is_source)
        .map(|path| (path, code_lines(&read(path).unwrap_or_default())))
        .filter(|(_, lines)| *lines > MAX_SOURCE_LINES)
        .map(|(path, lines)| format!("{}: {lines} lines without tests, {MAX_SOURCE_LINES} allowed", path.display()))
        .collect();
    assert!(long.is_empty(), "\n{}", long.join("\n"));
}

/// How many lines come before the module of tests that ends a file.
fn code_lines(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let tests = lines
        .windows(2)
        .position(|pair| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].trim_end().ends_with('{'));
    tests.unwrap_or(lines.len())
}

/// `path:line: text` of each line that has one of the patterns, in the tracked text files that `considered` takes.
fn lines_with(patterns: &[&str], considered: impl Fn(&Path) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for path in tracked_files().iter().filter(|path| considered(path)) {
        // A file that is no text is data.
        let Some(text) = read(path) else { continue };
        for (number, line) in text.lines().enumerate() {
            if patterns.iter().any(|pattern| line.contains(pattern)) {
                found.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
            }
        }
    }
    found
}

/// The files that git tracks, relative to the root. One that is deleted but not yet committed as such is not there.
fn tracked_files() -> Vec<PathBuf> {
    // A CI machine's clone may belong to another user than the one who tests it.
    let output = Command::new("git")
        .args(["-c", "safe.directory=*", "ls-files", "-z"])
        .current_dir(root())
        .output()
        .expect("git runs");
    assert!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).unwrap();
    let files: Vec<PathBuf> = names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect();
    assert!(files.contains(&PathBuf::from("Cargo.toml")), "git ls-files gave {files:?}");
    files.into_iter().filter(|path| root().join(path).exists()).collect()
}

fn read(path: &Path) -> Option<String> {
    String::from_utf8(std::fs::read(root().join(path)).unwrap()).ok()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

#[test]
fn tests_at_the_end_of_a_file_do_not_count_as_code() {
    assert_eq!(code_lines("a\nb\n#[cfg(test)]\nmod tests {\n    c\n}\n"), 2);
    assert_eq!(code_lines("#[cfg(test)]\nmod tests;\na\n"), 3);
    assert_eq!(code_lines("#[cfg(test)]\nuse x;\na\n"), 3);
}

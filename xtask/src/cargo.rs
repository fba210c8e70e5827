//! Running cargo and asking it for facts.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// The root of the workspace.
pub(crate) fn workspace_root() -> &'static Path {
    let manifest_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest_dir.parent().unwrap_or(manifest_dir)
}

/// A command of the cargo that runs this program, at the root of the workspace.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(workspace_root());
    command
}

/// Runs a command to its end; an error names it.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().map_err(|error| cannot_run(command, &error))?;
    if !status.success() {
        bail!("`{}` ended with {status}", describe(command));
    }
    Ok(())
}

/// Runs a command and returns what it printed; its standard error is passed on.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output =
        command.stderr(std::process::Stdio::inherit()).output().map_err(|error| cannot_run(command, &error))?;
    if !output.status.success() {
        bail!("`{}` ended with {}", describe(command), output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("the output of `{}`", describe(command)))
}

pub(crate) fn cannot_run(command: &Command, error: &io::Error) -> anyhow::Error {
    let program = command.get_program().to_string_lossy();
    match error.kind() {
        io::ErrorKind::NotFound => anyhow::anyhow!("`{program}` is not on the PATH"),
        _ => anyhow::anyhow!("cannot run `{}`: {error}", describe(command)),
    }
}

fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Which package of the workspace a test belongs to.
#[derive(Debug, Default)]
pub(crate) struct TestOwners {
    /// By the file name of a test binary.
    binaries: HashMap<String, String>,
    /// By the crate name of a library, as `Doc-tests` lines have it.
    libraries: HashMap<String, String>,
}

impl TestOwners {
    /// From `cargo metadata` and the messages of `cargo test --no-run --message-format=json`.
    pub(crate) fn new(metadata: &Value, build_messages: &str) -> TestOwners {
        let mut owners = TestOwners::default();
        let mut names = HashMap::new();
        for package in metadata["packages"].as_array().into_iter().flatten() {
            let (Some(id), Some(name)) = (package["id"].as_str(), package["name"].as_str()) else { continue };
            names.insert(id, name);
            for target in package["targets"].as_array().into_iter().flatten() {
                let is_library = target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "lib"));
                if let (true, Some(library)) = (is_library, target["name"].as_str()) {
                    owners.libraries.insert(library.to_owned(), name.to_owned());
                }
            }
        }
        for line in build_messages.lines() {
            let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
            let executable = message["executable"].as_str().and_then(|path| Path::new(path).file_name());
            let package = message["package_id"].as_str().and_then(|id| names.get(id));
            if let (Some(executable), Some(package)) = (executable, package) {
                owners.binaries.insert(executable.to_string_lossy().into_owned(), (*package).to_owned());
            }
        }
        owners
    }

    pub(crate) fn of_binary(&self, file_name: &str) -> Option<&str> {
        self.binaries.get(file_name).map(String::as_str)
    }

    pub(crate) fn of_library(&self, library: &str) -> Option<&str> {
        self.libraries.get(library).map(String::as_str)
    }
}

/// `cargo metadata` of the workspace alone.
pub(crate) fn metadata() -> Result<Value> {
    let text = output(&mut cargo(&["metadata", "--no-deps", "--format-version", "1"]))?;
    serde_json::from_str(&text).context("the output of `cargo metadata`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integration_tests_of_one_name_belong_to_their_own_packages() {
        let metadata = serde_json::json!({"packages": [
            {"id": "path+file:///w/crates/a#tidegate-a@0.1.0", "name": "tidegate-a",
             "targets": [{"kind": ["lib"], "name": "tidegate_a"}, {"kind": ["test"], "name": "kafka"}]},
            {"id": "path+file:///w/b#0.1.0", "name": "b", "targets": [{"kind": ["bin"], "name": "b"}]},
        ]});
        let messages = concat!(
            r#"{"reason":"compiler-artifact","package_id":"path+file:///w/crates/a#tidegate-a@0.1.0","executable":"/w/target/debug/deps/kafka-01"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","package_id":"path+file:///w/b#0.1.0","executable":"/w/target/debug/deps/kafka-02"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","package_id":"path+file:///w/b#0.1.0","executable":null}"#,
            "\nnot json\n",
        );
        let owners = TestOwners::new(&metadata, messages);
        assert_eq!(owners.of_binary("kafka-01"), Some("tidegate-a"));
        assert_eq!(owners.of_binary("kafka-02"), Some("b"));
        assert_eq!(owners.of_binary("kafka-03"), None);
        assert_eq!(owners.of_library("tidegate_a"), Some("tidegate-a"));
        assert_eq!(owners.of_library("b"), None);
    }
}

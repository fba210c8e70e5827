//! The clients that are compared: how each is installed and started.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use tidegate_testkit::kafka;

/// A client library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Client {
    /// Ours.
    Tidegate,
    /// librdkafka, batch interface, from Rust.
    Librdkafka,
    /// librdkafka through the crate rdkafka, record by record.
    Rdkafka,
    /// Apache Kafka's own.
    Java,
    /// franz-go.
    Franz,
    /// KafkaJS.
    KafkaJs,
    /// confluent-kafka-python, which is librdkafka.
    Python,
}

/// A program with what comes before a peer's own options.
#[derive(Clone, Debug)]
pub struct Program {
    executable: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(&'static str, PathBuf)>,
}

impl Program {
    /// The command, without the peer's options.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command.args(&self.arguments).envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// Installs a client if it is not there, and says how to start it and which version it is.
pub fn install(client: Client) -> Result<(Program, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/peers").join(format!("{client:?}").to_lowercase());
    fs::create_dir_all(&home)?;
    match client {
        Client::Tidegate => own("tidegate", "this checkout".to_owned()),
        Client::Librdkafka => own("librdkafka", format!("librdkafka {}", rdkafka::util::get_rdkafka_version().1)),
        Client::Rdkafka => {
            let librdkafka = rdkafka::util::get_rdkafka_version().1;
            own("rdkafka", format!("rdkafka {} (librdkafka {librdkafka})", rdkafka_crate()))
        }
        Client::Java => java(&folder.join("java"), &home),
        Client::Franz => franz(&folder.join("franz"), &home),
        Client::KafkaJs => kafkajs(&folder.join("kafkajs"), &home),
        Client::Python => python(&folder.join("python"), &home),
    }
    .with_context(|| format!("the client {client:?} cannot be had"))
}

/// A peer that this program is too.
fn own(name: &str, version: String) -> Result<(Program, String)> {
    let executable = std::env::current_exe().context("this program's own path")?;
    Ok((Program { executable, arguments: vec!["peer".into(), name.into()], environment: Vec::new() }, version))
}

fn rdkafka_crate() -> &'static str {
    let lock = include_str!("../../Cargo.lock");
    let entry = lock.split("[[package]]").find(|entry| entry.contains("name = \"rdkafka\"\n"));
    entry.and_then(|entry| entry.split("version = \"").nth(1)?.split('"').next()).unwrap_or("?")
}

fn java(source: &Path, home: &Path) -> Result<(Program, String)> {
    let libs = kafka::libs()?;
    let file = source.join("Peer.java");
    let classes = home.join("classes");
    once(home, &fs::read_to_string(&file)?, &classes, |classes| {
        let mut javac = Command::new("javac");
        javac.args(["-Xlint:all,-classfile,-processing", "-Werror", "-cp"]).arg(libs.join("*"));
        run(javac.arg("-d").arg(classes).arg(&file))
    })?;
    let logging = home.join("log4j2.properties");
    fs::write(&logging, "rootLogger.level = error\n")?;
    let class_path = std::env::join_paths([classes, libs.join("*")])?;
    let setting = format!("-Dlog4j2.configurationFile={}", logging.display());
    let arguments = ["-Xmx2g".into(), setting.into(), "-cp".into(), class_path, "Peer".into()];
    let java = Command::new("java").arg("-version").output().context("`java` cannot be run")?;
    let java = String::from_utf8_lossy(&java.stderr).lines().next().unwrap_or("?").replace('"', "");
    let version = format!("kafka-clients {} ({java})", kafka::VERSION);
    Ok((Program { executable: "java".into(), arguments: arguments.to_vec(), environment: Vec::new() }, version))
}

fn franz(source: &Path, home: &Path) -> Result<(Program, String)> {
    let executable = home.join("peer");
    let mut go = Command::new("go");
    go.args(["build", "-mod=readonly", "-buildvcs=false", "-o"]).arg(&executable).arg(".").current_dir(source);
    // The versions are go.sum's; a workspace of the user's must not replace them.
    run(go.env("GOWORK", "off"))?;
    let module = fs::read_to_string(source.join("go.mod"))?;
    let version = module.lines().find_map(|line| line.strip_prefix("require github.com/twmb/franz-go "));
    let version = format!("franz-go {}", version.unwrap_or("?"));
    Ok((Program { executable, arguments: Vec::new(), environment: Vec::new() }, version))
}

fn kafkajs(source: &Path, home: &Path) -> Result<(Program, String)> {
    let packages = home.join("packages");
    once(home, &fs::read_to_string(source.join("package-lock.json"))?, &packages, |packages| {
        for file in ["package.json", "package-lock.json"] {
            fs::copy(source.join(file), packages.join(file))?;
        }
        let mut npm = Command::new("npm");
        npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(packages);
        run(&mut npm)
    })?;
    let package: serde_json::Value = serde_json::from_str(&fs::read_to_string(source.join("package.json"))?)?;
    let version = format!("kafkajs {}", package["dependencies"]["kafkajs"].as_str().unwrap_or("?"));
    let environment = vec![
        ("NODE_PATH", packages.join("node_modules")),
        ("KAFKAJS_NO_PARTITIONER_WARNING", "1".into()),
        // The same that the broker's tests give it.
        ("KAFKAJS_CODECS", source.join("../../../interop/kafkajs/codecs.js")),
    ];
    Ok((Program { executable: "node".into(), arguments: vec![source.join("peer.js").into()], environment }, version))
}

fn python(source: &Path, home: &Path) -> Result<(Program, String)> {
    let (requirements, venv) = (source.join("requirements.txt"), home.join("venv"));
    let pins = fs::read_to_string(&requirements)?;
    once(home, &pins, &venv, |venv| {
        run(Command::new("python3").args(["-m", "venv"]).arg(venv))?;
        let mut pip = Command::new(venv.join("bin/python"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]);
        run(pip.args(["--only-binary", ":all:", "--requirement"]).arg(&requirements))
    })?;
    let version = pins.split_whitespace().next().unwrap_or("?").replace("==", " ");
    let executable = venv.join("bin/python");
    Ok((Program { executable, arguments: vec![source.join("peer.py").into()], environment: Vec::new() }, version))
}

/// Fills `folder` unless it has been filled for the same `pins` before. The note of them is written last.
fn once(home: &Path, pins: &str, folder: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let lock = File::create(home.join("lock"))?;
    lock.lock()?;
    let note = home.join("installed");
    if folder.exists() && fs::read_to_string(&note).is_ok_and(|noted| noted == pins) {
        return Ok(());
    }
    // The note goes first, or it would vouch for a folder whose filling was interrupted.
    if note.exists() {
        fs::remove_file(&note)?;
    }
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    fill(folder)?;
    Ok(fs::write(&note, pins)?)
}

/// Runs an installer; what it said, if it failed.
fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("`{program}` cannot be run"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    bail!("`{program}` failed: {}", lines[lines.len().saturating_sub(8)..].join("; "))
}

//! Gets the clients, at the versions of their lock files, into `target/interop/<client>`.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tidegate_testkit::kafka;

use crate::program::Program;

/// The Debian packages that make kcat: name and version.
const KCAT: [(&str, &str); 2] = [("kcat", "1.7.1-2"), ("librdkafka1", "2.0.2-1")];

/// Its JSON library; security updates move its version, and nothing here depends on it.
const KCAT_UNPINNED: &str = "libyajl2";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    Kcat,
    Python,
    KafkaJs,
    Franz,
    Java,
}

impl Client {
    pub const ALL: [Self; 5] = [Self::Kcat, Self::Python, Self::KafkaJs, Self::Franz, Self::Java];

    /// As in the table of the scenario, and the name of its folder.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kcat => "kcat",
            Self::Python => "python",
            Self::KafkaJs => "kafkajs",
            Self::Franz => "franz",
            Self::Java => "java",
        }
    }

    fn source(self) -> PathBuf {
        folder().join(self.name())
    }
}

/// `interop/` at the root of the project.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../interop").canonicalize().unwrap()
}

/// Why a client cannot run here: a tool is not installed, or something cannot be downloaded. Whatever else goes wrong fails
/// the test.
type Missing = String;

/// Installs a client if it is not there, and says how to run its scenario.
pub fn install(client: Client) -> Result<Program, Missing> {
    let home = tidegate_testkit::target_dir().join("interop").join(client.name());
    fs::create_dir_all(&home).unwrap();
    // Two tests of one client start at the same time, and one installs.
    let lock = File::create(home.join("lock")).unwrap();
    lock.lock().unwrap();
    match client {
        Client::Kcat => kcat(&home),
        Client::Python => python(&home),
        Client::KafkaJs => kafkajs(&home),
        Client::Franz => franz(&home),
        Client::Java => java(&home),
    }
}

fn kcat(home: &Path) -> Result<Program, Missing> {
    let root = home.join("root");
    let pins = KCAT.map(|(name, version)| format!("{name}={version}"));
    once(home, &pins.join(" "), &root, |root| {
        let wanted: Vec<&str> = pins.iter().map(String::as_str).chain([KCAT_UNPINNED]).collect();
        let apt = |options: &[String], arguments: &[&str]| {
            let mut apt = Command::new("apt-get");
            download(apt.args(["--quiet", "-o", "APT::Sandbox::User="]).args(options).args(arguments).current_dir(root))
        };
        let packages = [&["download"], wanted.as_slice()].concat();
        if apt(&[], &packages).is_err() {
            // The machine has no package lists, or old ones; lists of our own need no root.
            let own = home.join("apt");
            fs::create_dir_all(own.join("lists/partial")).unwrap();
            fs::create_dir_all(own.join("cache/archives/partial")).unwrap();
            let folders = [("State::lists", "lists"), ("Cache", "cache")];
            let options = folders.map(|(name, folder)| format!("-oDir::{name}={}", own.join(folder).display()));
            apt(&options, &["update"])?;
            apt(&options, &packages)?;
        }
        for entry in fs::read_dir(root).unwrap() {
            let package = entry.unwrap().path();
            if package.extension().is_some_and(|extension| extension == "deb") {
                let mut dpkg = Command::new("dpkg-deb");
                dpkg.arg("-x").arg(&package).arg(root);
                build(&mut dpkg)?;
            }
        }
        Ok(())
    })?;
    let libraries = fs::read_dir(root.join("usr/lib")).unwrap().map(|entry| entry.unwrap().path());
    let libraries = libraries.into_iter().find(|path| path.join("librdkafka.so.1").exists());
    let libraries = libraries.ok_or("the package librdkafka1 holds no librdkafka.so.1")?;
    Ok(Program {
        executable: "python3".into(),
        arguments: vec![Client::Kcat.source().join("scenario.py"), root.join("usr/bin/kcat")],
        environment: vec![("LD_LIBRARY_PATH", libraries), ("PYTHONDONTWRITEBYTECODE", "1".into())],
    })
}

fn python(home: &Path) -> Result<Program, Missing> {
    let requirements = Client::Python.source().join("requirements.txt");
    let packages = home.join("packages");
    once(home, &read(&requirements), &packages, |packages| {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"])
            .args(["--only-binary", ":all:", "--target"])
            .arg(packages)
            .arg("--requirement")
            .arg(&requirements);
        download(&mut pip)
    })?;
    Ok(Program {
        executable: "python3".into(),
        arguments: vec![Client::Python.source().join("scenario.py")],
        environment: vec![("PYTHONPATH", packages), ("PYTHONDONTWRITEBYTECODE", "1".into())],
    })
}

fn kafkajs(home: &Path) -> Result<Program, Missing> {
    let source = Client::KafkaJs.source();
    let lock = read(&source.join("package-lock.json"));
    let packages = home.join("packages");
    once(home, &lock, &packages, |packages| {
        for file in ["package.json", "package-lock.json"] {
            fs::copy(source.join(file), packages.join(file)).unwrap();
        }
        let mut npm = Command::new("npm");
        npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(packages);
        download(&mut npm)
    })?;
    Ok(Program {
        executable: "node".into(),
        arguments: vec![source.join("scenario.js")],
        environment: vec![("NODE_PATH", packages.join("node_modules"))],
    })
}

fn franz(home: &Path) -> Result<Program, Missing> {
    let executable = home.join("scenario");
    let go = || {
        let mut go = Command::new("go");
        // The versions are go.sum's; a workspace of the user's must not replace them.
        go.current_dir(Client::Franz.source()).env("GOWORK", "off");
        go
    };
    download(go().args(["mod", "download"]))?;
    build(go().args(["build", "-mod=readonly", "-buildvcs=false", "-o"]).arg(&executable).arg("."))?;
    Ok(Program { executable, arguments: Vec::new(), environment: Vec::new() })
}

fn java(home: &Path) -> Result<Program, Missing> {
    let libs = kafka::libs().map_err(|error| error.to_string())?;
    let mut sources: Vec<PathBuf> = fs::read_dir(Client::Java.source())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "java"))
        .collect();
    sources.sort();
    let classes = home.join("classes");
    let text: String = sources.iter().map(|path| read(path)).collect();
    once(home, &text, &classes, |classes| {
        let mut javac = Command::new("javac");
        javac.args(["-Xlint:all,-classfile,-processing", "-Werror", "-cp"]).arg(libs.join("*"));
        javac.arg("-d").arg(classes).args(&sources);
        build(&mut javac)
    })?;
    let class_path = std::env::join_paths([classes, libs.join("*"), Client::Java.source()]).unwrap();
    let options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"].map(PathBuf::from);
    Ok(Program {
        executable: "java".into(),
        arguments: options.into_iter().chain([class_path.into(), "Scenario".into()]).collect(),
        environment: Vec::new(),
    })
}

/// Fills `folder` unless it has been filled for the same `pins` before. The note of them is written last.
fn once(
    home: &Path,
    pins: &str,
    folder: &Path,
    fill: impl FnOnce(&Path) -> Result<(), Missing>,
) -> Result<(), Missing> {
    let note = home.join("installed");
    if folder.exists() && fs::read_to_string(&note).is_ok_and(|noted| noted == pins) {
        return Ok(());
    }
    // The note goes first, or it would vouch for a folder whose filling was interrupted.
    for stale in [note.as_path(), folder] {
        if stale.is_dir() {
            fs::remove_dir_all(stale).unwrap();
        } else if stale.exists() {
            fs::remove_file(stale).unwrap();
        }
    }
    fs::create_dir_all(folder).unwrap();
    fill(folder)?;
    fs::write(&note, pins).unwrap();
    Ok(())
}

/// What a download says that brought something else than the lock file names, or cannot have come to that. Nothing is missing
/// then: somebody has to look.
const WRONG: [&str; 6] = [
    "DO NOT MATCH THE HASHES",
    "Hashes are required",
    "EINTEGRITY",
    "EUSAGE",
    "checksum mismatch",
    "Hash Sum mismatch",
];

/// Runs what downloads something.
fn download(command: &mut Command) -> Result<(), Missing> {
    run(command)?.map_err(|said| {
        assert!(!WRONG.iter().any(|wrong| said.contains(wrong)), "{command:?} failed: {said}");
        format!("{command:?} failed: {}", last_lines(&said))
    })
}

/// Runs what works with what is here already.
fn build(command: &mut Command) -> Result<(), Missing> {
    run(command)?.unwrap_or_else(|said| panic!("{command:?} failed:\n{said}"));
    Ok(())
}

/// Runs a command; what it said, if it failed.
fn run(command: &mut Command) -> Result<Result<(), String>, Missing> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = match command.stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(format!("there is no `{program}`")),
        Err(error) => panic!("`{program}` cannot be run: {error}"),
    };
    if output.status.success() {
        return Ok(Ok(()));
    }
    Ok(Err(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()))
}

fn last_lines(said: &str) -> String {
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(8)..].join("; ")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

//! Apache Kafka's jars, through Maven, once per version.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::{StartError, tail};

/// The version of Apache Kafka that the tests run against.
pub const VERSION: &str = "4.1.1";

/// The version that writes message formats v0 and v1, for tests of reading them.
pub const OLD_VERSION: &str = "2.8.2";

/// A release with what Maven needs to fetch it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Artefact {
    pub(super) version: &'static str,
    pom: &'static str,
    pom_file: &'static str,
}

pub(super) const CURRENT: Artefact =
    Artefact { version: VERSION, pom: include_str!("../../kafka/pom.xml"), pom_file: "crates/testkit/kafka/pom.xml" };

pub(super) const OLD: Artefact = Artefact {
    version: OLD_VERSION,
    pom: include_str!("../../kafka/old-pom.xml"),
    pom_file: "crates/testkit/kafka/old-pom.xml",
};

/// Named in full, since Maven asks the network what a short plugin name means even when it has the plugin.
const COPY_DEPENDENCIES: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies";

/// `<target dir>/kafka-<version>`: jars, logs, a copy of the pom.
pub(super) fn home(artefact: &Artefact) -> PathBuf {
    crate::target_dir().join(format!("kafka-{}", artefact.version))
}

/// The directory of the jars, which are fetched first if they are missing or the pom has changed since.
///
/// The copy of the pom is written last and tells that the jars are complete. Test processes start at the same time,
/// so a file lock lets one of them fetch.
pub(super) fn libs(artefact: &Artefact) -> Result<PathBuf, StartError> {
    let home = home(artefact);
    fs::create_dir_all(&home).map_err(StartError::io("create Kafka's directory"))?;
    let lock = File::create(home.join("lock")).map_err(StartError::io("create Kafka's lock file"))?;
    lock.lock().map_err(StartError::io("lock Kafka's directory"))?;

    let (libs, complete) = (home.join("libs"), home.join("pom.xml"));
    if fs::read_to_string(&complete).is_ok_and(|pom| pom == artefact.pom) {
        return Ok(libs);
    }
    if libs.exists() {
        fs::remove_dir_all(&libs).map_err(StartError::io("remove Kafka's old jars"))?;
    }
    let output = Command::new("mvn")
        .args(["--batch-mode", "--quiet", "-Dstyle.color=never", COPY_DEPENDENCIES, "-DincludeScope=runtime"])
        .arg(format!("-DoutputDirectory={}", libs.display()))
        .arg("--file")
        .arg(crate::workspace_root().join(artefact.pom_file))
        .stdin(Stdio::null())
        .output()
        .map_err(StartError::spawn("mvn", "run mvn"))?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        return Err(StartError::Fetch { version: artefact.version, output: tail(&String::from_utf8_lossy(&said), 5) });
    }
    fs::write(&complete, artefact.pom).map_err(StartError::io("note that Kafka's jars are complete"))?;
    Ok(libs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pom_has_the_version_that_errors_and_paths_name() {
        for artefact in [CURRENT, OLD] {
            assert!(artefact.pom.contains(&format!("<kafka.version>{}</kafka.version>", artefact.version)));
        }
    }
}

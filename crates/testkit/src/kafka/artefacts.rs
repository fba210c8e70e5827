//! Apache Kafka's jars, through Maven, once per version.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::{StartError, tail};

/// The version of Apache Kafka that the tests run against.
pub const VERSION: &str = "4.1.1";

const POM: &str = include_str!("../../kafka/pom.xml");

/// Named in full, since Maven asks the network what a short plugin name means even when it has the plugin.
const COPY_DEPENDENCIES: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies";

/// `<target dir>/kafka-<version>`: jars, logs, a copy of the pom.
pub(super) fn home() -> PathBuf {
    crate::target_dir().join(format!("kafka-{VERSION}"))
}

/// The directory of the jars, which are fetched first if they are missing or the pom has changed since.
///
/// The copy of the pom is written last and tells that the jars are complete. Test processes start at the same time,
/// so a file lock lets one of them fetch.
pub(super) fn libs() -> Result<PathBuf, StartError> {
    let home = home();
    fs::create_dir_all(&home).map_err(StartError::io("create Kafka's directory"))?;
    let lock = File::create(home.join("lock")).map_err(StartError::io("create Kafka's lock file"))?;
    lock.lock().map_err(StartError::io("lock Kafka's directory"))?;

    let (libs, complete) = (home.join("libs"), home.join("pom.xml"));
    if fs::read_to_string(&complete).is_ok_and(|pom| pom == POM) {
        return Ok(libs);
    }
    if libs.exists() {
        fs::remove_dir_all(&libs).map_err(StartError::io("remove Kafka's old jars"))?;
    }
    let output = Command::new("mvn")
        .args(["--batch-mode", "--quiet", "-Dstyle.color=never", COPY_DEPENDENCIES, "-DincludeScope=runtime"])
        .arg(format!("-DoutputDirectory={}", libs.display()))
        .arg("--file")
        .arg(crate::workspace_root().join("crates/testkit/kafka/pom.xml"))
        .stdin(Stdio::null())
        .output()
        .map_err(StartError::spawn("mvn", "run mvn"))?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        return Err(StartError::Fetch { output: tail(&String::from_utf8_lossy(&said), 5) });
    }
    fs::write(&complete, POM).map_err(StartError::io("note that Kafka's jars are complete"))?;
    Ok(libs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pom_has_the_version_that_errors_and_paths_name() {
        assert!(POM.contains(&format!("<kafka.version>{VERSION}</kafka.version>")));
    }
}

//! `cargo xtask kafka`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use tidegate_testkit::kafka::{Kafka, KafkaConfig, VERSION};

#[derive(Args)]
pub(crate) struct KafkaArguments {
    /// A broker property, for example message.max.bytes=8388608 (may be repeated)
    #[arg(long = "property", value_name = "NAME=VALUE", value_parser = property)]
    properties: Vec<(String, String)>,
}

fn property(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Starts a broker and keeps it until ctrl-c. Its data goes with it.
pub(crate) fn run(arguments: &KafkaArguments) -> Result<ExitCode> {
    let config = KafkaConfig { properties: arguments.properties.clone(), ..KafkaConfig::default() };
    let mut kafka = Kafka::start(config)?;
    eprintln!("Apache Kafka {VERSION}, process {}, log {}", kafka.pid(), kafka.log().display());
    eprintln!("ctrl-c ends it and removes its data; its address:");
    println!("{}", kafka.bootstrap());
    let status = kafka.wait()?;
    bail!("Apache Kafka ended with {status}; its log is {}", kafka.log().display());
}

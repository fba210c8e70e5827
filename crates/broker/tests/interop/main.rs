//! Other people's clients, unmodified, run the scenario of `interop/SCENARIO.md` against the embedded broker and against
//! Apache Kafka; every line they print must be the one in `interop/expected`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, missing_docs, unreachable_pub, dead_code)]

#[path = "../common/mod.rs"]
mod common;

mod brokers;
mod document;
mod expected;
mod install;
mod program;

use brokers::{On, Target};
use install::Client;

/// Runs one client on one broker.
fn run(client: Client, on: On) {
    let test = format!("{}_on_{}", client.name(), on.test_suffix());
    let program = match install::install(client) {
        Ok(program) => program,
        Err(reason) => return tidegate_testkit::skip(&test, &reason),
    };
    let Some(target) = Target::start(on, &test) else { return };
    let prefix = tidegate_testkit::unique_topic(client.name());
    if client == Client::Kcat {
        target.create_topics_of_kcat(&prefix);
    }
    let lines = program.run(target.bootstrap(), &prefix);
    expected::compare(client, on, &lines);
}

macro_rules! clients {
    ($($client:ident: $kafka:ident, $embedded:ident;)*) => {$(
        #[test]
        fn $kafka() {
            run(Client::$client, On::ApacheKafka);
        }

        #[test]
        fn $embedded() {
            run(Client::$client, On::Embedded);
        }
    )*};
}

clients! {
    Kcat: kcat_on_apache_kafka, kcat_on_the_embedded_broker;
    Python: python_on_apache_kafka, python_on_the_embedded_broker;
    KafkaJs: kafkajs_on_apache_kafka, kafkajs_on_the_embedded_broker;
    Franz: franz_on_apache_kafka, franz_on_the_embedded_broker;
    Java: java_on_apache_kafka, java_on_the_embedded_broker;
}

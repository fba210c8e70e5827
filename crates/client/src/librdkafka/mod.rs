//! What the producer and the group member have in common: how librdkafka reaches a cluster, and where its log goes.

pub(crate) mod security;

use rdkafka::config::{ClientConfig, RDKafkaLogLevel};

use crate::config::ClusterConfig;
use security::{Guard, Unfit, configure};

/// librdkafka's settings for reaching a cluster.
pub(crate) fn client_config(cluster: &ClusterConfig) -> Result<ClientConfig, Unfit> {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", cluster.bootstrap.join(","))
        .set("client.id", &cluster.client_id)
        .set("allow.auto.create.topics", "false")
        .set("socket.timeout.ms", cluster.request_timeout.as_millis().clamp(10, 300_000).to_string())
        .set("socket.connection.setup.timeout.ms", cluster.connect_timeout.as_millis().clamp(1000, 300_000).to_string())
        .set("connections.max.idle.ms", cluster.connection_max_idle.as_millis().min(i32::MAX as u128).to_string())
        .set("socket.nagle.disable", "true")
        .set("log.connection.close", "false")
        .set_log_level(RDKafkaLogLevel::Info);
    configure(&mut config, &cluster.security)?;
    Ok(config)
}

/// A line of librdkafka's log, without secrets.
pub(crate) fn log(guard: &Guard, level: RDKafkaLogLevel, facility: &str, message: &str) {
    use RDKafkaLogLevel::{Alert, Critical, Debug, Emerg, Error, Info, Notice, Warning};
    let message = guard.clean(message);
    match level {
        Emerg | Alert | Critical | Error => tracing::error!(target: "librdkafka", facility, "{message}"),
        Warning => tracing::warn!(target: "librdkafka", facility, "{message}"),
        Notice | Info => tracing::info!(target: "librdkafka", facility, "{message}"),
        Debug => tracing::debug!(target: "librdkafka", facility, "{message}"),
    }
}

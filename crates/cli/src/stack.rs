//! What `serve` and `demo` run: the embedded broker, the engine over it, the server. They start in this order and stop in
//! the other.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_broker::{Broker, BrokerConfig, OpenError, StartError as BrokerStartError};
use tidegate_client::Producer;
use tidegate_server::engine::Clusters;
use tidegate_server::{Server, ServerConfig, StartError};

use crate::exit::{Exit, Failure, chain};
use crate::output::talk;
use crate::signals::Signals;

/// Starts the embedded broker.
pub(crate) async fn start_broker(config: BrokerConfig) -> Result<Broker, Failure> {
    Broker::start(config).await.map_err(|error| match &error {
        BrokerStartError::Bind { addr, source } => cannot_listen(*addr, source, "--kafka-listen"),
        BrokerStartError::NotLoopback { addr } => not_loopback(*addr),
        BrokerStartError::Config { .. } => Failure::usage(chain(&error)),
        BrokerStartError::Storage(OpenError::InUse { .. }) => Failure::new(Exit::Failed, chain(&error))
            .hint("stop the other one, or name another directory with --data-dir"),
        BrokerStartError::Storage(_) => Failure::new(Exit::Failed, chain(&error)),
    })
}

/// Starts the server.
pub(crate) async fn start_server(config: ServerConfig, clusters: impl Into<Clusters>) -> Result<Server, Failure> {
    Server::start(config, clusters).await.map_err(|error| match error {
        StartError::Bind { listen, source } => cannot_listen(listen, &source, "--listen"),
        StartError::NotLoopback { listen } => not_loopback(listen),
        error @ StartError::Reflection(_) => Failure::failed("cannot serve", &error),
    })
}

/// The server's configuration, as far as flags set it.
#[expect(clippy::field_reassign_with_default, reason = "the configuration is non-exhaustive")]
pub(crate) fn server_config(listen: SocketAddr, insecure: bool, grace: Duration) -> ServerConfig {
    let mut config = ServerConfig::default();
    config.listen = listen;
    config.insecure = insecure;
    config.grace = grace;
    config
}

/// The failure of listening on an address that `flag` sets.
pub(crate) fn cannot_listen(addr: SocketAddr, error: &io::Error, flag: &str) -> Failure {
    let any = SocketAddr::new(addr.ip(), 0);
    if error.kind() == io::ErrorKind::AddrInUse {
        return Failure::new(Exit::Failed, format_args!("port {} of {} is taken", addr.port(), addr.ip()))
            .hint(format_args!("another tidegate may be running; choose another port with {flag}, such as {flag} {any} for any free one"));
    }
    Failure::new(Exit::Failed, format_args!("cannot listen on {addr}: {error}"))
        .hint(format_args!("choose another address with {flag}, such as {flag} {any}"))
}

fn not_loopback(addr: SocketAddr) -> Failure {
    Failure::usage(format_args!("{addr} can be reached from other machines, and nothing authenticates callers yet"))
        .hint(format_args!(
            "listen on 127.0.0.1:{}, or say --insecure if that network may do what it likes",
            addr.port()
        ))
}

/// Serves until a signal comes, then stops everything in order: no new requests, streams end or are aborted within the grace
/// period, the producers' records are written, the broker's go to the disk. A second signal ends the process at once.
pub(crate) async fn serve_until_signal(
    server: Server,
    producers: Vec<Producer>,
    broker: Option<Broker>,
    mut signals: Signals,
) -> Result<Exit, Failure> {
    let stop = signals.first().await;
    talk::say(format_args!("{}: stopping; another signal ends the process at once", stop.name()));
    signals.exit_at_the_next();
    server.shutdown().await;
    close(producers, broker).await?;
    talk::say("stopped");
    Ok(Exit::Done)
}

/// Writes what is still on its way and stops the broker. No engine may be left: librdkafka would complain that its broker
/// went away.
pub(crate) async fn close(producers: Vec<Producer>, broker: Option<Broker>) -> Result<(), Failure> {
    let mut flushed = Ok(());
    for producer in producers {
        // Each is closed; the first failure is the one that is told.
        flushed = flushed.and(producer.close().await);
    }
    if let Some(broker) = broker {
        broker.shutdown().await.map_err(|error| Failure::failed("the embedded broker", &error))?;
    }
    flushed.map_err(|error| Failure::new(Exit::Incomplete, chain(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_taken_is_named_with_the_flag_that_sets_it() {
        let addr = SocketAddr::from(([127, 0, 0, 1], 8642));
        let failure = cannot_listen(addr, &io::Error::from(io::ErrorKind::AddrInUse), "--listen");
        assert_eq!(failure.message, "port 8642 of 127.0.0.1 is taken");
        assert!(failure.hint.unwrap().contains("--listen 127.0.0.1:0"));
    }
}

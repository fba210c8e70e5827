//! Going away: what may end does, and what does not is cut so that nobody takes it for whole.

use std::time::Duration;

use tidegate_api::{Code, v1};
use tidegate_server::ServerConfig;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::proxy::Hold;
use crate::support::{DAY_MS, Setup, World, code, soon};

async fn world(grace: Duration) -> World {
    let server = ServerConfig { grace, ..ServerConfig::default() };
    let world = World::with(Setup { server, ..Setup::default() }).await;
    world.create("events", 1).await;
    world.append("events", 0, &[(DAY_MS, b"v")]).await;
    world.proxy.hold(Hold::All);
    world
}

fn everything() -> v1::ReadRangeRequest {
    v1::ReadRangeRequest { topic: "events".to_owned(), ..v1::ReadRangeRequest::default() }
}

#[tokio::test]
async fn a_stream_that_ends_within_the_grace_period_ends_well() {
    let world = world(Duration::from_secs(3_600)).await;
    let mut stream = world.grpc().await.read_range(everything()).await.unwrap().into_inner();
    world.proxy.fetches(1).await;
    let addr = world.server.addr();
    let shutdown = tokio::spawn(world.server.shutdown());
    // Nobody new is let in.
    soon("the closed port", async { while TcpStream::connect(addr).await.is_ok() {} }).await;
    world.proxy.release();
    let mut last = None;
    while let Some(message) = soon("the next message", stream.message()).await.unwrap() {
        last = message.message;
    }
    assert!(matches!(last, Some(v1::read_range_response::Message::End(end)) if end.exhaustive));
    soon("the shutdown", shutdown).await.unwrap();
}

#[tokio::test]
async fn a_stream_that_outlives_the_grace_period_fails_and_says_why() {
    let world = world(Duration::ZERO).await;
    let mut stream = world.grpc().await.read_range(everything()).await.unwrap().into_inner();
    world.proxy.fetches(1).await;
    soon("the shutdown", world.server.shutdown()).await;
    let status = soon("the failure", stream.message()).await.unwrap_err();
    assert_eq!(code(&status), Code::ShuttingDown);
    soon("the end of fetching", world.proxy.no_fetching()).await;
}

#[tokio::test]
async fn a_client_that_does_not_listen_does_not_hold_the_shutdown_up() {
    let world = world(Duration::ZERO).await;
    world.proxy.release();
    world.fill("events", 4_000, 4 << 10).await;
    // A client that asks for much and reads nothing.
    let mut stream = TcpStream::connect(world.server.addr()).await.unwrap();
    stream.write_all(b"GET /v1/topics/events/records HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    stream.readable().await.unwrap();
    soon("the shutdown", world.server.shutdown()).await;
    let mut answer = Vec::new();
    let _ = soon("the end of the answer", stream.read_to_end(&mut answer)).await;
    assert!(answer.starts_with(b"HTTP/1.1 200"));
    assert!(!answer.ends_with(b"0\r\n\r\n"), "it must not look complete");
}

#[tokio::test]
async fn a_server_that_is_dropped_lets_go_of_its_port_and_its_reads() {
    let world = world(Duration::from_secs(3_600)).await;
    let mut stream = world.grpc().await.read_range(everything()).await.unwrap().into_inner();
    world.proxy.fetches(1).await;
    let addr = world.server.addr();
    drop(world.server);
    assert!(soon("the cut", stream.message()).await.is_err());
    soon("the end of fetching", world.proxy.no_fetching()).await;
    soon("the closed port", async { while TcpStream::connect(addr).await.is_ok() {} }).await;
}

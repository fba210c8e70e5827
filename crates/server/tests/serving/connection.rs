//! The port: who is let in, what lives and what is cut. Long silences are scaled down.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate_api::v1;
use tidegate_server::{Server, ServerConfig, StartError};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tonic::transport::Endpoint;

use crate::proxy::{Hold, PingCounter};
use crate::support::{DAY_MS, Setup, World, soon};

#[tokio::test]
async fn a_client_may_ping_as_often_as_it_likes_with_and_without_a_call() {
    let world = World::start().await;
    world.create("events", 1).await;
    world.append("events", 0, &[(DAY_MS, b"v")]).await;
    let io = TcpStream::connect(world.server.addr()).await.unwrap();
    let (client, mut connection) = h2::client::handshake(io).await.unwrap();
    let mut pings = connection.ping_pong().unwrap();
    let connection = tokio::spawn(connection);

    // gRPC servers in C++ and Go answer the third ping within five minutes with GOAWAY and too_many_pings.
    for _ in 0..200 {
        soon("the pong", pings.ping(h2::Ping::opaque())).await.unwrap();
    }
    // The connection is as good as new.
    let uri = format!("http://{}/v1/topics", world.server.addr());
    let mut client = client.ready().await.unwrap();
    let (answer, _) = client.send_request(http::Request::get(uri).body(()).unwrap(), true).unwrap();
    assert_eq!(answer.await.unwrap().status(), 200);

    // And with a call that is silent.
    world.proxy.hold(Hold::All);
    let uri = format!("http://{}/v1/topics/events/records", world.server.addr());
    let mut client = client.ready().await.unwrap();
    let (answer, _) = client.send_request(http::Request::get(uri).body(()).unwrap(), true).unwrap();
    let answer = tokio::spawn(answer);
    world.proxy.fetches(1).await;
    for _ in 0..200 {
        soon("the pong", pings.ping(h2::Ping::opaque())).await.unwrap();
    }
    world.proxy.release();
    let mut body = answer.await.unwrap().unwrap().into_body();
    let mut bytes = 0;
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        bytes += data.len();
        body.flow_control().release_capacity(data.len()).unwrap();
    }
    assert!(bytes > 0);
    drop(client);
    connection.abort();
}

fn pinging(every: Duration) -> ServerConfig {
    ServerConfig { keepalive_interval: every, ..ServerConfig::default() }
}

#[tokio::test]
async fn a_silent_stream_lives_on_the_servers_pings() {
    let world = World::with(Setup { server: pinging(Duration::from_millis(20)), ..Setup::default() }).await;
    world.create("events", 1).await;
    world.append("events", 0, &[(DAY_MS, b"v")]).await;
    let counter = PingCounter::start(world.server.addr()).await;
    let mut client = v1::tidegate_client::TidegateClient::connect(format!("http://{}", counter.addr)).await.unwrap();

    world.proxy.hold(Hold::All);
    let request = v1::ReadRangeRequest { topic: "events".to_owned(), ..Default::default() };
    let mut stream = client.read_range(request).await.unwrap().into_inner();
    // As many as fall into 35 minutes of silence at the default interval.
    soon("the pings", counter.more_pings(70)).await;
    world.proxy.release();
    let mut messages = 0;
    while soon("the next message", stream.message()).await.unwrap().is_some() {
        messages += 1;
    }
    assert_eq!(messages, 2);
}

#[tokio::test]
async fn a_client_that_is_gone_without_a_word_loses_its_read() {
    let mut server = pinging(Duration::from_millis(20));
    // The client below is held to it too, before it falls silent.
    server.keepalive_timeout = Duration::from_secs(2);
    let world = World::with(Setup { server, ..Setup::default() }).await;
    world.create("events", 1).await;
    world.append("events", 0, &[(DAY_MS, b"v")]).await;
    let counter = PingCounter::start(world.server.addr()).await;
    let mut client = v1::tidegate_client::TidegateClient::connect(format!("http://{}", counter.addr)).await.unwrap();
    world.proxy.hold(Hold::All);
    let request = v1::ReadRangeRequest { topic: "events".to_owned(), ..Default::default() };
    let _stream = client.read_range(request).await.unwrap().into_inner();
    world.proxy.fetches(1).await;
    counter.fall_silent();
    soon("the end of fetching", world.proxy.no_fetching()).await;
}

#[tokio::test]
async fn both_faces_answer_on_one_port_and_a_call_that_is_not_there_is_unimplemented() {
    let world = World::start().await;
    let addr = world.server.addr();
    let request = || {
        let uri = format!("http://{addr}/v1/topics");
        http::Request::get(uri).header("host", addr.to_string()).body(Empty::<Bytes>::new()).unwrap()
    };
    let io = TokioIo::new(TcpStream::connect(addr).await.unwrap());
    let (mut http1, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    let answer = http1.send_request(request()).await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.collect().await.unwrap().to_bytes(), r#"{"topics":[]}"#);

    let io = TokioIo::new(TcpStream::connect(addr).await.unwrap());
    let (mut http2, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    assert_eq!(http2.send_request(request()).await.unwrap().status(), 200);
    assert!(world.grpc().await.list_topics(v1::ListTopicsRequest::default()).await.is_ok());

    let unknown = http::Request::post(format!("http://{addr}/tidegate.v1.Tidegate/Nothing"))
        .header("content-type", "application/grpc")
        .body(Empty::<Bytes>::new());
    let answer = http2.send_request(unknown.unwrap()).await.unwrap();
    assert_eq!((answer.status().as_u16(), &answer.headers()["grpc-status"]), (200, &"12".parse().unwrap()));
}

#[tokio::test]
async fn whoever_says_nothing_is_cut_off() {
    let server = ServerConfig { header_read_timeout: Duration::from_millis(100), ..ServerConfig::default() };
    let world = World::with(Setup { server, ..Setup::default() }).await;
    for said in [&b""[..], b"PRI * HTTP/2", b"GET / HTTP/1.1\r\nhost: x\r\n"] {
        let mut stream = TcpStream::connect(world.server.addr()).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, said).await.unwrap();
        let mut answer = Vec::new();
        // A reset is an end too.
        let _ = soon("the end of the connection", stream.read_to_end(&mut answer)).await;
        assert!(!answer.starts_with(b"HTTP/1.1 200"), "{said:?}");
    }
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_their_turn() {
    let server = ServerConfig { max_connections: 1, ..ServerConfig::default() };
    let world = World::with(Setup { server, ..Setup::default() }).await;
    let first = world.grpc().await;
    let endpoint = Endpoint::from_shared(format!("http://{}", world.server.addr())).unwrap();
    let mut second = v1::tidegate_client::TidegateClient::new(endpoint.connect_lazy());
    let waiting = tokio::spawn(async move { second.list_topics(v1::ListTopicsRequest::default()).await });
    assert!(first.clone().list_topics(v1::ListTopicsRequest::default()).await.is_ok());
    assert!(!waiting.is_finished());
    drop(first);
    assert!(soon("its turn", waiting).await.unwrap().is_ok());
}

#[tokio::test]
async fn only_loopback_is_served_unless_it_is_said_to_be_meant() {
    let world = World::start().await;
    let mut config = ServerConfig { listen: SocketAddr::from(([0, 0, 0, 0], 0)), ..ServerConfig::default() };
    let refused = Server::start(config.clone(), world.engine.clone()).await.unwrap_err();
    assert!(matches!(refused, StartError::NotLoopback { .. }), "{refused}");
    config.insecure = true;
    let server = Server::start(config.clone(), world.engine.clone()).await.unwrap();
    config.listen = server.addr();
    let taken = Server::start(config, world.engine.clone()).await.unwrap_err();
    assert!(matches!(taken, StartError::Bind { .. }), "{taken}");
    server.shutdown().await;
}

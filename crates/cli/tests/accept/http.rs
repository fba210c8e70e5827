//! A small HTTP/1.1 client that keeps trailers: what `curl` hides and the tests must see.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

/// A whole answer.
pub(crate) struct Answer {
    pub(crate) status: http::StatusCode,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: http::HeaderMap,
}

/// Sends one GET on a connection of its own and reads the answer to its end, trailers included.
pub(crate) async fn get(server: SocketAddr, path_and_query: &str) -> Answer {
    let stream = tokio::net::TcpStream::connect(server).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = http::Request::get(path_and_query)
        .header("host", server.to_string())
        .header("te", "trailers")
        .body(Empty::<Bytes>::new())
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    let status = response.status();
    let mut body = response.into_body();
    let (mut bytes, mut trailers) = (Vec::new(), http::HeaderMap::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.unwrap_or_else(|error| panic!("{path_and_query}: the transfer was cut: {error:?}"));
        match frame.into_data() {
            Ok(data) => bytes.extend_from_slice(&data),
            Err(frame) => trailers.extend(frame.into_trailers().unwrap()),
        }
    }
    drop(sender);
    connection.await.unwrap().unwrap();
    Answer { status, body: bytes, trailers }
}

//! One connection: HTTP/1.1 or HTTP/2, and which face a request is for.

use std::convert::Infallible;

use axum::body::Body;
use axum::response::Response;
use http::Request;
use http::header::CONTENT_TYPE;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::Watcher;
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use super::ServerConfig;
use super::first_bytes::FirstBytes;
use super::linger::Lingering;

/// What a client may send ahead on one call and on one connection before it was read: publishing at 25 MB/s over 40 ms. It
/// is also what a connection can make the server hold.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 2 << 20;

/// Serves connections.
pub(super) struct Connections {
    builder: auto::Builder<Tasks>,
    faces: Faces,
    tasks: Tasks,
    first_bytes_within: std::time::Duration,
}

/// The two faces.
#[derive(Clone)]
struct Faces {
    rest: axum::Router,
    grpc: axum::Router,
}

/// Tasks that end when everything is cut off.
#[derive(Clone)]
struct Tasks {
    tracker: TaskTracker,
    cut: CancellationToken,
}

impl Connections {
    pub(super) fn new(
        config: &ServerConfig,
        rest: axum::Router,
        grpc: axum::Router,
        tracker: TaskTracker,
        cut: CancellationToken,
    ) -> Self {
        let tasks = Tasks { tracker, cut };
        let mut builder = auto::Builder::new(tasks.clone());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(config.header_read_timeout);
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(config.keepalive_interval)
            .keep_alive_timeout(config.keepalive_timeout)
            .max_concurrent_streams(config.max_streams_per_connection)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        Self { builder, faces: Faces { rest, grpc }, tasks, first_bytes_within: config.header_read_timeout }
    }

    /// Serves one connection in a task of its own. It holds the permit for as long as it lives.
    pub(super) fn serve(&self, stream: TcpStream, permit: OwnedSemaphorePermit, watcher: Watcher) {
        // Frames go out when they are ready; waiting for an acknowledgement would hold small ones up.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY");
        }
        let io = TokioIo::new(FirstBytes::new(Lingering::new(stream), self.first_bytes_within));
        let faces = self.faces.clone();
        let service = service_fn(move |request| faces.clone().answer(request));
        let connection = self.builder.serve_connection(io, service).into_owned();
        let connection = watcher.watch(connection);
        self.tasks.execute(async move {
            if let Err(error) = connection.await {
                // Clients leave in many ways, and none of them is news.
                tracing::debug!(%error, "a connection ended");
            }
            drop(permit);
        });
    }
}

impl Faces {
    async fn answer(self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let face = if is_grpc(&request) { self.grpc } else { self.rest };
        face.oneshot(request).await
    }
}

/// Whether a request is a gRPC call: its content type is `application/grpc` or `application/grpc+…`.
fn is_grpc<B>(request: &Request<B>) -> bool {
    let content_type = request.headers().get(CONTENT_TYPE).map(http::HeaderValue::as_bytes);
    let rest = content_type.and_then(|value| value.strip_prefix(b"application/grpc"));
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
}

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, future: F) {
        let cut = self.cut.clone();
        self.tracker.spawn(async move {
            tokio::select! {
                biased;
                () = cut.cancelled() => {}
                _ = future => {}
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_grpc_content_types_are_grpc() {
        let with = |content_type: &str| Request::builder().header(CONTENT_TYPE, content_type).body(()).unwrap();
        for grpc in ["application/grpc", "application/grpc+proto", "application/grpc; charset=utf-8"] {
            assert!(is_grpc(&with(grpc)), "{grpc}");
        }
        for other in ["application/grpc-web", "application/grpcx", "application/json", ""] {
            assert!(!is_grpc(&with(other)), "{other}");
        }
        assert!(!is_grpc(&Request::new(())));
    }
}

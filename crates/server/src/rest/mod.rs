//! The REST face: thin callers of the engine. `/v1/openapi.json` describes it.
//!
//! - `clusters`, `topics`, `records`, `publish`, `openapi`: one file a resource.
//! - `query`: queries, read strictly.
//! - `answer`, `compress`: bodies that go out; they end well only when the read behind them did.
//! - `decode`, `lines`, `incoming`: bodies that come in.
//! - `error`: errors as answers.
#![allow(unused_qualifications, reason = "utoipa's macros qualify what they are given")]

mod answer;
mod clusters;
mod compress;
mod decode;
mod error;
pub mod incoming;
mod lines;
mod openapi;
mod publish;
mod query;
mod records;
mod topics;

use std::panic::AssertUnwindSafe;

use axum::Router;
use axum::extract::{FromRequestParts, Path, Request};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::FutureExt as _;
use http::request::Parts;
use tidegate_api::{ApiError, Code};
use utoipa::{IntoParams, OpenApi as _};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::engine::{Clusters, Engine};
use error::RestError;
use query::Query;

/// What a REST request may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestLimits {
    /// The most bytes that the body of a publish may have, uncompressed. Default: 1 GiB. The body is read as it comes and
    /// never held as a whole.
    pub max_body_bytes: u64,
    /// The most bytes that one record of such a body may have, as JSON text. This much may be held of one request.
    /// Default: 16 MiB.
    pub max_record_text_bytes: usize,
}

impl Default for RestLimits {
    fn default() -> Self {
        Self { max_body_bytes: 1 << 30, max_record_text_bytes: 16 << 20 }
    }
}

/// What the handlers share.
#[derive(Clone)]
struct Rest {
    clusters: Clusters,
    limits: RestLimits,
    /// The OpenAPI document as JSON.
    document: Bytes,
}

impl Rest {
    /// The engine of the cluster that a query means.
    fn engine(&self, query: &Query<'_>) -> Result<&Engine, ApiError> {
        Ok(self.clusters.get(query.one("cluster")?)?)
    }
}

/// The cluster in a query. Every path that concerns topics takes it.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "the field is there to be described")]
struct ClusterParameter {
    /// Which cluster; `/v1/clusters` lists them. Without it: the default one.
    #[param(example = "default")]
    cluster: Option<String>,
}

/// The topic in a path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "the field is there to be described")]
struct TopicPath {
    /// The topic's name.
    #[param(example = "flights")]
    topic: String,
}

/// The topic in a path, as it reaches a handler. Whether it is a topic's name is for the engine to say.
struct Topic(String);

impl<S: Send + Sync> FromRequestParts<S> for Topic {
    type Rejection = RestError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, RestError> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(topic)) => Ok(Self(topic)),
            Err(rejection) => {
                let message = format!("the topic in the path cannot be read: {}", rejection.body_text());
                Err(ApiError::new(Code::InvalidArgument, message).with("field", "topic").into())
            }
        }
    }
}

/// The REST face of one engine, or of several clusters. What it has no path for is answered in the same shape as every other error.
pub fn router(clusters: impl Into<Clusters>, limits: RestLimits) -> Router {
    let (router, document) = OpenApiRouter::with_openapi(openapi::Document::openapi())
        .routes(routes!(clusters::list_clusters))
        .routes(routes!(topics::list_topics))
        .routes(routes!(topics::describe_topic))
        .routes(routes!(records::read_records, publish::publish_records))
        .routes(routes!(openapi::openapi))
        .split_for_parts();
    let document = serde_json::to_vec_pretty(&document).unwrap_or_else(|error| {
        tracing::error!(%error, "the OpenAPI document cannot be written");
        Vec::new()
    });
    router
        .fallback(error::not_found)
        .method_not_allowed_fallback(error::method_not_allowed)
        .layer(middleware::from_fn(compress::compress))
        .layer(middleware::from_fn(catch_panics))
        .with_state(Rest { clusters: clusters.into(), limits, document: document.into() })
}

/// A panic in a handler is this request's failure, and one to be told in the shape of all failures. A panic while a body is
/// written ends its connection, which aborts the answer as it must.
async fn catch_panics(request: Request, next: Next) -> Response {
    match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => response,
        Err(panic) => {
            let what = panic.downcast_ref::<&str>().map(|what| (*what).to_owned());
            let what = what.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            tracing::error!(what, "a handler panicked");
            let error =
                ApiError::new(Code::Internal, "this server failed while it handled the request; its log says more");
            RestError(error).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::routing::get;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;

    async fn panics() -> Response {
        panic!("a secret of the inside")
    }

    #[tokio::test]
    async fn a_panic_is_an_error_like_any_other_and_tells_nothing() {
        let router = Router::new().route("/", get(panics)).layer(middleware::from_fn(catch_panics));
        let response = router.oneshot(Request::new(Body::empty())).await.unwrap();
        assert_eq!(response.status(), http::StatusCode::INTERNAL_SERVER_ERROR);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: tidegate_api::error::ErrorBody = serde_json::from_slice(&body).unwrap();
        assert_eq!(body.error.code, Code::Internal);
        assert!(!body.error.message.contains("secret"));
    }
}

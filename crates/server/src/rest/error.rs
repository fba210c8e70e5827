//! Errors as REST answers.

use axum::response::{IntoResponse, Response};
use axum::{Json, http};
use tidegate_api::{ApiError, Code};

/// An error on its way out: the status of its code, and the one JSON shape that all errors have.
#[derive(Debug)]
pub(super) struct RestError(pub(super) ApiError);

impl<E: Into<ApiError>> From<E> for RestError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for RestError {
    fn into_response(self) -> Response {
        let entry = self.0.entry();
        if entry.http.is_server_error() {
            tracing::warn!(code = entry.name, message = self.0.message, "a request failed");
        }
        (entry.http, [(http::header::CACHE_CONTROL, "no-store")], Json(self.0.body())).into_response()
    }
}

/// Nothing is at this path.
pub(super) async fn not_found(uri: http::Uri) -> RestError {
    let message = format!("there is nothing at {}; /v1/openapi.json says what there is", uri.path());
    RestError(ApiError::new(Code::NotFound, message).with("path", uri.path()))
}

/// Something is, but not for this method.
pub(super) async fn method_not_allowed(method: http::Method, uri: http::Uri) -> RestError {
    let message = format!("{} does not take {method}", uri.path());
    RestError(ApiError::new(Code::MethodNotAllowed, message).with("path", uri.path()).with("method", method))
}

//! The OpenAPI document: made from the handlers that serve, so that it cannot speak of others.

use std::collections::BTreeMap;

use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use utoipa::openapi::{Content, Ref, RefOr, ResponseBuilder};
use utoipa::{IntoParams, IntoResponses, OpenApi};

use super::Rest;
use super::error::RestError;
use super::query::Query;

/// What the document says apart from the paths.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Tidegate",
        description = "Serves time ranges of the topics of a Kafka-protocol log.\n\nTimes in answers are RFC 3339 in UTC \
                       with milliseconds. Ranges are half-open: the start is inside, the end is not. Every error has one \
                       shape, `{\"error\":{\"code\",\"message\",\"retryable\",\"details\"}}`; programs decide by `code`. \
                       Unknown query parameters are refused. Answers are compressed with zstd or gzip when \
                       `Accept-Encoding` asks for it.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    components(schemas(
        tidegate_api::error::ErrorBody,
        tidegate_api::rest::EndLine,
        tidegate_api::rest::EndStatement,
        tidegate_api::rest::PublishRecord,
    )),
    tags(
        (name = "topics", description = "What topics there are."),
        (name = "records", description = "Reading and publishing records."),
        (name = "document", description = "This document."),
    ),
)]
pub(super) struct Document;

/// The answers of every path that are no success.
pub(super) struct Failures;

impl IntoResponses for Failures {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        let failure = |description: &str| {
            let schema = Ref::from_schema_name("ErrorBody");
            let content = Content::new(Some(RefOr::Ref(schema)));
            ResponseBuilder::new().description(description).content("application/json", content).build().into()
        };
        BTreeMap::from([
            ("4XX".to_owned(), failure("The request cannot be served as it is; the error says why.")),
            ("5XX".to_owned(), failure("This server or the cluster failed; `retryable` says whether to try again.")),
        ])
    }
}

/// The names of the query parameters that `P` describes.
pub(super) fn names<P: IntoParams>() -> Vec<String> {
    P::into_params(|| None).into_iter().map(|parameter| parameter.name).collect()
}

/// This document.
#[utoipa::path(
    get,
    path = "/v1/openapi.json",
    operation_id = "openapi",
    tag = "document",
    responses((status = 200, description = "The OpenAPI 3.1 document.", body = Object), Failures),
)]
pub(super) async fn openapi(State(rest): State<Rest>, RawQuery(query): RawQuery) -> Result<Response, RestError> {
    Query::parse::<&str>(query.as_deref(), &[])?;
    let media_type = HeaderValue::from_static("application/json");
    Ok(([(CONTENT_TYPE, media_type)], rest.document.clone()).into_response())
}

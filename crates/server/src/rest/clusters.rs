//! `GET /v1/clusters`.

use axum::Json;
use axum::extract::{RawQuery, State};
use tidegate_api::rest;

use super::Rest;
use super::error::RestError;
use super::openapi::Failures;
use super::query::Query;

/// List the clusters that this server reaches.
#[utoipa::path(
    get,
    path = "/v1/clusters",
    operation_id = "list_clusters",
    tag = "topics",
    responses((status = 200, description = "The clusters, by name.", body = rest::ClusterList), Failures),
)]
pub(super) async fn list_clusters(
    State(rest): State<Rest>,
    RawQuery(query): RawQuery,
) -> Result<Json<rest::ClusterList>, RestError> {
    Query::parse::<&str>(query.as_deref(), &[])?;
    let default = rest.clusters.default_name().map(str::to_owned);
    Ok(Json(rest::ClusterList { clusters: rest.clusters.names(), default }))
}

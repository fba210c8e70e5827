//! What the broker says about itself, and what it says to those who want more than it does.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::{ApiVersionsResponse, FindCoordinatorRequest, FindCoordinatorResponse};
use kafka_protocol::protocol::StrBytes;

use super::{Facts, Refusal};
use crate::request::SERVED_APIS;

/// What a transactional client meets. Not retriable, so that it says so instead of trying again.
pub(super) const TRANSACTIONS: ResponseError = ResponseError::InvalidRequest;

/// The words that go with it.
pub(super) const TRANSACTIONS_TEXT: &str =
    "the embedded broker has no transactions; use Apache Kafka for transactional producers";

/// The served APIs, with an error if the client asked in a version that is not served.
pub(super) fn api_versions(error: Option<ResponseError>) -> ApiVersionsResponse {
    let keys = SERVED_APIS.map(|served| {
        ApiVersion::default()
            .with_api_key(served.key as i16)
            .with_min_version(served.advertised_min)
            .with_max_version(served.max)
    });
    ApiVersionsResponse::default().with_error_code(error.map_or(0, |error| error.code())).with_api_keys(keys.into())
}

const TRANSACTION_KEY: i8 = 1;

/// There are no coordinators. A group's is "not available": clients that only carry a group id along, and never join it,
/// then go on without one. A transaction's is refused for good.
pub(super) fn find_coordinator(request: &FindCoordinatorRequest, facts: Facts) -> FindCoordinatorResponse {
    let refusal = if request.key_type == TRANSACTION_KEY {
        Refusal::new(TRANSACTIONS, TRANSACTIONS_TEXT)
    } else {
        let text = "the embedded broker has no consumer groups; assign partitions, or use Apache Kafka";
        Refusal::new(ResponseError::CoordinatorNotAvailable, text)
    };
    let code = refusal.error.code();
    if facts.version >= 4 {
        let nobody = |key: &StrBytes| {
            Coordinator::default()
                .with_key(key.clone())
                .with_node_id((-1).into())
                .with_port(-1)
                .with_error_code(code)
                .with_error_message(refusal.text())
        };
        let coordinators = request.coordinator_keys.iter().map(nobody).collect();
        return FindCoordinatorResponse::default().with_coordinators(coordinators);
    }
    let text = if facts.version >= 1 { refusal.text() } else { None };
    FindCoordinatorResponse::default()
        .with_error_code(code)
        .with_error_message(text)
        .with_node_id((-1).into())
        .with_port(-1)
}

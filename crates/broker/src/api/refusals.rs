//! What the broker says about itself, and what it says to those who want more than it does.

use std::sync::Once;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::ApiVersionsResponse;
use kafka_protocol::messages::api_versions_response::ApiVersion;

use super::Refusal;
use crate::request::SERVED_APIS;

/// What a transactional client meets. Not retriable, so that it says so instead of trying again.
const TRANSACTIONS: ResponseError = ResponseError::InvalidRequest;

/// The words that go with it.
const TRANSACTIONS_TEXT: &str = "the embedded broker has no transactions; use Apache Kafka for transactional producers";

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

/// The refusal of anything that belongs to a transaction. Noted once in the log: a client may ask again and again, and
/// some show nothing of the answer.
pub(super) fn transactions(api: &'static str) -> Refusal {
    static NOTED: Once = Once::new();
    NOTED.call_once(|| tracing::warn!(api, "refusing a transactional client: {TRANSACTIONS_TEXT}"));
    Refusal::new(TRANSACTIONS, TRANSACTIONS_TEXT)
}

/// The refusal of a transaction's coordinator. Before version 4, only an authorization's error ends the matter: librdkafka
/// goes on asking after any other until its caller's time is up, and shows the text of this one. From version 4 on the
/// plain refusal is final, and Java's producer shows its text.
pub(super) fn transaction_coordinator(version: i16) -> Refusal {
    let refusal = transactions("FindCoordinator");
    if version >= 4 {
        return refusal;
    }
    Refusal { error: ResponseError::TransactionalIdAuthorizationFailed, ..refusal }
}

//! The one table of public error codes, and the one shape of an error on every interface.
//!
//! gRPC: the status carries a `google.rpc.ErrorInfo` whose reason is the code's name, whose domain is [`DOMAIN`] and whose
//! metadata are the details. REST: the body is an [`ErrorBody`].

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use http::StatusCode;
use serde::{Deserialize, Serialize};
use tonic_types::{ErrorDetails, StatusExt as _};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// The domain of Tidegate's `google.rpc.ErrorInfo`.
pub const DOMAIN: &str = "tidegate";

/// Whose fault an error is: who has to act for it to go away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Who sent the request.
    Caller,
    /// This server.
    Server,
    /// The cluster behind it, or the data in it.
    Cluster,
}

/// One line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The code.
    pub code: Code,
    /// Its name on the wire, such as `UNKNOWN_TOPIC`.
    pub name: &'static str,
    /// The HTTP status that goes with it.
    pub http: StatusCode,
    /// The gRPC status that goes with it.
    pub grpc: tonic::Code,
    /// Whether the same request may well succeed later, unchanged.
    pub retryable: bool,
    /// Who has to act.
    pub fault: Fault,
    /// What it means, in one sentence.
    pub summary: &'static str,
}

macro_rules! codes {
    ($($variant:ident $name:literal $http:ident $grpc:ident $retryable:literal $fault:ident $summary:literal;)+) => {
        /// A public error code. Codes are added, never renamed or given another meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Code {
            $(
                #[doc = $summary]
                #[serde(rename = $name)]
                $variant,
            )+
        }

        impl Code {
            /// All codes, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
        }

        /// The table's line for `code`.
        pub fn entry(code: Code) -> &'static Entry {
            match code {
                $(Code::$variant => const {
                    &Entry {
                        code: Code::$variant,
                        name: $name,
                        http: StatusCode::$http,
                        grpc: tonic::Code::$grpc,
                        retryable: $retryable,
                        fault: Fault::$fault,
                        summary: $summary,
                    }
                },)+
            }
        }
    };
}

codes! {
    InvalidArgument "INVALID_ARGUMENT" BAD_REQUEST InvalidArgument false Caller
        "A field or parameter of the request is missing, unknown or out of its bounds.";
    InvalidTime "INVALID_TIME" BAD_REQUEST InvalidArgument false Caller
        "A time is not in the time grammar, or is a number without a unit.";
    InvalidRange "INVALID_RANGE" BAD_REQUEST InvalidArgument false Caller
        "A range ends before it starts, or its offsets are negative.";
    InvalidRecord "INVALID_RECORD" BAD_REQUEST InvalidArgument false Caller
        "A record to publish cannot be read; the details say which.";
    UnknownCluster "UNKNOWN_CLUSTER" NOT_FOUND NotFound false Caller
        "This server knows no cluster of that name; the details list those that it knows.";
    UnknownTopic "UNKNOWN_TOPIC" NOT_FOUND NotFound false Caller
        "The cluster has no topic of that name; topics are never created by reading or publishing.";
    UnknownPartition "UNKNOWN_PARTITION" NOT_FOUND NotFound false Caller
        "The topic has no such partition.";
    OffsetOutOfRange "OFFSET_OUT_OF_RANGE" RANGE_NOT_SATISFIABLE OutOfRange false Caller
        "The request names offsets that the log no longer holds.";
    DataLoss "DATA_LOSS" GONE DataLoss false Cluster
        "Records of the range vanished from the log while it was read; the details name the offsets.";
    MessageTooLarge "MESSAGE_TOO_LARGE" UNPROCESSABLE_ENTITY ResourceExhausted false Caller
        "A record does not fit a message of the size that the request allows; the details say which field to raise.";
    ValueUnreadable "VALUE_UNREADABLE" UNPROCESSABLE_ENTITY FailedPrecondition false Caller
        "A value has no form in the format asked for; the details name its offset.";
    RecordTooLarge "RECORD_TOO_LARGE" PAYLOAD_TOO_LARGE FailedPrecondition false Caller
        "A record to publish is larger than the topic accepts.";
    RequestTooLarge "REQUEST_TOO_LARGE" PAYLOAD_TOO_LARGE ResourceExhausted false Caller
        "The request, or one message of it, is larger than this server accepts.";
    TooManyReads "TOO_MANY_READS" TOO_MANY_REQUESTS ResourceExhausted true Server
        "As many reads as this server allows at once are in progress.";
    TooManyPublishes "TOO_MANY_PUBLISHES" TOO_MANY_REQUESTS ResourceExhausted true Server
        "As many publishes as this server allows at once are in progress.";
    ShuttingDown "SHUTTING_DOWN" SERVICE_UNAVAILABLE Unavailable true Server
        "This server is going away; another one, or this one later, can serve the request.";
    BatchUnreadable "BATCH_UNREADABLE" BAD_GATEWAY DataLoss false Cluster
        "A record batch in the log is damaged; the details name its offsets.";
    BatchUnsupported "BATCH_UNSUPPORTED" BAD_GATEWAY Unimplemented false Cluster
        "A record batch in the log has a format that this server does not read; the details name its offsets.";
    BatchTooLarge "BATCH_TOO_LARGE" BAD_GATEWAY ResourceExhausted false Server
        "A record batch in the log is larger than this server accepts; the details name its offsets.";
    PublishRefused "PUBLISH_REFUSED" BAD_GATEWAY FailedPrecondition false Cluster
        "The cluster refused a record; records before it may have been written.";
    PublishUnconfirmed "PUBLISH_UNCONFIRMED" GATEWAY_TIMEOUT Unavailable true Cluster
        "The cluster did not confirm the records in time; some of them may have been written.";
    NotAuthorized "NOT_AUTHORIZED" FORBIDDEN PermissionDenied false Caller
        "The cluster does not let this server do that with the topic.";
    ClusterUnavailable "CLUSTER_UNAVAILABLE" SERVICE_UNAVAILABLE Unavailable true Cluster
        "The cluster, or the leader of a partition, cannot be reached.";
    ClusterTimeout "CLUSTER_TIMEOUT" GATEWAY_TIMEOUT Unavailable true Cluster
        "The cluster did not answer in time.";
    ClusterRefused "CLUSTER_REFUSED" BAD_GATEWAY FailedPrecondition false Cluster
        "The cluster answered a request with an error of its own; the details name it.";
    ClusterProtocol "CLUSTER_PROTOCOL" BAD_GATEWAY Internal false Cluster
        "The cluster's answer could not be understood, or is larger than this server accepts.";
    RegistryUnavailable "REGISTRY_UNAVAILABLE" SERVICE_UNAVAILABLE Unavailable true Cluster
        "The schema registry, which has the schemas of the topic's values, does not answer.";
    RegistryRefused "REGISTRY_REFUSED" BAD_GATEWAY FailedPrecondition false Cluster
        "The schema registry refused a request, or answered what makes no sense.";
    SchemaUnusable "SCHEMA_UNUSABLE" UNPROCESSABLE_ENTITY FailedPrecondition false Caller
        "The schema that values should be written with is not registered, or is of no use.";
    NotFound "NOT_FOUND" NOT_FOUND NotFound false Caller
        "There is nothing at this path.";
    MethodNotAllowed "METHOD_NOT_ALLOWED" METHOD_NOT_ALLOWED Unimplemented false Caller
        "The path does not take this method.";
    NotAcceptable "NOT_ACCEPTABLE" NOT_ACCEPTABLE InvalidArgument false Caller
        "The answer cannot be given in any of the accepted formats.";
    UnsupportedMediaType "UNSUPPORTED_MEDIA_TYPE" UNSUPPORTED_MEDIA_TYPE InvalidArgument false Caller
        "The request body has a type that the path does not take.";
    Internal "INTERNAL" INTERNAL_SERVER_ERROR Internal false Server
        "This server failed; its log says more.";
}

impl Code {
    /// The table's line for it.
    pub fn entry(self) -> &'static Entry {
        entry(self)
    }

    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        entry(self).name
    }

    /// The code of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.name() == name)
    }
}

/// A string, not a closed list: a client made from the OpenAPI document must live with codes that are added later.
impl PartialSchema for Code {
    fn schema() -> RefOr<Schema> {
        let table = Self::ALL.iter().map(|code| {
            let Entry { name, http, summary, .. } = code.entry();
            format!("- `{name}` ({}): {summary}", http.as_u16())
        });
        let description =
            format!("What an error is. Codes are added, never renamed.\n\n{}", table.collect::<Vec<_>>().join("\n"));
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some(description))
            .examples([Self::UnknownTopic.name()])
            .into()
    }
}

impl ToSchema for Code {}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An error as callers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// Its code.
    pub code: Code,
    /// What went wrong, for people: one sentence with the names and numbers of this case.
    pub message: String,
    /// The same names and numbers for programs, such as `topic`, `partition`, `offset`. Names are snake_case.
    pub details: BTreeMap<String, String>,
}

impl ApiError {
    /// An error without details.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: BTreeMap::new() }
    }

    /// The same error with one more detail.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.details.insert(name.to_owned(), value.to_string());
        self
    }

    /// The table's line for its code.
    pub fn entry(&self) -> &'static Entry {
        entry(self.code)
    }

    /// The REST body.
    pub fn body(&self) -> ErrorBody {
        ErrorBody {
            error: ErrorObject {
                code: self.code,
                message: self.message.clone(),
                retryable: self.entry().retryable,
                details: self.details.clone(),
            },
        }
    }

    /// The gRPC status.
    pub fn to_status(&self) -> tonic::Status {
        let metadata: HashMap<String, String> = self.details.clone().into_iter().collect();
        let details = ErrorDetails::with_error_info(self.code.name(), DOMAIN, metadata);
        tonic::Status::with_error_details(self.entry().grpc, self.message.clone(), details)
    }

    /// The error that a Tidegate server put into `status`; `None` for a status that something else made, such as a proxy,
    /// the transport, or a server with codes that this version does not know.
    pub fn from_status(status: &tonic::Status) -> Option<Self> {
        let info = status.get_details_error_info()?;
        if info.domain != DOMAIN {
            return None;
        }
        Some(Self {
            code: Code::from_name(&info.reason)?,
            message: status.message().to_owned(),
            details: info.metadata.into_iter().collect(),
        })
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for ApiError {}

impl From<ApiError> for tonic::Status {
    fn from(error: ApiError) -> Self {
        error.to_status()
    }
}

impl From<ErrorBody> for ApiError {
    fn from(ErrorBody { error }: ErrorBody) -> Self {
        Self { code: error.code, message: error.message, details: error.details }
    }
}

/// The body of every REST answer that is not a success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorObject,
}

/// An error in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorObject {
    /// Its code: programs decide by it.
    pub code: Code,
    /// What went wrong, for people.
    pub message: String,
    /// Whether the same request may well succeed later, unchanged.
    pub retryable: bool,
    /// The names and numbers of this case.
    pub details: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_back_to_its_code_and_is_what_json_says() {
        for code in Code::ALL.iter().copied() {
            assert_eq!(Code::from_name(code.name()), Some(code));
            assert_eq!(serde_json::to_value(code).unwrap(), code.name());
            assert_eq!(code.entry().code, code);
        }
    }

    #[test]
    fn whose_fault_it_is_agrees_with_the_http_class() {
        for entry in Code::ALL.iter().copied().map(entry) {
            let server_class = entry.http.is_server_error();
            match entry.fault {
                Fault::Caller => assert!(entry.http.is_client_error(), "{}", entry.name),
                // 410: gone for good, which no retry mends. 429: the caller did nothing wrong, and may come back.
                Fault::Server | Fault::Cluster => assert!(
                    server_class || matches!(entry.http, StatusCode::GONE | StatusCode::TOO_MANY_REQUESTS),
                    "{}",
                    entry.name
                ),
            }
        }
    }

    #[test]
    fn what_clients_retry_by_themselves_is_retryable() {
        // gRPC's own retry policies and HTTP clients take these as "try again".
        for entry in Code::ALL.iter().copied().map(entry) {
            assert_eq!(
                entry.retryable,
                entry.grpc == tonic::Code::Unavailable || entry.http == StatusCode::TOO_MANY_REQUESTS,
                "{}",
                entry.name
            );
        }
    }

    #[test]
    fn an_error_survives_the_way_through_a_status() {
        for code in Code::ALL.iter().copied() {
            let error = ApiError::new(code, "what happened").with("topic", "flights").with("offset", 7);
            let status = error.to_status();
            assert_eq!(status.code(), code.entry().grpc);
            assert_eq!(ApiError::from_status(&status), Some(error));
        }
    }

    #[test]
    fn a_status_of_somebody_else_is_not_taken_for_ours() {
        assert_eq!(ApiError::from_status(&tonic::Status::unavailable("proxy")), None);
        let foreign = ErrorDetails::with_error_info("UNKNOWN_TOPIC", "example.org", HashMap::new());
        let status = tonic::Status::with_error_details(tonic::Code::NotFound, "no", foreign);
        assert_eq!(ApiError::from_status(&status), None);
    }

    #[test]
    fn the_rest_body_has_the_documented_shape() {
        let error = ApiError::new(Code::UnknownTopic, "no topic \"a\"").with("topic", "a");
        let json = serde_json::to_string(&error.body()).unwrap();
        assert_eq!(
            json,
            r#"{"error":{"code":"UNKNOWN_TOPIC","message":"no topic \"a\"","retryable":false,"details":{"topic":"a"}}}"#
        );
        let read: ErrorBody = serde_json::from_str(&json).unwrap();
        assert_eq!(ApiError::from(read), error);
    }
}

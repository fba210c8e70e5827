//! The client of a Kafka-protocol cluster: metadata with leader routing, offset lookup, topic administration and
//! reading over connections of our own; groups and producing through librdkafka.
//!
//! - [`Cluster`] is where everything starts; it is cheap to clone.
//! - A [`Fetcher`] reads: each [`Reader`] one [`Slice`] of a topic-partition, within a [`ByteBudget`].
//! - [`RegistryClient`] asks a schema registry.
//! - [`GroupSource`] reads what a consumer group gives to one of its members.
//! - [`Producer`] writes, idempotent and `acks=all`; a [`ProduceSession`] counts what one caller sent.
//!
//! Requests are built and responses are checked by pure functions, apart from the tasks that do the I/O. Every operation
//! has its own error type; what went wrong between us and one broker is a [`RequestError`] that names broker and request.

mod admin;
mod budget;
mod cluster;
mod config;
mod conn;
mod error;
mod fetch;
#[doc(hidden)]
pub mod fuzzing;
#[cfg(feature = "produce")]
mod group;
mod http;
#[cfg(feature = "produce")]
mod librdkafka;
mod offsets;
#[cfg(feature = "produce")]
mod produce;
mod registry;
mod retry;
mod security;

pub use admin::{
    CreateTopicError, DeleteRecordsError, DeleteTopicError, DescribeConfigsError, NewTopic, TopicConfigEntry,
};
pub use budget::{ByteBudget, Reserve};
pub use cluster::{Cluster, MetadataError, PartitionInfo, TopicInfo};
pub use config::{ClusterConfig, RetryLimits};
pub use conn::{ConnectionFacts, FirstByte, TcpFacts};
pub use error::{AuthenticationError, ConnectError, ConnectStage, KafkaCode, RequestError, RequestFailure};
pub use fetch::{
    Choice, Fetcher, FetcherOptions, PaceReason, ReadError, Reader, ReaderFacts, ReaderOptions, Slice, Times, Totals,
    Waits,
};
#[cfg(feature = "produce")]
pub use group::{
    AssignedPartition, AssignmentStrategy, GroupCommitter, GroupCounts, GroupError, GroupEvent, GroupOptions,
    GroupProtocol, GroupSource, OffsetReset, OnDataLoss,
};
pub use http::{HttpClient, HttpError, HttpFailure, HttpLimits};
pub use offsets::{ListOffsetsError, OffsetAndTimestamp, OffsetAnswer, OffsetQuery};
#[cfg(feature = "produce")]
pub use produce::{
    ProduceError, ProduceSession, ProduceSummary, ProducedPartition, Producer, ProducerError, ProducerSettings,
    RecordToSend,
};
pub use registry::{
    NewSchema, RegistryAuth, RegistryClient, RegistryConfig, RegistryError, RegistrySettingError, SchemaName,
};
pub use security::{
    CommandTokens, ConnectionString, ConnectionStringError, Extensions, FileTokens, OidcSettings, OidcTokens,
    OtherTopic, PemProblem, Sasl, SaslProblem, ScramError, ScramHash, Secret, Security, SecurityError, TlsIdentity,
    TlsSettingError, TlsSettings, Token, TokenError, TokenFailure, TokenFuture, TokenSource, Tokens, Trust,
};

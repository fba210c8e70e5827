//! The types of the REST bodies. They are the OpenAPI document's schemas, and what a client may deserialize into. The body
//! of an error is [`crate::error::ErrorBody`].
//!
//! Times are RFC 3339 in UTC with milliseconds. A time that RFC 3339 cannot write (from 9999-12-30T22:00Z on) is the text
//! `<milliseconds since 1970>ms`, a form that Tidegate's time grammar shares. Offsets are Kafka's. Ranges are half-open.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// The clusters that the server reaches.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterList {
    /// Their names, as the server's configuration gives them, sorted.
    #[schema(example = json!(["default"]))]
    pub clusters: Vec<String>,
    /// The one that a request means which names none; null where every request must name one.
    #[schema(required, example = "default")]
    pub default: Option<String>,
}

/// The topics of the cluster.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TopicList {
    /// Sorted by name.
    pub topics: Vec<TopicSummary>,
}

/// One topic of the list.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TopicSummary {
    /// The topic's name.
    #[schema(example = "flights")]
    pub name: String,
    /// How many partitions it has.
    pub partitions: u32,
    /// Whether the cluster keeps it for itself.
    pub internal: bool,
    /// What its values are, as the server's configuration says.
    pub payload_kind: PayloadKind,
    /// With `protobuf`: the full name of the message; otherwise null.
    #[schema(required, example = "tidegate.examples.flights.v1.Flight")]
    pub message: Option<String>,
}

/// What the values of a topic are.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PayloadKind {
    /// Nothing is known of them.
    Bytes,
    /// Each is a JSON document.
    Json,
    /// Each is a Protobuf message.
    Protobuf,
    /// Each names its schema, which is in a schema registry.
    Registry,
}

/// Who set a record's timestamp.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
pub enum TimestampType {
    /// The producer.
    CreateTime,
    /// The broker, when it appended the record.
    LogAppendTime,
}

/// One topic.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TopicDescription {
    /// The topic's name.
    #[schema(example = "flights")]
    pub name: String,
    /// The topic's id; null where the cluster has no topic ids.
    #[schema(required)]
    pub topic_id: Option<String>,
    /// Its partitions, by number.
    pub partitions: Vec<PartitionDescription>,
    /// The topic's present `message.timestamp.type`; null where the cluster does not say. It says nothing of records
    /// already written.
    #[schema(required)]
    pub timestamp_type: Option<TimestampType>,
    /// What its values are, as the server's configuration says.
    pub payload_kind: PayloadKind,
    /// With `protobuf`: the full name of the message; otherwise null.
    #[schema(required)]
    pub message: Option<String>,
}

/// One partition of a topic.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PartitionDescription {
    /// Its number, from 0.
    pub partition: i32,
    /// The first offset that the log still holds.
    pub log_start_offset: i64,
    /// The offset after the last record that is safe on all in-sync replicas.
    pub high_watermark: i64,
    /// The end of what a `read_committed` reader can see.
    pub last_stable_offset: i64,
    /// The timestamp of the first record that has one; null when there is none.
    #[schema(required, example = "2013-01-01T10:17:00.000Z")]
    pub first_timestamp: Option<String>,
    /// The largest timestamp in the partition; null when no record has one, or the cluster cannot say.
    #[schema(required, example = "2013-12-31T23:59:00.000Z")]
    pub last_timestamp: Option<String>,
    /// The leader's node id; null when there is none.
    #[schema(required)]
    pub leader: Option<i32>,
}

/// A record as `ndjson` and `json` show it. An `ndjson` line can be published again as it is; a null timestamp becomes the
/// time of publishing then.
///
/// Exactly one of `key` and `key_base64` is there, and exactly one of `value` and `value_base64`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The partition it stands in.
    pub partition: i32,
    /// Its offset there.
    pub offset: i64,
    /// Its timestamp; null when it has none.
    #[schema(required, example = "2013-02-01T10:15:00.000Z")]
    pub timestamp: Option<String>,
    /// Who set the timestamp.
    pub timestamp_type: TimestampType,
    /// The key, when it is UTF-8 text; null: the record has no key, which is not the empty key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// A key that is not UTF-8, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_base64: Option<String>,
    /// The value as JSON: the stored text of a JSON value, the JSON form of a Protobuf value. null: the record has no
    /// value (a tombstone).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// A value that has no JSON form, as stored, in base64: not UTF-8, not JSON, a Protobuf value that cannot be decoded,
    /// JSON with half a surrogate pair, and the four bytes `null`, since `value: null` means that there is no value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_base64: Option<String>,
    /// Why a value of a `json` or `protobuf` topic comes as `value_base64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_error: Option<String>,
    /// The headers, in order, repeats kept.
    pub headers: Vec<Header>,
}

/// One header of a record. Exactly one of `name` and `name_base64` is there, and exactly one of `value` and
/// `value_base64`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Its name, when it is UTF-8 text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A name that is not UTF-8, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_base64: Option<String>,
    /// Its value, when it is UTF-8 text; null: the header has no value, which is not the empty value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// A value that is not UTF-8, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_base64: Option<String>,
}

/// The answer of `format=json`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordList {
    /// The records. Each partition's come in offset order.
    pub records: Vec<Record>,
    /// What was read, and what it proves.
    pub end: EndStatement,
}

/// The last line of `format=ndjson`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EndLine {
    /// What was read, and what it proves.
    pub end: EndStatement,
}

/// What was read, and what it proves.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EndStatement {
    /// Records sent, over all partitions.
    pub records_sent: u64,
    /// Every record of the range below the noted ends was considered, in every partition that was asked for.
    pub exhaustive: bool,
    /// Which records of transactions were seen.
    pub isolation: Isolation,
    /// The start of the time range as it was understood; null: open.
    #[schema(required, example = "2013-02-01T00:00:00.000Z")]
    pub from: Option<String>,
    /// Its end; null: open.
    #[schema(required, example = "2013-03-01T00:00:00.000Z")]
    pub until: Option<String>,
    /// Values that have no JSON form and were sent as stored.
    pub values_not_converted: u64,
    /// Offsets above the noted ends that were not considered because a transaction is open, over all partitions.
    pub undecided_offsets: u64,
    /// Each partition that was asked for. Absent in a trailer that would have become too long for HTTP clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitions: Option<Vec<PartitionEnd>>,
    /// In a trailer without `partitions`: how many there were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitions_left_out: Option<u64>,
}

/// What was read of one partition.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PartitionEnd {
    /// The partition.
    pub partition: i32,
    /// The offset at which reading began.
    pub start_offset: i64,
    /// The offset before which all offsets from `start_offset` on were read.
    pub end_offset: i64,
    /// The end of the partition noted when the request began: the last stable offset under `read_committed`, else the
    /// high watermark.
    pub noted_end_offset: i64,
    /// Records looked at.
    pub records_scanned: u64,
    /// Records of the range.
    pub records_sent: u64,
    /// Records of the range at or after `first_offset_at_or_after_until`: a read that stops at that offset misses them.
    pub late_records: u64,
    /// Records without a timestamp, which no range with a bound holds.
    pub untimed_records: u64,
    /// How the end was found.
    pub proof: Proof,
    /// Every record of the range below `noted_end_offset` was considered. It says nothing of what lies above: records that
    /// came later, and `undecided_offsets`.
    pub exhaustive: bool,
    /// Offsets of the range that the log no longer holds.
    pub lost_offsets: Vec<LostOffsets>,
    /// The first offset whose timestamp is at or after `until`, as seen while reading; null: none, or no `until`.
    #[schema(required)]
    pub first_offset_at_or_after_until: Option<i64>,
    /// The high watermark noted when the request began.
    pub high_watermark: i64,
    /// The last stable offset noted when the request began; null under `read_uncommitted`, which it does not bound.
    #[schema(required)]
    pub last_stable_offset: Option<i64>,
    /// Offsets between the last stable offset and the high watermark that the range may reach into and that were not
    /// considered, because a transaction is open. Read again when it has ended, or with `isolation=read_uncommitted`.
    pub undecided_offsets: u64,
}

/// Offsets `[start, end)` that the log no longer holds.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LostOffsets {
    /// The first.
    pub start: i64,
    /// The one after the last.
    pub end: i64,
}

/// Which records of transactions a reader sees.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// Those of committed transactions.
    ReadCommitted,
    /// All.
    ReadUncommitted,
}

/// How the end of a read was found.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// Everything up to the noted end was read. Assumes nothing.
    FullScan,
    /// The caller named the offsets.
    Offsets,
    /// A way that the program which shows it does not know: it is older than the server.
    #[serde(other)]
    Unknown,
}

/// A record to publish. Everything may be left out; what `ndjson` shows of a record may be sent back as it is.
///
/// `offset`, `timestamp_type` and `value_error` say where a record came from and are not used. An object whose only field is
/// `end` is the end statement of a read and skipped, as a line or as an element of an array; `end` beside other fields is
/// refused. An `{"error":…}` line is refused: the read that wrote it failed. An array is no record.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PublishRecord {
    /// The key. A string is stored as its text, any other JSON as its own text, null as no key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Value>,
    /// A key as bytes, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_base64: Option<String>,
    /// The value: any JSON, stored as its text exactly as sent; null is stored as no value (a tombstone). On a
    /// `protobuf` topic the JSON is converted to the topic's message, and what the message does not have is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// A value as bytes, in base64, stored as it is on every topic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_base64: Option<String>,
    /// The headers, in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<Vec<Header>>,
    /// RFC 3339 with an offset, or `1714521600000ms`; null or absent: the time of publishing. A record that a read showed
    /// with null, having no timestamp, so gets one when it is published again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "2013-02-01T10:15:00.000Z")]
    pub timestamp: Option<String>,
    /// The partition; null or absent: chosen by the key as Java's producer would, at random without a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<i32>,
    /// Not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<i64>,
    /// Not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp_type: Option<TimestampType>,
    /// Not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_error: Option<String>,
}

/// All records of the request are durable.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PublishAnswer {
    /// How many.
    pub records: u64,
    /// Where they are, by partition.
    pub partitions: Vec<PublishedPartition>,
    /// What the sender should know all the same, such as that the topic's retention would delete the records at once.
    pub warnings: Vec<String>,
}

/// What a request wrote to one partition.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PublishedPartition {
    /// The partition.
    pub partition: i32,
    /// How many records.
    pub records: u64,
    /// The first one's offset; -1 when the cluster recognised all of them as written before and did not tell.
    pub first_offset: i64,
    /// The last one's offset, likewise. Others may have written in between.
    pub last_offset: i64,
}

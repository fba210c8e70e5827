//! From the bytes of a frame to a request, with every length checked.
//!
//! Source: Kafka's protocol guide, KIP-511 (ApiVersions), KIP-482 (flexible versions).

mod meter;

use bytes::Bytes;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Decodable, StrBytes};

use crate::config::BrokerLimits;
use meter::Metered;

/// One API that this broker serves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServedApi {
    pub(crate) key: ApiKey,
    /// The lowest version in the ApiVersions answer.
    pub(crate) advertised_min: i16,
    /// The versions that are answered.
    pub(crate) min: i16,
    pub(crate) max: i16,
}

const fn api(key: ApiKey, min: i16, max: i16) -> ServedApi {
    ServedApi { key, advertised_min: min, min, max }
}

/// All APIs that are served, in the order of their keys.
pub(crate) const SERVED_APIS: [ServedApi; 35] = [
    // Kafka 4 answers Produce from version 3 on and still advertises 0: librdkafka before 2.11 sends no compressed batch
    // to a broker that does not (KAFKA-18659).
    ServedApi { key: ApiKey::Produce, advertised_min: 0, min: 3, max: 13 },
    api(ApiKey::Fetch, 4, 16),
    api(ApiKey::ListOffsets, 1, 10),
    api(ApiKey::Metadata, 0, 13),
    api(ApiKey::OffsetCommit, 2, 9),
    api(ApiKey::OffsetFetch, 1, 9),
    api(ApiKey::FindCoordinator, 0, 6),
    api(ApiKey::JoinGroup, 0, 9),
    api(ApiKey::Heartbeat, 0, 4),
    api(ApiKey::LeaveGroup, 0, 5),
    api(ApiKey::SyncGroup, 0, 5),
    api(ApiKey::DescribeGroups, 0, 6),
    api(ApiKey::ListGroups, 0, 5),
    api(ApiKey::ApiVersions, 0, 4),
    api(ApiKey::CreateTopics, 2, 7),
    api(ApiKey::DeleteTopics, 1, 6),
    api(ApiKey::DeleteRecords, 0, 2),
    api(ApiKey::InitProducerId, 0, 5),
    api(ApiKey::OffsetForLeaderEpoch, 2, 4),
    // Those of transactions and ACLs are answered with a refusal.
    api(ApiKey::AddPartitionsToTxn, 0, 5),
    api(ApiKey::AddOffsetsToTxn, 0, 4),
    api(ApiKey::EndTxn, 0, 5),
    api(ApiKey::TxnOffsetCommit, 0, 5),
    api(ApiKey::DescribeAcls, 1, 3),
    api(ApiKey::CreateAcls, 1, 3),
    api(ApiKey::DeleteAcls, 1, 3),
    api(ApiKey::DescribeConfigs, 1, 4),
    api(ApiKey::AlterConfigs, 0, 2),
    api(ApiKey::DescribeLogDirs, 1, 4),
    api(ApiKey::CreatePartitions, 0, 3),
    api(ApiKey::DeleteGroups, 0, 2),
    api(ApiKey::IncrementalAlterConfigs, 0, 1),
    api(ApiKey::OffsetDelete, 0, 0),
    api(ApiKey::DescribeCluster, 0, 2),
    // Answered with a refusal, as Kafka does where the protocol is switched off: without it librdkafka looks for another
    // coordinator without end.
    api(ApiKey::ConsumerGroupHeartbeat, 0, 1),
];

/// A request, decoded.
#[derive(Debug)]
pub struct DecodedRequest {
    pub(crate) api: ApiKey,
    pub(crate) version: i16,
    pub(crate) correlation_id: i32,
    pub(crate) client_id: Option<StrBytes>,
    pub(crate) body: RequestBody,
}

impl DecodedRequest {
    /// The API key on the wire.
    pub fn api_key(&self) -> i16 {
        self.api as i16
    }

    /// The version on the wire.
    pub fn api_version(&self) -> i16 {
        self.version
    }

    /// What the client matches the answer by.
    pub fn correlation_id(&self) -> i32 {
        self.correlation_id
    }

    /// The client's name for itself.
    pub fn client_id(&self) -> Option<&str> {
        self.client_id.as_ref().map(StrBytes::as_str)
    }
}

#[derive(Debug)]
pub(crate) enum RequestBody {
    AddOffsetsToTxn,
    AddPartitionsToTxn(AddPartitionsToTxnRequest),
    AlterConfigs(AlterConfigsRequest),
    ApiVersions,
    CreateAcls(CreateAclsRequest),
    CreatePartitions(CreatePartitionsRequest),
    CreateTopics(CreateTopicsRequest),
    DeleteAcls(DeleteAclsRequest),
    DeleteGroups(DeleteGroupsRequest),
    DeleteRecords(DeleteRecordsRequest),
    DeleteTopics(DeleteTopicsRequest),
    DescribeAcls,
    DescribeCluster(DescribeClusterRequest),
    DescribeConfigs(DescribeConfigsRequest),
    DescribeGroups(DescribeGroupsRequest),
    DescribeLogDirs(DescribeLogDirsRequest),
    EndTxn,
    Fetch(FetchRequest),
    FindCoordinator(FindCoordinatorRequest),
    Heartbeat(HeartbeatRequest),
    IncrementalAlterConfigs(IncrementalAlterConfigsRequest),
    InitProducerId(InitProducerIdRequest),
    JoinGroup(JoinGroupRequest),
    LeaveGroup(LeaveGroupRequest),
    ListGroups(ListGroupsRequest),
    ListOffsets(ListOffsetsRequest),
    Metadata(MetadataRequest),
    OffsetCommit(OffsetCommitRequest),
    OffsetDelete(OffsetDeleteRequest),
    ConsumerGroupHeartbeat,
    OffsetFetch(OffsetFetchRequest),
    OffsetForLeaderEpoch(OffsetForLeaderEpochRequest),
    Produce(ProduceRequest),
    SyncGroup(SyncGroupRequest),
    TxnOffsetCommit(TxnOffsetCommitRequest),
}

/// Why a frame is not a request that this broker answers.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The frame ends inside the request header.
    #[error("the request is {bytes} bytes long, too short for a request header")]
    Short {
        /// Its length.
        bytes: usize,
    },
    /// No API with this key is served.
    #[error("API key {api_key} (version {api_version}) is not served")]
    UnknownApi {
        /// The key.
        api_key: i16,
        /// The version.
        api_version: i16,
    },
    /// The API is served, this version of it is not.
    #[error("version {api_version} of API key {api_key} is not served, {min} to {max} are")]
    UnsupportedVersion {
        /// The key.
        api_key: i16,
        /// The version.
        api_version: i16,
        /// What the client matches the answer by.
        correlation_id: i32,
        /// The lowest version served.
        min: i16,
        /// The highest version served.
        max: i16,
    },
    /// The frame is larger than this API ever needs.
    #[error("a request of API key {api_key} is {bytes} bytes long, at most {limit} are allowed")]
    TooLarge {
        /// The key.
        api_key: i16,
        /// The frame's length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The bytes do not form the request that the header announces.
    #[error("a request of API key {api_key}, version {api_version}, cannot be decoded: {reason}")]
    Malformed {
        /// The key.
        api_key: i16,
        /// The version.
        api_version: i16,
        /// What the decoder met.
        reason: String,
    },
}

/// Decodes one request frame, without its size prefix, under the default [`BrokerLimits`]. Pure.
///
/// # Errors
/// [`RequestError`] for whatever is not a request that the broker answers. Memory stays within a small multiple of the
/// frame's length, whatever the lengths inside it claim.
pub fn decode_request(frame: Bytes) -> Result<DecodedRequest, RequestError> {
    decode_with_limits(frame, &BrokerLimits::default())
}

/// The first four bytes of a frame, and what they allow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameKind {
    pub(crate) api_key: i16,
    pub(crate) limit: usize,
}

impl FrameKind {
    /// Reads the API key and finds the size limit that goes with it.
    pub(crate) fn of(key: [u8; 2], limits: &BrokerLimits) -> Self {
        let api_key = i16::from_be_bytes(key);
        let limit = if api_key == ApiKey::Produce as i16 { limits.max_produce_bytes } else { limits.max_request_bytes };
        Self { api_key, limit }
    }

    /// Whether the frame carries records.
    pub(crate) fn is_produce(self) -> bool {
        self.api_key == ApiKey::Produce as i16
    }

    /// Checks a frame's size against the limit.
    pub(crate) fn check(self, bytes: usize) -> Result<(), RequestError> {
        if bytes > self.limit {
            return Err(RequestError::TooLarge { api_key: self.api_key, bytes, limit: self.limit });
        }
        Ok(())
    }

    /// What a frame of `bytes` may take in memory, decoded: the frame itself and [`Metered`]'s steps. See
    /// [`decode_steps`].
    pub(crate) fn memory(self, bytes: usize) -> usize {
        bytes.saturating_mul(if self.is_produce() { 4 } else { 16 })
    }
}

/// How many values a frame may be decoded into.
///
/// A value costs at most some 75 bytes: the widest element of an array, with the vector's growth, over the values that it
/// consists of. Real requests need one for every 4 bytes at most, and far fewer where record batches are part of them; the
/// fixed part lets small requests be as dense as they like.
fn decode_steps(api: ApiKey, bytes: usize) -> usize {
    16_384 + if api == ApiKey::Produce { bytes / 24 } else { bytes / 4 }
}

pub(crate) fn decode_with_limits(frame: Bytes, limits: &BrokerLimits) -> Result<DecodedRequest, RequestError> {
    let [k0, k1, v0, v1, c0, c1, c2, c3] =
        *frame.first_chunk::<8>().ok_or(RequestError::Short { bytes: frame.len() })?;
    FrameKind::of([k0, k1], limits).check(frame.len())?;
    let api_key = i16::from_be_bytes([k0, k1]);
    let api_version = i16::from_be_bytes([v0, v1]);
    let correlation_id = i32::from_be_bytes([c0, c1, c2, c3]);
    let served = SERVED_APIS
        .iter()
        .find(|served| served.key as i16 == api_key)
        .ok_or(RequestError::UnknownApi { api_key, api_version })?;
    let ServedApi { key: api, min, max, .. } = *served;
    if api_version < min || api_version > max {
        return Err(RequestError::UnsupportedVersion { api_key, api_version, correlation_id, min, max });
    }
    let steps = decode_steps(api, frame.len());
    let mut buffer = Metered::new(frame, steps);
    let malformed = |Undecodable(reason)| RequestError::Malformed { api_key, api_version, reason };
    let header: RequestHeader = decode(&mut buffer, api.request_header_version(api_version)).map_err(malformed)?;
    let body = decode_body(api, api_version, &mut buffer).map_err(malformed)?;
    Ok(DecodedRequest { api, version: api_version, correlation_id, client_id: header.client_id, body })
}

fn decode_body(api: ApiKey, version: i16, buffer: &mut Metered) -> Result<RequestBody, Undecodable> {
    Ok(match api {
        ApiKey::ApiVersions => {
            // It says who the client is, and nothing that the answer depends on.
            let _: ApiVersionsRequest = decode(buffer, version)?;
            RequestBody::ApiVersions
        }
        ApiKey::AddOffsetsToTxn => refused::<AddOffsetsToTxnRequest>(buffer, version, RequestBody::AddOffsetsToTxn)?,
        ApiKey::AddPartitionsToTxn => RequestBody::AddPartitionsToTxn(decode(buffer, version)?),
        ApiKey::AlterConfigs => RequestBody::AlterConfigs(decode(buffer, version)?),
        ApiKey::CreateAcls => RequestBody::CreateAcls(decode(buffer, version)?),
        ApiKey::CreatePartitions => RequestBody::CreatePartitions(decode(buffer, version)?),
        ApiKey::CreateTopics => RequestBody::CreateTopics(decode(buffer, version)?),
        ApiKey::DeleteAcls => RequestBody::DeleteAcls(decode(buffer, version)?),
        ApiKey::DeleteGroups => RequestBody::DeleteGroups(decode(buffer, version)?),
        ApiKey::DeleteRecords => RequestBody::DeleteRecords(decode(buffer, version)?),
        ApiKey::DeleteTopics => RequestBody::DeleteTopics(decode(buffer, version)?),
        ApiKey::DescribeAcls => refused::<DescribeAclsRequest>(buffer, version, RequestBody::DescribeAcls)?,
        ApiKey::DescribeCluster => RequestBody::DescribeCluster(decode(buffer, version)?),
        ApiKey::DescribeConfigs => RequestBody::DescribeConfigs(decode(buffer, version)?),
        ApiKey::DescribeGroups => RequestBody::DescribeGroups(decode(buffer, version)?),
        ApiKey::DescribeLogDirs => RequestBody::DescribeLogDirs(decode(buffer, version)?),
        ApiKey::EndTxn => refused::<EndTxnRequest>(buffer, version, RequestBody::EndTxn)?,
        ApiKey::Fetch => RequestBody::Fetch(decode(buffer, version)?),
        ApiKey::FindCoordinator => RequestBody::FindCoordinator(decode(buffer, version)?),
        ApiKey::Heartbeat => RequestBody::Heartbeat(decode(buffer, version)?),
        ApiKey::IncrementalAlterConfigs => RequestBody::IncrementalAlterConfigs(decode(buffer, version)?),
        ApiKey::InitProducerId => RequestBody::InitProducerId(decode(buffer, version)?),
        ApiKey::JoinGroup => RequestBody::JoinGroup(decode(buffer, version)?),
        ApiKey::LeaveGroup => RequestBody::LeaveGroup(decode(buffer, version)?),
        ApiKey::ListGroups => RequestBody::ListGroups(decode(buffer, version)?),
        ApiKey::ListOffsets => RequestBody::ListOffsets(decode(buffer, version)?),
        ApiKey::Metadata => RequestBody::Metadata(decode(buffer, version)?),
        ApiKey::OffsetCommit => RequestBody::OffsetCommit(decode(buffer, version)?),
        ApiKey::OffsetDelete => RequestBody::OffsetDelete(decode(buffer, version)?),
        ApiKey::ConsumerGroupHeartbeat => {
            // Whatever it holds, the answer is no.
            let _: ConsumerGroupHeartbeatRequest = decode(buffer, version)?;
            RequestBody::ConsumerGroupHeartbeat
        }
        ApiKey::OffsetFetch => RequestBody::OffsetFetch(decode(buffer, version)?),
        ApiKey::OffsetForLeaderEpoch => RequestBody::OffsetForLeaderEpoch(decode(buffer, version)?),
        ApiKey::Produce => RequestBody::Produce(decode(buffer, version)?),
        ApiKey::SyncGroup => RequestBody::SyncGroup(decode(buffer, version)?),
        ApiKey::TxnOffsetCommit => RequestBody::TxnOffsetCommit(decode(buffer, version)?),
        // Not in `SERVED_APIS`, so not reached.
        _ => return Err(Undecodable("the API is not served".to_owned())),
    })
}

/// A request whose answer is a refusal, whatever it says.
fn refused<T: Decodable>(buffer: &mut Metered, version: i16, body: RequestBody) -> Result<RequestBody, Undecodable> {
    decode::<T>(buffer, version).map(|_| body)
}

struct Undecodable(String);

fn decode<T: Decodable>(buffer: &mut Metered, version: i16) -> Result<T, Undecodable> {
    T::decode(buffer, version).map_err(|error| {
        if buffer.spent() {
            Undecodable("it holds more values than a request of its size needs".to_owned())
        } else {
            Undecodable(error.to_string().trim_end().to_owned())
        }
    })
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, BytesMut};
    use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
    use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
    use kafka_protocol::protocol::{Encodable, HeaderVersion, Request};

    use super::*;

    fn frame<R: Request>(request: &R, version: i16) -> Bytes {
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(7)
            .with_client_id(Some(StrBytes::from_static_str("me")));
        let mut bytes = BytesMut::new();
        header.encode(&mut bytes, <R as HeaderVersion>::header_version(version)).unwrap();
        request.encode(&mut bytes, version).unwrap();
        bytes.freeze()
    }

    #[test]
    fn the_facts_of_the_header_are_kept() {
        let request = decode_request(frame(&MetadataRequest::default(), 12)).unwrap();
        assert_eq!((request.api_key(), request.api_version(), request.correlation_id()), (3, 12, 7));
        assert_eq!(request.client_id(), Some("me"));
    }

    #[test]
    fn requests_for_thousands_of_partitions_decode() {
        for version in [4, 12, 16] {
            let partitions = (0..10_000).map(|index| FetchPartition::default().with_partition(index)).collect();
            let topic = FetchTopic::default().with_partitions(partitions);
            decode_request(frame(&FetchRequest::default().with_topics(vec![topic]), version)).unwrap();
        }
        // The smallest batches that there are.
        for version in [3, 9, 13] {
            let smallest = Bytes::from_static(&[0; 68]);
            let data = |index| PartitionProduceData::default().with_index(index).with_records(Some(smallest.clone()));
            let topic = TopicProduceData::default().with_partition_data((0..2_000).map(data).collect());
            decode_request(frame(&ProduceRequest::default().with_topic_data(vec![topic]), version)).unwrap();
        }
    }

    #[test]
    fn a_request_of_nothing_but_tiny_elements_is_refused_for_what_it_is() {
        let mut bytes = BytesMut::from(&frame(&FetchRequest::default(), 4)[..]);
        bytes.truncate(bytes.len() - 4);
        // Topics without a name and without partitions.
        bytes.put_i32(80_000);
        bytes.put_bytes(0, 80_000 * 6);
        match decode_request(bytes.freeze()) {
            Err(RequestError::Malformed { reason, .. }) => assert!(reason.contains("more values"), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
}

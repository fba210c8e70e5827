//! Requests and answers as far as the stand-in brokers look into them.

use std::collections::HashMap;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, LeaderIdAndEpoch, PartitionData};
use kafka_protocol::messages::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use kafka_protocol::messages::offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
use kafka_protocol::messages::offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult};
use kafka_protocol::messages::produce_response::{
    LeaderIdAndEpoch as ProduceLeader, PartitionProduceResponse, TopicProduceResponse,
};
use kafka_protocol::messages::{
    ApiKey, FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse, MetadataRequest, OffsetCommitRequest,
    OffsetCommitResponse, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, ProduceRequest, ProduceResponse,
    RequestHeader, ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion};
use uuid::Uuid;

/// Bytes that are not what they should be: a test's fault, or a broker's.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {reason}")]
pub(super) struct Undecodable {
    what: &'static str,
    reason: String,
}

/// A request from a client.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) api: ApiKey,
    pub(super) version: i16,
    pub(super) header: RequestHeader,
    pub(super) body: Body,
}

/// The bodies that are looked into.
#[derive(Debug)]
pub(super) enum Body {
    Produce(ProduceRequest),
    Fetch(FetchRequest),
    ListOffsets(ListOffsetsRequest),
    OffsetCommit(OffsetCommitRequest),
    OffsetForLeaderEpoch(OffsetForLeaderEpochRequest),
    Metadata(MetadataRequest),
    Opaque(Bytes),
}

/// The names of topics that go by their id.
pub(super) type Names = HashMap<Uuid, String>;

/// A partition as a request names it.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) topic: String,
    pub(super) partition: i32,
    /// The leader epoch that the client goes by; -1 where it has no opinion.
    pub(super) epoch: i32,
}

/// Why a partition is refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    pub(super) code: i16,
    /// Who leads it, for those versions of an answer that say so.
    pub(super) leader: Option<(i32, i32)>,
}

/// A partition that was taken out of a request, and has to be answered for.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    name: TopicName,
    id: Uuid,
    partition: i32,
    refusal: Refusal,
}

pub(super) fn decode<T: Decodable>(bytes: &mut Bytes, version: i16, what: &'static str) -> Result<T, Undecodable> {
    T::decode(bytes, version).map_err(|error| Undecodable { what, reason: error.to_string() })
}

pub(super) fn encode<T: Encodable>(value: &T, version: i16, into: &mut BytesMut) -> Result<(), Undecodable> {
    let what = "a message that cannot be encoded";
    value.encode(into, version).map_err(|error| Undecodable { what, reason: error.to_string() })
}

/// A whole answer, size prefix included.
pub(super) fn answer_frame<R: Encodable + HeaderVersion>(
    correlation_id: i32,
    version: i16,
    response: &R,
) -> Result<Bytes, Undecodable> {
    let mut frame = BytesMut::new();
    let header = ResponseHeader::default().with_correlation_id(correlation_id);
    encode(&header, R::header_version(version), &mut frame)?;
    encode(response, version, &mut frame)?;
    Ok(with_size(&frame))
}

pub(super) fn with_size(body: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(body.len() + 4);
    frame.put_i32(i32::try_from(body.len()).unwrap_or(i32::MAX));
    frame.extend_from_slice(body);
    frame.freeze()
}

/// The response in a frame without its size.
pub(super) fn decode_answer<R: Decodable + HeaderVersion>(frame: &Bytes, version: i16) -> Result<R, Undecodable> {
    let mut frame = frame.clone();
    let _: ResponseHeader = decode(&mut frame, R::header_version(version), "the header of an answer")?;
    decode(&mut frame, version, "an answer")
}

impl Incoming {
    /// Reads a frame without its size.
    pub(super) fn parse(mut frame: Bytes) -> Result<Self, Undecodable> {
        let short = |reason: &str| Undecodable { what: "a request header", reason: reason.to_owned() };
        let [k0, k1, v0, v1] = *frame.first_chunk::<4>().ok_or_else(|| short("it is too short"))?;
        let key = i16::from_be_bytes([k0, k1]);
        let api = ApiKey::try_from(key).map_err(|()| short(&format!("there is no API with key {key}")))?;
        let version = i16::from_be_bytes([v0, v1]);
        let header = decode(&mut frame, api.request_header_version(version), "a request header")?;
        Ok(Self { api, version, header, body: Body::Opaque(frame) })
    }

    pub(super) fn correlation_id(&self) -> i32 {
        self.header.correlation_id
    }

    /// Looks into the body, where that is of use.
    pub(super) fn open(&mut self) -> Result<(), Undecodable> {
        let Body::Opaque(bytes) = &mut self.body else { return Ok(()) };
        let (bytes, version) = (&mut bytes.clone(), self.version);
        self.body = match self.api {
            ApiKey::Produce => Body::Produce(decode(bytes, version, "a Produce request")?),
            ApiKey::Fetch => Body::Fetch(decode(bytes, version, "a Fetch request")?),
            ApiKey::ListOffsets => Body::ListOffsets(decode(bytes, version, "a ListOffsets request")?),
            ApiKey::OffsetCommit => Body::OffsetCommit(decode(bytes, version, "an OffsetCommit request")?),
            ApiKey::OffsetForLeaderEpoch => {
                Body::OffsetForLeaderEpoch(decode(bytes, version, "an OffsetForLeaderEpoch request")?)
            }
            ApiKey::Metadata => Body::Metadata(decode(bytes, version, "a Metadata request")?),
            _ => return Ok(()),
        };
        Ok(())
    }

    /// The request as a whole frame.
    pub(super) fn frame(&self) -> Result<Bytes, Undecodable> {
        let mut frame = BytesMut::new();
        encode(&self.header, self.api.request_header_version(self.version), &mut frame)?;
        match &self.body {
            Body::Produce(body) => encode(body, self.version, &mut frame)?,
            Body::Fetch(body) => encode(body, self.version, &mut frame)?,
            Body::ListOffsets(body) => encode(body, self.version, &mut frame)?,
            Body::OffsetCommit(body) => encode(body, self.version, &mut frame)?,
            Body::OffsetForLeaderEpoch(body) => encode(body, self.version, &mut frame)?,
            Body::Metadata(body) => encode(body, self.version, &mut frame)?,
            Body::Opaque(bytes) => frame.extend_from_slice(bytes),
        }
        Ok(with_size(&frame))
    }

    /// Whether the client waits for an answer.
    pub(super) fn wants_answer(&self) -> bool {
        !matches!(&self.body, Body::Produce(body) if body.acks == 0)
    }

    /// The partitions that it is about.
    pub(super) fn partitions(&self, names: &Names) -> Vec<Named> {
        let mut all = Vec::new();
        match &self.body {
            Body::Produce(body) => partitioned::produce::each(body, names, &mut all),
            Body::Fetch(body) => partitioned::fetch::each(body, names, &mut all),
            Body::ListOffsets(body) => partitioned::list_offsets::each(body, names, &mut all),
            Body::OffsetCommit(body) => partitioned::offset_commit::each(body, names, &mut all),
            Body::OffsetForLeaderEpoch(body) => partitioned::leader_epoch::each(body, names, &mut all),
            Body::Metadata(_) | Body::Opaque(_) => {}
        }
        all
    }

    /// Whether only a partition's leader answers it.
    pub(super) fn is_for_leaders(&self) -> bool {
        matches!(self.api, ApiKey::Produce | ApiKey::Fetch | ApiKey::ListOffsets | ApiKey::OffsetForLeaderEpoch)
    }

    /// Takes out the partitions that `refuse` says something of, and makes the others' leader epochs ones that the broker
    /// behind does not mind.
    pub(super) fn take_out(
        &mut self,
        names: &Names,
        refuse: &mut dyn FnMut(&str, i32) -> Option<Refusal>,
    ) -> Vec<Refused> {
        match &mut self.body {
            Body::Produce(body) => partitioned::produce::take_out(body, names, refuse),
            Body::Fetch(body) => partitioned::fetch::take_out(body, names, refuse),
            Body::ListOffsets(body) => partitioned::list_offsets::take_out(body, names, refuse),
            Body::OffsetCommit(body) => partitioned::offset_commit::take_out(body, names, refuse),
            Body::OffsetForLeaderEpoch(body) => partitioned::leader_epoch::take_out(body, names, refuse),
            Body::Metadata(_) | Body::Opaque(_) => Vec::new(),
        }
    }

    /// Whether nothing is left to be answered by the broker behind.
    pub(super) fn is_used_up(&self) -> bool {
        match &self.body {
            Body::Produce(body) => body.topic_data.is_empty(),
            Body::Fetch(body) => body.topics.is_empty(),
            Body::ListOffsets(body) => body.topics.is_empty(),
            Body::OffsetCommit(body) => body.topics.is_empty(),
            Body::OffsetForLeaderEpoch(body) => body.topics.is_empty(),
            Body::Metadata(_) | Body::Opaque(_) => false,
        }
    }

    /// The answer of the broker behind (`None`: it was not asked) with the refused partitions in it.
    pub(super) fn put_back(&self, answer: Option<&Bytes>, refused: Vec<Refused>) -> Result<Bytes, Undecodable> {
        let (id, version) = (self.correlation_id(), self.version);
        match self.api {
            ApiKey::Produce => partitioned::produce::put_back(answer, refused, id, version),
            ApiKey::Fetch => partitioned::fetch::put_back(answer, refused, id, version),
            ApiKey::ListOffsets => partitioned::list_offsets::put_back(answer, refused, id, version),
            ApiKey::OffsetCommit => partitioned::offset_commit::put_back(answer, refused, id, version),
            _ => partitioned::leader_epoch::put_back(answer, refused, id, version),
        }
    }
}

/// The same for each request that names partitions; only the fields' names differ.
mod partitioned {
    use super::*;

    macro_rules! partitioned {
        (
            $module:ident: $request:ty => $response:ty;
            asked: $topics:ident, $name:ident, $partitions:ident, $index:ident;
            id: $id:expr;
            epoch: $epoch:expr;
            answered: $answers:ident, $answer_name:ident, $answer_partitions:ident;
            topic: $new_topic:expr;
            failed: $failed:expr
        ) => {
            pub(super) mod $module {
                use super::*;

                fn name_of(names: &Names, name: &TopicName, id: Uuid) -> String {
                    if id.is_nil() { name.to_string() } else { names.get(&id).cloned().unwrap_or_default() }
                }

                pub(in super::super) fn each(request: &$request, names: &Names, all: &mut Vec<Named>) {
                    for topic in &request.$topics {
                        let name = name_of(names, &topic.$name, ($id)(topic));
                        for part in &topic.$partitions {
                            let epoch = *($epoch)(&mut part.clone());
                            all.push(Named { topic: name.clone(), partition: part.$index, epoch });
                        }
                    }
                }

                pub(in super::super) fn take_out(
                    request: &mut $request,
                    names: &Names,
                    refuse: &mut dyn FnMut(&str, i32) -> Option<Refusal>,
                ) -> Vec<Refused> {
                    let mut out = Vec::new();
                    for topic in &mut request.$topics {
                        let (wire_name, id) = (topic.$name.clone(), ($id)(topic));
                        let name = name_of(names, &wire_name, id);
                        topic.$partitions.retain_mut(|part| {
                            *($epoch)(part) = -1;
                            let Some(refusal) = refuse(&name, part.$index) else { return true };
                            out.push(Refused { name: wire_name.clone(), id, partition: part.$index, refusal });
                            false
                        });
                    }
                    request.$topics.retain(|topic| !topic.$partitions.is_empty());
                    out
                }

                pub(in super::super) fn put_back(
                    answer: Option<&Bytes>,
                    refused: Vec<Refused>,
                    correlation_id: i32,
                    version: i16,
                ) -> Result<Bytes, Undecodable> {
                    let mut response: $response = match answer {
                        Some(answer) => decode_answer(answer, version)?,
                        None => <$response>::default(),
                    };
                    for Refused { name, id, partition, refusal } in refused {
                        let failed = ($failed)(partition, refusal, version);
                        let at =
                            response.$answers.iter().position(|topic| topic.$answer_name == name && ($id)(topic) == id);
                        match at.and_then(|at| response.$answers.get_mut(at)) {
                            Some(topic) => topic.$answer_partitions.push(failed),
                            None => {
                                let mut topic = ($new_topic)(name, id);
                                topic.$answer_partitions.push(failed);
                                response.$answers.push(topic);
                            }
                        }
                    }
                    answer_frame(correlation_id, version, &response)
                }
            }
        };
    }

    /// A topic's id, in those messages that have one.
    trait TopicId {
        fn id(&self) -> Uuid;
    }

    macro_rules! topic_ids {
        ($($type:ty: $id:expr;)+) => {
            $(impl TopicId for $type {
                fn id(&self) -> Uuid {
                    ($id)(self)
                }
            })+
        };
    }

    topic_ids! {
        kafka_protocol::messages::produce_request::TopicProduceData: |topic: &Self| topic.topic_id;
        TopicProduceResponse: |topic: &Self| topic.topic_id;
        kafka_protocol::messages::fetch_request::FetchTopic: |topic: &Self| topic.topic_id;
        FetchableTopicResponse: |topic: &Self| topic.topic_id;
        kafka_protocol::messages::list_offsets_request::ListOffsetsTopic: |_: &Self| Uuid::nil();
        ListOffsetsTopicResponse: |_: &Self| Uuid::nil();
        kafka_protocol::messages::offset_commit_request::OffsetCommitRequestTopic: |topic: &Self| topic.topic_id;
        OffsetCommitResponseTopic: |topic: &Self| topic.topic_id;
        kafka_protocol::messages::offset_for_leader_epoch_request::OffsetForLeaderTopic: |_: &Self| Uuid::nil();
        OffsetForLeaderTopicResult: |_: &Self| Uuid::nil();
    }

    /// The leader epoch of a partition in a request, or a place for what it does not have.
    trait Epoch {
        fn epoch(&mut self) -> &mut i32;
    }

    macro_rules! epochs {
        ($($type:ty: $field:ident;)+) => {
            $(impl Epoch for $type {
                fn epoch(&mut self) -> &mut i32 {
                    &mut self.$field
                }
            })+
        };
    }

    epochs! {
        kafka_protocol::messages::fetch_request::FetchPartition: current_leader_epoch;
        kafka_protocol::messages::list_offsets_request::ListOffsetsPartition: current_leader_epoch;
        kafka_protocol::messages::offset_for_leader_epoch_request::OffsetForLeaderPartition: current_leader_epoch;
    }

    /// For requests without an epoch.
    fn no_epoch<T>(_: &mut T) -> Box<i32> {
        Box::new(-1)
    }

    partitioned! {
        produce: ProduceRequest => ProduceResponse;
        asked: topic_data, name, partition_data, index;
        id: TopicId::id;
        epoch: no_epoch;
        answered: responses, name, partition_responses;
        topic: |name, id| TopicProduceResponse::default().with_name(name).with_topic_id(id);
        failed: |partition, Refusal { code, leader }, version| {
            let failed =
                PartitionProduceResponse::default().with_index(partition).with_error_code(code).with_base_offset(-1);
            match leader {
                Some((node, epoch)) if version >= 10 => failed
                    .with_current_leader(ProduceLeader::default().with_leader_id(node.into()).with_leader_epoch(epoch)),
                _ => failed,
            }
        }
    }

    partitioned! {
        fetch: FetchRequest => FetchResponse;
        asked: topics, topic, partitions, partition;
        id: TopicId::id;
        epoch: Epoch::epoch;
        answered: responses, topic, partitions;
        topic: |name, id| FetchableTopicResponse::default().with_topic(name).with_topic_id(id);
        failed: |partition, Refusal { code, leader }, version| {
            let failed = PartitionData::default()
                .with_partition_index(partition)
                .with_error_code(code)
                .with_high_watermark(-1)
                .with_records(Some(Bytes::new()));
            match leader {
                Some((node, epoch)) if version >= 12 => failed.with_current_leader(
                    LeaderIdAndEpoch::default().with_leader_id(node.into()).with_leader_epoch(epoch),
                ),
                _ => failed,
            }
        }
    }

    partitioned! {
        list_offsets: ListOffsetsRequest => ListOffsetsResponse;
        asked: topics, name, partitions, partition_index;
        id: TopicId::id;
        epoch: Epoch::epoch;
        answered: topics, name, partitions;
        topic: |name, _| ListOffsetsTopicResponse::default().with_name(name);
        failed: |partition, Refusal { code, .. }, _| ListOffsetsPartitionResponse::default()
            .with_partition_index(partition)
            .with_error_code(code)
            .with_timestamp(-1)
            .with_offset(-1)
    }

    partitioned! {
        offset_commit: OffsetCommitRequest => OffsetCommitResponse;
        asked: topics, name, partitions, partition_index;
        id: TopicId::id;
        epoch: no_epoch;
        answered: topics, name, partitions;
        topic: |name, id| OffsetCommitResponseTopic::default().with_name(name).with_topic_id(id);
        failed: |partition, Refusal { code, .. }, _| OffsetCommitResponsePartition::default()
            .with_partition_index(partition)
            .with_error_code(code)
    }

    partitioned! {
        leader_epoch: OffsetForLeaderEpochRequest => OffsetForLeaderEpochResponse;
        asked: topics, topic, partitions, partition;
        id: TopicId::id;
        epoch: Epoch::epoch;
        answered: topics, topic, partitions;
        topic: |name, _| OffsetForLeaderTopicResult::default().with_topic(name);
        failed: |partition, Refusal { code, .. }, _| EpochEndOffset::default()
            .with_partition(partition)
            .with_error_code(code)
            .with_leader_epoch(-1)
            .with_end_offset(-1)
    }
}

//! A broker that follows a script: a closure answers each request, with a response, with bytes of its own, or not at all.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::fetch_response::{AbortedTransaction, FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsResponse, BrokerId, FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse,
    MetadataResponse, OffsetForLeaderEpochRequest, ProducerId, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, StrBytes, decode_request_header_from_buffer};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// One request as the broker got it.
pub(crate) struct Request {
    /// The connection it came over, counted from 0.
    pub(crate) connection: usize,
    pub(crate) api: ApiKey,
    pub(crate) version: i16,
    pub(crate) correlation_id: i32,
    pub(crate) body: Bytes,
}

impl Request {
    pub(crate) fn fetch(&self) -> FetchRequest {
        FetchRequest::decode(&mut self.body.clone(), self.version).unwrap()
    }

    pub(crate) fn list_offsets(&self) -> ListOffsetsRequest {
        ListOffsetsRequest::decode(&mut self.body.clone(), self.version).unwrap()
    }

    pub(crate) fn offset_for_leader_epoch(&self) -> OffsetForLeaderEpochRequest {
        OffsetForLeaderEpochRequest::decode(&mut self.body.clone(), self.version).unwrap()
    }

    /// A proper response to it.
    pub(crate) fn respond<R: Encodable + HeaderVersion>(&self, response: &R) -> Reply {
        self.respond_in(self.version, response)
    }

    /// A response in the form of another version.
    pub(crate) fn respond_in<R: Encodable + HeaderVersion>(&self, version: i16, response: &R) -> Reply {
        let mut body = BytesMut::new();
        body.put_i32(self.correlation_id);
        if R::header_version(version) >= 1 {
            body.put_u8(0);
        }
        response.encode(&mut body, version).unwrap();
        Reply::Bytes(framed(&body))
    }
}

pub(crate) fn framed(body: &[u8]) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_i32(i32::try_from(body.len()).unwrap());
    frame.extend_from_slice(body);
    frame.freeze()
}

pub(crate) enum Reply {
    /// These bytes, as they are.
    Bytes(Bytes),
    /// These bytes, and the connection is closed.
    Last(Bytes),
    /// Nothing, and the connection stays open.
    Silence,
    After(Duration, Box<Reply>),
    /// These bytes in fifty parts, with a pause behind each.
    Slowly(Bytes, Duration),
}

impl Reply {
    pub(crate) fn close() -> Self {
        Self::Last(Bytes::new())
    }

    pub(crate) fn after(self, delay: Duration) -> Self {
        Self::After(delay, Box::new(self))
    }
}

pub(crate) struct FakeBroker {
    pub(crate) addr: SocketAddr,
    task: AbortHandle,
    open: Arc<AtomicUsize>,
}

impl FakeBroker {
    /// A broker whose `script` answers every request; it gets the broker's own address, for metadata.
    pub(crate) async fn start(mut script: impl FnMut(&Request, SocketAddr) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let script = Arc::new(Mutex::new(move |request: &Request| script(request, addr)));
        let open = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&open);
        let task = tokio::spawn(async move {
            // Connections end with the broker.
            let mut connections = tokio::task::JoinSet::new();
            for connection in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                let (script, count) = (Arc::clone(&script), Arc::clone(&count));
                connections.spawn(async move {
                    count.fetch_add(1, Ordering::SeqCst);
                    let _ = serve(stream, connection, &*script).await;
                    count.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { addr, task: task.abort_handle(), open }
    }

    /// A broker that answers ApiVersions and Metadata as [`proper`] does, and everything else by `script`.
    pub(crate) async fn serving(topic: FakeTopic, mut script: impl FnMut(&Request) -> Reply + Send + 'static) -> Self {
        Self::start(move |request, addr| proper(request, addr, &topic).unwrap_or_else(|| script(request))).await
    }

    pub(crate) fn bootstrap(&self) -> String {
        self.addr.to_string()
    }

    pub(crate) fn open_connections(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

impl Drop for FakeBroker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut stream: TcpStream,
    connection: usize,
    script: &Mutex<impl FnMut(&Request) -> Reply>,
) -> std::io::Result<()> {
    loop {
        let size = stream.read_i32().await?;
        let mut frame = vec![0; usize::try_from(size).unwrap()];
        stream.read_exact(&mut frame).await?;
        let mut body = Bytes::from(frame);
        let header = decode_request_header_from_buffer(&mut body).unwrap();
        let request = Request {
            connection,
            api: ApiKey::try_from(header.request_api_key).unwrap(),
            version: header.request_api_version,
            correlation_id: header.correlation_id,
            body,
        };
        let mut reply = (script.lock())(&request);
        while let Reply::After(delay, then) = reply {
            tokio::time::sleep(delay).await;
            reply = *then;
        }
        match reply {
            Reply::Bytes(bytes) => stream.write_all(&bytes).await?,
            Reply::Last(bytes) => return stream.write_all(&bytes).await,
            Reply::Slowly(bytes, pause) => {
                for part in bytes.chunks(bytes.len().div_ceil(50)) {
                    stream.write_all(part).await?;
                    tokio::time::sleep(pause).await;
                }
            }
            Reply::Silence | Reply::After(..) => {}
        }
    }
}

/// What [`proper`] says of the one topic.
#[derive(Clone)]
pub(crate) struct FakeTopic {
    pub(crate) name: &'static str,
    pub(crate) partitions: i32,
    /// The highest version of each request; [`VERSIONS`] or less.
    pub(crate) versions: Vec<(ApiKey, i16, i16)>,
}

pub(crate) const VERSIONS: [(ApiKey, i16, i16); 4] =
    [(ApiKey::ApiVersions, 0, 3), (ApiKey::Metadata, 0, 12), (ApiKey::ListOffsets, 1, 8), (ApiKey::Fetch, 4, 12)];

impl FakeTopic {
    pub(crate) fn new(name: &'static str, partitions: i32) -> Self {
        Self { name, partitions, versions: VERSIONS.to_vec() }
    }

    pub(crate) fn with_version(mut self, api: ApiKey, min: i16, max: i16) -> Self {
        self.versions.retain(|version| version.0 != api);
        self.versions.push((api, min, max));
        self
    }
}

/// The answer of a broker in order to ApiVersions and Metadata; `None` to anything else.
pub(crate) fn proper(request: &Request, addr: SocketAddr, topic: &FakeTopic) -> Option<Reply> {
    match request.api {
        ApiKey::ApiVersions => Some(request.respond(&api_versions(&topic.versions))),
        ApiKey::Metadata => Some(request.respond(&metadata(&[addr], topic, &|_| Some(0)))),
        _ => None,
    }
}

pub(crate) fn api_versions(versions: &[(ApiKey, i16, i16)]) -> ApiVersionsResponse {
    let api_keys = versions.iter().map(|(api, min, max)| {
        ApiVersion::default().with_api_key(*api as i16).with_min_version(*min).with_max_version(*max)
    });
    ApiVersionsResponse::default().with_api_keys(api_keys.collect())
}

/// Metadata with these brokers, whose ids are their indexes, and the topic with these leaders.
pub(crate) fn metadata(
    brokers: &[SocketAddr],
    topic: &FakeTopic,
    leader: &dyn Fn(i32) -> Option<i32>,
) -> MetadataResponse {
    let brokers = (0..).zip(brokers).map(|(id, addr)| {
        MetadataResponseBroker::default()
            .with_node_id(BrokerId(id))
            .with_host(StrBytes::from_string(addr.ip().to_string()))
            .with_port(i32::from(addr.port()))
    });
    let partitions = (0..topic.partitions).map(|partition| {
        MetadataResponsePartition::default()
            .with_partition_index(partition)
            .with_error_code(if leader(partition).is_some() { 0 } else { 5 })
            .with_leader_id(BrokerId(leader(partition).unwrap_or(-1)))
            .with_leader_epoch(3)
    });
    let topics = MetadataResponseTopic::default()
        .with_name(Some(TopicName(StrBytes::from_static_str(topic.name))))
        .with_partitions(partitions.collect());
    MetadataResponse::default()
        .with_brokers(brokers.collect())
        .with_controller_id(BrokerId(0))
        .with_topics(vec![topics])
}

/// A fetch response for the one partition that was asked for.
pub(crate) struct FetchAnswer {
    pub(crate) error_code: i16,
    pub(crate) high_watermark: i64,
    pub(crate) last_stable_offset: i64,
    pub(crate) log_start_offset: i64,
    pub(crate) throttle_ms: i32,
    /// The broker to fetch from instead.
    pub(crate) preferred: Option<i32>,
    pub(crate) aborted: Vec<(i64, i64)>,
    pub(crate) records: Bytes,
}

impl FetchAnswer {
    pub(crate) fn records(records: Bytes, high_watermark: i64) -> Self {
        Self {
            error_code: 0,
            high_watermark,
            last_stable_offset: high_watermark,
            log_start_offset: 0,
            throttle_ms: 0,
            preferred: None,
            aborted: Vec::new(),
            records,
        }
    }

    pub(crate) fn error(error_code: i16) -> Self {
        let unknown = Self::records(Bytes::new(), -1);
        Self { error_code, log_start_offset: -1, ..unknown }
    }

    pub(crate) fn to(self, request: &Request) -> Reply {
        let asked = request.fetch();
        let aborted = self.aborted.iter().map(|(producer_id, first_offset)| {
            AbortedTransaction::default().with_producer_id(ProducerId(*producer_id)).with_first_offset(*first_offset)
        });
        let mut data = PartitionData::default()
            .with_partition_index(asked.topics[0].partitions[0].partition)
            .with_error_code(self.error_code)
            .with_high_watermark(self.high_watermark)
            .with_last_stable_offset(self.last_stable_offset)
            .with_aborted_transactions(Some(aborted.collect()))
            .with_records(Some(self.records));
        if request.version >= 5 {
            data = data.with_log_start_offset(self.log_start_offset);
        }
        if let Some(replica) = self.preferred {
            data = data.with_preferred_read_replica(BrokerId(replica));
        }
        let topic =
            FetchableTopicResponse::default().with_topic(asked.topics[0].topic.clone()).with_partitions(vec![data]);
        let response = FetchResponse::default().with_throttle_time_ms(self.throttle_ms).with_responses(vec![topic]);
        request.respond(&response)
    }
}

/// A ListOffsets response: `answer` gives error code, timestamp and offset for a partition and a timestamp.
pub(crate) fn list_offsets(request: &Request, answer: impl Fn(i32, i64) -> (i16, i64, i64)) -> Reply {
    let asked = request.list_offsets();
    let topics = asked.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            let (error_code, timestamp, offset) = answer(partition.partition_index, partition.timestamp);
            ListOffsetsPartitionResponse::default()
                .with_partition_index(partition.partition_index)
                .with_error_code(error_code)
                .with_timestamp(timestamp)
                .with_offset(offset)
        });
        ListOffsetsTopicResponse::default().with_name(topic.name.clone()).with_partitions(partitions.collect())
    });
    request.respond(&ListOffsetsResponse::default().with_topics(topics.collect()))
}

/// A log in memory that answers fetches as a broker does: whole batches from the one that holds the offset on, at least one.
#[derive(Clone, Default)]
pub(crate) struct Log {
    batches: Vec<Bytes>,
    /// Producer id, first offset and marker of each aborted transaction.
    pub(crate) aborted: Vec<(i64, i64, i64)>,
}

impl Log {
    pub(crate) fn of(batches: impl IntoIterator<Item = Bytes>) -> Self {
        Self { batches: batches.into_iter().collect(), aborted: Vec::new() }
    }

    pub(crate) fn end(&self) -> i64 {
        self.batches.last().map_or(0, |batch| span(batch).1)
    }

    /// The batches from `offset` on, as many as fit `max_bytes` but at least one.
    pub(crate) fn read(&self, offset: i64, max_bytes: usize) -> Bytes {
        let mut records = BytesMut::new();
        for batch in self.batches.iter().filter(|batch| span(batch).1 > offset) {
            if !records.is_empty() && records.len() + batch.len() > max_bytes {
                break;
            }
            records.extend_from_slice(batch);
        }
        records.freeze()
    }

    /// What a broker from before KIP-74 sends: `max_bytes` of the batches from `offset` on, the last one cut off wherever that is.
    pub(crate) fn read_cut(&self, offset: i64, max_bytes: usize) -> Bytes {
        let all = self.read(offset, usize::MAX);
        all.slice(..all.len().min(max_bytes))
    }

    pub(crate) fn answer(&self, request: &Request) -> FetchAnswer {
        let asked = request.fetch();
        let partition = &asked.topics[0].partitions[0];
        let max_bytes = partition.partition_max_bytes.min(asked.max_bytes);
        let records = self.read(partition.fetch_offset, usize::try_from(max_bytes).unwrap());
        // Those that end at or behind the offset.
        let aborted = self.aborted.iter().filter(|(_, _, marker)| *marker >= partition.fetch_offset);
        let aborted = aborted.map(|(producer_id, first, _)| (*producer_id, *first)).collect();
        FetchAnswer { aborted, ..FetchAnswer::records(records, self.end()) }
    }
}

/// The first offset and the one behind the last of a batch, or of a message of an old format.
fn span(batch: &Bytes) -> (i64, i64) {
    let stored = tidegate_wire::split_record_set(batch.clone(), 0, true).next().unwrap().unwrap();
    let opened = stored.open(&tidegate_wire::BatchLimits::default());
    (opened.map_or(stored.span().base_offset, |batch| batch.header().base_offset), stored.next_offset())
}

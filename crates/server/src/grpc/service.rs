//! The service `tidegate.v1.Tidegate`: each method is a thin caller of one function of the engine.

use std::pin::Pin;

use futures_util::{Stream, StreamExt as _};
use tidegate_api::encoded::EncodedReadRangeResponse;
use tidegate_api::v1;
use tidegate_api::{ApiError, Code};
use tidegate_client::RecordToSend;
use tonic::{Request, Response, Status, Streaming};

use super::GrpcLimits;
use super::columns::Columns;
use super::convert::{self, Layout, ValueEncoding};
use super::encoder::MessageEncoder;
use super::limits::{DEFAULT_MAX_MESSAGE_BYTES, MAX_MESSAGE_FIELD, MIN_MAX_MESSAGE_BYTES, MessageLimits};
use super::rows::Rows;
use super::values::Values;
use crate::engine::{Clusters, PlannedRead, PublishError, Publishing};
use crate::errors::with_records_written;

/// The service over one engine or several.
pub(super) struct Service {
    pub(super) clusters: Clusters,
    pub(super) limits: GrpcLimits,
}

type Messages = Pin<Box<dyn Stream<Item = Result<EncodedReadRangeResponse, Status>> + Send>>;

#[tonic::async_trait]
impl v1::tidegate_server::Tidegate for Service {
    async fn list_clusters(
        &self,
        _request: Request<v1::ListClustersRequest>,
    ) -> Result<Response<v1::ListClustersResponse>, Status> {
        Ok(Response::new(v1::ListClustersResponse {
            names: self.clusters.names(),
            default_name: self.clusters.default_name().unwrap_or_default().into(),
        }))
    }

    async fn list_topics(
        &self,
        request: Request<v1::ListTopicsRequest>,
    ) -> Result<Response<v1::ListTopicsResponse>, Status> {
        let request = request.get_ref();
        let engine = self.clusters.get(Some(&request.cluster)).map_err(status)?;
        let topics = engine.list_topics(request.include_internal).await.map_err(status)?;
        Ok(Response::new(v1::ListTopicsResponse { topics: topics.into_iter().map(convert::topic_summary).collect() }))
    }

    async fn describe_topic(
        &self,
        request: Request<v1::DescribeTopicRequest>,
    ) -> Result<Response<v1::DescribeTopicResponse>, Status> {
        let request = request.get_ref();
        let engine = self.clusters.get(Some(&request.cluster)).map_err(status)?;
        let topic = engine.describe_topic(&request.topic).await.map_err(status)?;
        Ok(Response::new(convert::topic_description(topic)))
    }

    type ReadRangeStream = Messages;

    async fn read_range(&self, request: Request<v1::ReadRangeRequest>) -> Result<Response<Messages>, Status> {
        let request = request.into_inner();
        let max_message_bytes = match request.max_message_bytes {
            0 => DEFAULT_MAX_MESSAGE_BYTES,
            given => usize::try_from(given).unwrap_or(usize::MAX),
        };
        let engine = self.clusters.get(Some(&request.cluster)).map_err(status)?;
        let (request, layout, values) = convert::read_request(request).map_err(status)?;
        check_max_message_bytes(max_message_bytes, MIN_MAX_MESSAGE_BYTES).map_err(status)?;
        let read = engine.plan_read(request).await.map_err(status)?;
        // Better now than at the end of a long read.
        let end_bound = convert::end_message_bound(read.partitions().len());
        check_max_message_bytes(max_message_bytes, end_bound).map_err(status)?;
        let limits = MessageLimits::new(max_message_bytes, read.chunk_target_bytes());
        Ok(Response::new(messages(read, layout, values, limits)))
    }

    async fn publish(
        &self,
        request: Request<Streaming<v1::PublishRequest>>,
    ) -> Result<Response<v1::PublishResponse>, Status> {
        let place = self.clusters.publish_place().map_err(status)?;
        let mut incoming = Incoming { stream: request.into_inner(), limits: self.limits };
        let Some(first) = incoming.next().await? else {
            return Err(status(no_topic("the stream holds no message")));
        };
        if first.topic.is_empty() {
            return Err(status(no_topic("the first message names no topic")));
        }
        let engine = self.clusters.get(Some(&first.cluster)).map_err(status)?;
        let mut publishing = place.publish(engine, &first.topic).await.map_err(status)?;
        let cluster = Some(&*first.cluster).filter(|name| !name.is_empty()).or(self.clusters.default_name());
        let cluster = cluster.unwrap_or_default().to_owned();
        let received = receive(&mut publishing, first, &cluster, &mut incoming).await;
        let warnings = publishing.warnings();
        // Nothing is taken in silence: also a failed request says how many of its records stand.
        let (summary, failure) = publishing.settle().await;
        match received.and(failure.map_or(Ok(()), |failure| Err(Refused::Ours(failure.into())))) {
            Ok(()) => Ok(Response::new(convert::publish_response(&summary, &warnings))),
            Err(Refused::Ours(error)) => Err(status(with_records_written(error, summary.records))),
            Err(Refused::Transport(failure)) => Err(failure),
        }
    }
}

/// Why a stream of records was not taken to its end.
enum Refused {
    Ours(ApiError),
    /// The stream broke: whoever sent it is not there to hear why.
    Transport(Status),
}

/// Sends the records of a stream until it ends.
async fn receive(
    publishing: &mut Publishing,
    first: v1::PublishRequest,
    cluster: &str,
    incoming: &mut Incoming,
) -> Result<(), Refused> {
    let topic = first.topic.clone();
    let mut message = Some(first);
    while let Some(v1::PublishRequest { topic: named, records, cluster: of }) = message {
        if !named.is_empty() && named != topic {
            return Err(Refused::Ours(elsewhere("topic", &topic, &named)));
        }
        if !of.is_empty() && of != cluster {
            return Err(Refused::Ours(elsewhere("cluster", cluster, &of)));
        }
        for record in &records {
            send(publishing, record).await.map_err(|error| Refused::Ours(error.into()))?;
        }
        message = incoming.next().await?;
    }
    Ok(())
}

impl From<Refused> for Status {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Ours(error) => status(error),
            Refused::Transport(failure) => failure,
        }
    }
}

fn messages(read: PlannedRead, layout: Layout, encoding: ValueEncoding, limits: MessageLimits) -> Messages {
    let values = match encoding {
        ValueEncoding::AsStored => Values::AsStored,
        ValueEncoding::Json => Values::json(read.values()),
    };
    match layout {
        Layout::Rows => {
            Box::pin(read.stream(MessageEncoder::<Rows>::new(values, limits)).map(|item| item.map_err(status)))
        }
        Layout::Columns => {
            Box::pin(read.stream(MessageEncoder::<Columns>::new(values, limits)).map(|item| item.map_err(status)))
        }
    }
}

async fn send(publishing: &mut Publishing, record: &v1::PublishRecord) -> Result<(), PublishError> {
    let headers: Vec<_> = record.headers.iter().map(|header| (&*header.name, header.value.as_deref())).collect();
    let record = RecordToSend {
        partition: record.partition,
        key: record.key.as_deref(),
        value: record.value.as_deref(),
        headers: &headers,
        timestamp_ms: record.timestamp_ms,
    };
    publishing.send(&record).await
}

/// The messages of a client's stream.
struct Incoming {
    stream: Streaming<v1::PublishRequest>,
    limits: GrpcLimits,
}

impl Incoming {
    async fn next(&mut self) -> Result<Option<v1::PublishRequest>, Refused> {
        let limit = self.limits.max_request_message_bytes;
        self.stream.message().await.map_err(|failure| match failure.code() {
            // What tonic's decoder says to a message beyond its limit; nothing else in a request stream says it.
            tonic::Code::OutOfRange => {
                let message = format!(
                    "a message of the request is larger than {limit} bytes, which is all that this server accepts \
                     (max_request_message_bytes); send fewer records a message"
                );
                Refused::Ours(ApiError::new(Code::RequestTooLarge, message).with("limit", limit))
            }
            _ => Refused::Transport(failure),
        })
    }
}

fn check_max_message_bytes(max_message_bytes: usize, least: usize) -> Result<(), ApiError> {
    if max_message_bytes >= least {
        return Ok(());
    }
    let message =
        format!("{MAX_MESSAGE_FIELD} is {max_message_bytes}; at least {least} are needed for this read (0: 4194304)");
    Err(ApiError::new(Code::InvalidArgument, message).with("field", MAX_MESSAGE_FIELD).with("least", least))
}

fn no_topic(what: &str) -> ApiError {
    let message = format!("{what}; the first message of a publish names the topic");
    ApiError::new(Code::InvalidArgument, message).with("field", "topic")
}

fn elsewhere(field: &str, first: &str, other: &str) -> ApiError {
    let message =
        format!("the stream publishes to {field} {first:?}, a later message names {other:?}; use one stream each");
    ApiError::new(Code::InvalidArgument, message).with("field", field)
}

fn status(error: impl Into<ApiError>) -> Status {
    let error = error.into();
    if error.entry().http.is_server_error() {
        tracing::warn!(code = %error.code, message = error.message, "a call failed");
    }
    error.to_status()
}

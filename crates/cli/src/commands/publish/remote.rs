//! Publishes through a server, over gRPC.

use tidegate_api::v1;
use tidegate_client::{ProduceSummary, ProducedPartition};
use tidegate_model::TopicName;
use tidegate_server::engine::TopicPayload;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::{Outcome, PublishArgs, Stopped, begin_input};
use crate::exit::{Exit, Failure};
use crate::input::records::{Group, InputRecord};
use crate::output::progress::Progress;
use crate::signals::Signals;
use crate::target::ServerUrl;

/// Requests between the input and the connection.
const REQUESTS_AHEAD: usize = 4;

/// The largest answer that is taken: a few numbers for each of any number of partitions.
const MAX_ANSWER_BYTES: usize = 64 << 20;

pub(super) async fn publish(args: &PublishArgs, server: &ServerUrl, signals: &mut Signals) -> Result<Outcome, Failure> {
    let name = TopicName::new(&args.topic).map_err(Failure::usage)?;
    let payload = args.schema.payloads(&args.topic)?.get(&name);
    let failure = |status: tonic::Status| server.failure(&status);
    let mut client = server.connect(MAX_ANSWER_BYTES).await?;

    // Also a check that the topic is there before anything is read.
    let request = v1::DescribeTopicRequest { topic: args.topic.clone(), cluster: args.target.cluster().into() };
    let topic = client.describe_topic(request).await.map_err(failure)?.into_inner();
    check_payload(&payload, &topic)?;

    let mut groups = begin_input(args, payload)?;
    let (requests, stream) = mpsc::channel(REQUESTS_AHEAD);
    let first =
        v1::PublishRequest { topic: args.topic.clone(), records: Vec::new(), cluster: args.target.cluster().into() };
    // Cannot fail: the channel is new, and its receiving side is here.
    let _ = requests.try_send(first);
    let mut call = std::pin::pin!(client.publish(ReceiverStream::new(stream)));
    let mut progress = Progress::new(format!("publishing to {name}"), None, false);
    let (mut records, mut value_bytes) = (0_u64, 0_u64);

    let mut requests = Some(requests);
    let mut stopped = None;
    let answer = loop {
        let group = tokio::select! {
            answer = &mut call => break answer,
            stop = signals.first() => {
                if requests.is_none() {
                    stop.exit();
                }
                stopped = Some(Stopped::Signal);
                requests = None;
                continue;
            }
            group = groups.recv(), if requests.is_some() => group,
        };
        match group {
            // The server answers when the stream of requests has ended.
            None => requests = None,
            Some(Err(error)) => {
                stopped = Some(Stopped::Input(error));
                requests = None;
            }
            Some(Ok(group)) => {
                records += group.len() as u64;
                value_bytes += group.iter().map(|record| record.value.map_or(0, <[u8]>::len) as u64).sum::<u64>();
                let Some(out) = &requests else { continue };
                let request = publish_request(&group);
                tokio::select! {
                    answer = &mut call => break answer,
                    // When it fails the call has ended, and the next turn of the loop tells how.
                    _ = out.send(request) => {}
                }
                progress.set(records);
            }
        }
    };
    let answer = answer.map_err(|status| {
        let failure = failure(status);
        let message = format!("{}; some of the records may have been written", failure.message);
        let exit = if records == 0 { failure.exit } else { Exit::Incomplete };
        Failure { exit, message, ..failure }
    })?;
    let answer = answer.into_inner();
    let summary = summary(&answer);
    let warnings = answer.warnings.iter().map(ToString::to_string).collect();
    Ok(Outcome { summary, value_bytes, elapsed: progress.elapsed(), stopped, warnings })
}

/// A server stores the values as it gets them, so JSON for a Protobuf topic must be converted here or not be sent.
fn check_payload(payload: &TopicPayload, topic: &v1::DescribeTopicResponse) -> Result<(), Failure> {
    let protobuf = topic.payload_kind() == v1::PayloadKind::Protobuf;
    match payload {
        TopicPayload::Protobuf(message) if protobuf && message.full_name() != &*topic.message => {
            Err(Failure::usage(format_args!(
                "topic {} holds {} messages, and --message is {}",
                topic.name,
                topic.message,
                message.full_name()
            )))
        }
        _ if topic.payload_kind() == v1::PayloadKind::Registry => Err(Failure::usage(format_args!(
            "the values of topic {} name their schema in a registry, which only the server knows",
            topic.name
        ))
        .hint("publish to it over REST, POST /v1/topics/{topic}/records, where the server converts JSON")),
        TopicPayload::Bytes | TopicPayload::Json if protobuf => {
            Err(Failure::usage(format_args!("topic {} holds Protobuf messages, and the input is JSON", topic.name))
                .hint(format_args!("say --proto FILE --message {}", topic.message)))
        }
        _ => Ok(()),
    }
}

fn publish_request(group: &Group) -> v1::PublishRequest {
    let record = |record: InputRecord<'_>| v1::PublishRecord {
        key: record.key.map(|key| group.share(key)),
        value: record.value.map(|value| group.share(value)),
        headers: record
            .headers
            .iter()
            .map(|(name, value)| v1::Header { name: group.share(name), value: value.map(|value| group.share(value)) })
            .collect(),
        timestamp_ms: record.timestamp_ms,
        partition: record.partition,
    };
    v1::PublishRequest {
        topic: Default::default(),
        cluster: Default::default(),
        records: group.iter().map(record).collect(),
    }
}

fn summary(answer: &v1::PublishResponse) -> ProduceSummary {
    let partitions = answer.partitions.iter().map(|part| {
        let produced =
            ProducedPartition { records: part.records, first_offset: part.first_offset, last_offset: part.last_offset };
        (part.partition, produced)
    });
    ProduceSummary { records: answer.records, partitions: partitions.collect() }
}

//! `tidegate topics`: the topics, or one of them in detail.

use clap::Args;
use tidegate_api::{ApiError, rest, v1};
use tidegate_client::ProducerSettings;
use tidegate_model::{PayloadKind, TimestampType, TopicName};
use tidegate_server::engine::{self, EngineLimits, Payloads};
use tidegate_server::formats::time_text;

use super::publish::{NewTopicArgs, create};
use crate::exit::{EXIT_CODES, Exit, Failure};
use crate::output::sink::{SinkError, print};
use crate::output::table::{Align, layout};
use crate::target::{Brokers, ServerUrl, Target, TargetArgs, connect_cluster, engine};

/// The largest answer that is taken: some lines for each of any number of topics.
const MAX_ANSWER_BYTES: usize = 64 << 20;

const EXAMPLES: &str = "\
Examples:
  tidegate topics
  tidegate topics flights
  tidegate topics flights --json | jq '.partitions[].high_watermark'
  tidegate topics alerts --create --partitions 6 --config retention.ms=-1 --brokers localhost:9092";

fn after_help() -> String {
    format!("{EXAMPLES}\n\n{EXIT_CODES}")
}

/// List the topics, or describe one
#[derive(Debug, Args)]
#[command(after_help = after_help())]
pub(crate) struct TopicsArgs {
    /// The topic to describe [default: list all]
    name: Option<String>,

    /// Also list the topics that the cluster keeps for itself
    #[arg(long, conflicts_with = "name")]
    internal: bool,

    /// Print JSON, as the REST interface gives it
    #[arg(long)]
    json: bool,

    /// Create the topic NAME if it does not exist
    #[arg(long, requires = "name", requires = "direct", help_heading = "Topic")]
    create: bool,

    #[command(flatten)]
    new_topic: NewTopicArgs,

    #[command(flatten)]
    target: TargetArgs,
}

/// Runs the command.
pub(crate) async fn run(args: TopicsArgs) -> Result<Exit, Failure> {
    let text = match (&args.name, args.target.target()?) {
        (None, Target::Server(server)) => show_list(&args, &list_remote(&args, &server).await?),
        (None, Target::Brokers(brokers)) => show_list(&args, &list_local(&brokers, args.internal).await?),
        (Some(name), Target::Server(server)) => show_one(&args, &describe_remote(&args, &server, name).await?),
        (Some(name), Target::Brokers(brokers)) => {
            let name = brokers.topic(Some(name))?;
            show_one(&args, &describe_local(&args, &brokers, &name).await?)
        }
    }?;
    print(&text).map(|()| Exit::Done).map_err(|error| match error {
        SinkError::OutputClosed => Failure::new(Exit::OutputClosed, error),
        error => Failure::new(Exit::Failed, error),
    })
}

async fn local_engine(brokers: &Brokers) -> Result<engine::Engine, Failure> {
    let cluster = connect_cluster(brokers.cluster_config()?).await?;
    engine(cluster, ProducerSettings::default(), Payloads::default(), EngineLimits::default()).map(|(engine, _)| engine)
}

async fn list_local(brokers: &Brokers, internal: bool) -> Result<rest::TopicList, Failure> {
    let engine = local_engine(brokers).await?;
    let topics = engine.list_topics(internal).await.map_err(|error| Failure::from(ApiError::from(error)))?;
    let topics = topics.into_iter().map(|topic| {
        let (payload_kind, message) = payload(&topic.payload);
        rest::TopicSummary {
            name: topic.name.to_string(),
            partitions: u32::try_from(topic.partitions).unwrap_or(u32::MAX),
            internal: topic.internal,
            payload_kind,
            message,
        }
    });
    Ok(rest::TopicList { topics: topics.collect() })
}

async fn list_remote(args: &TopicsArgs, server: &ServerUrl) -> Result<rest::TopicList, Failure> {
    let mut client = server.connect(MAX_ANSWER_BYTES).await?;
    let request = v1::ListTopicsRequest { include_internal: args.internal, cluster: args.target.cluster().into() };
    let answer = client.list_topics(request).await.map_err(|status| server.failure(&status))?.into_inner();
    let topics = answer.topics.into_iter().map(|topic| rest::TopicSummary {
        payload_kind: payload_kind(topic.payload_kind()),
        message: Some(topic.message.to_string()).filter(|message| !message.is_empty()),
        name: topic.name.to_string(),
        partitions: u32::try_from(topic.partitions).unwrap_or_default(),
        internal: topic.internal,
    });
    Ok(rest::TopicList { topics: topics.collect() })
}

async fn describe_local(args: &TopicsArgs, brokers: &Brokers, name: &str) -> Result<rest::TopicDescription, Failure> {
    if args.create {
        let cluster = connect_cluster(brokers.cluster_config()?).await?;
        create(&cluster, &TopicName::new(name).map_err(Failure::usage)?, &args.new_topic).await?;
    }
    let engine = local_engine(brokers).await?;
    let topic = engine.describe_topic(name).await.map_err(|error| Failure::from(ApiError::from(error)))?;
    let (payload_kind, message) = payload(&topic.payload);
    let partitions = topic.partitions.iter().map(|part| rest::PartitionDescription {
        partition: part.partition,
        log_start_offset: part.log_start_offset,
        high_watermark: part.high_watermark,
        last_stable_offset: part.last_stable_offset,
        first_timestamp: part.first_timestamp_ms.and_then(time_text),
        last_timestamp: part.last_timestamp_ms.and_then(time_text),
        leader: part.leader,
    });
    Ok(rest::TopicDescription {
        name: topic.name.to_string(),
        topic_id: topic.id.map(|id| id.to_string()),
        partitions: partitions.collect(),
        timestamp_type: topic.timestamp_type.map(|kind| match kind {
            TimestampType::CreateTime => rest::TimestampType::CreateTime,
            TimestampType::LogAppendTime => rest::TimestampType::LogAppendTime,
        }),
        payload_kind,
        message,
    })
}

async fn describe_remote(args: &TopicsArgs, server: &ServerUrl, name: &str) -> Result<rest::TopicDescription, Failure> {
    let mut client = server.connect(MAX_ANSWER_BYTES).await?;
    let request = v1::DescribeTopicRequest { topic: name.into(), cluster: args.target.cluster().into() };
    let topic = client.describe_topic(request).await.map_err(|status| server.failure(&status))?.into_inner();
    let partitions = topic.partitions.iter().map(|part| rest::PartitionDescription {
        partition: part.partition,
        log_start_offset: part.log_start_offset,
        high_watermark: part.high_watermark,
        last_stable_offset: part.last_stable_offset,
        first_timestamp: part.first_timestamp_ms.and_then(time_text),
        last_timestamp: part.last_timestamp_ms.and_then(time_text),
        leader: Some(part.leader).filter(|leader| *leader >= 0),
    });
    Ok(rest::TopicDescription {
        partitions: partitions.collect(),
        timestamp_type: match topic.timestamp_type() {
            v1::TimestampType::CreateTime => Some(rest::TimestampType::CreateTime),
            v1::TimestampType::LogAppendTime => Some(rest::TimestampType::LogAppendTime),
            v1::TimestampType::Unspecified => None,
        },
        payload_kind: payload_kind(topic.payload_kind()),
        topic_id: Some(topic.topic_id.to_string()).filter(|id| !id.is_empty()),
        message: Some(topic.message.to_string()).filter(|message| !message.is_empty()),
        name: topic.name.to_string(),
    })
}

fn payload(payload: &PayloadKind) -> (rest::PayloadKind, Option<String>) {
    match payload {
        PayloadKind::Bytes => (rest::PayloadKind::Bytes, None),
        PayloadKind::Json => (rest::PayloadKind::Json, None),
        PayloadKind::Protobuf { message } => (rest::PayloadKind::Protobuf, Some(message.clone())),
        PayloadKind::Registry => (rest::PayloadKind::Registry, None),
    }
}

fn payload_kind(kind: v1::PayloadKind) -> rest::PayloadKind {
    match kind {
        v1::PayloadKind::Json => rest::PayloadKind::Json,
        v1::PayloadKind::Protobuf => rest::PayloadKind::Protobuf,
        v1::PayloadKind::Registry => rest::PayloadKind::Registry,
        v1::PayloadKind::Bytes | v1::PayloadKind::Unspecified => rest::PayloadKind::Bytes,
    }
}

fn show_list(args: &TopicsArgs, list: &rest::TopicList) -> Result<String, Failure> {
    if args.json {
        return json(list);
    }
    let head = [("TOPIC", Align::Left), ("PARTITIONS", Align::Right), ("PAYLOAD", Align::Left)];
    let rows: Vec<Vec<String>> = list
        .topics
        .iter()
        .map(|topic| {
            vec![
                topic.name.clone(),
                topic.partitions.to_string(),
                payload_text(topic.payload_kind, topic.message.as_ref()),
            ]
        })
        .collect();
    Ok(layout(&head, &rows))
}

fn show_one(args: &TopicsArgs, topic: &rest::TopicDescription) -> Result<String, Failure> {
    if args.json {
        return json(topic);
    }
    let timestamps = match topic.timestamp_type {
        Some(rest::TimestampType::CreateTime) => "CreateTime",
        Some(rest::TimestampType::LogAppendTime) => "LogAppendTime",
        None => "not known",
    };
    let mut text = format!(
        "topic       {}\nid          {}\npayload     {}\ntimestamps  {timestamps}\n\n",
        topic.name,
        topic.topic_id.as_deref().unwrap_or("none"),
        payload_text(topic.payload_kind, topic.message.as_ref()),
    );
    let head = [
        ("PARTITION", Align::Right),
        ("LOG START", Align::Right),
        ("LAST STABLE", Align::Right),
        ("HIGH WATERMARK", Align::Right),
        ("FIRST TIMESTAMP", Align::Left),
        ("LAST TIMESTAMP", Align::Left),
        ("LEADER", Align::Right),
    ];
    let rows: Vec<Vec<String>> = topic
        .partitions
        .iter()
        .map(|part| {
            vec![
                part.partition.to_string(),
                part.log_start_offset.to_string(),
                part.last_stable_offset.to_string(),
                part.high_watermark.to_string(),
                part.first_timestamp.clone().unwrap_or_else(|| "-".to_owned()),
                part.last_timestamp.clone().unwrap_or_else(|| "-".to_owned()),
                part.leader.map_or_else(|| "none".to_owned(), |leader| leader.to_string()),
            ]
        })
        .collect();
    text.push_str(&layout(&head, &rows));
    Ok(text)
}

fn payload_text(kind: rest::PayloadKind, message: Option<&String>) -> String {
    match (kind, message) {
        (rest::PayloadKind::Protobuf, Some(message)) => format!("protobuf {message}"),
        (rest::PayloadKind::Protobuf, None) => "protobuf".to_owned(),
        (rest::PayloadKind::Registry, _) => "registry".to_owned(),
        (rest::PayloadKind::Json, _) => "json".to_owned(),
        (rest::PayloadKind::Bytes, _) => "bytes".to_owned(),
    }
}

fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(value)
        .map(|text| text + "\n")
        .map_err(|error| Failure::failed("cannot write JSON", &error))
}

//! Publishes with the engine in this process.

use std::time::Duration;

use jiff::Timestamp;
use tidegate_api::ApiError;
use tidegate_client::{Cluster, CreateTopicError, NewTopic, ProducerSettings, RecordToSend};
use tidegate_model::TopicName;
use tidegate_server::engine::{EngineLimits, PublishWarning};

use super::{NewTopicArgs, Outcome, PublishArgs, Stopped, begin_input};
use crate::exit::{Exit, Failure, chain};
use crate::output::progress::Progress;
use crate::output::talk;
use crate::signals::Signals;
use crate::target::{Brokers, connect_cluster, engine};
use crate::units::{counted, span};

/// A warning that comes before the end is worth a line only when the end is not near.
const WARN_EARLY_AFTER: Duration = Duration::from_secs(3);

/// The largest record that the producer takes on; the topic's own limit decides below that.
pub(crate) const MAX_RECORD_BYTES: usize = 64 << 20;

pub(super) async fn publish(args: &PublishArgs, brokers: &Brokers, signals: &mut Signals) -> Result<Outcome, Failure> {
    brokers.topic(Some(&args.topic))?;
    let payloads = args.schema.payloads(&args.topic)?;
    let name = TopicName::new(&args.topic).map_err(Failure::usage)?;
    let cluster = connect_cluster(brokers.cluster_config()?).await?;
    if args.create {
        create(&cluster, &name, &args.new_topic).await?;
    }
    let mut settings = ProducerSettings { message_max_bytes: MAX_RECORD_BYTES, ..ProducerSettings::default() };
    brokers.producer(&mut settings)?;
    if let Some(compression) = args.compression {
        settings.compression = compression.into();
    }
    let (engine, _) = engine(cluster, settings, payloads, EngineLimits::default())?;
    let api = |error| Failure::from(ApiError::from(error));
    let mut publishing = engine.publish(&args.topic).await.map_err(api)?;

    let payload = publishing.take_json().await.map_err(api)?.clone();
    let mut groups = begin_input(args, payload)?;
    let mut progress = Progress::new(format!("publishing to {name}"), None, false);
    let (mut records, mut value_bytes, mut warned) = (0_u64, 0_u64, false);
    let stopped = loop {
        let group = tokio::select! {
            _ = signals.first() => break Some(Stopped::Signal),
            group = groups.recv() => group,
        };
        let group = match group {
            None => break None,
            Some(Err(error)) => break Some(Stopped::Input(error)),
            Some(Ok(group)) => group,
        };
        for record in group.iter() {
            let to_send = RecordToSend {
                partition: record.partition,
                key: record.key,
                value: record.value,
                headers: &record.headers,
                timestamp_ms: record.timestamp_ms,
            };
            publishing.send(&to_send).await.map_err(api).map_err(partly)?;
            value_bytes += record.value.map_or(0, <[u8]>::len) as u64;
        }
        records += group.len() as u64;
        progress.set(records);
        if !warned && progress.elapsed() > WARN_EARLY_AFTER {
            for warning in publishing.warnings() {
                warned = true;
                progress.warn(explain(&warning));
            }
        }
    };
    let warnings = publishing.warnings().iter().map(explain).collect();
    let summary = tokio::select! {
        summary = publishing.finish() => summary.map_err(api).map_err(partly)?,
        stop = signals.first() => stop.exit(),
    };
    Ok(Outcome { summary, value_bytes, elapsed: progress.elapsed(), stopped, warnings })
}

/// Records before the one that failed may have been written.
fn partly(failure: Failure) -> Failure {
    let message = format!("{}; records before it may have been written", failure.message);
    Failure { exit: Exit::Incomplete, message, ..failure }
}

/// A warning with what to do.
fn explain(warning: &PublishWarning) -> String {
    match warning {
        PublishWarning::Retention { topic, retention, records, oldest_ms } => {
            let oldest =
                Timestamp::from_millisecond(*oldest_ms).map_or_else(|_| format!("{oldest_ms} ms"), |at| at.to_string());
            format!(
                "{} older than topic {topic} keeps them: it has retention.ms={} ({}), the oldest timestamp is {oldest}. \
                 Kafka deletes them at its next clean-up; set retention.ms=-1 on the topic to keep them (for a new one: \
                 --create --config retention.ms=-1)",
                if *records == 1 { "1 record is".to_owned() } else { format!("{} are", counted(*records, "record")) },
                retention.as_millis(),
                span(*retention),
            )
        }
    }
}

/// Creates the topic, unless it is there.
pub(crate) async fn create(cluster: &Cluster, name: &TopicName, args: &NewTopicArgs) -> Result<(), Failure> {
    let topic = NewTopic {
        name: name.clone(),
        partitions: args.partitions.unwrap_or(-1),
        replication_factor: args.replication_factor.unwrap_or(-1),
        config: args.config.iter().cloned().collect(),
    };
    match cluster.create_topic(&topic).await {
        Ok(()) => {
            talk::say(format_args!("created topic {name}"));
            Ok(())
        }
        Err(CreateTopicError::Exists { .. }) => {
            talk::say(format_args!("topic {name} exists already and stays as it is"));
            Ok(())
        }
        Err(error @ (CreateTopicError::Refused { .. } | CreateTopicError::NotAuthorized { .. })) => {
            Err(Failure::new(Exit::Refused, chain(&error)))
        }
        Err(error) => Err(Failure::new(Exit::Unavailable, chain(&error))),
    }
}

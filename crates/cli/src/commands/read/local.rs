//! Reads with the engine in this process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use futures_util::StreamExt as _;
use tidegate_api::{ApiError, rest};
use tidegate_client::ProducerSettings;
use tidegate_codec::registry::SchemaKey;
use tidegate_model::Record;
use tidegate_plan::EndStatement;
use tidegate_server::engine::{Encode, EncodeError, EngineLimits, PlannedRead, Resolved};
use tidegate_server::formats::{Encoder, Format, Part, end, ndjson};

use super::{Ended, ReadArgs};
use crate::exit::Failure;
use crate::output::progress::Progress;
use crate::output::sink::Sink;
use crate::target::{Brokers, connect_cluster, engine};

/// A read that is ready.
pub(super) struct LocalRead {
    planned: PlannedRead,
    format: Format,
}

/// Connects and plans: all that can fail before the first record.
pub(super) async fn begin(args: &ReadArgs, brokers: &Brokers) -> Result<LocalRead, Failure> {
    let payloads = args.schema.payloads(args.topic())?;
    let cluster = connect_cluster(brokers.cluster_config()?).await?;
    let (engine, _) = engine(cluster, ProducerSettings::default(), payloads, EngineLimits::default())?;
    let planned = engine.plan_read(args.request()).await.map_err(|error| Failure::from(ApiError::from(error)))?;
    Ok(LocalRead { planned, format: args.format.into() })
}

impl LocalRead {
    /// Reads into `sink`. Answers with the number of records and with how it ended.
    pub(super) async fn run(self, sink: &Sink, progress: &mut Progress) -> (u64, Ended) {
        let Self { planned, format } = self;
        let seen = Arc::new(Seen::default());
        let encoder = Encoder::new(format, planned.values(), planned.chunk_target_bytes());
        let mut stream = planned.stream(Tap { encoder, seen: Arc::clone(&seen) });
        let mut apart = None;
        let failure = loop {
            let part = tokio::select! {
                () = sink.closed() => return (seen.records(), Ended::OutputClosed),
                part = stream.next() => part,
            };
            match part {
                None => break None,
                Some(Ok(Part::End { apart: text })) => apart = text,
                Some(Ok(Part::Data(bytes))) => {
                    if sink.write(bytes).await.is_err() {
                        return (seen.records(), Ended::OutputClosed);
                    }
                }
                Some(Err(error)) => break Some(ApiError::from(error)),
            }
            progress.set(seen.records());
        };
        let ended = match (failure, seen.end.get()) {
            (Some(error), _) => {
                if format == Format::Ndjson {
                    let mut line = Vec::new();
                    ndjson::write_error(&mut line, &error);
                    // If nobody takes it the exit code still says it.
                    let _ = sink.write(line.into()).await;
                }
                Ended::Failed(error.into())
            }
            (None, Some(end)) => Ended::Complete { end: end.clone(), apart },
            (None, None) => Ended::Failed(Failure::failed_plain("the read ended without an end statement")),
        };
        (seen.records(), ended)
    }
}

/// What went through the encoder.
#[derive(Default)]
struct Seen {
    records: AtomicU64,
    end: OnceLock<rest::EndStatement>,
}

impl Seen {
    fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }
}

/// An encoder that is watched.
struct Tap {
    encoder: Encoder,
    seen: Arc<Seen>,
}

impl Encode for Tap {
    type Frame = Part;

    fn needs(&self, record: &Record<'_>) -> Option<SchemaKey> {
        self.encoder.needs(record)
    }

    fn learn(&mut self, key: SchemaKey, schema: Resolved) {
        self.encoder.learn(key, schema);
    }

    fn push(&mut self, partition: i32, record: &Record<'_>, out: &mut Vec<Part>) -> Result<(), EncodeError> {
        self.encoder.push(partition, record, out)?;
        self.seen.records.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn flush(&mut self, out: &mut Vec<Part>) {
        self.encoder.flush(out);
    }

    fn finish(&mut self, end: &EndStatement, out: &mut Vec<Part>) -> Result<(), EncodeError> {
        self.encoder.finish(end, out)?;
        // Set once: an encoder is finished once.
        let _ = self.seen.end.set(end::statement(end));
        Ok(())
    }

    fn values_not_converted(&self) -> u64 {
        self.encoder.values_not_converted()
    }
}

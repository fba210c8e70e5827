//! Reading one assigned partition: a task that fetches, waits out what passes, and hands over when it is told to stop.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tidegate_model::TopicPartition;
use tokio::sync::{Semaphore, oneshot};

use super::desk::Desk;
use super::error::GroupError;
use super::options::GroupOptions;
use super::start::{Policy, bounds, decide};
use crate::cluster::{Cluster, MetadataError};
use crate::error::code;
use crate::fetch::{Fetcher, ReadError, Reader, ReaderOptions, Slice};
use crate::offsets::ListOffsetsError;

/// How many chunks of a partition are ready at most; what is fetched beyond waits in the reader.
const PLACES: usize = 2;

/// The most chunks that are taken from a reader which is to end: all that it holds ready.
const LAST_CHUNKS: usize = 32;

/// The pauses after failures in a row.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The pause after so many failures in a row.
pub(super) fn pause(failures: u32) -> Duration {
    PAUSE.saturating_mul(1 << failures.min(10)).min(LONGEST_PAUSE)
}

/// Starts to read a partition that has no end.
fn start(fetcher: &Fetcher, at: &TopicPartition, from: i64, options: &GroupOptions) -> Reader {
    let options = ReaderOptions {
        isolation: options.isolation,
        max_partition_fetch_bytes: options.max_partition_fetch_bytes,
        fetch_max_wait: options.fetch_max_wait,
        budget: options.budget.clone(),
        ..ReaderOptions::default()
    };
    fetcher.read(Slice::from(at.clone(), from), options)
}

/// What it takes to read a partition of this assignment.
pub(super) struct Feed {
    pub(super) cluster: Cluster,
    pub(super) fetcher: Fetcher,
    pub(super) options: Arc<GroupOptions>,
    pub(super) policy: Policy,
    pub(super) desk: Arc<Desk>,
    pub(super) at: TopicPartition,
    pub(super) assignment: u64,
    /// Where it begins.
    pub(super) from: i64,
}

impl Feed {
    /// Reads until `stop`, or until it cannot go on, which it tells the desk. When told to stop it hands over what has been
    /// fetched, and fetches nothing more.
    pub(super) async fn run(self, mut stop: oneshot::Receiver<()>) {
        let places = Arc::new(Semaphore::new(PLACES));
        let mut reader = start(&self.fetcher, &self.at, self.from, &self.options);
        let mut failures = 0;
        loop {
            let place = tokio::select! {
                _ = &mut stop => break,
                place = Arc::clone(&places).acquire_owned() => place.ok(),
            };
            let next = tokio::select! {
                _ = &mut stop => break,
                next = reader.next() => next,
            };
            let position = reader.position();
            let error = match next {
                Some(Ok(chunk)) => {
                    failures = 0;
                    self.desk.put(self.assignment, chunk, place);
                    continue;
                }
                Some(Err(error)) => error,
                None => ReadError::TaskEnded { topic_partition: self.at.clone(), offset: position },
            };
            let from = tokio::select! {
                _ = &mut stop => return,
                from = self.after(position, &error, failures) => from,
            };
            failures += 1;
            match from {
                Ok(from) => reader = start(&self.fetcher, &self.at, from, &self.options),
                Err(error) => {
                    self.desk.fail_at(&self.at, self.assignment, error);
                    return;
                }
            }
        }
        for _ in 0..LAST_CHUNKS {
            let Some(Some(Ok(chunk))) = reader.next().now_or_never() else { return };
            self.desk.put(self.assignment, chunk, None);
        }
    }

    /// Where to go on after an error, once that makes sense.
    async fn after(&self, position: i64, error: &ReadError, mut failures: u32) -> Result<i64, GroupError> {
        if let ReadError::OffsetOutOfRange { .. } = error {
            let (topic, partitions) = (&self.at.topic, [self.at.partition]);
            let found = loop {
                match bounds(&self.cluster, topic, &partitions, self.options.isolation).await {
                    Ok(found) => break found,
                    Err(error) if look_up_may_pass(&error) => {
                        failures += 1;
                        tokio::time::sleep(pause(failures)).await;
                    }
                    Err(error) => return Err(error.into()),
                }
            };
            let Some(bounds) = found.get(&self.at.partition) else { return Err(error.clone().into()) };
            let to = decide(&self.at, Some(position), false, *bounds, self.policy)?;
            if to != position {
                tracing::warn!(partition = %self.at, from = position, to, "reading goes on elsewhere: {error}");
                self.desk.reset(self.assignment, &self.at, position, to);
            } else {
                tokio::time::sleep(pause(failures)).await;
            }
            return Ok(to);
        }
        if !may_pass(error) {
            return Err(error.clone().into());
        }
        tracing::warn!(partition = %self.at, position, %error, "reading is tried again");
        tokio::time::sleep(pause(failures)).await;
        Ok(position)
    }
}

/// Whether the cluster may do better later. A partition that is gone is the group's to take away.
fn may_pass(error: &ReadError) -> bool {
    match error {
        ReadError::NoLeader { .. }
        | ReadError::UnknownPartition { .. }
        | ReadError::Stalled { .. }
        | ReadError::TaskEnded { .. } => true,
        ReadError::Refused { code, .. } => code::concerns_leader(code.0) || code.0 == code::UNKNOWN_SERVER_ERROR,
        ReadError::Request { source, .. } => source.is_transient(),
        ReadError::Metadata(error) => metadata_may_pass(error),
        ReadError::Bounds { source, .. } => look_up_may_pass(source),
        ReadError::OffsetOutOfRange { .. }
        | ReadError::Truncated { .. }
        | ReadError::NegativeOffset { .. }
        | ReadError::NotAuthorized { .. }
        | ReadError::Batch { .. }
        | ReadError::Marker { .. }
        | ReadError::OutOfOrder { .. }
        | ReadError::BeyondEnd { .. }
        | ReadError::BatchTooLarge { .. } => false,
    }
}

fn metadata_may_pass(error: &MetadataError) -> bool {
    match error {
        MetadataError::UnknownTopic { .. } => true,
        MetadataError::NotAuthorized { .. } => false,
        MetadataError::Refused { code, .. } => code::concerns_leader(code.0) || code.0 == code::UNKNOWN_SERVER_ERROR,
        MetadataError::Request(error) => error.is_transient(),
    }
}

/// The same for a look-up of a log's bounds.
pub(super) fn look_up_may_pass(error: &ListOffsetsError) -> bool {
    match error {
        ListOffsetsError::UnknownPartition { .. } | ListOffsetsError::NoLeader { .. } => true,
        ListOffsetsError::NotAuthorized { .. }
        | ListOffsetsError::MaxTimestampUnsupported { .. }
        | ListOffsetsError::NoTimestamps { .. } => false,
        ListOffsetsError::Refused { code, .. } => code::concerns_leader(code.0) || code.0 == code::UNKNOWN_SERVER_ERROR,
        ListOffsetsError::Request(error) => error.is_transient(),
        ListOffsetsError::Metadata(error) => metadata_may_pass(error),
    }
}

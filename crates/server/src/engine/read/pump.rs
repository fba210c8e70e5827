//! The loop that fetches, filters and encodes.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tidegate_client::{ReadError, Reader, ReaderOptions, Slice};
use tidegate_model::{Chunk, OffsetRange, Record, TopicPartition};
use tidegate_plan::{EndStatement, PartitionTally, Verdict};
use tokio::sync::mpsc;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, sleep_until};

use super::{OnDataLoss, PlannedRead, ReadRangeError, last};
use crate::engine::{Encode, EncodeError};

/// One read in progress.
pub(super) struct Pump<E: Encode> {
    read: PlannedRead,
    tallies: Vec<PartitionTally>,
    /// How many more records the limit lets pass.
    left: u64,
    output: Output<E>,
}

impl<E: Encode> Pump<E> {
    pub(super) fn new(read: PlannedRead, encoder: E, frames: mpsc::Sender<E::Frame>) -> Self {
        let tallies = read.partitions.iter().map(|plan| PartitionTally::new(*plan, read.range)).collect();
        let flush_after = read.engine.limits().flush_after;
        let output = Output { encoder, full: Vec::new(), frames, pending_since: None, flush_after };
        Self { left: read.limit.unwrap_or(u64::MAX), tallies, read, output }
    }

    pub(super) async fn run(mut self) -> Result<(), ReadRangeError> {
        let stop = self.read.engine.inner.stop.clone();
        let read = tokio::select! {
            biased;
            () = stop.cancelled() => return Err(ReadRangeError::ShuttingDown),
            read = self.read_partitions() => read,
        };
        if let Err(error) = read {
            // What was read before the failure is good, and the caller gets it.
            self.output.flush().await;
            return Err(error);
        }
        let ends = self.tallies.into_iter().map(PartitionTally::finish).collect();
        let not_converted = self.output.encoder.values_not_converted();
        let end = EndStatement::new(ends, self.read.isolation, self.read.range, not_converted);
        let finished = self.output.finish(&end).await;
        finished.map_err(|source| ReadRangeError::Encode { topic: self.read.topic, source })
    }

    async fn read_partitions(&mut self) -> Result<(), ReadRangeError> {
        if self.left == 0 {
            return Ok(());
        }
        let options = super::reader_options(&self.read.engine, self.read.isolation);
        let at_once = self.read.engine.limits().readers_at_once();
        let mut waiting = 0..self.tallies.len();
        let mut fetching = FuturesUnordered::new();
        loop {
            while fetching.len() < at_once
                && let Some(index) = waiting.next()
            {
                if !self.tallies[index].is_finished() {
                    fetching.push(next_chunk(index, self.open(index, &options)));
                }
            }
            let due = self.output.due();
            let fetched = tokio::select! {
                biased;
                fetched = fetching.next() => fetched,
                () = reached(due) => {
                    self.output.flush().await;
                    continue;
                }
            };
            let Some(Fetched { index, reader, item }) = fetched else { return Ok(()) };
            match item {
                Some(Ok(chunk)) => {
                    self.consume(index, chunk).await?;
                    if self.left == 0 {
                        return Ok(());
                    }
                    if !self.tallies[index].is_finished() {
                        fetching.push(next_chunk(index, reader));
                    }
                }
                Some(Err(error)) => {
                    drop(reader);
                    self.lose(index, error)?;
                    if !self.tallies[index].is_finished() {
                        fetching.push(next_chunk(index, self.open(index, &options)));
                    }
                }
                None => self.end(index, &reader)?,
            }
        }
    }

    fn open(&self, index: usize, options: &ReaderOptions) -> Reader {
        let slice = Slice { topic_partition: self.topic_partition(index), range: self.tallies[index].remaining() };
        self.read.engine.inner.cluster.read(slice, options.clone())
    }

    fn topic_partition(&self, index: usize) -> TopicPartition {
        TopicPartition::new(self.read.topic.clone(), self.read.partitions[index].partition)
    }

    /// Filters and encodes the records of a chunk, up to the limit.
    async fn consume(&mut self, index: usize, chunk: Chunk) -> Result<(), ReadRangeError> {
        let tally = &mut self.tallies[index];
        let partition = chunk.topic_partition.partition;
        for batch in &chunk.batches {
            for record in batch.records() {
                let record = record.map_err(|source| ReadRangeError::Record {
                    topic_partition: chunk.topic_partition.clone(),
                    offsets: last::offsets_of(batch),
                    source,
                })?;
                if tally.observe(record.offset, record.timestamp_ms) == Verdict::Skip {
                    continue;
                }
                self.left -= 1;
                self.output
                    .push(partition, &record)
                    .map_err(|source| ReadRangeError::Encode { topic: chunk.topic_partition.topic.clone(), source })?;
                self.output.send_full().await;
                if self.left == 0 {
                    return Ok(());
                }
            }
            self.output.flush_if_due().await;
            // A scan that finds nothing to send must let others run too.
            consume_budget().await;
        }
        tally.advance(chunk.next_offset);
        Ok(())
    }

    /// Settles a reader's error: a loss that the caller wants reported is noted, anything else ends the read.
    fn lose(&mut self, index: usize, error: ReadError) -> Result<(), ReadRangeError> {
        let ReadError::OffsetOutOfRange { log_start_offset, high_watermark, .. } = error else {
            return Err(error.into());
        };
        let remaining = self.tallies[index].remaining();
        let lost_until = if remaining.start < log_start_offset {
            log_start_offset
        } else if high_watermark < remaining.start {
            // The log was cut off at its end, by an unclean leader election: nothing is left to read.
            remaining.end
        } else {
            return Err(error.into());
        };
        match self.read.on_data_loss {
            OnDataLoss::Report => {
                self.tallies[index].lose_until(lost_until);
                Ok(())
            }
            OnDataLoss::Fail => Err(ReadRangeError::DataLoss {
                topic_partition: self.topic_partition(index),
                lost: OffsetRange::new(remaining.start, lost_until.min(remaining.end)),
                log_start_offset,
                high_watermark,
            }),
        }
    }

    /// Settles the end of a reader, which must stand at the end of its slice.
    fn end(&mut self, index: usize, reader: &Reader) -> Result<(), ReadRangeError> {
        let tally = &mut self.tallies[index];
        tally.advance(reader.position());
        if tally.is_finished() {
            return Ok(());
        }
        let offset = tally.position();
        Err(ReadError::TaskEnded { topic_partition: self.topic_partition(index), offset }.into())
    }
}

struct Fetched {
    index: usize,
    reader: Reader,
    item: Option<Result<Chunk, ReadError>>,
}

async fn next_chunk(index: usize, mut reader: Reader) -> Fetched {
    let item = reader.next().await;
    Fetched { index, reader, item }
}

/// The encoder and the way out.
struct Output<E: Encode> {
    encoder: E,
    full: Vec<E::Frame>,
    frames: mpsc::Sender<E::Frame>,
    /// Since when a record may be waiting in the encoder.
    pending_since: Option<Instant>,
    flush_after: Duration,
}

impl<E: Encode> Output<E> {
    fn push(&mut self, partition: i32, record: &Record<'_>) -> Result<(), EncodeError> {
        self.encoder.push(partition, record, &mut self.full)?;
        if self.full.is_empty() {
            self.pending_since.get_or_insert_with(Instant::now);
        } else {
            self.pending_since = Some(Instant::now());
        }
        Ok(())
    }

    /// Hands the full frames over, one by one: waits for whoever reads them.
    async fn send_full(&mut self) {
        for frame in self.full.drain(..) {
            // Nobody reads any more only when the stream, and this with it, is being dropped.
            if self.frames.send(frame).await.is_err() {
                return;
            }
        }
    }

    async fn flush(&mut self) {
        self.pending_since = None;
        self.encoder.flush(&mut self.full);
        self.send_full().await;
    }

    /// When a record will have waited for long enough; `None`: none waits.
    fn due(&self) -> Option<Instant> {
        self.pending_since.map(|since| since + self.flush_after)
    }

    async fn flush_if_due(&mut self) {
        if self.due().is_some_and(|due| due <= Instant::now()) {
            self.flush().await;
        }
    }

    async fn finish(&mut self, end: &EndStatement) -> Result<(), EncodeError> {
        let finished = self.encoder.finish(end, &mut self.full);
        self.send_full().await;
        finished
    }
}

/// Waits for a time; for ever without one.
async fn reached(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

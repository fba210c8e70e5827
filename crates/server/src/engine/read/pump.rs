//! The loop that fetches, filters and encodes.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tidegate_client::{ReadError, Reader, ReaderOptions, Slice};
use tidegate_model::{Chunk, OffsetRange, Record, TopicPartition};
use tidegate_plan::{EndStatement, PartitionTally, Verdict};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, sleep_until};

use super::{OnDataLoss, PlannedRead, ReadRangeError, last};
use crate::engine::{Encode, EncodeError, Registry, SchemaFetchError};

/// One read in progress.
pub(super) struct Pump<E: Encode> {
    read: PlannedRead,
    tallies: Vec<PartitionTally>,
    /// How many more records the limit lets pass.
    left: u64,
    /// Where the schemas are that values name, where they do.
    registry: Option<Registry>,
    output: Output<E>,
}

impl<E: Encode> Pump<E> {
    pub(super) fn new(read: PlannedRead, encoder: E, frames: mpsc::Sender<E::Frame>) -> Self {
        let tallies = read.partitions.iter().map(|plan| PartitionTally::new(*plan, read.range)).collect();
        let flush_after = read.engine.limits().flush_after;
        let in_order = read.partitions.len() == 1;
        let output = Output { encoder, full: Vec::new(), frames, pending_since: None, flush_after, in_order };
        let registry = read.values().registry().cloned();
        Self { left: read.limit.unwrap_or(u64::MAX), tallies, registry, read, output }
    }

    pub(super) async fn run(mut self) -> Result<(), ReadRangeError> {
        let stop = self.read.engine.inner.gates.stop.clone();
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
        self.read.engine.inner.fetcher.read(slice, options.clone())
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
                if let Some(registry) = &self.registry {
                    self.output.learn_what(&record, registry).await.map_err(|source| ReadRangeError::Schema {
                        topic_partition: chunk.topic_partition.clone(),
                        offset: record.offset,
                        source,
                    })?;
                }
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
        // Also behind chunks that hold nothing to deliver.
        self.output.flush_if_due().await;
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
    /// Since when the oldest record may have been waiting in the encoder. Time in which whoever reads the frames had not
    /// taken the one before does not count: a slow reader is no reason for small frames.
    pending_since: Option<Instant>,
    flush_after: Duration,
    /// Whether a full frame leaves nothing older behind: only where one partition is read.
    in_order: bool,
}

impl<E: Encode> Output<E> {
    fn push(&mut self, partition: i32, record: &Record<'_>) -> Result<(), EncodeError> {
        self.encoder.push(partition, record, &mut self.full)?;
        if self.in_order && !self.full.is_empty() {
            self.pending_since = None;
        }
        self.pending_since.get_or_insert_with(Instant::now);
        Ok(())
    }

    /// Fetches the schema that the encoder needs for the record, if there is one.
    async fn learn_what(&mut self, record: &Record<'_>, registry: &Registry) -> Result<(), SchemaFetchError> {
        let Some(key) = self.encoder.needs(record) else { return Ok(()) };
        let schema = match registry.kept(key) {
            Some(schema) => schema,
            None => {
                // Nobody waits for a registry with records that are ready.
                self.flush().await;
                registry.get(key).await?
            }
        };
        self.encoder.learn(key, schema);
        Ok(())
    }

    /// Hands the full frames over, one by one: waits for whoever reads them.
    async fn send_full(&mut self) {
        for frame in self.full.drain(..) {
            let waiting_since = match self.frames.try_send(frame) {
                Ok(()) => continue,
                Err(TrySendError::Full(frame)) => {
                    let since = Instant::now();
                    if self.frames.send(frame).await.is_err() {
                        return;
                    }
                    since
                }
                // Nobody reads any more only when the stream, and this with it, is being dropped.
                Err(TrySendError::Closed(_)) => return,
            };
            if let Some(since) = &mut self.pending_since {
                *since += waiting_since.elapsed();
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

#[cfg(test)]
mod tests {
    use tidegate_codec::registry::SchemaKey;
    use tidegate_model::{Headers, TimestampType};
    use tokio::time::advance;

    use super::*;
    use crate::engine::Resolved;

    /// Gives out the partitions of its records: ten of one partition at a time, or all on a flush.
    #[derive(Default)]
    struct Tens(Vec<i32>);

    impl Encode for Tens {
        type Frame = Vec<i32>;

        fn needs(&self, _record: &Record<'_>) -> Option<SchemaKey> {
            None
        }

        fn learn(&mut self, _key: SchemaKey, _schema: Resolved) {}

        fn push(&mut self, partition: i32, _record: &Record<'_>, out: &mut Vec<Vec<i32>>) -> Result<(), EncodeError> {
            self.0.push(partition);
            if self.0.iter().filter(|pending| **pending == partition).count() == 10 {
                self.0.retain(|pending| *pending != partition);
                out.push(vec![partition; 10]);
            }
            Ok(())
        }

        fn flush(&mut self, out: &mut Vec<Vec<i32>>) {
            out.extend((!self.0.is_empty()).then(|| std::mem::take(&mut self.0)));
        }

        fn finish(&mut self, _end: &EndStatement, out: &mut Vec<Vec<i32>>) -> Result<(), EncodeError> {
            self.flush(out);
            Ok(())
        }

        fn values_not_converted(&self) -> u64 {
            0
        }
    }

    const RECORD: Record<'static> = Record {
        offset: 0,
        timestamp_ms: 0,
        timestamp_type: TimestampType::CreateTime,
        key: None,
        value: None,
        headers: Headers::EMPTY,
    };

    fn output(in_order: bool) -> (Output<Tens>, mpsc::Receiver<Vec<i32>>) {
        let (frames, taken) = mpsc::channel(1);
        let flush_after = Duration::from_millis(20);
        let output =
            Output { encoder: Tens::default(), full: Vec::new(), frames, pending_since: None, flush_after, in_order };
        (output, taken)
    }

    impl Output<Tens> {
        async fn step(&mut self, partition: i32) {
            self.push(partition, &RECORD).unwrap();
            self.send_full().await;
            self.flush_if_due().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_waits_for_as_long_as_allowed_and_no_longer() {
        let (mut output, mut taken) = output(true);
        output.step(0).await;
        advance(Duration::from_millis(19)).await;
        output.flush_if_due().await;
        assert!(taken.try_recv().is_err());
        advance(Duration::from_millis(1)).await;
        output.flush_if_due().await;
        assert_eq!(taken.try_recv().unwrap(), [0]);
        assert_eq!(output.due(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_partition_that_fills_frames_does_not_make_another_one_wait() {
        let (mut output, mut taken) = output(false);
        output.step(7).await;
        for _ in 0..3 {
            for _ in 0..10 {
                output.step(0).await;
            }
            assert_eq!(taken.try_recv().unwrap(), [0; 10]);
            advance(Duration::from_millis(7)).await;
        }
        output.flush_if_due().await;
        assert_eq!(taken.try_recv().unwrap(), [7]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_gets_full_frames_all_the_same() {
        for in_order in [true, false] {
            let (mut output, mut taken) = output(in_order);
            let reader = tokio::spawn(async move {
                let mut sizes = Vec::new();
                while let Some(frame) = taken.recv().await {
                    sizes.push(frame.len());
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                sizes
            });
            for _ in 0..200 {
                output.step(0).await;
            }
            drop(output);
            assert_eq!(reader.await.unwrap(), [10; 20]);
        }
    }
}

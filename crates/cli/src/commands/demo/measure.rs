//! What a topic takes, measured by reading it: the record batches as they stand in the log, and the values in them.

use tidegate_client::{Cluster, OffsetQuery, ReadError, ReaderOptions, Slice};
use tidegate_model::{BatchHeader, Chunk, Compression, Isolation, OffsetRange, RecordError, TopicName, TopicPartition};

use crate::exit::{Exit, Failure, chain};

/// What comes before `batch_length` in a record batch: the base offset and that length itself.
const BEFORE_BATCH_LENGTH: u64 = 12;

/// What a topic takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Measured {
    pub(super) partitions: u64,
    pub(super) records: u64,
    /// The values alone, uncompressed.
    pub(super) value_bytes: u64,
    /// The record batches as the broker stores them: headers, keys, values and timestamps, compressed as they are.
    pub(super) stored_bytes: u64,
    pub(super) compressions: Compressions,
}

/// Which codecs occur.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Compressions([bool; 5]);

const CODECS: [Compression; 5] =
    [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

impl Compressions {
    #[cfg(test)]
    pub(super) fn of(compression: Compression) -> Self {
        let mut all = Self::default();
        all.add(compression);
        all
    }

    fn add(&mut self, compression: Compression) {
        for (seen, codec) in self.0.iter_mut().zip(CODECS) {
            *seen |= codec == compression;
        }
    }

    fn merge(&mut self, other: Self) {
        for (seen, other) in self.0.iter_mut().zip(other.0) {
            *seen |= other;
        }
    }
}

impl Measured {
    /// Counts one chunk of a read.
    pub(super) fn add(&mut self, chunk: &Chunk) -> Result<(), RecordError> {
        for batch in &chunk.batches {
            self.add_header(batch.header());
            for record in batch.records() {
                self.records += 1;
                self.value_bytes += record?.value.map_or(0, <[u8]>::len) as u64;
            }
        }
        Ok(())
    }

    fn add_header(&mut self, header: &BatchHeader) {
        self.stored_bytes += u64::try_from(header.batch_length).unwrap_or_default() + BEFORE_BATCH_LENGTH;
        if let Ok(compression) = header.attributes.compression() {
            self.compressions.add(compression);
        }
    }

    /// Puts the measures of two partitions together.
    pub(super) fn merge(&mut self, other: &Self) {
        self.partitions += other.partitions;
        self.records += other.records;
        self.value_bytes += other.value_bytes;
        self.stored_bytes += other.stored_bytes;
        self.compressions.merge(other.compressions);
    }

    /// How the batches of both are compressed, in words.
    pub(super) fn compression_text(&self, other: &Self) -> String {
        let mut all = self.compressions;
        all.merge(other.compressions);
        let names: Vec<&str> = CODECS
            .iter()
            .zip(all.0)
            .filter(|(_, seen)| *seen)
            .map(|(codec, _)| if *codec == Compression::None { "uncompressed" } else { codec.name() })
            .collect();
        names.join(" and ")
    }
}

/// Measures a topic.
pub(super) async fn topic(cluster: &Cluster, name: &TopicName) -> Result<Measured, Failure> {
    let mut measured = Measured::default();
    for (topic_partition, range) in ranges(cluster, name).await? {
        let mut part = Measured { partitions: 1, ..Measured::default() };
        let mut reader = cluster.read(Slice { topic_partition, range }, ReaderOptions::default());
        while let Some(chunk) = reader.next().await {
            part.add(&chunk.map_err(|error| read_failure(&error))?).map_err(|error| record_failure(name, &error))?;
        }
        measured.merge(&part);
    }
    Ok(measured)
}

/// What each partition holds.
pub(super) async fn ranges(cluster: &Cluster, name: &TopicName) -> Result<Vec<(TopicPartition, OffsetRange)>, Failure> {
    let unavailable = |text: String| Failure::new(Exit::Unavailable, text);
    let info = cluster.topic(name).await.map_err(|error| unavailable(chain(&error)))?;
    let partitions: Vec<i32> = info.partitions.iter().map(|part| part.partition).collect();
    let queries: Vec<_> = partitions
        .iter()
        .flat_map(|partition| [(*partition, OffsetQuery::Earliest), (*partition, OffsetQuery::Latest)])
        .collect();
    let answers = cluster
        .list_offsets(name, &queries, Isolation::ReadCommitted)
        .await
        .map_err(|error| unavailable(chain(&error)))?;
    // Two answers a partition, in the order of the queries.
    let offset = |at: usize| answers.get(at).and_then(|answer| answer.found.as_ref()).map(|found| found.offset);
    partitions
        .into_iter()
        .enumerate()
        .map(|(index, partition)| {
            let bounds = offset(2 * index).zip(offset(2 * index + 1));
            let (start, end) = bounds
                .ok_or_else(|| unavailable(format!("the broker does not tell the ends of {name}-{partition}")))?;
            Ok((TopicPartition::new(name.clone(), partition), OffsetRange::new(start, end)))
        })
        .collect()
}

pub(super) fn read_failure(error: &ReadError) -> Failure {
    Failure::failed("the embedded broker", error)
}

pub(super) fn record_failure(name: &TopicName, error: &RecordError) -> Failure {
    Failure::failed_plain(format_args!("topic {name} holds a damaged record batch: {error}"))
}

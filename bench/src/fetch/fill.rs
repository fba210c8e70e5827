//! Fills a topic as a Java producer with its default `batch.size` of 16 KiB would, but faster.
//!
//! A request of ours holds one batch of some 16 KiB for each partition, as the protocol wants it (Produce version 3 or later; zstd wants 7),
//! and several connections keep the broker busy. A Java producer counts `batch.size` after compression, by an estimate of
//! the ratio; so the batches of compressed topics are 16 KiB compressed here as well.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use tidegate_client::{Cluster, ClusterConfig, NewTopic, OffsetAnswer, OffsetQuery};
use tidegate_model::{Compression, Isolation, TopicName};
use tidegate_wire::{BatchOptions, BatchWriter};

use super::text::Words;

/// The default of a Java producer's `batch.size`.
const BATCH_BYTES: usize = 16 << 10;
/// The records of uneven batches of 1 KB each, the fewest and the most: as many as came while a producer waited.
const UNEVEN_RECORDS: (usize, usize) = (50, 900);
/// How many connections write at once.
const CONNECTIONS: usize = 2;
/// How many requests one connection has on their way.
const IN_FLIGHT: usize = 8;

/// What a topic holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Values {
    /// Random bytes, which do not compress.
    Random,
    /// Log events as JSON.
    Text,
}

/// A topic to fill.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Topic {
    /// Its name.
    pub name: &'static str,
    /// Its partitions.
    pub partitions: i32,
    /// What its values are.
    pub values: Values,
    /// The bytes of one value.
    pub value_bytes: usize,
    /// How its batches are compressed: `none`, `lz4` or `zstd`.
    pub compression: &'static str,
    /// Whether its batches are large and each of another size, rather than of 16 KiB.
    pub uneven: bool,
    /// The bytes of all its values.
    pub bytes: u64,
}

impl Topic {
    fn compression(&self) -> Compression {
        match self.compression {
            "lz4" => Compression::Lz4,
            "zstd" => Compression::Zstd,
            _ => Compression::None,
        }
    }

    /// The records of each batch that one connection writes to each partition.
    fn batches(&self) -> Result<Vec<usize>> {
        let even = self.records_per_batch()?;
        let wanted = self.bytes.div_ceil(self.value_bytes as u64 * self.partitions as u64 * CONNECTIONS as u64);
        let mut batches = Vec::new();
        let mut records = 0;
        while records < wanted {
            let (least, most) = UNEVEN_RECORDS;
            let next = if self.uneven { least + batches.len() * 389 % (most - least) } else { even };
            batches.push(next);
            records += next as u64;
        }
        Ok(batches)
    }

    fn records_per_batch(&self) -> Result<usize> {
        let mut records = BATCH_BYTES / (self.value_bytes + 8);
        if self.compression() != Compression::None {
            let mut source = Source::new(*self, 1);
            let plain = source.batch(64)?.1 as f64;
            let stored = source.batch(64)?.0.len() as f64;
            records = (records as f64 * plain / stored) as usize;
        }
        Ok(records.max(1))
    }
}

/// Creates and fills the topic on the broker at `address`; the end offset of each partition. To be called inside the
/// broker's namespace.
pub fn fill(address: SocketAddr, topic: Topic) -> Result<Vec<(i32, i64)>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let cluster = runtime.block_on(create(address, topic))?;
    let batches = topic.batches()?;
    std::thread::scope(|scope| {
        let batches = &batches;
        let writers: Vec<_> =
            (0..CONNECTIONS as u64).map(|seed| scope.spawn(move || write(address, topic, batches, seed + 1))).collect();
        writers.into_iter().try_for_each(|writer| writer.join().unwrap_or_else(|_| anyhow::bail!("a writer panicked")))
    })?;
    let end = i64::try_from(CONNECTIONS * batches.iter().sum::<usize>())?;
    let ends = runtime.block_on(ends(&cluster, topic))?;
    ensure!(ends.iter().all(|&(_, at)| at == end), "the broker kept other records of {} than it took", topic.name);
    Ok(ends)
}

/// Creates the topic and waits until its leader takes requests.
async fn create(address: SocketAddr, topic: Topic) -> Result<Cluster> {
    let cluster = Cluster::connect(ClusterConfig::new([address.to_string()])).await?;
    let name = TopicName::new(topic.name)?;
    let config = [("max.message.bytes".to_owned(), "1048588".to_owned())].into();
    cluster.create_topic(&NewTopic { name, partitions: topic.partitions, replication_factor: 1, config }).await?;
    // The metadata name a leader a moment before it knows that it leads; this asks until it does.
    ends(&cluster, topic).await?;
    Ok(cluster)
}

/// The end offset of each partition.
async fn ends(cluster: &Cluster, topic: Topic) -> Result<Vec<(i32, i64)>> {
    let queries: Vec<_> = (0..topic.partitions).map(|partition| (partition, OffsetQuery::Latest)).collect();
    let answers = cluster.list_offsets(&TopicName::new(topic.name)?, &queries, Isolation::ReadUncommitted).await?;
    let offset = |answer: &OffsetAnswer| Some((answer.partition, answer.found.as_ref()?.offset));
    answers.iter().map(offset).collect::<Option<_>>().context("a partition without an end")
}

/// One connection's requests.
fn write(address: SocketAddr, topic: Topic, batches: &[usize], seed: u64) -> Result<()> {
    let mut stream = TcpStream::connect(address).context("the broker's port")?;
    stream.set_nodelay(true)?;
    let mut source = Source::new(topic, seed);
    let mut request = Vec::new();
    let mut waiting = 0;
    for records in batches {
        begin(&mut request, &topic);
        for partition in 0..topic.partitions {
            let (batch, _) = source.batch(*records)?;
            request.extend(partition.to_be_bytes());
            request.extend(i32::try_from(batch.len())?.to_be_bytes());
            request.extend(&batch[..]);
        }
        let size = i32::try_from(request.len() - 4)?;
        request[..4].copy_from_slice(&size.to_be_bytes());
        if waiting == IN_FLIGHT {
            answer(&mut stream, &topic)?;
            waiting -= 1;
        }
        stream.write_all(&request)?;
        waiting += 1;
    }
    (0..waiting).try_for_each(|_| answer(&mut stream, &topic))
}

/// Produce, version 7, acks=1, up to the number of partitions.
fn begin(request: &mut Vec<u8>, topic: &Topic) {
    request.clear();
    request.extend([0; 4]); // the size
    request.extend([0, 0, 0, 7]); // Produce, version 7
    request.extend([0; 4]); // the correlation id: answers come in order
    request.extend([0xff, 0xff]); // no client id
    request.extend([0xff, 0xff]); // no transactional id
    request.extend(1_i16.to_be_bytes()); // acks
    request.extend(30_000_i32.to_be_bytes()); // the timeout in ms
    request.extend(1_i32.to_be_bytes()); // topics
    request.extend((topic.name.len() as i16).to_be_bytes());
    request.extend(topic.name.as_bytes());
    request.extend(topic.partitions.to_be_bytes());
}

/// Reads one answer: size, correlation id, topics, and for each partition index, error code, base offset,
/// append time and log start offset: 30 bytes.
fn answer(stream: &mut TcpStream, topic: &Topic) -> Result<()> {
    let mut size = [0; 4];
    stream.read_exact(&mut size)?;
    let size = usize::try_from(i32::from_be_bytes(size))?;
    ensure!(size < 1 << 20, "an answer of {size} bytes to a produce request");
    let mut answer = vec![0; size];
    stream.read_exact(&mut answer)?;
    let partitions = answer.get(4 + 4 + 2 + topic.name.len() + 4..).unwrap_or_default();
    for partition in partitions.chunks_exact(30) {
        let code = i16::from_be_bytes([partition[4], partition[5]]);
        ensure!(code == 0, "the broker refuses a batch of {}: error code {code}", topic.name);
    }
    ensure!(partitions.len() / 30 == topic.partitions as usize, "an answer without all partitions of {}", topic.name);
    Ok(())
}

/// Makes the batches of one connection.
struct Source {
    topic: Topic,
    words: Words,
    value: Vec<u8>,
    timestamp_ms: i64,
}

impl Source {
    fn new(topic: Topic, seed: u64) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { topic, words: Words::new(seed), value: vec![0; topic.value_bytes], timestamp_ms: now.as_millis() as i64 }
    }

    /// A batch of so many records, and its bytes without compression.
    fn batch(&mut self, records: usize) -> Result<(impl std::ops::Deref<Target = [u8]>, usize)> {
        let options = BatchOptions { compression: self.topic.compression(), ..BatchOptions::default() };
        let mut writer = BatchWriter::new(options);
        for _ in 0..records {
            match self.topic.values {
                Values::Random => self.words.random(&mut self.value),
                Values::Text => self.words.event(&mut self.value, self.timestamp_ms),
            }
            writer.push(self.timestamp_ms, None, Some(&self.value), [])?;
        }
        self.timestamp_ms += 1;
        let bytes = writer.bytes();
        Ok((writer.finish()?, bytes))
    }
}

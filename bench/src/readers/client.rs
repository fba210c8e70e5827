//! One reader.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use tidegate_api::v1::read_range_response::Message;
use tidegate_api::v1::tidegate_client::TidegateClient;
use tidegate_api::v1::{Columns, Layout, ReadRangeRequest, Rows};
use tonic::transport::{Channel, Endpoint};
use twox_hash::xxhash3_128::Hasher;

/// Whether a reader stops on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// It reads as fast as it can.
    No,
    /// It takes one message and then nothing until it is told to go on.
    AfterFirstMessage,
}

/// What a reader got.
#[derive(Debug, Default)]
pub struct Outcome {
    /// By partition: the hash of its records in order.
    pub hashes: BTreeMap<i32, u128>,
    /// How many records.
    pub records: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// How many messages the stream had.
    pub messages: u64,
}

/// A connection of its own, with the settings of a default client.
pub async fn connect(address: String) -> Result<TidegateClient<Channel>> {
    let channel = Endpoint::from_shared(address)?.connect().await.context("connect")?;
    Ok(TidegateClient::new(channel))
}

/// Reads the whole topic. `hold` is awaited once, after the first message.
pub async fn read(
    mut client: TidegateClient<Channel>,
    topic: &str,
    layout: Layout,
    hold: impl Future<Output = ()> + Send,
) -> Result<Outcome> {
    let request = ReadRangeRequest { topic: topic.to_owned(), layout: layout.into(), ..Default::default() };
    let mut stream = client.read_range(request).await.context("ReadRange")?.into_inner();
    let mut records = Records::default();
    let mut messages = 0;
    let mut end = None;
    let mut hold = Some(hold);
    while let Some(response) = stream.message().await.context("the stream")? {
        ensure!(end.is_none(), "a message behind the end statement");
        messages += 1;
        match response.message {
            Some(Message::Rows(rows)) => records.rows(&rows),
            Some(Message::Columns(columns)) => records.columns(&columns)?,
            Some(Message::End(statement)) => end = Some(statement),
            None => bail!("an empty message"),
        }
        if let Some(hold) = hold.take() {
            hold.await;
        }
    }
    let end = end.context("no end statement")?;
    ensure!(end.exhaustive, "the end statement does not say exhaustive");
    ensure!(end.records_sent == records.records, "{} records came of {} sent", records.records, end.records_sent);
    Ok(Outcome {
        hashes: records.partitions.iter().map(|(partition, hasher)| (*partition, hasher.finish_128())).collect(),
        records: records.records,
        bytes: records.bytes,
        messages,
    })
}

/// The records so far. Both layouts come to the same hash.
#[derive(Default)]
struct Records {
    partitions: BTreeMap<i32, Hasher>,
    records: u64,
    bytes: u64,
}

impl Records {
    fn rows(&mut self, rows: &Rows) {
        let hasher = self.partitions.entry(rows.partition).or_default();
        for row in &rows.rows {
            let (key, value) = (row.key.as_deref(), row.value.as_deref());
            self.bytes += hash(hasher, row.offset, row.timestamp_ms, key, value);
        }
        self.records += rows.rows.len() as u64;
    }

    fn columns(&mut self, columns: &Columns) -> Result<()> {
        let hasher = self.partitions.entry(columns.partition).or_default();
        let count = columns.offset_deltas.len();
        let lengths = [columns.timestamp_deltas.len(), columns.key_lengths.len(), columns.value_lengths.len()];
        ensure!(lengths == [count; 3], "columns of different lengths: {count} and {lengths:?}");
        let (mut offset, mut timestamp) = (0, 0);
        let (mut keys, mut values) = (&columns.keys[..], &columns.values[..]);
        for index in 0..count {
            offset += columns.offset_deltas[index];
            timestamp += columns.timestamp_deltas[index];
            let key = cut(&mut keys, columns.key_lengths[index]).context("the keys are too short")?;
            let value = cut(&mut values, columns.value_lengths[index]).context("the values are too short")?;
            self.bytes += hash(hasher, offset, timestamp, key, value);
        }
        ensure!(keys.is_empty() && values.is_empty(), "bytes are left over");
        self.records += count as u64;
        Ok(())
    }
}

/// A key or value from the front of its column: its length plus one, or 0 for null.
#[allow(clippy::option_option, reason = "the outer one is an error, the inner one is null")]
fn cut<'c>(column: &mut &'c [u8], length: u32) -> Option<Option<&'c [u8]>> {
    let Some(length) = length.checked_sub(1) else { return Some(None) };
    let (value, rest) = column.split_at_checked(length as usize)?;
    *column = rest;
    Some(Some(value))
}

/// Hashes one record. Gives the bytes of its key and value.
fn hash(hasher: &mut Hasher, offset: i64, timestamp: i64, key: Option<&[u8]>, value: Option<&[u8]>) -> u64 {
    let length = |bytes: Option<&[u8]>| bytes.map_or(u64::MAX, |bytes| bytes.len() as u64);
    let mut head = [0; 32];
    for (place, number) in
        [offset.cast_unsigned(), timestamp.cast_unsigned(), length(key), length(value)].into_iter().enumerate()
    {
        head[place * 8..][..8].copy_from_slice(&number.to_le_bytes());
    }
    hasher.write(&head);
    hasher.write(key.unwrap_or_default());
    hasher.write(value.unwrap_or_default());
    (key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len)) as u64
}

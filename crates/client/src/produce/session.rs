//! The records of one caller.

use std::sync::Arc;

use parking_lot::Mutex;
use rdkafka::error::KafkaError;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::BaseRecord;
use tidegate_model::TopicName;
use tokio::sync::Notify;

use super::error::{Failed, ProduceError, produce_error};
use super::native::{InFlight, Native};
use super::{ProduceSummary, ProducedPartition, RecordToSend};

/// The records of one caller to one topic, sent in order and counted. Dropping it stops the counting; records that were sent
/// are still written as long as the producer lives.
pub struct ProduceSession {
    /// `Err`: why librdkafka cannot be had.
    native: Result<Arc<Native>, Arc<str>>,
    shared: Arc<Shared>,
    sent: u64,
}

struct Shared {
    topic: TopicName,
    delivery_timeout: std::time::Duration,
    progress: Mutex<Progress>,
    /// Woken when what [`ProduceSession::finish`] waits for has come, and by every change after it.
    settled: Notify,
}

#[derive(Default)]
struct Progress {
    summary: ProduceSummary,
    /// The failure with the lowest ordinal so far.
    failure: Option<ProduceError>,
    /// How many records that were handed over will not be acknowledged.
    failed: u64,
    /// How many records the session has, once that is known.
    total: Option<u64>,
}

/// Where the delivery report of one record goes.
pub(super) struct Delivered {
    shared: Arc<Shared>,
    ordinal: u64,
    bytes: usize,
}

impl ProduceSession {
    pub(super) fn new(
        native: Result<Arc<Native>, Arc<str>>,
        topic: TopicName,
        delivery_timeout: std::time::Duration,
    ) -> Self {
        let shared = Shared { topic, delivery_timeout, progress: Mutex::default(), settled: Notify::new() };
        Self { native, shared: Arc::new(shared), sent: 0 }
    }

    /// Hands a record to the producer. Waits while the producer's queue is full.
    ///
    /// Dropping the future before it is ready leaves the record unsent.
    ///
    /// # Errors
    /// The failure of this record or of any before it; the session is then failed for good.
    pub async fn send(&mut self, record: RecordToSend<'_>) -> Result<(), ProduceError> {
        self.failure()?;
        let ordinal = self.sent;
        let result = match check(&record) {
            Ok(bytes) => self.hand_over(&record, ordinal, bytes).await,
            Err(reason) => Err(ProduceError::Record { ordinal, topic: self.shared.topic.clone(), reason }),
        };
        match result {
            Ok(()) => {
                self.sent += 1;
                Ok(())
            }
            Err(error) => {
                self.shared.fail(error.clone());
                Err(error)
            }
        }
    }

    async fn hand_over(&self, record: &RecordToSend<'_>, ordinal: u64, bytes: usize) -> Result<(), ProduceError> {
        let headers = headers(record.headers).map_err(|reason| ProduceError::Record {
            ordinal,
            topic: self.shared.topic.clone(),
            reason,
        })?;
        if let Some(partition) = record.partition.filter(|partition| *partition < 0) {
            // To librdkafka a negative partition means "any".
            return Err(ProduceError::UnknownPartition { ordinal, topic: self.shared.topic.clone(), partition });
        }
        let native = self.native.as_ref().map_err(|reason| ProduceError::Unsupported {
            ordinal,
            topic: self.shared.topic.clone(),
            reason: reason.to_string(),
        })?;
        let places = native.place(bytes).await;
        let delivered = Delivered { shared: Arc::clone(&self.shared), ordinal, bytes };
        let message = BaseRecord {
            topic: self.shared.topic.as_str(),
            partition: record.partition,
            payload: record.value,
            key: record.key,
            timestamp: record.timestamp_ms,
            headers,
            delivery_opaque: Box::new(InFlight { delivered, places }),
        };
        native.send(message).map_err(|error| {
            let failed = Failed {
                ordinal,
                topic: &self.shared.topic,
                partition: record.partition,
                bytes,
                local_limit: Some(native.settings.message_max_bytes),
                delivery_timeout: self.shared.delivery_timeout,
                shut_out: None,
            };
            produce_error(failed, &error)
        })
    }

    /// How many records were handed over.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    fn failure(&self) -> Result<(), ProduceError> {
        self.shared.progress.lock().failure.clone().map_or(Ok(()), Err)
    }

    /// Waits until every record is acknowledged. librdkafka settles each within its delivery timeout.
    ///
    /// # Errors
    /// The failure of a record that was not written: of those known by then, the one with the lowest ordinal. Other records,
    /// also later ones, may have been written.
    pub async fn finish(self) -> Result<ProduceSummary, ProduceError> {
        let done = {
            let mut progress = self.shared.progress.lock();
            progress.total = Some(self.sent);
            progress.is_settled()
        };
        if !done {
            self.shared.settled.notified().await;
        }
        let progress = &mut *self.shared.progress.lock();
        match progress.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(std::mem::take(&mut progress.summary)),
        }
    }

    /// Waits until every record that was handed over is either acknowledged or will never be, and tells what was written
    /// beside the failure, if there was one. For a caller that must say how much of a failed request stands.
    pub async fn settle(self) -> (ProduceSummary, Option<ProduceError>) {
        self.shared.progress.lock().total = Some(self.sent);
        loop {
            {
                let progress = &mut *self.shared.progress.lock();
                if progress.summary.records + progress.failed >= self.sent {
                    return (std::mem::take(&mut progress.summary), progress.failure.take());
                }
            }
            // A change that comes between the look and the wait is kept.
            self.shared.settled.notified().await;
        }
    }
}

impl Progress {
    fn is_settled(&self) -> bool {
        self.failure.is_some() || self.total == Some(self.summary.records)
    }

    fn note(&mut self, error: ProduceError) {
        if self.failure.as_ref().is_none_or(|failure| error.ordinal() < failure.ordinal()) {
            self.failure = Some(error);
        }
    }
}

impl Shared {
    fn fail(&self, error: ProduceError) {
        self.change(|progress| progress.note(error));
    }

    fn change(&self, change: impl FnOnce(&mut Progress)) {
        let settled = {
            let mut progress = self.progress.lock();
            change(&mut progress);
            progress.total.is_some() && progress.is_settled()
        };
        if settled {
            // Kept for a `finish` that does not wait yet.
            self.settled.notify_one();
        }
    }
}

impl Delivered {
    pub(super) fn acknowledged(self, partition: i32, offset: i64) {
        self.shared.change(|progress| count(&mut progress.summary, partition, offset));
    }

    pub(super) fn failed(self, partition: i32, error: &KafkaError, shut_out: Option<String>) {
        let failed = Failed {
            ordinal: self.ordinal,
            topic: &self.shared.topic,
            partition: Some(partition).filter(|partition| *partition >= 0),
            bytes: self.bytes,
            local_limit: None,
            delivery_timeout: self.shared.delivery_timeout,
            shut_out,
        };
        let error = produce_error(failed, error);
        self.shared.change(|progress| {
            progress.failed += 1;
            progress.note(error);
        });
    }
}

fn count(summary: &mut ProduceSummary, partition: i32, offset: i64) {
    summary.records += 1;
    let nothing = ProducedPartition { records: 0, first_offset: -1, last_offset: -1 };
    let produced = summary.partitions.entry(partition).or_insert(nothing);
    produced.records += 1;
    // librdkafka gives -1001 for a record that the broker recognised as written before.
    if offset >= 0 {
        produced.first_offset = if produced.first_offset < 0 { offset } else { produced.first_offset.min(offset) };
        produced.last_offset = produced.last_offset.max(offset);
    }
}

/// The bytes of a record that can be sent; `Err` says why it cannot.
fn check(record: &RecordToSend<'_>) -> Result<usize, String> {
    if let Some(timestamp) = record.timestamp_ms.filter(|timestamp| *timestamp < 1) {
        // librdkafka takes 0 for "now", and a negative number would be written as it is.
        return Err(format!("its timestamp is {timestamp} ms; at least 1 can be written"));
    }
    let length = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
    let headers = record.headers.iter().map(|(name, value)| name.len() + length(*value));
    Ok(length(record.key) + length(record.value) + headers.sum::<usize>())
}

/// The headers as librdkafka wants them; `Err` names the one that it cannot take.
fn headers(headers: &[(&[u8], Option<&[u8]>)]) -> Result<Option<OwnedHeaders>, String> {
    if headers.is_empty() {
        return Ok(None);
    }
    let mut owned = OwnedHeaders::new_with_capacity(headers.len());
    for (name, value) in headers {
        let key = std::str::from_utf8(name).map_err(|_| {
            format!(
                "the header name \"{}\" is not UTF-8, and librdkafka's interface takes no other",
                name.escape_ascii()
            )
        })?;
        owned = owned.insert(Header { key, value: *value });
    }
    Ok(Some(owned))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_summary_counts_by_partition_and_ignores_offsets_that_are_not_told() {
        let mut summary = ProduceSummary::default();
        for (partition, offset) in [(0, 10), (1, -1001), (0, 11), (0, -1001), (1, 7)] {
            count(&mut summary, partition, offset);
        }
        assert_eq!(summary.records, 5);
        let expected = [
            (0, ProducedPartition { records: 3, first_offset: 10, last_offset: 11 }),
            (1, ProducedPartition { records: 2, first_offset: 7, last_offset: 7 }),
        ];
        assert_eq!(summary.partitions, BTreeMap::from(expected));
    }

    #[test]
    fn what_librdkafka_would_take_for_something_else_is_refused() {
        let timestamp = |timestamp| RecordToSend { timestamp_ms: Some(timestamp), ..RecordToSend::default() };
        assert!(check(&timestamp(0)).is_err() && check(&timestamp(-1)).is_err());
        assert_eq!(check(&timestamp(1)), Ok(0));
        let reason = headers(&[(b"ok", None), (b"caf\xe9", Some(b"1"))]).unwrap_err();
        assert!(reason.contains("caf\\xe9"), "{reason}");
        assert!(headers(&[(b"", None), (b"a\0b", Some(b""))]).unwrap().is_some());
    }

    #[test]
    fn the_size_counts_key_value_and_headers() {
        let headers: [(&[u8], Option<&[u8]>); 2] = [(b"ab", Some(b"c")), (b"d", None)];
        let record =
            RecordToSend { key: Some(b"12"), value: Some(b"345"), headers: &headers, ..RecordToSend::default() };
        assert_eq!(check(&record), Ok(9));
    }
}

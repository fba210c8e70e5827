//! The fetch answer, put into bytes without copying the records.
//!
//! Source: `FetchResponse.json`, versions 4 to 16. The generated codec copies the records behind the fields before them;
//! here they stay the buffer that was read from the disk.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::TopicName;
use uuid::Uuid;

use super::Facts;

/// The first version with flexible fields (KIP-482).
const FIRST_FLEXIBLE: i16 = 12;
/// The first version that names topics by id (KIP-516).
pub(super) const FIRST_WITH_TOPIC_IDS: i16 = 13;

/// A fetch answer.
#[derive(Debug, Default)]
pub(super) struct FetchAnswer {
    pub(super) error_code: i16,
    pub(super) topics: Vec<TopicAnswer>,
    /// Whether the client reads committed records only: it is then told that no transaction was aborted.
    pub(super) read_committed: bool,
}

/// One topic of it.
#[derive(Debug)]
pub(super) struct TopicAnswer {
    pub(super) name: TopicName,
    pub(super) id: Uuid,
    pub(super) partitions: Vec<PartitionAnswer>,
}

/// One partition of it.
#[derive(Clone, Debug)]
pub(super) struct PartitionAnswer {
    pub(super) partition: i32,
    pub(super) error_code: i16,
    /// The last stable offset too.
    pub(super) high_watermark: i64,
    pub(super) log_start_offset: i64,
    pub(super) records: Bytes,
}

impl FetchAnswer {
    /// The pieces of the answer behind the size prefix. `None` when the records of a partition are more than their length
    /// field can say.
    pub(super) fn pieces(self, facts: Facts) -> Option<Vec<Bytes>> {
        let mut out = Pieces { version: facts.version, done: Vec::new(), fields: BytesMut::with_capacity(512) };
        out.fields.put_i32(facts.correlation_id);
        out.tags();
        out.fields.put_i32(0); // throttle time
        if out.version >= 7 {
            out.fields.put_i16(self.error_code);
            out.fields.put_i32(0); // no session (KIP-227)
        }
        out.length(self.topics.len())?;
        for topic in self.topics {
            if out.version >= FIRST_WITH_TOPIC_IDS {
                out.fields.put_slice(topic.id.as_bytes());
            } else {
                out.string(&topic.name)?;
            }
            out.length(topic.partitions.len())?;
            for partition in topic.partitions {
                out.partition(partition, self.read_committed)?;
            }
            out.tags();
        }
        out.tags();
        out.flush();
        Some(out.done)
    }
}

struct Pieces {
    version: i16,
    done: Vec<Bytes>,
    fields: BytesMut,
}

impl Pieces {
    fn partition(&mut self, partition: PartitionAnswer, read_committed: bool) -> Option<()> {
        self.fields.put_i32(partition.partition);
        self.fields.put_i16(partition.error_code);
        self.fields.put_i64(partition.high_watermark);
        self.fields.put_i64(partition.high_watermark);
        if self.version >= 5 {
            self.fields.put_i64(partition.log_start_offset);
        }
        // The aborted transactions: none, or not asked for.
        if read_committed {
            self.length(0)?
        } else {
            self.null()
        }
        if self.version >= 11 {
            self.fields.put_i32(-1); // no other replica to read from
        }
        self.length(partition.records.len())?;
        if !partition.records.is_empty() {
            self.flush();
            self.done.push(partition.records);
        }
        self.tags();
        Some(())
    }

    /// The length of an array or of bytes.
    fn length(&mut self, length: usize) -> Option<()> {
        if self.is_flexible() {
            self.varint(u32::try_from(length).ok()?.checked_add(1)?);
        } else {
            self.fields.put_i32(i32::try_from(length).ok()?);
        }
        Some(())
    }

    fn null(&mut self) {
        if self.is_flexible() { self.varint(0) } else { self.fields.put_i32(-1) }
    }

    fn string(&mut self, text: &str) -> Option<()> {
        if self.is_flexible() {
            self.length(text.len())?;
        } else {
            self.fields.put_i16(i16::try_from(text.len()).ok()?);
        }
        self.fields.put_slice(text.as_bytes());
        Some(())
    }

    /// No tagged fields.
    fn tags(&mut self) {
        if self.is_flexible() {
            self.fields.put_u8(0);
        }
    }

    fn varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.fields.put_u8(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.fields.put_u8(value.to_le_bytes()[0]);
    }

    fn is_flexible(&self) -> bool {
        self.version >= FIRST_FLEXIBLE
    }

    fn flush(&mut self) {
        let fields = self.fields.split().freeze();
        if !fields.is_empty() {
            self.done.push(fields);
        }
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::ResponseError;
    use kafka_protocol::messages::{FetchResponse, ResponseHeader};
    use kafka_protocol::protocol::{Decodable, HeaderVersion, StrBytes};

    use super::*;

    fn partition(partition: i32, records: &'static [u8]) -> PartitionAnswer {
        PartitionAnswer {
            partition,
            error_code: if records.is_empty() { ResponseError::OffsetOutOfRange.code() } else { 0 },
            high_watermark: 1 << 40,
            log_start_offset: 7,
            records: Bytes::from_static(records),
        }
    }

    #[test]
    fn every_version_reads_back_through_the_generated_codec() {
        let long: &[u8] = &[9; 300];
        for version in 4..=16 {
            for read_committed in [false, true] {
                let id = Uuid::new_v4();
                let name = TopicName::from(StrBytes::from_static_str("flights"));
                let topics = vec![
                    TopicAnswer { name: name.clone(), id, partitions: vec![partition(0, b"abc"), partition(1, b"")] },
                    TopicAnswer { name: name.clone(), id, partitions: vec![partition(2, long)] },
                ];
                let answer = FetchAnswer { error_code: if version >= 7 { 3 } else { 0 }, topics, read_committed };
                let pieces = answer.pieces(Facts { version, correlation_id: 77 }).unwrap();
                let mut bytes = Bytes::from(pieces.concat());
                let header = ResponseHeader::decode(&mut bytes, FetchResponse::header_version(version)).unwrap();
                let response = FetchResponse::decode(&mut bytes, version).unwrap();
                assert!(bytes.is_empty(), "version {version}");
                assert_eq!(header.correlation_id, 77);
                assert_eq!(response.error_code, if version >= 7 { 3 } else { 0 });
                assert_eq!(response.responses.len(), 2);
                for topic in &response.responses {
                    if version >= FIRST_WITH_TOPIC_IDS {
                        assert_eq!(topic.topic_id, id);
                    } else {
                        assert_eq!(topic.topic, name);
                    }
                }
                let all: Vec<_> = response.responses.iter().flat_map(|topic| &topic.partitions).collect();
                let records: Vec<_> = all.iter().map(|p| p.records.clone().unwrap_or_default()).collect();
                assert_eq!(records, [&b"abc"[..], b"", long]);
                assert_eq!(all[1].error_code, ResponseError::OffsetOutOfRange.code());
                assert_eq!(all[2].partition_index, 2);
                for partition in all {
                    assert_eq!((partition.high_watermark, partition.last_stable_offset), (1 << 40, 1 << 40));
                    assert_eq!(partition.log_start_offset, if version >= 5 { 7 } else { -1 });
                    assert_eq!(partition.aborted_transactions, read_committed.then(Vec::new));
                }
            }
        }
    }
}

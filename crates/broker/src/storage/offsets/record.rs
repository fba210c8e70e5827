//! One record of the offsets file: a change to the committed offsets of a group.
//!
//! Big-endian: the length of what follows (u32), its CRC-32C (u32), then the payload: kind (u8), group, and for a commit
//! the protocol type, the number of offsets (u32), and per offset topic, topic id (16 bytes), partition (i32), offset
//! (i64), leader epoch (i32), time (i64), metadata; for a removal the number (u32), and per offset topic and partition.
//! Texts are their length (u16) and their bytes.

use bytes::{Buf, BufMut};
use tidegate_model::{TopicName, TopicPartition};
use uuid::Uuid;

use super::CommittedOffset;

/// The length and the CRC in front of a payload.
pub(super) const PREFIX_BYTES: usize = 8;
/// A payload is never longer: a request is not, and a compaction writes many records.
pub(super) const MAX_PAYLOAD_BYTES: usize = 64 << 20;

const COMMIT: u8 = 1;
const REMOVE: u8 = 2;
const REMOVE_GROUP: u8 = 3;

/// A change to the committed offsets of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) group: String,
    pub(crate) kind: ChangeKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    Commit {
        /// What the group's members call themselves: `consumer`, or nothing for offsets without members.
        protocol_type: String,
        offsets: Vec<(TopicPartition, CommittedOffset)>,
    },
    Remove(Vec<TopicPartition>),
    RemoveGroup,
}

/// Writes a record behind `out`.
pub(super) fn encode(change: &Change, out: &mut Vec<u8>) {
    let begin = out.len();
    out.put_bytes(0, PREFIX_BYTES);
    match &change.kind {
        ChangeKind::Commit { protocol_type, offsets } => {
            out.put_u8(COMMIT);
            put_text(out, &change.group);
            put_text(out, protocol_type);
            put_count(out, offsets.len());
            for (at, committed) in offsets {
                put_text(out, at.topic.as_str());
                out.put_slice(committed.topic_id.as_bytes());
                out.put_i32(at.partition);
                out.put_i64(committed.offset);
                out.put_i32(committed.leader_epoch);
                out.put_i64(committed.committed_ms);
                put_text(out, &committed.metadata);
            }
        }
        ChangeKind::Remove(partitions) => {
            out.put_u8(REMOVE);
            put_text(out, &change.group);
            put_count(out, partitions.len());
            for at in partitions {
                put_text(out, at.topic.as_str());
                out.put_i32(at.partition);
            }
        }
        ChangeKind::RemoveGroup => {
            out.put_u8(REMOVE_GROUP);
            put_text(out, &change.group);
        }
    }
    let payload = out.get(begin + PREFIX_BYTES..).unwrap_or_default();
    let prefix = [u32::try_from(payload.len()).unwrap_or(u32::MAX), tidegate_wire::crc32c(payload)];
    for (place, value) in out.iter_mut().skip(begin).zip(prefix.iter().flat_map(|n| n.to_be_bytes())) {
        *place = value;
    }
}

/// What stands at the beginning of `bytes`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A sound record of this many bytes.
    Record(Change, usize),
    /// A record was begun here and is not whole.
    Cut,
    /// Not a record.
    Damaged,
}

pub(super) fn decode(bytes: &[u8]) -> Found {
    let mut rest = bytes;
    let (Ok(length), Ok(crc)) = (rest.try_get_u32(), rest.try_get_u32()) else { return Found::Cut };
    let length = length as usize;
    if length > MAX_PAYLOAD_BYTES {
        return Found::Damaged;
    }
    let Some(payload) = rest.get(..length) else { return Found::Cut };
    if tidegate_wire::crc32c(payload) != crc {
        return Found::Damaged;
    }
    match decode_payload(payload) {
        Some(change) => Found::Record(change, PREFIX_BYTES + length),
        None => Found::Damaged,
    }
}

fn decode_payload(mut rest: &[u8]) -> Option<Change> {
    let kind = rest.try_get_u8().ok()?;
    let group = take_text(&mut rest)?;
    let kind = match kind {
        COMMIT => {
            let protocol_type = take_text(&mut rest)?;
            let count = rest.try_get_u32().ok()?;
            let mut offsets = Vec::new();
            for _ in 0..count {
                let topic = TopicName::new(&take_text(&mut rest)?).ok()?;
                let (id, after) = rest.split_first_chunk::<16>()?;
                rest = after;
                let partition = rest.try_get_i32().ok()?;
                let committed = CommittedOffset {
                    topic_id: Uuid::from_bytes(*id),
                    offset: rest.try_get_i64().ok()?,
                    leader_epoch: rest.try_get_i32().ok()?,
                    committed_ms: rest.try_get_i64().ok()?,
                    metadata: take_text(&mut rest)?,
                };
                offsets.push((TopicPartition::new(topic, partition), committed));
            }
            ChangeKind::Commit { protocol_type, offsets }
        }
        REMOVE => {
            let count = rest.try_get_u32().ok()?;
            let mut partitions = Vec::new();
            for _ in 0..count {
                let topic = TopicName::new(&take_text(&mut rest)?).ok()?;
                partitions.push(TopicPartition::new(topic, rest.try_get_i32().ok()?));
            }
            ChangeKind::Remove(partitions)
        }
        REMOVE_GROUP => ChangeKind::RemoveGroup,
        _ => return None,
    };
    rest.is_empty().then_some(Change { group, kind })
}

/// Whoever queues a change bounds its texts: names and protocol types by what the API takes, metadata by the broker's
/// limits. One that is too long all the same is cut in whole characters: half a character would spoil the record, and with
/// it all that follow.
fn put_text(out: &mut Vec<u8>, text: &str) {
    let text = text.get(..text.floor_char_boundary(usize::from(u16::MAX))).unwrap_or_default();
    out.put_u16(u16::try_from(text.len()).unwrap_or(u16::MAX));
    out.put_slice(text.as_bytes());
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    out.put_u32(u32::try_from(count).unwrap_or(u32::MAX));
}

fn take_text(rest: &mut &[u8]) -> Option<String> {
    let length = usize::from(rest.try_get_u16().ok()?);
    let (text, after) = rest.split_at_checked(length)?;
    *rest = after;
    std::str::from_utf8(text).ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{change, commit};
    use super::*;

    #[test]
    fn every_kind_of_change_reads_back() {
        let partitions = vec![TopicPartition::new(TopicName::new("t").unwrap(), 3)];
        for kind in [commit("g", &[(0, 5), (1, 7)]).kind, ChangeKind::Remove(partitions), ChangeKind::RemoveGroup] {
            let change = change("a group, ümlaut", kind);
            let mut bytes = vec![1, 2, 3];
            encode(&change, &mut bytes);
            let length = bytes.len() - 3;
            bytes.extend([9; 5]);
            assert_eq!(decode(&bytes[3..]), Found::Record(change, length));
        }
    }

    #[test]
    fn a_text_that_is_too_long_spoils_no_record() {
        for most in [65_535, 65_536, 65_537] {
            let mut bytes = Vec::new();
            encode(&change(&format!("{}ü", "g".repeat(most - 2)), ChangeKind::RemoveGroup), &mut bytes);
            match decode(&bytes) {
                Found::Record(change, length) => {
                    assert_eq!((change.group.len() >= 65_534, length), (true, bytes.len()))
                }
                other => panic!("{most}: {other:?}"),
            }
        }
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_noticed() {
        let mut bytes = Vec::new();
        encode(&commit("g", &[(0, 5), (1, 7)]), &mut bytes);
        for cut in 0..bytes.len() {
            assert_eq!(decode(&bytes[..cut]), Found::Cut, "{cut}");
        }
        for at in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[at / 8] ^= 1 << (at % 8);
            assert!(!matches!(decode(&changed), Found::Record(..)), "bit {at}");
        }
    }
}

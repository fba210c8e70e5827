//! Answers made wrong. Pure.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::{ApiKey, FetchResponse, ListOffsetsResponse, ProduceResponse};
use tidegate_wire::split_batches;

use super::message::{Body, Incoming, Undecodable, answer_frame, decode_answer};
use super::script::{Lie, mixed};

/// What a lie changes of the request before it is carried out. `false`: nothing.
pub(super) fn ask_wrongly(lie: Lie, request: &mut Incoming) -> bool {
    let (Lie::Earlier(offsets), Body::Fetch(body)) = (lie, &mut request.body) else { return false };
    for partition in body.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
        partition.fetch_offset = partition.fetch_offset.saturating_sub(offsets).max(0);
    }
    true
}

/// The answer (a whole frame) made wrong; `None` when there is nothing to make wrong.
pub(super) fn tell(lie: Lie, request: &Incoming, frame: &Bytes, seed: u64) -> Result<Option<Bytes>, Undecodable> {
    let body = frame.slice(4.min(frame.len())..);
    let (version, id) = (request.version, request.correlation_id());
    match lie {
        Lie::Earlier(_) => Ok(Some(frame.clone())),
        Lie::OversizedFrame => Ok(Some([&i32::MAX.to_be_bytes()[..], &body].concat().into())),
        Lie::OtherCorrelation => Ok(patched(frame, &id.wrapping_add(1).to_be_bytes(), 4)),
        Lie::Garbage => {
            let noise: Vec<u8> =
                (8..frame.len() as u64).flat_map(|at| mixed(&[seed, at]).to_le_bytes().into_iter().take(1)).collect();
            Ok(patched(frame, &noise, 8))
        }
        Lie::OffsetBy(_) | Lie::NothingFound => {
            if request.api != ApiKey::ListOffsets {
                return Ok(None);
            }
            let mut response: ListOffsetsResponse = decode_answer(&body, version)?;
            let mut changed = false;
            for part in response.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
                let before = part.offset;
                match lie {
                    Lie::OffsetBy(by) if before >= 0 => part.offset = before.saturating_add(by).max(0),
                    Lie::NothingFound => (part.offset, part.timestamp) = (-1, -1),
                    _ => {}
                }
                changed |= part.offset != before;
            }
            changed.then(|| answer_frame(id, version, &response)).transpose()
        }
        Lie::HighWatermarkBy(by) => fetched(request, &body, |part| {
            let moved = |offset: i64| if offset < 0 { offset } else { offset.saturating_add(by).max(0) };
            let before = part.high_watermark;
            part.high_watermark = moved(before);
            part.last_stable_offset = moved(part.last_stable_offset);
            part.high_watermark != before
        }),
        Lie::ReversedBatches => on_records(request, &body, |records| {
            let mut batches = whole_batches(records)?;
            (batches.len() > 1).then(|| {
                batches.reverse();
                batches.concat().into()
            })
        }),
        Lie::CutRecords => on_records(request, &body, |records| {
            let last = whole_batches(records)?.pop()?.len();
            Some(records.slice(..records.len() - last.div_ceil(2)))
        }),
        Lie::FlippedBit => on_records(request, &body, |records| {
            let mut bytes = BytesMut::from(&records[..]);
            let last = bytes.last_mut()?;
            *last ^= 1 << (seed % 8);
            Some(bytes.freeze())
        }),
        Lie::OtherPartition => match request.api {
            ApiKey::Fetch => fetched(request, &body, |part| {
                part.partition_index += 1;
                true
            }),
            ApiKey::ListOffsets => {
                let mut response: ListOffsetsResponse = decode_answer(&body, version)?;
                for part in response.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
                    part.partition_index += 1;
                }
                answer_frame(id, version, &response).map(Some)
            }
            ApiKey::Produce => {
                let mut response: ProduceResponse = decode_answer(&body, version)?;
                for part in response.responses.iter_mut().flat_map(|topic| &mut topic.partition_responses) {
                    part.index += 1;
                }
                answer_frame(id, version, &response).map(Some)
            }
            _ => Ok(None),
        },
    }
}

fn patched(frame: &Bytes, with: &[u8], at: usize) -> Option<Bytes> {
    let mut bytes = BytesMut::from(&frame[..]);
    bytes.get_mut(at..at + with.len())?.copy_from_slice(with);
    (bytes != frame).then(|| bytes.freeze())
}

/// A fetch answer with its partitions changed, if `change` says of any that it did.
pub(super) fn fetched(
    request: &Incoming,
    body: &Bytes,
    mut change: impl FnMut(&mut PartitionData) -> bool,
) -> Result<Option<Bytes>, Undecodable> {
    if request.api != ApiKey::Fetch {
        return Ok(None);
    }
    let mut response: FetchResponse = decode_answer(body, request.version)?;
    let mut changed = false;
    for part in response.responses.iter_mut().flat_map(|topic| &mut topic.partitions) {
        changed |= change(part);
    }
    changed.then(|| answer_frame(request.correlation_id(), request.version, &response)).transpose()
}

fn on_records(
    request: &Incoming,
    body: &Bytes,
    change: impl Fn(&Bytes) -> Option<Bytes>,
) -> Result<Option<Bytes>, Undecodable> {
    fetched(request, body, |part| {
        let Some(records) = part.records.as_ref().filter(|records| !records.is_empty()) else { return false };
        let changed = change(records);
        let did = changed.is_some();
        part.records = changed.or_else(|| part.records.take());
        did
    })
}

fn whole_batches(records: &Bytes) -> Option<Vec<Bytes>> {
    split_batches(records.clone()).map(|batch| batch.ok().map(|batch| batch.bytes().clone())).collect()
}

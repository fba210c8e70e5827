//! A response from a broker that means no good: decoded as the client decodes it, and a fetch's record sets read. The first byte
//! picks the request that it answers, the second its version.

#![no_main]

use bytes::Bytes;
use kafka_protocol::messages::{
    ApiVersionsResponse, FetchResponse, ListOffsetsResponse, MetadataResponse, ResponseHeader,
};
use kafka_protocol::protocol::{Decodable, HeaderVersion, Message};
use libfuzzer_sys::fuzz_target;
use tidegate_fuzz::within;
use tidegate_wire::{BatchLimits, split_record_set};

const LIMITS: BatchLimits = BatchLimits { max_decompressed_bytes: 64 * 1024, check_crcs: false };

/// One opened batch within its cap; and what each byte of a response may take: an empty topic of ten bytes or a broker of
/// eleven is a value of some 130, in an array that doubles as it grows.
const MEMORY: usize = 2 * 1024 * 1024;
const PER_BYTE: usize = 64;

fuzz_target!(|bytes: &[u8]| {
    let [api, version, frame @ ..] = bytes else { return };
    let frame = Bytes::copy_from_slice(frame);
    within(MEMORY + PER_BYTE * bytes.len(), || match api % 4 {
        0 => drop(decode::<ApiVersionsResponse>(frame, *version)),
        1 => drop(decode::<MetadataResponse>(frame, *version)),
        2 => drop(decode::<ListOffsetsResponse>(frame, *version)),
        _ => {
            let Some(response) = decode::<FetchResponse>(frame, *version) else { return };
            for partition in response.responses.into_iter().flat_map(|topic| topic.partitions) {
                let records = partition.records.unwrap_or_default();
                for stored in split_record_set(records, 0, false).flatten() {
                    let _ = stored.open(&LIMITS).map(|batch| batch.records().count());
                }
            }
        }
    });
});

fn decode<R: Decodable + HeaderVersion + Message>(mut frame: Bytes, version: u8) -> Option<R> {
    let versions = R::VERSIONS;
    let version = versions.min + i16::from(version) % (versions.max - versions.min + 1);
    ResponseHeader::decode(&mut frame, R::header_version(version)).ok()?;
    R::decode(&mut frame, version).ok()
}

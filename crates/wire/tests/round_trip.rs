//! What a writer writes, a reader reads; what is damaged on the way is noticed.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "round_trip/message_sets.rs"]
mod message_sets;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use tidegate_model::{Compression, Header, TimestampType};
use tidegate_wire::{
    BatchError, BatchLimits, BatchOptions, BatchWriter, first_at_or_after, index_timestamps, split_batches,
};

const CODECS: [Compression; 5] =
    [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

type Field = Option<Vec<u8>>;

#[derive(Clone, Debug)]
struct Sample {
    /// Offsets left out before it.
    gap: u32,
    timestamp_ms: i64,
    key: Field,
    value: Field,
    headers: Vec<(Vec<u8>, Field)>,
}

fn field(most: usize) -> impl Strategy<Value = Field> {
    option::of(vec(any::<u8>(), 0..most))
}

fn sample() -> impl Strategy<Value = Sample> {
    let timestamp = prop_oneof![
        4 => 1_714_521_600_000_i64..1_714_525_200_000,
        1 => Just(-1),
        1 => 0..i64::MAX,
    ];
    let gap = prop_oneof![8 => Just(0), 1 => 0_u32..5000];
    let headers = vec((vec(any::<u8>(), 0..6), field(20)), 0..4);
    (gap, timestamp, field(40), field(400), headers).prop_map(|(gap, timestamp_ms, key, value, headers)| Sample {
        gap,
        timestamp_ms,
        key,
        value,
        headers,
    })
}

fn options() -> impl Strategy<Value = BatchOptions> {
    let codec = proptest::sample::select(&CODECS[..]);
    let producer = (any::<i64>(), any::<i16>(), any::<i32>());
    let marks = (any::<bool>(), any::<bool>());
    let place = (0..i64::MAX / 2, any::<i32>(), option::of(0..i64::MAX));
    (codec, producer, marks, place).prop_map(|(compression, producer, marks, place)| BatchOptions {
        compression,
        base_offset: place.0,
        leader_epoch: place.1,
        log_append_time_ms: place.2,
        producer_id: producer.0,
        producer_epoch: producer.1,
        base_sequence: producer.2,
        transactional: marks.0,
        control: marks.1,
    })
}

fn push(writer: &mut BatchWriter, sample: &Sample) {
    let headers = sample.headers.iter().map(|(name, value)| Header { name, value: value.as_deref() });
    writer.push(sample.timestamp_ms, sample.key.as_deref(), sample.value.as_deref(), headers).unwrap();
}

/// Drops the samples that are too far from the first in time for a 64-bit delta: a record of -1 before one of the far end.
fn writable(samples: Vec<Sample>) -> Vec<Sample> {
    let first = samples[0].timestamp_ms;
    samples.into_iter().filter(|sample| sample.timestamp_ms.checked_sub(first).is_some()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_written_is_read_back(options in options(), samples in vec(sample(), 1..30).prop_map(writable), tail in 0_u32..9) {
        let mut writer = BatchWriter::new(options);
        for sample in &samples {
            writer.skip(sample.gap).unwrap();
            push(&mut writer, sample);
        }
        writer.skip(tail).unwrap();
        let bytes = writer.finish().unwrap();
        let mut batches = split_batches(bytes.clone());
        let raw = batches.next().unwrap().unwrap();
        prop_assert!(batches.next().is_none() && batches.leftover().is_none());
        prop_assert_eq!(raw.bytes(), &bytes);

        let header = raw.header();
        let records = samples.iter().map(|sample| i64::from(sample.gap) + 1).sum::<i64>();
        prop_assert_eq!(header.base_offset, options.base_offset);
        prop_assert_eq!(header.next_offset(), options.base_offset + records + i64::from(tail));
        prop_assert_eq!(header.partition_leader_epoch, options.leader_epoch);
        prop_assert_eq!(header.attributes.compression(), Ok(options.compression));
        prop_assert_eq!(header.attributes.is_transactional(), options.transactional);
        prop_assert_eq!(header.attributes.is_control(), options.control);
        prop_assert_eq!(header.producer_id, options.producer_id);
        prop_assert_eq!(header.producer_epoch, options.producer_epoch);
        prop_assert_eq!(header.base_sequence, options.base_sequence);
        let largest = samples.iter().map(|sample| sample.timestamp_ms).max().unwrap();
        prop_assert_eq!(header.max_timestamp, options.log_append_time_ms.unwrap_or(largest));

        let batch = raw.open(&BatchLimits::default()).unwrap();
        let mut offset = options.base_offset;
        let mut read = batch.records();
        for sample in &samples {
            let record = read.next().unwrap().unwrap();
            offset += i64::from(sample.gap);
            prop_assert_eq!(record.offset, offset);
            offset += 1;
            prop_assert_eq!(record.timestamp_ms, options.log_append_time_ms.unwrap_or(sample.timestamp_ms));
            let by_broker = record.timestamp_type == TimestampType::LogAppendTime;
            prop_assert_eq!(by_broker, options.log_append_time_ms.is_some());
            prop_assert_eq!(record.key, sample.key.as_deref());
            prop_assert_eq!(record.value, sample.value.as_deref());
            let headers: Vec<_> = record.headers.map(|h| (h.name.to_vec(), h.value.map(<[u8]>::to_vec))).collect();
            prop_assert_eq!(&headers, &sample.headers);
        }
        prop_assert!(read.next().is_none());
    }

    #[test]
    fn time_lookups_agree_with_a_plain_search(samples in vec(sample(), 1..30).prop_map(writable), at in 0_usize..30) {
        let mut writer = BatchWriter::new(BatchOptions { base_offset: 50, ..BatchOptions::default() });
        for sample in &samples {
            push(&mut writer, sample);
        }
        let raw = split_batches(writer.finish().unwrap()).next().unwrap().unwrap();
        let batch = raw.open(&BatchLimits::default()).unwrap();
        let index = index_timestamps(&batch).unwrap();
        let times: Vec<i64> = samples.iter().map(|sample| sample.timestamp_ms).collect();
        let max = *times.iter().max().unwrap();
        let found = index.max.unwrap();
        prop_assert_eq!(found.timestamp_ms, max);
        prop_assert_eq!(found.offset - 50, times.iter().position(|time| *time == max).unwrap() as i64);
        prop_assert_eq!(index.min_timestamp_ms, times.iter().min().copied());
        prop_assert_eq!(index.records as usize, times.len());
        let wanted = times[at % times.len()].saturating_add(1);
        let first = first_at_or_after(&batch, wanted).unwrap();
        let plain = times.iter().position(|time| *time >= wanted);
        prop_assert_eq!(first.map(|found| found.offset - 50), plain.map(|at| at as i64));
    }
}

fn small_batch(codec: Compression) -> Bytes {
    let mut writer = BatchWriter::new(BatchOptions { compression: codec, base_offset: 7, ..BatchOptions::default() });
    for i in 0..20_i64 {
        let headers = [Header { name: b"h", value: Some(b"1") }, Header { name: b"h", value: None }];
        let value = format!("value {} and {i}", i % 3);
        writer.push(1_714_521_600_000 + i, Some(b"key"), Some(value.as_bytes()), headers).unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn every_truncation_is_left_for_the_next_fetch() {
    for codec in CODECS {
        let whole = small_batch(codec);
        for cut in 0..whole.len() {
            let mut batches = split_batches([&whole[..], &whole[..cut]].concat().into());
            assert_eq!(batches.next().unwrap().unwrap().bytes(), &whole);
            assert!(batches.next().is_none(), "{} cut at {cut}", codec.name());
            let left = batches.leftover();
            assert_eq!(left.map_or(0, |left| left.bytes), cut);
            let known = left.and_then(|left| left.batch_bytes);
            assert_eq!(known, (cut >= 12).then_some(whole.len()), "{} cut at {cut}", codec.name());
        }
    }
}

#[test]
fn every_flipped_bit_is_noticed_or_outside_the_crc() {
    for codec in CODECS {
        let whole = small_batch(codec);
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut damaged = whole.to_vec();
                damaged[at] ^= 1 << bit;
                let opened = match split_batches(damaged.into()).next() {
                    None => continue,
                    Some(batch) => batch.and_then(|batch| batch.open(&BatchLimits::default())),
                };
                // Base offset and leader epoch are the broker's to change, so the CRC leaves them out.
                match opened {
                    Ok(_) => assert!(at < 8 || (12..16).contains(&at), "{}: byte {at} bit {bit}", codec.name()),
                    Err(error) => assert!(at < 8 || error.at().base_offset == 7, "{error}"),
                }
            }
        }
    }
}

#[test]
fn every_flipped_byte_without_the_crc_gives_records_or_an_error() {
    let limits = BatchLimits { max_decompressed_bytes: 1 << 16, check_crcs: false };
    for codec in CODECS {
        let whole = small_batch(codec);
        for at in 0..whole.len() {
            for value in 0..=u8::MAX {
                let mut damaged = whole.to_vec();
                damaged[at] = value;
                for batch in split_batches(damaged.into()).flatten() {
                    let Ok(batch) = batch.open(&limits) else { continue };
                    let headers = batch.records().map_while(Result::ok).map(|record| record.headers.count());
                    let read = headers.fold(0, |read, _| read + 1);
                    let stated = usize::try_from(batch.header().record_count).unwrap();
                    assert!(read <= stated, "{}: byte {at} = {value}", codec.name());
                }
            }
        }
    }
}

#[test]
fn an_uncompressed_batch_is_read_without_a_copy() {
    let whole = small_batch(Compression::None);
    let raw = split_batches(whole.clone()).next().unwrap().unwrap();
    let batch = raw.open(&BatchLimits::default()).unwrap();
    assert!(whole.as_ptr_range().contains(&batch.body().as_ptr()));
}

#[test]
fn a_batch_with_a_wrong_crc_is_read_when_crcs_are_not_checked() {
    let mut damaged = small_batch(Compression::None).to_vec();
    damaged[17] ^= 1;
    let raw = split_batches(damaged.into()).next().unwrap().unwrap();
    assert!(matches!(raw.open(&BatchLimits::default()), Err(BatchError::Crc { .. })));
    let unchecked = BatchLimits { check_crcs: false, ..BatchLimits::default() };
    assert_eq!(raw.open(&unchecked).unwrap().records().count(), 20);
}

//! What a broker checks in a producer's batch, and what it changes when it appends one.

#![allow(clippy::unwrap_used, clippy::panic)]

use bytes::Bytes;
use tidegate_model::{BatchHeader, Compression, TimestampType, write_varint};
use tidegate_wire::{
    BatchError, BatchLimits, BatchOptions, BatchWriter, ControlRecord, Marker, MarkerKind, ProduceBatchError, RawBatch,
    check_produced, rewrite_for_append, split_batches, with_max_timestamp, write_marker,
};

const LIMITS: BatchLimits = BatchLimits { max_decompressed_bytes: 1 << 20, check_crcs: false };

fn written(options: BatchOptions, times: &[i64]) -> Bytes {
    let mut writer = BatchWriter::new(options);
    for (at, time) in times.iter().enumerate() {
        let key = (at != 1).then_some(&b"key"[..]);
        writer.push(*time, key, Some(b"value"), []).unwrap();
    }
    writer.finish().unwrap()
}

fn only(bytes: Bytes) -> RawBatch {
    let mut batches = split_batches(bytes);
    let batch = batches.next().unwrap().unwrap();
    assert!(batches.next().is_none() && batches.leftover().is_none());
    batch
}

/// The batch with `change` made to its bytes and a CRC that fits.
fn changed(bytes: &Bytes, change: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut bytes = bytes.to_vec();
    change(&mut bytes);
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes.into()
}

fn refusal(record_set: Bytes) -> ProduceBatchError {
    check_produced(record_set, &LIMITS).unwrap_err()
}

#[test]
fn a_sound_batch_passes_with_its_true_timestamps_under_every_codec() {
    for compression in [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd]
    {
        let produced = check_produced(
            written(BatchOptions { compression, ..BatchOptions::default() }, &[30, 10, 50, 50]),
            &LIMITS,
        );
        let produced = produced.unwrap();
        let max = produced.timestamps.max.unwrap();
        assert_eq!((max.timestamp_ms, max.offset), (50, 2));
        assert_eq!((produced.timestamps.min_timestamp_ms, produced.timestamps.records), (Some(10), 4));
        assert_eq!(produced.first_null_key, Some(1));
        assert_eq!(produced.records.records().count(), 4);
    }
}

#[test]
fn anything_but_one_whole_batch_is_refused() {
    let one = written(BatchOptions::default(), &[1]);
    let not_one = |record_set: Vec<u8>| match refusal(record_set.into()) {
        ProduceBatchError::NotOneBatch { batches, left_over } => (batches, left_over),
        other => panic!("{other}"),
    };
    assert_eq!(not_one(vec![]), (0, 0));
    assert_eq!(not_one(one[..one.len() - 1].to_vec()), (0, one.len() - 1));
    assert_eq!(not_one([&one[..], &one[..]].concat()), (2, 0));
    assert_eq!(not_one([&one[..], &one[..3]].concat()), (1, 3));
}

#[test]
fn a_damaged_batch_is_refused_even_where_crcs_are_not_asked_for() {
    let mut damaged = written(BatchOptions::default(), &[1]).to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    assert!(matches!(refusal(damaged.into()), ProduceBatchError::Batch(BatchError::Crc { .. })));
}

#[test]
fn what_only_a_broker_may_set_is_refused_from_a_producer() {
    let control = written(BatchOptions { control: true, ..BatchOptions::default() }, &[1]);
    assert_eq!(refusal(control), ProduceBatchError::Control);
    let append_time = written(BatchOptions { log_append_time_ms: Some(9), ..BatchOptions::default() }, &[1]);
    assert_eq!(refusal(append_time), ProduceBatchError::LogAppendTime);
    let offset = written(BatchOptions { base_offset: 4, ..BatchOptions::default() }, &[1]);
    assert_eq!(refusal(offset), ProduceBatchError::BaseOffset { base_offset: 4 });
}

#[test]
fn producer_marks_that_do_not_fit_together_are_refused() {
    let plain = BatchOptions::default();
    for options in [
        BatchOptions { producer_id: 1, producer_epoch: 0, base_sequence: -1, ..plain },
        BatchOptions { producer_id: 1, producer_epoch: -1, base_sequence: 0, ..plain },
        BatchOptions { transactional: true, ..plain },
    ] {
        assert!(matches!(refusal(written(options, &[1])), ProduceBatchError::Producer { .. }), "{options:?}");
    }
    let sound = BatchOptions { producer_id: 1, producer_epoch: 0, base_sequence: 0, transactional: true, ..plain };
    check_produced(written(sound, &[1]), &LIMITS).unwrap();
}

#[test]
fn counts_and_offsets_that_disagree_are_refused() {
    let three = written(BatchOptions::default(), &[1, 2, 3]);
    for (last_offset_delta, record_count) in [(2_i32, 2_i32), (3, 3), (2, 4), (0, 0), (i32::MAX, i32::MAX)] {
        let lying = changed(&three, |bytes| {
            bytes[23..27].copy_from_slice(&last_offset_delta.to_be_bytes());
            bytes[57..61].copy_from_slice(&record_count.to_be_bytes());
        });
        assert_eq!(refusal(lying), ProduceBatchError::Count { record_count, last_offset_delta });
    }
    // Header and offsets agree, the body holds fewer or more.
    for count in [1_i32, 2, 4, 1000] {
        let lying = changed(&three, |bytes| {
            bytes[23..27].copy_from_slice(&(count - 1).to_be_bytes());
            bytes[57..61].copy_from_slice(&count.to_be_bytes());
        });
        assert!(matches!(refusal(lying), ProduceBatchError::Batch(BatchError::Record { .. })), "{count}");
    }
}

#[test]
fn a_record_out_of_its_place_is_refused() {
    // Each record is a length of one byte, then attributes, timestamp delta and offset delta of one byte each.
    let three = written(BatchOptions::default(), &[1, 1, 1]);
    let second = 61 + 1 + usize::from(three[61] / 2);
    let mut delta = Vec::new();
    write_varint(&mut delta, 0);
    let lying = changed(&three, |bytes| bytes[second + 3] = delta[0]);
    assert_eq!(refusal(lying), ProduceBatchError::OffsetDelta { index: 1, offset_delta: 0 });
    let mut writer = BatchWriter::new(BatchOptions::default());
    writer.push(1, None, None, []).unwrap();
    writer.skip(1).unwrap();
    assert!(matches!(refusal(writer.finish().unwrap()), ProduceBatchError::Count { .. }));
}

#[test]
fn a_bomb_from_a_producer_is_refused() {
    let mut writer = BatchWriter::new(BatchOptions { compression: Compression::Zstd, ..BatchOptions::default() });
    writer.push(1, None, Some(&vec![0; 2 << 20]), []).unwrap();
    let error = refusal(writer.finish().unwrap());
    assert!(matches!(error, ProduceBatchError::Batch(BatchError::Decompress { .. })), "{error}");
}

#[test]
fn appending_changes_base_offset_and_epoch_and_nothing_else() {
    let raw = only(written(BatchOptions { compression: Compression::Lz4, ..BatchOptions::default() }, &[5, 3, 9]));
    let appended = rewrite_for_append(&raw, 1_000, 12, None);
    assert_eq!(appended[8..12], raw.bytes()[8..12]);
    assert_eq!(appended[16..], raw.bytes()[16..]);
    let appended = only(appended);
    let expected = BatchHeader { base_offset: 1_000, partition_leader_epoch: 12, ..*raw.header() };
    assert_eq!(*appended.header(), expected);
    let times: Vec<_> =
        appended.open(&BatchLimits::default()).unwrap().records().map(|r| r.unwrap().timestamp_ms).collect();
    assert_eq!(times, [5, 3, 9]);
}

#[test]
fn appending_under_log_append_time_overrides_every_timestamp_with_a_right_crc() {
    let raw = only(written(BatchOptions { compression: Compression::Gzip, ..BatchOptions::default() }, &[5, 3, 9]));
    let appended = only(rewrite_for_append(&raw, 7, 1, Some(777)));
    let header = appended.header();
    assert_eq!((header.max_timestamp, header.base_timestamp), (777, 5));
    assert_eq!(header.attributes.timestamp_type(), TimestampType::LogAppendTime);
    assert_eq!(header.attributes.compression(), Ok(Compression::Gzip));
    let batch = appended.open(&BatchLimits::default()).unwrap();
    let read: Vec<_> = batch.records().map(|r| r.unwrap()).map(|r| (r.offset, r.timestamp_ms)).collect();
    assert_eq!(read, [(7, 777), (8, 777), (9, 777)]);
}

#[test]
fn a_max_timestamp_that_the_records_do_not_have_can_be_corrected() {
    let lying = changed(&written(BatchOptions::default(), &[5, 9]), |bytes| bytes[35..43].copy_from_slice(&[0; 8]));
    let produced = check_produced(lying, &LIMITS).unwrap();
    let max = produced.timestamps.max.unwrap().timestamp_ms;
    assert_eq!((produced.raw.header().max_timestamp, max), (0, 9));
    let corrected = with_max_timestamp(&produced.raw, max);
    corrected.verify_crc().unwrap();
    assert_eq!(corrected.header(), only(corrected.bytes().clone()).header());
    assert_eq!(corrected.bytes(), &written(BatchOptions::default(), &[5, 9]));
}

#[test]
fn a_marker_reads_back_as_what_was_written() {
    for kind in [MarkerKind::Commit, MarkerKind::Abort] {
        let marker = Marker {
            kind,
            offset: 42,
            leader_epoch: 3,
            timestamp_ms: 1_714_521_600_000,
            producer_id: 4_000,
            producer_epoch: 5,
            coordinator_epoch: 6,
        };
        let raw = only(write_marker(&marker).unwrap());
        let header = raw.header();
        assert!(header.attributes.is_control() && header.attributes.is_transactional());
        assert_eq!((header.producer_id, header.producer_epoch, header.base_sequence), (4_000, 5, -1));
        assert_eq!((header.base_offset, header.next_offset()), (42, 43));
        let batch = raw.open(&BatchLimits::default()).unwrap();
        let record = batch.records().next().unwrap().unwrap();
        let read = ControlRecord::parse(&record).unwrap();
        assert_eq!(read, ControlRecord::EndTransaction { kind, coordinator_epoch: Some(6) });
    }
}

#[test]
fn a_control_record_without_a_type_is_an_error_with_its_offset() {
    let mut writer = BatchWriter::new(BatchOptions { control: true, base_offset: 8, ..BatchOptions::default() });
    writer.push(1, Some(&[0, 0, 0]), None, []).unwrap();
    writer.push(1, None, None, []).unwrap();
    writer.push(1, Some(&[0xff, 0xff, 0, 1]), None, []).unwrap();
    writer.push(1, Some(&[0, 0, 0, 1]), Some(&[0]), []).unwrap();
    let batch = only(writer.finish().unwrap()).open(&BatchLimits::default()).unwrap();
    let read: Vec<_> = batch.records().map(|record| ControlRecord::parse(&record.unwrap())).collect();
    assert!(read[0].unwrap_err().to_string().contains("offset 8"));
    assert!(read[1].unwrap_err().to_string().contains("offset 9"));
    assert!(read[2].unwrap_err().to_string().contains("version -1"));
    assert_eq!(read[3], Ok(ControlRecord::EndTransaction { kind: MarkerKind::Commit, coordinator_epoch: None }));
}

#[test]
fn a_writer_refuses_what_no_reader_could_read() {
    let mut writer = BatchWriter::new(BatchOptions::default());
    assert!(writer.clone().finish().is_err(), "a batch of no offsets");
    assert!(writer.push(-2, None, None, []).is_err(), "a timestamp below -1");
    writer.push(-1, None, None, []).unwrap();
    assert!(writer.push(i64::MAX, None, None, []).is_err(), "a delta beyond 64 bits");
    assert!(writer.skip(u32::MAX).is_err(), "offsets beyond 31 bits");
    assert_eq!(writer.record_count(), 1);
    assert_eq!(only(writer.finish().unwrap()).header().record_count, 1);
    let mut last = BatchWriter::new(BatchOptions { base_offset: i64::MAX, ..BatchOptions::default() });
    last.push(1, None, None, []).unwrap();
    last.push(1, None, None, []).unwrap();
    assert!(last.finish().is_err(), "offsets beyond 63 bits");
}

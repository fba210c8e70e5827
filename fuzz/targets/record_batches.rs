//! A record set from a stranger: split, open, read every record and header, check as a broker does, write again.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use tidegate_fuzz::within;
use tidegate_model::RecordBatch;
use tidegate_wire::{
    BatchLimits, BatchOptions, BatchWriter, ControlRecord, RawBatch, batch_bytes, check_produced, first_at_or_after,
    index_timestamps, rewrite_for_append, split_batches,
};

const LIMITS: BatchLimits = BatchLimits { max_decompressed_bytes: 64 * 1024, check_crcs: false };

/// Outputs within their cap, one of them growing, gzip's tables, and the copies that this target makes.
const MEMORY: usize = 1024 * 1024;

fuzz_target!(|bytes: &[u8]| {
    let record_set = Bytes::copy_from_slice(bytes);
    within(MEMORY + 4 * bytes.len(), || {
        let mut batches = split_batches(record_set.clone()).max_batch_bytes(1 << 20);
        let mut taken = 0;
        for batch in batches.by_ref() {
            let Ok(batch) = batch else { continue };
            assert_eq!(batch.bytes().len(), batch_bytes(batch.header()));
            assert!(batch.header().next_offset() > batch.header().base_offset);
            taken += batch.bytes().len();
            read(&batch);
        }
        if let Some(left) = batches.leftover() {
            assert!(left.bytes + taken <= bytes.len());
            assert!(left.batch_bytes.is_none_or(|whole| whole > left.bytes));
        }
        produced(bytes);
    });
});

fn read(raw: &RawBatch) {
    let _ = raw.verify_crc();
    let Ok(batch) = raw.open(&LIMITS) else { return };
    let header = batch.header();
    let mut sound = true;
    for record in batch.records() {
        let Ok(record) = record else {
            sound = false;
            continue;
        };
        assert!((header.base_offset..=header.last_offset()).contains(&record.offset));
        let named = record.headers.len();
        assert_eq!(record.headers.count(), named);
        let _ = ControlRecord::parse(&record);
    }
    assert_eq!(index_timestamps(&batch).is_ok(), sound);
    let _ = first_at_or_after(&batch, header.max_timestamp);
    if sound {
        written_again(&batch);
    }
}

/// What was read, written and read again, is the same, as far as a writer takes it.
fn written_again(batch: &RecordBatch) {
    let mut writer =
        BatchWriter::new(BatchOptions { base_offset: batch.header().base_offset, ..BatchOptions::default() });
    let mut next = batch.header().base_offset;
    for record in batch.records().flatten() {
        let gap = record.offset.checked_sub(next).and_then(|gap| u32::try_from(gap).ok());
        let pushed = gap.map(|gap| writer.skip(gap)).and_then(Result::ok);
        if pushed.is_none() || writer.push(record.timestamp_ms, record.key, record.value, record.headers).is_err() {
            return;
        }
        next = record.offset + 1;
    }
    let Ok(bytes) = writer.finish() else { return };
    let raw = split_batches(bytes).next().expect("a batch").expect("a sound one");
    let again = raw.open(&BatchLimits::default()).expect("its own CRC");
    assert_eq!(batch.records().flatten().count(), again.records().count());
    for (old, new) in batch.records().flatten().zip(again.records()) {
        let new = new.expect("a sound record");
        assert_eq!(
            (old.offset, old.timestamp_ms, old.key, old.value),
            (new.offset, new.timestamp_ms, new.key, new.value)
        );
        assert!(old.headers.eq(new.headers));
    }
}

/// A producer's batch with the CRC made right, since no fuzzer finds one.
fn produced(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    if bytes.len() > 21 {
        let crc = crc32c::crc32c(&bytes[21..]);
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    }
    let Ok(produced) = check_produced(bytes.into(), &LIMITS) else { return };
    assert_eq!(produced.records.records().flatten().count(), produced.timestamps.records as usize);
    let appended = rewrite_for_append(&produced.raw, 1 << 40, 7, Some(9));
    let appended = split_batches(appended).next().expect("a batch").expect("a sound one");
    appended.verify_crc().expect("the right CRC");
    let batch = appended.open(&LIMITS).expect("the records that were read before");
    assert!(batch.records().flatten().all(|record| record.timestamp_ms == 9));
}

//! A record set of any message format from a stranger: split, open, every record read.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use tidegate_fuzz::within;
use tidegate_wire::{BatchLimits, Stored, split_record_set};

const LIMITS: BatchLimits = BatchLimits { max_decompressed_bytes: 64 * 1024, check_crcs: false };

/// Messages and their batch within the cap, one of them growing, and gzip's tables.
const MEMORY: usize = 1024 * 1024;

fuzz_target!(|bytes: &[u8]| {
    let record_set = Bytes::copy_from_slice(bytes);
    within(MEMORY + 4 * bytes.len(), || {
        for check_crcs in [false, true] {
            let mut entries = split_record_set(record_set.clone(), 0, check_crcs).max_batch_bytes(1 << 20);
            let mut taken = 0;
            for stored in entries.by_ref() {
                let Ok(stored) = stored else { continue };
                taken += stored.bytes().len();
                read(&stored);
            }
            if let Some(left) = entries.leftover() {
                assert!(left.bytes + taken <= bytes.len());
            }
        }
    });
});

fn read(stored: &Stored) {
    let span = stored.span();
    assert_eq!(span.next_offset(), Some(stored.next_offset()));
    let Ok(batch) = stored.open(&LIMITS) else { return };
    assert_eq!(batch.header().next_offset(), stored.next_offset());
    let Stored::Messages(raw) = stored else { return };
    // What was converted is sound: its records are read to the last one, and none takes more than its message did.
    let mut before = batch.header().base_offset - 1;
    for record in batch.records() {
        let record = record.expect("a converted record is sound");
        assert!(record.offset > before && record.offset < stored.next_offset());
        assert_eq!(record.headers.count(), 0);
        before = record.offset;
    }
    assert_eq!(before + 1, stored.next_offset());
    assert!(raw.is_compressed() || batch.body().len() <= raw.bytes().len());
}

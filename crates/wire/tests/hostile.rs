//! Bytes that lie about their size, and bombs: an error, and no more memory than the caller's cap allows.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::Write;

use bytes::Bytes;
use tidegate_model::{Compression, write_varint};
use tidegate_testkit::old_messages::OldMessage;
use tidegate_wire::compression::{compress, decompress};
use tidegate_wire::{
    BatchError, BatchLimits, BatchOptions, BatchWriter, DecompressError, FrameError, FrameLimit, check_produced,
    read_frame_size, split_batches, split_record_set,
};

/// What a codec may take beside its output: its own tables.
const WORKING_BYTES: usize = 192 * 1024;

/// The one place of this crate's tests with `unsafe`: counting what is allocated takes a global allocator, and its trait is
/// unsafe to implement. It hands every call to the system's allocator unchanged, so that one's promises are kept; the
/// counters are plain cells of the thread, which neither allocate nor run a destructor. They count per thread, because tests
/// run side by side.
#[allow(unsafe_code)]
mod counting {
    use std::alloc::{GlobalAlloc, Layout, System};
    use std::cell::Cell;

    struct Counting;

    #[global_allocator]
    static COUNTING: Counting = Counting;

    thread_local! {
        static LIVE: Cell<isize> = const { Cell::new(0) };
        static PEAK: Cell<isize> = const { Cell::new(0) };
    }

    fn count(bytes: isize) {
        // A thread that is ending has no cells any more, and nothing to measure.
        let _ = LIVE.try_with(|live| {
            live.set(live.get() + bytes);
            let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
        });
    }

    // SAFETY: every method forwards its arguments to `System` as they are, whose contract is the same.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            count(layout.size().cast_signed());
            unsafe { System.alloc(layout) }
        }

        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            count(layout.size().cast_signed());
            unsafe { System.alloc_zeroed(layout) }
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            count(-layout.size().cast_signed());
            unsafe { System.dealloc(block, layout) }
        }

        unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
            // A block that moves is there twice for a moment.
            count(size.cast_signed());
            count(-layout.size().cast_signed());
            unsafe { System.realloc(block, layout, size) }
        }
    }

    /// What `work` returns, and the most bytes that it held at one time on this thread.
    pub(crate) fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
        let before = LIVE.with(Cell::get);
        PEAK.with(|peak| peak.set(before));
        let result = work();
        let peak = PEAK.with(Cell::get) - before;
        (result, usize::try_from(peak).unwrap_or(0))
    }
}

use counting::peak_of;

const CODECS: [Compression; 4] = [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

/// 256 MiB of zeros, compressed; made in steps, so that making it takes no memory either.
fn bomb(codec: Compression) -> Bytes {
    let part = vec![0_u8; 1 << 20];
    match codec {
        // One member, stream or frame of its own after the other; snappy-java takes a framing header between blocks.
        Compression::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            (0..256).for_each(|_| encoder.write_all(&part).unwrap());
            encoder.finish().unwrap().into()
        }
        _ => compress(codec, &part).unwrap().repeat(256).into(),
    }
}

#[test]
fn a_bomb_is_an_error_within_the_cap_under_every_codec() {
    for codec in CODECS {
        let bomb = bomb(codec);
        for cap in [0, 1, 1000, 1 << 16, 3 << 20] {
            let (result, peak) = peak_of(|| decompress(codec, &bomb, cap));
            assert_eq!(result, Err(DecompressError::TooLarge { codec, cap }), "{}", codec.name());
            // Growing moves the output, so an old one of half the size may be there too.
            let allowed = cap + cap / 2 + WORKING_BYTES;
            assert!(peak <= allowed, "{} under a cap of {cap} took {peak} bytes", codec.name());
        }
    }
}

#[test]
fn claims_that_the_bytes_cannot_hold_are_not_allocated_whatever_the_cap() {
    let hex: [(Compression, &[u8]); 6] = [
        // Raw snappy: 4 GiB in five bytes.
        (Compression::Snappy, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
        // Java framing: the same in a block, and a block length of 4 GiB.
        (Compression::Snappy, b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01\0\0\0\x05\xff\xff\xff\xff\x0f"),
        (Compression::Snappy, b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01\xff\xff\xff\xff\x05"),
        // lz4: a block of 2 GiB less one.
        (Compression::Lz4, b"\x04\x22\x4d\x18\x60\x40\x82\xff\xff\xff\x7fhello"),
        // zstd: a single segment of 2^60 bytes with one raw block of 5.
        (Compression::Zstd, b"\x28\xb5\x2f\xfd\xe0\0\0\0\0\0\0\0\x10\x29\0\0hello"),
        // zstd: a window of 2 GiB, no size stated, a compressed block of nonsense.
        (Compression::Zstd, b"\x28\xb5\x2f\xfd\x00\xa8\x2d\0\0hello"),
    ];
    for (codec, bytes) in hex {
        let (result, peak) = peak_of(|| decompress(codec, &Bytes::from_static(bytes), usize::MAX));
        assert!(result.is_err(), "{}: {result:?}", codec.name());
        assert!(peak <= WORKING_BYTES, "{} took {peak} bytes", codec.name());
    }
}

#[test]
fn an_lz4_frame_with_the_largest_blocks_takes_no_more_than_it_holds() {
    // 4 MiB blocks, linked to one another; one of the five literals of "hello".
    let frame = Bytes::from_static(b"\x04\x22\x4d\x18\x40\x70\xdf\x06\0\0\0\x50hello\0\0\0\0");
    let (result, peak) = peak_of(|| decompress(Compression::Lz4, &frame, 64 << 20));
    assert_eq!(result.as_deref(), Ok(&b"hello"[..]));
    assert!(peak <= 16 * 1024, "{peak}");
}

#[test]
fn a_batch_keeps_no_more_room_than_its_records_take() {
    let input: Vec<u8> = (0..40_000_u32).flat_map(|i| (i % 1009).to_be_bytes()).collect();
    for codec in CODECS {
        let packed = Bytes::from(compress(codec, &input).unwrap());
        let kept = decompress(codec, &packed, 64 << 20).unwrap();
        let room = kept.try_into_mut().unwrap().capacity();
        assert!(room <= input.len() + input.len() / 8, "{} keeps {room} bytes", codec.name());
    }
}

fn batch(codec: Compression, value: &[u8]) -> Vec<u8> {
    let mut writer = BatchWriter::new(BatchOptions { compression: codec, ..BatchOptions::default() });
    writer.push(1_714_521_600_000, None, Some(value), []).unwrap();
    writer.finish().unwrap().to_vec()
}

#[test]
fn a_bomb_in_a_batch_is_an_error_with_its_offsets_within_the_cap() {
    for codec in CODECS {
        let bytes = Bytes::from(batch(codec, &vec![0; 8 << 20]));
        let limits = BatchLimits { max_decompressed_bytes: 1 << 20, check_crcs: true };
        let (result, peak) = peak_of(|| split_batches(bytes.clone()).next().unwrap().unwrap().open(&limits));
        let error = result.unwrap_err();
        assert!(matches!(error, BatchError::Decompress { .. }), "{error}");
        assert_eq!(error.at().next_offset(), Some(1));
        assert!(peak <= (1 << 20) + (1 << 19) + WORKING_BYTES, "{} took {peak} bytes", codec.name());
    }
}

#[test]
fn lying_lengths_and_counts_allocate_nothing() {
    let sound = batch(Compression::None, b"hello");
    let numbers = [i32::MIN, -2, -1, 0, 1, 48, 49, 50, 1 << 28, i32::MAX];
    // Length, last offset delta, record count.
    for field in [8, 23, 57] {
        for number in numbers {
            let mut lying = sound.clone();
            lying[field..field + 4].copy_from_slice(&number.to_be_bytes());
            read_within(lying.into(), 1024);
        }
    }
    // The record's length, and the lengths and counts inside it, each a varint of one byte in the sound batch.
    for field in 61..sound.len() {
        for number in numbers {
            let mut lying = sound[..field].to_vec();
            write_varint(&mut lying, number);
            lying.extend_from_slice(&sound[field + 1..]);
            let length = i32::try_from(lying.len() - 12).unwrap();
            lying[8..12].copy_from_slice(&length.to_be_bytes());
            read_within(lying.into(), 1024);
        }
    }
}

fn read_within(record_set: Bytes, most: usize) {
    let limits = BatchLimits { max_decompressed_bytes: 1 << 20, check_crcs: false };
    let ((), peak) = peak_of(|| {
        for batch in split_batches(record_set.clone()).flatten() {
            if let Ok(batch) = batch.open(&limits) {
                batch.records().flatten().for_each(|record| record.headers.for_each(drop));
            }
        }
        let _ = check_produced(record_set, &limits);
    });
    assert!(peak <= most, "{peak} bytes");
}

#[test]
fn reading_a_batch_allocates_nothing_for_its_records() {
    let read = |records: usize| {
        let mut writer = BatchWriter::new(BatchOptions::default());
        for _ in 0..records {
            writer.push(1_714_521_600_000, Some(b"key"), Some(b"value"), []).unwrap();
        }
        let bytes = writer.finish().unwrap();
        let (count, peak) = peak_of(|| {
            let batches = split_batches(bytes).map(|batch| batch.unwrap().open(&BatchLimits::default()).unwrap());
            batches.map(|batch| batch.records().map(Result::unwrap).count()).sum::<usize>()
        });
        assert_eq!(count, records);
        peak
    };
    assert_eq!(read(10), read(10_000));
}

#[test]
fn a_frame_size_costs_nothing() {
    let (result, peak) = peak_of(|| read_frame_size([0x7f, 0xff, 0xff, 0xff], FrameLimit::default()));
    assert!(matches!(result, Err(FrameError::TooLarge { .. })));
    assert_eq!(peak, 0);
}

fn old(offset: i64, magic: u8, codec: u8, value: &[u8]) -> Vec<u8> {
    OldMessage { offset, magic, attributes: codec, timestamp_ms: 5, key: None, value: Some(value) }.encode()
}

#[test]
fn a_bomb_in_an_old_wrapper_is_an_error_within_the_cap() {
    for (number, codec) in (1..).zip([Compression::Gzip, Compression::Snappy, Compression::Lz4]) {
        for magic in [0, 1] {
            let set = Bytes::from(old(7, magic, number, &bomb(codec)));
            let limits = BatchLimits { max_decompressed_bytes: 1 << 20, check_crcs: true };
            let (result, peak) =
                peak_of(|| split_record_set(set.clone(), 0, true).next().unwrap().unwrap().open(&limits));
            let error = result.unwrap_err();
            assert!(matches!(error, BatchError::Decompress { .. }), "{error}");
            assert_eq!(error.at().next_offset(), Some(8));
            assert!(peak <= (1 << 20) + (1 << 19) + WORKING_BYTES, "{} took {peak} bytes", codec.name());
        }
    }
}

#[test]
fn an_old_wrapper_takes_its_messages_and_their_batch_and_no_more() {
    // Empty messages: each field in front of a value counts.
    for (magic, value) in [(0, &b""[..]), (1, b""), (0, b"hello"), (1, &[7; 5_000])] {
        let count = 1_000_000 / (40 + value.len());
        let inner: Vec<u8> = (0..count as i64).flat_map(|offset| old(offset, magic, 0, value)).collect();
        let set = Bytes::from(old(count as i64 - 1, magic, 1, &compress(Compression::Gzip, &inner).unwrap()));
        let limits = BatchLimits { max_decompressed_bytes: inner.len(), check_crcs: true };
        let (batch, peak) = peak_of(|| split_record_set(set, 0, true).next().unwrap().unwrap().open(&limits).unwrap());
        assert_eq!(batch.records().map(Result::unwrap).count(), count);
        assert!(batch.body().len() <= inner.len(), "{} of {}", batch.body().len(), inner.len());
        // The room for the batch is as large as the messages; what is not used of it goes back at the end.
        let allowed = 2 * inner.len() + batch.body().len() + WORKING_BYTES;
        assert!(peak <= allowed, "{peak} bytes for {}", inner.len());
    }
}

#[test]
fn lying_lengths_of_old_messages_allocate_nothing() {
    for magic in [0, 1] {
        let sound = old(0, magic, 0, b"hello");
        let key = if magic == 0 { 18 } else { 26 };
        // Length, key length, value length.
        for field in [8, key, key + 4] {
            for number in [i32::MIN, -2, -1, 0, 1, 13, 14, 15, 1 << 28, i32::MAX] {
                let mut lying = sound.clone();
                lying[field..field + 4].copy_from_slice(&number.to_be_bytes());
                let limits = BatchLimits { max_decompressed_bytes: 1 << 20, check_crcs: false };
                let set = Bytes::from([&lying[..], &sound].concat());
                let (_, peak) = peak_of(|| {
                    for stored in split_record_set(set, 0, false).flatten() {
                        let _ = stored.open(&limits).map(|batch| batch.records().count());
                    }
                });
                assert!(peak <= 1024, "{peak} bytes");
            }
        }
    }
}

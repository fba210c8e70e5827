//! Message sets of formats v0 and v1 read as they were written, mixed with batches of v2, cut and damaged.

use bytes::Bytes;
use proptest::prelude::*;
use tidegate_model::{Compression, TimestampType};
use tidegate_testkit::old_messages::OldMessage;
use tidegate_wire::compression::compress;
use tidegate_wire::{
    BatchError, BatchLimits, BatchOptions, BatchWriter, DecompressError, MessageError, split_record_set,
};

const LIMITS: BatchLimits = BatchLimits { max_decompressed_bytes: 1 << 20, check_crcs: true };

/// Offset, timestamp, key, value.
type Fields = (i64, i64, Option<Vec<u8>>, Option<Vec<u8>>);

fn message<'a>(magic: u8, (offset, timestamp_ms, key, value): &'a Fields) -> OldMessage<'a> {
    let (key, value) = (key.as_deref(), value.as_deref());
    OldMessage { offset: *offset, magic, attributes: 0, timestamp_ms: *timestamp_ms, key, value }
}

/// A wrapper of `magic` around the messages, with offsets as that format has them.
fn wrapper(magic: u8, codec: Compression, messages: &[Fields], append_time_ms: Option<i64>) -> Vec<u8> {
    let (first, last) = (messages[0].0, messages[messages.len() - 1].0);
    let inner: Vec<u8> = messages
        .iter()
        .flat_map(|fields| {
            let offset = if magic == 0 { fields.0 } else { fields.0 - first };
            OldMessage { offset, ..message(magic, fields) }.encode()
        })
        .collect();
    enclose(magic, codec, last, append_time_ms, &inner)
}

fn enclose(magic: u8, codec: Compression, offset: i64, append_time_ms: Option<i64>, inner: &[u8]) -> Vec<u8> {
    let bits = [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];
    let bits = u8::try_from(bits.iter().position(|known| *known == codec).unwrap()).unwrap();
    let value = compress(codec, inner).unwrap();
    OldMessage {
        offset,
        magic,
        attributes: bits | if append_time_ms.is_some() { 0x08 } else { 0 },
        timestamp_ms: append_time_ms.unwrap_or(7),
        key: None,
        value: Some(&value),
    }
    .encode()
}

/// A batch of v2 with the same records.
fn batch(messages: &[Fields]) -> Vec<u8> {
    let mut writer = BatchWriter::new(BatchOptions { base_offset: messages[0].0, ..BatchOptions::default() });
    let mut next = messages[0].0;
    for (offset, timestamp_ms, key, value) in messages {
        writer.skip(u32::try_from(offset - next).unwrap()).unwrap();
        writer.push(*timestamp_ms, key.as_deref(), value.as_deref(), []).unwrap();
        next = offset + 1;
    }
    writer.finish().unwrap().to_vec()
}

fn read(set: impl Into<Bytes>) -> Result<Vec<Fields>, BatchError> {
    let mut records = Vec::new();
    for stored in split_record_set(set.into(), 0, true) {
        let stored = stored?;
        let batch = stored.open(&LIMITS)?;
        assert_eq!(batch.header().next_offset(), stored.next_offset());
        for record in batch.records() {
            let record = record.unwrap();
            assert_eq!(record.headers.count(), 0);
            let bytes = |field: Option<&[u8]>| field.map(<[u8]>::to_vec);
            records.push((record.offset, record.timestamp_ms, bytes(record.key), bytes(record.value)));
        }
    }
    Ok(records)
}

fn refusal(set: Vec<u8>) -> (BatchError, MessageError) {
    match read(set) {
        Err(error @ BatchError::Message { source, .. }) => (error, source),
        other => panic!("{other:?}"),
    }
}

fn plain(offset: i64) -> Fields {
    (offset, 1_000 + offset, Some(b"k".to_vec()), Some(offset.to_string().into_bytes()))
}

/// How one piece of the log was written.
#[derive(Clone, Copy, Debug)]
enum Written {
    Messages(u8),
    Wrapper(u8, Compression),
    Batch,
}

fn pieces() -> impl Strategy<Value = Vec<(Written, Vec<Fields>)>> {
    let codec = prop_oneof![Just(Compression::Gzip), Just(Compression::Snappy), Just(Compression::Lz4)];
    let written = prop_oneof![
        (0_u8..2).prop_map(Written::Messages),
        ((0_u8..2), codec).prop_map(|(magic, codec)| Written::Wrapper(magic, codec)),
        Just(Written::Batch),
    ];
    let field = prop::option::of(prop::collection::vec(any::<u8>(), 0..40));
    let timestamp = prop_oneof![Just(-1_i64), 0..4_000_000_000_000_i64];
    let fields = (0_i64..3, timestamp, field.clone(), field);
    let piece = (written, prop::collection::vec(fields, 1..12));
    prop::collection::vec(piece, 1..6).prop_map(|mut pieces| {
        // What was a gap becomes an offset.
        let mut next = 0;
        for (written, messages) in &mut pieces {
            for (offset, timestamp_ms, ..) in messages {
                next += *offset;
                *offset = next;
                next += 1;
                if matches!(written, Written::Messages(0) | Written::Wrapper(0, _)) {
                    *timestamp_ms = -1;
                }
            }
        }
        pieces
    })
}

fn write(pieces: &[(Written, Vec<Fields>)]) -> (Vec<u8>, Vec<Fields>) {
    let mut set = Vec::new();
    for (written, messages) in pieces {
        match written {
            Written::Messages(magic) => messages.iter().for_each(|fields| set.extend(message(*magic, fields).encode())),
            Written::Wrapper(magic, codec) => set.extend(wrapper(*magic, *codec, messages, None)),
            Written::Batch => set.extend(batch(messages)),
        }
    }
    (set, pieces.iter().flat_map(|(_, messages)| messages.clone()).collect())
}

proptest! {
    #[test]
    fn a_log_of_all_formats_reads_as_it_was_written(pieces in pieces()) {
        let (set, expected) = write(&pieces);
        prop_assert_eq!(read(set).unwrap(), expected);
    }

    #[test]
    fn a_cut_log_gives_its_whole_entries_and_the_rest_is_left_over(pieces in pieces(), cut in 0.0_f64..1.0) {
        let (set, expected) = write(&pieces);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let cut = (set.len() as f64 * cut) as usize;
        let mut splitter = split_record_set(Bytes::copy_from_slice(&set[..cut]), 0, true);
        let mut whole = 0;
        for stored in splitter.by_ref() {
            whole += stored.unwrap().bytes().len();
        }
        prop_assert_eq!(splitter.leftover().map_or(0, |left| left.bytes), cut - whole);
        let read = read(set[..cut].to_vec()).unwrap();
        prop_assert_eq!(&read[..], &expected[..read.len()]);
    }

    #[test]
    fn damage_is_an_error_or_changes_nothing_but_offsets(pieces in pieces(), at in any::<prop::sample::Index>(), bit in 0..8) {
        let (mut set, expected) = write(&pieces);
        let at = at.index(set.len());
        set[at] ^= 1_u8 << bit;
        let mut good = Vec::new();
        for stored in split_record_set(set.into(), 0, true).flatten() {
            let Ok(batch) = stored.open(&LIMITS) else { continue };
            for record in batch.records() {
                let record = record.unwrap();
                good.push((record.timestamp_ms, record.key.map(<[u8]>::to_vec), record.value.map(<[u8]>::to_vec)));
            }
        }
        // No CRC covers the offset in front of an entry; the reader checks the order of those.
        let mut expected = expected.into_iter().map(|(_, timestamp_ms, key, value)| (timestamp_ms, key, value));
        for record in good {
            prop_assert!(expected.any(|written| written == record), "{record:?} was never written");
        }
    }

    #[test]
    fn random_bytes_neither_panic_nor_hang(mut bytes in prop::collection::vec(any::<u8>(), 0..300), magic in 0_u8..3) {
        if bytes.len() > 30 {
            bytes[16] = magic;
            bytes[8..11].fill(0);
        }
        for stored in split_record_set(bytes.into(), 0, false).flatten() {
            let _ = stored.open(&BatchLimits { check_crcs: false, ..LIMITS }).map(|batch| batch.records().count());
        }
    }
}

#[test]
fn offsets_inside_a_v1_wrapper_may_be_relative_or_with_holes_or_absolute() {
    let inner = |offsets: [i64; 3]| -> Vec<u8> {
        offsets.iter().flat_map(|offset| message(1, &(*offset, 5, None, None)).encode()).collect()
    };
    for (wrapper_offset, offsets, expected) in [
        (102, [0, 1, 2], [100, 101, 102]),
        // Compaction removed some; the last one inside stays where the wrapper is.
        (109, [1, 4, 9], [101, 104, 109]),
        (102, [100, 101, 102], [100, 101, 102]),
    ] {
        let set = enclose(1, Compression::Gzip, wrapper_offset, None, &inner(offsets));
        let offsets: Vec<i64> = read(set).unwrap().iter().map(|fields| fields.0).collect();
        assert_eq!(offsets, expected);
    }
    let one = enclose(1, Compression::Lz4, 41, None, &message(1, &(0, 5, None, None)).encode());
    assert_eq!(read(one).unwrap()[0].0, 41);
}

#[test]
fn log_append_time_of_a_wrapper_overrides_the_timestamps_inside() {
    let messages = [plain(5), plain(6)];
    let set = wrapper(1, Compression::Snappy, &messages, Some(99_000));
    let stored = split_record_set(set.into(), 0, true).next().unwrap().unwrap();
    let batch = stored.open(&LIMITS).unwrap();
    let records: Vec<_> = batch.records().map(Result::unwrap).collect();
    assert!(records.iter().all(|r| (r.timestamp_ms, r.timestamp_type) == (99_000, TimestampType::LogAppendTime)));
    assert_eq!(records[1].offset, 6);
}

#[test]
fn uncompressed_messages_under_log_append_time_keep_their_own_times_each() {
    let set: Vec<u8> = [(0, 10), (1, 10), (2, 20), (3, 20)]
        .iter()
        .flat_map(|(offset, time)| {
            let fields = (*offset, *time, None, None);
            OldMessage { attributes: 0x08, ..message(1, &fields) }.encode()
        })
        .collect();
    let times: Vec<i64> = read(set.clone()).unwrap().iter().map(|fields| fields.1).collect();
    assert_eq!(times, [10, 10, 20, 20]);
    assert_eq!(split_record_set(set.into(), 0, true).count(), 2);
}

#[test]
fn a_thousand_small_messages_become_one_batch_and_large_ones_a_few() {
    let set: Vec<u8> = (0..1_000).flat_map(|offset| message(1, &plain(offset)).encode()).collect();
    assert_eq!(split_record_set(set.into(), 0, true).count(), 1);
    let large = vec![7; 200 << 10];
    let set: Vec<u8> =
        (0..5).flat_map(|offset| message(0, &(offset, -1, None, Some(large.clone()))).encode()).collect();
    assert_eq!(split_record_set(set.into(), 0, true).count(), 5);
}

#[test]
fn one_damaged_message_takes_none_of_its_neighbours_with_it() {
    let mut set = Vec::new();
    for offset in 0..5 {
        let mut entry = message(1, &plain(offset)).encode();
        if offset == 2 {
            *entry.last_mut().unwrap() ^= 1;
        }
        set.extend(entry);
    }
    let read: Vec<_> = split_record_set(set.into(), 0, true)
        .map(|stored| match stored {
            Ok(stored) => Ok(stored.open(&LIMITS).unwrap().records().map(|r| r.unwrap().offset).collect::<Vec<_>>()),
            Err(error @ BatchError::Crc { .. }) => Err(error.at().next_offset().unwrap()),
            Err(other) => panic!("{other}"),
        })
        .collect();
    assert_eq!(read, [Ok(vec![0, 1]), Err(3), Ok(vec![3, 4])]);
}

#[test]
fn the_old_lz4_checksum_is_legal_in_v0_alone() {
    let messages = [plain(0)];
    for magic in [0, 1] {
        let inner = message(magic, &messages[0]).encode();
        let mut frame = compress(Compression::Lz4, &inner).unwrap();
        // The second byte of xxh32 over magic number and descriptor, in place of the descriptor alone.
        assert_eq!(frame[4..6], [0x60, 0x40]);
        frame[6] = 0x1a;
        let entry = OldMessage { offset: 0, magic, attributes: 3, timestamp_ms: 5, key: None, value: Some(&frame) };
        let read = read(entry.encode());
        match magic {
            0 => assert_eq!(read.unwrap()[0].3, messages[0].3),
            _ => assert!(
                matches!(
                    read,
                    Err(BatchError::Decompress {
                        source: DecompressError::Lz4HeaderChecksum { includes_magic: true, .. },
                        ..
                    })
                ),
                "{read:?}"
            ),
        }
    }
}

#[test]
fn what_no_old_format_allows_is_refused_by_name_with_its_offsets() {
    let one = |magic, offset| message(magic, &(offset, 5, None, None)).encode();
    let gzip = |magic, offset, inner: &[u8]| enclose(magic, Compression::Gzip, offset, None, inner);

    let nested = gzip(1, 9, &gzip(1, 0, &one(1, 0)));
    let (error, source) = refusal([one(1, 4), nested].concat());
    assert_eq!(source, MessageError::Nested { offset: 0 });
    assert_eq!(error.at().base_offset, 5, "what the wrapper may hold begins behind the entry in front");
    assert_eq!(error.at().next_offset(), Some(10));

    let (_, source) = refusal(enclose(1, Compression::Zstd, 9, None, &one(1, 0)));
    assert_eq!(source, MessageError::Codec { offset: 9, codec: "zstd", magic: 1 });
    assert_eq!(refusal(gzip(0, 9, &one(0, 8))).1, MessageError::LastOffset { offset: 9, last: 8 });
    assert_eq!(refusal(gzip(1, 9, &one(1, 10))).1, MessageError::LastOffset { offset: 9, last: 10 });
    let order = [one(1, 3), one(1, 3)].concat();
    assert_eq!(refusal(gzip(1, 9, &order)).1, MessageError::Order { offset: 3, before: 3 });
    assert_eq!(refusal(gzip(1, 9, b"")).1, MessageError::EmptyWrapper { offset: 9 });
    let null = OldMessage { offset: 9, magic: 0, attributes: 1, timestamp_ms: 0, key: None, value: None };
    assert_eq!(refusal(null.encode()).1, MessageError::EmptyWrapper { offset: 9 });
    assert_eq!(refusal(gzip(0, 9, &one(0, 9)[..20])).1, MessageError::Truncated { offset: 9 });
    let mut damaged = one(1, 0);
    damaged[30] ^= 1;
    assert!(matches!(refusal(gzip(1, 9, &damaged)).1, MessageError::Crc { offset: 0, .. }));

    let negative = read(one(0, -5)).unwrap_err();
    assert!(matches!(negative, BatchError::Header { field: "offset", value: -5, .. }), "{negative}");
}

#[test]
fn far_offsets_and_times_are_kept_or_refused_but_never_bent() {
    let far = i64::from(i32::MAX) + 10;
    let set = [message(1, &plain(0)).encode(), message(1, &plain(far)).encode()].concat();
    let offsets: Vec<i64> = read(set).unwrap().iter().map(|fields| fields.0).collect();
    assert_eq!(offsets, [0, far]);
    let times = [(0, i64::MAX, None, None), (1, -2, None, None)];
    let set: Vec<u8> = times[..1].iter().flat_map(|fields| message(1, fields).encode()).collect();
    assert_eq!(read(set).unwrap()[0].1, i64::MAX);
    let set: Vec<u8> = times.iter().flat_map(|fields| message(1, fields).encode()).collect();
    assert!(matches!(refusal(set).1, MessageError::Field { field: "timestamp", value: -2, .. }));
}

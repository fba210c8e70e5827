//! What goes into an encoder comes out of the messages, and no message is larger than allowed.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use prost::Message as _;
use tidegate_api::encoded::EncodedReadRangeResponse;
use tidegate_api::v1;
use tidegate_codec::Schema;
use tidegate_model::{Header, Isolation, RecordBatch, TimeRange};
use tidegate_plan::EndStatement;
use tidegate_wire::{BatchLimits, BatchOptions, BatchWriter, split_batches};

use super::columns::Columns;
use super::encoder::{Message, MessageEncoder};
use super::limits::MessageLimits;
use super::rows::Rows;
use super::values::Values;
use crate::engine::{Encode, EncodeError, EngineLimits, TopicPayload, ValueDecoder};

type HeaderData = (Vec<u8>, Option<Vec<u8>>);

/// A record before it is written into a batch.
#[derive(Clone, Debug)]
struct Input {
    partition: i32,
    timestamp_ms: i64,
    append_time: bool,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<HeaderData>,
}

impl Input {
    fn value(partition: i32, value: &[u8]) -> Self {
        Self {
            partition,
            timestamp_ms: 1_700_000_000_000,
            append_time: false,
            key: None,
            value: Some(value.to_vec()),
            headers: Vec::new(),
        }
    }

    /// The record in a batch of its own.
    fn batch(&self, offset: i64) -> RecordBatch {
        let log_append_time_ms = self.append_time.then_some(self.timestamp_ms);
        let options = BatchOptions { base_offset: offset, log_append_time_ms, ..BatchOptions::default() };
        let mut writer = BatchWriter::new(options);
        let headers = self.headers.iter().map(|(name, value)| Header { name, value: value.as_deref() });
        writer.push(self.timestamp_ms, self.key.as_deref(), self.value.as_deref(), headers).unwrap();
        let batch = split_batches(writer.finish().unwrap()).next().unwrap().unwrap();
        batch.open(&BatchLimits::default()).unwrap()
    }

    /// What a client should see.
    fn row(&self, offset: i64) -> v1::Row {
        let timestamp_type =
            if self.append_time { v1::TimestampType::LogAppendTime } else { v1::TimestampType::CreateTime };
        v1::Row {
            offset,
            timestamp_ms: self.timestamp_ms,
            timestamp_type: timestamp_type.into(),
            key: self.key.clone().map(Bytes::from),
            value: self.value.clone().map(Bytes::from),
            headers: self
                .headers
                .iter()
                .map(|(name, value)| v1::Header { name: name.clone().into(), value: value.clone().map(Bytes::from) })
                .collect(),
            value_error: String::new(),
        }
    }
}

/// A message as a client decodes it.
fn decode(frame: &EncodedReadRangeResponse) -> v1::read_range_response::Message {
    let bytes = frame.encode_to_vec();
    assert_eq!(bytes.len(), frame.encoded_len());
    v1::ReadRangeResponse::decode(bytes.as_slice()).unwrap().message.unwrap()
}

/// The rows of a message of either layout, with their partition.
fn rows(frame: &EncodedReadRangeResponse) -> (i32, Vec<v1::Row>) {
    match decode(frame) {
        v1::read_range_response::Message::Rows(rows) => (rows.partition, rows.rows),
        v1::read_range_response::Message::Columns(columns) => (columns.partition, columns_to_rows(columns)),
        v1::read_range_response::Message::End(end) => panic!("{end:?}"),
    }
}

/// Reads COLUMNS as their documentation says.
fn columns_to_rows(columns: v1::Columns) -> Vec<v1::Row> {
    let records = columns.offset_deltas.len();
    for array in [columns.timestamp_deltas.len(), columns.key_lengths.len(), columns.value_lengths.len()] {
        assert_eq!(array, records);
    }
    assert!(columns.header_counts.is_empty() || columns.header_counts.len() == records);
    let (mut offset, mut timestamp_ms) = (0, 0);
    let (mut keys, mut values) = (columns.keys, columns.values);
    let mut headers = columns.headers.into_iter();
    let errors: BTreeMap<u32, String> = columns.value_errors.into_iter().map(|e| (e.index, e.error)).collect();
    let cut = |column: &mut Bytes, length: u32| (length > 0).then(|| column.split_to(length as usize - 1));
    let rows = (0..records)
        .map(|index| {
            offset += columns.offset_deltas[index];
            timestamp_ms += columns.timestamp_deltas[index];
            let header_count = columns.header_counts.get(index).copied().unwrap_or(0);
            v1::Row {
                offset,
                timestamp_ms,
                timestamp_type: columns.timestamp_type,
                key: cut(&mut keys, columns.key_lengths[index]),
                value: cut(&mut values, columns.value_lengths[index]),
                headers: headers.by_ref().take(header_count as usize).collect(),
                value_error: errors.get(&u32::try_from(index).unwrap()).cloned().unwrap_or_default(),
            }
        })
        .collect();
    assert!(keys.is_empty() && values.is_empty() && headers.next().is_none());
    rows
}

/// Encodes the records, each at the offset that is its place in `inputs`.
fn encode<M: Message>(
    limits: MessageLimits,
    values: Values,
    inputs: &[Input],
) -> Result<Vec<EncodedReadRangeResponse>, EncodeError> {
    let mut encoder = MessageEncoder::<M>::new(values, limits);
    let mut frames = Vec::new();
    for (offset, input) in inputs.iter().enumerate() {
        let batch = input.batch(i64::try_from(offset).unwrap());
        let record = batch.records().next().unwrap().unwrap();
        encoder.push(input.partition, &record, &mut frames)?;
    }
    encoder.flush(&mut frames);
    Ok(frames)
}

fn check_round_trip<M: Message>(limits: MessageLimits, inputs: &[Input]) {
    let frames = match encode::<M>(limits, Values::AsStored, inputs) {
        Ok(frames) => frames,
        Err(EncodeError::RecordTooLarge { offset, needed_bytes, allowed_bytes, .. }) => {
            // Right only if that record alone, where everything is allowed, makes a message of just that size.
            let input = &inputs[usize::try_from(offset).unwrap()];
            let alone = MessageLimits { max: usize::MAX, shared: usize::MAX, target: usize::MAX };
            let mut encoder = MessageEncoder::<M>::new(Values::AsStored, alone);
            let mut frames = Vec::new();
            let batch = input.batch(offset);
            encoder.push(input.partition, &batch.records().next().unwrap().unwrap(), &mut frames).unwrap();
            encoder.flush(&mut frames);
            assert_eq!(frames[0].encoded_len() as u64, needed_bytes);
            assert!(needed_bytes > allowed_bytes && allowed_bytes == limits.max as u64);
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let mut seen: BTreeMap<i32, Vec<v1::Row>> = BTreeMap::new();
    for frame in &frames {
        let (partition, rows) = rows(frame);
        assert!(frame.encoded_len() <= limits.max);
        assert!(!rows.is_empty());
        assert!(rows.len() == 1 || frame.encoded_len() <= limits.shared);
        seen.entry(partition).or_default().extend(rows);
    }
    let mut expected: BTreeMap<i32, Vec<v1::Row>> = BTreeMap::new();
    for (offset, input) in inputs.iter().enumerate() {
        expected.entry(input.partition).or_default().push(input.row(i64::try_from(offset).unwrap()));
    }
    assert_eq!(seen, expected);
}

/// Bytes whose lengths gather around the places where a varint grows.
fn data() -> impl Strategy<Value = Vec<u8>> {
    let length = prop_oneof![4 => 0_usize..8, 3 => 100_usize..140, 1 => 16_300_usize..16_400];
    (length, any::<u8>()).prop_map(|(length, byte)| vec![byte; length])
}

fn input() -> impl Strategy<Value = Input> {
    let timestamp = prop_oneof![Just(-1_i64), 0_i64..200, 1_700_000_000_000_i64..1_700_000_100_000];
    let headers = prop_oneof![3 => Just(Vec::new()), 1 => vec((data(), option::of(data())), 1..4)];
    (0..4, timestamp, any::<bool>(), option::of(data()), option::of(data()), headers).prop_map(
        |(partition, timestamp_ms, append_time, key, value, headers)| Input {
            partition,
            timestamp_ms,
            append_time,
            key,
            value,
            headers,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_record_comes_out_as_it_went_in_and_no_message_is_larger_than_allowed(
        inputs in vec(input(), 1..40),
        max in prop_oneof![20_usize..300, 16_000_usize..20_000, Just(1 << 20)],
        target in 1_usize..20_000,
    ) {
        let limits = MessageLimits::new(max, target);
        check_round_trip::<Rows>(limits, &inputs);
        check_round_trip::<Columns>(limits, &inputs);
    }
}

/// Walks the size of a message over every place where a length of it grows by a byte.
fn walk_limit<M: Message>() {
    for edge in [1 << 7, 1 << 14, 1 << 21_usize] {
        for value_len in edge - 40..edge + 8 {
            let input = Input::value(3, &vec![b'v'; value_len]);
            let unlimited = MessageLimits { max: usize::MAX, shared: usize::MAX, target: usize::MAX };
            let frames = encode::<M>(unlimited, Values::AsStored, std::slice::from_ref(&input)).unwrap();
            let exact = frames[0].encoded_len();

            let fits = MessageLimits { max: exact, shared: exact, target: exact };
            assert!(encode::<M>(fits, Values::AsStored, std::slice::from_ref(&input)).is_ok());
            let short = MessageLimits { max: exact - 1, shared: exact - 1, target: exact - 1 };
            let error = encode::<M>(short, Values::AsStored, &[input]).unwrap_err();
            let EncodeError::RecordTooLarge { partition, offset, needed_bytes, allowed_bytes, field } = error else {
                panic!("{error}")
            };
            assert_eq!((partition, offset, field), (3, 0, "max_message_bytes"));
            assert_eq!((needed_bytes, allowed_bytes), (exact as u64, exact as u64 - 1));
        }
    }
}

#[test]
fn a_record_fits_a_message_of_exactly_its_size_and_none_that_is_a_byte_smaller() {
    walk_limit::<Rows>();
    walk_limit::<Columns>();
}

#[test]
fn full_messages_are_between_a_quarter_and_a_whole_mebibyte_although_eight_partitions_are_read() {
    let inputs: Vec<_> = (0..20_000).map(|n| Input::value(n % 8, &vec![b'v'; 400 + (n as usize % 7) * 50])).collect();
    let limits = MessageLimits::new(4 << 20, EngineLimits::default().chunk_target_bytes);
    let mut encoder = MessageEncoder::<Columns>::new(Values::AsStored, limits);
    let mut frames = Vec::new();
    for (offset, input) in inputs.iter().enumerate() {
        let batch = input.batch(i64::try_from(offset).unwrap());
        encoder.push(input.partition, &batch.records().next().unwrap().unwrap(), &mut frames).unwrap();
    }
    assert!(frames.len() > 10);
    for frame in &frames {
        assert!((256 << 10..=1 << 20).contains(&frame.encoded_len()), "{}", frame.encoded_len());
    }
}

#[test]
fn however_many_partitions_are_open_they_hold_no_more_than_eight_messages() {
    let limits = MessageLimits::new(1 << 20, 10_000);
    let mut encoder = MessageEncoder::<Rows>::new(Values::AsStored, limits);
    let (mut frames, mut pushed) = (Vec::new(), 0);
    for n in 0..1_000 {
        let batch = Input::value(n % 100, &[b'v'; 900]).batch(i64::from(n));
        encoder.push(n % 100, &batch.records().next().unwrap().unwrap(), &mut frames).unwrap();
        pushed += 900;
        let sent: usize = frames.iter().map(EncodedReadRangeResponse::encoded_len).sum();
        assert!(pushed < sent + 8 * 10_000);
    }
}

#[test]
fn a_message_is_not_filled_beyond_a_mebibyte_to_hold_one_more_record() {
    let inputs = [Input::value(0, &[b'a'; 500 << 10]), Input::value(0, &vec![b'b'; 900 << 10])];
    let frames = encode::<Rows>(MessageLimits::new(4 << 20, 512 << 10), Values::AsStored, &inputs).unwrap();
    let records: Vec<_> = frames.iter().map(|frame| rows(frame).1.len()).collect();
    assert_eq!(records, [1, 1]);
}

#[test]
fn records_of_two_timestamp_types_do_not_share_columns() {
    let appended = Input { append_time: true, ..Input::value(0, b"b") };
    let inputs = [Input::value(0, b"a"), appended.clone(), appended, Input::value(0, b"c")];
    let frames = encode::<Columns>(MessageLimits::new(1 << 20, 1 << 20), Values::AsStored, &inputs).unwrap();
    let records: Vec<_> = frames.iter().map(|frame| rows(frame).1.len()).collect();
    assert_eq!(records, [1, 2, 1]);
    check_round_trip::<Columns>(MessageLimits::new(1 << 20, 1 << 20), &inputs);
}

fn check_json<M: Message>() {
    let source = "syntax = \"proto3\"; package t; message M { int32 n = 1; }";
    let message = Schema::from_proto_source("m.proto", source).unwrap().message("t.M").unwrap();
    let values = Values::json(ValueDecoder::new(TopicPayload::Protobuf(message)));
    let tombstone = Input { value: None, ..Input::value(0, b"") };
    let inputs = [Input::value(0, &[0x08, 0x07]), Input::value(0, &[0xff]), tombstone, Input::value(0, b"")];
    let frames = encode::<M>(MessageLimits::new(1 << 20, 1 << 20), values, &inputs).unwrap();
    let (_, rows) = rows(&frames[0]);
    let shown: Vec<_> = rows.iter().map(|row| (row.value.as_deref(), row.value_error.is_empty())).collect();
    assert_eq!(
        shown,
        [(Some(&b"{\"n\":7}"[..]), true), (Some(&[0xff][..]), false), (None, true), (Some(&b"{}"[..]), true)]
    );
}

#[test]
fn a_value_that_has_no_json_form_comes_as_stored_with_the_reason_and_the_next_record_follows() {
    check_json::<Rows>();
    check_json::<Columns>();
}

#[test]
fn values_that_were_not_converted_are_counted() {
    let values = Values::json(ValueDecoder::new(TopicPayload::Json));
    let mut encoder = MessageEncoder::<Rows>::new(values, MessageLimits::new(1 << 20, 1 << 20));
    for value in [&b"{}"[..], b"{", b"\xff", b"1"] {
        let batch = Input::value(0, value).batch(0);
        encoder.push(0, &batch.records().next().unwrap().unwrap(), &mut Vec::new()).unwrap();
    }
    assert_eq!(encoder.values_not_converted(), 2);
}

#[test]
fn an_end_statement_that_does_not_fit_is_an_error_and_the_bound_for_it_holds() {
    let plan = |partition| tidegate_plan::PartitionPlan {
        partition,
        read: tidegate_model::OffsetRange::new(i64::MAX - 2, i64::MAX - 1),
        noted_end_offset: i64::MAX,
        log_end: tidegate_plan::LogEnd { last_stable_offset: Some(i64::MAX), ..tidegate_plan::LogEnd::of(i64::MAX) },
        undecided_offsets: u64::MAX / 1_000,
        lost: None,
        untimed_before: 0,
        proof: tidegate_plan::Proof::FullScan,
    };
    for partitions in [1, 7, 100] {
        let end = |partition| {
            let mut end = tidegate_plan::PartitionTally::new(plan(partition), TimeRange::ALL).finish();
            (end.records_scanned, end.records_sent, end.late_records) = (u64::MAX, u64::MAX / 1000, u64::MAX);
            (end.untimed_records, end.exhaustive) = (u64::MAX, true);
            end.first_offset_at_or_after_until = Some(i64::MAX);
            end
        };
        let ends = (i32::MAX - partitions..i32::MAX).map(end).collect();
        let mut end = EndStatement::new(ends, Isolation::ReadUncommitted, TimeRange::between(-1, -1), u64::MAX);
        end.records_sent = u64::MAX;
        let needed = super::convert::end_message(&end).encoded_len();
        assert!(needed <= super::convert::end_message_bound(usize::try_from(partitions).unwrap()), "{partitions}");

        let mut frames = Vec::new();
        let mut fits = MessageEncoder::<Rows>::new(Values::AsStored, MessageLimits::new(needed, needed));
        fits.finish(&end, &mut frames).unwrap();
        assert!(matches!(decode(&frames[0]), v1::read_range_response::Message::End(_)));
        let mut short = MessageEncoder::<Rows>::new(Values::AsStored, MessageLimits::new(needed - 1, needed));
        let error = short.finish(&end, &mut Vec::new()).unwrap_err();
        assert!(matches!(error, EncodeError::EndTooLarge { .. }), "{error}");
    }
}

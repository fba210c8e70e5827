//! From the record set of one fetch to the batches to deliver, and the position behind each. Pure.

use bytes::Bytes;
use tidegate_model::{Isolation, OffsetRange, RecordBatch, read_varint};
use tidegate_wire::{
    BatchError, BatchLimits, BatchSpan, ControlRecord, ControlRecordError, MarkerKind, RawBatch, RecordSetSplitter,
    Stored, split_record_set,
};

use super::aborted::{Aborted, AbortedTransactions};

/// Walks over the batches of one fetch response.
///
/// The position moves over everything, also over what is not delivered: markers, aborted transactions, emptied batches and
/// the gaps that compaction left. It never moves backwards and never beyond the end of the range.
#[derive(Debug)]
pub(super) struct Walk {
    batches: RecordSetSplitter,
    is_empty: bool,
    range: OffsetRange,
    /// `None`: all batches are delivered, aborted or not.
    aborted: Option<AbortedTransactions>,
    /// Two batches of the record set that stand in the wrong order.
    disorder: Option<Unreadable>,
    tail: Option<Tail>,
    passed: Passed,
    /// The offset behind the last of them.
    passed_until: i64,
    /// The epoch of the leader that appended it; -1 where it names none.
    passed_epoch: i32,
}

/// The batches that the position went over, as stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Passed {
    pub(super) bytes: usize,
    pub(super) batches: usize,
    /// The sum of the squares of their sizes: what tells uneven batches from even ones.
    pub(super) squares: u128,
    /// Of these bytes, those of the offsets of the range alone: a batch that reaches beyond it counts in part.
    pub(super) wanted: usize,
    /// The offsets from the first's first to the last's last, also those outside of the range: what the bytes stand for.
    pub(super) offsets: i64,
    /// The first offset of the last of them.
    pub(super) last_base: i64,
    /// How many offsets each of them has, where all have as many and follow each other without a gap.
    pub(super) each: Option<i64>,
}

/// The last batch of a record set when a gap is in front of it and nothing behind it.
///
/// Nothing but the order of batches vouches for a base offset, since no CRC covers it. A wrong one would pass for a gap that
/// compaction left, and the batches behind it for ones from before the position: records lost in silence. The last batch has
/// none behind it that would tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tail {
    /// The first offset of the gap.
    pub(super) gap: i64,
    pub(super) span: BatchSpan,
    pub(super) next_offset: i64,
    pub(super) bytes: usize,
}

/// A batch to deliver.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    pub(super) stored: Stored,
    /// The offsets of it that are asked for and were not delivered before.
    pub(super) range: OffsetRange,
}

/// The walk came upon something that cannot be read. The position stands before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    Batch(BatchError),
    /// A control record that does not tell whether it ends an aborted transaction.
    Marker(ControlRecordError),
    /// A batch ends at or before the last offset of the batch in front of it.
    OutOfOrder {
        base_offset: i64,
        before: i64,
    },
}

/// How a walk that did not move the position ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standstill {
    /// There was nothing.
    Empty,
    /// There was the beginning of a batch; its whole size, if it can be told.
    Cut(Option<usize>),
    /// There were only batches from before the position.
    Behind,
}

impl Walk {
    /// The record set was fetched at `range.start`.
    pub(super) fn new(
        records: Bytes,
        range: OffsetRange,
        isolation: Isolation,
        aborted: Vec<Aborted>,
        check_crcs: bool,
    ) -> Self {
        let aborted = match isolation {
            Isolation::ReadCommitted => Some(AbortedTransactions::new(aborted)),
            Isolation::ReadUncommitted => None,
        };
        let (disorder, tail) = match order(&records, range.start) {
            Ok(tail) => (None, tail),
            Err(disorder) => (Some(disorder), None),
        };
        let is_empty = records.is_empty();
        Self {
            is_empty,
            batches: split_record_set(records, range.start, check_crcs),
            range,
            aborted,
            disorder,
            tail,
            passed: Passed::default(),
            passed_until: 0,
            passed_epoch: -1,
        }
    }

    /// The last batch, if its base offset is worth a doubt: the gap in front of it reaches into the range.
    pub(super) fn doubtful(&self) -> Option<Tail> {
        self.tail.filter(|tail| tail.gap < self.range.end && self.disorder.is_none())
    }

    /// The position: all offsets before it have been considered, those of the last delivery included.
    pub(super) fn position(&self) -> i64 {
        self.range.start
    }

    /// The batches that the position went over.
    pub(super) fn passed(&self) -> Passed {
        self.passed
    }

    /// Where the last of them ends, or the part of it that is asked for, and the epoch of the leader that appended it. A gap
    /// behind it says nothing of that leader, so this may lie before the position.
    pub(super) fn passed_up_to(&self) -> Option<(i64, i32)> {
        (self.passed.batches > 0).then(|| (self.passed_until.min(self.range.end), self.passed_epoch))
    }

    /// The next batch to deliver; `None` at the end of the record set or of the range.
    pub(super) fn next(&mut self, limits: &BatchLimits) -> Option<Result<Delivery, Unreadable>> {
        if let Some(disorder) = self.disorder.take() {
            self.range.end = self.range.start;
            return Some(Err(disorder));
        }
        while !self.range.is_empty() {
            let stored = match self.batches.next()? {
                Ok(stored) => stored,
                // Wherever it says that it stands: nothing vouches for that, and taken at its word it would be passed over.
                Err(error) => return Some(Err(Unreadable::Batch(error))),
            };
            if stored.next_offset() <= self.range.start {
                continue;
            }
            if stored.span().base_offset >= self.range.end {
                // Everything from the position to the end is gone: compaction.
                self.range.start = self.range.end;
                return None;
            }
            self.pass(&stored);
            let counts = match &stored {
                Stored::Batch(raw) => match self.counts_surely(raw, limits) {
                    Ok(counts) => counts,
                    Err(unreadable) => return Some(Err(unreadable)),
                },
                // Older than transactions, and never empty.
                Stored::Messages(_) => true,
            };
            let range = OffsetRange::new(self.range.start, stored.next_offset().min(self.range.end));
            self.range.start = range.end;
            if counts {
                return Some(Ok(Delivery { stored, range }));
            }
        }
        None
    }

    /// Takes note of a batch of which a part, at least, is in the range.
    fn pass(&mut self, stored: &Stored) {
        let (base, next) = (stored.span().base_offset, stored.next_offset());
        let passed = &mut self.passed;
        let begins = if passed.batches == 0 { base } else { self.passed_until };
        let (bytes, offsets) = (stored.bytes().len(), next.saturating_sub(base));
        let in_range = next.min(self.range.end).saturating_sub(base.max(self.range.start));
        passed.wanted += (bytes as f64 * in_range as f64 / offsets.max(1) as f64) as usize;
        passed.each = match passed.each {
            _ if passed.batches == 0 => Some(offsets),
            each => each.filter(|each| *each == offsets && begins == base),
        };
        passed.bytes += bytes;
        passed.batches += 1;
        passed.squares += (bytes as u128).pow(2);
        passed.offsets = passed.offsets.saturating_add(next.saturating_sub(begins));
        passed.last_base = base;
        self.passed_until = next;
        self.passed_epoch = match stored {
            Stored::Batch(raw) => raw.header().partition_leader_epoch,
            Stored::Messages(_) => -1,
        };
    }

    /// Whether the batch has records that the reader wants.
    fn counts(&mut self, raw: &RawBatch, limits: &BatchLimits) -> Result<bool, Unreadable> {
        let header = raw.header();
        let attributes = header.attributes;
        if let Some(aborted) = &mut self.aborted {
            aborted.advance(header.last_offset());
            if attributes.is_transactional() && aborted.contains(header.producer_id) {
                if attributes.is_control() && ends_aborted(raw, limits)? {
                    aborted.end(header.producer_id);
                }
                return Ok(false);
            }
        }
        Ok(!attributes.is_control() && header.record_count > 0)
    }

    /// As [`Walk::counts`]; what is not delivered, and so never opened, has its CRC checked here: a damaged header must not
    /// pass for a marker or an emptied batch.
    fn counts_surely(&mut self, raw: &RawBatch, limits: &BatchLimits) -> Result<bool, Unreadable> {
        let counts = self.counts(raw, limits)?;
        if !counts && limits.check_crcs {
            raw.verify_crc().map_err(Unreadable::Batch)?;
        }
        Ok(counts)
    }

    /// How the walk ended, for one that did not move the position.
    pub(super) fn standstill(&self) -> Standstill {
        match self.batches.leftover() {
            _ if self.is_empty => Standstill::Empty,
            Some(leftover) => Standstill::Cut(leftover.batch_bytes),
            None => Standstill::Behind,
        }
    }
}

/// Whether the batches of a record set stand in order, and if so, its [`Tail`].
///
/// A batch that ends at or before the end of the one in front of it is out of order. One that merely overlaps it loses nothing:
/// its records behind that end are delivered.
fn order(records: &Bytes, position: i64) -> Result<Option<Tail>, Unreadable> {
    let (mut end, mut tail) = (i64::MIN, None);
    let mut entries = split_record_set(records.clone(), position, false);
    // What cannot be read is met by the walk. It tells nothing of the batch in front of it.
    for stored in entries.by_ref().flatten() {
        let (span, next_offset) = (stored.span(), stored.next_offset());
        if next_offset <= end {
            return Err(Unreadable::OutOfOrder { base_offset: span.base_offset, before: end });
        }
        let gap = end.max(position);
        tail = (span.base_offset > gap).then(|| Tail { gap, span, next_offset, bytes: stored.bytes().len() });
        end = next_offset;
    }
    match entries.leftover().and_then(|left| left.base_offset) {
        Some(base_offset) if base_offset < end => Err(Unreadable::OutOfOrder { base_offset, before: end }),
        Some(_) => Ok(None),
        None => Ok(tail),
    }
}

/// What a fetch from one offset before a doubtful batch tells of it.
///
/// The broker answers with the first batch that ends at or behind the offset that it was asked for. If that is another than
/// the doubtful one, the gap holds records, and its base offset is wrong. If it is the same, what stands behind it must follow
/// it; if nothing does, as at the end of a segment, nothing speaks against it. `false`: no batch came, as from a broker that
/// throttles, so it told nothing.
pub(super) fn confirm(tail: &Tail, probe: &Bytes) -> Result<bool, Unreadable> {
    let asked = tail.span.base_offset.saturating_sub(1);
    order(probe, asked)?;
    let mut entries = split_record_set(probe.clone(), asked, false).flatten();
    match entries.find(|stored| stored.next_offset() > asked) {
        None => Ok(false),
        Some(first) if first.span().base_offset != tail.span.base_offset => {
            Err(Unreadable::OutOfOrder { base_offset: first.span().base_offset, before: tail.next_offset })
        }
        Some(_) => Ok(true),
    }
}

fn ends_aborted(raw: &RawBatch, limits: &BatchLimits) -> Result<bool, Unreadable> {
    let batch = raw.open(limits).map_err(Unreadable::Batch)?;
    for record in batch.records() {
        let record = record.map_err(|error| Unreadable::Batch(BatchError::record(batch.header(), error)))?;
        let control = ControlRecord::parse(&record).map_err(Unreadable::Marker)?;
        if matches!(control, ControlRecord::EndTransaction { kind: MarkerKind::Abort, .. }) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The first offset that the first batch with offsets from `position` on holds, or held before compaction.
pub(super) fn first_offset_from(records: &Bytes, position: i64, limits: &BatchLimits) -> Option<i64> {
    for stored in split_record_set(records.clone(), position, false) {
        let (span, old) = match stored {
            Ok(Stored::Messages(raw)) => (raw.span(), Some(raw)),
            Ok(stored) => (stored.span(), None),
            Err(error) => (error.at(), None),
        };
        if span.next_offset().is_none_or(|next| next > position) {
            // Where a compressed message of an old format begins stands inside of it. One that cannot be read is met later.
            let inside = old.and_then(|raw| raw.open(limits).ok()).map(|batch| batch.header().base_offset);
            return Some(inside.unwrap_or(span.base_offset));
        }
    }
    None
}

/// The batch with only the records of `range`, without copying. A broker answers with whole batches, so the first may begin
/// before the position and the last may end behind the slice.
///
/// A batch with a record that cannot be read stays whole: whoever reads it meets the error.
pub(super) fn trim(batch: RecordBatch, range: OffsetRange) -> RecordBatch {
    let header = *batch.header();
    if range.start <= header.base_offset && header.next_offset() <= range.end {
        return batch;
    }
    let body = batch.body();
    let mut rest: &[u8] = body;
    let (mut begin, mut end, mut kept) = (None, body.len(), 0);
    for record in batch.records() {
        let at = body.len() - rest.len();
        let Ok(record) = record else { return batch };
        if record.offset >= range.end {
            end = at;
            break;
        }
        if record.offset >= range.start {
            begin.get_or_insert(at);
            kept += 1;
        }
        let Ok(length) = read_varint(&mut rest).map(|length| usize::try_from(length).unwrap_or(usize::MAX)) else {
            return batch;
        };
        let Some(after) = rest.get(length..) else { return batch };
        rest = after;
    }
    let body = body.slice(begin.unwrap_or(end)..end);
    RecordBatch::new(tidegate_model::BatchHeader { record_count: kept, ..header }, body)
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use proptest::prelude::*;
    use tidegate_model::Compression;
    use tidegate_wire::{BatchOptions, BatchWriter, Marker, split_batches, write_marker};

    use super::*;

    const LIMITS: BatchLimits = BatchLimits { max_decompressed_bytes: 1 << 20, check_crcs: true };

    fn batch(base_offset: i64, count: i64, options: BatchOptions) -> Bytes {
        let mut writer = BatchWriter::new(BatchOptions { base_offset, ..options });
        for offset in base_offset..base_offset + count {
            writer.push(1_000 + offset, None, Some(offset.to_string().as_bytes()), []).unwrap();
        }
        writer.finish().unwrap()
    }

    fn plain(base_offset: i64, count: i64) -> Bytes {
        batch(base_offset, count, BatchOptions::default())
    }

    fn transactional(producer_id: i64, base_offset: i64, count: i64) -> Bytes {
        batch(
            base_offset,
            count,
            BatchOptions {
                producer_id,
                producer_epoch: 0,
                base_sequence: 0,
                transactional: true,
                ..BatchOptions::default()
            },
        )
    }

    fn marker(producer_id: i64, offset: i64, kind: MarkerKind) -> Bytes {
        let marker = Marker {
            kind,
            offset,
            leader_epoch: 0,
            timestamp_ms: 5,
            producer_id,
            producer_epoch: 0,
            coordinator_epoch: 0,
        };
        write_marker(&marker).unwrap()
    }

    #[test]
    fn a_batch_with_a_wrong_base_offset_is_an_error_and_no_gap() {
        // Offsets 0 to 9, a batch whose base offset says 500 in place of 10, and the one behind it.
        let records = set(&[plain(0, 10), plain(500, 10), plain(20, 10)]);
        for end in [30, 100, 1_000] {
            let mut walk = Walk::new(records.clone(), OffsetRange::new(0, end), Isolation::ReadCommitted, vec![], true);
            let met = walk.next(&LIMITS).unwrap().unwrap_err();
            assert_eq!(met, Unreadable::OutOfOrder { base_offset: 20, before: 510 });
            assert_eq!(walk.position(), 0, "nothing is passed over");
            assert!(walk.next(&LIMITS).is_none());
        }
    }

    #[test]
    fn a_gap_before_the_last_batch_is_a_doubt_until_something_follows() {
        let doubt = |records: Bytes, start, end| {
            let range = OffsetRange::new(start, end);
            let walk = Walk::new(records, range, Isolation::ReadCommitted, vec![], true);
            walk.doubtful().map(|tail| (tail.gap, tail.span.base_offset, tail.next_offset))
        };
        assert_eq!(doubt(set(&[plain(0, 10), plain(500, 10)]), 0, 900), Some((10, 500, 510)));
        assert_eq!(doubt(plain(500, 10), 10, 900), Some((10, 500, 510)));
        assert_eq!(doubt(plain(500, 10), 10, 50), Some((10, 500, 510)), "the end is passed over too");
        assert_eq!(doubt(set(&[plain(0, 10), plain(500, 10)]), 0, 10), None, "the gap lies behind the range");
        assert_eq!(doubt(set(&[plain(0, 10), plain(10, 10)]), 0, 900), None);
        assert_eq!(doubt(set(&[plain(0, 10), plain(500, 10), plain(510, 1).slice(..8)]), 0, 900), None);
        let cut = set(&[plain(0, 10), plain(500, 10), plain(20, 1).slice(..8)]);
        let mut walk = Walk::new(cut, OffsetRange::new(0, 900), Isolation::ReadCommitted, vec![], true);
        assert_eq!(walk.next(&LIMITS).unwrap().unwrap_err(), Unreadable::OutOfOrder { base_offset: 20, before: 510 });
    }

    #[test]
    fn a_probe_before_a_doubtful_batch_tells_a_gap_from_a_wrong_offset() {
        let walk = Walk::new(plain(500, 10), OffsetRange::new(10, 900), Isolation::ReadCommitted, vec![], true);
        let tail = walk.doubtful().unwrap();
        assert!(confirm(&tail, &plain(500, 10)).unwrap());
        assert!(confirm(&tail, &set(&[plain(500, 10), plain(510, 5)])).unwrap());
        assert!(!confirm(&tail, &Bytes::new()).unwrap(), "nothing tells nothing");
        assert!(!confirm(&tail, &plain(500, 10).slice(..40)).unwrap());
        let wrong = |probe| confirm(&tail, &probe).unwrap_err();
        assert_eq!(wrong(plain(490, 10)), Unreadable::OutOfOrder { base_offset: 490, before: 510 });
        let followed = set(&[plain(500, 10), plain(20, 10)]);
        assert_eq!(wrong(followed), Unreadable::OutOfOrder { base_offset: 20, before: 510 });
    }

    #[test]
    fn a_damaged_header_does_not_pass_for_an_emptied_batch_or_a_marker() {
        for (byte, value) in [(60, 0), (22, 0x20)] {
            let mut bad = BytesMut::from(&plain(5, 2)[..]);
            bad[byte] = value;
            let mut walk = Walk::new(bad.freeze(), OffsetRange::new(5, 9), Isolation::ReadCommitted, vec![], true);
            let met = walk.next(&LIMITS).unwrap().unwrap_err();
            assert!(matches!(met, Unreadable::Batch(BatchError::Crc { .. })), "{met:?}");
        }
    }

    fn set(batches: &[Bytes]) -> Bytes {
        let mut set = BytesMut::new();
        batches.iter().for_each(|batch| set.extend_from_slice(batch));
        set.freeze()
    }

    fn offsets(batch: &RecordBatch) -> Vec<i64> {
        batch.records().map(|record| record.unwrap().offset).collect()
    }

    /// The offsets delivered, and the walk afterwards.
    fn walk(records: Bytes, range: (i64, i64), isolation: Isolation, aborted: &[(i64, i64)]) -> (Vec<i64>, Walk) {
        let aborted = aborted
            .iter()
            .map(|(producer_id, first_offset)| Aborted { producer_id: *producer_id, first_offset: *first_offset });
        let mut walk = Walk::new(records, OffsetRange::new(range.0, range.1), isolation, aborted.collect(), true);
        let mut delivered = Vec::new();
        while let Some(delivery) = walk.next(&LIMITS) {
            let Delivery { stored, range } = delivery.unwrap();
            delivered.extend(offsets(&trim(stored.open(&LIMITS).unwrap(), range)));
        }
        (delivered, walk)
    }

    #[test]
    fn markers_move_the_position_and_are_not_delivered() {
        let records = set(&[transactional(7, 0, 2), marker(7, 2, MarkerKind::Commit)]);
        let (delivered, walk) = walk(records, (0, 3), Isolation::ReadCommitted, &[]);
        assert_eq!((delivered, walk.position()), (vec![0, 1], 3));
    }

    #[test]
    fn aborted_transactions_are_left_out_and_their_neighbours_are_not() {
        let records = set(&[
            transactional(7, 8, 2),
            transactional(7, 10, 2),
            transactional(9, 12, 1),
            plain(13, 1),
            marker(7, 14, MarkerKind::Abort),
            transactional(7, 15, 1),
            marker(7, 16, MarkerKind::Commit),
            marker(9, 17, MarkerKind::Commit),
        ]);
        let (delivered, end) = walk(records.clone(), (8, 18), Isolation::ReadCommitted, &[(7, 10)]);
        assert_eq!((delivered, end.position()), (vec![8, 9, 12, 13, 15], 18));
        let (all, _) = walk(records, (8, 18), Isolation::ReadUncommitted, &[(7, 10)]);
        assert_eq!(all, [8, 9, 10, 11, 12, 13, 15]);
    }

    #[test]
    fn both_edges_are_trimmed_and_the_position_ends_at_the_end() {
        for compression in [Compression::None, Compression::Zstd] {
            let records = set(&[
                batch(0, 10, BatchOptions { compression, ..BatchOptions::default() }),
                batch(10, 10, BatchOptions { compression, ..BatchOptions::default() }),
            ]);
            let (delivered, walk) = walk(records, (7, 13), Isolation::ReadCommitted, &[]);
            assert_eq!((delivered, walk.position()), (vec![7, 8, 9, 10, 11, 12], 13));
        }
    }

    #[test]
    fn gaps_move_the_position_also_over_the_end() {
        let (delivered, end) = walk(set(&[plain(4, 1), plain(9, 1)]), (2, 8), Isolation::ReadCommitted, &[]);
        assert_eq!((delivered, end.position()), (vec![4], 8));
        let (delivered, end) = walk(plain(90, 3), (2, 8), Isolation::ReadCommitted, &[]);
        assert_eq!((delivered, end.position()), (vec![], 8));
    }

    #[test]
    fn an_emptied_batch_moves_the_position() {
        let mut writer = BatchWriter::new(BatchOptions { base_offset: 5, ..BatchOptions::default() });
        writer.skip(4).unwrap();
        let emptied = writer.finish().unwrap();
        let (delivered, walk) = walk(emptied, (5, 9), Isolation::ReadCommitted, &[]);
        assert_eq!((delivered, walk.position()), (vec![], 9));
    }

    #[test]
    fn a_cut_batch_tells_its_size_and_leaves_the_position() {
        let whole = plain(0, 50);
        for (bytes, size) in [(5, None), (40, Some(whole.len())), (whole.len() - 1, Some(whole.len()))] {
            let (delivered, end) = walk(whole.slice(..bytes), (0, 50), Isolation::ReadCommitted, &[]);
            assert_eq!((delivered, end.position(), end.standstill()), (vec![], 0, Standstill::Cut(size)));
        }
        let (_, end) = walk(Bytes::new(), (0, 50), Isolation::ReadCommitted, &[]);
        assert_eq!(end.standstill(), Standstill::Empty);
        let (_, end) = walk(whole, (50, 60), Isolation::ReadCommitted, &[]);
        assert_eq!((end.position(), end.standstill()), (50, Standstill::Behind));
    }

    #[test]
    fn a_batch_that_cannot_be_read_stops_the_walk_before_it_unless_it_is_behind_the_range() {
        let mut bad = BytesMut::from(&plain(5, 2)[..]);
        // A negative record count.
        bad[57] = 0x80;
        let records = set(&[plain(0, 5), bad.freeze(), plain(7, 1)]);
        let read = |range: (i64, i64)| {
            let mut walk =
                Walk::new(records.clone(), OffsetRange::new(range.0, range.1), Isolation::ReadCommitted, vec![], true);
            let mut results = Vec::new();
            while let Some(result) = walk.next(&LIMITS) {
                let failed = result.is_err();
                results.push(result.map(|delivery| delivery.stored.span().base_offset));
                if failed {
                    break;
                }
            }
            (results, walk.position())
        };
        let (results, position) = read((0, 8));
        assert_eq!(results.len(), 2);
        assert!(matches!(&results[1], Err(Unreadable::Batch(error)) if error.at().base_offset == 5), "{results:?}");
        assert_eq!(position, 5);
        assert_eq!(read((0, 5)), (vec![Ok(0)], 5));
    }

    #[test]
    fn a_batch_that_cannot_be_read_is_not_passed_over_by_its_own_offsets() {
        // A base offset below all others, and one behind the end of the range in a header that is wrong besides.
        for damage in [&[(0, 0x80)][..], &[(1, 0x7f), (57, 0x80)]] {
            let mut bad = BytesMut::from(&plain(50, 10)[..]);
            damage.iter().for_each(|(at, value)| bad[*at] = *value);
            let records = set(&[plain(40, 10), bad.freeze(), plain(60, 10), plain(70, 10)]);
            let mut walk = Walk::new(records, OffsetRange::new(40, 80), Isolation::ReadCommitted, vec![], true);
            assert_eq!(walk.next(&LIMITS).unwrap().unwrap().range, OffsetRange::new(40, 50));
            let met = walk.next(&LIMITS).unwrap().unwrap_err();
            assert!(matches!(met, Unreadable::Batch(BatchError::Header { .. })), "{met:?}");
            assert_eq!(walk.position(), 50);
        }
    }

    #[test]
    fn a_batch_that_cannot_be_read_vouches_for_no_gap_in_front_of_it() {
        let mut bad = BytesMut::from(&plain(20, 10)[..]);
        bad[57] = 0x80;
        let records = set(&[plain(0, 10), plain(500, 10), bad.freeze()]);
        let walk = Walk::new(records, OffsetRange::new(0, 100), Isolation::ReadCommitted, vec![], true);
        assert_eq!(walk.doubtful().map(|tail| (tail.gap, tail.next_offset)), Some((10, 510)));
    }

    #[test]
    fn the_first_offset_tells_a_gap_at_the_position() {
        let records = set(&[plain(3, 2), plain(9, 2)]);
        assert_eq!(first_offset_from(&records, 4, &LIMITS), Some(3));
        assert_eq!(first_offset_from(&records, 5, &LIMITS), Some(9));
        assert_eq!(first_offset_from(&records, 11, &LIMITS), None);
    }

    proptest! {
        #[test]
        fn any_cut_of_a_log_into_fetches_delivers_each_offset_of_the_range_once(
            sizes in prop::collection::vec((1_i64..6, 0_i64..4), 1..12),
            start in 0_i64..20,
            length in 0_i64..60,
            fetches in prop::collection::vec(1_usize..4, 1..12),
        ) {
            let mut log = Vec::new();
            let mut expected = Vec::new();
            let mut next = 0;
            for (count, gap) in sizes {
                log.push((next, plain(next, count)));
                expected.extend(next..next + count);
                next += count + gap;
            }
            let range = OffsetRange::new(start, start + length);
            expected.retain(|offset| range.contains(*offset));
            let mut position = range.start;
            let mut delivered = Vec::new();
            for batches in fetches.into_iter().cycle() {
                let ahead = log.iter().filter(|(base, batch)| {
                    let count = split_batches(batch.clone()).next().unwrap().unwrap().header().next_offset();
                    *base >= position || count > position
                });
                let answer: Vec<_> = ahead.take(batches).map(|(_, batch)| batch.clone()).collect();
                if position >= range.end || answer.is_empty() {
                    break;
                }
                let (some, end) = walk(set(&answer), (position, range.end), Isolation::ReadCommitted, &[]);
                delivered.extend(some);
                prop_assert!(end.position() > position);
                position = end.position();
            }
            prop_assert_eq!(delivered, expected);
        }

        #[test]
        fn hostile_record_sets_neither_panic_nor_move_the_position_backwards(
            mut bytes in prop::collection::vec(any::<u8>(), 0..400),
            magic in prop::bool::ANY,
        ) {
            if magic && bytes.len() > 16 {
                bytes[16] = 2;
                bytes[8..12].copy_from_slice(&[0, 0, 0, 100]);
            }
            let range = OffsetRange::new(10, 1 << 40);
            let mut walk = Walk::new(bytes.into(), range, Isolation::ReadCommitted, vec![], true);
            while let Some(Ok(Delivery { stored, range })) = walk.next(&LIMITS) {
                if let Ok(batch) = stored.open(&BatchLimits { check_crcs: false, ..LIMITS }) {
                    let _ = trim(batch, range).records().count();
                }
            }
            prop_assert!((range.start..=range.end).contains(&walk.position()));
        }
    }
}

//! Disks that fail, and everything at once.

use std::fs::{self, File, OpenOptions};
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_wire::{BatchLimits, BatchOptions, BatchWriter, check_produced, split_batches};

use super::super::read::find_span;
use super::super::segment::{INDEX, LOG};
use super::super::testing::{Folder, append, read_all, try_append};
use super::*;

fn device(name: &str) -> File {
    OpenOptions::new().read(true).write(true).open(format!("/dev/{name}")).unwrap()
}

fn active(log: &Log) -> Arc<Segment> {
    Arc::clone(&log.view().active.segment)
}

fn real(log: &Log, ending: &str) -> File {
    OpenOptions::new().read(true).write(true).open(active(log).path(ending)).unwrap()
}

#[test]
fn a_full_disk_is_an_error_and_the_log_stays_as_it_was() {
    let folder = Folder { segment_bytes: "100000", ..Folder::new() };
    let log = folder.open().unwrap();
    append(&log, &[1, 2]);
    let before = (read_all(&log), fs::read(folder.last(LOG)).unwrap(), fs::read(folder.last(INDEX)).unwrap());
    // No room for the batch; then room for the batch, but not for its index entry.
    for (log_file, index_file) in [(device("full"), real(&log, INDEX)), (real(&log, LOG), device("full"))] {
        log.pool.put(&active(&log), log_file, index_file);
        for _ in 0..3 {
            let error = try_append(&log, BatchOptions::default(), &[3]).unwrap_err();
            assert!(matches!(error, AppendError::Io(_)), "{error}");
        }
        assert_eq!(log.view().high_watermark(), 2);
        // As a crash would leave it now, the next start finds what was acknowledged.
        assert_eq!(read_all(&folder.open().unwrap()), before.0);

        // Room again.
        log.pool.forget(&active(&log));
        assert_eq!(read_all(&log), before.0);
        log.writer.lock().clean_tail(&log).unwrap();
        assert_eq!(fs::read(folder.last(LOG)).unwrap(), before.1, "nothing stays of the failed attempts");
        assert_eq!(fs::read(folder.last(INDEX)).unwrap(), before.2);
    }
    assert_eq!(append(&log, &[3]).base_offset, 2);
    assert_eq!(read_all(&log).len(), 3);
    drop(log);
    assert_eq!(read_all(&folder.open().unwrap()).len(), 3);
}

#[test]
fn a_refused_batch_of_a_producer_can_be_sent_again() {
    let folder = Folder { segment_bytes: "100000", ..Folder::new() };
    let log = folder.open().unwrap();
    let first = BatchOptions { producer_id: 1, producer_epoch: 0, base_sequence: 0, ..BatchOptions::default() };
    log.pool.put(&active(&log), device("full"), real(&log, INDEX));
    try_append(&log, first, &[1]).unwrap_err();
    log.pool.forget(&active(&log));
    assert_eq!(try_append(&log, first, &[1]).unwrap().base_offset, 0);
    assert_eq!(read_all(&log).len(), 1);
}

#[test]
fn after_a_failed_fsync_the_log_takes_no_more_and_shows_nothing_of_the_batch() {
    let folder = Folder { fsync: FsyncPolicy::Always, segment_bytes: "100000", ..Folder::new() };
    let log = folder.open().unwrap();
    append(&log, &[1, 2]);
    // Takes every byte, and refuses the fsync.
    log.pool.put(&active(&log), device("null"), real(&log, INDEX));
    let error = try_append(&log, BatchOptions::default(), &[3]).unwrap_err();
    assert!(matches!(error, AppendError::Io(_)), "{error}");
    log.pool.forget(&active(&log));
    let error = try_append(&log, BatchOptions::default(), &[3]).unwrap_err();
    assert!(
        matches!(error, AppendError::NotOpen(NotOpen::Failed { .. })),
        "a second fsync would wrongly succeed: {error}"
    );
    assert_eq!(read_all(&log), [(0, 1), (1, 2)], "what was acknowledged can be read");
    log.close().unwrap_err();
    drop(log);
    assert_eq!(append(&folder.open().unwrap(), &[3]).base_offset, 2);
}

#[test]
fn a_failed_fsync_in_the_background_ends_the_acknowledgements_too() {
    let folder = Folder { segment_bytes: "100000", ..Folder::new() };
    let log = folder.open().unwrap();
    append(&log, &[1]);
    log.pool.put(&active(&log), device("null"), real(&log, INDEX));
    log.sync().unwrap_err();
    let error = try_append(&log, BatchOptions::default(), &[2]).unwrap_err();
    assert!(matches!(error, AppendError::NotOpen(NotOpen::Failed { .. })), "{error}");
}

#[test]
fn a_segment_that_cannot_be_begun_leaves_the_old_one_active() {
    let folder = Folder { segment_bytes: "1024", ..Folder::new() };
    let log = folder.open().unwrap();
    let mut last = append(&log, &[0]).base_offset;
    while log.view().sealed.is_empty() {
        // In the way of every later segment's file.
        let next = log.view().high_watermark();
        let obstacle = folder.path().join(super::super::segment::file_name(next, LOG));
        fs::write(&obstacle, b"x").unwrap();
        let appended = try_append(&log, BatchOptions::default(), &[0]);
        fs::remove_file(&obstacle).unwrap();
        match appended {
            Ok(appended) => last = appended.base_offset,
            Err(error) => {
                assert!(matches!(error, AppendError::Io(_)), "{error}");
                assert_eq!(append(&log, &[0]).base_offset, last + 1, "once the obstacle is gone");
            }
        }
    }
    assert_eq!(read_all(&log).len(), usize::try_from(last + 2).unwrap());
}

struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn appending_reading_syncing_deleting_and_retention_at_once_lose_and_tear_nothing() {
    const BATCHES: i64 = 3_000;
    for fsync in [FsyncPolicy::Never, FsyncPolicy::Interval(std::time::Duration::from_secs(1))] {
        let folder = Folder { fsync, segment_bytes: "1024", ..Folder::new() };
        let log = folder.open().unwrap();
        let done = AtomicBool::new(false);
        let working = || !done.load(Ordering::Relaxed);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                // Even if an append fails, the others come to an end.
                let _end = OnDrop(&done);
                for number in 0..BATCHES {
                    assert_eq!(append(&log, &[number, number]).base_offset, number * 2);
                }
            });
            threads.spawn(|| {
                while working() {
                    log.sync().unwrap();
                    log.write_checkpoint().unwrap();
                }
            });
            threads.spawn(|| {
                while working() {
                    let end = log.view().high_watermark();
                    log.delete_before((end - 300).max(0)).unwrap();
                    // Nothing is old enough; it only gets in the way.
                    assert_eq!(log.apply_retention(0).unwrap(), 0);
                }
            });
            for _ in 0..2 {
                threads.spawn(|| {
                    let mut last = -1;
                    while working() {
                        let view = log.view();
                        let found = find_span(&view, log.pool(), view.log_start_offset, 4_096, true);
                        let span = match found {
                            Ok(Some(span)) => span,
                            Ok(None) => continue,
                            // Deleted since the view was taken: the next view is without it.
                            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                            Err(error) => panic!("{error}"),
                        };
                        let mut bytes = vec![0; span.bytes()];
                        match span.read(log.pool(), &mut bytes) {
                            Ok(()) => {}
                            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                            Err(error) => panic!("{error}"),
                        }
                        for batch in split_batches(bytes.into()) {
                            let batch = batch.unwrap();
                            batch.verify_crc().unwrap();
                            assert!(
                                batch.header().base_offset % 2 == 0
                                    && batch.header().last_offset() < view.high_watermark()
                            );
                        }
                        assert!(view.log_start_offset >= last, "the log start never goes back");
                        last = view.log_start_offset;
                    }
                });
            }
        });
        let left = read_all(&log);
        assert_eq!(left.last().unwrap().0, BATCHES * 2 - 1);
        assert!((0..).zip(&left).all(|(n, record)| record.0 == left[0].0 + n));
        drop(log);
        assert_eq!(read_all(&folder.open().unwrap()), left);
    }
}

#[test]
fn a_flipped_bit_in_what_no_crc_covers_is_an_error_and_never_a_gap() {
    let folder = Folder::new();
    let log = folder.open().unwrap();
    for number in 0..20 {
        append(&log, &[number, number + 1]);
    }
    assert!(folder.segments().len() > 1);
    let view = log.view();
    let read = || -> io::Result<()> {
        let mut offset = 0;
        while let Some(span) = find_span(&view, log.pool(), offset, 150, true)? {
            let mut bytes = vec![0; span.bytes()];
            span.read(log.pool(), &mut bytes)?;
            let next = split_batches(bytes.into()).map(|batch| batch.unwrap().header().next_offset()).last();
            offset = next.unwrap();
        }
        assert_eq!(offset, 40);
        Ok(())
    };
    read().unwrap();
    for stretch in view.stretches() {
        let files = log.pool().open(&stretch.segment).unwrap();
        for number in 0..stretch.extent.entries {
            let entry = Index::new(&files.index, stretch.extent.entries).get(number).unwrap();
            for bit in 0..17 * 8 {
                let at = u64::from(entry.position) + bit / 8;
                let mut byte = [0];
                files.log.read_exact_at(&mut byte, at).unwrap();
                files.log.write_all_at(&[byte[0] ^ 1 << (bit % 8)], at).unwrap();
                let error = read().unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::InvalidData, "bit {bit}: {error}");
                files.log.write_all_at(&byte, at).unwrap();
            }
        }
    }
    read().unwrap();
}

#[test]
fn a_batch_is_appended_under_the_configuration_that_it_was_checked_with() {
    let log = Folder::new().open().unwrap();
    let checked = log.config();
    log.config.set(TopicConfig::parse([("message.timestamp.type", Some("LogAppendTime"))], usize::MAX).unwrap());
    let mut writer = BatchWriter::new(BatchOptions::default());
    writer.push(5, None, Some(b"value"), []).unwrap();
    let batch = check_produced(writer.finish().unwrap(), &BatchLimits::default()).unwrap();
    assert_eq!(log.append(&batch, &checked, 99).unwrap().log_append_time_ms, None);
    assert_eq!(log.append(&batch, &log.config(), 99).unwrap().log_append_time_ms, Some(99));
    assert_eq!(read_all(&log), [(0, 5), (1, 99)]);
}

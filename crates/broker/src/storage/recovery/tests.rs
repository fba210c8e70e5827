//! What a crash can leave, made by hand: cut and changed files, missing and stale sidecars.

use tidegate_wire::BatchOptions;

use super::super::segment::file_name;
use super::super::testing::{Folder, append, append_with, read_all};
use super::*;

/// Two sealed segments and an active one of three batches, nothing of it known to be on the disk.
fn three_segments(folder: &Folder) -> Vec<(i64, i64)> {
    let log = folder.open().unwrap();
    let mut number = 0;
    while folder.segments().len() < 3 || log.view().active.extent.entries < 3 {
        append(&log, &[number, number + 7]);
        number += 10;
    }
    read_all(&log)
}

#[test]
fn a_cut_at_every_byte_of_the_last_batch_loses_that_batch_and_no_other() {
    let folder = Folder::new();
    let all = three_segments(&folder);
    let files = folder.files();
    let log = fs::read(folder.last(LOG)).unwrap();
    let batch_size = log.len() / 3;
    for cut in log.len() - batch_size..log.len() {
        folder.restore(&files);
        fs::write(folder.last(LOG), &log[..cut]).unwrap();
        let opened = folder.open().unwrap();
        assert_eq!(read_all(&opened), all[..all.len() - 2], "cut at {cut}");
        let next = append(&opened, &[1]);
        assert_eq!(next.base_offset, all[all.len() - 2].0, "its offsets are given again");
        drop(opened);
        assert_eq!(read_all(&folder.open().unwrap()).len(), all.len() - 1);
    }
}

#[test]
fn every_changed_byte_of_the_last_batch_loses_that_batch_and_no_other() {
    let folder = Folder::new();
    let all = three_segments(&folder);
    let files = folder.files();
    let log = fs::read(folder.last(LOG)).unwrap();
    let batch_size = log.len() / 3;
    for at in log.len() - batch_size..log.len() {
        for bit in [0, 3, 7] {
            folder.restore(&files);
            let mut changed = log.clone();
            changed[at] ^= 1 << bit;
            fs::write(folder.last(LOG), &changed).unwrap();
            assert_eq!(read_all(&folder.open().unwrap()), all[..all.len() - 2], "byte {at}, bit {bit}");
        }
    }
}

#[test]
fn garbage_or_zeros_behind_the_last_batch_are_cut_off() {
    let folder = Folder::new();
    let all = three_segments(&folder);
    let files = folder.files();
    let log = fs::read(folder.last(LOG)).unwrap();
    for tail in [vec![0; 5], vec![0; 4096], vec![0xff; 100], log[..log.len() / 3].to_vec()] {
        folder.restore(&files);
        fs::write(folder.last(LOG), [&log[..], &tail[..]].concat()).unwrap();
        assert_eq!(read_all(&folder.open().unwrap()), all);
        assert_eq!(fs::read(folder.last(LOG)).unwrap(), log);
    }
}

#[test]
fn a_hole_in_a_segment_that_was_never_forced_to_the_disk_ends_the_log_there() {
    // After a power cut, pages can be missing anywhere behind the last fsync.
    let folder = Folder::new();
    let all = three_segments(&folder);
    let middle = folder.segments()[1];
    let path = folder.path().join(file_name(middle, LOG));
    let mut bytes = fs::read(&path).unwrap();
    bytes[100..150].fill(0);
    fs::write(&path, bytes).unwrap();
    let log = folder.open().unwrap();
    let left = read_all(&log);
    assert_eq!(left, all[..left.len()]);
    assert!(left.last().unwrap().0 >= middle && left.len() < all.len());
    assert_eq!(folder.segments().len(), 2, "nothing stays behind the end");
    assert_eq!(append(&log, &[1]).base_offset, i64::try_from(left.len()).unwrap());
}

#[test]
fn what_was_forced_to_the_disk_is_never_cut() {
    let folder = Folder::new();
    let all = three_segments(&folder);
    let log = folder.open().unwrap();
    log.sync().unwrap();
    log.write_checkpoint().unwrap();
    append(&log, &[1, 2, 3]);
    drop(log);
    let files = folder.files();
    let bytes = fs::read(folder.last(LOG)).unwrap();
    let batch_size = (bytes.len() - 1) / 4;
    // The tail behind the fsync may go, whole batches of it.
    fs::write(folder.last(LOG), &bytes[..bytes.len() - 1]).unwrap();
    assert_eq!(read_all(&folder.open().unwrap()), all);
    // What lies before it may not: the folder is left as it is.
    folder.restore(&files);
    fs::write(folder.last(LOG), &bytes[..batch_size]).unwrap();
    let error = folder.open().unwrap_err();
    assert!(
        matches!(error, OpenError::LogDamaged { synced, .. } if synced == i64::try_from(all.len()).unwrap()),
        "{error}"
    );
    assert_eq!(fs::read(folder.last(LOG)).unwrap(), bytes[..batch_size], "nothing was changed");
    folder.restore(&files);
    fs::remove_file(folder.path().join(file_name(folder.segments()[1], LOG))).unwrap();
    assert!(matches!(folder.open(), Err(OpenError::LogDamaged { .. })), "a missing segment is not a torn tail");
}

#[test]
fn a_missing_short_stale_or_damaged_index_is_made_again() {
    for synced in [false, true] {
        let folder = Folder::new();
        let all = three_segments(&folder);
        if synced {
            let log = folder.open().unwrap();
            log.sync().unwrap();
            log.write_checkpoint().unwrap();
        }
        let files = folder.files();
        for base in folder.segments() {
            let path = folder.path().join(file_name(base, INDEX));
            let whole = fs::read(&path).unwrap();
            let mut cases = vec![None, Some(Vec::new()), Some(vec![0; whole.len()])];
            for cut in [1, 15, 16, 20, 64, whole.len() - 48, whole.len() - 1] {
                cases.push(Some(whole[..cut].to_vec()));
            }
            for at in [0, 9, 20, 100, whole.len() - 40] {
                let mut changed = whole.clone();
                changed[at] ^= 1;
                cases.push(Some(changed));
            }
            cases.push(Some([&whole[..], &whole[16..]].concat()));
            for case in cases {
                folder.restore(&files);
                match &case {
                    None => fs::remove_file(&path).unwrap(),
                    Some(bytes) => fs::write(&path, bytes).unwrap(),
                }
                // An entry in the middle of a sealed and synced segment is not looked at before it is needed.
                let log = folder.open().unwrap();
                assert_eq!(read_all(&log), all);
                assert_eq!(fs::read(&path).unwrap(), whole, "synced: {synced}, base {base}");
            }
        }
    }
}

#[test]
fn leftovers_of_work_in_progress_are_cleared() {
    let folder = Folder::new();
    let all = three_segments(&folder);
    let end = i64::try_from(all.len()).unwrap();
    let leftovers = [
        file_name(end, LOG),
        // Created for a roll that failed; the active segment went on past its name.
        file_name(end - 1, LOG),
        file_name(end - 1, INDEX),
        file_name(end + 50, INDEX),
        "checkpoint.tmp".to_owned(),
    ];
    for name in &leftovers {
        fs::write(folder.path().join(name), b"").unwrap();
    }
    let log = folder.open().unwrap();
    assert_eq!(read_all(&log), all);
    for name in &leftovers {
        assert!(!folder.path().join(name).exists(), "{name}");
    }
}

#[test]
fn an_empty_log_keeps_its_place() {
    let folder = Folder::new();
    let all = three_segments(&folder);
    let end = i64::try_from(all.len()).unwrap();
    let log = folder.open().unwrap();
    assert_eq!(log.delete_before(end).unwrap(), end);
    assert_eq!(folder.segments(), [end]);
    drop(log);
    let log = folder.open().unwrap();
    assert_eq!((log.view().log_start_offset, log.view().high_watermark()), (end, end));
    drop(log);
    // The file itself is gone, or the unforced tail before the deletion point is: the checkpoint still knows.
    fs::remove_file(folder.last(LOG)).unwrap();
    let log = folder.open().unwrap();
    assert_eq!(append(&log, &[1]).base_offset, end);
}

#[test]
fn a_deletion_point_beyond_a_lost_tail_is_kept() {
    let folder = Folder::new();
    let all = three_segments(&folder);
    let end = i64::try_from(all.len()).unwrap();
    let log = folder.open().unwrap();
    log.delete_before(end - 1).unwrap();
    drop(log);
    let bytes = fs::read(folder.last(LOG)).unwrap();
    fs::write(folder.last(LOG), &bytes[..10]).unwrap();
    let log = folder.open().unwrap();
    assert_eq!((log.view().log_start_offset, log.view().high_watermark()), (end - 1, end - 1));
    assert_eq!(append(&log, &[1]).base_offset, end - 1);
}

#[test]
fn producers_are_known_again_from_the_log_alone() {
    for snapshots in [false, true] {
        let folder = Folder::new();
        let log = folder.open().unwrap();
        // Two producers, in turns.
        let batch = |number: i32| BatchOptions {
            producer_id: i64::from(number % 2),
            producer_epoch: 1,
            base_sequence: number / 2,
            ..BatchOptions::default()
        };
        for number in 0..40 {
            append_with(&log, batch(number), &[1]);
        }
        assert!(folder.segments().len() > 2);
        drop(log);
        if !snapshots {
            for (path, _) in folder.files() {
                if path.extension().is_some_and(|ending| ending == "producers") {
                    fs::remove_file(path).unwrap();
                }
            }
        }
        let log = folder.open().unwrap();
        for number in 30..40 {
            let again = append_with(&log, batch(number), &[1]);
            assert_eq!(again.base_offset, i64::from(number), "a duplicate, with its first offset");
        }
        assert_eq!(append_with(&log, batch(41), &[1]).base_offset, 40);
    }
}

#[test]
fn nothing_is_read_again_after_a_clean_close() {
    let folder = Folder { fsync: FsyncPolicy::Always, ..Folder::new() };
    let all = three_segments(&folder);
    folder.open().unwrap().close().unwrap();
    // A changed byte in a record goes unnoticed here: nobody reads what is known to be whole.
    let mut bytes = fs::read(folder.last(LOG)).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(folder.last(LOG), bytes).unwrap();
    let log = folder.open().unwrap();
    assert_eq!(log.view().high_watermark(), i64::try_from(all.len()).unwrap());
}

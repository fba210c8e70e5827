use tidegate_model::TopicName;

use super::*;

pub(super) fn change(group: &str, kind: ChangeKind) -> Change {
    Change { group: group.to_owned(), kind }
}

const ID: Uuid = Uuid::from_u128(7);

fn at(partition: i32) -> TopicPartition {
    TopicPartition::new(TopicName::new("t").unwrap(), partition)
}

/// A commit of (partition, offset) pairs.
pub(super) fn commit(group: &str, offsets: &[(i32, i64)]) -> Change {
    let committed = |offset| CommittedOffset {
        topic_id: ID,
        offset,
        leader_epoch: 0,
        committed_ms: 1_000,
        metadata: format!("m{offset}"),
    };
    let offsets = offsets.iter().map(|&(partition, offset)| (at(partition), committed(offset))).collect();
    change(group, ChangeKind::Commit { protocol_type: "consumer".to_owned(), offsets })
}

fn open(dir: &Path) -> Result<OffsetStore, OpenError> {
    OffsetStore::open(dir, FsyncPolicy::Never, 1 << 20, |id| id == ID)
}

fn write(store: &OffsetStore, change: Change) {
    let queued = store.enqueue(change).unwrap();
    store.write_queued(&queued).unwrap();
}

fn offset(store: &OffsetStore, group: &str, partition: i32) -> Option<i64> {
    store.group(group, |of| of.offsets.get(&at(partition)).map(|committed| committed.offset)).flatten()
}

#[test]
fn what_was_committed_is_there_after_a_restart_and_what_was_removed_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    write(&store, commit("g", &[(0, 5), (1, 7)]));
    write(&store, commit("g", &[(0, 6)]));
    write(&store, commit("h", &[(0, 1), (1, 1)]));
    write(&store, commit("gone", &[(0, 1)]));
    write(&store, change("h", ChangeKind::Remove(vec![at(0)])));
    write(&store, change("gone", ChangeKind::RemoveGroup));
    for store in [store, open(dir.path()).unwrap(), open(dir.path()).unwrap()] {
        assert_eq!((offset(&store, "g", 0), offset(&store, "g", 1)), (Some(6), Some(7)));
        assert_eq!((offset(&store, "h", 0), offset(&store, "h", 1)), (None, Some(1)));
        let names: Vec<_> = store.groups().into_iter().map(|(group, _)| group).collect();
        assert_eq!(names, ["g", "h"]);
        let metadata = store.group("g", |of| of.offsets[&at(0)].metadata.clone()).unwrap();
        assert_eq!(metadata, "m6");
    }
}

#[test]
fn changes_count_in_the_order_in_which_they_were_queued() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    let first = store.enqueue(commit("g", &[(0, 1)])).unwrap();
    let second = store.enqueue(commit("g", &[(0, 2)])).unwrap();
    assert_eq!(offset(&store, "g", 0), None, "nothing counts before it is written");
    store.write_queued(&second).unwrap();
    store.write_queued(&first).unwrap();
    assert_eq!(offset(&store, "g", 0), Some(2));
    assert_eq!(offset(&open(dir.path()).unwrap(), "g", 0), Some(2));
}

#[test]
fn a_torn_tail_is_cut_off_wherever_it_was_torn() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("offsets");
    let store = open(dir.path()).unwrap();
    write(&store, commit("g", &[(0, 1)]));
    let sound = fs::read(&path).unwrap().len();
    write(&store, commit("g", &[(0, 2), (1, 2)]));
    let whole = fs::read(&path).unwrap();
    for cut in 0..whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        let store = open(dir.path()).unwrap();
        assert_eq!(offset(&store, "g", 0), (cut >= sound).then_some(1), "cut at {cut}");
        write(&store, commit("g", &[(0, 9)]));
        assert_eq!(offset(&open(dir.path()).unwrap(), "g", 0), Some(9));
    }
    // The length is there and the content is not, as after a power cut.
    let mut torn = whole;
    torn[sound + 20..].fill(0);
    fs::write(&path, &torn).unwrap();
    assert_eq!(offset(&open(dir.path()).unwrap(), "g", 0), Some(1));
}

#[test]
fn damage_in_the_midst_is_an_error_and_not_a_loss() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("offsets");
    let store = open(dir.path()).unwrap();
    write(&store, commit("g", &[(0, 1)]));
    write(&store, commit("g", &[(0, 2)]));
    let mut bytes = fs::read(&path).unwrap();
    bytes[30] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let error = open(dir.path()).unwrap_err();
    assert!(matches!(&error, OpenError::Damaged { reason, .. } if reason.contains("byte 12")), "{error}");
    bytes[11] = 9;
    fs::write(&path, &bytes).unwrap();
    assert!(matches!(open(dir.path()), Err(OpenError::FormatVersion { found, .. }) if found == "9"));
}

#[test]
fn the_file_is_written_anew_when_most_of_it_is_out_of_date() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("offsets");
    let store = open(dir.path()).unwrap();
    let all: Vec<_> = (0..1500).map(|partition| (partition, 0)).collect();
    write(&store, commit("many", &all));
    let mut largest = 0;
    for round in 0..30_000_i64 {
        write(&store, commit("g", &[(0, round)]));
        largest = largest.max(fs::metadata(&path).unwrap().len());
    }
    assert!(largest < 2 * LEAST_COMPACTED_BYTES, "{largest}");
    assert!(fs::metadata(&path).unwrap().len() < largest);
    let store = open(dir.path()).unwrap();
    assert_eq!(offset(&store, "g", 0), Some(29_999));
    assert_eq!(store.group("many", |of| of.offsets.len()), Some(1500));
}

#[test]
fn offsets_of_topics_that_are_not_there_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    write(&store, commit("g", &[(0, 1)]));
    let others = OffsetStore::open(dir.path(), FsyncPolicy::Never, 1 << 20, |_| false).unwrap();
    assert!(others.groups().is_empty() && others.known.read().bytes == 0);
    store.forget_topic(ID);
    assert!(store.groups().is_empty() && store.known.read().bytes == 0);
}

#[test]
fn beyond_the_limit_only_what_is_there_can_be_committed_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = OffsetStore::open(dir.path(), FsyncPolicy::Never, 400, |_| true).unwrap();
    write(&store, commit("g", &[(0, 1), (1, 1)]));
    assert_eq!(store.enqueue(commit("g", &[(2, 1)])).unwrap_err(), TooManyOffsets { most: 400 });
    write(&store, commit("g", &[(0, 2)]));
    write(&store, change("g", ChangeKind::RemoveGroup));
    assert_eq!(store.known.read().bytes, 0);
    write(&store, commit("g", &[(2, 1)]));
}

#[test]
fn nothing_is_written_after_the_close() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    store.close();
    let queued = store.enqueue(commit("g", &[(0, 1)])).unwrap();
    assert!(store.write_queued(&queued).unwrap_err().to_string().contains("shutting down"));
    assert_eq!(offset(&store, "g", 0), None);
}

#[test]
fn the_file_is_not_written_anew_after_the_close() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("offsets");
    let store = open(dir.path()).unwrap();
    for offset in 0..100 {
        write(&store, commit("g", &[(0, offset)]));
    }
    let queued = store.enqueue(commit("g", &[(0, 100)])).unwrap();
    store.file.lock().compact_at = 0;
    let before = fs::metadata(&path).unwrap().ino();
    store.close();
    // The next broker has the file open by now.
    store.write_queued(&queued).unwrap_err();
    assert_eq!(fs::metadata(&path).unwrap().ino(), before);
}

/// A file that takes what is written and cannot be forced to the disk.
fn sick_file() -> File {
    OpenOptions::new().read(true).write(true).open("/dev/null").unwrap()
}

#[test]
fn what_the_disk_refused_once_is_not_called_safe_later() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    let sound = std::mem::replace(&mut store.file.lock().file, sick_file());
    write(&store, commit("g", &[(0, 1)]));
    assert!(store.has_unsynced());
    store.sync().unwrap_err();
    store.file.lock().file = sound;
    assert!(!store.has_unsynced(), "there is nothing that a second try could help");
    for error in [store.sync().unwrap_err(), store.close_synced().unwrap_err()] {
        assert!(error.to_string().contains("the disk refused some"), "{error}");
    }

    let store = open(dir.path()).unwrap();
    write(&store, commit("g", &[(0, 1)]));
    let sound = std::mem::replace(&mut store.file.lock().file, sick_file());
    store.close_synced().unwrap_err();
    store.file.lock().file = sound;
    store.close_synced().unwrap_err();

    let store = open(dir.path()).unwrap();
    write(&store, commit("g", &[(0, 1)]));
    store.close_synced().unwrap();
    assert!(!store.has_unsynced());
}

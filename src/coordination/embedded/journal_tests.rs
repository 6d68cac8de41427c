use bytes::Bytes;

use super::*;
use crate::coordination::embedded::codec::put_transaction;
use crate::coordination::tree::{Request, Transaction};
use crate::coordination::{Create, CreateMode, Operation};
use crate::runtime::fs::MemoryFileSystem;
use crate::runtime::{Clock, Random};

const NOW: Timestamp = Timestamp(1_700_000_000_000);
const DIR: &str = "/data";

/// Rotates early, so that a short history goes through several rotations.
const LOG_BYTES_MIN: u64 = 600;

fn disk() -> MemoryFileSystem {
    let disk = MemoryFileSystem::new(Clock::manual(NOW));
    disk.create_dir(Path::new(DIR)).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    disk
}

fn open(disk: &MemoryFileSystem) -> Result<Opened, OpenStoreError> {
    Journal::open(Arc::new(disk.clone()), Path::new(DIR), Durability::Synced, LOG_BYTES_MIN, NOW)
}

/// A history of transactions that apply one after the other: single operations, multis, closed sessions.
fn history(count: i64) -> Vec<Transaction> {
    let create =
        |path: String, mode| Operation::Create(Create { path, data: Some(Bytes::from("data")), mode });
    (1..=count)
        .map(|zxid| {
            let request = match zxid % 4 {
                0 => Request::CloseSession,
                1 => Request::Operations(vec![create(format!("/t{zxid:04}"), CreateMode::Persistent)]),
                2 => Request::Operations(vec![
                    create(format!("/t{:04}/e", zxid - 1), CreateMode::EphemeralSequential),
                    create("/t0001/n".to_owned(), CreateMode::PersistentSequential),
                    Operation::Set { path: "/t0001".to_owned(), data: None, version: None },
                ]),
                _ => Request::Operations(vec![Operation::Set {
                    path: format!("/t{:04}", zxid - 2),
                    data: Some(Bytes::from(vec![b'x'; 40])),
                    version: Some(i32::from(zxid == 3)),
                }]),
            };
            Transaction { zxid, time: NOW.plus_ms(zxid), session: 9, request }
        })
        .collect()
}

/// The dump of the tree after each transaction of the history, by zxid.
fn expected_dumps(history: &[Transaction]) -> Vec<Vec<String>> {
    let mut tree = Tree::new();
    let mut dumps = vec![tree.dump()];
    for transaction in history {
        tree.apply(transaction).unwrap();
        dumps.push(tree.dump());
    }
    dumps
}

/// Opens the store and runs the rest of the history in frames of up to three, as a broker would. Gives the
/// last transaction that was acknowledged; `acknowledged` if there is none.
fn run(disk: &MemoryFileSystem, history: &[Transaction], acknowledged: i64) -> i64 {
    let Ok(Opened { mut tree, mut journal, .. }) = open(disk) else { return acknowledged };
    let mut acknowledged = acknowledged.max(tree.last_zxid());
    let rest = &history[tree.last_zxid() as usize..];
    for frame in rest.chunks(3) {
        let mut bytes = Vec::new();
        for transaction in frame {
            tree.apply(transaction).unwrap();
            put_transaction(&mut bytes, transaction);
        }
        if journal.append(&bytes).is_err() {
            return acknowledged;
        }
        acknowledged = tree.last_zxid();
        if journal.is_rotation_due() && journal.rotate(&Snapshot::of(&tree), NOW).is_err() {
            return acknowledged;
        }
    }
    if journal.close().is_ok() {
        return i64::MAX;
    }
    acknowledged
}

/// Stops at every step of a history in turn, loses power in the given way, and opens again.
#[track_caller]
fn check_every_stop(power_loss: impl Fn(&MemoryFileSystem, u64)) {
    let history = history(60);
    let dumps = expected_dumps(&history);
    for step in 0.. {
        let disk = disk();
        disk.stop_at(disk.steps() + step);
        let acknowledged = run(&disk, &history, 0);
        power_loss(&disk, step);
        // Opening may be cut short as well, and by anything: twice, at different steps.
        for again in [step % 7, step % 3] {
            disk.stop_at(disk.steps() + again);
            let _ = open(&disk);
            power_loss(&disk, step + 1);
        }
        let opened = open(&disk).unwrap_or_else(|error| panic!("stopped at step {step}: {error}"));
        let zxid = opened.tree.last_zxid();
        assert!(
            zxid >= acknowledged.min(60),
            "stopped at step {step}: {zxid} of {acknowledged} acknowledged"
        );
        assert_eq!(opened.tree.dump(), dumps[zxid as usize], "stopped at step {step}");
        drop(opened);
        assert_eq!(run(&disk, &history, acknowledged.min(60)), i64::MAX, "stopped at step {step}");
        if acknowledged == i64::MAX {
            assert!(step > 60, "the history has steps to stop at");
            return;
        }
    }
}

#[test]
fn power_loss_at_any_step_keeps_what_was_acknowledged() {
    check_every_stop(|disk, _| disk.crash());
}

#[test]
fn a_killed_process_leaves_a_prefix_of_its_history() {
    check_every_stop(|disk, _| disk.kill());
}

#[test]
fn a_torn_disk_keeps_what_was_acknowledged() {
    for seed in 0..2 {
        check_every_stop(|disk, step| disk.crash_torn(&Random::from_seed(seed * 10_000 + step)));
    }
}

/// A closed store with that many transactions, one frame each and not rotated, and the path of its log.
fn closed_store(count: i64) -> (MemoryFileSystem, PathBuf) {
    let disk = disk();
    let opened = Journal::open(Arc::new(disk.clone()), Path::new(DIR), Durability::Synced, u64::MAX, NOW);
    let mut journal = opened.unwrap().journal;
    for transaction in history(count) {
        let mut bytes = Vec::new();
        put_transaction(&mut bytes, &transaction);
        journal.append(&bytes).unwrap();
    }
    journal.close().unwrap();
    (disk, Path::new(DIR).join("barnabas-store.00000000000000000000.log"))
}

fn overwrite(disk: &MemoryFileSystem, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = disk.read(path).unwrap();
    change(&mut bytes);
    disk.replace(path, &bytes, Durability::Synced).unwrap();
}

#[test]
fn damage_anywhere_in_a_closed_log_is_named_with_file_and_position() {
    let (disk, path) = closed_store(4);
    let intact = disk.read(&path).unwrap();
    let ending_frame = intact.len() - 12;
    for position in 0..ending_frame {
        overwrite(&disk, &path, |bytes| bytes[position] ^= 0x01);
        let error = open(&disk).unwrap_err().to_string();
        assert!(error.contains("00000.log is damaged at byte "), "byte {position}: {error}");
        overwrite(&disk, &path, |bytes| bytes.clone_from(&intact));
    }
    assert_eq!(open(&disk).unwrap().tree.last_zxid(), 4);
}

#[test]
fn a_torn_tail_is_cut_and_told() {
    let (disk, path) = closed_store(4);
    overwrite(&disk, &path, |bytes| bytes.extend_from_slice(&[1; 100]));
    let opened = open(&disk).unwrap();
    assert_eq!((opened.cut_bytes, opened.tree.last_zxid()), (100, 4));
    drop(opened);
    assert_eq!(open(&disk).unwrap().cut_bytes, 0);
}

#[test]
fn a_damaged_snapshot_is_refused() {
    let disk = disk();
    run(&disk, &history(60), 0);
    let names = disk.list(Path::new(DIR)).unwrap();
    let snapshot = names.iter().find(|entry| entry.name.ends_with(".snapshot")).unwrap();
    let path = Path::new(DIR).join(&snapshot.name);
    let intact = disk.read(&path).unwrap();
    for position in (0..intact.len()).step_by(11) {
        overwrite(&disk, &path, |bytes| bytes[position] ^= 0x80);
        let error = open(&disk).unwrap_err().to_string();
        assert!(error.contains(".snapshot is damaged at byte "), "byte {position}: {error}");
        overwrite(&disk, &path, |bytes| bytes.clone_from(&intact));
    }
    for size in (0..intact.len()).step_by(11) {
        overwrite(&disk, &path, |bytes| bytes.truncate(size));
        assert!(matches!(open(&disk), Err(OpenStoreError::Damaged { .. })), "cut at {size}");
        overwrite(&disk, &path, |bytes| bytes.clone_from(&intact));
    }
    assert_eq!(open(&disk).unwrap().tree.last_zxid(), 60);
    disk.remove_file(&path).unwrap();
    assert!(matches!(open(&disk), Err(OpenStoreError::Missing { .. })));
}

#[test]
fn rotation_leaves_one_pair_of_files() {
    let disk = disk();
    run(&disk, &history(60), 0);
    let mut names: Vec<String> =
        disk.list(Path::new(DIR)).unwrap().into_iter().map(|entry| entry.name).collect();
    names.sort();
    assert_eq!(names.len(), 3, "{names:?}");
    let number =
        |name: &str, suffix| name.strip_prefix(PREFIX).unwrap().strip_suffix(suffix).unwrap().to_owned();
    assert_eq!(number(&names[0], LOG_SUFFIX), number(&names[1], SNAPSHOT_SUFFIX));
    assert_eq!(names[2], LOCK_NAME);
}

#[test]
fn a_store_in_use_is_refused() {
    let disk = disk();
    let _opened = open(&disk).unwrap();
    assert!(matches!(open(&disk), Err(OpenStoreError::InUse { .. })));
}

#[test]
fn a_full_disk_refuses_writes_and_takes_them_again() {
    let disk = disk();
    let transactions = history(9);
    let mut bytes = Vec::new();
    transactions.iter().for_each(|transaction| put_transaction(&mut bytes, transaction));
    let Opened { mut journal, .. } = open(&disk).unwrap();
    for room in 0..bytes.len() as u64 {
        disk.set_capacity_bytes(HEADER_BYTES + room);
        assert!(matches!(journal.append(&bytes), Err(WriteError::NoSpace)), "room for {room} bytes");
    }
    disk.set_capacity_bytes(u64::MAX);
    journal.append(&bytes).unwrap();
    drop(journal);
    assert_eq!(open(&disk).unwrap().tree.last_zxid(), 9);
}

#[test]
fn a_rotation_without_space_goes_on_with_the_old_log() {
    let disk = disk();
    let transactions = history(2);
    let Opened { mut tree, mut journal, .. } = open(&disk).unwrap();
    let mut append = |journal: &mut Journal, transaction: &Transaction| {
        let mut bytes = Vec::new();
        tree.apply(transaction).unwrap();
        put_transaction(&mut bytes, transaction);
        journal.append(&bytes).unwrap();
        Snapshot::of(&tree)
    };
    let snapshot = append(&mut journal, &transactions[0]);
    for room in 0..120 {
        disk.set_capacity_bytes(journal.writer.size_bytes() + room);
        assert!(matches!(journal.rotate(&snapshot, NOW), Err(WriteError::NoSpace)), "room for {room} bytes");
        let _ = disk.remove_file(&journal.files().snapshot(1).with_extension("tmp"));
    }
    disk.set_capacity_bytes(u64::MAX);
    append(&mut journal, &transactions[1]);
    drop(journal);
    assert_eq!(open(&disk).unwrap().tree.last_zxid(), 2);
}

#[test]
fn a_snapshot_that_ends_with_a_large_node_is_whole() {
    let disk = disk();
    let Opened { mut tree, mut journal, .. } = open(&disk).unwrap();
    let large = Some(Bytes::from(vec![b'x'; SNAPSHOT_FRAME_BYTES]));
    let create = Create { path: "/z".to_owned(), data: large, mode: CreateMode::Persistent };
    let request = Request::Operations(vec![Operation::Create(create)]);
    tree.apply(&Transaction { zxid: 1, time: NOW, session: 9, request }).unwrap();
    journal.rotate(&Snapshot::of(&tree), NOW).unwrap();
    drop(journal);
    assert_eq!(open(&disk).unwrap().tree.dump(), tree.dump());
}

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::finding::{Report, Severity};
use super::{folder, repair};
use crate::records::kafka_folder;
use crate::runtime::fs::{DiskFileSystem, FileSystem};

/// The folder that Kafka wrote, unpacked.
fn kafkas_folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in kafka_folder::FILES.iter() {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    dir
}

fn check(path: &Path) -> Report {
    let fs: Arc<dyn FileSystem> = Arc::new(DiskFileSystem);
    let mut report = Report::default();
    folder::check(&*fs, path, &mut report, &mut |_| ()).unwrap();
    report
}

fn serious(report: &Report) -> Vec<(Severity, String)> {
    let findings = report.findings.iter().filter(|finding| finding.severity > Severity::Note);
    findings
        .map(|finding| {
            let name = finding.path.file_name().unwrap().to_string_lossy();
            (finding.severity, format!("{name}: {}", finding.what))
        })
        .collect()
}

fn damage(path: PathBuf, at: usize) {
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[at] ^= 0x55;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_folder_that_kafka_wrote_is_whole() {
    let dir = kafkas_folder();
    let report = check(dir.path());
    assert_eq!(serious(&report), []);
    assert!(report.partitions > 30 && report.records > 200, "{report}");
    let one = check(&dir.path().join("txn-0"));
    assert_eq!((one.partitions, one.segments, serious(&one)), (1, 2, vec![]));
}

#[test]
fn damaged_records_are_errors() {
    let dir = kafkas_folder();
    let log = dir.path().join("fmt-v2-none-0/00000000000000000000.log");
    damage(log.clone(), 100);
    let report = check(dir.path());
    assert_eq!(report.worst(), Some(Severity::Error));
    assert!(serious(&report)[0].1.contains("the batch at position 0: "), "{report}");
    let size = std::fs::metadata(&log).unwrap().len();
    std::fs::File::options().write(true).open(&log).unwrap().set_len(size - 3).unwrap();
    let report = check(dir.path());
    assert!(serious(&report).iter().any(|(_, what)| what.contains("are no batch")), "{report}");
}

#[test]
fn caches_are_put_right_and_records_left_alone() {
    let dir = kafkas_folder();
    let log = std::fs::read(dir.path().join("segments-0/00000000000000000000.log"));
    damage(dir.path().join("txn-0/00000000000000000000.timeindex"), 7);
    damage(dir.path().join("txn-0/00000000000000000009.snapshot"), 12);
    std::fs::write(dir.path().join("txn-1/leader-epoch-checkpoint"), "0\n1\nx\n").unwrap();
    std::fs::write(dir.path().join("txn-1/00000000000000000007.index"), "").unwrap();
    std::fs::write(dir.path().join("recovery-point-offset-checkpoint"), "1\n").unwrap();
    let report = check(dir.path());
    assert_eq!(serious(&report).len(), 5, "{report}");
    assert_eq!(report.worst(), Some(Severity::Warning));
    for finding in &report.findings {
        repair::repair(&DiskFileSystem, finding).unwrap();
    }
    assert_eq!(serious(&check(dir.path())), []);
    assert_eq!(std::fs::read(dir.path().join("segments-0/00000000000000000000.log")).ok(), log.ok());
}

#[test]
fn an_aborted_transaction_that_its_index_leaves_out_is_an_error() {
    let dir = kafkas_folder();
    std::fs::write(dir.path().join("txn-0/00000000000000000009.txnindex"), "").unwrap();
    let report = check(dir.path());
    assert_eq!(serious(&report).len(), 2, "{report}");
    assert!(serious(&report)[0].1.contains("was aborted and is not in it"), "{report}");
}

#[test]
fn a_kraft_brokers_folder_is_no_damage() {
    let dir = kafkas_folder();
    std::fs::write(dir.path().join("meta.properties"), "version=1\nnode.id=1\ncluster.id=x\n").unwrap();
    let report = check(dir.path());
    assert_eq!(serious(&report), []);
    assert!(report.to_string().contains("a folder of a KRaft broker"), "{report}");
}

#[test]
fn what_does_not_belong_there_is_told() {
    let dir = kafkas_folder();
    std::fs::create_dir(dir.path().join("lost+found")).unwrap();
    std::fs::write(dir.path().join("txn-1/core"), "").unwrap();
    let report = check(dir.path());
    assert_eq!(serious(&report).len(), 1);
    assert!(report.to_string().contains("txn-1/core: a stray file"));
    assert_eq!(report.to_json()["findings"].as_array().unwrap().len(), report.findings.len());
}

//! What a check finds, as words and as JSON.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// How bad it is; the worst one is the exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    /// Worth knowing; brokers pass over it.
    Note,
    /// A cache is wrong, or a promise about it: brokers build it anew from the records.
    Warning,
    /// Records, or what cannot be told from them, are damaged.
    Error,
}

/// How a cache is put right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repair {
    RemoveFile,
    /// `.index` and `.timeindex` of a segment, from its batches.
    RebuildIndexes,
    /// `leader-epoch-checkpoint`, from the batches.
    RebuildEpochs,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub severity: Severity,
    pub path: PathBuf,
    pub what: String,
    pub repair: Option<Repair>,
}

/// What was looked at, and what was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    pub partitions: u64,
    pub segments: u64,
    pub batches: u64,
    pub records: u64,
    pub bytes: u64,
    pub findings: Vec<Finding>,
}

impl Report {
    pub fn note(&mut self, path: &Path, what: impl Into<String>) {
        self.add(Severity::Note, path, what.into(), None);
    }

    pub fn warn(&mut self, path: &Path, what: impl Into<String>, repair: Option<Repair>) {
        self.add(Severity::Warning, path, what.into(), repair);
    }

    pub fn error(&mut self, path: &Path, what: impl Into<String>) {
        self.add(Severity::Error, path, what.into(), None);
    }

    fn add(&mut self, severity: Severity, path: &Path, what: String, repair: Option<Repair>) {
        self.findings.push(Finding { severity, path: path.to_owned(), what, repair });
    }

    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }

    fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }

    pub fn to_json(&self) -> Value {
        let findings = self.findings.iter().map(|finding| {
            json!({
                "severity": finding.severity.name(),
                "path": finding.path.display().to_string(),
                "what": finding.what,
                "repairable": finding.repair.is_some(),
            })
        });
        json!({
            "partitions": self.partitions,
            "segments": self.segments,
            "batches": self.batches,
            "records": self.records,
            "bytes": self.bytes,
            "findings": findings.collect::<Vec<Value>>(),
        })
    }
}

impl Severity {
    fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Repair::RemoveFile => "remove the file",
            Repair::RebuildIndexes => "build the segment's indexes from its batches",
            Repair::RebuildEpochs => "build the file from the batches",
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Finding { severity, path, what, .. } in &self.findings {
            writeln!(f, "{}: {}: {what}", severity.name(), path.display())?;
        }
        writeln!(
            f,
            "{} partitions, {} segments, {} batches, {} records, {} bytes: {} errors, {} warnings, {} notes",
            self.partitions,
            self.segments,
            self.batches,
            self.records,
            self.bytes,
            self.count(Severity::Error),
            self.count(Severity::Warning),
            self.count(Severity::Note)
        )
    }
}

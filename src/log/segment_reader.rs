use std::io;
use std::path::Path;
use std::sync::Arc;

use snafu::Snafu;

use super::scan::{BatchScan, ScanError};
use crate::records::{Batch, RecordsError};
use crate::runtime::fs::{File, FileSystem, OpenMode};

/// Reads the batches of a segment file one after the other, for tools; a file of any size takes little memory.
pub struct SegmentReader {
    file: Arc<dyn File>,
    scan: BatchScan,
    position: u64,
    size_bytes: u64,
}

/// Why there is no next batch.
#[derive(Debug, Snafu)]
pub enum SegmentReadError {
    #[snafu(display("{source}"), context(false))]
    Io { source: io::Error },
    /// What stands at this position is no whole batch.
    #[snafu(display("at position {position}: {source}"))]
    Damaged { position: u64, source: RecordsError },
}

impl SegmentReader {
    pub fn open(fs: &dyn FileSystem, path: &Path) -> Result<SegmentReader, SegmentReadError> {
        let file = fs.open(path, OpenMode::Read)?;
        let size_bytes = file.size_bytes()?;
        let scan = BatchScan::new(Arc::clone(&file), 0, end(size_bytes));
        Ok(SegmentReader { file, scan, position: 0, size_bytes })
    }

    /// Goes on reading from another place.
    pub fn seek(&mut self, position: u32) {
        self.position = u64::from(position);
        self.scan = BatchScan::new(Arc::clone(&self.file), position, end(self.size_bytes));
    }

    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Where the next batch begins: the end of the batches that were read.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next batch with its position; its CRC is not checked. `None` at the end.
    pub fn next_batch(&mut self) -> Result<Option<(u64, Batch)>, SegmentReadError> {
        let position = self.position;
        match self.scan.next() {
            Ok(Some(batch)) => {
                self.position += batch.bytes.len() as u64;
                Ok(Some((position, batch)))
            }
            Ok(None) => Ok(None),
            Err(ScanError::Io(source)) => Err(SegmentReadError::Io { source }),
            Err(ScanError::Damaged(source)) => Err(SegmentReadError::Damaged { position, source }),
        }
    }
}

/// Segments are smaller than 2 GiB.
fn end(size_bytes: u64) -> u32 {
    u32::try_from(size_bytes).unwrap_or(u32::MAX)
}

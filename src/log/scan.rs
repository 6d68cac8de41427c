use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::records::{Batch, BatchHeader, RecordsError};
use crate::runtime::fs::{File, read_full_at};

use super::index::{Waiting, read_waiting};

/// Walks the headers of the batches in a part of a segment file, reading little more than them.
pub(super) struct HeaderScan {
    file: Arc<dyn File>,
    waiting: Waiting,
    /// Where the next batch begins, and where the part ends.
    position: u64,
    end: u64,
    buffer: Vec<u8>,
    /// Where in the file the buffer was read.
    buffer_at: u64,
}

/// Why a scan stops.
#[derive(Debug)]
pub(super) enum ScanError {
    Io(io::Error),
    Damaged(RecordsError),
}

/// One read covers all batches up to the next index entry, if they are small.
const HEADER_READ_BYTES: u64 = 4096;

impl HeaderScan {
    pub(super) fn new(file: Arc<dyn File>, position: u32, end: u32, waiting: Waiting) -> Self {
        let position = u64::from(position);
        HeaderScan { file, waiting, position, end: u64::from(end), buffer: Vec::new(), buffer_at: position }
    }

    /// Where the next batch begins, or should.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// The next batch's position and header; `None` at the end, also if a batch reaches beyond it.
    pub(super) fn next(&mut self) -> Result<Option<(u32, BatchHeader)>, ScanError> {
        if self.position >= self.end {
            return Ok(None);
        }
        let header = match BatchHeader::read(self.buffered()) {
            Err(RecordsError::Incomplete { .. }) => {
                self.fill().map_err(ScanError::Io)?;
                BatchHeader::read(self.buffered())
            }
            header => header,
        };
        match header {
            Ok(header) if self.position + header.size_bytes() as u64 <= self.end => {
                let position = self.position as u32;
                self.position += header.size_bytes() as u64;
                Ok(Some((position, header)))
            }
            Ok(_) | Err(RecordsError::Incomplete { .. }) => Ok(None),
            Err(error) => Err(ScanError::Damaged(error)),
        }
    }

    fn buffered(&self) -> &[u8] {
        usize::try_from(self.position - self.buffer_at)
            .ok()
            .and_then(|skip| self.buffer.get(skip..))
            .unwrap_or_default()
    }

    fn fill(&mut self) -> io::Result<()> {
        let size = HEADER_READ_BYTES.min(self.end - self.position);
        self.buffer.resize(size as usize, 0);
        self.buffer_at = self.position;
        let read = read_waiting(&*self.file, &mut self.buffer, self.position, self.waiting)?;
        self.buffer.truncate(read);
        Ok(())
    }
}

/// Walks whole batches in a part of a segment file, reading it in large pieces.
pub(super) struct BatchScan {
    file: Arc<dyn File>,
    position: u64,
    end: u64,
    /// What is read at once, if no batch needs more.
    piece_bytes: u64,
    /// What was read last. Its room is used again unless a batch of it is still held: a compaction reads gigabytes, and
    /// to clear new room for each piece costs about as much as to read it.
    piece: Bytes,
    /// The part of the piece from the next batch on.
    buffer: Bytes,
}

const PIECE_BYTES: u64 = 1 << 20;

impl BatchScan {
    pub(super) fn new(file: Arc<dyn File>, position: u32, end: u32) -> Self {
        Self::with_piece(file, position, end, PIECE_BYTES)
    }

    pub(super) fn with_piece(file: Arc<dyn File>, position: u32, end: u32, piece_bytes: u64) -> Self {
        let (position, end) = (u64::from(position), u64::from(end));
        BatchScan { file, position, end, piece_bytes, piece: Bytes::new(), buffer: Bytes::new() }
    }

    /// The next batch, not checked against its CRC. A batch that the end cuts is damaged.
    pub(super) fn next(&mut self) -> Result<Option<Batch>, ScanError> {
        if self.position >= self.end {
            return Ok(None);
        }
        let mut batch = Batch::read(self.buffer.clone());
        // A header tells how much its batch needs; a longer header may tell more.
        for _ in 0..3 {
            let Err(RecordsError::Incomplete { needed }) = batch else { break };
            let rest = self.end - self.position;
            if needed as u64 > rest || self.buffer.len() as u64 >= rest {
                break;
            }
            self.fill(rest.min(self.piece_bytes.max(needed as u64))).map_err(ScanError::Io)?;
            batch = Batch::read(self.buffer.clone());
        }
        let batch = batch.map_err(ScanError::Damaged)?;
        self.position += batch.bytes.len() as u64;
        self.buffer = self.buffer.slice(batch.bytes.len()..);
        Ok(Some(batch))
    }

    fn fill(&mut self, size: u64) -> io::Result<()> {
        self.buffer = Bytes::new();
        let mut bytes = match std::mem::take(&mut self.piece).try_into_mut() {
            Ok(bytes) if bytes.capacity() >= size as usize => bytes,
            _ => BytesMut::zeroed(size as usize),
        };
        bytes.resize(size as usize, 0);
        let read = read_full_at(&*self.file, &mut bytes, self.position)?;
        bytes.truncate(read);
        self.piece = bytes.freeze();
        self.buffer = self.piece.clone();
        Ok(())
    }
}

//! Records of a log in an older format, made piece by piece.

use std::io;

use bytes::{BufMut, Bytes, BytesMut};

use crate::records::{DownConversion, RecordsError, down_convert};

use super::read::FileSlice;
use super::scan::{BatchScan, ScanError};

/// A part of a segment file whose records are sent in an older format.
///
/// How many bytes that makes is not known before the last batch is converted, and a response tells its size
/// first. So it is as many as the part has, or as its first batch makes if that is more; what is then missing is
/// filled with the beginning of a message that is too long, and what is too much is cut off. Clients take either
/// as a message that the limit of their fetch cut, as from Kafka.
///
/// Between two pieces nothing but a position is held.
#[derive(Debug)]
pub struct Conversion {
    slice: FileSlice,
    wanted: DownConversion,
    /// The first batch that shows anything, made already.
    first: Option<Bytes>,
    /// From that batch on.
    whole: FileSlice,
    left_bytes: u32,
    is_filling: bool,
}

/// Why records are not given in an older format.
#[derive(Debug)]
pub enum ConversionError {
    Io(io::Error),
    Records(RecordsError),
}

/// Batches are converted together up to this.
const PIECE_BYTES: usize = 64 * 1024;
/// What a fill claims to be at least: the least size of a batch.
const FILL_LENGTH_MIN: u32 = 61;

impl Conversion {
    /// Converts the first batch of `slice` that has anything to show; `None` if no batch has. Uncompressed
    /// messages before the wanted offset are left out. May wait for the disk.
    ///
    /// Errors: [`ConversionError::Records`] if that batch cannot be converted, such as zstd.
    pub fn begin(
        mut slice: FileSlice,
        wanted: DownConversion,
    ) -> Result<Option<Conversion>, ConversionError> {
        let whole_bytes = slice.size_bytes;
        let mut scan = scan(&slice);
        while let Some(batch) = scan.next()? {
            let whole = slice.clone();
            advance(&mut slice, batch.bytes.len());
            let first = down_convert(&batch, &wanted).map_err(ConversionError::Records)?;
            if !first.is_empty() {
                let size = u32::try_from(first.len()).unwrap_or(u32::MAX);
                let left_bytes = whole_bytes.max(size);
                let first = Some(first);
                return Ok(Some(Conversion { slice, wanted, first, whole, left_bytes, is_filling: false }));
            }
        }
        Ok(None)
    }

    /// How many bytes are still to come.
    pub fn size_bytes(&self) -> u32 {
        self.left_bytes
    }

    /// Lets go of the first batch, which is converted again when it is its turn. For who holds many of these.
    pub fn shed(&mut self) {
        if self.first.take().is_some() {
            self.slice = self.whole.clone();
        }
    }

    /// Whether the next piece is there already, without a look at the file.
    pub fn is_ready(&self) -> bool {
        self.first.is_some()
    }

    /// The next bytes; not empty while [`size_bytes`](Self::size_bytes) is not 0. May wait for the disk.
    pub fn next_piece(&mut self) -> io::Result<Bytes> {
        let mut piece = match self.first.take() {
            Some(first) => first,
            None if self.is_filling => self.fill(false),
            None => match self.convert()? {
                converted if converted.is_empty() => self.fill(true),
                converted => converted,
            },
        };
        piece.truncate(self.left_bytes as usize);
        self.left_bytes -= piece.len() as u32;
        Ok(piece)
    }

    /// Some batches more; empty when there are none, or the next cannot be converted. A client that goes on from
    /// there gets the error then.
    fn convert(&mut self) -> io::Result<Bytes> {
        let mut pieces = BytesMut::new();
        let mut scan = scan(&self.slice);
        loop {
            let batch = match scan.next() {
                Ok(Some(batch)) => batch,
                Err(ScanError::Io(error)) => return Err(error),
                Ok(None) | Err(ScanError::Damaged(_)) => break,
            };
            let Ok(converted) = down_convert(&batch, &self.wanted) else { break };
            advance(&mut self.slice, batch.bytes.len());
            if pieces.is_empty() && converted.len() >= PIECE_BYTES {
                return Ok(converted);
            }
            pieces.extend_from_slice(&converted);
            if pieces.len() >= PIECE_BYTES {
                break;
            }
        }
        Ok(pieces.freeze())
    }

    fn fill(&mut self, is_first: bool) -> Bytes {
        self.is_filling = true;
        let mut fill = BytesMut::zeroed(0);
        if is_first {
            fill.put_i64(-1);
            let length = self.left_bytes.saturating_add(1).max(FILL_LENGTH_MIN);
            fill.put_u32(length.min(i32::MAX as u32));
        }
        fill.resize((self.left_bytes as usize).clamp(12, PIECE_BYTES), 0);
        fill.freeze()
    }
}

fn scan(slice: &FileSlice) -> BatchScan {
    let position = slice.position as u32;
    BatchScan::with_piece(slice.file.clone(), position, position + slice.size_bytes, PIECE_BYTES as u64)
}

fn advance(slice: &mut FileSlice, bytes: usize) {
    slice.position += bytes as u64;
    slice.size_bytes = slice.size_bytes.saturating_sub(bytes as u32);
}

impl From<ScanError> for ConversionError {
    fn from(error: ScanError) -> Self {
        match error {
            ScanError::Io(error) => ConversionError::Io(error),
            ScanError::Damaged(error) => ConversionError::Records(error),
        }
    }
}

use std::cell::RefCell;

use bytes::Bytes;
use flate2::{Crc, Decompress, FlushDecompress, Status};

use crate::records::error::RecordFault;

/// Reads gzip: one member or several, as `GZIPInputStream` does.
pub(super) struct GzipReader {
    input: Bytes,
    at: usize,
    state: State,
    inflate: Option<Decompress>,
    crc: Crc,
}

#[derive(PartialEq)]
enum State {
    Header,
    Body,
    End,
}

thread_local! {
    static SPARE: RefCell<Option<Decompress>> = const { RefCell::new(None) };
}

const MAGIC: [u8; 2] = [0x1f, 0x8b];
const DEFLATE: u8 = 8;
const HEADER_CRC: u8 = 0x02;
const EXTRA: u8 = 0x04;
const NAME: u8 = 0x08;
const COMMENT: u8 = 0x10;

impl GzipReader {
    pub fn new(input: Bytes) -> GzipReader {
        GzipReader { input, at: 0, state: State::Header, inflate: None, crc: Crc::new() }
    }

    /// Inflates the next bytes into `chunk`; returns how many, 0 at the end.
    pub fn inflate(&mut self, chunk: &mut [u8]) -> Result<usize, RecordFault> {
        loop {
            match self.state {
                State::Header => self.read_header()?,
                State::End => return Ok(0),
                State::Body => {
                    let length = self.inflate_body(chunk)?;
                    if length > 0 {
                        return Ok(length);
                    }
                }
            }
        }
    }

    fn inflate_body(&mut self, chunk: &mut [u8]) -> Result<usize, RecordFault> {
        let inflate = self.inflate.as_mut().ok_or(RecordFault::Compression)?;
        let (read_before, written_before) = (inflate.total_in(), inflate.total_out());
        let status = inflate
            .decompress(&self.input[self.at..], chunk, FlushDecompress::None)
            .map_err(|_| RecordFault::Compression)?;
        let read = (inflate.total_in() - read_before) as usize;
        let written = (inflate.total_out() - written_before) as usize;
        self.at += read;
        self.crc.update(&chunk[..written]);
        match status {
            Status::StreamEnd => self.read_trailer()?,
            Status::Ok | Status::BufError if read == 0 && written == 0 => {
                return Err(RecordFault::Compression);
            }
            Status::Ok | Status::BufError => {}
        }
        Ok(written)
    }

    fn read_header(&mut self) -> Result<(), RecordFault> {
        let fixed = self.take(10)?;
        let (magic, method, flags) = ([fixed[0], fixed[1]], fixed[2], fixed[3]);
        if magic != MAGIC || method != DEFLATE {
            return Err(RecordFault::Compression);
        }
        if flags & EXTRA != 0 {
            let length = self.take(2)?;
            let length = u16::from_le_bytes([length[0], length[1]]);
            self.take(usize::from(length))?;
        }
        for text in [NAME, COMMENT] {
            if flags & text != 0 {
                while self.take(1)?[0] != 0 {}
            }
        }
        if flags & HEADER_CRC != 0 {
            self.take(2)?;
        }
        let inflate = self.inflate.get_or_insert_with(|| {
            SPARE.with_borrow_mut(Option::take).unwrap_or_else(|| Decompress::new(false))
        });
        inflate.reset(false);
        self.crc.reset();
        self.state = State::Body;
        Ok(())
    }

    fn read_trailer(&mut self) -> Result<(), RecordFault> {
        let (crc, size) = (self.crc.sum(), self.crc.amount());
        if self.take(4)? != crc.to_le_bytes() || self.take(4)? != size.to_le_bytes() {
            return Err(RecordFault::Compression);
        }
        let is_concatenated = self.input[self.at..].starts_with(&MAGIC);
        self.state = if is_concatenated { State::Header } else { State::End };
        Ok(())
    }

    fn take(&mut self, count: usize) -> Result<&[u8], RecordFault> {
        let taken = self.input[self.at..].get(..count).ok_or(RecordFault::Compression)?;
        self.at += count;
        Ok(taken)
    }
}

impl Drop for GzipReader {
    fn drop(&mut self) {
        if let Some(inflate) = self.inflate.take() {
            let _ = SPARE.try_with(|spare| spare.replace(Some(inflate)));
        }
    }
}

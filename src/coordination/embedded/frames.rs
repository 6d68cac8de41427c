//! The form of the store's files: a header, then frames, each proved by its CRCs.
//!
//! A frame is written and synced before the next one is written. So an unreadable frame at the end is a write
//! that a crash cut short and nobody was told of; an unreadable frame with a good one after it is damage.

use std::io::{self, IoSlice};
use std::sync::Arc;

use crate::model::Timestamp;
use crate::runtime::fs::{File, read_full_at, write_all_at};

/// What a file of the store holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileKind {
    Log,
    Snapshot,
}

/// Begins every file.
///
/// 8 bytes magic, then little-endian: u32 version, i64 base zxid, i64 creation time, u32 CRC-32C of all that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub kind: FileKind,
    /// A snapshot holds the tree after this transaction, a log those after it.
    pub base_zxid: i64,
    /// Goes into every CRC, so that a frame that is found inside of data is not taken for one of this file.
    pub created: Timestamp,
}

pub(super) const HEADER_BYTES: u64 = 32;
/// The version that is written. Version 1 had no access lists and no sessions.
const VERSION: u32 = 2;
const VERSION_MIN: u32 = 1;

impl Header {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.kind.magic().to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.base_zxid.to_le_bytes());
        bytes.extend_from_slice(&self.created.0.to_le_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// The header and the version of the file; `None` where the bytes are not a header of that kind, or of a later
    /// version.
    fn decode(kind: FileKind, bytes: &[u8; HEADER_BYTES as usize]) -> Option<(Header, u32)> {
        let (body, crc) = bytes.split_last_chunk::<4>()?;
        let rest = body.strip_prefix(kind.magic())?;
        let (version, rest) = rest.split_first_chunk::<4>()?;
        let (base_zxid, rest) = rest.split_first_chunk::<8>()?;
        let created = rest.first_chunk::<8>()?;
        let is_sound = u32::from_le_bytes(*crc) == crc32c::crc32c(body);
        let version = u32::from_le_bytes(*version);
        let header = Header {
            kind,
            base_zxid: i64::from_le_bytes(*base_zxid),
            created: Timestamp(i64::from_le_bytes(*created)),
        };
        (is_sound && (VERSION_MIN..=VERSION).contains(&version)).then_some((header, version))
    }
}

impl FileKind {
    fn magic(self) -> &'static [u8; 8] {
        match self {
            FileKind::Log => b"BRNBSLOG",
            FileKind::Snapshot => b"BRNBSNAP",
        }
    }
}

/// Before each frame's content: u32 size of the content, u32 CRC-32C of (creation time, position, size), u32
/// CRC-32C of the content; little-endian. The first CRC makes the search for a good frame after a bad one cheap.
const FRAME_HEADER_BYTES: usize = 12;

fn frame_header(created: Timestamp, position: u64, content: &[u8]) -> [u8; FRAME_HEADER_BYTES] {
    let size = u32::try_from(content.len()).expect("the calls under way hold less than 4 GiB");
    let mut bytes = [0; FRAME_HEADER_BYTES];
    bytes[..4].copy_from_slice(&size.to_le_bytes());
    bytes[4..8].copy_from_slice(&header_crc(created, position, size).to_le_bytes());
    bytes[8..].copy_from_slice(&crc32c::crc32c(content).to_le_bytes());
    bytes
}

fn header_crc(created: Timestamp, position: u64, size: u32) -> u32 {
    let crc = crc32c::crc32c(&created.0.to_le_bytes());
    let crc = crc32c::crc32c_append(crc, &position.to_le_bytes());
    crc32c::crc32c_append(crc, &size.to_le_bytes())
}

/// Writes frames at the end of a file.
#[derive(Debug)]
pub(super) struct FrameWriter {
    file: Arc<dyn File>,
    created: Timestamp,
    position: u64,
}

impl FrameWriter {
    /// Writes the header of an empty file. Nothing is synced.
    pub(super) fn create(file: Arc<dyn File>, header: &Header) -> io::Result<FrameWriter> {
        write_all_at(&*file, &[IoSlice::new(&header.encode())], 0)?;
        Ok(FrameWriter { file, created: header.created, position: HEADER_BYTES })
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.position
    }

    /// Writes one frame and moves on. After an error some of it may be in the file.
    pub(super) fn write(&mut self, content: &[u8]) -> io::Result<()> {
        let header = frame_header(self.created, self.position, content);
        write_all_at(&*self.file, &[IoSlice::new(&header), IoSlice::new(content)], self.position)?;
        self.position += (FRAME_HEADER_BYTES + content.len()) as u64;
        Ok(())
    }

    /// Cuts off what a failed write may have left.
    pub(super) fn cut(&self) -> io::Result<()> {
        self.file.truncate(self.position)?;
        self.file.sync_data()
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// What a reader finds at its position.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    Content(&'a [u8]),
    /// The file ends here.
    End,
    /// No sound frame. `is_last`: nor is there one anywhere after.
    Unreadable {
        is_last: bool,
    },
}

/// Reads a file from its header on.
#[derive(Debug)]
pub(super) struct FrameReader {
    file: Arc<dyn File>,
    header: Header,
    version: u32,
    size_bytes: u64,
    position: u64,
    content: Vec<u8>,
    /// A part of the file: most frames are small, and a system call for each would take longer than the rest.
    window: Vec<u8>,
    window_position: u64,
}

const WINDOW_BYTES: usize = 128 * 1024;

impl FrameReader {
    /// `None` where the header cannot be read.
    pub(super) fn open(file: Arc<dyn File>, kind: FileKind) -> io::Result<Option<FrameReader>> {
        let mut bytes = [0; HEADER_BYTES as usize];
        let read = read_full_at(&*file, &mut bytes, 0)?;
        let decoded = Header::decode(kind, &bytes).filter(|_| read == bytes.len());
        let Some((header, version)) = decoded else {
            return Ok(None);
        };
        Ok(Some(FrameReader {
            size_bytes: file.size_bytes()?,
            file,
            header,
            version,
            position: HEADER_BYTES,
            content: Vec::new(),
            window: Vec::new(),
            window_position: 0,
        }))
    }

    pub(super) fn header(&self) -> &Header {
        &self.header
    }

    /// Of the form of the content.
    pub(super) fn version(&self) -> u32 {
        self.version
    }

    /// Where the next frame begins, or the unreadable one.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub(super) fn next(&mut self) -> io::Result<Frame<'_>> {
        if self.position == self.size_bytes {
            return Ok(Frame::End);
        }
        match self.frame_at(self.position)? {
            Some(end) => {
                self.position = end;
                Ok(Frame::Content(&self.content))
            }
            None => Ok(Frame::Unreadable { is_last: self.is_last_frame()? }),
        }
    }

    /// A writer that goes on at the reader's position, whatever the file holds after it.
    pub(super) fn into_writer(self) -> FrameWriter {
        FrameWriter { file: self.file, created: self.header.created, position: self.position }
    }

    fn is_last_frame(&mut self) -> io::Result<bool> {
        for position in self.position + 1..self.size_bytes {
            if self.frame_at(position)?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads the frame at that position into `content` and gives the position after it.
    fn frame_at(&mut self, position: u64) -> io::Result<Option<u64>> {
        let Some(header) = self.frame_header_at(position)? else { return Ok(None) };
        let [a, b, c, d, e, f, g, h, crc @ ..] = header;
        let size = u32::from_le_bytes([a, b, c, d]);
        let start = position + FRAME_HEADER_BYTES as u64;
        let end = start + u64::from(size);
        let is_header = u32::from_le_bytes([e, f, g, h]) == header_crc(self.header.created, position, size);
        if !is_header || end > self.size_bytes {
            return Ok(None);
        }
        self.read_content(start, size as usize)?;
        Ok((u32::from_le_bytes(crc) == crc32c::crc32c(&self.content)).then_some(end))
    }

    fn frame_header_at(&mut self, position: u64) -> io::Result<Option<[u8; FRAME_HEADER_BYTES]>> {
        if self.size_bytes - position < FRAME_HEADER_BYTES as u64 {
            return Ok(None);
        }
        Ok(self.window_at(position, FRAME_HEADER_BYTES)?.first_chunk().copied())
    }

    fn read_content(&mut self, start: u64, size: usize) -> io::Result<()> {
        self.content.clear();
        if size <= WINDOW_BYTES {
            let mut content = std::mem::take(&mut self.content);
            content.extend_from_slice(self.window_at(start, size)?);
            self.content = content;
            return Ok(());
        }
        self.content.resize(size, 0);
        let read = read_full_at(&*self.file, &mut self.content, start)?;
        self.content.truncate(read);
        Ok(())
    }

    /// Up to `size` bytes from that position on; fewer where the file ends.
    fn window_at(&mut self, position: u64, size: usize) -> io::Result<&[u8]> {
        let window_end = self.window_position + self.window.len() as u64;
        if position < self.window_position || position + size as u64 > window_end {
            self.window.resize(WINDOW_BYTES, 0);
            let read = read_full_at(&*self.file, &mut self.window, position)?;
            self.window.truncate(read);
            self.window_position = position;
        }
        let start = (position - self.window_position) as usize;
        let end = self.window.len().min(start + size);
        Ok(self.window.get(start..end).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::runtime::Clock;
    use crate::runtime::fs::{FileSystem, MemoryFileSystem, OpenMode};

    const HEADER: Header =
        Header { kind: FileKind::Log, base_zxid: 7, created: Timestamp(1_700_000_000_000) };

    fn file_of(frames: &[&[u8]]) -> Arc<dyn File> {
        let disk = MemoryFileSystem::new(Clock::manual(Timestamp(0)));
        let file = disk.open(Path::new("/f"), OpenMode::Create).unwrap();
        let mut writer = FrameWriter::create(Arc::clone(&file), &HEADER).unwrap();
        frames.iter().for_each(|content| writer.write(content).unwrap());
        file
    }

    fn reader(file: &Arc<dyn File>) -> FrameReader {
        FrameReader::open(Arc::clone(file), FileKind::Log).unwrap().unwrap()
    }

    fn overwrite(file: &Arc<dyn File>, position: u64, bytes: &[u8]) {
        write_all_at(&**file, &[IoSlice::new(bytes)], position).unwrap();
    }

    #[test]
    fn frames_of_any_size_are_read_as_written() {
        let large = vec![7; 3 * WINDOW_BYTES];
        let mut reader = reader(&file_of(&[b"one", b"", &large, b"last"]));
        assert_eq!(*reader.header(), HEADER);
        assert_eq!(reader.next().unwrap(), Frame::Content(b"one"));
        assert_eq!(reader.next().unwrap(), Frame::Content(b""));
        assert_eq!(reader.next().unwrap(), Frame::Content(&large));
        assert_eq!(reader.next().unwrap(), Frame::Content(b"last"));
        assert_eq!(reader.next().unwrap(), Frame::End);
    }

    #[test]
    fn a_file_cut_anywhere_has_an_unreadable_last_frame() {
        let whole = file_of(&[b"first", b"second"]).size_bytes().unwrap();
        let first_end = HEADER_BYTES + 12 + 5;
        for size in first_end + 1..whole {
            let file = file_of(&[b"first", b"second"]);
            file.truncate(size).unwrap();
            let mut reader = reader(&file);
            assert_eq!(reader.next().unwrap(), Frame::Content(b"first"));
            assert_eq!(reader.next().unwrap(), Frame::Unreadable { is_last: true }, "cut at {size}");
            assert_eq!(reader.position(), first_end);
        }
    }

    #[test]
    fn a_flipped_byte_before_a_good_frame_is_not_the_last() {
        for position in HEADER_BYTES..HEADER_BYTES + 12 + 5 {
            let file = file_of(&[b"first", b"second"]);
            let mut byte = [0];
            file.read_at(&mut byte, position).unwrap();
            overwrite(&file, position, &[byte[0] ^ 0x10]);
            assert_eq!(reader(&file).next().unwrap(), Frame::Unreadable { is_last: false }, "at {position}");
        }
    }

    #[test]
    fn a_tail_of_zeros_is_unreadable_and_last() {
        let file = file_of(&[b"first"]);
        overwrite(&file, file.size_bytes().unwrap(), &[0; 4096]);
        let mut reader = reader(&file);
        assert_eq!(reader.next().unwrap(), Frame::Content(b"first"));
        assert_eq!(reader.next().unwrap(), Frame::Unreadable { is_last: true });
    }

    #[test]
    fn a_frame_of_another_file_inside_of_data_is_not_one_of_this() {
        let mut foreign = Header { created: Timestamp(1), ..HEADER }.encode();
        foreign.extend(frame_header(Timestamp(1), HEADER_BYTES, b"x"));
        foreign.push(b'x');
        let file = file_of(&[&foreign]);
        overwrite(&file, HEADER_BYTES, &[0xff]);
        assert_eq!(reader(&file).next().unwrap(), Frame::Unreadable { is_last: true });
    }

    #[test]
    fn damaged_headers_are_not_opened() {
        for position in 0..HEADER_BYTES {
            let file = file_of(&[]);
            overwrite(&file, position, &[0xaa]);
            assert!(FrameReader::open(file, FileKind::Log).unwrap().is_none(), "at {position}");
        }
        assert!(FrameReader::open(file_of(&[]), FileKind::Snapshot).unwrap().is_none());
    }
}

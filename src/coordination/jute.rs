//! ZooKeeper's encoding of values: big-endian numbers, buffers and texts behind their length, -1 for null.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use snafu::{OptionExt, Snafu, ensure};

use super::store::Stat;

/// Writes values one after the other.
#[derive(Debug, Default)]
pub(super) struct Writer(BytesMut);

/// Reads values off the front. Nothing is reserved for what has not arrived.
#[derive(Debug)]
pub(super) struct Reader(Bytes);

/// The bytes are not what the protocol says stands there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Snafu)]
#[snafu(display("not in ZooKeeper's encoding"))]
pub(super) struct Malformed;

impl Writer {
    pub fn int(&mut self, value: i32) {
        self.0.put_i32(value);
    }

    pub fn long(&mut self, value: i64) {
        self.0.put_i64(value);
    }

    pub fn boolean(&mut self, value: bool) {
        self.0.put_u8(value.into());
    }

    /// A buffer longer than 2 GiB cannot be told apart from null; no caller holds one.
    pub fn buffer(&mut self, value: Option<&[u8]>) {
        match value {
            None => self.int(-1),
            Some(bytes) => {
                self.int(i32::try_from(bytes.len()).unwrap_or(i32::MAX));
                self.0.put_slice(bytes);
            }
        }
    }

    pub fn text(&mut self, value: &str) {
        self.buffer(Some(value.as_bytes()));
    }

    pub fn texts<'a>(&mut self, values: impl ExactSizeIterator<Item = &'a str>) {
        self.int(i32::try_from(values.len()).unwrap_or(i32::MAX));
        values.for_each(|value| self.text(value));
    }

    /// Bytes without their length.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.0.put_slice(bytes);
    }

    pub fn append(&mut self, other: &Writer) {
        self.raw(&other.0);
    }

    pub fn stat(&mut self, stat: &Stat) {
        for number in [stat.czxid, stat.mzxid, stat.created_ms, stat.modified_ms] {
            self.long(number);
        }
        for number in [stat.version, stat.child_version, stat.acl_version] {
            self.int(number);
        }
        self.long(stat.ephemeral_owner);
        self.int(stat.data_length);
        self.int(stat.children);
        self.long(stat.pzxid);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn finish(self) -> Bytes {
        self.0.freeze()
    }
}

impl Reader {
    pub fn new(bytes: Bytes) -> Reader {
        Reader(bytes)
    }

    pub fn int(&mut self) -> Result<i32, Malformed> {
        self.0.try_get_i32().map_err(|_| Malformed)
    }

    pub fn long(&mut self) -> Result<i64, Malformed> {
        self.0.try_get_i64().map_err(|_| Malformed)
    }

    pub fn boolean(&mut self) -> Result<bool, Malformed> {
        Ok(self.0.try_get_u8().map_err(|_| Malformed)? != 0)
    }

    /// `None` = null.
    pub fn buffer(&mut self) -> Result<Option<Bytes>, Malformed> {
        let length = self.int()?;
        if length == -1 {
            return Ok(None);
        }
        let length = usize::try_from(length).ok().context(MalformedSnafu)?;
        ensure!(length <= self.0.remaining(), MalformedSnafu);
        Ok(Some(self.0.split_to(length)))
    }

    /// A null text reads as empty.
    pub fn text(&mut self) -> Result<String, Malformed> {
        let bytes = self.buffer()?.unwrap_or_default();
        String::from_utf8(bytes.to_vec()).map_err(|_| Malformed)
    }

    pub fn texts(&mut self) -> Result<Vec<String>, Malformed> {
        let count = self.count(4)?;
        (0..count).map(|_| self.text()).collect()
    }

    /// How many values of at least that size follow; null stands for none.
    pub fn count(&mut self, size_bytes_min: usize) -> Result<usize, Malformed> {
        let count = usize::try_from(self.int()?.max(0)).unwrap_or(usize::MAX);
        ensure!(count <= self.0.remaining() / size_bytes_min, MalformedSnafu);
        Ok(count)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn stat(&mut self) -> Result<Stat, Malformed> {
        Ok(Stat {
            czxid: self.long()?,
            mzxid: self.long()?,
            created_ms: self.long()?,
            modified_ms: self.long()?,
            version: self.int()?,
            child_version: self.int()?,
            acl_version: self.int()?,
            ephemeral_owner: self.long()?,
            data_length: self.int()?,
            children: self.int()?,
            pzxid: self.long()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_empty_and_full_buffers_differ() {
        let mut writer = Writer::default();
        writer.buffer(None);
        writer.buffer(Some(b""));
        writer.text("ä");
        let mut reader = Reader::new(writer.finish());
        assert_eq!(reader.buffer(), Ok(None));
        assert_eq!(reader.buffer(), Ok(Some(Bytes::new())));
        assert_eq!(reader.text().as_deref(), Ok("ä"));
        assert_eq!(reader.int(), Err(Malformed));
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        for length in [-2, 5, i32::MAX] {
            let mut writer = Writer::default();
            writer.int(length);
            writer.boolean(true);
            let bytes = writer.finish();
            assert_eq!(Reader::new(bytes.clone()).buffer(), Err(Malformed), "{length}");
            assert!(length < 0 || Reader::new(bytes).texts().is_err(), "{length}");
        }
    }
}

use bytes::Bytes;

use crate::model::{Offset, Timestamp};

use super::Codec;
use super::batch::Batch;
use super::cursor::SliceReader;
use super::error::{
    InvalidCountSnafu, MalformedRecordSnafu, RecordFault, RecordsError, UnsupportedMagicSnafu,
};
use super::header::{BatchHeader, TimestampType};

/// One record of a batch. Its fields are slices of the (decompressed) batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordView {
    /// Offsets from the batch's base offset.
    pub offset_delta: i32,
    /// Milliseconds from the batch's base timestamp.
    pub timestamp_delta: i64,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    /// Keys are UTF-8 by convention and may repeat; a value may be null.
    pub headers: Vec<(Bytes, Option<Bytes>)>,
}

impl RecordView {
    pub fn offset(&self, header: &BatchHeader) -> Offset {
        header.base_offset.plus(i64::from(self.offset_delta))
    }

    /// The record's own time, or the batch's append time.
    pub fn timestamp(&self, header: &BatchHeader) -> Timestamp {
        match header.attributes.timestamp_type() {
            TimestampType::CreateTime => header.base_timestamp.plus_ms(self.timestamp_delta),
            TimestampType::LogAppendTime => header.max_timestamp,
        }
    }

    fn parse(body: &Bytes) -> Result<RecordView, RecordFault> {
        let mut reader = SliceReader { rest: body };
        reader.attributes()?;
        let timestamp_delta = reader.varlong()?;
        let offset_delta = reader.varint()?;
        let key = reader.field()?.map(|field| body.slice_ref(field));
        let value = reader.field()?.map(|field| body.slice_ref(field));
        let headers = Self::parse_headers(body, &mut reader)?;
        if !reader.rest.is_empty() {
            return Err(RecordFault::Length);
        }
        Ok(RecordView { offset_delta, timestamp_delta, key, value, headers })
    }

    fn parse_headers(
        body: &Bytes,
        reader: &mut SliceReader<'_>,
    ) -> Result<Vec<(Bytes, Option<Bytes>)>, RecordFault> {
        let count = usize::try_from(reader.varint()?).map_err(|_| RecordFault::HeaderCount)?;
        // Each header takes at least two bytes, so the reservation stays within what has arrived.
        if count > reader.rest.len() / 2 {
            return Err(RecordFault::HeaderCount);
        }
        let mut headers = Vec::with_capacity(count);
        for _ in 0..count {
            let key = reader.field()?.ok_or(RecordFault::NegativeLength)?;
            let value = reader.field()?;
            headers.push((body.slice_ref(key), value.map(|field| body.slice_ref(field))));
        }
        Ok(headers)
    }
}

/// The iterator of [`Batch::records`]: yields as many records as the batch declares, or ends with an error.
pub struct Records {
    source: RecordSource,
    next_index: i32,
    count: i32,
}

enum RecordSource {
    /// Uncompressed: the records not yet walked.
    Plain(Bytes),
}

impl Records {
    pub(super) fn of(batch: &Batch) -> Result<Records, RecordsError> {
        let header = &batch.header;
        if header.magic != 2 {
            return UnsupportedMagicSnafu { magic: header.magic }.fail();
        }
        if header.record_count < 0 {
            return InvalidCountSnafu { count: header.record_count }.fail();
        }
        let source = match header.attributes.codec()? {
            Codec::None => RecordSource::Plain(batch.payload()),
            codec => return super::error::UnknownCodecSnafu { id: codec.id() }.fail(),
        };
        Ok(Records { source, next_index: 0, count: header.record_count })
    }

    fn next_record(&mut self) -> Result<RecordView, RecordFault> {
        match &mut self.source {
            RecordSource::Plain(rest) => next_plain(rest),
        }
    }

    fn is_at_end(&mut self) -> bool {
        match &self.source {
            RecordSource::Plain(rest) => rest.is_empty(),
        }
    }
}

fn next_plain(rest: &mut Bytes) -> Result<RecordView, RecordFault> {
    let mut reader = SliceReader { rest };
    let length = usize::try_from(reader.varint()?).map_err(|_| RecordFault::NegativeLength)?;
    let prefix = rest.len() - reader.rest.len();
    if reader.rest.len() < length {
        return Err(RecordFault::Cut);
    }
    let body = rest.slice(prefix..prefix + length);
    *rest = rest.slice(prefix + length..);
    RecordView::parse(&body)
}

impl Iterator for Records {
    type Item = Result<RecordView, RecordsError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next_index == self.count {
            if self.is_at_end() {
                return None;
            }
            // Reported once: an ended iterator has nothing left of its source.
            self.source = RecordSource::Plain(Bytes::new());
            return Some(Err(RecordsError::TrailingBytes));
        }
        let record = self.next_record();
        let batch_index = self.next_index;
        match record {
            Ok(record) => {
                self.next_index += 1;
                Some(Ok(record))
            }
            Err(fault) => {
                self.source = RecordSource::Plain(Bytes::new());
                self.next_index = self.count;
                Some(MalformedRecordSnafu { batch_index, fault }.fail())
            }
        }
    }
}

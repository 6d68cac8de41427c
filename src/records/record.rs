use bytes::{Bytes, BytesMut};

use crate::model::{Offset, Timestamp};

use super::batch::Batch;
use super::compression::{InflateLimits, Inflater};
use super::cursor::{RecordCursor, SliceReader};
use super::error::{InvalidCountSnafu, MalformedRecordSnafu, RecordFault, RecordsError};
use super::header::BatchHeader;
use super::legacy::{Message, Messages};

/// For batches that a log holds: they were checked when they came, by this broker or another. What is left
/// to bound is the time that a damaged one may take.
pub(super) const STORED_LIMITS: InflateLimits = InflateLimits {
    size_max: i32::MAX as usize,
    large_window_size_max: i32::MAX as usize,
    record_size_max: i32::MAX as usize,
};

/// One record of a batch. Its fields are slices of the (decompressed) batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordView {
    /// Offsets from the batch's base offset. Not positive in a wrapper of v0 or v1, whose offset is its last
    /// message's.
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
        header.timestamp_of(self.timestamp_delta)
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
    /// Of a v2 batch.
    count: i32,
}

enum RecordSource {
    /// The records not yet walked.
    Plain(Bytes),
    Compressed {
        cursor: Box<RecordCursor<Inflater>>,
        /// Room that the bodies of several records share.
        bodies: BytesMut,
        body_size_max: usize,
    },
    Legacy {
        header: BatchHeader,
        messages: Box<Messages>,
    },
    /// Nothing more is yielded.
    Over,
}

impl Records {
    pub(super) fn of(batch: &Batch, limits: InflateLimits) -> Result<Records, RecordsError> {
        let header = &batch.header;
        if header.magic != 2 {
            let messages = Box::new(Messages::of(batch, limits)?);
            return Ok(Records {
                source: RecordSource::Legacy { header: *header, messages },
                next_index: 0,
                count: 0,
            });
        }
        if header.record_count < 0 {
            return InvalidCountSnafu { count: header.record_count }.fail();
        }
        let source = match batch.inflater(limits)? {
            None => RecordSource::Plain(batch.payload()),
            Some(inflater) => RecordSource::Compressed {
                cursor: Box::new(RecordCursor::new(inflater)),
                bodies: BytesMut::new(),
                body_size_max: limits.record_size_max,
            },
        };
        Ok(Records { source, next_index: 0, count: header.record_count })
    }

    fn next_record(&mut self) -> Result<RecordView, RecordFault> {
        match &mut self.source {
            RecordSource::Plain(rest) => next_plain(rest),
            RecordSource::Compressed { cursor, bodies, body_size_max } => {
                cursor.next_body(bodies, *body_size_max)?;
                RecordView::parse(&bodies.split().freeze())
            }
            RecordSource::Legacy { .. } | RecordSource::Over => Err(RecordFault::Cut),
        }
    }

    fn is_at_end(&mut self) -> Result<bool, RecordFault> {
        match &mut self.source {
            RecordSource::Plain(rest) => Ok(rest.is_empty()),
            RecordSource::Compressed { cursor, .. } => cursor.is_at_end(),
            RecordSource::Legacy { .. } | RecordSource::Over => Ok(true),
        }
    }

    fn end(&mut self) -> Option<Result<RecordView, RecordsError>> {
        let at_end = self.is_at_end();
        self.source = RecordSource::Over;
        match at_end {
            Ok(true) => None,
            Ok(false) => Some(Err(RecordsError::TrailingBytes)),
            Err(fault) => Some(MalformedRecordSnafu { batch_index: self.count, fault }.fail()),
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
        if let RecordSource::Legacy { header, messages } = &mut self.source {
            let header = *header;
            return messages.next().map(|message| view_of(&header, message?));
        }
        if self.next_index == self.count {
            return self.end();
        }
        let record = self.next_record();
        let batch_index = self.next_index;
        match record {
            Ok(record) => {
                self.next_index += 1;
                Some(Ok(record))
            }
            Err(fault) => {
                self.source = RecordSource::Over;
                self.next_index = self.count;
                Some(MalformedRecordSnafu { batch_index, fault }.fail())
            }
        }
    }
}

fn view_of(header: &BatchHeader, message: Message) -> Result<RecordView, RecordsError> {
    let offset_delta = i32::try_from(message.offset.since(header.base_offset));
    Ok(RecordView {
        offset_delta: offset_delta.map_err(|_| RecordsError::MalformedRecord {
            batch_index: 0,
            fault: RecordFault::WrapperOffset,
        })?,
        timestamp_delta: message.timestamp.0.wrapping_sub(header.base_timestamp.0),
        key: message.key,
        value: message.value,
        headers: Vec::new(),
    })
}

use bytes::{Buf, Bytes, BytesMut};

use crate::model::Offset;
use crate::records::batch::Batch;
use crate::records::compression::{InflateLimits, Inflater};
use crate::records::cursor::Source;
use crate::records::error::{MalformedRecordSnafu, RecordFault, RecordsError};
use crate::records::header::TimestampType;
use crate::records::{Codec, MessageFormat};

use super::message::{Message, OVERHEAD, SIZE_MIN};

/// The messages of one entry of a log: itself, or those compressed in it. Yields them with the offsets and
/// timestamps that a consumer sees; ends after an error.
///
/// A wrapper is inflated as it is walked, and holds one message at a time. One of v1 is inflated twice: only
/// its last message tells what its offsets count from.
pub(in crate::records) struct Messages {
    source: Messaging,
    next_index: i32,
}

enum Messaging {
    Single(Message),
    Wrapped { wrapper: Message, base: i64, walk: Box<Walk> },
    Over,
}

impl Messages {
    /// Errors: [`RecordFault::Length`] and its like for a damaged message, for a wrapper
    /// [`RecordFault::NoValue`], [`RecordFault::EmptyWrapper`], [`RecordFault::WrapperOffset`] and what
    /// comes up when it is inflated.
    pub fn of(entry: &Batch, limits: InflateLimits) -> Result<Messages, RecordsError> {
        let message = Message::read(&entry.bytes).map_err(at_first)?;
        let codec = message.attributes.codec()?;
        if codec == Codec::None {
            return Ok(Messages { source: Messaging::Single(message), next_index: 0 });
        }
        let value = message.value.clone().ok_or(RecordFault::NoValue).map_err(at_first)?;
        let open = || Walk::new(codec, message.format, value.clone(), limits);
        let base = match message.format {
            MessageFormat::V0 => 0,
            _ => base_of(message.offset, open()).map_err(at_first)?,
        };
        let walk = Box::new(open());
        Ok(Messages { source: Messaging::Wrapped { wrapper: message, base, walk }, next_index: 0 })
    }

    fn next_wrapped(&mut self) -> Result<Option<Message>, RecordFault> {
        let Messaging::Wrapped { wrapper, base, walk } = &mut self.source else { return Ok(None) };
        let Some(bytes) = walk.next()? else {
            return if self.next_index == 0 { Err(RecordFault::EmptyWrapper) } else { Ok(None) };
        };
        let mut message = Message::read(&bytes)?;
        if message.attributes.codec().is_ok_and(|codec| codec != Codec::None) {
            return Err(RecordFault::NestedWrapper);
        }
        message.offset = Offset(message.offset.0.checked_add(*base).ok_or(RecordFault::WrapperOffset)?);
        if message.format == MessageFormat::V1 {
            message.attributes = message.attributes.with_timestamp_type(wrapper.attributes.timestamp_type());
            if wrapper.attributes.timestamp_type() == TimestampType::LogAppendTime {
                message.timestamp = wrapper.timestamp;
            }
        }
        Ok(Some(message))
    }
}

/// What the offsets inside a v1 wrapper count from.
fn base_of(wrapper: Offset, mut walk: Walk) -> Result<i64, RecordFault> {
    let mut last = None;
    while let Some(offset) = walk.skip()? {
        last = Some(offset);
    }
    let last = last.ok_or(RecordFault::EmptyWrapper)?;
    if wrapper == Offset::ZERO {
        return Ok(0);
    }
    if wrapper < last {
        return Err(RecordFault::WrapperOffset);
    }
    wrapper.0.checked_sub(last.0).ok_or(RecordFault::WrapperOffset)
}

fn at_first(fault: RecordFault) -> RecordsError {
    RecordsError::MalformedRecord { batch_index: 0, fault }
}

impl Iterator for Messages {
    type Item = Result<Message, RecordsError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Messaging::Single(_) = self.source {
            let Messaging::Single(message) = std::mem::replace(&mut self.source, Messaging::Over) else {
                return None;
            };
            return Some(Ok(message));
        }
        let batch_index = self.next_index;
        match self.next_wrapped().transpose()? {
            Ok(message) => {
                self.next_index = self.next_index.saturating_add(1);
                Some(Ok(message))
            }
            Err(fault) => {
                self.source = Messaging::Over;
                Some(MalformedRecordSnafu { batch_index, fault }.fail())
            }
        }
    }
}

/// Cuts the inflated value of a wrapper into messages.
struct Walk {
    inflater: Option<Inflater>,
    at: usize,
    room: BytesMut,
    message_size_max: usize,
}

impl Walk {
    fn new(codec: Codec, format: MessageFormat, value: Bytes, limits: InflateLimits) -> Walk {
        let inflater = Inflater::new(codec, format, value, limits);
        Walk { inflater, at: 0, room: BytesMut::new(), message_size_max: limits.record_size_max }
    }

    /// The next message's bytes. `None` at the end, also if it cuts a message.
    fn next(&mut self) -> Result<Option<Bytes>, RecordFault> {
        let Some((_, size)) = self.header()? else { return Ok(None) };
        if size > self.message_size_max {
            return Err(RecordFault::InflatedTooLarge);
        }
        if !self.take(size)? {
            return Ok(None);
        }
        Ok(Some(self.room.split().freeze()))
    }

    /// Goes past the next message and gives its offset.
    fn skip(&mut self) -> Result<Option<Offset>, RecordFault> {
        let Some((offset, mut left)) = self.header()? else { return Ok(None) };
        self.room.clear();
        while left > 0 {
            let there = self.chunk().len();
            if there == 0 && !self.refill()? {
                return Ok(None);
            }
            let skipped = left.min(self.chunk().len());
            self.at += skipped;
            left -= skipped;
        }
        Ok(Some(offset))
    }

    /// Offset and size of the next message; its first bytes are in the room then.
    fn header(&mut self) -> Result<Option<(Offset, usize)>, RecordFault> {
        self.room.clear();
        if !self.take(OVERHEAD)? {
            return Ok(None);
        }
        let mut header = &self.room[..];
        let (offset, size) = (Offset(header.get_i64()), header.get_i32());
        let size = usize::try_from(size).map_err(|_| RecordFault::NegativeLength)?;
        if size + OVERHEAD < SIZE_MIN {
            return Err(RecordFault::Length);
        }
        Ok(Some((offset, size)))
    }

    /// Moves `count` bytes into the room, which grows only as they arrive. `false` if there are fewer.
    fn take(&mut self, count: usize) -> Result<bool, RecordFault> {
        let mut missing = count;
        loop {
            let at = self.at;
            let taken = missing.min(self.chunk().len());
            if let Some(inflater) = &self.inflater {
                self.room.extend_from_slice(&inflater.chunk()[at..at + taken]);
            }
            self.at += taken;
            missing -= taken;
            if missing == 0 {
                return Ok(true);
            }
            if !self.refill()? {
                return Ok(false);
            }
        }
    }

    fn chunk(&self) -> &[u8] {
        self.inflater.as_ref().map_or(&[], |inflater| &inflater.chunk()[self.at..])
    }

    fn refill(&mut self) -> Result<bool, RecordFault> {
        self.at = 0;
        self.inflater.as_mut().map_or(Ok(false), Inflater::refill)
    }
}

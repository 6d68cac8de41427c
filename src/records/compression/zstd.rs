use std::cell::RefCell;

use bytes::Bytes;
use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

use crate::records::error::RecordFault;

/// Windows above this are rare (levels from 20 on) and held in memory while a batch is inflated.
const LARGE_WINDOW: u64 = 8 << 20;

/// Reads zstd frames. Windows above 128 MiB are refused, as by Kafka's own decompressor.
pub(super) struct ZstdReader {
    input: Bytes,
    at: usize,
    is_in_frame: bool,
    has_large_window: bool,
    /// What may still come out of frames with a large window, which bounds the memory that is touched.
    large_window_allowance: usize,
    decoder: Option<Decoder<'static>>,
}

thread_local! {
    static SPARE: RefCell<Option<Decoder<'static>>> = const { RefCell::new(None) };
}

impl ZstdReader {
    pub fn new(input: Bytes, large_window_size_max: usize) -> ZstdReader {
        ZstdReader {
            input,
            at: 0,
            is_in_frame: false,
            has_large_window: false,
            large_window_allowance: large_window_size_max,
            decoder: None,
        }
    }

    /// Inflates the next bytes into `chunk`; returns how many, 0 at the end.
    pub fn inflate(&mut self, chunk: &mut [u8]) -> Result<usize, RecordFault> {
        loop {
            if !self.is_in_frame {
                if self.at == self.input.len() {
                    return Ok(0);
                }
                self.is_in_frame = true;
                self.has_large_window |= window_size(&self.input[self.at..]) > LARGE_WINDOW;
            }
            let mut source = InBuffer::around(&self.input[self.at..]);
            let mut target = OutBuffer::around(&mut *chunk);
            let decoder = match &mut self.decoder {
                Some(decoder) => decoder,
                none => none.insert(decoder()?),
            };
            let missing = decoder.run(&mut source, &mut target).map_err(|_| RecordFault::Compression)?;
            let (read, written) = (source.pos(), target.pos());
            self.at += read;
            self.is_in_frame = missing > 0;
            if written > 0 {
                if self.has_large_window {
                    self.large_window_allowance = self
                        .large_window_allowance
                        .checked_sub(written)
                        .ok_or(RecordFault::InflatedTooLarge)?;
                }
                return Ok(written);
            }
            if read == 0 && self.is_in_frame {
                return Err(RecordFault::Compression);
            }
        }
    }
}

impl Drop for ZstdReader {
    fn drop(&mut self) {
        if self.has_large_window {
            return;
        }
        if let Some(decoder) = self.decoder.take() {
            let _ = SPARE.try_with(|spare| spare.replace(Some(decoder)));
        }
    }
}

fn decoder() -> Result<Decoder<'static>, RecordFault> {
    let mut decoder = match SPARE.with_borrow_mut(Option::take) {
        Some(decoder) => decoder,
        None => Decoder::new().map_err(|_| RecordFault::Compression)?,
    };
    decoder.reinit().map_err(|_| RecordFault::Compression)?;
    Ok(decoder)
}

/// The window that the frame at the start of `bytes` asks for; 0 when it cannot be told, which the
/// decompressor then finds out itself.
fn window_size(bytes: &[u8]) -> u64 {
    const MAGIC: [u8; 4] = 0xfd2f_b528u32.to_le_bytes();
    let Some(descriptor) = bytes.strip_prefix(&MAGIC).and_then(<[u8]>::first).copied() else {
        return 0;
    };
    let is_single_segment = descriptor & 0x20 != 0;
    let after = &bytes[MAGIC.len() + 1..];
    if !is_single_segment {
        let Some(&window) = after.first() else { return 0 };
        let base = 1u64 << (10 + (window >> 3));
        return base + (base >> 3) * u64::from(window & 7);
    }
    // Without a window of its own the frame's content is the window.
    let dictionary_id_size = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let content_size_size = 1 << (descriptor >> 6);
    let Some(field) = after.get(dictionary_id_size..dictionary_id_size + content_size_size) else { return 0 };
    field.iter().rev().fold(0, |size, &byte| (size << 8) | u64::from(byte))
}

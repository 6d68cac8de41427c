//! Down-conversion off the worker threads, a few at a time.

use std::io;

use bytes::Bytes;
use tokio::sync::Semaphore;

use crate::log::{Conversion, ConversionError, FileSlice};
use crate::records::DownConversion;
use crate::runtime::task;

/// Each holds a batch and what becomes of it: this bounds both memory and processors, however many old clients
/// there are.
static AT_ONCE: Semaphore = Semaphore::const_new(4);

/// As [`Conversion::begin`].
pub async fn begin_conversion(
    slice: FileSlice,
    wanted: DownConversion,
) -> Result<Option<Conversion>, ConversionError> {
    let _permit = AT_ONCE.acquire().await;
    let begun = task::blocking(move || Conversion::begin(slice, wanted)).await;
    begun.unwrap_or_else(|panic| Err(ConversionError::Io(io::Error::other(panic))))
}

/// As [`Conversion::next_piece`]; gives the conversion back.
pub async fn next_converted_piece(mut conversion: Box<Conversion>) -> io::Result<(Box<Conversion>, Bytes)> {
    if conversion.is_ready() {
        let piece = conversion.next_piece()?;
        return Ok((conversion, piece));
    }
    let _permit = AT_ONCE.acquire().await;
    let made = task::blocking(move || {
        let piece = conversion.next_piece()?;
        Ok((conversion, piece))
    });
    made.await.unwrap_or_else(|panic| Err(io::Error::other(panic)))
}

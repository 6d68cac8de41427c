//! Request and response headers of every version come back as they were.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use wire::{Reader, RequestHeader, ResponseHeader, Writer};

fuzz_target!(|data: &[u8]| {
    let frame = Bytes::copy_from_slice(data);
    for version in 0..=2 {
        if let Ok(header) = RequestHeader::decode(&mut Reader::new(frame.clone()), version) {
            let mut w = Writer::new();
            header.encode(&mut w, version).expect("what was decoded can be encoded");
            assert_eq!(RequestHeader::decode(&mut Reader::new(w.into_bytes()), version), Ok(header));
        }
        let _ = ResponseHeader::decode(&mut Reader::new(frame.clone()), version.min(1));
    }
});

//! A request as a server reads it: API and version choose the header, then the body.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use wire::{ApiKey, Message, Reader, Request, RequestHeader};

macro_rules! decode_request {
    ($($kind:ident $name:ident;)*) => {
        fn decode_body(api: ApiKey, version: i16, r: &mut Reader) -> bool {
            $(decode_request!(@ $kind $name api version r);)*
            false
        }
    };
    (@ request $name:ident $api:ident $version:ident $r:ident) => {
        if $api == <wire::$name as Request>::KEY {
            return wire::$name::decode($r, $version).is_ok();
        }
    };
    (@ $kind:ident $name:ident $api:ident $version:ident $r:ident) => {};
}

wire::for_every_message!(decode_request);

fuzz_target!(|data: &[u8]| {
    let [key_high, key_low, version_high, version_low, ..] = *data else { return };
    let Some(api) = ApiKey::from_i16(i16::from_be_bytes([key_high, key_low])) else { return };
    let version = i16::from_be_bytes([version_high, version_low]);
    let mut r = Reader::new(Bytes::copy_from_slice(data));
    if RequestHeader::decode(&mut r, api.request_header_version(version)).is_ok() {
        decode_body(api, version, &mut r);
    }
});

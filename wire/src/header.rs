use crate::{DecodeError, EncodeError, Reader, Str, Writer};

/// What stands in front of every request body.
///
/// Version 0 has no client id (ControlledShutdown v0 only), version 2 ends in tagged fields. The client
/// id has a two-byte length in all versions, so that a server can read the header before it knows the
/// API's versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestHeader {
    /// Which API; possibly one that this crate does not know.
    pub api_key: i16,
    /// Version of the body.
    pub api_version: i16,
    /// Comes back in the response header.
    pub correlation_id: i32,
    /// What the client calls itself.
    pub client_id: Option<Str>,
}

impl RequestHeader {
    /// Reads a header of version 0, 1 or 2.
    pub fn decode(r: &mut Reader, header_version: i16) -> Result<Self, DecodeError> {
        let api_key = r.i16()?;
        let api_version = r.i16()?;
        let correlation_id = r.i32()?;
        let client_id = if header_version >= 1 { r.string(false)? } else { None };
        if header_version >= 2 {
            r.skip_tags()?;
        }
        Ok(Self { api_key, api_version, correlation_id, client_id })
    }

    /// Writes a header of version 0, 1 or 2.
    pub fn encode(&self, w: &mut Writer, header_version: i16) -> Result<(), EncodeError> {
        w.i16(self.api_key);
        w.i16(self.api_version);
        w.i32(self.correlation_id);
        if header_version >= 1 {
            w.nullable_string(self.client_id.as_ref(), false)?;
        }
        if header_version >= 2 {
            w.uvarint(0);
        }
        Ok(())
    }
}

/// What stands in front of every response body; version 1 ends in tagged fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseHeader {
    /// The request's.
    pub correlation_id: i32,
}

impl ResponseHeader {
    /// Reads a header of version 0 or 1.
    pub fn decode(r: &mut Reader, header_version: i16) -> Result<Self, DecodeError> {
        let correlation_id = r.i32()?;
        if header_version >= 1 {
            r.skip_tags()?;
        }
        Ok(Self { correlation_id })
    }

    /// Writes a header of version 0 or 1.
    pub fn encode(&self, w: &mut Writer, header_version: i16) -> Result<(), EncodeError> {
        w.i32(self.correlation_id);
        if header_version >= 1 {
            w.uvarint(0);
        }
        Ok(())
    }
}

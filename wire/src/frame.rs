use crate::{EncodeError, Message, Request, RequestHeader, ResponseHeader, Str, Writer};

/// Appends a whole request frame: length, header, body. After an error `w` is as it was before.
pub fn write_request<R: Request>(
    w: &mut Writer,
    correlation_id: i32,
    client_id: Option<Str>,
    request: &R,
    version: i16,
) -> Result<(), EncodeError> {
    let header = RequestHeader { api_key: R::KEY as i16, api_version: version, correlation_id, client_id };
    w.frame(|w| {
        header.encode(w, R::header_version(version))?;
        request.encode(w, version)
    })
}

/// Appends a whole response frame for a request `R` of `version`: length, header, body. After an error
/// `w` is as it was before.
pub fn write_response<R: Request>(
    w: &mut Writer,
    correlation_id: i32,
    response: &R::Response,
    version: i16,
) -> Result<(), EncodeError> {
    w.frame(|w| {
        ResponseHeader { correlation_id }.encode(w, R::response_header_version(version))?;
        response.encode(w, version)
    })
}

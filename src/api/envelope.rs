//! A client's request that another broker forwards to the controller.
//!
//! Behaviour: brokers alone may forward (CLUSTER_ACTION). The request runs as its client's: its principal, its address.
//! Only what the controller alone serves is taken, else INVALID_REQUEST; who is not the controller answers
//! NOT_CONTROLLER, and nothing has been done then.
//!
//! Versions: 0 (KIP-590).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use wire::{DefaultPrincipalData, EnvelopeRequest, EnvelopeResponse, Message, Reader};

use super::dispatch::{dispatch_forwarded, respond};
use super::{Answer, ConnectionContext, ErrorCode, Part, RequestContext, ResponseFrame, Services};
use crate::security::{Operation, Principal, Resource};

pub async fn answer(services: &Arc<Services>, context: &RequestContext, request: EnvelopeRequest) -> Answer {
    let response = match open(services, context, request).await {
        Ok(data) => EnvelopeResponse { response_data: Some(data), error_code: 0 },
        Err(code) => EnvelopeResponse { response_data: None, error_code: code.code() },
    };
    respond::<EnvelopeRequest>(context, &response, Vec::new())
}

/// The encoded response, with its header.
async fn open(
    services: &Arc<Services>,
    context: &RequestContext,
    request: EnvelopeRequest,
) -> Result<Bytes, ErrorCode> {
    if !services.authorizer.allows(context.principal(), Operation::ClusterAction, Resource::Cluster) {
        return Err(ErrorCode::ClusterAuthorizationFailed);
    }
    let principal =
        request.request_principal.and_then(principal).ok_or(ErrorCode::PrincipalDeserializationFailure)?;
    let address = address(&request.client_host_address).ok_or(ErrorCode::InvalidRequest)?;
    if !services.controller.is_active() {
        return Err(ErrorCode::NotController);
    }
    let client = ConnectionContext {
        principal,
        ..ConnectionContext::new(Arc::clone(&context.connection.listener), SocketAddr::new(address, 0))
    };
    let answer = dispatch_forwarded(services, &Arc::new(client), request.request_data);
    match answer.map_err(|_| ErrorCode::InvalidRequest)?.await {
        Answer::Response(frame) => in_memory(frame).ok_or(ErrorCode::UnknownServerError),
        Answer::Nothing | Answer::Close => Err(ErrorCode::UnknownServerError),
    }
}

/// Without the length in front. `None` = it has records, which no answer of a controller has.
fn in_memory(frame: ResponseFrame) -> Option<Bytes> {
    let mut data = BytesMut::new();
    for part in frame.into_parts() {
        match part {
            Part::Memory(bytes) => data.extend_from_slice(&bytes),
            Part::File(_) | Part::Converted(_) => return None,
        }
    }
    (data.len() >= 4).then(|| data.freeze().slice(4..))
}

fn principal(data: Bytes) -> Option<Principal> {
    let mut reader = Reader::new(data);
    let version = reader.i16().ok().filter(|version| *version == 0)?;
    let principal = DefaultPrincipalData::decode(&mut reader, version).ok()?;
    Some(Principal::new(&principal.r#type, &principal.name))
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(IpAddr::from(*bytes.first_chunk::<4>()?)),
        16 => Some(IpAddr::from(*bytes.first_chunk::<16>()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_of_either_family() {
        assert_eq!(address(&[127, 0, 0, 1]), Some("127.0.0.1".parse().unwrap()));
        assert_eq!(address(&[0; 16]), Some("::".parse().unwrap()));
        assert_eq!(address(&[0; 5]), None);
    }

    #[test]
    fn principals_are_read_as_kafka_writes_them() {
        let data = b"\0\0\x05User\x06alice\0\0";
        assert_eq!(principal(Bytes::from_static(data)).unwrap().to_string(), "User:alice");
        assert_eq!(principal(Bytes::from_static(b"\0\x01")), None);
    }
}

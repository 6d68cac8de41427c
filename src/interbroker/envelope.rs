use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use snafu::ResultExt;
use wire::{
    DefaultPrincipalData, EnvelopeRequest, Message, Reader, Request, RequestHeader, ResponseHeader, Str,
    Writer,
};

use super::error::{DecodeSnafu, EncodeSnafu};
use super::{Peer, PeerError, RemoteError};

/// For whom a request is forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardedClient {
    pub client_id: Str,
    pub address: IpAddr,
    pub principal_kind: String,
    pub principal_name: String,
}

/// Administrators give their requests up to minutes.
const PATIENCE: Duration = Duration::from_secs(120);
/// Of the principal's encoding; the only one.
const PRINCIPAL_VERSION: i16 = 0;

impl Peer {
    /// Has the controller answer a client's request as if the client had asked it (KIP-590). Errors:
    /// [`PeerError::Refused`] where the controller did not begin with it.
    pub async fn forward<R: Request>(
        &self,
        request: &R,
        version: i16,
        client: &ForwardedClient,
    ) -> Result<R::Response, PeerError> {
        let header = RequestHeader {
            api_key: R::KEY as i16,
            api_version: version,
            correlation_id: 0,
            client_id: Some(client.client_id.clone()),
        };
        let mut data = Writer::with_capacity(256);
        header.encode(&mut data, R::header_version(version)).context(EncodeSnafu)?;
        request.encode(&mut data, version).context(EncodeSnafu)?;
        let envelope = EnvelopeRequest {
            request_data: data.into_bytes(),
            request_principal: Some(principal(client)?),
            client_host_address: match client.address {
                IpAddr::V4(address) => Bytes::copy_from_slice(&address.octets()),
                IpAddr::V6(address) => Bytes::copy_from_slice(&address.octets()),
            },
        };
        let response = self.call_patiently(&envelope, 0, PATIENCE).await?;
        RemoteError::check(response.error_code)?;
        let mut reader = Reader::new(response.response_data.unwrap_or_default());
        ResponseHeader::decode(&mut reader, R::response_header_version(version)).context(DecodeSnafu)?;
        Message::decode(&mut reader, version).context(DecodeSnafu)
    }
}

fn principal(client: &ForwardedClient) -> Result<Bytes, PeerError> {
    let principal = DefaultPrincipalData {
        r#type: client.principal_kind.as_str().into(),
        name: client.principal_name.as_str().into(),
        token_authenticated: false,
    };
    let mut writer = Writer::with_capacity(64);
    writer.i16(PRINCIPAL_VERSION);
    principal.encode(&mut writer, PRINCIPAL_VERSION).context(EncodeSnafu)?;
    Ok(writer.into_bytes())
}

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use snafu::{OptionExt, ResultExt, Snafu};
use tracing::{debug, error};
use wire::{ApiKey, DecodeError, Reader, Records, Request, RequestHeader, Writer};

use super::table::{self, Api};
use super::{Answer, ConnectionContext, Part, RequestContext, ResponseFrame, Services};

/// A request that is no request of ours: the connection is closed, as Kafka does.
#[derive(Debug, Snafu)]
pub enum DispatchError {
    #[snafu(display("the frame ends inside the request header"))]
    Header { source: DecodeError },
    #[snafu(display("no API has the key {api_key}"))]
    UnknownApi { api_key: i16 },
    #[snafu(display("{api} is not served in version {version}"))]
    UnsupportedVersion { api: ApiKey, version: i16 },
    #[snafu(display("reading {api} version {version}: {source}"))]
    Body { api: ApiKey, version: i16, source: DecodeError },
}

/// A request whose handler runs when polled.
pub struct Dispatched {
    pub answer: Pin<Box<dyn Future<Output = Answer> + Send>>,
    /// The next request of the same kind may start before this one is answered.
    pub is_pipelined: bool,
    /// It waits until the broker is open to clients, and has not begun before.
    pub is_gated: bool,
    /// How long the connection is muted afterwards; zero = not at all.
    pub throttle: Duration,
    /// For the metrics of whoever sends the answer.
    pub api: ApiKey,
}

/// Starts the request in `frame`, which begins with the request header.
pub fn dispatch(
    services: &Arc<Services>,
    connection: &Arc<ConnectionContext>,
    frame: Bytes,
) -> Result<Dispatched, DispatchError> {
    let size_bytes = frame.len();
    let (api_key, version) = peek(&frame)?;
    let api = table::find(api_key).context(UnknownApiSnafu { api_key })?;
    if !api.accepts(version) {
        return unsupported_version(services, connection, api, version, frame);
    }
    let mut reader = Reader::new(frame);
    let header =
        RequestHeader::decode(&mut reader, api.key.request_header_version(version)).context(HeaderSnafu)?;
    let context = RequestContext {
        connection: Arc::clone(connection),
        api: api.key,
        version,
        correlation_id: header.correlation_id,
        client_id: header.client_id.unwrap_or(wire::Str::EMPTY),
    };
    debug!(api = api.key.name(), api_version = version, correlation_id = header.correlation_id,
        client_id = ?context.client_id, "request");
    let throttle = services.quotas.admit(context.principal(), &context.client_id, size_bytes);
    let Begun { answer, is_in_order } =
        api.begin(Arc::clone(services), context, reader).context(BodySnafu { api: api.key, version })?;
    let is_gated = !api.is_served_early && !services.gate.is_open();
    let answer = if !is_gated {
        answer
    } else {
        let services = Arc::clone(services);
        Box::pin(async move {
            services.gate.opened().await;
            answer.await
        })
    };
    let is_pipelined = api.is_pipelined && is_in_order;
    Ok(Dispatched { answer, is_pipelined, is_gated, throttle, api: api.key })
}

/// Starts a client's request that another broker forwards: one that only the controller serves, in `frame` as a client
/// sends it.
pub(super) fn dispatch_forwarded(
    services: &Arc<Services>,
    client: &Arc<ConnectionContext>,
    frame: Bytes,
) -> Result<Pin<Box<dyn Future<Output = Answer> + Send>>, DispatchError> {
    let (api_key, _) = peek(&frame)?;
    let is_forwardable = table::find(api_key).is_some_and(|api| api.is_forwardable);
    snafu::ensure!(is_forwardable, UnknownApiSnafu { api_key });
    Ok(dispatch(services, client, frame)?.answer)
}

/// Whether the frame whose first two bytes are `api_key` may overtake waiting ones of its kind.
pub fn is_pipelined_frame(api_key: &[u8]) -> bool {
    let api = api_key.first_chunk().and_then(|bytes| table::find(i16::from_be_bytes(*bytes)));
    api.is_some_and(|api| api.is_pipelined)
}

fn peek(frame: &Bytes) -> Result<(i16, i16), DispatchError> {
    let mut reader = Reader::new(frame.slice(..frame.len().min(4)));
    let api_key = reader.i16().context(HeaderSnafu)?;
    let version = reader.i16().context(HeaderSnafu)?;
    Ok((api_key, version))
}

/// ApiVersions alone answers versions it does not know, in the layout of version 0, so that a newer client can
/// ask again (KIP-511). Its body is not read.
fn unsupported_version(
    services: &Arc<Services>,
    connection: &Arc<ConnectionContext>,
    api: &Api,
    version: i16,
    frame: Bytes,
) -> Result<Dispatched, DispatchError> {
    if api.key != ApiKey::ApiVersions {
        return UnsupportedVersionSnafu { api: api.key, version }.fail();
    }
    let mut reader = Reader::new(frame);
    let header = RequestHeader::decode(&mut reader, 0).context(HeaderSnafu)?;
    let context = RequestContext {
        connection: Arc::clone(connection),
        api: api.key,
        version: 0,
        correlation_id: header.correlation_id,
        client_id: wire::Str::EMPTY,
    };
    let response = super::api_versions::unsupported_version(services);
    let answer = respond::<wire::ApiVersionsRequest>(&context, &response, Vec::new());
    Ok(Dispatched {
        answer: Box::pin(std::future::ready(answer)),
        is_pipelined: false,
        is_gated: false,
        throttle: Duration::ZERO,
        api: api.key,
    })
}

/// A decoded request.
pub(super) struct Begun {
    pub(super) answer: Pin<Box<dyn Future<Output = Answer> + Send>>,
    /// What it does to logs is done when it first waits: the next request cannot overtake it.
    pub(super) is_in_order: bool,
}

/// Decodes a request and makes the future that answers it.
pub(super) fn begin<R, F, Fut>(
    services: Arc<Services>,
    context: RequestContext,
    mut reader: Reader,
    is_in_order: impl FnOnce(&R) -> bool,
    handle: F,
) -> Result<Begun, DecodeError>
where
    R: Request + Send + 'static,
    F: FnOnce(Arc<Services>, RequestContext, R) -> Fut,
    Fut: Future<Output = Answer> + Send + 'static,
{
    let request = R::decode(&mut reader, context.version)?;
    // What follows the body inside the frame is ignored, as in Kafka.
    drop(reader);
    Ok(Begun { is_in_order: is_in_order(&request), answer: Box::pin(handle(services, context, request)) })
}

/// Encodes a response; `external` are what its [`Records::External`] tokens stand for, in this order.
pub(super) fn respond<R: Request>(
    context: &RequestContext,
    response: &R::Response,
    external: Vec<Part>,
) -> Answer {
    let mut writer = Writer::with_capacity(256);
    if let Err(error) =
        wire::write_response::<R>(&mut writer, context.correlation_id, response, context.version)
    {
        error!(api = context.api.name(), api_version = context.version, %error, "a response cannot be encoded");
        return Answer::Close;
    }
    let mut frame = ResponseFrame::with_errors(writer.take_errors());
    let (buffer, splices) = writer.into_parts();
    let mut buffer = buffer.freeze();
    let mut external: Vec<Option<Part>> = external.into_iter().map(Some).collect();
    let mut taken = 0;
    for splice in splices {
        frame.push(Part::Memory(buffer.split_to(splice.at - taken)));
        taken = splice.at;
        match splice.content {
            Records::Bytes(bytes) => frame.push(Part::Memory(bytes)),
            Records::External { token, .. } => {
                let part = external.get_mut(token as usize).and_then(Option::take);
                frame.push(part.expect("a handler gives a part for each token"));
            }
        }
    }
    frame.push(Part::Memory(buffer));
    Answer::Response(frame)
}

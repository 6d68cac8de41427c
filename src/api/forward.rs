//! What the controller alone serves, asked of another broker: clients of clusters without ZooKeeper may ask any.

use tracing::debug;
use wire::Request;

use super::{RequestContext, Services};
use crate::interbroker::{ForwardedClient, PeerError, RemoteError};

/// The controller's answer to this client's request; `None` = answer here, which on another broker than the controller
/// is NOT_CONTROLLER: this broker is the controller, or the controller takes no forwarded requests, as Apache Kafka's
/// on ZooKeeper, or it cannot be reached.
pub(super) async fn to_controller<R: Request>(
    services: &Services,
    context: &RequestContext,
    request: &R,
) -> Option<R::Response> {
    let controller = services.metadata.image().controller_id();
    if services.controller.is_active() || controller == services.broker_id {
        return None;
    }
    // A broker of another kind would close the connection.
    if !services.admin.is_of_our_kind(controller).await {
        return None;
    }
    let peer = services.peers.peer(controller).ok()?;
    let principal = context.principal();
    let client = ForwardedClient {
        client_id: context.client_id.clone(),
        address: context.connection.peer.ip().to_canonical(),
        principal_kind: principal.kind().to_owned(),
        principal_name: principal.name().to_owned(),
    };
    match peer.forward(request, context.version, &client).await {
        Ok(response) => Some(response),
        Err(PeerError::Refused { error: RemoteError::NotController }) => None,
        Err(error) => {
            debug!(api = context.api.name(), broker_id = controller.0, %error, "a request was not forwarded");
            None
        }
    }
}

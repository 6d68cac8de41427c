//! The brokers of the cluster (KIP-700).
//!
//! Behaviour: answered from this broker's image. Only brokers can be described, there are no controller endpoints.
//!
//! Versions: 1 endpoint type (KIP-919) · 2 fenced brokers, of which this kind of cluster has none (KIP-1073).

use wire::describe_cluster_response::DescribeClusterBroker;
use wire::{DescribeClusterRequest, DescribeClusterResponse, Str};

use super::metadata::controller_id;
use super::{ErrorCode, RequestContext, Services};
use crate::security::Resource;

const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: DescribeClusterRequest,
) -> DescribeClusterResponse {
    if context.version >= 1 && request.endpoint_type != BROKERS {
        let (code, message) = match request.endpoint_type {
            CONTROLLERS => (
                ErrorCode::MismatchedEndpointType,
                "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
            ),
            _ => (ErrorCode::UnsupportedEndpointType, "Unsupported endpoint type"),
        };
        return DescribeClusterResponse {
            error_code: code.code(),
            error_message: Some(Str::from_static(message)),
            endpoint_type: BROKERS,
            ..DescribeClusterResponse::default()
        };
    }
    let image = services.metadata.image();
    let brokers = image.brokers_on(context.listener()).map(|(broker, endpoint)| DescribeClusterBroker {
        broker_id: broker.id.0,
        host: endpoint.host.as_str().into(),
        port: i32::from(endpoint.port),
        rack: broker.rack.as_deref().map(Str::from),
        is_fenced: false,
    });
    let mut response = DescribeClusterResponse {
        cluster_id: services.cluster_id.as_str().into(),
        controller_id: controller_id(&image, context.listener()).0,
        brokers: brokers.collect(),
        ..DescribeClusterResponse::default()
    };
    if request.include_cluster_authorized_operations {
        response.cluster_authorized_operations =
            services.authorizer.authorized_operations(context.principal(), Resource::Cluster);
    }
    response
}

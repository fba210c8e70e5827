//! The gRPC face: `tidegate.v1` over the engine, with reflection and health.

mod columns;
mod convert;
mod encoder;
mod field;
mod header;
mod limits;
mod rows;
mod service;
#[cfg(test)]
mod tests;
mod values;

use tidegate_api::v1::tidegate_server::TidegateServer;
use tonic::service::Routes;
use tonic_health::server::HealthReporter;

use crate::engine::Clusters;
use service::Service;

/// What the gRPC face accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrpcLimits {
    /// The largest message of a request, in bytes. Default: 16 MiB.
    pub max_request_message_bytes: usize,
}

impl Default for GrpcLimits {
    fn default() -> Self {
        Self { max_request_message_bytes: 16 << 20 }
    }
}

/// The services, and the switch of their health.
pub(crate) struct Grpc {
    pub(crate) routes: Routes,
    pub(crate) health: HealthReporter,
}

/// `tidegate.v1.Tidegate` with reflection (v1 and v1alpha) and health.
pub(crate) async fn services(clusters: Clusters, limits: GrpcLimits) -> Result<Grpc, tonic_reflection::server::Error> {
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<TidegateServer<Service>>().await;
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(tidegate_api::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let tidegate =
        TidegateServer::new(Service { clusters, limits }).max_decoding_message_size(limits.max_request_message_bytes);
    let mut routes = Routes::builder();
    routes
        .add_service(tidegate)
        .add_service(health_service)
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?);
    Ok(Grpc { routes: routes.routes(), health })
}

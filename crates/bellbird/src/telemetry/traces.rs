//! Sends the spans of requests, jobs, deliveries and provider calls to a collector, by OTLP over
//! HTTP. They hold what the log holds: ids and words of ours, never a row, a key or a text that a
//! client chose.

use std::time::Duration;

use async_trait::async_trait;
use bellbird_providers::http::pool::{self, GaiResolver, Limits, Pool};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tokio::runtime::Handle;
use uuid::Uuid;

/// A batch that the collector has not taken by then is lost.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
const RESPONSE_BYTES_MAX: usize = 64 * 1024;
const LIMITS: Limits = Limits {
    connect_timeout: Duration::from_secs(5),
    tcp_timeout: None,
    idle_timeout: Duration::from_secs(30),
    idle_max: 1,
    reuse_max: Duration::from_secs(300),
    read_buffer_bytes: 16 * 1024,
    headers_max: 100,
};

/// Sends spans until it is stopped. Up to 2,048 wait, further ones are lost.
pub struct Traces(SdkTracerProvider);

impl Traces {
    /// `url` is that of the collector, without `/v1/traces`. Must be called within a runtime, which
    /// sends the spans.
    ///
    /// # Errors
    /// If TLS cannot be set up.
    pub fn start(url: &str) -> Result<Self, String> {
        let pool = Pool::new(
            pool::tls_config("the collector of traces")?,
            GaiResolver::new(),
            LIMITS,
        );
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Client {
                pool,
                runtime: Handle::current(),
            })
            .with_endpoint(format!("{}/v1/traces", url.trim_end_matches('/')))
            .with_timeout(EXPORT_TIMEOUT)
            .build()
            .map_err(|error| error.to_string())?;
        let resource = Resource::builder_empty()
            .with_service_name("bellbird")
            .with_attributes([
                KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
                KeyValue::new("service.instance.id", Uuid::new_v4().to_string()),
            ]);
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource.build());
        Ok(Self(provider.build()))
    }

    pub(super) fn tracer(&self) -> SdkTracer {
        self.0.tracer("bellbird")
    }

    /// Sends what waits, for five seconds at most.
    pub async fn stop(self) {
        // Its own thread sends with this runtime, so the runtime must not wait for it.
        let stopped =
            tokio::task::spawn_blocking(move || self.0.shutdown_with_timeout(STOP_TIMEOUT));
        if !matches!(stopped.await, Ok(Ok(()))) {
            tracing::warn!("could not send the last traces");
        }
    }
}

#[derive(Clone)]
struct Client {
    pool: Pool,
    runtime: Handle,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let pool = self.pool.clone();
        let send = async move {
            let response = pool.send(request.map(Full::new)).await?;
            let (head, body) = response.into_parts();
            let body = pool::read(body, RESPONSE_BYTES_MAX)
                .await
                .map_err(|_| "could not read the response")?;
            Ok(Response::from_parts(head, body))
        };
        // A timeout is made within the runtime.
        self.runtime
            .spawn(async { tokio::time::timeout(EXPORT_TIMEOUT, send).await })
            .await??
    }
}

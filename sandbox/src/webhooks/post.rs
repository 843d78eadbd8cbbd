//! Sends one POST over HTTP/1.1 on its own connection.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE};
use http::{Request, Uri};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use crate::refused::Refused;

/// The headers and body of an attempt.
#[derive(Debug, Clone)]
pub(super) struct SignedRequest {
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Bytes,
}

/// Parses a plain HTTP URL. HTTPS is not needed, because receivers run on the test's machine.
pub(super) fn parse(url: &str) -> Result<Uri, Refused> {
    let uri: Option<Uri> = url.parse().ok();
    uri.filter(|uri| uri.scheme_str() == Some("http"))
        .ok_or_else(|| "\"url\" must be a URL such as http://127.0.0.1:8080/hooks, or null".into())
}

/// Posts a request and returns the status of the response. Redirects are not followed.
pub(super) async fn post(to: String, sent: &SignedRequest) -> Option<u16> {
    let client: Client<HttpConnector, Full<Bytes>> =
        Client::builder(TokioExecutor::new()).build_http();
    let mut request = Request::post(to)
        .header(CONTENT_TYPE, "application/json")
        .header(CONNECTION, "close");
    for (name, value) in &sent.headers {
        request = request.header(*name, value);
    }
    let request = request.body(Full::new(sent.body.clone())).ok()?;
    let response = client.request(request).await.ok()?;
    Some(response.status().as_u16())
}

//! Calls the service: one request for each message.

use bellbird_interop::mcp::message::Request;
use bellbird_interop::mcp::revision::{
    METHOD_HEADER, NAME_HEADER, VERSION_HEADER, encode, name_in_body, version_in_body,
};
use bellbird_interop::mcp::rpc::RpcError;
use bellbird_providers::http::pool::{self, Pool};
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use http_body_util::Full;
use serde_json::Value;

use crate::cli::service_client::{TIMEOUT, connect};
use crate::config::client::{KEY, URL, service_key, service_url};

const RESPONSE_BYTES_MAX: usize = 1024 * 1024;

pub(super) struct Bridge {
    pool: Pool,
    url: String,
    authorization: HeaderValue,
}

impl Bridge {
    /// To the service that the environment names. Fails with a message for the user.
    pub(super) fn from_process() -> Result<Self, String> {
        let url = service_url()?;
        let (pool, authorization) = connect(&service_key()?)?;
        // Programs that call a URL are given that of `/mcp`.
        let url = format!("{}/mcp", url.strip_suffix("/mcp").unwrap_or(&url));
        Ok(Self {
            pool,
            url,
            authorization,
        })
    }

    /// Returns the response to a request, in one line. A failure of the transport is an error of
    /// the request.
    pub(super) async fn call(&self, request: &Request, line: Vec<u8>) -> Vec<u8> {
        let response = match tokio::time::timeout(TIMEOUT, self.send(request, line)).await {
            Ok(response) => response,
            Err(_) => Err(RpcError::of_status(
                StatusCode::GATEWAY_TIMEOUT,
                "The service did not respond in time",
            )),
        };
        response.unwrap_or_else(|error| error.body(Some(&request.id)))
    }

    async fn send(&self, request: &Request, line: Vec<u8>) -> Result<Vec<u8>, RpcError> {
        let unreachable = || {
            RpcError::of_status(
                StatusCode::BAD_GATEWAY,
                format!("The service does not respond: see {URL}"),
            )
        };
        let http_request = self.http_request(request, line)?;
        let response = self
            .pool
            .send(http_request)
            .await
            .map_err(|_| unreachable())?;
        let status = response.status();
        let body = pool::read(response.into_body(), RESPONSE_BYTES_MAX)
            .await
            .map_err(|_| unreachable())?;
        as_line(request, status, &body)
    }

    fn http_request(
        &self,
        request: &Request,
        line: Vec<u8>,
    ) -> Result<http::Request<Full<Bytes>>, RpcError> {
        let mut head = http::Request::post(&self.url)
            .header(AUTHORIZATION, self.authorization.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream");
        // Legacy requests have no such headers, or need none.
        if let Some(version) = version_in_body(request)? {
            head = head
                .header(VERSION_HEADER, version)
                .header(METHOD_HEADER, &request.method);
            if let Some(name) = name_in_body(request) {
                head = head.header(NAME_HEADER, encode(name));
            }
        }
        let unsendable = |_| {
            RpcError::of_status(
                StatusCode::BAD_REQUEST,
                "A method or version has characters that no header has",
            )
        };
        head.body(Full::from(line)).map_err(unsendable)
    }
}

/// Returns the service's response as one line with the request's id. Anything but a message becomes
/// an error.
fn as_line(request: &Request, status: StatusCode, body: &[u8]) -> Result<Vec<u8>, RpcError> {
    let message: Option<Value> = serde_json::from_slice(body).ok();
    let Some(Value::Object(mut message)) = message.filter(|message| message["jsonrpc"] == "2.0")
    else {
        let text = format!("The service responded with {status}, which is not MCP: see {URL}");
        return Err(RpcError::of_status(status, text));
    };
    if status == StatusCode::UNAUTHORIZED {
        return Err(RpcError::of_status(
            status,
            format!("The service does not accept the key: see {KEY}"),
        ));
    }
    if message
        .get("error")
        .is_some_and(|error| error["code"] == StatusCode::NOT_FOUND.as_u16())
    {
        return Err(RpcError::of_status(
            status,
            format!("The service has no MCP at this address: see {URL}"),
        ));
    }
    // An error of the layers around the service has no id.
    let id = serde_json::to_value(&request.id).unwrap_or_default();
    message.insert("id".to_owned(), id);
    serde_json::to_vec(&message)
        .map_err(|_| RpcError::of_status(status, "The service's response is not a message"))
}

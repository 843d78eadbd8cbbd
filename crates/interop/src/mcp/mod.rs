//! The Model Context Protocol: `POST /mcp`, read-only and stateless, in both eras of the protocol.
//!
//! Each request gets its whole response from the instance that received it. Nothing is kept between
//! requests: a result that is cut has a sealed cursor, which any instance opens.

mod arguments;
mod body;
mod cursor;
mod definitions;
mod known_rows;
pub mod message;
mod output;
pub mod revision;
pub mod rpc;
mod texts;
mod tools;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use bellbird_api::http::json::json_bytes;
use bellbird_api::http::problem::{BELLBIRD_ERROR, json_response};
use bellbird_api::http::{
    Authorized, Interface, Problem, Routes, UnknownPath, UserState, WireStyle,
};
use bellbird_domain::Caller;
use http::header::ORIGIN;
use http::{HeaderMap, HeaderValue, StatusCode};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::Interop;
use definitions::{INSTRUCTIONS, TOOLS, Tool};
use message::{Message, Request};
use revision::{LEGACY_VERSIONS, MODERN_VERSION};
use rpc::{Era, RpcError};

/// Most rows of one result, as of a window of `/v1/transactions`.
const ROWS_MAX: u32 = 500;
/// How long clients may keep the list of tools. It changes with the version of the program only.
const CACHE_HINTS: &str = r#","ttlMs":3600000,"cacheScope":"public""#;

/// What a page sends with a message.
const CORS_HEADERS: [&str; 3] = ["mcp-protocol-version", "mcp-method", "mcp-name"];

const STYLE: WireStyle = WireStyle {
    error: error_response,
    cors_headers: Some(&CORS_HEADERS),
    ..WireStyle::JSON
};

pub(crate) fn interface(interop: &Interop) -> Interface {
    let router: Router<UserState<Interop>> = Router::new().route("/mcp", post(handle_message));
    let routes = Routes::new().users(
        |interop: &Interop| &interop.context.quotas().metadata,
        router,
    );
    Interface::new(&interop.context, "/mcp", STYLE, UnknownPath::Public).add(interop, routes)
}

/// An error before the message was read, so it has no id.
fn error_response(problem: Problem) -> Response {
    let message = match problem {
        Problem::MethodNotAllowed => "Method not allowed: use POST".to_owned(),
        _ => problem.message(),
    };
    let mut response = json_response(problem);
    *response.body_mut() = Body::from(RpcError::of_status(response.status(), message).body(None));
    response
}

async fn handle_message(
    State(interop): State<Interop>,
    Authorized { caller, now, .. }: Authorized,
    headers: HeaderMap,
    body: Body,
) -> Response {
    if !is_allowed_origin(&headers, &interop) {
        let error = RpcError::of_status(
            StatusCode::FORBIDDEN,
            "Pages of this origin may not call: see api.cors_origins",
        );
        return respond(StatusCode::FORBIDDEN, error.body(None));
    }
    let body = match body::read(&headers, body).await {
        Ok(body) => body,
        Err(error) => return respond(error.status(Era::Modern), error.body(None)),
    };
    let request = match Message::parse(&body) {
        Ok(Message::Request(request)) => request,
        Ok(Message::Notification(_) | Message::Response) => {
            return StatusCode::ACCEPTED.into_response();
        }
        Err(unreadable) => {
            return respond(
                unreadable.error.status(Era::Modern),
                unreadable.error.body(unreadable.id.as_ref()),
            );
        }
    };
    let era = match Era::of(&headers, &request) {
        Ok(era) => era,
        Err(error) => return respond(error.status(Era::Modern), error.body(Some(&request.id))),
    };
    let id = request.id.clone();
    match run(&interop, &caller, now, era, request).await {
        Ok(members) => respond(StatusCode::OK, rpc::result(&id, era, &members)),
        Err(error) => respond(error.status(era), error.body(Some(&id))),
    }
}

fn respond(status: StatusCode, body: Vec<u8>) -> Response {
    let mut response = json_bytes(body);
    *response.status_mut() = status;
    if status != StatusCode::OK {
        let code = HeaderValue::from_static(code_of(status));
        response.headers_mut().insert(BELLBIRD_ERROR, code);
    }
    response
}

/// The word of the API for an error of the protocol, whose body has a code of its own.
fn code_of(status: StatusCode) -> &'static str {
    let problem = match status {
        StatusCode::FORBIDDEN => return "origin_not_allowed",
        StatusCode::NOT_FOUND => Problem::NoSuchPath,
        StatusCode::PAYLOAD_TOO_LARGE => Problem::BodyTooLarge,
        StatusCode::INTERNAL_SERVER_ERROR => Problem::Internal,
        _ => Problem::bad_request(""),
    };
    problem.code()
}

/// A page in a browser sends its origin. Only pages that the operator named may call, and those of
/// the service itself. `Host` is not checked: a proxy may set it, and a page that reaches the
/// service under another name has no key.
fn is_allowed_origin(headers: &HeaderMap, interop: &Interop) -> bool {
    let mut lines = headers.get_all(ORIGIN).iter();
    let Some(line) = lines.next() else {
        return true;
    };
    let Some(origin) = line.to_str().ok().filter(|_| lines.next().is_none()) else {
        return false;
    };
    let is_same_origin = interop
        .public_url
        .get()
        .strip_prefix(origin)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    // `https://` begins the service's URL, and is not an origin.
    is_same_origin && !origin.ends_with('/') && origin.contains("://")
        || interop
            .context
            .cors_origins()
            .iter()
            .any(|allowed| allowed == origin)
}

/// Runs a method. Returns the members of its result.
async fn run(
    interop: &Interop,
    caller: &Caller,
    now: Timestamp,
    era: Era,
    request: Request,
) -> Result<Vec<u8>, RpcError> {
    match (era, request.method.as_str()) {
        (Era::Legacy, "initialize") => initialize(&request.params),
        (Era::Legacy, "ping") => Ok(Vec::new()),
        (Era::Modern, "server/discover") => discover(),
        (_, "tools/list") => list_tools(era, &request.params),
        (_, "tools/call") => {
            let (tool, arguments) = tool_call(request.params)?;
            Ok(tools::call(interop, caller, now, tool, arguments).await)
        }
        _ => Err(RpcError::method_not_found()),
    }
}

fn initialize(params: &Map<String, Value>) -> Result<Vec<u8>, RpcError> {
    let Some(requested) = params.get("protocolVersion").and_then(Value::as_str) else {
        return Err(RpcError::invalid_params(
            "protocolVersion: must be a string",
        ));
    };
    // A client that does not speak this version disconnects.
    let version = LEGACY_VERSIONS
        .into_iter()
        .find(|version| *version == requested)
        .unwrap_or(LEGACY_VERSIONS[0]);
    members(&json!({
        "protocolVersion": version,
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "bellbird", "title": "Bellbird", "version": env!("CARGO_PKG_VERSION")},
        "instructions": INSTRUCTIONS,
    }))
}

fn discover() -> Result<Vec<u8>, RpcError> {
    let mut members = members(&json!({
        "supportedVersions": [MODERN_VERSION],
        "capabilities": {"tools": {}},
        "instructions": INSTRUCTIONS,
    }))?;
    members.extend_from_slice(CACHE_HINTS.as_bytes());
    Ok(members)
}

fn list_tools(era: Era, params: &Map<String, Value>) -> Result<Vec<u8>, RpcError> {
    if params.get("cursor").is_some_and(|cursor| !cursor.is_null()) {
        return Err(RpcError::invalid_params(
            "cursor: the list of tools has one page",
        ));
    }
    let hints = if era == Era::Modern { CACHE_HINTS } else { "" };
    Ok([r#""tools":"#, &TOOLS, hints].concat().into_bytes())
}

fn tool_call(mut params: Map<String, Value>) -> Result<(Tool, Map<String, Value>), RpcError> {
    let tool = params
        .get("name")
        .and_then(Value::as_str)
        .and_then(Tool::find);
    let Some(tool) = tool else {
        return Err(RpcError::invalid_params(
            "Unknown tool: tools/list has their names",
        ));
    };
    match params.remove("arguments") {
        None | Some(Value::Null) => Ok((tool, Map::new())),
        Some(Value::Object(arguments)) => Ok((tool, arguments)),
        Some(_) => Err(RpcError::invalid_params("arguments: must be an object")),
    }
}

/// The members of an object as JSON, without braces.
fn members(object: &Value) -> Result<Vec<u8>, RpcError> {
    let json = serde_json::to_vec(object).map_err(|_| RpcError::internal("Internal error"))?;
    Ok(json
        .get(1..json.len().saturating_sub(1))
        .unwrap_or_default()
        .to_vec())
}

//! The OpenAPI 3.1 document. Paths and schemas come from the handlers and views; what every operation shares (headers,
//! refusals, parameters with their bounds) is added here, once.

use std::sync::LazyLock;

use axum::body::Body;
use axum::response::Response;
use bellbird_domain::page;
use bytes::Bytes;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use serde_json::{Map, Value, json};
use utoipa::PartialSchema;

use crate::handlers::transactions::SUNSET_DATE;
use crate::params;
use crate::problem::{ErrorBody, ErrorObject};
use crate::router;

static DOCUMENT: LazyLock<Value> = LazyLock::new(build);
static JSON: LazyLock<Bytes> = LazyLock::new(|| serde_json::to_vec_pretty(&*DOCUMENT).unwrap_or_default().into());
static YAML: LazyLock<Bytes> =
    LazyLock::new(|| yaml_serde::to_string(&*DOCUMENT).map(String::into_bytes).unwrap_or_default().into());

/// The document.
#[must_use]
pub fn document() -> &'static Value {
    &DOCUMENT
}

/// The document as indented JSON.
#[must_use]
pub fn json_text() -> &'static [u8] {
    &JSON
}

/// The document as YAML.
#[must_use]
pub fn yaml_text() -> &'static [u8] {
    &YAML
}

/// `GET /openapi.json`
pub(crate) async fn serve_json() -> Response {
    serve(JSON.clone(), "application/json")
}

/// `GET /openapi.yaml`
pub(crate) async fn serve_yaml() -> Response {
    serve(YAML.clone(), "application/yaml")
}

fn serve(body: Bytes, content_type: &'static str) -> Response {
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    response
}

const DESCRIPTION: &str = "\
Bellbird is a read-only API over a person's linked bank and brokerage accounts. Everything about money is fetched live from the \
institution's data provider when it is asked for; nothing of it is stored.

**Authentication.** Every path under `/v1` needs an API key: `Authorization: Bearer <key>`. The service's host makes one with \
`bellbird key create`. Access needs a Developer or Professional plan; holdings \
and trades need the Professional plan.

**Decimals** are strings, exact to the last digit the provider sent. Parse them as decimals, not as floats.

**Errors** on every path are `{\"error\": {\"message\", \"code\"?, \"details\"?}}`. Quote `X-Request-Id` when you report one.

**Limits.** Each key has a bucket of calls a minute that refills evenly; every `/v1` answer to a valid key tells what is left in \
`X-RateLimit-*`. A 429 carries `Retry-After` in seconds: the next call after it succeeds.

**Unknown query parameters** are ignored; a known one that stands twice is refused. `HEAD` answers as `GET`, without a body.";

fn build() -> Value {
    let described = serde_json::to_value(router::described()).unwrap_or_default();
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Bellbird REST API for bank accounts, transactions and connections",
            "version": "1.0.0",
            "description": DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "This service"}],
        "tags": [
            {"name": "Connections and accounts", "description": "What is linked. Answered from the service's own database."},
            {"name": "Balances", "description": "Read live, kept for five minutes."},
            {"name": "Transactions", "description": "Read live, never kept."},
            {"name": "Holdings and trades", "description": "Of brokerage connections. Read live, kept for ten minutes. Part of the Professional plan."},
            {"name": "Service", "description": "About the service itself."},
        ],
        "security": [{"apiKey": []}],
        "paths": described["paths"],
        "components": described["components"],
    });
    components(&mut document["components"]);
    if let Some(paths) = document["paths"].as_object_mut() {
        for (path, item) in paths {
            complete(path, &mut item["get"]);
        }
    }
    document
}

fn components(components: &mut Value) {
    components["securitySchemes"] = json!({
        "apiKey": {
            "type": "http", "scheme": "bearer", "bearerFormat": "bb_ followed by 38 letters and digits",
            "description": "An API key of the user whose data is read.",
        }
    });
    components["schemas"]["ErrorBody"] = serde_json::to_value(ErrorBody::schema()).unwrap_or_default();
    components["schemas"]["Error"] = serde_json::to_value(ErrorObject::schema()).unwrap_or_default();
    components["headers"] = headers();
    for (schema, member, values) in [
        ("Connection", "category", json!(["banking", "brokerage"])),
        ("Connection", "status", json!(["active", "invalidated", "pending_mfa", "revoked"])),
        (
            "Account",
            "type",
            json!(["transaction", "savings", "credit-card", "loan", "investment", "term-deposit", "other"]),
        ),
        ("Trade", "type", json!(bellbird_domain::TradeType::ALL)),
        ("Transaction", "status", json!(["posted"])),
        ("Transaction", "direction", json!(["credit", "debit"])),
        ("Category", "key", categories(false)),
        ("Transaction", "category", categories(true)),
    ] {
        components["schemas"][schema]["properties"][member]["enum"] = values;
    }
}

fn categories(or_null: bool) -> Value {
    let keys = bellbird_domain::Category::ALL.iter().map(|category| json!(category.key()));
    keys.chain(or_null.then_some(Value::Null)).collect()
}

fn headers() -> Value {
    let integer = |description: &str, example: u32| json!({"description": description, "schema": {"type": "integer", "minimum": 0}, "example": example});
    let text = |description: &str, example: &str| json!({"description": description, "schema": {"type": "string"}, "example": example});
    json!({
        "X-Request-Id": {
            "description": "Identifies this answer; the service's log has the same id.",
            "schema": {"type": "string", "format": "uuid"}, "example": "5f0c1b1e-6c3e-4c55-9a0e-3f1f7c9b8a21",
        },
        "X-RateLimit-Limit": integer("Calls in a full bucket. Absent where there is no limit.", 60),
        "X-RateLimit-Remaining": integer("Calls that could follow at once.", 59),
        "X-RateLimit-Reset": integer("Whole seconds until the next call is free; 0 while there is one.", 0),
        "Retry-After": integer("Whole seconds to wait, at least 1.", 2),
        "Cache-Control": text("No cache but the service's own keeps an answer.", "private, no-store"),
        "WWW-Authenticate": text("How to authenticate.", "Bearer"),
        "Allow": text("The methods that the path knows.", "GET, HEAD"),
        "X-Cache": {
            "description": "`HIT`: kept from an earlier call. `MISS`: read now, and kept. `BYPASS`: read now, not kept.",
            "schema": {"type": "string", "enum": ["HIT", "MISS", "BYPASS"]}, "example": "MISS",
        },
        "Age": integer("On a hit, the answer's age in seconds.", 42),
        "X-Service-Truncated": {
            "description": "Present when counting stopped before the provider's end.",
            "schema": {"type": "string", "enum": ["true"]}, "example": "true",
        },
        "Deprecation": {
            "description": "Present when the call leaves out `accountId`.",
            "schema": {"type": "string", "enum": ["true"]}, "example": "true",
        },
        "Sunset": text("When the deprecated form ends.", SUNSET_DATE),
        "Link": text("Where the deprecation is explained.", "<http://127.0.0.1:8080/docs>; rel=\"deprecation\""),
    })
}

const REFUSALS: [(&str, &str); 7] = [
    ("401", "The API key is missing or not valid."),
    ("403", "The user's plan has no API access."),
    ("405", "Only GET and HEAD are known."),
    ("414", "The URL is longer than 16 KiB."),
    ("429", "Too many calls with this key, or too many failed authentications from this address."),
    ("431", "The headers are larger than 64 KiB."),
    ("500", "A fault of the service."),
];

const NO_SUCH_DATA: (&str, &str) = ("404", "No such connection, or no such account in it.");
const PROVIDER_FAILED: (&str, &str) =
    ("503", "The provider is temporarily unavailable (`Retry-After` is set), or the user must reconnect (it is not).");
const BAD_BROKERAGE_REQUEST: (&str, &str) =
    ("400", "A parameter is missing or wrong, one `details` entry each; or it is not a brokerage connection.");
const NEEDS_PROFESSIONAL: (&str, &str) = (
    "403",
    "The user's plan has no API access, or is not the Professional plan (`error.code` is `professional_required`).",
);

/// Parameters, refusals and headers of one operation.
fn complete(path: &str, operation: &mut Value) {
    let (parameters, extra, answer_headers): (Vec<Value>, &[(&str, &str)], &[&str]) = match path {
        "/v1/accounts" => (params::describe_page(page::ACCOUNTS), &[("400", "`limit` or `offset` is wrong.")], &[]),
        "/v1/balances" => (
            params::describe_account_ids(),
            &[
                ("400", "`accountIds` is missing, empty, given twice, or has more than 100 ids."),
                ("404", "One or more of the ids are not accounts of this user; which, and why, is not said."),
                ("503", "Every account's provider is temporarily unavailable."),
            ],
            &["X-Cache", "Age"],
        ),
        "/v1/transactions" => (
            [
                params::describe_connection_and_account(
                    "Leaving it out, which reads all accounts of the connection, is deprecated.",
                ),
                params::describe_bounds("Default: 30 days (720 hours) ago.", "Default: now."),
                params::describe_page(page::TRANSACTIONS),
            ]
            .concat(),
            &[
                (
                    "400",
                    "A parameter is missing or wrong, one `details` entry each; or it is not a banking connection.",
                ),
                NO_SUCH_DATA,
                PROVIDER_FAILED,
            ],
            &["X-Cache", "X-Service-Truncated", "Deprecation", "Sunset", "Link"],
        ),
        "/v1/holdings" => (
            params::describe_connection_and_account("Without it all accounts of the connection are shown."),
            &[NEEDS_PROFESSIONAL, BAD_BROKERAGE_REQUEST, NO_SUCH_DATA, PROVIDER_FAILED],
            &["X-Cache", "Age"],
        ),
        "/v1/trades" => (
            [
                params::describe_connection_and_account("Without it all accounts of the connection are read, merged."),
                params::describe_bounds("Default: the broker's own.", "Default: the broker's own."),
                params::describe_page(page::TRADES),
            ]
            .concat(),
            &[NEEDS_PROFESSIONAL, BAD_BROKERAGE_REQUEST, NO_SUCH_DATA, PROVIDER_FAILED],
            &["X-Cache", "Age", "X-Service-Truncated"],
        ),
        _ => (Vec::new(), &[], &[]),
    };
    if !parameters.is_empty() {
        operation["parameters"] = Value::Array(parameters);
    }
    let guarded = path.starts_with("/v1/");
    let database = [("503", "The service's database is temporarily unavailable.")];
    let refusals = REFUSALS.iter().filter(|(status, _)| guarded || !matches!(*status, "401" | "403" | "429"));
    let database = database.iter().filter(|_| guarded && !extra.iter().any(|(status, _)| *status == "503"));
    let mut responses = Map::new();
    let mut success = operation["responses"]["200"].take();
    success["headers"] = references(guarded, answer_headers);
    responses.insert("200".to_owned(), success);
    for (status, description) in refusals.chain(extra).chain(database) {
        responses.insert((*status).to_owned(), refusal(status, description, guarded));
    }
    responses.sort_keys();
    operation["responses"] = Value::Object(responses);
}

fn refusal(status: &str, description: &str, guarded: bool) -> Value {
    let own: &[&str] = match status {
        "401" => &["WWW-Authenticate"],
        "405" => &["Allow"],
        "429" | "503" => &["Retry-After"],
        _ => &[],
    };
    // Refused before the key was looked at, or without one that has a limit.
    let limited = guarded && !matches!(status, "401" | "414" | "431");
    json!({
        "description": description,
        "headers": references(limited, own),
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}},
    })
}

fn references(limited: bool, own: &[&str]) -> Value {
    let limits: &[&str] =
        if limited { &["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"] } else { &[] };
    let names = ["X-Request-Id", "Cache-Control"].iter().chain(limits).chain(own);
    names.map(|name| ((*name).to_owned(), json!({"$ref": format!("#/components/headers/{name}")}))).collect()
}

//! Builds the OpenAPI 3.1 document. Paths, parameters and schemas come from the handlers, queries and views. This
//! module adds the headers and error responses that all operations share.

use std::sync::LazyLock;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use serde_json::{Map, Value, json};
use utoipa::PartialSchema;

use crate::deprecation::SUNSET_DATE;
use crate::handlers;
use crate::problem::{ErrorBody, ErrorObject};

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| build(handlers::documented().into_openapi()));
static JSON: LazyLock<Bytes> = LazyLock::new(|| serde_json::to_vec_pretty(&*DOCUMENT).unwrap_or_default().into());
static YAML: LazyLock<Bytes> =
    LazyLock::new(|| yaml_serde::to_string(&*DOCUMENT).map(String::into_bytes).unwrap_or_default().into());

#[must_use]
pub fn document() -> &'static Value {
    &DOCUMENT
}

/// Indented JSON.
#[must_use]
pub fn json_text() -> &'static [u8] {
    &JSON
}

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
Bellbird is a read-only API for a user's linked bank and brokerage accounts. Each request reads balances, \
transactions, holdings and trades live from the institution's data provider. Bellbird does not store them.

**Authentication.** Every path under `/v1` needs an API key: `Authorization: Bearer <key>`. The operator of the \
service creates keys with `bellbird key create`. Access needs a Developer or Professional plan. Holdings and trades \
need the Professional plan.

**Decimals** are strings, exact to the last digit that the provider sent. Parse them as decimals, not as floats.

**Errors** on every path are `{\"error\": {\"message\", \"code\"?, \"details\"?}}`. Quote \
`X-Request-Id` when you report one.

**Limits.** Each key has a bucket of requests a minute that refills evenly. Every `/v1` response to a valid key shows \
the remaining requests in `X-RateLimit-*`. A 429 has `Retry-After` in seconds: a request after that time succeeds.

**Query parameters.** Unknown parameters are ignored. A repeated known parameter is an error. `HEAD` works like `GET`, \
without a body.";

fn build(described: utoipa::openapi::OpenApi) -> Value {
    let described = serde_json::to_value(described).unwrap_or_default();
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
            {
                "name": "Connections and accounts",
                "description": "Linked connections and their accounts, from the service's database.",
            },
            {"name": "Balances", "description": "Read live, cached for five minutes."},
            {"name": "Transactions", "description": "Read live, never cached."},
            {
                "name": "Holdings and trades",
                "description":
                    "For brokerage connections. Read live, cached for ten minutes. Part of the Professional plan.",
            },
            {"name": "Service", "description": "The service itself."},
        ],
        "security": [{"apiKey": []}],
        "paths": described["paths"],
        "components": described["components"],
    });
    components(&mut document["components"]);
    if let Some(paths) = document["paths"].as_object_mut() {
        for (path, item) in paths {
            complete_operation(path, &mut item["get"]);
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

fn categories(nullable: bool) -> Value {
    let keys = bellbird_domain::Category::ALL.iter().map(|category| json!(category.key()));
    keys.chain(nullable.then_some(Value::Null)).collect()
}

fn headers() -> Value {
    let integer = |description: &str, example: u32| {
        let schema = json!({"type": "integer", "minimum": 0});
        json!({"description": description, "schema": schema, "example": example})
    };
    let text = |description: &str, example: &str| {
        let schema = json!({"type": "string"});
        json!({"description": description, "schema": schema, "example": example})
    };
    json!({
        "X-Request-Id": {
            "description": "Identifies this response. The service's log has the same id.",
            "schema": {"type": "string", "format": "uuid"}, "example": "5f0c1b1e-6c3e-4c55-9a0e-3f1f7c9b8a21",
        },
        "X-RateLimit-Limit": integer("Requests in a full bucket. Absent if there is no limit.", 60),
        "X-RateLimit-Remaining": integer("Requests remaining before throttling.", 59),
        "X-RateLimit-Reset": integer("Whole seconds until the next request is allowed; 0 while requests remain.", 0),
        "Retry-After": integer("Whole seconds to wait, at least 1.", 2),
        "Cache-Control": text("Clients and proxies must not store responses.", "private, no-store"),
        "WWW-Authenticate": text("How to authenticate.", "Bearer"),
        "Allow": text("The methods that the path supports.", "GET, HEAD"),
        "X-Cache": {
            "description": "`HIT`: served from the cache. `MISS`: read now and cached. `BYPASS`: read now, not cached.",
            "schema": {"type": "string", "enum": ["HIT", "MISS", "BYPASS"]}, "example": "MISS",
        },
        "Age": integer("On a cache hit, the age of the response in seconds.", 42),
        "X-Service-Truncated": {
            "description": "Present if counting stopped before the end of the provider's list.",
            "schema": {"type": "string", "enum": ["true"]}, "example": "true",
        },
        "Deprecation": {
            "description": "Present if the request omits `accountId`.",
            "schema": {"type": "string", "enum": ["true"]}, "example": "true",
        },
        "Sunset": text("The date on which the deprecated form stops working.", SUNSET_DATE),
        "Link": text("A page that explains the deprecation.", "<http://127.0.0.1:8080/docs>; rel=\"deprecation\""),
    })
}

const ERROR_RESPONSES: [(&str, &str); 7] = [
    ("401", "The API key is missing or not valid."),
    ("403", "The user's plan has no API access."),
    ("405", "The method is not GET or HEAD."),
    ("414", "The URL is longer than 16 KiB."),
    ("429", "Too many requests with this key, or too many failed authentications from this client address."),
    ("431", "The headers are larger than 64 KiB."),
    ("500", "Internal error of the service."),
];

const DATA_NOT_FOUND: (&str, &str) = ("404", "The connection does not exist, or has no such account.");
const PROVIDER_FAILED: (&str, &str) =
    ("503", "The provider is temporarily unavailable (with `Retry-After`), or the user must reconnect (without it).");
const BAD_BANKING_REQUEST: (&str, &str) = (
    "400",
    "A parameter is missing or invalid (one `details` entry each), or the connection is not a banking connection.",
);
const BAD_BROKERAGE_REQUEST: (&str, &str) = (
    "400",
    "A parameter is missing or invalid (one `details` entry each), or the connection is not a brokerage connection.",
);
const NEEDS_PROFESSIONAL: (&str, &str) = (
    "403",
    "The user's plan has no API access, or is not the Professional plan (`error.code` is `professional_required`).",
);

/// Adds the error responses and headers of one operation.
fn complete_operation(path: &str, operation: &mut Value) {
    let (extra, answer_headers): (&[(&str, &str)], &[&str]) = match path {
        "/v1/accounts" => (&[("400", "`limit` or `offset` is invalid.")], &[]),
        "/v1/balances" => (
            &[
                ("400", "`accountIds` is missing, empty, repeated, or has more than 100 ids."),
                ("404", "At least one id is not an account of this user. The response does not say which one."),
                ("503", "Every account's provider is temporarily unavailable."),
            ],
            &["X-Cache", "Age"],
        ),
        "/v1/transactions" => (
            &[BAD_BANKING_REQUEST, DATA_NOT_FOUND, PROVIDER_FAILED],
            &["X-Cache", "X-Service-Truncated", "Deprecation", "Sunset", "Link"],
        ),
        "/v1/holdings" => {
            (&[NEEDS_PROFESSIONAL, BAD_BROKERAGE_REQUEST, DATA_NOT_FOUND, PROVIDER_FAILED], &["X-Cache", "Age"])
        }
        "/v1/trades" => (
            &[NEEDS_PROFESSIONAL, BAD_BROKERAGE_REQUEST, DATA_NOT_FOUND, PROVIDER_FAILED],
            &["X-Cache", "Age", "X-Service-Truncated"],
        ),
        _ => (&[], &[]),
    };
    for parameter in operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten() {
        // The lines of a doc comment.
        parameter["description"] = parameter["description"].as_str().unwrap_or_default().replace('\n', " ").into();
    }
    let guarded = path.starts_with("/v1/");
    let database = [("503", "The service's database is temporarily unavailable.")];
    let error_responses =
        ERROR_RESPONSES.iter().filter(|(status, _)| guarded || !matches!(*status, "401" | "403" | "429"));
    let database = database.iter().filter(|_| guarded && !extra.iter().any(|(status, _)| *status == "503"));
    let mut responses = Map::new();
    let mut success = operation["responses"]["200"].take();
    success["headers"] = header_references(guarded, answer_headers);
    responses.insert("200".to_owned(), success);
    for (status, description) in error_responses.chain(extra).chain(database) {
        responses.insert((*status).to_owned(), error_response(status, description, guarded));
    }
    responses.sort_keys();
    operation["responses"] = Value::Object(responses);
}

fn error_response(status: &str, description: &str, guarded: bool) -> Value {
    let specific: &[&str] = match status {
        "401" => &["WWW-Authenticate"],
        "405" => &["Allow"],
        "429" | "503" => &["Retry-After"],
        _ => &[],
    };
    // These are sent before the key is known, so there is no limit to show.
    let limited = guarded && !matches!(status, "401" | "414" | "431");
    json!({
        "description": description,
        "headers": header_references(limited, specific),
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}},
    })
}

fn header_references(limited: bool, specific: &[&str]) -> Value {
    let limits: &[&str] =
        if limited { &["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"] } else { &[] };
    let names = ["X-Request-Id", "Cache-Control"].iter().chain(limits).chain(specific);
    names.map(|name| ((*name).to_owned(), json!({"$ref": format!("#/components/headers/{name}")}))).collect()
}

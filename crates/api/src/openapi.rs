//! Builds the OpenAPI 3.1 document. Paths, parameters and schemas come from the handlers, queries and views. This
//! module adds the rest from `assets/openapi.yaml`, above all headers and error responses.

mod webhooks;

use std::collections::BTreeMap;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::PartialSchema;
use utoipa::openapi::OpenApi;

use crate::deprecation::SUNSET_DATE;
use crate::front::problem::{ErrorBody, ErrorObject};
use crate::handlers;
use crate::routes::ROUTES;

/// The OpenAPI document of the API listener.
pub struct Document {
    value: Value,
    json: Bytes,
    yaml: Bytes,
    paths: Vec<String>,
}

impl Document {
    /// `others` describe paths below `/v1` that other doors answer.
    #[must_use]
    pub fn new(others: Vec<OpenApi>) -> Self {
        let mut described = handlers::documented().into_openapi();
        let mut paths: Vec<String> = ROUTES.iter().map(|route| route.path.to_owned()).collect();
        for other in others {
            paths.extend(other.paths.paths.keys().cloned());
            described.merge(other);
        }
        let value = build(described);
        let json = serde_json::to_vec_pretty(&value).unwrap_or_default().into();
        let yaml = yaml_serde::to_string(&value).map(String::into_bytes).unwrap_or_default().into();
        Self { value, json, yaml, paths }
    }

    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Indented JSON.
    #[must_use]
    pub fn json(&self) -> &[u8] {
        &self.json
    }

    #[must_use]
    pub fn yaml(&self) -> &[u8] {
        &self.yaml
    }

    /// Every type of webhook event, in the order of the reference page.
    pub(crate) fn events() -> impl Iterator<Item = &'static str> {
        webhooks::types()
    }

    /// Every path, in the order of the reference page.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().map(String::as_str)
    }
}

/// `GET /openapi.json`
pub(crate) async fn serve_json(document: &'static Document) -> Response {
    serve(document.json.clone(), "application/json")
}

/// `GET /openapi.yaml`
pub(crate) async fn serve_yaml(document: &'static Document) -> Response {
    serve(document.yaml.clone(), "application/yaml")
}

fn serve(body: Bytes, content_type: &'static str) -> Response {
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    response
}

/// The parts of the document that no code has.
#[derive(Default, Deserialize)]
struct Parts {
    document: Value,
    components: Map<String, Value>,
    errors: BTreeMap<String, String>,
    guarded_errors: BTreeMap<String, String>,
    operations: BTreeMap<String, OperationParts>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OperationParts {
    errors: BTreeMap<String, String>,
    headers: Vec<String>,
}

fn build(described: OpenApi) -> Value {
    let described = serde_json::to_value(described).unwrap_or_default();
    let mut parts: Parts = yaml_serde::from_str(include_str!("../assets/openapi.yaml")).unwrap_or_default();
    let mut document = parts.document.take();
    document["paths"] = described["paths"].clone();
    document["components"] = described["components"].clone();
    webhooks::describe(&mut document);
    complete_components(&mut document["components"], &mut parts.components);
    if let Some(paths) = document["paths"].as_object_mut() {
        for (path, item) in paths {
            complete_operation(path, &mut item["get"], &parts);
        }
    }
    document
}

fn complete_components(components: &mut Value, parts: &mut Map<String, Value>) {
    if let Some(components) = components.as_object_mut() {
        components.append(parts);
    }
    components["headers"]["Sunset"]["example"] = SUNSET_DATE.into();
    components["schemas"]["ErrorBody"] = serde_json::to_value(ErrorBody::schema()).unwrap_or_default();
    components["schemas"]["Error"] = serde_json::to_value(ErrorObject::schema()).unwrap_or_default();
    let statuses = json!(["active", "invalidated", "pending_mfa", "revoked"]);
    for (schema, member, values) in [
        ("Connection", "category", json!(bellbird_domain::ConnectionCategory::ALL)),
        ("Connection", "status", statuses.clone()),
        ("EventConnection", "status", statuses.clone()),
        ("EventConnection", "previous_status", statuses),
        ("Account", "type", json!(bellbird_domain::AccountType::ALL)),
        ("Trade", "type", json!(bellbird_domain::TradeType::ALL)),
        ("EventTrade", "type", json!(bellbird_domain::TradeType::ALL)),
        ("Transaction", "status", json!(["posted"])),
        ("Transaction", "direction", json!(["credit", "debit"])),
        ("Category", "key", categories(false)),
        ("Transaction", "category", categories(true)),
        ("EventTransaction", "category", categories(true)),
    ] {
        components["schemas"][schema]["properties"][member]["enum"] = values;
    }
}

fn categories(nullable: bool) -> Value {
    let keys = bellbird_domain::Category::ALL.iter().map(|category| json!(category.key()));
    keys.chain(nullable.then_some(Value::Null)).collect()
}

/// Adds the error responses and headers of one operation.
fn complete_operation(path: &str, operation: &mut Value, parts: &Parts) {
    for parameter in operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten() {
        // The lines of a doc comment.
        parameter["description"] = parameter["description"].as_str().unwrap_or_default().replace('\n', " ").into();
    }
    let guarded = path.starts_with("/v1/");
    let none = OperationParts::default();
    let own = parts.operations.get(path).unwrap_or(&none);
    let mut errors = parts.errors.clone();
    if guarded {
        errors.extend(parts.guarded_errors.clone());
    }
    errors.extend(own.errors.clone());
    let mut responses = Map::new();
    let mut success = operation["responses"]["200"].take();
    success["headers"] = header_references(guarded, own.headers.iter().map(String::as_str));
    responses.insert("200".to_owned(), success);
    for (status, description) in errors {
        let response = error_response(&status, &description, guarded);
        responses.insert(status, response);
    }
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
        "headers": header_references(limited, specific.iter().copied()),
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}},
    })
}

fn header_references<'h>(limited: bool, specific: impl Iterator<Item = &'h str>) -> Value {
    let limits = ["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"];
    let limits = limits.into_iter().filter(|_| limited);
    let names = ["X-Request-Id", "Cache-Control"].into_iter().chain(limits).chain(specific);
    names.map(|name| (name.to_owned(), json!({"$ref": format!("#/components/headers/{name}")}))).collect()
}

//! The OpenAPI 3.1 document and its reference page. Each path is described beside its handler. This module adds the
//! rest from `document.yaml`: headers, and the errors that paths have in common.

mod page;
mod webhooks;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::PartialSchema;

use crate::front::Path;
use crate::front::operation::{Operation, PathDocs};
use crate::front::problem::{ErrorBody, ErrorObject, Problem};
use crate::v1::deprecation::SUNSET_DATE;

/// The OpenAPI document of the API listener.
pub struct Document {
    value: Value,
    json: OnceLock<Bytes>,
    yaml: OnceLock<Bytes>,
    paths: Vec<&'static str>,
}

/// The paths of the document and the page. All are made when they are first asked for: most services never are, and
/// together they would take half of the time of a start.
pub(crate) fn paths(document: fn() -> &'static Document, public_url: &str) -> Vec<Path<()>> {
    let public_url = public_url.to_owned();
    let page = move || page::File::page(document().value(), &document().paths, &public_url);
    vec![
        Path::open("/openapi.json", async move || serve(document().json_bytes(), "application/json")),
        Path::open("/openapi.yaml", async move || serve(document().yaml_bytes(), "application/yaml")),
        file("/docs", page),
        file("/docs/page.js", page::File::script),
        file("/docs/page.css", page::File::style),
        file("/docs/logo.svg", page::File::logo),
    ]
}

fn file(path: &'static str, make: impl Fn() -> page::File + Send + Sync + 'static) -> Path<()> {
    let file = Arc::new((OnceLock::new(), make));
    Path::open(path, async move |headers: HeaderMap| {
        let (made, make) = &*file;
        made.get_or_init(make).response(&headers)
    })
}

impl Document {
    /// `described` are the paths in the order of the reference page.
    #[must_use]
    pub fn new(described: Vec<PathDocs>) -> Self {
        let paths = described.iter().map(|described| described.path).collect();
        Self { value: build(described), json: OnceLock::new(), yaml: OnceLock::new(), paths }
    }

    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Indented JSON.
    #[must_use]
    pub fn json(&self) -> &[u8] {
        self.json_bytes()
    }

    #[must_use]
    pub fn yaml(&self) -> &[u8] {
        self.yaml_bytes()
    }

    fn json_bytes(&self) -> &Bytes {
        self.json.get_or_init(|| serde_json::to_vec_pretty(&self.value).unwrap_or_default().into())
    }

    fn yaml_bytes(&self) -> &Bytes {
        let yaml = || yaml_serde::to_string(&self.value).map(String::into_bytes).unwrap_or_default().into();
        self.yaml.get_or_init(yaml)
    }
}

fn serve(body: &Bytes, content_type: &'static str) -> Response {
    let mut response = Response::new(Body::from(body.clone()));
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
}

fn build(described: Vec<PathDocs>) -> Value {
    let mut parts: Parts = yaml_serde::from_str(include_str!("document.yaml")).unwrap_or_default();
    let mut document = parts.document.take();
    let (mut paths, mut schemas) = (Map::new(), Map::new());
    for mut described in described {
        schemas.extend(described.operation.schemas.drain(..).map(|(name, schema)| (name, json!(schema))));
        paths.insert(described.path.to_owned(), json!({"get": operation(described, &parts)}));
    }
    document["paths"] = paths.into();
    document["components"]["schemas"] = schemas.into();
    webhooks::describe(&mut document);
    complete_components(&mut document["components"], &mut parts.components);
    document
}

fn complete_components(components: &mut Value, parts: &mut Map<String, Value>) {
    if let Some(components) = components.as_object_mut() {
        components.append(parts);
    }
    components["headers"]["Sunset"]["example"] = SUNSET_DATE.into();
    components["headers"]["Bellbird-Error"]["schema"]["examples"] = json!(Problem::CODES);
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
        ("MeData", "plan", json!(bellbird_domain::Plan::ALL)),
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

fn operation(described: PathDocs, parts: &Parts) -> Value {
    let PathDocs { needs_key, parameter, operation: Operation { parameters, content, headers, errors, .. }, .. } =
        &described;
    let in_path = parameter.iter().map(|(name, values)| {
        json!({
            "name": name, "in": "path", "required": true, "description": format!("The {name}."),
            "schema": {"type": "string", "enum": values}, "example": values.first(),
        })
    });
    let parameters: Vec<Value> = in_path.chain(parameters.iter().cloned()).collect();
    let mut descriptions = parts.errors.clone();
    if *needs_key {
        descriptions.extend(parts.guarded_errors.clone());
    }
    descriptions.extend(errors.iter().map(|(status, description)| (status.to_string(), (*description).to_owned())));
    let mut responses = Map::new();
    let success = json!({
        "description": described.operation.success,
        "headers": header_references(*needs_key, headers.iter().copied()),
        "content": content,
    });
    responses.insert("200".to_owned(), success);
    for (status, description) in descriptions {
        let response = error_response(&status, &description, *needs_key);
        responses.insert(status, response);
    }
    let mut operation = json!({
        "tags": [described.operation.tag],
        "summary": described.operation.summary,
        "description": described.operation.description,
        "operationId": described.operation.id,
        "responses": responses,
    });
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if !needs_key {
        operation["security"] = json!([{}]);
    }
    operation
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
        "headers": header_references(limited, ["Bellbird-Error"].into_iter().chain(specific.iter().copied())),
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}},
    })
}

fn header_references<'h>(limited: bool, specific: impl Iterator<Item = &'h str>) -> Value {
    let limits = ["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"];
    let limits = limits.into_iter().filter(|_| limited);
    let names = ["X-Request-Id", "Cache-Control"].into_iter().chain(limits).chain(specific);
    names.map(|name| (name.to_owned(), json!({"$ref": format!("#/components/headers/{name}")}))).collect()
}

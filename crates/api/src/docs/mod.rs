//! The OpenAPI 3.1 document and its reference page. Each path is described beside its handler. This
//! module adds the rest from `document.yaml`: headers, and the errors that paths have in common.

mod page;
mod webhooks;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use axum::body::Body;
use axum::response::Response;
use bellbird_connections::provider_names;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::PartialSchema;

use crate::front::operation::{Operation, PathDocs};
use crate::front::problem::{ErrorBody, ErrorObject, Problem};
use crate::front::{Path, RouteMethod};
use crate::v1::deprecation::SUNSET_DATE;

/// The OpenAPI document of the API listener.
pub struct Document {
    value: Value,
    json: OnceLock<Bytes>,
    yaml: OnceLock<Bytes>,
    paths: Vec<&'static str>,
}

/// Where a document and its page are.
pub struct DocsPaths {
    /// Of the document: JSON and YAML.
    pub document: [&'static str; 2],
    /// Of the page, then of its script, style sheet and logo, which are below it.
    pub page: [&'static str; 4],
    /// The folder of the page, which its links leave out.
    pub folder: &'static str,
}

pub(crate) const V1_PATHS: DocsPaths = DocsPaths {
    document: ["/openapi.json", "/openapi.yaml"],
    page: ["/docs", "/docs/page.js", "/docs/page.css", "/docs/logo.svg"],
    folder: "",
};

/// The paths of the document and the page. All are made when they are first asked for: most
/// services never are, and together they would take half of the time of a start. `public_url`
/// begins the URLs of the page's `curl` lines.
#[must_use]
pub fn paths(
    document: fn() -> &'static Document,
    public_url: &str,
    docs: &'static DocsPaths,
) -> Vec<Path<()>> {
    let public_url = public_url.to_owned();
    let [json, yaml] = docs.document;
    let [page, script, style, logo] = docs.page;
    vec![
        Path::open(json, async move || {
            serve(document().json_bytes(), "application/json")
        }),
        Path::open(yaml, async move || {
            serve(document().yaml_bytes(), "application/yaml")
        }),
        file(page, move || {
            page::File::page(document(), &public_url, docs)
        }),
        file(script, page::File::script),
        file(style, page::File::style),
        file(logo, page::File::logo),
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
    /// The document of the API. `described` are the paths in the order of the reference page.
    #[must_use]
    pub fn new(described: Vec<PathDocs>) -> Self {
        Self::with(
            include_str!("document.yaml"),
            described,
            |document, components| {
                webhooks::describe(document);
                complete_components(&mut document["components"], components);
            },
        )
    }

    /// The document of the operator's API. `template` has the parts that no code has.
    #[must_use]
    pub fn for_operators(template: &str, described: Vec<PathDocs>) -> Self {
        Self::with(template, described, |document, components| {
            let document = &mut document["components"];
            add_components(document, components);
            inline_flattened(&mut document["schemas"]);
            document["headers"]["Bellbird-Error"]["schema"]["examples"] =
                json!(Problem::OPERATOR_CODES);
        })
    }

    fn with(
        template: &str,
        described: Vec<PathDocs>,
        complete: impl FnOnce(&mut Value, &mut Map<String, Value>),
    ) -> Self {
        let mut paths: Vec<_> = described.iter().map(|described| described.path).collect();
        paths.dedup();
        let mut parts: Parts = yaml_serde::from_str(template).unwrap_or_default();
        let mut value = build(described, &mut parts);
        complete(&mut value, &mut parts.components);
        Self {
            value,
            json: OnceLock::new(),
            yaml: OnceLock::new(),
            paths,
        }
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
        self.json.get_or_init(|| {
            serde_json::to_vec_pretty(&self.value)
                .unwrap_or_default()
                .into()
        })
    }

    fn yaml_bytes(&self) -> &Bytes {
        let yaml = || {
            yaml_serde::to_string(&self.value)
                .map(String::into_bytes)
                .unwrap_or_default()
                .into()
        };
        self.yaml.get_or_init(yaml)
    }
}

fn serve(body: &Bytes, content_type: &'static str) -> Response {
    let mut response = Response::new(Body::from(body.clone()));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(
        CACHE_CONTROL,
        HeaderValue::from_static("public, max-age=300"),
    );
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

fn build(described: Vec<PathDocs>, parts: &mut Parts) -> Value {
    let mut document = parts.document.take();
    let (mut paths, mut schemas) = (json!({}), Map::new());
    for mut described in described {
        schemas.extend(
            described
                .operation
                .schemas
                .drain(..)
                .map(|(name, schema)| (name, json!(schema))),
        );
        let (path, method) = (described.path, described.method.key());
        paths[path][method] = operation(described, parts);
    }
    document["paths"] = paths;
    document["components"]["schemas"] = schemas.into();
    complete_enums(&mut document["components"]["schemas"]);
    document
}

/// utoipa describes an inlined enum as if it were an object too, and drops its example.
fn complete_enums(schema: &mut Value) {
    if let Some([words, described]) = schema["allOf"].as_array().map(Vec::as_slice)
        && words["enum"].is_array()
    {
        let (mut words, description) = (words.clone(), described["description"].clone());
        words["description"] = description;
        *schema = words;
    }
    if schema["enum"].is_array() && schema["example"].is_null() {
        schema["example"] = schema["enum"][0].clone();
    }
    match schema {
        Value::Array(items) => items.iter_mut().for_each(complete_enums),
        Value::Object(members) => members.values_mut().for_each(complete_enums),
        _ => {}
    }
}

fn add_components(components: &mut Value, parts: &mut Map<String, Value>) {
    if let Some(components) = components.as_object_mut() {
        components.append(parts);
    }
    components["schemas"]["ErrorBody"] =
        serde_json::to_value(ErrorBody::schema()).unwrap_or_default();
    components["schemas"]["Error"] =
        serde_json::to_value(ErrorObject::schema()).unwrap_or_default();
}

/// Writes the members of flattened structs into their schemas, where the reference page reads them.
fn inline_flattened(schemas: &mut Value) {
    let all = schemas.clone();
    for schema in schemas
        .as_object_mut()
        .into_iter()
        .flat_map(|schemas| schemas.values_mut())
    {
        let Some(parts) = schema["allOf"].as_array().cloned() else {
            continue;
        };
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for part in &parts {
            let named = part["$ref"]
                .as_str()
                .and_then(|target| all.get(target.rsplit('/').next()?));
            let part = named.unwrap_or(part);
            properties.extend(part["properties"].as_object().cloned().unwrap_or_default());
            required.extend(part["required"].as_array().cloned().unwrap_or_default());
        }
        let description = schema["description"].take();
        *schema = json!({
            "type": "object", "description": description, "properties": properties, "required": required,
        });
    }
}

fn complete_components(components: &mut Value, parts: &mut Map<String, Value>) {
    add_components(components, parts);
    components["headers"]["Sunset"]["example"] = SUNSET_DATE.into();
    components["headers"]["Bellbird-Error"]["schema"]["examples"] = json!(Problem::CODES);
    let statuses = json!(["active", "invalidated", "pending_mfa", "revoked"]);
    for (schema, member, values) in [
        ("Connection", "status", statuses.clone()),
        ("EventConnection", "status", statuses),
        ("EventConnection", "provider", provider_names().collect()),
        (
            "EventConnection",
            "previous_status",
            json!(["active", "invalidated", "pending_mfa", "revoked", null]),
        ),
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
    let keys = bellbird_domain::Category::ALL
        .iter()
        .map(|category| json!(category.key()));
    keys.chain(nullable.then_some(Value::Null)).collect()
}

fn operation(described: PathDocs, parts: &Parts) -> Value {
    let PathDocs {
        path,
        needs_key,
        parameter,
        operation:
            Operation {
                parameters,
                content,
                headers,
                errors,
                ..
            },
        ..
    } = &described;
    let in_path = parameter.iter().map(|(name, values)| {
        json!({
            "name": name, "in": "path", "required": true, "description": format!("The {name}."),
            "schema": {"type": "string", "enum": values}, "example": values.first(),
        })
    });
    let ids = [("id", "The id."), ("eventId", "The id of the event.")];
    let ids = ids.into_iter().filter(|(name, _)| path.contains(&format!("{{{name}}}"))).map(|(name, description)| {
        json!({
            "name": name, "in": "path", "required": true, "description": description,
            "schema": {"type": "string", "format": "uuid"}, "example": "0191e7a0-7c3b-7def-8000-00aabbccddee",
        })
    });
    let has_id = path.contains("{id}");
    let is_repeatable = described.method == RouteMethod::Post;
    let repeated = is_repeatable.then(|| {
        json!({
            "name": "Idempotency-Key", "in": "header", "required": false, "schema": {"type": "string"},
            "description": "1 to 255 characters of ASCII, new for each change. A repeated request with it gets the \
                response of the first one, with the header `Idempotent-Replayed: true`.",
            "example": "3f1c9a52-5a0e-4a53-9d8c-0d5f6c1c2b7e",
        })
    });
    let in_path = in_path.chain(ids);
    let parameters: Vec<Value> = in_path
        .chain(repeated)
        .chain(parameters.iter().cloned())
        .collect();
    let mut descriptions = parts.errors.clone();
    if *needs_key {
        descriptions.extend(parts.guarded_errors.clone());
    }
    if described.operation.is_for_every_plan {
        descriptions.remove("403");
    }
    if described.operation.body.is_some() {
        descriptions.insert(
            "413".to_owned(),
            "The body is larger than 16 KiB.".to_owned(),
        );
    }
    if has_id {
        descriptions.insert(
            "404".to_owned(),
            "What the id names does not exist.".to_owned(),
        );
    }
    if is_repeatable {
        descriptions.insert(
            "409".to_owned(),
            "The Idempotency-Key was sent with another request.".to_owned(),
        );
    }
    descriptions.extend(
        errors
            .iter()
            .map(|(status, description)| (status.to_string(), (*description).to_owned())),
    );
    let mut responses = Map::new();
    let mut success = json!({
        "description": described.operation.success,
        "headers": header_references(*needs_key, headers.iter().copied()),
    });
    if !content.is_empty() {
        success["content"] = content.clone().into();
    }
    responses.insert(described.operation.status.to_string(), success);
    if let Some((status, description, schema)) = &described.operation.also {
        let headers = header_references(*needs_key, [].into_iter());
        let content = json!({"application/json": {"schema": schema}});
        let also = json!({"description": description, "headers": headers, "content": content});
        responses.insert(status.to_string(), also);
    }
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
    if let Some(body) = &described.operation.body {
        operation["requestBody"] = body.clone();
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
    let limits = [
        "X-RateLimit-Limit",
        "X-RateLimit-Remaining",
        "X-RateLimit-Reset",
    ];
    let limits = limits.into_iter().filter(|_| limited);
    let names = ["X-Request-Id", "Cache-Control"]
        .into_iter()
        .chain(limits)
        .chain(specific);
    names
        .map(|name| {
            (
                name.to_owned(),
                json!({"$ref": format!("#/components/headers/{name}")}),
            )
        })
        .collect()
}

//! The OpenAPI 3.1 document and its reference page. Each operation is described at its handler, by
//! `#[utoipa::path]`. This module adds what all operations share, and `document.yaml` the rest.

mod page;
mod webhooks;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::get;
use bellbird_domain::CurrentText;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::PartialSchema;
use utoipa::openapi::path::{Operation, ParameterIn, PathItem};
use utoipa::openapi::{
    Components, Content, OpenApi, Ref, RefOr, Response as ResponseDocs, SecurityRequirement,
};

use crate::http::problem::{ErrorBody, ErrorObject};
use crate::http::{DocumentedRoutes, Routes};

pub use webhooks::{EventExample, event_examples};

/// The OpenAPI document of an interface.
pub struct Document {
    value: Value,
    json: OnceLock<Bytes>,
    yaml: OnceLock<Bytes>,
    /// In the order of the reference page.
    paths: Vec<String>,
}

/// Where a document and its page are.
pub(crate) struct DocsPaths {
    /// Of the document: JSON and YAML.
    pub document: [&'static str; 2],
    /// The folder of the page, which its links leave out.
    pub folder: &'static str,
    /// How the clients make each call, as YAML.
    pub samples: &'static str,
}

pub(crate) const V1_PATHS: DocsPaths = DocsPaths {
    document: ["/openapi.json", "/openapi.yaml"],
    folder: "",
    samples: include_str!("samples.yaml"),
};

/// The routes of the document and the page. All are made when they are first asked for: most
/// services never are, and together they would take half of the time of a start. The first URL
/// begins those of the page's `curl` lines. The second one is the console's, or empty. The page is
/// made again when one of them has changed.
pub(crate) fn routes(
    document: fn() -> &'static Document,
    urls: [CurrentText; 2],
    docs: &'static DocsPaths,
) -> Routes<()> {
    let [json, yaml] = docs.document;
    let page = format!("{}/docs", docs.folder);
    let router = Router::new()
        .route(
            json,
            get(async move || serve(document().json(), "application/json")),
        )
        .route(
            yaml,
            get(async move || serve(document().yaml(), "application/yaml")),
        );
    let made = Arc::new(Mutex::new(None::<([Arc<str>; 2], page::File)>));
    let reference = async move |headers: HeaderMap| {
        let urls = [&urls[0], &urls[1]].map(CurrentText::get);
        let mut made = made.lock();
        let page = match made.take() {
            Some((of, page)) if of == urls => page,
            _ => {
                let urls = [&urls[0], &urls[1]].map(ToString::to_string);
                page::File::page(document(), &urls, docs)
            }
        };
        let (_, page) = made.insert((urls, page));
        page.response(&headers)
    };
    let router = router.route(&page, get(reference));
    let below = |name: &str| format!("{page}/{name}");
    let router = file(router, &below("page.js"), page::File::script);
    let router = file(router, &below("page.css"), page::File::style);
    Routes::new().open(file(router, &below("logo.svg"), page::File::logo))
}

fn file(
    router: Router,
    path: &str,
    make: impl Fn() -> page::File + Send + Sync + 'static,
) -> Router {
    let file = Arc::new((OnceLock::new(), make));
    let serve = async move |headers: HeaderMap| {
        let (made, make) = &*file;
        made.get_or_init(make).response(&headers)
    };
    router.route(path, get(serve))
}

impl Document {
    /// The document of the API, with the routes in the order of the reference page.
    pub fn new(routes: impl Iterator<Item = DocumentedRoutes>) -> Self {
        Self::with(include_str!("document.yaml"), routes, webhooks::describe)
    }

    /// The document of the operator's API. `template` has the parts that no code has.
    pub(crate) fn for_operators(
        template: &str,
        routes: impl Iterator<Item = DocumentedRoutes>,
    ) -> Self {
        Self::with(template, routes, |document| {
            inline_flattened(&mut document["components"]["schemas"]);
        })
    }

    fn with(
        template: &str,
        routes: impl Iterator<Item = DocumentedRoutes>,
        complete: impl FnOnce(&mut Value),
    ) -> Self {
        let template: Template = yaml_serde::from_str(template).unwrap_or_default();
        let mut document = template.document.clone();
        for DocumentedRoutes {
            mut openapi,
            needs_key,
        } in routes
        {
            for item in openapi.paths.paths.values_mut() {
                for operation in operations(item) {
                    template.complete(operation, needs_key);
                }
            }
            document.merge(openapi);
        }
        let components = document.components.get_or_insert_with(Components::new);
        for (name, schema) in [
            ("ErrorBody", ErrorBody::schema()),
            ("Error", ErrorObject::schema()),
        ] {
            components.schemas.insert(name.to_owned(), schema);
        }
        let paths = document.paths.paths.keys().cloned().collect();
        let mut value = serde_json::to_value(&document).unwrap_or_default();
        complete_enums(&mut value["components"]["schemas"]);
        complete(&mut value);
        Self {
            value,
            json: OnceLock::new(),
            yaml: OnceLock::new(),
            paths,
        }
    }

    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Indented JSON.
    pub fn json(&self) -> &Bytes {
        self.json.get_or_init(|| {
            serde_json::to_vec_pretty(&self.value)
                .unwrap_or_default()
                .into()
        })
    }

    pub fn yaml(&self) -> &Bytes {
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

/// What the document has beside operations and schemas.
#[derive(Default, Deserialize)]
struct Template {
    document: OpenApi,
    /// Errors of every operation: descriptions by status.
    errors: BTreeMap<String, String>,
    /// Errors of those that need a key.
    guarded_errors: BTreeMap<String, String>,
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem {
        get,
        post,
        patch,
        delete,
        ..
    } = item;
    [get, post, patch, delete].into_iter().flatten()
}

impl Template {
    /// Adds the errors that an operation can have because of what it takes, unless it describes
    /// them itself, and the headers of its responses.
    fn complete(&self, operation: &mut Operation, needs_key: bool) {
        join_lines(&mut operation.description);
        let takes = |place: ParameterIn| {
            let mut parameters = operation.parameters.iter().flatten();
            parameters.any(|one| matches!(one, RefOr::T(one) if one.parameter_in == place))
        };
        let of_parts = [
            (
                takes(ParameterIn::Path),
                "404",
                "What the id names does not exist.",
            ),
            (
                takes(ParameterIn::Header),
                "409",
                "The Idempotency-Key was sent with another request.",
            ),
            (
                operation.request_body.is_some(),
                "413",
                "The body is larger than 16 KiB.",
            ),
        ];
        let of_parts = of_parts.into_iter().filter(|(applies, ..)| *applies);
        let of_parts = of_parts.map(|(_, status, description)| (status, description));
        let guarded = self.guarded_errors.iter().filter(|_| needs_key);
        let shared = guarded.chain(&self.errors);
        let shared = shared.map(|(status, description)| (status.as_str(), description.as_str()));
        let responses = &mut operation.responses.responses;
        for (status, description) in of_parts.chain(shared) {
            let response = || ResponseDocs::new(description).into();
            responses.entry(status.to_owned()).or_insert_with(response);
        }
        for (status, response) in responses {
            if let RefOr::T(response) = response {
                complete_response(status, response, needs_key);
            }
        }
        for parameter in operation.parameters.iter_mut().flatten() {
            if let RefOr::T(parameter) = parameter {
                join_lines(&mut parameter.description);
            }
        }
        // No body is an object without fields.
        if let Some(RefOr::T(body)) = &mut operation.request_body {
            body.required = None;
        }
        if !needs_key {
            operation.security = Some(vec![SecurityRequirement::default()]);
        }
    }
}

/// Refers to the headers of a response, and gives an error its body.
fn complete_response(status: &str, response: &mut ResponseDocs, needs_key: bool) {
    let is_error = !status.starts_with('2');
    // These are sent before the key is known, so there is no limit to show.
    let is_limited = needs_key && !matches!(status, "401" | "414" | "431");
    let mut names: Vec<String> = response.headers.keys().cloned().collect();
    let mut add = |applies: bool, headers: &[&str]| {
        names.extend(
            headers
                .iter()
                .filter(|_| applies)
                .map(|&name| name.to_owned()),
        );
    };
    add(true, &["X-Request-Id", "Cache-Control"]);
    add(
        is_limited,
        &[
            "X-RateLimit-Limit",
            "X-RateLimit-Remaining",
            "X-RateLimit-Reset",
        ],
    );
    add(is_error, &["Bellbird-Error"]);
    add(status == "401", &["WWW-Authenticate"]);
    add(status == "405", &["Allow"]);
    add(matches!(status, "429" | "503"), &["Retry-After"]);
    let header = |name: String| {
        let target = Ref::new(format!("#/components/headers/{name}"));
        (name, RefOr::Ref(target))
    };
    response.headers = names.into_iter().map(header).collect();
    if is_error {
        let body = Content::new(Some(Ref::from_schema_name("ErrorBody")));
        response.content = [("application/json".to_owned(), body.into())]
            .into_iter()
            .collect();
    }
}

/// A paragraph is one line, not those of its doc comment.
fn join_lines(text: &mut Option<String>) {
    if let Some(text) = text {
        let paragraphs: Vec<_> = text
            .split("\n\n")
            .map(|paragraph| paragraph.replace('\n', " "))
            .collect();
        *text = paragraphs.join("\n\n");
    }
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

#[cfg(test)]
mod tests {
    use bellbird_connections::provider_names;
    use bellbird_domain::{Category, ConnectionStatus, TradeType};

    use super::*;
    use crate::v1;
    use crate::v1::SUNSET_DATE;

    /// Of `/v1`, in the order of `Problem::code`.
    const CODES: [&str; 18] = [
        "invalid_key",
        "rate_limited",
        "budget_used_up",
        "too_many_at_once",
        "plan_required",
        "professional_required",
        "invalid_parameters",
        "invalid_cursor",
        "cursor_expired",
        "not_found",
        "no_such_path",
        "method_not_allowed",
        "uri_too_long",
        "headers_too_large",
        "reconnect_required",
        "provider_unavailable",
        "service_unavailable",
        "internal",
    ];

    /// What the templates repeat, because no type of the document has it.
    #[test]
    fn template_is_read() {
        let read: Result<Template, _> = yaml_serde::from_str(include_str!("document.yaml"));
        assert_eq!(read.err().map(|error| error.to_string()), None);
    }

    #[test]
    fn templates_say_what_the_code_says() {
        let document = Document::new(v1::routes().documented());
        let components = &document.value()["components"];
        let headers = &components["headers"];
        assert_eq!(headers["Sunset"]["example"], SUNSET_DATE);
        assert_eq!(
            headers["Bellbird-Error"]["schema"]["examples"],
            json!(CODES)
        );
        let words = |schema: &str, field: &str| {
            components["schemas"][schema]["properties"][field]["enum"].clone()
        };
        let shown = ConnectionStatus::ALL
            .iter()
            .filter(|one| **one != ConnectionStatus::Deleting);
        let mut statuses: Vec<Value> = shown.map(|status| json!(status)).collect();
        assert_eq!(words("EventConnection", "status"), json!(statuses));
        statuses.push(Value::Null);
        assert_eq!(words("EventConnection", "previous_status"), json!(statuses));
        let providers: Vec<_> = provider_names().collect();
        assert_eq!(words("EventConnection", "provider"), json!(providers));
        assert_eq!(words("EventTrade", "type"), json!(TradeType::ALL));
        let keys = Category::ALL.iter().map(|category| json!(category.key()));
        let categories: Vec<_> = keys.chain([Value::Null]).collect();
        assert_eq!(words("EventTransaction", "category"), json!(categories));
    }
}

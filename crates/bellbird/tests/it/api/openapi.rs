//! The OpenAPI document.

use std::collections::BTreeSet;

use bellbird_domain::EventType;
use serde_json::{Value, json};

use crate::repository::root;
use crate::support::harness::{App, Setup};
use crate::support::process::text;
use crate::support::schema::check;
use crate::support::words::assert_has;

#[test]
fn documents_match_the_snapshots() {
    let v1 = bellbird::openapi::document().json();
    let admin = bellbird_api::admin::document().json();
    for (document, file, command) in [
        (v1, "docs/openapi.json", "openapi"),
        (admin, "docs/admin-openapi.json", "openapi --admin"),
    ] {
        let kept = std::fs::read(root().join(file)).unwrap_or_default();
        assert!(
            kept.trim_ascii_end() == document.trim_ascii_end(),
            "{file} differs from the code: run `cargo run -- {command} > {file}` and read the \
             difference"
        );
    }
}

/// Collects every object below a value, with its path.
fn collect_objects<'a>(at: String, value: &'a Value, found: &mut Vec<(String, &'a Value)>) {
    match value {
        Value::Object(members) => {
            found.push((at.clone(), value));
            for (name, member) in members {
                collect_objects(format!("{at}/{name}"), member, found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect_objects(format!("{at}/{index}"), item, found);
            }
        }
        _ => {}
    }
}

fn assert_described(what: &str, operation: &Value) {
    for member in ["operationId", "summary", "description"] {
        assert!(operation[member].is_string(), "{what}: {member}");
    }
}

#[test]
fn document_is_complete() {
    let document = bellbird::openapi::document().value();
    assert_eq!(document["openapi"], "3.1.0");
    // The words of the specification.
    let title = "Bellbird REST API for bank accounts, transactions and connections";
    assert_eq!(document["info"]["title"], title);
    assert_eq!(document["info"]["version"], "1.0.0");
    assert!(document["info"]["contact"]["name"].is_string());
    let schemas = document["components"]["schemas"].as_object().unwrap();
    // An object with several forms is each of them.
    let forms = |(name, schema)| {
        crate::support::schema::forms(schema)
            .into_iter()
            .map(move |form| (name, form))
    };
    for (name, schema) in schemas.iter().flat_map(forms) {
        let name: &String = name;
        let properties = schema["properties"]
            .as_object()
            .unwrap_or_else(|| panic!("{name} has no members"));
        for (member, property) in properties {
            let member: &str = member;
            let description = property["description"].as_str().unwrap_or_default();
            let values = property["enum"].as_array();
            let is_constant = values.is_some_and(|values| values.len() == 1);
            let is_elsewhere = property.get("$ref").is_some();
            assert!(
                description.len() > 3 || is_constant || is_elsewhere,
                "{name}.{member} has no description"
            );
            let has_parts = property["type"] == "array" || property["type"] == "object";
            assert!(
                is_elsewhere || has_parts || is_constant || property.get("example").is_some(),
                "{name}.{member} has no example"
            );
            // Bodies of events have some members only in later versions.
            let is_later = name != "RemovedRow"
                && matches!(
                    member,
                    "key" | "amount_decimal" | "removed" | "removed_count"
                )
                && description.contains("From version 2026-12-01");
            let optional = is_later
                || matches!(
                    (name.as_str(), member),
                    ("Error", "code" | "details")
                        | ("Balance", "error")
                        | ("EventMetadata", "user_id" | "user_reference")
                );
            let mut required = schema["required"].as_array().into_iter().flatten();
            let is_required = required.any(|required| required == member);
            assert_eq!(is_required, !optional, "{name}.{member}");
        }
    }
    for (path, item) in document["paths"].as_object().unwrap() {
        let operation = &item["get"];
        assert_described(path, operation);
        let has_own_security = operation.get("security").is_some();
        assert_eq!(has_own_security, path.starts_with("/health"), "{path}");
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            assert!(
                parameter["description"].is_string() && !parameter["example"].is_null(),
                "{path} {parameter}"
            );
            assert!(parameter["schema"].get("maximum").is_none());
        }
        for (status, response) in operation["responses"].as_object().unwrap() {
            let request_id = &response["headers"]["X-Request-Id"];
            assert!(request_id.is_object(), "{path} {status}");
            let schema = &response["content"]["application/json"]["schema"]["$ref"];
            let is_error = schema == "#/components/schemas/ErrorBody";
            assert_eq!(is_error, status != "200", "{path} {status}");
        }
        if path.starts_with("/v1") {
            let has = |status: &str| operation["responses"].get(status).is_some();
            for status in ["401", "405", "429", "500", "503"] {
                assert!(has(status), "{path} {status}");
            }
            assert_eq!(has("403"), path != "/v1/me", "every plan has {path}");
        }
    }
    let mut objects = Vec::new();
    collect_objects("#".to_owned(), document, &mut objects);
    for (at, object) in objects {
        if let Some(target) = object.get("$ref").and_then(Value::as_str) {
            let found = document.pointer(target.strip_prefix('#').unwrap());
            assert!(found.is_some(), "{at} refers to no {target}");
        }
    }
}

/// Real responses have exactly the documented members.
#[tokio::test]
async fn document_is_served_and_answers_match_it() {
    let app = App::start(Setup::default()).await;
    let json = app.get_without_key("/openapi.json").await;
    assert_eq!(json.status, 200);
    assert_eq!(json.header("content-type"), Some("application/json"));
    assert_eq!(&json.json(), bellbird::openapi::document().value());
    let yaml = app.get_without_key("/openapi.yaml").await;
    assert_eq!(yaml.header("content-type"), Some("application/yaml"));
    let read: Value = yaml_serde::from_str(&yaml.text).unwrap();
    assert_eq!(&read, bellbird::openapi::document().value());

    let account = app.account("").await;
    let (connection, id) = (account.connection_id, account.id);
    let document = bellbird::openapi::document().value();
    for (path, query) in [
        ("/health", String::new()),
        ("/health/ready", String::new()),
        ("/v1/connections", String::new()),
        ("/v1/accounts", String::new()),
        ("/v1/categories", String::new()),
        ("/v1/me", String::new()),
        ("/v1/balances", format!("?accountIds={id}")),
        (
            "/v1/transactions",
            format!("?connectionId={connection}&from=2026-01-01"),
        ),
        (
            "/v1/transactions/changes",
            format!("?connectionId={connection}&from=2026-01-01"),
        ),
    ] {
        let answer = app.get(&format!("{path}{query}")).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        let schema = &document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]
            ["schema"];
        check(document, path, schema, &answer.json());
    }
    let rejected = app.get_without_key("/v1/accounts").await;
    let schema = &document["components"]["schemas"]["ErrorBody"];
    check(document, "/v1/accounts", schema, &rejected.json());
}

/// The types of the document are those that endpoints get. Their bodies are checked wherever a test
/// receives one.
#[test]
fn every_webhook_event_is_described() {
    let document = bellbird::openapi::document().value();
    let webhooks = document["webhooks"].as_object().unwrap();
    let types: BTreeSet<&str> = webhooks.keys().map(String::as_str).collect();
    let expected = EventType::ALL.iter().map(|event| event.as_str());
    assert_eq!(types, expected.collect());
    for (name, item) in webhooks {
        let operation = &item["post"];
        assert_described(name, operation);
        assert_eq!(operation["security"], json!([]), "{name}: no key is sent");
        let headers = operation["parameters"].as_array().unwrap().iter();
        let headers: Vec<_> = headers
            .map(|header| document.pointer(&text(header, "$ref")[1..]).unwrap())
            .collect();
        for header in &headers {
            assert_eq!(header["in"], "header", "{name}");
            assert_eq!(header["required"], true, "{name}");
        }
        let names: Vec<_> = headers.iter().map(|header| text(header, "name")).collect();
        assert_eq!(
            names.join(" "),
            "webhook-id webhook-timestamp webhook-signature Bellbird-Endpoint"
        );
        for status in ["2XX", "410", "default"] {
            let description = &operation["responses"][status]["description"];
            assert!(description.is_string(), "{name}: {status}");
        }
    }
}

/// Generators of clients for Go and C# make floats of such a format.
#[test]
fn decimals_have_a_pattern_and_no_format() {
    let document = bellbird::openapi::document().value();
    let mut objects = Vec::new();
    collect_objects("#".to_owned(), document, &mut objects);
    objects.retain(|(_, object)| {
        let pattern = object["pattern"].as_str().unwrap_or_default();
        pattern.starts_with("^-?[0-9]+")
    });
    assert!(objects.len() >= 16, "{}", objects.len());
    for (at, decimal) in objects {
        assert!(decimal.get("format").is_none(), "{at}");
        let description = text(decimal, "description").to_lowercase();
        assert_has(&description, "exact decimal");
    }
}

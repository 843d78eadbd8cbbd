//! The OpenAPI document.

use std::collections::BTreeSet;

use bellbird_domain::EventType;
use serde_json::Value;

use crate::support::harness::{App, Setup};
use crate::support::schema::check;
use crate::support::words::assert_has;

const SNAPSHOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");

#[test]
fn document_matches_the_snapshot() {
    let document = bellbird::openapi::document().json();
    let kept = std::fs::read(SNAPSHOT).unwrap_or_default();
    let same =
        String::from_utf8_lossy(&kept).trim_end() == String::from_utf8_lossy(document).trim_end();
    assert!(
        same,
        "docs/openapi.json differs from the code: run `cargo run -- openapi > docs/openapi.json` and read the \
         difference"
    );
}

#[tokio::test]
async fn document_is_served_as_json_and_yaml() {
    let app = App::start(Setup::default()).await;
    let json = app.get_without_key("/openapi.json").await;
    assert_eq!(
        (json.status.as_u16(), json.header("content-type")),
        (200, Some("application/json"))
    );
    assert_eq!(&json.json(), bellbird::openapi::document().value());
    let yaml = app.get_without_key("/openapi.yaml").await;
    assert_eq!(yaml.header("content-type"), Some("application/yaml"));
    let read: Value = yaml_serde::from_str(&yaml.text).unwrap();
    assert_eq!(&read, bellbird::openapi::document().value());
}

/// Collects every object below a value, with its path.
fn collect_objects<'a>(at: String, value: &'a Value, found: &mut Vec<(String, &'a Value)>) {
    match value {
        Value::Object(members) => {
            found.push((at.clone(), value));
            members
                .iter()
                .for_each(|(name, member)| collect_objects(format!("{at}/{name}"), member, found));
        }
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(index, item)| collect_objects(format!("{at}/{index}"), item, found));
        }
        _ => {}
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
    let schemas = document["components"]["schemas"]
        .as_object()
        .unwrap()
        .iter();
    // An object with several forms is each of them.
    let forms = |(name, schema)| {
        crate::support::schema::forms(schema)
            .into_iter()
            .map(move |form| (name, form))
    };
    for (name, schema) in schemas.flat_map(forms) {
        let name: &String = name;
        let properties = schema["properties"]
            .as_object()
            .unwrap_or_else(|| panic!("{name} has no members"));
        for (member, property) in properties {
            let is_constant = property["enum"]
                .as_array()
                .is_some_and(|values| values.len() == 1);
            let described = property["description"]
                .as_str()
                .is_some_and(|text| text.len() > 3);
            assert!(
                described || is_constant || property.get("$ref").is_some(),
                "{name}.{member} has no description"
            );
            let typed = property.get("$ref").is_some()
                || property["type"] == "array"
                || property["type"] == "object";
            assert!(
                typed || is_constant || property.get("example").is_some(),
                "{name}.{member} has no example"
            );
            // Bodies of events have some members only in later versions.
            let is_later = name != "RemovedRow"
                && matches!(
                    member.as_str(),
                    "key" | "amount_decimal" | "removed" | "removed_count"
                )
                && property["description"]
                    .as_str()
                    .is_some_and(|text| text.contains("From version 2026-12-01"));
            let optional = is_later
                || matches!(
                    (name.as_str(), member.as_str()),
                    ("Error", "code" | "details")
                        | ("Balance", "error")
                        | ("EventMetadata", "user_id" | "user_reference")
                );
            let required = schema["required"]
                .as_array()
                .is_some_and(|required| required.contains(&Value::from(member.clone())));
            assert_eq!(required, !optional, "{name}.{member}");
        }
    }
    for (path, item) in document["paths"].as_object().unwrap() {
        let operation = &item["get"];
        assert!(
            operation["operationId"].is_string()
                && operation["summary"].is_string()
                && operation["description"].is_string(),
            "{path}"
        );
        assert_eq!(
            operation.get("security").is_some(),
            path.starts_with("/health"),
            "{path}"
        );
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            assert!(
                parameter["description"].is_string() && !parameter["example"].is_null(),
                "{path} {parameter}"
            );
            assert!(parameter["schema"].get("maximum").is_none());
        }
        for (status, response) in operation["responses"].as_object().unwrap() {
            assert!(
                response["headers"]["X-Request-Id"].is_object(),
                "{path} {status}"
            );
            let schema = &response["content"]["application/json"]["schema"]["$ref"];
            assert_eq!(
                schema == "#/components/schemas/ErrorBody",
                status != "200",
                "{path} {status}"
            );
        }
        let statuses: BTreeSet<&str> = operation["responses"]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        if path.starts_with("/v1") {
            assert!(
                ["401", "405", "429", "500", "503"]
                    .iter()
                    .all(|status| statuses.contains(status)),
                "{path}"
            );
            assert_eq!(
                statuses.contains("403"),
                path != "/v1/me",
                "every plan has {path}"
            );
        }
    }
    let mut objects = Vec::new();
    collect_objects("#".to_owned(), document, &mut objects);
    for (at, object) in objects {
        if let Some(target) = object.get("$ref").and_then(Value::as_str) {
            let pointer = target.strip_prefix('#').unwrap();
            assert!(
                document.pointer(pointer).is_some(),
                "{at} refers to {target}, which does not exist"
            );
        }
    }
}

/// Real responses have exactly the documented members.
#[tokio::test]
async fn answers_match_the_document() {
    let app = App::start(Setup::default()).await;
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
        let rejected = app.get_without_key("/v1/accounts").await;
        check(
            document,
            path,
            &document["components"]["schemas"]["ErrorBody"],
            &rejected.json(),
        );
    }
}

/// The types of the document are those that endpoints get. Their bodies are checked wherever a test
/// receives one.
#[test]
fn every_webhook_event_is_described() {
    let document = bellbird::openapi::document().value();
    let webhooks = document["webhooks"].as_object().unwrap();
    let types: BTreeSet<&str> = webhooks.keys().map(String::as_str).collect();
    assert_eq!(
        types,
        EventType::ALL.iter().map(|event| event.as_str()).collect()
    );
    for (name, item) in webhooks {
        let operation = &item["post"];
        for member in ["operationId", "summary", "description"] {
            assert!(operation[member].is_string(), "{name}: {member}");
        }
        assert_eq!(
            operation["security"].as_array().map(Vec::len),
            Some(0),
            "{name}: no key is sent"
        );
        let headers: Vec<&str> = operation["parameters"]
            .as_array()
            .unwrap()
            .iter()
            .map(|header| {
                let header = document
                    .pointer(&header["$ref"].as_str().unwrap()[1..])
                    .unwrap();
                assert!(
                    header["in"] == "header" && header["required"] == true,
                    "{name}: {header}"
                );
                header["name"].as_str().unwrap()
            })
            .collect();
        assert_eq!(
            headers,
            [
                "webhook-id",
                "webhook-timestamp",
                "webhook-signature",
                "Bellbird-Endpoint"
            ],
            "{name}"
        );
        for status in ["2XX", "410", "default"] {
            assert!(
                operation["responses"][status]["description"].is_string(),
                "{name}: {status}"
            );
        }
    }
}

/// Generators of clients for Go and C# make floats of such a format.
#[test]
fn decimals_have_a_pattern_and_no_format() {
    let document = bellbird::openapi::document().value();
    let mut objects = Vec::new();
    collect_objects("#".to_owned(), document, &mut objects);
    let of_digits = |object: &Value| {
        object["pattern"]
            .as_str()
            .is_some_and(|pattern| pattern.starts_with("^-?[0-9]+"))
    };
    let decimals: Vec<_> = objects
        .into_iter()
        .filter(|(_, object)| of_digits(object))
        .collect();
    assert!(decimals.len() >= 16, "{}", decimals.len());
    for (at, decimal) in decimals {
        assert!(decimal.get("format").is_none(), "{at}");
        let description = decimal["description"].as_str().unwrap();
        assert_has(&description.to_lowercase(), "exact decimal");
    }
}

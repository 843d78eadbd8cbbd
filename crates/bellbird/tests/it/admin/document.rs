//! The OpenAPI document of the operator's API, and its page.

use serde_json::Value;

use super::Admin;

#[test]
fn operations_are_complete() {
    let document = bellbird_api::admin::document().value();
    let mut ids = std::collections::BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let named = format!("{method} {path}");
            assert!(
                ids.insert(operation["operationId"].as_str().unwrap().to_owned()),
                "{named}"
            );
            assert!(
                operation["summary"]
                    .as_str()
                    .is_some_and(|text| !text.is_empty()),
                "{named}"
            );
            let responses = operation["responses"].as_object().unwrap();
            let successes: Vec<_> = responses
                .keys()
                .filter(|status| status.starts_with('2'))
                .collect();
            // With its connections, a user is removed later.
            let is_known = if operation["operationId"] == "remove_user" {
                2
            } else {
                1
            };
            assert_eq!(successes.len(), is_known, "{named}");
            for status in ["400", "401", "405", "429", "503"] {
                assert!(responses.contains_key(status), "{named}: {status}");
            }
            let is_for_a_user = ["create_link_session", "create_webhook_endpoint"];
            let names_an_id = path.contains("{id}")
                || is_for_a_user
                    .iter()
                    .any(|id| operation["operationId"] == *id);
            assert_eq!(names_an_id, responses.contains_key("404"), "{named}");
        }
    }
    assert_eq!(ids.len(), 29);
    let text = document.to_string();
    for reference in text
        .split("#/components/schemas/")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
    {
        assert!(
            document["components"]["schemas"][reference].is_object(),
            "{reference}"
        );
    }
}

#[tokio::test]
async fn document_and_page_are_served_without_a_key() {
    let admin = Admin::start().await;
    let json = admin.app.get_without_key("/admin/v1/openapi.json").await;
    assert_eq!(&json.json(), bellbird_api::admin::document().value());
    let yaml: Value = yaml_serde::from_str(
        &admin
            .app
            .get_without_key("/admin/v1/openapi.yaml")
            .await
            .text,
    )
    .unwrap();
    assert_eq!(&yaml, bellbird_api::admin::document().value());
    let page = admin.app.get_without_key("/admin/docs").await;
    assert_eq!(page.status, 200);
    for part in [
        "API reference for operators",
        "POST</span> <code>/admin/v1/users</code>",
        "href=\"v1/openapi.json\"",
        "data-path=\"/v1/users\"",
        "curl -X DELETE",
    ] {
        assert!(page.text.contains(part), "{part}");
    }
    for path in [
        "/admin/docs/page.js",
        "/admin/docs/page.css",
        "/admin/docs/logo.svg",
    ] {
        assert_eq!(admin.app.get_without_key(path).await.status, 200, "{path}");
    }
}

//! `/health`, `/v1/connections`, `/v1/accounts` and `/v1/categories`.

use serde_json::{Value, json};

use crate::support::harness::{App, Setup};
use crate::support::words::assert_has;

#[tokio::test]
async fn health_needs_no_key() {
    let app = App::start(Setup::default()).await;
    for answer in [
        app.get_without_key("/health").await,
        app.get_as("nonsense", "/health").await,
    ] {
        assert_eq!(
            (answer.status.as_u16(), answer.text.as_str()),
            (200, r#"{"status":"ok"}"#)
        );
        assert_eq!(answer.header("cache-control"), Some("private, no-store"));
        assert!(answer.header("x-request-id").is_some());
        assert!(answer.header("x-ratelimit-limit").is_none());
    }
}

#[tokio::test]
async fn connections_are_listed_newest_first() {
    let app = App::start(Setup::default()).await;
    let connections = app.get("/v1/connections").await.data();
    assert_eq!(connections.len(), 2);
    let created: Vec<&str> = connections
        .iter()
        .map(|connection| connection["createdAt"].as_str().unwrap())
        .collect();
    assert!(created.is_sorted_by(|newer, older| newer >= older));
    for connection in &connections {
        assert_eq!(connection["provider"], "fiskil");
        assert_eq!(connection["category"], "banking");
        assert_eq!(connection["status"], "active");
        assert!(
            connection["institutionId"]
                .as_str()
                .unwrap()
                .bytes()
                .all(|byte| byte.is_ascii_digit())
        );
        assert_eq!(connection.as_object().unwrap().len(), 10);
    }
}

#[tokio::test]
async fn accounts_are_ordered_and_masked() {
    let app = App::start(Setup::default()).await;
    let answer = app.get("/v1/accounts").await;
    let accounts = answer.data();
    assert_eq!(
        answer.json()["pagination"],
        json!({"total": accounts.len(), "limit": 50, "offset": 0, "hasMore": false})
    );
    let names: Vec<(&str, &str)> = accounts
        .iter()
        .map(|account| {
            (
                account["name"].as_str().unwrap(),
                account["id"].as_str().unwrap(),
            )
        })
        .collect();
    assert!(names.is_sorted());
    let types: Vec<&str> = accounts
        .iter()
        .map(|account| account["type"].as_str().unwrap())
        .collect();
    for expected in [
        "transaction",
        "savings",
        "credit-card",
        "loan",
        "term-deposit",
        "other",
    ] {
        assert!(
            types.contains(&expected),
            "{expected} is not among {types:?}"
        );
    }
    for account in &accounts {
        assert_eq!(account["currency"], "AUD", "{account}");
        if let Some(number) = account["accountNumber"].as_str() {
            assert!(number.len() == 8 && number.starts_with("xxxx"), "{number}");
        }
    }
}

#[tokio::test]
async fn accounts_of_one_connection_are_filtered() {
    let app = App::start(Setup::default()).await;
    let all = app.get("/v1/accounts").await.data();
    let id = app.olivia.connections[0].id.to_string();
    let of_connection: Vec<_> = all
        .iter()
        .filter(|account| account["connectionId"] == id)
        .cloned()
        .collect();
    let path = format!("/v1/accounts?connectionId={id}");
    let found = app.get(&path).await;
    assert_eq!(found.data(), of_connection);
    assert_eq!(found.json()["pagination"]["total"], of_connection.len());
    let second = app.get(&format!("{path}&limit=1&offset=1")).await;
    assert_eq!(second.data(), of_connection[1..2]);
    let foreign = app
        .ben
        .connections
        .first()
        .map_or_else(|| "x".to_owned(), |other| other.id.to_string());
    for id in [&*foreign, "x", "", "00000000-0000-4000-8000-000000000000"] {
        assert_eq!(
            app.get(&format!("/v1/accounts?connectionId={id}"))
                .await
                .error(404),
            "Connection not found"
        );
    }
}

#[tokio::test]
async fn unknown_parameters_are_400_on_every_path_with_a_key() {
    let app = App::start(Setup::default()).await;
    let document: Value =
        serde_json::from_str(include_str!("../../../../../docs/openapi.json")).unwrap();
    let paths = document["paths"].as_object().unwrap().iter();
    let mut guarded = paths
        .filter(|(_, path)| path["get"]["security"].is_null())
        .peekable();
    assert!(guarded.peek().is_some());
    for (path, _) in guarded {
        let path = path.replace("{format}", "csv");
        let answer = app.get(&format!("{path}?accountID=x")).await;
        assert_eq!(answer.status, 400, "{path}");
        let details = answer.json()["error"]["details"].to_string();
        assert_has(&details, "accountID: unknown; ");
    }
}

#[tokio::test]
async fn accounts_are_paged() {
    let app = App::start(Setup::default()).await;
    let all = app.get("/v1/accounts?limit=999").await;
    assert_eq!(all.json()["pagination"]["limit"], 200, "clamped");
    let all = all.data();
    let mut seen = Vec::new();
    loop {
        let page = app
            .get(&format!("/v1/accounts?limit=2&offset={}", seen.len()))
            .await;
        seen.extend(page.data());
        assert_eq!(page.json()["pagination"]["total"], all.len());
        if page.json()["pagination"]["hasMore"] == false {
            break;
        }
    }
    assert_eq!(seen, all);
    let beyond = app.get("/v1/accounts?offset=99999999999999999999999").await;
    assert!(beyond.data().is_empty());
    assert_eq!(beyond.json()["pagination"]["total"], all.len());
    for (query, detail) in [
        ("limit=0", "limit: Must be an integer between 1 and 200"),
        ("limit=ten", "limit: Must be an integer between 1 and 200"),
        ("offset=-1", "offset: Must be an integer of at least 0"),
        ("limit=1&limit=2", "limit: Must be given once"),
    ] {
        let answer = app.get(&format!("/v1/accounts?{query}")).await;
        answer.error(400);
        assert_eq!(
            answer.json()["error"]["details"],
            json!([detail]),
            "{query}"
        );
    }
}

#[tokio::test]
async fn accounts_in_memory_follow_every_change() {
    let app = App::start(Setup::default()).await;
    let path = "/v1/accounts?limit=200";
    let before = app.get(path).await;
    assert_eq!(app.get(path).await.text, before.text);
    let of_ben = app.get_as(&app.ben.key, path).await;
    assert_ne!(
        of_ben.text, before.text,
        "each user has answers of their own"
    );

    let credentials = secrecy::SecretString::from(app.credentials(3).to_string());
    let imported = app
        .connections
        .imports()
        .import(app.olivia.user.id, "fiskil", &credentials)
        .await
        .unwrap()
        .connections;
    let (id, with_import) = (imported[0].id, app.get(path).await);
    assert!(with_import.text.contains(&id.to_string()) && !before.text.contains(&id.to_string()));
    assert_eq!(
        with_import.json()["pagination"]["total"],
        with_import.data().len()
    );
    assert_eq!(app.get("/v1/connections").await.data().len(), 3);

    app.remove(id).await;
    assert_eq!(app.get(path).await.text, before.text);
    assert_eq!(app.get("/v1/connections").await.data().len(), 2);
    assert_eq!(app.get_as(&app.ben.key, path).await.text, of_ben.text);
}

#[tokio::test]
async fn all_sixteen_categories_are_listed() {
    let app = App::start(Setup::default()).await;
    let answer = app.get("/v1/categories").await;
    let categories = answer.json()["categories"].as_array().unwrap().clone();
    assert_eq!(categories.len(), 16);
    assert!(categories.contains(
        &json!({"key": "GOVERNMENT_AND_NON_PROFIT", "label": "Government & Non-Profit"})
    ));
}

#[tokio::test]
async fn metadata_reads_make_no_provider_call() {
    let app = App::start(Setup::default()).await;
    for path in [
        "/v1/connections",
        "/v1/accounts",
        "/v1/categories",
        "/health",
    ] {
        app.get(path).await;
    }
    assert!(app.fiskil().calls().is_empty());
}

#[tokio::test]
async fn head_answers_as_get_without_a_body() {
    let app = App::start(Setup::default()).await;
    for path in [
        "/health",
        "/v1/connections",
        "/v1/accounts?limit=1",
        "/openapi.json",
        "/docs",
    ] {
        let get = app.get(path).await;
        let head = app
            .method_as(reqwest::Method::HEAD, &app.olivia.key, path)
            .await;
        assert_eq!(head.status, get.status, "{path}");
        assert_eq!(
            head.header("content-length"),
            Some(get.text.len().to_string().as_str()),
            "{path}"
        );
        assert_eq!(head.header("content-type"), get.header("content-type"));
        assert_eq!(head.text, "");
    }
}

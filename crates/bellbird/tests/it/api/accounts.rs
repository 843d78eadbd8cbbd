//! `/health`, `/v1/connections`, `/v1/accounts` and `/v1/categories`.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::client::{Account, Page, Pagination};
use crate::support::fields::assert_fields;
use crate::support::harness::{App, Setup};
use crate::support::process::{names, text};
use crate::support::words::assert_has;

const ALL: &str = "/v1/accounts?limit=200";

async fn health_needs_no_key(app: &App) {
    for answer in [
        app.get_without_key("/health").await,
        app.get_as("nonsense", "/health").await,
    ] {
        assert_eq!(answer.status, 200);
        assert_eq!(answer.text, r#"{"status":"ok"}"#);
        assert_eq!(answer.header("cache-control"), Some("private, no-store"));
        assert!(answer.header("x-request-id").is_some());
        assert!(answer.header("x-ratelimit-limit").is_none());
    }
}

/// Without a call of the provider.
#[tokio::test]
async fn lists_come_from_what_is_stored_and_follow_every_change() {
    let app = App::start(Setup::default()).await;
    health_needs_no_key(&app).await;
    head_answers_as_get_without_a_body(&app).await;
    unknown_parameters_are_400_on_every_path_with_a_key(&app).await;
    let connections = app.get("/v1/connections").await.data();
    assert_eq!(connections.len(), 2);
    assert!(
        connections
            .is_sorted_by(|newer, older| { text(newer, "createdAt") >= text(older, "createdAt") })
    );
    let active = json!({"provider": "fiskil", "category": "banking", "status": "active"});
    for connection in &connections {
        assert_fields(connection, &active);
        let mut institution = text(connection, "institutionId").bytes();
        assert!(institution.all(|byte| byte.is_ascii_digit()));
        assert_eq!(names(connection).len(), 10);
    }

    let Page { rows, pagination } = app.get("/v1/accounts").await.read::<Page<Account>>();
    let expected = Pagination {
        total: i64::try_from(rows.len()).unwrap(),
        limit: 50,
        offset: 0,
        has_more: false,
    };
    assert_eq!(pagination, expected);
    assert!(rows.is_sorted_by_key(|account| (&account.name, &account.id)));
    let types: Vec<&str> = rows.iter().map(|account| &*account.r#type).collect();
    for expected in [
        "transaction",
        "savings",
        "credit-card",
        "loan",
        "term-deposit",
        "other",
    ] {
        assert!(types.contains(&expected), "no {expected} in {types:?}");
    }
    for account in &rows {
        assert_eq!(account.currency, "AUD", "{account:?}");
        if let Some(number) = &account.account_number {
            assert!(number.len() == 8 && number.starts_with("xxxx"), "{number}");
        }
    }
    assert_eq!(app.get("/v1/categories").await.status, 200);
    assert!(app.fiskil().calls().is_empty());
    accounts_of_one_connection_are_filtered(&app).await;
    accounts_are_paged(&app).await;
    accounts_in_memory_follow_every_change(&app).await;
}

async fn accounts_of_one_connection_are_filtered(app: &App) {
    let id = app.olivia.connections[0].id.to_string();
    let mut of_connection = app.all_accounts(&app.olivia).await;
    of_connection.retain(|account| account.connection_id == id);
    let path = format!("/v1/accounts?connectionId={id}");
    let found = app.get(&path).await.read::<Page<Account>>();
    assert_eq!(found.rows, of_connection);
    let total = i64::try_from(of_connection.len()).unwrap();
    assert_eq!(found.pagination.total, total);
    let second = app.get(&format!("{path}&limit=1&offset=1")).await;
    assert_eq!(second.rows::<Account>(), of_connection[1..2]);
    let foreign = app.ben.connections[0].id.to_string();
    for id in [&*foreign, "x", "", "00000000-0000-4000-8000-000000000000"] {
        let path = format!("/v1/accounts?connectionId={id}");
        let message = app.get(&path).await.error(404);
        assert_eq!(message, "Connection not found");
    }
}

async fn accounts_are_paged(app: &App) {
    let page = async |query: &str| {
        let answer = app.get(&format!("/v1/accounts?{query}")).await;
        answer.read::<Page<Account>>()
    };
    let all = page("limit=999").await;
    assert_eq!(all.pagination.limit, 200, "clamped");
    let total = i64::try_from(all.rows.len()).unwrap();
    let (mut seen, mut has_more) = (Vec::new(), true);
    while has_more {
        let next = page(&format!("limit=2&offset={}", seen.len())).await;
        assert_eq!(next.pagination.total, total);
        has_more = next.pagination.has_more;
        seen.extend(next.rows);
    }
    assert_eq!(seen, all.rows);
    let beyond = app.get("/v1/accounts?offset=99999999999999999999999").await;
    assert_eq!(beyond.data(), [] as [Value; 0]);
    assert_eq!(beyond.json()["pagination"]["total"], total);
    for (query, detail) in [
        ("limit=0", "limit: Must be an integer between 1 and 200"),
        ("limit=ten", "limit: Must be an integer between 1 and 200"),
        ("offset=-1", "offset: Must be an integer of at least 0"),
        ("limit=1&limit=2", "limit: Must be given once"),
    ] {
        let answer = app.get(&format!("/v1/accounts?{query}")).await;
        answer.error(400);
        assert_eq!(answer.details(), json!([detail]), "{query}");
    }
}

async fn unknown_parameters_are_400_on_every_path_with_a_key(app: &App) {
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
        let details = answer.details().to_string();
        assert_has(&details, "accountID: unknown; ");
    }
}

async fn accounts_in_memory_follow_every_change(app: &App) {
    let before = app.get(ALL).await;
    assert_eq!(app.get(ALL).await.text, before.text);
    let of_ben = app.get_as(&app.ben.key, ALL).await;
    assert_ne!(of_ben.text, before.text, "each user has their own");

    let imported = app.import(app.olivia.user.id, &app.credentials(3)).await;
    let id = imported.unwrap().connections[0].id;
    let with_import = app.get(ALL).await;
    let is_of_import = |account: &Account| account.connection_id == id.to_string();
    let accounts = with_import.read::<Page<Account>>();
    assert!(accounts.rows.iter().any(is_of_import));
    assert!(!before.rows::<Account>().iter().any(is_of_import));
    let total = i64::try_from(accounts.rows.len()).unwrap();
    assert_eq!(accounts.pagination.total, total);
    assert_eq!(app.get("/v1/connections").await.data().len(), 3);

    app.remove(id).await;
    assert_eq!(app.get(ALL).await.text, before.text);
    assert_eq!(app.get("/v1/connections").await.data().len(), 2);
    assert_eq!(app.get_as(&app.ben.key, ALL).await.text, of_ben.text);
}

async fn head_answers_as_get_without_a_body(app: &App) {
    for path in [
        "/health",
        "/v1/connections",
        "/v1/accounts?limit=1",
        "/openapi.json",
        "/docs",
    ] {
        let get = app.get(path).await;
        let key = &app.olivia.key;
        let head = app.method_as(Method::HEAD, key, path).await;
        assert_eq!(head.status, get.status, "{path}");
        let length = get.text.len().to_string();
        assert_eq!(head.header("content-length"), Some(&*length), "{path}");
        assert_eq!(head.header("content-type"), get.header("content-type"));
        assert_eq!(head.text, "");
    }
}

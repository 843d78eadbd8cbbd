//! The protocol in both eras, as a client that follows the specification's text speaks it.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::harness::{App, Response, Setup};
use crate::support::mcp::{Mcp, modern_meta};
use crate::support::words::assert_has;

/// Asserts that this is a JSON-RPC error; returns its code.
fn error_code(answer: &Response, status: u16) -> i64 {
    assert_eq!(answer.status, status, "{}", answer.text);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert!(answer.header("x-request-id").is_some());
    let body = answer.json();
    assert_eq!(body["jsonrpc"], "2.0");
    assert!(
        body["error"]["message"]
            .as_str()
            .is_some_and(|message| !message.is_empty())
    );
    body["error"]["code"].as_i64().unwrap()
}

#[tokio::test]
async fn legacy_client_initializes_lists_and_calls() {
    let app = App::start(Setup::default()).await;
    let mcp = Mcp::new(&app, &app.olivia.key);
    for (requested, expected) in [
        ("2025-11-25", "2025-11-25"),
        ("2025-06-18", "2025-06-18"),
        ("2024-11-05", "2025-11-25"),
    ] {
        let params = json!({"protocolVersion": requested, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}});
        let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let answer = mcp.post(&[], body.to_string()).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(answer.header("mcp-session-id"), None);
        let result = &answer.json()["result"];
        assert_eq!(result["protocolVersion"], expected);
        assert_eq!(result["capabilities"], json!({"tools": {}}));
        assert_eq!(result["serverInfo"]["name"], "bellbird");
    }
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let answer = mcp
        .post(
            &[("mcp-protocol-version", "2025-11-25")],
            initialized.to_string(),
        )
        .await;
    assert_eq!((answer.status.as_u16(), answer.text.as_str()), (202, ""));
    assert_eq!(
        mcp.legacy("ping", json!({})).await.json(),
        json!({"jsonrpc": "2.0", "id": 1, "result": {}})
    );
    let listed = mcp.legacy("tools/list", json!({})).await.json();
    assert_eq!(listed["result"]["tools"].as_array().unwrap().len(), 6);
    assert_eq!(
        listed["result"].as_object().unwrap().len(),
        1,
        "legacy results have no hints"
    );
    let answer = mcp
        .legacy("tools/call", json!({"name": "list_accounts"}))
        .await
        .json();
    assert_eq!(answer["result"]["isError"], false);
    assert!(answer["result"]["resultType"].is_null());
    assert_eq!(
        error_code(&mcp.legacy("server/discover", json!({})).await, 200),
        -32601
    );
    assert_eq!(
        error_code(
            &mcp.legacy("tools/call", json!({"name": "nothing"})).await,
            200
        ),
        -32602
    );
    assert_eq!(
        error_code(&mcp.legacy("resources/list", json!({})).await, 200),
        -32601
    );
}

#[tokio::test]
async fn modern_client_discovers_lists_and_calls() {
    let app = App::start(Setup::default()).await;
    let mcp = Mcp::new(&app, &app.olivia.key);
    let discovered = mcp.modern("server/discover", json!({})).await.json();
    assert_eq!(discovered["id"], "a");
    let discovered = &discovered["result"];
    assert_eq!(discovered["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(discovered["capabilities"], json!({"tools": {}}));
    assert_has(
        discovered["instructions"].as_str().unwrap(),
        "untrusted text",
    );
    let listed = mcp.modern("tools/list", json!({})).await.json()["result"].clone();
    let called = mcp
        .modern(
            "tools/call",
            json!({"name": "list_accounts", "arguments": {}}),
        )
        .await
        .json()["result"]
        .clone();
    for result in [discovered, &listed, &called] {
        assert_eq!(result["resultType"], "complete");
        assert_eq!(
            result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
            "bellbird"
        );
    }
    for result in [discovered, &listed] {
        assert!(result["ttlMs"].as_u64().is_some() && result["cacheScope"] == "public");
    }
    assert_eq!(called["content"].as_array().unwrap().len(), 1);
    for method in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "prompts/list",
        "unknown/method",
    ] {
        let answer = mcp.modern(method, json!({})).await;
        assert_eq!(error_code(&answer, 404), -32601, "{method}");
        assert_eq!(answer.json()["id"], "a");
    }
    assert_eq!(
        error_code(
            &mcp.modern("tools/call", json!({"name": "nothing"})).await,
            400
        ),
        -32602
    );
    assert_eq!(
        error_code(&mcp.modern("tools/list", json!({"cursor": ""})).await, 400),
        -32602
    );
    let call = json!({"name": "list_accounts", "arguments": []});
    assert_eq!(
        error_code(&mcp.modern("tools/call", call).await, 400),
        -32602
    );
}

#[tokio::test]
async fn requests_that_break_the_protocol_are_rejected() {
    let app = App::start(Setup::default()).await;
    let mcp = Mcp::new(&app, &app.olivia.key);
    let list = |meta: Value| {
        json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {"_meta": meta}})
            .to_string()
    };
    let unknown_version = json!({
        "io.modelcontextprotocol/protocolVersion": "v999.0.0", "io.modelcontextprotocol/clientCapabilities": {}
    });
    let version = ("mcp-protocol-version", "2026-07-28");
    let method = ("mcp-method", "tools/list");
    let unknown = mcp
        .post(
            &[("mcp-protocol-version", "v999.0.0"), method],
            list(unknown_version.clone()),
        )
        .await;
    assert_eq!(error_code(&unknown, 400), -32022);
    assert_eq!(
        unknown.json()["error"]["data"],
        json!({"supported": ["2026-07-28"], "requested": "v999.0.0"})
    );
    assert_eq!(unknown.json()["id"], 7);
    for (headers, body, expected) in [
        (vec![version, method], list(unknown_version), -32020),
        (vec![version], list(modern_meta()), -32020),
        (vec![method], list(modern_meta()), -32020),
        (
            vec![version, ("mcp-method", "TOOLS/LIST")],
            list(modern_meta()),
            -32020,
        ),
        (vec![version, method], list(json!({})), -32602),
        (
            vec![("mcp-protocol-version", "2024-11-05")],
            list(json!({})),
            -32022,
        ),
        (vec![], "{".to_owned(), -32700),
        (vec![], "[]".to_owned(), -32600),
        (vec![], "[".repeat(60_000), -32700),
        (
            vec![],
            json!({"jsonrpc": "2.0", "id": null, "method": "ping"}).to_string(),
            -32600,
        ),
    ] {
        let answer = mcp.post(&headers, body.clone()).await;
        assert_eq!(
            error_code(&answer, 400),
            expected,
            "{headers:?} {}",
            &body[..body.len().min(100)]
        );
    }
    assert_eq!(
        error_code(&mcp.post(&[], " ".repeat(65_537)).await, 413),
        413
    );
}

#[tokio::test]
async fn key_method_and_origin_are_checked() {
    let mut setup = Setup::default();
    setup.settings.api_context.cors_origins = vec!["https://app.example".to_owned()];
    let app = App::start(setup).await;
    let mcp = Mcp::new(&app, &app.olivia.key);
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    for key in ["", "bb_wrong"] {
        let answer = Mcp { app: &app, key }.post(&[], ping.clone()).await;
        assert_eq!(error_code(&answer, 401), 401);
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    }
    for method in [Method::GET, Method::DELETE, Method::PUT] {
        let answer = app.method_as(method, &app.olivia.key, "/mcp").await;
        assert_eq!(error_code(&answer, 405), 405);
        assert_eq!(answer.header("allow"), Some("POST"));
    }
    assert_eq!(
        error_code(
            &app.method_as(Method::POST, &app.olivia.key, "/mcp/other")
                .await,
            404
        ),
        404
    );
    let from = |origin: &'static str| {
        let (mcp, ping) = (&mcp, ping.clone());
        async move { mcp.post(&[("origin", origin)], ping).await }
    };
    for origin in ["https://app.example", "https://bellbird.example"] {
        assert_eq!(from(origin).await.status, 200, "{origin}");
    }
    for origin in [
        "http://evil.example",
        "null",
        "",
        "https://",
        "https://bellbird",
        "https://app.example.evil",
    ] {
        assert_eq!(error_code(&from(origin).await, 403), 403, "{origin}");
    }
}

#[tokio::test]
async fn limits_of_requests_are_jsonrpc_errors() {
    let app = App::start(Setup::with(|settings| {
        settings.api_context.metadata_per_minute = 2;
    }))
    .await;
    let mcp = Mcp::new(&app, &app.olivia.key);
    assert_eq!(mcp.legacy("ping", json!({})).await.status, 200);
    assert_eq!(mcp.legacy("ping", json!({})).await.status, 200);
    let answer = mcp.legacy("ping", json!({})).await;
    assert_eq!(error_code(&answer, 429), 429);
    assert_eq!(answer.header("retry-after"), Some("30"));
    assert_eq!(answer.header("bellbird-error"), Some("rate_limited"));
}

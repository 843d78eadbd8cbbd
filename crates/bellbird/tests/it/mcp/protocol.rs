//! The protocol in both eras, as a client that follows the specification's text speaks it.

use reqwest::Method;
use serde_json::{Value, json};

use super::list;
use crate::support::fields::assert_fields;
use crate::support::harness::{App, Response, Setup};
use crate::support::mcp::{Mcp, modern_meta};
use crate::support::process::{names, text};
use crate::support::words::assert_has;

/// Asserts that this is a JSON-RPC error; returns its code.
#[track_caller]
fn error_code(answer: &Response, status: u16) -> i64 {
    assert_eq!(answer.status, status, "{}", answer.text);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert!(answer.header("x-request-id").is_some());
    let word = match status {
        200 => None,
        400 => Some("invalid_parameters"),
        401 => Some("invalid_key"),
        403 => Some("origin_not_allowed"),
        405 => Some("method_not_allowed"),
        413 => Some("body_too_large"),
        429 => Some("rate_limited"),
        _ => answer.header("bellbird-error"),
    };
    assert_eq!(answer.header("bellbird-error"), word);
    assert_eq!(word.is_some(), status != 200);
    let body = answer.json();
    assert_eq!(body["jsonrpc"], "2.0");
    assert_ne!(text(&body["error"], "message"), "");
    body["error"]["code"].as_i64().unwrap()
}

#[tokio::test]
async fn both_eras_are_spoken_with_key_method_and_origin() {
    let app = App::start(Setup::with(|settings| {
        settings.api_context.cors_origins = vec!["https://app.example".to_owned()];
    }))
    .await;
    let mcp = Mcp::new(&app, &app.olivia.key);
    legacy_client_initializes_lists_and_calls(&mcp).await;
    modern_client_discovers_lists_and_calls(&mcp).await;
    requests_that_break_the_protocol_are_rejected(&mcp).await;
    key_method_and_origin_are_checked(&app, &mcp).await;
}

async fn legacy_client_initializes_lists_and_calls(mcp: &Mcp<'_>) {
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
        let capabilities = json!({"tools": {}});
        let expected = json!({"protocolVersion": expected, "capabilities": capabilities});
        assert_fields(result, &expected);
        assert_eq!(result["serverInfo"]["name"], "bellbird");
    }
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let version = [("mcp-protocol-version", "2025-11-25")];
    let answer = mcp.post(&version, initialized.to_string()).await;
    assert_eq!((answer.status.as_u16(), answer.text.as_str()), (202, ""));
    let pong = mcp.legacy("ping", json!({})).await.json();
    assert_eq!(pong, json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
    let listed = &mcp.legacy("tools/list", json!({})).await.json()["result"];
    assert_eq!(list(listed, "tools").len(), 6);
    assert_eq!(names(listed), ["tools"], "legacy results have no hints");
    let call = json!({"name": "list_accounts"});
    let called = &mcp.legacy("tools/call", call).await.json()["result"];
    assert_fields(called, &json!({"isError": false, "resultType": null}));
    for (method, params, code) in [
        ("server/discover", json!({}), -32601),
        ("tools/call", json!({"name": "nothing"}), -32602),
        ("resources/list", json!({}), -32601),
    ] {
        let answer = mcp.legacy(method, params).await;
        assert_eq!(error_code(&answer, 200), code, "{method}");
    }
}

async fn modern_client_discovers_lists_and_calls(mcp: &Mcp<'_>) {
    let discovered = mcp.modern("server/discover", json!({})).await.json();
    assert_eq!(discovered["id"], "a");
    let discovered = &discovered["result"];
    let expected = json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}});
    assert_fields(discovered, &expected);
    assert_has(text(discovered, "instructions"), "untrusted text");
    let listed = &mcp.modern("tools/list", json!({})).await.json()["result"];
    let call = json!({"name": "list_accounts", "arguments": {}});
    let called = &mcp.modern("tools/call", call).await.json()["result"];
    for result in [discovered, listed, called] {
        assert_eq!(result["resultType"], "complete");
        let server = &result["_meta"]["io.modelcontextprotocol/serverInfo"];
        assert_eq!(server["name"], "bellbird");
    }
    for result in [discovered, listed] {
        assert!(result["ttlMs"].as_u64().is_some() && result["cacheScope"] == "public");
    }
    assert_eq!(list(called, "content").len(), 1);
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
    for (method, params) in [
        ("tools/call", json!({"name": "nothing"})),
        ("tools/list", json!({"cursor": ""})),
        (
            "tools/call",
            json!({"name": "list_accounts", "arguments": []}),
        ),
    ] {
        let answer = mcp.modern(method, params).await;
        assert_eq!(error_code(&answer, 400), -32602, "{method}");
    }
}

async fn requests_that_break_the_protocol_are_rejected(mcp: &Mcp<'_>) {
    let list = |meta: Value| {
        json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {"_meta": meta}})
            .to_string()
    };
    let unknown_version = json!({
        "io.modelcontextprotocol/protocolVersion": "v999.0.0", "io.modelcontextprotocol/clientCapabilities": {}
    });
    let version = ("mcp-protocol-version", "2026-07-28");
    let method = ("mcp-method", "tools/list");
    let headers = [("mcp-protocol-version", "v999.0.0"), method];
    let unknown = mcp.post(&headers, list(unknown_version.clone())).await;
    assert_eq!(error_code(&unknown, 400), -32022);
    let data = json!({"supported": ["2026-07-28"], "requested": "v999.0.0"});
    assert_eq!(unknown.json()["error"]["data"], data);
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
        let begin = &body[..body.len().min(100)];
        assert_eq!(error_code(&answer, 400), expected, "{headers:?} {begin}");
    }
    let large = mcp.post(&[], " ".repeat(65_537)).await;
    assert_eq!(error_code(&large, 413), 413);
}

async fn key_method_and_origin_are_checked(app: &App, mcp: &Mcp<'_>) {
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    for key in ["", "bb_wrong"] {
        let answer = Mcp { app, key }.post(&[], ping.clone()).await;
        assert_eq!(error_code(&answer, 401), 401);
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    }
    for method in [Method::GET, Method::DELETE, Method::PUT] {
        let answer = app.method_as(method, &app.olivia.key, "/mcp").await;
        assert_eq!(error_code(&answer, 405), 405);
        assert_eq!(answer.header("allow"), Some("POST"));
    }
    let key = &app.olivia.key;
    let other = app.method_as(Method::POST, key, "/mcp/other").await;
    assert_eq!(error_code(&other, 404), 404);
    let from = |origin: &'static str| {
        let (mcp, ping) = (mcp, ping.clone());
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
}

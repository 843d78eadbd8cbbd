//! A client of `/mcp`.

use reqwest::Method;
use serde_json::{Map, Value, json};

use crate::support::harness::{App, Response};

/// Limit of a whole result of a tool, apart from what the protocol adds around it.
pub(crate) const ANSWER_BYTES_MAX: usize = 40_000 + 400;

pub(crate) struct Mcp<'a> {
    pub(crate) app: &'a App,
    pub(crate) key: &'a str,
}

impl<'a> Mcp<'a> {
    pub(crate) const fn new(app: &'a App, key: &'a str) -> Self {
        Self { app, key }
    }
}

pub(crate) fn modern_meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

impl Mcp<'_> {
    pub(crate) async fn post(&self, headers: &[(&str, &str)], body: impl Into<String>) -> Response {
        let request = self
            .app
            .http
            .request(Method::POST, format!("{}/mcp", self.app.url));
        let request = request
            .bearer_auth(self.key)
            .header("content-type", "application/json")
            .body(body.into());
        self.app
            .send(headers.iter().fold(request, |request, (name, value)| {
                request.header(*name, *value)
            }))
            .await
    }

    pub(crate) async fn legacy(&self, method: &str, params: Value) -> Response {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        self.post(&[("mcp-protocol-version", "2025-11-25")], body.to_string())
            .await
    }

    pub(crate) async fn modern(&self, method: &str, mut params: Value) -> Response {
        params["_meta"] = modern_meta();
        let name = params["name"].as_str().unwrap_or("-").to_owned();
        let body = json!({"jsonrpc": "2.0", "id": "a", "method": method, "params": params});
        let headers = [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", method),
            ("mcp-name", &name),
        ];
        self.post(&headers, body.to_string()).await
    }

    /// The result of a tool.
    pub(crate) async fn result(&self, tool: &str, arguments: Value) -> Value {
        let answer = self
            .modern("tools/call", json!({"name": tool, "arguments": arguments}))
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert!(
            answer.text.len() <= ANSWER_BYTES_MAX,
            "{tool}: {} bytes",
            answer.text.len()
        );
        answer.json()["result"].clone()
    }

    /// The structured content of a tool that succeeds.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Value {
        let result = self.result(tool, arguments).await;
        assert_eq!(result["isError"], false, "{result}");
        result["structuredContent"].clone()
    }

    /// The text of a tool that fails.
    pub(crate) async fn failure(&self, tool: &str, arguments: Value) -> String {
        let result = self.result(tool, arguments).await;
        assert_eq!(result["isError"], true, "{result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// The rows of all results, and how many results there were.
    pub(crate) async fn rows(
        &self,
        tool: &str,
        member: &str,
        arguments: Value,
    ) -> (Vec<Value>, usize) {
        let (mut rows, mut answers) = (Vec::new(), 0);
        let mut arguments: Map<String, Value> = arguments.as_object().unwrap().clone();
        loop {
            let answer = self.call(tool, arguments.clone().into()).await;
            answers += 1;
            let shown = answer[member].as_array().unwrap().clone();
            assert_eq!(answer["shown"], shown.len());
            assert_eq!(answer["problems"], json!([]));
            rows.extend(shown);
            let known = answer["total"]
                .as_u64()
                .or(answer["at_least"].as_u64())
                .unwrap();
            assert!(
                known >= rows.len() as u64,
                "{known} known, {} shown",
                rows.len()
            );
            let Some(cursor) = answer["next_cursor"].as_str() else {
                let is_from_the_start = !arguments.contains_key("cursor") || answers > 1;
                assert!(
                    !is_from_the_start || answer["total"] == rows.len(),
                    "the total is exact at the end"
                );
                return (rows, answers);
            };
            let limit = arguments.remove("limit");
            arguments = Map::from_iter([("cursor".to_owned(), cursor.into())]);
            arguments.extend(limit.map(|limit| ("limit".to_owned(), limit)));
        }
    }
}

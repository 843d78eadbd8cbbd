//! Generated hostile requests: never a 500, and nothing learned about others.

use std::collections::BTreeMap;

use futures_util::stream::{self, StreamExt as _};
use serde_json::{Value, json};

use crate::support::harness::{App, Response, Setup};
use crate::support::mcp::{Mcp, modern_meta};
use crate::support::random::{Random, seed};

const REQUESTS: usize = 4_000;
const TOOLS: &str = "list_accounts list_transactions summarize_transactions list_holdings \
                     list_trades drop_tables";
const NAMES: &str = "account_ids from to text category direction min_amount max_amount limit \
                     cursor detail group_by include_balances";
const CHARS: &str = "a%\0\n\"\\{\u{202e}\u{e0041}😀';-\u{ffff}";

struct Generator {
    random: Random,
    /// Ids and cursors that belong to another user.
    foreign: Vec<String>,
}

impl Generator {
    /// One of these words.
    fn pick<'w>(&mut self, words: &'w str) -> &'w str {
        let words: Vec<&str> = words.split(' ').collect();
        words[self.random.below(words.len())]
    }

    fn foreign(&mut self) -> String {
        self.random.one_of(&self.foreign).clone()
    }

    fn value(&mut self, depth: usize) -> Value {
        match self.random.below(if depth > 4 { 9 } else { 12 }) {
            0 => Value::Null,
            1 => self.random.one_in(2).into(),
            2 => json!(self.random.next()),
            3 => json!(i64::from_ne_bytes(self.random.next().to_ne_bytes())),
            4 => json!(-1),
            5 => self.text().into(),
            6 => self.foreign().into(),
            7 => self
                .pick("2026-11-01 9999-12-31 0001-01-01 2026-02-30 1e999999999 -0 500 category")
                .into(),
            8 => json!("A".repeat(self.random.below(30_000))),
            9 | 10 => (0..self.random.below(6))
                .map(|_| self.value(depth + 1))
                .collect(),
            _ => (0..self.random.below(6))
                .map(|_| (self.name(), self.value(depth + 1)))
                .collect::<serde_json::Map<_, _>>()
                .into(),
        }
    }

    fn name(&mut self) -> String {
        if self.random.one_in(5) {
            self.text()
        } else {
            self.pick(NAMES).to_owned()
        }
    }

    fn text(&mut self) -> String {
        let chars: Vec<char> = CHARS.chars().collect();
        (0..self.random.below(40))
            .map(|_| *self.random.one_of(&chars))
            .collect()
    }

    fn arguments(&mut self) -> Value {
        let mut arguments = serde_json::Map::new();
        for _ in 0..self.random.below(5) {
            let name = self.name();
            let value = match name.as_str() {
                "account_ids" if self.random.one_in(2) => json!([self.foreign()]),
                _ => self.value(0),
            };
            arguments.insert(name, value);
        }
        arguments.into()
    }

    /// The headers and the body of a request.
    fn request(&mut self) -> (Vec<(&'static str, String)>, String) {
        let tool = self.pick(TOOLS).to_owned();
        // The last is empty.
        let methods = "tools/call tools/call tools/call tools/list initialize server/discover x ";
        let method = self.pick(methods).to_owned();
        let mut params = json!({"name": tool, "arguments": self.arguments()});
        let mut headers = Vec::new();
        if self.random.one_in(2) {
            params["_meta"] = if self.random.one_in(6) {
                self.value(0)
            } else {
                modern_meta()
            };
            headers.push(("mcp-protocol-version", "2026-07-28".to_owned()));
            headers.push(("mcp-method", method.clone()));
            headers.push((
                "mcp-name",
                if self.random.one_in(8) {
                    "=?base64?!!?=".to_owned()
                } else {
                    tool
                },
            ));
            if self.random.one_in(8) {
                headers.remove(self.random.below(headers.len()));
            }
        }
        if self.random.one_in(10) {
            params = self.value(0);
        }
        let id = if self.random.one_in(6) {
            self.value(3)
        } else {
            json!(7)
        };
        let mut message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        if self.random.one_in(20) {
            message["method"] = self.value(3);
        }
        let mut body = message.to_string();
        match self.random.below(20) {
            0 => {
                body.truncate(
                    (0..=self.random.below(body.len()))
                        .rev()
                        .find(|at| body.is_char_boundary(*at))
                        .unwrap(),
                );
            }
            1 => body = format!("[{body},{body}]"),
            2 => body = format!("{}{body}", "[".repeat(self.random.below(5_000))),
            3 => body = body.replacen(':', "::", 1),
            _ => {}
        }
        (headers, body)
    }
}

/// Sends a request, without headers that HTTP cannot have. Returns its body, too.
async fn send(
    mcp: &Mcp<'_>,
    headers: Vec<(&'static str, String)>,
    body: String,
) -> (String, Response) {
    let headers: Vec<(&str, &str)> = headers
        .iter()
        .filter(|(_, value)| value.bytes().all(|byte| (b' '..=b'~').contains(&byte)))
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let answer = mcp.post(&headers, body.clone()).await;
    (body, answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_requests_get_errors_and_learn_nothing() {
    let app = App::start(Setup::with_rows(20)).await;
    let ben = Mcp::new(&app, &app.ben.key);
    let mut foreign = vec![
        app.ben.connections[0].id.to_string(),
        app.ben.user.id.to_string(),
    ];
    let accounts = app.accounts_of(&app.ben.connections[0]).await;
    foreign.extend(accounts.iter().map(|account| account.id.clone()));
    let first = ben
        .call(
            "list_transactions",
            json!({"from": "2000-01-01", "limit": 1}),
        )
        .await;
    let row = first["transactions"][0]["id"].as_str().unwrap().to_owned();
    let account = first["accounts"][0]["id"].as_str().unwrap().to_owned();
    foreign.push(first["next_cursor"].as_str().unwrap().to_owned());

    let olivia = Mcp::new(&app, &app.olivia.key);
    let mut generator = Generator {
        random: Random::new(seed()),
        foreign,
    };
    let mut statuses = BTreeMap::new();
    let requests: Vec<_> = (0..REQUESTS).map(|_| generator.request()).collect();
    let mut answers = stream::iter(requests)
        .map(|(headers, body)| send(&olivia, headers, body))
        .buffer_unordered(8);
    while let Some((body, answer)) = answers.next().await {
        *statuses.entry(answer.status.as_u16()).or_insert(0) += 1;
        assert!(
            matches!(answer.status.as_u16(), 200 | 202 | 400 | 404 | 413),
            "{}: {body}",
            answer.status
        );
        assert!(answer.text.len() < 100_000);
        if answer.status != 202 {
            let message = answer.json();
            let code = message["error"]["code"].as_i64();
            assert!(code.is_some() || message["result"].is_object(), "{message}");
            assert_ne!(code, Some(-32603), "{body}");
        }
        assert!(!answer.text.contains(&row), "another user's row: {body}");
        let echoed = body.contains(&account);
        assert!(
            echoed || !answer.text.contains(&account),
            "another user's account: {body}"
        );
    }
    drop(answers);
    assert!(statuses[&200] > 500 && statuses[&400] > 200, "{statuses:?}");
    assert_eq!(
        olivia.result("list_accounts", json!({})).await["isError"],
        false,
        "it still works"
    );
}

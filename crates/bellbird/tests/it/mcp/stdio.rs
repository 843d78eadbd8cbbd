//! `bellbird mcp`: messages over standard input and output.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ChildStdout, Command};

use bellbird_sandbox::Fault;
use serde_json::{Value, json};

use crate::support::harness::{App, Setup, eventually};
use crate::support::mcp::{Mcp, modern_meta};
use crate::support::process::{Process, Workdir, errors, text};
use crate::support::words::{assert_has, assert_lacks};

/// A running command. Dropping it kills the process.
struct Bridge {
    child: Process,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Bridge {
    fn start(url: &str, key: &str) -> Self {
        let mut child = command(&[("BELLBIRD_URL", url), ("BELLBIRD_KEY", key)])
            .spawn()
            .unwrap();
        let (input, output) = (
            child.stdin.take(),
            BufReader::new(child.stdout.take().unwrap()),
        );
        Self {
            child: Process(child),
            input,
            output,
        }
    }

    fn send(&mut self, message: &str) {
        writeln!(self.input.as_mut().unwrap(), "{message}").unwrap();
    }

    fn read(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}"))
    }

    fn ask(&mut self, message: Value) -> Value {
        self.send(&message.to_string());
        let answer = self.read();
        assert_eq!(answer["id"], message["id"], "{answer}");
        answer
    }

    /// Ends standard input. Returns the exit status and the log.
    fn finish(mut self) -> (Option<i32>, String, String) {
        drop(self.input.take());
        let mut rest = String::new();
        while self.output.read_line(&mut rest).unwrap() > 0 {}
        let mut log = String::new();
        std::io::Read::read_to_string(&mut self.child.0.stderr.take().unwrap(), &mut log).unwrap();
        (self.child.0.wait().unwrap().code(), rest, log)
    }
}

fn command(variables: &[(&str, &str)]) -> Command {
    let mut command = Workdir::new().command("mcp");
    command
        .current_dir("/")
        .env_remove("TMPDIR")
        .stdin(std::process::Stdio::piped())
        .envs(variables.iter().copied());
    command
}

fn modern(id: Value, method: &str, mut params: Value) -> Value {
    params["_meta"] = modern_meta();
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_pass_through() {
    let app = App::start(Setup::default()).await;
    both_eras_pass_through(&app).await;
    input_may_end_before_the_answer(&app).await;
    failures_of_the_transport_are_errors_of_the_request(&app).await;
    cancelled_request_has_no_answer(&app).await;
}

async fn both_eras_pass_through(app: &App) {
    let mut bridge = Bridge::start(&app.url, &app.olivia.key);
    let discovered = bridge.ask(modern(json!("a"), "server/discover", json!({})));
    let versions = &discovered["result"]["supportedVersions"];
    assert_eq!(*versions, json!(["2026-07-28"]));
    let initialize = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}});
    let answer = bridge
        .ask(json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": initialize}));
    assert_eq!(answer["result"]["protocolVersion"], "2025-11-25");
    bridge.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    bridge.send("");
    let arguments = json!({"name": "list_transactions", "arguments": {"limit": 5}});
    let legacy =
        bridge.ask(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": arguments}));
    let modern_answer = bridge.ask(modern(json!(2), "tools/call", arguments.clone()));
    let direct = Mcp::new(app, &app.olivia.key)
        .call("list_transactions", json!({"limit": 5}))
        .await;
    for answer in [legacy, modern_answer] {
        let shown = &answer["result"]["structuredContent"];
        assert_eq!(shown["transactions"], direct["transactions"]);
    }
    let ping = bridge.ask(modern(json!(3), "ping", json!({})));
    assert_eq!(ping["error"]["code"], -32601);
    bridge.send("{");
    assert_eq!(bridge.read()["error"]["code"], -32700);
    bridge.send(&"x".repeat(300_000));
    assert_eq!(bridge.read()["error"]["code"], 413);
    let (code, rest, log) = bridge.finish();
    assert_eq!((code, rest.as_str(), log.as_str()), (Some(0), "", ""));
}

async fn input_may_end_before_the_answer(app: &App) {
    let mut bridge = Bridge::start(&app.url, &app.olivia.key);
    bridge.send(&modern(json!(1), "tools/call", json!({"name": "list_accounts"})).to_string());
    bridge.send(&modern(json!(2), "tools/list", json!({})).to_string());
    let (code, answers, _) = bridge.finish();
    assert_eq!((code, answers.lines().count()), (Some(0), 2), "{answers}");
}

async fn cancelled_request_has_no_answer(app: &App) {
    let slow = Fault::delay_ms(15_000).at("/v1/banking/transactions");
    app.fiskil().add_fault(slow.times(10));
    app.reset_calls();
    let mut bridge = Bridge::start(&app.url, &app.olivia.key);
    let call = json!({"name": "list_transactions"});
    bridge.send(&modern(json!("slow"), "tools/call", call).to_string());
    eventually(async || app.transaction_calls() > 0).await;
    bridge.send(
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"slow"}}"#,
    );
    // The response to the second, and nothing of the first.
    let second = bridge.ask(modern(json!(2), "tools/list", json!({})));
    assert_eq!(second["id"], 2);
    let (code, rest, _) = bridge.finish();
    assert_eq!((code, rest.as_str()), (Some(0), ""));
}

async fn failures_of_the_transport_are_errors_of_the_request(app: &App) {
    let (start, last) = app.olivia.key.split_at(app.olivia.key.len() - 1);
    let wrong_key = format!("{start}{}", if last == "0" { "1" } else { "0" });
    let unknown_key = bellbird_storage::new_key();
    let ask = |url: &str, key: &str| {
        Bridge::start(url, key).ask(modern(json!(1), "tools/list", json!({})))
    };
    let error = |url: &str, key: &str| ask(url, key)["error"].clone();
    let key = app.olivia.key.as_str();
    let unknown = error(&app.url, unknown_key.expose());
    assert_eq!(unknown["code"], 401);
    assert_has(text(&unknown, "message"), "BELLBIRD_KEY");
    for url in [format!("{}/mcp", app.url), format!("{}/mcp/", app.url)] {
        assert!(ask(&url, key)["result"]["tools"].is_array(), "{url}");
    }
    let elsewhere = error(&format!("{}/elsewhere", app.url), key);
    assert_has(text(&elsewhere, "message"), "see BELLBIRD_URL");
    let closed = error("http://127.0.0.1:1", key);
    assert_eq!(closed["code"], 502, "{closed}");
    let console = error(&app.console_url, key);
    assert_has(text(&console, "message"), "which is not MCP");

    for (variables, expected) in [
        (vec![("BELLBIRD_URL", &*app.url)], "BELLBIRD_KEY is not set"),
        (
            vec![("BELLBIRD_KEY", &*wrong_key)],
            "BELLBIRD_KEY is not a valid API key",
        ),
        (
            vec![("BELLBIRD_KEY", key), ("BELLBIRD_URL", "ftp://x")],
            "BELLBIRD_URL must be",
        ),
    ] {
        let output = command(&variables).output().unwrap();
        assert_eq!(
            (output.status.code(), output.stdout.as_slice()),
            (Some(1), &b""[..])
        );
        let log = errors(&output);
        assert_has(&log, expected);
        assert_lacks(&log, &app.olivia.key);
    }
}

//! Every `curl` example in the README and in `docs/` works as it is printed.

use std::process::Command;

use serde_json::Value;

use crate::repository::{files, read, root};
use crate::support::process::{Workdir, get, text};
use crate::support::words::assert_starts;

/// The README and all documents in `docs/`, with their paths.
fn documents() -> Vec<(String, String)> {
    let mut paths = files("docs", ".md");
    paths.insert(0, "README.md".to_owned());
    let with_text = |path: String| {
        let text = read(&root().join(&path));
        (path, text)
    };
    paths.into_iter().map(with_text).collect()
}

/// The shell blocks of a document that call the API with curl.
fn curl_blocks(document: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut rest = document;
    while let Some((_, after)) = rest.split_once("```sh\n") {
        let (block, remaining) = after.split_once("```").expect("a block ends");
        if block.contains("curl ") && block.contains("http://127.0.0.1:8080") {
            blocks.push(block.to_owned());
        }
        rest = remaining;
    }
    blocks
}

#[tokio::test]
async fn every_documented_curl_works() {
    let workdir = Workdir::new();
    let demo = workdir.start("demo --rows 700");
    let printed = demo.json();
    let (api, key) = (text(&printed, "apiUrl"), text(&printed, "apiKey"));
    let (_, accounts) = get(&format!("{api}/v1/accounts"), Some(key)).await;
    let account = &accounts["data"][0];
    let (_, connections) = get(&format!("{api}/v1/connections"), Some(key)).await;
    let connections = connections["data"].as_array().expect("connections").iter();
    let mut brokerages = connections.filter(|connection| connection["category"] == "brokerage");
    let brokerage = brokerages.next().expect("a brokerage connection");
    let mut run = 0;
    for (path, document) in documents() {
        for block in curl_blocks(&document) {
            let folder = tempfile::tempdir().unwrap();
            // An error is an example too, but not instead of a file.
            let curl = if is_export(&block) {
                "curl -sSf"
            } else {
                "curl -sS"
            };
            let script = block
                .replace("http://127.0.0.1:8080", api)
                .replace("curl -s", curl);
            let output = Command::new("bash")
                .args(["-euo", "pipefail", "-c", &script])
                .current_dir(&folder)
                .env("BELLBIRD_KEY", key)
                .env("CONNECTION", text(account, "connectionId"))
                .env("ACCOUNT", text(account, "id"))
                .env("BROKERAGE", text(brokerage, "id"))
                .output()
                .expect("bash and curl are installed");
            let answer = String::from_utf8(output.stdout).unwrap();
            assert!(
                output.status.success(),
                "{path}\n{block}\n{}",
                String::from_utf8_lossy(&output.stderr)
            );
            let files = folder
                .path()
                .read_dir()
                .unwrap()
                .map(|file| file.unwrap().path());
            let written: String = files
                .map(|file| std::fs::read_to_string(file).unwrap())
                .collect();
            check(&path, &block, &format!("{answer}{written}"));
            run += 1;
        }
    }
    assert!(run >= 11, "only {run} examples were found");
}

fn is_export(block: &str) -> bool {
    block.contains("/v1/export/")
}

/// Asserts one of four forms: JSON, JSON after the response head, the rows that a loop with `jq`
/// prints, or a file.
fn check(path: &str, block: &str, answer: &str) {
    if is_export(block) {
        assert!(answer.lines().count() > 1, "{path}\n{block}\n{answer}");
        return;
    }
    if block.contains("jq") {
        assert!(answer.lines().count() > 500, "{path}\n{block}\n{answer}");
        return;
    }
    let body = answer
        .split_once("\r\n\r\n")
        .map_or(answer, |(head, body)| {
            assert_starts(head, "HTTP/1.1 200");
            body
        });
    let json: Value = serde_json::from_str(body)
        .unwrap_or_else(|error| panic!("{path}\n{block}\n{error}: {answer}"));
    assert_eq!(
        json.get("error").is_some(),
        !block.contains("Bearer") && block.contains("/v1/"),
        "{path}\n{block}\n{answer}"
    );
}

#[test]
fn every_json_example_parses() {
    let mut parsed = 0;
    for (path, document) in documents() {
        for block in document.split("```json\n").skip(1) {
            let block = block.split("```").next().unwrap();
            let json: Result<Value, _> = serde_json::from_str(block);
            assert!(json.is_ok(), "{path}\n{block}");
            parsed += 1;
        }
    }
    assert!(parsed >= 8);
}

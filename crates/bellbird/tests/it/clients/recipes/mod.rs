//! The programs of docs/recipes.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver as Lines, channel};

use jiff::SignedDuration;

use super::receivers::Signed;
use crate::repository::{read, root};
use crate::support::port::free_port;
use crate::support::process::{ANY_PORTS, Process, RunningCommand, Workdir, errors, text};

const SECRET: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";
const ANOTHER: &str = "whsec_YWJjZGVmZ2hpamFiY2RlZmdoaWphYmNkZWZnaGlqYWI=";

#[tokio::test]
async fn sheet_shows_every_row_as_text_or_number() {
    let mut workdir = Workdir::new();
    workdir.set("BELLBIRD_LIMITS__LIVE_PER_MINUTE", "0");
    let demo = RunningCommand::start(&workdir, &format!("demo --json --rows 700 {ANY_PORTS}"));
    let printed = demo.json();
    let output = Command::new("node")
        .arg(root().join("crates/bellbird/tests/it/clients/recipes/sheet_check.mjs"))
        .arg(root().join("docs/recipes/sheet.gs"))
        .env("BELLBIRD_URL", text(&printed, "apiUrl"))
        .env("BELLBIRD_KEY", text(&printed, "apiKey"))
        .output()
        .expect("Node.js is installed");
    assert!(output.status.success(), "{}", errors(&output));
    let printed = String::from_utf8(output.stdout).unwrap();
    let rows: usize = printed.trim().parse().unwrap();
    assert!(rows > 300, "{rows}");
}

/// A row may be in another currency than its account.
#[test]
fn excel_query_replaces_nothing_that_a_row_says() {
    let document = bellbird::openapi::document().value();
    let row = &document["components"]["schemas"]["Transaction"]["properties"];
    let query = read(&root().join("docs/recipes/excel.pq"));
    let (_, added) = query
        .split_once("each _ & [")
        .expect("columns of the account are added");
    let names: Vec<&str> = added
        .lines()
        .take_while(|line| line.trim() != "]")
        .filter_map(|line| Some(line.split_once(" = ")?.0.trim()))
        .collect();
    let is_new = |name: &&str| row[*name].is_null();
    assert!(
        names.len() > 1 && names.iter().all(is_new) && row["currency"].is_object(),
        "{names:?}"
    );
}

/// A running docs/recipes/wake_actual.mjs, which calls a stand-in for Actual. Dropping it kills the
/// process.
struct Waker {
    process: Process,
    url: String,
    folder: PathBuf,
    lines: Lines<String>,
}

impl Waker {
    fn start(workdir: &Workdir) -> Self {
        let folder = workdir.folder.path().to_owned();
        let packages = folder.join("node_modules");
        fs::create_dir_all(packages.join("@actual-app")).unwrap();
        let libraries = root().join("target/receivers/node_modules").canonicalize();
        let libraries = libraries.expect("run scripts/setup receivers, which installs the library");
        let library = "standardwebhooks";
        symlink(libraries.join(library), packages.join(library)).unwrap();
        let stub = root().join("crates/bellbird/tests/it/clients/recipes/actual_stub");
        let stub = stub.canonicalize().unwrap();
        symlink(stub, packages.join("@actual-app/api")).unwrap();
        let recipe = root().join("docs/recipes/wake_actual.mjs");
        fs::copy(recipe, folder.join("wake_actual.mjs")).unwrap();
        let pauses = root().join("crates/bellbird/tests/it/clients/recipes/pauses.cjs");
        let port = free_port();
        let mut child = Command::new("node")
            .arg("--require")
            .arg(pauses)
            .args(["wake_actual.mjs", &port.to_string()])
            .current_dir(&folder)
            .env("BELLBIRD_WEBHOOK_SECRET", SECRET)
            .env("ACTUAL_SERVER_URL", "http://actual.example")
            .env("ACTUAL_PASSWORD", "pass")
            .env("ACTUAL_SYNC_ID", "budget")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("Node.js is installed");
        let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
        let url = format!("http://127.0.0.1:{port}/");
        let first = errors.next().map(Result::unwrap);
        assert_eq!(first, Some(format!("listening on {url}")));
        let printed = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            printed
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        Self {
            process: Process(child),
            url,
            folder,
            lines,
        }
    }

    /// Sends an event that is signed with `secret`. Returns the status of the response.
    async fn send(&self, event_type: &str, secret: &str) -> u16 {
        let event = Signed::of_type(event_type, secret, SignedDuration::ZERO, 0);
        event.post(&self.url).await
    }

    /// Ends the pause after the events so far. Asserts the calls of Actual's library up to the line
    /// that reports the outcome of a run, and the outcome.
    fn assert_runs(&mut self, expected: &[&str], expected_outcome: &str) {
        let input = self.process.0.stdin.as_mut().unwrap();
        input.write_all(b"\n").unwrap();
        let mut calls = Vec::new();
        loop {
            let line = self.lines.recv().expect("the program runs");
            match line.split_once("Z ") {
                Some((_, event)) if event.starts_with("received ") => {}
                Some((_, outcome)) => {
                    assert_eq!(calls, expected);
                    assert_eq!(outcome, expected_outcome);
                    return;
                }
                None => calls.push(line),
            }
        }
    }
}

#[tokio::test]
async fn changes_wake_actual_once() {
    let calls = [
        r#"init ["http://actual.example","pass"]"#,
        r#"downloadBudget ["budget",null]"#,
        "runBankSync []",
        "shutdown []",
    ];
    let workdir = Workdir::new();
    let mut waker = Waker::start(&workdir);
    assert_eq!(waker.send("transactions.synced", ANOTHER).await, 400);
    for event_type in ["endpoint.ping", "trades.synced"] {
        assert_eq!(waker.send(event_type, SECRET).await, 204);
    }
    for _ in 0..3 {
        assert_eq!(waker.send("transactions.synced", SECRET).await, 204);
    }
    // One run for all.
    waker.assert_runs(&calls, "synced");

    // A failure ends neither the program nor the next run.
    fs::write(waker.folder.join("fail"), "").unwrap();
    assert_eq!(waker.send("connection.updated", SECRET).await, 204);
    waker.assert_runs(&calls, "could not sync: no server");
    fs::remove_file(waker.folder.join("fail")).unwrap();
    assert_eq!(waker.send("transactions.synced", SECRET).await, 204);
    waker.assert_runs(&calls, "synced");
}

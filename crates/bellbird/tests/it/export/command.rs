//! `bellbird export`.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Stdio;

use bellbird_sandbox::Fault;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::deployment;
use crate::support::deployment::{add_fault, control};
use crate::support::harness::Database;
use crate::support::process::{RunningCommand, Workdir, errors, text};
use crate::support::provider_spec::spec;
use crate::support::words::{assert_has, assert_starts};

const USER: &str = "export --user me@example.com";

/// A user of the plan without API access, with one connection at Fiskil.
struct Deployment {
    workdir: Workdir,
    sandbox: RunningCommand,
    connection: String,
    account: String,
}

impl Deployment {
    async fn start() -> Self {
        let deployment::Deployment {
            workdir, sandbox, ..
        } = deployment::Deployment::start_on(Database::Sqlite, 50, &[]).await;
        workdir.json("user add --email me@example.com --plan saver");
        let credentials = &sandbox.json()["credentials"][0];
        let connection = workdir.import("me@example.com", credentials);
        let shown = workdir.json(&format!("connection show {connection}"));
        let account = text(&shown["accounts"][0], "id").to_owned();
        Self {
            workdir,
            sandbox,
            connection,
            account,
        }
    }

    async fn fail_provider(&self) {
        self.add_fault(Fault::status(500).at("/v1/banking/transactions"))
            .await;
    }

    async fn add_fault(&self, fault: Fault) {
        add_fault(&self.sandbox.json(), "fiskil", fault).await;
    }

    /// The names in the folder of the file.
    fn files(&self) -> Vec<String> {
        let folder = fs::read_dir(self.workdir.path().join("out")).unwrap();
        let mut names: Vec<_> = folder
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

#[tokio::test]
async fn command_writes_a_whole_file_or_says_what_to_do() {
    let deployment = Deployment::start().await;
    export_that_fails_or_is_ended_leaves_no_file(&deployment).await;
    file_has_mode_0600_and_replaces_an_older_one(&deployment);
    closed_pipe_is_quiet(&deployment);
    wrong_use_says_what_to_do(&deployment);
    failing_balance_is_read_again(&deployment).await;
    partial_file_names_what_it_leaves_out_on_standard_error(&deployment).await;
}

fn file_has_mode_0600_and_replaces_an_older_one(deployment: &Deployment) {
    let Deployment {
        workdir,
        account,
        connection,
        ..
    } = deployment;
    let out = workdir.path().join("out");
    fs::create_dir(&out).unwrap();
    let line = format!(
        "{USER} --format jsonl --from 2000-01-01 --connection {connection} --output out/a.jsonl"
    );
    let path = out.join("a.jsonl");
    let printed = workdir.json(&line);
    let file = fs::read_to_string(&path).unwrap();
    let (rows, bytes) = (file.lines().count(), file.len());
    let expected = json!({"file": "out/a.jsonl", "rows": rows, "bytes": bytes, "leftOut": []});
    assert_eq!(printed, expected);
    assert!(rows > 100);
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let wrote = format!("Wrote {rows} rows to out/a.jsonl.\n");
    assert_eq!(workdir.said(&line), wrote);
    let stdout = workdir.text(&line.replace("out/a.jsonl", "-"));
    assert_eq!(stdout, file);
    // Through a link, what it points to is replaced.
    symlink("a.jsonl", out.join("link")).unwrap();
    let line = format!("{USER} --format ofx --account {account} --output out/link");
    assert_starts(&workdir.said(&line), "Wrote ");
    let file = fs::read_to_string(&path).unwrap();
    assert_starts(&file, "OFXHEADER:100\n");
    symlink("nothing", out.join("dangling")).unwrap();
    let error = workdir.error(&line.replace("out/link", "out/dangling"), 1);
    assert_has(&error, "link to nothing");
    assert_eq!(deployment.files(), ["a.jsonl", "dangling", "link"]);
}

async fn export_that_fails_or_is_ended_leaves_no_file(deployment: &Deployment) {
    let Deployment {
        workdir, sandbox, ..
    } = deployment;
    let out = workdir.path().join("out");
    fs::create_dir(&out).unwrap();
    // The command waits for a provider that does not respond.
    let hang = Fault::delay_ms(600_000).at("/v1/banking/transactions");
    deployment.add_fault(hang).await;
    let line = format!("{USER} --format csv --output out/a.csv");
    let mut command = workdir.command(&line).spawn().unwrap();
    while deployment.files().is_empty() {
        let ended = command.try_wait().unwrap();
        assert_eq!(ended, None, "ended before it wrote");
        tokio::task::yield_now().await;
    }
    let process = rustix::process::Pid::from_child(&command);
    rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
    assert_eq!(command.wait().unwrap().code(), Some(1));
    assert!(deployment.files().is_empty());

    // An older file stays.
    let sandbox = sandbox.json();
    control(&sandbox, "fiskil", Method::DELETE, "faults", json!({})).await;
    deployment.fail_provider().await;
    fs::write(out.join("old.csv"), "old").unwrap();
    for name in ["old.csv", "new.csv"] {
        let line = format!("{USER} --format csv --json --output out/{name}");
        let error = workdir.error(&line, 1);
        assert_has(&error, "could not read from");
    }
    assert_eq!(deployment.files(), ["old.csv"]);
    assert_eq!(fs::read_to_string(out.join("old.csv")).unwrap(), "old");
    let output = workdir.run(&format!("{USER} --format csv"));
    assert_eq!(output.status.code(), Some(1));
    fs::remove_dir_all(&out).unwrap();
    control(&sandbox, "fiskil", Method::DELETE, "faults", json!({})).await;
}

async fn partial_file_names_what_it_leaves_out_on_standard_error(deployment: &Deployment) {
    let Deployment {
        workdir,
        sandbox,
        connection,
        ..
    } = deployment;
    let credentials = sandbox.json()["credentials"][1].clone();
    workdir.import("me@example.com", &credentials);
    let of_connection = workdir.text(&format!("{USER} --format jsonl --connection {connection}"));
    let path = format!("consents/{}", spec("fiskil").connection_in(&credentials));
    let revoked = json!({"state": "revoked"});
    control(&sandbox.json(), "fiskil", Method::POST, &path, revoked).await;
    let output = workdir.run(&format!("{USER} --format jsonl"));
    assert_eq!(output.status.code(), Some(1));
    let output = workdir.run(&format!("{USER} --format jsonl --partial"));
    let error = errors(&output);
    assert_eq!(output.status.code(), Some(0), "{error}");
    assert_starts(&error, "left out: the connection to ");
    assert_has(&error, "--reconnect ");
    assert_eq!(error.lines().count(), 1, "{error}");
    let file = String::from_utf8(output.stdout).unwrap();
    let end = file.strip_prefix(&of_connection).unwrap();
    let end: Value = serde_json::from_str(end).unwrap();
    assert_eq!(end["leftOut"][0]["error"], "reconnect_required");
    let printed = workdir.printed(&format!("{USER} --format csv --partial --output a.csv"));
    assert_eq!(printed["leftOut"], end["leftOut"]);
    // Nothing else is left.
    let left_out = text(&end["leftOut"][0], "connectionId");
    let line = format!("{USER} --format csv --partial --connection {left_out} --output b.csv");
    let error = workdir.error(&line, 1);
    assert_has(&error, "renew it with");
}

async fn failing_balance_is_read_again(deployment: &Deployment) {
    let Deployment {
        workdir, account, ..
    } = deployment;
    // More than one read of the command tries.
    let fault = Fault::status(500).at("/v1/banking/balances").times(3);
    deployment.add_fault(fault).await;
    let file = workdir.text(&format!("{USER} --format ofx --account {account}"));
    assert_has(&file, "<LEDGERBAL>");
    assert!(file.ends_with("</OFX>\n"), "{file}");
}

fn closed_pipe_is_quiet(deployment: &Deployment) {
    let mut command = deployment
        .workdir
        .command(&format!("{USER} --format jsonl --from 2000-01-01"));
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 1];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut first).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    assert_eq!(errors(&output), "");
    assert_eq!(output.status.code(), Some(0));
}

fn wrong_use_says_what_to_do(deployment: &Deployment) {
    let Deployment {
        workdir,
        connection,
        ..
    } = deployment;
    let unknown = "0191e7a0-7c3b-7def-8000-00aabbccddee";
    for (arguments, code, expected) in [
        (
            "--format ofx".to_owned(),
            2,
            "a file of this format holds one account: add --account ID",
        ),
        (
            "--format csv --layout ynab".to_owned(),
            2,
            "add --account ID",
        ),
        (
            "--format jsonl --quote-formulas".to_owned(),
            2,
            "are for --format csv",
        ),
        (
            "--format csv --json".to_owned(),
            2,
            "--json needs --output FILE",
        ),
        (
            "trades --format ofx".to_owned(),
            2,
            "trades have no format ofx: choose csv or jsonl",
        ),
        (
            "holdings --format csv --layout ynab".to_owned(),
            2,
            "--layout is for transactions",
        ),
        (
            "--format csv --from 2026-02-30".to_owned(),
            2,
            "must be a date or a time",
        ),
        (
            "--format csv --output .".to_owned(),
            1,
            ". is not a regular file",
        ),
        (
            "--format csv --output none/a.csv".to_owned(),
            1,
            "could not write in the folder none: it does not exist",
        ),
        (
            format!("--format csv --account {unknown}"),
            1,
            "me@example.com has no such account",
        ),
        (
            format!("--format csv --connection {unknown}"),
            1,
            "me@example.com has no such connection",
        ),
        (
            format!("trades --format csv --connection {connection}"),
            1,
            "trades are those of a brokerage connection",
        ),
    ] {
        let error = workdir.error(&format!("{USER} {arguments}"), code);
        assert_has(&error, expected);
    }
}

//! The official clients of SnapTrade (PyPI, npm) and Akahu (npm) read from the sandbox. They share
//! no code with the adapters or the sandbox, so they notice where both are wrong in the same way.

use std::path::Path;
use std::process::Command;

use super::receivers::{installed, installed_copy};
use crate::repository::root;
use crate::support::process::{ANY_SANDBOX_PORTS, RunningCommand, Workdir, errors};

/// Runs a file of sandbox/tests/official with a sandbox of its own.
#[track_caller]
fn assert_passes(program: &Path, check: &str) {
    let copy = |name| installed_copy("official-clients", "sandbox/tests/official", name);
    for pins in ["package-lock.json", "requirements.txt", "literals.mjs"] {
        copy(pins);
    }
    let check = copy(check);
    let workdir = Workdir::new();
    let line = format!("sandbox --json --log-level warn {ANY_SANDBOX_PORTS}");
    let sandbox = RunningCommand::start(&workdir, &line);
    let description = workdir.path().join("sandbox.json");
    std::fs::write(&description, &sandbox.ready_line).unwrap();
    // The clients read proxies from the environment, but the sandbox listens on loopback.
    let output = Command::new(program)
        .arg(&check)
        .arg(&description)
        .current_dir(check.parent().unwrap())
        .env("NO_PROXY", "127.0.0.1")
        .env("no_proxy", "127.0.0.1")
        .output()
        .expect("Node.js is installed");
    assert!(output.status.success(), "{}", errors(&output));
}

#[test]
fn snaptrades_client_for_python_reads_the_sandbox() {
    let python = installed(root().join("target/official-clients/venv/bin/python"));
    assert_passes(&python, "snaptrade_check.py");
}

#[test]
fn snaptrades_client_for_node_reads_the_sandbox() {
    assert_passes(Path::new("node"), "snaptrade_check.mjs");
}

#[test]
fn akahus_client_for_node_reads_the_sandbox() {
    assert_passes(Path::new("node"), "akahu_check.mjs");
}

//! Runs the receivers as separate programs.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::repository::{read, root};
use crate::support::harness::eventually;
use crate::support::process::Process;

/// A path that `scripts/setup clients` installs, or cargo builds with `--example receiver`.
pub(crate) fn installed(path: PathBuf) -> PathBuf {
    assert!(
        path.exists(),
        "{} is missing: run scripts/setup clients, or build the example receiver",
        path.display()
    );
    path
}

/// The copy of a file of `source` in the folder of `target` where its libraries are installed.
pub(crate) fn installed_copy(place: &str, source: &str, name: &str) -> PathBuf {
    let copy = installed(root().join("target").join(place).join(name));
    let is_current = read(&copy) == read(&root().join(source).join(name));
    assert!(
        is_current,
        "{} differs from {source}: run scripts/setup clients",
        copy.display()
    );
    copy
}

fn receivers_copy(name: &str) -> PathBuf {
    installed_copy("receivers", "docs/receivers", name)
}

/// The command that runs a receiver.
fn program(language: &str) -> Command {
    match language {
        "python" => {
            receivers_copy("requirements.txt");
            let mut command =
                Command::new(installed(root().join("target/receivers/venv/bin/python")));
            command.arg(root().join("docs/receivers/receiver.py"));
            command
        }
        "js" => {
            receivers_copy("package-lock.json");
            installed(root().join("target/receivers/node_modules/standardwebhooks"));
            let mut command = Command::new("node");
            command.arg(receivers_copy("receiver.mjs"));
            command
        }
        _ => {
            let programs = Path::new(env!("CARGO_BIN_EXE_bellbird")).parent().unwrap();
            Command::new(installed(programs.join("examples/receiver")))
        }
    }
}

/// A running receiver. Dropping it kills the process.
pub(super) struct Receiver {
    pub(super) language: &'static str,
    _process: Process,
    pub(super) port: u16,
    lines: Arc<Mutex<Vec<Value>>>,
}

impl Receiver {
    /// Starts a receiver and waits until it listens.
    pub(super) fn start(language: &'static str, port: u16, secret: &str) -> Self {
        let mut child = program(language)
            .arg(port.to_string())
            .env("BELLBIRD_WEBHOOK_SECRET", secret)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{language}: {error}"));
        let mut stderr_lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let first = stderr_lines.next().map(Result::unwrap);
        assert_eq!(
            first,
            Some(format!("listening on http://127.0.0.1:{port}/")),
            "{language}"
        );
        std::thread::spawn(move || stderr_lines.for_each(drop));
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (out, printed) = (
            BufReader::new(child.stdout.take().unwrap()),
            Arc::clone(&lines),
        );
        std::thread::spawn(move || {
            for line in out.lines() {
                let line = line.unwrap();
                printed
                    .lock()
                    .unwrap()
                    .push(serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}")));
            }
        });
        Self {
            language,
            _process: Process(child),
            port,
            lines,
        }
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    pub(super) fn received(&self) -> Vec<Value> {
        self.lines.lock().unwrap().clone()
    }

    pub(super) fn received_of(&self, event_type: &str) -> Vec<Value> {
        self.received()
            .into_iter()
            .filter(|event| event["type"] == event_type)
            .collect()
    }

    pub(super) async fn wait_until_received(&self, is_enough: impl Fn(&[Value]) -> bool) {
        eventually(async || is_enough(&self.received())).await;
    }
}

//! A mail server, as a program of its own.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use bellbird::config::Settings;
use bellbird_console::EmailSettings;
use serde_json::Value;
use tempfile::TempDir;

use crate::clients::receivers::installed;
use crate::repository::root;
use crate::support::harness::eventually;
use crate::support::process::Process;

/// Dropping it kills the process.
pub(super) struct MailServer {
    _process: Process,
    pub(super) port: u16,
    lines: Arc<Mutex<Vec<Value>>>,
    directory: TempDir,
}

impl MailServer {
    pub(super) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut child = Command::new(installed(root().join("target/servers/venv/bin/python")))
            .arg(root().join("crates/bellbird/tests/it/clients/mail/mail_server.py"))
            .arg(directory.path().join("ready"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = out.next().unwrap().unwrap().parse().unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let printed = Arc::clone(&lines);
        std::thread::spawn(move || {
            for line in out.map_while(Result::ok) {
                printed
                    .lock()
                    .unwrap()
                    .push(serde_json::from_str(&line).unwrap());
            }
        });
        Self {
            _process: Process(child),
            port,
            lines,
            directory,
        }
    }

    /// Makes the settings of a service send by this server.
    pub(super) fn configure(&self, settings: &mut Settings, query: &str) {
        let url =
            EmailSettings::parse_url(&format!("smtp://127.0.0.1:{}{query}", self.port)).unwrap();
        let from = EmailSettings::parse_from("Bellbird <bellbird@example.com>").unwrap();
        settings.pages.email = Some(EmailSettings::new(url, from));
    }

    /// What has arrived so far.
    pub(super) fn arrived(&self) -> Vec<Value> {
        self.lines.lock().unwrap().clone()
    }

    /// Waits until `count` e-mails have arrived, and takes them.
    pub(super) async fn take(&self, count: usize) -> Vec<Value> {
        eventually(async || self.arrived().len() >= count).await;
        let taken = std::mem::take(&mut *self.lines.lock().unwrap());
        assert_eq!(taken.len(), count, "{taken:?}");
        taken
    }

    /// Takes e-mails for `busy@...` from now on.
    pub(super) fn be_ready(&self) {
        std::fs::write(self.directory.path().join("ready"), "").unwrap();
    }
}

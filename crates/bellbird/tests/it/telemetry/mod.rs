//! The log and the metrics of the running program.

mod log;
mod metrics;
mod traces;

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::deployment;
use crate::support::harness::Database;
use crate::support::process::{ANY_PORTS, RunningCommand, Workdir, errors, text};

/// A service with one user and one connection, whose log has all levels.
struct Deployment {
    workdir: Workdir,
    sandbox: RunningCommand,
    service: RunningCommand,
    database: String,
    key: String,
    key_id: String,
    connection: String,
    http: reqwest::Client,
}

/// A response: its status and its `X-Request-Id`.
struct Answered {
    status: StatusCode,
    request_id: String,
}

impl Deployment {
    async fn start() -> Self {
        Self::start_with(&[]).await
    }

    async fn start_with(settings: &[(&str, &str)]) -> Self {
        let deployment::Deployment {
            mut workdir,
            sandbox,
            database,
        } = deployment::Deployment::start_on(Database::Sqlite, 50, &[]).await;
        settings
            .iter()
            .for_each(|(name, value)| workdir.set(name, value));
        workdir.set("BELLBIRD_LOG__LEVEL", "trace");
        workdir.set("BELLBIRD_SYNC__ENABLED", "false");
        workdir.json("user add --email me@example.com");
        let created = workdir.json("key create --user me@example.com");
        let (key, key_id) = (
            text(&created, "key").to_owned(),
            text(&created, "id").to_owned(),
        );
        let credentials = sandbox.json()["credentials"][0].to_string();
        let import = "connection import --user me@example.com --credentials - --json";
        let output = workdir.run_with_input(import, &credentials);
        assert_eq!(errors(&output), "");
        let imported: Value = serde_json::from_slice(&output.stdout).unwrap();
        let connection = text(&imported[0], "id").to_owned();
        let service = RunningCommand::start(&workdir, &format!("serve --json {ANY_PORTS}"));
        Self {
            workdir,
            sandbox,
            service,
            database,
            key,
            key_id,
            connection,
            http: reqwest::Client::new(),
        }
    }

    async fn get(&self, listener: &str, path: &str) -> Answered {
        let url = format!("{}{path}", text(&self.service.json(), listener));
        let answer = self
            .http
            .get(url)
            .bearer_auth(&self.key)
            .header("accept", "text/html")
            .send()
            .await
            .unwrap();
        let request_id = answer.headers()["x-request-id"]
            .to_str()
            .unwrap()
            .to_owned();
        Answered {
            status: answer.status(),
            request_id,
        }
    }

    fn transactions(&self) -> String {
        format!("/v1/transactions?connectionId={}", self.connection)
    }

    /// Makes the provider's rows fail in this way.
    async fn set_fault(&self, mut fault: Value) {
        fault["match"] = json!("/v1/banking/transactions");
        let base = reqwest::Url::parse(text(&self.sandbox.json()["fiskil"], "baseUrl")).unwrap();
        let url = base.join("/__control/faults").unwrap();
        assert!(
            self.http
                .post(url)
                .json(&fault)
                .send()
                .await
                .unwrap()
                .status()
                .is_success()
        );
    }
}

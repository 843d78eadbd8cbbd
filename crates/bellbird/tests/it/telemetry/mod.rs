//! The log and the metrics of the running program.

mod log;
mod metrics;
mod traces;

use bellbird_sandbox::Fault;
use reqwest::StatusCode;

use crate::support::deployment;
use crate::support::harness::Database;
use crate::support::process::{RunningCommand, Workdir, text};

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
        for (name, value) in settings {
            workdir.set(name, value);
        }
        workdir.set("BELLBIRD_LOG__LEVEL", "trace");
        workdir.set("BELLBIRD_SYNC__ENABLED", "false");
        workdir.json("user add --email me@example.com");
        let created = workdir.json("key create --user me@example.com");
        let [key, key_id] = ["key", "id"].map(|name| text(&created, name).to_owned());
        let credentials = &sandbox.json()["credentials"][0];
        let connection = workdir.import("me@example.com", credentials);
        let service = workdir.start("serve");
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

    /// Starts the service again, with these settings changed. Returns the log of the one before.
    fn restart(mut self, settings: &[(&str, &str)]) -> (Self, String) {
        let log = self.service.end();
        for (name, value) in settings {
            self.workdir.set(name, value);
        }
        self.service = self.workdir.start("serve");
        (self, log)
    }

    async fn get(&self, listener: &str, path: &str) -> Answered {
        let url = format!("{}{path}", self.service.url(listener));
        let request = self.http.get(url).bearer_auth(&self.key);
        let answer = request.header("accept", "text/html").send().await.unwrap();
        let request_id = &answer.headers()["x-request-id"];
        Answered {
            status: answer.status(),
            request_id: request_id.to_str().unwrap().to_owned(),
        }
    }

    /// The page of metrics.
    async fn scrape(&self) -> String {
        let url = format!("{}/metrics", self.service.url("opsUrl"));
        let answer = self.http.get(url).send().await.unwrap();
        answer.text().await.unwrap()
    }

    fn transactions(&self) -> String {
        format!("/v1/transactions?connectionId={}", self.connection)
    }

    /// Makes the provider's rows fail in this way.
    async fn add_fault(&self, fault: Fault) {
        let fault = fault.at("/v1/banking/transactions");
        deployment::add_fault(&self.sandbox.json(), "fiskil", fault).await;
    }
}

//! The service is killed with `kill -9` while a client follows changes, and is started again.

use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::browser::client;
use crate::support::database::{execute, query};
use crate::support::follower::Follower;
use crate::support::harness::{Database, also_on_postgres, eventually};
use crate::support::known_rows::control;
use crate::support::process::{
    ANY_PORTS, RunningCommand, Workdir, errors, get, new_deployment, text,
};
use crate::support::provider_spec::spec;

const EMAIL: &str = "me@example.com";

/// A deployment whose user has one connection.
struct Deployment {
    workdir: Workdir,
    sandbox: RunningCommand,
    database: String,
    provider: &'static str,
    account: String,
    rows: u32,
}

impl Deployment {
    async fn start(database: Database, provider: &'static str) -> (Self, Follower) {
        let (mut workdir, sandbox, database) = new_deployment(database).await;
        workdir.set("BELLBIRD_SYNC__ENABLED", "false");
        for name in [
            "LIVE_PER_MINUTE",
            "METADATA_PER_MINUTE",
            "PROVIDER_CALLS_PER_MINUTE",
        ] {
            workdir.set(&format!("BELLBIRD_LIMITS__{name}"), "0");
        }
        workdir.json(&format!("user add --email {EMAIL} --plan professional"));
        let key = text(&workdir.json(&format!("key create --user {EMAIL}")), "key").to_owned();
        let description = sandbox.json();
        let all = description["credentials"].as_array().unwrap();
        let credentials = all
            .iter()
            .find(|credentials| credentials["provider"] == provider)
            .unwrap();
        let import = format!("connection import --user {EMAIL} --credentials - --json");
        let output = workdir.run_with_input(&import, &credentials.to_string());
        assert_eq!(errors(&output), "");
        let imported: Value = serde_json::from_slice(&output.stdout).unwrap();
        let account = "SELECT MIN(provider_account_id) FROM accounts WHERE account_type IN ('transaction', 'investment')";
        let account = query(&database, account).await.remove(0).remove(0);
        let copy =
            Follower::at("", &key, spec(provider).list, text(&imported[0], "id")).with("&limit=2");
        (
            Self {
                workdir,
                sandbox,
                database,
                provider,
                account,
                rows: 0,
            },
            copy,
        )
    }

    /// Starts the service. Leases of a killed one have ended, and the last sync was a while ago.
    async fn serve(&self, copy: &mut Follower) -> RunningCommand {
        for sql in [
            "UPDATE jobs SET lease_until = 0 WHERE lease_until IS NOT NULL",
            "UPDATE syncs SET synced_at = synced_at - 120000000 WHERE synced_at IS NOT NULL",
        ] {
            execute(&self.database, sql, "").await;
        }
        let service = RunningCommand::start(&self.workdir, &format!("serve --json {ANY_PORTS}"));
        text(&service.json(), "apiUrl").clone_into(&mut copy.api);
        service
    }

    async fn control(&self, method: Method, path: &str, body: Value) -> Value {
        control(&self.sandbox, self.provider, method, path, body).await
    }

    async fn add_rows(&mut self, count: u32) {
        for _ in 0..count {
            self.rows += 1;
            let at = Timestamp::now()
                - SignedDuration::from_hours(30)
                - SignedDuration::from_mins(self.rows.into());
            let row =
                spec(self.provider).row_at(&self.account, at, &format!("ADDED {}", self.rows));
            self.control(Method::POST, spec(self.provider).list, row)
                .await;
        }
    }

    async fn row_calls(&self) -> u64 {
        let seen = self.control(Method::GET, "calls", json!({})).await;
        let calls = seen["calls"].as_array().unwrap().iter();
        let of_rows = calls.filter(|call| {
            ["/transactions", "/activities"]
                .iter()
                .any(|end| text(call, "path").ends_with(end))
        });
        of_rows.map(|call| call["count"].as_u64().unwrap()).sum()
    }

    /// Kills the service when so many of a request's reads of rows have a response, and the next
    /// one has none.
    async fn kill_during_read(&self, service: RunningCommand, copy: &Follower, after: u64) {
        let route = match self.provider {
            "fiskil" => "/v1/banking/transactions",
            "akahu" => "/v1/transactions",
            _ => "/accounts/",
        };
        self.control(Method::DELETE, "calls", json!({})).await;
        if after > 0 {
            let pass = json!({"match": route, "kind": "delay", "delayMs": 0, "times": after});
            self.control(Method::POST, "faults", pass).await;
        }
        let fault = json!({"match": route, "kind": "delay", "delayMs": 60_000});
        self.control(Method::POST, "faults", fault).await;
        let request = tokio::spawn(client().get(copy.url()).bearer_auth(&copy.key).send());
        eventually(async || request.is_finished() || self.row_calls().await > after).await;
        assert_eq!(service.stop("-KILL").0, None);
        let _ = request.await.unwrap();
        self.control(Method::DELETE, "faults", json!({})).await;
    }
}

async fn page(copy: &mut Follower) -> bool {
    let (status, body) = get(&copy.url(), Some(&copy.key)).await;
    copy.apply(status, &body)
}

async fn follow_despite_kills(database: Database, provider: &'static str) {
    let (mut deployment, mut copy) = Deployment::start(database, provider).await;
    let mut service = deployment.serve(&mut copy).await;
    // The first copy.
    deployment.kill_during_read(service, &copy, 0).await;
    service = deployment.serve(&mut copy).await;
    for _ in 0..2 {
        assert!(page(&mut copy).await);
    }
    deployment.kill_during_read(service, &copy, 0).await;
    service = deployment.serve(&mut copy).await;
    while page(&mut copy).await {}
    let mut keys = copy.keys();
    for after in 0..3 {
        deployment.add_rows(5).await;
        assert_eq!(service.stop("-KILL").0, None);
        service = deployment.serve(&mut copy).await;
        // During the sync, or during the read after it.
        deployment.kill_during_read(service, &copy, after).await;
        service = deployment.serve(&mut copy).await;
        // A page that the client has not kept comes again.
        let mut lost = copy.clone();
        assert!(page(&mut lost).await);
        assert!(page(&mut copy).await);
        assert_eq!(lost.rows, copy.rows, "{provider}: after {after}");
        if after == 1 {
            assert_eq!(service.stop("-KILL").0, None);
            service = deployment.serve(&mut copy).await;
        }
        while page(&mut copy).await {}
        assert_eq!(copy.rows.len(), keys.len() + 5, "{provider}: after {after}");
        assert!(
            keys.iter().all(|key| copy.rows.contains_key(key)),
            "{provider}: keys stay"
        );
        keys = copy.keys();
    }
    let listed = format!(
        "{}/v1/{}?{}&from={}&limit=500",
        copy.api, copy.list, copy.filter, copy.watched_from
    );
    let (_, listed) = get(&listed, Some(&copy.key)).await;
    assert_eq!(listed["pagination"]["hasMore"], false);
    let listed = listed["data"].as_array().unwrap().clone();
    assert!(copy.watched(listed.clone()).len() > 15);
    assert_eq!(
        copy.watched(copy.rows.values().cloned()),
        copy.watched(listed),
        "{provider}"
    );
    assert_eq!(service.stop("-TERM").0, Some(0));
}

#[tokio::test]
async fn copy_of_a_bank_survives_kills() {
    let database = Database::of_test();
    follow_despite_kills(database, "fiskil").await;
}

#[tokio::test]
async fn copy_of_a_broker_survives_kills() {
    let database = Database::of_test();
    follow_despite_kills(database, "snaptrade").await;
}

also_on_postgres! { copy_of_a_bank_survives_kills copy_of_a_broker_survives_kills }

//! The service is killed with `kill -9` while a client follows changes, and is started again.

use bellbird_sandbox::Fault;
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;

use crate::support::browser::client;
use crate::support::database::query;
use crate::support::deployment::{Deployment, EMAIL, Service};
use crate::support::follower::Follower;
use crate::support::harness::{also_on_postgres, eventually};
use crate::support::process::get;
use crate::support::provider_spec::spec;

/// A user who has one connection, which a client follows.
struct Following {
    deployment: Deployment,
    provider: &'static str,
    account: String,
    rows: u32,
}

impl Following {
    async fn start(provider: &'static str) -> (Self, Follower) {
        let settings = [
            ("SYNC__ENABLED", "false"),
            ("LIMITS__LIVE_PER_MINUTE", "0"),
            ("LIMITS__METADATA_PER_MINUTE", "0"),
            ("LIMITS__PROVIDER_CALLS_PER_MINUTE", "0"),
        ];
        let deployment = Deployment::start(&settings).await;
        let key = deployment.add_user(EMAIL);
        let connection = deployment.import(EMAIL, provider, 1).remove(0);
        let account = "SELECT MIN(provider_account_id) FROM accounts WHERE account_type IN ('transaction', 'investment')";
        let account = query(&deployment.database, account).await[0][0].clone();
        let copy = Follower::at("", &key, spec(provider).list, &connection).with("&limit=2");
        let following = Self {
            deployment,
            provider,
            account,
            rows: 0,
        };
        (following, copy)
    }

    /// Starts the service. Leases of a killed one have ended, and the last sync was a while ago.
    async fn serve(&self, copy: &mut Follower) -> Service {
        for sql in [
            "UPDATE jobs SET lease_until = 0 WHERE lease_until IS NOT NULL",
            "UPDATE syncs SET synced_at = synced_at - 120000000 WHERE synced_at IS NOT NULL",
        ] {
            self.deployment.execute(sql).await;
        }
        let service = self.deployment.serve();
        copy.api.clone_from(&service.api);
        service
    }

    async fn add_rows(&mut self, count: u32) {
        for _ in 0..count {
            self.rows += 1;
            let age = SignedDuration::from_mins(30 * 60 + i64::from(self.rows));
            let (at, text) = (Timestamp::now() - age, format!("ADDED {}", self.rows));
            let row = spec(self.provider).row_at(&self.account, at, &text);
            let (deployment, post) = (&self.deployment, Method::POST);
            deployment
                .control(self.provider, post, "transactions", row)
                .await;
        }
    }

    async fn row_calls(&self) -> u64 {
        let is_of_rows =
            |_: &str, path: &str| path.ends_with("/transactions") || path.ends_with("/activities");
        self.deployment.calls(self.provider, is_of_rows).await
    }

    /// Kills the service when so many of a request's reads of rows have a response, and the next
    /// one has none.
    async fn kill_during_read(&self, service: Service, copy: &Follower, after: u64) {
        let route = match self.provider {
            "fiskil" => "/v1/banking/transactions",
            "akahu" => "/v1/transactions",
            _ => "/accounts/",
        };
        self.deployment.reset_calls(self.provider).await;
        if after > 0 {
            let pass = Fault::delay_ms(0).at(route).times(after);
            self.deployment.add_fault(self.provider, pass).await;
        }
        let fault = Fault::delay_ms(60_000).at(route);
        self.deployment.add_fault(self.provider, fault).await;
        let request = tokio::spawn(client().get(copy.url()).bearer_auth(&copy.key).send());
        eventually(async || request.is_finished() || self.row_calls().await > after).await;
        service.kill();
        let _ = request.await.unwrap();
        self.deployment.clear_faults(self.provider).await;
    }
}

async fn page(copy: &mut Follower) -> bool {
    let (status, body) = get(&copy.url(), Some(&copy.key)).await;
    copy.apply(status, &body)
}

async fn follow_despite_kills(provider: &'static str) {
    let (mut following, mut copy) = Following::start(provider).await;
    let mut service = following.serve(&mut copy).await;
    // The first copy.
    following.kill_during_read(service, &copy, 0).await;
    service = following.serve(&mut copy).await;
    for _ in 0..2 {
        assert!(page(&mut copy).await);
    }
    following.kill_during_read(service, &copy, 0).await;
    service = following.serve(&mut copy).await;
    while page(&mut copy).await {}
    let mut keys = copy.keys();
    for after in 0..3 {
        following.add_rows(5).await;
        service.kill();
        service = following.serve(&mut copy).await;
        // During the sync, or during the read after it.
        following.kill_during_read(service, &copy, after).await;
        service = following.serve(&mut copy).await;
        // A page that the client has not kept comes again.
        let mut lost = copy.clone();
        assert!(page(&mut lost).await);
        assert!(page(&mut copy).await);
        assert_eq!(lost.rows, copy.rows, "{provider}: after {after}");
        if after == 1 {
            service.kill();
            service = following.serve(&mut copy).await;
        }
        while page(&mut copy).await {}
        assert_eq!(copy.rows.len(), keys.len() + 5, "{provider}: after {after}");
        let are_kept = keys.iter().all(|key| copy.rows.contains_key(key));
        assert!(are_kept, "{provider}: keys stay");
        keys = copy.keys();
    }
    let listed = format!(
        "{}/v1/{}?{}&from={}&limit=500",
        copy.api, copy.list, copy.filter, copy.watched_from
    );
    let (_, listed) = get(&listed, Some(&copy.key)).await;
    assert_eq!(listed["pagination"]["hasMore"], false);
    let listed = listed["data"].as_array().unwrap().clone();
    let (copied, listed) = (
        copy.watched(copy.rows.values().cloned()),
        copy.watched(listed),
    );
    assert!(listed.len() > 15);
    assert_eq!(copied, listed, "{provider}");
    service.stop();
}

#[tokio::test]
async fn copy_of_a_bank_survives_kills() {
    follow_despite_kills("fiskil").await;
}

#[tokio::test]
async fn copy_of_a_broker_survives_kills() {
    follow_despite_kills("snaptrade").await;
}

also_on_postgres! { copy_of_a_bank_survives_kills copy_of_a_broker_survives_kills }

//! Nothing waits for the leases of a service that is gone. One that was only paused does no harm
//! when it continues.

use std::time::Duration;

use crate::support::checked_endpoint::{Behaviour, Endpoint};
use crate::support::deployment::{Deployment, EMAIL};
use crate::support::harness::{also_on_postgres, eventually, eventually_within};
use crate::support::process::Addresses;

/// Requests that a service sends to one endpoint at once.
const CONCURRENT_ATTEMPTS_MAX: usize = 16;
/// The chunks that are accepted before the endpoint waits for the test.
const CHUNKS_BEFORE: usize = 3;
/// For all chunks, each of which takes its time.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(120);

/// A user with one connection, and an endpoint that takes its time for each of many chunks.
struct SlowDelivery {
    deployment: Deployment,
    endpoint: Endpoint,
}

impl SlowDelivery {
    async fn start() -> Self {
        let settings = [
            ("WEBHOOKS__ALLOW_LOOPBACK", "true"),
            ("WEBHOOKS__CHUNK_ROWS", "2"),
        ];
        let deployment = Deployment::start(&settings).await;
        deployment.add_user(EMAIL);
        let endpoint = Endpoint::start(Behaviour::Slow, 0).await;
        endpoint.pause_after(CHUNKS_BEFORE);
        deployment.add_endpoint(EMAIL, &endpoint);
        deployment.import(EMAIL, "fiskil", 1);
        let due = "UPDATE jobs SET run_at = 0 WHERE kind = 'sync'";
        deployment.execute(due).await;
        Self {
            deployment,
            endpoint,
        }
    }

    async fn count(&self, sql: &str) -> usize {
        usize::try_from(self.deployment.count(sql).await).unwrap()
    }

    /// Waits until some chunks were accepted and many are left. The next one then waits for its
    /// response, so the lease is held.
    async fn wait_until_amid_chunks(&self) {
        eventually(async || self.endpoint.counts().accepted >= CHUNKS_BEFORE).await;
        assert!(self.count(UNDELIVERED).await > 5);
    }

    /// Lets the endpoint respond again, waits until everything is delivered, and compares it with
    /// what the database planned.
    async fn assert_all_delivered(&self) {
        self.endpoint.go_on();
        // A lease that nobody gave up lasts longer than this waits.
        eventually(async || self.endpoint.counts().accepted > CHUNKS_BEFORE).await;
        let is_done = async || self.count(UNDELIVERED).await == 0;
        eventually_within(DELIVERY_TIMEOUT, is_done).await;
        self.endpoint.assert_in_order();
        self.endpoint.assert_complete();
        let counts = self.endpoint.counts();
        assert_eq!(
            counts.events,
            self.count("SELECT COUNT(*) FROM webhook_events").await
        );
        // Only what was in progress comes again.
        assert!(counts.accepted - counts.events <= CONCURRENT_ATTEMPTS_MAX);
    }
}

const UNDELIVERED: &str = "SELECT COUNT(*) FROM webhook_deliveries WHERE ended_at IS NULL";
/// Leases that somebody has to wait for.
const FOREIGN_LEASES: &str = "SELECT (SELECT COUNT(*) FROM jobs WHERE lease_until > 0 AND holder NOT IN
        (SELECT id FROM instances)) + (SELECT COUNT(*) FROM webhook_queues WHERE lease_until > 0 AND holder NOT IN
        (SELECT id FROM instances))";

#[tokio::test(flavor = "multi_thread")]
async fn restarted_service_continues_at_once() {
    let delivery = SlowDelivery::start().await;
    let addresses = Addresses::new();
    let service = delivery.deployment.serve_at(&addresses);
    delivery.wait_until_amid_chunks().await;
    service.kill();
    let held = "SELECT COUNT(*) FROM webhook_queues WHERE lease_until > 0";
    assert_eq!(delivery.count(held).await, 1);
    let service = delivery.deployment.serve_at(&addresses);
    // They are free before the service is ready.
    assert_eq!(delivery.count(FOREIGN_LEASES).await, 0);
    delivery.assert_all_delivered().await;
    service.stop();
    delivery.deployment.stop();
}

mod postgres {
    use super::*;
    use crate::support::database::query;
    use crate::support::harness::Database;
    use crate::support::process::send_signal;

    /// The service that holds the endpoint's lease stands still until the other one takes it for
    /// dead. Then it continues in the middle of its time slice.
    #[tokio::test(flavor = "multi_thread")]
    async fn paused_service_loses_what_it_held_and_does_no_harm() {
        Database::use_postgres();
        let delivery = SlowDelivery::start().await;
        let all = [Addresses::new(), Addresses::new()];
        let services = all
            .each_ref()
            .map(|addresses| delivery.deployment.serve_at(addresses));
        delivery.wait_until_amid_chunks().await;
        let holder =
            "SELECT i.api_url, i.id FROM instances i JOIN webhook_queues e ON e.holder = i.id";
        let found = query(&delivery.deployment.database, holder).await;
        let [url, holder] = &found[0][..] else {
            panic!("{found:?}")
        };
        let mut all_services = services.iter();
        let paused = all_services.find(|service| service.api == *url).unwrap();
        let paused = paused.running.id();
        send_signal(paused, "-STOP");
        // As if it had stood still for as long as that takes.
        let stale = format!("UPDATE instances SET last_seen_at = 0 WHERE id = '{holder}'");
        delivery.deployment.execute(&stale).await;
        let other = format!("SELECT COUNT(*) FROM webhook_queues WHERE holder <> '{holder}'");
        eventually(async || delivery.count(&other).await == 1).await;
        send_signal(paused, "-CONT");
        delivery.assert_all_delivered().await;
        for service in services {
            service.stop();
        }
    }
}

also_on_postgres! { restarted_service_continues_at_once }

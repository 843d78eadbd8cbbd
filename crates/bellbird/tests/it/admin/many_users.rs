//! An app with many users: each is created, linked and synced by API, and one endpoint gets the
//! events of all.
//!
//! `BELLBIRD_TEST_USERS` sets how many.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bellbird_connections::ReturnOrigin;
use jiff::SignedDuration;
use reqwest::Url;
use serde_json::json;

use super::{Admin, id};
use crate::support::browser::open;
use crate::support::harness::{Setup, eventually_within};
use crate::support::process::text;
use crate::support::random::print_line;
use crate::support::receiver::{ReceivedEvent, Receiver};

const RETURN_URL: &str = "https://app.example/linked";

/// A user as an app knows them.
struct Customer {
    id: String,
    key: String,
    connection: String,
}

impl Admin {
    /// Signs a user up and links an institution, with calls and pages only.
    async fn sign_up(&self, number: usize) -> Customer {
        let user = json!({
            "email": format!("customer{number}@example.com"),
            "reference": format!("customer-{number}"),
        });
        let user = id(&self.create("/admin/v1/users", &user).await);
        let keys = format!("/admin/v1/users/{user}/keys");
        let key = self.create(&keys, &json!({"name": "app"})).await;

        let state = format!("state-{number}");
        let link =
            json!({"userId": user, "provider": "fiskil", "returnUrl": RETURN_URL, "state": state});
        let session = self.create("/admin/v1/link-sessions", &link).await;
        let callback_url = self
            .app
            .answer_consent_page(text(&session, "url"), "accept");
        let returned: Url = open(&callback_url.await).await.location();
        let session = id(&session);
        let query: BTreeMap<_, _> = returned.query_pairs().into_owned().collect();
        assert_eq!((&query["session"], &query["state"]), (&session, &state));

        let session = format!("/admin/v1/link-sessions/{session}");
        let result = self.read(&session).await;
        assert_eq!(result["status"], "connected", "{result}");
        let connection = id(&result["connections"][0]);
        let sync = format!("/admin/v1/connections/{connection}/sync");
        self.accept(&sync, &json!({})).await;
        Customer {
            id: user,
            key: text(&key, "key").to_owned(),
            connection,
        }
    }

    /// The ids of the rows that the API shows from this day on, with their accounts.
    async fn rows_since(&self, customer: &Customer, day: &str) -> BTreeSet<(String, String)> {
        let connection = customer.connection.parse().unwrap();
        let read = self.app.all_transactions(connection).by_key(&customer.key);
        let rows = read.from(day).limit(500).rows().await.into_iter();
        let posted = rows.filter(|row| row.status == "posted");
        posted.map(|row| (row.account_id, row.id)).collect()
    }
}

/// Asserts that the chunks of each sync came one after the other, and that no row came twice.
/// Returns the rows.
fn rows_in_order(events: &[&ReceivedEvent]) -> BTreeSet<(String, String)> {
    let (mut rows, mut chunks) = (BTreeSet::new(), BTreeMap::new());
    for event in events {
        let run = text(&event.body["metadata"], "sync_run_id");
        let chunk = event.chunk_position().chunk;
        let last = chunks.insert(run, chunk);
        assert_eq!(chunk, last.unwrap_or(0) + 1, "in order");
        for row in event.rows("new") {
            // An id is unique within its account.
            let is_new = rows.insert((text(row, "account_id").to_owned(), id(row)));
            assert!(is_new, "{row} came twice");
        }
        assert!(event.rows("updated").is_empty());
    }
    rows
}

#[tokio::test]
async fn each_row_of_each_user_arrives_once_and_in_order() {
    let count = std::env::var("BELLBIRD_TEST_USERS").map_or(12, |count| count.parse().unwrap());
    let setup = Setup::with(|settings| {
        settings.return_origins = vec![ReturnOrigin::parse("https://app.example").unwrap()];
        settings.api_context.operator_per_minute = 0;
        settings.webhooks.chunk_rows = 10;
        settings.sync.enabled = true;
    });
    let admin = Admin::start_with(setup).await;
    let app = &admin.app;
    let receiver = Receiver::start().await;
    let types = ["connection.created", "transactions.synced"];
    let endpoint = json!({"url": receiver.url, "allUsers": true, "events": types});
    admin.create("/admin/v1/webhook-endpoints", &endpoint).await;
    app.start_background_jobs();

    let started_at = Instant::now();
    let mut customers = Vec::new();
    for number in 0..count {
        customers.push(admin.sign_up(number).await);
    }
    let signed_up_after = started_at.elapsed();
    eventually_within(Duration::from_secs(300), async || {
        tokio::time::sleep(Duration::from_millis(100)).await;
        for customer in &customers {
            let user = customer.id.parse().unwrap();
            let connection = customer.connection.parse().unwrap();
            if app.sync_state(user, connection).await.synced_at.is_none() {
                return false;
            }
        }
        let deliveries = app.storage.deliveries().overview(app.clock.now());
        let deliveries = deliveries.await.unwrap();
        deliveries.pending + deliveries.waiting == 0
    })
    .await;
    let received = receiver.drain();
    let delivered_after = started_at.elapsed();

    let day = |days: i64| {
        (app.clock.now() - SignedDuration::from_hours(days * 24)).to_string()[..10].to_owned()
    };
    let mut rows = 0;
    for (number, customer) in customers.iter().enumerate() {
        let of_user = received
            .iter()
            .filter(|event| event.body["metadata"]["user_id"] == customer.id.as_str());
        let reference = format!("customer-{number}");
        for event in of_user.clone() {
            assert_eq!(event.body["metadata"]["user_reference"], reference);
        }
        let (created, synced): (Vec<_>, Vec<_>) =
            of_user.partition(|event| event.body["type"] == "connection.created");
        assert_eq!(
            (created.len(), &created[0].rows("new")[0]["id"]),
            (1, &json!(customer.connection))
        );
        let reported = rows_in_order(&synced);
        // The first sync reads 30 days, of which the first is not whole.
        assert!(
            reported.is_superset(&admin.rows_since(customer, &day(29)).await),
            "{number}: a row is missing"
        );
        assert!(
            reported.is_subset(&admin.rows_since(customer, &day(31)).await),
            "{number}: a row was invented"
        );
        assert!(synced.len() > 1, "several chunks");
        rows += reported.len();
    }
    print_line(&format!(
        "{count} users: signed up and linked after {signed_up_after:?}, all delivered after {delivered_after:?}: \
         {} events, {rows} rows",
        received.len()
    ));
}

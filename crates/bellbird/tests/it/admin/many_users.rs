//! An app with many users: each is created, linked and synced by API, and one endpoint gets the
//! events of all.
//!
//! `BELLBIRD_TEST_USERS` sets how many.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bellbird_connections::ReturnOrigin;
use jiff::SignedDuration;
use reqwest::Url;
use serde_json::{Value, json};

use super::{Admin, data, id};
use crate::support::browser::open;
use crate::support::harness::{Setup, eventually_within};
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
        let (email, reference) = (
            format!("customer{number}@example.com"),
            format!("customer-{number}"),
        );
        let user = json!({"email": email, "reference": reference});
        let user = id(&data(&self.post("/admin/v1/users", &user).await, 201));
        let key = data(
            &self
                .post(
                    &format!("/admin/v1/users/{user}/keys"),
                    &json!({"name": "app"}),
                )
                .await,
            201,
        );
        let state = format!("state-{number}");
        let link =
            json!({"userId": user, "provider": "fiskil", "returnUrl": RETURN_URL, "state": state});
        let session = data(&self.post("/admin/v1/link-sessions", &link).await, 201);
        let callback_url = self
            .app
            .answer_consent_page(session["url"].as_str().unwrap(), "accept")
            .await;
        let returned: Url = open(&callback_url).await.location();
        let query: BTreeMap<_, _> = returned.query_pairs().into_owned().collect();
        assert_eq!(
            (&query["session"], &query["state"]),
            (&id(&session), &state)
        );
        let result = data(
            &self
                .get(&format!("/admin/v1/link-sessions/{}", id(&session)))
                .await,
            200,
        );
        assert_eq!(result["status"], "connected", "{result}");
        let connection = result["connections"][0]["id"].as_str().unwrap().to_owned();
        data(
            &self
                .post(
                    &format!("/admin/v1/connections/{connection}/sync"),
                    &json!({}),
                )
                .await,
            202,
        );
        Customer {
            id: user,
            key: key["key"].as_str().unwrap().to_owned(),
            connection,
        }
    }

    /// The ids of the rows that the API shows from this day on, with their accounts.
    async fn rows_since(&self, customer: &Customer, day: &str) -> BTreeSet<(String, String)> {
        let (mut rows, mut cursor) = (BTreeSet::new(), String::new());
        loop {
            let path = format!(
                "/v1/transactions?connectionId={}&from={day}&limit=500{cursor}",
                customer.connection
            );
            let page = self.app.get_as(&customer.key, &path).await;
            rows.extend(
                page.data()
                    .iter()
                    .filter(|row| row["status"] == "posted")
                    .map(|row| key_of(row, "accountId")),
            );
            let Some(next) = page.json()["pagination"]["nextCursor"]
                .as_str()
                .map(str::to_owned)
            else {
                return rows;
            };
            cursor = format!("&cursor={next}");
        }
    }
}

/// An id is unique within its account.
fn key_of(row: &Value, account: &str) -> (String, String) {
    (
        row[account].as_str().unwrap().to_owned(),
        row["id"].as_str().unwrap().to_owned(),
    )
}

/// Asserts that the chunks of each sync came one after the other, and that no row came twice.
/// Returns the rows.
fn rows_in_order(events: &[&ReceivedEvent]) -> BTreeSet<(String, String)> {
    let (mut rows, mut chunks) = (BTreeSet::new(), BTreeMap::new());
    for event in events {
        let last = chunks.insert(
            event.body["metadata"]["sync_run_id"].to_string(),
            event.chunk_position().chunk,
        );
        assert_eq!(
            event.chunk_position().chunk,
            last.unwrap_or(0) + 1,
            "in order"
        );
        for row in event.rows("new") {
            assert!(rows.insert(key_of(row, "account_id")), "{row} came twice");
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
    data(
        &admin.post("/admin/v1/webhook-endpoints", &endpoint).await,
        201,
    );
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
            let (user, connection) = (
                customer.id.parse().unwrap(),
                customer.connection.parse().unwrap(),
            );
            let sync = app
                .storage
                .syncs()
                .find(user, connection)
                .await
                .unwrap()
                .expect("a connection");
            if sync.synced_at.is_none() {
                return false;
            }
        }
        let deliveries = app
            .storage
            .deliveries()
            .overview(app.clock.now())
            .await
            .unwrap();
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
        let of_user: Vec<_> = received
            .iter()
            .filter(|event| event.body["metadata"]["user_id"] == customer.id.as_str())
            .collect();
        let reference = format!("customer-{number}");
        assert!(
            of_user
                .iter()
                .all(|event| event.body["metadata"]["user_reference"] == reference)
        );
        let (created, synced): (Vec<_>, Vec<_>) = of_user
            .into_iter()
            .partition(|event| event.body["type"] == "connection.created");
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

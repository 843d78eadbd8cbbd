//! The receivers of docs/webhooks.md, which use the public libraries of Standard Webhooks. They
//! accept what the service sends, and reject everything else.

mod process;

use jiff::{SignedDuration, Timestamp};
use reqwest::{Client, Method};
use serde_json::{Value, json};
use standardwebhooks::Webhook;
use uuid::Uuid;

use crate::support::checked_endpoint::number;
use crate::support::database::query;
use crate::support::deployment::{Deployment, control};
use crate::support::harness::Database;
use crate::support::port::free_port;
use crate::support::process::{ANY_PORTS, RunningCommand, Workdir, text};
use process::Receiver;
pub(crate) use process::{installed, installed_copy};

/// The languages of the receivers.
const RECEIVERS: [&str; 3] = ["python", "js", "rust"];
const CHUNK_ROWS: u64 = 20;
/// The longest body that the receivers read.
const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A request that the reference implementation has signed.
pub(crate) struct Signed {
    id: String,
    timestamp: i64,
    signature: String,
    body: Vec<u8>,
}

impl Signed {
    fn new(secret: &str, age: SignedDuration) -> Self {
        Self::padded(secret, age, 0)
    }

    /// With `blanks` spaces before the body.
    fn padded(secret: &str, age: SignedDuration, blanks: usize) -> Self {
        Self::of_type("endpoint.ping", secret, age, blanks)
    }

    pub(crate) fn of_type(
        event_type: &str,
        secret: &str,
        age: SignedDuration,
        blanks: usize,
    ) -> Self {
        let id = Uuid::now_v7().to_string();
        let timestamp = (Timestamp::now() - age).as_second();
        let metadata = json!({"sync_run_id": id, "new_count": 0, "updated_count": 0, "chunk": 1, "total_chunks": 1});
        let event = json!({
            "id": id, "object": "event", "type": event_type, "api_version": "2026-11-01", "created": timestamp,
            "data": {"new": [], "updated": []}, "metadata": metadata,
        });
        let body = format!("{}{event}", " ".repeat(blanks)).into_bytes();
        let webhook = Webhook::new(secret).unwrap();
        let signature = webhook.sign(&id, timestamp, &body).unwrap();
        Self {
            id,
            timestamp,
            signature,
            body,
        }
    }

    /// The status of the response, or `None` if there was no response.
    async fn try_post(&self, url: &str) -> Option<u16> {
        let client = Client::builder().no_proxy().build().unwrap();
        let request = client
            .post(url)
            .header("webhook-id", &self.id)
            .header("webhook-timestamp", self.timestamp)
            .header("webhook-signature", &self.signature);
        let answer = request.body(self.body.clone()).send().await.ok()?;
        Some(answer.status().as_u16())
    }

    pub(crate) async fn post(&self, url: &str) -> u16 {
        self.try_post(url).await.unwrap()
    }
}

#[tokio::test]
async fn forged_requests_are_rejected() {
    const SECRET: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";
    const ANOTHER: &str = "whsec_YWJjZGVmZ2hpamFiY2RlZmdoaWphYmNkZWZnaGlqYWI=";
    let now = SignedDuration::ZERO;
    let with = |change: &dyn Fn(&mut Signed)| {
        let mut request = Signed::new(SECRET, now);
        change(&mut request);
        request
    };
    for language in RECEIVERS {
        let receiver = Receiver::start(language, free_port(), SECRET);
        let url = receiver.url();
        let good = [
            Signed::new(SECRET, now),
            Signed::new(SECRET, SignedDuration::from_secs(270)),
            Signed::new(SECRET, SignedDuration::from_secs(-270)),
            with(&|request| {
                let other = Signed::new(ANOTHER, now).signature;
                request.signature = format!("{other} {}", request.signature);
            }),
            Signed::padded(SECRET, now, BODY_BYTES_MAX / 2),
        ];
        for request in &good {
            assert_eq!(request.post(&url).await, 204, "{language}");
        }
        assert_eq!(good[0].post(&url).await, 204, "{language}: repeated");
        let bad = [
            ("another secret", Signed::new(ANOTHER, now)),
            (
                "a wrong signature",
                with(&|request| request.signature = Signed::new(SECRET, now).signature),
            ),
            (
                "no signature at all",
                with(&|request| request.signature.clear()),
            ),
            (
                "a broken signature",
                with(&|request| "v1".clone_into(&mut request.signature)),
            ),
            (
                "an unknown signature",
                with(&|request| request.signature = request.signature.replace("v1,", "v2,")),
            ),
            ("a longer body", with(&|request| request.body.push(b' '))),
            (
                "a body that is not text",
                with(&|request| request.body.push(0xff)),
            ),
            (
                "another body",
                with(&|request| request.body = b"{}".to_vec()),
            ),
            (
                "another id",
                with(&|request| request.id = Uuid::now_v7().to_string()),
            ),
            ("another time", with(&|request| request.timestamp += 1)),
            (
                "too old",
                Signed::new(SECRET, SignedDuration::from_secs(330)),
            ),
            (
                "too new",
                Signed::new(SECRET, SignedDuration::from_secs(-330)),
            ),
        ];
        for (what, request) in bad {
            assert_eq!(request.post(&url).await, 400, "{language}: {what}");
        }
        // A receiver may close the connection before it has read the whole body.
        let too_long = Signed::padded(SECRET, now, BODY_BYTES_MAX);
        let status = too_long.try_post(&url).await;
        assert!(matches!(status, None | Some(413)), "{language}: {status:?}");
        receiver
            .wait_until_received(|events| events.len() >= good.len())
            .await;
        let received = receiver.received();
        let ids: Vec<_> = received.iter().map(|event| text(event, "id")).collect();
        assert_eq!(ids, good.map(|request| request.id), "{language}");
    }
}

/// Registers each receiver as an endpoint. Returns the id of the endpoint and the program.
fn add_endpoints(workdir: &Workdir) -> Vec<(String, Receiver)> {
    let add = |language| {
        let port = free_port();
        let events = "--events transactions.synced,trades.synced,connection.updated";
        let line =
            format!("webhook add --user me@example.com --url http://127.0.0.1:{port}/ {events}");
        let added = workdir.json(&line);
        let receiver = Receiver::start(language, port, text(&added, "secret"));
        (text(&added, "id").to_owned(), receiver)
    };
    RECEIVERS.map(add).into()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RowCounts {
    new: u64,
    updated: u64,
}

/// Syncs all connections.
fn sync(workdir: &Workdir) -> RowCounts {
    let synced = workdir.json("connection sync --all");
    let reports = synced.as_array().unwrap();
    RowCounts {
        new: sum(reports, "newCount"),
        updated: sum(reports, "updatedCount"),
    }
}

fn counts(events: &[Value]) -> RowCounts {
    RowCounts {
        new: sum(events, "new_count"),
        updated: sum(events, "updated_count"),
    }
}

fn sum(values: &[Value], name: &str) -> u64 {
    values.iter().map(|value| number(value, name)).sum()
}

/// Asserts that the events are all chunks of one sync run, in order, and full except for the last.
fn assert_one_run(events: &[Value], receiver: &Receiver) {
    let total = u64::try_from(events.len()).unwrap();
    assert!(total > 0, "{}", receiver.language);
    for (chunk, event) in (1..).zip(events) {
        let rows = number(event, "new_count");
        assert_eq!(event["chunk"], chunk, "{}", receiver.language);
        assert_eq!(event["total_chunks"], total, "{}", receiver.language);
        let is_full = rows == CHUNK_ROWS || chunk == total && rows > 0;
        assert!(is_full, "{}: {event}", receiver.language);
    }
}

async fn provider_account(database: &str) -> String {
    let sql =
        "SELECT a.provider_account_id FROM accounts a JOIN connections c ON c.id = a.connection_id
        WHERE c.provider = 'fiskil' ORDER BY a.id LIMIT 1";
    query(database, sql).await[0][0].clone()
}

/// The deliveries to an endpoint, once none is pending. The service writes results in batches, so a
/// result may be stored a moment after the receiver has the event.
fn finished_deliveries(workdir: &Workdir, endpoint: &str) -> Value {
    loop {
        let deliveries = workdir.json(&format!("webhook deliveries {endpoint} --limit 1000"));
        let mut all = deliveries.as_array().unwrap().iter();
        if all.all(|delivery| delivery["state"] != "pending") {
            return deliveries;
        }
    }
}

#[tokio::test]
async fn receivers_accept_what_the_service_sends() {
    let Deployment {
        mut workdir,
        sandbox,
        database,
    } = Deployment::start_on(Database::Sqlite, 50, &[]).await;
    workdir.set("BELLBIRD_WEBHOOKS__ALLOW_LOOPBACK", "true");
    workdir.set("BELLBIRD_WEBHOOKS__CHUNK_ROWS", &CHUNK_ROWS.to_string());
    workdir.set("BELLBIRD_SYNC__FIRST_DAYS", "365");
    workdir.json("user add --email me@example.com --plan professional");
    workdir.import_at(&sandbox.json(), "fiskil");
    workdir.import_at(&sandbox.json(), "snaptrade");
    let endpoints = add_endpoints(&workdir);
    let service = RunningCommand::start(&workdir, &format!("serve --json {ANY_PORTS}"));

    let first = sync(&workdir);
    let is_first = first.new > 2 * CHUNK_ROWS && first.updated == 0;
    assert!(is_first, "{first:?}");
    for (_, receiver) in &endpoints {
        receiver
            .wait_until_received(|events| counts(events).new >= first.new)
            .await;
        assert_eq!(counts(&receiver.received()), first, "{}", receiver.language);
        assert_one_run(&receiver.received_of("transactions.synced"), receiver);
        assert_one_run(&receiver.received_of("trades.synced"), receiver);
    }

    // For one day after a rotation, events verify with either secret.
    let secrets: Vec<Value> = endpoints
        .iter()
        .map(|(id, _)| workdir.json(&format!("webhook rotate-secret {id}")))
        .collect();
    let account = provider_account(&database).await;
    let row = json!({"account_id": account, "amount": "-12.34", "description": "A MILK BAR"});
    let described = sandbox.json();
    let row = control(&described, "fiskil", Method::POST, "transactions", row).await;
    assert_eq!(sync(&workdir), RowCounts { new: 1, updated: 0 });
    let (new, updated) = (first.new + 1, 0);
    for (id, receiver) in &endpoints {
        let pinged = workdir.json(&format!("webhook ping {id}"));
        assert_eq!(
            pinged["delivered"], true,
            "{}: old secret",
            receiver.language
        );
        receiver
            .wait_until_received(|events| counts(events) == RowCounts { new, updated })
            .await;
        // A receiver prints an event before it responds.
        finished_deliveries(&workdir, id);
    }

    let restart_with_new_secret = |((id, old), secret): ((String, Receiver), &Value)| {
        let (language, port) = (old.language, old.port);
        drop(old);
        (id, Receiver::start(language, port, text(secret, "secret")))
    };
    let endpoints: Vec<_> = endpoints
        .into_iter()
        .zip(&secrets)
        .map(restart_with_new_secret)
        .collect();
    let path = format!("transactions/{}", text(&row, "fiskil_id"));
    let change = json!({"description": "ANOTHER MILK BAR"});
    control(&described, "fiskil", Method::PATCH, &path, change).await;
    let changed = RowCounts { new: 0, updated: 1 };
    assert_eq!(sync(&workdir), changed);
    for (id, receiver) in &endpoints {
        let pinged = workdir.json(&format!("webhook ping {id}"));
        assert_eq!(
            pinged["delivered"], true,
            "{}: new secret",
            receiver.language
        );
        receiver
            .wait_until_received(|events| counts(events) == changed)
            .await;
        let deliveries = finished_deliveries(&workdir, id);
        for delivery in deliveries.as_array().unwrap() {
            let found = [&delivery["state"], &delivery["attempts"]];
            assert_eq!(found, [&json!("delivered"), &json!(1)]);
        }
    }

    let mut all = described["credentials"].as_array().unwrap().iter();
    let fiskil = all.find(|credentials| credentials["provider"] == "fiskil");
    let path = format!("consents/{}", text(fiskil.unwrap(), "arrangementId"));
    let revoked = json!({"state": "revoked"});
    control(&described, "fiskil", Method::POST, &path, revoked).await;
    assert_eq!(workdir.run("connection sync --all").status.code(), Some(0));
    for (_, receiver) in &endpoints {
        let is_status =
            |event: &&Value| event["type"] == "connection.updated" && event["updated_count"] == 1;
        receiver
            .wait_until_received(|events| events.iter().filter(is_status).count() == 1)
            .await;
    }
    assert_eq!(service.stop("-TERM").0, Some(0));
}

//! The receivers of docs/webhooks.md: the page shows them word for word, and with the public libraries of Standard
//! Webhooks they take what the service sends, and nothing else.

mod process;

use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use reqwest::{Client, Method};
use serde_json::{Value, json};
use standardwebhooks::Webhook;
use uuid::Uuid;

use crate::support::harness::Database;
use crate::support::process::{ANY_PORTS, RunningCommand, Workdir, errors, new_deployment, text};
use process::{Receiver, free_ports};

/// Each by its file, with the language of its block on the page.
const RECEIVERS: [(&str, &str); 3] = [
    ("python", "docs/receivers/receiver.py"),
    ("js", "docs/receivers/receiver.mjs"),
    ("rust", "crates/webhooks/examples/receiver.rs"),
];
const ROWS_OF_A_CHUNK: u64 = 20;
/// The longest body that they read.
const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn docs_show_the_receivers_verbatim() {
    let page = read(&root().join("docs/webhooks.md"));
    for (language, path) in RECEIVERS {
        let block = format!("```{language}\n{}```\n", read(&root().join(path)));
        assert!(page.contains(&block), "docs/webhooks.md does not show {path} as it is");
    }
}

/// A request, signed by the reference implementation.
struct Signed {
    id: String,
    timestamp: i64,
    signature: String,
    body: Vec<u8>,
}

impl Signed {
    fn new(secret: &str, age: SignedDuration) -> Self {
        Self::padded(secret, age, 0)
    }

    /// With so many blanks in front of the body.
    fn padded(secret: &str, age: SignedDuration, blanks: usize) -> Self {
        let id = Uuid::now_v7().to_string();
        let timestamp = (Timestamp::now() - age).as_second();
        let metadata = json!({"sync_run_id": id, "new_count": 0, "updated_count": 0, "chunk": 1, "total_chunks": 1});
        let event = json!({
            "id": id, "object": "event", "type": "endpoint.ping", "api_version": "2026-11-01", "created": timestamp,
            "data": {"new": [], "updated": []}, "metadata": metadata,
        });
        let body = format!("{}{event}", " ".repeat(blanks)).into_bytes();
        let signature = Webhook::new(secret).unwrap().sign(&id, timestamp, &body).unwrap();
        Self { id, timestamp, signature, body }
    }

    /// The status of the answer; none when there was no answer.
    async fn try_post(&self, url: &str) -> Option<u16> {
        let client = Client::builder().no_proxy().build().unwrap();
        let request = client
            .post(url)
            .header("webhook-id", &self.id)
            .header("webhook-timestamp", self.timestamp)
            .header("webhook-signature", &self.signature);
        request.body(self.body.clone()).send().await.ok().map(|answer| answer.status().as_u16())
    }

    async fn post(&self, url: &str) -> u16 {
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
    for ((language, _), port) in RECEIVERS.into_iter().zip(free_ports()) {
        let receiver = Receiver::start(language, port, SECRET);
        let url = receiver.url();
        let good = [
            Signed::new(SECRET, now),
            Signed::new(SECRET, SignedDuration::from_secs(270)),
            Signed::new(SECRET, SignedDuration::from_secs(-270)),
            with(&|one| one.signature = format!("{} {}", Signed::new(ANOTHER, now).signature, one.signature)),
            Signed::padded(SECRET, now, BODY_BYTES_MAX / 2),
        ];
        for request in &good {
            assert_eq!(request.post(&url).await, 204, "{language}");
        }
        assert_eq!(good[0].post(&url).await, 204, "{language}: repeated");
        let bad = [
            ("another secret", Signed::new(ANOTHER, now)),
            ("a wrong signature", with(&|one| one.signature = Signed::new(SECRET, now).signature)),
            ("no signature at all", with(&|one| one.signature.clear())),
            ("a broken signature", with(&|one| "v1".clone_into(&mut one.signature))),
            ("an unknown signature", with(&|one| one.signature = one.signature.replace("v1,", "v2,"))),
            ("a body with more", with(&|one| one.body.push(b' '))),
            ("a body that is no text", with(&|one| one.body.push(0xff))),
            ("another body", with(&|one| one.body = b"{}".to_vec())),
            ("another id", with(&|one| one.id = Uuid::now_v7().to_string())),
            ("another time", with(&|one| one.timestamp += 1)),
            ("too old", Signed::new(SECRET, SignedDuration::from_secs(330))),
            ("too new", Signed::new(SECRET, SignedDuration::from_secs(-330))),
        ];
        for (what, request) in bad {
            assert_eq!(request.post(&url).await, 400, "{language}: {what}");
        }
        // A receiver may hang up before it has read it all.
        let too_long = Signed::padded(SECRET, now, BODY_BYTES_MAX).try_post(&url).await;
        assert!(too_long.is_none_or(|status| status == 413), "{language}: {too_long:?}");
        receiver.wait_until_received(|events| events.len() >= good.len()).await;
        let ids: Vec<_> = receiver.received().iter().map(|event| text(event, "id").to_owned()).collect();
        assert_eq!(ids, good.map(|request| request.id), "{language}");
    }
}

/// Each receiver, as an endpoint of its own: its id and the program.
fn add_endpoints(workdir: &Workdir) -> Vec<(String, Receiver)> {
    let add = |((language, _), port)| {
        let line = format!("webhook add --user me@example.com --url http://127.0.0.1:{port}/");
        let added = workdir.json(&line);
        let receiver = Receiver::start(language, port, text(&added, "secret"));
        (text(&added, "id").to_owned(), receiver)
    };
    RECEIVERS.into_iter().zip(free_ports()).map(add).collect()
}

fn import(workdir: &Workdir, sandbox: &Value, provider: &str) {
    let all_credentials = sandbox["credentials"].as_array().unwrap();
    let credentials = all_credentials.iter().find(|credentials| credentials["provider"] == provider).unwrap();
    let output = workdir
        .run_with_input("connection import --user me@example.com --credentials - --json", &credentials.to_string());
    assert_eq!((output.status.code(), errors(&output).as_str()), (Some(0), ""));
}

/// Syncs everything; gives how many rows were new, and how many had changed.
fn sync(workdir: &Workdir) -> (u64, u64) {
    let synced = workdir.json("connection sync --all");
    let count = |name: &str| synced.as_array().unwrap().iter().map(|one| one[name].as_u64().unwrap()).sum();
    (count("newCount"), count("updatedCount"))
}

fn counted(events: &[Value]) -> (u64, u64) {
    let count = |name: &str| events.iter().map(|event| event[name].as_u64().unwrap()).sum();
    (count("new_count"), count("updated_count"))
}

/// The chunks of one run came in order, each but the last of them full.
fn assert_is_a_run(events: &[Value], receiver: &Receiver) {
    let total = u64::try_from(events.len()).unwrap();
    assert!(total > 0, "{}", receiver.language);
    for (number, event) in (1..).zip(events) {
        let rows = counted(std::slice::from_ref(event)).0;
        assert_eq!((&event["chunk"], &event["total_chunks"]), (&json!(number), &json!(total)), "{}", receiver.language);
        assert!(rows == ROWS_OF_A_CHUNK || number == total && rows > 0, "{}: {event}", receiver.language);
    }
}

/// A call of the control interface of the simulated bank.
async fn control(sandbox: &Value, method: Method, path: &str, body: Value) -> Value {
    let url = format!("{}/__control{path}", text(&sandbox["fiskil"], "baseUrl"));
    let client = Client::builder().no_proxy().build().unwrap();
    client.request(method, url).json(&body).send().await.unwrap().error_for_status().unwrap().json().await.unwrap()
}

fn provider_account(database: &str) -> String {
    let connection = rusqlite::Connection::open(database.strip_prefix("sqlite:").unwrap()).unwrap();
    let sql = "SELECT a.provider_account_id FROM accounts a JOIN connections c ON c.id = a.connection_id
        WHERE c.provider = 'fiskil' ORDER BY a.id LIMIT 1";
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn receivers_accept_what_the_service_sends() {
    let (mut workdir, sandbox, database) = new_deployment(Database::Sqlite).await;
    workdir.set("BELLBIRD_WEBHOOKS__ALLOW_LOOPBACK", "true");
    workdir.set("BELLBIRD_WEBHOOKS__CHUNK_ROWS", &ROWS_OF_A_CHUNK.to_string());
    workdir.set("BELLBIRD_SYNC__FIRST_DAYS", "365");
    workdir.json("user add --email me@example.com --plan professional");
    import(&workdir, &sandbox.json(), "fiskil");
    import(&workdir, &sandbox.json(), "snaptrade");
    let endpoints = add_endpoints(&workdir);
    let service = RunningCommand::start(&workdir, &format!("serve --json {ANY_PORTS}"));

    let (found, updated) = sync(&workdir);
    assert!(found > 2 * ROWS_OF_A_CHUNK && updated == 0, "{found} {updated}");
    for (_, receiver) in &endpoints {
        receiver.wait_until_received(|events| counted(events).0 >= found).await;
        assert_eq!(counted(&receiver.received()), (found, 0), "{}", receiver.language);
        assert_is_a_run(&receiver.received_of("transactions.synced"), receiver);
        assert_is_a_run(&receiver.received_of("trades.synced"), receiver);
    }

    // A day long, what is sent verifies with either secret.
    let secrets: Vec<Value> =
        endpoints.iter().map(|(id, _)| workdir.json(&format!("webhook rotate-secret {id}"))).collect();
    let row = json!({"account_id": provider_account(&database), "amount": "-12.34", "description": "A MILK BAR"});
    let row = control(&sandbox.json(), Method::POST, "/transactions", row).await;
    assert_eq!(sync(&workdir), (1, 0));
    for (id, receiver) in &endpoints {
        assert_eq!(workdir.json(&format!("webhook ping {id}"))["delivered"], true, "{}: old secret", receiver.language);
        receiver.wait_until_received(|events| counted(events) == (found + 1, 0)).await;
    }

    let renew = |((id, old), secret): ((String, Receiver), &Value)| {
        let (language, port) = (old.language, old.port);
        drop(old);
        (id, Receiver::start(language, port, text(secret, "secret")))
    };
    let endpoints: Vec<_> = endpoints.into_iter().zip(&secrets).map(renew).collect();
    let path = format!("/transactions/{}", text(&row, "fiskil_id"));
    control(&sandbox.json(), Method::PATCH, &path, json!({"description": "ANOTHER MILK BAR"})).await;
    assert_eq!(sync(&workdir), (0, 1));
    for (id, receiver) in &endpoints {
        assert_eq!(workdir.json(&format!("webhook ping {id}"))["delivered"], true, "{}: new secret", receiver.language);
        receiver.wait_until_received(|events| counted(events) == (0, 1)).await;
        let states = workdir.json(&format!("webhook deliveries {id} --limit 1000"));
        let all = states.as_array().unwrap();
        assert!(all.iter().all(|delivery| delivery["state"] == "delivered" && delivery["attempts"] == 1), "{states}");
    }
    assert_eq!(service.stop("-TERM").0, Some(0));
}

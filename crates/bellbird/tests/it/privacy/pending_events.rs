//! While an event waits for its next attempt, no table, file or log contains anything of its rows.

use std::collections::BTreeSet;

use bellbird::audit::texts::Texts;
use reqwest::Method;
use serde_json::Value;

use crate::privacy::{LENGTH_MIN, contains, files, import_at, list_of};
use crate::support::database::{query, tables};
use crate::support::deployment::{Deployment, EMAIL, control};
use crate::support::harness::{Database, also_on_postgres, eventually, simulated_providers};
use crate::support::process::{Workdir, errors, get, text};
use crate::support::provider_spec::{SPECS, set_members, spec};
use crate::support::receiver::{Receiver, Reply};
use crate::support::words::assert_has;

/// Shorter texts of digits occur in times and ids by chance.
const DIGITS_MIN: usize = 9;
/// The sensitive members of rows, by their names in events and in the API.
const SENSITIVE_MEMBERS: &str = "id amount description merchant_name merchantName reference \
                                 extended_description quantity price total_amount totalAmount \
                                 fees post_date transaction_date datetime trade_date tradeDate \
                                 symbol";

/// Imports a connection of each provider and adds a row with unmistakable values to each.
async fn import_with_planted_rows(workdir: &Workdir, sandbox: &Value, database: &str) {
    for provider in simulated_providers() {
        let account = import_at(workdir, sandbox, database, provider).await;
        let at = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(30);
        let spec = spec(provider);
        let mut row = spec.row_at(&account, at, "");
        set_members(&mut row, (spec.planted)());
        control(sandbox, provider, Method::POST, "transactions", row).await;
    }
}

/// Collects the values of a list of rows that must not be stored or logged.
fn collect(found: &mut BTreeSet<String>, rows: &Value) {
    for row in rows.as_array().unwrap() {
        let values = SENSITIVE_MEMBERS.split(' ').map(|name| &row[name]);
        found.extend(values.filter_map(|value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        }));
    }
}

/// Collects the same from the REST API. Returns the stored names of connections and accounts.
async fn collect_shown(found: &mut BTreeSet<String>, api: &str, key: &str) -> String {
    let (_, connections) = get(&format!("{api}/v1/connections"), Some(key)).await;
    for connection in connections["data"].as_array().unwrap() {
        let (list, id) = (list_of(connection), text(connection, "id"));
        let path = format!("{api}/v1/{list}?connectionId={id}&limit=500");
        let (status, body) = get(&path, Some(key)).await;
        assert_eq!(status, 200, "{path}");
        collect(found, &body["data"]);
    }
    let (_, accounts) = get(&format!("{api}/v1/accounts?limit=200"), Some(key)).await;
    format!("{connections}{accounts}")
}

/// Whether the text must not occur even as part of a value. Other texts must not occur as a whole
/// value.
fn is_unmistakable(secret: &str) -> bool {
    secret.len() >= DIGITS_MIN
        || !secret
            .trim_start_matches('-')
            .bytes()
            .all(|byte| byte.is_ascii_digit())
}

/// Texts that are searched at once.
struct Secrets<'s> {
    all: Vec<&'s String>,
    texts: Texts,
}

impl<'s> Secrets<'s> {
    fn new(secrets: impl Iterator<Item = &'s String>) -> Self {
        let all: Vec<_> = secrets.filter(|secret| is_unmistakable(secret)).collect();
        let numbered = all.iter().map(|secret| secret.as_str()).zip(0..);
        let texts = Texts::new(numbered).unwrap();
        Self { all, texts }
    }

    #[track_caller]
    fn assert_none_in(&self, location: &str, bytes: &[u8]) {
        let mut found = None;
        self.texts.find_in(bytes, &mut |number, at| {
            if !is_of_a_time(bytes, at) {
                found = Some(self.all[number]);
            }
        });
        assert_eq!(found, None, "in {location}");
    }
}

/// Whether the digits there are the seconds of a time such as `09:30:12.345678`, which may be a
/// quantity by chance.
fn is_of_a_time(bytes: &[u8], at: usize) -> bool {
    let (before, text) = bytes.split_at(at);
    text[0].is_ascii_digit()
        && matches!(
            before,
            [.., b'0'..=b'9', b':'] | [.., b'0'..=b'9', b':', b'0'..=b'9']
        )
}

async fn assert_in_no_table(database: &str, secrets: &BTreeSet<String>) {
    let hex: Vec<String> = secrets
        .iter()
        .map(|secret| secret.bytes().map(|byte| format!("{byte:02x}")).collect())
        .collect();
    let parts = Secrets::new(secrets.iter().chain(&hex));
    let mut fingerprints = 0;
    for (table, _) in tables(database).await {
        let rows = query(database, &format!("SELECT * FROM {table}")).await;
        if table == "fingerprints" {
            fingerprints = rows.len();
        }
        for value in rows.iter().flatten() {
            assert!(!secrets.contains(value), "{value} is in {table}");
            parts.assert_none_in(&table, value.as_bytes());
        }
    }
    assert!(fingerprints > 0, "the searched tables have rows");
}

#[tokio::test]
async fn no_row_data_is_stored_or_logged() {
    let database = Database::of_test();
    let settings = [
        ("WEBHOOKS__ALLOW_LOOPBACK", "true"),
        ("WEBHOOKS__CHUNK_ROWS", "10"),
        // Two attempts within a second, and the next after an hour.
        ("WEBHOOKS__ATTEMPT_DELAYS_SECONDS", "0,1,3600"),
    ];
    let deployment = Deployment::start_on(database, 50, &settings).await;
    let key = deployment.add_user(EMAIL);
    let Deployment {
        mut workdir,
        sandbox,
        database,
    } = deployment;
    import_with_planted_rows(&workdir, &sandbox.json(), &database).await;
    let receiver = Receiver::start().await;
    receiver.reply_with(Reply::Status(500));
    let url = &receiver.url;
    workdir.json(&format!("webhook add --user {EMAIL} --url {url}"));

    workdir.set("BELLBIRD_LOG__LEVEL", "trace");
    let service = workdir.start("serve");
    let api = service.url("apiUrl");
    let synced = workdir.run("connection sync --all --json");
    assert_eq!(synced.status.code(), Some(0), "{}", errors(&synced));
    let runs = serde_json::from_slice::<Value>(&synced.stdout).unwrap();
    let runs = runs.as_array().unwrap();
    let mut events = runs.iter().map(|run| run["events"].as_u64().unwrap());
    assert!(events.all(|count| count > 0), "{runs:?}");
    // The first event of each run is attempted twice, and the others wait for it.
    let waiting_runs =
        "SELECT COUNT(*) FROM webhook_deliveries WHERE state = 'pending' AND attempts = 2";
    eventually(async || query(&database, waiting_runs).await[0][0] == runs.len().to_string()).await;

    let mut secrets = BTreeSet::new();
    for received in receiver.drain() {
        collect(&mut secrets, &received.body["data"]["new"]);
    }
    let names = collect_shown(&mut secrets, &api, &key).await;
    // A text of a row may also be part of a name, and names are stored.
    secrets.retain(|secret| secret.len() >= LENGTH_MIN && !names.contains(secret.as_str()));
    for planted in SPECS.iter().flat_map(|spec| spec.shown_of_planted) {
        assert!(secrets.contains(*planted), "{planted} was not announced");
    }
    assert_in_no_table(&database, &secrets).await;
    let mut stored = files(workdir.folder.path());
    let log = service.end();
    stored.extend(files(workdir.folder.path()));
    // The search does find texts that are stored.
    let is_file = database.starts_with("sqlite:");
    let mut files_of_database = stored
        .iter()
        .filter(|(path, _)| path.contains("deployment.db"));
    assert_eq!(
        files_of_database.any(|(_, bytes)| contains(bytes, url)),
        is_file
    );
    assert_has(&log, "/v1/transactions");
    let log_of_providers = sandbox.stop("-TERM").2;
    stored.extend([
        ("the log of the service".to_owned(), log.into_bytes()),
        ("the log of the command".to_owned(), synced.stderr),
        (
            "the log of the providers".to_owned(),
            log_of_providers.into_bytes(),
        ),
    ]);
    let parts = Secrets::new(secrets.iter());
    for (path, bytes) in &stored {
        parts.assert_none_in(path, bytes);
    }
    assert_in_no_table(&database, &secrets).await;
}

also_on_postgres! { no_row_data_is_stored_or_logged }

//! A minute after they were read, no row is left in the memory of the running service.

use std::collections::BTreeSet;

use bellbird::audit::memory::visit_memory;
use bellbird::audit::texts::Texts;
use futures_util::stream::{self, StreamExt as _};
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::Value;

use super::audit::audit;
use super::{import_at, list_of};
use crate::support::database::execute;
use crate::support::deployment::{Deployment, EMAIL, control};
use crate::support::harness::{App, Database, Setup, simulated_providers};
use crate::support::process::{ANY_PORTS, RunningCommand, Workdir, text};
use crate::support::provider_spec::spec;

/// In each description twice, since an allocator may write over the start of freed memory. Nothing
/// else contains it.
pub(super) const MARK: &str = "Zq7Wv2Kx9";
/// Rows that the test adds at each provider.
pub(super) const ROWS: usize = 150;

pub(super) fn description(provider: &str, row: usize) -> String {
    // Written as JSON, the quotes have backslashes.
    format!("{MARK} {provider} \"{row}\" {MARK}")
}

/// Imports a connection of each provider and adds rows with unmistakable descriptions to it.
pub(super) async fn import_with_marked_rows(workdir: &Workdir, sandbox: &Value, database: &str) {
    for provider in simulated_providers() {
        let account = import_at(workdir, sandbox, database, provider).await;
        let spec = spec(provider);
        for row in 0..ROWS {
            let at = Timestamp::now()
                - SignedDuration::from_hours(30)
                - SignedDuration::from_mins(row as i64);
            let row = spec.row_at(&account, at, &description(provider, row));
            control(sandbox, provider, Method::POST, "transactions", row).await;
        }
    }
}

/// Reads all rows of all connections in small windows, several at once. Returns the marked
/// descriptions.
async fn walk(http: &reqwest::Client, api: &str, key: &str) -> BTreeSet<String> {
    let read = async |path: &str| -> Value {
        let request = http.get(format!("{api}/v1/{path}")).bearer_auth(key);
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        response.json().await.unwrap()
    };
    let connections = read("connections").await;
    let connections = connections["data"].as_array().unwrap().iter();
    let lists: Vec<_> = connections
        .map(|connection| {
            let (list, id) = (list_of(connection), text(connection, "id"));
            format!("{list}?connectionId={id}")
        })
        .collect();
    // Windows of other sizes end elsewhere in the provider's pages, and need buffers of other
    // sizes.
    let windows = lists
        .iter()
        .flat_map(|list| [40, 100, 500].map(|limit| (list, limit)));
    let walks = stream::iter(windows).map(async |(list, limit)| {
        let mut found = BTreeSet::new();
        for offset in (0..).step_by(limit) {
            let window = format!("{list}&from=2020-01-01&limit={limit}&offset={offset}");
            let rows = read(&window).await;
            let texts = rows["data"].as_array().unwrap().iter();
            let texts = texts.filter_map(|row| row["description"].as_str());
            found.extend(texts.filter(|text| text.contains(MARK)).map(str::to_owned));
            if rows["pagination"]["hasMore"] == false {
                break;
            }
        }
        found
    });
    let found: Vec<_> = walks.buffer_unordered(4).collect().await;
    // The last thing that the connections to the providers read is marked rows, and nothing else.
    let since = (Timestamp::now() - SignedDuration::from_hours(48))
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string();
    let last = lists.iter().flat_map(|list| {
        let path = format!("{list}&from={since}");
        (490..500).map(move |limit| format!("{path}&limit={limit}"))
    });
    stream::iter(last)
        .map(async |path| read(&path).await)
        .buffer_unordered(8)
        .collect::<Vec<_>>()
        .await;
    found.into_iter().flatten().collect()
}

/// Where the mark occurs in the memory of a process: the region, and the text around.
fn find_mark(process: u32) -> Vec<String> {
    let mark = Texts::new([(MARK, 0)]).unwrap();
    let mut found = Vec::new();
    let visited = visit_memory(process, &mut |region, bytes| {
        mark.find_in(bytes, &mut |_, at| {
            let around = &bytes[at.saturating_sub(160)..(at + 120).min(bytes.len())];
            found.push(format!(
                "{region}: {}",
                String::from_utf8_lossy(around).escape_debug()
            ));
        });
    });
    visited.unwrap();
    found
}

// The request may still be writing, so it needs a thread of its own.
#[tokio::test(flavor = "multi_thread")]
async fn unused_credentials_are_evicted_after_minutes() {
    let app = App::start(Setup::default()).await;
    // No row can be so late, so no provider is asked and the connection does not change.
    let connection = app.olivia.connections[0].id;
    let path = format!("/v1/transactions?connectionId={connection}&from=2030-01-01");
    assert_eq!(app.get(&path).await.status, 200);
    let forget = "DELETE FROM secrets WHERE purpose = 'credentials'";
    execute(&app.shared.database, forget, "").await;
    for (minutes, expected) in [(4, 200), (4, 200), (6, 404)] {
        app.advance_own_clock(SignedDuration::from_mins(minutes));
        let status = app.get(&path).await.status;
        assert_eq!(status, expected, "{minutes} minutes later");
    }
}

#[tokio::test]
async fn rows_leave_memory_within_a_minute() {
    let settings = [
        ("SYNC__ENABLED", "false"),
        // Cached responses add their time to the minute.
        ("CACHE__TRADES_SECONDS", "5"),
        ("LIMITS__LIVE_PER_MINUTE", "0"),
        ("LIMITS__LIVE_IN_FLIGHT", "0"),
        ("LIMITS__METADATA_PER_MINUTE", "0"),
        ("LIMITS__PROVIDER_CALLS_PER_MINUTE", "0"),
    ];
    let deployment = Deployment::start_on(Database::Sqlite, 50, &settings).await;
    let key = deployment.add_user(EMAIL);
    let Deployment {
        mut workdir,
        sandbox,
        database,
    } = deployment;
    import_with_marked_rows(&workdir, &sandbox.json(), &database).await;
    let log = workdir.folder.path().join("service.log");
    let serve =
        RunningCommand::start_with_log(&workdir, &format!("serve --json {ANY_PORTS}"), &log);
    let api = serve.url("apiUrl");
    // Its connections stay open during the rest, idle.
    let http = reqwest::Client::builder()
        .no_proxy()
        .pool_idle_timeout(None)
        .build()
        .unwrap();
    let read = walk(&http, &api, &key).await;
    let providers = simulated_providers().count();
    assert_eq!(read.len(), ROWS * providers, "the walk read every row");
    let just_after = find_mark(serve.id());
    assert!(!just_after.is_empty(), "the search finds rows");
    workdir.set("BELLBIRD_URL", &api);
    // Waits for the minute that docs/threat-model.md promises. A fact about real time and a real
    // process, so there is no clock to set.
    let audit = audit(&workdir, &key, "--log service.log").await;
    let left = find_mark(serve.id());
    assert!(
        left.is_empty(),
        "{} of {} left:\n{}",
        left.len(),
        2 * read.len(),
        left[..left.len().min(40)].join("\n")
    );
    let printed = &audit.printed;
    assert!(audit.rows() >= (ROWS * providers) as u64, "{printed}");
    assert_eq!(audit.found(), [], "{printed}");
    assert_eq!(audit.not_searched(), Vec::<String>::new());
    assert_eq!(audit.code, Some(0));
    drop(http);
}

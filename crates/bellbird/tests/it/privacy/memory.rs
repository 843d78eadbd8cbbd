//! A minute after they were read, no row is left in the memory of the running service.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use jiff::{SignedDuration, Timestamp};
use memchr::memmem::Finder;
use serde_json::Value;

use crate::support::database::{execute, query};
use crate::support::harness::{App, Database, Setup, simulated_providers};
use crate::support::process::{ANY_PORTS, RunningCommand, Workdir, errors, new_deployment, text};
use crate::support::provider_spec::spec;

/// In each description twice, since an allocator may write over the start of freed memory. Nothing else contains it.
const MARK: &str = "Zq7Wv2Kx9";
/// Rows that the test adds at each provider.
const ROWS: usize = 150;
/// The promise of SECURITY.md.
const REST: Duration = Duration::from_secs(60);
const PAGE_BYTES: u64 = 4096;

fn description(provider: &str, row: usize) -> String {
    // Written as JSON, the quotes have backslashes.
    format!("{MARK} {provider} \"{row}\" {MARK}")
}

/// Imports a connection of each provider and adds rows with unmistakable descriptions to it.
async fn import_with_marked_rows(workdir: &Workdir, sandbox: &Value, database: &str) {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    for provider in simulated_providers() {
        let all = sandbox["credentials"].as_array().unwrap();
        let credentials = all.iter().find(|credentials| credentials["provider"] == provider).unwrap();
        let import = "connection import --user me@example.com --credentials - --json";
        let output = workdir.run_with_input(import, &credentials.to_string());
        assert_eq!((output.status.code(), errors(&output).as_str()), (Some(0), ""));
        let account = format!(
            "SELECT a.provider_account_id FROM accounts a JOIN connections c ON c.id = a.connection_id \
             WHERE c.provider = '{provider}' AND a.account_type IN ('transaction', 'investment') ORDER BY a.id LIMIT 1"
        );
        let account = query(database, &account).await.remove(0).remove(0);
        let base: reqwest::Url = text(&sandbox[provider], "baseUrl").parse().unwrap();
        let spec = spec(provider);
        for row in 0..ROWS {
            let at = Timestamp::now() - SignedDuration::from_hours(30) - SignedDuration::from_mins(row as i64);
            let row = spec.row_at(&account, at, &description(provider, row));
            let url = base.join(&format!("/__control/{}", spec.list)).unwrap();
            http.post(url).json(&row).send().await.unwrap().error_for_status().unwrap();
        }
    }
}

/// Reads all rows of all connections in small windows, several at once. Returns the marked descriptions.
async fn walk(http: &reqwest::Client, api: &str, key: &str) -> BTreeSet<String> {
    let read = async |path: &str| -> Value {
        let response = http.get(format!("{api}/v1/{path}")).bearer_auth(key).send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        response.json().await.unwrap()
    };
    let connections = read("connections").await;
    let walks = connections["data"].as_array().unwrap().iter().flat_map(|connection| {
        let (list, id) = (&connection["category"], text(connection, "id"));
        let list = if list == "brokerage" { "trades" } else { "transactions" };
        // Windows of other sizes end elsewhere in the provider's pages, and need buffers of other sizes.
        [40, 100, 500].map(|limit| (format!("{list}?connectionId={id}&from=2020-01-01&limit={limit}"), limit))
    });
    let walks = stream::iter(walks).map(async |(path, limit)| {
        let mut found = BTreeSet::new();
        for offset in (0..).step_by(limit) {
            let rows = read(&format!("{path}&offset={offset}")).await;
            let texts = rows["data"].as_array().unwrap().iter().filter_map(|row| row["description"].as_str());
            found.extend(texts.filter(|text| text.contains(MARK)).map(str::to_owned));
            if rows["pagination"]["hasMore"] == false {
                break;
            }
        }
        found
    });
    let found = walks.buffer_unordered(4).collect::<Vec<_>>().await.into_iter().flatten().collect();
    // The last thing that the connections to the providers read is marked rows, and nothing else.
    let since = (Timestamp::now() - SignedDuration::from_hours(48)).strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let last = connections["data"].as_array().unwrap().iter().flat_map(|connection| {
        let list = if connection["category"] == "brokerage" { "trades" } else { "transactions" };
        let path = format!("{list}?connectionId={}&from={since}", text(connection, "id"));
        (490..500).map(move |limit| format!("{path}&limit={limit}"))
    });
    stream::iter(last).map(async |path| read(&path).await).buffer_unordered(8).collect::<Vec<_>>().await;
    found
}

/// Where the needles occur in the resident pages of a process: the memory region and the text around.
fn find_in_memory(process: u32, needle: &str) -> Vec<String> {
    let finder = Finder::new(needle);
    let mut memory = File::open(format!("/proc/{process}/mem")).unwrap();
    let mut pagemap = File::open(format!("/proc/{process}/pagemap")).unwrap();
    let mut found = Vec::new();
    for line in fs::read_to_string(format!("/proc/{process}/maps")).unwrap().lines() {
        let mut parts = line.split_ascii_whitespace();
        let (range, access) = (parts.next().unwrap(), parts.next().unwrap());
        // The program itself is no place for rows.
        if !access.starts_with("rw") {
            continue;
        }
        let (start, end) = range.split_once('-').unwrap();
        let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).unwrap());
        let mut entries = vec![0; usize::try_from((end - start) / PAGE_BYTES * 8).unwrap()];
        pagemap.seek(SeekFrom::Start(start / PAGE_BYTES * 8)).unwrap();
        pagemap.read_exact(&mut entries).unwrap();
        let is_resident = |entry: &[u8]| entry[7] & 0b1100_0000 != 0;
        let pages: Vec<bool> = entries.chunks_exact(8).map(is_resident).collect();
        let mut page = 0;
        // A row may lie across pages, so pages that follow each other are read at once.
        for run in pages.chunk_by(|one, other| one == other) {
            let first = start + page * PAGE_BYTES;
            page += run.len() as u64;
            if !run[0] {
                continue;
            }
            let mut bytes = vec![0; run.len() * usize::try_from(PAGE_BYTES).unwrap()];
            memory.seek(SeekFrom::Start(first)).unwrap();
            // Pages may have been returned to the system since.
            if memory.read_exact(&mut bytes).is_err() {
                continue;
            }
            for at in finder.find_iter(&bytes) {
                let around = &bytes[at.saturating_sub(160)..(at + 120).min(bytes.len())];
                let place = format!("{:x} in {line}", first + at as u64);
                found.push(format!("{place}: {}", String::from_utf8_lossy(around).escape_debug()));
            }
        }
    }
    found
}

// The request may still be writing, so it needs a thread of its own.
#[tokio::test(flavor = "multi_thread")]
async fn unused_credentials_are_evicted_after_minutes() {
    let app = App::start(Setup::default()).await;
    // No row can be so late, so no provider is asked and the connection does not change.
    let path = format!("/v1/transactions?connectionId={}&from=2030-01-01", app.olivia.connections[0].id);
    assert_eq!(app.get(&path).await.status, 200);
    execute(&app.shared.database, "DELETE FROM secrets WHERE purpose = 'credentials'", "").await;
    for (minutes, status) in [(4, 200), (4, 200), (6, 404)] {
        app.clock.set(app.clock.now() + SignedDuration::from_mins(minutes));
        assert_eq!(app.get(&path).await.status, status, "{minutes} minutes later");
    }
}

#[tokio::test]
async fn rows_leave_memory_within_a_minute() {
    let (mut workdir, sandbox, database) = new_deployment(Database::Sqlite).await;
    for (name, value) in [
        ("SYNC__ENABLED", "false"),
        // Cached responses add their time to the minute.
        ("CACHE__TRADES_SECONDS", "5"),
        ("LIMITS__LIVE_PER_MINUTE", "0"),
        ("LIMITS__LIVE_IN_FLIGHT", "0"),
        ("LIMITS__METADATA_PER_MINUTE", "0"),
        ("LIMITS__PROVIDER_CALLS_PER_MINUTE", "0"),
    ] {
        workdir.set(&format!("BELLBIRD_{name}"), value);
    }
    workdir.json("user add --email me@example.com --plan professional");
    let key = workdir.json("key create --user me@example.com --name test");
    let key = text(&key, "key");
    import_with_marked_rows(&workdir, &sandbox.json(), &database).await;
    let serve = RunningCommand::start(&workdir, &format!("serve --json {ANY_PORTS}"));
    let urls = serve.json();
    // Its connections stay open during the rest, idle.
    let http = reqwest::Client::builder().no_proxy().pool_idle_timeout(None).build().unwrap();
    let read = walk(&http, text(&urls, "apiUrl"), key).await;
    let providers = simulated_providers().count();
    assert_eq!(read.len(), ROWS * providers, "the walk read every row");
    assert!(!find_in_memory(serve.id(), MARK).is_empty(), "just after the walk, the search finds rows");
    // A fact about real time and a real process, so there is no clock to set.
    tokio::time::sleep(REST).await;
    let left = find_in_memory(serve.id(), MARK);
    assert!(left.is_empty(), "{} of {} left:\n{}", left.len(), 2 * read.len(), left[..left.len().min(40)].join("\n"));
    drop(http);
}

//! `bellbird audit`: checks that the service stores, logs and remembers no row of an account.

mod places;
mod read;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bellbird_domain::ApiKey;
use bellbird_storage::Storage;
use clap::Args;
use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use serde::Serialize;

use super::arguments::{self, SettingArgs};
use super::output::{self, ErrorView, count};
use crate::audit::strings::{Counts, Strings};
use crate::config::{Settings, client, terminal};
use crate::wiring;
use places::{Gap, Place};
use read::Service;

/// Check that no row of an account is stored, logged or left in memory.
///
/// Reads the newest rows of each connection through the running service, at BELLBIRD_URL (default
/// http://127.0.0.1:8080), and waits. Then it searches the database of the settings, the log files
/// and the memory of the service for the rows' descriptions, ids, account numbers and long amounts,
/// and for the key. It prints what it searched and what it found where, but never a string itself.
///
/// Exits with status 1 if it finds any, or if a part cannot be searched. Reading memory needs
/// Linux, and permission: run the command as root. While other clients or syncs read the same rows,
/// these are in memory for up to a minute, and trades for as long as they are cached:
/// cache.trades_seconds, ten minutes by default. Rows of simulated providers are found, because the
/// service that simulates them keeps them in memory.
#[derive(Args)]
#[command(after_long_help = "Examples:
  bellbird audit --key-file key.txt --log /var/log/bellbird.log
  bellbird key create --user me@example.com --expires 1h --json | jq -r .key |
    bellbird audit --key-file -")]
pub(super) struct AuditArgs {
    /// File with the API key of a user, or - for standard input
    #[arg(long, value_name = "FILE")]
    key_file: String,

    /// Log file to search; may be given several times
    #[arg(long = "log", value_name = "FILE")]
    logs: Vec<PathBuf>,

    /// Seconds between reading and searching
    #[arg(long, value_name = "SECONDS", default_value = "60")]
    #[arg(value_parser = clap::value_parser!(u64).range(..=86_400))]
    wait: u64,

    /// Id of the service's process; by default the one that listens at BELLBIRD_URL
    #[arg(long, value_parser = arguments::whole_number::<u32>)]
    pid: Option<u32>,

    /// Leave out the memory
    #[arg(long, conflicts_with = "pid")]
    no_memory: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AuditView {
    /// True if everything was searched but what the arguments leave out, and nothing was found.
    clean: bool,
    connections: usize,
    rows: u64,
    waited_seconds: u64,
    /// How many different strings of each kind were searched for.
    strings: Counts,
    /// Strings that are too short, or are stored or published by design.
    strings_left_out: usize,
    places: Vec<Place>,
    not_searched: Vec<Gap>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorView>,
}

pub(super) async fn run(settings: &SettingArgs, args: &AuditArgs) -> anyhow::Result<()> {
    let settings = settings.load(None)?;
    let key = read_key(&args.key_file)?;
    let url = client::service_url().map_err(anyhow::Error::msg)?;
    let mut gaps = Vec::new();
    let storage = match open_database(&settings, &key, &url).await {
        Ok(storage) => Some(storage),
        Err(error) => {
            gaps.push(Gap::failed("database", format!("{error:#}")));
            None
        }
    };
    let mut known = match &storage {
        Some(storage) => stored_names(storage).await?,
        None => Vec::new(),
    };
    // The service has it in memory, with its examples.
    known.push(String::from_utf8_lossy(crate::openapi::document().json()).into_owned());
    let mut strings = Strings::default();
    strings.add_key(&key);
    let read = Service::new(&url, &key)?
        .read_rows(&mut known, &mut strings)
        .await?;
    strings.leave_out(&known)?;
    gaps.extend(read.gaps);
    if read.rows == 0 {
        bail!(
            "the connections of the key's user have no rows of the last {} days to search for",
            read::DAYS
        );
    }
    if terminal::stderr_is_terminal() {
        output::note(&format!(
            "Read {}. Searching in {}.",
            count(read.rows, "row", "rows"),
            count(args.wait, "second", "seconds")
        ));
    }
    tokio::time::sleep(Duration::from_secs(args.wait)).await;

    let searcher = strings.searcher()?;
    let mut places = Vec::new();
    if let Some(storage) = &storage {
        places.extend(places::tables(storage, &searcher).await?);
        places::database_files(&settings, &searcher, &mut places, &mut gaps);
    }
    places::logs(&args.logs, &searcher, &mut places, &mut gaps);
    if args.no_memory {
        gaps.push(Gap::chosen("memory", "--no-memory"));
    } else {
        match places::memory(args.pid, &url, storage.as_ref(), &searcher).await {
            Ok(found) => places.extend(found),
            Err(reason) => gaps.push(Gap::failed("memory", reason)),
        }
    }
    let mut simulates = false;
    if let Some(storage) = storage {
        let stored = storage.provider_settings().list().await?;
        simulates = stored.iter().any(|provider| provider.is_sandbox);
        storage.close().await;
    }
    let failures: Vec<_> = places
        .iter()
        .filter_map(|place| place.failure(simulates))
        .chain(gaps.iter().filter_map(Gap::failure))
        .collect();
    let view = AuditView {
        clean: failures.is_empty(),
        connections: read.connections,
        rows: read.rows,
        waited_seconds: args.wait,
        strings: strings.counts(),
        strings_left_out: strings.left_out(),
        places,
        not_searched: gaps,
        error: ErrorView::of(&failures),
    };
    output::print(&view, text)?;
    output::finish(&failures)
}

/// Errors never quote the content.
fn read_key(from: &str) -> anyhow::Result<ApiKey> {
    let text = arguments::read_secret(from, "the key")?;
    ApiKey::parse(text.expose_secret()).ok().with_context(|| {
        format!(
            "{} has no valid API key: it must hold bb_ and 38 letters and digits, and nothing else",
            arguments::source_name(from)
        )
    })
}

/// Opens the database of the settings, unless it is not the one of the service.
async fn open_database(settings: &Settings, key: &ApiKey, url: &str) -> anyhow::Result<Storage> {
    let storage = wiring::open_storage(settings).await?;
    if storage
        .keys()
        .find_caller(key, Timestamp::now())
        .await?
        .is_none()
    {
        let location = wiring::database_location(settings);
        storage.close().await;
        bail!(
            "the {location} does not have this key, so it is not the one of the service at {url}: use the settings of \
             the service"
        );
    }
    Ok(storage)
}

/// What the database stores by design: e-mail addresses, and names and masked numbers of
/// connections and accounts.
async fn stored_names(storage: &Storage) -> anyhow::Result<Vec<String>> {
    let mut names: Vec<_> = storage
        .users()
        .list()
        .await?
        .into_iter()
        .map(|user| user.email)
        .collect();
    for connection in storage.connections().list_all().await? {
        let accounts = storage
            .accounts()
            .list_with_hidden(connection.user_id, connection.id)
            .await?;
        names.extend([connection.institution_name, connection.institution_id]);
        for account in accounts {
            names.extend([account.name, account.provider_account_id]);
            names.extend(account.number.map(|number| number.as_str().to_owned()));
        }
    }
    Ok(names)
}

fn text(view: &AuditView) -> String {
    let rows = view
        .places
        .iter()
        .map(|place| [place.name(), place.size.to_string(), counted(&place.found)]);
    let mut text = format!(
        "Read {} of {}, and searched {} later for {}.\nLeft out, because they are too short or stored by design: \
         {}.\n\n{}",
        count(view.rows, "row", "rows"),
        count(view.connections as u64, "connection", "connections"),
        count(view.waited_seconds, "second", "seconds"),
        counted(&view.strings),
        count(view.strings_left_out as u64, "string", "strings"),
        output::table(["place", "searched", "found"], rows),
    );
    for gap in &view.not_searched {
        text.push_str(&format!("\n\nNot searched: {} ({}).", gap.what, gap.reason));
    }
    text.push_str(if view.clean {
        "\n\nNothing was found."
    } else {
        "\n\nThis is not clean."
    });
    text
}

/// `12 descriptions, 1 key`, or `nothing`.
fn counted(counts: &Counts) -> String {
    if counts.is_empty() {
        return "nothing".to_owned();
    }
    let parts = counts
        .iter()
        .map(|(kind, count)| format!("{count} {kind}{}", if *count == 1 { "" } else { "s" }));
    parts.collect::<Vec<_>>().join(", ")
}

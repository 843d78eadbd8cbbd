//! Files that break off: none of them looks whole.

use std::process::Command;
use std::time::Duration;

use bellbird_domain::Plan;
use bellbird_sandbox::{ConsentState, Fault};
use jiff::SignedDuration;

use super::Download;
use crate::support::database::execute;
use crate::support::harness::{App, Setup, eventually};
use crate::support::words::{assert_has, assert_starts};

/// More than the service reads ahead of a client that takes nothing: some pages, and what the
/// system buffers.
const MANY_ROWS: u32 = 30_000;
/// Rows of a page of the provider.
const PAGE_ROWS: usize = 1_000;

struct Case {
    app: App,
    path: String,
}

/// An account with all these rows.
async fn case(setup: Setup) -> Case {
    let app = App::start(setup).await;
    let (account, _) = app.busiest().await;
    let id = account.id;
    let path = format!("/v1/export/transactions.jsonl?accountId={id}&from=2000-01-01");
    Case { app, path }
}

const ALL_BANKS: &str = "/v1/export/transactions.jsonl?from=2000-01-01";

/// A file that has begun.
async fn begun(app: &App, path: &str) -> Download {
    let mut download = Download::start(app, &app.olivia.key, path).await;
    download.begin().await;
    download
}

/// Asserts that the rest of a file does not make it look whole.
async fn assert_cut(download: &mut Download) {
    let is_whole = download.finish().await;
    assert!(!is_whole, "{} rows seem whole", download.lines());
}

/// Asserts that a file breaks off when something changes before its client takes more.
async fn assert_cut_by(case: &Case, change: impl AsyncFnOnce(&App)) {
    let mut download = begun(&case.app, &case.path).await;
    change(&case.app).await;
    assert_cut(&mut download).await;
    assert!(download.lines() < MANY_ROWS as usize);
    assert_eq!(download.rows(), None, "the trailer");
}

/// Of a provider that fails ever longer.
#[tokio::test]
async fn file_is_whole_or_breaks_off_or_does_not_begin() {
    let Case { app, path } = case(Setup::with_rows(3_500)).await;
    let mut download = Download::start(&app, &app.olivia.key, &path).await;
    assert!(download.finish().await);
    assert_eq!(download.lines(), 3_500);
    assert_eq!(download.rows(), Some(3_500), "the trailer");
    assert_eq!(app.transaction_calls(), 4);

    // The responses of old HTTP have no end.
    app.reset_calls();
    let mut download = Download::start_with(&app, &app.olivia.key, &path, "HTTP/1.0").await;
    assert!(!download.finish().await);
    let answer = download.text();
    assert_starts(&answer, "HTTP/1.0 400 Bad Request\r\n");
    assert_has(&answer, "need HTTP/1.1");
    assert_eq!(app.transaction_calls(), 0);

    // The third page fails, and is tried again.
    let transactions = "/v1/banking/transactions";
    let two_pages = || Fault::delay_ms(0).at(transactions).times(2);
    let failure = || Fault::status(500).at(transactions);
    app.fiskil().add_fault(two_pages());
    app.fiskil().add_fault(failure().times(3));
    let mut download = Download::start(&app, &app.olivia.key, &path).await;
    assert!(download.finish().await);
    assert_eq!(download.lines(), 3_500);

    app.fiskil().add_fault(two_pages());
    app.fiskil().add_fault(failure());
    let file = tempfile::NamedTempFile::new().unwrap();
    let key = format!("authorization: Bearer {}", app.olivia.key);
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--fail", "--noproxy", "*", "--header", &key]);
    curl.arg("--output").arg(file.path());
    curl.arg(format!("{}{path}", app.url));
    let output = tokio::task::spawn_blocking(move || curl.output().unwrap());
    let code = output.await.unwrap().status.code();
    assert_eq!(code, Some(18), "curl reports a partial file");
    let text = std::fs::read_to_string(file.path()).unwrap();
    assert_eq!(text.lines().count(), 2 * PAGE_ROWS);

    // Before the first byte, it is the usual error.
    let answer = app.get(&path).await;
    answer.error(503);
    assert!(answer.header("retry-after").is_some());
    assert_eq!(answer.header("content-disposition"), None);
}

#[tokio::test]
async fn lowered_plan_and_revoked_key_end_a_file() {
    let case = case(Setup::with_rows(MANY_ROWS)).await;
    let user = case.app.olivia.user.id;
    assert_cut_by(&case, async |app| app.set_plan(user, Plan::Saver).await).await;
    case.app.set_plan(user, Plan::Professional).await;
    assert_cut_by(&case, async |app| {
        let keys = app.keys_of(user).await;
        app.revoke_key(keys[0].id).await;
    })
    .await;
}

#[tokio::test]
async fn removed_connection_ends_a_file_also_before_its_turn() {
    let case = case(Setup::with_rows(MANY_ROWS)).await;
    let app = &case.app;
    let mut download = begun(app, ALL_BANKS).await;
    // In the order of creation.
    let [first, last] = [0, 1].map(|at| &app.olivia.connections[at]);
    let accounts = app.accounts_of(last).await;
    app.remove(last.id).await;
    assert_cut(&mut download).await;
    // The other connection is read on, and the removed one is not.
    assert!(download.lines() > PAGE_ROWS);
    for account in &accounts {
        assert!(!download.file().contains(&account.id));
    }
    assert_cut_by(&case, async |app| {
        app.remove(first.id).await;
    })
    .await;
}

/// Credentials are opened when their turn comes.
#[tokio::test]
async fn damaged_credentials_and_a_withdrawn_consent_end_a_file() {
    let case = case(Setup::with_rows(MANY_ROWS)).await;
    let app = &case.app;
    let mut download = begun(app, ALL_BANKS).await;
    // In the order of creation.
    let [first, last] = [0, 1].map(|at| &app.olivia.connections[at]);
    app.advance_own_clock(SignedDuration::from_mins(10));
    app.reads.purge_expired();
    let damage = format!(
        "UPDATE secrets SET sealed = x'00' WHERE purpose = 'credentials' AND subject = '{}'",
        last.id
    );
    execute(&app.shared.database, &damage, "").await;
    // They were not open since the file began. The other connection is read on.
    assert_cut(&mut download).await;
    assert!(download.lines() > PAGE_ROWS);
    assert_cut_by(&case, async |app| {
        app.set_consent(first, ConsentState::Revoked).await;
    })
    .await;
}

#[tokio::test]
async fn service_that_stops_ends_a_file() {
    let mut setup = Setup::with_rows(MANY_ROWS);
    setup.stop_timeout = Some(Duration::ZERO);
    let app = App::start(setup).await;
    let mut download = begun(&app, ALL_BANKS).await;
    app.stop();
    assert_cut(&mut download).await;
    assert!(download.lines() < MANY_ROWS as usize);
}

#[tokio::test]
async fn file_under_way_is_completed_while_the_service_stops() {
    let Case { app, path } = case(Setup::with_rows(3_500)).await;
    let mut download = begun(&app, &path).await;
    app.stop();
    assert!(download.finish().await);
    assert_eq!(download.lines(), 3_500);
}

#[tokio::test]
async fn client_that_goes_away_ends_the_walk_and_frees_its_permit() {
    let mut setup = Setup::with_rows(MANY_ROWS);
    setup.settings.api_context.live_in_flight = 1;
    let Case { app, path } = case(setup).await;
    let download = begun(&app, &path).await;
    let connection = app.olivia.connections[0].id;
    let live = format!("/v1/transactions?connectionId={connection}");
    app.get(&live).await.error(429);
    drop(download);
    eventually(async || app.get(&live).await.status == 200).await;
    assert!(
        app.transaction_calls() < u64::from(MANY_ROWS) / PAGE_ROWS as u64,
        "not every page was read"
    );
}

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

/// An account with many rows.
async fn case(rows: u32) -> Case {
    let mut setup = Setup {
        rows,
        ..Setup::default()
    };
    setup.settings.api_context.live_in_flight = 1;
    let app = App::start(setup).await;
    let (account, _) = app.busiest().await;
    let id = account.id;
    app.reset_calls();
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

/// Changes something after a file has begun and before its client takes more.
async fn cut_by(change: impl AsyncFnOnce(&Case)) -> Download {
    let case = case(MANY_ROWS).await;
    let mut download = begun(&case.app, &case.path).await;
    change(&case).await;
    assert_cut(&mut download).await;
    assert!(download.lines() < MANY_ROWS as usize);
    assert_eq!(download.rows(), None, "the trailer");
    download
}

#[tokio::test]
async fn whole_file_has_every_row_and_an_end() {
    let Case { app, path } = case(3_500).await;
    let mut download = Download::start(&app, &app.olivia.key, &path).await;
    assert!(download.finish().await);
    assert_eq!(download.lines(), 3_500);
    assert_eq!(download.rows(), Some(3_500), "the trailer");
    assert_eq!(app.transaction_calls(), 4);
}

#[tokio::test]
async fn failure_before_the_first_byte_is_the_usual_error() {
    let Case { app, path } = case(3_500).await;
    app.fiskil()
        .add_fault(Fault::status(500).at("/v1/banking/transactions"));
    let answer = app.get(&path).await;
    answer.error(503);
    assert!(answer.header("retry-after").is_some());
    assert_eq!(answer.header("content-disposition"), None);
}

#[tokio::test]
async fn old_http_is_rejected_because_its_answers_have_no_end() {
    let Case { app, path } = case(100).await;
    let mut download = Download::start_with(&app, &app.olivia.key, &path, "HTTP/1.0").await;
    assert!(!download.finish().await);
    let answer = download.text();
    assert_starts(&answer, "HTTP/1.0 400 Bad Request\r\n");
    assert_has(&answer, "need HTTP/1.1");
    assert_eq!(app.transaction_calls(), 0);
}

#[tokio::test]
async fn failing_third_page_breaks_the_file_off() {
    let Case { app, path } = case(3_500).await;
    let transactions = "/v1/banking/transactions";
    app.fiskil()
        .add_fault(Fault::delay_ms(0).at(transactions).times(2));
    app.fiskil().add_fault(Fault::status(500).at(transactions));
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
}

#[tokio::test]
async fn transient_failure_in_the_middle_is_tried_again() {
    let Case { app, path } = case(3_500).await;
    let transactions = "/v1/banking/transactions";
    app.fiskil()
        .add_fault(Fault::delay_ms(0).at(transactions).times(2));
    app.fiskil()
        .add_fault(Fault::status(500).at(transactions).times(3));
    let mut download = Download::start(&app, &app.olivia.key, &path).await;
    assert!(download.finish().await);
    assert_eq!(download.lines(), 3_500);
}

#[tokio::test]
async fn revoked_key_ends_a_file() {
    cut_by(async |Case { app, .. }| {
        let keys = app.keys_of(app.olivia.user.id).await;
        app.revoke_key(keys[0].id).await;
    })
    .await;
}

#[tokio::test]
async fn lowered_plan_ends_a_file() {
    cut_by(async |Case { app, .. }| {
        app.set_plan(app.olivia.user.id, Plan::Saver).await;
    })
    .await;
}

#[tokio::test]
async fn removed_connection_ends_a_file() {
    cut_by(async |Case { app, .. }| {
        for connection in &app.olivia.connections {
            app.remove(connection.id).await;
        }
    })
    .await;
}

#[tokio::test]
async fn connection_that_is_removed_before_its_turn_ends_a_file() {
    let Case { app, .. } = case(MANY_ROWS).await;
    let mut download = begun(&app, ALL_BANKS).await;
    // In the order of creation.
    let removed = app.olivia.connections.last().unwrap();
    let accounts = app.accounts_of(removed).await;
    app.remove(removed.id).await;
    assert_cut(&mut download).await;
    // The other connection is read on, and the removed one is not.
    assert!(download.lines() > PAGE_ROWS);
    for account in &accounts {
        assert!(!download.file().contains(&account.id));
    }
}

#[tokio::test]
async fn credentials_are_opened_when_their_turn_comes() {
    let Case { app, .. } = case(MANY_ROWS).await;
    let mut download = begun(&app, ALL_BANKS).await;
    // In the order of creation.
    let last = app.olivia.connections.last().unwrap().id;
    app.advance_own_clock(SignedDuration::from_mins(10));
    app.reads.purge_expired();
    let damage = format!(
        "UPDATE secrets SET sealed = x'00' WHERE purpose = 'credentials' AND subject = '{last}'"
    );
    execute(&app.shared.database, &damage, "").await;
    // They were not open since the file began. The other connection is read on.
    assert_cut(&mut download).await;
    assert!(download.lines() > PAGE_ROWS);
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
    let Case { app, path } = case(3_500).await;
    let mut download = begun(&app, &path).await;
    app.stop();
    assert!(download.finish().await);
    assert_eq!(download.lines(), 3_500);
}

#[tokio::test]
async fn consent_that_ends_midway_ends_the_file_and_is_noticed() {
    cut_by(async |Case { app, .. }| {
        for connection in &app.olivia.connections {
            app.set_consent(connection, ConsentState::Revoked).await;
        }
    })
    .await;
}

#[tokio::test]
async fn client_that_goes_away_ends_the_walk_and_frees_its_permit() {
    let Case { app, path } = case(MANY_ROWS).await;
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

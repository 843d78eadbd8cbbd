//! Clients that take their response slowly, or not to its end.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bellbird_sandbox::Fault;

use super::{AccountSet, account_set};
use crate::export::Download;
use crate::support::harness::{App, Setup, eventually};

/// Enough for an account that does not fit into the buffers of a connection.
const MANY_ROWS: u32 = 10_000;
const QUERY: &str = "?start-date=0";
/// Of the other provider, so that its reads last longer than that of the large account.
const SLOW_PATH: &str = "/transactions";

/// Sends Olivia's request and reads nothing.
async fn start(app: &App) -> Download {
    let credentials = STANDARD.encode(format!("bellbird:{}", app.olivia.key));
    let path = format!("/simplefin/accounts{QUERY}");
    Download::start_as(app, &format!("Basic {credentials}"), &path).await
}

/// As [`start`], and reads until the set has begun.
async fn begin(app: &App) -> Download {
    let mut download = start(app).await;
    download.begin().await;
    download
}

#[tokio::test]
async fn client_that_pauses_gets_all_accounts_and_reads_end_with_it() {
    let app = App::start(Setup::with_rows(MANY_ROWS)).await;
    // Olivia has a large account at Fiskil, and others at Akahu.
    let akahu = &app.credentials_of("akahu")[0];
    app.import(app.olivia.user.id, akahu).await.unwrap();
    // The first request also reads what the service then keeps.
    let whole = account_set(&app, QUERY).await;
    app.reset_calls();
    assert_eq!(account_set(&app, QUERY).await.errlist, []);
    let calls = || ["fiskil", "akahu"].map(|provider| app.bank(provider).total_calls());
    let of_a_set = calls();
    app.reset_calls();
    app.bank("akahu")
        .add_fault(Fault::delay_ms(300).at(SLOW_PATH));
    let mut download = begin(&app).await;
    // The client takes nothing, and all is read.
    eventually(async || calls() == of_a_set).await;
    assert!(download.finish().await);
    let set: AccountSet = serde_json::from_str(&download.file()).unwrap();
    assert_eq!(set.errlist, []);
    assert_eq!(set.accounts.len(), whole.accounts.len());

    app.clear_faults();
    app.bank("akahu")
        .add_fault(Fault::delay_ms(600_000).at(SLOW_PATH));
    let download = begin(&app).await;
    assert!(!app.connections.tasks().is_empty());
    drop(download);
    eventually(async || app.connections.tasks().is_empty()).await;
}

#[tokio::test]
async fn four_accounts_are_read_at_once() {
    let app = App::start(Setup::default()).await;
    let mut accounts = 0;
    for connection in &app.olivia.connections {
        accounts += app.accounts_of(connection).await.len();
    }
    assert!(accounts > 4, "{accounts}");
    let path = "/v1/banking/transactions";
    app.fiskil().add_fault(Fault::delay_ms(600_000).at(path));
    let _download = start(&app).await;
    eventually(async || app.transaction_calls() == 4).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(app.transaction_calls(), 4);
}

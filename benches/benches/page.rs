//! Measures the work on one page of 1,000 Fiskil transactions, in process and without a network: `docs/benchmarks.md`.
//!
//! The timing is our own, because the figures are ratios: the candidates have to alternate, and frameworks run one
//! after the other.

#![allow(clippy::float_arithmetic, reason = "figures are ratios; no amount of money comes near them")]

use std::hint::black_box;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use bellbird_api::v1::TransactionsBody;
use bellbird_api::v1::{Pagination, TransactionView};
use bellbird_domain::date::DayFinder;
use bellbird_domain::{
    Account, AccountId, AccountType, Bound, ConnectionId, Currency, DateRange, Page, Transaction, UserId,
};
use bellbird_providers::TransactionQuery;
use bellbird_providers::fiskil::read_transactions_page;
use bellbird_reads::window::Window;
use bellbird_sandbox::{Credentials, Options};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

const ROWS: u32 = 1_000;
const ROUNDS: usize = 15;
/// Pages per candidate and round.
const PAGES: u32 = 40;

/// One way to process the page.
struct Candidate<'a> {
    name: &'static str,
    work: Box<dyn Fn() + 'a>,
    /// Microseconds per page, one value per round.
    took: Vec<f64>,
}

fn main() -> anyhow::Result<()> {
    // `cargo test` also builds and runs this program, without `--bench`.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let (page, account) = tokio::runtime::Runtime::new()?.block_on(record())?;
    let mut candidates = candidates(&page, &account);
    for candidate in &mut candidates {
        (candidate.work)();
    }
    for _ in 0..ROUNDS {
        for candidate in &mut candidates {
            let started = Instant::now();
            for _ in 0..PAGES {
                (candidate.work)();
            }
            candidate.took.push(started.elapsed().as_secs_f64() * 1e6 / f64::from(PAGES));
        }
    }
    print(page.len(), &candidates);
    Ok(())
}

/// The first candidate is the baseline of the others.
fn candidates<'a>(page: &'a [u8], account: &'a Account) -> [Candidate<'a>; 6] {
    let candidate = |name, work: Box<dyn Fn() + 'a>| Candidate { name, work, took: Vec::new() };
    [
        candidate(
            "serde_json, read to its end and nothing kept",
            Box::new(move || drop(black_box(serde_json::from_slice::<IgnoredAny>(black_box(page))))),
        ),
        candidate("copying the bytes", Box::new(move || drop(black_box(black_box(page).to_vec())))),
        candidate(
            "serde_json, a tree of values",
            Box::new(move || drop(black_box(serde_json::from_slice::<Value>(black_box(page))))),
        ),
        candidate("the adapter: parse and map", Box::new(move || drop(black_box(read(page, account, 0))))),
        candidate(
            "parse, map, window: 1,000 rows counted, none kept",
            Box::new(move || drop(black_box(read(page, account, 1)))),
        ),
        candidate(
            "parse, map, window, render: 200 of 1,000 rows kept",
            Box::new(move || drop(black_box(read(page, account, 2)))),
        ),
    ]
}

/// Processes a page as the service does. `depth` 0 parses and maps, 1 also counts, 2 also renders the first 200 rows.
fn read(page: &[u8], account: &Account, depth: u8) -> Option<Vec<u8>> {
    let zone = jiff::tz::TimeZone::get("Australia/Sydney").ok()?;
    let bound = |text| Bound::parse(text).ok();
    let interval = DateRange { from: bound("2000-01-01")?, to: bound("2100-01-01")? };
    let accounts = std::slice::from_ref(account);
    let query = TransactionQuery { accounts, one_account: true, interval: &interval, zone: &zone };
    let page_request = Page { limit: 200, offset: if depth == 2 { 0 } else { u64::from(ROWS) } };
    let mut window = Window::new(page_request, 5_000);
    let mut body = TransactionsBody::new(page_request);
    let mut days = DayFinder::new(&zone);
    let mut rows = |row: Transaction<'_>| {
        let day = row.day.unwrap_or_else(|| days.day_of(row.instant));
        if depth > 0 && interval.contains(row.instant, || day) && window.take() {
            body.push(&TransactionView::new(&row, day));
        }
    };
    read_transactions_page(black_box(page), "arrangement", &query, &mut rows).ok()?;
    let extent = window.extent(window.row(), None);
    Some(body.finish(&Pagination::of(page_request, extent)))
}

#[allow(clippy::print_stdout, reason = "the result of the program")]
fn print(bytes: usize, candidates: &[Candidate<'_>]) {
    println!("One page of {ROWS} rows, {bytes} bytes; {ROUNDS} rounds; median (least..most)\n");
    println!("| work | µs a page | times the first |\n|---|---:|---:|");
    for candidate in candidates {
        let base = candidates.iter().next().map_or(&candidate.took, |first| &first.took);
        let ratios: Vec<f64> = candidate.took.iter().zip(base).map(|(took, base)| took / base).collect();
        let [took, took_min, took_max] = summary(&candidate.took);
        let [ratio, ratio_min, ratio_max] = summary(&ratios);
        let name = candidate.name;
        println!("| {name} | {took:.0} ({took_min:.0}..{took_max:.0}) | {ratio:.2} ({ratio_min:.2}..{ratio_max:.2}) |");
    }
}

fn summary(values: &[f64]) -> [f64; 3] {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
    [at(sorted.len() / 2), at(0), at(sorted.len().saturating_sub(1))]
}

/// Records a page of the sandbox's busiest account. Also returns that account.
async fn record() -> anyhow::Result<(Vec<u8>, Account)> {
    let sandbox = bellbird_sandbox::start(Options { rows: ROWS, ..Options::default() }).await?;
    let fiskil = &sandbox.description().fiskil;
    let Some(Credentials::Fiskil { end_user_id, arrangement_id }) = sandbox.description().credentials.first() else {
        anyhow::bail!("the sandbox has no credentials");
    };
    let http = reqwest::Client::builder().no_proxy().build()?;
    let credentials = json!({ "client_id": fiskil.client_id, "client_secret": fiskil.client_secret });
    let token = http.post(format!("{}/v1/token", fiskil.base_url)).json(&credentials).send().await?;
    let token: Value = token.error_for_status()?.json().await?;
    let token = token["token"].as_str().context("the token response has no token")?;
    let ask = async |path: &str, more: &[(&str, &str)]| {
        let request = http.get(format!("{}{path}", fiskil.base_url)).bearer_auth(token);
        let request = request.header("X-Fiskil-Version", "v3").query(&[("end_user_id", end_user_id)]).query(more);
        anyhow::Ok(request.send().await?.error_for_status()?.bytes().await?)
    };
    let accounts: Value = serde_json::from_slice(&ask("/v1/banking/accounts", &[]).await?)?;
    let accounts = accounts["accounts"].as_array().context("the response has no accounts")?.iter();
    for account in accounts.filter(|account| account["arrangement_id"] == arrangement_id.as_str()) {
        let id = account["account_id"].as_str().context("an account has no id")?;
        let size = ROWS.to_string();
        let filter =
            [("account_id", id), ("status", "POSTED"), ("from", "2000-01-01T00:00:00Z"), ("page[size]", &size)];
        let page = ask("/v1/banking/transactions", &filter).await?;
        let parsed: Value = serde_json::from_slice(&page)?;
        if parsed["transactions"].as_array().map_or(0, Vec::len) == ROWS as usize {
            let page = String::from_utf8(page.to_vec())?.replace(arrangement_id, "arrangement");
            ensure!(page.contains("\"arrangement\""), "the rows do not name their consent");
            return Ok((page.into_bytes(), stored_account(id)));
        }
    }
    anyhow::bail!("no account has {ROWS} rows")
}

fn stored_account(provider_account_id: &str) -> Account {
    Account {
        id: AccountId::new(),
        user_id: UserId::new(),
        connection_id: ConnectionId::new(),
        provider: "fiskil".to_owned(),
        provider_account_id: provider_account_id.to_owned(),
        name: "Everyday Account".to_owned(),
        account_type: AccountType::Transaction,
        institution_name: None,
        number: None,
        currency: Currency::UNKNOWN,
    }
}

//! Measures the work on one page of 1,000 Fiskil transactions, in process and without a network:
//! `docs/benchmarks.md`.
//!
//! The timing is our own, because the figures are ratios: the candidates have to alternate, and
//! frameworks run one after the other.

#![allow(
    clippy::float_arithmetic,
    reason = "figures are ratios; no amount of money comes near them"
)]

use std::hint::black_box;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use bellbird_api::v1::TransactionsBody;
use bellbird_api::v1::{Pagination, TransactionView};
use bellbird_domain::date::{DayFinder, day_of};
use bellbird_domain::{
    Account, AccountId, AccountType, Bound, ConnectionId, Currency, DateRange, Page, Transaction,
    UserId,
};
use bellbird_providers::{Error, TransactionQuery, TransactionSink, fiskil};
use bellbird_reads::window::Window;
use bellbird_sandbox::{Credentials, Options};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

const ROWS: u32 = 1_000;
const ROUNDS: usize = 15;
/// Pages per candidate and round.
const PAGES: u32 = 40;

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
            candidate
                .took
                .push(started.elapsed().as_secs_f64() * 1e6 / f64::from(PAGES));
        }
    }
    print(page.len(), &candidates);
    Ok(())
}

/// The first candidate is the baseline of the others.
fn candidates<'a>(page: &'a [u8], account: &'a Account) -> [Candidate<'a>; 9] {
    let candidate = |name, work: Box<dyn Fn() + 'a>| Candidate {
        name,
        work,
        took: Vec::new(),
    };
    let way = |name, way: Way| {
        candidate(
            name,
            Box::new(move || drop(black_box(read(page, account, way)))),
        )
    };
    let rendered = Way {
        kept: 200,
        ..Way::default()
    };
    [
        candidate(
            "serde_json, read to its end and nothing kept",
            Box::new(move || {
                drop(black_box(serde_json::from_slice::<IgnoredAny>(black_box(
                    page,
                ))));
            }),
        ),
        candidate(
            "copying the bytes",
            Box::new(move || drop(black_box(black_box(page).to_vec()))),
        ),
        candidate(
            "serde_json, a tree of values",
            Box::new(move || drop(black_box(serde_json::from_slice::<Value>(black_box(page))))),
        ),
        way(
            "the adapter: parse and map",
            Way {
                is_parsed_only: true,
                ..Way::default()
            },
        ),
        way(
            "parse, map, window: 1,000 rows counted, none kept",
            Way::default(),
        ),
        way(
            "parse, map, window, render: 200 of 1,000 rows kept",
            rendered,
        ),
        way(
            "the same, parsed by serde_json",
            Way {
                parse: fiskil::test_support::read_transactions_page_by_serde_json,
                ..rendered
            },
        ),
        way(
            "the same, rows written by serde_json",
            Way {
                are_rows_by_serde_json: true,
                ..rendered
            },
        ),
        way(
            "the same, each day from the timezone",
            Way {
                are_days_by_zone: true,
                ..rendered
            },
        ),
    ]
}

type Parse = fn(&[u8], &str, &TransactionQuery<'_>, &mut TransactionSink<'_>) -> Result<(), Error>;

/// How a page is processed. By default as the service does, with no row in the window.
#[derive(Clone, Copy)]
struct Way {
    parse: Parse,
    is_parsed_only: bool,
    kept: u32,
    are_rows_by_serde_json: bool,
    are_days_by_zone: bool,
}

impl Default for Way {
    fn default() -> Self {
        let parse = fiskil::test_support::read_transactions_page;
        Self {
            parse,
            is_parsed_only: false,
            kept: 0,
            are_rows_by_serde_json: false,
            are_days_by_zone: false,
        }
    }
}

fn read(page: &[u8], account: &Account, way: Way) -> Option<Vec<u8>> {
    let zone = jiff::tz::TimeZone::get("Australia/Sydney").ok()?;
    let bound = |text| Bound::parse(text).ok();
    let dates = DateRange {
        from: bound("2000-01-01")?,
        to: bound("2100-01-01")?,
    };
    let accounts = std::slice::from_ref(account);
    let query = TransactionQuery {
        accounts,
        one_account: true,
        dates: &dates,
        zone: &zone,
    };
    let page_request = Page {
        limit: 200,
        offset: if way.kept > 0 { 0 } else { u64::from(ROWS) },
    };
    let mut window = Window::new(page_request, 5_000);
    let mut body = TransactionsBody::new(page_request);
    let mut other_body = Vec::new();
    let mut days = DayFinder::new(&zone);
    let mut rows = |row: Transaction<'_>| {
        let day = match row.day {
            Some(day) => day,
            None if way.are_days_by_zone => day_of(row.instant, &zone),
            None => days.day_of(row.instant),
        };
        if way.is_parsed_only || !dates.contains(row.instant, || day) || !window.take() {
            return;
        }
        let view = TransactionView::new(&row, day);
        if way.are_rows_by_serde_json {
            let _ = serde_json::to_writer(&mut other_body, &view);
        } else {
            body.push(&view);
        }
    };
    (way.parse)(black_box(page), "arrangement", &query, &mut rows).ok()?;
    let totals = window.totals(window.row(), None);
    black_box(other_body);
    Some(body.finish(&Pagination::of(page_request, totals)))
}

#[allow(clippy::print_stdout, reason = "the result of the program")]
fn print(bytes: usize, candidates: &[Candidate<'_>]) {
    println!("One page of {ROWS} rows, {bytes} bytes; {ROUNDS} rounds; median (least..most)\n");
    println!("| work | µs a page | times the first |\n|---|---:|---:|");
    for candidate in candidates {
        let base = candidates
            .iter()
            .next()
            .map_or(&candidate.took, |first| &first.took);
        let ratios: Vec<f64> = candidate
            .took
            .iter()
            .zip(base)
            .map(|(took, base)| took / base)
            .collect();
        let [took, took_min, took_max] = summary(&candidate.took);
        let [ratio, ratio_min, ratio_max] = summary(&ratios);
        let name = candidate.name;
        println!(
            "| {name} | {took:.0} ({took_min:.0}..{took_max:.0}) | {ratio:.2} ({ratio_min:.2}..{ratio_max:.2}) |"
        );
    }
}

fn summary(values: &[f64]) -> [f64; 3] {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
    [
        at(sorted.len() / 2),
        at(0),
        at(sorted.len().saturating_sub(1)),
    ]
}

/// Records a page of the sandbox's busiest account. Also returns that account.
async fn record() -> anyhow::Result<(Vec<u8>, Account)> {
    let sandbox = bellbird_sandbox::start(Options {
        rows: ROWS,
        ..Options::default()
    })
    .await?;
    let fiskil = &sandbox.description().fiskil;
    let Some(Credentials::Fiskil {
        end_user_id,
        arrangement_id,
    }) = sandbox.description().credentials.first()
    else {
        anyhow::bail!("the sandbox has no credentials");
    };
    let http = reqwest::Client::builder().no_proxy().build()?;
    let credentials =
        json!({ "client_id": fiskil.client_id, "client_secret": fiskil.client_secret });
    let token = http
        .post(format!("{}/v1/token", fiskil.base_url))
        .json(&credentials)
        .send()
        .await?;
    let token: Value = token.error_for_status()?.json().await?;
    let token = token["token"]
        .as_str()
        .context("the token response has no token")?;
    let ask = async |path: &str, more: &[(&str, &str)]| {
        let request = http
            .get(format!("{}{path}", fiskil.base_url))
            .bearer_auth(token);
        let request = request
            .header("X-Fiskil-Version", "v3")
            .query(&[("end_user_id", end_user_id)])
            .query(more);
        anyhow::Ok(request.send().await?.error_for_status()?.bytes().await?)
    };
    let accounts: Value = serde_json::from_slice(&ask("/v1/banking/accounts", &[]).await?)?;
    let accounts = accounts["accounts"]
        .as_array()
        .context("the response has no accounts")?
        .iter();
    for account in accounts.filter(|account| account["arrangement_id"] == arrangement_id.as_str()) {
        let id = account["account_id"]
            .as_str()
            .context("an account has no id")?;
        let size = ROWS.to_string();
        let filter = [
            ("account_id", id),
            ("status", "POSTED"),
            ("from", "2000-01-01T00:00:00Z"),
            ("page[size]", &size),
        ];
        let page = ask("/v1/banking/transactions", &filter).await?;
        let parsed: Value = serde_json::from_slice(&page)?;
        if parsed["transactions"].as_array().map_or(0, Vec::len) == ROWS as usize {
            let page = String::from_utf8(page.to_vec())?.replace(arrangement_id, "arrangement");
            ensure!(
                page.contains("\"arrangement\""),
                "the rows do not name their consent"
            );
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

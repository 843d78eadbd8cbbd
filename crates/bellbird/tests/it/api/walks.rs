//! Ranges and merged rows of `bellbird_reads` over the simulated providers, compared with the pages
//! of `/v1`.

use std::sync::Arc;
use std::time::Duration;

use bellbird_domain::{Bound, Caller, DateFilter, KeyId, Trade, Transaction};
use bellbird_reads::merged::MergedPosition;
use bellbird_reads::{Cause, Merged, Range, RowKind, Trades, Transactions};
use jiff::tz::TimeZone;
use tokio::time::Instant;

use crate::support::harness::{App, Person, Setup};
use crate::support::process::text;
use crate::support::provider_spec::spec;

const FROM: &str = "2026-08-01";
const TO: &str = "2026-11-20";

fn span() -> DateFilter {
    let bound = |text| Some(Bound::parse(text).unwrap());
    DateFilter {
        from: bound(FROM),
        to: bound(TO),
    }
}

fn caller(person: &Person) -> Caller {
    let timezone = TimeZone::get("Australia/Sydney").unwrap();
    Caller {
        key_id: KeyId::new(),
        user_id: person.user.id,
        plan: person.user.plan,
        timezone,
        revision: 1,
    }
}

/// Account and id of all rows, account by account, as `/v1` shows them.
async fn pages(app: &App, person: &Person) -> Vec<String> {
    let mut seen = Vec::new();
    for connection in &person.connections {
        for account in app.accounts_of(connection).await {
            let read = app.rows_of(connection).by(person).from(FROM).to(TO);
            let rows = read.with("accountId", &account.id).all(500).await;
            seen.extend(
                rows.iter()
                    .map(|row| format!("{} {}", account.id, text(row, "id"))),
            );
        }
    }
    seen
}

/// The merged list of a person, cut after so many rows and continued. `id_of` returns the account
/// and the id of a row.
async fn merged<K: RowKind>(
    app: &App,
    person: &Person,
    rows_max: usize,
    id_of: impl for<'row> Fn(&K::Row<'row>) -> String + Send + Sync,
) -> Vec<String> {
    let caller = caller(person);
    let (mut seen, mut position): (Vec<String>, Option<MergedPosition>) = (Vec::new(), None);
    loop {
        let mut ranges: Vec<Range<K>> = Vec::new();
        for connection in &person.connections {
            let context = app
                .reads
                .connection_context(&caller, connection.id)
                .await
                .unwrap();
            for account in &context.accounts {
                let (context, id) = (Arc::clone(&context), Some(account.id));
                let range = app
                    .reads
                    .range::<K>(&caller, context, id, span(), app.clock.now());
                ranges.push(range.unwrap().with_first_page_rows(50));
            }
        }
        let stop_at = Instant::now() + Duration::from_secs(20);
        let mut merged = Merged::new(
            ranges,
            position,
            stop_at,
            |row: &K::Row<'_>, _: K::Place| Some((K::instant(row), id_of(row))),
        );
        let (call, before, mut last) = (app.reads.call_context(Cause::Schedule), seen.len(), None);
        while seen.len() < before + rows_max {
            let Some((instant, row)) = merged.next(&call).await.unwrap() else {
                assert!(!merged.is_stopped());
                return seen;
            };
            assert!(last.is_none_or(|last| instant <= last), "not newest first");
            last = Some(instant);
            seen.push(row);
        }
        position = merged.position();
    }
}

/// Each account's rows in their order, one account after the other.
fn by_account(mut rows: Vec<String>) -> Vec<String> {
    rows.sort_by(|one, other| one.split(' ').next().cmp(&other.split(' ').next()));
    rows
}

#[tokio::test]
async fn merged_rows_are_those_of_the_pages() {
    let app = App::start(Setup::default()).await;
    for (provider, rows_max) in [("fiskil", 17), ("akahu", 37), ("snaptrade", 7)] {
        let person = app.person_at(provider).await;
        let expected = by_account(pages(&app, &person).await);
        let count = expected.len();
        assert!(count > 2 * rows_max, "{provider}: {count} prove too little");
        let found = if spec(provider).is_brokerage() {
            let id_of = |row: &Trade<'_>| format!("{} {}", row.account.id, row.id());
            merged::<Trades>(&app, &person, rows_max, id_of).await
        } else {
            let id_of = |row: &Transaction<'_>| format!("{} {}", row.account.id, row.id);
            merged::<Transactions>(&app, &person, rows_max, id_of).await
        };
        let found = by_account(found);
        assert_eq!(found.len(), count, "{provider}");
        let is_same = found == expected;
        assert!(is_same, "{provider}: other rows, or in another order");
    }
}

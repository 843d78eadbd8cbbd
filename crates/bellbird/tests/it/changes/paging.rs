//! Pages: small ones, rows that change between them, several clients, one account, and the first
//! day.

use std::collections::BTreeSet;
use std::time::Duration;

use bellbird_domain::{Account, Connection};
use serde_json::{Value, json};

use super::{BETWEEN_MISSES, DAY, HOUR, STALE, follow_past_misses, setup};
use crate::support::follower::{Follower, REMOVAL, added, changed, changes};
use crate::support::harness::{App, Person, simulated_providers};
use crate::support::process::text;

#[tokio::test]
async fn small_pages_give_what_one_page_gives() {
    let mut setup = setup();
    // A page of one row reads the provider's list from the start, so a first copy has few rows.
    setup.settings.sync.first = Duration::from_secs(4 * 24 * 3_600);
    let app = App::start(setup).await;
    for provider in simulated_providers() {
        let person = app.person_at(provider).await;
        let connection = &person.connections[0];
        let whole = Follower::new(&app, &person, connection);
        let mut followers = ["", "&limit=1", "&limit=2", "&limit=3"]
            .map(|more| whole.with(&format!("{more}&from=2026-11-19")));
        let at = app.clock.now();
        let mut ids = Vec::new();
        // Some share their time.
        for (text, age) in [
            ("A", HOUR),
            ("B", HOUR),
            ("C", HOUR),
            ("D", DAY),
            ("E", 2 * DAY),
            ("F", 2 * DAY),
        ] {
            ids.push(app.add_row(connection, text, at - age).await);
        }
        let follow_all = async |followers: &mut [Follower]| {
            let mut pages = Vec::new();
            for follower in followers.iter_mut() {
                pages.push(follower.follow(&app).await);
            }
            assert_eq!(followers[0].rows, followers[1].rows, "{provider}");
            let mut others = pages[1..].iter();
            assert!(others.all(|entries| *entries == pages[0]), "{provider}");
            pages.swap_remove(0)
        };
        let first = follow_all(&mut followers[..]).await;
        assert!(first.len() >= 6, "{provider}");
        followers[0].assert_equal(&app, provider).await;

        for (index, id) in ids.iter().take(4).enumerate() {
            app.set_amount(connection, id, 700 + index as u64);
        }
        app.add_row(connection, "G", at - HOUR).await;
        app.remove_row(connection, &ids[4]);
        app.remove_row(connection, &ids[5]);
        app.advance_clock(STALE);
        assert_eq!(follow_all(&mut followers[..]).await.len(), 5, "{provider}");
        app.advance_clock(BETWEEN_MISSES);
        app.sync(connection).await;
        app.add_row(connection, "H", at - HOUR).await;
        app.advance_clock(BETWEEN_MISSES);
        let last = follow_all(&mut followers[..]).await;
        let kinds: Vec<_> = last.iter().map(|entry| text(entry, "op")).collect();
        assert_eq!(
            kinds,
            ["remove", "remove", "upsert"],
            "{provider}: {last:?}"
        );
        followers[1].assert_equal(&app, provider).await;
    }
}

/// A client reads page by page, while `meddle` changes rows after each of the first pages.
async fn page_while(
    app: &App,
    person: &Person,
    meddle: impl AsyncFn(&Connection, usize, &[String]),
) {
    let connection = &person.connections[0];
    let provider = connection.provider.as_str();
    let mut copy = Follower::new(app, person, connection).with("&limit=2");
    copy.follow(app).await;
    let now = app.clock.now();
    let mut ids = Vec::new();
    for hours in 1..=8 {
        let (text, at) = (format!("ROW {hours}"), now - hours * HOUR);
        ids.push(app.add_row(connection, &text, at).await);
    }
    app.advance_clock(STALE);
    let mut page = 0;
    while copy.next_page(app).await.0 {
        meddle(connection, page, &ids).await;
        page += 1;
        assert!(page < 100, "{provider}: no end");
    }
    assert!(page >= 2, "{provider}: {page} pages");
    // Removed rows take a day.
    follow_past_misses(app, &mut copy).await;
    copy.assert_equal(app, provider).await;
}

#[tokio::test]
async fn changes_and_syncs_between_pages_lose_nothing() {
    let app = App::start(setup()).await;
    for provider in simulated_providers() {
        let person = app.person_at(provider).await;
        page_while(&app, &person, async |connection, page, ids| {
            // One that the client has, one that it is still to get, and one that neither sync
            // nor client knows.
            if page == 0 {
                app.set_amount(connection, &ids[0], 301);
                app.set_amount(connection, &ids[6], 302);
                app.remove_row(connection, &ids[5]);
                app.add_row(connection, "BETWEEN PAGES", app.clock.now() - 30 * STALE)
                    .await;
            }
        })
        .await;
        // With a sync after each change.
        page_while(&app, &person, async |connection, page, ids| {
            if page < 3 {
                app.set_amount(connection, &ids[page + 2], 400 + page as u64);
                app.remove_row(connection, &ids[7 - page]);
                let (text, at) = (format!("BETWEEN {page}"), app.clock.now() - 90 * STALE);
                app.add_row(connection, &text, at).await;
                app.advance_clock(STALE);
                app.sync(connection).await;
            }
        })
        .await;
    }
}

/// More rows change while a client pages than a cursor has room for.
#[tokio::test]
async fn many_changes_between_pages_do_not_stop_a_client() {
    let app = App::start(setup()).await;
    let person = app.person_at("fiskil").await;
    let connection = &person.connections[0];
    let now = app.clock.now();
    let mut ids = Vec::new();
    for number in 0..260 {
        let (text, at) = (format!("ROW {number}"), now - HOUR - number * HOUR / 4);
        ids.push(app.add_row(connection, &text, at).await);
    }
    for is_first_copy in [true, false] {
        let mut copy = Follower::new(&app, &person, connection).with("&limit=40");
        if !is_first_copy {
            copy.follow(&app).await;
            for id in &ids {
                app.change_row(connection, id, json!({"description": "CHANGED ONCE"}));
            }
            app.advance_clock(STALE);
        }
        assert!(copy.next_page(&app).await.0);
        for id in &ids {
            let again = format!("AGAIN {is_first_copy}");
            app.change_row(connection, id, json!({"description": again}));
        }
        copy.follow(&app).await;
        copy.follow(&app).await;
        copy.assert_equal(&app, &format!("first copy: {is_first_copy}"))
            .await;
        app.advance_clock(STALE);
    }
}

#[tokio::test]
async fn clients_do_not_disturb_each_other() {
    let app = App::start(setup()).await;
    let person = app.person_at("fiskil").await;
    let connection = &person.connections[0];
    let mut often = Follower::new(&app, &person, connection);
    let mut rarely = often.with("&limit=3");
    // The other instance has neither the contexts nor the recent syncs of the first one.
    rarely.api = app.start_another().await;
    often.follow(&app).await;
    rarely.follow(&app).await;
    let mut id = String::new();
    for round in 0..5 {
        if round == 3 {
            app.remove_row(connection, &id);
        }
        id = app
            .add_recent_row(connection, &format!("ROUND {round}"))
            .await;
        app.advance_clock(6 * HOUR);
        assert!(!often.follow(&app).await.is_empty());
    }
    app.advance_clock(DAY);
    often.follow(&app).await;
    let caught_up = rarely.follow(&app).await;
    assert_eq!(caught_up.len(), 5, "{caught_up:?}");
    // The removed row, which it never got, is removed all the same.
    let removed = caught_up.iter().filter(|entry| entry["op"] == "remove");
    assert_eq!(removed.count(), 1);
    assert_eq!(often.rows, rarely.rows);
    often.assert_equal(&app, "often").await;
    // A cursor of one instance is good at the other.
    std::mem::swap(&mut often.api, &mut rarely.api);
    app.add_recent_row(connection, "AT THE OTHER").await;
    app.advance_clock(STALE);
    for copy in [&mut often, &mut rarely] {
        let entries = copy.follow(&app).await;
        assert_eq!(changes(&entries), [added("AT THE OTHER")]);
    }
}

#[tokio::test]
async fn copy_of_one_account_has_its_rows_only() {
    let app = App::start(setup()).await;
    for provider in simulated_providers() {
        let person = app.person_at(provider).await;
        let connection = &person.connections[0];
        let accounts = app.stored_accounts(person.user.id, connection.id).await;
        let with_rows = app.account_at(connection).await;
        let is_own = |account: &&Account| account.provider_account_id == with_rows;
        let own = accounts.iter().find(is_own).unwrap();
        let mut others = accounts.iter().filter(|account| account.id != own.id);
        let other = others.next().unwrap();
        let mut copy = Follower::new(&app, &person, connection).of_account(&own.id.to_string());
        copy.follow(&app).await;
        copy.assert_equal(&app, provider).await;
        let now = app.clock.now();
        let row = app.add_row(connection, "OF THIS ACCOUNT", now - HOUR).await;
        let (id, at) = (&other.provider_account_id, now - HOUR);
        app.add_row_to(connection, id, "OF ANOTHER", at);
        app.advance_clock(STALE);
        let entries = copy.follow(&app).await;
        assert_eq!(changes(&entries), [added("OF THIS ACCOUNT")], "{provider}");
        copy.assert_equal(&app, provider).await;
        app.remove_row(connection, &row);
        let removed = follow_past_misses(&app, &mut copy).await;
        assert_eq!(removed.len(), 1, "{provider}: {removed:?}");
        assert_eq!(removed[0]["accountId"], own.id.to_string(), "{provider}");
        copy.assert_equal(&app, provider).await;
    }
}

fn sorted_ids<'v>(rows: impl IntoIterator<Item = &'v Value>) -> Vec<&'v str> {
    let mut ids: Vec<&str> = rows.into_iter().map(|row| text(row, "id")).collect();
    ids.sort_unstable();
    ids
}

#[tokio::test]
async fn first_copy_begins_at_from() {
    let app = App::start(setup()).await;
    for provider in simulated_providers() {
        let person = app.person_at(provider).await;
        let connection = &person.connections[0];
        let copy_from = async |from: &str| {
            let mut copy = Follower::new(&app, &person, connection).with(&format!("&from={from}"));
            copy.follow(&app).await;
            copy
        };
        for from in ["2026-06-01", "2026-09-15T12:30:00Z"] {
            let copy = copy_from(from).await;
            let listed = copy.listed(&app, from).await;
            let copied = sorted_ids(copy.rows.values());
            assert_eq!(copied, sorted_ids(&listed), "{provider}");
        }
        // It reaches back to the first watched day in any case.
        let late = copy_from("2026-11-20").await;
        late.assert_equal(&app, provider).await;
        let tomorrow = copy_from("2027-01-01").await;
        tomorrow.assert_equal(&app, provider).await;
        assert!(tomorrow.rows.len() > 1, "{provider}");

        // Old rows of a long copy stay as they are, and it follows the others.
        let mut long = copy_from("2026-06-01").await;
        let before = long.rows.len();
        let app = &app;
        app.add_recent_row(connection, "NOW").await;
        app.advance_clock(STALE);
        long.assert_finds(app, &[added("NOW")], provider).await;
        assert_eq!(long.rows.len(), before + 1);
    }
}

#[tokio::test]
async fn equal_trades_have_keys_of_their_own() {
    let app = App::start(setup()).await;
    let person = app.person_at("snaptrade").await;
    let connection = &person.connections[0];
    let mut copy = Follower::new(&app, &person, connection).with("&limit=1");
    copy.follow(&app).await;
    let at = app.clock.now() - HOUR;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(app.add_row(connection, "EQUAL", at).await);
    }
    app.advance_clock(STALE);
    let news = copy.follow(&app).await;
    let distinct = |member: &str| -> usize {
        let values = news
            .iter()
            .map(|entry| entry.pointer(member).unwrap().to_string());
        values.collect::<BTreeSet<_>>().len()
    };
    let counts = (news.len(), distinct("/key"), distinct("/trade/id"));
    assert_eq!(counts, (3, 3, 1), "{news:?}");
    app.change_row(connection, &ids[1], json!({"price": 77}));
    app.advance_clock(STALE);
    let corrected = copy.follow(&app).await;
    assert_eq!(changes(&corrected), [changed("EQUAL")], "one of three");
    copy.assert_equal(&app, "corrected").await;
    app.remove_row(connection, &ids[0]);
    let removed = follow_past_misses(&app, &mut copy).await;
    assert_eq!(changes(&removed), [REMOVAL]);
    copy.assert_equal(&app, "removed").await;
    app.add_row(connection, "EQUAL", at).await;
    app.advance_clock(STALE);
    let returned = copy.follow(&app).await;
    assert_eq!(returned.len(), 1, "{returned:?}");
    // The same place among its equals.
    assert_eq!(returned[0]["key"], removed[0]["key"]);
    copy.assert_equal(&app, "returned").await;
}

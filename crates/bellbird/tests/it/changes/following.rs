//! Inserts, corrections, removals, renewals, restarts and a day without the provider.

use bellbird_domain::{Connection, Plan};
use bellbird_sandbox::{ConsentState, Fault};
use serde_json::{Value, json};

use super::{BETWEEN_MISSES, DAY, HOUR, STALE, follow_past_misses, setup};
use crate::support::database::tables_containing;
use crate::support::follower::{Follower, REMOVAL, added, changed, changes};
use crate::support::harness::{App, Person, simulated_providers};
use crate::support::process::text;
use crate::support::provider_spec::spec;
use crate::support::receiver::ReceivedEvent;
use crate::support::rows::all_rows;

/// What a second consent to the same accounts changes at the provider.
fn relink(provider: &str) -> Option<Value> {
    match provider {
        "fiskil" => Some(json!({"sameIds": false})),
        "akahu" => Some(json!({"newToken": true})),
        _ => None,
    }
}

impl App {
    /// A new user with a connection that was linked in the browser, two hours ago.
    pub(crate) async fn linked_at(&self, provider: &str) -> (Person, Connection) {
        let email = format!("following.{provider}@example.com");
        let person = self.add_person(&email, Plan::Professional, &[]).await;
        let (mut linked, _) = self.link_at(person.user.id, provider).await;
        self.advance_clock(2 * HOUR);
        self.run_due_jobs().await;
        (person, linked.remove(0))
    }

    /// Ends the consent and gives it again.
    pub(crate) async fn renew_in_browser(&self, connection: &Connection) {
        if let Some(setting) = relink(&connection.provider) {
            self.set_options(&connection.provider, &setting);
        }
        self.set_consent(connection, ConsentState::Expired).await;
        self.refresh(connection.user_id, connection.id).await;
        let (new, page) = self.reconnect(connection.user_id, connection.id).await;
        assert_eq!(new, [], "{}", page.text);
        page.assert_shows(200, "is reconnected");
    }
}

/// The sandbox draws parts of a row, such as the code of its merchant, from the number in its id.
/// Counts the rows whose content a renewal has changed really, and returns the other entries.
fn changed_in_renewal(before: &Follower, entries: Vec<Value>) -> (usize, Vec<Value>) {
    let is_changed = |entry: &Value| {
        let Some(known) = before.rows.get(text(entry, "key")) else {
            return false;
        };
        let mut row = entry["transaction"].clone();
        row["id"] = known["id"].clone();
        row != *known && entry["isNew"] == false && row["description"] == known["description"]
    };
    let (changed, rest): (Vec<Value>, Vec<Value>) = entries.into_iter().partition(is_changed);
    let (count, all) = (changed.len(), before.rows.len());
    assert!(count <= all / 4, "{count} of {all}");
    (count, rest)
}

/// How many rows events report as new, and as updated.
fn counts(events: &[ReceivedEvent]) -> (usize, usize) {
    (
        all_rows(events, "new").len(),
        all_rows(events, "updated").len(),
    )
}

async fn follow_everything(app: &App, provider: &str) {
    let (person, connection) = app.linked_at(provider).await;
    let hook = app.hook(&person.user).await;
    let mut copy = Follower::new(app, &person, &connection);
    let first = copy.follow(app).await;
    assert!(first.len() > 3, "{provider}: {first:?}");
    assert!(
        first.iter().all(|entry| entry["isNew"] == true),
        "{provider}"
    );
    copy.assert_equal(app, &format!("{provider}: first copy"))
        .await;

    let now = app.clock.now();
    let mut ids = Vec::new();
    for (text, age) in [
        ("ONE", HOUR),
        ("TWO", DAY),
        ("THREE", 2 * DAY),
        ("FOUR", 3 * DAY),
    ] {
        ids.push(app.add_row(&connection, text, now - age).await);
    }
    app.advance_clock(STALE);
    let news = copy.follow(app).await;
    let expected = ["ONE", "TWO", "THREE", "FOUR"].map(added);
    assert_eq!(changes(&news), expected, "{provider}");
    copy.assert_equal(app, &format!("{provider}: added")).await;
    copy.assert_finds(app, &[], "no news").await;

    app.set_amount(&connection, &ids[0], 9_901);
    let corrected = json!({"description": "TWO, CORRECTED"});
    app.change_row(&connection, &ids[1], corrected);
    app.remove_row(&connection, &ids[2]);
    app.advance_clock(STALE);
    let keys = copy.keys();
    let corrected = copy.follow(app).await;
    // Whether a changed description makes another row is for the provider to say.
    let [one, two] = &changes(&corrected)[..] else {
        panic!("{provider}: {corrected:?}")
    };
    assert_eq!(*one, changed("ONE"), "{provider}");
    assert_eq!(*two, changed("TWO, CORRECTED"), "{provider}");
    assert_eq!(copy.keys(), keys, "{provider}: corrections keep keys");
    app.advance_clock(BETWEEN_MISSES);
    copy.assert_finds(app, &[], &format!("{provider}: not gone yet"))
        .await;
    app.advance_clock(BETWEEN_MISSES);
    let removed = copy.follow(app).await;
    assert_eq!(changes(&removed), [REMOVAL], "{provider}");
    assert_eq!(removed[0]["key"], news[2]["key"], "{provider}: THREE");
    copy.assert_equal(app, &format!("{provider}: corrected and removed"))
        .await;

    // Renewed.
    app.delivered_to(&hook).await;
    let keys = copy.keys();
    app.renew_in_browser(&connection).await;
    app.advance_clock(STALE);
    let before = copy.clone();
    let (other, rest) = changed_in_renewal(&before, copy.follow(app).await);
    let news = changes(&rest);
    assert!(news.is_empty(), "{provider}: {news:?} in a renewal");
    assert_eq!(copy.keys(), keys, "{provider}");
    let events = app.delivered_to(&hook).await;
    assert_eq!(counts(&events), (0, other), "{provider}");
    copy.assert_equal(app, &format!("{provider}: renewed"))
        .await;
    let mut again = Follower {
        api: app.start_another().await,
        ..Follower::new(app, &person, &connection)
    };
    again.follow(app).await;
    let count = |copy: &Follower| copy.watched(copy.rows.values().cloned()).len();
    assert_eq!(count(&again), count(&copy), "{provider}");
    // Earlier rows have no fingerprint, so nothing knows them under their new ids.
    let is_watched = |row: &Value| !again.watched([row.clone()]).is_empty();
    let mut watched = again.rows.iter().filter(|(_, row)| is_watched(row));
    let are_known = watched.all(|(key, _)| copy.rows.contains_key(key));
    assert!(are_known, "{provider}: the keys of the first copy");

    // Restarted, and a day without the provider.
    copy.api = app.start_another().await;
    app.bank(provider).add_fault(Fault::status(503).at("/"));
    let now = app.clock.now();
    let mut late = Vec::new();
    for hours in [0, 6, 12, 18] {
        let answer = copy.ask(app).await;
        let has_news_without_sync = answer.status == 200 && hours == 0;
        let is_expected = answer.status == 503 || has_news_without_sync;
        assert!(is_expected, "{provider}: {}", answer.text);
        let at = now - hours * HOUR / 6;
        late.push(app.add_row(&connection, "MEANWHILE", at).await);
        app.advance_clock(6 * HOUR);
    }
    app.remove_row(&connection, &late[3]);
    app.clear_faults();
    let returned = copy.follow(app).await;
    assert_eq!(returned.len(), 3, "{provider}: {returned:?}");
    copy.assert_equal(app, &format!("{provider}: after a day away"))
        .await;

    // A renewal while rows change, of which the last read knew nothing.
    let keys = copy.keys();
    app.delivered_to(&hook).await;
    app.renew_in_browser(&connection).await;
    app.add_recent_row(&connection, "AFTER THE RENEWAL").await;
    app.advance_clock(STALE);
    let before = copy.clone();
    let (other, rest) = changed_in_renewal(&before, copy.follow(app).await);
    assert_eq!(changes(&rest), [added("AFTER THE RENEWAL")], "{provider}");
    let mut keys = keys.iter();
    assert!(keys.all(|key| copy.rows.contains_key(key)), "{provider}");
    let events = app.delivered_to(&hook).await;
    assert_eq!(counts(&events), (1, other), "{provider}");
    copy.assert_equal(app, &format!("{provider}: renewed again"))
        .await;
}

#[tokio::test]
async fn copy_equals_the_list_of_fiskil() {
    follow_everything(&App::start(setup()).await, "fiskil").await;
}

#[tokio::test]
async fn copy_equals_the_list_of_akahu() {
    follow_everything(&App::start(setup()).await, "akahu").await;
}

#[tokio::test]
async fn copy_equals_the_list_of_snaptrade() {
    follow_everything(&App::start(setup()).await, "snaptrade").await;
}

#[tokio::test]
async fn removed_row_that_returns_keeps_its_key() {
    let app = App::start(setup()).await;
    for provider in simulated_providers() {
        let person = app.person_at(provider).await;
        let connection = &person.connections[0];
        let mut copy = Follower::new(&app, &person, connection);
        let at = app.clock.now() - HOUR;
        let account = app.account_at(connection).await;
        let row = spec(provider).row_at(&account, at, "COMES AND GOES");
        let id = app.put_row(connection, row.clone());
        copy.follow(&app).await;
        let keys = copy.keys();
        app.remove_row(connection, &id);
        let removed = follow_past_misses(&app, &mut copy).await;
        assert_eq!(changes(&removed), [REMOVAL], "{provider}");
        assert_eq!(copy.rows.len(), keys.len() - 1);
        app.put_row_back(connection, row, &id);
        app.advance_clock(STALE);
        let returned = copy.follow(&app).await;
        assert_eq!(
            changes(&returned),
            [changed("COMES AND GOES")],
            "{provider}"
        );
        assert_eq!(copy.keys(), keys, "{provider}");
        copy.assert_equal(&app, provider).await;
        if provider == "fiskil" {
            row_that_one_read_lacks_stays(&app, &person).await;
        }
    }
}

/// A row that is left out for an hour is no news.
async fn row_that_one_read_lacks_stays(app: &App, person: &Person) {
    app.advance_clock(STALE);
    let connection = &person.connections[0];
    let mut copy = Follower::new(app, person, connection);
    let account = app.account_at(connection).await;
    let row = spec("fiskil").row_at(&account, app.clock.now() - HOUR, "HIDDEN FOR AN HOUR");
    let id = app.put_row(connection, row.clone());
    copy.follow(app).await;
    let keys = copy.keys();
    app.remove_row(connection, &id);
    app.advance_clock(HOUR);
    copy.assert_finds(app, &[], "no news").await;
    app.put_row_back(connection, row, &id);
    app.advance_clock(HOUR);
    copy.follow(app).await;
    assert_eq!(copy.keys(), keys);
    copy.assert_equal(app, "back").await;
}

#[tokio::test]
async fn event_of_akahu_removes_a_row_at_once() {
    let app = App::start(setup()).await;
    let (person, connection) = app.subscribed("akahu").await;
    let mut copy = Follower::new(&app, &person, &connection);
    let id = app.add_recent_row(&connection, "REMOVED AT ONCE").await;
    copy.follow(&app).await;
    app.delivered("akahu").await;
    app.bank("akahu").forget_deliveries();
    app.remove_row(&connection, &id);
    assert_eq!(app.delivered("akahu").await, [json!(200)]);
    let stored = tables_containing(&app.shared.database, &[id, "REMOVED AT ONCE".to_owned()]).await;
    assert_eq!(stored.len(), 0, "{stored:?}");
    let hints = "SELECT LENGTH(removal_hints) FROM syncs ORDER BY 1 DESC";
    assert_eq!(app.query(hints).await[0][0], "16", "one digest");
    app.advance_clock(STALE);
    copy.assert_finds(&app, &[REMOVAL], "an event").await;
    copy.assert_equal(&app, "removed").await;
}

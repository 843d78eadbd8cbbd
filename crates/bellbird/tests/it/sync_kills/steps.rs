//! A sync dies at one of its steps, and another is made: what it found is told once, whichever of them found it.

use bellbird_connections::Connections;
use bellbird_domain::Connection;
use jiff::SignedDuration;
use serde_json::Value;

use crate::harness::{App, Database, Setup, on_both_databases, pretended};
use crate::link_kills::{Death, Ended, LEASES_END};
use crate::receiver::{Hook, Taken};

/// Parts into which the time of a sync is cut: it is killed at the end of each.
const PARTS: u32 = 8;

/// The sync of a row that is new and of one that has changed dies, and is made again.
async fn die(app: &App, connection: &Connection, hook: &Hook, rows: &mut Vec<String>, death: Death) -> Ended {
    let text = format!("ROW {}", rows.len());
    app.pass(SignedDuration::from_mins(1)).await;
    let row = app.add_row(connection, &text, app.clock.now()).await;
    let before = rows.last().cloned();
    if let Some(before) = &before {
        app.change_row(connection, before, change(connection, rows.len())).await;
    }
    rows.push(row);
    app.pass(SignedDuration::from_mins(1)).await;

    let (user, id) = (connection.user_id, connection.id);
    let sync = async move |connections: Connections| {
        let _ = connections.sync(user, id).await;
    };
    let ended = app.run(&connection.provider, death, sync).await;
    app.pass(LEASES_END).await;
    app.sync(connection).await;

    let taken = app.delivered_to(hook).await;
    let texts: Vec<&Value> = taken.iter().flat_map(|one| one.rows("new")).map(|row| &row["description"]).collect();
    assert_eq!(texts, [&text], "{}", connection.provider);
    let updated: usize = taken.iter().map(|one| one.counts().1).sum();
    assert_eq!(updated, usize::from(before.is_some()), "{}", connection.provider);
    // Both in one event, of one sync: there is no half of it.
    assert_eq!(taken.len(), 1, "{:?}", taken.iter().map(Taken::counts).collect::<Vec<_>>());
    assert_eq!(app.delivered_to(hook).await.len(), 0);
    ended
}

/// Another amount, or of a trade, whose amount is a part of its id, another price.
fn change(connection: &Connection, number: usize) -> Value {
    let member = if connection.provider == "snaptrade" { "price" } else { "amount" };
    if connection.provider == "fiskil" {
        return serde_json::json!({ member: format!("{number}.50") });
    }
    serde_json::json!({ member: number + 100 })
}

on_both_databases! {
    async fn whatever_step_a_sync_dies_at_its_rows_are_told_once(app: App) {
        for provider in pretended() {
            let person = app.person_at(provider).await;
            let connection = &person.connections[0];
            let hook = app.hook(&person.user).await;
            app.begin(connection, &hook).await;
            let mut rows = Vec::new();
            let whole = die(&app, connection, &hook, &mut rows, Death::Never).await;
            assert!(whole.finished && whole.calls > 1, "{} calls", whole.calls);
            for after in 0..whole.calls {
                let death = Death::AtCall { after, made: false };
                assert!(!die(&app, connection, &hook, &mut rows, death).await.finished, "{provider}: call {after}");
            }
            for part in 0..=PARTS {
                let rounds = u64::from(whole.rounds) * u64::from(part) / u64::from(PARTS);
                die(&app, connection, &hook, &mut rows, Death::After(u32::try_from(rounds).unwrap())).await;
            }
        }
    }
}

//! After a removal, neither the database nor the API contains an id or name of the connection.

use std::collections::BTreeSet;

use bellbird_connections::LinkTarget;
use bellbird_domain::{Connection, ConnectionStatus, Plan};
use bellbird_sandbox::{ConsentState, WebhookSettings};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::contains;
use crate::support::browser::{open, start};
use crate::support::database::{query, tables, tables_containing};
use crate::support::harness::{AccountLabel, App, Person, Setup, also_on_postgres, eventually};
use crate::support::provider_spec::spec;
use crate::support::words::assert_lacks;

/// All ids and names of the connection and its accounts, here and at the provider.
async fn identifiers_of(app: &App, connection: &Connection) -> Vec<String> {
    let id = connection.id;
    let mut names = vec![
        id.to_string(),
        connection.institution_name.clone(),
        connection.institution_id.clone(),
    ];
    for sql in [
        format!(
            "SELECT provider_connection_id, institution_logo FROM connections WHERE id = '{id}'"
        ),
        format!(
            "SELECT id, provider_account_id, name, masked_number FROM accounts WHERE connection_id = '{id}'"
        ),
    ] {
        names.extend(app.query(&sql).await.into_iter().flatten());
    }
    names
}

/// Reads the connection in every way. Returns the paths that exist.
async fn read_all(
    app: &App,
    person: &Person,
    connection: &Connection,
    accounts: &[AccountLabel],
) -> Vec<String> {
    let (id, account) = (connection.id, &accounts[0].id);
    let mut paths = vec![
        format!("/v1/balances?accountIds={account}"),
        format!("/v1/accounts?connectionId={id}&limit=1"),
        format!("/v1/accounts/{account}"),
        format!("/v1/connections/{id}"),
    ];
    paths.extend(match connection.category.as_str() {
        "banking" => vec![format!("/v1/transactions?connectionId={id}&limit=1")],
        _ => vec![
            format!("/v1/trades?connectionId={id}&limit=1"),
            format!("/v1/holdings?connectionId={id}"),
        ],
    });
    let mut found = Vec::new();
    for path in paths {
        let answer = app.get_as(&person.key, &path).await;
        if answer.status != 404 {
            assert_eq!(answer.status, 200, "{path}: {}", answer.text);
            found.push(path);
        }
    }
    found
}

#[tokio::test]
async fn removal_erases_every_identifier() {
    let app = App::start(Setup::default()).await;
    for (provider, setting) in [
        ("fiskil", json!({"sameIds": false})),
        ("akahu", json!({"newToken": true, "newAuthorisation": true})),
        ("snaptrade", Value::Null),
    ] {
        let person = app
            .add_person(spec(provider).email, Plan::Professional, &[])
            .await;
        let user = person.user.id;
        // Known before the consent, because the first refresh subscribes to the user's events.
        let hook = format!("{}/webhooks/{provider}", app.console_url);
        app.bank(provider)
            .set_webhooks(WebhookSettings::to(hook))
            .unwrap();
        let callback_url = app.callback_url(user, provider, "accept").await;
        open(&callback_url).await;
        let connection = app.connections_of(user).await.remove(0);
        let mut names = identifiers_of(&app, &connection).await;

        // Provider events come about the lost consent and about the new one after a reconnect.
        app.advance_clock(SignedDuration::from_mins(1));
        app.run_due_jobs().await;
        eventually(async || app.connections.tasks().is_empty()).await;
        if !setting.is_null() {
            app.bank(provider).set_options(&setting).unwrap();
        }
        app.set_consent(&connection, ConsentState::Revoked).await;
        app.advance_clock(SignedDuration::from_secs(2));
        app.provider_events_sent(provider).await;
        app.advance_clock(SignedDuration::from_mins(2));
        eventually(async || {
            app.run_due_jobs().await;
            app.connections_of(user).await[0].status == ConnectionStatus::Revoked
        })
        .await;
        let link_url = app
            .link_url(user, LinkTarget::Connection(connection.id))
            .await;
        let callback_url = app.answer_consent_page(&link_url, "accept").await;
        open(&callback_url).await;
        assert_eq!(
            app.connections_of(user).await[0].status,
            ConnectionStatus::Active
        );
        app.advance_clock(SignedDuration::from_mins(1));
        app.run_due_jobs().await;
        app.provider_events_sent(provider).await;
        names.extend(identifiers_of(&app, &connection).await);
        let accounts = app.accounts_of(&connection).await;
        let paths = read_all(&app, &person, &connection, &accounts).await;
        assert!(paths.len() > 2, "{paths:?}");
        read_all(&app, &person, &connection, &accounts).await;
        // A consent session is in progress during the removal.
        start(&link_url).await.location();

        app.remove(connection.id).await;
        for path in paths {
            let answer = app.get_as(&person.key, &path).await;
            let (status, text) = (answer.status, &answer.text);
            let is_empty_list =
                path.starts_with("/v1/accounts?") && status == 200 && answer.data().is_empty();
            assert!(is_empty_list || status == 404, "{path}: {status} {text}");
            assert_lacks(text, &accounts[0].name);
        }
        for list in ["/v1/connections", "/v1/accounts"] {
            let answer = app.get_as(&person.key, list).await;
            assert_eq!(answer.data(), Vec::<Value>::new());
        }
        open(&callback_url)
            .await
            .assert_shows(200, "This is not linked any more");
        assert!(matches!(open(&link_url).await.status, 404 | 410));
        assert_erased(&app, &connection, names).await;
        app.connections
            .links()
            .unregister_provider_users(user, false)
            .await
            .unwrap();
        app.delete_user(user).await;
        app.bank(provider)
            .set_webhooks(WebhookSettings::off())
            .unwrap();
    }
}

async fn assert_erased(app: &App, connection: &Connection, mut names: Vec<String>) {
    let database = &app.shared.database;
    let id = connection.id.to_string();
    names.retain(|name| name.len() > 4 && *name != connection.provider);
    names.sort_unstable();
    names.dedup();
    // Olivia's and Ben's connections stay, and may share a name with it.
    let other_connections = [&app.olivia, &app.ben]
        .into_iter()
        .flat_map(|person| &person.connections);
    for other in other_connections {
        let others = identifiers_of(app, other).await;
        names.retain(|name| !others.contains(name));
    }
    assert!(names.len() > 4, "{names:?}");
    let provider = &connection.provider;
    let audit = BTreeSet::from([("connection_audit".to_owned(), id.clone())]);
    let left = tables_containing(database, &names).await;
    assert_eq!(left, audit, "{provider}");
    let mut tables = tables(database).await.into_iter();
    let (_, columns) = tables.find(|(name, _)| name == "connection_audit").unwrap();
    assert_eq!(
        columns.join(" "),
        "cause changed_at connection_id from_status id to_status user_id"
    );
    let Some(path) = database.strip_prefix("sqlite:") else {
        return;
    };
    // SQLite moves the whole write-ahead log into the file once no reader is active.
    eventually(async || {
        query(database, "PRAGMA wal_checkpoint(TRUNCATE)").await == [["0", "0", "0"]]
    })
    .await;
    let mut bytes = std::fs::read(path).unwrap();
    bytes.extend(std::fs::read(format!("{path}-wal")).unwrap_or_default());
    for name in names.iter().filter(|name| **name != id) {
        assert!(!contains(&bytes, name), "{provider}: {name} is in the file");
    }
}

also_on_postgres! { removal_erases_every_identifier }

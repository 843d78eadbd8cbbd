//! For a client, connections and accounts of other users are the same as unknown ones.

use bellbird_domain::Plan;
use bellbird_sandbox::{ConsentState, Fault};
use serde_json::json;

use crate::support::harness::{App, Response, Setup, also_on_postgres, eventually};
use crate::support::words::{assert_has, assert_lacks};

/// All that a client sees of a response, except its request id, its date and the state of the rate
/// limit.
fn visible(answer: &Response) -> (u16, String, Vec<(String, String)>) {
    let headers = answer
        .headers
        .iter()
        .filter(|(name, _)| {
            ![
                "x-request-id",
                "date",
                "x-ratelimit-remaining",
                "x-ratelimit-reset",
            ]
            .contains(&name.as_str())
        })
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
        .collect();
    (answer.status.as_u16(), answer.text.clone(), headers)
}

#[tokio::test]
async fn connections_of_others_and_removed_ones_are_unknown() {
    let app = App::start(Setup::default()).await;
    let foreign_connection = app.ben.connections[0].id.to_string();
    let foreign_account = app.accounts_of(&app.ben.connections[0]).await.remove(0).id;
    let own_connection = app.olivia.connections[0].id;
    let own_account = app
        .accounts_of(&app.olivia.connections[0])
        .await
        .remove(0)
        .id;
    let unknown = "0191e7a0-7c3b-7def-8000-00aabbccddee";
    // Ben reads his own first, so that the caches are warm.
    for path in [
        format!("/v1/balances?accountIds={foreign_account}"),
        format!("/v1/transactions?connectionId={foreign_connection}"),
    ] {
        assert_eq!(app.get_as(&app.ben.key, &path).await.status, 200);
    }
    app.reset_calls();
    let (account, connection) = (&foreign_account, &foreign_connection);
    for (query, foreign) in [
        ("balances?accountIds=ID".to_owned(), account),
        (format!("balances?accountIds={own_account},ID"), account),
        ("transactions?connectionId=ID".to_owned(), connection),
        (
            "transactions?connectionId=ID&offset=200".to_owned(),
            connection,
        ),
        (
            format!("transactions?connectionId=ID&accountId={account}"),
            connection,
        ),
        (
            format!("transactions?connectionId=ID&accountId={own_account}"),
            connection,
        ),
        (
            format!("transactions?connectionId={own_connection}&accountId=ID"),
            account,
        ),
    ] {
        let get = async |id: &str| app.get(&format!("/v1/{}", query.replace("ID", id))).await;
        let (foreign, unknown) = (get(foreign).await, get(unknown).await);
        foreign.error(404);
        assert_eq!(visible(&foreign), visible(&unknown), "{query}");
    }
    // No provider is called for another user's ids.
    assert!(app.fiskil().calls().is_empty());
    for list in ["/v1/connections", "/v1/accounts?limit=200"] {
        let text = app.get(list).await.text;
        assert_lacks(&text, connection);
        assert_lacks(&text, account);
    }
    import_rejects_others_and_broken_consents(&app).await;
    app.reset_calls();
    removed_connection_disappears_immediately(&app).await;
    connection_removed_during_read_is_not_found(&app).await;
}

async fn removed_connection_disappears_immediately(app: &App) {
    let connection = app.olivia.connections[0].id;
    let account = app
        .accounts_of(&app.olivia.connections[0])
        .await
        .remove(0)
        .id;
    let balances = format!("/v1/balances?accountIds={account}");
    let transactions =
        format!("/v1/transactions?connectionId={connection}&accountId={account}&limit=5");
    assert_eq!(app.get(&balances).await.cache(), Some("MISS"));
    assert_eq!(app.get(&balances).await.cache(), Some("HIT"));
    assert_eq!(app.get(&transactions).await.status, 200);
    assert_eq!(app.get("/v1/connections").await.data().len(), 2);
    let accounts = async || app.get("/v1/accounts").await.text;
    assert_has(&accounts().await, &account);
    app.remove(connection).await;
    let next = format!("{transactions}&offset=5");
    for path in [&balances, &transactions, &next] {
        app.get(path).await.error(404);
    }
    assert_eq!(app.get("/v1/connections").await.data().len(), 1);
    assert_lacks(&accounts().await, &account);
    let withdrawals = app.fiskil().calls()["/v1/consent/{arrangement_id}"];
    assert_eq!(withdrawals, 1, "consent was withdrawn");
}

async fn import_rejects_others_and_broken_consents(app: &App) {
    let credentials = app.credentials(0);
    let of_ben = app.import(app.ben.user.id, &credentials).await;
    assert!(of_ben.is_err());
    let olivia = app.olivia.user.id;
    let again = app.import(olivia, &credentials).await.unwrap().connections;
    let mut own = app.olivia.connections.iter();
    assert!(own.any(|connection| connection.id == again[0].id));
    // Credentials without an arrangement cover all connections of the end user.
    let whole = json!({"provider": "fiskil", "endUserId": credentials["endUserId"]});
    let both = app.import(olivia, &whole).await.unwrap().connections;
    assert_eq!(both.len(), 2);

    let spare = app.credentials(3);
    let consent = spare["arrangementId"].as_str().unwrap();
    for (state, word) in [
        (ConsentState::Revoked, "revoked"),
        (ConsentState::Expired, "invalidated"),
    ] {
        app.fiskil().set_consent(consent, state).unwrap();
        let email = format!("{word}@example.com");
        let person = app.add_person(&email, Plan::Developer, &[]).await;
        let imported = app.import(person.user.id, &spare).await;
        assert_has(&imported.unwrap_err().to_string(), word);
        assert!(app.connections_of(person.user.id).await.is_empty());
    }
    app.fiskil()
        .set_consent(consent, ConsentState::Active)
        .unwrap();
    let late = app
        .add_person("late@example.com", Plan::Developer, &[&spare])
        .await;
    assert_eq!(late.connections.len(), 1);
}

async fn connection_removed_during_read_is_not_found(app: &App) {
    let connection = app.ben.connections[0].id;
    app.reset_calls();
    app.fiskil()
        .add_fault(Fault::delay_ms(600_000).at("/v1/banking/transactions"));
    let path = format!("/v1/transactions?connectionId={connection}");
    let removal = async {
        eventually(async || app.transaction_calls() > 0).await;
        app.remove(connection).await;
        app.fiskil().release_calls();
    };
    let (answer, ()) = tokio::join!(app.get_as(&app.ben.key, &path), removal);
    answer.error(404);
}

also_on_postgres! { connections_of_others_and_removed_ones_are_unknown }

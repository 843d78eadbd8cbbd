//! For a client, connections and accounts of other users are the same as unknown ones.

use bellbird_domain::Plan;
use bellbird_sandbox::{ConsentState, Fault};
use serde_json::json;

use crate::support::harness::{App, Response, Setup, also_on_postgres, eventually};
use crate::support::words::assert_has;

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
async fn ids_of_other_users_are_unknown() {
    let app = App::start(Setup::default()).await;
    let foreign_connection = app.ben.connections[0].id.to_string();
    let foreign_account = app
        .stored_accounts(app.ben.user.id, app.ben.connections[0].id)
        .await[0]
        .id
        .to_string();
    let unknown = "0191e7a0-7c3b-7def-8000-00aabbccddee";
    let own_connection = app.olivia.connections[0].id;
    let own_accounts = app
        .stored_accounts(app.olivia.user.id, own_connection)
        .await;
    let own_account = own_accounts[0].id;
    // Ben reads his own first, so that the caches are warm.
    assert_eq!(
        app.get_as(
            &app.ben.key,
            &format!("/v1/balances?accountIds={foreign_account}")
        )
        .await
        .status,
        200
    );
    assert_eq!(
        app.get_as(
            &app.ben.key,
            &format!("/v1/transactions?connectionId={foreign_connection}")
        )
        .await
        .status,
        200
    );
    app.reset_calls();
    for (path, foreign) in [
        ("/v1/balances?accountIds=ID".to_owned(), &foreign_account),
        (
            format!("/v1/balances?accountIds={own_account},ID"),
            &foreign_account,
        ),
        (
            "/v1/transactions?connectionId=ID".to_owned(),
            &foreign_connection,
        ),
        (
            "/v1/transactions?connectionId=ID&offset=200".to_owned(),
            &foreign_connection,
        ),
        (
            format!("/v1/transactions?connectionId=ID&accountId={foreign_account}"),
            &foreign_connection,
        ),
        (
            format!("/v1/transactions?connectionId=ID&accountId={own_account}"),
            &foreign_connection,
        ),
        (
            format!("/v1/transactions?connectionId={own_connection}&accountId=ID"),
            &foreign_account,
        ),
    ] {
        let foreign = app.get(&path.replace("ID", foreign)).await;
        let unknown = app.get(&path.replace("ID", unknown)).await;
        foreign.error(404);
        assert_eq!(visible(&foreign), visible(&unknown), "{path}");
    }
    assert!(
        app.fiskil().calls().is_empty(),
        "no provider is called for another user's ids"
    );
    let text =
        app.get("/v1/connections").await.text + &app.get("/v1/accounts?limit=200").await.text;
    assert!(!text.contains(&foreign_connection) && !text.contains(&foreign_account));
}

#[tokio::test]
async fn removed_connection_disappears_immediately() {
    let app = App::start(Setup::default()).await;
    let connection = app.olivia.connections[0].id;
    let account = app.stored_accounts(app.olivia.user.id, connection).await[0].id;
    let balances = format!("/v1/balances?accountIds={account}");
    let transactions =
        format!("/v1/transactions?connectionId={connection}&accountId={account}&limit=5");
    assert_eq!(app.get(&balances).await.header("x-cache"), Some("MISS"));
    assert_eq!(app.get(&balances).await.header("x-cache"), Some("HIT"));
    assert_eq!(app.get(&transactions).await.status, 200);
    assert_eq!(app.get("/v1/connections").await.data().len(), 2);
    assert!(
        app.get("/v1/accounts")
            .await
            .text
            .contains(&account.to_string())
    );
    app.remove(connection).await;
    app.get(&balances).await.error(404);
    app.get(&transactions).await.error(404);
    app.get(&format!("{transactions}&offset=5"))
        .await
        .error(404);
    assert_eq!(app.get("/v1/connections").await.data().len(), 1);
    assert!(
        !app.get("/v1/accounts")
            .await
            .text
            .contains(&account.to_string())
    );
    assert_eq!(
        app.fiskil().calls()["/v1/consent/{arrangement_id}"],
        1,
        "consent was withdrawn"
    );
}

#[tokio::test]
async fn import_rejects_other_users_and_keeps_own_ids() {
    let app = App::start(Setup::default()).await;
    let credentials = secrecy::SecretString::from(app.credentials(0).to_string());
    assert!(
        app.connections
            .imports()
            .import(app.ben.user.id, "fiskil", &credentials)
            .await
            .is_err()
    );
    let again = app
        .connections
        .imports()
        .import(app.olivia.user.id, "fiskil", &credentials)
        .await
        .unwrap()
        .connections;
    assert!(
        app.olivia
            .connections
            .iter()
            .any(|connection| connection.id == again[0].id)
    );
    let whole = json!({"endUserId": app.credentials(0)["endUserId"]}).to_string();
    let both = app
        .connections
        .imports()
        .import(
            app.olivia.user.id,
            "fiskil",
            &secrecy::SecretString::from(whole),
        )
        .await
        .unwrap()
        .connections;
    assert_eq!(
        both.len(),
        2,
        "credentials without an arrangement cover all connections of the end user"
    );
}

#[tokio::test]
async fn broken_consent_is_not_imported() {
    let app = App::start(Setup::default()).await;
    let spare = app.credentials(3);
    let consent = spare["arrangementId"].as_str().unwrap();
    for (state, word) in [
        (ConsentState::Revoked, "revoked"),
        (ConsentState::Expired, "invalidated"),
    ] {
        app.fiskil().set_consent(consent, state).unwrap();
        let user = app
            .add_person(&format!("{word}@example.com"), Plan::Developer, &[])
            .await
            .user;
        let credentials = secrecy::SecretString::from(spare.to_string());
        let error = app
            .connections
            .imports()
            .import(user.id, "fiskil", &credentials)
            .await
            .unwrap_err()
            .to_string();
        assert_has(&error, word);
        assert!(app.connections_of(user.id).await.is_empty());
    }
    app.fiskil()
        .set_consent(consent, ConsentState::Active)
        .unwrap();
    assert_eq!(
        app.add_person("late@example.com", Plan::Developer, &[&spare])
            .await
            .connections
            .len(),
        1
    );
}

#[tokio::test]
async fn connection_removed_during_read_is_not_found() {
    let app = App::start(Setup::default()).await;
    let connection = app.ben.connections[0].id;
    app.fiskil()
        .add_fault(Fault::delay_ms(700).at("/v1/banking/transactions"));
    let path = format!("/v1/transactions?connectionId={connection}");
    let removal = async {
        eventually(async || app.transaction_calls() > 0).await;
        app.remove(connection).await;
    };
    let (answer, ()) = tokio::join!(app.get_as(&app.ben.key, &path), removal);
    answer.error(404);
}

also_on_postgres! { ids_of_other_users_are_unknown removed_connection_disappears_immediately }

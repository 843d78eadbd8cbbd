//! What happens to attempts while something else happens: a removal, a redelivery, a lost lease, a
//! failing database.

use bellbird_domain::DeliveryState;
use bellbird_sandbox::Fault;
use jiff::SignedDuration;

use super::{BODY_EXPIRED, HOUR};
use crate::support::database::query;
use crate::support::harness::{App, Database, Setup, also_on_postgres, eventually};
use crate::support::receiver::Reply;

/// Concurrent attempts for one endpoint.
const CONCURRENT: usize = 16;
/// Longer than any lease of an endpoint.
const LEASE_EXPIRED: SignedDuration = SignedDuration::from_secs(120);

/// By a redelivery, by an instance that takes the lease over, and by a removal.
#[tokio::test]
async fn attempts_are_interrupted_by_what_happens_meanwhile() {
    let app = App::start(Setup::default()).await;
    let connection = &app.olivia.connections[0];
    let hook = app.hook_on(connection).await;
    app.add_event(connection, "SENT TWICE").await;
    let event = app.last_delivery(&hook).await.event_id;
    hook.receiver.reply_next_with([Reply::Held(500)]);
    let redelivering = async {
        eventually(async || hook.receiver.has_requests()).await;
        app.advance_own_clock(SignedDuration::from_secs(1));
        app.redeliver(&hook, event).await.unwrap();
        hook.receiver.release();
    };
    tokio::join!(app.webhooks.run_due_deliveries(), redelivering);
    assert_eq!(
        hook.drain().len(),
        2,
        "the redelivery does not wait for a retry"
    );
    let delivery = app.last_delivery(&hook).await;
    let expected = (DeliveryState::Delivered, 1);
    assert_eq!((delivery.state, delivery.attempts), expected);

    // An instance loses its lease.
    app.delete_hook(&hook).await;
    let hook = app.hook(&app.olivia.user).await;
    app.add_event(connection, "SENT BY ANOTHER INSTANCE").await;
    app.advance_clock(BODY_EXPIRED);
    app.reset_calls();
    app.fiskil()
        .add_fault(Fault::delay_ms(600_000).at("/v1/banking/transactions"));
    let other_instance = async {
        eventually(async || app.transaction_calls() > 0).await;
        // As if this one had been paused meanwhile.
        app.advance_own_clock(LEASE_EXPIRED);
        let now = app.clock.now();
        let deliveries = app.storage.deliveries();
        let claims = deliveries.claim_endpoints(now, now + HOUR, 9, false).await;
        assert_eq!(claims.unwrap().len(), 1);
        app.fiskil().release_calls();
    };
    tokio::join!(app.webhooks.run_due_deliveries(), other_instance);
    assert!(hook.drain().is_empty());

    // A removal stops the deliveries that are loaded.
    app.delete_hook(&hook).await;
    let hook = app.hook(&app.olivia.user).await;
    for number in 0..CONCURRENT + 4 {
        app.add_event(connection, &format!("EVENT {number}")).await;
    }
    // The consent cannot be withdrawn now, so the removal takes long.
    app.fiskil().add_fault(Fault::status(503).at("/v1/consent"));
    hook.receiver.reply_with(Reply::Held(500));
    let removing = async {
        eventually(async || hook.receiver.request_count() == CONCURRENT).await;
        let _ = app.connections.removals().remove(connection.id).await;
        hook.receiver.release();
    };
    tokio::join!(app.webhooks.run_due_deliveries(), removing);
    assert_eq!(
        hook.drain().len(),
        CONCURRENT,
        "nothing is sent after the removal began"
    );
}

mod postgres {
    use super::*;

    /// A sequence of PostgreSQL counts the failures, because a rolled back transaction cannot.
    #[tokio::test]
    async fn results_are_stored_once_the_database_answers_again() {
        let setup = Setup {
            database: Database::Postgres,
            ..Setup::default()
        };
        let app = App::start(setup).await;
        let (database, connection) = (&app.shared.database, &app.olivia.connections[0]);
        let hook = app.hook_on(connection).await;
        app.add_event(connection, "SENT ONCE").await;
        let broken = "CREATE SEQUENCE failures;
            CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN PERFORM nextval('failures'); RAISE EXCEPTION USING ERRCODE = '57P03'; END $$;
            CREATE TRIGGER fail BEFORE UPDATE ON webhook_deliveries FOR EACH ROW EXECUTE FUNCTION fail()";
        query(database, broken).await;
        let repairing = async {
            let failures =
                async || query(database, "SELECT last_value FROM failures WHERE is_called").await;
            eventually(async || !failures().await.is_empty()).await;
            query(database, "DROP TRIGGER fail ON webhook_deliveries").await;
        };
        tokio::join!(app.webhooks.run_due_deliveries(), repairing);
        app.advance_clock(LEASE_EXPIRED);
        app.webhooks.run_due_deliveries().await;
        assert_eq!(hook.drain().len(), 1, "not sent again");
        let state = app.last_delivery(&hook).await.state;
        assert_eq!(state, DeliveryState::Delivered);
    }
}

also_on_postgres! { attempts_are_interrupted_by_what_happens_meanwhile }

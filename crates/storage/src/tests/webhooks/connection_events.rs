//! The webhook events about a connection: new, changed, its consent ends soon, removed.

use bellbird_domain::ConnectionStatus::{Active, Invalidated, PendingMfa, Revoked};
use bellbird_domain::{
    ConnectionCategory, ConnectionId, ConnectionStatus, DeliveryState, EndpointId, EventType,
    SyncRunId, UserId,
};

use crate::job_kinds::REFRESH;
use crate::tests::fixtures::{SYNCS_AND_CHANGES, claimed_endpoint, endpoint, states};
use crate::tests::support::{TestDb, at, both, new_account, new_connection};
use crate::{
    BrokenConnection, ConnectionCount, EndingConsent, EventConnection, NewConnection, WebhookEvent,
    in_tx,
};

const SUBSCRIBED: &[EventType] = &[EventType::ConnectionUpdated];

/// Changes a status at `now`, as a refresh does.
async fn change(
    db: &TestDb,
    of: (UserId, ConnectionId),
    from: ConnectionStatus,
    to: ConnectionStatus,
    now: i64,
) {
    assert!(db.set_status(of, from, to, at(now)).await, "{from} -> {to}");
}

/// The events of the endpoint's deliveries, oldest first.
async fn events(db: &TestDb, user: UserId, endpoint: EndpointId) -> Vec<WebhookEvent> {
    let mut events = Vec::new();
    for delivery in db
        .deliveries()
        .list(user, endpoint, None, 99)
        .await
        .unwrap()
    {
        events.push(
            db.webhook_events()
                .find(user, delivery.event_id)
                .await
                .unwrap()
                .expect("stored"),
        );
    }
    events.reverse();
    events
}

async fn changes(
    db: &TestDb,
    user: UserId,
    endpoint: EndpointId,
) -> Vec<(ConnectionStatus, ConnectionStatus)> {
    let events = events(db, user, endpoint).await;
    let changes = events
        .into_iter()
        .map(|event| event.shown.expect("a status change"));
    changes
        .map(|shown| (shown.previous_status.expect("a change"), shown.status))
        .collect()
}

both! {
    async fn each_change_is_an_event_of_its_subscribers(db) {
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        let id = db.connection(user, "c", &[new_account("acc", "One")]).await.id;
        let subscriber = endpoint(db, user, SUBSCRIBED).await;
        let disabled = endpoint(db, user, SYNCS_AND_CHANGES).await;
        in_tx!(db, endpoints::disable((user, disabled), "by command", at(20))).await.unwrap().expect("disabled");
        let default = endpoint(db, user, &[EventType::TransactionsSynced, EventType::TradesSynced]).await;
        let stranger = endpoint(db, other, SUBSCRIBED).await;

        let claim = db.claim(REFRESH, user, id, at(50), at(90)).await.unwrap().expect("claimed");
        assert!(db.refreshes().set_status(&claim, Active, PendingMfa, "refreshed", at(51), at(53)).await.unwrap());
        let set = async |from, to| {
            db.refreshes().set_status(&claim, from, to, "refreshed", at(52), at(52)).await.unwrap()
        };
        assert!(set(PendingMfa, PendingMfa).await, "no change");
        assert!(!set(Active, Revoked).await, "it has another status");

        let event = events(db, user, subscriber).await.remove(0);
        let expected = WebhookEvent {
            id: event.id,
            event_type: EventType::ConnectionUpdated,
            connection_id: Some(id),
            sync_run_id: SyncRunId::from(event.id.uuid()),
            created_at: at(51),
            date_range: (at(51), at(51)),
            rows: Vec::new(),
            new_count: 0,
            updated_count: 1,
            chunk: 1,
            total_chunks: 1,
            row_locator: Vec::new(),
            removed: Vec::new(),
            shown: Some(EventConnection {
                provider: "akahu".to_owned(),
                category: ConnectionCategory::Banking,
                institution_id: "bank_1".to_owned(),
                institution_name: "First Bank".to_owned(),
                status: PendingMfa,
                previous_status: Some(Active),
                last_refreshed_at: Some(at(10)),
                consent_expires_at: None,
            }),
        };
        assert_eq!(event, expected);
        for (user, endpoint, expected) in [
            (user, subscriber, vec![DeliveryState::Pending]),
            (user, disabled, vec![DeliveryState::Failed]),
            (user, default, vec![]),
            (other, stranger, vec![]),
        ] {
            assert_eq!(states(db, user, endpoint).await, expected);
        }
        assert!(db.deliveries().claim_endpoints(at(52), at(60), 9, false).await.unwrap().is_empty(), "due at 53");
        let claim = claimed_endpoint(db, subscriber, 53).await;
        let due = db.deliveries().list_due(&claim, at(53), 9).await.unwrap();
        assert_eq!((due.len(), &due[0].event, due[0].is_first()), (1, &expected, true));

        // A disabled endpoint is recovered as with any event.
        assert!(in_tx!(db, endpoints::enable((user, disabled), at(100))).await.unwrap());
        assert_eq!(in_tx!(db, redeliveries::recover((user, disabled), at(0), at(60))).await.unwrap(), Some(1));
        assert_eq!(states(db, user, disabled).await, [DeliveryState::Pending]);
    }

    async fn event_keeps_what_it_says(db) {
        let user = db.user("a@x").await.id;
        let id = db.connection(user, "c", &[]).await.id;
        let subscriber = endpoint(db, user, SUBSCRIBED).await;
        change(db, (user, id), Active, Invalidated, 20).await;
        change(db, (user, id), Invalidated, PendingMfa, 30).await;
        change(db, (user, id), PendingMfa, Revoked, 40).await;
        let accounts = [new_account("acc", "One")];
        let renewed = NewConnection { institution_name: "Renamed Bank", ..new_connection(user, "c") };
        db.connections().import(&renewed, &accounts, at(50)).await.unwrap();
        db.connections().import(&renewed, &accounts, at(60)).await.unwrap();
        let said = |name: &str, previous_status, status, refreshed: Option<i64>| EventConnection {
            provider: "akahu".to_owned(),
            category: ConnectionCategory::Banking,
            institution_id: "bank_1".to_owned(),
            institution_name: name.to_owned(),
            status,
            previous_status: Some(previous_status),
            last_refreshed_at: refreshed.map(at),
            consent_expires_at: None,
        };
        let stored = events(db, user, subscriber).await;
        let found: Vec<_> = stored.into_iter().filter_map(|event| event.shown).collect();
        let expected = [
            said("First Bank", Active, Invalidated, None),
            said("First Bank", Invalidated, PendingMfa, None),
            said("First Bank", PendingMfa, Revoked, None),
            said("Renamed Bank", Revoked, Active, Some(50)),
        ];
        assert_eq!(found, expected, "the second import has changed no status");

        // A repair with another consent is one event.
        change(db, (user, id), Active, Revoked, 70).await;
        let repair = NewConnection { repairs: Some(id), ..new_connection(user, "after") };
        db.connections().import(&repair, &[], at(80)).await.unwrap();
        assert_eq!(changes(db, user, subscriber).await[4..], [(Active, Revoked), (Revoked, Active)]);
        let events = events(db, user, subscriber).await;
        assert!(events.iter().all(|event| event.connection_id == Some(id)), "the former consent has no event");
    }

    async fn new_and_removed_connections_have_events_of_their_own(db) {
        let user = db.user("a@x").await.id;
        let types = [EventType::ConnectionCreated, EventType::ConnectionRemoved];
        let subscriber = endpoint(db, user, &types).await;
        let of_changes = endpoint(db, user, SUBSCRIBED).await;
        let id = db.connection(user, "c", &[]).await.id;
        assert_eq!(states(db, user, of_changes).await, []);
        change(db, (user, id), Active, Revoked, 20).await;
        assert_eq!(states(db, user, of_changes).await, [DeliveryState::Pending]);
        let created = events(db, user, subscriber).await.remove(0);
        assert_eq!((created.event_type, created.new_count, created.updated_count), (types[0], 1, 0));
        let shown = created.shown.expect("a connection");
        assert_eq!((shown.status, shown.previous_status, &*shown.institution_name), (Active, None, "First Bank"));

        let removal = db.hide(user, id, 30, 90).await;
        let removed = events(db, user, subscriber).await.remove(0);
        assert_eq!((removed.event_type, removed.connection_id, removed.shown.clone()), (types[1], Some(id), None));
        assert_eq!((removed.new_count, removed.updated_count), (0, 0));
        assert_eq!(states(db, user, subscriber).await, [DeliveryState::Pending], "what was pending is not sent");
        assert_eq!(states(db, user, of_changes).await, [], "neither to others");
        assert_eq!(db.removals().delete_webhook_events(&removal, 9).await.unwrap(), Some(2));
        assert!(db.removals().finish(&removal, "deleted", at(40)).await.unwrap());
        assert_eq!(events(db, user, subscriber).await, std::slice::from_ref(&removed), "it outlives the connection");
        in_tx!(db, redeliveries::redeliver((user, subscriber), removed.id, at(50))).await.unwrap();
        let names = "SELECT COALESCE(institution_name, '') FROM webhook_events";
        assert_eq!(db.texts(names).await, [""], "it names nothing of the connection");
    }

    async fn consent_that_ends_soon_is_reported_twice(db) {
        const DAY: i64 = 86_400;
        let user = db.user("a@x").await.id;
        let subscriber = endpoint(db, user, &[EventType::ConnectionExpiring]).await;
        let with_end = async |consent: &str, end: Option<i64>, now: i64| {
            let new = NewConnection { consent_expires_at: end.map(at), ..new_connection(user, consent) };
            db.connections().import(&new, &[], at(now)).await.unwrap().id
        };
        let id = with_end("c", Some(20 * DAY), 0).await;
        with_end("unknown", None, 0).await;
        let revoked = with_end("revoked", Some(20 * DAY), 0).await;
        change(db, (user, revoked), Active, Revoked, 20).await;
        let report = async |now: i64| db.connections().report_expiring(at(now)).await.unwrap();
        let reports = [6 * DAY - 1, 6 * DAY, 16 * DAY, 17 * DAY, 17 * DAY + 1, 20 * DAY];
        let mut reported = Vec::new();
        for now in reports {
            reported.push(report(now).await);
        }
        assert_eq!(reported, [0, 1, 0, 1, 0, 0]);
        let found = events(db, user, subscriber).await;
        let said: Vec<_> = found.iter().map(|event| (event.connection_id, event.created_at)).collect();
        assert_eq!(said, [(Some(id), at(6 * DAY)), (Some(id), at(17 * DAY))]);
        let shown = found[0].shown.as_ref().expect("a connection");
        assert_eq!((shown.status, shown.previous_status), (Active, None));
        assert_eq!(shown.consent_expires_at, Some(at(20 * DAY)));

        // A renewed consent is another one. An end that moves by less than a day is not.
        with_end("c", Some(30 * DAY), 20 * DAY).await;
        assert_eq!(report(20 * DAY).await, 1);
        let claim = db.claim(REFRESH, user, id, at(20 * DAY), at(21 * DAY)).await.unwrap().expect("claimed");
        for (end, expected) in [(31 * DAY - 1, 0), (33 * DAY, 1)] {
            assert!(db.refreshes().set_consent_expiry(&claim, Some(at(end))).await.unwrap());
            assert_eq!(report(20 * DAY).await, expected, "{end}");
        }
        // One that is near from the beginning is reported once.
        with_end("near", Some(21 * DAY), 20 * DAY).await;
        assert_eq!((report(20 * DAY).await, report(20 * DAY + 1).await), (1, 0));
    }

    async fn status_and_event_are_stored_together(db) {
        let user = db.user("a@x").await.id;
        let id = db.connection(user, "c", &[]).await.id;
        let subscriber = endpoint(db, user, SUBSCRIBED).await;
        let claim = db.claim(REFRESH, user, id, at(50), at(90)).await.unwrap().expect("claimed");
        let revoke = async |now| {
            db.refreshes().set_status(&claim, Active, Revoked, "refreshed", at(now), at(now)).await
        };
        db.raw("ALTER TABLE webhook_deliveries RENAME TO away").await;
        assert!(revoke(51).await.is_err());
        db.raw("ALTER TABLE away RENAME TO webhook_deliveries").await;
        assert_eq!(db.connections().find(user, id).await.unwrap().unwrap().status, Active);
        assert_eq!((db.connections().list_audit(id).await.unwrap().len(), db.revision(user).await), (1, 1));
        assert!(revoke(52).await.unwrap());
        assert_eq!(changes(db, user, subscriber).await, [(Active, Revoked)]);
    }

    async fn connections_are_counted_by_status_and_end(db) {
        const DAY: i64 = 86_400;
        assert_eq!(db.connections().count().await.unwrap(), []);
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        let mut ids = Vec::new();
        for (user, consent) in [(user, "c1"), (user, "c2"), (other, "c3"), (other, "c4")] {
            ids.push((user, db.connection(user, consent, &[]).await.id));
        }
        change(db, ids[1], Active, Revoked, 20).await;
        change(db, ids[2], Active, Invalidated, 30).await;
        change(db, ids[2], Invalidated, Revoked, 40).await;
        change(db, ids[3], Active, PendingMfa, 35).await;
        let mut counts = db.connections().count().await.unwrap();
        counts.sort_unstable_by_key(|counted| counted.status);
        let count = |status, count| ConnectionCount { provider: "akahu".to_owned(), status, count };
        assert_eq!(counts, [count(Active, 1), count(PendingMfa, 1), count(Revoked, 2)]);
        let broken = |at_index: usize, user_email: &str, status, since| BrokenConnection {
            id: ids[at_index].1,
            user_email: user_email.to_owned(),
            provider: "akahu".to_owned(),
            institution_name: "First Bank".to_owned(),
            status,
            since: Some(at(since)),
        };
        let all = [broken(2, "b@x", Revoked, 40), broken(3, "b@x", PendingMfa, 35), broken(1, "a@x", Revoked, 20)];
        assert_eq!(db.connections().list_broken(9).await.unwrap(), all);
        assert_eq!(db.connections().list_broken(2).await.unwrap(), all[..2]);

        // Consents that end soon are found.
        let mut ids = Vec::new();
        for (user, consent, end) in [
            (user, "later", Some(14 * DAY + 1)),
            (user, "last", Some(14 * DAY)),
            (other, "unknown", None),
            (other, "over", Some(-DAY)),
            (other, "revoked", Some(DAY)),
            (other, "soon", Some(3 * DAY)),
        ] {
            let new = NewConnection { consent_expires_at: end.map(at), ..new_connection(user, consent) };
            ids.push((user, db.connections().import(&new, &[], at(0)).await.unwrap().id));
        }
        change(db, ids[4], Active, Revoked, 20).await;
        assert_eq!(db.connections().count_ending(at(0)).await.unwrap(), [("akahu".to_owned(), 3)].into());
        let ending = |at_index: usize, user_email: &str, end| EndingConsent {
            id: ids[at_index].1,
            user_email: user_email.to_owned(),
            institution_name: "First Bank".to_owned(),
            expires_at: at(end),
        };
        let all = [ending(3, "b@x", -DAY), ending(5, "b@x", 3 * DAY), ending(1, "a@x", 14 * DAY)];
        assert_eq!(db.connections().list_ending(at(0), 9).await.unwrap(), all);
        assert_eq!(db.connections().list_ending(at(0), 2).await.unwrap(), all[..2]);
        assert_eq!(db.connections().count_ending(at(-16 * DAY)).await.unwrap(), [].into());
    }
}

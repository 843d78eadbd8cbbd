//! Removals as jobs: claims, leases, due times and deleted rows.

use std::collections::BTreeSet;

use bellbird_domain::{ConnectionStatus, UserId};

use crate::digest::provider_user_digest;
use crate::job_kinds::REMOVAL;
use crate::tests::fixtures::{
    SYNCS_AND_CHANGES, chunk, empty_sync, endpoint, fingerprint, fingerprints, finish_sync_with,
    new_link, new_session, session_with_callback, start_sync, wait_for_lock_waiters,
};
use crate::tests::jobs::fixtures::ids;
use crate::tests::support::{
    TestDb, assert_fails, at, both, connect, masked, new_account, new_connection, on_postgres,
};
use crate::{
    FinishedSync, NewAccount, NewConnection, NewConsentSession, NewLink, NewWebhookEvent, in_tx,
};

both! {
    async fn begin_removal_hides_and_claims(db) {
        let user = db.user("a@x").await.id;
        let id = db.connection(user, "c", &[]).await.id;
        let claim = db.hide(user, id, 20, 50).await;
        assert_eq!(
            (claim.user_id(), claim.connection_id(), claim.provider.as_str(), claim.attempts),
            (user, id, "akahu", 0)
        );
        assert_eq!(db.removals().begin(user, id, at(20), at(50)).await.unwrap(), None, "hidden already");
        assert_eq!(db.removals().begin(UserId::new(), id, at(20), at(50)).await.unwrap(), None);
        assert_eq!(db.revision(user).await, 2);
        for now in [20, 49] {
            assert_eq!(db.claim(REMOVAL, user, id, at(now), at(90)).await.unwrap(), None, "leased");
            assert_eq!(db.claim_due(REMOVAL, at(now), at(90), 8).await.unwrap(), []);
        }
        let other = db.claim_due(REMOVAL, at(50), at(90), 8).await.unwrap();
        assert_eq!(ids(&other), [id]);
        assert_eq!(db.claim(REMOVAL, user, id, at(60), at(90)).await.unwrap(), None);
        // A claim that lost its lease changes nothing.
        assert!(!db.jobs().fail(&claim, "late", at(99)).await.unwrap());
        assert!(!db.removals().finish(&claim, "deleted", at(60)).await.unwrap());
        assert_eq!(db.revision(user).await, 2);
        assert!(db.removals().finish(&other[0], "deleted", at(60)).await.unwrap());
        assert!(!db.removals().finish(&other[0], "deleted", at(60)).await.unwrap());
        assert_eq!((db.removals().list().await.unwrap().len(), db.revision(user).await), (0, 3));
        // One that nobody claimed is due, and was not interrupted.
        let id = db.connection(user, "denied", &[]).await.id;
        assert_eq!(db.removals().begin_because("denied", user, id, at(20), None).await.unwrap(), None);
        let claim = db.jobs().claim_due(REMOVAL, "akahu", at(20), at(90)).await.unwrap().expect("due");
        assert_eq!((claim.connection_id(), claim.attempts, claim.was_interrupted), (id, 0, false));
    }

    // Both change the user, the user's queues and the job of the user's own removal.
    async fn two_removals_of_a_user_finish_at_once(db) {
        let user = db.user("a@x").await.id;
        endpoint(db, user, SYNCS_AND_CHANGES).await;
        let other = db.reopen().await;
        for round in 0..5 {
            let mut claims = Vec::new();
            for number in 0..2 {
                let id = db.connection(user, &format!("c{round}{number}"), &[]).await.id;
                finish_sync_with(db, (user, id), 14, &[chunk(1, 2), chunk(2, 2)]).await;
                claims.push(db.hide(user, id, 20, 50).await);
            }
            let before = db.revision(user).await;
            let finished = tokio::join!(
                db.removals().finish(&claims[0], "deleted", at(30)),
                other.removals().finish(&claims[1], "deleted", at(30)),
            );
            assert!(finished.0.unwrap() && finished.1.unwrap(), "{round}");
            assert_eq!(db.revision(user).await, before + 2, "{round}");
        }
        for table in ["connections", "webhook_deliveries", "webhook_events"] {
            assert_eq!(db.rows(table).await, 0, "{table}");
        }
    }

    async fn events_are_deleted_in_batches(db) {
        let user = db.user("a@x").await.id;
        let id = db.connection(user, "c", &[]).await.id;
        let kept = db.connection(user, "kept", &[]).await.id;
        endpoint(db, user, SYNCS_AND_CHANGES).await;
        for connection in [id, kept] {
            finish_sync_with(db, (user, connection), 14, &[chunk(1, 3), chunk(2, 3), chunk(3, 3)]).await;
        }
        let claim = db.hide(user, id, 20, 50).await;
        assert_eq!(db.rows("webhook_deliveries").await, 3, "only the other's");
        assert_eq!(db.removals().delete_webhook_events(&claim, 2).await.unwrap(), Some(2));
        assert_eq!(db.rows("webhook_events").await, 4);
        assert_eq!(db.removals().delete_webhook_events(&claim, 2).await.unwrap(), Some(1));
        assert_eq!(db.removals().delete_webhook_events(&claim, 2).await.unwrap(), Some(0));
        let next = db.claim(REMOVAL, user, id, at(60), at(90)).await.unwrap().expect("the lease has expired");
        assert_eq!(db.removals().delete_webhook_events(&claim, 2).await.unwrap(), None, "lease lost");
        assert!(db.removals().finish(&next, "deleted", at(61)).await.unwrap());
        assert_eq!((db.rows("webhook_events").await, db.rows("webhook_deliveries").await), (3, 3));
    }

    async fn failed_attempt_records_error_and_time(db) {
        let user = db.user("a@x").await.id;
        let id = db.connection(user, "c", &[]).await.id;
        let claim = db.hide(user, id, 20, 50).await;
        assert!(db.jobs().fail(&claim, "the provider is not available", at(30)).await.unwrap());
        let waiting = db.removals().list().await.unwrap();
        assert_eq!(db.removals().find(user, id).await.unwrap().as_ref(), Some(&waiting[0]));
        assert_eq!((waiting[0].connection.id, waiting[0].connection.status), (id, ConnectionStatus::Deleting));
        assert_eq!((waiting[0].attempts, waiting[0].next_attempt_at), (1, at(30)));
        assert_eq!(waiting[0].last_error.as_deref(), Some("the provider is not available"));
        assert_eq!(db.claim_due(REMOVAL, at(29), at(90), 8).await.unwrap(), [], "not due");
        let claim = db.claim(REMOVAL, user, id, at(29), at(90)).await.unwrap().expect("claimed before it is due");
        assert_eq!(claim.attempts, 1);
        assert!(db.jobs().fail(&claim, "still", at(40)).await.unwrap());
        assert_eq!(db.claim_due(REMOVAL, at(40), at(90), 8).await.unwrap()[0].attempts, 2);
        assert_eq!(db.revision(user).await, 2, "retries do not change it");
    }

    async fn ended_connections_are_listed(db) {
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        let gone = db.connection(user, "gone", &[]).await.id;
        let hidden = db.connection(other, "hidden", &[]).await.id;
        db.connection(user, "stays", &[]).await;
        assert!(db.remove(user, gone, at(20)).await);
        db.hide(other, hidden, 30, 90).await;
        let ended =
            async |since| db.connections().list_ended(at(since)).await.unwrap().into_iter().collect::<BTreeSet<_>>();
        assert_eq!(ended(0).await, BTreeSet::from([(user, gone), (other, hidden)]));
        assert_eq!(ended(30).await, BTreeSet::from([(other, hidden)]));
        assert_eq!(ended(31).await, BTreeSet::new());
    }

    async fn removal_leaves_no_trace(db) {
        let user = db.user("a@x").await.id;
        let number = masked("06-1234-9876");
        let account = NewAccount { number: Some(&number), ..new_account("acc_provider_gone", "Rainy Day Gone") };
        let new = NewConnection {
            provider_user_id: Some("puser_gone"),
            next_refresh_at: Some(at(5)),
            ..new_connection(user, "consent_before_gone")
        };
        let made = db.connections().import(&new, &[], at(10)).await.unwrap();
        let new = NewConnection { repairs: Some(made.id), ..new_connection(user, "consent_gone") };
        db.connections().import(&new, &[account], at(12)).await.unwrap();
        let replaced = db.claim_due(REMOVAL, at(12), at(50), 9).await.unwrap().remove(0);
        let kept = db.connection(user, "consent_kept", &[new_account("acc_provider_kept", "Kept")]).await;
        let accounts = db.accounts().list_of_connection(user, made.id).await.unwrap();
        for connection in [made.id, kept.id] {
            let token = format!("token of {connection}");
            let link = NewLink { connection_id: Some(connection), ..new_link(user, &token, at(9999)) };
            in_tx!(db, links::insert(&link, at(13))).await.unwrap();
            let known_consents = &["consent_gone", "consent_before_gone"];
            let session =
                NewConsentSession { connection_id: Some(connection), known_consents, ..new_session(user, &token) };
            db.consent_sessions().insert(&session, at(13)).await.unwrap();
        }
        endpoint(db, user, SYNCS_AND_CHANGES).await;
        db.syncs().fingerprint_key(user, made.id).await.unwrap().expect("made");
        let sync = start_sync(db, user, made.id, 14).await;
        let digest = [0x6b; 16];
        let fingerprints = fingerprints(&[fingerprint(0x6b, 0, 0x6b)]);
        let events = [NewWebhookEvent { row_keys: digest.to_vec(), ..chunk(1, 1) }];
        let finished = FinishedSync { fingerprints: Some(&fingerprints), events: &events, ..empty_sync(14) };
        assert_eq!(db.syncs().finish(&sync, &finished).await.unwrap(), Some(1));
        let names = [
            made.id.to_string(),
            replaced.connection_id().to_string(),
            accounts[0].id.to_string(),
            "acc_provider_gone".to_owned(),
            "Rainy Day Gone".to_owned(),
            "consent_gone".to_owned(),
            "consent_before_gone".to_owned(),
            provider_user_digest("puser_gone"),
            // With its mask: random ids may have the four digits alone.
            "xxxx9876".to_owned(),
            "k".repeat(16),
            events[0].id.to_string(),
        ];
        for name in &names {
            assert!(!columns_containing(db, name).await.is_empty(), "{name}: the search works");
        }
        let claim = db.hide(user, made.id, 20, 50).await;
        assert_eq!(columns_containing(db, &events[0].id.to_string()).await, ["webhook_events.id"], "nothing is sent");
        assert_eq!(db.removals().delete_webhook_events(&claim, 9).await.unwrap(), Some(1));
        assert!(db.jobs().fail(&claim, "the provider is not available", at(30)).await.unwrap());
        assert_eq!(columns_containing(db, &events[0].id.to_string()).await, [""; 0], "its events are deleted");
        let claim = db.claim(REMOVAL, user, made.id, at(30), at(50)).await.unwrap().expect("claimed");
        let columns_with_its_id = [
            "accounts.connection_id",
            "connection_audit.connection_id",
            "connections.id",
            "consent_sessions.connection_id",
            "fingerprints.connection_id",
            "jobs.subject",
            "links.connection_id",
            "secrets.subject",
            "syncs.connection_id",
        ];
        assert_eq!(columns_containing(db, &names[0]).await, columns_with_its_id);
        assert!(db.removals().finish(&claim, "deleted", at(40)).await.unwrap());
        assert!(db.removals().finish(&replaced, "deleted", at(40)).await.unwrap());
        for name in &names[..2] {
            assert_eq!(
                columns_containing(db, name).await,
                ["connection_audit.connection_id"],
                "the audit outlives the connection"
            );
        }
        assert_eq!(
            db.texts("SELECT COALESCE(CAST(connection_id AS TEXT), '') FROM consent_sessions ORDER BY 1").await,
            [String::new(), kept.id.to_string()]
        );
        assert_eq!(db.texts("SELECT connection_id FROM links").await, [kept.id.to_string()]);
        for name in &names[2..] {
            assert_eq!(columns_containing(db, name).await, [""; 0], "{name}");
        }
        let audit = "SELECT CAST(COUNT(*) AS TEXT) FROM connection_audit
            WHERE cause NOT IN ('imported', 'replaced', 'removed', 'deleted')";
        assert_eq!(db.texts(audit).await, ["0"]);
        assert!(!columns_containing(db, &kept.id.to_string()).await.is_empty());
        assert_fails!(in_tx!(db, user::delete(user, at(900))).await, Conflict(_), "the other connection exists");
    }
}

/// Key rotation holds secrets of one user and wants those of another. Cleanup waits for a secret,
/// and holds up no other user.
#[test]
fn postgres_transactions_do_not_deadlock() {
    on_postgres(async |db| {
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        session_with_callback(db, user, "with a secret").await;
        let id = db.connection(other, "c", &[]).await.id;
        let session = NewConsentSession {
            connection_id: Some(id),
            ..new_session(other, "of the connection")
        };
        db.consent_sessions().insert(&session, at(0)).await.unwrap();
        let claim = db.hide(other, id, 20, 90).await;
        let sealing = connect(&db.url).await;
        sealing
            .batch_execute(
                "BEGIN; UPDATE secrets SET sealed = sealed WHERE purpose = 'consent_session'",
            )
            .await
            .unwrap();
        let (deleted, removed) = tokio::join!(
            db.consent_sessions().delete_outdated(at(7 * 24 * 60 * 60)),
            async {
                wait_for_lock_waiters(db, 1).await;
                let removed = db.removals().finish(&claim, "deleted", at(30)).await;
                sealing
                    .batch_execute(
                        "UPDATE secrets SET sealed = sealed WHERE purpose = 'credentials'; COMMIT",
                    )
                    .await
                    .unwrap();
                removed
            }
        );
        assert_eq!((deleted.unwrap(), removed.unwrap()), (2, true));
        assert_eq!(db.secrets().count().await.unwrap(), 0);
    });
}

/// Every column of every table in which a value contains the text, as `table.column`. Bytes are
/// searched too.
async fn columns_containing(db: &TestDb, text: &str) -> Vec<String> {
    let columns = db.columns().await;
    assert!(columns.len() > 40, "{columns:?}");
    let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    let search = |name: String| {
        let (table, column) = name.split_once('.').unwrap();
        let is_bytes = ["sealed", "row_keys"].contains(&column)
            || ["_hash", "_digest", "_digests"]
                .iter()
                .any(|end| column.ends_with(end))
                && column != "provider_user_digest";
        let (value, needle) = match (is_bytes, db.kind()) {
            (false, _) => (format!("CAST({column} AS TEXT)"), text),
            (true, "sqlite") => (format!("lower(hex({column}))"), hex.as_str()),
            (true, _) => (format!("encode({column}, 'hex')"), hex.as_str()),
        };
        format!(
            "SELECT '{name}' WHERE EXISTS (SELECT 1 FROM {table} WHERE {value} LIKE '%{needle}%')"
        )
    };
    let searches: Vec<String> = columns.into_iter().map(search).collect();
    db.texts(&format!("{} ORDER BY 1", searches.join(" UNION ALL ")))
        .await
}
